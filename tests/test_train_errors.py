"""What training refuses, each in one clear line, and what it leaves behind: nothing."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import leeward
from leeward import checkpoint
from leeward.data.dataset import Dataset
from leeward.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    LeewardError,
    MissingExtra,
    SpecError,
)
from leeward.options import is_installed
from training import lines, train


def test_a_directory_with_a_run_or_other_files_is_refused(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    run = train(tmp_path / "run", continuous_dataset)
    with pytest.raises(CheckpointError) as error:
        train(run, continuous_dataset)
    assert str(error.value) == (
        f"{run} holds a run already: continue it with --resume {run}, or choose another --run-dir"
    )
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError) as error:
        train(other, continuous_dataset)
    assert str(error.value) == (
        f"{other} is not empty (it has thesis.tex): choose another --run-dir"
    )


def test_a_directory_in_use_is_refused(tmp_path: Path, continuous_dataset: Dataset) -> None:
    from leeward import run

    with run.locked(tmp_path / "run"), pytest.raises(CheckpointError) as error:
        train(tmp_path / "run", continuous_dataset)
    assert str(error.value) == (
        f"{tmp_path / 'run'} is in use by another process: wait for it, or choose another --run-dir"
    )


def test_other_data_on_resume_are_refused(tmp_path: Path, npz: Path) -> None:
    run = train(tmp_path / "run", npz)
    with np.load(npz) as archive:
        arrays = dict(archive)
    np.savez(npz, **arrays | {"rewards": arrays["rewards"] + 1.0})
    with pytest.raises(DataError) as error:
        leeward.resume(run, steps=30)
    assert str(error.value) == (
        f"{run} was trained on other data than small holds now: put the old file back, or start "
        "a new run"
    )


def test_data_made_in_python_must_be_given_to_resume(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    run = train(tmp_path / "run", continuous_dataset)
    with pytest.raises(DataError, match="resume it there with data="):
        leeward.resume(run, steps=30)
    leeward.resume(run, data=continuous_dataset, steps=30, quiet=True)
    assert lines(run)[-1]["step"] == 30


def test_damaged_checkpoints_say_what_to_do(tmp_path: Path, npz: Path) -> None:
    run = train(tmp_path / "run", npz)
    newest = checkpoint.complete(run / "checkpoints")[-1]
    for file in (newest / "arrays").rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    with pytest.raises(CheckpointError, match="remove this folder to continue from the checkpoint"):
        leeward.resume(run, steps=30)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"alhpa": 1.0}, "unknown setting 'alhpa' for td3_bc. Did you mean alpha?"),
        ({"steps": 0}, "setting 'steps' must be at least 1, got 0"),
        ({"seeds": ()}, "--seeds needs at least one seed, such as --seeds 0 1 2"),
        ({"seeds": (1, 1)}, "--seeds names a seed twice: 1 1"),
        ({"log_every": 0}, "--log-every must be at least 1, got 0"),
        ({"best_fraction": 0.0}, "--best-fraction must be in (0, 1], got 0.0"),
        ({"max_time": "soon"}, "--max-time must look like 90s, 30m or 2h, got 'soon'"),
        ({"preset": "papr"}, "td3_bc has no preset 'papr'"),
        ({"alpha": "big"}, "setting 'alpha' must be a number, got 'big'"),
        ({"logger": ("tensorbord",)}, "unknown logger 'tensorbord'"),
    ],
)
def test_impossible_settings_are_refused(
    tmp_path: Path, continuous_dataset: Dataset, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError) as error:
        train(tmp_path / "run", continuous_dataset, **settings)
    assert str(error.value).startswith(text)
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_logger_that_is_not_installed_is_refused_before_anything_is_written(
    tmp_path: Path, continuous_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # type: ignore[arg-type]
    with pytest.raises(MissingExtra) as error:
        train(tmp_path / "run", continuous_dataset, logger=("wandb",))
    assert str(error.value) == (
        "--logger wandb needs the package 'wandb', which is not installed: pip install "
        "'leeward[wandb]'"
    )
    assert not (tmp_path / "run").exists()


def test_a_folder_that_a_logger_left_is_not_taken_for_the_logger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "left_by_a_logger").mkdir()
    (tmp_path / "a_logger.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert is_installed("a_logger")
    assert not is_installed("left_by_a_logger")


def test_a_device_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    if jax.default_backend() != "cpu":
        pytest.skip("there is an accelerator")
    line = ["train", "bc", "inverteddoublependulum-replay-v5", "--device", "gpu", "--run-dir"]
    done = subprocess.run(
        [sys.executable, "-m", "leeward", *line, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith("leeward: error: --device gpu: JAX finds none here")
    assert said.endswith(
        ": leave --device out to use the fastest there is, or pip install 'leeward[cuda]' for "
        "NVIDIA's"
    )
    assert not (tmp_path / "run").exists()


def refused_device(run: Path, data: Dataset, device: str) -> str:
    """What is said of a device that training refuses, which changes and writes nothing."""
    before = jax.config.jax_platforms
    with pytest.raises(ConfigError) as error:
        train(run, data, device=device)
    assert jax.config.jax_platforms == before
    assert not run.exists()
    return str(error.value)


def test_a_device_that_fails_to_start_is_refused_with_its_reason(
    tmp_path: Path, continuous_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> str:
        raise RuntimeError("Unable to initialize backend 'tpu': no such library.\nmore")

    monkeypatch.setattr(jax, "default_backend", failing)
    assert refused_device(tmp_path / "run", continuous_dataset, "tpu") == (
        "--device tpu: JAX finds none here (Unable to initialize backend 'tpu': no such library): "
        "leave --device out to use the fastest there is"
    )


def test_another_device_than_this_process_uses_is_refused(
    tmp_path: Path, continuous_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert refused_device(tmp_path / "run", continuous_dataset, "cpu") == (
        "--device cpu: this process uses the gpu already: choose it in a new one, before anything "
        "else is computed"
    )


def test_a_discrete_data_set_names_the_algorithms_that_fit(
    tmp_path: Path, discrete_dataset: Dataset
) -> None:
    with pytest.raises(DataError) as error:
        train(tmp_path / "run", discrete_dataset)
    assert str(error.value) == (
        "td3-bc needs continuous actions, but those of small-discrete are discrete: try bc, bcq, "
        "cql, crr, dqn, fmr, iql, qrdqn"
    )


def test_images_of_another_type_are_refused_with_the_data_s_name(tmp_path: Path) -> None:
    frames = Dataset.from_arrays(
        np.zeros((4, 4, 40, 40), np.float32),
        np.zeros(4, int),
        np.zeros(4),
        np.zeros(4, bool),
        metadata={"name": "frames"},
    )
    with pytest.raises(SpecError) as error:
        train(tmp_path / "run", frames, algorithm="bc")
    assert str(error.value) == (
        "frames: observations of shape (4, 40, 40) and type float32 are neither vectors nor images "
        "of bytes: store images as uint8 (0 to 255), and flatten all else"
    )
    assert not (tmp_path / "run").exists()


NO_RETURNS = (
    "the return after each transition is not known in data whose next observations do not chain "
    "row to row: use data in order of time, or an algorithm without such returns"
)


@pytest.mark.parametrize(
    ("algorithm", "settings", "text"),
    [
        (
            "cal_ql",
            {"repeat_last_reward": True, "discount": [0.9, 1.0]},
            "--repeat-last-reward needs a --discount below 1: its sum has no end",
        ),
        ("rebrac", {}, "rebrac needs the action taken next, which is not known in data"),
        ("cal_ql", {}, NO_RETURNS),
        ("cql", {"calibrated": True}, NO_RETURNS),
        ("cql", {"preset": "tianshou"}, NO_RETURNS),
    ],
)
def test_data_and_settings_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path: Path,
    continuous_dataset: Dataset,
    algorithm: str,
    settings: dict[str, Any],
    text: str,
) -> None:
    shuffled = Dataset.from_arrays(
        np.zeros((8, 3)),
        np.zeros((8, 2)),
        np.zeros(8),
        np.zeros(8, bool),
        next_observation=np.ones((8, 3)),
    )
    data = continuous_dataset if "repeat_last_reward" in settings else shuffled
    with pytest.raises(LeewardError) as error:
        train(tmp_path / "run", data, algorithm, ignore_errors=True, **settings)
    assert str(error.value).startswith(text)
    assert not (tmp_path / "run").exists()


def test_too_few_transitions_for_an_epoch_are_refused(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    tiny = dataclasses.replace(continuous_dataset, start=continuous_dataset.start[:5])
    with pytest.raises(DataError) as error:
        train(tmp_path / "run", tiny, sampling="epoch")
    assert str(error.value) == (
        "small-continuous has 5 transitions, fewer than one batch of 8: use --sampling uniform or "
        "a smaller --batch-size"
    )


def test_newer_run_directories_are_refused(tmp_path: Path, npz: Path) -> None:
    run = train(tmp_path / "run", npz)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"format": 99}))
    with pytest.raises(CheckpointError, match=r"format 99 is newer than this version .* upgrade"):
        leeward.resume(run)


def test_errors_that_the_doctor_finds_stop_training_unless_ignored(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    action = continuous_dataset.action.copy()
    action[3, 0] = 1.5
    wild = dataclasses.replace(continuous_dataset, action=action)
    found = leeward.inspect(wild).errors
    assert found
    with pytest.raises(DataError) as error:
        train(tmp_path / "run", wild)
    assert str(error.value).startswith(f"small-continuous: {found[0].message} [{found[0].code}]. ")
    assert str(error.value).endswith("--ignore-errors trains all the same")
    assert not (tmp_path / "run").exists()
    run = train(tmp_path / "run", wild, ignore_errors=True)
    codes = [row["code"] for row in leeward.Run(run).config["data"]["findings"]]
    assert found[0].code in codes


def test_errors_in_a_file_are_ignored_too(tmp_path: Path, npz: Path) -> None:
    with np.load(npz) as archive:
        columns = dict(archive)
    columns["actions"][3, 0] = 1.5
    path = tmp_path / "wild.npz"
    np.savez(path, **columns)
    settings: dict[str, Any] = {"data_options": {"action_low": [-1.0], "action_high": [1.0]}}
    with pytest.raises(DataError, match=r"wild: action 1\.5 at row 3, dimension 0, is outside"):
        train(tmp_path / "run", path, **settings)
    run = train(tmp_path / "run", path, ignore_errors=True, **settings)
    codes = [row["code"] for row in leeward.Run(run).config["data"]["findings"]]
    assert "action_outside_box" in codes
    assert leeward.resume(run, steps=25, quiet=True).finished  # reads the file again


def test_data_without_a_transition_are_refused_whatever_is_ignored(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    nothing = dataclasses.replace(continuous_dataset, start=continuous_dataset.start[:0])
    with pytest.raises(DataError) as error:
        train(tmp_path / "run", nothing, ignore_errors=True)
    assert str(error.value) == (
        "small-continuous has no transition to learn from: store next observations, or longer "
        "episodes"
    )
    assert not (tmp_path / "run").exists()
