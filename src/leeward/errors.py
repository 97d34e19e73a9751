"""Errors a user can cause, each one line: what is wrong, where, what to do.

LeewardError
├── DataError        a data set is missing something, broken or not fit for the algorithm
├── SpecError        shapes, spaces or environments that do not match
├── ConfigError      an unknown or impossible setting
├── CheckpointError  a run directory or policy file that cannot be read or written
├── SimulationError  an environment that cannot be made, stepped or rendered
├── TrainingError    weights that became NaN or infinite (exit code 1)
├── DiskError        a disk that is full or fails (exit code 1)
└── MissingExtra     an optional dependency that is not installed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LeewardError(Exception):
    """Base of every error that is the user's to mend; the command prints it and exits with 2."""

    exit_code = 2


class DataError(LeewardError):
    """A data set that is missing something, broken, or not fit for the algorithm."""


class SpecError(LeewardError):
    """Shapes, action spaces or environments that do not match."""


class ConfigError(LeewardError):
    """An unknown name or an impossible setting."""


class CheckpointError(LeewardError):
    """A run directory, checkpoint or policy file that cannot be read or written."""


class SimulationError(LeewardError):
    """An environment that cannot be made, stepped or rendered."""


class TrainingError(LeewardError):
    """Training that failed by itself: weights became NaN or infinite."""

    exit_code = 1


class DiskError(LeewardError):
    """The disk is full or fails while writing: not the user's input, so exit code 1."""

    exit_code = 1


class MissingExtra(LeewardError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed: "
            f"pip install 'leeward[{extra}]'"
        )


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Returns ' Did you mean …?' for the nearest of `options`, or '' when none is near."""
    matches = difflib.get_close_matches(name, list(options), n=3, cutoff=0.55)
    return f" Did you mean {' or '.join(matches)}?" if matches else ""
