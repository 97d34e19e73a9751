"""CRR with discrete actions: one update equals a slow computation (arXiv 2006.15134)."""

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
    conservative_gap,
    log_softmax,
    make_state,
    run,
    taken,
    td_target,
    two_heads,
)
from fixed import numbers
from leeward.algorithms import discrete_crr
from leeward.algorithms.discrete_crr import Config

CONFIG = Config(hidden=(5,), lr=0.013, target_every=100, beta=0.7, weight_clip=1.5, cql_weight=0.6)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def advantage_of(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Q(s, a) − Σ π Q."""
    q, logit = two_heads(layers, column("observation"))
    return taken(q) - (np.exp(log_softmax(logit)) * q).sum(axis=1)


def weight_of(weighting: str, advantage: np.ndarray) -> np.ndarray:
    if weighting == "exp":
        return np.minimum(np.exp(advantage / CONFIG.beta), CONFIG.weight_clip)
    return (advantage > 0).astype(float) if weighting == "binary" else np.ones(len(advantage))


@pytest.mark.parametrize("weighting", ["exp", "binary", "all"])
def test_an_update_equals_the_slow_computation(weighting: str) -> None:
    """The weight is a number, fixed before the gradient: through it nothing reaches Q or trunk."""
    config = dataclasses.replace(CONFIG, weighting=weighting)
    state = make_state(discrete_crr, config)
    advantage = advantage_of(numbers(state.network))
    weight = weight_of(weighting, advantage)
    assert (advantage < 0).any()
    assert (advantage > 0).any()
    if weighting == "exp":
        assert weight.max() == config.weight_clip > weight.min()
    q, logit = two_heads(numbers(state.target_network), column("next_observation"))
    target = td_target((np.exp(log_softmax(logit)) * q).sum(axis=1))

    def parts(layers: Sequence[np.ndarray]) -> tuple[float, float, float]:
        q, logit = two_heads(layers, column("observation"))
        regression = 0.5 * float(((taken(q) - target) ** 2).mean())
        cloning = -float((weight * taken(log_softmax(logit))).mean())
        return regression, cloning, conservative_gap(q)

    def loss(layers: Sequence[np.ndarray]) -> float:
        regression, cloning, gap = parts(layers)
        return regression + cloning + config.cql_weight * gap

    new, metrics = run(discrete_crr, config, state)
    names = ("critic/loss", "actor/loss", "critic/gap")
    for name, value in zip(names, parts(numbers(state.network)), strict=True):
        assert metrics[name] == pytest.approx(value, rel=1e-9), name
    assert metrics["actor/advantage"] == pytest.approx(advantage.mean(), rel=1e-9)
    assert metrics["actor/weight"] == pytest.approx(weight.mean(), rel=1e-9)
    opts = state.network_opt, new.network, new.network_opt
    assert_stepped(loss, state.network, *opts, config.lr)


def test_the_target_is_copied_after_every_so_many_updates() -> None:
    check_target_copies(discrete_crr, dataclasses.replace(CONFIG, target_every=3))


def test_the_actor_s_likeliest_action_is_taken() -> None:
    state = make_state(discrete_crr, CONFIG)
    action = discrete_crr.act(state.network, jnp.asarray(column("observation")), jax.random.key(0))
    _, logit = two_heads(numbers(state.network), column("observation"))
    np.testing.assert_array_equal(action, logit.argmax(axis=1))


def test_the_defaults_are_the_paper_s() -> None:
    default = Config()
    assert (default.beta, default.weight_clip, default.cql_weight) == (1.0, 20.0, 0.0)


def test_the_presets_have_the_example_s_heads_and_weights() -> None:
    heads = {"hidden": (), "head_hidden": (512,), "scale_images": False}
    assert discrete_crr.ALGORITHM.presets == {
        "tianshou": heads | {"cql_weight": 10.0},
        "tianshou-breakout-1e6": heads | {"cql_weight": 50.0},
    }
