"""The contract's checks fail on an algorithm that breaks them: one mistake each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array, TypeCheckError

import contract
import contract_settings
from leeward.config import config
from leeward.errors import ConfigError
from leeward.types import Algorithm, Batch, Phase
from subjects import Subject


@config
class Config:
    steps: int = 20
    second_steps: int = 20
    batch_size: int = 8
    hidden: int = 6
    lr: float = 0.1
    tau: float = 0.05
    noise_std: float = 0.2
    discount: float = 0.99
    normalize_observations: bool = False
    sampling: Literal["uniform", "epoch"] = "uniform"


class State(NamedTuple):
    first: Array  # fitted in the phase "first": a linear action
    weight: Array  # a linear value
    target: Array


def make(mistake: str = "") -> Algorithm:
    """A linear actor and critic in two phases, right but for the mistake."""

    def init(config: Config, spec: Any, key: Any) -> State:
        if mistake == "fixed init":
            key = jax.random.key(7)
        first_key, key = jax.random.split(key)
        weight = jax.random.normal(key, (3, 1)) @ jnp.ones((1, config.hidden))
        return State(0.1 * jax.random.normal(first_key, (3, 2)), weight, weight)

    def update_first(config: Config, state: State, batch: Batch, key: Any, step: Any) -> Any:
        shape = (2,) if mistake == "one noise vector" else batch.action.shape
        noise = config.noise_std * jax.random.normal(key, shape)
        noise = jnp.broadcast_to(noise, batch.action.shape)
        if mistake == "reused key":
            noise += jax.random.uniform(key, noise.shape)
        error = (batch.observation @ state.first + noise) - batch.action
        slope = batch.observation.T @ error / len(error)
        rate = 0.1 if mistake == "lost rate" else config.lr
        metrics = {"first/error": jnp.square(error).mean()}
        if mistake == "changing metrics":
            metrics["first/other"] = jnp.float32(jnp.inf)
        return state._replace(first=state.first - rate * slope), metrics

    def update(config: Config, state: State, batch: Batch, key: Any, step: Any) -> Any:
        following = (batch.next_observation @ state.target).mean(axis=1)
        alive = 1.0 - batch.termination
        if mistake == "terminal rows bootstrap":
            alive = jnp.ones_like(alive)
        discount = batch.discount
        if mistake == "own discount":
            discount = config.discount * jnp.ones_like(discount)
        target = batch.reward + discount * alive * following
        if mistake != "column of rewards":
            target = _check_rows(target)
        error = (batch.observation @ state.weight).mean(axis=1) - target
        weight = state.weight - config.lr * jnp.outer(
            batch.observation.T @ error if error.ndim == 1 else jnp.ones(3), jnp.ones(config.hidden)
        ) / len(error)
        if mistake == "shape":
            weight = weight[:, :1]
        tau = 0.05 if mistake == "lost tau" else config.tau
        first = state.first + 1.0 if mistake == "unfrozen" else state.first
        target_weight = state.target + tau * (weight - state.target)
        return State(first, weight, target_weight), {"critic/loss": jnp.square(error).mean()}

    def act(policy: Array, observation: Array, key: Any) -> Array:
        action = observation @ policy
        if mistake == "random action":
            action = action + jax.random.normal(key, action.shape)
        if mistake == "no counterpart":
            action = jnp.sort(action)
        return action if mistake == "outside" else jnp.clip(action, -1.0, 1.0)

    steps = (lambda c: 20) if mistake == "lost steps" else (lambda c: c.second_steps)
    return Algorithm(
        "toy",
        Config,
        init,
        (Phase("first", lambda c: c.steps, update_first), Phase("train", steps, update)),
        policy=lambda state: state.first,
        act=act,
    )


def _check_rows(target: Array) -> Array:
    """What the types of a real algorithm check."""
    if target.ndim != 1:
        raise TypeCheckError("not [B]")
    return target


# Policies and metrics are stored under their algorithm's name, and this one has none.
NAMED = ("check_a_saved_policy_acts_as_the_live_one", "check_metrics_are_those_stored")
CHECKS = {
    name: check
    for module in (contract, contract_settings)
    for name, check in vars(module).items()
    if name.startswith("check_") and name not in NAMED
}


@pytest.fixture(scope="module")
def sound() -> Subject:
    return Subject(make(), "continuous")


@pytest.mark.parametrize("name", CHECKS)
def test_an_algorithm_without_mistakes_passes(sound: Subject, name: str) -> None:
    CHECKS[name](sound)


MISTAKES: dict[str, tuple[Callable[[Subject], None], type[BaseException]]] = {
    "fixed init": (contract.check_init_is_fixed_by_its_key, AssertionError),
    "shape": (contract.check_updates_keep_shapes_and_metrics, AssertionError),
    "changing metrics": (contract.check_updates_keep_shapes_and_metrics, AssertionError),
    "one noise vector": (contract.check_every_row_has_noise_of_its_own, AssertionError),
    "reused key": (contract.check_updates_keep_shapes_and_metrics, jax.errors.KeyReuseError),
    "lost tau": (contract_settings.check_settings_that_are_floats_reach_the_result, AssertionError),
    "lost steps": (
        contract_settings.check_settings_that_are_static_change_the_program,
        AssertionError,
    ),
    "own discount": (
        contract.check_terminal_rows_do_not_bootstrap_and_truncated_rows_do,
        AssertionError,
    ),
    "terminal rows bootstrap": (
        contract.check_terminal_rows_do_not_bootstrap_and_truncated_rows_do,
        AssertionError,
    ),
    "column of rewards": (contract.check_a_column_of_rewards_is_rejected, pytest.fail.Exception),
    "unfrozen": (contract.check_later_phases_leave_earlier_models_alone, AssertionError),
    "random action": (contract.check_actions_are_inside_and_fixed, AssertionError),
    "outside": (contract.check_actions_are_inside_and_fixed, AssertionError),
    "no counterpart": (contract.check_an_exported_policy_acts_as_the_live_one, ConfigError),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str) -> None:
    check, error = MISTAKES[mistake]
    with pytest.raises(error):
        check(Subject(make(mistake), "continuous"))
