"""Collecting with QR-DQN: a learner on several copies that can be killed, and its data sets."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pytest

import leeward
import small_environments  # noqa: F401 (registers LeewardTest/Line-v0)
from collecting import LINE
from killing import kill_at
from leeward import cli, online_qrdqn
from leeward.collect import CollectOptions, QRDQNOptions, collect
from leeward.errors import ConfigError, SpecError
from leeward.policy import load_policy
from leeward.types import Discrete

CARTPOLE = "CartPole-v1"
ONLINE = QRDQNOptions(
    steps=160,
    copies=4,
    updates_per_step=1,
    random_steps=40,
    batch_size=8,
    buffer_size=100,
    hidden=(8,),
    quantiles=4,
    lr=1e-3,
    adam_eps=1e-6,
    target_every=5,
    exploration_steps=100,
    eval_every=60,
    eval_episodes=2,
    checkpoint_every=40,
)
OPTIONS = CollectOptions(policy="qrdqn", transitions=50)


def columns(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {key: np.asarray(file[key]) for key in file if key != "metadata"}


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one small training with its expert's data."""
    folder = tmp_path_factory.mktemp("collected")
    collect(CARTPOLE, folder, OPTIONS, ONLINE)
    return folder


def test_the_expert_s_data_read_back_whole(collected: Path) -> None:
    data = leeward.load_dataset(collected / "cartpole-expert-v1.hdf5")
    assert data.transitions == 50
    assert data.action_space == Discrete(2)
    assert data.metadata["env"] == CARTPOLE
    assert data.next_rows_chain()
    kept = data.metadata["file_metadata"]
    assert kept["behavior"].startswith("QR-DQN after ")
    assert "--policy qrdqn --transitions 50 --steps 160 --copies 4" in kept["command"]
    policies = collected / "training" / "policies"
    assert sorted(int(folder.name) for folder in policies.iterdir()) == [60, 120, 160]
    policy = load_policy(policies / "120")
    assert policy.algorithm.name == "qrdqn"
    assert (policy.config.double, policy.config.adam_eps) == (True, ONLINE.adam_eps)
    rows = columns(collected / "cartpole-expert-v1.hdf5")
    step = kept["behavior"].split()[2]
    np.testing.assert_array_equal(
        rows["actions"], load_policy(policies / step)(rows["observations"])
    )


def test_a_killed_training_goes_on_as_if_nothing_had_happened(
    collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_at(monkeypatch, 20)
    with pytest.raises(MemoryError):
        collect(CARTPOLE, tmp_path, OPTIONS, ONLINE)
    (saved,) = (tmp_path / "training" / "checkpoints").iterdir()
    assert saved.name == "120"
    collect(CARTPOLE, tmp_path, OPTIONS, ONLINE)
    name = "cartpole-expert-v1.hdf5"
    for key, column in columns(tmp_path / name).items():
        np.testing.assert_array_equal(column, columns(collected / name)[key], err_msg=key)
    first, second = (f / "training" / "evaluations.jsonl" for f in (tmp_path, collected))
    assert first.read_text() == second.read_text()


def five_times() -> gymnasium.Env:
    """CartPole with rewards of 5."""
    return gymnasium.wrappers.TransformReward(gymnasium.make(CARTPOLE), lambda reward: 5.0 * reward)


def test_rewards_are_clipped_for_learning_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn, seen = online_qrdqn.learn, []

    def recording(*given: Any) -> Any:
        seen.append(given[2].reward)
        return learn(*given)

    monkeypatch.setattr(online_qrdqn, "learn", recording)
    for clip, largest in (("always", 1 + 0.99 + 0.99**2), ("never", 5 * (1 + 0.99 + 0.99**2))):
        seen.clear()
        online = dataclasses.replace(ONLINE, steps=80, clip_rewards=clip)
        collect(five_times, tmp_path / clip, OPTIONS, online)
        assert np.max(seen) == pytest.approx(largest, rel=1e-5)
        log = (tmp_path / clip / "training" / "evaluations.jsonl").read_text().splitlines()
        returns = np.array([json.loads(line)["returns"] for line in log])
        assert (returns % 5 == 0).all()
        assert returns.max() > 5


def test_a_share_of_actions_is_random(collected: Path, tmp_path: Path) -> None:
    (run,) = (collected / "training" / "policies").glob("160")
    options = CollectOptions(policy=str(run), transitions=300, epsilon=0.5)
    (one,) = collect(CARTPOLE, tmp_path, options)
    rows = columns(one.path)
    changed = rows["actions"] != load_policy(run)(rows["observations"])
    assert changed.mean() == pytest.approx(0.25, abs=0.07)  # half of the random ones differ


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"copies": 0}, "--copies must be at least 1, got 0"),
        (
            {"random_steps": 0},
            "--random-steps must be 1 or more and less than --steps 160, got 0",
        ),
        ({"adam_eps": 0.0}, "--adam-eps must be positive, got 0.0"),
        ({"hidden": ()}, "--hidden needs one positive size or more, such as --hidden 512"),
        ({"exploration_end": 1.5}, "--exploration-end must lie in [0, 1], got 1.5"),
        ({"buffer_size": 10}, "--buffer-size must be at least 44, got 10"),
    ],
)
def test_impossible_trainings_are_refused(
    tmp_path: Path, change: dict[str, Any], text: str
) -> None:
    given = dataclasses.replace(ONLINE, **change)
    with pytest.raises(ConfigError) as error:
        collect(CARTPOLE, tmp_path, OPTIONS, given)
    assert str(error.value) == text
    assert not list(tmp_path.iterdir())


def test_what_was_seen_is_not_kept(tmp_path: Path) -> None:
    options = dataclasses.replace(OPTIONS, dataset=("replay",))
    with pytest.raises(ConfigError) as error:
        collect(CARTPOLE, tmp_path, options, ONLINE)
    assert str(error.value) == (
        "--dataset replay needs --policy sac: qrdqn keeps its latest steps only"
    )


def test_continuous_actions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        collect(LINE, tmp_path, OPTIONS, ONLINE)
    assert str(error.value) == (
        "environment LeewardTest/Line-v0 has continuous actions, and qrdqn learns discrete ones: "
        "use --policy sac"
    )


def test_the_command_has_the_learner_s_own_flags(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["collect", CARTPOLE, "--policy", "qrdqn", "--help"])
    assert "--exploration-end" in capsys.readouterr().out
