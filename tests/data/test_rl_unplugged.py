"""RL Unplugged's shards, made by an independent writer, become data sets that say the same."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from leeward.data.checks import inspect
from leeward.data.dataset import Dataset
from leeward.data.load import load_dataset
from leeward.data.rl_unplugged import convert_shard, fault_summary
from leeward.data.rl_unplugged_frames import read_batches
from leeward.data.rl_unplugged_jobs import ShardOptions, convert_shards
from leeward.data.rl_unplugged_shards import Shard
from leeward.errors import DataError
from leeward.types import Discrete
from memory import peak_of
from shards import Step, example, play, record, write_shard

LENGTHS = (7, 12, 1, 9)
NAME = "run_1-00001-of-00100"


@pytest.fixture
def steps() -> list[Step]:
    return play(LENGTHS)


def shard_of(folder: Path, steps: list[Step], name: str = NAME) -> Shard:
    path = folder / "Breakout" / name
    write_shard(path, [example(step) for step in steps])
    return Shard("Breakout", name, path, None)


def stack_at(dataset: Dataset, row: int) -> np.ndarray:
    """[4, 84, 84]: the last four images of the row's episode, slowly."""
    first = max(start for start in dataset.episode_start if start <= row)
    return np.stack([dataset.observation[max(first, row - back)] for back in (3, 2, 1, 0)])


def assert_same_transitions(dataset: Dataset, steps: list[Step]) -> None:
    assert dataset.transitions == len(steps)
    for row, step in zip(dataset.start, steps, strict=True):
        np.testing.assert_array_equal(stack_at(dataset, row), step.o_t)
        np.testing.assert_array_equal(stack_at(dataset, row + 1), step.o_tp1)
        assert (dataset.action[row], dataset.reward[row]) == (step.a_t, step.r_t)
        assert dataset.termination[row] == (step.d_t == 0)


def test_records_in_order_become_whole_episodes(tmp_path: Path, steps: list[Step]) -> None:
    target = tmp_path / "out.hdf5"
    converted = convert_shard(shard_of(tmp_path, steps), target, batch_size=5)
    assert (converted.transitions, converted.episodes, converted.faults) == (29, 4, ())
    dataset = load_dataset(target)
    assert_same_transitions(dataset, steps)
    assert dataset.episode_lengths().tolist() == list(LENGTHS)
    # Three black frames, one frame a step, and the one after the last.
    assert len(dataset.reward) == sum(LENGTHS) + 4 * len(LENGTHS)
    assert dataset.steps_left()[:7].tolist() == [7, 6, 5, 4, 3, 2, 1]
    ends = np.cumsum(LENGTHS) - 1
    assert np.flatnonzero(dataset.truncation[dataset.start]).tolist() == ends[1::2].tolist()
    assert dataset.action_space == Discrete(4)
    assert dataset.metadata["env"] == "ALE/Breakout-v5"
    assert dataset.metadata["frame_stack"] == 4
    assert dataset.metadata["file_metadata"]["sticky_actions"] is True
    with h5py.File(target) as file:
        assert file["infos/episode_id"][()].tolist() == [1000, 1001, 1002, 1003]
        np.testing.assert_array_equal(
            file["infos/episode_return"][()], dataset.episode_returns().astype(np.float32)
        )
        assert file["observations"].compression == "gzip"
    assert not list(tmp_path.glob(".*"))


def test_shuffled_records_become_episodes_of_one_step(tmp_path: Path, steps: list[Step]) -> None:
    order = np.random.default_rng(1).permutation(len(steps))
    shuffled = [steps[i] for i in order]
    target = tmp_path / "out.hdf5"
    convert_shard(shard_of(tmp_path, shuffled), target, batch_size=4)
    dataset = load_dataset(target)
    assert_same_transitions(dataset, shuffled)
    assert dataset.episodes > 0.8 * len(steps)


