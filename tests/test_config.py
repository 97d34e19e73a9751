"""Configs: floats are traced, the rest is static, and JSON holds all of it."""

from __future__ import annotations

import dataclasses
import json
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward.config import config, float_fields, from_json, to_json
from leeward.errors import ConfigError


@config
class Example:
    steps: int = 10
    lr: float = 0.5
    hidden: tuple[int, ...] = (4, 4)
    density: Literal["gaussian", "mixture"] = "gaussian"
    decay: bool = False
    tau: float = 0.25


def test_floats_are_the_leaves() -> None:
    assert float_fields(Example) == ("lr", "tau")
    assert jax.tree.leaves(Example()) == [0.5, 0.25]


def test_floats_are_traced_and_the_rest_static() -> None:
    traces = []

    @jax.jit
    def program(settings: Example) -> jax.Array:
        traces.append(settings.density)
        return jnp.asarray(settings.lr) * settings.steps

    assert program(Example()) == 5.0
    assert program(Example(lr=1.0)) == 10.0
    assert traces == ["gaussian"]
    program(Example(density="mixture"))
    assert traces == ["gaussian", "mixture"]


def test_floats_may_hold_one_value_a_run() -> None:
    stacked = dataclasses.replace(Example(), lr=jnp.asarray([1.0, 2.0]), tau=jnp.zeros(2))
    lr = jax.vmap(lambda settings: settings.lr * settings.steps)(stacked)
    np.testing.assert_array_equal(lr, [10.0, 20.0])
    assert to_json(stacked)["lr"] == [1.0, 2.0]


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Example().lr = 1.0  # type: ignore[misc]


def test_json_holds_all_of_it() -> None:
    example = Example(steps=3, lr=1e-4, hidden=(1, 2, 3), density="mixture", decay=True)
    assert from_json(Example, json.loads(json.dumps(to_json(example)))) == example


def test_missing_settings_take_their_defaults() -> None:
    assert from_json(Example, {"lr": 1}) == Example(lr=1.0)
    assert isinstance(from_json(Example, {"lr": 1}).lr, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lrr": 1.0}, "unknown setting 'lrr' for test_config. Did you mean lr?"),
        ({"lr": "fast"}, "setting 'lr' must be a number, got 'fast'"),
        ({"lr": True}, "setting 'lr' must be a number, got True"),
        ({"steps": 1.5}, "setting 'steps' must be int, got 1.5"),
        ({"steps": True}, "setting 'steps' must be int, got True"),
        ({"decay": 1}, "setting 'decay' must be bool, got 1"),
        ({"hidden": 4}, "setting 'hidden' must be a list, got 4"),
        ({"hidden": [4, "x"]}, "setting 'hidden' must be a list of int, got [4, 'x']"),
        ({"hidden": [4, True]}, "setting 'hidden' must be a list of int, got [4, True]"),
        ({"lr": [0.1, "x"]}, "setting 'lr' must be a number, got 'x'"),
        (
            {"density": "normal"},
            "setting 'density' must be one of gaussian, mixture, got 'normal'",
        ),
    ],
)
def test_wrong_settings_are_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_json(Example, values)
    assert str(error.value) == message
