"""FMR: one update of every phase equals a slow computation; without the divergence it is BC."""

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
    BATCH_SIZE,
    CONTINUOUS,
    assert_close,
    assert_memory_close,
    fixed_batch,
    memory,
    numbers,
    randomize,
)
from leeward.algorithms import bc
from leeward.algorithms.fmr import (
    Config,
    State,
    act,
    enter_policy,
    init,
    measure_value,
    strength_at,
    update_behavior,
    update_policy,
    update_value,
)
from leeward.data.dataset import Dataset
from leeward.data.sampling import fit_scaling, gather, to_device
from leeward.nn.critics import Value
from leeward.nn.distributions import TanhNormal
from leeward.nn.feedback import feedback_weight

CONFIG = Config(
    hidden=(5, 4),
    fmr_weight=0.7,
    signal="advantage",
    signal_clip=1.1,
    divergence_clip=2.5,
    value_steps=100,
    value_aggregation="min",
    conservative=True,
    conservative_weight=0.6,
    conservative_noise=0.8,
    value_lr=0.011,
    value_lr_decay=True,
    gradient_clip=0.9,
    tau=0.1,
    observation_noise=0.4,
    interpolation=0.5,
    behavior_lr=0.017,
    actor_lr=0.013,
    margin=1e-3,
)
KEY, STEP = 5, 30
EMPHASIS = np.asarray([1.0, 2.0, 1.0, 0.5, 1.0, 3.0])
SIGNAL = np.asarray([-2.0, 0.3, 1.7, -0.4, 0.0, 0.9])


@pytest.fixture
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def make_state() -> State:
    """Random networks, and what `enter` would have filled in for the six transitions."""
    state = randomize(init(CONFIG, CONTINUOUS, jax.random.key(0)))
    draw = np.random.default_rng(3)
    mean, log_std = draw.normal(size=(2, BATCH_SIZE, 2))
    return state._replace(
        value=state.value._replace(rewardless=jnp.zeros(()), emphasis=jnp.asarray(EMPHASIS)),
        reference=TanhNormal(jnp.asarray(mean), jnp.asarray(0.3 * log_std)),
        signal=jnp.asarray(SIGNAL),
    )


def columns() -> tuple[np.ndarray, ...]:
    """Observation, action, reward, next observation, γ·(1 − termination)."""
    batch = fixed_batch()
    left = np.asarray(batch.discount) * (1.0 - np.asarray(batch.termination))
    names = ("observation", "action", "reward", "next_observation")
    return (*(np.asarray(getattr(batch, name)) for name in names), left)


def run(update: Any, state: State, config: Config = CONFIG) -> tuple[State, dict[str, float]]:
    new, metrics = jax.jit(update)(
        config, state, fixed_batch(), jax.random.key(KEY), jnp.asarray(STEP)
    )
    return new, {name: float(value) for name, value in metrics.items()}


@pytest.mark.usefixtures("float64")
def test_a_value_step_is_weighted_td_with_a_bounded_push_on_states_beside_the_data() -> None:
    state = make_state()
    observation, action, reward, following, left = columns()
    later = [slow.normed_critic(numbers(member), following) for member in state.value.target]
    target = reward + left * np.min(later, axis=0)
    noise = np.asarray(jax.random.normal(jax.random.key(KEY), observation.shape))
    beside = observation + CONFIG.conservative_noise * noise
    weight = EMPHASIS / EMPHASIS.mean()
    parameters = numbers(state.value.online)
    half = len(parameters) // 2
    members = parameters[:half], parameters[half:]
    at_start = [slow.normed_critic(member, observation) for member in members]

    def loss(parameters: Any) -> float:
        total = 0.0
        for member, v in zip((parameters[:half], parameters[half:]), at_start, strict=True):
            total += (weight * (slow.normed_critic(member, observation) - target) ** 2).mean()
            excess = np.maximum(slow.normed_critic(member, beside) - v, 0.0)
            total += CONFIG.conservative_weight * (excess**2).mean()
        return float(total)

    slope = slow.gradient(loss, parameters)
    norm = np.sqrt(sum((s**2).sum() for s in slope))
    assert norm > CONFIG.gradient_clip
    slope = [s * CONFIG.gradient_clip / norm for s in slope]
    rate = CONFIG.value_lr * 0.5 * (1.0 + np.cos(np.pi * STEP / CONFIG.value_steps))
    moved, adam = slow.adam(parameters, slope, memory(state.value.online_opt), rate, 1e-8)
    new, metrics = run(update_value, state)
    assert metrics["value/loss"] == pytest.approx(loss(parameters), rel=1e-9)
    assert_memory_close(new.value.online_opt, adam)
    assert_close(new.value.online, moved)
    assert_close(new.value.target, slow.average(numbers(state.value.target), moved, CONFIG.tau))

    def q_loss(parameters: Any) -> float:
        q = slow.normed_critic(parameters, np.concatenate([observation, action], axis=1))
        return float((weight * (q - target) ** 2).mean())

    parameters = numbers(state.value.critic)
    slope = slow.gradient(q_loss, parameters)
    moved, adam = slow.adam(parameters, slope, memory(state.value.critic_opt), rate, 1e-8)
    assert metrics["value/q_loss"] == pytest.approx(q_loss(parameters), rel=1e-9)
    assert_memory_close(new.value.critic_opt, adam)
    assert_close(new.value.critic, moved)


