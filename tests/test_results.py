"""From run directories to scores: names, protocols, notes, and what cannot stand side by side."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fabricated import write_lines, write_run
from leeward.errors import CheckpointError, ConfigError, LeewardError
from leeward.results import Results, collect, find_runs


def results(*paths: Path) -> Results:
    """What lies at the paths."""
    return collect(find_runs(paths))


def test_a_run_s_number_follows_the_protocol(tmp_path: Path) -> None:
    curve = [float(v) for v in range(1, 15)] + [3.0]  # 15 evaluations; the best is the 14th
    found = results(write_run(tmp_path / "run", [curve, [8.0, 2.0]]))
    (task,) = found.tasks
    assert found.values("td3-bc", task, "last").tolist() == [3.0, 2.0]
    assert found.values("td3-bc", task, "best").tolist() == [14.0, 8.0]
    assert found.values("td3-bc", task, "last-10").tolist() == [np.mean(curve[-10:]), 5.0]


def test_folders_of_runs_are_searched(tmp_path: Path) -> None:
    write_run(tmp_path / "all" / "a" / "hopper", [1.0], data="hopper")
    write_run(tmp_path / "all" / "walker", [1.0], data="walker")
    assert [task.name for task in results(tmp_path / "all").tasks] == ["hopper", "walker"]


def test_seeds_of_several_directories_are_one_method(tmp_path: Path) -> None:
    write_run(tmp_path / "one", [1.0, 2.0])
    write_run(tmp_path / "two", [3.0], rows=[{"run": 0, "seed": 7}])
    found = results(tmp_path)
    assert found.methods == ("td3-bc",)
    assert found.scores("last")["td3-bc"]["made-up-v0"].tolist() == [1.0, 2.0, 3.0]


def test_settings_name_a_method_only_where_runs_of_one_task_differ_in_them(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [1.0], data="hopper", config={"alpha": 1.0})
    write_run(tmp_path / "b", [1.0], data="walker", config={"alpha": 2.0})
    assert results(tmp_path).methods == ("td3-bc",)
    write_run(tmp_path / "c", [1.0], data="walker", config={"alpha": 3.0})
    assert results(tmp_path).methods == ("td3-bc (alpha 1)", "td3-bc (alpha 2)", "td3-bc (alpha 3)")


def test_swept_settings_and_shares_of_the_data_name_methods(tmp_path: Path) -> None:
    rows = [{"run": 0, "seed": 0, "alpha": 1.0}, {"run": 1, "seed": 0, "alpha": 5.0}]
    write_run(tmp_path / "swept", [1.0, 2.0], rows=rows)
    write_run(tmp_path / "bc", [1.0], algorithm="bc")
    write_run(tmp_path / "best", [1.0], algorithm="bc", options__best_fraction=0.1)
    assert sorted(results(tmp_path).methods) == [
        "10 % bc",
        "bc",
        "td3-bc (alpha 1)",
        "td3-bc (alpha 5)",
    ]


def test_scores_of_episodes_follow_the_scale_of_the_evaluations(tmp_path: Path) -> None:
    (task,) = results(write_run(tmp_path / "run", [[20.0, 40.0], [60.0, 80.0]])).tasks
    scored = task.scored(np.array([5.0, 1_005.0]))
    assert scored is not None
    np.testing.assert_allclose(scored, [0.0, 100.0], atol=1e-9)


def test_without_reference_returns_a_task_has_returns(tmp_path: Path) -> None:
    found = results(write_run(tmp_path / "run", [20.0], normalized=False))
    (task,) = found.tasks
    assert task.quantity == "return"
    assert found.values("td3-bc", task, "last").tolist() == [205.0]


def notes(*paths: Path) -> tuple[str, ...]:
    """The notes without the one on few seeds."""
    return tuple(n for n in results(*paths).notes if not n.startswith("Fewer"))


def test_faithful_runs_need_no_note(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [1.0, 2.0, 3.0])
    write_run(tmp_path / "b", [1.0, 2.0, 3.0], algorithm="iql", options__reward_transform="x")
    assert results(tmp_path).notes == ()


def test_seeds_that_diverged_are_told(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [[1.0, 2.0], [1.0], [1.0, 2.0]])
    assert notes(run) == (
        "Seed 1 of td3-bc on made-up-v0 has no evaluation after 100 updates (it diverged): that "
        "one counts as its last.",
    )
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    write_lines(run / "evaluations.jsonl", [line for line in lines if line["seed"] != 1])
    assert notes(run) == (
        "Seed 1 of td3-bc on made-up-v0 was never evaluated (it diverged): it is missing from "
        "every number, which flatters the method.",
    )


def test_whatever_makes_runs_unlike_is_told(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", [1.0], finished=False)
    write_run(
        tmp_path / "two",
        [1.0],
        algorithm="iql",
        data__hash="1" * 64,
        versions__mujoco="3.3.0",
        options__eval_episodes=10,
        options__eval_every=50,
        steps=2_000,
    )
    assert results(tmp_path).notes == (
        f"{one} is not finished: its last evaluation so far counts.",
        "Runs on made-up-v0 were trained on different contents of that name.",
        "The runs were made under different versions of MuJoCo: 3.3.0, 4.0.0.",
        "The runs on made-up-v0 were evaluated with different numbers of episodes: 10, 2.",
        "The runs on made-up-v0 were evaluated at different intervals of updates: 100, 50.",
        "The runs on made-up-v0 were trained for different numbers of updates: 1,000, 2,000.",
        "Fewer than 3 seeds bear no interval: there is none for td3-bc on made-up-v0, iql on "
        "made-up-v0, nor for any number that includes them.",
    )


def message(*paths: Path) -> str:
    """The error's text, with the folder of the tests as DIR."""
    with pytest.raises(LeewardError) as caught:
        results(*paths)
    return str(caught.value).replace(str(paths[0].parents[0]), "DIR")


