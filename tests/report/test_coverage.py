"""How far a policy leaves its data: distances that can be told by hand, and the command."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from leeward import cli
from leeward.data.dataset import Dataset
from leeward.errors import DataError, SpecError
from leeward.policy import save_policy
from leeward.report.coverage import coverage, plot_coverage
from leeward.report.figures import Gallery
from pushing import push


def line(noise: float) -> Dataset:
    """400 states on a line, at each of which the action is minus the state, with noise."""
    generator = np.random.default_rng(0)
    place = generator.uniform(-1, 1, size=(400, 1))
    action = np.clip(-place + noise * generator.normal(size=(400, 1)), -2, 2)
    return Dataset.from_arrays(
        place, action, np.zeros(400), np.arange(400) % 20 == 19, action_low=-2.0, action_high=2.0
    )


def test_a_policy_that_acts_as_the_data_is_inside() -> None:
    found = coverage(line(0.1), lambda observation: -observation)
    assert found.outside < 0.05
    assert found.policy.shape == found.data.shape == (200,)


def test_a_policy_that_acts_otherwise_is_outside_by_its_distance() -> None:
    found = coverage(line(0.0), lambda observation: 1.0 - observation)
    assert found.outside == 1.0
    # 1 away, in half ranges of 2; the nearest of ten neighbors is a little nearer.
    np.testing.assert_allclose(found.policy, 0.5, atol=0.06)


def test_discrete_actions_are_compared_with_those_of_like_states(
    discrete_dataset: Dataset,
) -> None:
    # Action 1 stays, which a fifth of the data does at every place.
    found = coverage(discrete_dataset, lambda observation: np.ones(len(observation), np.int32))
    assert found.policy.mean() == pytest.approx(0.8, abs=0.1)
    assert found.data.mean() < found.policy.mean()


def test_what_cannot_be_compared_is_refused() -> None:
    images = Dataset.from_arrays(
        np.zeros((30, 4, 4, 1), np.uint8), np.zeros(30, int), np.zeros(30), np.arange(30) == 29
    )
    with pytest.raises(DataError) as caught:
        coverage(images, lambda observation: np.zeros(len(observation)))
    assert str(caught.value) == (
        "the data set has images: coverage needs vectors, and twenty states at least"
    )
    with pytest.raises(SpecError) as other:
        coverage(line(0.1), lambda observation: np.zeros((len(observation), 3)))
    assert str(other.value) == ("the policy's actions have shape (3,), those of the data set (1,)")


def test_it_is_drawn(tmp_path: Path) -> None:
    plot_coverage(coverage(line(0.1), lambda observation: -observation), Gallery(tmp_path))
    assert (tmp_path / "coverage.png").is_file()
    assert "Policy outside the data" in (tmp_path / "coverage.svg").read_text()


def test_states_that_are_not_finite_are_left_out() -> None:
    data = line(0.1)
    observation = data.observation.copy()
    observation[5], observation[390] = np.nan, np.inf
    odd = dataclasses.replace(data, observation=observation)

    def act(observation: np.ndarray) -> np.ndarray:
        assert np.isfinite(observation).all()
        return -observation

    found = coverage(odd, act)
    assert found.outside < 0.06
    assert np.isfinite(found.policy).all()
    assert np.isfinite(found.data).all()
    assert len(found.policy) == 199


def test_the_command_draws_a_run_s_coverage(
    npz: Path, tmp_path: Path, continuous_dataset: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    run, plots = str(tmp_path / "run"), tmp_path / "plots"
    save_policy(run, push(continuous_dataset, 1.0))
    assert cli.main(["inspect", str(npz), "--plots", str(plots), "--policy", run]) == 0
    drawn = f"plots: {plots} (returns, lengths, actions, rewards, states, coverage)"
    assert capsys.readouterr().out.splitlines()[-1] == drawn
    with (plots / "coverage.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 101
    assert [row["policy beyond"] for row in rows] != [row["data beyond"] for row in rows]
    # Data with a fault: the report comes first, and what can be drawn is.
    with np.load(npz) as archive:
        columns = dict(archive)
    columns["observations"][3, 0] = np.nan
    np.savez(tmp_path / "odd.npz", **columns)
    odd = str(tmp_path / "odd.npz")
    assert cli.main(["inspect", odd, "--plots", str(plots), "--policy", run]) == 2
    said = capsys.readouterr().out
    assert "observation is NaN or infinite in 1 rows" in said
    assert said.splitlines()[-1] == drawn
    assert cli.main(["inspect", str(npz), "--policy", "a run"]) == 2
    assert capsys.readouterr().err == (
        "leeward: error: --policy draws how far a run leaves the data: name a folder with --plots\n"
    )
    assert cli.main(["inspect", str(npz), "--plots", str(plots), "--policy", "a run"]) == 2
    said, error = capsys.readouterr()
    assert (said, error) == ("", "leeward: error: a run does not exist\n")
