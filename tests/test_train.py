"""The training engine: resume, seeds side by side, early stopping, interruptions, errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leeward
from leeward import checkpoint
from leeward.algorithms import bc
from leeward.data.dataset import Dataset
from leeward.errors import ConfigError, TrainingError
from leeward.job import Job
from leeward.options import RunOptions
from leeward.saving import check_goes_on
from training import SMALL, lines, train, weights


def assert_same_run(one: Path, other: Path) -> None:
    """Same lines of metrics and evaluations, same final weights, to the bit."""
    assert lines(one) == lines(other)
    assert lines(one, "evaluations.jsonl") == lines(other, "evaluations.jsonl")
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


CHILD = """
    import json, os, signal, sys
    from pathlib import Path
    import leeward
    import small_environments

    todo, data, directory = sys.argv[1:4]
    steps, replace = [], Path.replace

    def note(row):
        steps.append(row["step"] + (20 if row["phase"] == "train" else 0))
        if todo == f"line {len(steps)}":
            os.kill(os.getpid(), signal.SIGKILL)

    def renamed(path, target):
        if todo == f"checkpoint {target.name}":
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(path, target)

    Path.replace = renamed
    if Path(directory).exists():
        leeward.resume(directory, quiet=True, on_metrics=note)
    else:
        leeward.train(
            "fisher_brc", data, run_dir=directory, on_metrics=note, steps=30,
            bc_pretraining_steps=20, behavior_hidden=(8,), log_every=7, checkpoint_every=5,
            seeds=(0, 3), batch_size=8, hidden=(8,), quiet=True, logger=(),
            env="LeewardTest/Line-v0", eval_every=10, eval_episodes=2,
        )
    print(json.dumps(steps))
