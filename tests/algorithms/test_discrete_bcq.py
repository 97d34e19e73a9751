"""BCQ with discrete actions: one update equals a slow computation (arXiv 1910.01708)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discrete import (
    assert_stepped,
    check_target_copies,
    column,
    huber,
    log_softmax,
    make_state,
    run,
    taken,
    td_target,
    two_heads,
)
from fixed import numbers
from leeward.algorithms import discrete_bcq
from leeward.algorithms.discrete_bcq import ALGORITHM, Config, Policy, among_likely, likely

CONFIG = Config(hidden=(5,), lr=0.013, target_every=100, threshold=0.3, logit_penalty=0.2)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def allowed(logit: np.ndarray, threshold: float) -> np.ndarray:
    """The paper's rule on probabilities: π(a|s) / max π > τ."""
    probability = np.exp(log_softmax(logit))
    return probability / probability.max(axis=1, keepdims=True) > threshold


def test_an_update_equals_the_slow_computation() -> None:
    for seed in range(20):  # the first weights with which the rule matters in this batch
        state = make_state(discrete_bcq, CONFIG, seed)
        q, logit = two_heads(numbers(state.network), column("next_observation"))
        best = np.where(allowed(logit, 0.3), q, -1e9).argmax(axis=1)
        if (best != q.argmax(axis=1)).any():
            break
    assert (best != q.argmax(axis=1)).any()
    target_q, _ = two_heads(numbers(state.target_network), column("next_observation"))
    target = td_target(target_q[np.arange(len(best)), best])

    def parts(layers: Sequence[np.ndarray]) -> tuple[float, float, float]:
        q, logit = two_heads(layers, column("observation"))
        regression = float(np.mean([huber(error) for error in target - taken(q)]))
        return regression, float(-taken(log_softmax(logit)).mean()), float((logit**2).mean())

    def loss(layers: Sequence[np.ndarray]) -> float:
        regression, cloning, penalty = parts(layers)
        return regression + cloning + 0.2 * penalty

    new, metrics = run(discrete_bcq, CONFIG, state)
    names = ("critic/loss", "behavior/loss", "behavior/squared_logit")
    for name, value in zip(names, parts(numbers(state.network)), strict=True):
        assert metrics[name] == pytest.approx(value, rel=1e-9), name
    assert_stepped(loss, state.network, state.network_opt, new.network, new.network_opt, CONFIG.lr)


def test_one_step_moves_the_shared_trunk_once() -> None:
    """Its step is Adam's on the sum of both heads' losses, not two steps one after another."""
    state = make_state(discrete_bcq, CONFIG)
    new, _ = run(discrete_bcq, CONFIG, state)
    assert int(new.network_opt[0].count) == int(state.network_opt[0].count) + 1
    moved = np.abs(numbers(new.network)[0] - numbers(state.network)[0]).max()
    assert 0.0 < moved < 0.05


def test_likelihoods_are_compared_as_logarithms() -> None:
    """Probabilities of these logits underflow even in float64; their logarithms do not."""
    logit = jnp.asarray([[-2000.0, -2001.0, -2002.0, -9000.0], [0.0, -1000.0, 5.0, 4.0]])
    expected = [[True, True, False, False], [False, False, True, True]]
    np.testing.assert_array_equal(likely(logit, 0.3), expected)  # log 0.3 = −1.2
    with jax.enable_x64(False):
        np.testing.assert_array_equal(likely(logit.astype(jnp.float32), 0.3), expected)


@pytest.mark.parametrize(("threshold", "count"), [(0.0, 4), (1.0, 1), (5.0, 1)])
def test_some_action_is_always_left(threshold: float, count: int) -> None:
    logit = jnp.asarray([[1.0, 3.0, 2.0, -8.0]])
    assert int(likely(logit, threshold).sum()) == count
    q = jnp.asarray([[9.0, -1.0, 5.0, 7.0]])
    assert int(jnp.argmax(among_likely(q, logit, threshold))) == (0 if count == 4 else 1)


def test_the_policy_takes_the_best_of_the_likely_actions() -> None:
    network = make_state(discrete_bcq, CONFIG).network
    observation = column("observation")
    q, logit = two_heads(numbers(network), observation)
    for threshold in (0.0, 0.3, 0.9):
        policy = Policy(network, jnp.asarray(threshold))
        action = ALGORITHM.act(policy, jnp.asarray(observation), jax.random.key(0))
        expected = np.where(allowed(logit, threshold), q, -1e9).argmax(axis=1)
        np.testing.assert_array_equal(action, expected)


def test_the_target_is_copied_after_every_so_many_updates() -> None:
    check_target_copies(discrete_bcq, dataclasses.replace(CONFIG, target_every=3))


def test_the_defaults_are_the_paper_s() -> None:
    default = Config()
    assert (default.threshold, default.logit_penalty, default.lr) == (0.3, 1e-2, 6.25e-5)
    assert default.target_every == 8_000
