"""IQL: one update equals a slow computation from the paper (arXiv 2110.06169)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import independent as slow
from fixed import (
    CONTINUOUS,
    assert_close,
    assert_memory_close,
    fixed_batch,
    memory,
    numbers,
    randomize,
)
from leeward.algorithms.iql import ALGORITHM, Config, State, act, init, update
from leeward.losses import expectile_loss
from leeward.nn.gaussian import dropout_mlp

CONFIG = Config(
    steps=100,
    hidden=(5, 4),
    expectile=0.8,
    beta=2.0,
    weight_clip=1.5,
    actor_lr=0.013,
    critic_lr=0.021,
    value_lr=0.017,
    tau=0.1,
)
STEP = 25
KEY = 5


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def make_state() -> State:
    return randomize(init(CONFIG, CONTINUOUS, jax.random.key(0)), seed=7)


def run(state: State, config: Config = CONFIG, step: int = STEP) -> tuple[State, dict[str, float]]:
    new, metrics = jax.jit(update)(
        config, state, fixed_batch(), jax.random.key(KEY), jnp.asarray(step)
    )
    return new, {name: float(value) for name, value in metrics.items()}


def columns() -> tuple[np.ndarray, ...]:
    """Observation, action, reward, next observation, γ·(1 − termination) of the batch."""
    batch = fixed_batch()
    left = np.asarray(batch.discount) * (1.0 - np.asarray(batch.termination))
    names = ("observation", "action", "reward", "next_observation")
    return (*(np.asarray(getattr(batch, name)) for name in names), left)


def slow_advantage(state: State) -> np.ndarray:
    observation, action, *_ = columns()
    pair = [slow.critic(numbers(m), observation, action) for m in state.target_critic.member]
    return np.minimum(*pair) - slow.mlp(numbers(state.value), observation)[:, 0]


def slow_log_prob(parameters: Any, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    """The plain normal density around a squashed mean; the last array is the log-std."""
    mean = np.tanh(slow.mlp(list(parameters[:-1]), observation))
    std = np.broadcast_to(np.exp(np.clip(parameters[-1], -5.0, 2.0)), mean.shape)
    return slow.normal_log_density(action, mean, std).sum(axis=1)


def test_a_value_step_is_expectile_regression_on_the_target_critics() -> None:
    state = make_state()
    observation, action, *_ = columns()
    pair = [slow.critic(numbers(m), observation, action) for m in state.target_critic.member]
    target = np.minimum(*pair)

    def loss(parameters: Any) -> float:
        difference = target - slow.mlp(list(parameters), observation)[:, 0]
        return float(np.where(difference > 0, 0.8, 0.2) @ difference**2) / len(difference)

    parameters = numbers(state.value)
    moved, adam = slow.adam(
        parameters,
        slow.gradient(loss, parameters),
        memory(state.value_opt),
        CONFIG.value_lr,
        1e-8,
    )
    new, metrics = run(state)
    assert metrics["value/loss"] == pytest.approx(loss(parameters), rel=1e-9)
    assert_memory_close(new.value_opt, adam)
    assert_close(new.value, moved)


def test_a_critic_step_bootstraps_from_v_and_moves_the_targets() -> None:
    state = make_state()
    observation, action, reward, following, left = columns()
    target = reward + left * slow.mlp(numbers(state.value), following)[:, 0]
    parameters = numbers(state.critic)
    half = len(parameters) // 2

    def loss(parameters: Any) -> float:
        pair = parameters[:half], parameters[half:]
        values = [slow.critic(list(p), observation, action) for p in pair]
        return float(sum(((q - target) ** 2).mean() for q in values))

    moved, adam = slow.adam(
        parameters,
        slow.gradient(loss, parameters),
        memory(state.critic_opt),
        CONFIG.critic_lr,
        1e-8,
    )
    new, metrics = run(state)
    assert metrics["critic/loss"] == pytest.approx(loss(parameters), rel=1e-9)
    assert_memory_close(new.critic_opt, adam)
    assert_close(new.critic, moved)
    assert_close(new.target_critic, slow.average(numbers(state.target_critic), moved, CONFIG.tau))


def slow_actor_step(state: State, rate: float) -> tuple[float, list[np.ndarray], slow.Adam]:
    observation, action, *_ = columns()
    weight = np.minimum(np.exp(CONFIG.beta * slow_advantage(state)), CONFIG.weight_clip)
    parameters = numbers(state.actor)

    def loss(parameters: Any) -> float:
        return float(-(weight * slow_log_prob(parameters, observation, action)).mean())

    moved, adam = slow.adam(
        parameters, slow.gradient(loss, parameters), memory(state.actor_opt), rate, 1e-8
    )
    return loss(parameters), moved, adam


def test_an_actor_step_is_weighted_cloning_at_a_decayed_rate() -> None:
    state = make_state()
    rate = CONFIG.actor_lr * 0.5 * (1.0 + np.cos(np.pi * STEP / CONFIG.steps))
    loss, moved, adam = slow_actor_step(state, rate)
    new, metrics = run(state)
    assert metrics["actor/loss"] == pytest.approx(loss, rel=1e-9)
    assert metrics["actor/advantage"] == pytest.approx(slow_advantage(state).mean(), rel=1e-9)
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved)


def test_the_fixed_batch_reaches_both_sides_of_every_bend() -> None:
    advantage = slow_advantage(make_state())
    assert (advantage > 0.0).any()
    assert (advantage < 0.0).any()
    weight = np.exp(CONFIG.beta * advantage)
    assert (weight > CONFIG.weight_clip).any()
    assert (weight < CONFIG.weight_clip).any()


def test_the_actor_s_rate_ends_at_zero_and_is_whole_at_the_start() -> None:
    state = make_state()
    last, _ = run(state, step=CONFIG.steps)
    assert_close(last.actor, numbers(state.actor), rtol=0)
    first, _ = run(state, step=0)
    assert_close(first.actor, slow_actor_step(state, CONFIG.actor_lr)[1])


def test_the_density_is_not_squashed() -> None:
    """With tanh's slope in the density, as a squashed Gaussian has it, the loss is another."""
    state = make_state()
    observation, action, *_ = columns()
    parameters = numbers(state.actor)
    weight = np.minimum(np.exp(CONFIG.beta * slow_advantage(state)), CONFIG.weight_clip)
    inner = np.clip(action, -1 + 1e-6, 1 - 1e-6)
    mean = slow.mlp(parameters[:-1], observation)
    std = np.broadcast_to(np.exp(parameters[-1]), mean.shape)
    squashed = slow.tanh_normal_log_density(np.arctanh(inner), mean, std)
    _, metrics = run(state)
    assert abs(metrics["actor/loss"] + (weight * squashed).mean()) > 0.1


