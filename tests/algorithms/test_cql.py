"""CQL and Cal-QL: one update equals a slow computation from the papers (2006.04779, 2303.05479)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import independent as slow
from fixed import (
    ACTION_SIZE,
    BATCH_SIZE,
    CONTINUOUS,
    assert_close,
    assert_memory_close,
    fixed_batch,
    memory,
    numbers,
    randomize,
)
from leeward.algorithms.cql import ALGORITHM, CAL_QL, CalQLConfig, Config, State, act, init, update

KEY = 5
COUNT = 3  # actions of each kind
PLAIN = Config(
    hidden=(5, 4),
    sampled_actions=COUNT,
    cql_weight=1.3,
    temperature=0.7,
    alpha_lr=0.011,
    actor_lr=0.013,
    critic_lr=0.021,
    multiplier_lr=0.017,
    tau=0.1,
    lagrange_threshold=1.9,
)
EVERYTHING = dataclasses.replace(
    PLAIN,
    lagrange="gap",
    calibrated=True,
    max_backup=True,
    backup_entropy=True,
    gradient_clip=0.4,
    bc_steps=10,
)
WEIGHTED = dataclasses.replace(PLAIN, lagrange="weighted-gap", tune_alpha=False)
CONFIGS = pytest.mark.parametrize(
    "config", [PLAIN, EVERYTHING, WEIGHTED], ids=["plain", "everything", "weighted"]
)
RETURNS = np.linspace(-3.0, 3.0, BATCH_SIZE)


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def make_state(config: Config) -> State:
    state = randomize(init(config, CONTINUOUS, jax.random.key(0)))
    return state._replace(return_to_go=jnp.asarray(RETURNS))


@functools.cache
def run(config: Config, step: int = 9) -> tuple[State, State, dict[str, float]]:
    """The state before, the state after, and the metrics of one update."""
    state = make_state(config)
    new, metrics = jax.jit(update)(
        config, state, fixed_batch(), jax.random.key(KEY), jnp.asarray(step)
    )
    return state, new, {name: float(value) for name, value in metrics.items()}


class Rows:
    """The batch as NumPy arrays."""

    def __init__(self) -> None:
        batch = fixed_batch()
        self.observation, self.action = np.asarray(batch.observation), np.asarray(batch.action)
        self.reward, self.following = np.asarray(batch.reward), np.asarray(batch.next_observation)
        self.left = np.asarray(batch.discount) * (1.0 - np.asarray(batch.termination))


def policy_draws(state: State, observation: np.ndarray, key: Any, count: int) -> list[Any]:
    """`count` times actions [B, A] and log-densities [B], from the numbers the update draws."""
    mean, std = slow.normal_head(numbers(state.actor), observation)
    noise = np.asarray(jax.random.normal(key, (BATCH_SIZE, count, ACTION_SIZE)))
    before = [mean + std * noise[:, i] for i in range(count)]
    return [(np.tanh(b), slow.tanh_normal_log_density(b, mean, std)) for b in before]


def slow_target(config: Config, state: State) -> np.ndarray:
    rows = Rows()
    count = COUNT if config.max_backup else 1
    draws = policy_draws(state, rows.following, jax.random.split(jax.random.key(KEY), 3)[0], count)
    best = np.full(BATCH_SIZE, -np.inf)
    entropy = np.zeros(BATCH_SIZE)
    for action, log_prob in draws:
        pair = [slow.critic(numbers(m), rows.following, action) for m in state.target_critic.member]
        q = np.minimum(*pair)
        entropy = np.where(q > best, -log_prob, entropy)
        best = np.maximum(q, best)
    if config.backup_entropy:
        best = best + np.exp(float(state.log_alpha)) * entropy
    return rows.reward + rows.left * best


def sampled_actions(state: State) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """All 3N actions [B, A] that are pushed down at s, and their log-densities [B]."""
    rows = Rows()
    contrast_key = jax.random.split(jax.random.key(KEY), 3)[1]
    uniform_key, policy_key, next_key = jax.random.split(contrast_key, 3)
    shape = (BATCH_SIZE, COUNT, ACTION_SIZE)
    uniform = np.asarray(jax.random.uniform(uniform_key, shape, minval=-1.0, maxval=1.0))
    draws = [(uniform[:, i], np.full(BATCH_SIZE, np.log(0.25))) for i in range(COUNT)]
    draws += policy_draws(state, rows.observation, policy_key, COUNT)
    draws += policy_draws(state, rows.following, next_key, COUNT)
    return [action for action, _ in draws], [density for _, density in draws]


def slow_gap(config: Config, state: State, critic: Any) -> np.ndarray:
    """T log Σ exp((Q − log density)/T) − Q(s, a) of one critic's layers, [B]."""
    rows = Rows()
    terms = []
    for i, (action, density) in enumerate(zip(*sampled_actions(state), strict=True)):
        q = slow.critic(list(critic), rows.observation, action)
        if config.calibrated and i >= COUNT:
            q = np.maximum(q, RETURNS)
        terms.append((q - density) / config.temperature)
    data_q = slow.critic(list(critic), rows.observation, rows.action)
    return config.temperature * logsumexp(np.stack(terms), axis=0) - data_q


