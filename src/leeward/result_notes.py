"""What to know before results are believed: runs that diverged, unlike versions, few seeds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from leeward.judgement import FEWEST_SEEDS
from leeward.run import SWEEP, Run, has_numbers
from leeward.trained import Trained, task_name

Cells = Mapping[tuple[str, str], Sequence[Trained]]
"""(method, task's name) → its trained policies."""

_READING = ("best_fraction", "reward_transform", "reward_scale", "reward_shift")
"""Options that change the rows a run was trained on, and with them the hash of its data."""


def notes(runs: Sequence[Run], cells: Cells) -> list[str]:
    """One sentence for each thing that a reader of the numbers should know."""
    found = [*_unfinished(runs), *_missing(runs), *_diverged(cells)]
    found += [*_unlike_data(runs), *_unlike_versions(runs)]
    for field, what in (
        ("eval_episodes", "evaluated with different numbers of episodes"),
        ("eval_every", "evaluated at different intervals of updates"),
    ):
        found += _unlike(cells, what, lambda one, field=field: one.run.config["options"].get(field))
    found += _unlike(
        cells, "trained for different numbers of updates", lambda one: one.run.config["steps"]
    )
    return [*found, *_few(cells)]


def _unfinished(runs: Sequence[Run]) -> Iterator[str]:
    for run in runs:
        if not run.finished:
            yield f"{run.directory} is not finished: its last evaluation so far counts."


def _missing(runs: Sequence[Run]) -> Iterator[str]:
    """Jobs of the runs' sweeps that nothing is known of."""
    places = [run.directory.resolve() for run in runs]
    parents = dict.fromkeys(parent for place in places for parent in place.parents)
    for sweep in (parent for parent in parents if (parent / SWEEP).is_file()):
        names = [job["name"] for job in json.loads((sweep / SWEEP).read_text())["jobs"]]
        missing = [name for name in names if not has_numbers(sweep / name)]
        if missing:
            shown = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
            yield (
                f"{len(missing)} of {len(names)} jobs of the sweep {sweep} have no numbers yet "
                f"({shown}): they are left out."
            )


def _diverged(cells: Cells) -> Iterator[str]:
    """Seeds that others of the same directory outlived."""
    last: dict[Path, int] = {}
    for cell in cells.values():
        for one in cell:
            step = one.evaluations[-1]["step"] if one.evaluations else 0
            last[one.run.directory] = max(step, last.get(one.run.directory, 0))
    for (method, task), cell in cells.items():
        for one in cell:
            seed, until = one.row["seed"], last[one.run.directory]
            if not one.evaluations and until:
                yield (
                    f"Seed {seed} of {method} on {task} was never evaluated (it diverged): it is "
                    "missing from every number, which flatters the method."
                )
            elif one.evaluations and one.evaluations[-1]["step"] < until:
                yield (
                    f"Seed {seed} of {method} on {task} has no evaluation after "
                    f"{one.evaluations[-1]['step']:,} updates (it diverged): that one counts as "
                    "its last."
                )


def _unlike_data(runs: Sequence[Run]) -> Iterator[str]:
    hashes: dict[tuple[Any, ...], set[Any]] = {}
    for run in runs:
        reading = tuple(str(run.config["options"].get(name)) for name in _READING)
        hashes.setdefault((task_name(run), *reading), set()).add(run.config["data"].get("hash"))
    for name in dict.fromkeys(key[0] for key, found in hashes.items() if len(found) > 1):
        yield f"Runs on {name} were trained on different contents of that name."


def _unlike_versions(runs: Sequence[Run]) -> Iterator[str]:
    versions = {str(run.config["versions"].get("mujoco")) for run in runs}
    if len(versions) > 1:
        yield f"The runs were made under different versions of MuJoCo: {_listed(versions)}."


def _unlike(cells: Cells, what: str, value: Any) -> Iterator[str]:
    found: dict[str, set[str]] = {}
    for (_, task), cell in cells.items():
        found.setdefault(task, set()).update(f"{value(one):,}" for one in cell if one.evaluations)
    for task, values in found.items():
        if len(values) > 1:
            yield f"The runs on {task} were {what}: {_listed(values)}."


def _few(cells: Cells) -> Iterator[str]:
    few = [
        f"{method} on {task}"
        for (method, task), cell in cells.items()
        if 0 < sum(bool(one.evaluations) for one in cell) < FEWEST_SEEDS
    ]
    if few:
        shown = ", ".join(few[:3]) + (f" and {len(few) - 3} more" if len(few) > 3 else "")
        yield (
            f"Fewer than {FEWEST_SEEDS} seeds bear no interval: there is none for {shown}, nor for "
            "any number that includes them."
        )


def _listed(values: set[str]) -> str:
    return ", ".join(sorted(values))
