"""The online learner on a game: what it learns from, lost lives, a kill, an expert's frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import leeward
from killing import kill_at
from leeward import online_qrdqn
from leeward.collect import CollectOptions, QRDQNOptions, collect
from leeward.copies import Answers, make_copies
from leeward.data.convert import frame_stacks
from leeward.policy import load_policy

vector_env = pytest.importorskip(
    "ale_py.vector_env", reason="the games are an extra: pip install 'leeward[atari]'"
)
BREAKOUT = "BreakoutNoFrameskip-v4"
ONLINE = QRDQNOptions(
    steps=200,
    copies=2,
    random_steps=40,
    batch_size=2,
    buffer_size=80,
    hidden=(4,),
    quantiles=2,
    n_step=1,
    target_every=10,
    exploration_steps=400,
    eval_every=1_000,
    eval_episodes=1,
    checkpoint_every=100,
)
OPTIONS = CollectOptions(policy="qrdqn", transitions=120, epsilon=0.5)


class Record:
    """Copies in which FIRE costs 5, and a slow record of what was seen."""

    def __init__(self, made: Any) -> None:
        self.made, self.spec, self.stack = made, made.spec, made.stack
        self.stacks: dict[int, list[np.ndarray]] = {}
        self.seen: set[tuple[Any, ...]] = set()
        self.lives, self.games = 0, 0

    def begin(self, episodes: dict[int, int]) -> dict[int, np.ndarray]:
        first = self.made.begin(episodes)
        self.stacks |= {copy: [row] * 4 for copy, row in first.items()}
        self.games += len(first)
        return first

    def step(self, action: np.ndarray) -> Answers:
        answers = self.made.step(action)
        answers = answers._replace(reward=answers.reward - 5.0 * (action == 1))
        for copy, row in enumerate(answers.row):
            stack = self.stacks[copy]
            following = [*stack[1:], row]
            ended = bool(answers.termination[copy])
            sign = float(np.sign(answers.reward[copy]))
            self.seen.add((_bytes(stack), int(action[copy]), sign, _bytes(following), ended))
            lost = ended and not answers.ended[copy]
            self.lives += lost
            self.stacks[copy] = [row] * 4 if lost else following
        return answers

    def close(self) -> None:
        self.made.close()


def _bytes(stack: Any) -> bytes:
    return np.asarray(stack, np.uint8).tobytes()


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Record, list[Any]]:
    """(folder, record, batches) of one training and its expert's data; games of 100 steps."""
    records: list[Record] = []
    batches: list[Any] = []
    learn = online_qrdqn.learn

    def made(*given: Any) -> Record:
        records.append(Record(make_copies(*given)))
        return records[-1]

    def learning(*given: Any) -> Any:
        batches.append(given[2])
        return learn(*given)

    folder = tmp_path_factory.mktemp("breakout")
    with pytest.MonkeyPatch.context() as patch:
        _shorten(patch)
        patch.setattr(online_qrdqn, "make_copies", made)
        patch.setattr(online_qrdqn, "learn", learning)
        collect(BREAKOUT, folder, OPTIONS, ONLINE)
    (record,) = records
    return folder, record, batches


def _shorten(patch: pytest.MonkeyPatch) -> None:
    """Games end after 400 frames: a policy that never fires would play for 108,000."""

    class Short(vector_env.AtariVectorEnv):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, max_num_frames_per_episode=400, **options)

    patch.setattr(vector_env, "AtariVectorEnv", Short)


def test_updates_see_the_game_s_stacks_and_the_signs_of_rewards(
    collected: tuple[Path, Record, list[Any]],
) -> None:
    _, record, batches = collected
    assert len(batches) == 80  # one after every round but the random ones
    assert record.lives > 0
    assert record.games > 4  # two at the start, two after the checkpoint, and after ends
    rewards, ends = set(), 0
    for batch in batches:
        for i in range(ONLINE.batch_size):
            ended = bool(batch.termination[i])
            reward = float(batch.reward[i])
            seen = (_bytes(batch.observation[i]), int(batch.action[i]), reward)
            assert (*seen, _bytes(batch.next_observation[i]), ended) in record.seen
            rewards.add(reward)
            ends += ended
    assert {-1.0, 0.0} <= rewards <= {-1.0, 0.0, 1.0}
    assert ends > 0


def test_a_killed_training_goes_on_as_if_nothing_had_happened(
    collected: tuple[Path, Record, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, _ = collected
    _shorten(monkeypatch)
    monkeypatch.setattr(online_qrdqn, "make_copies", lambda *given: Record(make_copies(*given)))
    kill_at(monkeypatch, 50)
    with pytest.raises(MemoryError):
        collect(BREAKOUT, tmp_path, OPTIONS, ONLINE)
    (saved,) = (tmp_path / "training" / "checkpoints").iterdir()
    assert saved.name == "100"
    collect(BREAKOUT, tmp_path, OPTIONS, ONLINE)
    name = "breakoutnoframeskip-expert-v4.hdf5"
    with h5py.File(folder / name) as whole, h5py.File(tmp_path / name) as killed:
        for key in (key for key in whole if key != "metadata"):
            np.testing.assert_array_equal(whole[key][()], killed[key][()], err_msg=key)
    first, second = (f / "training" / "evaluations.jsonl" for f in (folder, tmp_path))
    assert first.read_text() == second.read_text()


def test_the_expert_s_frames_are_its_actions_and_random_ones(
    collected: tuple[Path, Record, list[Any]],
) -> None:
    folder, _, _ = collected
    data = leeward.load_dataset(folder / "breakoutnoframeskip-expert-v4.hdf5")
    assert (data.transitions, data.frame_stack) == (120, 4)
    assert data.observation.shape == (120 + data.episodes, 84, 84)  # each frame once
    policy = load_policy(folder / "training" / "policies" / "200")
    assert policy.config.double is True
    actions = policy(frame_stacks(data, data.start))
    changed = actions != data.action[data.start]
    assert changed.mean() == pytest.approx(0.5 * 3 / 4, abs=0.17)
