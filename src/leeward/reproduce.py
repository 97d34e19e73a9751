"""`reproduce`: a published row trained again with its settings, and judged by its protocol."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from leeward.algorithms import get_algorithm
from leeward.config import from_json, to_json
from leeward.data import registry
from leeward.errors import ConfigError
from leeward.judgement import (
    CLOSE,
    Verdict,
    decide,
    seed_interval,
    simulator_note,
    values_by_rule,
)
from leeward.options import RunOptions
from leeward.published import scores
from leeward.published import settings as published
from leeward.published.scores import RULES, Row
from leeward.run import Run, write_json
from leeward.train import resume as resume_run
from leeward.train import train

SEEDS = 5
"""Seeds where the row does not say how many it had (ours: those of most tables)."""
REPORT = "reproduction.json"


class Plan(NamedTuple):
    """What a row is trained with."""

    row: Row
    config: Mapping[str, Any]
    """All fields of the algorithm's `Config`, as JSON has them."""
    options: Mapping[str, Any]
    """Fields of `RunOptions` that the published settings name."""
    env: str | None
    """The current environment that stands for the row's, if there is one."""
    source: str
    """Where the settings are published."""
    differs: tuple[str, ...]
    """What the source does that the settings cannot say."""


class Reproduction(NamedTuple):
    """A run beside the published number."""

    plan: Plan
    run: Run
    values: tuple[float, ...]
    """[N] one number a seed, by the row's rule."""
    interval: tuple[float, float] | None
    """95 % bootstrap interval of their mean; None for fewer than three seeds."""
    verdict: Verdict
    notes: tuple[str, ...]
    """What else to know when comparing them."""


def make_plan(row: Row) -> Plan:
    """The settings of a row.

    Raises:
        ConfigError: they were not published, or the algorithm is not here.
    """
    algorithm = get_algorithm(row.algorithm)
    if row.preset is None:
        raise ConfigError(
            f"{row.name} cannot be trained: the settings behind it were not published "
            f"({row.source.partition(';')[0]})"
        )
    if row.preset in algorithm.presets:
        chosen, options = algorithm.presets[row.preset], {}
        source, differs = row.source, ()
    else:
        found = published.find(row.algorithm, row.preset, row.dataset)
        chosen, options = found.config or {}, found.options
        source, differs = found.source, found.differs
    entry = registry.find(row.dataset)
    config = from_json(algorithm.config_type, {**chosen, **row.config})
    return Plan(
        row=row,
        config=json.loads(json.dumps(to_json(config))),  # tuples become lists, as in config.json
        options=options,
        env=row.made.env if row.made else None if entry is None else entry.env,
        source=source,
        differs=differs,
    )


def reproduce(
    name: str,
    *,
    steps: int | None = None,
    seeds: Sequence[int] = (),
    data: str | Path | None = None,
    env: str | None = None,
    run_dir: str | Path | None = None,
    resume: str | Path | None = None,
    **options: Any,
) -> Reproduction:
    """Trains a row, or continues its run, and judges it.

    Args:
        name: the row's, as `leeward reproduce --list` shows it.
        steps: updates of the last phase; default the published number. Fewer shorten the earlier
            phases in the same proportion.
        seeds: default as many as were published, at least three, counted from 0.
        data: other data than the row's, or the row's where nobody publishes them.
        env: another environment than the one that the row's data implies.
        run_dir: where the run is kept; default as `train`.
        resume: a run to continue, or to judge if it is finished, in place of a new one.
        options: further fields of `RunOptions`: max_time, quiet, device.

    Raises:
        LeewardError: bad input; nothing was written.
    """
    plan = make_plan(scores.find(name))
    if resume is not None:
        if seeds or data or env or run_dir:
            raise ConfigError(
                "--resume continues a run as it was started: --seeds, --data, --env and --run-dir "
                "do not go with it"
            )
        allowed = {key: options[key] for key in ("max_time", "quiet") if key in options}
        run = resume_run(resume, steps=steps, **allowed)
    else:
        if data is None and plan.row.needs is not None:
            raise ConfigError(f"{plan.row.name} needs data: {plan.row.needs}")
        run = train(
            plan.row.algorithm,
            plan.row.dataset if data is None else data,
            env=environment(plan, env),
            seeds=seeds or range(max(3, plan.row.seeds or SEEDS)),
            run_dir=run_dir,
            data_options=_data_options(plan.row, data, options.pop("offline", False)),
            **(settings(plan, steps) | options),
        )
    result = judge(plan, run)
    write_json(run.directory / REPORT, report(result))
    return result


