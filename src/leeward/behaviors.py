"""Who acts while data are collected: random actions, a SAC policy's samples, a trained policy.

Whatever is random in an action depends on the seed and the step's number alone, so a collection can
be stopped and go on.
"""

from __future__ import annotations

import jax
import numpy as np

from leeward.policy import Policy
from leeward.replay import explore
from leeward.rollout import Behavior
from leeward.types import Box, Discrete

RANDOM_TAG, DISTURBANCE_TAG = 0, 1
"""Tell apart what is drawn at a step."""


def random_behavior(space: Box | Discrete, seed: int) -> Behavior:
    """Uniform over the action space."""

    def act(observation: np.ndarray, step: int) -> np.ndarray:
        del observation
        return _uniform(space, np.random.default_rng([seed, RANDOM_TAG, step]))

    return act


def sampling_behavior(policy: Policy, seed: int) -> Behavior:
    """Samples from a SAC policy, as D4RL's policies act."""
    space = policy.spec.action
    assert isinstance(space, Box)
    low, high = np.array(space.low, np.float32), np.array(space.high, np.float32)
    key = jax.random.key(seed)

    def act(observation: np.ndarray, step: int) -> np.ndarray:
        unit = np.asarray(explore(policy.policy, observation, key, np.int32(step)))
        return np.clip((low + high) / 2 + unit * ((high - low) / 2), low, high)

    return act


def greedy_behavior(policy: Policy) -> Behavior:
    """The policy's own, deterministic actions."""
    return lambda observation, step: policy(observation)


def disturbed(
    behavior: Behavior, space: Box | Discrete, noise: float, epsilon: float, seed: int
) -> Behavior:
    """`behavior` with normal noise on its actions, and now and then a random action instead.

    Args:
        behavior: who acts otherwise.
        space: the action space.
        noise: std, in units of half the action range; continuous actions only.
        epsilon: probability of a uniformly random action.
        seed: of noise and random actions.
    """

    def act(observation: np.ndarray, step: int) -> np.ndarray:
        generator = np.random.default_rng([seed, DISTURBANCE_TAG, step])
        if epsilon > 0.0 and generator.random() < epsilon:
            return _uniform(space, generator)
        action = behavior(observation, step)
        if noise > 0.0 and isinstance(space, Box):
            low, high = np.array(space.low, np.float32), np.array(space.high, np.float32)
            drawn = generator.normal(0.0, noise, len(low)).astype(np.float32)
            action = np.clip(action + drawn * (high - low) / 2, low, high)
        return action

    return act


def _uniform(space: Box | Discrete, generator: np.random.Generator) -> np.ndarray:
    if isinstance(space, Discrete):
        return np.asarray(generator.integers(space.size), np.int32)
    return generator.uniform(space.low, space.high).astype(np.float32)
