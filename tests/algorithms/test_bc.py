"""Behavior cloning: one update of every density equals a slow computation from its formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from leeward.algorithms.bc import ALGORITHM, Config, State, act, init, update
from leeward.types import Batch, Spec

COMPONENTS = 3
SETTINGS = {"hidden": (5, 4), "lr": 0.02, "adam_eps": 1e-3, "margin": 1e-3}
KEY = 5
Loss = Callable[[Any, Batch], np.ndarray]
"""(parameters, batch) → the cloning loss of every transition [B]."""


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def squared_error(parameters: Any, batch: Batch) -> np.ndarray:
    output = np.tanh(slow.mlp(list(parameters), np.asarray(batch.observation)))
    return ((output - np.asarray(batch.action)) ** 2).mean(axis=1)


def before_tanh(batch: Batch) -> np.ndarray:
    return np.arctanh(np.clip(np.asarray(batch.action), -1.0 + 1e-3, 1.0 - 1e-3))


def gaussian(parameters: Any, batch: Batch) -> np.ndarray:
    mean, std = slow.normal_head(list(parameters), np.asarray(batch.observation))
    return -slow.tanh_normal_log_density(before_tanh(batch), mean, std)


def mixture(parameters: Any, batch: Batch) -> np.ndarray:
    head = slow.mixture_head(list(parameters), np.asarray(batch.observation), COMPONENTS)
    return -slow.tanh_mixture_log_density(before_tanh(batch), *head)


CASES: dict[str, tuple[Config, Spec, Loss]] = {
    "deterministic": (Config(density="deterministic", **SETTINGS), CONTINUOUS, squared_error),
    "gaussian": (Config(density="gaussian", **SETTINGS), CONTINUOUS, gaussian),
    "mixture": (
        Config(density="mixture", components=COMPONENTS, **SETTINGS),
        CONTINUOUS,
        mixture,
    ),
}


def make_state(config: Config, spec: Spec) -> State:
    return randomize(init(config, spec, jax.random.key(0)))


def run(
    config: Config, state: State, batch: Batch, step: int = 3
) -> tuple[State, dict[str, float]]:
    new, metrics = jax.jit(update)(config, state, batch, jax.random.key(KEY), jnp.asarray(step))
    return new, {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize("case", CASES)
def test_an_update_equals_the_slow_computation(case: str) -> None:
    config, spec, loss_of_rows = CASES[case]
    state, batch = make_state(config, spec), fixed_batch(spec)
    parameters = numbers(state.actor)

    def loss(parameters: Any) -> float:
        return float(loss_of_rows(parameters, batch).mean())

    moved, adam = slow.adam(
        parameters,
        slow.gradient(loss, parameters),
        memory(state.actor_opt),
        config.lr,
        config.adam_eps,
    )
    new, metrics = run(config, state, batch)
    assert metrics == {"behavior/loss": pytest.approx(loss(parameters), rel=1e-9)}
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved)
    jax.tree.map(np.testing.assert_array_equal, new[1], state[1])  # no temperature is trained
    jax.tree.map(np.testing.assert_array_equal, new[3], state[3])


@pytest.mark.parametrize("case", CASES)
def test_the_held_out_loss_is_the_cloning_loss_of_every_transition(case: str) -> None:
    config, spec, loss_of_rows = CASES[case]
    state, batch = make_state(config, spec), fixed_batch(spec)
    stopping = ALGORITHM.phases[0].early_stopping
    assert stopping is not None
    expected = loss_of_rows(numbers(state.actor), batch)
    np.testing.assert_allclose(stopping.loss(config, state, batch), expected, rtol=1e-9)


def gaussian_entropy(parameters: Any, batch: Batch) -> float:
    """−mean log π of a fresh sample, pathwise."""
    mean, std = slow.normal_head(list(parameters), np.asarray(batch.observation))
    noise = np.asarray(jax.random.normal(jax.random.key(KEY), mean.shape))
    return -float(slow.tanh_normal_log_density(mean + std * noise, mean, std).mean())


def mixture_entropy(batch: Batch, start: Any) -> Callable[[Any, Batch], float]:
    """The same; which component each sample takes is drawn from the weights at the start."""
    component_key, noise_key = jax.random.split(jax.random.key(KEY))
    observation = np.asarray(batch.observation)
    logit = slow.mixture_head(list(start), observation, COMPONENTS)[0]
    component = np.asarray(jax.random.categorical(component_key, jnp.asarray(logit)))
    noise = np.asarray(jax.random.normal(noise_key, component.shape))

    def entropy(parameters: Any, _: Batch) -> float:
        logit, mean, std = slow.mixture_head(list(parameters), observation, COMPONENTS)
        before = slow.pick(mean, component) + slow.pick(std, component) * noise
        return -float(slow.tanh_mixture_log_density(before, logit, mean, std).mean())

    return entropy


@pytest.mark.parametrize("case", ["gaussian", "mixture"])
@pytest.mark.parametrize(("step", "rate"), [(80, 0.02), (81, 0.002), (91, 0.0002)])
def test_an_update_with_entropy_and_decay_equals_the_slow_computation(
    case: str, step: int, rate: float
) -> None:
    plain, spec, loss_of_rows = CASES[case]
    config = Config(
        density=plain.density,
        components=COMPONENTS,
        entropy_bonus=True,
        lr_decay=True,
        steps=100,
        **SETTINGS,
    )
    state, batch = make_state(config, spec), fixed_batch(spec)
    parameters = numbers(state.actor)
    entropy = gaussian_entropy if case == "gaussian" else mixture_entropy(batch, parameters)
    alpha = np.exp(float(state.log_alpha))

    def loss(parameters: Any) -> float:
        return float(loss_of_rows(parameters, batch).mean() - alpha * entropy(parameters, batch))

    moved, adam = slow.adam(
        parameters,
        slow.gradient(loss, parameters),
        memory(state.actor_opt),
        rate,
        config.adam_eps,
    )
    new, metrics = run(config, state, batch, step)
    assert metrics["behavior/loss"] == pytest.approx(loss(parameters), rel=1e-6)
    assert metrics["behavior/entropy"] == pytest.approx(entropy(parameters, batch), rel=1e-6)
    assert_memory_close(new.actor_opt, adam)
    assert_close(new.actor, moved)
    alpha_loss = alpha * (entropy(parameters, batch) + 2.0)  # H̄ is minus two dimensions
    expected, adam = slow.adam(
        numbers(state.log_alpha),
        [np.asarray(alpha_loss)],
        memory(state.alpha_opt),
        rate,
        config.adam_eps,
    )
    assert metrics["behavior/alpha_loss"] == pytest.approx(alpha_loss, rel=1e-6)
    assert metrics["behavior/alpha"] == pytest.approx(alpha, rel=1e-9)
    assert_memory_close(new.alpha_opt, adam)
    assert_close(new.log_alpha, expected)


def test_the_deterministic_action_of_every_density() -> None:
    observation = fixed_batch().observation
    for case, (config, spec, _) in CASES.items():
        actor = ALGORITHM.policy(make_state(config, spec))
        output = slow.mlp(numbers(actor), np.asarray(observation))
        expected = {
            "deterministic": lambda o: np.tanh(o),
            "gaussian": lambda o: np.tanh(o[:, :2]),
            "mixture": lambda o: np.tanh(likeliest_mean(o)),
        }[case](output)
        action = act(actor, observation, jax.random.key(0))
        np.testing.assert_allclose(action, expected, rtol=1e-9, err_msg=case)


def likeliest_mean(output: np.ndarray) -> np.ndarray:
    """Per dimension the mean of the component with the largest logit, in plain loops."""
    logit, mean, _ = output.reshape(len(output), 3, 2, COMPONENTS).transpose(1, 0, 2, 3)
    return np.asarray(
        [
            [mean[row, dim, logit[row, dim].argmax()] for dim in range(2)]
            for row in range(len(output))
        ]
    )


def test_the_reference_preset_is_the_reference_s_own_cloning() -> None:
    assert ALGORITHM.presets["reference"] == {
        "density": "gaussian",
        "lr": 1e-3,
        "lr_decay": True,
        "entropy_bonus": True,
        "adam_eps": 1e-7,
        "normalize_observations": False,
        "sampling": "epoch",
    }
