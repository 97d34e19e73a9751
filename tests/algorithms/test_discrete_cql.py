"""CQL with discrete actions: quantile regression plus the penalty, against slow loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np
import pytest

from discrete import (
    assert_stepped,
    check_target_copies,
    column,
    conservative_gap,
    make_state,
    quantile_huber,
    quantiles_of,
    run,
    taken,
    td_target,
)
from fixed import numbers
from leeward.algorithms import discrete_cql
from leeward.algorithms.discrete_cql import Config
from leeward.config import from_json

CONFIG = Config(hidden=(5,), quantiles=3, lr=0.013, target_every=100, cql_weight=1.7)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("double", [True, False])
def test_an_update_equals_the_slow_computation(double: bool) -> None:
    config = dataclasses.replace(CONFIG, double=double)
    state = make_state(discrete_cql, config)
    following = quantiles_of(numbers(state.target_network), column("next_observation"))
    online = quantiles_of(numbers(state.network), column("next_observation"))
    best = (online if double else following).mean(axis=2).argmax(axis=1)
    chosen = following[np.arange(len(best)), best]
    target = np.stack([td_target(chosen[:, i]) for i in range(3)], axis=1)

    def regression(layers: Sequence[np.ndarray]) -> float:
        quantile = taken(quantiles_of(layers, column("observation")))
        pairs = zip(quantile, target, strict=True)
        return float(np.mean([quantile_huber(*pair) for pair in pairs]))

    def gap(layers: Sequence[np.ndarray]) -> float:
        return conservative_gap(quantiles_of(layers, column("observation")).mean(axis=2))

    new, metrics = run(discrete_cql, config, state)
    before = numbers(state.network)
    assert metrics["critic/loss"] == pytest.approx(regression(before), rel=1e-9)
    assert metrics["critic/gap"] == pytest.approx(gap(before), rel=1e-9)
    assert_stepped(
        lambda layers: regression(layers) + config.cql_weight * gap(layers),
        state.network,
        state.network_opt,
        new.network,
        new.network_opt,
        config.lr,
    )


def test_the_target_is_copied_after_every_so_many_updates() -> None:
    check_target_copies(discrete_cql, dataclasses.replace(CONFIG, target_every=3))


def test_the_weight_is_ten_by_default_and_that_of_the_data_s_size_in_presets() -> None:
    assert Config().cql_weight == 10.0
    presets = discrete_cql.ALGORITHM.presets
    assert all(preset["double"] is True for preset in presets.values())
    weight = {name: from_json(Config, preset).cql_weight for name, preset in presets.items()}
    assert weight == {
        "tianshou": 10.0,
        "tianshou-breakout-1e6": 50.0,
        "tianshou-breakout-1e5": 20.0,
        "tianshou-breakout-1e4": 10.0,
        "tianshou-pong-1e4": 1.0,
    }
