"""Which of the settings that were trained together is taken where nothing says which is meant."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from leeward import cli
from leeward.algorithms import bc, td3_bc
from leeward.data.dataset import Dataset
from leeward.held_out import favored
from leeward.job import Job
from leeward.options import RunOptions
from leeward.policy import TrainedRun, load_policy, save_policy
from leeward.run import Run, keep_favored
from test_policy import stack_of
from test_policy_folder import CONFIG, message, run_directory

NUMBERS = {
    "held_out/squared_error": np.asarray([4.0, 2.0, 1.0, 1.5, np.nan, 9.0]),
    "held_out/log_likelihood": np.asarray([1.0, 2.0, 5.0, 0.0, 9.0, np.nan]),
}


def job(dataset: Dataset) -> Job:
    """Two seeds with each of three rates."""
    return Job(
        algorithm=bc.ALGORITHM,
        config=bc.Config(),
        settings=tuple({"lr": rate} for rate in (0.1, 0.2, 0.3) for _ in range(2)),
        seeds=(7, 8) * 3,
        steps=1,
        options=RunOptions(),
        dataset=dataset,
        environment=None,
    )


def test_the_highest_likelihood_is_favored_else_the_smallest_error(
    continuous_dataset: Dataset,
) -> None:
    """Means over the seeds that did not diverge."""
    runs = job(continuous_dataset)
    by_likelihood = favored(runs, NUMBERS, without=[4])
    assert by_likelihood is not None
    assert by_likelihood.to_json() == {
        "runs": [2, 3], "settings": {"lr": 0.2}, "measure": "log_likelihood",
    }  # fmt: skip
    assert by_likelihood.text == (
        "held-out episodes favor lr=0.2, by log likelihood (the mean over 2 seeds): lr=0.2 2.5, "
        "lr=0.1 1.5; run 2 is the one that is exported and loaded unless --run-index names another"
    )
    error = {"held_out/squared_error": NUMBERS["held_out/squared_error"]}
    by_error = favored(runs, error, without=[2, 3])
    assert by_error is not None
    assert (by_error.runs, by_error.measure) == ((0, 1), "squared_error")
    assert favored(runs, NUMBERS, without=[0, 1, 4]) is None  # one setting alone is left
    assert favored(runs, {"training/log_likelihood": np.zeros(6)}, without=[]) is None


def test_what_is_favored_is_kept_until_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    run = Run(tmp_path)
    assert run.favored == ()
    keep_favored(tmp_path, {"runs": [1, 3]})
    assert run.favored == (1, 3)
    keep_favored(tmp_path, None)
    keep_favored(tmp_path, None)
    assert run.favored == ()


def test_a_run_directory_says_which_settings_are_favored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its best policies, its last ones and its checkpoints; exporting says which it took."""
    directory = run_directory(tmp_path)
    settings = tuple(TrainedRun(seed, {"alpha": 1.0 + seed}, 400) for seed in (3, 1))
    stack = dataclasses.replace(stack_of(td3_bc.ALGORITHM, CONFIG), runs=settings)
    save_policy(directory / "best", stack)
    out = tmp_path / "policy.py"
    assert cli.main(["export", str(directory), "--out", str(out)]) == 2
    choices = "choose one (run 0: alpha 4; run 1: alpha 2)"
    assert capsys.readouterr().err.endswith(f"the settings differ, {choices}\n")
    choice = {"runs": [1], "settings": {"alpha": 2.0}, "measure": "log_likelihood"}
    (directory / "favored.json").write_text(json.dumps(choice))
    assert load_policy(directory).run.seed == 1
    assert cli.main(["export", str(directory), "--out", str(out)]) == 0
    assert "\nrun 1: held-out episodes favor alpha 2\n" in capsys.readouterr().out
    asked = ["--out", str(tmp_path / "asked.py"), "--run-index", "0"]
    assert cli.main(["export", str(directory), *asked]) == 0
    assert "favor" not in capsys.readouterr().out
    (directory / "favored.json").write_text("{}")
    assert message(directory) == (
        f"{directory / 'favored.json'} is damaged: delete it, and name the run yourself"
    )
