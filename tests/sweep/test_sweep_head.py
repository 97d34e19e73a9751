"""A sweep on a Ray cluster of its own, whose head is killed in the middle and started again."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import leeward
from sweeping import attempts, flags, states, steps, under_way, wait_for

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'leeward[ray]'"
    ),
    pytest.mark.skipif(sys.platform != "linux", reason="finds Ray's processes in /proc"),
]
COMMAND = """
import sys
from leeward import cli
from leeward.sweep import cluster

cluster.HEAD_SECONDS = 1.0
sys.exit(cli.main(sys.argv[1:]))
"""


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def children(parent: int) -> list[int]:
    """The processes that a process has started, and those that these have, last ones first."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found += [*children(int(place.name)), int(place.name)]
    return found


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and all below it at once, as when their machine is lost."""
    if process.poll() is None:
        for number in [process.pid, *reversed(children(process.pid))]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def head(
    port: int, folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """`ray start --head` on this machine, which only those with its token can use."""
    log = folder / "head.txt"
    line = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block"]
    line += [f"--port={port}", "--node-ip-address=127.0.0.1", "--num-cpus=1"]
    line += [f"--temp-dir={folder / 'ray'}"]
    line += ["--min-worker-port=0", "--max-worker-port=0", "--include-dashboard=false"]
    line += ["--include-log-monitor=false", "--no-monitor", "--disable-usage-stats"]
    line += [f"--object-store-memory={80 * 2**20}"]
    with log.open("wb") as file:
        process = subprocess.Popen(line, stdout=file, stderr=file, env=environment)
    try:
        wait_for(lambda: "block forever" in log.read_text(), process, log)
        yield process
    finally:
        kill_all(process)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name is short: Ray puts sockets below it, whose paths must be."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as name:
        yield Path(name)


def test_a_sweep_whose_head_was_lost_goes_on_and_no_run_is_done_twice(
    npz: Path, tmp_path: Path, folder: Path
) -> None:
    port, place, log = free_port(), tmp_path / "sweep", tmp_path / "log.txt"
    address = f"127.0.0.1:{port}"
    names = [f"bc/small/best-fraction-0.{digit}" for digit in (5, 6)]
    line = flags(npz, place, "--steps", "2000", "--grid", "best_fraction=0.5,0.6")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment = {**os.environ, **token}
    with head(port, folder, environment) as first:
        with log.open("wb") as file:
            command = [sys.executable, "-c", COMMAND, *line, "--ray", address]
            process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        try:
            wait_for(lambda: under_way(place / names[1]), process, log)
            kill_all(first)
            assert process.wait(timeout=60) == 1, log.read_text()
        finally:
            process.kill()
            process.wait()
    (said,) = [text for text in log.read_text().splitlines() if text.startswith("leeward: error")]
    assert said.startswith("leeward: error: the Ray cluster was lost (")
    assert said.endswith(f"continue with leeward sweep --resume {place} --ray {address}")
    assert states(place) == dict(zip(names, ("done", "lost"), strict=True))
    with head(port, folder, environment):
        again = [sys.executable, "-m", "leeward", "sweep", "--resume", str(place), "--ray", address]
        done = subprocess.run(again, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, done.stderr
    assert [len(attempts(place)[name]) for name in names] == [1, 2]
    assert "resumed from" in (place / names[1] / "log.txt").read_text()
    for name in names:
        assert leeward.Run(place / name).finished
        assert steps(place / name) == list(range(10, 2001, 10))
    assert states(place) == dict.fromkeys(names, "done")
