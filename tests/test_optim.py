"""Gradient steps, target updates and schedules, on numbers worked by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import independent as slow
from leeward.optim import cosine, descend, every, polyak, reference_decay
from leeward.types import UNMEASURED, Metrics


def test_descend_takes_one_step_down_the_loss() -> None:
    def loss(model: dict[str, jax.Array]) -> tuple[jax.Array, Metrics]:
        total = model["a"] ** 2 + 3.0 * model["b"]
        return total, {"critic/loss": total}

    model = {"a": jnp.asarray(2.0), "b": jnp.asarray(1.0)}
    sgd = optax.sgd(0.1)
    new, _, metrics = descend(loss, model, sgd, sgd.init(model))
    np.testing.assert_allclose([new["a"], new["b"]], [1.6, 0.7], rtol=1e-6)
    assert metrics["critic/loss"] == 7.0


@pytest.mark.parametrize("eps", [1e-8, 1e-3])
def test_adam_is_the_paper_s_over_several_steps(eps: float) -> None:
    """On the loss Σ wᵢ², with weights so small that eps counts."""
    with jax.enable_x64(True):
        weight = jnp.asarray([1e-3, -2e-6, 1e-8])
        adam = optax.adam(1e-4, eps=eps)
        state = adam.init(weight)
        expected = [np.asarray(weight)]
        zeros = [np.zeros(3)]
        memory = slow.Adam(0, zeros, zeros)
        for _ in range(5):
            weight, state, _ = descend(lambda w: (jnp.square(w).sum(), {}), weight, adam, state)
            expected, memory = slow.adam(expected, [2.0 * expected[0]], memory, 1e-4, eps)
        np.testing.assert_allclose(weight, expected[0], rtol=1e-9)


def test_polyak_moves_every_leaf_by_tau() -> None:
    target = {"a": jnp.asarray([0.0, 10.0]), "b": jnp.asarray(4.0)}
    online = {"a": jnp.asarray([10.0, 0.0]), "b": jnp.asarray(8.0)}
    new = polyak(target, online, 0.25)
    np.testing.assert_array_equal(new["a"], [2.5, 7.5])
    assert new["b"] == 5.0


@pytest.mark.parametrize(("period", "updated"), [(1, [0, 1, 2, 3]), (2, [0, 2]), (3, [0, 3])])
def test_every_updates_at_multiples_of_its_period(period: int, updated: list[int]) -> None:
    def update(state: jax.Array) -> tuple[jax.Array, Metrics]:
        return state + 1.0, {"actor/loss": state}

    run = jax.jit(lambda step, state: every(period, step, update, state))
    for step in range(4):
        state, metrics = run(jnp.int32(step), jnp.float32(5.0))
        assert state == (6.0 if step in updated else 5.0)
        assert bool(metrics["actor/loss"] == UNMEASURED) == (step not in updated)


def test_every_stays_a_branch_under_vmap() -> None:
    """A batched condition would compute both sides for every run."""
    program = jax.make_jaxpr(
        jax.vmap(
            lambda step, state: every(2, step, lambda s: (jnp.sin(s), {}), state), in_axes=(None, 0)
        )
    )(jnp.int32(0), jnp.ones(3))
    assert "cond[" in str(program)
    both_sides = jax.make_jaxpr(
        jax.vmap(lambda step, state: every(2, step, lambda s: (jnp.sin(s), {}), state))
    )(jnp.arange(3), jnp.ones(3))
    assert "cond[" not in str(both_sides)


@pytest.mark.parametrize(
    ("step", "horizon", "share"),
    [
        (0, 1_000_000, 1.0),
        (800_000, 1_000_000, 1.0),
        (800_001, 1_000_000, 0.1),
        (900_000, 1_000_000, 0.1),
        (900_001, 1_000_000, 0.01),
        (5_000_000, 1_000_000, 0.01),
        (8, 10, 1.0),
        (9, 10, 0.1),
    ],
)
def test_reference_decay_falls_after_its_boundaries(step: int, horizon: int, share: float) -> None:
    rate = reference_decay(jnp.int32(step), 1e-3, horizon)
    np.testing.assert_allclose(rate, share * 1e-3, rtol=1e-6)


@pytest.mark.parametrize(
    ("step", "share"), [(0, 1.0), (250, 0.853553), (500, 0.5), (1000, 0.0), (2000, 0.0)]
)
def test_cosine_falls_to_zero_at_its_horizon(step: int, share: float) -> None:
    np.testing.assert_allclose(cosine(jnp.int32(step), 2.0, 1000), 2.0 * share, atol=1e-6)