"""


# Every part runs in a process of its own, as a run's parts do: in a process that has compiled much
# else, XLA may order a sum differently, which is another last bit.
# Lines come two at a time (two seeds): at 7, 14 and 20 of the first phase, then at 7, 14, 21, 28.
# Checkpoint 20 gets its name after the evaluations of update 20, whose lines have to go again.
def test_a_run_killed_at_any_moment_resumes_to_the_same_weights_and_metrics(tmp_path: Path) -> None:
    data = line_data(tmp_path / "line.npz")
    assert child("end", data, tmp_path / "whole").returncode == 0
    evaluations = lines(tmp_path / "whole", "evaluations.jsonl")
    assert [row["step"] for row in evaluations] == [10, 10, 20, 20, 30, 30]
    killed = tmp_path / "killed"
    for moment, evaluated in (("line 3", 0), ("checkpoint 20", 4)):
        assert child(moment, data, killed).returncode == -signal.SIGKILL
        assert not (killed / "final").exists()
        assert len(lines(killed, "evaluations.jsonl")) == evaluated
    newest = checkpoint.complete(killed / "checkpoints")[-1]
    done = checkpoint.manifest(newest)["updates"]
    assert done > 0
    resumed = child("end", data, killed)
    # It did not start from zero again.
    assert min(json.loads(resumed.stdout)) > done
    assert_same_run(tmp_path / "whole", killed)


def line_data(path: Path) -> Path:
    """Random pushes of small_environments.Line, as a file."""
    generator = np.random.default_rng(0)
    observation = generator.normal(size=(120, 2))
    np.savez(
        path,
        observations=observation,
        actions=generator.uniform(-2.0, 2.0, size=(120, 1)),
        rewards=-np.abs(observation[:, 0]),
        terminations=np.zeros(120, bool),
        truncations=np.arange(120) % 12 == 11,
    )
    return path


def child(todo: str, data: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Trains, or resumes, to the end or until it kills itself at some moment."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), todo, str(data), str(directory)],
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path, npz: Path) -> None:
    whole = train(tmp_path / "whole", npz, log_every=3)
    killed = tmp_path / "killed"
    with pytest.raises(RuntimeError, match="stop"):
        train(killed, npz, log_every=3, on_metrics=_stop_at_first_line)
    assert lines(killed)
    assert not checkpoint.complete(killed / "checkpoints")
    leeward.resume(killed, quiet=True)
    assert_same_run(whole, killed)


def _stop_at_first_line(row: object) -> None:
    raise RuntimeError("stop")


def test_checkpoint_and_log_intervals_change_nothing_but_the_lines(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    often = train(tmp_path / "a", continuous_dataset, log_every=1, checkpoint_every=3)
    rarely = train(tmp_path / "b", continuous_dataset, log_every=20)
    for name, value in weights(often).items():
        np.testing.assert_array_equal(value, weights(rarely)[name])
    rows = lines(often)
    assert [row["step"] for row in rows] == list(range(1, 21))
    total = np.mean([row["critic/loss"] for row in rows])
    assert lines(rarely)[0]["critic/loss"] == pytest.approx(total, rel=1e-5)
    # Metrics that are measured every other update are averaged over those alone.
    assert rows[1]["actor/loss"] is None
    actor = np.mean([row["actor/loss"] for row in rows[::2]])
    assert lines(rarely)[0]["actor/loss"] == pytest.approx(actor, rel=1e-5)


def test_seeds_and_settings_in_one_program_equal_single_runs_bit_for_bit(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    together = train(tmp_path / "all", continuous_dataset, seeds=(0, 7), alpha=[1.0, 2.5])
    table = leeward.Run(together).table
    assert table == [
        {"run": 0, "seed": 0, "alpha": 1.0},
        {"run": 1, "seed": 7, "alpha": 1.0},
        {"run": 2, "seed": 0, "alpha": 2.5},
        {"run": 3, "seed": 7, "alpha": 2.5},
    ]
    for row in table:
        alone = train(
            tmp_path / str(row["run"]), continuous_dataset, seeds=[row["seed"]], alpha=row["alpha"]
        )
        for name, value in weights(alone).items():
            if name.startswith("policy/"):
                np.testing.assert_array_equal(value[0], weights(together)[name][row["run"]])


def test_more_steps_continue_a_finished_run_and_keep_the_schedule_unless_told(
    tmp_path: Path, npz: Path
) -> None:
    settings = {"algorithm": "bc", "density": "gaussian", "lr_decay": True}
    run = train(tmp_path / "run", npz, **settings)
    leeward.resume(run, steps=30, quiet=True)
    assert lines(run)[-1]["step"] == 30
    saved = leeward.Run(run).config
    assert (saved["steps"], saved["config"]["steps"]) == (30, 20)
    extended = train(tmp_path / "extended", npz, **settings)
    leeward.resume(extended, steps=30, extend_schedule=True, quiet=True)
    saved = leeward.Run(extended).config
    assert (saved["steps"], saved["config"]["steps"]) == (30, 30)
    assert saved["extensions"] == [{"steps": 30, "extend_schedule": True}]
    name = "policy/mlp/layers/0/weight"
    assert not np.array_equal(weights(run)[name], weights(extended)[name])


def test_early_stopping_returns_the_best_weights_of_every_seed(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    settings = {
        "algorithm": "bc",
        "steps": 4_000,
        "lr": 0.05,
        "hidden": (64, 64),
        "validation_fraction": 0.1,
        "validation_every": 10,
        "patience": 3,
        "seeds": (0, 1),
        "log_every": 1_000,
    }
    run = train(tmp_path / "run", continuous_dataset, **settings)
    rows = lines(run)
    measured = [row for row in rows if "validation/loss" in row]
    assert measured[-1]["step"] < 4_000  # it did stop
    assert rows[-1]["step"] == measured[-1]["step"]  # and its last update has a line
    for seed in (0, 1):
        losses = {r["step"]: r["validation/loss"] for r in measured if r["seed"] == seed}
        best, stop = None, 0
        for step, loss in losses.items():
            if best is None or loss < losses[best]:
                best, stop = step, 0
            else:
                stop += 1
            if stop == 3:
                break
        assert best is not None
        # A run that ends at the best update has the same weights.
        short = train(
            tmp_path / f"short-{seed}",
            continuous_dataset,
            **(settings | {"steps": best, "seeds": (seed,)}),
        )
        for name, value in weights(short).items():
            if name.startswith("policy/"):
                np.testing.assert_array_equal(value[0], weights(run)[name][seed])
    before = (run / "config.json").read_bytes()
    with pytest.raises(ConfigError) as error:
        leeward.resume(run, data=continuous_dataset, steps=5_000, quiet=True)
    assert str(error.value) == (
        f"{run}: early stopping has ended seed-0, seed-1 and kept the best weights, so it cannot "
        "train on: start a new run with another patience"
    )
    assert (run / "config.json").read_bytes() == before
    leeward.resume(run, data=continuous_dataset, quiet=True)
    assert (
        (run / "log.txt")
        .read_text()
        .endswith(
            f"{run} is finished after {measured[-1]['step']} updates: early stopping has ended it\n"
        )
    )


@pytest.mark.parametrize(
    ("facts", "steps", "goes_on"),
    [
        ({"complete": True, "stopped": [1]}, 41, False),  # one of two seeds
        ({"complete": True, "stopped": [1]}, 40, True),  # no more than it had
        ({"complete": False, "stopped": [1]}, 41, True),  # it was killed before its end
        ({"complete": True, "stopped": []}, 41, True),
    ],
)
def test_only_a_run_that_early_stopping_ended_cannot_train_on(
    facts: dict[str, Any], steps: int, goes_on: bool, tmp_path: Path, continuous_dataset: Dataset
) -> None:
    folder = tmp_path / "checkpoints" / "40"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"updates": 40, "step": 40} | facts))
    job = Job(
        bc.ALGORITHM, bc.Config(), ({}, {}), (3, 8), steps, RunOptions(), continuous_dataset, None
    )
    if goes_on:
        check_goes_on(job, tmp_path)
        return
    with pytest.raises(ConfigError, match="early stopping has ended seed-8 and kept the best"):
        check_goes_on(job, tmp_path)


def test_sigint_and_sigterm_save_and_resume_goes_on(tmp_path: Path, npz: Path) -> None:
    whole = train(tmp_path / "whole", npz, steps=60, log_every=10)
    sent: list[signal.Signals] = []

    def interrupt(row: dict[str, Any]) -> None:
        signals = {20: signal.SIGTERM, 40: signal.SIGINT}
        if row["step"] in signals:
            sent.append(signals[row["step"]])
            os.kill(os.getpid(), sent[-1])

    def stopped(number: int, frame: object) -> None:
        raise AssertionError("SIGTERM was left to others")

    run = tmp_path / "run"
    before = signal.signal(signal.SIGTERM, stopped)
    interruption = signal.getsignal(signal.SIGINT)  # ignored where a shell runs in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            train(run, npz, steps=60, log_every=10, on_metrics=interrupt)
        assert signal.getsignal(signal.SIGTERM) is stopped
    finally:
        signal.signal(signal.SIGTERM, before)
    with pytest.raises(KeyboardInterrupt):
        leeward.resume(run, quiet=True, on_metrics=interrupt)
    assert sent == [signal.SIGTERM, signal.SIGINT]
    assert (run / "log.txt").read_text().count("interrupted: saved after") == 2
    assert signal.getsignal(signal.SIGINT) is interruption
    leeward.resume(run, quiet=True)
    assert_same_run(whole, run)


def test_out_of_time_saves_an_unfinished_run(tmp_path: Path, npz: Path) -> None:
    run = leeward.train("bc", npz, run_dir=tmp_path / "run", max_time="0s", **SMALL, steps=500)
    assert not run.finished
    finished = leeward.resume(tmp_path / "run", quiet=True)
    assert finished.finished
    assert lines(tmp_path / "run")[-1]["step"] == 500


def test_divergence_of_all_seeds_stops_and_names_update_and_metric(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    with pytest.raises(TrainingError) as error:
        train(tmp_path / "run", continuous_dataset, critic_lr=1e30, seeds=(0, 1), steps=200)
    how = (
        "weights became NaN or infinite between updates 0 and 16 of phase train, and so did "
        "actor/cloning, actor/loss, actor/q_weight, critic/loss, critic/q"
    )
    assert str(error.value) == (
        f"{tmp_path / 'run'}: training diverged (seed-0, seed-1: {how}; no checkpoint was made "
        "before): likely causes are a learning rate too high or rewards of great size"
    )
    assert f"seed-0: {how}" in (tmp_path / "run" / "log.txt").read_text()


def test_one_diverged_setting_leaves_the_others_to_finish(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    with pytest.raises(
        TrainingError, match=r"training diverged \(seed-0-critic_lr-1e\+30: weights"
    ):
        train(tmp_path / "run", continuous_dataset, critic_lr=[3e-4, 1e30], log_every=5)
    rows = lines(tmp_path / "run")
    assert rows[-1]["critic_lr"] == 3e-4
    assert rows[-1]["step"] == 20
    alone = train(tmp_path / "alone", continuous_dataset)
    name = "policy/mlp/layers/0/weight"
    np.testing.assert_array_equal(weights(alone)[name][0], weights(tmp_path / "run")[name][0])


def test_epoch_sampling_trains(tmp_path: Path, continuous_dataset: Dataset) -> None:
    run = train(tmp_path / "run", continuous_dataset, algorithm="bc", sampling="epoch")
    assert lines(run)[-1]["step"] == 20


def test_eager_training_equals_compiled_training(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    compiled = train(tmp_path / "compiled", continuous_dataset, steps=3)
    eager = train(tmp_path / "eager", continuous_dataset, steps=3, eager=True)
    for name, value in weights(compiled).items():
        np.testing.assert_allclose(value, weights(eager)[name], rtol=1e-4, atol=1e-6)


def test_best_fraction_trains_on_the_best_episodes_only_and_notes_are_told(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    data = continuous_dataset.with_metadata(notes=["episodes were guessed"])
    run = train(tmp_path / "run", data, algorithm="bc", best_fraction=0.1)
    assert leeward.Run(run).config["data"]["transitions"] < 4 * 15
    assert "note: episodes were guessed\n" in (run / "log.txt").read_text()