@pytest.mark.usefixtures("float64")
def test_missing_rewards_are_replaced_by_one_a_step() -> None:
    state = make_state()
    batch = fixed_batch()
    rewardless = state._replace(value=state.value._replace(rewardless=jnp.ones(())))
    replaced = batch._replace(reward=1.0 - batch.termination)
    call = jax.jit(update_value)
    key, step = jax.random.key(KEY), jnp.asarray(STEP)
    first = call(CONFIG, rewardless, batch, key, step)[1]["value/loss"]
    second = call(CONFIG, state, replaced, key, step)[1]["value/loss"]
    assert first == second
    assert first != call(CONFIG, state, batch, key, step)[1]["value/loss"]


def slow_misfit(parameters: Any, observation: np.ndarray, action: np.ndarray) -> float:
    """Mean −log-likelihood of a tanh-squashed Gaussian."""
    before = np.arctanh(np.clip(action, -1.0 + CONFIG.margin, 1.0 - CONFIG.margin))
    head = slow.normal_head(list(parameters), observation)
    return float(-slow.tanh_normal_log_density(before, *head).mean())


@pytest.mark.usefixtures("float64")
def test_a_behavior_step_clones_at_moved_states() -> None:
    state = make_state()
    observation, action, _, following, _ = columns()
    way_key, noise_key = jax.random.split(jax.random.key(KEY))
    share = CONFIG.interpolation * np.asarray(jax.random.uniform(way_key, (BATCH_SIZE, 1)))
    noise = np.asarray(jax.random.normal(noise_key, observation.shape))
    moved_to = observation + share * (following - observation) + CONFIG.observation_noise * noise
    parameters = numbers(state.behavior.model)

    def loss(parameters: Any) -> float:
        return slow_misfit(parameters, moved_to, action)

    slope = slow.gradient(loss, parameters)
    moved, adam = slow.adam(parameters, slope, memory(state.behavior.opt), CONFIG.behavior_lr, 1e-8)
    new, metrics = run(update_behavior, state)
    assert metrics["behavior/loss"] == pytest.approx(loss(parameters), rel=1e-9)
    assert_memory_close(new.behavior.opt, adam)
    assert_close(new.behavior.model, moved)


def slow_divergence(parameters: Any, state: State) -> np.ndarray:
    """KL(π ‖ π_β) at every state, from the textbook formula."""
    assert isinstance(state.reference, TanhNormal)
    mean, std = slow.normal_head(list(parameters), columns()[0])
    other = np.asarray(state.reference.mean), np.exp(np.asarray(state.reference.log_std))
    terms = np.log(other[1] / std) + (std**2 + (mean - other[0]) ** 2) / (2 * other[1] ** 2) - 0.5
    return terms.sum(axis=1)