def slow_penalty(config: Config, multiplier: float, gap: np.ndarray) -> np.ndarray:
    if config.lagrange == "off":
        return config.cql_weight * gap
    if config.lagrange == "gap":
        return multiplier * config.cql_weight * (gap - config.lagrange_threshold)
    return multiplier * (config.cql_weight * gap - config.lagrange_threshold)


def split_critics(parameters: Any) -> list[Any]:
    half = len(parameters) // 2
    return [parameters[:half], parameters[half:]]


@CONFIGS
def test_a_critic_step_equals_the_slow_computation(config: Config) -> None:
    state, new, metrics = run(config)
    rows, target = Rows(), slow_target(config, state)
    multiplier = np.exp(float(state.log_multiplier))
    parameters = numbers(state.critic)

    def member_loss(critic: Any) -> float:
        q = slow.critic(list(critic), rows.observation, rows.action)
        gap = slow_gap(config, state, critic)
        return float(((q - target) ** 2 + slow_penalty(config, multiplier, gap)).mean())

    def loss(parameters: Any) -> float:
        return sum(member_loss(critic) for critic in split_critics(parameters))

    slopes = []
    for slope in split_critics(slow.gradient(loss, parameters)):
        norm = np.sqrt(sum((s**2).sum() for s in slope))
        clip = config.gradient_clip
        slopes += [s * clip / norm if 0 < clip < norm else s for s in slope]
    moved, adam = slow.adam(parameters, slopes, memory(state.critic_opt), config.critic_lr, 1e-8)
    assert metrics["critic/loss"] == pytest.approx(loss(parameters), rel=1e-9)
    assert_memory_close(new.critic_opt, adam)
    assert_close(new.critic, moved)
    assert_close(new.target_critic, slow.average(numbers(state.target_critic), moved, config.tau))


@CONFIGS
@pytest.mark.parametrize("step", [9, 10])
def test_an_actor_step_equals_the_slow_computation(config: Config, step: int) -> None:
    """In the first `bc_steps` updates the actor clones the data's actions."""
    state, new, metrics = run(config, step)
    rows, alpha = Rows(), np.exp(float(state.log_alpha))
    noise = np.asarray(
        jax.random.normal(jax.random.split(jax.random.key(KEY), 3)[2], (BATCH_SIZE, ACTION_SIZE))
    )
    inner = np.arctanh(np.clip(rows.action, -1 + 1e-6, 1 - 1e-6))

    def parts(parameters: Any) -> tuple[np.ndarray, np.ndarray]:
        mean, std = slow.normal_head(list(parameters), rows.observation)
        before = mean + std * noise
        log_prob = slow.tanh_normal_log_density(before, mean, std)
        if step < config.bc_steps:
            return log_prob, slow.tanh_normal_log_density(inner, mean, std)
        pair = [
            slow.critic(numbers(m), rows.observation, np.tanh(before)) for m in state.critic.member
        ]
        return log_prob, np.minimum(*pair)

    def loss(parameters: Any) -> float:
        log_prob, objective = parts(parameters)
        return float((alpha * log_prob - objective).mean())

    parameters = numbers(state.actor)
    moved, adam = slow.adam(
        parameters,
        slow.gradient(loss, parameters),
        memory(state.actor_opt),
        config.actor_lr,
        1e-8,
    )
    assert metrics["actor/loss"] == pytest.approx(loss(parameters), rel=1e-8)
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved)
    if step < config.bc_steps:  # a library's warm-up takes the density of its own sample
        log_prob, cloning = parts(parameters)
        assert abs((log_prob - cloning).mean()) > 0.1


