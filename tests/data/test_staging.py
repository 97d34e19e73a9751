"""Batches of rows gathered on the host are those of data on the device, bit for bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward.data.dataset import Dataset
from leeward.data.moments import mean_and_std
from leeward.data.returns import return_to_go
from leeward.data.sampling import fit_scaling, gather, to_device
from leeward.data.staging import HostRows, network_units, small_columns, staged_batch
from leeward.errors import DataError
from leeward.types import Batch

DISCOUNT = 0.97


def small(kind: str) -> Dataset:
    """Most of 18 episodes of 1 to 6 steps, every third of them cut off."""
    generator = np.random.default_rng(3)
    length = 1 + np.arange(18) % 6
    rows = int(length.sum())
    last = np.zeros(rows, bool)
    last[np.cumsum(length) - 1] = True
    number = np.repeat(np.arange(18), length)
    shape = {"frames": (5, 3), "apart-frames": (5, 3), "bytes": (4,)}.get(kind, (4,))
    given: dict[str, Any] = {
        "observation": generator.normal(size=(rows, *shape)) * 3,
        "action": generator.normal(size=(rows, 2)),
        "reward": generator.normal(size=rows),
        "termination": last & (number % 3 != 0),
        "truncation": last & (number % 3 == 0),
    }
    if kind != "vectors":
        given["observation"] = generator.integers(0, 256, (rows, *shape), np.uint8)
        given |= {"action": generator.integers(0, 3, rows), "action_count": 3}
    following = np.roll(given["observation"], -1, axis=0)
    following[last] = generator.integers(0, 99, following[last].shape)
    if "apart" in kind:  # next observations that are no rows
        following[::3] = generator.integers(0, 99, following[::3].shape)
    if "frames" in kind:
        given["metadata"] = {"frame_stack": 3}
    data = Dataset.from_arrays(**given, next_observation=following)
    if "apart" in kind:
        return data.select_transitions(np.arange(data.transitions) % 5 > 0)
    assert data.next_rows_chain()
    return data.select_transitions(number % 4 != 1)


@pytest.mark.parametrize(
    ("kind", "n_step"),
    [
        ("vectors", 1),
        ("vectors", 3),
        ("bytes", 2),
        ("frames", 1),
        ("frames", 2),
        ("frames", 5),
        ("apart", 1),
        ("apart-frames", 1),
    ],
)
def test_staged_batches_equal_gathered_ones(kind: str, n_step: int) -> None:
    data = small(kind)
    scaling = fit_scaling(data, normalize_observations=True)
    whole, columns = to_device(data, scaling), small_columns(data, scaling)
    assert len(columns.observation) == len(columns.action) == 1
    index = np.random.default_rng(0).permutation(data.transitions).astype(np.int32)
    rows = HostRows(data, data, columns.frames_before, n_step)
    staged = rows.fetch(index[None])
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(staged._replace(index=None)))
    assert held == rows.transition_bytes * len(index)
    ready = network_units(scaling, jax.device_put(staged))
    ready = jax.tree.map(lambda leaf: leaf[0], ready)
    expected = jax.jit(lambda data: gather(data, jnp.asarray(index), DISCOUNT, n_step))(whole)
    found = jax.jit(lambda data, rows: staged_batch(data, rows, DISCOUNT, n_step))(columns, ready)
    for name, column in zip(Batch._fields, expected, strict=True):
        assert getattr(found, name).dtype == column.dtype, name
        np.testing.assert_array_equal(getattr(found, name), column, err_msg=name)


@pytest.mark.parametrize("repeat_last_reward", [False, True])
def test_returns_to_go_need_small_columns_only(repeat_last_reward: bool) -> None:
    data = small("vectors")
    scaling = fit_scaling(data, normalize_observations=True)
    np.testing.assert_array_equal(
        return_to_go(small_columns(data, scaling), DISCOUNT, repeat_last_reward),
        return_to_go(to_device(data, scaling), DISCOUNT, repeat_last_reward),
    )


def test_a_part_is_found_among_the_rows_of_all() -> None:
    data = small("apart")
    scaling = fit_scaling(data, normalize_observations=False)
    chosen = np.arange(data.transitions) % 3 == 1
    part = data.select_transitions(chosen)
    staged = HostRows(data, part, None, 1).fetch(np.arange(part.transitions))
    expected = gather(to_device(part, scaling), jnp.arange(part.transitions), 1.0)
    np.testing.assert_array_equal(staged.row[:, 0], expected.observation)
    np.testing.assert_array_equal(staged.following, expected.next_observation)


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    data = small("vectors")
    path = tmp_path / "rows.npy"
    np.save(path, data.observation)
    mapped = dataclasses.replace(data, observation=np.load(path, mmap_mode="r"))
    rows = HostRows(mapped, mapped, None, 1)
    expected = HostRows(data, data, None, 1).fetch(np.arange(5))
    np.testing.assert_array_equal(rows.fetch(np.arange(5)).row, expected.row)
    with path.open("r+b") as file:
        file.truncate(200)
    with pytest.raises(DataError) as error:
        rows.fetch(np.arange(5))
    assert str(error.value) == (
        f"{path} was changed while it was trained on: put the old file back and resume, or start a "
        "new run"
    )


@pytest.mark.parametrize("width", [1, 3])
def test_moments_do_not_depend_on_blocks(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    observation = np.random.default_rng(0).normal(size=(5000, width)).astype(np.float32)
    row = np.flatnonzero(np.arange(5000) % 7)
    once = mean_and_std(observation, row)
    monkeypatch.setattr("leeward.data.moments.BLOCK_BYTES", 999)
    for one, other in zip(once, mean_and_std(observation, row), strict=True):
        np.testing.assert_array_equal(one, other)
    used = observation[row].astype(np.float64)
    np.testing.assert_allclose(once[0], used.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(once[1], used.std(axis=0), rtol=1e-12)
