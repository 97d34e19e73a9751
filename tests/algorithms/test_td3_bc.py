"""TD3+BC: one update equals a slow computation from the paper (arXiv 2106.06860)."""

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
from leeward.algorithms.td3_bc import ALGORITHM, Config, State, act, init, update
from leeward.types import UNMEASURED

CONFIG = Config(
    hidden=(5, 4),
    actor_lr=0.013,
    critic_lr=0.021,
    tau=0.1,
    alpha=1.7,
    noise_std=0.9,
    noise_clip=0.7,
)
KEY = 5


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def make_state() -> State:
    return randomize(init(CONFIG, CONTINUOUS, jax.random.key(0)))


def noise(batch: Any) -> np.ndarray:
    """The numbers that the update draws from its key."""
    return np.asarray(jax.random.normal(jax.random.key(KEY), batch.action.shape))


def run(state: State, step: int, config: Config = CONFIG) -> tuple[State, dict[str, float]]:
    new, metrics = jax.jit(update)(
        config, state, fixed_batch(), jax.random.key(KEY), jnp.asarray(step)
    )
    return new, {name: float(value) for name, value in metrics.items()}


def slow_target(state: State, config: Config = CONFIG) -> np.ndarray:
    batch = fixed_batch()
    following = np.asarray(batch.next_observation)
    clipped = np.clip(config.noise_std * noise(batch), -config.noise_clip, config.noise_clip)
    action = np.clip(np.tanh(slow.mlp(numbers(state.target_actor), following)) + clipped, -1, 1)
    first, second = (
        slow.critic(numbers(member), following, action) for member in state.target_critic.member
    )
    alive = 1.0 - np.asarray(batch.termination)
    return np.asarray(batch.reward) + np.asarray(batch.discount) * alive * np.minimum(first, second)


def slow_critic_step(
    state: State,
) -> tuple[float, np.ndarray, list[np.ndarray], slow.Adam]:
    """Loss, values [2, B], new parameters of both critics and Adam's memory."""
    batch = fixed_batch()
    target = slow_target(state)
    observation, action = np.asarray(batch.observation), np.asarray(batch.action)
    parameters = numbers(state.critic)
    half = len(parameters) // 2

    def values(parameters: Any) -> np.ndarray:
        pair = parameters[:half], parameters[half:]
        return np.stack([slow.critic(list(p), observation, action) for p in pair])

    def loss(parameters: Any) -> float:
        return float(sum(((q - target) ** 2).mean() for q in values(parameters)))

    moved, adam = slow.adam(
        parameters,
        slow.gradient(loss, parameters),
        memory(state.critic_opt),
        CONFIG.critic_lr,
        1e-8,
    )
    return loss(parameters), values(parameters), moved, adam


def test_the_fixed_batch_reaches_all_clips() -> None:
    drawn = CONFIG.noise_std * noise(fixed_batch())
    assert (np.abs(drawn) > CONFIG.noise_clip).any()
    assert (np.abs(drawn) < CONFIG.noise_clip).any()
    following = np.asarray(fixed_batch().next_observation)
    clean = np.tanh(slow.mlp(numbers(make_state().target_actor), following))
    noisy = clean + np.clip(drawn, -CONFIG.noise_clip, CONFIG.noise_clip)
    alive = np.asarray(fixed_batch().termination) == 0.0
    assert (np.abs(noisy[alive]) > 1.0).any()


def test_a_critic_step_equals_the_slow_computation_and_moves_nothing_else() -> None:
    state = make_state()
    loss, values, moved, adam = slow_critic_step(state)
    new, metrics = run(state, step=1)
    assert metrics["critic/loss"] == pytest.approx(loss, rel=1e-9)
    assert metrics["critic/q"] == pytest.approx(values.mean(), rel=1e-9)
    assert_memory_close(new.critic_opt, adam)
    assert_close(new.critic, moved)
    for part in ("actor", "target_actor", "target_critic", "actor_opt"):
        jax.tree.map(np.testing.assert_array_equal, getattr(new, part), getattr(state, part))
    assert {metrics[name] for name in metrics if name.startswith("actor/")} == {UNMEASURED}


