"""Tiny data whose values and best actions are known in closed form, after rejax.

All tasks have one observation dimension, one action dimension (or three actions) and as many
transitions, so that every algorithm compiles once for all of them. Values are compared at the
data's own actions: elsewhere no answer is known.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward.algorithms import ALGORITHMS, fisher_brc
from leeward.config import from_json
from leeward.data.dataset import Dataset
from leeward.data.sampling import fit_scaling, to_device
from leeward.engine import one_update
from leeward.losses import of_action

TRANSITIONS = 512
DISCOUNT = 0.5
VALUE_TOLERANCE = 0.1
ACTION_TOLERANCE = 0.2


class Task(NamedTuple):
    """Transitions, and what is known of them."""

    observation: np.ndarray
    action: np.ndarray  # in [−1, 1]; discrete algorithms see −0.5, 0, 0.5 as actions 0, 1, 2
    reward: np.ndarray
    termination: np.ndarray
    next_observation: np.ndarray
    values: dict[float, float] = {}  # noqa: RUF012 (observation → mean Q of the data's actions)
    best: float | None = None  # the best action
    mean: float | None = None  # the mean of the data's actions


def draw(kind: str) -> tuple[np.random.Generator, np.ndarray]:
    """A generator, and even actions, away from the bounds (where tanh densities have spikes)."""
    generator = np.random.default_rng(0)
    if kind == "discrete":
        return generator, generator.choice([-0.5, 0.0, 0.5], TRANSITIONS)
    return generator, generator.uniform(-0.8, 0.8, TRANSITIONS)


def constant_reward(kind: str) -> Task:
    """One step, reward 1: Q = 1."""
    _, action = draw(kind)
    zero, one = np.zeros(TRANSITIONS), np.ones(TRANSITIONS)
    return Task(zero, action, one, one, zero, values={0.0: 1.0})


def reward_of_observation(kind: str) -> Task:
    """One step, the reward is the observation, −1 or 1: so is Q."""
    generator, action = draw(kind)
    sign = generator.choice([-1.0, 1.0], TRANSITIONS)
    one = np.ones(TRANSITIONS)
    return Task(sign, action, sign, one, 0 * one, values={-1.0: -1.0, 1.0: 1.0})


def two_steps(kind: str) -> Task:
    """Reward 0 from observation 0 to 1, reward 1 at 1, the end: Q is γ, then 1."""
    _, action = draw(kind)
    place = np.arange(TRANSITIONS) % 2.0
    return Task(place, action, place, place, np.ones(TRANSITIONS), values={0.0: DISCOUNT, 1.0: 1.0})


def two_ends(kind: str) -> Task:
    """Reward 1; the task ends at observation 0, the recording alone at 1: Q is 1 and 1/(1 − γ)."""
    _, action = draw(kind)
    place = np.arange(TRANSITIONS) % 2.0
    values = {0.0: 1.0, 1.0: 1.0 / (1.0 - DISCOUNT)}
    return Task(place, action, np.ones(TRANSITIONS), 1.0 - place, place, values=values)


def reward_of_action(kind: str) -> Task:
    """One step, reward 1 − 4(a − ½)² over evenly spread actions: ½ is best, 0 the mean."""
    _, action = draw(kind)
    zero, one = np.zeros(TRANSITIONS), np.ones(TRANSITIONS)
    return Task(zero, action, 1.0 - 4.0 * (action - 0.5) ** 2, one, zero, best=0.5, mean=0.0)


def mixed_quality(kind: str) -> Task:
    """Seven in ten actions near −½, three near ½, where alone there is reward: up to 1 at ½."""
    generator, _ = draw(kind)
    good = generator.permutation(TRANSITIONS) < 0.3 * TRANSITIONS
    spread = 0.0 if kind == "discrete" else 0.15 * generator.normal(size=TRANSITIONS)
    zero, one = np.zeros(TRANSITIONS), np.ones(TRANSITIONS)
    action = np.clip(np.where(good, 0.5, -0.5) + spread, -1.0, 1.0)
    reward = np.exp(-0.5 * ((action - 0.5) / 0.2) ** 2)
    return Task(zero, action, reward, one, zero, best=0.5, mean=float(action.mean()))


VALUE_TASKS = (constant_reward, reward_of_observation, two_steps, two_ends)
ACTION_TASKS = (reward_of_action, mixed_quality)
TASKS: dict[str, Callable[[str], Task]] = {
    task.__name__: task for task in (*VALUE_TASKS, *ACTION_TASKS)
}


class Known(NamedTuple):
    """How one algorithm is asked."""

    settings: dict[str, Any]
    """Of all tasks."""
    tasks: dict[str, dict[str, float]]
    """Task → further settings (floats: no new program)."""
    not_asked: dict[str, str]
    """Task → why its answer is not known for this algorithm."""
    q: Callable[[Any, jax.Array, jax.Array], jax.Array] | None = None
    """(state, observation, action) → Q of every critic [E, B]."""
    clones: tuple[str, ...] = ()
    """Tasks in which the answer is the mean of the data's actions (the likeliest, if discrete)."""


