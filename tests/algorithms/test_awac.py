"""AWAC: one update equals a slow computation from the paper (arXiv 2006.09359)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import independent as slow
from fixed import (
    CONTINUOUS,
    assert_close,
    assert_memory_close,
    fixed_batch,
    memory,
    numbers,
    randomize,
)
from leeward.algorithms.awac import Config, State, init, update

CONFIG = Config(
    hidden=(5, 4), temperature=0.6, weight_clip=1.5, actor_lr=0.013, critic_lr=0.021, tau=0.1
)
KEY = 5


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def make_state() -> State:
    return randomize(init(CONFIG, CONTINUOUS, jax.random.key(0)), seed=7)


def run(state: State) -> tuple[State, dict[str, float]]:
    new, metrics = jax.jit(update)(
        CONFIG, state, fixed_batch(), jax.random.key(KEY), jnp.asarray(0)
    )
    return new, {name: float(value) for name, value in metrics.items()}


def columns() -> tuple[np.ndarray, ...]:
    batch = fixed_batch()
    left = np.asarray(batch.discount) * (1.0 - np.asarray(batch.termination))
    names = ("observation", "action", "reward", "next_observation")
    return (*(np.asarray(getattr(batch, name)) for name in names), left)


def distribution(parameters: Any, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std; the last array is the log-std, whatever the observation."""
    mean = np.tanh(slow.mlp(list(parameters[:-1]), observation))
    return mean, np.broadcast_to(np.exp(np.clip(parameters[-1], -5.0, 2.0)), mean.shape)


def drawn(state: State, observation: np.ndarray, which: int) -> np.ndarray:
    """The action that the update draws with the first or second half of its key."""
    mean, std = distribution(numbers(state.actor), observation)
    key = jax.random.split(jax.random.key(KEY))[which]
    return np.clip(mean + std * np.asarray(jax.random.normal(key, mean.shape)), -1.0, 1.0)


def least(members: list[Any], observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    return np.minimum(*[slow.critic(member, observation, action) for member in members])


def slow_critic_step(state: State) -> tuple[float, list[np.ndarray], slow.Adam]:
    observation, action, reward, following, left = columns()
    targets = [numbers(member) for member in state.target_critic.member]
    target = reward + left * least(targets, following, drawn(state, following, 0))
    parameters = numbers(state.critic)
    half = len(parameters) // 2

    def loss(parameters: Any) -> float:
        pair = parameters[:half], parameters[half:]
        values = [slow.critic(list(p), observation, action) for p in pair]
        return float(sum(((q - target) ** 2).mean() for q in values))

    moved, adam = slow.adam(
        parameters,
        slow.gradient(loss, parameters),
        memory(state.critic_opt),
        CONFIG.critic_lr,
        1e-8,
    )
    return loss(parameters), moved, adam


def slow_advantage(state: State) -> np.ndarray:
    """By the critics after their step, as the actor's step sees them."""
    observation, action, *_ = columns()
    moved = slow_critic_step(state)[1]
    members = [moved[: len(moved) // 2], moved[len(moved) // 2 :]]
    value = least(members, observation, drawn(state, observation, 1))
    return least(members, observation, action) - value


def test_a_critic_step_bootstraps_from_a_drawn_action_and_moves_the_targets() -> None:
    state = make_state()
    loss, moved, adam = slow_critic_step(state)
    new, metrics = run(state)
    assert metrics["critic/loss"] == pytest.approx(loss, rel=1e-9)
    assert_memory_close(new.critic_opt, adam)
    assert_close(new.critic, moved)
    assert_close(new.target_critic, slow.average(numbers(state.target_critic), moved, CONFIG.tau))


def test_an_actor_step_is_cloning_weighted_by_a_clipped_exponential() -> None:
    state = make_state()
    observation, action, *_ = columns()
    advantage = slow_advantage(state)
    weight = np.minimum(np.exp(advantage / CONFIG.temperature), CONFIG.weight_clip)
    assert 0 < (weight == CONFIG.weight_clip).sum() < len(weight)  # both sides of the clip

    def loss(parameters: Any) -> float:
        mean, std = distribution(parameters, observation)
        log_prob = slow.normal_log_density(action, mean, std).sum(axis=1)
        return float(-(weight * log_prob).mean())

    parameters = numbers(state.actor)
    moved, adam = slow.adam(
        parameters,
        slow.gradient(loss, parameters),
        memory(state.actor_opt),
        CONFIG.actor_lr,
        1e-8,
    )
    new, metrics = run(state)
    assert metrics["actor/advantage"] == pytest.approx(advantage.mean(), rel=1e-6)
    assert metrics["actor/loss"] == pytest.approx(loss(parameters), rel=1e-6)
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved, rtol=1e-5)
