"""The discriminator beside V: its step by hand, who is expert, and what it adds to the signal."""

from __future__ import annotations

import dataclasses
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
from leeward.algorithms.fmr import Config, check, enter_policy, init, update_value
from leeward.data.dataset import Dataset
from leeward.data.demonstrations import expert_states
from leeward.data.sampling import fit_scaling, to_device
from leeward.errors import ConfigError, DataError
from leeward.nn.critics import Value
from leeward.pretraining import discriminator

CONFIG = Config(
    hidden=(5, 4), adversarial=True, conservative_noise=0.7, value_lr=0.013, value_ensemble=1
)
EXPERT = np.asarray([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])


def softplus(value: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(value))


def test_a_step_tells_expert_states_from_others_and_from_those_beside_the_data() -> None:
    with jax.enable_x64(True):
        state = randomize(init(CONFIG, CONTINUOUS, jax.random.key(0)))
        judge = state.value.judge
        assert judge is not None
        state = state._replace(
            value=state.value._replace(
                rewardless=jnp.zeros(()),
                emphasis=jnp.ones(6),
                judge=judge._replace(expert=jnp.asarray(EXPERT)),
            )
        )
        batch = fixed_batch()
        observation = np.asarray(batch.observation)
        noise_key = jax.random.split(jax.random.key(5))[1]
        beside = observation + 0.7 * np.asarray(jax.random.normal(noise_key, observation.shape))
        parameters = numbers(judge.network)

        def loss(parameters: Any) -> float:
            logit = slow.normed_critic(parameters, observation)
            other = slow.normed_critic(parameters, beside)
            right = softplus(-logit[EXPERT > 0.0]).mean()
            wrong = np.concatenate([softplus(other), softplus(logit[EXPERT == 0.0])]).mean()
            return float(0.5 * (right + wrong))

        slope = slow.gradient(loss, parameters)
        moved, adam = slow.adam(parameters, slope, memory(judge.opt), CONFIG.value_lr, 1e-8)
        new, metrics = jax.jit(update_value)(
            CONFIG, state, batch, jax.random.key(5), jnp.asarray(3)
        )
        assert float(metrics["value/discriminator_loss"]) == pytest.approx(
            loss(parameters), rel=1e-9
        )
        assert new.value.judge is not None
        assert_memory_close(new.value.judge.opt, adam)
        assert_close(new.value.judge.network, moved)


def walks() -> Dataset:
    """Five walks of two, one, three, one and one steps with the returns 3, 1, 9, 1 and 4."""
    reward = np.asarray([1.0, 2.0, 1.0, 4.0, 4.0, 1.0, 1.0, 4.0])
    last = np.asarray([0, 1, 1, 0, 0, 1, 1, 1], bool)
    observation = np.arange(8.0)[:, None] + (np.cumsum(last) - last)[:, None]
    return Dataset.from_arrays(
        observation, np.zeros((8, 1)), reward, last, np.zeros(8, bool), action_low=-1.0,
        action_high=1.0, metadata={"name": "walks"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [
        (0.1, [0, 0, 0, 1, 1, 1, 0, 0]),
        (0.4, [0, 0, 0, 1, 1, 1, 0, 1]),
        (0.6, [1, 1, 0, 1, 1, 1, 0, 1]),
        (0.8, [1, 1, 1, 1, 1, 1, 1, 1]),  # two walks share the fourth place
        (1.0, [1, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_experts_are_the_walks_with_the_highest_returns(
    fraction: float, expected: list[int]
) -> None:
    dataset = walks()
    data = to_device(dataset, fit_scaling(dataset, normalize_observations=False))
    found = jax.jit(expert_states)(data, fraction)
    np.testing.assert_array_equal(found, expected)


def test_the_signal_is_v_and_logit_both_standardized() -> None:
    dataset = walks()
    data = to_device(dataset, fit_scaling(dataset, normalize_observations=False))
    config = dataclasses.replace(CONFIG, behavior="deterministic", adversarial_weight=0.5)
    state = init(config, dataset.spec, jax.random.key(0))
    judge = state.value.judge
    assert judge is not None
    entered = enter_policy(config, state, data, jax.random.key(0))
    observation = np.asarray(data.observation[data.start], np.float64)
    v = slow.normed_critic(numbers(state.value.online), observation)
    logit = slow.normed_critic(numbers(judge.network), observation)
    v, logit = ((side - side.mean()) / side.std() for side in (v, logit))
    both = v + 0.5 * logit
    np.testing.assert_allclose(
        entered.signal, (both - both.mean()) / both.std(), rtol=1e-2, atol=2e-3
    )


def test_its_accuracy_is_the_mean_over_expert_and_other_states() -> None:
    """V(s) = s: right where the state is positive. No noise, so states beside are the same."""
    dataset = walks()
    data = to_device(dataset, fit_scaling(dataset, normalize_observations=False))
    state = init(dataclasses.replace(CONFIG, hidden=()), dataset.spec, jax.random.key(0))
    judge = state.value.judge
    assert judge is not None
    assert isinstance(judge.network, Value)
    layer = judge.network.mlp.layers[0]
    mlp = dataclasses.replace(
        judge.network.mlp,
        layers=(dataclasses.replace(layer, weight=jnp.ones((1, 1)), bias=jnp.asarray([-4.5])),),
    )
    judge = judge._replace(network=dataclasses.replace(judge.network, mlp=mlp))
    # States 0 1 | 3 | 5 6 7 | 9 | 11: positive from 5 on.
    expert = jnp.asarray([1.0, 1, 0, 1, 1, 1, 0, 0])
    found = discriminator.measure(judge, data, expert, 0.0)["discriminator_accuracy"]
    # Of five experts three are told; of eight states beside and three others 3 and 1.
    assert float(found) == pytest.approx(0.5 * (3 / 5 + (3 + 1) / (8 + 3)))


def test_shares_of_experts_need_returns() -> None:
    shuffled = Dataset.from_arrays(
        np.arange(6.0)[:, None], np.zeros((6, 1)), np.ones(6), np.zeros(6, bool),
        next_observation=np.arange(6.0)[:, None] + 0.5, action_low=-1.0, action_high=1.0,
        metadata={"name": "shuffled"},
    )  # fmt: skip
    config = dataclasses.replace(CONFIG, validation_fraction=0.0)
    check(config, shuffled)
    with pytest.raises(DataError) as caught:
        check(dataclasses.replace(config, expert_fraction=0.5), shuffled)
    assert str(caught.value) == (
        "shuffled is not in order of time, so the returns of its episodes are not known: set "
        "--expert-fraction 1"
    )
    with pytest.raises(ConfigError) as other:
        check(dataclasses.replace(config, expert_fraction=0.0), walks())
    assert str(other.value) == "--expert-fraction must be in (0, 1], got 0"