def critic(state: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
    return state.critic(observation, action)


def fisher_q(state: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
    return fisher_brc.q_value(state.offset, state.behavior, observation, action, 1e-3)


def state_value(state: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.stack([member(observation) for member in state.value.online])


def q_network(state: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
    return of_action(state.network(observation), action)[None]


def quantile_mean(state: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
    return of_action(state.network(observation).mean(axis=2), action)[None]


def q_head(state: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
    return of_action(state.network.q(observation), action)[None]


def q_networks(state: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.stack([of_action(member(observation), action) for member in state.critic])


RATES = {"actor_lr": 3e-3, "critic_lr": 3e-3, "tau": 0.05}
ALL = {name: {} for name in TASKS}
NO_VALUES = {task.__name__: "it learns no values" for task in VALUE_TASKS}
NEVER = "it trusts values of actions that the data lack, which is why it is no offline learner"
COPIES = {"lr": 3e-3, "target_every": 20}
ONLINE = {name: {} for name in TASKS if name != "mixed_quality"}
# A strong penalty shifts values, and digs a valley between two kinds of actions.
CQL = RATES | {"cql_weight": 0.1, "alpha_lr": 3e-3, "sampled_actions": 4}
KNOWN: dict[str, Known] = {
    "awac": Known(RATES | {"temperature": 0.1, "normalize_observations": False}, ALL, {}, critic),
    "bc": Known(
        {"lr": 3e-3, "normalize_observations": False},
        {task.__name__: {} for task in ACTION_TASKS},
        NO_VALUES,
        clones=tuple(task.__name__ for task in ACTION_TASKS),
    ),
    # In one dimension of this spread its VAE proposes little but the mean: the rest is Φ's.
    "bcq": Known(
        RATES | {"vae_lr": 3e-3, "vae_hidden": (32, 32), "sampled_actions": 4, "phi": 0.8},
        ALL,
        {},
        critic,
    ),
    "cal_ql": Known(CQL, ALL, {}, critic),
    "cql": Known(CQL, ALL, {}, critic),
    "crr": Known({"actor_lr": 3e-3, "critic_lr": 3e-3, "beta": 0.1}, ALL, {}, critic),
    "discrete_bc": Known(
        {"lr": 3e-3},
        {task.__name__: {} for task in ACTION_TASKS},
        NO_VALUES,
        clones=tuple(task.__name__ for task in ACTION_TASKS),
    ),
    "discrete_bcq": Known(COPIES, ALL, {}, q_head),
    "discrete_cql": Known(COPIES | {"quantiles": 8, "cql_weight": 0.1}, ALL, {}, quantile_mean),
    "discrete_crr": Known(COPIES | {"beta": 0.1}, ALL, {}, q_head),
    "discrete_iql": Known(
        RATES | {"value_lr": 3e-3, "beta": 10.0, "expectile": 0.5}, ALL, {}, q_networks
    ),
    "dqn": Known(COPIES, ONLINE, {"mixed_quality": NEVER}, q_network),
    "fisher_brc": Known(
        RATES
        | {
            "behavior_lr": 3e-3,
            "behavior_hidden": (32,),
            "bc_pretraining_steps": 1000,
            "components": 2,
            "reward_bonus": 0.0,
            "f_reg": 0.01,
            "margin": 1e-3,
            "alpha_lr": 3e-3,
        },
        ALL,
        {},
        fisher_q,
    ),
    "fmr": Known(
        {
            "value_steps": 2000,
            "behavior_steps": 1000,
            "actor_lr": 3e-3,
            "behavior_lr": 3e-3,
            "value_lr": 3e-3,
            "tau": 0.05,
            "normalize_observations": False,
        },
        ALL,
        {},
        state_value,
        clones=tuple(task.__name__ for task in ACTION_TASKS),
    ),
    "iql": Known(RATES | {"value_lr": 3e-3, "beta": 10.0, "expectile": 0.5}, ALL, {}, critic),
    "qrdqn": Known(COPIES | {"quantiles": 8}, ONLINE, {"mixed_quality": NEVER}, quantile_mean),
    "rebrac": Known(
        RATES,
        ALL
        | {"reward_of_action": {"actor_penalty": 0.02}, "mixed_quality": {"actor_penalty": 0.2}},
        {},
        critic,
    ),
    "sac": Known(
        # A fixed small temperature, so that the entropy in the target is nearly nothing.
        RATES | {"initial_alpha": 1e-3, "alpha_lr": 0.0},
        {name: {} for name in TASKS if name != "mixed_quality"},
        {"mixed_quality": NEVER},
        critic,
    ),
    "td3_bc": Known(
        RATES | {"normalize_observations": False},
        ALL | {"reward_of_action": {"alpha": 50.0}, "mixed_quality": {"alpha": 5.0}},
        {},
        critic,
    ),
}


@functools.cache
def trainer(name: str, kind: str) -> tuple[Any, Callable[..., Any]]:
    """The small config of an algorithm, and (config, data, key) → the state after all phases."""
    algorithm, known = ALGORITHMS[name], KNOWN[name]
    config = from_json(
        algorithm.config_type,
        {"hidden": (32, 32), "batch_size": 64, "steps": 2000} | known.settings,
    )
    spec = dataset(kind, constant_reward(kind)).spec

    @jax.jit
    def train(config: Any, data: Any, key: Any) -> Any:
        state = algorithm.init(config, spec, key)
        for index, phase in enumerate(algorithm.phases):
            if phase.enter is not None:
                state = phase.enter(config, state, data, key)
            state, _ = jax.lax.scan(
                lambda state, step, index=index, phase=phase: (
                    one_update(phase, index, config, state, data, key, step)[0],
                    None,
                ),
                state,
                jnp.arange(phase.steps(config)),
            )
        return state

    return config, train


def dataset(kind: str, task: Task) -> Dataset:
    """Every transition an episode of its own, so that all tasks have the same shapes."""
    discrete = kind == "discrete"
    return Dataset.from_arrays(
        task.observation[:, None],
        np.round(2 * task.action + 1).astype(int) if discrete else task.action[:, None],
        task.reward,
        task.termination > 0,
        task.termination == 0,
        next_observation=task.next_observation[:, None],
        **({"action_count": 3} if discrete else {"action_low": -1.0, "action_high": 1.0}),
    )


def solve(name: str, kind: str, task_name: str) -> tuple[Task, Dataset, Any]:
    """The task, its data and the trained state."""
    config, train = trainer(name, kind)
    settings = KNOWN[name].tasks[task_name]
    if hasattr(config, "discount"):
        settings = settings | {"discount": DISCOUNT}
    task = TASKS[task_name](kind)
    data = dataset(kind, task)
    scaling = fit_scaling(data, normalize_observations=False)
    state = train(
        dataclasses.replace(config, **settings), to_device(data, scaling), jax.random.key(0)
    )
    return task, data, state


CASES = [
    pytest.param(name, kind, task, id=f"{name}-{kind}-{task}")
    for name, known in KNOWN.items()
    for kind in ALGORITHMS[name].actions
    for task in known.tasks
]


@pytest.mark.parametrize(("name", "kind", "task_name"), CASES)
def test_the_known_answer_is_found(name: str, kind: str, task_name: str) -> None:
    algorithm, known = ALGORITHMS[name], KNOWN[name]
    task, data, state = solve(name, kind, task_name)
    start = data.start
    if task.values:
        assert known.q is not None
        q = known.q(state, jnp.asarray(data.observation[start]), jnp.asarray(data.action[start]))
        for place, value in task.values.items():
            found = np.asarray(q)[:, task.observation == place].mean(axis=1)
            np.testing.assert_allclose(found, value, atol=VALUE_TOLERANCE)
        return
    observation = jnp.zeros((1, 1))
    action = np.asarray(algorithm.act(algorithm.policy(state), observation, jax.random.key(0)))
    if kind == "discrete":
        counts = np.bincount(data.action[start])
        likeliest = int(counts.argmax())
        assert action[0] == (likeliest if task_name in known.clones else 2)
        return
    expected = task.mean if task_name in known.clones else task.best
    np.testing.assert_allclose(action[0, 0], expected, atol=ACTION_TOLERANCE)


def test_every_algorithm_is_asked_every_task_or_a_reason_is_given() -> None:
    assert sorted(KNOWN) == sorted(ALGORITHMS)
    for known in KNOWN.values():
        assert sorted([*known.tasks, *known.not_asked]) == sorted(TASKS)
        assert all(known.not_asked.values())
