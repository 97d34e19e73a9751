"""What benchmarks/results holds, one row a training, for the tables and figures of the site."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from leeward.data.registry import normalized_score

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RESULTS = BENCHMARKS / "results"
EVERYWHERE = ("--steps", "--seeds", "--eval-every", "--eval-episodes")
"""Flags of a command that a row's other columns say."""
LATER = "not recorded yet"
SPEEDS = ("bc", "td3-bc", "iql", "fisher-brc", "bcq", "cql")
"""Rows of speed.jsonl that are compared, so all must be of one run."""


class Row(NamedTuple):
    """One training: all its seeds."""

    name: str
    """By which pages name it, such as hopper-td3-bc."""
    algorithm: str
    data: str
    settings: str
    """Flags that are not the defaults."""
    updates: int
    quantity: str
    """What the numbers are: score (0 random, 100 expert) or return."""
    values: tuple[float, ...]
    """After the last update, for every seed."""
    beside: float | None
    """The same of the data, the mean over its episodes."""
    file: str

    @property
    def text(self) -> str:
        """The numbers of all seeds."""
        return ", ".join(number(value) for value in self.values)


class Curves(NamedTuple):
    """A row's evaluations: [K] updates and [N, K] values."""

    updates: np.ndarray
    values: np.ndarray


def number(value: float) -> str:
    """One decimal, with a true minus."""
    return f"{value:,.1f}".replace("-", "−")


def rows(results: Path = RESULTS) -> list[Row]:
    """Everything recorded that says how good policies are."""
    return [
        *_learning(results),
        *_cartpole(results),
        *_pong(results),
        *_compare(results),
        *_fmr(results),
    ]


def row_named(name: str) -> Row:
    """The row of that name."""
    found = {row.name: row for row in rows()}
    if name not in found:
        raise SystemExit(f"no measured row '{name}': there are {', '.join(found)}")
    return found[name]


def text_of(name: str) -> str:
    """The numbers of the row of that name, where its benchmark is recorded."""
    return row_named(name).text if _is_recorded(name) else LATER


def beside_of(name: str) -> str:
    """The data's number beside that row, likewise."""
    return number(row_named(name).beside or 0.0) if _is_recorded(name) else LATER


def _is_recorded(name: str) -> bool:
    """False where the row is of a benchmark, named before the hyphen, that has no results yet."""
    benchmark = name.partition("-")[0]
    planned = (BENCHMARKS / f"{benchmark}.py").is_file()
    return not planned or bool(_lines(RESULTS / f"{benchmark}.jsonl"))


def recorded(name: str, results: Path = RESULTS) -> str:
    """The table that a benchmark wrote, or how to make it where it is yet to be recorded."""
    if not (BENCHMARKS / f"{name}.py").is_file():
        raise SystemExit(f"no benchmark '{name}': there is no benchmarks/{name}.py")
    path = results / f"{name}.md"
    if not path.is_file():
        return f"Not recorded yet: `python benchmarks/{name}.py` writes this table.\n"
    return path.read_text(encoding="utf-8")


def speed(name: str, results: Path = RESULTS) -> float:
    """Updates a second of a row of speed.jsonl, of the last run that measured all of SPEEDS."""
    runs: dict[tuple[Any, ...], dict[str, float]] = {}
    for line in _lines(results / "speed.jsonl"):
        if "updates_per_second" in line:
            run = runs.setdefault((line["date"], line["sgemm_gflops"]), {})
            run[line["row"]] = line["updates_per_second"]
    whole = [run for run in runs.values() if all(row in run for row in SPEEDS)]
    return whole[-1][name]


def curves(name: str, results: Path = RESULTS) -> Curves:
    """The evaluations of a row of learning/, in its last phase."""
    lines = _last_phase(results / "learning" / name)
    updates = sorted({line["step"] for line in lines})
    by_seed: dict[int, list[float]] = {}
    for line in lines:
        by_seed.setdefault(line["seed"], []).append(line["score_mean"])
    return Curves(np.array(updates), np.array(list(by_seed.values())))


