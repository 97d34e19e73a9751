"""SAC: one update equals a slow computation from the paper (arXiv 1812.05905)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import independent as slow
from fixed import (
    ACTION_SIZE,
    BATCH_SIZE,
    CONTINUOUS,
    assert_close,
    assert_memory_close,
    fixed_batch,
    memory,
    numbers,
    randomize,
)
from leeward.algorithms.sac import ALGORITHM, Config, State, act, explore, init, update

CONFIG = Config(hidden=(5, 4), actor_lr=0.013, critic_lr=0.021, alpha_lr=0.037, tau=0.1)
KEY = 5


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture
def state() -> State:
    return randomize(init(CONFIG, CONTINUOUS, jax.random.key(0)))


def run(state: State, config: Config = CONFIG) -> tuple[State, dict[str, float]]:
    new, metrics = jax.jit(update)(
        config, state, fixed_batch(), jax.random.key(KEY), jnp.asarray(1)
    )
    return new, {name: float(value) for name, value in metrics.items()}


def noise(part: int) -> np.ndarray:
    """The numbers that the critics' (0) or the actor's (1) loss draws."""
    key = jax.random.split(jax.random.key(KEY))[part]
    return np.asarray(jax.random.normal(key, (BATCH_SIZE, ACTION_SIZE)))


def sample(
    actor: list[np.ndarray], observation: np.ndarray, drawn: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """An action and its log-density [B], from the actor's weights and the noise."""
    mean, std = slow.normal_head(actor, observation)
    before = mean + std * drawn
    return np.tanh(before), slow.tanh_normal_log_density(before, mean, std)


def values(critics: list[np.ndarray], observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Both critics' values [2, B], from their weights one after the other."""
    half = len(critics) // 2
    pair = critics[:half], critics[half:]
    return np.stack([slow.critic(list(p), observation, action) for p in pair])


def slow_target(state: State) -> np.ndarray:
    batch, alpha = fixed_batch(), np.exp(float(state.log_alpha))
    following = np.asarray(batch.next_observation)
    action, log_prob = sample(numbers(state.actor), following, noise(0))
    next_q = values(numbers(state.target_critic), following, action).min(axis=0)
    alive = 1.0 - np.asarray(batch.termination)
    return np.asarray(batch.reward) + np.asarray(batch.discount) * alive * (
        next_q - alpha * log_prob
    )


def slow_critics(state: State) -> tuple[float, float, list[np.ndarray], slow.Adam]:
    """Loss, mean value, new weights and Adam's memory."""
    batch, target, weights = fixed_batch(), slow_target(state), numbers(state.critic)
    observation, action = np.asarray(batch.observation), np.asarray(batch.action)

    def loss(weights: Any) -> float:
        q = values(list(weights), observation, action)
        return float(0.5 * ((q - target) ** 2).mean(axis=1).sum())

    slope = slow.gradient(loss, weights)
    moved, adam = slow.adam(weights, slope, memory(state.critic_opt), CONFIG.critic_lr, 1e-8)
    return loss(weights), float(values(weights, observation, action).mean()), moved, adam


def test_critics_move_towards_the_soft_target_and_their_targets_follow(state: State) -> None:
    loss, mean, moved, adam = slow_critics(state)
    new, metrics = run(state)
    assert metrics["critic/loss"] == pytest.approx(loss, rel=1e-9)
    assert metrics["critic/q"] == pytest.approx(mean, rel=1e-9)
    assert_memory_close(new.critic_opt, adam)
    assert_close(new.critic, moved)
    followed = slow.average(numbers(state.target_critic), moved, CONFIG.tau)
    assert_close(new.target_critic, followed)


def test_the_actor_is_judged_by_the_smaller_of_the_new_values(state: State) -> None:
    observation, alpha = np.asarray(fixed_batch().observation), np.exp(float(state.log_alpha))
    critics, weights = slow_critics(state)[2], numbers(state.actor)

    def loss(weights: Any) -> float:
        action, log_prob = sample(list(weights), observation, noise(1))
        q = values(critics, observation, action).min(axis=0)
        return float((alpha * log_prob - q).mean())

    slope = slow.gradient(loss, weights)
    moved, adam = slow.adam(weights, slope, memory(state.actor_opt), CONFIG.actor_lr, 1e-8)
    new, metrics = run(state)
    assert metrics["actor/loss"] == pytest.approx(loss(weights), rel=1e-9)
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved)


def test_the_temperature_moves_towards_an_entropy_of_minus_the_action_size(state: State) -> None:
    observation = np.asarray(fixed_batch().observation)
    entropy = -sample(numbers(state.actor), observation, noise(1))[1].mean()
    log_alpha = [np.asarray(float(state.log_alpha))]

    def loss(parameters: Any) -> float:
        return float(np.exp(parameters[0]) * (entropy + ACTION_SIZE))

    slope = slow.gradient(loss, log_alpha)
    moved, adam = slow.adam(log_alpha, slope, memory(state.alpha_opt), CONFIG.alpha_lr, 1e-8)
    new, metrics = run(state)
    assert metrics["actor/entropy"] == pytest.approx(entropy, rel=1e-9)
    assert metrics["actor/alpha"] == pytest.approx(np.exp(float(state.log_alpha)), rel=1e-9)
    assert metrics["actor/alpha_loss"] == pytest.approx(loss(log_alpha), rel=1e-9)
    assert_memory_close(new.alpha_opt, adam)
    assert_close(new.log_alpha, moved)


def test_the_defaults_are_the_paper_s() -> None:
    assert Config() == Config(
        steps=1_000_000,
        batch_size=256,
        hidden=(256, 256),
        actor_lr=3e-4,
        critic_lr=3e-4,
        alpha_lr=3e-4,
        initial_alpha=1.0,
        discount=0.99,
        tau=0.005,
        normalize_observations=False,
        sampling="uniform",
    )


def test_targets_start_as_copies_and_alpha_where_it_is_told() -> None:
    state = init(Config(hidden=(5,), initial_alpha=0.2), CONTINUOUS, jax.random.key(3))
    assert_close(state.target_critic, numbers(state.critic), rtol=0)
    assert np.exp(float(state.log_alpha)) == pytest.approx(0.2)
    first, second = (numbers(member)[0] for member in state.critic.member)
    assert not np.array_equal(first, second)


def test_it_acts_by_the_mean_and_explores_by_samples(state: State) -> None:
    observation = fixed_batch().observation
    mean, std = slow.normal_head(numbers(state.actor), np.asarray(observation))
    policy, key = ALGORITHM.policy(state), jax.random.key(7)
    np.testing.assert_allclose(act(policy, observation, key), np.tanh(mean), rtol=1e-9)
    drawn = np.asarray(jax.random.normal(key, mean.shape))
    np.testing.assert_allclose(
        explore(policy, observation, key), np.tanh(mean + std * drawn), rtol=1e-9
    )
