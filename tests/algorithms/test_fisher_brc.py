"""Fisher-BRC: updates equal a slow computation from the paper (arXiv 2103.08050)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

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
from leeward.algorithms.fisher_brc import ALGORITHM, Config, State, act, init, update
from leeward.algorithms.fisher_brc import update_behavior as update_behavior_phase

COMPONENTS = 3
CONFIG = Config(
    bc_pretraining_steps=100,
    hidden=(5, 4),
    behavior_hidden=(4,),
    components=COMPONENTS,
    f_reg=0.7,
    reward_bonus=2.5,
    behavior_lr=0.011,
    actor_lr=0.013,
    critic_lr=0.021,
    alpha_lr=0.017,
    tau=0.1,
    margin=1e-3,
    adam_eps=1e-3,  # large enough to be seen beside the gradients
)
KEY = 5
TARGET_ENTROPY = -2.0  # minus the number of action dimensions


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def make_state() -> State:
    return randomize(init(CONFIG, CONTINUOUS, jax.random.key(0)))


class Numbers(NamedTuple):
    """A batch as NumPy arrays, and the noise of one update."""

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_observation: np.ndarray
    alive: np.ndarray  # 0 where the task ended
    discount: np.ndarray
    next_noise: np.ndarray
    penalty_noise: np.ndarray
    actor_noise: np.ndarray


@pytest.fixture(scope="module")
def numpy_batch() -> Numbers:
    with jax.enable_x64(True):
        batch = fixed_batch()
        critic_key, actor_key = jax.random.split(jax.random.key(KEY))
        next_key, penalty_key = jax.random.split(critic_key)
        keys = (next_key, penalty_key, actor_key)
        draws = [np.asarray(jax.random.normal(key, batch.action.shape)) for key in keys]
        columns = (
            batch.observation,
            batch.action,
            batch.reward,
            batch.next_observation,
            1.0 - batch.termination,
            batch.discount,
        )
        return Numbers(*(np.asarray(column) for column in columns), *draws)


def sample(actor: Any, observation: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The policy's action for the given noise, and its log density."""
    mean, std = slow.normal_head(list(actor), observation)
    before = mean + std * noise
    return np.tanh(before), slow.tanh_normal_log_density(before, mean, std)


def behavior_log_density(behavior: Any, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    """log μ(a|s), the action clipped inside the box by the margin."""
    before = np.arctanh(np.clip(action, -1.0 + CONFIG.margin, 1.0 - CONFIG.margin))
    head = slow.mixture_head(list(behavior), observation, COMPONENTS)
    return slow.tanh_mixture_log_density(before, *head)


def slow_target(state: State, b: Numbers) -> np.ndarray:
    next_action, _ = sample(numbers(state.actor), b.next_observation, b.next_noise)
    next_density = behavior_log_density(numbers(state.behavior), b.next_observation, next_action)
    smaller = np.minimum(
        *(
            slow.critic(numbers(member), b.next_observation, next_action)
            for member in state.target_offset.member
        )
    )
    # No entropy term: the target is the value alone.
    reward = b.reward + CONFIG.reward_bonus
    return reward + b.discount * b.alive * (smaller + next_density)


def slow_critic_step(
    state: State, b: Numbers
) -> tuple[dict[str, float], list[np.ndarray], slow.Adam]:
    """Metrics, new parameters of both offsets, Adam's memory."""
    target = slow_target(state, b)
    density = behavior_log_density(numbers(state.behavior), b.observation, b.action)
    penalty_action, _ = sample(numbers(state.actor), b.observation, b.penalty_noise)
    parameters = numbers(state.offset)
    half = len(parameters) // 2

    def parts(parameters: Any) -> dict[str, float]:
        found, total = {}, 0.0
        for i, one in enumerate((list(parameters[:half]), list(parameters[half:])), 1):
            q = slow.critic(one, b.observation, b.action) + density
            slope = slow.critic_action_gradient(one, b.observation, penalty_action)
            found[f"critic/q{i}"] = q.mean()
            found[f"critic/q{i}_gradient"] = (slope**2).sum(axis=1).mean()
            total += ((q - target) ** 2).mean()
            total += CONFIG.f_reg * found[f"critic/q{i}_gradient"]
        return found | {"critic/loss": total}

    moved, adam = slow.adam(
        parameters,
        slow.gradient(lambda p: parts(p)["critic/loss"], parameters),
        memory(state.offset_opt),
        CONFIG.critic_lr,
        CONFIG.adam_eps,
    )
    return parts(parameters), moved, adam


def slow_actor_loss(state: State, offset: list[np.ndarray], b: Numbers, actor: Any) -> float:
    """mean of α log π(ã|s) − min Q(s, ã): log μ moves with the action."""
    half = len(offset) // 2
    action, log_density = sample(actor, b.observation, b.actor_noise)
    smaller = np.minimum(
        slow.critic(offset[:half], b.observation, action),
        slow.critic(offset[half:], b.observation, action),
    )
    q = smaller + behavior_log_density(numbers(state.behavior), b.observation, action)
    return float((np.exp(float(state.log_alpha)) * log_density - q).mean())


def slow_alpha_step(
    log_alpha: Any, opt_state: Any, entropy: float, rate: float
) -> tuple[float, np.ndarray, slow.Adam]:
    """Loss, new log α, Adam's memory: d/dlogα of α(−log π − H̄) is α(H − H̄)."""
    loss = np.exp(float(log_alpha)) * (entropy - TARGET_ENTROPY)
    moved, adam = slow.adam(
        numbers(log_alpha), [np.asarray(loss)], memory(opt_state), rate, CONFIG.adam_eps
    )
    return loss, moved[0], adam


@pytest.fixture(scope="module")
def trained() -> tuple[State, State, dict[str, float]]:
    """The fixed state, the state after one update of the second phase, and its metrics."""
    with jax.enable_x64(True):
        state = make_state()
        new, metrics = jax.jit(update)(
            CONFIG, state, fixed_batch(), jax.random.key(KEY), jnp.asarray(3)
        )
        return state, new, {name: float(value) for name, value in metrics.items()}


def test_the_slow_action_gradient_is_one(numpy_batch: Numbers) -> None:
    b, layers = numpy_batch, numbers(make_state().offset.member[0])
    slope = slow.gradient(
        lambda p: float(slow.critic(layers, b.observation, p[0]).sum()), [b.action]
    )[0]
    exact = slow.critic_action_gradient(layers, b.observation, b.action)
    np.testing.assert_allclose(exact, slope, rtol=1e-6, atol=1e-9)


def test_a_critic_step_equals_the_slow_computation(
    trained: tuple[State, State, dict[str, float]], numpy_batch: Numbers
) -> None:
    state, new, metrics = trained
    expected, moved, adam = slow_critic_step(state, numpy_batch)
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=1e-9), name
    assert_memory_close(new.offset_opt, adam)
    assert_close(new.offset, moved)
    target = slow.average(numbers(state.target_offset), moved, CONFIG.tau)
    assert_close(new.target_offset, target)