def fingerprint(values: Any) -> str:
    """Of anything that JSON can hold: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines, none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _last_phase(folder: Path) -> list[dict[str, Any]]:
    lines = _lines(folder / "evaluations.jsonl")
    return [line for line in lines if line["phase"] == lines[-1]["phase"]]


def _learning(results: Path) -> list[Row]:
    """Rows of benchmarks/learning.py, in the order of their names."""
    found = []
    for folder in sorted((results / "learning").glob("*/")):
        facts = json.loads((folder / "facts.json").read_text())
        _, _, algorithm, _, *flags = shlex.split(facts["command"])
        lines = _last_phase(folder)
        last = [line["score_mean"] for line in lines if line["step"] == lines[-1]["step"]]
        found.append(
            Row(
                name=folder.name,
                algorithm=algorithm.replace("-", "_"),
                data=facts["data"],
                settings=_without(flags, EVERYWHERE),
                updates=lines[-1]["step"],
                quantity="score",
                values=tuple(last),
                beside=facts["data_score"],
                file=f"learning/{folder.name}",
            )
        )
    return found


def _without(flags: list[str], names: tuple[str, ...]) -> str:
    """The flags, each with its values, but for those named."""
    kept, keep = [], True
    for word in flags:
        keep = word not in names if word.startswith("--") else keep
        kept += [word] if keep else []
    return " ".join(kept)


def _cartpole(results: Path) -> list[Row]:
    """Rows of benchmarks/cartpole.py."""
    return [
        Row(
            name=f"cartpole-{_slug(line['row'])}",
            algorithm=line["algorithm"],
            data="cartpole",
            settings=_flags(line["settings"]),
            updates=line["steps"],
            quantity="return",
            values=tuple(line["returns"]),
            beside=line["data_mean_return"],
            file="cartpole.jsonl",
        )
        for line in _lines(results / "cartpole.jsonl")
    ]


def _pong(results: Path) -> list[Row]:
    """Rows of benchmarks/pong.py."""
    found = []
    for line in _lines(results / "pong.jsonl"):
        preset = {} if line["preset"] is None else {"preset": line["preset"]}
        found.append(
            Row(
                name=f"pong-{_slug(line['row'])}",
                algorithm=line["algorithm"],
                data=line["data"],
                settings=_flags(preset | line["settings"]),
                updates=line["steps"],
                quantity="return",
                values=tuple(np.asarray(line["returns"]).mean(axis=1).tolist()),
                beside=line["data_return"],
                file="pong.jsonl",
            )
        )
    return found


def _slug(name: str) -> str:
    """A row's name in small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _compare(results: Path) -> list[Row]:
    """Leeward's own rows of benchmarks/compare.py."""
    found = []
    for line in _lines(results / "compare.jsonl"):
        if line["library"] != "leeward":
            continue
        means = np.asarray(line["returns"]).mean(axis=1)
        scores = [normalized_score(line["env"], mean) for mean in means]
        found.append(
            Row(
                name=f"compare-{line['data']}-{line['algorithm'].replace('_', '-')}",
                algorithm=line["algorithm"],
                data=line["data"],
                settings="those of benchmarks/compare.py",
                updates=line["updates"],
                quantity="score",
                values=tuple(float(score) for score in scores if score is not None),
                beside=None,
                file="compare.jsonl",
            )
        )
    return found


def _fmr(results: Path) -> list[Row]:
    """Rows of benchmarks/fmr.py, usual starts, without those that search over settings."""
    found = []
    for line in _lines(results / "fmr.jsonl"):
        if len(line["runs"]) != len(line["seeds"]):
            continue
        scores = line["scores"]["usual"]
        means = np.asarray(line["returns"]["usual"]).mean(axis=1).tolist()
        found.append(
            Row(
                name=f"fmr-{line['data']}-{line['method']}",
                algorithm=line["algorithm"],
                data=line["data"],
                settings=f"{line['method']} of benchmarks/fmr.py",
                updates=line["updates"],
                quantity="return" if scores is None else "score",
                values=tuple(means if scores is None else scores),
                beside=None,
                file="fmr.jsonl",
            )
        )
    return found


def _flags(settings: dict[str, Any]) -> str:
    """Settings as they would be typed."""
    parts = []
    for name, value in settings.items():
        values = value if isinstance(value, list) else [value]
        parts.append(f"--{name.replace('_', '-')} {' '.join(map(str, values))}")
    return " ".join(parts)
