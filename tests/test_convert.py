"""`leeward convert`: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from leeward import cli
from leeward.data.build import build
from leeward.data.dataset import Dataset
from leeward.data.load import load_dataset
from leeward.data.write import write_d4rl, write_dataset
from masses import masses
from shards import example, play, write_shard

NAME = "run_1-00001-of-00100"


def fails(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """The error text of a command that must fail."""
    capsys.readouterr()
    assert cli.main(["convert", *arguments]) == code
    return capsys.readouterr().err.strip().splitlines()[-1].removeprefix("leeward: error: ")


def same(path: Path, dataset: Dataset) -> bool:
    return load_dataset(path).content_hash() == dataset.content_hash()


@pytest.fixture
def source(tmp_path: Path, continuous_dataset: Dataset) -> Path:
    path = tmp_path / "source.hdf5"
    write_dataset(path, continuous_dataset)
    return path


@pytest.mark.parametrize("target", ["t.hdf5", "t.h5", "t.npz"])
def test_formats(
    tmp_path: Path,
    source: Path,
    continuous_dataset: Dataset,
    target: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "new" / target
    assert cli.main(["convert", str(source), str(path)]) == 0
    back = load_dataset(path)
    start, true = back.start, continuous_dataset
    np.testing.assert_array_equal(back.observation[start], true.observation[true.start])
    np.testing.assert_array_equal(back.reward[start], true.reward[true.start])
    np.testing.assert_array_equal(back.steps_left(), true.steps_left())
    assert back.action_space == true.action_space
    assert f"{path}: {true.transitions:,} transitions in" in capsys.readouterr().out


def test_layouts(tmp_path: Path, source: Path, continuous_dataset: Dataset) -> None:
    rows, d4rl = tmp_path / "rows.hdf5", tmp_path / "d4rl.hdf5"
    assert cli.main(["convert", str(source), str(rows), "--layout", "rows"]) == 0
    assert same(rows, continuous_dataset)
    assert cli.main(["convert", str(rows), str(d4rl), "--layout", "d4rl"]) == 0
    back = load_dataset(d4rl)
    assert back.transitions == continuous_dataset.transitions
    with h5py.File(d4rl) as file:
        assert file["next_observations"].shape == file["observations"].shape
    text = tmp_path / "rows.npz"
    assert cli.main(["convert", str(source), str(text), "--layout", "rows"]) == 2


def test_frames_are_stacked_for_other_loaders(tmp_path: Path) -> None:
    shard = tmp_path / "Breakout" / NAME
    steps = play((6, 5))
    write_shard(shard, [example(step) for step in steps])
    rows, stacked = tmp_path / "rows.hdf5", tmp_path / "d4rl.hdf5"
    assert cli.main(["convert", str(shard), str(rows)]) == 0
    assert cli.main(["convert", str(rows), str(stacked), "--layout", "d4rl"]) == 0
    with h5py.File(stacked) as file:
        np.testing.assert_array_equal(file["observations"][()], [s.o_t for s in steps])
        np.testing.assert_array_equal(file["next_observations"][()], [s.o_tp1 for s in steps])
    again = tmp_path / "small.hdf5"
    assert cli.main(["convert", str(rows), str(again), "--transitions", "8"]) == 0
    small = load_dataset(again)
    assert (small.transitions, small.frame_stack) == (8, 4)
    assert "converted_from" not in small.metadata["file_metadata"]


def test_smaller_data(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "small.hdf5"
    assert cli.main(["convert", str(source), str(path), "--transitions", "50"]) == 0
    assert load_dataset(path).transitions == 50
    assert cli.main(["convert", str(source), str(path), "--episodes", "3", "--overwrite"]) == 0
    assert load_dataset(path).episodes == 3


def test_repairs_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = masses()
    columns["action"][7] = np.nan
    columns["next_observation"][40] += 0.01
    path, target = tmp_path / "broken.hdf5", tmp_path / "fixed.hdf5"
    write_d4rl(path, **columns)
    assert "action is NaN at row 7" in fails(capsys, str(path), str(target))
    assert not target.exists()
    assert cli.main(["convert", str(path), str(target), "--fix"]) == 0
    said = capsys.readouterr().out
    assert "repaired non_finite_action: 1 steps whose action is not finite were left out" in said
    assert "repaired next_observation_breaks: episodes were cut at 1 rows" in said
    fixed = load_dataset(target)
    assert fixed.next_rows_chain()
    assert "non_finite_action: 1 steps" in fixed.metadata["file_metadata"]["repairs"]
    again = tmp_path / "again.hdf5"
    assert cli.main(["convert", str(target), str(again), "--fix"]) == 0
    assert "nothing to repair" in capsys.readouterr().out


def test_errors_that_remain_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = masses()
    columns["action"][7] = 2.0
    path, target = tmp_path / "broken.hdf5", tmp_path / "fixed.hdf5"
    write_d4rl(path, **columns)
    text = fails(capsys, str(path), str(target), "--fix")
    assert text.startswith("broken cannot be repaired safely: actions leave the box in 1 rows")
    assert not target.exists()


def test_other_files_are_not_replaced(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "there.hdf5"
    target.write_text("mine")
    assert fails(capsys, str(source), str(target)) == f"{target} exists: --overwrite replaces it"
    assert target.read_text() == "mine"
    assert cli.main(["convert", str(source), str(target), "--overwrite"]) == 0
    assert load_dataset(target).transitions > 0


def test_impossible_calls_are_refused(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = "give one SOURCE and a TARGET: leeward convert SOURCE TARGET"
    assert fails(capsys, str(source)) == usage
    assert fails(capsys, str(source), str(source), "x.hdf5") == usage
    assert fails(capsys, str(source), "x.txt") == "x.txt: TARGET must end in .hdf5, .h5, .npz"
    name = f"rl-unplugged:Pong/{NAME}"
    assert fails(capsys, name, "x.hdf5", "--fix") == (
        "--fix does not apply to RL Unplugged's shards: convert the file that is made of them once "
        "more"
    )
    assert fails(capsys, name, "x.hdf5", "--least-return", "3").startswith("--least-return does")
    assert fails(capsys, name, "x.txt") == (
        "x.txt: TARGET must be a folder, or end in .hdf5 or .h5"
    )
    assert fails(capsys, "rl-unplugged:Pong/run_1", "x.hdf5") == (
        "x.hdf5 is one file, and there are 100 shards: name a folder"
    )
    assert fails(capsys, name, "x.hdf5", "--processes", "0") == (
        "--processes must be at least 1, got 0"
    )


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that a server on this machine serves as a mirror."""
    folder = tmp_path / "mirror"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Says nothing."""

    listener = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
    )
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setenv("LEEWARD_MIRRORS", f"http://127.0.0.1:{listener.server_port}")
    monkeypatch.setenv("RLU_CACHE_DIR", str(tmp_path / "shards"))
    monkeypatch.setenv("RLU_DATASET_DIR", str(tmp_path / "files"))
    yield folder
    listener.shutdown()
    listener.server_close()
    thread.join()


def test_a_named_shard_is_fetched_once_and_converted_where_the_scripts_look(
    mirror: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shard(mirror / "Breakout" / NAME, [example(step) for step in play((5, 4))])
    name = f"rl-unplugged:Breakout/{NAME}"
    assert cli.main(["convert", name]) == 0
    assert (tmp_path / "shards/Breakout" / NAME).exists()
    assert load_dataset(tmp_path / "files/Breakout" / f"{NAME}.hdf5").transitions == 9
    assert load_dataset(name).transitions == 9
    assert f"{name}: done, 1 of 1" in capsys.readouterr().err
    (mirror / "Breakout" / NAME).unlink()
    assert cli.main(["convert", name, str(tmp_path / "other.hdf5"), "--offline"]) == 0
    assert load_dataset(tmp_path / "other.hdf5").transitions == 9
    assert cli.main(["convert", name]) == 0
    assert f"{name}: was there, 1 of 1" in capsys.readouterr().err


def test_several_shards_at_once_and_one_bad_shard_stops_no_other(
    mirror: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / "in" / f"run_1-{i:05d}-of-00100" for i in range(3)]
    for i, path in enumerate(paths):
        write_shard(path, [example(step) for step in play((4 + i,), seed=i)])
    paths[1].write_bytes(b"no gzip, no records")
    out = tmp_path / "out"
    text = fails(capsys, *map(str, paths), str(out), "--processes", "2")
    assert text == (
        f"{paths[1]} has no record that can be used: record 0: its length has a wrong checksum, "
        "so the rest is lost"
    )
    made = sorted(path.name for path in out.glob("*.hdf5"))
    assert made == [f"{paths[0].name}.hdf5", f"{paths[2].name}.hdf5"]
    assert load_dataset(out / made[1]).transitions == 6
    write_shard(paths[1], [example(step) for step in play((3,))])
    assert cli.main(["convert", *map(str, paths), str(out), "--processes", "1"]) == 0
    said = capsys.readouterr().err
    assert said.count("was there") == 2
    assert load_dataset(out / f"{paths[1].name}.hdf5").transitions == 3


def test_left_out_records_are_an_error_beside_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = tmp_path / "Pong" / NAME, tmp_path / "out.hdf5"
    steps = play((6,), actions=6)
    write_shard(path, [example(s._replace(a_t=9) if i == 2 else s) for i, s in enumerate(steps)])
    text = fails(capsys, str(path), str(target))
    assert text == (
        f"{path}: record 2 cannot be used: action a_t is 9, the game's are 0 to 5; 5 good records "
        f"are kept in {target}; get the shard again, and convert with --overwrite"
    )
    assert load_dataset(target).transitions == 5


def test_a_table_becomes_a_file_with_what_was_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "\n".join(f"{i // 5},{i % 5},{i},{i % 2},{i}" for i in range(20))
    table = tmp_path / "log.csv"
    table.write_text(f"episode_id,t,obs_0,action,reward\n{rows}\n")
    target = tmp_path / "log.hdf5"
    assert cli.main(["convert", str(table), str(target)]) == 0
    assert "note: " in capsys.readouterr().out
    assert load_dataset(target).episodes == 4


def test_images_are_kept_once(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 6, 6), np.uint8)
    following = np.roll(images, -1, axis=0)
    ended = np.arange(40) % 10 == 9
    following[ended] = 3
    dataset = build(
        images, np.arange(40) % 3, np.ones(40), ended, next_observation=following, action_count=3
    )
    given, target = tmp_path / "given.hdf5", tmp_path / "once.hdf5"
    write_dataset(given, dataset)
    assert cli.main(["convert", str(given), str(target)]) == 0
    with h5py.File(target) as file:
        assert file["observations"].shape == (44, 6, 6)
        assert "next_observations" not in file
    assert same(target, dataset)
