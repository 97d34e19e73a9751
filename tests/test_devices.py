"""Several devices: equal results, resume with another number of them, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import leeward
from leeward.data.dataset import Dataset
from leeward.errors import ConfigError
from training import lines, train, weights

CHILD = Path(__file__).with_name("several_devices.py")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs of several_devices.py, trained where there are four devices."""
    folder = tmp_path_factory.mktemp("devices")
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", str(CHILD), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return folder


def assert_same(one: Path, other: Path, runs: int | None = None) -> None:
    """The same lines and saved policies of the first `runs` runs, to the bit."""
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        kept = [line for line in lines(one, name) if runs is None or line["run"] < runs]
        assert lines(other, name) == kept
    for policy in ("final", "best"):
        if not (one / policy).exists():
            continue
        expected = weights(one, policy)
        for name, value in weights(other, policy).items():
            kept = expected[name][:runs] if name.startswith("policy/") else expected[name]
            np.testing.assert_array_equal(value, kept, err_msg=name)


def test_runs_on_several_devices_equal_those_on_one_to_the_bit(runs: Path) -> None:
    said = (runs / "three" / "log.txt").read_text()
    assert "6 runs split over 3 devices (cpu)" in said
    assert "validation/loss" in str(lines(runs / "one"))
    assert len(lines(runs / "one", "evaluations.jsonl")) >= 6
    assert_same(runs / "one", runs / "three")


def test_a_number_of_runs_that_devices_do_not_divide_changes_nothing(runs: Path) -> None:
    # Two of five on the fullest device: a fourth device would have nothing to do.
    assert "5 runs split over 3 devices" in (runs / "five-on-four" / "log.txt").read_text()
    assert_same(runs / "one", runs / "five-on-four", runs=5)


@pytest.mark.parametrize("name", ["two-then-one", "one-then-two"])
def test_a_run_resumes_on_another_number_of_devices_to_the_same_bits(runs: Path, name: str) -> None:
    said = (runs / name / "log.txt").read_text()
    assert "resumed from" in said
    assert "2 runs split over 2 devices" in said
    assert_same(runs / "one", runs / name, runs=2)


def test_networks_on_several_devices_equal_those_on_one_to_the_bit(runs: Path) -> None:
    assert "2 runs split over 2 devices (cpu)" in (runs / "td3-two" / "log.txt").read_text()
    assert_same(runs / "td3", runs / "td3-two")


def test_observations_in_parts_change_nothing(runs: Path) -> None:
    said = (runs / "shuffled-in-parts" / "log.txt").read_text()
    assert "4 runs split over 4 devices (cpu), observations in parts" in said
    assert {"held_out/loss", "training/loss"} <= lines(runs / "shuffled")[-1].keys()
    assert_same(runs / "shuffled", runs / "shuffled-in-parts")
    for name in ("shuffled-in-parts", "shuffled-batch-in-parts"):
        whole, training, held_out = json.loads((runs / f"{name}.json").read_text())
        assert whole["observation"] == whole["next_observation"] == [120 // 4] * 4
        assert whole["reward"] == [120] * 4
        for part in (training, held_out):
            assert part["observation"] == [120 // 4] * 4  # rows are those of all the data
            assert len(set(part["next_observation"])) == 1
            assert part["next_observation"][0] == -(-part["start"][0] // 4)


@pytest.mark.parametrize(
    ("one", "several"), [("td3", "td3-batch"), ("shuffled", "shuffled-batch-in-parts")]
)
def test_batches_on_several_devices_give_the_same_up_to_rounding(
    runs: Path, one: str, several: str
) -> None:
    assert "batches split over 4 devices (cpu)" in (runs / several / "log.txt").read_text()
    expected = lines(runs / one)
    for ours, theirs in zip(lines(runs / several), expected, strict=True):
        assert (ours.pop("phase"), ours["step"]) == (theirs.pop("phase"), theirs["step"])
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    alone = weights(runs / one)
    for name, value in weights(runs / several).items():
        np.testing.assert_allclose(value, alone[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"devices": 0}, "--devices must be at least 1, got 0"),
        (
            {"devices": 2, "seeds": (0, 1)},
            "--devices 2, but this process sees 1 (cpu): ask for 1 or fewer",
        ),
        ({"split": "rows"}, "setting 'split' must be one of"),
    ],
)
def test_devices_that_are_not_there_are_refused(
    tmp_path: Path, continuous_dataset: Dataset, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError) as error:
        train(tmp_path / "run", continuous_dataset, **settings)
    assert str(error.value).startswith(text)
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_is_refused_devices_that_are_not_there(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    run = train(tmp_path / "run", continuous_dataset, "bc", seeds=(0, 1), steps=2)
    with pytest.raises(ConfigError, match=r"^--devices 5, but this process sees 1 \(cpu\)"):
        leeward.resume(run, data=continuous_dataset, devices=5, steps=30)
    assert leeward.Run(run).config["steps"] == 2


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"devices": 4},
            "--devices 4 splits runs, and there is only one: add --seeds, or use --split batch",
        ),
        ({"devices": 2, "eager": True, "seeds": (0, 1)}, "--eager runs on one device: "),
        (
            {"devices": 3, "split": "batch"},
            "--split batch: a batch of 8 has no 3 equal parts: choose a --batch-size that 3 "
            "divides, or another number of --devices",
        ),
    ],
)
def test_splits_that_cannot_be_made_are_refused(
    tmp_path: Path,
    continuous_dataset: Dataset,
    settings: dict[str, Any],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = jax.local_devices()
    monkeypatch.setattr(jax, "local_devices", lambda: one * 4)
    with pytest.raises(ConfigError) as error:
        train(tmp_path / "run", continuous_dataset, **settings)
    assert str(error.value).startswith(text)
    assert not (tmp_path / "run").exists()
