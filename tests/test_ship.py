"""scripts/ship.py: a collected file becomes one that ships, with its card and registry entry."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pytest

import small_environments  # noqa: F401  # registers them
from leeward.collect import CollectOptions, collect
from leeward.data.load import load_dataset
from pages import ROOT

LINE = "LeewardTest/Line-v0"


@pytest.fixture
def ship(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/ is no package."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    module = importlib.import_module("ship")
    monkeypatch.setattr(module, "LEAST", 50)
    return module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Random data of the line, with returns that count as 0 and 100."""
    path = tmp_path / "line-random-v0.hdf5"
    collect(LINE, path, CollectOptions(policy="random", transitions=60))
    with h5py.File(path, "a") as file:
        file["metadata/reference_minimum"] = -20.0
        file["metadata/reference_maximum"] = 0.0
        file["metadata/reference_source"] = "by hand"
    return path


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The data's folder in the package, with the registry as it is."""
    folder = tmp_path / "package"
    (folder / "registry").mkdir(parents=True)
    shutil.copy(ROOT / "src/leeward/data/registry/shipped.json", folder / "registry")
    return folder


def test_a_file_ships_with_card_and_entry(ship: ModuleType, source: Path, package: Path) -> None:
    path = ship.ship(source, package)
    assert path == package / "shipped" / "line-random-v0.hdf5"
    with h5py.File(source) as before, h5py.File(path) as after:
        assert set(before) - set(after) == {"next_observations"}
        for name in set(after) - {"metadata"}:
            np.testing.assert_array_equal(after[name], before[name])
    data, whole = load_dataset(path), load_dataset(source)
    assert data.metadata["file_metadata"] == whole.metadata["file_metadata"]
    assert data.transitions == whole.transitions - whole.truncation.sum()
    np.testing.assert_array_equal(
        data.observation[data.start + 1][:3], whole.observation[whole.start + 1][:3]
    )
    registry = json.loads((package / "registry" / "shipped.json").read_text())
    known = json.loads((ROOT / "src/leeward/data/registry/shipped.json").read_text())
    entry = registry["datasets"].pop("line-random-v0")
    assert registry == known
    assert entry == {"env": LINE, "max_episode_steps": 12, "reference": [-20.0, 0.0]}
    card = path.with_suffix(".md").read_text()
    facts = data.metadata["file_metadata"]
    score = 100 * (facts["return_mean"] + 20) / 20
    for text in (
        f"# line-random-v0\n\n{data.transitions} transitions of Gymnasium's `{LINE}`",
        "uniformly random actions",
        facts["command"],
        f"normalized mean {score:.1f} |",
        "| Action | 1 number in [-2, 2] |",
        f"| Episodes | {data.episodes}: {data.termination.sum()} ended by the task",
        f"jax {facts['version_jax']}",
    ):
        assert text in card


def test_a_set_of_another_size_is_refused(ship: ModuleType, source: Path, package: Path) -> None:
    shipped = ship.ship(source, package).read_bytes()
    ship.LEAST = 61
    with pytest.raises(SystemExit, match=r"transitions, not 61 to 100,000: collect it again with"):
        ship.ship(source, package)
    assert (package / "shipped" / source.name).read_bytes() == shipped
