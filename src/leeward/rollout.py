"""Episodes as rows: a behavior acts in one environment and every step is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from leeward.environments import EnvironmentSource, describe, environment_id, make_environment
from leeward.errors import SimulationError
from leeward.evaluate import episode_seed

Behavior = Callable[[np.ndarray, int], np.ndarray]
"""(observation [*obs], number of the step) → action in the environment's units."""


class Columns(NamedTuple):
    """One array a column, one row a step; actions in the environment's units."""

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_observation: np.ndarray
    termination: np.ndarray
    truncation: np.ndarray

    def episode_returns(self) -> np.ndarray:
        """[E]: the return of every episode, the last one's as far as it was recorded."""
        ends = np.flatnonzero(self.termination | self.truncation)
        starts = np.concatenate([[0], ends[:-1] + 1])
        return np.add.reduceat(self.reward.astype(np.float64), starts)


class Step(NamedTuple):
    """What the environment answered to an action."""

    observation: np.ndarray
    reward: np.float32
    termination: bool
    truncation: bool


class Simulator:
    """One copy of an environment; what goes wrong in it becomes one line."""

    def __init__(self, env: EnvironmentSource) -> None:
        """Makes the environment; errors as `make_environment` and `describe`."""
        self.name = environment_id(env)
        self._made = make_environment(env)
        self.spec = describe(self._made, self.name)
        self._dtype = np.uint8 if self.spec.observation_dtype == "uint8" else np.float32

    def reset(self, tag: int, seed: int, episode: int) -> np.ndarray:
        """The first observation of an episode that depends on these three numbers alone."""
        try:
            observation, _ = self._made.reset(seed=episode_seed(tag, seed, episode))
        except Exception as error:  # an environment's own code may raise anything
            raise SimulationError(f"environment {self.name} failed to reset ({error})") from error
        return self._checked(observation)

    def step(self, action: np.ndarray) -> Step:
        """One step with an action in the environment's units."""
        try:
            observation, reward, termination, truncation, _ = self._made.step(
                action if np.ndim(action) else int(action)
            )
        except Exception as error:  # an environment's own code may raise anything
            raise SimulationError(f"environment {self.name} failed to step ({error})") from error
        if not np.isfinite(float(reward)):
            raise SimulationError(f"environment {self.name} gave a reward that is not finite")
        # An end by the task stays one where the time limit fell on the same step.
        return Step(
            self._checked(observation),
            np.float32(reward),
            bool(termination),
            bool(truncation) and not termination,
        )

    def close(self) -> None:
        """Closes the environment."""
        self._made.close()

    def _checked(self, observation: Any) -> np.ndarray:
        array = np.array(observation, self._dtype)
        if array.shape != self.spec.observation_shape:
            raise SimulationError(
                f"environment {self.name} gave an observation of shape {array.shape}, which its "
                f"space says has shape {self.spec.observation_shape}"
            )
        if not np.isfinite(array).all():
            raise SimulationError(f"environment {self.name} gave an observation that is not finite")
        return array


def roll_out(
    env: EnvironmentSource,
    behavior: Behavior,
    *,
    transitions: int | None = None,
    episodes: int | None = None,
    tag: int,
    seed: int,
    on_step: Callable[[int], None] | None = None,
) -> Columns:
    """Exactly `transitions` rows (the last one cut, if need be), or whole `episodes`.

    Args:
        env: the environment.
        behavior: who acts.
        transitions: number of rows.
        episodes: number of episodes.
        tag: tells apart the purposes for which episodes are started.
        seed: with the tag and its number it fixes every episode's start.
        on_step: called with the number of rows so far, every 1,000 of them.
    """
    simulator = Simulator(env)
    rows: list[tuple[Any, ...]] = []
    episode = 0
    try:
        while len(rows) != transitions and episode != episodes:
            observation = simulator.reset(tag, seed, episode)
            episode += 1
            ended = False
            while not ended:
                action = behavior(observation, len(rows))
                answer = simulator.step(action)
                cut = len(rows) + 1 == transitions and not answer.termination
                rows.append(
                    (
                        observation,
                        action,
                        answer.reward,
                        answer.observation,
                        answer.termination,
                        answer.truncation or cut,
                    )
                )
                ended = answer.termination or answer.truncation or cut
                ended = ended or len(rows) == transitions
                observation = answer.observation
                if on_step is not None and len(rows) % 1_000 == 0:
                    on_step(len(rows))
    finally:
        simulator.close()
    return Columns(*(np.stack(column) for column in zip(*rows, strict=True)))


def concatenate(parts: Sequence[Columns]) -> Columns:
    """The rows of all parts, one after another."""
    return Columns(*(np.concatenate(column) for column in zip(*parts, strict=True)))