def test_an_actor_step_equals_the_slow_computation(
    trained: tuple[State, State, dict[str, float]], numpy_batch: Numbers
) -> None:
    state, new, metrics = trained
    _, offset, _ = slow_critic_step(state, numpy_batch)  # the actor sees the new critics
    parameters = numbers(state.actor)

    def loss(parameters: Any) -> float:
        return slow_actor_loss(state, offset, numpy_batch, parameters)

    moved, adam = slow.adam(
        parameters,
        slow.gradient(loss, parameters),
        memory(state.actor_opt),
        CONFIG.actor_lr,
        CONFIG.adam_eps,
    )
    assert metrics["actor/loss"] == pytest.approx(loss(parameters), rel=1e-6)
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved)


def test_the_actor_s_gradient_passes_through_log_mu(
    trained: tuple[State, State, dict[str, float]], numpy_batch: Numbers
) -> None:
    """The check above would pass without it only if log μ did not matter: it does."""
    state, new, _ = trained
    _, offset, _ = slow_critic_step(state, numpy_batch)
    flat = state._replace(behavior=jax.tree.map(jnp.zeros_like, state.behavior))
    slope = slow.gradient(
        lambda p: slow_actor_loss(flat, offset, numpy_batch, p), numbers(state.actor)
    )
    with_mu = [
        (m - 0.9 * o) / 0.1
        for m, o in zip(memory(new.actor_opt).first, memory(state.actor_opt).first, strict=True)
    ]
    assert max(np.abs(a - b).max() for a, b in zip(slope, with_mu, strict=True)) > 0.1


def test_a_temperature_step_equals_the_slow_computation(
    trained: tuple[State, State, dict[str, float]], numpy_batch: Numbers
) -> None:
    state, new, metrics = trained
    # The entropy is of the actor before its step.
    log_density = sample(numbers(state.actor), numpy_batch.observation, numpy_batch.actor_noise)[1]
    entropy = -log_density.mean()
    loss, moved, adam = slow_alpha_step(state.log_alpha, state.alpha_opt, entropy, CONFIG.alpha_lr)
    assert metrics["actor/entropy"] == pytest.approx(entropy, rel=1e-9)
    assert metrics["actor/alpha_loss"] == pytest.approx(loss, rel=1e-9)
    assert metrics["actor/alpha"] == pytest.approx(np.exp(float(state.log_alpha)), rel=1e-9)
    assert_memory_close(new.alpha_opt, adam)
    assert_close(new.log_alpha, [moved])


