"""ReBRAC: one update equals a slow computation from the paper (arXiv 2305.09836)."""

from __future__ import annotations

import functools
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
from leeward.algorithms.rebrac import ALGORITHM, Config, State, act, check, init, update
from leeward.data.dataset import Dataset
from leeward.errors import DataError
from leeward.types import Batch

CONFIG = Config(
    hidden=(5, 4),
    actor_penalty=0.7,
    critic_penalty=0.6,
    actor_lr=0.013,
    critic_lr=0.021,
    tau=0.1,
    noise_std=0.4,
    noise_clip=0.3,
)
KEY = 5


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def make_state() -> State:
    return randomize(init(CONFIG, CONTINUOUS, jax.random.key(0)))


@functools.cache
def run(step: int) -> tuple[State, State, dict[str, float]]:
    """The state before, the state after, and the metrics of one update."""
    state = make_state()
    new, metrics = jax.jit(update)(
        CONFIG, state, fixed_batch(), jax.random.key(KEY), jnp.asarray(step)
    )
    return state, new, {name: float(value) for name, value in metrics.items()}


def rows() -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in fixed_batch()._asdict().items()}


def slow_critic(layers: Any, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Linear, ReLU, then normalization, twice; the scales and shifts are the last arrays."""
    w1, b1, w2, b2, w3, b3, scale1, shift1, scale2, shift2 = layers
    features = np.concatenate([observation, action], axis=1)
    for w, b, scale, shift in ((w1, b1, scale1, shift1), (w2, b2, scale2, shift2)):
        features = np.maximum(features @ w + b, 0.0)
        centered = features - features.mean(axis=1, keepdims=True)
        spread = np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
        features = centered / spread * scale + shift
    return (features @ w3 + b3)[:, 0]


def halves(parameters: Any) -> list[Any]:
    half = len(parameters) // 2
    return [parameters[:half], parameters[half:]]


def slow_target(state: State, distance_of: Any = None) -> np.ndarray:
    batch = rows()
    drawn = np.asarray(jax.random.normal(jax.random.key(KEY), batch["action"].shape))
    noise = np.clip(CONFIG.noise_std * drawn, -CONFIG.noise_clip, CONFIG.noise_clip)
    following = batch["next_observation"]
    action = np.clip(np.tanh(slow.mlp(numbers(state.target_actor), following)) + noise, -1, 1)
    square = (action - batch["next_action"]) ** 2
    distance = square.sum(axis=1) * batch["next_action_known"]
    if distance_of is not None:
        distance = distance_of(square)
    pair = [slow_critic(numbers(m), following, action) for m in state.target_critic.member]
    left = batch["discount"] * (1.0 - batch["termination"])
    return batch["reward"] + left * (np.minimum(*pair) - CONFIG.critic_penalty * distance)


def slow_critic_loss(state: State, parameters: Any, target: np.ndarray) -> float:
    batch = rows()
    values = [slow_critic(p, batch["observation"], batch["action"]) for p in halves(parameters)]
    return float(sum(((q - target) ** 2).mean() for q in values))


def slow_critic_step(state: State) -> tuple[float, list[np.ndarray], slow.Adam]:
    target, parameters = slow_target(state), numbers(state.critic)
    slope = slow.gradient(lambda p: slow_critic_loss(state, p, target), parameters)
    moved, adam = slow.adam(parameters, slope, memory(state.critic_opt), CONFIG.critic_lr, 1e-8)
    return slow_critic_loss(state, parameters, target), moved, adam


def test_a_critic_step_equals_the_slow_computation_and_moves_nothing_else() -> None:
    state, new, metrics = run(1)
    loss, moved, adam = slow_critic_step(state)
    assert metrics["critic/loss"] == pytest.approx(loss, rel=1e-9)
    assert_memory_close(new.critic_opt, adam)
    assert_close(new.critic, moved)
    for part in ("actor", "target_actor", "target_critic", "actor_opt"):
        jax.tree.map(np.testing.assert_array_equal, getattr(new, part), getattr(state, part))


def slow_actor_loss(parameters: Any, critics: list[Any], scale: float | None, mean: bool) -> Any:
    """The loss, and the scale 1/mean|min Q| (the one given, where it is)."""
    batch = rows()
    action = np.tanh(slow.mlp(list(parameters), batch["observation"]))
    q = np.minimum(*(slow_critic(c, batch["observation"], action) for c in critics))
    scale = 1.0 / np.abs(q).mean() if scale is None else scale
    square = (action - batch["action"]) ** 2
    distance = square.mean(axis=1) if mean else square.sum(axis=1)
    return float((CONFIG.actor_penalty * distance - scale * q).mean()), scale


def test_an_actor_step_equals_the_slow_computation_and_moves_the_targets() -> None:
    state, new, metrics = run(2)
    critics = halves(slow_critic_step(state)[1])  # after their own step
    parameters = numbers(state.actor)
    loss, scale = slow_actor_loss(parameters, critics, None, mean=False)
    slope = slow.gradient(
        lambda p: slow_actor_loss(p, critics, scale, mean=False)[0], parameters
    )  # the scale held
    moved, adam = slow.adam(parameters, slope, memory(state.actor_opt), CONFIG.actor_lr, 1e-8)
    assert metrics["actor/loss"] == pytest.approx(loss, rel=1e-6)
    assert metrics["actor/q_scale"] == pytest.approx(scale, rel=1e-6)
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved)
    assert_close(new.target_actor, slow.average(numbers(state.target_actor), moved, CONFIG.tau))
    expected = slow.average(numbers(state.target_critic), numbers(new.critic), CONFIG.tau)
    assert_close(new.target_critic, expected)
    # With a gradient through the scale the loss's Q part would be −1 whatever the actor does.
    through = slow.gradient(lambda p: slow_actor_loss(p, critics, None, mean=False)[0], parameters)
    assert max(np.abs(a - b).max() for a, b in zip(slope, through, strict=True)) > 0.01


# --- Mistakes, each shown to give another number ---


def test_the_penalties_are_sums_over_dimensions() -> None:
    """The published β assume the sum; a mean over dimensions makes them A times weaker."""
    state, _, metrics = run(2)
    critics = halves(slow_critic_step(state)[1])
    mean, _ = slow_actor_loss(numbers(state.actor), critics, None, mean=True)
    assert abs(metrics["actor/loss"] - mean) > 0.01
    known = rows()["next_action_known"]
    target = slow_target(state, lambda square: square.mean(axis=1) * known)
    other = slow_critic_loss(state, numbers(state.critic), target)
    assert abs(metrics["critic/loss"] - other) > 0.01


def test_an_action_of_another_episode_is_no_next_action() -> None:
    """Taking the next row's action everywhere, across episodes' ends, gives another loss."""
    state, _, metrics = run(1)
    target = slow_target(state, lambda square: square.sum(axis=1))
    other = slow_critic_loss(state, numbers(state.critic), target)
    assert abs(metrics["critic/loss"] - other) > 0.01


def test_what_stands_where_no_next_action_is_known_changes_nothing() -> None:
    state, batch = make_state(), fixed_batch()
    unknown = batch.next_action_known[:, None] == 0
    other = batch._replace(next_action=jnp.where(unknown, 9.0, batch.next_action))
    step = jax.jit(update)

    def critic(batch: Batch) -> Any:
        return numbers(step(CONFIG, state, batch, jax.random.key(KEY), jnp.asarray(1))[0].critic)

    for a, b in zip(critic(batch), critic(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_data_without_next_actions_are_refused() -> None:
    draw = np.random.default_rng(0)
    shuffled = Dataset.from_arrays(
        draw.normal(size=(8, 3)),
        draw.uniform(-1.0, 1.0, size=(8, 2)),
        np.zeros(8),
        np.zeros(8, bool),
        next_observation=draw.normal(size=(8, 3)),
    )
    with pytest.raises(DataError) as error:
        check(CONFIG, shuffled)
    assert str(error.value) == (
        "rebrac needs the action taken next, which is not known in data whose next observations "
        "do not chain row to row: use data in order of time, or td3-bc"
    )


def test_the_defaults_are_the_paper_s() -> None:
    config = Config()
    assert (config.hidden, config.batch_size) == ((256, 256, 256), 1024)
    assert (config.actor_lr, config.critic_lr, config.tau) == (1e-3, 1e-3, 0.005)
    assert (config.noise_std, config.noise_clip, config.policy_delay) == (0.2, 0.5, 2)
    assert not config.normalize_observations


def test_only_the_critics_are_normalized_and_the_policy_is_the_actor() -> None:
    state = init(CONFIG, CONTINUOUS, jax.random.key(3))
    assert state.actor.mlp.norm == ()
    assert [len(m.mlp.norm) for m in state.critic.member] == [2, 2]
    assert np.abs(numbers(state.actor)[-2]).max() <= 1e-3
    assert np.abs(numbers(state.critic.member[0].mlp.layers)[-2]).max() <= 3e-3
    observation = fixed_batch().observation
    np.testing.assert_allclose(
        act(ALGORITHM.policy(state), observation, jax.random.key(0)),
        np.tanh(slow.mlp(numbers(state.actor), np.asarray(observation))),
        rtol=1e-6,
    )
