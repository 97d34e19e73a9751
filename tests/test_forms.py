"""Names that stand for two algorithms mean the one that the data's actions ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leeward
import small_environments  # noqa: F401 (registers LeewardTest/)
from leeward import cli
from leeward.algorithms import ALGORITHMS, DISCRETE, get_algorithm
from leeward.data.dataset import Dataset
from leeward.data.write import write_dataset
from leeward.errors import DataError, LeewardError
from leeward.forms import fitting_form
from training import train

FORMS = ("bc", "bcq", "cql", "crr", "iql")


def form(data: Any, env: Any = None, **options: Any) -> str:
    return fitting_form(get_algorithm("bcq"), data, env, options).name


@pytest.fixture
def rows(discrete_dataset: Dataset) -> dict[str, np.ndarray]:
    """Columns of a file with integer actions."""
    data = discrete_dataset
    return {
        "observations": data.observation,
        "actions": data.action,
        "rewards": data.reward,
        "terminals": data.termination,
        "timeouts": data.truncation,
    }


def test_these_algorithms_have_two_forms() -> None:
    assert {name for name in ALGORITHMS if name.startswith(DISCRETE)} == {
        DISCRETE + name for name in FORMS
    }
    for name in FORMS:
        assert get_algorithm(name).actions == ("continuous",)
        assert get_algorithm(DISCRETE + name).actions == ("discrete",)


def test_data_in_memory_decide(discrete_dataset: Dataset, continuous_dataset: Dataset) -> None:
    for name in FORMS:
        algorithm = get_algorithm(name)
        assert fitting_form(algorithm, discrete_dataset, None, {}).name == DISCRETE + name
        assert fitting_form(algorithm, continuous_dataset, None, {}) is algorithm
    only = get_algorithm("td3_bc")
    assert fitting_form(only, discrete_dataset, None, {}) is only


def test_files_decide_by_what_they_state_and_store(
    tmp_path: Path,
    discrete_dataset: Dataset,
    continuous_dataset: Dataset,
    rows: dict[str, np.ndarray],
) -> None:
    for name, data in (("discrete", discrete_dataset), ("continuous", continuous_dataset)):
        write_dataset(tmp_path / f"{name}.hdf5", data)
    assert form(tmp_path / "discrete.hdf5") == "discrete_bcq"
    assert form(str(tmp_path / "continuous.hdf5")) == "bcq"
    np.savez(tmp_path / "integers.npz", **rows)
    np.savez(tmp_path / "floats.npz", **(rows | {"actions": rows["actions"] / 2.0}))
    assert form(tmp_path / "integers.npz") == "discrete_bcq"
    assert form(tmp_path / "floats.npz") == "bcq"
    assert form(tmp_path / "integers.npz", action_low=[0.0], action_high=[4.0]) == "bcq"
    np.savez(tmp_path / "stated.npz", **(rows | {"actions": rows["actions"] / 1.0}), action_count=3)
    assert form(tmp_path / "stated.npz") == "discrete_bcq"


def test_tables_names_and_environments_decide(tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    lines = ["obs_0,action,reward,done,episode_id,t"]
    lines += [f"{i / 10},{i % 3},{i % 2},{int(i % 5 == 4)},{i // 5},{i % 5}" for i in range(20)]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    assert form(tmp_path / "log.csv") == "discrete_bcq"
    assert form("hopper-medium-v2") == "bcq"  # without fetching it
    np.savez(tmp_path / "integers.npz", **rows)
    assert form(tmp_path / "integers.npz", "LeewardTest/Corridor-v0") == "discrete_bcq"
    with pytest.raises(DataError, match="no such file"):
        form(tmp_path / "missing.hdf5")


def test_training_goes_by_the_form(tmp_path: Path, discrete_dataset: Dataset) -> None:
    directory = train(tmp_path / "run", discrete_dataset, "il", lr=1e-3)
    saved = json.loads((directory / "config.json").read_text())
    assert saved["algorithm"] == "discrete_bc"
    assert saved["config"]["lr"] == 1e-3
    policy = leeward.load_policy(directory)
    assert policy(discrete_dataset.observation[:4]).dtype == np.int32
    assert leeward.resume(directory, data=discrete_dataset, steps=25, quiet=True).finished


def test_the_command_says_which_form_it_takes(
    tmp_path: Path, rows: dict[str, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "small.npz", **rows)
    arguments = ["train", "bcq", str(tmp_path / "small.npz"), "--threshold", "0.2"]
    arguments += ["--hidden", "8", "--batch-size", "8", "--steps", "5", "--logger"]
    assert cli.main([*arguments, "--run-dir", str(tmp_path / "run")]) == 0
    assert "actions are discrete: bcq is discrete-bcq here" in capsys.readouterr().out
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["algorithm"] == "discrete_bcq"
    assert saved["config"]["threshold"] == 0.2
    # A flag of the other form alone is refused, with the form's name.
    assert cli.main([*arguments, "--phi", "0.1"]) == 2
    assert "unknown flag --phi for leeward train discrete-bcq" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("algorithm", "text"),
    [
        ("bcq", "the data: images of 10 × 10 pixels are too small for the convolutions"),
        ("awac", "awac needs continuous actions"),
    ],
)
def test_images_that_do_not_fit_are_refused_before_a_run_is_made(
    tmp_path: Path, algorithm: str, text: str
) -> None:
    data = Dataset.from_arrays(
        np.zeros((9, 10, 10, 4), np.uint8),
        np.arange(9) % 3,
        np.zeros(9),
        np.zeros(9, bool),
    )
    with pytest.raises(LeewardError) as error:
        train(tmp_path / "run", data, algorithm, ignore_errors=True)
    assert str(error.value).startswith(text)
    assert not (tmp_path / "run").exists()
