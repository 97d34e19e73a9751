"""A sweep on a real local Ray cluster, one of whose two workers is killed in the middle."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import leeward
from leeward import cli
from sweeping import attempts, flags, started, states, steps, under_way, wait_for

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="needs Ray: pip install 'leeward[ray]'",
)


@needs_ray
def test_a_killed_worker_s_run_goes_on_and_none_is_done_twice(npz: Path, tmp_path: Path) -> None:
    place, log = tmp_path / "sweep", tmp_path / "log.txt"
    names = [f"bc/small/best-fraction-0.{digit}" for digit in (5, 6, 7)]
    half = (os.cpu_count() or 2) / 2  # so that two workers run side by side
    line = flags(npz, place, "--steps", "2000", "--grid", "best_fraction=0.5,0.6,0.7")
    process = started([*line, "--ray", "local", "--cpus-per-job", f"{half:g}"], log)
    try:
        killed = wait_for(
            lambda: next((name for name in names if under_way(place / name)), None), process, log
        )
        os.kill(attempts(place)[killed][0]["process"], signal.SIGKILL)
        assert process.wait(timeout=120) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    begun = attempts(place)
    assert {name: len(begun[name]) for name in names} == {n: 1 + (n == killed) for n in names}
    first, second = begun[killed]
    assert first["process"] != second["process"]
    assert len({start["process"] for starts in begun.values() for start in starts}) >= 2
    assert "resumed from" in (place / killed / "log.txt").read_text()
    for name in names:
        assert leeward.Run(place / name).finished
        assert steps(place / name) == list(range(10, 2001, 10))
    assert states(place) == dict.fromkeys(names, "done")
    # Nothing is left, so nothing runs again.
    assert cli.main(["sweep", "--resume", str(place), "--quiet"]) == 0
    assert attempts(place) == begun


def test_without_ray_the_extra_is_named(npz: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from leeward import cli\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    line = flags(npz, tmp_path / "sweep", "--ray", "local")
    done = subprocess.run([sys.executable, "-c", code, *line], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "leeward: error: --ray needs the package 'ray', which is not installed: "
        "pip install 'leeward[ray]'\n"
    )
    assert not (tmp_path / "sweep").exists()
