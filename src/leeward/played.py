"""Evaluations made after training, as a run directory keeps them (`leeward evaluate --keep`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leeward.errors import CheckpointError, ConfigError
from leeward.run import write_json

FILE = "played.json"
_SAME = ("environment", "checkpoint", "start_noise", "action_noise", "evaluation_seed")
"""What two evaluations share of which the newer replaces the older."""


def rows_of(runs: Sequence[Any], result: Any) -> list[dict[str, Any]]:
    """Every run's episodes, as JSON holds them.

    Args:
        runs: policy.TrainedRun of each.
        result: their evaluate.Evaluation.
    """
    scores = result.mean_score
    return [
        {
            "run": i,
            "seed": trained.seed,
            **trained.settings,
            "returns": result.returns[i].tolist(),
            "lengths": result.lengths[i].tolist(),
            "score_mean": None if scores is None else float(scores[i]),
        }
        for i, trained in enumerate(runs)
    ]


def check_keepable(directory: Path) -> None:
    """Raises ConfigError where there is no run directory to keep an evaluation in."""
    if not (directory / "config.json").is_file():
        raise ConfigError(
            f"{directory} is no run directory, so nothing can be kept there: leave --keep out, or "
            "use --json"
        )


def keep(directory: Path, evaluation: Mapping[str, Any]) -> None:
    """Adds an evaluation to those of a run directory; one made in the same way is replaced.

    Raises:
        CheckpointError: the file there is damaged, or cannot be written.
    """
    kept = [
        other
        for other in read_played(directory)
        if any(other[name] != evaluation[name] for name in _SAME)
    ]
    try:
        write_json(directory / FILE, {"evaluations": [*kept, evaluation]})
    except OSError as error:
        raise CheckpointError(
            f"{directory / FILE} cannot be written ({error.strerror}): leave --keep out"
        ) from error


def read_played(directory: Path) -> list[dict[str, Any]]:
    """The evaluations that a run directory keeps, oldest first.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = directory / FILE
    if not path.is_file():
        return []
    try:
        held = json.loads(path.read_text("utf-8"))["evaluations"]
        for evaluation in held:
            _need(evaluation, (*_SAME, "episodes", "runs"))
            for row in evaluation["runs"]:
                _need(row, ("run", "returns", "score_mean"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: damaged ({type(error).__name__}: {error}): delete it and evaluate again"
        ) from error
    return held


def _need(held: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises KeyError for the first name that is not there."""
    for name in names:
        if name not in held:
            raise KeyError(name)
