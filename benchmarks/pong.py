"""Pong from recorded frames: IL, BCQ, CQL, CRR and CRR with CQL's term, beside the data's return.

Takes a file of single frames (`frames`, `final_frames`, `episode_offsets` and D4RL's other columns)
or one that `leeward collect` wrote. A row is one algorithm, number of updates and list of seeds.
Rows that benchmarks/results/pong.jsonl holds already are skipped, and a row that the budget stopped
goes on where it was, so the command can be repeated until all are there. Wall times are kept: the
machine must be idle, or `--shared` says that it was not, and the table leaves them out.

    python benchmarks/pong.py --data pong.hdf5 --budget-minutes 25
    python benchmarks/pong.py --table
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

import leeward
from leeward.data.registry import normalized_score
from leeward.published import scores
from records import append, conclude, read_lines, surroundings

HERE = Path(__file__).parent
ENV = "PongNoFrameskip-v4"
PRESET = "tianshou"


class Row(NamedTuple):
    """One algorithm with its settings."""

    name: str
    algorithm: str
    settings: dict[str, Any]
    published: str | None = None
    """The row of Tianshou's table that it stands beside."""


ROWS = (
    Row("IL", "bc", {}, "tianshou/atari-il-pong-1e6"),
    Row("BCQ", "bcq", {}, "tianshou/atari-bcq-pong-1e6"),
    Row("CQL", "cql", {}, "tianshou/atari-cql-pong-1e6"),
    Row("CRR", "crr", {"cql_weight": 0.0}, "tianshou/atari-crr-pong-1e6"),
    Row("CRR+CQL", "crr", {"cql_weight": 10.0}, "tianshou/atari-crr-cql-pong-1e6"),
    Row("IL, best 10 %", "bc", {"best_fraction": 0.1}),
)
IQL = Row("IQL", "iql", {"batch_size": 32, "actor_lr": 1e-4, "critic_lr": 1e-4, "value_lr": 1e-4})
"""Ours, with the batch and the rate of the others; five networks, so only where it is named."""
KEY = ("row", "steps", "seeds", "episodes", "data", "settings")


def main(arguments: list[str] | None = None) -> int:
    """Trains the rows that are missing, then writes the table."""
    parser = argparse.ArgumentParser(description="Pong from recorded frames.")
    names = [row.name for row in (*ROWS, IQL)]
    parser.add_argument("--data", type=Path, help="an HDF5 file of Pong")
    parser.add_argument("--runs", type=Path, default=Path("runs/pong"), help="folder of runs")
    parser.add_argument("--only", nargs="+", choices=names, default=[row.name for row in ROWS])
    parser.add_argument("--steps", type=int, default=10_000, help="updates of every row")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--episodes", type=int, default=10, help="of the evaluation at the end")
    parser.add_argument("--budget-minutes", type=float, help="stop and save after this long")
    parser.add_argument("--shared", action="store_true", help="other processes run: say so")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "pong.jsonl")
    parser.add_argument("--table", action="store_true", help="only write the table")
    options = parser.parse_args(arguments)
    if not options.table:
        if options.data is None or not options.data.is_file():
            parser.error("--data is needed: a file of Pong's frames")
        run_all(options)
    return conclude(options.out, table)


def run_all(options: argparse.Namespace) -> None:
    """Trains what is missing and appends a line a row."""
    begun, data = time.monotonic(), read(options.data)
    for row in (*ROWS, IQL):
        key = key_of(row, data, options)
        if row.name not in options.only:
            continue
        if any(same_row(line, key) for line in read_lines(options.out)):
            print(f"{row.name}: there already")
            continue
        left = None
        if options.budget_minutes is not None:
            left = 60 * options.budget_minutes - (time.monotonic() - begun)
            if left <= 0:
                print(f"{row.name}: left for the next time, the budget is used up")
                continue
        print(f"{row.name}: running", flush=True)
        run, seconds = train(row, data, options, left)
        if not run.finished:
            print(f"{row.name}: stopped by the budget, the same command goes on")
            continue
        facts = {"shared": options.shared} | surroundings()
        append(options.out, key | result(row, run, data, seconds) | facts)


