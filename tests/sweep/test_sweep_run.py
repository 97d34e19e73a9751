"""Sweeps in one process: in order, past failures, and on after a kill, with nothing done twice."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import leeward
from fabricated import write_run
from leeward import cli
from leeward.errors import CheckpointError
from leeward.ope.candidates import candidates, find_places
from leeward.results import collect, find_runs
from leeward.sweep import Schedule, board, resume_sweep
from leeward.sweep.tables import MOST_ROWS
from leeward.sweep.work import Outcome, attempts_file
from sweeping import (
    attempts,
    flags,
    started,
    states,
    steps,
    under_way,
    wait_for,
    waiting_jobs,
)
from training import SMALL, lines, train


def test_jobs_run_in_order_and_one_that_fails_does_not_stop_the_others(
    npz: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "sweep"
    line = flags(npz, place, "--steps", "20", "--seeds", "0", "1", algorithms=("td3-bc", "bc"))
    assert cli.main([*line, "--grid", "td3-bc.critic_lr=1e30"]) == 1
    said = capsys.readouterr()
    assert states(place) == {"td3-bc/small": "failed", "bc/small": "done"}
    assert f"leeward: failed: td3-bc/small: {place / 'td3-bc/small'}: training diverged" in said.err
    assert f"not done: 1 of 2 jobs; leeward sweep --resume {place} tries again" in said.out
    assert leeward.Run(place / "bc" / "small").finished
    # What failed is tried again, what is done is not.
    assert cli.main(["sweep", "--resume", str(place), "--quiet"]) == 1
    assert {n: len(a) for n, a in attempts(place).items()} == {"td3-bc/small": 2, "bc/small": 1}


def test_the_same_command_again_continues_and_another_is_refused(
    npz: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "sweep"
    line = flags(npz, place, "--steps", "20", "--grid", "lr=1e-3,1e-2", "--quiet")
    assert cli.main([*line, "--max-time", "0s"]) == 0
    assert states(place) == {"bc/small": "waiting"}
    assert attempts(place) == {}
    assert cli.main(line) == 0
    assert cli.main(line) == 0
    assert {n: len(a) for n, a in attempts(place).items()} == {"bc/small": 1}
    assert cli.main([*line, "--seeds", "5"]) == 2
    assert capsys.readouterr().err == (
        f"leeward: error: {place} holds another sweep: continue that with leeward sweep --resume "
        f"{place}, or choose another --sweep-dir\n"
    )
    # Both settings are in one run, equal to what `train` makes of them.
    alone = train(tmp_path / "alone", npz, "bc", lr=[1e-3, 1e-2], log_every=10)
    assert lines(place / "bc" / "small") == lines(alone)


def test_a_run_of_drawn_settings_holds_the_draws(npz: Path, tmp_path: Path) -> None:
    done = leeward.sweep(
        "bc",
        npz,
        random={"lr": "log:1e-4..1e-2"},
        draws=3,
        settings={"steps": 20, "batch_size": 8, "hidden": [8]},
        sweep_dir=tmp_path / "sweep",
        quiet=True,
        logger=(),
    )
    assert (done.failed, done.waiting) == ({}, ())
    (run,) = done.runs
    drawn = [row["lr"] for row in run.table]
    assert len(set(drawn)) == 3
    assert [row["lr"] for row in lines(run.directory)] == drawn


def test_draws_are_not_repeated_by_a_single_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = [{"alpha": 1.0, "tau": 0.2}, {"alpha": 3.0, "tau": 0.4}]
    rows = [{"run": i, "seed": 0, **settings} for i, settings in enumerate(drawn)]
    run = write_run(tmp_path / "run", [1.0, 2.0], rows=rows)
    assert cli.main(["train", "td3-bc", "x.npz", "--config", str(run / "config.json")]) == 2
    assert capsys.readouterr().err == (
        f"leeward: error: --config {run / 'config.json'}: its runs are a part of a sweep, not all "
        "combinations of their settings: repeat the sweep\n"
    )


def test_a_killed_sweep_goes_on_where_it_was(npz: Path, tmp_path: Path) -> None:
    place, log = tmp_path / "sweep", tmp_path / "log.txt"
    line = flags(npz, place, "--steps", "2000", "--grid", "best_fraction=0.5,0.6,0.7", "--quiet")
    names = [f"bc/small/best-fraction-0.{digit}" for digit in (5, 6, 7)]
    process = started(line, log)
    wait_for(lambda: under_way(place / names[1]), process, log)
    process.kill()
    process.wait()
    assert attempts(place).keys() == set(names[:2])
    assert cli.main(["sweep", "--resume", str(place), "--quiet"]) == 0
    assert [len(attempts(place)[name]) for name in names] == [1, 2, 1]
    assert "resumed from" in (place / names[1] / "log.txt").read_text()
    for name in names:
        assert leeward.Run(place / name).finished
        assert steps(place / name) == list(range(10, 2001, 10))
    assert set(states(place).values()) == {"done"}


def test_ctrl_c_saves_and_says_how_to_continue(
    npz: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "sweep"
    run = place / "bc" / "small"

    def interrupt() -> None:
        while not under_way(run):
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    line = flags(npz, place, "--steps", "100000")
    assert cli.main(line) == 130
    assert f"interrupted: continue with leeward sweep --resume {place}" in capsys.readouterr().err
    assert states(place) == {"bc/small": "waiting"}
    assert any(run.glob("checkpoints/*/manifest.json"))


def test_a_run_that_was_killed_before_its_first_line_is_begun_again(
    npz: Path, tmp_path: Path
) -> None:
    place = tmp_path / "sweep"
    line = flags(npz, place, "--steps", "20", "--quiet")
    assert cli.main([*line, "--max-time", "0s"]) == 0
    run = place / "bc" / "small"
    run.mkdir(parents=True)
    (run / ".lock").touch()
    (run / ".config.json-abc").write_text("{")
    assert cli.main(line) == 0
    assert leeward.Run(run).finished


def test_the_live_table_shows_how_far_every_job_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = waiting_jobs(MOST_ROWS + 2)
    running, done, failed, begun = jobs[26], jobs[3], jobs[4], jobs[5]
    metrics = [{"actor/loss": 0.5}] * 4
    write_run(tmp_path / running.name, [[80.0, 90.0], [82.0, 94.0]], metrics=metrics)
    screen = io.StringIO()
    monkeypatch.setattr(
        board, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=110)
    )
    shown = board.Board(tmp_path, jobs, quiet=False)
    (tmp_path / "attempts").mkdir()
    for job in (running, begun):
        attempts_file(tmp_path, job).write_text('{"time": 0.0}\n' * 2)
    with shown.shown():
        shown.begin(running)
        shown.notice([begun, jobs[6]])  # of these one has begun
        shown.end(done, Outcome("done"))
        shown.end(failed, Outcome("failed", "[no] memory"))
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.getvalue())
    assert "27 jobs: 2 running, 1 failed, 23 waiting, 1 done" in text
    assert "bc/set-4: failed after 0 updates   [no] memory" in text
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in text[text.rindex("27 jobs: 2 running") :].splitlines()
        if line.startswith("│")
    ]
    assert rows[:3] == [
        [begun.name, "2", "running", "0 / 1,100", "", "2"],
        [running.name, "2", "running", "140 / 1,100", "score 92.0", "2"],
        [failed.name, "2", "failed", "0 / 1,100", "", ""],
    ]
    assert len(rows) == MOST_ROWS
    assert "and 2 more" in text
    quiet = board.Board(tmp_path, jobs, quiet=True)
    screen.truncate(0)
    with quiet.shown():
        quiet.begin(running)
    assert screen.getvalue() == ""


def test_data_that_changed_since_the_plan_are_refused(
    npz: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    place = tmp_path / "sweep"
    assert cli.main([*flags(npz, place, "--steps", "20", "--quiet"), "--max-time", "0s"]) == 0
    with np.load(npz) as archive:
        arrays = dict(archive)
    np.savez(npz, **arrays | {"rewards": arrays["rewards"] + 1.0})
    assert cli.main(["sweep", "--resume", str(place), "--quiet"]) == 1
    assert capsys.readouterr().err == (
        f"leeward: failed: bc/small: {npz} has changed since the sweep was planned: put the old "
        "file back, or start a new sweep\n"
    )


def test_a_directory_with_other_files_is_refused(npz: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError) as error:
        leeward.sweep("bc", npz, sweep_dir=place, quiet=True)
    assert str(error.value) == (
        f"{place} is not empty (it has thesis.tex): choose another --sweep-dir"
    )
    with pytest.raises(CheckpointError, match="not a sweep directory"):
        resume_sweep(place, Schedule())


def fabricated(place: Path) -> Path:
    """A sweep's directory with two evaluated runs and a job that never began."""
    scores = [80.0, 82.0, 85.0, 88.0, 90.0]
    write_run(place / "td3-bc" / "hopper", scores, data="hopper")
    write_run(place / "bc" / "hopper", [s - 60 for s in scores], algorithm="bc", data="hopper")
    write_run(place / "bc" / "walker", [], algorithm="bc", data="walker", finished=False)
    names = ["td3-bc/hopper", "bc/hopper", "bc/walker"]
    plan = {"format": 1, "jobs": [{"name": name} for name in names]}
    (place / "sweep.json").write_text(json.dumps(plan))
    return place


