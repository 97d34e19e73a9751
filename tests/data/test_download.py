"""Fetching from a small server on this machine that can break off, lie and change its mind."""

from __future__ import annotations

import hashlib
import http.server
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from rich.console import Console

from leeward import cli
from leeward.data import download
from leeward.data.download import fetch, mirrors
from leeward.data.load import load_dataset
from leeward.errors import DataError, DiskError


class Server:
    """What a test's server serves, and what it was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.tag = '"first"'
        self.break_after: list[int] = []  # bytes after which each next answer breaks off
        self.requests: list[tuple[str, str | None]] = []
        self.address = ""

    def url(self, name: str) -> str:
        return f"{self.address}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers from `Server.files`, with ranges."""

    state: Server

    def do_GET(self) -> None:
        state = self.state
        wanted = self.headers.get("Range")
        state.requests.append((self.path, wanted))
        content = state.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        begin = 0
        if wanted and self.headers.get("If-Range") == state.tag:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            if begin >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.send_header("ETag", state.tag)
        self.end_headers()
        stop = state.break_after.pop(0) if state.break_after else len(content)
        self.wfile.write(content[begin : begin + stop])
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    handler = type("Bound", (Handler,), {"state": state})
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.address = f"http://127.0.0.1:{listener.server_port}"
    yield state
    listener.shutdown()
    listener.server_close()
    thread.join()


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    path = tmp_path / "source.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"] = np.arange(30_000, dtype=np.float32)
    return path.read_bytes()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "d4rl" / "set.hdf5"