def test_the_second_phase_leaves_the_behavior_model_alone(
    trained: tuple[State, State, dict[str, float]],
) -> None:
    state, new, _ = trained
    for part in ("behavior", "behavior_log_alpha", "behavior_opt", "behavior_alpha_opt"):
        jax.tree.map(np.testing.assert_array_equal, getattr(new, part), getattr(state, part))


@pytest.mark.parametrize(("step", "rate"), [(80, 0.011), (81, 0.0011), (91, 0.00011)])
def test_a_behavior_step_equals_the_slow_computation(step: int, rate: float) -> None:
    """Steps 80 and 90 of 100 are the last of their rate, as in the reference's schedule."""
    state, batch = make_state(), fixed_batch()
    key = jax.random.key(KEY)
    new, metrics = jax.jit(update_behavior_phase)(CONFIG, state, batch, key, jnp.asarray(step))
    observation, action = np.asarray(batch.observation), np.asarray(batch.action)
    parameters = numbers(state.behavior)
    component_key, noise_key = jax.random.split(key)
    logit = slow.mixture_head(parameters, observation, COMPONENTS)[0]
    component = np.asarray(jax.random.categorical(component_key, jnp.asarray(logit)))
    noise = np.asarray(jax.random.normal(noise_key, component.shape))

    def parts(parameters: Any) -> tuple[float, float]:
        likelihood = behavior_log_density(parameters, observation, action).mean()
        logit, mean, std = slow.mixture_head(list(parameters), observation, COMPONENTS)
        before = slow.pick(mean, component) + slow.pick(std, component) * noise
        entropy = -slow.tanh_mixture_log_density(before, logit, mean, std).mean()
        return float(likelihood), float(entropy)

    def loss(parameters: Any) -> float:
        likelihood, entropy = parts(parameters)
        return -(np.exp(float(state.behavior_log_alpha)) * entropy + likelihood)

    moved, adam = slow.adam(
        parameters,
        slow.gradient(loss, parameters),
        memory(state.behavior_opt),
        rate,
        CONFIG.adam_eps,
    )
    likelihood, entropy = parts(parameters)
    assert float(metrics["behavior/loss"]) == pytest.approx(loss(parameters), rel=1e-6)
    assert float(metrics["behavior/log_prob"]) == pytest.approx(likelihood, rel=1e-6)
    assert float(metrics["behavior/entropy"]) == pytest.approx(entropy, rel=1e-6)
    assert_memory_close(new.behavior_opt, adam)
    assert_close(new.behavior, moved)
    alpha_loss, log_alpha, adam = slow_alpha_step(
        state.behavior_log_alpha, state.behavior_alpha_opt, entropy, rate
    )
    assert float(metrics["behavior/alpha_loss"]) == pytest.approx(alpha_loss, rel=1e-6)
    assert_memory_close(new.behavior_alpha_opt, adam)
    assert_close(new.behavior_log_alpha, [log_alpha])
    for part in ("actor", "log_alpha", "offset", "target_offset", "offset_opt"):
        jax.tree.map(np.testing.assert_array_equal, getattr(new, part), getattr(state, part))


def test_the_defaults_are_the_reference_command_s() -> None:
    assert Config() == Config(
        steps=1_000_000,
        bc_pretraining_steps=1_000_000,
        batch_size=256,
        f_reg=0.1,
        reward_bonus=5.0,
        hidden=(256, 256, 256),
        behavior_hidden=(256, 256),
        components=5,
        behavior_lr=1e-3,
        actor_lr=3e-4,
        critic_lr=3e-4,
        alpha_lr=3e-4,
        initial_alpha=1.0,
        discount=0.99,
        tau=0.005,
        margin=1e-6,
        adam_eps=1e-7,
        normalize_observations=False,
        sampling="uniform",
    )
    assert ALGORITHM.presets == {"reference": {"sampling": "epoch"}}
    assert [phase.name for phase in ALGORITHM.phases] == ["behavior", "train"]
    assert [phase.steps(CONFIG) for phase in ALGORITHM.phases] == [100, 1_000_000]


def test_weights_start_orthogonal_and_the_policy_acts_by_its_mean() -> None:
    state = init(CONFIG, CONTINUOUS, jax.random.key(3))
    for network in (state.actor, *state.offset.member):
        first, _, last = numbers(network)[::2]
        np.testing.assert_allclose(first @ first.T, 2.0 * np.eye(len(first)), atol=1e-5)
        np.testing.assert_allclose(last.T @ last, 1e-4 * np.eye(last.shape[1]), atol=1e-6)
        assert not any(bias.any() for bias in numbers(network)[1::2])
    assert_close(state.target_offset, numbers(state.offset), rtol=0)
    observation = fixed_batch().observation
    state = make_state()
    mean, _ = slow.normal_head(numbers(state.actor), np.asarray(observation))
    action = act(ALGORITHM.policy(state), observation, jax.random.key(0))
    np.testing.assert_allclose(action, np.tanh(mean), rtol=1e-9)
