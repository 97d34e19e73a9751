"""Fine-tuned runs: they survive a kill, are read by all, and impossible ones are refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import leeward
from collecting import CORRIDOR, LINE
from finetuning import OFFLINE, error_of, finetuned, folder, seen, trained, whole
from leeward import cli, finetune_loop
from leeward import replay_mixed as replay
from leeward.errors import CheckpointError, ConfigError, DataError, SpecError, TrainingError
from leeward.export import load_exported
from leeward.finetune_world import Answers, World
from leeward.report.origins import repeat_command
from leeward.results import collect as collect_results
from leeward.results import find_runs
from training import lines, weights

__all__ = ["folder", "seen", "whole"]  # fixtures

# --- Stopping and going on ---


@pytest.mark.parametrize("algorithm", ["iql", "cal_ql"])
def test_a_killed_fine_tuning_goes_on_as_if_nothing_had_happened(
    folder: Path,
    tmp_path: Path,
    whole: dict[str, Path],
    algorithm: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, steps = replay.remember, []

    def until_killed(*given: Any) -> Any:
        steps.append(0)
        if len(steps) == 58:
            raise MemoryError("killed")
        return real(*given)

    monkeypatch.setattr(replay, "remember", until_killed)
    run = tmp_path / "run"
    with pytest.raises(MemoryError):
        finetuned(folder, run, algorithm)
    assert not leeward.Run(run).finished
    leeward.resume(run, quiet=True)
    assert len(steps) == 58 + 10  # from step 50
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert lines(run, name) == lines(whole[algorithm], name)
    for policy in ("final", "best"):
        for name, value in weights(run, policy).items():
            np.testing.assert_array_equal(value, weights(whole[algorithm], policy)[name])


def test_a_finished_one_goes_on_with_more_steps(
    whole: dict[str, Path], tmp_path: Path, seen: list[replay.Seen]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole["iql"], run)
    assert cli.main(["finetune", "--resume", str(run), "--steps", "70", "--quiet"]) == 0
    assert [step.number[0] for step in seen] == list(range(60, 70))
    expected = list(range(10, 71, 10))
    assert [row["step"] for row in lines(run) if row["seed"] == 3] == expected
    assert leeward.Run(run).config["steps"] == 70
    said = error_of(lambda: leeward.resume(run, steps=65), ConfigError)
    assert said == f"{run} has made 70 steps: give at least --steps 70"


def test_an_interrupted_one_is_saved(folder: Path, tmp_path: Path) -> None:
    def interrupt(row: dict[str, Any]) -> None:
        if row["step"] == 20 and row["seed"] == 0:
            os.kill(os.getpid(), signal.SIGINT)

    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        finetuned(folder, run, on_metrics=interrupt)
    assert (
        f"interrupted: saved after 20 steps; continue with leeward finetune --resume {run}"
        in (run / "log.txt").read_text()
    )
    assert leeward.resume(run, quiet=True).finished


# --- Divergence ---


def break_rewards(monkeypatch: pytest.MonkeyPatch, runs: list[int], since: int) -> None:
    """From a step on, the rewards of these runs are too great for any loss."""
    real, steps = World.step, []

    def step(self: World, unit: np.ndarray, alive: np.ndarray) -> Answers:
        answers = real(self, unit, alive)
        steps.append(0)
        reward = answers.reward.copy()
        reward[runs] = 1e38 if len(steps) >= since else reward[runs]
        return answers._replace(reward=reward)

    monkeypatch.setattr(World, "step", step)


def test_a_seed_that_diverges_is_named_and_its_last_good_checkpoint_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rewards(monkeypatch, [0], since=32)
    run = tmp_path / "run"
    said = error_of(lambda: finetuned(folder, run, keep_checkpoints=1), TrainingError)
    place = re.escape(str(run))
    how = re.match(
        rf"{place}: training diverged \(seed-0: weights became NaN or infinite in the updates "
        rf"after step 3\d, and so did (.*); {place}/checkpoints/25, made before, is kept\): likely "
        r"causes are a learning rate too high or rewards of great size$",
        said,
    )
    assert how, said
    assert "critic/loss" in how[1]
    said = (run / "log.txt").read_text()
    assert "seed-0: weights became NaN or infinite in the updates after step 3" in said
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"25", "60"}
    assert np.isfinite(leeward.load_policy(run, seed=0, checkpoint=25)(np.zeros(2))).all()
    # The other seed comes to its end.
    assert leeward.Run(run).finished
    assert np.isfinite(leeward.load_policy(run, seed=3, checkpoint="last")(np.zeros(2))).all()
    for name, last in (("metrics.jsonl", 60), ("evaluations.jsonl", 60)):
        assert [row["step"] for row in lines(run, name) if row["seed"] == 3][-1] == last
        assert [row["step"] for row in lines(run, name) if row["seed"] == 0][-1] == 30


def test_a_fine_tuning_all_of_whose_seeds_diverge_ends_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rewards(monkeypatch, [0, 1], since=32)
    run = tmp_path / "run"
    said = error_of(lambda: finetuned(folder, run), TrainingError)
    assert f"{run / 'checkpoints' / '25'}, made before, is kept" in said
    assert "seed-0" in said
    assert "seed-3" in said
    assert not leeward.Run(run).finished
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"0", "25"}
    assert {row["step"] for row in lines(run, "evaluations.jsonl")} == {0, 30}


# --- What it leaves ---


def test_the_run_directory_is_read_like_any_other(
    folder: Path, whole: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = whole["iql"]
    evaluations = lines(run, "evaluations.jsonl")
    assert [(row["step"], row["seed"]) for row in evaluations] == [
        (step, seed) for step in (0, 30, 60) for seed in (0, 3)
    ]
    assert {row["phase"] for row in [*evaluations, *lines(run)]} == {"online"}
    assert [len(row["returns"]) for row in evaluations] == [2] * 6
    rows = [row for row in lines(run) if row["seed"] == 0]
    assert [row["step"] for row in rows] == list(range(10, 61, 10))
    assert all(np.isfinite(row["critic/loss"]) for row in rows)
    lengths = [row["online/length"] for row in rows if row["online/length"] is not None]
    assert lengths
    assert max(lengths) <= 12
    saved = leeward.Run(run).config
    origin = str((folder / "iql").absolute())
    assert saved["origin"] == {"run": origin, "updates": OFFLINE, "environment": LINE}
    assert saved["finetune"] == {
        "steps": 60,
        "replay": "mixed",
        "offline_fraction": 0.5,
        "updates_per_step": 2,
        "alpha_end": None,
    }
    assert cli.main(["evaluate", str(run), "--episodes", "2"]) == 0
    leeward.export(run, tmp_path / "policy.py")
    action = load_exported(tmp_path / "policy.py")(np.zeros((1, 2), np.float32))
    np.testing.assert_allclose(action, leeward.load_policy(run)(np.zeros((1, 2))), rtol=1e-5)
    capsys.readouterr()


def test_an_actor_whose_rate_had_decayed_to_nothing_learns_again(
    folder: Path, whole: dict[str, Path]
) -> None:
    """IQL's, by a cosine over the offline updates."""
    before, after = weights(folder / "iql"), weights(whole["iql"])
    names = [name for name in before if name.startswith("policy/")]
    assert max(np.abs(after[name] - before[name]).max() for name in names) > 0.01