@pytest.mark.parametrize("expectile", [0.1, 0.5, 0.7, 0.9])
def test_the_expectile_loss_is_least_where_a_grid_search_finds_it(expectile: float) -> None:
    value = np.random.default_rng(3).gamma(2.0, size=50)
    grid = np.linspace(value.min(), value.max(), 20_001)
    difference = value[:, None] - grid[None, :]  # [50, G]
    above, below = np.maximum(difference, 0.0), np.minimum(difference, 0.0)
    found = grid[(expectile * above**2 + (1 - expectile) * below**2).sum(axis=0).argmin()]

    def slope(v: float, expectile: float = expectile) -> float:
        total = jax.grad(lambda v: expectile_loss(jnp.asarray(value) - v, expectile).sum())
        return float(total(jnp.asarray(v)))

    width = grid[1] - grid[0]
    assert slope(found - width) < 0.0 < slope(found + width)
    if expectile != 0.5:  # with the two weights exchanged the least value lies elsewhere
        assert slope(found - width, 1.0 - expectile) * slope(found + width, 1.0 - expectile) > 0.0


def test_dropout_leaves_out_hidden_units_in_training_only() -> None:
    config = dataclasses.replace(CONFIG, dropout=True, dropout_rate=0.5)
    state = make_state()
    _, plain = run(state)
    _, dropped = run(state, config)
    assert dropped["actor/loss"] != pytest.approx(plain["actor/loss"], rel=1e-3)
    assert dropped["critic/loss"] == pytest.approx(plain["critic/loss"], rel=1e-12)
    _, none = run(state, dataclasses.replace(config, dropout_rate=0.0))
    assert none["actor/loss"] == pytest.approx(plain["actor/loss"], rel=1e-12)
    parameters, observation = numbers(state.actor), columns()[0]
    np.testing.assert_allclose(
        act(ALGORITHM.policy(state), fixed_batch().observation, jax.random.key(0)),
        np.tanh(slow.mlp(parameters[:-1], observation)),
        rtol=1e-9,
    )


