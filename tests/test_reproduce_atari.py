"""Published Atari rows: their settings, the data that they need, and runs judged beside them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import h5py
import numpy as np
import pytest

import leeward
from leeward import cli
from leeward.errors import ConfigError
from leeward.options import RunOptions
from leeward.published import scores
from leeward.reproduce import judge, make_plan, reproduce
from leeward.run import Run


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("cql-pong-1e6", 10.0),
        ("cql-pong-1e5", 10.0),
        ("cql-pong-1e4", 1.0),
        ("cql-breakout-1e6", 50.0),
        ("cql-breakout-1e5", 20.0),
        ("cql-breakout-1e4", 10.0),
        ("crr-pong-1e6", 0.0),
        ("crr-cql-pong-1e6", 10.0),
        ("crr-breakout-1e6", 0.0),
        ("crr-cql-breakout-1e6", 50.0),
    ],
)
def test_atari_rows_have_the_weight_and_the_length_of_their_size(name: str, weight: float) -> None:
    plan = make_plan(scores.find(f"tianshou/atari-{name}"))
    assert plan.config["cql_weight"] == weight
    assert plan.config["steps"] == (50_000 if "pong" in name else 120_000)
    assert plan.env == ("PongNoFrameskip-v4" if "pong" in name else "BreakoutNoFrameskip-v4")


def test_atari_rows_say_how_their_data_are_made() -> None:
    row = scores.find("tianshou/atari-cql-breakout-1e5")
    assert row.made == scores.Made("BreakoutNoFrameskip-v4", 100_000, 41.4)
    assert row.needs == (
        "100,000 transitions of BreakoutNoFrameskip-v4 by a QR-DQN agent with ε 0.2, which nobody "
        "publishes; to make them: leeward collect BreakoutNoFrameskip-v4 --policy qrdqn --epsilon "
        "0.2 --transitions 100000 --out breakout-1e5.hdf5 (or the first of a larger file: leeward "
        "convert FILE breakout-1e5.hdf5 --transitions 100000), then --data breakout-1e5.hdf5"
    )
    assert scores.find("iql/hopper-medium-v2").needs is None


def test_a_row_whose_data_nobody_publishes_asks_for_them() -> None:
    row = scores.find("tianshou/atari-cql-pong-1e5")
    with pytest.raises(ConfigError) as caught:
        reproduce(row.name)
    assert str(caught.value) == f"{row.name} needs data: {row.needs}"


def test_the_list_says_which_rows_need_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "--list", "atari-cql-pong-1e4"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split()[:2] == ["tianshou/atari-cql-pong-1e4", "1.8"]
    assert line.rstrip().endswith("@06aaad4 (needs --data)")


def a_run(directory: Path, row: scores.Row, transitions: int) -> Run:
    """The directory of a whole run of three seeds on somebody's own file."""
    plan = make_plan(row)
    options = dataclasses.asdict(RunOptions()) | {"eval_episodes": row.episodes}
    data = {"source": "mine.hdf5", "name": "mine", "transitions": transitions, "return_mean": 7.25}
    config = {
        "format": 1,
        "algorithm": row.algorithm,
        "config": dict(plan.config),
        "steps": 50_000,
        "runs": [{"run": i, "seed": i} for i in range(3)],
        "options": options,
        "environment": plan.env,
        "data": data,
        "versions": {"mujoco": "4.0.0"},
    }
    (directory / "final").mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    text = "".join(
        json.dumps({"run": i, "step": 50_000, "return_mean": 20.0 + i / 2, "score_mean": 115.0})
        + "\n"
        for i in range(3)
    )
    (directory / "evaluations.jsonl").write_text(text)
    return Run(directory)


def test_rows_are_compared_on_data_of_the_same_size(tmp_path: Path) -> None:
    row = scores.find("tianshou/atari-cql-pong-1e6")
    result = judge(make_plan(row), a_run(tmp_path / "same", row, 1_000_000))
    assert (result.values, result.verdict.kind) == ((20.0, 20.5, 21.0), "reproduced")
    assert result.notes == (
        "learned from data made anew, not from the authors': the mean return of theirs is 6.8, of "
        "these 7.2",
    )
    other = judge(make_plan(row), a_run(tmp_path / "other", row, 50_000))
    assert other.verdict.text == "not comparable because 50,000 transitions, not 1,000,000"


def test_what_is_known_of_published_code_is_noted(tmp_path: Path) -> None:
    row = scores.find("tianshou/atari-crr-pong-1e6")
    notes = judge(make_plan(row), a_run(tmp_path / "run", row, 1_000_000)).notes
    assert notes[0] == (
        "the published code leaves the gradient in exp(A / β), so that the actor's loss reaches "
        "critic and trunk; ours does not"
    )


def test_a_row_is_trained_on_a_user_s_file_and_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Vectors in place of frames, so that it is quick: the verdict says what differs."""
    generator = np.random.default_rng(0)
    with h5py.File(tmp_path / "mine.hdf5", "w") as file:
        file["observations"] = generator.normal(size=(60, 4)).astype(np.float32)
        file["actions"] = generator.integers(0, 2, 60)
        file["rewards"] = np.ones(60, np.float32)
        file["terminals"] = np.zeros(60, bool)
        file["timeouts"] = np.arange(60) % 20 == 19
    arguments = ["tianshou/atari-il-pong-1e6", "--data", str(tmp_path / "mine.hdf5")]
    arguments += ["--env", "CartPole-v1", "--steps", "3", "--seeds", "0", "--quiet"]
    assert cli.main(["reproduce", *arguments, "--run-dir", str(tmp_path / "run")]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    row = scores.find("tianshou/atari-il-pong-1e6")
    assert (lines["published"], lines["data"]) == ("20.0 (raw return)", row.needs)
    count = leeward.load_dataset(tmp_path / "mine.hdf5").transitions
    assert lines["verdict"] == (
        f"not comparable because fewer updates than published (3, not 50,000); {count} "
        "transitions, not 1,000,000; another environment than that of pong-1e6 (CartPole-v1); an "
        "interval over seeds needs 3 seeds, and there is 1"
    )
    saved = Run(tmp_path / "run").config
    assert (saved["algorithm"], saved["config"]["lr"]) == ("discrete_bc", 1e-4)