def environment(plan: Plan, env: str | None) -> str:
    """Where a row is evaluated.

    Raises:
        ConfigError: no current environment stands for the row's, and none was named.
    """
    chosen = env or plan.env
    if chosen is None:
        entry = registry.find(plan.row.dataset)
        reason = "its data set is not known" if entry is None else entry.no_env_reason
        raise ConfigError(
            f"{plan.row.name} cannot be evaluated: {reason}. --env names another environment, "
            "whose numbers are not comparable"
        )
    return chosen


def settings(plan: Plan, steps: int | None) -> dict[str, Any]:
    """The arguments of `train` for a row, with the evaluations that its rule needs."""
    row, config = plan.row, dict(plan.config)
    whole = config["steps"]
    if steps is not None:
        config["steps"] = steps
        for field in config:
            if field.endswith("_steps") and steps < whole:
                config[field] = max(1, config[field] * steps // whole) if config[field] else 0
    every = max(row.eval_every, RunOptions.eval_every) if row.rule == "last" else row.eval_every
    if row.rule == "last-10":
        every = min(every, max(1, config["steps"] // 10))
    return {**config, **plan.options, "eval_every": every, "eval_episodes": row.episodes}


def _data_options(row: Row, data: str | Path | None, offline: bool) -> dict[str, Any]:
    """Files in place of a row's data are read as the row's data are."""
    options: dict[str, Any] = {"offline": True} if offline else {}
    if row.made is None and data is not None and Path(data).suffix.lower() in (".hdf5", ".h5"):
        options["d4rl_rows"] = "qlearning"
    return options


def judge(plan: Plan, run: Run) -> Reproduction:
    """What a run says of its row, by what its directory holds.

    Raises:
        ConfigError: the run is of another algorithm.
    """
    row = plan.row
    if run.algorithm != row.algorithm:
        raise ConfigError(f"{run.directory} is a run of {run.algorithm}, not of {row.algorithm}")
    evaluations, quantity = run.evaluations(), f"{row.quantity}_mean"
    reasons = mismatches(plan, run, updates_of(run))
    values = []
    if not evaluations:
        reasons.append("the run was never evaluated")
    elif any(line[quantity] is None and line["return_mean"] is not None for line in evaluations):
        reasons.append(f"no reference returns are known for {run.config['environment']}")
    else:
        indexes = [line["run"] for line in run.table]
        values = values_by_rule(evaluations, indexes, quantity, row.rule)
    return Reproduction(
        plan=plan,
        run=run,
        values=tuple(values),
        interval=seed_interval(values),
        verdict=decide(row, values, reasons),
        notes=_notes(plan, run),
    )


def updates_of(run: Run) -> int:
    """Updates of the last phase at the last evaluation."""
    return max((line["step"] for line in run.evaluations()), default=0)


def mismatches(plan: Plan, run: Run, updates: int) -> list[str]:
    """Why a run's number and the row's cannot be compared: nothing for a faithful run."""
    row, saved, whole = plan.row, run.config, plan.config["steps"]
    reasons = [] if row.fault is None else [row.fault]
    if not run.finished:
        reasons.append(f"the run is not finished ({updates:,} of {saved['steps']:,} updates)")
    elif updates != whole:
        word = "fewer" if updates < whole else "more"
        reasons.append(f"{word} updates than published ({updates:,}, not {whole:,})")
    reasons += _other_data(row, saved["data"])
    if plan.env is None or saved["environment"] != plan.env:
        reasons.append(f"another environment than that of {row.dataset} ({saved['environment']})")
    reasons += _other_settings(plan, saved, saved["steps"] < whole)
    episodes, every = saved["options"]["eval_episodes"], saved["options"]["eval_every"]
    if episodes != row.episodes:
        reasons.append(f"{episodes} episodes an evaluation, not {row.episodes}")
    if row.rule != "last" and updates >= whole and every != row.eval_every:
        reasons.append(f"evaluations every {every:,} updates, not every {row.eval_every:,}")
    return reasons


def _other_data(row: Row, data: Mapping[str, Any]) -> list[str]:
    """Whether a run learned from the row's data, or from as many where they are made anew."""
    if row.made is not None:
        count = data["transitions"]
        same = count == row.made.transitions
        return [] if same else [f"{count:,} transitions, not {row.made.transitions:,}"]
    if data["source"] is None or registry.normalize(data["source"]) != row.dataset:
        return [f"other data than {row.dataset} ({data['name']})"]
    return []


def _other_settings(plan: Plan, saved: Mapping[str, Any], shortened: bool) -> list[str]:
    """Settings of a run that are not the row's; lengths are told as updates already."""
    found = {**saved["config"], **saved["options"]}
    default = dataclasses.asdict(RunOptions())
    changing = ("best_fraction", *(n for n in default if n.startswith("reward_")))
    wanted = {**plan.config, **{n: plan.options.get(n, default[n]) for n in changing}}
    lengths = {n for n in wanted if n == "steps" or (shortened and n.endswith("_steps"))}
    other = [
        f"{name} {found[name]}, not {value}"
        for name, value in wanted.items()
        if name not in lengths and found[name] != value
    ]
    swept = {name for line in saved["runs"] for name in line} - {"run", "seed"}
    return [f"other settings ({', '.join([*other, *sorted(swept)])})"] if other or swept else []


def _notes(plan: Plan, run: Run) -> tuple[str, ...]:
    versions, made = run.config["versions"], plan.row.made
    notes = [] if plan.row.caution is None else [plan.row.caution]
    notes += plan.differs
    if made is not None:
        mean = "not published" if made.mean_return is None else f"{made.mean_return:.1f}"
        own = run.config["data"]["return_mean"]
        return (
            *notes,
            "learned from data made anew, not from the authors': the mean return of theirs is "
            f"{mean}, of these {'not known' if own is None else f'{own:.1f}'}",
        )
    other = simulator_note(plan.row)
    notes.append(
        f"evaluated in {run.config['environment']} under MuJoCo {versions['mujoco']}, published "
        "numbers in D4RL's environments: "
        + ("comparable, not identical" if other is None else f"{CLOSE} ({other})")
    )
    return tuple(notes)


def report(result: Reproduction) -> dict[str, Any]:
    """A reproduction as JSON values."""
    row, run = result.plan.row, result.run
    finite = np.isfinite(result.values)
    return {
        "row": row.name,
        "algorithm": row.algorithm,
        "dataset": row.dataset,
        "quantity": row.quantity,
        "published": {
            "mean": row.mean,
            "std": row.std,
            "seeds": row.seeds,
            "interval": list(row.interval),
            "protocol": row.protocol,
            "source": row.source,
        },
        "settings": {"preset": row.preset, "source": result.plan.source},
        "needs": row.needs,
        "ours": {
            "rule": RULES[row.rule],
            "seeds": [line["seed"] for line in run.table],
            "values": [v if ok else None for v, ok in zip(result.values, finite, strict=True)],
            "mean": float(np.mean(result.values)) if result.values and finite.all() else None,
            "interval": None if result.interval is None else list(result.interval),
            "updates": updates_of(run),
            "data": run.config["data"]["name"],
            "environment": run.config["environment"],
            "versions": run.config["versions"],
        },
        "verdict": result.verdict.kind,
        "text": result.verdict.text,
        "reasons": list(result.verdict.reasons),
        "notes": list(result.notes),
        "run": str(run.directory),
    }