def test_dropout_keeps_the_mean_of_a_hidden_unit() -> None:
    """Units that stay are scaled up; without the scale training and acting would differ."""
    state = make_state()
    hidden = dataclasses.replace(state.actor.mlp, layers=state.actor.mlp.layers[1:])
    feature = jnp.abs(jnp.asarray(np.random.default_rng(0).normal(size=(20_000, 5))))
    output = dropout_mlp(hidden, feature, 0.4, jax.random.key(1))
    np.testing.assert_allclose(output.mean(axis=0), hidden(feature).mean(axis=0), atol=0.02)


def test_the_defaults_are_the_paper_s() -> None:
    config = Config()
    assert (config.expectile, config.beta, config.weight_clip) == (0.7, 3.0, 100.0)
    assert (config.actor_lr, config.critic_lr, config.value_lr) == (3e-4, 3e-4, 3e-4)
    assert (config.discount, config.tau, config.batch_size) == (0.99, 0.005, 256)
    assert config.hidden == (256, 256)
    assert not config.dropout
    assert config.dropout_rate == 0.1
    assert not config.normalize_observations


@pytest.mark.parametrize("fmr", ["add", "replace"])
def test_fmr_s_term_holds_the_actor_to_a_clone_where_v_is_low(fmr: Any) -> None:
    """Beside the weighted likelihood; or in its place, the weights of advantages kept."""
    config = dataclasses.replace(CONFIG, fmr=fmr, fmr_weight=0.6)
    state = randomize(init(config, CONTINUOUS, jax.random.key(0)), seed=7)
    observation, action, *_ = columns()
    weight = np.minimum(np.exp(config.beta * slow_advantage(state)), config.weight_clip)
    behavior = numbers(state.behavior)
    v = slow.mlp(numbers(state.value), observation)[:, 0]
    z = np.clip((v - v.mean()) / (v.std() + 1e-5 * (1.0 + abs(v.mean()))), -3.0, 3.0)

    def head(parameters: Any) -> tuple[np.ndarray, np.ndarray]:
        mean = np.tanh(slow.mlp(list(parameters[:-1]), observation))
        return mean, np.broadcast_to(np.exp(np.clip(parameters[-1], -5.0, 2.0)), mean.shape)

    def loss(parameters: Any) -> float:
        (mean, std), (other, width) = head(parameters), head(behavior)
        kl = np.log(width / std) + (std**2 + (mean - other) ** 2) / (2 * width**2) - 0.5
        held = kl.sum(axis=1) * np.log1p(np.exp(-z))
        if fmr == "replace":
            return float(config.fmr_weight * (weight * held).mean())
        cloning = -(weight * slow_log_prob(parameters, observation, action)).mean()
        return float(cloning + config.fmr_weight * held.mean())

    rate = config.actor_lr * 0.5 * (1.0 + np.cos(np.pi * STEP / config.steps))
    actor = numbers(state.actor)
    slope = slow.gradient(loss, actor)
    moved, adam = slow.adam(actor, slope, memory(state.actor_opt), rate, 1e-8)
    new, metrics = run(state, config)
    assert metrics["actor/loss"] == pytest.approx(loss(actor), rel=1e-9)
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved)

    def clone(parameters: Any) -> float:
        return float(-slow_log_prob(parameters, observation, action).mean())

    slope = slow.gradient(clone, behavior)
    expected = slow.adam(behavior, slope, memory(state.behavior_opt), rate, 1e-8)[0]
    assert_close(new.behavior, expected)
    assert init(CONFIG, CONTINUOUS, jax.random.key(0)).behavior is None
