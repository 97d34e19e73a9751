"""`leeward compare A B`: what is said of two methods, and when nothing can be said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fabricated import write_run
from leeward import cli
from leeward.compare import compare, sentence
from leeward.errors import LeewardError

GOOD = [80.0, 82.0, 85.0, 88.0, 90.0]
POOR = [20.0, 22.0, 25.0, 28.0, 30.0]


def test_a_clear_difference_is_said_in_one_sentence(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", GOOD)
    two = write_run(tmp_path / "b", POOR, algorithm="bc")
    found = compare(one, two)
    assert found.outcome == "better"
    p_value = f"{found.p_value:.2g}"
    assert 0.004 < found.p_value < 0.013  # 2 of 252 ways to divide ten runs
    assert str(found) == (
        "td3-bc is better than bc: a run of td3-bc beats a run of bc with probability 1.00 "
        f"[1.00, 1.00], p = {p_value} (the last evaluation, 5 against 5 seeds, 1 task)."
    )
    other = compare(two, one)
    assert other.outcome == "worse"
    assert sentence(other) == str(found)  # whichever way round they are asked for


def test_three_seeds_each_show_nothing_however_far_apart(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", GOOD[:3])
    two = write_run(tmp_path / "b", POOR[:3], algorithm="bc")
    found = compare(one, two)
    assert found.outcome == "not shown"
    assert sentence(found) == (
        "These runs do not show whether td3-bc is better than bc: a run of td3-bc beats a run of "
        f"bc with probability 1.00 [1.00, 1.00], and chance alone would differ as much with p = "
        f"{found.p_value:.2g} (the last evaluation, 3 against 3 seeds, 1 task). More seeds tell."
    )


def test_two_seeds_are_too_few(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", GOOD)
    two = write_run(tmp_path / "b", POOR[:2], algorithm="bc")
    assert sentence(compare(one, two)) == (
        "Whether td3-bc is better than bc cannot be said with fewer than 3 seeds of each: a run of "
        "td3-bc beats a run of bc with probability 1.00 (the last evaluation, 5 against 2 seeds, 1 "
        "task)."
    )


def test_equal_methods_are_not_told_apart(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", GOOD)
    two = write_run(tmp_path / "b", GOOD[::-1], algorithm="bc")
    found = compare(one, two)
    assert found.outcome == "not shown"
    assert found.probability.value == 0.5
    assert found.p_value == 1.0


def test_folders_are_compared_on_the_tasks_that_both_have(tmp_path: Path) -> None:
    for method, scores in (("td3_bc", GOOD), ("bc", POOR)):
        for task in ("hopper", "walker"):
            write_run(tmp_path / method / task, scores, algorithm=method, data=task)
    write_run(tmp_path / "bc" / "ant", POOR, algorithm="bc", data="ant")
    found = compare(tmp_path / "td3_bc", tmp_path / "bc")
    assert [one.task.name for one in found.tasks] == ["hopper", "walker"]
    assert found.notes == ("Only one of them was trained on ant: left out.",)
    assert str(found).endswith("(the last evaluation, 5 against 5 seeds, 2 tasks).")


def test_the_same_method_before_and_after_a_change_goes_by_its_folders(tmp_path: Path) -> None:
    found = compare(write_run(tmp_path / "old", POOR), write_run(tmp_path / "new", GOOD))
    assert (found.first, found.second) == (str(tmp_path / "old"), str(tmp_path / "new"))
    assert found.outcome == "worse"


def test_methods_that_differ_in_a_setting_are_called_by_it(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", GOOD, config={"alpha": 1.0})
    two = write_run(tmp_path / "b", POOR, config={"alpha": 5.0})
    found = compare(one, two)
    assert (found.first, found.second) == ("td3-bc (alpha 1)", "td3-bc (alpha 5)")


def test_the_protocol_chooses_the_evaluations(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", [[90.0, 10.0 + k] for k in range(5)])
    two = write_run(tmp_path / "b", [[50.0, 50.0 + k] for k in range(5)], algorithm="bc")
    assert compare(one, two, protocol="last").outcome == "worse"
    assert compare(one, two, protocol="best").outcome == "better"


def test_online_selection_is_told_for_both(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", GOOD)
    two = write_run(tmp_path / "b", POOR, algorithm="bc")
    (task,) = compare(one, two).tasks
    assert task.selection is not None
    first, second = task.selection
    assert first.mean[0] < first.mean[-1]
    assert first.mean[-1] == pytest.approx(90.0, abs=0.5)
    assert second.mean[-1] == pytest.approx(30.0, abs=0.5)
    assert compare(one, two).selection is None  # there is one task only


def test_online_selection_is_told_in_the_mean_over_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for method, scores in (("td3_bc", GOOD), ("bc", POOR)):
        for task, more in (("hopper", 0.0), ("walker", 8.0)):
            own = [score + more for score in scores]
            write_run(tmp_path / method / task, own, algorithm=method, data=task)
    sides = str(tmp_path / "td3_bc"), str(tmp_path / "bc")
    found = compare(*sides)
    assert found.selection is not None
    for side, mean in enumerate(found.selection):
        each = [task.selection[side].mean for task in found.tasks if task.selection is not None]
        np.testing.assert_allclose(mean, np.mean(each, axis=0))
    assert found.selection[0][-1] == pytest.approx(94.0, abs=0.5)
    assert cli.main(["compare", *sides]) == 0
    assert "mean of all tasks" in capsys.readouterr().out
    assert cli.main(["compare", *sides, "--json"]) == 0
    tries = json.loads(capsys.readouterr().out)["online_selection"]
    assert [row["episodes"] for row in tries] == [1, 5, 20, 100]
    assert tries[-1]["first"] == pytest.approx(found.selection[0][99])


def refused(first: Path, second: Path) -> str:
    """The error's text, with the folder of the tests as DIR."""
    with pytest.raises(LeewardError) as caught:
        compare(first, second)
    return str(caught.value).replace(str(first.parent), "DIR")


