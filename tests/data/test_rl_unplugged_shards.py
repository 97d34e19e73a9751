"""Names of games, runs and shards, and the folders that the published scripts use."""

from __future__ import annotations

from pathlib import Path

import pytest

from leeward.data.load import load_dataset
from leeward.data.rl_unplugged_shards import (
    default_target,
    find_shards,
    games,
    is_shard,
)
from leeward.errors import DataError


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLU_CACHE_DIR", str(tmp_path / "shards"))
    monkeypatch.setenv("RLU_DATASET_DIR", str(tmp_path / "files"))


def test_all_games_of_both_published_lists_are_known() -> None:
    assert len(games()) == 46  # 9 for tuning, 37 for testing
    assert games()["Pong"] == 6
    assert games()["Pooyan"] == 6
    for game in games():
        (shard,) = find_shards(f"rl-unplugged:{game}/run_5-00099-of-00100")
        assert shard.actions == games()[game]


def test_a_name_says_where_a_shard_lies(tmp_path: Path) -> None:
    name = "rl-unplugged:Breakout/run_1-00001-of-00100"
    (shard,) = find_shards(name)
    assert shard.name == name
    assert shard.url is not None
    assert shard.url.endswith("/rl_unplugged/atari/Breakout/run_1-00001-of-00100")
    assert shard.path == tmp_path / "shards/Breakout/run_1-00001-of-00100"
    assert default_target(shard) == tmp_path / "files/Breakout/run_1-00001-of-00100.hdf5"
    (other,) = find_shards(name, str(tmp_path / "cache"))
    assert other.path == tmp_path / "cache/Breakout/run_1-00001-of-00100"
    assert default_target(shard, "here") == Path("here/Breakout/run_1-00001-of-00100.hdf5")


def test_the_published_folders_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLU_CACHE_DIR")
    monkeypatch.delenv("RLU_DATASET_DIR")
    monkeypatch.setenv("HOME", "/homes/user")
    (shard,) = find_shards("rl-unplugged:Pong/run_2-00000-of-00100")
    assert str(shard.path) == "/homes/user/.rl_unplugged/cache/Pong/run_2-00000-of-00100"
    assert str(default_target(shard)) == (
        "/homes/user/.rl_unplugged/datasets/Pong/run_2-00000-of-00100.hdf5"
    )


def test_a_run_means_all_its_shards() -> None:
    shards = find_shards("rl-unplugged:Pong/run_3")
    assert len(shards) == 100
    assert shards[42].file == "run_3-00042-of-00100"


def test_a_local_file_knows_its_game_by_its_folder(tmp_path: Path) -> None:
    for folder, game in (("Breakout", "Breakout"), ("mine", None)):
        path = tmp_path / folder / "run_1-00001-of-00100"
        path.parent.mkdir()
        path.write_bytes(b"")
        assert is_shard(str(path))
        (shard,) = find_shards(str(path))
        assert (shard.game, shard.url, shard.name) == (game, None, str(path))
    assert not is_shard("run_1.hdf5")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("breakout/run_1", "unknown game 'breakout'. Did you mean Breakout"),
        ("Adventure/run_1", "RL Unplugged has 46: Alien, Amidar"),
        (
            "Pong/1",
            "'1' is no shard: write run_R-SSSSS-of-00100, such as "
            "rl-unplugged:Breakout/run_1-00001-of-00100, or run_R for all of a run",
        ),
        ("Pong/run_6-00000-of-00100", "there is no run 6: runs are 1 to 5"),
        ("Pong/run_0", "there is no run 0: runs are 1 to 5"),
        (
            "Pong/run_1-00100-of-00100",
            "there is no shard 00100 of 00100: shards are 00000 to 00099 of 00100",
        ),
        (
            "Pong/run_1-00001-of-00050",
            "there is no shard 00001 of 00050: shards are 00000 to 00099 of 00100",
        ),
    ],
)
def test_wrong_names_are_refused(name: str, text: str) -> None:
    with pytest.raises(DataError) as error:
        find_shards(f"rl-unplugged:{name}")
    assert str(error.value).startswith(f"rl-unplugged:{name}: ")
    assert text in str(error.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run_1-00001-of-00100"
    with pytest.raises(DataError) as error:
        find_shards(str(path))
    assert str(error.value) == f"no such file: {path}"


def test_shards_are_no_data_sets_yet(tmp_path: Path) -> None:
    name = "rl-unplugged:Pong/run_1-00001-of-00100"
    with pytest.raises(DataError) as error:
        load_dataset(name)
    assert str(error.value) == (
        f"{name}: convert it first: leeward convert {name}, then give the file"
    )
    path = tmp_path / "run_1-00001-of-00100"
    path.write_bytes(b"")
    with pytest.raises(DataError) as error:
        load_dataset(path)
    assert str(error.value) == (
        f"{path} is a shard of RL Unplugged: leeward convert {path} TARGET.hdf5 makes a data set "
        "of it"
    )
