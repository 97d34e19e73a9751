"""Disturbed environments: noise on the first state and on actions, to see what policies bear."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from leeward.errors import SimulationError


class Disturbed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Noise on the first state, on every action, or on both, from the seed that `reset` gets.

    The first state of MuJoCo tasks is moved by their positions and velocities. Others may have a
    method `move_start(std, generator)` that moves their state and returns the new observation.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], start_noise: float, action_noise: float
    ) -> None:
        """Wraps an environment.

        Args:
            env: the environment.
            start_noise: std of the noise on positions and velocities, in the task's units.
            action_noise: std of the noise on actions, in units of half their range; of discrete
                actions the probability that a random one is taken instead.

        Raises:
            SimulationError: noise that is negative, not finite, or no probability.
        """
        super().__init__(env)
        discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
        check_noise(start_noise, action_noise, discrete)
        self._start, self._action = start_noise, action_noise
        self._draw = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """The usual start, moved.

        Raises:
            SimulationError: an environment whose state cannot be moved.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        self._draw = np.random.default_rng(seed)
        if self._start:
            observation = _move_start(self.env.unwrapped, self._start, self._draw)
        return observation, info

    def step(self, action: Any) -> Any:
        """One step with the action moved inside its box, or replaced now and then."""
        if self._action:
            action = self._disturb(action)
        return self.env.step(action)

    def _disturb(self, action: Any) -> Any:
        space: Any = self.action_space
        if isinstance(space, gymnasium.spaces.Discrete):
            if self._draw.random() < self._action:
                return int(self._draw.integers(space.n))
            return action
        half = (space.high - space.low) / 2
        moved = action + self._action * half * self._draw.normal(size=np.shape(action))
        return np.clip(moved, space.low, space.high).astype(space.dtype)


def check_noise(start_noise: float, action_noise: float, discrete: bool) -> None:
    """Raises SimulationError for noise that is negative, not finite, or no probability."""
    for name, value in (("start", start_noise), ("action", action_noise)):
        if not 0.0 <= value < np.inf:
            raise SimulationError(f"--{name}-noise must be a finite number from 0 on, got {value}")
    if discrete and action_noise > 1.0:
        raise SimulationError(
            "--action-noise of discrete actions is the probability of a random one, so at most 1, "
            f"got {action_noise}"
        )


def _move_start(inner: Any, std: float, draw: np.random.Generator) -> Any:
    """Moves the state of an environment without wrappers; the new observation."""
    if hasattr(inner, "move_start"):
        return inner.move_start(std, draw)
    if not all(hasattr(inner, name) for name in ("data", "set_state", "_get_obs")):
        raise SimulationError(
            f"the first state of {type(inner).__name__} cannot be moved: --start-noise needs a "
            "MuJoCo task, or an environment with a method move_start(std, generator); "
            "--action-noise works everywhere"
        )
    position, velocity = inner.data.qpos.copy(), inner.data.qvel.copy()
    position += std * draw.normal(size=position.shape)
    velocity += std * draw.normal(size=velocity.shape)
    inner.set_state(position, velocity)
    return inner._get_obs()
