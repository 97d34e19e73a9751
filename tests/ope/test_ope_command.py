"""`leeward ope`: runs ranked on data, and what it says of bad input."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leeward import cli
from leeward.data.dataset import Dataset
from leeward.errors import CheckpointError, ConfigError, SpecError
from leeward.ope import OpeOptions, Target, estimate
from leeward.ope.candidates import candidates
from leeward.ope.report import ESTIMATORS
from leeward.policy import save_policy
from pushing import push, sway
from training import train

FLAGS = ["--steps", "40", "--behavior-steps", "40", "--hidden", "8", "--batch-size", "16"]


@pytest.fixture
def saved(tmp_path: Path, continuous_dataset: Dataset) -> list[str]:
    """Two saved policies: one that pushes home, one that pushes away."""
    paths = []
    for name, gain in (("home", 1.0), ("away", -3.0)):
        save_policy(tmp_path / name, push(continuous_dataset, gain))
        paths.append(str(tmp_path / name))
    return paths


def error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["ope", *arguments]) == 2
    return capsys.readouterr().err.splitlines()[-1].removeprefix("leeward: error: ")


def test_policies_are_ranked_in_a_table_as_json_and_as_csv(
    saved: list[str], npz: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "ope.csv"
    kept = ["--csv", str(target), "--out", str(tmp_path)]
    assert cli.main(["ope", *saved, str(npz), *FLAGS, *kept, "--quiet"]) == 0
    shown = capsys.readouterr().out
    for word in ("home seed 0", "away seed 0", *ESTIMATORS, "the data's own: -", "agreement of"):
        assert word in shown
    assert "of the discounted weight is still to come" in shown
    rows = list(csv.DictReader(target.read_text().splitlines()))
    assert len(rows) == 2 * len(ESTIMATORS)
    assert cli.main(["ope", *saved, str(npz), *FLAGS, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    read = json.loads(out)
    assert json.loads((tmp_path / "ope.json").read_text()) == read
    assert read["episodes"] == 40
    assert read["verdict"] in shown.replace("\n", " ")
    for policy in read["policies"]:
        values = {row["estimator"]: row for row in rows if row["policy"] == policy["name"]}
        for name, found in policy["estimates"].items():
            assert float(values[name]["value"]) == pytest.approx(found["value"])
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".ope")] == []


def test_every_seed_and_policy_of_a_run_is_a_candidate(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    run = train(
        tmp_path / "run",
        continuous_dataset,
        seeds=(0, 3),
        checkpoint_every=10,
        log_every=10,
    )
    named = ["run seed 0", "run seed 3"]
    assert [c.name for c in candidates([run])] == [f"{name} last" for name in named]
    everything = [c.name for c in candidates([run], "all")]
    assert everything == [f"{n} last" for n in named] + [f"{n} step 10" for n in named]
    assert candidates([run])[1].policy.run.seed == 3
    other = tmp_path / "other" / "run"
    shutil.copytree(run, other)
    called = [c.name for c in candidates([run, other], "last")]
    assert called[-1] == f"{other} seed 3 last"  # two folders of one name
    with pytest.raises(CheckpointError, match="has no best policy, since it was not evaluated"):
        candidates([run], "best")


def test_a_policy_that_diverged_is_left_out(
    saved: list[str], npz: Path, tmp_path: Path, continuous_dataset: Dataset, capsys: Any
) -> None:
    save_policy(tmp_path / "nan", push(continuous_dataset, float("nan")))
    arguments = [str(tmp_path / "nan"), str(npz), *FLAGS, "--json"]
    assert cli.main(["ope", *saved, *arguments]) == 0
    read = json.loads(capsys.readouterr().out)
    assert {p["name"] for p in read["policies"]} == {"home seed 0", "away seed 0"}
    assert read["notes"][-1] == "nan seed 0 is left out: its training diverged"
    assert error(arguments, capsys) == (
        "no policy is left to evaluate: nan seed 0 is left out: its training diverged"
    )


def test_policies_with_a_density_are_valued_as_they_sample(
    saved: list[str], npz: Path, tmp_path: Path, continuous_dataset: Dataset, capsys: Any
) -> None:
    data = continuous_dataset
    policy = sway(data, 1.0, -1.0)
    target = Target.of_policy("mine", policy, data, stochastic=True)
    target.check(data)
    assert target.choice.shape == (len(data.reward), 8, 2)
    point = data.observation[:, None, :2].astype(np.float64)
    noise = np.arctanh(target.choice.astype(np.float64).clip(-1 + 1e-7, 1 - 1e-7)) + point
    assert noise.mean() == pytest.approx(0.0, abs=0.02)
    assert noise.std() == pytest.approx(np.exp(-1.0), abs=0.02)
    assert len(np.unique(target.choice[..., 0])) > 7 * len(data.reward)  # all are drawn apart
    np.testing.assert_array_equal(
        target.log_density, policy.log_prob(data.observation, data.action)
    )
    with pytest.raises(SpecError, match="mine has no density, so it cannot be valued"):
        Target.of_policy("mine", push(data, 1.0), data, stochastic=True)
    save_policy(tmp_path / "sway", policy)
    line = ["ope", saved[0], str(tmp_path / "sway"), str(npz), *FLAGS, "--stochastic", "--json"]
    assert cli.main(line) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["notes"][-2:] == [
        "home seed 0 is valued by its deterministic action: it has no density",
        "sway seed 0 is valued as it samples",
    ]
    for found in read["policies"]:
        assert all(one["value"] is not None for one in found["estimates"].values())


def test_a_stochastic_target_needs_draws_and_their_density(continuous_dataset: Dataset) -> None:
    rows = len(continuous_dataset.reward)
    together = (
        "mine: several actions a row and the log-density of the data's actions go together: give "
        "both for a stochastic policy over continuous actions, else none"
    )
    draws, density = np.zeros((rows, 4, 2)), np.zeros(rows)
    for target, text in (
        (Target("mine", draws), together),
        (Target("mine", draws[:, 0], log_density=density), together),
        (
            Target("mine", draws, log_density=density[:3]),
            f"mine: log-densities must be {rows} numbers, one a row, got shape (3,)",
        ),
        (
            Target("mine", draws, log_density=density + np.nan),
            f"mine: log-densities must be {rows} numbers, one a row, got shape ({rows},) with NaN",
        ),
    ):
        with pytest.raises(SpecError) as caught:
            estimate(continuous_dataset, [target])
        assert str(caught.value) == text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--discount", "1"], "--discount must be at least 0 and below 1, got 1.0"),
        (["--steps", "0"], "--steps must be at least 1, got 0"),
        (["--bandwidth", "0"], "--bandwidth must be above 0 and at most 10, got 0.0"),
        (["--csv", "nowhere/ope.csv"], "--csv nowhere/ope.csv: there is no folder nowhere"),
        (["--out", "nowhere/ope.json"], "--out nowhere/ope.json: there is no folder nowhere"),
    ],
)
def test_impossible_settings_are_one_line(
    saved: list[str], npz: Path, flags: list[str], message: str, capsys: Any
) -> None:
    assert error([*saved, str(npz), *flags], capsys) == message


def test_a_run_and_a_data_set_are_needed(saved: list[str], npz: Path, capsys: Any) -> None:
    assert error(saved[:1], capsys) == (
        "name one run or more, then the data set: leeward ope RUN… DATASET (leeward list datasets "
        "shows the names)"
    )
    assert error(["missing", str(npz)], capsys) == "missing does not exist"
    behavior = ["--behavior", saved[1]]
    assert error([saved[0], str(npz), *behavior], capsys) == (
        "the behavior policy (td3_bc) has no density: give one that has, such as BC with --density "
        "mixture, or none"
    )


def test_policies_of_another_task_are_refused(
    continuous_dataset: Dataset, discrete_dataset: Dataset
) -> None:
    with pytest.raises(SpecError) as caught:
        Target.of_policy("mine", push(continuous_dataset, 1.0), discrete_dataset)
    assert str(caught.value) == (
        "mine was made for observations (3,) and 2 continuous action dimensions, but small-discrete"
        " has observations (5,) and 3 discrete actions"
    )
    with pytest.raises(SpecError, match=r"mine: choices have shapes \(4, 2\) and None"):
        estimate(continuous_dataset, [Target("mine", np.zeros((4, 2)))])
    rows = len(continuous_dataset.reward)
    with pytest.raises(SpecError, match="mine: choices are not all finite numbers"):
        estimate(continuous_dataset, [Target("mine", np.full((rows, 2), np.nan))])
    halves = Target("mine", np.full((len(discrete_dataset.reward), 3), 0.5))
    with pytest.raises(SpecError, match="mine: probabilities of actions do not sum to 1"):
        estimate(discrete_dataset, [halves])
    with pytest.raises(ConfigError, match="there is no policy to evaluate"):
        estimate(continuous_dataset, [])
    still = Target("mine", np.zeros((rows, 2)))
    with pytest.raises(SpecError) as caught:
        estimate(continuous_dataset, [still], behavior=np.zeros(3))
    assert str(caught.value) == (
        f"the behavior's log-densities must be {rows} finite numbers, one a row, got shape (3,)"
    )


def test_data_without_order_give_fitted_values_alone(continuous_dataset: Dataset) -> None:
    data = continuous_dataset
    apart = dataclasses.replace(data, next_observation=data.observation[data.start] + 0.1)
    assert not apart.next_rows_chain()
    report = estimate(
        apart,
        [push(data, 1.0)],
        OpeOptions(steps=20, hidden=(8,), batch_size=16),
        behavior=np.zeros(len(data.reward)),
    )
    (found,) = report.policies
    assert found.name == "policy 0"
    assert report.episodes == 40
    for name in ESTIMATORS:
        one = found.estimates[name]
        assert (one.value is not None) == (name == "fqe"), name
        if name != "fqe":
            assert (
                "next observations do not chain row to row, so episodes are not known as wholes"
            ) in one.reasons
    assert report.behavior.value is None