def test_reports_tell_it_from_its_origin(folder: Path, whole: dict[str, Path]) -> None:
    results = collect_results(find_runs([folder / "iql", whole["iql"]]))
    assert results.methods == ("iql", "fine-tuned iql")
    assert repeat_command(leeward.Run(whole["iql"])) == (
        f"leeward finetune {(folder / 'iql').absolute()} --env {LINE} --steps 60 "
        "--replay mixed --offline-fraction 0.5 --updates-per-step 2 --log-every 10 "
        "--eval-every 30 --eval-episodes 2 --checkpoint-every 25"
    )


def test_seeds_that_diverged_offline_are_left_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[Any, ...]] = []
    monkeypatch.setattr(finetune_loop, "run", lambda *given: begun.append(given))
    shutil.copytree(folder / "td3_bc", tmp_path / "td3_bc")
    manifest = next((tmp_path / "td3_bc" / "checkpoints").iterdir()) / "manifest.json"
    said = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(said | {"failed": [0]}))
    run = finetuned(tmp_path, tmp_path / "run")
    assert leeward.Run(run).table == [{"run": 0, "seed": 3}]
    ((job, _, start, _),) = begun
    assert job.seeds == (3,)
    assert start.note == "left out, since they diverged offline: seed-0"
    actor = leeward.load_policy(folder / "td3_bc", seed=3).policy
    for mine, other in zip(jax.tree.leaves(start.state.actor), jax.tree.leaves(actor), strict=True):
        np.testing.assert_array_equal(mine, other[None])
    manifest.write_text(json.dumps(said | {"failed": [0, 1]}))
    said = error_of(lambda: finetuned(tmp_path, tmp_path / "none"), CheckpointError)
    assert said == f"{tmp_path / 'td3_bc'}: all runs diverged, so none can go on"
    assert not (tmp_path / "none").exists()


