"""From run directories to scores: which method, on which task, from which seed.

A *task* is a data set and the environment that its runs were evaluated in. A *method* is an
algorithm with its settings; settings are part of its name only where runs of one task differ in
them. A *trained* policy is one seed of a method on a task.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from leeward import result_notes
from leeward.errors import CheckpointError, ConfigError
from leeward.judgement import values_by_rule
from leeward.published.scores import Rule
from leeward.run import SWEEP, Run, has_numbers
from leeward.trained import Task, Trained, task_name

_NEEDED = ("algorithm", "config", "steps", "runs", "options", "environment", "data", "versions")
_REWARDS = ("reward_transform", "reward_scale", "reward_shift")
"""Options that change what is learned; the others only say how it is watched."""


@dataclasses.dataclass(frozen=True)
class Results:
    """What all runs say."""

    runs: tuple[Run, ...]
    tasks: tuple[Task, ...]
    """In the order in which runs named them."""
    methods: tuple[str, ...]
    """Names, in that order too."""
    cells: Mapping[tuple[str, str], tuple[Trained, ...]]
    """(method, task's name) → its trained policies, also those that were never evaluated."""
    notes: tuple[str, ...]
    """What to know before the numbers are believed, one sentence each."""

    def evaluated(self, method: str, task: Task) -> tuple[Trained, ...]:
        """The trained policies of a cell that have evaluations."""
        return tuple(t for t in self.cells.get((method, task.name), ()) if t.evaluations)

    def values(self, method: str, task: Task, rule: Rule) -> np.ndarray:
        """[N] the number of every evaluated policy of a cell, by a protocol."""
        numbers = [
            values_by_rule(one.evaluations, [one.row["run"]], f"{task.quantity}_mean", rule)[0]
            for one in self.evaluated(method, task)
        ]
        return np.array([n for n in numbers if np.isfinite(n)], np.float64)

    def scores(self, rule: Rule) -> dict[str, dict[str, np.ndarray]]:
        """method → task's name → [N], without empty cells."""
        found: dict[str, dict[str, np.ndarray]] = {}
        for method in self.methods:
            cells = {task.name: self.values(method, task, rule) for task in self.tasks}
            kept = {name: values for name, values in cells.items() if len(values)}
            if kept:
                found[method] = kept
        return found


def find_runs(paths: Iterable[str | Path]) -> list[Run]:
    """The runs at paths, each a run directory or a folder that holds some.

    Raises:
        CheckpointError: a path that is neither, or a run that cannot be read.
        ConfigError: a run that is named twice.
    """
    runs: list[Run] = []
    seen: set[Path] = set()
    for path in map(Path, paths):
        for run in [_open(path)] if (path / "config.json").is_file() else _below(path):
            place = run.directory.resolve()
            if place in seen:
                raise ConfigError(f"{run.directory} is named twice: leave one out")
            seen.add(place)
            runs.append(run)
    return runs


def _below(path: Path) -> list[Run]:
    if not path.is_dir():
        why = "not a folder" if path.exists() else "no such folder"
        raise CheckpointError(f"{path}: {why}: name a run directory, or a folder that holds some")
    found = sorted(file.parent for file in path.rglob("config.json"))
    whole = path.resolve()
    if any((folder / SWEEP).is_file() for folder in (whole, *whole.parents)):
        # A note tells of the sweep's jobs that have no numbers yet.
        found = [directory for directory in found if has_numbers(directory)] or found
    if not found:
        raise CheckpointError(
            f"{path}: not a run directory (it has no config.json), nor does it hold one"
        )
    return [_open(directory) for directory in found]


def _open(directory: Path) -> Run:
    """A run whose config.json has all that results need."""
    path = directory / "config.json"
    try:
        held = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({error})") from error
    missing = [name for name in _NEEDED if not isinstance(held, dict) or name not in held]
    if missing:
        raise CheckpointError(f"{path}: not that of a run (it has no '{missing[0]}')")
    return Run(directory)


def collect(runs: Sequence[Run]) -> Results:
    """Sorts the runs' evaluations by method and task.

    Raises:
        CheckpointError: an evaluations.jsonl that is damaged.
        ConfigError: runs on the same data that were evaluated in different environments, or two
            runs of the same method, task and seed.
    """
    trained = [one for run in runs for one in _trained(run)]
    tasks = _tasks(trained)
    names = method_names(trained)
    cells: dict[tuple[str, str], list[Trained]] = {}
    for one, method in zip(trained, names, strict=True):
        cell = cells.setdefault((method, task_name(one.run)), [])
        for other in cell:
            if other.row["seed"] == one.row["seed"]:
                raise ConfigError(
                    f"{other.run.directory} and {one.run.directory} both hold seed "
                    f"{one.row['seed']} of {method} on {task_name(one.run)}: leave one out, or it "
                    "would count twice"
                )
        cell.append(one)
    return Results(
        runs=tuple(runs),
        tasks=tuple(tasks),
        methods=tuple(dict.fromkeys(names)),
        cells={place: tuple(cell) for place, cell in cells.items()},
        notes=tuple(result_notes.notes(runs, cells)),
    )


def _trained(run: Run) -> list[Trained]:
    try:
        lines = run.evaluations()
        own: dict[int, list[Mapping[str, Any]]] = {row["run"]: [] for row in run.table}
        for line in lines:
            own[line["run"]].append(line)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{run.directory / 'evaluations.jsonl'}: damaged ({type(error).__name__}: {error})"
        ) from error
    return [Trained(run, row, tuple(own[row["run"]])) for row in run.table]


