"""DQN: one update equals a slow computation; the target is copied at the right step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import independent as slow
from discrete import (
    assert_stepped,
    check_target_copies,
    column,
    huber,
    make_state,
    run,
    taken,
    td_target,
)
from fixed import assert_close, numbers
from leeward.algorithms import dqn
from leeward.algorithms.dqn import Config

CONFIG = Config(hidden=(5,), lr=0.013, target_every=100)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def q_of(network: Any, name: str) -> np.ndarray:
    return slow.mlp(numbers(network), column(name))


@pytest.mark.parametrize("double", [True, False])
def test_an_update_equals_the_slow_computation(double: bool) -> None:
    config = dataclasses.replace(CONFIG, double=double)
    state = make_state(dqn, config)
    target_q = q_of(state.target_network, "next_observation")
    online_q = q_of(state.network, "next_observation")
    best = (online_q if double else target_q).argmax(axis=1)
    assert (online_q.argmax(axis=1) != target_q.argmax(axis=1)).any()  # else they are the same
    target = td_target(target_q[np.arange(len(best)), best])

    def loss(layers: Sequence[np.ndarray]) -> float:
        q = taken(slow.mlp(list(layers), column("observation")))
        return float(np.mean([huber(error) for error in target - q]))

    error = np.abs(target - taken(q_of(state.network, "observation")))
    assert error.min() < 1.0 < error.max()  # both pieces of the loss
    new, metrics = run(dqn, config, state)
    assert metrics["critic/loss"] == pytest.approx(loss(numbers(state.network)), rel=1e-9)
    assert_stepped(loss, state.network, state.network_opt, new.network, new.network_opt, config.lr)
    assert_close(new.target_network, numbers(state.target_network), rtol=0)


def test_the_target_is_copied_after_every_so_many_updates() -> None:
    check_target_copies(dqn, dataclasses.replace(CONFIG, target_every=3))


def test_the_best_action_is_taken() -> None:
    state = make_state(dqn, CONFIG)
    action = dqn.act(dqn.policy(state), jnp.asarray(column("observation")), jax.random.key(0))
    np.testing.assert_array_equal(action, q_of(state.network, "observation").argmax(axis=1))
