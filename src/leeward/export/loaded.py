"""Exported policies in use: the same calls as a trained policy's, whatever the file's form."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from leeward.errors import CheckpointError, SpecError
from leeward.export.card import read_card, run_of, spec_of
from leeward.export.forms import FORMS, Run
from leeward.policy import TrainedRun, flat_observation
from leeward.types import Spec


@dataclasses.dataclass(frozen=True)
class ExportedPolicy:
    """An exported policy: `policy(observation)` gives the action, `policy.card` says what it is."""

    card: Mapping[str, Any]
    spec: Spec
    runs: tuple[TrainedRun, ...]
    """The one run that it comes from."""
    call: Run
    """[B, *obs] → [B, *act], in the types that the card states."""
    policies: tuple[()] = ()
    """No weights outside of the file."""

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """The action, in the environment's units and inside its box.

        Args:
            observation: [..., *obs], as the environment gives it, with any leading axes.

        Raises:
            SpecError: observations of another shape or type, or that are not finite numbers.
        """
        flat, leading = flat_observation(self.spec, observation)
        if flat.dtype != np.uint8 and not np.isfinite(flat).all():
            row = int(np.flatnonzero(~np.isfinite(flat.reshape(len(flat), -1)).all(axis=1))[0])
            raise SpecError(f"observation {row} holds a value that is not a finite number")
        if len(flat) == 0:
            return self.call(np.zeros((1, *flat.shape[1:]), flat.dtype))[:0].reshape(
                (*leading, *self.card["action"]["shape"][1:])
            )
        action = self.call(flat)
        return action.reshape((*leading, *action.shape[1:]))

    def actor(self, episodes: int) -> Callable[[np.ndarray], np.ndarray]:
        """The actions of many episodes side by side: [1, episodes, *obs] → [1, episodes, *act]."""
        del episodes  # any number
        return lambda observation: np.array(self.call(observation[0]))[None]

    @property
    def env(self) -> str | None:
        """The environment that the policy was trained for."""
        return self.card.get("environment")

    @property
    def data(self) -> Mapping[str, Any]:
        """The data set's name and hash."""
        return self.card.get("data", {})


def is_exported(path: str | Path) -> bool:
    """Whether a path is a file with the suffix of an exported policy."""
    path = Path(path)
    return path.suffix.lower() in {form.suffix for form in FORMS.values()} and not path.is_dir()


def load_exported(path: str | Path) -> ExportedPolicy:
    """A policy out of a file that `export` wrote; nothing in it is executed as Python.

    Args:
        path: a file of .onnx, .stablehlo (with its card beside it) or .py.

    Raises:
        CheckpointError: no such file, damaged, not exported by leeward, or newer than this version.
        MissingExtra: the packages that run this form are not installed.
    """
    path = Path(path).expanduser()
    for form in FORMS.values():
        if path.suffix.lower() == form.suffix:
            break
    else:
        suffixes = ", ".join(form.suffix for form in FORMS.values())
        raise CheckpointError(f"{path} is no exported policy: those end in {suffixes}")
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(f"{path} cannot be read ({reason})") from error
    inside, call = form.read(path, content)
    card = read_card(path, content) if inside is None else inside
    spec = spec_of(card, path)
    try:
        return ExportedPolicy(card, spec, (run_of(card),), call)
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: its card is damaged") from error
