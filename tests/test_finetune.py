"""Fine-tuning: it learns what the data lack, from what it truly saw, update by update."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import leeward
from collecting import LINE
from finetuning import FEW, OFFLINE, finetuned, folder, seen, whole
from leeward import finetune_loop
from leeward import replay_mixed as replay
from leeward.algorithms import ALGORITHMS
from leeward.data.sampling import Scaling
from leeward.environments import make_environment
from leeward.evaluate import episode_seed
from leeward.finetune_world import EPISODES_TAG, World
from leeward.types import Box

__all__ = ["folder", "seen", "whole"]  # fixtures

# --- Learning ---


def test_it_learns_what_the_data_lack(folder: Path, tmp_path: Path) -> None:
    """A point that stays where it started would have a return near -6."""
    learning: dict[str, Any] = {"steps": 200, "updates_per_step": 4, "eval_every": 200}
    learning["eval_episodes"] = 10
    run = finetuned(folder, tmp_path / "run", **learning)
    evaluations = leeward.Run(run).evaluations()
    before, after = ([e["return_mean"] for e in evaluations if e["step"] == n] for n in (0, 200))
    assert max(before) < -6.0
    assert min(after) > -4.0


def test_the_benchmark_has_what_the_page_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    methods = importlib.import_module("finetune").METHODS
    online = {name for name, one in ALGORITHMS.items() if one.online is not None}
    assert {algorithm for algorithm, _, _ in methods.values()} == online - {"cql"}  # Cal-QL's base


# --- What is seen ---


def test_a_simulator_that_is_fed_the_actions_repeats_what_was_seen(
    folder: Path, tmp_path: Path, seen: list[replay.Seen]
) -> None:
    run = finetuned(folder, tmp_path / "run")
    scaling = leeward.load_policy(run).scaling
    assert np.asarray(scaling.observation_std)[0] != 1.0  # observations are normalized
    mean, std = np.asarray(scaling.observation_mean), np.asarray(scaling.observation_std)
    assert len(seen) == FEW["steps"]
    actions = np.stack([step.action for step in seen])
    assert 0.0 < np.abs(actions).max() <= 1.0
    for index, seed in enumerate((0, 3)):
        env, episode, observation, age = make_environment(LINE), 0, None, 0
        for number, step in enumerate(seen):
            begins = number % FEW["checkpoint_every"] == 0
            if begins and observation is None and number:
                episode += 1  # begun where the one before ended, and given up at once
            if begins or observation is None:
                observation, _ = env.reset(seed=episode_seed(EPISODES_TAG, seed, episode))
                episode, age = episode + 1, 0
            assert step.age[index] == age
            assert step.number[index] == number
            np.testing.assert_array_equal(
                step.observation[index], (np.float32(observation) - mean) / std
            )
            observation, reward, termination, truncation, _ = env.step(2.0 * step.action[index])
            np.testing.assert_array_equal(
                step.next_observation[index], (np.float32(observation) - mean) / std
            )
            assert step.reward[index] == np.float32(0.5 * np.float32(reward))
            assert step.termination[index] == termination  # a time limit is none
            age += 1
            observation = None if termination or truncation else observation
        assert episode > FEW["steps"] / 12


def test_actions_that_the_environment_cuts_off_are_remembered_as_carried_out() -> None:
    scaling = Scaling(*(jnp.full(1, value) for value in (0.0, 1.0, 1.0, 3.0)))
    world = World(LINE, (0, 1), Box((-2.0,), (4.0,)), scaling)
    world.begin(0, 0)
    world.begin(1, 0)
    unit = np.array([[0.9], [-0.5]], np.float32)  # 3.7, which the line takes as 2, and -0.5
    answers = world.step(unit, np.array([True, True]))
    world.close()
    np.testing.assert_allclose(answers.action, [[1 / 3], [-0.5]])


def test_the_actor_explores_with_noise_of_a_tenth(
    folder: Path, tmp_path: Path, seen: list[replay.Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is learned: state and means stay as they were.
    still = np.array([True, True])
    monkeypatch.setattr(replay, "update_mixed", lambda *given: (given[4], given[8], still))
    run = finetuned(folder, tmp_path / "run", eval_every=0)
    policies = [leeward.load_policy(run, seed=seed) for seed in (0, 3)]
    scaling = policies[0].scaling
    noise = []
    for step in seen:
        for index, policy in enumerate(policies):
            observation = step.observation[index] * scaling.observation_std
            action = policy(np.asarray(observation + scaling.observation_mean)) / 2.0
            noise.append(step.action[index, 0] - action[0])
    assert np.std(noise) == pytest.approx(0.1, rel=0.2)
    assert abs(np.mean(noise)) < 0.03


# --- Updates ---


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Every call of updates: the first one's number, how many, what may be drawn, α."""
    real, calls = replay.update_mixed, []

    def update(*given: Any) -> Any:
        config, own, step, length = given[3], given[7], given[9], given[10]
        calls.append(
            {
                "first": int(step),
                "length": int(length),
                "available": own.available.tolist(),
                "alpha": np.asarray(config.alpha).tolist(),
                "steps": config.steps,
            }
        )
        return real(*given)

    monkeypatch.setattr(replay, "update_mixed", update)
    return calls


def test_updates_go_on_counting_and_rates_and_alpha_follow_their_course(
    folder: Path, tmp_path: Path, updates: list[dict[str, Any]]
) -> None:
    finetuned(folder, tmp_path / "run", alpha_end=5.0)
    assert [call["first"] for call in updates] == list(range(OFFLINE, OFFLINE + 120, 2))
    assert {call["length"] for call in updates} == {2}
    assert [call["available"] for call in updates] == [[n, n] for n in range(1, 61)]
    alpha = [2.5 * 2 ** (step / 60) for step in range(1, 61)]
    np.testing.assert_allclose([call["alpha"] for call in updates], np.array([alpha] * 2).T, 1e-5)
    assert {call["steps"] for call in updates} == {finetune_loop.NO_DECAY}


def test_cal_ql_draws_from_whole_episodes_and_catches_up_with_its_updates(
    folder: Path, tmp_path: Path, updates: list[dict[str, Any]], seen: list[replay.Seen]
) -> None:
    finetuned(folder, tmp_path / "run", "cal_ql")

    def available(run: int, number: int) -> int:
        """Transitions of whole episodes after so many steps; cut ones count one step later."""
        last = 0
        for n in range(number):
            ended = seen[n].termination[run] or seen[n].age[run] == 11
            if ended or ((n + 1) % FEW["checkpoint_every"] == 0 and n + 1 < number):
                last = n + 1
        return last

    steps = FEW["steps"]
    first = next(n for n in range(steps) if available(0, n) and available(1, n))
    assert first > 1
    assert [call["length"] for call in updates] == [2 * first, *[2] * (steps - first)]
    for number, call in zip(range(first, steps + 1), updates, strict=True):
        assert call["available"] == [available(0, number), available(1, number)]
