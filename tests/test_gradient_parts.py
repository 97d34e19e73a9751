"""A gradient taken part by part is the whole batch's, and clipping keeps its direction."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from leeward.optim import clip_norm, gradient_in_parts
from leeward.types import Metrics


class Pair(NamedTuple):
    feature: Array
    target: Array


def loss(weight: Array, batch: Pair) -> tuple[Array, Metrics]:
    error = jnp.square(jnp.tanh(batch.feature @ weight) - batch.target).mean()
    return error, {"part/loss": error, "part/target": batch.target.mean()}


@pytest.mark.parametrize(("part_size", "scans"), [(4, 1), (12, 0), (5, 0)])
def test_parts_give_the_whole_gradient_and_metrics(part_size: int, scans: int) -> None:
    """12 rows in parts of 4; a part of all rows and one that does not divide them go at once."""
    draw = np.random.default_rng(0)
    batch = Pair(jnp.asarray(draw.normal(size=(12, 3))), jnp.asarray(draw.normal(size=12)))
    weight = jnp.asarray(draw.normal(size=3))
    whole, metrics = jax.grad(loss, has_aux=True)(weight, batch)
    in_parts, found = gradient_in_parts(loss, weight, batch, part_size)
    np.testing.assert_allclose(in_parts, whole, rtol=1e-5)
    for name, value in metrics.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)
    if jax.default_backend() == "cpu":
        program = str(
            jax.make_jaxpr(lambda w: gradient_in_parts(loss, w, batch, part_size))(weight)
        )
        assert program.count("scan[") == scans


def test_a_gradient_is_shortened_only_above_its_bound() -> None:
    gradient = {"a": jnp.asarray([3.0, 0.0]), "b": jnp.asarray([[4.0]])}  # norm 5
    for highest, scale in ((2.5, 0.5), (10.0, 1.0), (0.0, 1.0)):
        clipped = clip_norm(gradient, jnp.float32(highest))
        np.testing.assert_allclose(clipped["a"], scale * gradient["a"], rtol=1e-6)
        np.testing.assert_allclose(clipped["b"], scale * gradient["b"], rtol=1e-6)
    nothing = jax.tree.map(jnp.zeros_like, gradient)
    np.testing.assert_array_equal(clip_norm(nothing, 1.0)["a"], nothing["a"])