@CONFIGS
def test_the_multiplier_and_the_temperature_step_as_the_papers_say(config: Config) -> None:
    state, new, metrics = run(config)
    gap = np.mean([slow_gap(config, state, numbers(m)).mean() for m in state.critic.member])
    assert metrics["critic/gap"] == pytest.approx(gap, rel=1e-9)

    def multiplier_loss(parameters: Any) -> float:
        return float(-slow_penalty(config, np.exp(parameters[0]), gap))

    def alpha_loss(parameters: Any) -> float:
        return float(np.exp(parameters[0]) * (metrics["actor/entropy"] + ACTION_SIZE))

    for part, loss, rate, learned in (
        ("multiplier", multiplier_loss, config.multiplier_lr, config.lagrange != "off"),
        ("alpha", alpha_loss, config.alpha_lr, config.tune_alpha),
    ):
        before = numbers(getattr(state, f"log_{part}"))
        opt = getattr(state, f"{part}_opt")
        after, _ = slow.adam(before, slow.gradient(loss, before), memory(opt), rate, 1e-8)
        assert_close(getattr(new, f"log_{part}"), after if learned else before)


def test_the_fixed_batch_reaches_both_sides_of_every_bend() -> None:
    state, _, _ = run(EVERYTHING)
    actions, _ = sampled_actions(state)
    q = [slow.critic(numbers(state.critic.member[0]), Rows().observation, a) for a in actions]
    assert (np.stack(q) > RETURNS).any()
    assert (np.stack(q) < RETURNS).any()


# --- Mistakes of widely used code, each kept here and shown to give another number ---


def gap_of(config: Config) -> tuple[State, float]:
    state, _, metrics = run(config)
    return state, metrics["critic/gap"]


def mean_gap(state: State, q_density: Any) -> float:
    """The mean gap when `q_density(q [3N, B], density [3N, B])` gives the terms [K, rows]."""
    rows, gaps = Rows(), []
    actions, densities = sampled_actions(state)
    for member in state.critic.member:
        layers = numbers(member)
        q = np.stack([slow.critic(layers, rows.observation, a) for a in actions])
        terms = q_density(q, np.stack(densities)) / PLAIN.temperature
        data_q = slow.critic(layers, rows.observation, rows.action)
        gaps.append(PLAIN.temperature * logsumexp(terms, axis=0).mean() - data_q.mean())
    return float(np.mean(gaps))


def test_uniform_actions_fill_the_box() -> None:
    """`uniform_(-min, max)` with min −1 draws the constant +1."""
    state, gap = gap_of(PLAIN)
    actions, _ = sampled_actions(state)
    assert np.min(actions[:COUNT]) < -0.5
    assert mean_gap(state, lambda q, density: q - density) == pytest.approx(gap, rel=1e-9)
    ones = np.ones((BATCH_SIZE, ACTION_SIZE))

    def constant(q: np.ndarray, density: np.ndarray) -> np.ndarray:
        layers = next(members)
        at_one = slow.critic(layers, Rows().observation, ones)
        return np.concatenate([np.stack([at_one] * COUNT), q[COUNT:]]) - density

    members = iter([numbers(m) for m in state.critic.member])
    assert abs(mean_gap(state, constant) - gap) > 0.01


