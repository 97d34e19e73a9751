"""QR-DQN: one update equals loops over quantiles (arXiv 1710.10044)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from discrete import (
    assert_stepped,
    check_target_copies,
    column,
    huber,
    make_state,
    quantile_huber,
    quantiles_of,
    run,
    taken,
    td_target,
)
from fixed import numbers
from leeward import losses
from leeward.algorithms import qrdqn
from leeward.algorithms.qrdqn import ALGORITHM, Config

CONFIG = Config(hidden=(5,), quantiles=3, lr=0.013, adam_eps=1e-3, target_every=100)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def slow_target(state: Any, double: bool) -> np.ndarray:
    """[B, K]: the target's quantiles of the next state's best action."""
    target = quantiles_of(numbers(state.target_network), column("next_observation"))
    online = quantiles_of(numbers(state.network), column("next_observation"))
    best = (online if double else target).mean(axis=2).argmax(axis=1)
    chosen = target[np.arange(len(best)), best]
    return np.stack([td_target(chosen[:, i]) for i in range(chosen.shape[1])], axis=1)


@pytest.mark.parametrize("double", [True, False])
def test_an_update_equals_the_slow_computation(double: bool) -> None:
    config = dataclasses.replace(CONFIG, double=double)
    state = make_state(qrdqn, config)
    target = slow_target(state, double)
    assert not np.array_equal(target, slow_target(state, not double))

    def loss(layers: Sequence[np.ndarray]) -> float:
        quantile = taken(quantiles_of(layers, column("observation")))
        pairs = zip(quantile, target, strict=True)
        return float(np.mean([quantile_huber(*pair) for pair in pairs]))

    new, metrics = run(qrdqn, config, state)
    assert metrics["critic/loss"] == pytest.approx(loss(numbers(state.network)), rel=1e-9)
    q = taken(quantiles_of(numbers(state.network), column("observation"))).mean()
    assert metrics["critic/q"] == pytest.approx(q, rel=1e-9)
    opts = state.network_opt, new.network, new.network_opt
    assert_stepped(loss, state.network, *opts, config.lr, config.adam_eps)


def test_the_quantile_loss_equals_loops_for_any_numbers_of_quantiles() -> None:
    draw = np.random.default_rng(0)
    quantile, target = 2.0 * draw.normal(size=(7, 5)), 2.0 * draw.normal(size=(7, 4))
    expected = [quantile_huber(*pair) for pair in zip(quantile, target, strict=True)]
    found = losses.quantile_huber(jnp.asarray(quantile), jnp.asarray(target))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_huber_loss_is_quadratic_inside_and_linear_outside() -> None:
    difference = np.array([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0])
    found = losses.huber(jnp.asarray(difference))
    np.testing.assert_allclose(found, [huber(d) for d in difference])
    np.testing.assert_allclose(found, [2.5, 0.5, 0.125, 0.0, 0.03125, 0.5, 1.5])


def test_quantile_regression_finds_the_quantiles_of_a_sample() -> None:
    """Far from 0 the loss is nearly the quantile loss, whose minimum are the sample's quantiles."""
    sample = jnp.asarray(100.0 * np.arange(1.0, 9.0))[None]  # 100, 200 … 800
    quantile = jnp.full((1, 4), 450.0)
    descent = jax.jit(jax.grad(lambda q: losses.quantile_huber(q, sample).sum()))
    for _ in range(3000):
        quantile = quantile - 2.0 * descent(quantile)
    # Levels 1/8, 3/8, 5/8, 7/8 of eight values: between each pair of neighbors.
    low, high = np.array([100, 300, 500, 700]), np.array([200, 400, 600, 800])
    assert ((np.asarray(quantile[0]) >= low - 2) & (np.asarray(quantile[0]) <= high + 2)).all()


def test_the_target_is_copied_after_every_so_many_updates() -> None:
    check_target_copies(qrdqn, dataclasses.replace(CONFIG, target_every=3))


def test_the_action_with_the_highest_mean_is_taken() -> None:
    state = make_state(qrdqn, CONFIG)
    action = qrdqn.act(qrdqn.policy(state), jnp.asarray(column("observation")), jax.random.key(0))
    q = quantiles_of(numbers(state.network), column("observation")).mean(axis=2)
    np.testing.assert_array_equal(action, q.argmax(axis=1))


def test_the_presets_are_the_paper_s_and_tianshou_s() -> None:
    assert ALGORITHM.presets == {
        "paper": {"lr": 5e-5, "adam_eps": 0.0003125, "target_every": 10_000},
        "tianshou": {"double": True, "scale_images": False},
    }
    assert Config().quantiles == 200