def test_an_actor_step_equals_the_slow_computation_and_moves_the_targets() -> None:
    state = make_state()
    batch = fixed_batch()
    observation, data_action = np.asarray(batch.observation), np.asarray(batch.action)
    _, _, moved_critic, _ = slow_critic_step(state)
    first_critic = moved_critic[: len(moved_critic) // 2]  # Q₁ after its own step
    parameters = numbers(state.actor)

    def action_of(parameters: Any) -> np.ndarray:
        return np.tanh(slow.mlp(list(parameters), observation))

    def weight_of(parameters: Any) -> float:
        q = slow.critic(first_critic, observation, action_of(parameters))
        return CONFIG.alpha / np.abs(q).mean()

    weight = weight_of(parameters)

    def loss(parameters: Any, weight: float = weight) -> float:
        action = action_of(parameters)
        q = slow.critic(first_critic, observation, action)
        return float(-weight * q.mean() + ((action - data_action) ** 2).mean())

    slope = slow.gradient(loss, parameters)  # λ held
    moved_actor, adam = slow.adam(parameters, slope, memory(state.actor_opt), CONFIG.actor_lr, 1e-8)
    new, metrics = run(state, step=2)
    assert metrics["actor/loss"] == pytest.approx(loss(parameters), rel=1e-6)
    assert metrics["actor/q_weight"] == pytest.approx(weight, rel=1e-6)
    cloning = ((action_of(parameters) - data_action) ** 2).mean()
    assert metrics["actor/cloning"] == pytest.approx(cloning, rel=1e-9)
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved_actor)
    assert_close(new.critic, moved_critic)
    assert_close(
        new.target_actor, slow.average(numbers(state.target_actor), moved_actor, CONFIG.tau)
    )
    assert_close(
        new.target_critic, slow.average(numbers(state.target_critic), moved_critic, CONFIG.tau)
    )
    # With a gradient through λ the loss's Q part would be about −α whatever the actor does.
    through = slow.gradient(lambda p: loss(p, weight_of(p)), parameters)
    assert max(np.abs(a - b).max() for a, b in zip(slope, through, strict=True)) > 0.01
    buggy, _ = slow.adam(parameters, through, memory(state.actor_opt), CONFIG.actor_lr, 1e-8)
    assert max(np.abs(a - b).max() for a, b in zip(moved_actor, buggy, strict=True)) > 1e-4


def test_adam_has_the_paper_s_epsilon() -> None:
    """With values near 1e-6 and no memory, 1e-8 is a visible part of Adam's denominator."""
    state = make_state()
    tiny = 1e-6
    memberwise = [
        dataclasses.replace(
            member,
            mlp=dataclasses.replace(
                member.mlp,
                layers=(
                    *member.mlp.layers[:-1],
                    jax.tree.map(lambda w: tiny * w, member.mlp.layers[-1]),
                ),
            ),
        )
        for member in state.critic.member
    ]
    small = dataclasses.replace(state.critic, member=tuple(memberwise))
    state = init(CONFIG, CONTINUOUS, jax.random.key(0))._replace(critic=small, target_critic=small)
    batch = fixed_batch()._replace(reward=tiny * fixed_batch().reward)
    new, _ = jax.jit(update)(CONFIG, state, batch, jax.random.key(KEY), jnp.asarray(1))
    first = memory(new.critic_opt).first
    slope = [m / 0.1 for m in first]  # the gradient, checked above
    zeros = [np.zeros_like(m) for m in first]
    moved, _ = slow.adam(numbers(small), slope, slow.Adam(0, zeros, zeros), CONFIG.critic_lr, 1e-8)
    assert_close(new.critic, moved, rtol=1e-9)
    other, _ = slow.adam(numbers(small), slope, slow.Adam(0, zeros, zeros), CONFIG.critic_lr, 1e-7)
    assert max(np.abs(a - b).max() for a, b in zip(moved, other, strict=True)) > 1e-5


