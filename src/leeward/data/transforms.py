"""What papers do to rewards before they train on them."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from leeward.data.dataset import Dataset
from leeward.errors import DataError

RewardTransform = Literal["none", "return-range", "sign"]
RETURN_RANGE = 1_000.0
"""The span of returns after "return-range" (IQL's train_offline.py; its tasks last 1,000 steps)."""


class RewardMap(NamedTuple):
    """What is done to every reward: its sign alone, where asked for, then a factor and a shift."""

    sign: bool
    factor: float
    shift: float

    def apply(self, reward: np.ndarray) -> np.ndarray:
        """The rewards as they are trained on, float32."""
        reward = reward.astype(np.float64)
        if self.sign:
            reward = np.sign(reward)
        return (self.factor * reward + self.shift).astype(np.float32)


def fit_reward_map(
    dataset: Dataset, transform: RewardTransform, scale: float, shift: float
) -> RewardMap:
    """The map that `reward_transform` applies with these arguments; errors as there."""
    factor = float(scale)
    if transform == "return-range":
        returns = dataset.episode_returns()
        span = float(returns.max() - returns.min())
        if span == 0.0:
            raise DataError(
                f"all episodes of {dataset.metadata.get('name', 'the data')} have the return "
                f"{returns[0]:g}, so rewards cannot be scaled by the range of returns: leave "
                "--reward-transform out"
            )
        factor *= RETURN_RANGE / span
    return RewardMap(transform == "sign", factor, float(shift))


def reward_transform(
    dataset: Dataset, transform: RewardTransform = "none", scale: float = 1.0, shift: float = 0.0
) -> Dataset:
    """The data with rewards scale · (range factor · reward) + shift, or of the reward's sign.

    The metadata keep `raw_return_mean`, the mean return of the rewards as logged, and
    `reward_transform`, the arguments; `notes` say what was done.

    Args:
        dataset: the data; where nothing is to be done, its notes alone may grow.
        transform: "return-range" multiplies rewards by 1,000 / (largest − least return of an
            episode), as IQL does for locomotion (arXiv 2110.06169); "sign" makes them −1, 0 or 1,
            as DQN does for Atari (Mnih et al. 2015).
        scale: a factor (ReBRAC: 100 for AntMaze, as LAPO).
        shift: added last (IQL: −1 for AntMaze).

    Raises:
        DataError: all episodes have the same return, so that their range is 0.
    """
    if (transform, scale, shift) == ("none", 1.0, 0.0):
        return _with_note_on_size(dataset)
    change = fit_reward_map(dataset, transform, scale, shift)
    returns, said = dataset.episode_returns(), []
    if transform == "return-range":
        span = float(returns.max() - returns.min())
        said.append(f"a range of returns of {span:g} becomes {RETURN_RANGE:g}")
    elif transform == "sign":
        said.append("their sign alone")
    said.append(f"times {change.factor:g} in all")
    if shift:
        said.append(f"then {shift:+g}")
    return dataclasses.replace(dataset, reward=change.apply(dataset.reward)).with_metadata(
        raw_return_mean=float(returns.mean()),
        reward_transform={"transform": transform, "scale": float(scale), "shift": float(shift)},
        notes=[*dataset.metadata.get("notes", []), f"rewards transformed: {', '.join(said)}"],
    )


def _with_note_on_size(dataset: Dataset) -> Dataset:
    """The data, with a note where a game's rewards are larger than those that are usual for it."""
    size = np.abs(dataset.reward[dataset.recorded])
    large = size[size > 1.0]
    if dataset.frame_stack == 1 or len(large) == 0:
        return dataset
    note = (
        f"rewards of up to {large.max():g} are learned from as they are: --reward-transform sign "
        "clips them to −1, 0 or 1, as is usual for Atari"
    )
    return dataset.with_metadata(notes=[*dataset.metadata.get("notes", []), note])
