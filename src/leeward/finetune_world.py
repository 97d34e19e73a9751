"""`World`: the environments of a fine-tuning, one a run, stepped together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from leeward.data.sampling import Scaling
from leeward.environments import EnvironmentSource
from leeward.rollout import Simulator
from leeward.types import Box

EPISODES_TAG = 7
"""Tag of the episodes of fine-tuning; 0 is evaluation's, 1 to 6 are those of collecting."""


class Answers(NamedTuple):
    """What the environments of all runs answered; anything where a run made no step."""

    observation: np.ndarray
    """[N, obs] float32."""
    action: np.ndarray
    """[N, A] what was carried out, in network units."""
    reward: np.ndarray
    """[N] float32, the environment's own."""
    termination: np.ndarray
    truncation: np.ndarray


class World:
    """One environment a run."""

    def __init__(
        self, env: EnvironmentSource, seeds: Sequence[int], box: Box, scaling: Scaling
    ) -> None:
        """Makes the environments.

        Args:
            env: an id or a callable.
            seeds: [N] with its number each fixes an episode's start.
            box: of the policies' actions; what is carried out lies in the environment's too.
            scaling: between network units and the environment's.
        """
        self._seeds = seeds
        self._made = [Simulator(env) for _ in seeds]
        space = self._made[0].spec.action
        assert isinstance(space, Box)
        self._boxes = [np.array(one, np.float32) for one in (box, space)]
        self._center = np.asarray(scaling.action_center)
        self._scale = np.asarray(scaling.action_scale)
        self.observation = np.zeros((len(seeds), *self._made[0].spec.observation_shape), np.float32)
        """[N, obs]: what every run sees now."""

    def begin(self, run: int, episode: int) -> None:
        """The run's episode of that number."""
        self.observation[run] = self._made[run].reset(EPISODES_TAG, self._seeds[run], episode)

    def step(self, unit: np.ndarray, alive: np.ndarray) -> Answers:
        """One step of every run that is alive, with actions [N, A] in network units."""
        wanted = self._center + self._scale * unit
        action = wanted
        for low, high in self._boxes:
            action = np.clip(action, low, high)
        # Where the environment's box cuts an action off, what was carried out is remembered.
        carried_out = np.where(action == wanted, unit, (action - self._center) / self._scale)
        runs = len(alive)
        observation, reward = self.observation.copy(), np.zeros(runs, np.float32)
        ends = np.zeros((2, runs), bool)
        for one in np.flatnonzero(alive):
            answer = self._made[one].step(action[one])
            observation[one], reward[one] = answer.observation, answer.reward
            ends[:, one] = answer.termination, answer.truncation
        self.observation = observation.copy()
        return Answers(observation, carried_out.astype(np.float32), reward, *ends)

    def close(self) -> None:
        """Closes the environments."""
        for made in self._made:
            made.close()