def test_the_logsumexp_runs_over_all_sampled_actions() -> None:
    """With a reshape thrown away it runs over one action of each kind."""
    state, gap = gap_of(PLAIN)

    def in_threes(q: np.ndarray, density: np.ndarray) -> np.ndarray:
        return (q - density).reshape(3, COUNT * BATCH_SIZE)

    assert abs(mean_gap(state, in_threes) - gap) > 0.1


def test_calibration_bounds_the_policy_s_values_before_their_densities_and_no_others() -> None:
    config = dataclasses.replace(PLAIN, calibrated=True)
    state, gap = gap_of(config)
    right = np.concatenate([np.full((COUNT, 1), -np.inf), np.zeros((2 * COUNT, 1))]) + RETURNS
    assert mean_gap(state, lambda q, d: np.maximum(q, right) - d) == pytest.approx(gap, rel=1e-9)
    # The uniform actions' values bounded too.
    assert abs(mean_gap(state, lambda q, d: np.maximum(q, RETURNS) - d) - gap) > 0.01
    # The bound taken after the density is divided out.
    assert abs(mean_gap(state, lambda q, d: np.maximum(q - d, right)) - gap) > 0.01


def test_next_actions_are_valued_at_the_state_and_not_at_the_next_one() -> None:
    state, gap = gap_of(PLAIN)
    actions, _ = sampled_actions(state)

    def at_next(q: np.ndarray, density: np.ndarray) -> np.ndarray:
        layers = next(members)
        later = [slow.critic(layers, Rows().following, a) for a in actions[2 * COUNT :]]
        return np.concatenate([q[: 2 * COUNT], np.stack(later)]) - density

    members = iter([numbers(m) for m in state.critic.member])
    assert abs(mean_gap(state, at_next) - gap) > 0.001


# --- Presets and defaults ---


def test_tianshou_s_preset_has_its_example_s_flags() -> None:
    config = Config(**ALGORITHM.presets["tianshou"])
    assert (config.cql_weight, config.temperature, config.hidden) == (1.0, 1.0, (256, 256))
    assert (config.lagrange, config.lagrange_threshold) == ("weighted-gap", 10.0)
    assert (config.alpha, config.tune_alpha, config.alpha_lr) == (1.0, True, 1e-4)  # from α = 1 on
    assert config.n_step == 1  # its flag reaches nothing
    assert (config.actor_lr, config.critic_lr, config.multiplier_lr) == (1e-4, 3e-4, 3e-4)
    assert (config.gradient_clip, config.calibrated, config.backup_entropy) == (1.0, True, True)
    assert (config.discount, config.tau, config.batch_size) == (0.99, 0.005, 256)
    # The example has no maximum in its target, which is Cal-QL's default here.
    calibrated = CalQLConfig(**CAL_QL.presets["tianshou"])
    assert dataclasses.asdict(calibrated) == dataclasses.asdict(config)
    assert not config.max_backup


def test_cal_ql_differs_from_cql_in_its_name_and_two_defaults() -> None:
    assert CAL_QL.name == "cal_ql"
    assert CAL_QL.config_type is CalQLConfig
    changed = {
        field.name
        for field in dataclasses.fields(Config)
        if getattr(Config(), field.name) != getattr(CalQLConfig(), field.name)
    }
    assert changed == {"calibrated", "max_backup"}
    assert CAL_QL._replace(name="cql", config_type=Config) == ALGORITHM


def test_targets_start_as_copies_and_the_policy_is_the_actor() -> None:
    state = init(PLAIN, CONTINUOUS, jax.random.key(3))
    assert_close(state.target_critic, numbers(state.critic), rtol=0)
    assert float(state.log_alpha) == 0.0
    assert float(state.log_multiplier) == 0.0
    observation = fixed_batch().observation
    mean, _ = slow.normal_head(numbers(state.actor), np.asarray(observation))
    np.testing.assert_allclose(
        act(ALGORITHM.policy(state), observation, jax.random.key(0)), np.tanh(mean), rtol=1e-6
    )