def test_reports_and_comparisons_read_a_sweep_s_runs(tmp_path: Path) -> None:
    place = fabricated(tmp_path / "sweep")
    runs = find_runs([place])
    assert [run.directory for run in runs] == [place / "bc/hopper", place / "td3-bc/hopper"]
    results = collect(runs)
    assert results.methods == ("bc", "td3-bc")
    assert (
        f"1 of 3 jobs of the sweep {place} have no numbers yet (bc/walker): they are left out."
    ) in results.notes
    found = leeward.compare(place / "td3-bc", place / "bc" / "hopper")
    assert found.outcome == "better"


def test_a_part_of_a_sweep_is_read_as_the_whole(tmp_path: Path) -> None:
    place = fabricated(tmp_path / "sweep")
    found = find_runs([place / "bc"])
    assert [run.directory for run in found] == [place / "bc/hopper"]
    assert (
        f"1 of 3 jobs of the sweep {place} have no numbers yet (bc/walker): they are left out."
    ) in collect(found).notes
    page = leeward.report(place / "bc", tmp_path / "out").read_text()
    assert "jobs of the sweep" in page


def test_off_policy_evaluation_reads_a_sweep_s_finished_runs(npz: Path, tmp_path: Path) -> None:
    place = tmp_path / "sweep"
    train(place / "bc" / "small", npz, "bc", **(SMALL | {"steps": 2}))
    (place / "sweep.json").write_text(json.dumps({"format": 1, "jobs": [{"name": "bc/small"}]}))
    assert [one.name for one in candidates([place])] == ["small seed 0 last"]
    with pytest.raises(CheckpointError) as error:
        leeward.load_policy(place)
    assert str(error.value) == f"{place} is a sweep: name one of the run directories in it"
    # Folders in a sweep, and folders of no sweep at all, stand for the runs that they hold.
    jobs = [{"name": name} for name in ("bc/small", "bc/other", "iql/small")]
    (place / "sweep.json").write_text(json.dumps({"format": 1, "jobs": jobs}))
    found = find_places([place / "bc"])
    assert found.paths == [place / "bc" / "small"]
    assert found.left_out == [
        f"1 of 2 runs in {place / 'bc'} are not finished (other): they are left out"
    ]
    (place / "sweep.json").unlink()
    write_run(place / "bc" / "begun", [1.0], algorithm="bc", finished=False)
    found = find_places([place])
    assert found.paths == [place / "bc" / "small"]
    assert found.left_out == [
        f"1 of 2 runs in {place} are not finished (bc/begun): they are left out"
    ]
    assert [one.name for one in candidates([place])] == ["small seed 0 last"]


def test_a_sweep_none_of_whose_runs_is_finished_has_no_policies(tmp_path: Path) -> None:
    place = fabricated(tmp_path / "sweep")
    for run in find_runs([place]):
        (run.directory / "final").rmdir()
    with pytest.raises(CheckpointError, match="is a sweep none of whose runs is finished"):
        candidates([place])
