"""`SweepJob`: one training of a sweep, and the file sweep.json that keeps all of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leeward.errors import CheckpointError
from leeward.run import SWEEP, write_json

FORMAT = 1
"""Version of the sweep directory's layout."""


@dataclass(frozen=True)
class SweepJob:
    """N runs that share a program: JSON values only, so that any machine can train them."""

    name: str
    """Its run directory below the sweep's, such as td3-bc/hopper-medium-v2."""
    algorithm: str
    source: str
    """What `load_dataset` is given."""
    data_hash: str
    """Content hash of the data when the sweep was planned."""
    data_options: Mapping[str, Any]
    config: Mapping[str, Any]
    """All fields of the algorithm's `Config`."""
    options: Mapping[str, Any]
    """All fields of `RunOptions`."""
    runs: Sequence[Mapping[str, Any]]
    """[N] `seed` of every run, and the float settings in which they differ."""
    phases: Sequence[Sequence[Any]]
    """Name and updates of every phase."""

    @property
    def updates(self) -> int:
        """Updates of all phases."""
        return sum(steps for _, steps in self.phases)

    def done(self, phase: str, step: int) -> int:
        """Updates of all phases when `step` of one of them are made."""
        names = [name for name, _ in self.phases]
        earlier = names.index(phase) if phase in names else 0
        return sum(steps for _, steps in self.phases[:earlier]) + step

    def rows(self) -> list[tuple[int, dict[str, float]]]:
        """[N] seed and settings of every run."""
        return [
            (int(run["seed"]), {name: value for name, value in run.items() if name != "seed"})
            for run in self.runs
        ]


def write_plan(directory: Path, jobs: Sequence[SweepJob]) -> None:
    """Writes sweep.json, whole or not at all."""
    write_json(directory / SWEEP, {"format": FORMAT, "jobs": [dataclasses.asdict(j) for j in jobs]})


def read_plan(directory: Path) -> list[SweepJob]:
    """The jobs of a sweep directory.

    Raises:
        CheckpointError: it is none, is damaged, or is newer than this version.
    """
    path = directory / SWEEP
    if not path.is_file():
        raise CheckpointError(f"{directory}: not a sweep directory (it has no {SWEEP})")
    try:
        held = json.loads(path.read_text())
        found = held["format"]
        if found > FORMAT:
            raise CheckpointError(
                f"{path}: format {found} is newer than this version of leeward reads ({FORMAT}): "
                "upgrade leeward"
            )
        return [SweepJob(**job) for job in held["jobs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: damaged ({type(error).__name__}: {error})") from error


def same_plan(one: Sequence[SweepJob], other: Sequence[SweepJob]) -> bool:
    """Whether two plans train the same, however they were written down."""
    texts = [
        json.dumps([dataclasses.asdict(job) for job in jobs], sort_keys=True)
        for jobs in (one, other)
    ]
    return texts[0] == texts[1]
