"""IQL with discrete actions: one update equals a slow computation (arXiv 2110.06169)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import independent as slow
from discrete import assert_stepped, column, log_softmax, make_state, run, taken, td_target
from fixed import DISCRETE, assert_close, numbers
from leeward.algorithms import discrete_iql
from leeward.algorithms.discrete_iql import Config

CONFIG = Config(
    steps=10,
    hidden=(5,),
    expectile=0.8,
    beta=2.0,
    weight_clip=1.5,
    actor_lr=0.013,
    critic_lr=0.021,
    value_lr=0.017,
    tau=0.1,
)
STEP = 4


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def updated() -> tuple[Any, Any, dict[str, float]]:
    """(state, the state after one update, metrics)."""
    with jax.enable_x64(True):
        state = make_state(discrete_iql, CONFIG)
        return (state, *run(discrete_iql, CONFIG, state, STEP))


def output(layers: Sequence[np.ndarray], name: str) -> np.ndarray:
    return slow.mlp(list(layers), column(name))


def target_q(state: Any) -> np.ndarray:
    pair = [taken(output(numbers(member), "observation")) for member in state.target_critic]
    return np.minimum(*pair)


def test_the_value_step_equals_the_slow_computation(updated: Any) -> None:
    state, new, metrics = updated

    def loss(layers: Sequence[np.ndarray]) -> float:
        difference = target_q(state) - output(layers, "observation")[:, 0]
        weight = np.where(difference < 0, 1.0 - CONFIG.expectile, CONFIG.expectile)
        return float((weight * difference**2).mean())

    assert metrics["value/loss"] == pytest.approx(loss(numbers(state.value)), rel=1e-9)
    opts = state.value_opt, new.value, new.value_opt
    assert_stepped(loss, state.value, *opts, CONFIG.value_lr)


def test_the_critics_step_equals_the_slow_computation(updated: Any) -> None:
    state, new, metrics = updated
    target = td_target(output(numbers(state.value), "next_observation")[:, 0])

    def loss(layers: Sequence[np.ndarray]) -> float:
        half = len(layers) // 2
        pair = [taken(output(part, "observation")) for part in (layers[:half], layers[half:])]
        return float(sum(((q - target) ** 2).mean() for q in pair))

    assert metrics["critic/loss"] == pytest.approx(loss(numbers(state.critic)), rel=1e-9)
    opts = state.critic_opt, new.critic, new.critic_opt
    assert_stepped(loss, state.critic, *opts, CONFIG.critic_lr)
    expected = slow.average(numbers(state.target_critic), numbers(new.critic), CONFIG.tau)
    assert_close(new.target_critic, expected)


def test_the_actor_step_equals_the_slow_computation(updated: Any) -> None:
    state, new, metrics = updated
    advantage = target_q(state) - output(numbers(state.value), "observation")[:, 0]
    weight = np.minimum(np.exp(CONFIG.beta * advantage), CONFIG.weight_clip)
    assert weight.max() == CONFIG.weight_clip > weight.min()

    def loss(layers: Sequence[np.ndarray]) -> float:
        log_prob = taken(log_softmax(output(layers, "observation")))
        return -float((weight * log_prob).mean())

    assert metrics["actor/loss"] == pytest.approx(loss(numbers(state.actor)), rel=1e-9)
    rate = CONFIG.actor_lr * 0.5 * (1.0 + np.cos(np.pi * STEP / CONFIG.steps))
    opts = state.actor_opt, new.actor, new.actor_opt
    assert_stepped(loss, state.actor, *opts, rate)


def test_the_likeliest_action_is_taken() -> None:
    state = make_state(discrete_iql, CONFIG)
    action = discrete_iql.act(state.actor, jnp.asarray(column("observation")), jax.random.key(0))
    logit = output(numbers(state.actor), "observation")
    np.testing.assert_array_equal(action, logit.argmax(axis=1))


def test_critics_and_targets_start_as_copies_of_different_networks() -> None:
    state = discrete_iql.init(CONFIG, DISCRETE, jax.random.key(3))
    assert_close(state.target_critic, numbers(state.critic), rtol=0)
    first, second = (numbers(member) for member in state.critic)
    assert not np.array_equal(first[0], second[0])
