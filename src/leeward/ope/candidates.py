"""The policies of run directories: every seed, at the end, at its best and at checkpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from leeward import checkpoint, policy_folder
from leeward.errors import CheckpointError
from leeward.policy import Policy, PolicyStack, load_policies
from leeward.run import SWEEP

Which = Literal["both", "last", "best", "all"]
SHOWN = 3
"""Runs that are named where some are left out."""


class Candidate(NamedTuple):
    """One saved policy."""

    name: str
    """Run, seed, swept settings and which of the run's policies."""
    policy: Policy


class Places(NamedTuple):
    """Where policies are looked for."""

    paths: list[Path]
    """Run directories and folders of one saved policy."""
    left_out: list[str]
    """One sentence for each folder with runs that have no final policy yet."""


def find_places(runs: Sequence[str | Path]) -> Places:
    """The runs that paths stand for.

    Args:
        runs: run directories, folders of saved policies, and folders that hold runs, such as a
            sweep's directory or a part of it: these stand for their finished runs.

    Raises:
        CheckpointError: a folder none of whose runs is finished.
    """
    found = Places([], [])
    for path in map(Path, runs):
        inside = [] if _is_one(path) else sorted(file.parent for file in path.rglob("config.json"))
        if not inside:
            found.paths.append(path)  # what is wrong with it is said where it is read
            continue
        finished = [place for place in inside if policy_folder.exists(place / "final")]
        if not finished:
            kind = "is a sweep" if (path / SWEEP).is_file() else "is a folder"
            raise CheckpointError(f"{path} {kind} none of whose runs is finished")
        found.paths.extend(finished)
        every = dict.fromkeys([*inside, *_planned(path)])
        missing = [str(place.relative_to(path)) for place in every if place not in finished]
        if missing:
            shown = ", ".join(missing[:SHOWN]) + (" …" if len(missing) > SHOWN else "")
            found.left_out.append(
                f"{len(missing)} of {len(every)} runs in {path} are not finished ({shown}): they "
                "are left out"
            )
    return found


def candidates(runs: Sequence[str | Path], which: Which = "both") -> list[Candidate]:
    """Every policy of run directories and of folders of saved policies.

    Args:
        runs: paths, as `find_places` takes them.
        which: of a run directory: the last policies, the best, both, or all checkpoints too. A
            policy that is the best and the last counts once.

    Raises:
        CheckpointError: a path that holds neither, or no policy of that kind.
    """
    paths = find_places(runs).paths
    short = [path.resolve().name for path in paths]
    found = []
    for path, name in zip(paths, short, strict=True):
        called = name if short.count(name) == 1 else str(path)
        seen: set[tuple[int, int]] = set()
        for label, stack in _stacks(path, which):
            for index, trained in enumerate(stack.runs):
                if (index, trained.step) in seen:
                    continue
                seen.add((index, trained.step))
                settings = "".join(f" {n}={v:g}" for n, v in trained.settings.items())
                kind = f" {label}" if label else ""
                found.append(
                    Candidate(
                        f"{called} seed {trained.seed}{settings}{kind}", stack.select(run=index)
                    )
                )
    return found


def _is_one(path: Path) -> bool:
    """Whether the path itself is a run directory or a saved policy."""
    return (path / "config.json").is_file() or policy_folder.exists(path)


def _planned(path: Path) -> list[Path]:
    """The directories below a folder that the sweep around it plans, there already or not.

    Raises:
        CheckpointError: the plan is damaged.
    """
    whole = path.resolve()
    plans = [folder / SWEEP for folder in (whole, *whole.parents) if (folder / SWEEP).is_file()]
    if not plans:
        return []
    try:
        names = [str(job["name"]) for job in json.loads(plans[0].read_text())["jobs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{plans[0]} is damaged, or no sweep's plan") from error
    places = [plans[0].parent / name for name in names]
    return [path / place.relative_to(whole) for place in places if place.is_relative_to(whole)]


def _stacks(path: Path, which: Which) -> list[tuple[str, PolicyStack]]:
    """(label, policies) of one path; a folder of one saved policy has no label."""
    if policy_folder.exists(path):
        return [("", load_policies(path))]
    found = []
    if which != "best":
        found.append(("last", load_policies(path, "last")))
    if which == "best" or (which != "last" and policy_folder.exists(path / "best")):
        found.append(("best", load_policies(path, "best")))
    if which == "all":
        names = [checkpoint.name_of(folder) for folder in checkpoint.complete(path / "checkpoints")]
        # Those of earlier phases, named after them, hold policies that are not yet trained.
        found += [(f"step {n}", load_policies(path, n)) for n in names if n.isdigit()]
    return found