def leftovers(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def test_fetches_checks_and_keeps(server: Server, content: bytes, target: Path) -> None:
    server.files["set.hdf5"] = content
    seen: list[tuple[int, int | None]] = []
    checksum = hashlib.sha256(content).hexdigest()
    result = fetch(
        "set",
        [server.url("set.hdf5")],
        target,
        sha256=checksum,
        on_progress=lambda have, total: seen.append((have, total)),
    )
    assert result.read_bytes() == content
    assert seen[-1] == (len(content), len(content))
    assert leftovers(target) == ["set.hdf5", "set.hdf5.json", "set.hdf5.lock"]
    fetch("set", [server.url("set.hdf5")], target)
    assert len(server.requests) == 1


def test_a_terminal_shows_downloads_unless_told_not_to(
    server: Server, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=200, color_system=None)
    monkeypatch.setattr("leeward.progress.Console", lambda stderr: terminal)
    server.files |= {"set.hdf5": content, "other.hdf5": content}
    assert cli.main(["inspect", server.url("set.hdf5")]) == 2  # observations alone: no data set
    shown = screen.getvalue()
    assert f"fetching {server.url('set.hdf5')} (MiB)" in shown
    assert "MiB/s" in shown
    assert cli.main(["train", "td3-bc", server.url("other.hdf5"), "--quiet"]) == 2
    assert len(server.requests) == 2
    assert screen.getvalue() == shown


def test_goes_on_where_a_transfer_broke(server: Server, content: bytes, target: Path) -> None:
    server.files["set.hdf5"] = content
    server.break_after = [50_000, 20_000]
    fetch("set", [server.url("set.hdf5")], target, pause=0.0)
    assert target.read_bytes() == content
    assert [wanted for _, wanted in server.requests] == [None, "bytes=50000-", "bytes=70000-"]


def test_a_later_call_goes_on_after_giving_up(
    server: Server, content: bytes, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_ATTEMPTS", 2)
    server.files["set.hdf5"] = content
    server.break_after = [1000, 1000]
    with pytest.raises(DataError) as error:
        fetch("set", [server.url("set.hdf5")], target, pause=0.0)
    assert str(error.value) == (
        f"set could not be fetched from {server.url('set.hdf5')} (broke off 2 times: 2000 of "
        f"{len(content)} bytes came): get it on a machine with internet access and put it at "
        f"{target}"
    )
    assert not target.exists()
    fetch("set", [server.url("set.hdf5")], target, pause=0.0)
    assert server.requests[-1][1] == "bytes=2000-"
    assert target.read_bytes() == content


def test_starts_anew_when_the_servers_file_changed(
    server: Server, content: bytes, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_ATTEMPTS", 1)
    server.files["set.hdf5"] = b"old" * 1000
    server.break_after = [1000]
    with pytest.raises(DataError, match="broke off"):
        fetch("set", [server.url("set.hdf5")], target, pause=0.0)
    server.files["set.hdf5"] = content
    server.tag = '"second"'
    fetch("set", [server.url("set.hdf5")], target)
    assert target.read_bytes() == content


def test_the_next_mirror_is_tried_after_a_404(server: Server, content: bytes, target: Path) -> None:
    server.files["b/set.hdf5"] = content
    fetch("set", [server.url("a/set.hdf5"), server.url("b/set.hdf5")], target)
    assert target.read_bytes() == content
    assert [path for path, _ in server.requests] == ["/a/set.hdf5", "/b/set.hdf5"]


def test_every_failure_is_listed_with_where_to_put_the_file(
    server: Server, content: bytes, target: Path
) -> None:
    server.files["cut.hdf5"] = content[:5000]
    server.files["wrong.hdf5"] = content + b"more"
    checksum = hashlib.sha256(content).hexdigest()
    with pytest.raises(DataError) as error:
        fetch(
            "set",
            [server.url("gone.hdf5"), server.url("wrong.hdf5")],
            target,
            sha256=checksum,
        )
    wrong = hashlib.sha256(content + b"more").hexdigest()
    assert str(error.value) == (
        f"set could not be fetched from {server.url('gone.hdf5')} (404 Not Found), "
        f"{server.url('wrong.hdf5')} (its checksum is {wrong}, not {checksum}): get it on a "
        f"machine with internet access and put it at {target}"
    )
    with pytest.raises(DataError, match="cannot be read as HDF5, it is cut short or damaged"):
        fetch("set", [server.url("cut.hdf5")], target)
    assert leftovers(target) == ["set.hdf5.lock"]


def test_a_server_that_does_not_answer_is_a_failure_like_others(target: Path) -> None:
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:9/set\.hdf5 \(.*refused"):
        fetch("set", ["http://127.0.0.1:9/set.hdf5"], target, pause=0.0)


def test_files_over_the_limit_are_refused(server: Server, content: bytes, target: Path) -> None:
    server.files["set.hdf5"] = content
    with pytest.raises(DataError, match=rf"it has {len(content)} bytes, more than the limit of 10"):
        fetch("set", [server.url("set.hdf5")], target, largest=10)


def test_only_http_addresses_are_opened(tmp_path: Path, target: Path) -> None:
    secret = tmp_path / "secret.hdf5"
    secret.write_bytes(b"x")
    with pytest.raises(DataError, match="not an http or https address"):
        fetch("set", [secret.as_uri()], target)


def test_offline_says_where_to_put_the_file(target: Path, content: bytes) -> None:
    with pytest.raises(DataError) as error:
        fetch("set", ["https://b.example/set.hdf5"], target, offline=True)
    assert str(error.value) == (
        "set is not in the cache and the network is not to be used: get it on a machine with "
        f"internet access and put it at {target} (published at https://b.example/set.hdf5)"
    )
    target.parent.mkdir(parents=True)
    target.write_bytes(content)
    assert fetch("set", ["https://b.example/set.hdf5"], target, offline=True) == target


def test_a_cached_file_that_changed_length_is_not_used(
    server: Server, content: bytes, target: Path
) -> None:
    server.files["set.hdf5"] = content
    fetch("set", [server.url("set.hdf5")], target)
    target.write_bytes(content[:-1])
    with pytest.raises(DataError) as error:
        fetch("set", [server.url("set.hdf5")], target)
    assert str(error.value) == (
        f"set: {target} has {len(content) - 1} bytes, {len(content)} were fetched: delete it to "
        f"fetch it again, or delete {target}.json to use it as it is"
    )


def test_two_at_once_fetch_once(server: Server, content: bytes, target: Path) -> None:
    server.files["set.hdf5"] = content
    threads = [
        threading.Thread(target=fetch, args=("set", [server.url("set.hdf5")], target))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_bytes() == content
    assert len(server.requests) == 1


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(DataError, match="set LEEWARD_CACHE to a folder that can be written"):
        fetch("set", ["http://127.0.0.1:9/set.hdf5"], in_the_way / "set.hdf5")


def test_a_full_disk_is_no_fault_of_the_user(
    server: Server, content: bytes, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["set.hdf5"] = content

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download, "_remember", full)
    with pytest.raises(DiskError) as error:
        fetch("set", [server.url("set.hdf5")], target, pause=0.0)
    assert str(error.value) == f"the disk is full while fetching {target}"


def test_mirrors_come_first_then_https(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://a.example/datasets/offline_rl/gym_mujoco_v2/hopper_medium-v2.hdf5"
    monkeypatch.setenv("LEEWARD_MIRRORS", "https://m.example/d4rl/ http://n.example")
    assert mirrors(url) == (
        "https://m.example/d4rl/gym_mujoco_v2/hopper_medium-v2.hdf5",
        "http://n.example/gym_mujoco_v2/hopper_medium-v2.hdf5",
        "https://a.example/datasets/offline_rl/gym_mujoco_v2/hopper_medium-v2.hdf5",
        url,
    )


def test_a_d4rl_name_comes_from_a_mirror_into_the_cache(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "made.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"] = np.arange(30, dtype=np.float32).reshape(10, 3)
        file["actions"] = np.zeros((10, 2), np.float32)
        file["rewards"] = np.arange(10, dtype=np.float32)
        file["terminals"] = np.arange(10) == 4
        file["timeouts"] = np.arange(10) == 8
    server.files["gym_mujoco_v2/hopper_medium-v2.hdf5"] = path.read_bytes()
    monkeypatch.setenv("LEEWARD_MIRRORS", server.address)
    assert load_dataset("hopper-medium-v2").start.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert (cache / "d4rl" / "hopper-medium-v2.hdf5").exists()
    assert load_dataset("hopper-medium-v2", offline=True).transitions == 8
    assert len(server.requests) == 1
