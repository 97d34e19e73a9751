"""A corridor with a gap in its demonstrations, where drift is known exactly.

A walker moves along a corridor of length 1 in 50 equal steps; its action moves it sideways. The
demonstrator halves its distance from the middle line every few steps, y ← 0.9 y, and is seen in
the first 40 % and in the last 40 % of the corridor only. The reward of a step is minus the distance
from where the demonstrator would be, so minus the return is the sum of the drift.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from leeward.data.dataset import Dataset

STEPS = 50
GAIN = 0.1
BEFORE, BEHIND = 20, 30  # the steps between are the gap
NOISE = 0.02


class Corridor(gymnasium.Env[np.ndarray, np.ndarray]):
    """Observations (place, y), one action: the step sideways."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._step, self._y, self._expert = 0, 0.0, 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """A start up to 0.8 from the middle line."""
        super().reset(seed=seed, options=options)
        self._step = 0
        self._y = self._expert = float(self.np_random.uniform(-0.8, 0.8))
        return self.observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Both walk on; the episode ends at the corridor's end."""
        self._y += float(np.clip(action[0], -1.0, 1.0))
        self._expert *= 1.0 - GAIN
        self._step += 1
        reward = -abs(self._y - self._expert)
        return self.observation(), reward, self._step == STEPS, False, {}

    def observation(self) -> np.ndarray:
        """(place, y)."""
        return np.asarray([self._step / STEPS, self._y], np.float32)

    def move_start(self, std: float, generator: np.random.Generator) -> np.ndarray:
        """Moves walker and demonstrator sideways together, by noise."""
        noise = std * float(generator.normal())
        self._y += noise
        self._expert += noise
        return self.observation()


def demonstrations(episodes: int = 20) -> Dataset:
    """Half of the episodes walk up to the gap, half from behind it to the end. No rewards."""
    draw = np.random.default_rng(0)
    rows: list[tuple[float, float, float, bool, bool]] = []
    for episode in range(episodes):
        first, last = ((0, BEFORE), (BEHIND, STEPS))[episode % 2]
        y = float(draw.uniform(-0.8, 0.8)) * (1.0 - GAIN) ** first
        for step in range(first, last):
            action = float(np.clip(-GAIN * y + NOISE * draw.normal(), -1.0, 1.0))
            ends = step == last - 1
            rows.append((step / STEPS, y, action, ends and last == STEPS, ends and last != STEPS))
            y += action
    place, y, action, termination, truncation = map(np.asarray, zip(*rows, strict=True))
    return Dataset.from_arrays(
        np.stack([place, y], axis=1),
        action[:, None],
        np.zeros(len(rows)),
        termination,
        truncation,
        next_observation=np.stack([place + 1.0 / STEPS, y + action], axis=1),
        action_low=-1.0,
        action_high=1.0,
        metadata={"name": "corridor"},
    )
