"""Evaluation: equal to a slow loop, independent of how it is cut, and clear when it fails."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small_environments
from leeward import acting
from leeward.algorithms import bc
from leeward.data.sampling import Scaling
from leeward.errors import SimulationError, SpecError
from leeward.evaluate import Evaluator, episode_seed, evaluate
from leeward.nn.actors import DeterministicActor
from leeward.nn.layers import MLP, Linear
from leeward.policy import PolicyStack, TrainedRun
from leeward.types import Algorithm, Box, Discrete, Spec

LINE = "LeewardTest/Line-v0"
CORRIDOR = "LeewardTest/Corridor-v0"
MEAN, STD, CENTER, SCALE = 0.2, 2.0, 0.5, 1.5  # the line's actions are −1 to 2 for the policy


def linear_actor(weight: list[list[float]]) -> DeterministicActor:
    return DeterministicActor(MLP((Linear(jnp.array(weight), jnp.zeros(1)),), ()))


def line_policies(gains: list[float], seeds: list[int] | None = None) -> PolicyStack:
    """For every gain, the action tanh(−gain · position) in scaled units."""
    actors = [linear_actor([[-gain], [0.1]]) for gain in gains]
    return PolicyStack(
        algorithm=bc.ALGORITHM,
        config=bc.Config(hidden=()),
        spec=Spec((2,), "float32", Box((CENTER - SCALE,), (CENTER + SCALE,))),
        scaling=Scaling(
            jnp.full(2, MEAN), jnp.full(2, STD), jnp.full(1, CENTER), jnp.full(1, SCALE)
        ),
        policies=jax.tree.map(lambda *leaves: jnp.stack(leaves), *actors),
        runs=tuple(TrainedRun(seed, {}, 0) for seed in seeds or range(len(gains))),
        env=LINE,
    )


def corridor_policies(logits: list[list[float]]) -> PolicyStack:
    """Policies that take the action with the highest number, whatever they see."""
    algorithm = Algorithm(
        name="constant",
        config_type=bc.Config,
        init=bc.init,
        phases=(),
        policy=lambda state: state,
        act=lambda policy, observation, key: jnp.full(observation.shape[0], jnp.argmax(policy)),
    )
    return PolicyStack(
        algorithm=algorithm,
        config=bc.Config(),
        spec=Spec((5, 1, 1), "uint8", Discrete(3)),
        scaling=Scaling(jnp.zeros((5, 1, 1)), jnp.ones((5, 1, 1)), jnp.zeros(1), jnp.ones(1)),
        policies=jnp.array(logits),
        runs=tuple(TrainedRun(seed, {}, 0) for seed in range(len(logits))),
        env=CORRIDOR,
    )


def slow_episode(gain: float, seed: int) -> tuple[float, int]:
    """(return, length) of one episode, the policy written out."""
    env = gymnasium.make(LINE)
    observation, _ = env.reset(seed=seed)
    total, steps = 0.0, 0
    while True:
        scaled = (observation - MEAN) / STD
        action = np.tanh(-gain * scaled[0] + 0.1 * scaled[1]) * SCALE + CENTER
        observation, reward, ended, cut, _ = env.step(np.float32([action]))
        total, steps = total + float(reward), steps + 1
        if ended or cut:
            return total, steps


def error_of(call: Callable[[], object], kind: type[Exception] = SimulationError) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_returns_and_lengths_equal_a_slow_loop() -> None:
    gains, seeds = [3.0, 0.0, -4.0], [7, 0, 5]
    result = evaluate(line_policies(gains, seeds), episodes=4)
    expected = [
        [slow_episode(gain, episode_seed(0, seed, episode)) for episode in range(4)]
        for gain, seed in zip(gains, seeds, strict=True)
    ]
    np.testing.assert_allclose(result.returns, [[e[0] for e in run] for run in expected], rtol=1e-5)
    np.testing.assert_array_equal(result.lengths, [[e[1] for e in run] for run in expected])
    assert {12} < set(result.lengths.ravel())  # some end early, others at the limit
    np.testing.assert_allclose(result.mean_return, result.returns.mean(axis=1))


def test_how_many_run_at_once_changes_nothing() -> None:
    policies = line_policies([3.0, -4.0])
    together = evaluate(policies, episodes=7)
    for copies in (1, 6):
        with Evaluator(LINE, episodes=7, copies=copies) as evaluator:
            result = evaluator.evaluate(policies)
            made = len(evaluator._made)
        assert made == {1: 2, 6: 6}[copies]
        np.testing.assert_allclose(result.returns, together.returns, rtol=1e-5)
        np.testing.assert_array_equal(result.lengths, together.lengths)


def test_a_run_alone_gives_what_it_gives_among_others() -> None:
    policies = line_policies([3.0, -4.0], seeds=[1, 9])
    together = evaluate(policies, episodes=3)
    for run in range(2):
        alone = evaluate(policies.select(run=run), LINE, episodes=3)
        np.testing.assert_allclose(alone.returns[0], together.returns[run], rtol=1e-5)


def test_one_seed_gives_the_same_and_another_one_other_starts() -> None:
    policies = line_policies([3.0])
    with Evaluator(LINE, episodes=5) as evaluator:
        first, second = evaluator.evaluate(policies), evaluator.evaluate(policies)
    np.testing.assert_array_equal(first.returns, second.returns)
    assert len(set(first.returns.ravel())) == 5
    other = evaluate(policies, episodes=5, evaluation_seed=1)
    assert not np.isclose(other.returns, first.returns).any()


def test_environments_are_kept_and_closed() -> None:
    log: list[str] = []

    class Logged(small_environments.Line):
        def __init__(self) -> None:
            super().__init__()
            log.append("made")

        def close(self) -> None:
            log.append("closed")

    def make() -> gymnasium.Env:
        return gymnasium.wrappers.TimeLimit(Logged(), 3)

    with Evaluator(make, episodes=2) as evaluator:
        evaluator.evaluate(line_policies([1.0]))
        evaluator.evaluate(line_policies([2.0]))
        assert log == ["made", "made"]
    assert log == ["made", "made", "closed", "closed"]


def test_other_weights_compile_nothing() -> None:
    with Evaluator(LINE, episodes=3) as evaluator:
        evaluator.evaluate(line_policies([1.0]))
        before = acting.act_side_by_side._cache_size()  # type: ignore[attr-defined]
        evaluator.evaluate(line_policies([-4.0]))
        assert acting.act_side_by_side._cache_size() == before  # type: ignore[attr-defined]


def test_actions_are_clipped_to_the_environment() -> None:
    # The policy's box reaches to 2, the environment's to 0.25 and it refuses what lies outside.
    def make() -> gymnasium.Env:
        return gymnasium.wrappers.TimeLimit(small_environments.Line(bound=0.25), 4)

    assert evaluate(line_policies([50.0]), make, episodes=2).lengths.tolist() == [[4, 4]]


def test_discrete_actions_and_images() -> None:
    result = evaluate(corridor_policies([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), episodes=3)
    starts = [
        int(np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).integers(4))
        for seed in (episode_seed(0, 0, episode) for episode in range(3))
    ]
    assert result.lengths.tolist() == [[4 - start for start in starts], [9, 9, 9]]
    assert result.returns.tolist() == [[1.0] * 3, [0.0] * 3]


def test_scores_are_normalized_by_the_reference() -> None:
    policies = line_policies([3.0, 0.0])
    assert evaluate(policies, episodes=2).scores is None
    reference = {"reference_scores": {"minimum": -30.0, "maximum": -10.0}}
    result = evaluate(policies, episodes=2, reference=reference)
    assert result.scores is not None
    assert result.mean_score is not None
    np.testing.assert_allclose(result.scores, 100 * (result.returns + 30.0) / 20.0)
    np.testing.assert_allclose(result.mean_score, result.scores.mean(axis=1))


def test_a_mujoco_task_runs() -> None:
    policies = dataclasses.replace(
        line_policies([0.0]),
        spec=Spec((4,), "float32", Box((-3.0,), (3.0,))),
        scaling=Scaling(jnp.zeros(4), jnp.ones(4), jnp.zeros(1), jnp.full(1, 3.0)),
        policies=jax.tree.map(lambda leaf: leaf[None], linear_actor([[1.0]] * 4)),
    )
    result = evaluate(policies, "InvertedPendulum-v5", episodes=2)
    assert result.lengths.min() > 2
    np.testing.assert_array_equal(result.returns, result.lengths - 1)  # 1 a step but the last


def test_episodes_are_reported_as_they_finish() -> None:
    finished: list[int] = []
    evaluate(line_policies([3.0, -4.0]), episodes=2, on_episode=finished.append)
    assert finished == [1, 2, 3, 4]


def test_a_wrapper_goes_around_every_copy() -> None:
    class FarStart(gymnasium.Wrapper):
        def reset(self, **arguments: Any) -> tuple[Any, dict]:
            _, info = self.env.reset(**arguments)
            self.unwrapped.position = 2.9  # type: ignore[attr-defined]
            return np.array([2.9, 0.5]), info

    with Evaluator(LINE, episodes=2, wrapper=FarStart) as evaluator:
        assert evaluator.evaluate(line_policies([-50.0])).lengths.tolist() == [[1, 1]]


def test_runs_can_be_left_out() -> None:
    policies = line_policies([3.0, np.nan, -4.0])
    with Evaluator(LINE, episodes=2) as evaluator:
        result = evaluator.evaluate(policies, without=[1])
        whole = evaluator.evaluate(line_policies([3.0, 0.0, -4.0]))
        nothing = evaluator.evaluate(policies, without=[0, 1, 2])
    assert np.isnan(result.returns[1]).all()
    assert result.lengths[1].tolist() == [0, 0]
    np.testing.assert_array_equal(result.returns[[0, 2]], whole.returns[[0, 2]])
    assert np.isnan(nothing.returns).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: line_policies([1.0, np.nan]),
        lambda: corridor_policies([[1.0, 0.0, 0.0], [0.0, np.inf, 0.0]]),
    ],
    ids=["continuous", "discrete"],
)
def test_diverged_weights(make: Callable[[], PolicyStack]) -> None:
    assert error_of(lambda: evaluate(make())) == (
        "the policy of seed 1 has weights that are not finite numbers: its training diverged"
    )


def test_an_action_that_is_no_number() -> None:
    policies = line_policies([1.0, 1.0])
    nan_act = dataclasses.replace(
        policies,
        algorithm=policies.algorithm._replace(
            act=lambda policy, observation, key: jnp.log(policy(observation) - 1.0)
        ),
    )
    assert error_of(lambda: evaluate(nan_act)) == (
        "the policy of seed 0 gave an action that is not a finite number, at step 0 of episode 0: "
        "its training diverged"
    )


def broken_line(**methods: Callable[..., Any]) -> Callable[[], gymnasium.Env]:
    """The line with some of its methods replaced."""
    made = type("Broken", (small_environments.Line,), methods)
    made.__module__ = "mine"
    return made


def step_with(observation: Any, reward: Any) -> Callable[..., Any]:
    """A `step` that ends the episode at its second call."""

    def step(self: Any, action: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        return observation, reward, self.calls == 2, False, {}

    return step


def fail(self: Any, *_: Any, **__: Any) -> Any:
    raise RuntimeError("the motor is hot\ncall someone")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            broken_line(step=step_with(np.array([np.nan, 0.0]), 0.0)),
            "gave an observation that is not a finite number, at step 1",
        ),
        (
            broken_line(step=step_with(np.zeros(2), np.nan)),
            "gave a reward that is not a finite number, at step 2",
        ),
        (
            broken_line(step=step_with(np.zeros(3), 0.0)),
            "failed to step (ValueError: could not broadcast input array from shape (3,) into "
            "shape (2,)), at step 0",
        ),
        (broken_line(step=fail), "failed to step (RuntimeError: the motor is hot), at step 0"),
        (broken_line(reset=fail), "failed to reset (RuntimeError: the motor is hot), at step 0"),
        (
            broken_line(reset=lambda self, seed=None, options=None: (np.zeros(5), {})),
            "gave an observation of shape (5,), which its space says has shape (2,), at step 0",
        ),
    ],
)
def test_a_broken_environment(make: Callable[[], gymnasium.Env], text: str) -> None:
    assert error_of(lambda: evaluate(line_policies([1.0], seeds=[4]), make, episodes=1)) == (
        f"environment mine:Broken {text} of episode 0 (seed 4)"
    )


def test_an_endless_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["leeward.evaluate"], "LONGEST_EPISODE", 30)
    make = small_environments.Line
    assert error_of(lambda: evaluate(line_policies([3.0]), make, episodes=1)) == (
        "environment small_environments:Line does not end: register it with max_episode_steps, "
        "at step 30 of episode 0 (seed 0)"
    )


def test_policies_of_another_environment() -> None:
    assert error_of(lambda: evaluate(line_policies([1.0]), "Pendulum-v1"), SpecError) == (
        "the policy does not match environment Pendulum-v1: observations have shape (2,), the "
        "environment's (3,): use the environment that it comes from"
    )


def test_no_environment_and_no_episodes() -> None:
    nowhere = dataclasses.replace(line_policies([1.0]), env=None)
    assert error_of(lambda: evaluate(nowhere)) == (
        "the policy was trained without an environment: name one (--env)"
    )
    assert error_of(lambda: evaluate(line_policies([1.0]), episodes=0)) == (
        "an evaluation needs at least 1 episode, got 0"
    )


def test_seeds_depend_on_all_three_numbers() -> None:
    seeds = {episode_seed(e, r, k) for e in range(5) for r in range(5) for k in range(5)}
    assert len(seeds) == 125
