"""What the online learners that make data keep in their folder: evaluated policies, one checkpoint.

training/: config.json, evaluations.jsonl, policies/STEP (each one that was evaluated),
checkpoints/STEP (the newest).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leeward import checkpoint
from leeward.errors import ConfigError
from leeward.evaluate import Evaluator
from leeward.logging import JsonLines
from leeward.policy import PolicyStack, save_policy
from leeward.progress import View
from leeward.recorder import evaluation_row, summary
from leeward.types import Metrics


def record_evaluation(
    directory: Path,
    evaluator: Evaluator,
    policy: PolicyStack,
    metrics: Metrics,
    log: JsonLines,
    view: View,
) -> None:
    """Plays the one policy's episodes, writes their line with `metrics`, and keeps the policy."""
    (trained,) = policy.runs
    result = evaluator.evaluate(policy)
    row = evaluation_row(result, 0)
    values = {name: float(value) for name, value in metrics.items()}
    log.write({"step": trained.step, "seed": trained.seed, **row, **values})
    run = trained._replace(return_mean=row["return_mean"], score_mean=row["score_mean"])
    save_policy(
        directory / "policies" / str(trained.step), dataclasses.replace(policy, runs=(run,))
    )
    view.event(f"step {trained.step}: {summary(result)}")


def save_newest(
    directory: Path, step: int, arrays: Mapping[str, Any], position: Mapping[str, Any]
) -> None:
    """A checkpoint at `step`, in place of the one before it."""
    folder = directory / "checkpoints"
    checkpoint.save(folder, str(step), dict(arrays), position, lambda folder: None)
    checkpoint.keep_last(folder, 1)


def find_newest(directory: Path, view: View, steps: int, overshoot: int = 0) -> Path | None:
    """The checkpoint to go on from, or None; says so.

    Args:
        directory: the training's folder.
        view: where it is said.
        steps: the steps that are asked for.
        overshoot: how many more steps than asked for a finished training may have.

    Raises:
        ConfigError: it is past `steps`.
    """
    found = checkpoint.complete(directory / "checkpoints")
    if not found:
        return None
    step = checkpoint.manifest(found[-1])["updates"]
    if step - overshoot > steps:
        raise ConfigError(
            f"{directory} holds a training of {step} steps, more than --steps "
            f"{steps}: give at least --steps {step}, or another --out"
        )
    view.event(f"continuing {directory} after {step} steps")
    return found[-1]
