"""From what is asked to jobs: what shares a program, what does not, and what is refused."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leeward
from leeward import cli
from leeward.data.dataset import Dataset
from leeward.errors import ConfigError, DataError, LeewardError
from leeward.sweep import loading
from leeward.sweep.jobs import SweepJob, same_plan
from leeward.sweep.loading import Loader
from leeward.sweep.plan import make_plan
from leeward.sweep.request import Request

FIXED = {"steps": 20, "batch_size": 8, "hidden": [8]}


def plan(npz: Path, *algorithms: str, **changes: Any) -> list[SweepJob]:
    """The jobs of small settings on one data set."""
    asked: dict[str, Any] = {
        "algorithms": algorithms or ("td3-bc",),
        "datasets": [str(npz)],
        "settings": FIXED,
    }
    return make_plan(Request(**(asked | changes)), Loader())


def names(jobs: list[SweepJob]) -> list[str]:
    """The run directories."""
    return [job.name for job in jobs]


def test_seeds_and_floats_are_one_job_as_train_has_them(npz: Path) -> None:
    (job,) = plan(npz, seeds=(0, 7), grid={"alpha": [1, 2.5], "tau": [0.01, 0.1]})
    assert job.name == "td3-bc/small"
    assert job.rows() == [
        (seed, {"alpha": alpha, "tau": tau})
        for alpha, tau in itertools.product((1.0, 2.5), (0.01, 0.1))
        for seed in (0, 7)
    ]
    assert job.phases == [["train", 20]]
    assert job.config["alpha"] == 1.0
    assert job.options["seeds"] == [0, 7]


def test_what_no_program_can_vary_is_a_job_of_its_own(npz: Path) -> None:
    grid = {"hidden": [[8], [16, 16]], "alpha": [1.0, 2.5], "best_fraction": [0.5, 1.0]}
    jobs = plan(npz, grid=grid, settings={"steps": 20, "batch_size": 8})
    assert names(jobs) == [
        "td3-bc/small/hidden-8,best-fraction-0.5",
        "td3-bc/small/hidden-8,best-fraction-1.0",
        "td3-bc/small/hidden-16x16,best-fraction-0.5",
        "td3-bc/small/hidden-16x16,best-fraction-1.0",
    ]
    assert all(job.rows() == [(0, {"alpha": 1.0}), (0, {"alpha": 2.5})] for job in jobs)
    assert [job.config["hidden"] for job in jobs] == [[8], [8], [16, 16], [16, 16]]
    assert [job.options["best_fraction"] for job in jobs] == [0.5, 1.0, 0.5, 1.0]


def test_algorithms_and_data_sets_are_jobs_of_their_own(npz: Path) -> None:
    other = npz.with_name("other.npz")
    shutil.copyfile(npz, other)
    (npz.parent / "below").mkdir()
    namesake = npz.parent / "below" / "small.npz"
    shutil.copyfile(npz, namesake)
    sources = [str(npz), str(other), str(namesake)]
    jobs = plan(npz, "td3-bc", "bc", datasets=sources, grid={"td3_bc.alpha": [1.0, 2.5]})
    assert names(jobs) == [
        f"{algorithm}/{data}"
        for data in ("small", "other", "small-2")
        for algorithm in ("td3-bc", "bc")
    ]
    assert [len(job.runs) for job in jobs] == [2, 1] * 3
    assert [job.source for job in jobs[::2]] == sources


def test_a_setting_of_one_algorithm_comes_before_that_of_all(npz: Path) -> None:
    jobs = plan(npz, "td3-bc", "bc", grid={"hidden": [[8]], "bc.hidden": [[4]]}, settings={})
    assert [job.config["hidden"] for job in jobs] == [[8], [4]]


def test_a_part_of_the_runs_shares_a_program_where_asked(npz: Path) -> None:
    jobs = plan(npz, seeds=(0, 1), grid={"alpha": [1.0, 2.5]}, runs_per_job=3)
    assert names(jobs) == ["td3-bc/small/part-1", "td3-bc/small/part-2"]
    assert jobs[0].rows() == [(0, {"alpha": 1.0}), (1, {"alpha": 1.0}), (0, {"alpha": 2.5})]
    assert jobs[1].rows() == [(1, {"alpha": 2.5})]
    assert jobs[1].config["alpha"] == 2.5


def test_draws_share_programs_and_more_of_them_begin_with_the_same(npz: Path) -> None:
    random = {"alpha": "1..5", "critic_lr": "log:1e-4..1e-3", "policy_delay": [1, 2]}
    jobs = plan(npz, random=random, draws=6, seeds=(0, 1))
    assert sorted(names(jobs)) == ["td3-bc/small/policy-delay-1", "td3-bc/small/policy-delay-2"]
    rows = [row for job in jobs for row in job.rows()]
    assert len(rows) == 12
    assert all(1 <= row["alpha"] <= 5 and 1e-4 <= row["critic_lr"] <= 1e-3 for _, row in rows)
    assert len({row["alpha"] for _, row in rows}) == 6
    fewer = plan(npz, random=random, draws=3, seeds=(0, 1))
    kept = {row["alpha"] for job in fewer for _, row in job.rows()}
    assert len(kept) == 3
    assert kept < {row["alpha"] for _, row in rows}
    # One setting more changes no other's values.
    more = plan(npz, random={**random, "discount": "0.9..0.99"}, draws=3, seeds=(0, 1))
    assert {row["alpha"] for job in more for _, row in job.rows()} == kept
    other = plan(npz, random=random, draws=3, seeds=(0, 1), draw_seed=1)
    assert not kept & {row["alpha"] for job in other for _, row in job.rows()}


def test_every_algorithm_gets_the_same_draws(npz: Path) -> None:
    jobs = plan(npz, "td3-bc", "rebrac", random={"discount": "0.9..0.99"}, draws=3)
    first, second = ([row["discount"] for _, row in job.rows()] for job in jobs)
    assert first == second


def test_the_form_for_discrete_actions_is_planned(
    tmp_path: Path, discrete_dataset: Dataset
) -> None:
    path = tmp_path / "walks.npz"
    data = discrete_dataset
    np.savez(
        path,
        observations=data.observation,
        actions=data.action,
        rewards=data.reward,
        terminations=data.termination,
        truncations=data.truncation,
    )
    (job,) = plan(path, "bc")
    assert (job.name, job.algorithm) == ("discrete-bc/walks", "discrete_bc")
    with pytest.raises(DataError, match="td3-bc needs continuous actions, but those of"):
        plan(path, "bc", "td3-bc")


def test_a_preset_s_settings_are_the_job_s(npz: Path) -> None:
    (job,) = plan(npz, "fisher-brc", preset="reference", settings={"steps": 20})
    assert job.config["steps"] == 20
    assert [name for name, _ in job.phases] == ["behavior", "train"]
    assert job.done("train", 5) == job.phases[0][1] + 5


def test_each_data_set_is_read_once(npz: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = npz.with_name("other.npz")
    shutil.copyfile(npz, other)
    read, real = [], loading.read

    def counted(source: str, *arguments: Any, **named: Any) -> Dataset:
        read.append(Path(source).name)
        return real(source, *arguments, **named)

    monkeypatch.setattr(loading, "read", counted)
    grid = {"hidden": [[8], [16]]}
    plan(npz, "td3-bc", "bc", datasets=[str(npz), str(other)], grid=grid, settings={})
    assert read == ["small.npz", "other.npz"]


def test_a_plan_survives_being_written_down(npz: Path, tmp_path: Path) -> None:
    from leeward.sweep.jobs import read_plan, write_plan

    jobs = plan(npz, "td3-bc", "bc", seeds=(0, 1), grid={"td3_bc.alpha": [1.0, 2.5]})
    write_plan(tmp_path, jobs)
    assert same_plan(read_plan(tmp_path), jobs)
    assert not same_plan(jobs, jobs[:1])


REFUSED: list[tuple[Mapping[str, Any], str]] = [
    ({"algorithms": ()}, "a sweep needs --algorithms, or a file that names algorithms"),
    ({"datasets": ()}, "a sweep needs --datasets, or a file that names datasets"),
    ({"algorithms": ("bc", "BC")}, "--algorithms names bc twice"),
    ({"algorithms": ("il", "bc")}, "--algorithms names bc twice for {npz}"),
    (
        {"grid": {"expectile": [0.7, 0.9]}},
        "grid 'expectile': td3-bc has no setting 'expectile'.",
    ),
    (
        {"algorithms": ("td3-bc", "bc"), "grid": {"alpha": [1.0, 2.5]}},
        "grid 'alpha': bc has no setting 'alpha' (ALGORITHM.NAME is a setting of one alone). Did "
        "you mean initial_alpha?",
    ),
    ({"grid": {"iql.expectile": [0.7]}}, "grid 'iql.expectile': iql is not among the algorithms"),
    ({"grid": {"alpha": []}}, "grid 'alpha' needs at least one value"),
    ({"grid": {"alpha": [1, 1.0]}}, "grid 'alpha' has the value 1.0 twice"),
    ({"grid": {"alpha": [1.0, "x"]}}, "setting 'alpha' must be a number, got 'x'"),
    ({"grid": {"alpha": [1.0, {}]}}, "grid 'alpha': no setting has the value {{}}"),
    ({"grid": {"hidden": [8]}}, "'hidden' is in both settings and grid: name it once"),
    ({"settings": {"steps": "many"}}, "setting 'steps' must be int, got 'many'"),
    ({"settings": {"batch_size": 0}}, "setting 'batch_size' must be at least 1, got 0"),
    ({"seeds": (1, 1)}, "--seeds names a seed twice: 1 1"),
    ({"runs_per_job": -1}, "--runs-per-job must be 0 (all) or more, got -1"),
    (
        {"options": {"devices": 64}},
        "--devices 64, but this process sees 1 (cpu): ask for 1 or fewer",
    ),
    ({"options": {"run_dir": "x"}}, "'run_dir' is no option of a sweep's runs"),
    ({"draws": 2}, "random settings and --draws, how many combinations of them, go together"),
    (
        {"random": {"alpha": "1..2"}},
        "random settings and --draws, how many combinations of them, go together",
    ),
    (
        {"random": {"policy_delay": [1, 2]}, "draws": 3},
        "--draws 3: only 2 different combinations of policy_delay were found: --grid trains all of "
        "them",
    ),
    (
        {"random": {"policy_delay": "0.5..2"}, "draws": 3},
        "random setting 'policy_delay' takes whole numbers, got '0.5..2'",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[m[:50] for _, m in REFUSED])
def test_impossible_sweeps_are_refused(npz: Path, changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(LeewardError) as error:
        plan(npz, **changes)
    assert str(error.value) == message.format(npz=npz)


def test_a_wrong_setting_is_refused_before_anything_is_written(npz: Path, tmp_path: Path) -> None:
    place = tmp_path / "sweep"
    with pytest.raises(ConfigError):
        leeward.sweep(
            ["bc", "td3_bc"], npz, grid={"td3_bc.alpha": [1.0, "x"]}, sweep_dir=place, quiet=True
        )
    assert not place.exists()
    with pytest.raises(ConfigError, match="--devices 2, but this process sees 1"):
        leeward.sweep("bc", npz, seeds=(0, 1), devices=2, sweep_dir=place, quiet=True)
    assert not place.exists()


@pytest.mark.parametrize(
    ("options", "seeds", "message"),
    [
        ({"devices": 64}, range(2), None),  # the machines that jobs come to may have them
        ({"devices": 4, "split": "batch"}, (0,), None),
        (
            {"devices": 3, "split": "batch"},
            (0,),
            "--split batch: a batch of 8 has no 3 equal parts",
        ),
        ({"devices": 2}, (0,), "--devices 2 splits runs, and there is only one"),
        (
            {"devices": 2, "data_location": "disk"},
            range(2),
            "--data-location disk feeds one device: add --devices 1, or use --data-location memory",
        ),
    ],
)
def test_jobs_that_run_elsewhere_are_checked_for_what_can_be_split(
    npz: Path, options: dict[str, Any], seeds: Sequence[int], message: str | None
) -> None:
    request = Request(("td3-bc",), [str(npz)], tuple(seeds), settings=FIXED, options=options)
    if message is None:
        (job,) = make_plan(request, Loader(), here=False)
        assert job.options["devices"] == options["devices"]
        return
    with pytest.raises(ConfigError) as error:
        make_plan(request, Loader(), here=False)
    assert str(error.value).startswith(message)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    """The jobs of `leeward sweep … --print-plan`."""
    assert cli.main(["sweep", *arguments, "--print-plan"]) == 0
    return json.loads(capsys.readouterr().out)["jobs"]


def test_flags_and_a_file_ask_for_the_same(
    npz: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        f"""
        algorithms = ["td3-bc", "bc"]
        datasets = ["{npz}"]
        seeds = [0, 1]
        draws = 2
        [settings]
        steps = 20
        hidden = [8]
        [grid.td3-bc]
        alpha = [1.0, 2.5]
        [random]
        batch_size = [8, 16]
        [options]
        eval_every = 0
        """
    )
    flags = ["--algorithms", "td3-bc", "bc", "--datasets", str(npz), "--seeds", "0", "1"]
    flags += ["--steps", "20", "--settings", "hidden=[8]", "--grid", "td3-bc.alpha=1,2.5"]
    flags += ["--random", "batch-size=8,16", "--draws", "2", "--eval-every", "0"]
    jobs = printed(capsys, *flags)
    assert len(jobs) == 4
    assert {job["options"]["eval_every"] for job in jobs} == {0}
    assert printed(capsys, str(file)) == jobs
    # Flags beside a file win, settings one by one.
    changed = printed(capsys, str(file), "--seeds", "3", "--grid", "td3-bc.alpha=9")
    assert [run["seed"] for job in changed for run in job["runs"]] == [3] * 4
    assert [job["config"]["alpha"] for job in changed if job["algorithm"] == "td3_bc"] == [9.0] * 2


def test_a_file_s_wrong_setting_is_named_with_the_file(
    npz: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(f'algorithms = ["bc"]\ndatasets = ["{npz}"]\n[grid]\nlrr = [1.0]\n')
    assert cli.main(["sweep", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"leeward: error: {file}: grid 'lrr': bc has no setting 'lrr'. Did you mean lr?\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--settings", "alpha=1,2"],
            "--settings alpha has several values: --grid trains",
        ),
        (["--gpus-per-job", "1"], "--gpus-per-job needs --ray: without it jobs run in order in "),
        (["--max-time", "soon"], "--max-time must look like 90s, 30m or 2h, got 'soon'"),
    ],
)
def test_flags_that_do_not_fit(
    npz: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["sweep", "--algorithms", "td3-bc", "--datasets", str(npz), *flags]
    assert cli.main(line) == 2
    assert message in capsys.readouterr().err
