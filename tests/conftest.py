"""What every test runs under: checked array types, strict broadcasting, no network, own caches."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jaxtyping import install_import_hook

if early := sorted(name for name in sys.modules if name.split(".")[0] == "leeward"):
    raise RuntimeError(f"imported before the hook that checks array types: {early}")
# Every annotated function of the package checks its arguments' and results' shapes and dtypes.
install_import_hook("leeward", "beartype.beartype")

from leeward.data.dataset import Dataset  # noqa: E402 (after the hook)
from leeward.types import PRNGKey  # noqa: E402

COMPILED = tempfile.TemporaryDirectory(prefix="leeward-tests-compiled-")
JAX_SETTINGS = {
    "jax_numpy_rank_promotion": "raise",
    "jax_compilation_cache_dir": COMPILED.name,  # shared by the processes that tests start
    "jax_persistent_cache_min_compile_time_secs": 0.2,
}
for setting, value in JAX_SETTINGS.items():
    jax.config.update(setting, value)
    os.environ[setting.upper()] = str(value)


def pytest_unconfigure() -> None:
    """Removes the compiled programs of this session."""
    COMPILED.cleanup()


def _is_local(address: Any) -> bool:
    """Whether a socket address stays on this machine: a Unix path, or a loopback host."""
    if not isinstance(address, tuple):
        return True
    return str(address[0]).startswith("127.") or address[0] in ("::1", "localhost")


MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000


@pytest.fixture(scope="module", autouse=True)
def _compiled_programs_go() -> Iterator[None]:
    """Drops compiled programs before there are too many.

    Each holds memory maps, of which Linux grants a process 65,530 by default; XLA crashes beyond.
    """
    yield
    if MAPS.is_file() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    """Lets no test reach another machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if not _is_local(address):
            raise RuntimeError(f"a test tried to reach {address}: tests use no network")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture(scope="session", autouse=True)
def _shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache folder of this session, for fixtures that outlive one test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEEWARD_CACHE", str(tmp_path_factory.mktemp("session-cache")))
        yield


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of this test's own, which `LEEWARD_CACHE` names."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("LEEWARD_CACHE", str(folder))
    return folder


@pytest.fixture
def key() -> PRNGKey:
    """A typed key, the same in every test."""
    return jax.random.key(0)


@pytest.fixture
def continuous_dataset() -> Dataset:
    """40 episodes of 5 to 15 steps, half of them truncated: observation [3], action [2] in ±1.

    A point is pushed towards the origin with noise; the reward is minus its distance.
    """
    generator = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {
        name: [] for name in ("observation", "action", "reward", "termination", "truncation")
    }
    for episode in range(40):
        length = int(generator.integers(5, 16))
        point = generator.normal(size=2)
        for step in range(length):
            action = np.clip(-point + 0.3 * generator.normal(size=2), -1.0, 1.0)
            last = step == length - 1
            rows["observation"].append([*point, step / 15])
            rows["action"].append(action)
            rows["reward"].append(-np.linalg.norm(point))
            rows["termination"].append(last and episode % 2 == 0)
            rows["truncation"].append(last and episode % 2 == 1)
            point = point + 0.3 * action
    return _dataset(rows, action_low=-1.0, action_high=1.0, name="small-continuous")


@pytest.fixture
def discrete_dataset() -> Dataset:
    """40 walks on a line of 5 places, actions left, stay, right: reward 1 at the right end.

    Observations are one-hot [5]; walks end at the right end, or are cut after 12 steps.
    """
    generator = np.random.default_rng(1)
    rows: dict[str, list[Any]] = {
        name: [] for name in ("observation", "action", "reward", "termination", "truncation")
    }
    for _ in range(40):
        place = 0
        for step in range(12):
            action = int(generator.choice(3, p=(0.2, 0.2, 0.6)))
            following = min(max(place + action - 1, 0), 4)
            rows["observation"].append(np.eye(5)[place])
            rows["action"].append(action)
            rows["reward"].append(float(following == 4))
            rows["termination"].append(following == 4)
            rows["truncation"].append(following != 4 and step == 11)
            place = following
            if place == 4:
                break
    return _dataset(rows, action_count=3, name="small-discrete")


@pytest.fixture
def npz(tmp_path: Path, continuous_dataset: Dataset) -> Path:
    """`continuous_dataset` as a file, small.npz."""
    data = continuous_dataset
    path = tmp_path / "small.npz"
    np.savez(
        path,
        observations=data.observation,
        actions=data.action,
        rewards=data.reward,
        terminations=data.termination,
        truncations=data.truncation,
    )
    return path


def _dataset(rows: dict[str, list[Any]], *, name: str, **bounds: Any) -> Dataset:
    """The rows as a data set."""
    column = {column: np.asarray(values) for column, values in rows.items()}
    return Dataset.from_arrays(**column, **bounds, metadata={"name": name})
