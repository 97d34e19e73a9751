"""BC with discrete actions: one update equals a slow computation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import numpy as np
import pytest

import independent as slow
from discrete import assert_stepped, column, log_softmax, make_state, run, taken
from fixed import DISCRETE, fixed_batch, numbers
from leeward.algorithms import discrete_bc
from leeward.algorithms.discrete_bc import ALGORITHM, Config, act, validation_loss

CONFIG = Config(hidden=(5, 4), lr=0.013)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def cross_entropy(layers: Sequence[np.ndarray]) -> np.ndarray:
    return -taken(log_softmax(slow.mlp(list(layers), column("observation"))))


def test_an_update_equals_the_slow_computation() -> None:
    state = make_state(discrete_bc, CONFIG)
    new, metrics = run(discrete_bc, CONFIG, state)
    expected = cross_entropy(numbers(state.actor)).mean()
    assert metrics["behavior/loss"] == pytest.approx(expected, rel=1e-9)
    logit = slow.mlp(numbers(state.actor), column("observation"))
    right = (logit.argmax(axis=1) == column("action")).mean()
    assert metrics["behavior/accuracy"] == pytest.approx(right, rel=1e-6)
    assert_stepped(
        lambda layers: float(cross_entropy(layers).mean()),
        state.actor,
        state.actor_opt,
        new.actor,
        new.actor_opt,
        CONFIG.lr,
    )


def test_held_out_transitions_are_measured_by_the_same_loss() -> None:
    state = make_state(discrete_bc, CONFIG)
    measured = validation_loss(CONFIG, state, fixed_batch(DISCRETE))
    np.testing.assert_allclose(measured, cross_entropy(numbers(state.actor)))


def test_the_likeliest_action_is_taken() -> None:
    state = make_state(discrete_bc, CONFIG)
    action = act(ALGORITHM.policy(state), fixed_batch(DISCRETE).observation, jax.random.key(0))
    logit = slow.mlp(numbers(state.actor), column("observation"))
    np.testing.assert_array_equal(action, logit.argmax(axis=1))
