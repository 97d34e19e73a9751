"""How far a policy leaves its data: distances that can be told by hand, and the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from leeward import cli, policy
from leeward.data.dataset import Dataset
from leeward.errors import DataError, SpecError
from leeward.report.coverage import coverage, plot_coverage
from leeward.report.figures import Gallery


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


def test_the_command_draws_a_run_s_coverage(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def still(observation: np.ndarray) -> np.ndarray:
        return np.zeros((len(observation), 2), np.float32)

    def load_policy(path: str) -> Callable[[np.ndarray], np.ndarray]:
        asked.append(path)
        return still

    monkeypatch.setattr(policy, "load_policy", load_policy)  # a real one takes long to compile
    plots = tmp_path / "plots"
    assert cli.main(["inspect", str(npz), "--plots", str(plots), "--policy", "a run"]) == 0
    assert asked == ["a run"]
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"plots: {plots} (returns, lengths, actions, rewards, states, coverage)"
    )
    assert cli.main(["inspect", str(npz), "--policy", "a run"]) == 2
    assert capsys.readouterr().err == (
        "leeward: error: --policy draws how far a run leaves the data: name a folder with --plots\n"
    )
