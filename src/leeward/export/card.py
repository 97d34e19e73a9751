"""The card of an exported policy: what it takes and gives, and where it comes from, as JSON."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from leeward import config
from leeward.errors import CheckpointError
from leeward.policy import Policy, TrainedRun
from leeward.run import Run
from leeward.types import Box, Discrete, Spec

VERSION = 1
"""Version of the card's layout."""
_OF_COLUMNS = ("ranges", "observation_names", "action_names")
"""What policies know of their data that stands with observation and action in the card."""


def card_of(policy: Policy, form: str) -> dict[str, Any]:
    """The card of a policy in one of the forms that it is exported in."""
    run = policy.run
    return {
        "card": VERSION,
        "format": form,
        "leeward": importlib.metadata.version("leeward"),
        "algorithm": policy.algorithm.name,
        "config": config.to_json(policy.config),
        "observation": _observation(policy),
        "action": _action(policy),
        "environment": policy.env,
        "data": {key: value for key, value in policy.data.items() if key not in _OF_COLUMNS},
        "seed": int(run.seed),
        "settings": dict(run.settings),
        "step": int(run.step),
        "return_mean": _finite(run.return_mean),
        "score_mean": _finite(run.score_mean),
    }


def with_scores(policy: Policy, directory: Path) -> Policy:
    """The policy with its last evaluation in a run directory at these updates, if there was one."""
    if not (directory / "config.json").is_file():
        return policy
    of_run = {"seed": policy.run.seed, "step": policy.run.step, **policy.run.settings}
    for line in reversed(Run(directory).evaluations()):
        if all(line.get(name) == value for name, value in of_run.items()):
            scores = {name: line[name] for name in ("return_mean", "score_mean")}
            return dataclasses.replace(policy, run=policy.run._replace(**scores))
    return policy


def card_path(path: Path) -> Path:
    """Where the card of an exported file lies: beside it, with .json behind its name."""
    return path.with_name(path.name + ".json")


def read_card(path: Path, content: bytes) -> dict[str, Any]:
    """The card beside an exported file.

    Raises:
        CheckpointError: none, damaged, or that of another file.
    """
    beside = card_path(path)
    try:
        card = json.loads(beside.read_bytes())
        described = card["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} needs its card beside it, and {beside} cannot be read"
        ) from error
    if described != hashlib.sha256(content).hexdigest():
        raise CheckpointError(f"{beside} is the card of another file than {path}")
    return card


def spec_of(card: Mapping[str, Any], where: object) -> Spec:
    """The shapes and types that a card states.

    Raises:
        CheckpointError: a card that lacks them, or of a newer layout.
    """
    try:
        version = int(card["card"])
        if version > VERSION:
            raise CheckpointError(
                f"{where}: its card has version {version}, newer than this version of leeward "
                f"reads ({VERSION}): upgrade leeward"
            )
        observation, action = card["observation"], card["action"]
        space = (
            Discrete(int(action["count"]))
            if "count" in action
            else Box(tuple(map(float, action["low"])), tuple(map(float, action["high"])))
        )
        return Spec(tuple(map(int, observation["shape"][1:])), str(observation["dtype"]), space)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where}: its card is damaged") from error


def run_of(card: Mapping[str, Any]) -> TrainedRun:
    """Which run the policy comes from."""
    return TrainedRun(
        card["seed"], card["settings"], card["step"], card["return_mean"], card["score_mean"]
    )


def _observation(policy: Policy) -> dict[str, Any]:
    """Its shape, and for vectors what they are standardized by, called and learned from."""
    spec = policy.spec
    image = spec.observation_dtype == "uint8"
    described: dict[str, Any] = {
        "name": "observation",
        "shape": ["batch", *spec.observation_shape],
        "dtype": "uint8" if image else "float32",
    }
    if len(spec.observation_shape) == 1:
        described["mean"] = _numbers(policy.scaling.observation_mean)
        described["std"] = _numbers(policy.scaling.observation_std)
        described |= _columns(policy, "observation", spec.observation_shape[0])
    if image:
        described |= {"low": 0, "high": 255}
    return described


def _action(policy: Policy) -> dict[str, Any]:
    spec = policy.spec
    if isinstance(spec.action, Discrete):
        return {
            "name": "action",
            "shape": ["batch"],
            "dtype": "int32",
            "count": spec.action.size,
            **_columns(policy, "action", 1),
        }
    return {
        "name": "action",
        "shape": ["batch", spec.action.size],
        "dtype": "float32",
        "low": list(spec.action.low),
        "high": list(spec.action.high),
        **_columns(policy, "action", spec.action.size),
    }


def _columns(policy: Policy, kind: str, size: int) -> dict[str, Any]:
    """What the data's columns are called, and the range of each, as far as the policy knows."""
    described: dict[str, Any] = {}
    names = policy.data.get(f"{kind}_names", ())
    if len(names) == size:
        described["columns"] = list(names)
    if kind in policy.data.get("ranges", {}):
        described["data_low"], described["data_high"] = policy.data["ranges"][kind]
    return described


def _numbers(array: Any) -> list[float]:
    """Numbers with as many digits as they have."""
    return [float(str(value)) for value in np.asarray(array, np.float32)]


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
