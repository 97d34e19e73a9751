"""`leeward reproduce`: what a row is trained with, runs judged by their directories, and small ones
from start to judgement.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import small_environments  # noqa: F401 (registers LeewardTest/…)
from leeward import cli
from leeward import reproduce as module
from leeward.algorithms import get_algorithm
from leeward.config import from_json
from leeward.data.write import write_d4rl
from leeward.errors import ConfigError
from leeward.published import scores
from leeward.reproduce import judge, make_plan, mismatches, settings
from leeward.run import Run

ROW = scores.find("td3-bc/hopper-medium-expert-v2")


# What a row is trained with.


def test_fewer_steps_shorten_the_earlier_phases_in_proportion() -> None:
    plan = make_plan(scores.find("fisher-brc/hopper-medium-v0"))
    whole = settings(plan, None)
    assert (whole["steps"], whole["bc_pretraining_steps"]) == (1_000_000, 1_000_000)
    short = settings(plan, 2_000)
    assert (short["steps"], short["bc_pretraining_steps"]) == (2_000, 2_000)
    longer = settings(plan, 2_000_000)
    assert (longer["steps"], longer["bc_pretraining_steps"]) == (2_000_000, 1_000_000)
    warm_up = settings(make_plan(scores.find("cql/hopper-medium-v0")), 1_000)
    assert warm_up["bc_steps"] == 40


def test_every_row_whose_settings_were_published_has_a_plan() -> None:
    options = {field.name for field in dataclasses.fields(module.RunOptions)}
    for row in scores.rows().values():
        if row.preset is None or row.name.startswith("cql/hopper-medium-v2@corl"):
            continue
        arguments = settings(make_plan(row), None)
        own = {n: v for n, v in arguments.items() if n not in options}
        config = from_json(get_algorithm(row.algorithm).config_type, own)
        lengths = (500_000, 1_000_000) if row.made is None else (50_000, 120_000)
        assert config.steps in lengths, row.name
        assert arguments["eval_episodes"] == row.episodes
        if row.config and row.made is None:
            assert config.normalize_observations is False


def test_evaluations_are_as_many_as_the_rule_needs() -> None:
    every = {
        name: settings(make_plan(scores.find(name)), steps)["eval_every"]
        for name, steps in (
            ("td3-bc/hopper-medium-v2", None),
            ("iql/hopper-medium-v2", None),
            ("iql/hopper-medium-v2@corl-best", None),
            ("td3-bc/walker2d-medium-v2", 200),
        )
    }
    assert list(every.values()) == [5_000, 10_000, 5_000, 20]


def test_a_row_whose_settings_were_not_published_cannot_be_trained() -> None:
    with pytest.raises(ConfigError) as caught:
        make_plan(scores.find("td3-bc/hopper-medium-v2@rebrac"))
    assert str(caught.value) == (
        "td3-bc/hopper-medium-v2@rebrac cannot be trained: the settings behind it were not "
        "published (arXiv 2305.09836 (ReBRAC), Table 2)"
    )


def test_a_row_without_a_current_environment_asks_for_one() -> None:
    with pytest.raises(ConfigError) as caught:
        module.reproduce("bcq/ant-medium-v2@d3rlpy")
    assert str(caught.value) == (
        "bcq/ant-medium-v2@d3rlpy cannot be evaluated: D4RL's ant data has 111 observations, "
        "Ant-v4 has 27. --env names another environment, whose numbers are not comparable"
    )


# Runs by what their directories hold.


def a_run(directory: Path, score: float = 98.0, row: scores.Row = ROW, **changes: Any) -> Run:
    """The directory of a whole, faithful run of three seeds; changes are by path: data__name."""
    plan = make_plan(row)
    config = {
        "format": 1,
        "algorithm": row.algorithm,
        "config": dict(plan.config),
        "steps": 1_000_000,
        "runs": [{"run": i, "seed": i} for i in range(3)],
        "options": {
            "eval_every": row.eval_every,
            "eval_episodes": row.episodes,
            **{n: v for n, v in module.RunOptions().__dict__.items() if n == "best_fraction"},
            **{n: v for n, v in module.RunOptions().__dict__.items() if n.startswith("reward_")},
        },
        "environment": plan.env,
        "data": {"source": row.dataset, "name": row.dataset},
        "versions": {"mujoco": "4.0.0"},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        place: Any = config
        for parent in parents:
            place = place[parent]
        place[last] = value
    (directory / "final").mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    lines = [
        {"run": run, "step": step, "score_mean": score + run, "return_mean": 100.0 * (score + run)}
        for step in range(950_000 + row.eval_every, config["steps"] + 1, row.eval_every)
        for run in range(3)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "evaluations.jsonl").write_text(text)
    return Run(directory)


def test_a_faithful_run_is_judged_by_its_numbers(tmp_path: Path) -> None:
    kinds = {
        score: judge(make_plan(ROW), a_run(tmp_path / str(score), score)).verdict.kind
        for score in (98.0, 80.0, 120.0)
    }
    assert kinds == {98.0: "reproduced", 80.0: "below", 120.0: "above"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"steps": 990_000}, "fewer updates than published (990,000, not 1,000,000)"),
        ({"steps": 1_050_000}, "more updates than published (1,050,000, not 1,000,000)"),
        (
            {"data__source": "/data/log.hdf5", "data__name": "log"},
            "other data than hopper-medium-expert-v2 (log)",
        ),
        (
            {"data__source": None, "data__name": "mine"},
            "other data than hopper-medium-expert-v2 (mine)",
        ),
        (
            {"environment": "Hopper-v5"},
            "another environment than that of hopper-medium-expert-v2 (Hopper-v5)",
        ),
        ({"config__alpha": 1.0}, "other settings (alpha 1.0, not 2.5)"),
        ({"config__hidden": [64]}, "other settings (hidden [64], not [256, 256])"),
        ({"options__best_fraction": 0.5}, "other settings (best_fraction 0.5, not 1.0)"),
        ({"options__eval_episodes": 3}, "3 episodes an evaluation, not 10"),
        (
            {"options__eval_every": 10_000},
            "evaluations every 10,000 updates, not every 5,000",
        ),
        (
            {"runs": [{"run": i, "seed": i, "alpha": 2.5} for i in range(3)]},
            "other settings (alpha)",
        ),
    ],
)
def test_a_run_that_departs_from_its_row_is_not_comparable(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    result = judge(make_plan(ROW), a_run(tmp_path / "run", **changes))
    assert result.verdict.reasons == (reason,)
    assert result.verdict.text == f"not comparable because {reason}"


def test_an_unfinished_run_says_how_far_it_came(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    (run.directory / "final").rmdir()
    (run.directory / "evaluations.jsonl").unlink()
    assert judge(make_plan(ROW), run).verdict.text == (
        "not comparable because the run is not finished (0 of 1,000,000 updates); the run was "
        "never evaluated"
    )


def test_a_seed_that_diverged_is_told_from_a_task_without_references(tmp_path: Path) -> None:
    def verdict(name: str, **missing: Any) -> str:
        run = a_run(tmp_path / name)
        path = run.directory / "evaluations.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines = [{**line, **missing} if line["run"] == 1 else line for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return judge(make_plan(ROW), run).verdict.text

    assert verdict("diverged", score_mean=None, return_mean=None) == (
        "not comparable because there is no finite number for 1 of 3 seeds"
    )
    assert verdict("unknown", score_mean=None) == (
        "not comparable because no reference returns are known for Hopper-v4"
    )


def test_a_run_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", algorithm="iql")
    with pytest.raises(ConfigError, match=r"is a run of iql, not of td3_bc$"):
        judge(make_plan(ROW), run)


def test_tianshou_s_rows_compare_raw_returns_and_its_cql_says_what_is_wrong(
    tmp_path: Path,
) -> None:
    il = scores.find("tianshou/il-halfcheetah-medium")
    result = judge(make_plan(il), a_run(tmp_path / "il", 50.0, il))
    assert result.values == (5000.0, 5100.0, 5200.0)
    assert result.verdict.kind == "reproduced"  # 5098.16 lies between 5000 and 5200
    cql = scores.find("tianshou/cql-halfcheetah-medium")
    verdict = judge(make_plan(cql), a_run(tmp_path / "cql", 65.0, cql)).verdict
    assert verdict.text == (
        'not comparable because the published number comes from faulty code: its "uniform" '
        "actions are all +1, and its logsumexp runs over 3 values in place of 30 (later versions "
        "also bound the uniform actions' values by the data's return)"
    )


def test_what_the_source_does_otherwise_is_noted(tmp_path: Path) -> None:
    row = scores.find("iql/hopper-medium-v2@corl")
    notes = judge(make_plan(row), a_run(tmp_path / "run", row=row)).notes
    assert notes == (
        "CORL's actor is deterministic there, fitted by squared error; ours is the paper's "
        "Gaussian",
        "evaluated in Hopper-v4 under MuJoCo 4.0.0, published numbers in D4RL's environments: "
        "comparable, not identical",
    )


def test_a_maze_is_compared_with_the_remark_that_its_simulator_is_another(tmp_path: Path) -> None:
    row = scores.find("bc/maze2d-umaze-v1@corl")
    result = judge(make_plan(row), a_run(tmp_path / "run", row.mean, row))
    assert result.verdict.kind == "reproduced"
    assert result.verdict.text.endswith("] (close, not the same simulator)")
    assert result.notes[-1] == (
        "evaluated in Leeward/Maze2dUMaze-v1 under MuJoCo 4.0.0, published numbers in D4RL's "
        "environments: close, not the same simulator (D4RL's layout, coordinates, starts, goals, "
        "rewards and lengths on MuJoCo's current engine, D4RL's was mujoco-py)"
    )
    other = a_run(tmp_path / "other", row.mean, row, environment="PointMaze_UMaze-v3")
    assert judge(make_plan(row), other).verdict.text == (
        "not comparable because another environment than that of maze2d-umaze-v1 "
        "(PointMaze_UMaze-v3)"
    )


def test_a_shorter_first_phase_is_told_as_fewer_updates_only(tmp_path: Path) -> None:
    row = scores.find("fisher-brc/hopper-medium-v0")
    run = a_run(tmp_path / "run", row=row, steps=990_000, config__bc_pretraining_steps=990_000)
    assert mismatches(make_plan(row), run, 990_000) == [
        "fewer updates than published (990,000, not 1,000,000)"
    ]


# From start to judgement.

LINE = "small_environments:LeewardTest/Line-v0"


@pytest.fixture(scope="module")
def line_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 walks of 12 steps on the line, as a D4RL file with its own reference returns."""
    generator = np.random.default_rng(0)
    position = generator.uniform(-1, 1, size=240)
    path = tmp_path_factory.mktemp("data") / "line.hdf5"
    write_d4rl(
        path,
        observation=np.stack([position, np.full(240, 0.5)], axis=1).astype(np.float32),
        action=np.clip(-position, -2, 2)[:, None].astype(np.float32),
        reward=-np.abs(position).astype(np.float32),
        termination=np.zeros(240, bool),
        truncation=np.arange(240) % 12 == 11,
        metadata={
            "action_low": [-2.0],
            "action_high": [2.0],
            "reference_minimum": -20.0,
            "reference_maximum": 0.0,
        },
    )
    return path


