"""Collecting data: an online learner that can be killed, its data sets, other policies, errors."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import jax
import numpy as np
import pytest

import leeward
import small_environments
from collecting import CORRIDOR, LINE, ONLINE
from leeward import online
from leeward.algorithms import sac
from leeward.collect import Collected, CollectOptions, collect
from leeward.collect_learner import choose_policies
from leeward.data.dataset import Dataset
from leeward.environments import make_environment
from leeward.errors import ConfigError
from leeward.evaluate import episode_seed
from leeward.policy import PolicyStack, TrainedRun, load_policy, save_policy
from leeward.types import Box, Discrete, Spec
from training import train

ALL = ("expert", "medium", "replay", "full-replay", "medium-expert", "random")
TRANSITIONS = 50


def columns(path: Path) -> dict[str, np.ndarray]:
    """What a file holds."""
    with h5py.File(path) as file:
        return {key: np.asarray(file[key]) for key in file if key != "metadata"}


def same(first: Path, second: Path) -> None:
    """Both files hold the same rows, bit for bit."""
    one, other = columns(first), columns(second)
    assert one.keys() == other.keys()
    for key in one:
        np.testing.assert_array_equal(one[key], other[key], err_msg=key)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Collected]:
    """Every quality of one small training."""
    folder = tmp_path_factory.mktemp("collected")
    replays = tuple(quality for quality in ALL if "replay" in quality)
    written = collect(LINE, folder, CollectOptions(dataset=replays), ONLINE)
    others = tuple(quality for quality in ALL if quality not in replays)
    options = CollectOptions(dataset=others, transitions=TRANSITIONS)
    return {one.quality: one for one in written + collect(LINE, folder, options, ONLINE)}


# --- What is written ---


@pytest.mark.parametrize("quality", ALL)
def test_a_data_set_reads_back_whole(collected: dict[str, Collected], quality: str) -> None:
    one = collected[quality]
    assert one.path.name == f"line-{quality}-v0.hdf5"
    data = leeward.load_dataset(one.path)
    assert data.transitions == one.transitions == len(columns(one.path)["rewards"])
    if "replay" not in quality:
        assert one.transitions == TRANSITIONS
    assert data.action_space == Box((-2.0,), (2.0,))
    assert data.metadata["env"] == LINE
    np.testing.assert_allclose(data.episode_returns(), one.returns, rtol=1e-6)
    assert data.episode_lengths().max() == 12
    assert one.scores is not None
    assert data.metadata["reference_scores"] == {
        "minimum": one.scores.minimum,
        "maximum": one.scores.maximum,
    }
    assert data.metadata["file_metadata"]["return_mean"] == pytest.approx(one.returns.mean())


@pytest.mark.parametrize("quality", ALL)
def test_next_observations_are_the_next_rows_within_episodes(
    collected: dict[str, Collected], quality: str
) -> None:
    rows = columns(collected[quality].path)
    ended = rows["terminals"] | rows["timeouts"]
    assert ended[-1]
    assert not (rows["terminals"] & rows["timeouts"]).any()
    within = np.flatnonzero(~ended[:-1])
    np.testing.assert_array_equal(
        rows["next_observations"][within], rows["observations"][within + 1]
    )
    assert leeward.load_dataset(collected[quality].path).next_rows_chain()


def test_a_simulator_that_is_fed_the_actions_repeats_the_replay(
    collected: dict[str, Collected],
) -> None:
    rows = columns(collected["full-replay"].path)
    assert len(rows["rewards"]) == ONLINE.steps
    env, row, episode = make_environment(LINE), 0, 0
    while row < ONLINE.steps:
        observation, _ = env.reset(seed=episode_seed(online.TRAINING_EPISODES, 0, episode))
        episode, ended = episode + 1, False
        while not ended:
            np.testing.assert_array_equal(rows["observations"][row], np.float32(observation))
            observation, reward, termination, truncation, _ = env.step(rows["actions"][row])
            np.testing.assert_array_equal(rows["next_observations"][row], np.float32(observation))
            assert rows["rewards"][row] == np.float32(reward)
            assert rows["terminals"][row] == termination
            ended = termination or truncation or row == ONLINE.steps - 1
            assert (rows["terminals"][row] | rows["timeouts"][row]) == ended
            row += 1


def test_replay_is_what_the_learner_saw_until_medium(collected: dict[str, Collected]) -> None:
    directory = collected["replay"].path.parent / "training"
    scores = collected["replay"].scores
    assert scores is not None
    _, medium = choose_policies(directory, scores.minimum, ONLINE.steps)
    replay, full = columns(collected["replay"].path), columns(collected["full-replay"].path)
    assert len(replay["rewards"]) == medium.run.step
    for key in replay.keys() - {"timeouts"}:
        np.testing.assert_array_equal(replay[key], full[key][: medium.run.step])
    np.testing.assert_array_equal(replay["timeouts"][:-1], full["timeouts"][: medium.run.step - 1])


def test_a_replay_keeps_to_the_bound_under_its_other_name(
    collected: dict[str, Collected], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(online, "learn", None)  # nothing is trained again
    whole = collected["replay"]
    options = CollectOptions(dataset=("medium-replay",), transitions=20)
    (one,) = collect(LINE, whole.path.parent, options, ONLINE)
    assert one.path.name == "line-medium-replay-v0.hdf5"
    assert 0 < one.transitions <= 20 < whole.transitions
    kept, all_of_it = (
        leeward.load_dataset(path).metadata["file_metadata"]["behavior"]
        for path in (one.path, whole.path)
    )
    assert kept == (
        f"{len(one.returns)} of {len(whole.returns)} episodes, evenly spread over {all_of_it}"
    )


def test_the_first_actions_are_random_and_all_lie_in_the_box(
    collected: dict[str, Collected],
) -> None:
    action = columns(collected["full-replay"].path)["actions"]
    assert np.abs(action).max() <= 2.0
    assert np.abs(action[: ONLINE.random_steps]).max() > 1.5
    random = columns(collected["random"].path)["actions"]
    assert random.std() == pytest.approx(4.0 / np.sqrt(12.0), rel=0.25)


def test_every_evaluated_policy_is_kept_and_loads(collected: dict[str, Collected]) -> None:
    directory = collected["expert"].path.parent / "training" / "policies"
    assert {folder.name for folder in directory.iterdir()} == {"25", "50", "75", "100", "120"}
    policy = load_policy(directory / "75")
    assert policy.run.step == 75
    assert policy.env == LINE
    assert policy(np.zeros(2)).shape == (1,)


def test_the_command_that_makes_a_file_again_is_kept_in_it(
    collected: dict[str, Collected],
) -> None:
    path = collected["expert"].path
    kept = leeward.load_dataset(path).metadata["file_metadata"]
    assert kept["command"] == (
        "leeward collect LeewardTest/Line-v0 --dataset expert medium medium-expert random "
        "--transitions 50 --steps 120 --random-steps 30 --batch-size 32 "
        f"--hidden 16 --lr 0.01 --eval-every 25 --eval-episodes 3 --checkpoint-every 20 "
        f"--out {path.parent}"
    )
    assert kept["version_gymnasium"] == gymnasium.__version__


def test_more_data_sets_come_from_the_same_training(
    collected: dict[str, Collected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = collected["expert"].path
    before = columns(path)
    path.unlink()

    def fail(*given: Any) -> None:
        raise AssertionError("it trains again")

    monkeypatch.setattr(online, "learn", fail)
    (again,) = collect(
        LINE, path.parent, CollectOptions(dataset=("expert",), transitions=50), ONLINE
    )
    for key, column in columns(again.path).items():
        np.testing.assert_array_equal(column, before[key])


# --- Choosing policies ---


def keep_policies(directory: Path, means: list[float]) -> None:
    """Saves policies of steps 1, 2, … with these evaluations."""
    spec = Spec((2,), "float32", Box((-1.0,), (1.0,)))
    config = sac.Config(hidden=(2,))
    state = sac.init(config, spec, jax.random.key(0))
    stacked = jax.tree.map(lambda leaf: leaf[None], sac.policy(state))
    for i, mean in enumerate(means):
        run = TrainedRun(0, {}, i + 1, mean)
        stack = PolicyStack(
            sac.ALGORITHM, config, spec, online.make_scaling(spec)[0], stacked, (run,), env=LINE
        )
        save_policy(directory / "policies" / str(i + 1), stack)


@pytest.mark.parametrize(
    ("means", "minimum", "steps", "expert", "medium"),
    [
        ([0.0, 35.0, 31.0, 70.0, 100.0, 33.0], 0.0, 6, 5, 2),
        ([-90.0, -80.0, -10.0, -40.0], -100.0, 9, 3, 2),
        ([5.0, 20.0, 60.0, 60.0], 0.0, 4, 4, 2),
        ([7.0], 0.0, 1, 1, 1),
        ([10.0, 30.0, 90.0], 0.0, 2, 2, 1),  # the third was lost with the steps before it
    ],
)
def test_medium_is_nearest_to_a_third_of_the_best(
    tmp_path: Path, means: list[float], minimum: float, steps: int, expert: int, medium: int
) -> None:
    keep_policies(tmp_path, means)
    chosen = choose_policies(tmp_path, minimum, steps)
    assert [policy.run.step for policy in chosen] == [expert, medium]


# --- Training ---


def test_sac_learns_to_stay_in_the_middle(tmp_path: Path) -> None:
    learned = dataclasses.replace(
        ONLINE, steps=900, random_steps=200, batch_size=64, hidden=(32,), lr=3e-3, discount=0.9
    )
    learned = dataclasses.replace(learned, eval_every=300, eval_episodes=20, checkpoint_every=1000)
    (one,) = collect(LINE, tmp_path / "data.hdf5", CollectOptions(transitions=240), learned)
    assert one.scores is not None
    assert one.scores.minimum < -9.0
    assert one.scores.maximum > -2.0  # the start is 0.5 away on average, and every push is noisy
    assert one.returns[:-1].mean() > -4.0
    assert (tmp_path / "data-training" / "config.json").is_file()


def test_a_killed_training_goes_on_as_if_nothing_had_happened(
    collected: dict[str, Collected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = CollectOptions(dataset=("full-replay",))
    learn, seen = online.learn, []

    def until_killed(*given: Any) -> Any:
        seen.append(int(given[-1]))
        if len(seen) == 60:
            raise MemoryError("killed")
        return learn(*given)

    monkeypatch.setattr(online, "learn", until_killed)
    with pytest.raises(MemoryError):
        collect(LINE, tmp_path, options, ONLINE)
    assert not list(tmp_path.glob("*.hdf5"))
    assert {p.name for p in (tmp_path / "training" / "policies").iterdir()} == {"25", "50", "75"}
    first = [int(p.name) for p in (tmp_path / "training" / "checkpoints").iterdir()]
    assert len(first) == 1
    assert 60 <= first[0] < 90
    collect(LINE, tmp_path, options, ONLINE)
    assert seen[60] == first[0]  # not from zero
    expert = CollectOptions(dataset=("expert",), transitions=TRANSITIONS)
    collect(LINE, tmp_path, expert, ONLINE)
    for quality in ("expert", "full-replay"):
        same(tmp_path / f"line-{quality}-v0.hdf5", collected[quality].path)
    logs = [
        (folder / "training" / "evaluations.jsonl").read_text()
        for folder in (tmp_path, collected["expert"].path.parent)
    ]
    assert logs[0] == logs[1]
    assert len(logs[0].splitlines()) == 5


def interrupting(at: int) -> Callable[[], gymnasium.Env]:
    """Makes environments whose step number `at`, counted over all of them, gets a SIGINT."""
    count = iter(range(1, 10**6))

    class Interrupting(small_environments.Line):
        def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
            if next(count) == at:
                os.kill(os.getpid(), signal.SIGINT)
            return super().step(action)

    return lambda: gymnasium.wrappers.TimeLimit(Interrupting(), 12)


def test_an_interrupted_training_is_saved_at_the_end_of_its_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_alone = dataclasses.replace(ONLINE, checkpoint_every=1000, eval_every=120)
    env = interrupting(40)
    with pytest.raises(KeyboardInterrupt):
        collect(env, tmp_path, CollectOptions(), never_alone)
    (saved,) = (tmp_path / "training" / "checkpoints").iterdir()
    assert 40 <= int(saved.name) < 40 + 12
    log = (tmp_path / "training" / "log.txt").read_text()
    assert f"interrupted: saved after {saved.name} steps; the same command goes on" in log
    # What there is may also be all that is wanted: the policy of the end is evaluated, and chosen.
    monkeypatch.setattr(online, "learn", None)
    stopped = dataclasses.replace(never_alone, steps=int(saved.name))
    (one,) = collect(env, tmp_path, CollectOptions(dataset=("medium-replay",)), stopped)
    assert one.transitions == stopped.steps
    (policy,) = (tmp_path / "training" / "policies").iterdir()
    assert policy.name == saved.name
    lines = (tmp_path / "training" / "evaluations.jsonl").read_text()
    again = CollectOptions(dataset=("expert",), transitions=3)
    collect(env, tmp_path, again, stopped)
    assert (tmp_path / "training" / "evaluations.jsonl").read_text() == lines != ""


def test_a_training_can_be_made_longer_but_not_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = dataclasses.replace(ONLINE, steps=60)
    options = CollectOptions(dataset=("full-replay",))
    collect(LINE, tmp_path, options, short)
    first = columns(tmp_path / "line-full-replay-v0.hdf5")
    (tmp_path / "line-full-replay-v0.hdf5").unlink()
    collect(LINE, tmp_path, options, ONLINE)
    longer = columns(tmp_path / "line-full-replay-v0.hdf5")
    assert len(longer["rewards"]) == 120
    for key, column in first.items():
        np.testing.assert_array_equal(longer[key][:60], column)
    (tmp_path / "line-full-replay-v0.hdf5").unlink()
    with pytest.raises(ConfigError) as error:
        collect(LINE, tmp_path, options, short)
    assert str(error.value) == (
        f"{tmp_path}/training holds a training of 120 steps, more than --steps 60: give at least "
        "--steps 120, or another --out"
    )


# --- Other policies ---


def test_random_data_of_discrete_actions_and_pictures(tmp_path: Path) -> None:
    options = CollectOptions(policy="random", transitions=200)
    (one,) = collect(CORRIDOR, tmp_path, options)
    assert one.path == tmp_path / "corridor-random-v0.hdf5"
    data = leeward.load_dataset(one.path)
    assert data.observation.dtype == np.uint8
    assert data.action_space == Discrete(3)
    assert data.transitions == 200
    assert np.bincount(data.action).min() > 40
    assert one.scores is None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run that was trained on random data of the line."""
    folder = tmp_path_factory.mktemp("run")
    collect(LINE, folder / "random.hdf5", CollectOptions(policy="random", transitions=100))
    data: Dataset = leeward.load_dataset(folder / "random.hdf5")
    return train(folder / "run", data, seeds=(0, 3), eval_every=0)