# --- What it refuses ---


@pytest.mark.parametrize("algorithm", ["bc", "discrete_iql", "fisher_brc"])
def test_algorithms_without_an_online_form_are_refused(tmp_path: Path, algorithm: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"format": 1, "algorithm": algorithm}))
    assert error_of(lambda: leeward.finetune(tmp_path), ConfigError) == (
        f"{tmp_path} is a run of {algorithm.replace('_', '-')}, which leeward finetune does not "
        "know; it knows cal-ql, cql, iql, td3-bc, which learn continuous actions"
    )


def test_a_run_whose_data_stayed_on_disk_is_refused(tmp_path: Path) -> None:
    saved = {"format": 1, "algorithm": "iql", "options": {"data_location": "disk"}}
    (tmp_path / "config.json").write_text(json.dumps(saved))
    assert error_of(lambda: leeward.finetune(tmp_path, run_dir=tmp_path / "new"), ConfigError) == (
        f"{tmp_path} was trained with --data-location disk, and fine-tuning has all rows in "
        "memory: train with --data-location memory first (results are the same), on a part of the "
        "data where not all fit (leeward convert --fraction)"
    )


@pytest.mark.parametrize(
    ("algorithm", "options", "text"),
    [
        ("td3_bc", {"steps": 0}, "--steps must be at least 1, got 0"),
        ("td3_bc", {"updates_per_step": 0}, "--updates-per-step must be at least 1, got 0"),
        (
            "td3_bc",
            {"offline_fraction": 1.0},
            "--offline-fraction must be in [0, 1), got 1.0: what is seen online needs a share too",
        ),
        (
            "td3_bc",
            {"offline_fraction": 0.99},
            "--offline-fraction 0.99 leaves no row of a batch of 32 for what is seen online",
        ),
        ("td3_bc", {"alpha_end": 0.0}, "--alpha-end must be a finite number above 0, got 0.0"),
        ("cal_ql", {"alpha_end": 5.0}, "--alpha-end is td3-bc's, and {run} is a run of cal-ql"),
        ("td3_bc", {"eval_episodes": 0}, "--eval-episodes must be at least 1, got 0"),
        (
            "td3_bc",
            {"replay": "half"},
            "setting 'replay' must be one of mixed, appended, got 'half'",
        ),
        ("td3_bc", {"utd": 2}, "unknown setting 'utd' for finetune."),
    ],
)
def test_impossible_options_are_refused_before_anything_is_written(
    folder: Path, tmp_path: Path, algorithm: str, options: dict[str, Any], text: str
) -> None:
    target = tmp_path / "run"
    said = error_of(lambda: finetuned(folder, target, algorithm, **options), ConfigError)
    assert said == text.format(run=folder / algorithm)
    assert not target.exists()


