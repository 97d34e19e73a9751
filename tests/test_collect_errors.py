"""What collecting refuses, and with which words."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import small_environments
from collecting import CORRIDOR, LINE, ONLINE
from leeward.collect import CollectOptions, collect
from leeward.collect_learner import claim
from leeward.collect_plan import Plan
from leeward.errors import CheckpointError, ConfigError, DataError, SimulationError, SpecError
from leeward.run import locked


def message(kind: type[Exception], *given: Any) -> str:
    """The text with which a call is refused."""
    with pytest.raises(kind) as error:
        collect(*given)
    return str(error.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"policy": "sca"},
            "unknown --policy 'sca'. Did you mean sac? It is sac, qrdqn, random, or a run "
            "directory",
        ),
        (
            {"policy": "random", "dataset": ("expert",)},
            "--dataset chooses among what an online learner gives, and --policy random gives one "
            "data set: leave --dataset out",
        ),
        (
            {"policy": "random", "noise": 0.1},
            "--noise and --epsilon change nothing with --policy random",
        ),
        (
            {"dataset": ("expret",)},
            "unknown --dataset 'expret'. Did you mean expert? It is one of expert, medium, "
            "medium-replay, full-replay, medium-expert, random",
        ),
        ({"dataset": ("medium", "medium")}, "--dataset names one twice: medium medium"),
        (
            {"dataset": ("replay", "medium-replay")},
            "--dataset names one twice: replay medium-replay",
        ),
        ({"transitions": 0}, "--transitions must be at least 1, got 0"),
        ({"noise": -0.1}, "--noise must be 0 or more, got -0.1"),
        ({"epsilon": 1.5}, "--epsilon must lie between 0 and 1, got 1.5"),
        ({"seed": -1}, "--seed must lie between 0 and 4294967295, got -1"),
    ],
)
def test_impossible_options_are_refused(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    assert message(ConfigError, LINE, tmp_path, CollectOptions(**options)) == text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"eval_every": 0}, "--eval-every must be at least 1, got 0"),
        (
            {"random_steps": 120},
            "--random-steps must be 0 or more and less than --steps 120, got 120",
        ),
        ({"hidden": ()}, "--hidden needs one positive size or more, such as --hidden 256 256"),
        ({"lr": 0.0}, "--lr must be positive, got 0.0"),
        ({"discount": 1.0}, "--discount must lie in [0, 1), got 1.0"),
    ],
)
def test_impossible_trainings_are_refused(
    tmp_path: Path, change: dict[str, Any], text: str
) -> None:
    given = dataclasses.replace(ONLINE, **change)
    assert message(ConfigError, LINE, tmp_path, CollectOptions(), given) == text
    assert not list(tmp_path.iterdir())


def test_a_data_set_that_exists_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "line-medium-v0.hdf5"
    path.write_text("mine")
    options = CollectOptions(dataset=("expert", "medium"))
    text = message(DataError, LINE, tmp_path, options, ONLINE)
    assert text == f"{path} exists already: remove it, or choose another --out"
    assert path.read_text() == "mine"


def test_one_file_holds_one_data_set(tmp_path: Path) -> None:
    options = CollectOptions(dataset=("expert", "medium"))
    text = message(ConfigError, LINE, tmp_path / "data.hdf5", options, ONLINE)
    assert text == f"--out {tmp_path}/data.hdf5 is one file, for 2 data sets: name a folder"


def test_another_training_is_not_continued(tmp_path: Path) -> None:
    plan = Plan(LINE, tmp_path, CollectOptions(dataset=("random",), transitions=5), ONLINE)
    plan.training.mkdir()
    claim(plan)
    other = dataclasses.replace(ONLINE, lr=0.1)
    text = message(ConfigError, LINE, tmp_path, plan.options, other)
    assert text == (
        f"{tmp_path}/training holds a training with lr 0.01, not 0.1: choose another --out"
    )
    (tmp_path / "training" / "config.json").write_text("{")
    text = message(CheckpointError, LINE, tmp_path, plan.options, ONLINE)
    assert text.endswith(f"remove the folder {tmp_path}/training")


def test_a_training_that_runs_elsewhere_is_left_alone(tmp_path: Path) -> None:
    with locked(tmp_path / "training"):
        text = message(CheckpointError, LINE, tmp_path, CollectOptions(), ONLINE)
    assert text == (
        f"{tmp_path}/training is in use by another process: wait for it, or choose another --out"
    )


def test_sac_refuses_discrete_actions(tmp_path: Path) -> None:
    text = message(SpecError, CORRIDOR, tmp_path, CollectOptions(), ONLINE)
    assert text == (
        "environment LeewardTest/Corridor-v0 has discrete actions, and sac learns continuous ones: "
        "use --policy qrdqn, random, or a run that was trained in it"
    )


def test_noise_needs_continuous_actions(tmp_path: Path) -> None:
    options = CollectOptions(policy=str(tmp_path), noise=0.1)
    text = message(ConfigError, CORRIDOR, tmp_path, options)
    assert text == "--noise needs continuous actions, and LeewardTest/Corridor-v0 has discrete ones"


def test_an_environment_that_breaks_is_named(tmp_path: Path) -> None:
    class Broken(small_environments.Line):
        def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
            return np.array([np.nan, 0.0]), 0.0, False, False, {}

    def broken() -> gymnasium.Env:
        return Broken()

    options = CollectOptions(policy="random", transitions=5)
    text = message(SimulationError, broken, tmp_path, options)
    assert text.endswith("gave an observation that is not finite")
    assert not list(tmp_path.iterdir())
