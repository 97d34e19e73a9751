"""Data whose file says that rewards are clipped: no return is told of it, none chooses episodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fabricated import write_run
from leeward import cli
from leeward.algorithms import discrete_bc
from leeward.commands.show import evaluation_table
from leeward.data.checks import inspect
from leeward.data.convert import write_file
from leeward.data.dataset import Dataset, best_episodes
from leeward.data.load import load_dataset
from leeward.data.reduce import Reduction, reduce_dataset
from leeward.data.transforms import reward_transform
from leeward.description import describe
from leeward.errors import DataError
from leeward.job import Job
from leeward.options import RunOptions
from leeward.run import Run


@pytest.fixture
def clipped(discrete_dataset: Dataset) -> Dataset:
    said = {"rewards": "clipped to [-1, 1]"}
    return discrete_dataset.with_metadata(file_metadata=said, reference_scores=SCORES)


SCORES = {"minimum": 0.0, "maximum": 1.0}


def described(dataset: Dataset) -> dict:
    """What config.json says of a data set."""
    options, config = RunOptions(), discrete_bc.Config()
    job = Job(discrete_bc.ALGORITHM, config, ({},), (0,), 1, options, dataset, None)
    return describe(job, dataset, {}, inspect(dataset))["data"]


def test_no_mean_return_is_told(clipped: Dataset, discrete_dataset: Dataset) -> None:
    assert (clipped.return_mean, clipped.clipped_rewards) == (None, True)
    assert described(clipped)["return_mean"] is None
    assert described(reward_transform(clipped, "sign"))["return_mean"] is None
    mean = discrete_dataset.episode_returns().mean()
    assert (discrete_dataset.return_mean, discrete_dataset.clipped_rewards) == (mean, False)
    assert described(discrete_dataset)["return_mean"] == mean
    assert described(reward_transform(discrete_dataset, scale=2.0))["return_mean"] == mean


def test_no_normalized_score_is_told(clipped: Dataset) -> None:
    assert "score" not in inspect(clipped).summary
    assert "score" in inspect(clipped.with_metadata(file_metadata={})).summary


def test_episodes_are_not_chosen_by_their_returns(clipped: Dataset) -> None:
    with pytest.raises(DataError) as error:
        best_episodes(clipped, 0.1)
    assert str(error.value) == (
        "small-discrete: rewards are clipped, so returns do not say which episodes are best: leave "
        "--best-fraction out"
    )
    for chosen in (Reduction(least_return=0.0), Reduction(most_return=1.0)):
        with pytest.raises(DataError) as error:
            reduce_dataset(clipped, chosen)
        assert str(error.value) == (
            "small-discrete: rewards are clipped, so episodes' returns are not known: leave "
            "--least-return and --most-return out"
        )
    left = reduce_dataset(clipped, Reduction(episodes=2))
    assert len(np.unique(left.episode_of_row[left.start])) == 2


def test_the_file_says_it_again_when_it_is_converted(
    clipped: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.hdf5", tmp_path / "second.hdf5"
    write_file(first, clipped)
    assert cli.main(["convert", str(first), str(second)]) == 0
    note = "rewards are clipped to [-1, 1]: what episodes returned is not known"
    out = capsys.readouterr().out
    assert f"note: {note}" in out
    assert out.splitlines()[-1].endswith("in 40 episodes, mean return not known")
    found = load_dataset(second)
    assert found.return_mean is None
    assert note in found.metadata["notes"]
    np.testing.assert_array_equal(found.reward, clipped.reward)


def test_the_table_of_a_run_says_so(tmp_path: Path) -> None:
    run = Run(write_run(tmp_path / "run", [1.0], data__return_mean=None))
    title = "td3-bc on made-up-v0 (mean return of the data: not known)"
    assert evaluation_table(run).title == title
