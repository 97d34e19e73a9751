"""`leeward inspect DATASET --plots DIR`: what is drawn of a data set."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from leeward import cli
from leeward.data.dataset import Dataset
from leeward.report.doctor import plot_dataset, principal_plane


def read_csv(path: Path) -> list[dict[str, str]]:
    """A CSV file's rows."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_continuous_data_set_is_drawn(continuous_dataset: Dataset, tmp_path: Path) -> None:
    names = plot_dataset(continuous_dataset, tmp_path)
    assert names == ["returns", "lengths", "actions", "rewards", "states"]
    for name in names:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()
    lengths = read_csv(tmp_path / "lengths.csv")
    assert sum(int(row["episodes"]) for row in lengths) == continuous_dataset.episodes
    share = [float(row["share"]) for row in read_csv(tmp_path / "actions.csv")]
    np.testing.assert_allclose(sum(share), 2.0)  # all actions of two dimensions
    rewards = read_csv(tmp_path / "rewards.csv")
    assert int(rewards[0]["rows"]) == continuous_dataset.episodes
    first = continuous_dataset.reward[continuous_dataset.episode_start]
    np.testing.assert_allclose(float(rewards[0]["mean"]), first.mean(), rtol=1e-5)


def test_discrete_actions_are_counted(discrete_dataset: Dataset, tmp_path: Path) -> None:
    plot_dataset(discrete_dataset, tmp_path)
    taken = discrete_dataset.action[discrete_dataset.recorded]
    share = [float(row["share"]) for row in read_csv(tmp_path / "actions.csv")]
    np.testing.assert_allclose(share, np.bincount(taken, minlength=3) / len(taken), rtol=1e-6)


def test_images_have_no_map_of_states(tmp_path: Path) -> None:
    data = Dataset.from_arrays(
        np.zeros((6, 4, 4, 1), np.uint8),
        np.array([0, 1, 0, 1, 0, 1]),
        np.zeros(6),
        np.array([False] * 5 + [True]),
    )
    assert "states" not in plot_dataset(data, tmp_path)


def test_the_first_component_points_along_the_largest_variation() -> None:
    generator = np.random.default_rng(0)
    along = generator.normal(size=500)
    observation = np.stack([along, along + 0.1 * generator.normal(size=500), np.ones(500)], axis=1)
    observation = np.concatenate([observation, 0.5 * generator.normal(size=(500, 1))], axis=1)
    place, explained = principal_plane(observation)
    assert abs(np.corrcoef(place[:, 0], along)[0, 1]) > 0.99
    assert explained[0] == pytest.approx(0.66, abs=0.02)  # two of three varying columns
    assert explained[1] == pytest.approx(0.33, abs=0.02)


def test_the_command_draws(npz: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "plots"
    assert cli.main(["inspect", str(npz), "--plots", str(out)]) == 0
    printed = capsys.readouterr().out.splitlines()[-1]
    assert printed == f"plots: {out} (returns, lengths, actions, rewards, states)"
    assert len(list(out.iterdir())) == 15