def test_the_defaults_are_the_paper_s() -> None:
    assert Config() == Config(
        steps=1_000_000,
        batch_size=256,
        hidden=(256, 256),
        actor_lr=3e-4,
        critic_lr=3e-4,
        discount=0.99,
        tau=0.005,
        alpha=2.5,
        policy_delay=2,
        noise_std=0.2,
        noise_clip=0.5,
        n_step=1,
        normalize_observations=True,
        sampling="uniform",
    )
    assert ALGORITHM.presets == {"tianshou": {"n_step": 3}}


def test_targets_start_as_copies_and_the_policy_is_the_actor() -> None:
    state = init(CONFIG, CONTINUOUS, jax.random.key(3))
    assert_close(state.target_actor, numbers(state.actor), rtol=0)
    assert_close(state.target_critic, numbers(state.critic), rtol=0)
    assert not np.array_equal(
        numbers(state.critic.member[0])[0], numbers(state.critic.member[1])[0]
    )
    observation = fixed_batch().observation
    action = act(ALGORITHM.policy(state), observation, jax.random.key(0))
    np.testing.assert_allclose(
        action, np.tanh(slow.mlp(numbers(state.actor), np.asarray(observation))), rtol=1e-6
    )


# --- FMR's term ---


def slow_hold(state: State, action: np.ndarray) -> float:
    """mean(‖action − a_β‖² · softplus(−z)), z the batch's standardized Q₁ of a_β."""
    observation = np.asarray(fixed_batch().observation)
    behavior = np.tanh(slow.mlp(numbers(state.behavior), observation))
    q = slow.critic(numbers(state.critic.member[0]), observation, behavior)
    z = np.clip((q - q.mean()) / (q.std() + 1e-5 * (1.0 + abs(q.mean()))), -3.0, 3.0)
    return float((((action - behavior) ** 2).mean(axis=1) * np.log1p(np.exp(-z))).mean())


@pytest.mark.parametrize("fmr", ["add", "replace"])
def test_fmr_s_term_joins_or_replaces_cloning(fmr: Any) -> None:
    config = dataclasses.replace(CONFIG, fmr=fmr, fmr_weight=0.6)
    state = randomize(init(config, CONTINUOUS, jax.random.key(0)))
    batch = fixed_batch()
    observation, target = np.asarray(batch.observation), np.asarray(batch.action)
    moved_critic, _ = run(state, 0, config)  # the actor sees the critics after their step
    after = state._replace(critic=moved_critic.critic)
    actor = numbers(state.actor)

    def loss(parameters: Any) -> float:
        action = np.tanh(slow.mlp(list(parameters), observation))
        q = slow.critic(numbers(after.critic.member[0]), observation, action)
        frozen = slow.critic(
            numbers(after.critic.member[0]), observation, np.tanh(slow.mlp(actor, observation))
        )
        cloning = ((action - target) ** 2).mean() if fmr == "add" else 0.0
        climbing = config.alpha / np.abs(frozen).mean() * q.mean()
        return float(cloning + config.fmr_weight * slow_hold(after, action) - climbing)

    moved, adam = slow.adam(
        actor, slow.gradient(loss, actor), memory(state.actor_opt), config.actor_lr, 1e-8
    )
    new, metrics = run(state, 0, config)
    assert metrics["actor/loss"] == pytest.approx(loss(actor), rel=1e-9)
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved)

    def cloning(parameters: Any) -> float:
        return float(((np.tanh(slow.mlp(list(parameters), observation)) - target) ** 2).mean())

    behavior = numbers(state.behavior)
    memory_before = memory(state.behavior_opt)
    slope = slow.gradient(cloning, behavior)
    assert_close(new.behavior, slow.adam(behavior, slope, memory_before, config.actor_lr, 1e-8)[0])


def test_without_fmr_nothing_of_it_is_there() -> None:
    state = init(Config(hidden=(5, 4)), CONTINUOUS, jax.random.key(0))
    assert state.behavior is None
    held = init(Config(hidden=(5, 4), fmr="add"), CONTINUOUS, jax.random.key(0))
    for part in ("actor", "critic"):
        assert_close(getattr(held, part), numbers(getattr(state, part)), rtol=0)