def test_what_cannot_be_compared_is_refused_in_one_line(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", GOOD)
    assert refused(one, one) == "DIR/a is both A and B: name two"
    walker = write_run(tmp_path / "w", POOR, data="walker")
    assert refused(one, walker) == (
        "DIR/a and DIR/w share no task: one is of made-up-v0, the other of walker"
    )
    other = write_run(tmp_path / "e", POOR, environment="MadeUp-v9")
    assert refused(one, other) == (
        "DIR/a was evaluated in MadeUp-v0 and DIR/e in MadeUp-v9, both trained on made-up-v0: "
        "their numbers cannot be compared"
    )
    (tmp_path / "empty").mkdir()
    assert refused(one, tmp_path / "empty") == (
        "DIR/empty: not a run directory (it has no config.json), nor does it hold one"
    )


def test_a_run_that_was_never_evaluated_is_refused(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", GOOD)
    blind = write_run(tmp_path / "blind", [[], [], []], algorithm="bc")
    assert refused(one, blind) == (
        "DIR/blind was never evaluated on made-up-v0, so there is nothing to compare: train it "
        "with --env"
    )


def test_several_methods_on_one_side_are_refused(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", GOOD)
    rows = [{"run": 0, "seed": 0, "alpha": 1.0}, {"run": 1, "seed": 0, "alpha": 5.0}]
    swept = write_run(tmp_path / "swept", [1.0, 2.0], rows=rows)
    assert refused(one, swept) == (
        "DIR/swept holds several methods (td3-bc (alpha 1), td3-bc (alpha 5)): compare takes one "
        "on each side; `leeward report` shows them all"
    )


def test_the_command_prints_the_sentence_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write_run(tmp_path / "a", GOOD)
    two = write_run(tmp_path / "b", POOR, algorithm="bc")
    assert cli.main(["compare", str(one), str(two)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == str(compare(one, two))
    assert any("85.0 (5 seeds)" in line for line in lines)
    assert cli.main(["compare", str(one), str(two), "--json"]) == 0
    held = json.loads(capsys.readouterr().out)
    assert held["outcome"] == "better"
    assert held["text"] == str(compare(one, two))
    assert held["tasks"][0]["first"] == GOOD


def test_the_command_prints_an_error_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write_run(tmp_path / "a", GOOD)
    assert cli.main(["compare", str(one), str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err == (
        f"leeward: error: {tmp_path}/no: no such folder: name a run directory, or a folder that "
        "holds some\n"
    )
