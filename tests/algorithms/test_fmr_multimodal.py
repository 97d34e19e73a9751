"""FMR on demonstrations that go four ways: a joint mixture takes one of them, never between."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from leeward.algorithms.fmr import (
    Config,
    State,
    act,
    enter_behavior,
    enter_policy,
    init,
    update_policy,
)
from leeward.data.dataset import Dataset
from leeward.data.sampling import fit_scaling, gather, to_device
from leeward.nn.distributions import JointMixture, TanhMixture

WAYS = 0.7 * np.asarray([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])


def four_ways() -> Dataset:
    """One place, left in four directions about equally often; episodes of eight steps."""
    draw = np.random.default_rng(0)
    way = np.tile([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0], 32)[:400]
    action = WAYS[way] + 0.03 * draw.normal(size=(400, 2))
    last = np.arange(400) % 8 == 7
    return Dataset.from_arrays(
        draw.normal(size=(400, 1)), action, np.zeros(400), last, np.zeros(400, bool),
        action_low=-1.0, action_high=1.0, metadata={"name": "four-ways"},
    )  # fmt: skip


def trained(density: Literal["mixture", "joint-mixture"]) -> State:
    """The policy after 500 updates, held to a kernel density of the same actions."""
    dataset = four_ways()
    data = to_device(dataset, fit_scaling(dataset, normalize_observations=False))
    config = Config(
        density=density, behavior="kernel", components=6, hidden=(8,), actor_lr=0.02,
        fmr_weight=0.1, value_ensemble=1,
    )  # fmt: skip
    key = jax.random.key(0)

    def body(state: State, step: jax.Array) -> tuple[State, None]:
        chosen = jax.random.randint(jax.random.fold_in(key, step), (64,), 0, 400)
        batch = gather(data, chosen, 0.99)
        state, _ = update_policy(config, state, batch, jax.random.fold_in(key, 1_000 + step), step)
        return state, None

    @jax.jit
    def run() -> State:
        state = init(config, dataset.spec, key)
        state = enter_behavior(config, state, data, key)
        state = enter_policy(config, state, data, key)
        return jax.lax.scan(body, state, jnp.arange(500))[0]

    return run()


def distance(action: Any) -> np.ndarray:
    """From the nearest of the four ways."""
    return np.linalg.norm(np.asarray(action)[:, None] - WAYS, axis=-1).min(axis=1)


def test_a_joint_mixture_takes_one_of_the_ways() -> None:
    state = trained("joint-mixture")
    place = jnp.linspace(-1.0, 1.0, 500)[:, None]
    assert distance(act(state.actor, place, jax.random.key(0))).max() < 0.1
    policy = state.actor(place)
    assert isinstance(policy, JointMixture)
    assert (distance(policy.sample(jax.random.key(1))) < 0.2).mean() > 0.95


def test_a_mixture_for_every_dimension_combines_them() -> None:
    """Half of its samples are of no way: why there is a joint one."""
    state = trained("mixture")
    place = jnp.linspace(-1.0, 1.0, 500)[:, None]
    policy = state.actor(place)
    assert isinstance(policy, TanhMixture)
    assert (distance(policy.sample(jax.random.key(1))) < 0.2).mean() < 0.7