def test_an_episode_that_begins_with_one_frame_four_times_needs_no_rows_before_it(
    tmp_path: Path, steps: list[Step]
) -> None:
    still = steps[3]._replace(o_t=np.stack([steps[3].o_t[3]] * 4))
    still = still._replace(o_tp1=np.concatenate([still.o_t[1:], steps[3].o_tp1[3:]]))
    target = tmp_path / "out.hdf5"
    convert_shard(shard_of(tmp_path, [still]), target)
    dataset = load_dataset(target)
    assert_same_transitions(dataset, [still])
    assert len(dataset.reward) == 2


def test_another_action_or_episode_breaks_a_chain(tmp_path: Path, steps: list[Step]) -> None:
    other = [
        steps[0],
        steps[1]._replace(a_t=(steps[1].a_t + 1) % 4),
        steps[2]._replace(episode_id=5),
    ]
    converted = convert_shard(shard_of(tmp_path, other), tmp_path / "out.hdf5")
    assert converted.episodes == 3
    assert_same_transitions(load_dataset(tmp_path / "out.hdf5"), other)


def test_each_distinct_frame_of_a_batch_is_decoded_once(
    tmp_path: Path, steps: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    from leeward.data import rl_unplugged_frames

    decoded = []
    real = rl_unplugged_frames.decode_png
    monkeypatch.setattr(
        rl_unplugged_frames, "decode_png", lambda png: decoded.append(png) or real(png)
    )
    shard = shard_of(tmp_path, steps)
    list(read_batches(shard.path, actions=4, size=100))
    assert len(decoded) == len(set(decoded)) == sum(LENGTHS) + len(LENGTHS) + 1  # and black


def test_the_d4rl_layout_is_what_tianshou_loads(tmp_path: Path, steps: list[Step]) -> None:
    order = np.random.default_rng(2).permutation(len(steps))
    shuffled = [steps[i] for i in order]
    target = tmp_path / "out.hdf5"
    convert_shard(shard_of(tmp_path, shuffled), target, layout="d4rl", batch_size=6)
    count = len(steps)
    expected = {
        "observations": ((count, 4, 84, 84), np.uint8, [s.o_t for s in shuffled]),
        "actions": ((count,), np.int64, [s.a_t for s in shuffled]),
        "rewards": ((count,), np.float32, [s.r_t for s in shuffled]),
        "terminals": ((count,), np.bool_, [s.d_t == 0 for s in shuffled]),
        "next_observations": ((count, 4, 84, 84), np.uint8, [s.o_tp1 for s in shuffled]),
    }
    with h5py.File(target) as file:
        assert sorted(file) == sorted([*expected, "metadata"])
        for key, (shape, dtype, values) in expected.items():
            assert (file[key].shape, file[key].dtype) == (shape, dtype)
            assert file[key].compression == "gzip"
            np.testing.assert_array_equal(file[key][()], np.array(values, dtype))


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_data_doctor_finds_nothing_wrong_with_whole_shards(
    tmp_path: Path, steps: list[Step], shuffle: bool
) -> None:
    order = np.random.default_rng(1).permutation(len(steps)) if shuffle else range(len(steps))
    convert_shard(shard_of(tmp_path, [steps[i] for i in order]), tmp_path / "out.hdf5")
    found = inspect(load_dataset(tmp_path / "out.hdf5")).findings
    assert {one.code for one in found if one.severity != "info"} == {"tiny_data"}


def test_a_process_that_dies_is_told(
    tmp_path: Path, steps: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise BrokenProcessPool

    monkeypatch.setattr("leeward.data.rl_unplugged_jobs.convert_shard", dies)
    job = (shard_of(tmp_path, steps), tmp_path / "out.hdf5")
    ((_, outcome),) = convert_shards([job], ShardOptions())
    assert str(outcome) == (
        f"{job[0].path}: a process at work on it died, perhaps for want of memory: try again with "
        "fewer --processes; what is done is kept"
    )


def test_two_processes_make_the_same_file(tmp_path: Path, steps: list[Step]) -> None:
    shard = shard_of(tmp_path, steps)
    one, two = tmp_path / "one.hdf5", tmp_path / "two.hdf5"
    convert_shard(shard, one, batch_size=4)
    convert_shard(shard, two, batch_size=4, processes=2)
    assert load_dataset(one).content_hash() == load_dataset(two).content_hash()


class KilledError(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("layout", ["rows", "d4rl"])
def test_a_stopped_conversion_goes_on_from_its_checkpoint(tmp_path: Path, layout: str) -> None:
    steps = play((60, 41, 50))
    shard = shard_of(tmp_path, steps)
    whole, stopped = tmp_path / "whole.hdf5", tmp_path / "stopped.hdf5"
    convert_shard(shard, whole, layout=layout, batch_size=8)

    def kill(limit: int):
        def on_progress(records: int) -> None:
            if records >= limit:
                raise KilledError

        return on_progress

    for limit in (50, 90):
        with pytest.raises(KilledError):
            convert_shard(
                shard,
                stopped,
                layout=layout,
                batch_size=8,
                checkpoint_every=2,
                on_progress=kill(limit),
            )
        assert not stopped.exists()
    seen: list[int] = []
    converted = convert_shard(shard, stopped, layout=layout, batch_size=8, on_progress=seen.append)
    assert seen[0] > 60  # nothing before the checkpoint is read again
    assert converted.transitions == len(steps)
    with h5py.File(whole) as expected, h5py.File(stopped) as made:
        for key in expected:
            if key not in ("metadata", "infos"):
                np.testing.assert_array_equal(made[key][()], expected[key][()])


def test_a_killed_process_leaves_what_the_next_one_needs(tmp_path: Path) -> None:
    shard, target = shard_of(tmp_path, play((40, 30))), tmp_path / "out.hdf5"
    code = (
        "import os, signal, pathlib\n"
        "from leeward.data.rl_unplugged import convert_shard\n"
        "from leeward.data.rl_unplugged_shards import Shard\n"
        f"shard = Shard('Breakout', {NAME!r}, pathlib.Path({str(shard.path)!r}), None)\n"
        f"convert_shard(shard, pathlib.Path({str(target)!r}), batch_size=8, checkpoint_every=2,\n"
        "    on_progress=lambda n: n > 40 and os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert not target.exists()
    seen: list[int] = []
    convert_shard(shard, target, batch_size=8, on_progress=seen.append)
    assert seen[0] > 30
    convert_shard(shard, tmp_path / "whole.hdf5")
    assert (
        load_dataset(target).content_hash() == load_dataset(tmp_path / "whole.hdf5").content_hash()
    )


def test_memory_does_not_grow_with_the_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeward.data.rl_unplugged_records._READ", 4096)
    peaks = []
    for length in (150, 450):
        shard = shard_of(tmp_path, play((length,)), f"run_1-{length:05d}-of-00100")
        targets = (tmp_path / f"{length}-{number}.hdf5" for number in range(3))
        peaks.append(min(peak_of(partial(convert_shard, shard, t, batch_size=16)) for t in targets))
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 450 * 84 * 84


def test_a_limit_keeps_the_first_transitions(tmp_path: Path, steps: list[Step]) -> None:
    converted = convert_shard(
        shard_of(tmp_path, steps), tmp_path / "out.hdf5", transitions=10, batch_size=4
    )
    assert converted.transitions == 10
    assert_same_transitions(load_dataset(tmp_path / "out.hdf5"), steps[:10])


def test_what_is_there_already_is_left_and_other_files_are_not_replaced(
    tmp_path: Path, steps: list[Step]
) -> None:
    shard, target = shard_of(tmp_path, steps), tmp_path / "out.hdf5"
    first = convert_shard(shard, target)
    before = target.stat().st_mtime_ns
    again = convert_shard(shard, target)
    assert again.was_there
    assert (again.transitions, again.episodes) == (first.transitions, first.episodes)
    assert target.stat().st_mtime_ns == before
    with pytest.raises(DataError) as error:
        convert_shard(shard, target, layout="d4rl")
    assert str(error.value) == f"{target} exists: --overwrite replaces it"
    assert convert_shard(shard, target, layout="d4rl", overwrite=True).transitions == 29


def test_records_that_cannot_be_used_are_left_out_and_counted(
    tmp_path: Path, steps: list[Step]
) -> None:
    contents = [record(example(step)) for step in steps]
    damaged = bytearray(contents[4])
    damaged[-20] ^= 1
    contents[4] = bytes(damaged)
    contents[20] = record(example(steps[20]._replace(a_t=4)))
    path = tmp_path / "Breakout" / NAME
    path.parent.mkdir()
    path.write_bytes(b"".join(contents))  # not packed, which is read too
    target = tmp_path / "out.hdf5"
    converted = convert_shard(Shard("Breakout", NAME, path, None), target, batch_size=8)
    assert [fault.number for fault in converted.faults] == [4, 20]
    assert fault_summary(converted) == (
        f"{path}: record 4 cannot be used: its content has a wrong checksum (and 1 more); "
        f"27 good records are kept in {target}; get the shard again, and convert with --overwrite"
    )
    assert converted.faults[1].reason == "action a_t is 4, the game's are 0 to 3"
    good = [step for i, step in enumerate(steps) if i not in (4, 20)]
    assert_same_transitions(load_dataset(target), good)
    with pytest.raises(DataError) as error:
        convert_shard(Shard("Breakout", NAME, path, None), target)
    assert str(error.value) == f"{target} exists and lacks records: --overwrite replaces it"


@pytest.mark.parametrize("cut", ["packed", "plain", "length"])
def test_what_comes_before_the_end_of_a_damaged_file_is_kept(
    tmp_path: Path, steps: list[Step], cut: str
) -> None:
    shard = shard_of(tmp_path, steps)
    whole = b"".join(record(example(step)) for step in steps[:10])
    if cut == "packed":
        content = shard.path.read_bytes()
        shard.path.write_bytes(content[: len(content) // 2])
        reason = "the file is damaged there (it ends before the end of its compressed content)"
    elif cut == "plain":
        shard.path.write_bytes(whole[:-30])
        reason = "the file ends within it"
    else:
        shard.path.write_bytes(whole + b"\1" * 12 + whole)
        reason = "its length has a wrong checksum, so the rest is lost"
    converted = convert_shard(shard, tmp_path / "out.hdf5")
    (fault,) = converted.faults
    assert fault.reason.startswith(reason)
    assert (
        fault.number == converted.transitions == {"plain": 9, "length": 10}.get(cut, fault.number)
    )
    assert 0 < converted.transitions < len(steps)
    kept = steps[: converted.transitions]
    assert_same_transitions(load_dataset(tmp_path / "out.hdf5"), kept)


def test_a_next_stack_of_other_frames_is_left_out_of_rows(
    tmp_path: Path, steps: list[Step]
) -> None:
    odd = [steps[0], steps[1]._replace(o_tp1=steps[9].o_tp1), steps[2]]
    shard = shard_of(tmp_path, odd)
    converted = convert_shard(shard, tmp_path / "out.hdf5")
    assert [fault[:2] for fault in converted.faults] == [
        (1, "o_tp1 does not repeat the three newer frames of o_t")
    ]
    assert convert_shard(shard, tmp_path / "both.hdf5", layout="d4rl").transitions == 3


def test_a_shard_without_a_usable_record_makes_no_file(tmp_path: Path, steps: list[Step]) -> None:
    shard = shard_of(tmp_path, [])
    target = tmp_path / "out.hdf5"
    with pytest.raises(DataError) as error:
        convert_shard(shard, target)
    assert str(error.value) == f"{shard.path} has no record that can be used, it is empty"
    write_shard(shard.path, [b"\xff\xff"])
    with pytest.raises(DataError) as error:
        convert_shard(shard, target)
    assert str(error.value) == (
        f"{shard.path} has no record that can be used: record 0: its content is no tf.train.Example"
    )
    assert not target.exists()
