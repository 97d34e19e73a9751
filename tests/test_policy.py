"""Policies as functions: environment units in and out, any batch, densities, choice of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward import acting
from leeward.algorithms import bc, discrete_bc, td3_bc
from leeward.data.sampling import Scaling
from leeward.errors import CheckpointError, SpecError
from leeward.policy import Policy, PolicyStack, TrainedRun
from leeward.types import Algorithm, Box, Discrete, Spec

BOX = Box((-2.0, 0.0), (2.0, 10.0))
SPEC = Spec((3,), "float32", BOX)
SCALING = {
    "observation_mean": [1.0, 2.0, 3.0],
    "observation_std": [0.5, 1.0, 2.0],
    "action_center": [0.0, 5.0],
    "action_scale": [2.0, 5.0],
}


def stack_of(
    algorithm: Algorithm, config: Any, spec: Spec = SPEC, seeds: tuple[int, ...] = (3, 1)
) -> PolicyStack:
    """Policies with random weights."""
    size = spec.action.size if isinstance(spec.action, Box) else 1
    scaling = {name: jnp.array(values) for name, values in SCALING.items()}
    if isinstance(spec.action, Discrete):
        scaling |= {"action_center": jnp.zeros(size), "action_scale": jnp.ones(size)}
    key = jax.random.key(0)
    shapes = jax.eval_shape(lambda: algorithm.policy(algorithm.init(config, spec, key)))
    draw = np.random.default_rng(0)
    policies = jax.tree.map(
        lambda leaf: jnp.asarray(0.5 * draw.normal(size=(len(seeds), *leaf.shape)), leaf.dtype),
        shapes,
    )
    return PolicyStack(
        algorithm=algorithm,
        config=config,
        spec=spec,
        scaling=Scaling(**scaling),
        policies=policies,
        runs=tuple(TrainedRun(seed, {}, 10) for seed in seeds),
    )


def deterministic() -> Policy:
    return stack_of(td3_bc.ALGORITHM, td3_bc.Config(hidden=(8,))).select()


def density(kind: str) -> Policy:
    """A Gaussian or a mixture, neither narrow nor close to the bounds."""
    policy = stack_of(bc.ALGORITHM, bc.Config(hidden=(8,), density=kind)).select()
    small = jax.tree.map(lambda leaf: 0.3 * leaf, policy.policy)
    return dataclasses.replace(policy, policy=small)


def by_hand(policy: Policy, observation: np.ndarray) -> np.ndarray:
    """The same action, written out in float64."""
    first, last = policy.policy.mlp.layers
    scaled = (observation - SCALING["observation_mean"]) / SCALING["observation_std"]
    hidden = np.maximum(scaled @ np.asarray(first.weight, np.float64) + np.asarray(first.bias), 0.0)
    action = np.tanh(hidden @ np.asarray(last.weight, np.float64) + np.asarray(last.bias))
    return action * SCALING["action_scale"] + SCALING["action_center"]


def error_of(call: Callable[[], object], kind: type[Exception] = SpecError) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("leading", [(), (1,), (5,), (2, 3), (0,), (0, 4), (1030,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_leading_axes_in_environment_units(leading: tuple[int, ...], dtype: type) -> None:
    policy = deterministic()
    observation = np.random.default_rng(0).normal(2.0, 3.0, (*leading, 3)).astype(dtype)
    action = policy(observation)
    assert isinstance(action, np.ndarray)
    assert action.dtype == np.float32
    assert action.shape == (*leading, 2)
    np.testing.assert_allclose(action, by_hand(policy, observation), rtol=1e-4, atol=1e-5)


def test_actions_stay_in_the_box_to_the_bit() -> None:
    policy = deterministic()
    far = policy(np.random.default_rng(0).normal(size=(200, 3)) * 1e6)
    assert (far >= np.float32(BOX.low)).all()
    assert (far <= np.float32(BOX.high)).all()
    assert (far == np.float32(BOX.high)).any()


def test_new_batch_sizes_compile_nothing_within_a_power_of_two() -> None:
    policy = deterministic()
    policy(np.zeros((8, 3)))
    before = acting.act._cache_size()  # type: ignore[attr-defined]
    for size in (5, 6, 7, 8):
        policy(np.zeros((size, 3)))
    assert acting.act._cache_size() == before  # type: ignore[attr-defined]


def test_a_stack_acts_as_its_policies_do() -> None:
    stack = stack_of(td3_bc.ALGORITHM, td3_bc.Config(hidden=(8,)))
    observation = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    action = stack.act(observation)
    assert action.shape == (2, 4, 2)
    action[0, 0, 0] = 0.0  # environments may write to what they get
    for run in range(2):
        alone = stack.select(run=run)(observation[run])
        np.testing.assert_allclose(stack.act(observation)[run], alone, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            stack.select(run=run).stack().act(observation[run : run + 1])[0], alone, rtol=1e-5
        )


@pytest.mark.parametrize("kind", ["gaussian", "mixture"])
def test_the_density_integrates_to_one_over_the_box(kind: str) -> None:
    policy = density(kind)
    assert policy.has_density
    # The midpoints of a fine grid over the environment's own box, of area 4 · 10.
    first, second = np.meshgrid(
        (np.arange(400) + 0.5) / 100 - 2.0, (np.arange(400) + 0.5) / 40, indexing="ij"
    )
    action = np.stack([first.ravel(), second.ravel()], axis=1)
    observation = np.broadcast_to(np.array([0.8, 2.5, 1.0]), (len(action), 3))
    log_prob = policy.log_prob(observation, action)
    assert log_prob.shape == (160_000,)
    assert np.exp(log_prob.astype(np.float64)).mean() * 40.0 == pytest.approx(1.0, abs=2e-3)


def test_discrete_probabilities_sum_to_one() -> None:
    spec = Spec((3,), "float32", Discrete(4))
    policy = stack_of(discrete_bc.ALGORITHM, discrete_bc.Config(hidden=(8,)), spec).select()
    observation = np.random.default_rng(0).normal(size=(4, 2, 3))
    log_prob = policy.log_prob(observation, np.arange(4)[:, None] * np.ones((4, 2), int))
    assert log_prob.shape == (4, 2)
    same = policy.log_prob(np.broadcast_to(observation[0, 0], (4, 3)), np.arange(4))
    assert np.exp(same).sum() == pytest.approx(1.0, abs=1e-5)
    greedy = policy(observation[0, 0])
    assert greedy.dtype == np.int32
    assert greedy == np.argmax(same)


def test_a_deterministic_policy_has_no_density() -> None:
    policy = deterministic()
    assert not policy.has_density
    assert error_of(lambda: policy.log_prob(np.zeros(3), np.zeros(2))) == (
        "a policy of td3_bc with these settings has no density"
    )


def test_wrong_inputs() -> None:
    policy = density("gaussian")
    assert error_of(lambda: policy(np.zeros((2, 4)))) == (
        "the policy expects observations of shape (3,) with any leading axes, got (2, 4)"
    )
    assert error_of(lambda: policy(np.array(1.0))) == (
        "the policy expects observations of shape (3,) with any leading axes, got ()"
    )
    assert error_of(lambda: policy(np.zeros((2, 3), np.uint8))) == (
        "the policy expects float32 observations, got uint8"
    )
    assert error_of(lambda: policy(np.array([[0.0, 0.0, 0.0], [0.0, np.nan, 0.0]]))) == (
        "observation 1 holds a value that is not a finite number"
    )
    assert error_of(lambda: policy.log_prob(np.zeros((5, 3)), np.zeros((5, 3)))) == (
        "actions have shape (5, 3), observations ask for (5, 2)"
    )


def test_diverged_weights_give_no_action() -> None:
    policy = deterministic()
    broken = dataclasses.replace(policy, policy=jax.tree.map(lambda x: x * jnp.nan, policy.policy))
    assert error_of(lambda: broken(np.zeros((3, 3)))) == (
        "the policy gives no finite action for observation 0: its training diverged"
    )


def test_images_pass_as_they_are() -> None:
    spec = Spec((2, 2, 1), "uint8", Discrete(3))
    algorithm = td3_bc.ALGORITHM._replace(
        name="brightest", act=lambda policy, o, key: jnp.argmax(o.reshape(len(o), -1), axis=1)
    )
    policy = Policy(
        algorithm=algorithm,
        config=td3_bc.Config(),
        spec=spec,
        scaling=Scaling(jnp.ones((2, 2, 1)), jnp.ones((2, 2, 1)), jnp.zeros(1), jnp.ones(1)),
        policy=jnp.zeros(1),
        run=TrainedRun(0, {}, 0),
    )
    image = np.array([0, 3, 255, 9], np.uint8).reshape(2, 2, 1)
    assert policy(image) == 2
    assert policy(np.stack([image, image])).tolist() == [2, 2]
    assert error_of(lambda: policy(image.astype(np.float32))) == (
        "the policy expects uint8 observations, got float32"
    )


def test_a_run_is_chosen_by_seed_or_index() -> None:
    config = td3_bc.Config(hidden=(8,), alpha=[1.0, 2.5])  # type: ignore[arg-type]
    single = dataclasses.replace(config, alpha=1.0)
    stack = dataclasses.replace(stack_of(td3_bc.ALGORITHM, single, seeds=(3, 1)), config=config)
    assert stack.select().run.seed == 3
    assert stack.select(seed=1).run.seed == 1
    assert stack.select(run=1).run.seed == 1
    assert stack.select(seed=1).config == dataclasses.replace(config, alpha=2.5)
    chosen = stack.select(seed=1).policy.mlp.layers[0].weight
    np.testing.assert_array_equal(chosen, stack.policies.mlp.layers[0].weight[1])


def test_a_run_that_is_not_there() -> None:
    stack = stack_of(td3_bc.ALGORITHM, td3_bc.Config(hidden=(8,)), seeds=(3, 1))
    assert error_of(lambda: stack.select(seed=2), CheckpointError) == (
        "there is no run with seed 2: seeds are 1, 3"
    )
    assert error_of(lambda: stack.select(run=2), CheckpointError) == (
        "there is no run 2: runs are 0 to 1"
    )


def test_a_sweep_has_several_runs_of_one_seed() -> None:
    stack = stack_of(td3_bc.ALGORITHM, td3_bc.Config(hidden=(8,)), seeds=(3, 3))
    runs = (TrainedRun(3, {"alpha": 1.0}, 10), TrainedRun(3, {"alpha": 2.5}, 10))
    stack = dataclasses.replace(stack, runs=runs)
    assert stack.select(run=1).run.settings == {"alpha": 2.5}
    assert error_of(lambda: stack.select(seed=3), CheckpointError) == (
        "2 runs have seed 3, choose one (run 0: alpha 1; run 1: alpha 2.5)"
    )


def test_of_other_settings_the_favored_ones_are_taken_and_it_is_said() -> None:
    stack = stack_of(td3_bc.ALGORITHM, td3_bc.Config(hidden=(8,)), seeds=(3, 1, 3, 1))
    runs = tuple(TrainedRun(seed, {"alpha": alpha}, 10) for alpha in (1.0, 2.5) for seed in (3, 1))
    stack = dataclasses.replace(stack, runs=runs)
    assert error_of(stack.select, CheckpointError) == (
        "the settings differ, choose one (run 0: alpha 1; run 2: alpha 2.5)"
    )
    favored = dataclasses.replace(stack, favored=(2, 3))
    assert favored.select().run == runs[2]
    assert favored.select().note == "run 2: held-out episodes favor alpha 2.5"
    assert favored.select(seed=1).run == runs[3]
    asked = favored.select(run=2)
    assert (asked.run, asked.note) == (runs[2], "")
    half = dataclasses.replace(stack, favored=(2,))  # run 3 diverged
    assert error_of(lambda: half.select(seed=1), CheckpointError) == (
        "2 runs have seed 1, choose one (run 1: alpha 1; run 3: alpha 2.5)"
    )
