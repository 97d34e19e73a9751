"""FMR's safe ground: without its divergence it is cloning, and what it warns of."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fixed import BATCH_SIZE, DISCRETE, fixed_batch
from leeward.algorithms import discrete_bc
from leeward.algorithms.fmr import Config, init, update_policy
from leeward.nn.distributions import Categorical
from leeward.pretraining import behavior, value

GOOD = {
    "value/rewardless": 0.0,
    "value/flat": 0.0,
    "held_out/return_correlation": 0.9,
}


def test_discrete_actions_without_the_divergence_are_cloned_to_the_bit() -> None:
    config = Config(hidden=(5, 4), fmr_weight=0.0, actor_lr=0.013)
    cloning = discrete_bc.Config(hidden=(5, 4), lr=0.013)
    state = init(config, DISCRETE, jax.random.key(1))
    draw = np.random.default_rng(0)
    state = state._replace(
        reference=Categorical(jnp.asarray(3.0 * draw.normal(size=(BATCH_SIZE, 4)), jnp.float32)),
        signal=jnp.asarray(draw.normal(size=BATCH_SIZE), jnp.float32),
    )
    plain = discrete_bc.init(cloning, DISCRETE, jax.random.key(2))._replace(actor=state.actor)
    batch = fixed_batch(DISCRETE)
    batch = batch._replace(
        observation=batch.observation.astype(jnp.float32), action=batch.action.astype(jnp.int32)
    )
    updates = jax.jit(update_policy), jax.jit(discrete_bc.update)
    for step in range(3):
        key = jax.random.key(step)
        state, metrics = updates[0](config, state, batch, key, jnp.int32(step))
        plain, _ = updates[1](cloning, plain, batch, key, jnp.int32(step))
        assert metrics["actor/divergence"] > 0.1
    for a, b in zip(jax.tree.leaves(state.actor), jax.tree.leaves(plain.actor), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        (
            {"value/flat": 1.0, "held_out/return_correlation": np.nan},
            "the value is the same at all states, so it weighs them all alike: use data with "
            "rewards or terminations, or plain bc",
        ),
        (
            {"held_out/return_correlation": 0.21},
            "values and returns correlate by 0.21 only, so weights that come from them mean "
            "little: train longer (--value-steps), or use plain bc",
        ),
        (
            {"value/rewardless": 1.0},
            "the value learns from a reward of 1 a step and 0 at terminations: it only tells how "
            "long episodes go on",
        ),
        (
            {"held_out/discriminator_accuracy": 0.52},
            "the discriminator is right at 52 % of states only, where guessing is at 50 %: raise "
            "--conservative-noise, which moves the states beside the data away, or leave "
            "--adversarial out",
        ),
    ],
)
def test_what_speaks_against_a_value_is_said_with_a_safe_course(
    changes: dict[str, Any], message: str | None
) -> None:
    assert value.warnings(GOOD | changes) == ([] if message is None else [message])


def test_stds_at_their_floor_are_said_with_a_safe_course() -> None:
    assert behavior.warnings({"held_out/at_floor": 0.001}) == []
    assert behavior.warnings({"training/at_floor": 0.25}) == [
        "25 % of the behavior model's log-stds are at their floor of -10, where KL explodes: "
        "actions that hardly vary are better modeled by --behavior deterministic, or compared by "
        "--divergence js"
    ]
