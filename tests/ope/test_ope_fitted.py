"""Fitted Q evaluation: one update equals a slow computation; programs, groups and data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import independent as slow
from fixed import (
    CONTINUOUS,
    DISCRETE,
    assert_close,
    assert_memory_close,
    fixed_batch,
    memory,
    numbers,
    randomize,
)
from leeward.data.dataset import Dataset
from leeward.data.sampling import fit_scaling, to_device
from leeward.ope import fitted
from leeward.ope.fitted import Config, Question, State, fit, init, predict, update, value_range
from leeward.types import Spec

CONFIG = Config(hidden=(5, 4), lr=0.02, tau=0.1, steps=100)
STEP = 30
SMALL = Config(hidden=(8,), steps=6, batch_size=8)


def make_state(spec: Spec, size: int) -> State:
    state = randomize(init(CONFIG, spec, jax.random.key(0)))
    draw = np.random.default_rng(3)
    choice = np.tanh(draw.normal(size=(6, size)))
    if spec is DISCRETE:
        choice = np.exp(choice) / np.exp(choice).sum(axis=1, keepdims=True)
    return state._replace(
        center=jnp.asarray(0.7),
        scale=jnp.asarray(2.5),
        next_choice=jnp.asarray(choice),
        weight=jnp.asarray([1.0, 1.0, 0.0, 1.0, 1.0, 1.0]),
    )


def network(spec: Spec, layers: Any, observation: np.ndarray, choice: np.ndarray) -> np.ndarray:
    """One critic's output for a choice [B]."""
    if spec is CONTINUOUS:
        return slow.critic(layers, observation, choice)
    return (slow.mlp(layers, observation) * choice).sum(axis=1)


@pytest.mark.parametrize("spec", [CONTINUOUS, DISCRETE], ids=["continuous", "discrete"])
def test_one_update_is_a_regression_on_the_policy_s_bellman_equation(spec: Spec) -> None:
    with jax.enable_x64(True):
        batch = fixed_batch(spec)
        size = spec.action.size
        state = make_state(spec, size)
        taken = np.eye(size)[np.asarray(batch.action)] if spec is DISCRETE else batch.action
        new, metrics = jax.jit(update)(CONFIG, state, batch, jax.random.key(0), jnp.asarray(STEP))
        rate = 0.02 * 0.5 * (1.0 + np.cos(np.pi * STEP / 100))
        alive = np.asarray(batch.discount) * (1.0 - np.asarray(batch.termination))
        total = 0.0
        parameters, means = [], memory(state.opt)
        half = len(numbers(state.critic)) // 2
        for member in (slice(0, half), slice(half, None)):
            following = network(
                spec,
                numbers(state.target)[member],
                np.asarray(batch.next_observation),
                np.asarray(state.next_choice),
            )
            target = np.asarray(batch.reward) + alive * (0.7 + 2.5 * following)

            def loss(layers: Any, target: np.ndarray = target) -> float:
                q = network(spec, layers, np.asarray(batch.observation), np.asarray(taken))
                error = q - (target - 0.7) / 2.5
                return float((np.asarray(state.weight) * error**2).mean())

            layers = numbers(state.critic)[member]
            total += loss(layers)
            parameters.append((layers, slow.gradient(loss, layers)))
        moved, adam = slow.adam(
            [p for layers, _ in parameters for p in layers],
            [g for _, slopes in parameters for g in slopes],
            means,
            rate,
            1e-8,
        )
        assert float(metrics["ope/loss"]) == pytest.approx(total)
        assert_close(new.critic, moved)
        assert_memory_close(new.opt, adam)
        assert_close(new.target, slow.average(numbers(state.target), moved, 0.1))
        np.testing.assert_array_equal(new.next_choice, state.next_choice)
        assert isinstance(new.opt[0], optax.ScaleByAdamState)


def questions(dataset: Dataset, count: int) -> list[Question]:
    draw = np.random.default_rng(0)
    return [
        Question(
            draw.uniform(-1.0, 1.0, (dataset.transitions, 2)).astype(np.float32),
            np.ones(dataset.transitions, np.float32),
        )
        for _ in range(count)
    ]


def fits_of(dataset: Dataset, asked: list[Question], **arguments: Any) -> list[fitted.Fitted]:
    data = to_device(dataset, fit_scaling(dataset, normalize_observations=True))
    return fit(data, dataset.spec, asked, SMALL, **arguments)


def test_policies_in_groups_get_the_values_that_they_get_together(
    continuous_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = questions(continuous_dataset, 2)
    seen: list[int] = []
    together = fits_of(continuous_dataset, asked)
    monkeypatch.setattr(fitted, "CHOICE_BYTES", asked[0].next_choice.nbytes)
    apart = fits_of(continuous_dataset, asked, on_progress=seen.append)
    assert len(apart) == 2
    for one, other in zip(together, apart, strict=True):
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert seen == sorted(seen)
    assert seen[-1] == 2 * SMALL.steps
    first, second = jax.tree.leaves(together[0].critic), jax.tree.leaves(together[1].critic)
    assert not np.array_equal(first[0], second[0])


def test_values_are_those_of_single_calls(continuous_dataset: Dataset) -> None:
    data = to_device(continuous_dataset, fit_scaling(continuous_dataset, True))
    (one,) = fits_of(continuous_dataset, questions(continuous_dataset, 1))
    row = np.array([3, 0, 7])
    choice = np.random.default_rng(1).uniform(-1.0, 1.0, (3, 2)).astype(np.float32)
    found = predict(one, data, row, choice)
    expected = one.center + one.scale * one.critic(data.observation[row], jnp.asarray(choice))
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-5)
    halfway = predict(one.at_halfway(), data, row, choice)
    assert not np.allclose(found, halfway)


def test_values_begin_at_the_data_s_returns(continuous_dataset: Dataset) -> None:
    dataset = continuous_dataset
    data = to_device(dataset, fit_scaling(dataset, True))
    start, episode = dataset.start, dataset.episode_of_row
    reward, ended = dataset.reward.astype(np.float64), dataset.termination
    lasts = 1.0 - ended[start].mean()
    forever = reward[start].mean() / (1.0 - 0.9 * lasts)
    returns = []
    for row in start:
        value, factor = 0.0, 1.0
        for later in start[(start >= row) & (episode[start] == episode[row])]:
            value += factor * reward[later]
            factor *= 0.9
        returns.append(value + (0.0 if ended[later] else factor * forever))
    center, scale = value_range(data, 0.9)
    assert center == pytest.approx(np.mean(returns), rel=1e-5)
    assert scale == pytest.approx(np.std(returns), rel=1e-5)
    apart = data._replace(next_observation=data.observation[data.start])
    alone = reward[start] + np.where(ended[start], 0.0, 0.9 * forever)
    assert value_range(apart, 0.9) == pytest.approx((alone.mean(), alone.std()), rel=1e-5)
    nothing = data._replace(reward=jnp.zeros_like(data.reward))
    assert value_range(nothing, 0.9) == (0.0, 1.0)