@pytest.fixture(scope="module")
def finished(line_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A row trained for 20 updates on other data."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["bc-10/hopper-medium-v2@corl", "--steps", "20", "--data", str(line_data)]
    arguments += ["--env", LINE, "--seeds", "0", "1", "2", "--run-dir", str(directory), "--quiet"]
    assert cli.main(["reproduce", *arguments]) == 0
    return directory


REASON = (
    "not comparable because {} updates than published ({}, not 1,000,000); other data than "
    "hopper-medium-v2 (line); another environment than that of hopper-medium-v2 (" + LINE + ")"
)


def test_a_row_is_trained_with_its_settings_and_judged(finished: Path) -> None:
    saved = Run(finished).config
    assert (saved["algorithm"], saved["steps"]) == ("bc", 20)
    assert saved["options"]["best_fraction"] == 0.1
    assert saved["config"]["hidden"] == [256, 256]
    assert saved["data"]["options"] == {"d4rl_rows": "qlearning"}
    told = json.loads((finished / "reproduction.json").read_text())
    assert told["row"] == "bc-10/hopper-medium-v2@corl"
    assert told["published"]["mean"] == 55.48
    assert told["ours"]["seeds"] == [0, 1, 2]
    assert told["ours"]["mean"] == pytest.approx(np.mean(Run(finished).scores()))
    assert told["ours"]["interval"][0] <= told["ours"]["mean"] <= told["ours"]["interval"][1]
    assert told["verdict"] == "not comparable"
    assert told["text"] == REASON.format("fewer", "20")


def test_a_run_can_be_continued_and_judged_again(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bc-10/hopper-medium-v2@corl", "--resume", str(finished), "--steps", "25"]
    assert cli.main(["reproduce", *arguments, "--quiet", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["ours"]["updates"] == 25
    assert printed["text"] == REASON.format("fewer", "25")
    assert printed == json.loads((finished / "reproduction.json").read_text())


def test_the_command_prints_both_numbers_and_the_verdict(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bc-10/hopper-medium-v2@corl", "--resume", str(finished), "--quiet"]
    assert cli.main(["reproduce", *arguments]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["published"] == "55.5 ± 7.3 (normalized score)"
    assert lines["source"] == "tinkoff-ai/CORL README.md @6afec90"
    assert lines["ours"].endswith(
        "95 % bootstrap interval over seeds (the last evaluation of every seed: "
        + " ".join(f"{value:.1f}" for value in Run(finished).scores())
        + ")"
    )
    assert lines["verdict"].startswith("not comparable because fewer updates")


# The command.


def test_the_list_shows_rows_by_a_part_of_their_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["reproduce", "--list", "tianshou/CQL"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["tianshou/cql-halfcheetah-expert", "2864.4", "return"],
        ["tianshou/cql-halfcheetah-medium", "6505.4", "return"],
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            [],
            "name a row: leeward reproduce ROW (leeward reproduce --list shows them)",
        ),
        (
            ["iql/hopper"],
            "no published row 'iql/hopper'. Did you mean iql/hopper-medium-v2 or cql/hopper-random-"
            "v0 or cql/hopper-medium-v0? leeward reproduce --list shows them all",
        ),
        (
            ["iql/hopper-medium-v2", "--resume", "there", "--seeds", "1"],
            "--resume continues a run as it was started: --seeds, --data, --env and --run-dir do "
            "not go with it",
        ),
        (
            ["iql/hopper-medium-v2", "--resume", "there"],
            "there: not a run directory (it has no config.json)",
        ),
    ],
)
def test_wrong_input_is_one_line(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reproduce", *arguments]) == 2
    assert capsys.readouterr().err == f"leeward: error: {text}\n"
