"""CRR: one update equals a slow computation from the paper (arXiv 2006.15134)."""

from __future__ import annotations

import dataclasses
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
from leeward.algorithms.crr import Config, State, init, update

CONFIG = Config(
    hidden=(5, 4),
    critics=2,
    samples=3,
    beta=0.5,
    weight_clip=1.5,
    actor_lr=0.013,
    critic_lr=0.021,
    target_every=4,
)
KEY = 6


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def make_state() -> State:
    return randomize(init(CONFIG, CONTINUOUS, jax.random.key(0)), seed=7)


def run(state: State, config: Config = CONFIG, step: int = 1) -> tuple[State, dict[str, float]]:
    new, metrics = jax.jit(update)(
        config, state, fixed_batch(), jax.random.key(KEY), jnp.asarray(step)
    )
    return new, {name: float(value) for name, value in metrics.items()}


def columns() -> tuple[np.ndarray, ...]:
    batch = fixed_batch()
    left = np.asarray(batch.discount) * (1.0 - np.asarray(batch.termination))
    names = ("observation", "action", "reward", "next_observation")
    return (*(np.asarray(getattr(batch, name)) for name in names), left)


def distribution(parameters: Any, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std from the two halves of the outputs."""
    mean, log_std = np.split(slow.mlp(list(parameters), observation), 2, axis=1)
    return np.tanh(mean), np.exp(np.clip(log_std, -5.0, 2.0))


def least(members: list[Any], observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    return np.minimum(*[slow.critic(member, observation, action) for member in members])


def slow_advantage(state: State, kind: str) -> np.ndarray:
    """Sample by sample, with the critics before their step."""
    observation, action, *_ = columns()
    mean, std = distribution(numbers(state.actor), observation)
    key = jax.random.split(jax.random.key(KEY))[1]
    noise = np.asarray(jax.random.normal(key, (len(mean), CONFIG.samples, mean.shape[1])))
    members = [numbers(member) for member in state.critic.member]
    values = [
        least(members, observation, np.clip(mean + std * noise[:, i], -1.0, 1.0))
        for i in range(CONFIG.samples)
    ]
    value = np.mean(values, axis=0) if kind == "mean" else np.max(values, axis=0)
    return least(members, observation, action) - value


def slow_weight(advantage: np.ndarray, weighting: str) -> np.ndarray:
    if weighting == "exp":
        return np.minimum(np.exp(advantage / CONFIG.beta), CONFIG.weight_clip)
    return np.where(advantage > 0.0, 1.0, 0.0) if weighting == "binary" else np.ones(len(advantage))


def test_a_critic_step_bootstraps_from_the_target_policy_s_draw() -> None:
    state = make_state()
    observation, action, reward, following, left = columns()
    mean, std = distribution(numbers(state.target_actor), following)
    key = jax.random.split(jax.random.key(KEY))[0]
    drawn = np.clip(mean + std * np.asarray(jax.random.normal(key, mean.shape)), -1.0, 1.0)
    targets = [numbers(member) for member in state.target_critic.member]
    target = reward + left * least(targets, following, drawn)
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
    new, metrics = run(state)
    assert metrics["critic/loss"] == pytest.approx(loss(parameters), rel=1e-9)
    assert_memory_close(new.critic_opt, adam)
    assert_close(new.critic, moved)


@pytest.mark.parametrize(
    ("weighting", "kind"), [("exp", "mean"), ("binary", "max"), ("binary", "mean"), ("all", "mean")]
)
def test_an_actor_step_is_cloning_weighted_by_f(weighting: Any, kind: Any) -> None:
    config = dataclasses.replace(CONFIG, weighting=weighting, advantage=kind)
    state = make_state()
    observation, action, *_ = columns()
    advantage = slow_advantage(state, kind)
    weight = slow_weight(advantage, weighting)
    if weighting != "all":
        assert len(set(weight)) > 1  # the batch reaches both sides

    def loss(parameters: Any) -> float:
        mean, std = distribution(parameters, observation)
        log_prob = slow.normal_log_density(action, mean, std).sum(axis=1)
        return float(-(weight * log_prob).mean())

    parameters = numbers(state.actor)
    moved, adam = slow.adam(
        parameters,
        slow.gradient(loss, parameters),
        memory(state.actor_opt),
        config.actor_lr,
        1e-8,
    )
    new, metrics = run(state, config)
    assert metrics["actor/advantage"] == pytest.approx(advantage.mean(), rel=1e-9)
    assert metrics["actor/loss"] == pytest.approx(loss(parameters), rel=1e-9)
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved)


def test_targets_are_copied_every_so_many_updates_and_only_then() -> None:
    state = make_state()
    between, _ = run(state, step=3)
    assert_close(between.target_critic, numbers(state.target_critic), rtol=0)
    assert_close(between.target_actor, numbers(state.target_actor), rtol=0)
    at, _ = run(state, step=4)
    assert_close(at.target_critic, numbers(at.critic), rtol=0)
    assert_close(at.target_actor, numbers(at.actor), rtol=0)


def test_no_gradient_passes_through_the_weight() -> None:
    """With exp(A/β) left attached, the actor's loss would reach the critic too."""
    state = make_state()
    observation, action, *_ = columns()
    weight = slow_weight(slow_advantage(state, "mean"), "exp")
    assert ((weight > 0) & (weight < CONFIG.weight_clip)).any()  # where it would have a slope

    def attached(parameters: Any) -> float:
        changed = state._replace(
            critic=jax.tree.unflatten(
                jax.tree.structure(state.critic), [jnp.asarray(p) for p in parameters]
            )
        )
        mean, std = distribution(numbers(state.actor), observation)
        log_prob = slow.normal_log_density(action, mean, std).sum(axis=1)
        return float(-(slow_weight(slow_advantage(changed, "mean"), "exp") * log_prob).mean())

    leak = slow.gradient(attached, numbers(state.critic))
    assert max(np.abs(g).max() for g in leak) > 1e-3  # what the buggy form would add
    still, _ = run(state, dataclasses.replace(CONFIG, critic_lr=0.0))
    assert_close(still.critic, numbers(state.critic), rtol=0)
