"""Environments small enough to follow by hand, registered under LeewardTest/."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Line(gymnasium.Env):
    """A point between −3 and 3, pushed by the action; the reward is minus its distance to 0.

    Observation: position and a number that never changes. It ends where it leaves the line.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 90}  # noqa: RUF012

    def __init__(self, bound: float = 2.0, render_mode: str | None = None) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-bound, bound, (1,), np.float32)
        self.render_mode = render_mode
        self.position = 0.0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.position = float(self.np_random.uniform(-1.0, 1.0))
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        self.position += 0.5 * float(action[0]) + float(self.np_random.uniform(-0.1, 0.1))
        ended = abs(self.position) > 3.0
        return self._observation(), -abs(self.position), ended, False, {}

    def render(self) -> np.ndarray:
        """A gray picture, 65 pixels wide and 33 high, brighter to the right."""
        shade = int(np.clip(128 + 40 * self.position, 0, 255))
        return np.full((33, 65, 3), shade, np.uint8)

    def _observation(self) -> np.ndarray:
        return np.array([self.position, 0.5])


class Corridor(gymnasium.Env):
    """Five places, actions left, stay, right; reward 1 and the end at the right end.

    Observation: a picture of the corridor, 5 × 1 × 1, 255 at the place.
    """

    def __init__(self) -> None:
        self.observation_space = Box(0, 255, (5, 1, 1), np.uint8)
        self.action_space = Discrete(3)
        self.place = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(4))
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        assert type(action) is int, type(action)
        self.place = min(max(self.place + action - 1, 0), 4)
        return self._observation(), float(self.place == 4), self.place == 4, False, {}

    def _observation(self) -> np.ndarray:
        return (255 * np.eye(5, dtype=np.uint8)[self.place]).reshape(5, 1, 1)


def line_of_twelve_steps(render_mode: str | None = None) -> gymnasium.Env:
    """The same as LeewardTest/Line-v0, as a callable."""
    return gymnasium.wrappers.TimeLimit(Line(render_mode=render_mode), 12)


gymnasium.register("LeewardTest/Line-v0", Line, max_episode_steps=12)
gymnasium.register("LeewardTest/Corridor-v0", Corridor, max_episode_steps=9)
