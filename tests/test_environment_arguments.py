"""Environments that are made with arguments: named with them, from a data set to a run's files."""

from __future__ import annotations

import copy
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import WrapperSpec
from minari.data_collector import EpisodeBuffer

import leeward
from leeward.data.convert import write_file
from leeward.data.load import load_dataset
from leeward.data.minari_environment import implied
from leeward.environments import (
    check_matches,
    environment_spec,
    make_environment,
    split_arguments,
)
from leeward.errors import SimulationError, SpecError
from leeward.policy import load_policy
from minari_sets import create
from training import train

STATE = spaces.Box(-10.0, 10.0, (4,), np.float32)
ENV = 'CartPole-v1?{"sutton_barto_reward": true}'


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_set_is_evaluated_in_the_environment_with_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With this argument CartPole gives 0 at every step, and −1 at the end."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    spec = copy.deepcopy(gymnasium.spec("CartPole-v1"))
    spec.kwargs["sutton_barto_reward"] = True
    create(
        "test/pole/expert-v0",
        [
            EpisodeBuffer(
                id=0,
                observations=np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32),
                actions=np.arange(8) % 2,
                rewards=[0.0] * 7 + [-1.0],
                terminations=[False] * 7 + [True],
                truncations=[False] * 8,
            )
        ],
        env=spec,
        observation_space=STATE,
        action_space=spaces.Discrete(2),
    )
    data = load_dataset("test/pole/expert-v0", offline=True)
    assert data.metadata["env"] == ENV
    write_file(tmp_path / "pole.hdf5", data)
    run = train(tmp_path / "run", tmp_path / "pole.hdf5", "bc", steps=1, eval_episodes=2)
    assert leeward.Run(run).config["environment"] == ENV
    assert leeward.Run(run).evaluations()[-1]["returns"] == [-1.0, -1.0]
    assert load_policy(run).env == ENV


def test_only_what_the_id_does_not_stand_for_is_named() -> None:
    def name(environment: str, **changes: object) -> str | None:
        spec = copy.deepcopy(gymnasium.spec(environment))
        limit = changes.pop("max_episode_steps", spec.max_episode_steps)
        spec.kwargs.update(changes)
        spec.max_episode_steps = limit
        return implied(spec, STATE).env

    assert name("CartPole-v1", render_mode="rgb_array") == "CartPole-v1"
    assert name("CartPole-v1", max_episode_steps=9) == 'CartPole-v1?{"max_episode_steps": 9}'
    assert name("FrozenLake-v1") == "FrozenLake-v1"  # registered with an argument
    assert name("FrozenLake-v1", map_name="8x8") == 'FrozenLake-v1?{"map_name": "8x8"}'
    assert implied(None, STATE).env is None


def test_wrapped_environments_and_odd_arguments_imply_none_and_say_so() -> None:
    spec = copy.deepcopy(gymnasium.spec("CartPole-v1"))
    spec.additional_wrappers = (WrapperSpec("Clip", "m:Clip", {}),)
    found = implied(spec, STATE)
    assert (found.env, *found.notes) == (
        None,
        "recorded in CartPole-v1 inside wrappers (Clip), which are not made again: no environment "
        "is implied; --env names one that is like it",
    )
    spec = copy.deepcopy(gymnasium.spec("CartPole-v1"))
    spec.kwargs["callback"] = print
    found = implied(spec, STATE)
    assert found.env is None
    assert "with arguments that are no JSON values" in found.notes[0]


def test_arguments_reach_the_environment() -> None:
    made = make_environment(ENV, render_mode="rgb_array")
    assert made.unwrapped._sutton_barto_reward is True  # type: ignore[attr-defined]
    assert made.render_mode == "rgb_array"
    made.close()
    assert environment_spec('CartPole-v1?{"max_episode_steps": 9}').max_episode_steps == 9


def test_the_same_task_is_told_by_the_id_alone() -> None:
    known = environment_spec(ENV)
    spec = leeward.Dataset.from_arrays(
        np.zeros((3, 4)), np.arange(3) % 2, np.zeros(3), np.zeros(3, bool)
    ).spec
    check_matches(spec, {"env": "CartPole-v1"}, known)
    with pytest.raises(SpecError, match="was recorded in Acrobot-v1, not in CartPole-v1"):
        check_matches(spec, {"env": "Acrobot-v1"}, known)


@pytest.mark.parametrize("text", ["frame_skip=2", "[1]", '{"a": '])
def test_other_arguments_are_refused(text: str) -> None:
    with pytest.raises(SimulationError) as error:
        make_environment(f"CartPole-v1?{text}")
    assert str(error.value) == (
        f"environment CartPole-v1?{text}: behind '?' there must be arguments as one JSON object, "
        'such as {"frame_skip": 2}'
    )


def test_arguments_that_the_environment_does_not_take_are_one_line() -> None:
    with pytest.raises(SimulationError, match="environment CartPole-v1 cannot be made: TypeError"):
        make_environment('CartPole-v1?{"nothing": 1}')


def test_ids_without_arguments_stay_as_they_are() -> None:
    assert split_arguments("ALE/Pong-v5") == ("ALE/Pong-v5", {})
    assert split_arguments(ENV) == ("CartPole-v1", {"sutton_barto_reward": True})