@pytest.mark.usefixtures("float64")
def test_a_policy_step_adds_the_bounded_weighted_divergence_to_cloning() -> None:
    state = make_state()
    observation, action, *_ = columns()
    weight = np.log1p(np.exp(-np.clip(SIGNAL, -CONFIG.signal_clip, CONFIG.signal_clip)))
    parameters = numbers(state.actor)

    def loss(parameters: Any) -> float:
        distance = slow_divergence(parameters, state)
        distance = CONFIG.divergence_clip * np.tanh(distance / CONFIG.divergence_clip)
        cloning = slow_misfit(parameters, observation, action)
        return cloning + CONFIG.fmr_weight * float((distance * weight).mean())

    clipped = slow_divergence(parameters, state) > CONFIG.divergence_clip
    assert clipped.any()
    assert not clipped.all()
    slope = slow.gradient(loss, parameters)
    moved, adam = slow.adam(parameters, slope, memory(state.actor_opt), CONFIG.actor_lr, 1e-8)
    new, metrics = run(update_policy, state)
    assert metrics["actor/loss"] == pytest.approx(loss(parameters), rel=1e-7)
    assert metrics["actor/divergence"] == pytest.approx(slow_divergence(parameters, state).mean())
    assert metrics["actor/clipped"] == pytest.approx(clipped.mean())
    assert metrics["actor/weight"] == pytest.approx(weight.mean())
    assert metrics["actor/weight_variance"] == pytest.approx(weight.var())
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved)
    np.testing.assert_allclose(
        act(new.actor, fixed_batch().observation, jax.random.key(0)),
        np.tanh(slow.normal_head(moved, observation)[0]),
        rtol=1e-5,
    )


# --- Behavior cloning ---