def test_a_run_s_policy_acts_as_it_does_elsewhere(run: Path, tmp_path: Path) -> None:
    options = CollectOptions(policy=str(run), policy_seed=3, transitions=40)
    (one,) = collect(LINE, tmp_path, options)
    assert one.path.name == "line-policy-v0.hdf5"
    rows = columns(one.path)
    policy = leeward.load_policy(run, seed=3)
    np.testing.assert_allclose(rows["actions"], policy(rows["observations"]), rtol=1e-5)
    kept = leeward.load_dataset(one.path).metadata["file_metadata"]
    assert kept["behavior"] == "td3_bc, seed 3, after 20 updates; noise 0.0, epsilon 0.0"


def test_noise_and_random_actions_disturb_a_policy(run: Path, tmp_path: Path) -> None:
    policy = leeward.load_policy(run)
    difference = {}
    for name, change in (("noise", {"noise": 0.1}), ("epsilon", {"epsilon": 0.25})):
        options = CollectOptions(policy=str(run), transitions=400, **change)
        (one,) = collect(LINE, tmp_path / name, options)
        rows = columns(one.path)
        assert np.abs(rows["actions"]).max() <= 2.0
        difference[name] = rows["actions"] - policy(rows["observations"])
    assert difference["noise"].std() == pytest.approx(0.2, rel=0.1)  # half the range is 2
    changed = np.abs(difference["epsilon"]) > 1e-4
    assert changed.mean() == pytest.approx(0.25, abs=0.07)