def test_what_holds_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    asks = "name a run directory, or a folder that holds some"
    assert message(tmp_path / "nowhere") == f"DIR/nowhere: no such folder: {asks}"
    assert message(tmp_path / "file") == f"DIR/file: not a folder: {asks}"
    assert message(tmp_path / "empty") == (
        "DIR/empty: not a run directory (it has no config.json), nor does it hold one"
    )


def test_a_config_of_something_else_is_refused(tmp_path: Path) -> None:
    for name, text in (("list", "[1]"), ("other", '{"algorithm": "x"}'), ("broken", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    assert message(tmp_path / "list") == (
        "DIR/list/config.json: not that of a run (it has no 'algorithm')"
    )
    assert message(tmp_path / "other") == (
        "DIR/other/config.json: not that of a run (it has no 'config')"
    )
    assert message(tmp_path / "broken").startswith(
        "DIR/broken/config.json: cannot be read as JSON ("
    )


def test_damaged_evaluations_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [1.0])
    (run / "evaluations.jsonl").write_text("{]\n")
    with pytest.raises(CheckpointError, match=r"evaluations\.jsonl: damaged \(JSONDecodeError"):
        results(run)


def test_no_run_counts_twice(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", [1.0])
    write_run(tmp_path / "two", [1.0])
    assert message(one, one) == "DIR/one is named twice: leave one out"
    with pytest.raises(ConfigError) as caught:
        results(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/one and {tmp_path}/two both hold seed 0 of td3-bc on made-up-v0: leave one "
        "out, or it would count twice"
    )


def test_environments_are_not_mixed(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", [1.0])
    two = write_run(tmp_path / "two", [1.0], algorithm="iql", environment="MadeUp-v1")
    assert message(one, two) == (
        "DIR/one was evaluated in MadeUp-v0 and DIR/two in MadeUp-v1, both trained on made-up-v0: "
        "their numbers cannot be mixed, so name one of them"
    )