@pytest.mark.parametrize("density", ["gaussian", "mixture", "deterministic"])
def test_without_the_divergence_it_is_behavior_cloning_to_the_bit(density: Any) -> None:
    """Exact KL, KL from samples, squared distance.

    λ = 0 is traced: the divergence is computed none the less.
    """
    config = dataclasses.replace(
        CONFIG, density=density, fmr_weight=0.0, fmr_schedule="warmup", signal="value"
    )
    cloning = bc.Config(density=density, hidden=(5, 4), lr=config.actor_lr, margin=config.margin)
    state = init(config, CONTINUOUS, jax.random.key(1))
    reference = TanhNormal(jnp.ones((BATCH_SIZE, 2)), jnp.full((BATCH_SIZE, 2), -4.0))
    state = state._replace(reference=reference, signal=jnp.asarray(SIGNAL, jnp.float32))
    plain = bc.init(cloning, CONTINUOUS, jax.random.key(2))._replace(actor=state.actor)
    batch = jax.tree.map(
        lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, fixed_batch()
    )
    updates = jax.jit(update_policy), jax.jit(bc.update)
    for step in range(3):
        key = jax.random.key(step)
        state, metrics = updates[0](config, state, batch, key, jnp.int32(step))
        plain, _ = updates[1](cloning, plain, batch, key, jnp.int32(step))
        assert metrics["actor/divergence"] > 0.1
        assert metrics["actor/fmr_weight"] == 0.0
    for a, b in zip(jax.tree.leaves(state.actor), jax.tree.leaves(plain.actor), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_warm_up_of_no_updates_is_none() -> None:
    config = Config(fmr_weight=0.8, fmr_schedule="warmup", warmup_steps=0)
    found = [float(strength_at(config, jnp.int32(step), 100)) for step in (0, 1)]
    np.testing.assert_allclose(found, [0.8, 0.8], rtol=1e-6)


def test_the_weight_of_the_divergence_falls_with_every_epoch() -> None:
    config = Config(fmr_weight=0.8, fmr_schedule="decay", fmr_decay=0.5, batch_size=10)
    found = [float(strength_at(config, jnp.int32(step), 100)) for step in (0, 9, 10, 25)]
    np.testing.assert_allclose(found, [0.8, 0.8, 0.4, 0.2], rtol=1e-6)


# --- A known answer ---


def two_places() -> Dataset:
    """Two places, −1 and 1, visited in turn: actions around 0.5, rewards as the places."""
    place = np.tile([-1.0, 1.0], 40)
    last = np.arange(80) % 8 == 7
    action = 0.5 + 0.2 * np.tile([1.0, 1.0, -1.0, -1.0], 20)
    return Dataset.from_arrays(
        place[:, None],
        action[:, None],
        place,
        last,
        np.zeros(80, bool),
        action_low=-1.0,
        action_high=1.0,
        metadata={"name": "two-places"},
    )


def test_the_policy_settles_between_data_and_behavior_as_the_weights_say() -> None:
    """Squared errors: the best action is (mean + λ·w·b) / (1 + λ·w) at every place."""
    data = to_device(two_places(), fit_scaling(two_places(), normalize_observations=False))
    config = Config(
        density="deterministic",
        behavior="deterministic",
        fmr_weight=1.0,
        hidden=(8,),
        actor_lr=0.03,
    )
    spec = two_places().spec
    state = init(config, spec, jax.random.key(0))
    state = enter_policy(config, state, data, jax.random.key(0))
    # A frozen behavior of another action, and a signal of mean 0 and std 1.
    place = data.observation[data.start][:, 0]
    state = state._replace(reference=jnp.full((80, 1), -0.5), signal=place)

    def body(state: State, step: jax.Array) -> tuple[State, None]:
        index = jax.random.randint(jax.random.key(step), (64,), 0, 80)
        batch = gather(data, index, 0.99)
        return update_policy(config, state, batch, jax.random.key(0), step)[0], None

    state, _ = jax.jit(lambda s: jax.lax.scan(body, s, jnp.arange(600)))(state)
    found = act(state.actor, jnp.asarray([[-1.0], [1.0]]), jax.random.key(0))[:, 0]
    weight = np.log1p(np.exp([1.0, -1.0]))  # strong at the place of low value
    np.testing.assert_allclose(found, (0.5 - 0.5 * weight) / (1.0 + weight), atol=0.03)


def test_the_signal_is_the_standardized_advantage_of_the_behavior_s_action() -> None:
    data = to_device(two_places(), fit_scaling(two_places(), normalize_observations=False))
    config = dataclasses.replace(CONFIG, behavior="deterministic")
    state = init(config, two_places().spec, jax.random.key(0))
    entered = enter_policy(config, state, data, jax.random.key(0))
    observation = np.asarray(data.observation[data.start], np.float64)
    action = np.tanh(slow.mlp(numbers(state.behavior.model), observation))
    each = [slow.normed_critic(numbers(member), observation) for member in state.value.online]
    v = np.min(each, axis=0)
    both = np.concatenate([observation, action], axis=1)
    advantage = slow.normed_critic(numbers(state.value.critic), both) - v
    expected = (advantage - advantage.mean()) / advantage.std()
    assert isinstance(entered.reference, jax.Array)
    np.testing.assert_allclose(entered.reference, action, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(entered.signal, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("spread", [0.0, 0.9e-3, 1.1e-3])
def test_a_value_that_is_said_to_be_the_same_everywhere_weighs_alike(spread: float) -> None:
    """V(s) = 5 ± spread · 5: below a thousandth it is called flat, and then all weights are one."""
    dataset = two_places()
    data = to_device(dataset, fit_scaling(dataset, normalize_observations=False))
    config = Config(hidden=(), value_ensemble=1, behavior="deterministic")
    state = init(config, dataset.spec, jax.random.key(0))
    (network,) = state.value.online
    assert isinstance(network, Value)
    (layer,) = network.mlp.layers
    steep = dataclasses.replace(layer, weight=jnp.full((1, 1), 5.0 * spread), bias=jnp.full(1, 5.0))
    online = dataclasses.replace(network, mlp=dataclasses.replace(network.mlp, layers=(steep,)))
    state = state._replace(value=state.value._replace(online=(online,)))
    flat = measure_value(config, state, data, None)["value/flat"]
    signal = enter_policy(config, state, data, jax.random.key(0)).signal
    weight = feedback_weight(signal, "low-value", 3.0)
    if spread < 1e-3:
        assert flat == 1.0
        np.testing.assert_array_equal(weight, weight[0])
    else:
        assert flat == 0.0
        assert weight.max() > 3.0 * weight.min()
