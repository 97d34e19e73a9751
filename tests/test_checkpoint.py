"""Checkpoints are whole or not there: kills while one is replaced or removed, power cuts."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from leeward import checkpoint, policy_folder
from leeward.errors import DiskError
from test_policy_folder import Killed, saved


def save(folder: Path, value: float, *, name: str = "5", updates: int = 5) -> None:
    """A checkpoint of one array, full of `value`."""
    manifest = {"updates": updates}
    checkpoint.save(folder, name, {"state": jnp.full(3, value)}, manifest, lambda _: None)


def values(folder: Path) -> list[tuple[str, float]]:
    """Name and value of every checkpoint that counts, all of which must be whole."""
    found = checkpoint.complete(folder)
    arrays = [checkpoint.restore(one, {"state": jnp.zeros(3)})["state"] for one in found]
    return [
        (checkpoint.name_of(one), float(array[0])) for one, array in zip(found, arrays, strict=True)
    ]


def kill_at(monkeypatch: pytest.MonkeyPatch, renames_before: int) -> None:
    """A kill where a folder would be renamed for the next time after so many."""
    replace, done = Path.replace, list[Path]()

    def killed(path: Path, target: Path) -> Path:
        if len(done) == renames_before:
            raise Killed
        result = replace(path, target)
        done.append(path)
        return result

    monkeypatch.setattr(Path, "replace", killed)


def kill_while_removing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill in the middle of removing a checkpoint: its arrays are gone, its manifest is not."""
    rmtree = shutil.rmtree

    def killed(path: Path, ignore_errors: bool = False) -> None:
        if (path / "arrays").is_dir():
            rmtree(path / "arrays")
            raise Killed
        rmtree(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", killed)


# Renames: the old one aside, the new one in its place, the old one to be removed.
@pytest.mark.parametrize(("renames_before", "left"), [(0, 1.0), (1, 1.0), (2, 2.0)])
def test_a_kill_while_a_checkpoint_is_replaced_leaves_the_old_or_the_new(
    renames_before: int, left: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1.0)
    with monkeypatch.context() as patch:
        kill_at(patch, renames_before)
        with pytest.raises(Killed):
            save(tmp_path, 2.0)
    assert values(tmp_path) == [("5", left)]
    save(tmp_path, 3.0)
    checkpoint.keep_last(tmp_path, 1)
    assert values(tmp_path) == [("5", 3.0)]
    assert [path.name for path in tmp_path.iterdir()] == ["5"]


def test_a_kill_while_the_replaced_one_is_removed_leaves_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1.0)
    with monkeypatch.context() as patch:
        kill_while_removing(patch)
        with pytest.raises(Killed):
            save(tmp_path, 2.0)
    assert values(tmp_path) == [("5", 2.0)]


def test_a_kill_while_old_ones_are_removed_leaves_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for updates in (1, 2, 3):
        save(tmp_path, float(updates), name=str(updates), updates=updates)
    with monkeypatch.context() as patch:
        kill_while_removing(patch)
        with pytest.raises(Killed):
            checkpoint.keep_last(tmp_path, 1)
    assert values(tmp_path) == [("2", 2.0), ("3", 3.0)]
    checkpoint.keep_last(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["3"]


def test_one_that_was_moved_aside_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoints"
    for value in (1.0, 2.0):
        with monkeypatch.context() as patch:
            if value == 2.0:
                kill_at(patch, renames_before=1)
            try:
                save(folder, value)
            except Killed:
                assert value == 2.0
    (aside,) = checkpoint.complete(folder)
    saved(aside / "policy")
    assert policy_folder.find(tmp_path, "5") == aside / "policy"


def test_everything_is_on_the_disk_before_a_checkpoint_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[Any] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        happened.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def noted_replace(path: Path, target: Path) -> Path:
        result = replace(path, target)
        happened.append("renamed")
        return result

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", noted_fsync)
        patch.setattr(Path, "replace", noted_replace)
        save(tmp_path, 1.0)
    renamed = happened.index("renamed")
    written = {path.stat().st_ino for path in [tmp_path / "5", *(tmp_path / "5").rglob("*")]}
    assert written <= set(happened[:renamed])
    assert happened[renamed + 1 :] == [tmp_path.stat().st_ino]


def test_a_disk_that_fails_keeps_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1.0)

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(DiskError) as error:
            save(tmp_path, 2.0)
    assert str(error.value) == (
        f"{tmp_path}: the checkpoint 5 could not be written (Input/output error); the one before "
        "it is kept: free some space and continue with --resume"
    )
    assert values(tmp_path) == [("5", 1.0)]
    assert [path.name for path in tmp_path.iterdir()] == ["5"]
