"""One call for every source: what it is taken for, and what is said when it is none."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from leeward.data import registry
from leeward.data.dataset import Dataset
from leeward.data.load import load_dataset
from leeward.data.table_columns import TableColumns
from leeward.errors import DataError, MissingExtra


def write_hdf5(path: Path, *, rows: int = 12, observation: int = 3, **columns: Any) -> Path:
    generator = np.random.default_rng(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["observations"] = generator.normal(size=(rows, observation)).astype(np.float32)
        file["actions"] = generator.uniform(-1, 1, size=(rows, 2)).astype(np.float32)
        file["rewards"] = np.ones(rows, np.float32)
        file["terminals"] = np.arange(rows) == 4
        for key, value in columns.items():
            file[key] = value
    return path


@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_tables_need_an_extra(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_text("state,action,reward\n0,0,0\n")
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else found(name)
    )
    with pytest.raises(MissingExtra) as error:
        load_dataset(tmp_path / name)
    assert str(error.value) == (
        f"{tmp_path / name} needs the package 'pyarrow', which is not installed: "
        "pip install 'leeward[tables]'"
    )


@pytest.mark.parametrize("name", ["hopper-medium-v2", "hopper_medium_v2"])
def test_d4rl_names_use_the_cache_and_the_qlearning_reading(cache: Path, name: str) -> None:
    write_hdf5(cache / "d4rl" / "hopper-medium-v2.hdf5", timeouts=np.arange(12) == 8)
    dataset = load_dataset(name, offline=True)
    assert dataset.start.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10]
    entry = registry.find(name)
    assert entry is not None
    assert dataset.metadata == {
        "name": "hopper-medium-v2",
        "source": entry.url,
        "reference": "hopper-medium-v2",
        "env": "Hopper-v4",
        "d4rl_rows": "qlearning",
    }
    every = load_dataset(name, d4rl_rows="all", offline=True)
    assert every.start.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10]
    assert every.metadata["d4rl_rows"] == "all"


def test_v0_names_know_their_step_limit(cache: Path) -> None:
    write_hdf5(cache / "d4rl" / "maze2d-open-v0.hdf5", rows=400)
    dataset = load_dataset("maze2d-open-v0", offline=True)
    # 150 steps; D4RL counts from 1 after the termination at row 4
    assert np.setdiff1d(np.arange(399), dataset.start).tolist() == [153, 303]
    assert np.flatnonzero(dataset.truncation).tolist() == [154, 304]


def test_names_without_an_environment_say_so(cache: Path) -> None:
    write_hdf5(cache / "d4rl" / "ant-medium-v2.hdf5", timeouts=np.arange(12) == 8)
    dataset = load_dataset("ant-medium-v2", offline=True)
    assert "env" not in dataset.metadata
    assert dataset.metadata["notes"] == [
        "no current environment matches ant-medium-v2 (D4RL's ant data has 111 observations, "
        "Ant-v4 has 27): it trains without evaluation; --env names one"
    ]
    assert load_dataset("ant-medium-v2", offline=True, env="Ant-v4").metadata["env"] == "Ant-v4"


def test_a_name_that_is_not_there_says_where_to_put_it(cache: Path) -> None:
    with pytest.raises(DataError) as error:
        load_dataset("hopper-medium-v2", offline=True)
    assert str(error.value) == (
        "hopper-medium-v2 is not in the cache and the network is not to be used: get it on a "
        f"machine with internet access and put it at {cache}/d4rl/hopper-medium-v2.hdf5 "
        "(published at http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2/"
        "hopper_medium-v2.hdf5)"
    )


def test_paths_use_the_all_reading(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "own.hdf5", timeouts=np.arange(12) == 8)
    dataset = load_dataset(str(path))
    assert dataset.start.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10]
    assert dataset.metadata["source"] == str(path)
    assert load_dataset(path, d4rl_rows="qlearning").metadata["d4rl_rows"] == "qlearning"


def test_a_dataset_is_returned_as_it_is(continuous_dataset: Dataset) -> None:
    assert load_dataset(continuous_dataset) is continuous_dataset


def test_env_serves_where_the_file_names_none(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "own.hdf5", rows=1500)
    dataset = load_dataset(path, env="Hopper-v4")
    assert dataset.metadata["env"] == "Hopper-v4"
    assert np.flatnonzero(dataset.truncation).tolist() == [1004]
    named = write_hdf5(tmp_path / "named.hdf5", **{"metadata/env_id": "HalfCheetah-v4"})
    assert load_dataset(named, env="Hopper-v4").metadata["env"] == "HalfCheetah-v4"


def test_addresses_are_fetched_into_the_cache(cache: Path, tmp_path: Path) -> None:
    address = "https://host.example/data/own.hdf5"
    with pytest.raises(DataError, match=r"put it at (\S+own\.hdf5)") as error:
        load_dataset(address, offline=True)
    target = Path(str(error.value).split(" put it at ")[1].split()[0])
    assert cache in target.parents
    path = write_hdf5(tmp_path / "own.hdf5")
    target.parent.mkdir(parents=True)
    shutil.copy(path, target)
    assert load_dataset(address, offline=True).metadata["source"] == address


REFUSED = {
    "hoper-medium-v2": (
        "unknown data set 'hoper-medium-v2'. Did you mean hopper-medium-v2 or hopper-medium-v4 or "
        "hopper-medium-v1? Give a name ('leeward list datasets' shows them), a path, an address "
        "or a Minari id"
    ),
    "no/such/file.hdf5": "no such file: no/such/file.hdf5",
    "missing.csv": "no such file: missing.csv",
    "ftp://host.example/x.hdf5": (
        "ftp://host.example/x.hdf5: only http and https addresses can be fetched"
    ),
    "https://host.example/x.rar": (
        "https://host.example/x.rar does not end in a known file type; known are .hdf5, .h5, "
        ".npz, .csv, .parquet"
    ),
}


@pytest.mark.parametrize("source", REFUSED)
def test_unknown_sources_say_what_is_known(source: str) -> None:
    with pytest.raises(DataError) as error:
        load_dataset(source)
    assert str(error.value) == REFUSED[source]


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.pkl"
    path.write_bytes(b"x")
    with pytest.raises(DataError) as error:
        load_dataset(path)
    assert str(error.value) == (
        f"{path}: unknown file type '.pkl'; known are .hdf5, .h5, .npz, .csv, .parquet"
    )
    with pytest.raises(DataError) as error:
        load_dataset(tmp_path)
    assert str(error.value) == (
        f"{tmp_path} is a folder, and no Minari data set: give a file in it"
    )


def test_options_that_cannot_apply_are_refused(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "own.hdf5")
    with pytest.raises(DataError) as error:
        load_dataset(path, columns=TableColumns(reward="r"))
    assert str(error.value) == (
        f"{path} is no table: columns can be chosen in CSV and Parquet only"
    )
    table = tmp_path / "log.csv"
    table.write_text("obs,action,reward,done\n1,0.5,1,0\n2,0.5,1,1\n")
    with pytest.raises(DataError) as error:
        load_dataset(table, d4rl_rows="all")
    assert str(error.value) == f"{table} is no D4RL file: --d4rl-rows does not apply"
    assert load_dataset(table).transitions == 2