def _tasks(trained: Sequence[Trained]) -> list[Task]:
    by_name: dict[str, list[Trained]] = {}
    for one in trained:
        by_name.setdefault(task_name(one.run), []).append(one)
    tasks = []
    for name, members in by_name.items():
        places: dict[str | None, Run] = {}
        for one in members:
            if one.evaluations:
                places.setdefault(one.run.config["environment"], one.run)
        if len(places) > 1:
            (first, one), (second, two) = list(places.items())[:2]
            raise ConfigError(
                f"{one.directory} was evaluated in {environment_name(first)} and {two.directory} "
                f"in {environment_name(second)}, both trained on {name}: their numbers cannot be "
                "mixed, so name one of them"
            )
        tasks.append(_task(name, next(iter(places), None), members))
    return tasks


def environment_name(environment: str | None) -> str:
    """What an environment is called in messages."""
    return environment or "an environment made in Python"


def _task(name: str, environment: str | None, members: Sequence[Trained]) -> Task:
    lines = [line for one in members for line in one.evaluations]
    if not lines or any(line["score_mean"] is None for line in lines):
        return Task(name, environment, "return", None)
    low = min(lines, key=lambda line: line["return_mean"])
    high = max(lines, key=lambda line: line["return_mean"])
    span = high["return_mean"] - low["return_mean"]
    if span == 0.0:
        return Task(name, environment, "score", None)
    factor = (high["score_mean"] - low["score_mean"]) / span
    return Task(
        name, environment, "score", (factor, low["score_mean"] - factor * low["return_mean"])
    )


def method_names(trained: Sequence[Trained]) -> list[str]:
    """A name for each: the algorithm, and the settings in which runs of one task differ."""
    settings = [_settings(one) for one in trained]
    values: dict[tuple[str, str, str], set[str]] = {}
    for one, own in zip(trained, settings, strict=True):
        for field, value in own.items():
            key = (_algorithm(one), task_name(one.run), field)
            values.setdefault(key, set()).add(value)
    unlike = {(key[0], key[2]) for key, found in values.items() if len(found) > 1}
    names = []
    for one, own in zip(trained, settings, strict=True):
        algorithm = _algorithm(one)
        varying = [field for field in own if (algorithm, field) in unlike]
        told = ", ".join(f"{field.replace('_', '-')} {own[field]}" for field in varying)
        names.append(f"{algorithm} ({told})" if told else algorithm)
    return names


def _algorithm(one: Trained) -> str:
    """The algorithm's name, with the share of the data that it was given, or whether it went on."""
    name = one.run.algorithm.replace("_", "-")
    if "origin" in one.run.config:
        name = f"fine-tuned {name}"
    fraction = one.run.config["options"].get("best_fraction", 1.0)
    return name if fraction == 1.0 else f"{100 * fraction:g} % {name}"


def _settings(one: Trained) -> dict[str, str]:
    """Everything that makes a difference to what is learned, as text."""
    saved = one.run.config
    values = {
        **saved["config"],
        **{name: saved["options"].get(name) for name in _REWARDS},
        "steps": saved["steps"],
        **_course_online(saved),
        **{name: value for name, value in one.row.items() if name not in ("run", "seed")},
    }
    return {name: _text(value) for name, value in values.items()}


def _course_online(saved: Mapping[str, Any]) -> dict[str, Any]:
    """How a fine-tuned run went on, and how long it was trained offline."""
    if "origin" not in saved:
        return {}
    own = {name: value for name, value in saved["finetune"].items() if name != "steps"}
    return {**own, "offline_steps": saved["origin"]["updates"]}


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
