"""The policies of run directories: every seed, at the end, at its best and at checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from leeward import checkpoint, policy_folder
from leeward.errors import CheckpointError
from leeward.policy import Policy, PolicyStack, load_policies
from leeward.run import SWEEP

Which = Literal["both", "last", "best", "all"]


class Candidate(NamedTuple):
    """One saved policy."""

    name: str
    """Run, seed, swept settings and which of the run's policies."""
    policy: Policy


def candidates(runs: Sequence[str | Path], which: Which = "both") -> list[Candidate]:
    """Every policy of run directories and of folders of saved policies.

    Args:
        runs: paths; a sweep's directory stands for its finished runs.
        which: of a run directory: the last policies, the best, both, or all checkpoints too. A
            policy that is the best and the last counts once.

    Raises:
        CheckpointError: a path that holds neither, or no policy of that kind.
    """
    paths = [path for run in runs for path in _expanded(Path(run))]
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


def _expanded(path: Path) -> list[Path]:
    """The path, or the runs of a sweep that have a trained policy."""
    if not (path / SWEEP).is_file():
        return [path]
    places = sorted(file.parent for file in path.rglob("config.json"))
    finished = [place for place in places if policy_folder.exists(place / "final")]
    if not finished:
        raise CheckpointError(f"{path} is a sweep none of whose runs is finished")
    return finished


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
        names = [folder.name for folder in checkpoint.complete(path / "checkpoints")]
        # Those of earlier phases, named after them, hold policies that are not yet trained.
        found += [(f"step {n}", load_policies(path, n)) for n in names if n.isdigit()]
    return found