def train(
    row: Row, data: leeward.Dataset, options: argparse.Namespace, left: float | None
) -> tuple[leeward.Run, float | None]:
    """The row's run, and its wall seconds; None where it was made in several parts."""
    seeds = "-".join(map(str, options.seeds))
    place = row.name.lower().replace(", best 10 %", "-best").replace("+", "-")
    directory = options.runs / f"{place}-{options.steps}-seed-{seeds}"
    limit = None if left is None else f"{left:.0f}s"
    if (directory / "config.json").exists():
        return leeward.resume(directory, data=data, max_time=limit), None
    begun = time.monotonic()
    run = leeward.train(
        row.algorithm,
        data,
        env=ENV,
        seeds=options.seeds,
        preset=preset_of(row),
        run_dir=directory,
        steps=options.steps,
        log_every=max(1, min(500, options.steps // 4)),
        eval_every=options.steps,
        eval_episodes=options.episodes,
        checkpoint_every=min(1_000, options.steps),
        keep_checkpoints=1,
        logger=(),
        max_time=limit,
        **row.settings,
    )
    return run, time.monotonic() - begun


def preset_of(row: Row) -> str | None:
    """Whose settings the row starts from."""
    return None if row is IQL else PRESET


def key_of(row: Row, data: leeward.Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """What tells one row from another."""
    name = data.metadata["name"]
    values = (row.name, options.steps, options.seeds, options.episodes, name, row.settings)
    return json.loads(json.dumps(dict(zip(KEY, values, strict=True))))


def same_row(line: dict[str, Any], key: dict[str, Any]) -> bool:
    """Whether a line of the results is that row, with today's settings."""
    return all(line.get(name) == key[name] for name in KEY)


def result(
    row: Row, run: leeward.Run, data: leeward.Dataset, seconds: float | None
) -> dict[str, Any]:
    """What a finished run says, beside the data's return and the published one."""
    last = run.evaluations()[-len(run.table) :]
    name = "time/updates_per_second"
    rates = [line[name] for line in run.metrics()[len(run.table) :] if line.get(name)]
    return {
        "algorithm": run.algorithm,
        "preset": preset_of(row),
        "returns": [line["returns"] for line in last],
        "updates_per_second": float(np.median(rates)) if rates else None,
        "seconds": seconds,
        "transitions": data.transitions,
        "data_return": float(data.episode_returns().mean()),
        "published": None if row.published is None else scores.find(row.published).mean,
    }


def read(path: Path) -> leeward.Dataset:
    """The data set, of single frames with those after each episode's last step apart, or ours."""
    with h5py.File(path) as file:
        if "frames" not in file:
            return leeward.load_dataset(path)
        column = {key: file[key][()] for key in ("actions", "rewards", "terminals", "timeouts")}
        frame, final, offset = (file[k][()] for k in ("frames", "final_frames", "episode_offsets"))
    following = np.roll(frame, -1, axis=0)
    following[offset[1:] - 1] = final
    return leeward.Dataset.from_arrays(
        frame,
        column["actions"],
        column["rewards"],
        column["terminals"],
        column["timeouts"],
        next_observation=following,
        action_count=6,
        metadata={"name": path.stem, "env": ENV, "frame_stack": 4},
    )


def table(lines: list[dict[str, Any]]) -> str:
    """A Markdown table of all rows, the data's first."""
    rows = [
        "| method | updates | seeds | return, each seed | least and most episode "
        "| human-normalized | Tianshou | updates/s | minutes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, value, count in dict.fromkeys(
        (line["data"], line["data_return"], line["transitions"]) for line in lines
    ):
        rows.append(
            f"| the data ({name}, {count:,} transitions) | | | {value:.1f} | | "
            f"{normalized(value):.1f} | 6.8 | | |"
        )
    rows += [row_of(line) for line in lines]
    episodes = sorted({line["episodes"] for line in lines})
    return "\n".join(rows) + (
        f"\n\nReturns are means of {' or '.join(map(str, episodes))} episodes after the last "
        "update; human-normalized: 0 is random play (−20.7), 100 a human's (14.6). Tianshou: its "
        "README's numbers, 50,000 updates on 1,000,000 transitions of a QR-DQN agent with ε 0.2 "
        "(one seed).\n"
    )


def row_of(line: dict[str, Any]) -> str:
    """One algorithm."""
    returns = np.array(line["returns"])  # [N, K]
    published = "" if line["published"] is None else f"{line['published']:.1f}"
    rate, seconds = line["updates_per_second"], line["seconds"]
    if line["shared"]:
        rate = seconds = None
    minutes = "" if seconds is None else f"{seconds / 60:.1f}"
    cells = (
        line["row"],
        f"{line['steps']:,}",
        str(len(returns)),
        ", ".join(f"{value:.1f}" for value in returns.mean(axis=1)),
        f"{returns.min():.0f}, {returns.max():.0f}",
        f"{normalized(returns.mean()):.1f}",
        published,
        "" if rate is None else f"{rate:.0f}",
        minutes,
    )
    return "| " + " | ".join(cells) + " |"


def normalized(value: float) -> float:
    """The human-normalized score of a return."""
    score = normalized_score(ENV, value)
    if score is None:
        raise ValueError(f"no reference returns are known for {ENV}")
    return float(score)


if __name__ == "__main__":
    sys.exit(main())