def test_environments_that_do_not_match_are_refused(folder: Path, tmp_path: Path) -> None:
    said = error_of(lambda: finetuned(folder, tmp_path / "run", env="Pendulum-v1"), SpecError)
    assert said == (
        f"line was recorded in {LINE}, not in Pendulum-v1: use --env {LINE}, or leave --env out"
    )
    said = error_of(lambda: finetuned(folder, tmp_path / "run", env=CORRIDOR), SpecError)
    assert "line was recorded in" in said
    assert not (tmp_path / "run").exists()


def test_runs_without_environment_or_data_say_what_is_missing(folder: Path, tmp_path: Path) -> None:
    read = leeward.load_dataset(folder / "line.hdf5")
    data = read.with_metadata(env=None, name="pushes")
    run = trained(tmp_path, "td3_bc", data=data)
    assert error_of(lambda: finetuned(tmp_path, tmp_path / "new"), DataError) == (
        f"{run} was trained on a data set made in Python: fine-tune it there with data=…"
    )

    def with_data() -> Path:
        return finetuned(tmp_path, tmp_path / "new", data=data)

    assert error_of(with_data, ConfigError) == (
        f"{run} names no environment to act in: name one (--env ID)"
    )
    options = {"env": "Pendulum-v1", "data": data}
    assert error_of(lambda: finetuned(tmp_path, tmp_path / "new", **options), SpecError) == (
        "pushes does not match environment Pendulum-v1: observations have shape (2,), the "
        "environment's (3,): use the environment that it comes from"
    )
    assert not (tmp_path / "new").exists()


def test_runs_without_a_checkpoint_are_refused(
    folder: Path, whole: dict[str, Path], tmp_path: Path
) -> None:
    for place in (folder / "td3_bc", whole["iql"]):
        shutil.copytree(place, tmp_path / place.parent.name / place.name)
        shutil.rmtree(tmp_path / place.parent.name / place.name / "checkpoints")
    run = tmp_path / folder.name
    assert error_of(lambda: finetuned(run, tmp_path / "new"), CheckpointError) == (
        f"{run / 'td3_bc'} has no checkpoint to go on from"
    )
    run = tmp_path / whole["iql"].parent.name / "iql"
    assert error_of(lambda: leeward.resume(run), CheckpointError) == (
        f"{run} was stopped before its first checkpoint: remove it and start again"
    )


def test_each_kind_of_run_goes_on_by_its_own_command(
    folder: Path, whole: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, origin = whole["iql"], folder / "iql"
    assert cli.main(["finetune", str(run), "--steps", "5"]) == 2
    assert capsys.readouterr().err == (
        f"leeward: error: {run} is a fine-tuned run: go on with leeward finetune --resume {run} "
        "and more --steps\n"
    )
    assert cli.main(["finetune", "--resume", str(origin)]) == 2
    assert capsys.readouterr().err == (
        f"leeward: error: {origin} is no fine-tuned run: continue it with leeward train --resume "
        f"{origin}, or go on online with leeward finetune {origin}\n"
    )
    with pytest.raises(ConfigError) as error:
        leeward.resume(run, steps=80, extend_schedule=True)
    assert str(error.value) == f"{run} is a fine-tuned run, which has no schedule to extend"


def test_the_command_fine_tunes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["finetune", str(folder / "td3_bc"), "--run-dir", str(tmp_path / "run")]
    command += ["--steps", "60", "--eval-episodes", "2", "--logger"]
    assert cli.main(command) == 0
    said = capsys.readouterr()
    assert f"run: {tmp_path / 'run'}" in said.out
    assert "60 steps   return" in said.err
