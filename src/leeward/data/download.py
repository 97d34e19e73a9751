"""Files from the network, fetched once into a cache: resumed, checked, atomic.

Uses the standard library's HTTP client, which follows the system's proxies: what is special here
(going on after a broken transfer, mirrors, checks) no small client does, and `filelock` keeps two
processes from fetching the same file at once.
"""

from __future__ import annotations

import contextlib
import contextvars
import errno
import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import filelock
import platformdirs

from leeward.data.hdf5 import open_hdf5
from leeward.errors import DataError, DiskError

Progress = Callable[[int, int | None], None]
"""Called with (bytes so far, bytes in all if known) as a download goes on."""

Watch = Callable[[str], contextlib.AbstractContextManager[Progress]]
"""Called with what is fetched; what it gives is open for as long as that takes."""

_WATCH: contextvars.ContextVar[Watch | None] = contextvars.ContextVar("watch", default=None)

LARGEST_FILE = 64 * 1024**3
"""Bytes; ours: no published set of one file is larger, so a server that sends more is refused."""

_ATTEMPTS = 5  # tries at one address, each going on where the last broke; ours
_PIECE = 1024**2


class _BrokenTransferError(Exception):
    """A transfer that stopped early, and can go on."""


def cache_folder() -> Path:
    """Where fetched files are kept: `LEEWARD_CACHE`, else the platform's cache folder."""
    chosen = os.environ.get("LEEWARD_CACHE")
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("leeward")


def mirrors(url: str) -> tuple[str, ...]:
    """Addresses to try, in order: `LEEWARD_MIRRORS`, then https, then the published address.

    `LEEWARD_MIRRORS` holds addresses of folders, separated by blanks; a mirror keeps every file
    under its last folder and name, such as gym_mujoco_v2/hopper_medium-v2.hdf5.
    """
    tail = "/".join(PurePosixPath(urlsplit(url).path).parts[-2:])
    own = os.environ.get("LEEWARD_MIRRORS", "").split()
    addresses = [f"{mirror.rstrip('/')}/{tail}" for mirror in own]
    if url.startswith("http://"):
        addresses.append("https://" + url.removeprefix("http://"))
    return (*addresses, url)


def fetch(
    name: str,
    addresses: Sequence[str],
    target: Path,
    *,
    offline: bool = False,
    sha256: str | None = None,
    largest: int = LARGEST_FILE,
    pause: float = 1.0,
    on_progress: Progress | None = None,
) -> Path:
    """`target`, fetched from the first of `addresses` that gives it, unless it is there already.

    Args:
        name: what is fetched, for messages.
        addresses: http or https, tried in order.
        target: where the file goes; a file put there by hand is used as it is.
        offline: never use the network.
        sha256: the file's checksum, where known.
        largest: bytes past which a transfer is refused.
        pause: seconds before the first further try at an address; doubled for every next one.
        on_progress: told of the bytes so far; by default what `watched` was given is.

    Raises:
        DataError: no address gives a sound file, or `offline` and the file is not there; the text
            says where to put it by hand.
        DiskError: the disk is full.
    """
    if target.exists():
        _check_recorded_size(name, target)
        return target
    by_hand = f"get it on a machine with internet access and put it at {target}"
    if offline:
        raise DataError(
            f"{name} is not in the cache and the network is not to be used: {by_hand} "
            f"(published at {addresses[-1]})"
        )
    failures = []
    with _writing(target), filelock.FileLock(f"{target}.lock"), contextlib.ExitStack() as stack:
        if target.exists():  # another process fetched it meanwhile
            return target
        watch = _WATCH.get()
        if on_progress is None and watch is not None:
            on_progress = stack.enter_context(watch(name))
        for address in addresses:
            try:
                _fetch_from(address, target, sha256, largest, pause, on_progress)
                return target
            except (
                DataError,
                _BrokenTransferError,
                urllib.error.URLError,
                http.client.HTTPException,
            ) as error:
                failures.append(f"{address} ({_reason(error)})")
    raise DataError(f"{name} could not be fetched from {', '.join(failures)}: {by_hand}")


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Shows every download within that is not told whom else to tell."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def _fetch_from(
    address: str,
    target: Path,
    sha256: str | None,
    largest: int,
    pause: float,
    on_progress: Progress | None,
) -> None:
    """Fetches, checks and renames; tries again, from where it broke, `_ATTEMPTS` times."""
    part = Path(f"{target}.part")
    for attempt in range(_ATTEMPTS):
        try:
            _transfer(address, part, largest, on_progress)
            break
        except (
            _BrokenTransferError,
            http.client.HTTPException,
            ConnectionError,
            TimeoutError,
        ) as error:
            if attempt == _ATTEMPTS - 1:
                raise _BrokenTransferError(
                    f"broke off {_ATTEMPTS} times: {_reason(error)}"
                ) from error
            time.sleep(pause * 2**attempt)
    digest = _sha256(part)
    try:
        if sha256 is not None and digest != sha256:
            raise DataError(f"its checksum is {digest}, not {sha256}")
        if target.suffix in (".hdf5", ".h5"):
            with open_hdf5(part):
                pass
    except DataError:
        _discard(part)
        raise
    record = {"url": address, "bytes": part.stat().st_size, "sha256": digest}
    _record_path(target).write_text(json.dumps(record) + "\n", "utf-8")
    part.replace(target)
    _discard(part)


def _transfer(address: str, part: Path, largest: int, on_progress: Progress | None) -> None:
    """Appends to `part` what it lacks; starts anew if the server's file has changed."""
    if urlsplit(address).scheme not in ("http", "https"):
        raise DataError("not an http or https address")
    headers = {"User-Agent": "leeward", "Accept-Encoding": "identity"}
    have, validator = _resumable(part, address)
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": validator}
    request = urllib.request.Request(address, headers=headers)  # noqa: S310, the scheme is checked
    try:
        response = urllib.request.urlopen(request, timeout=30)  # noqa: S310, as above
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            _discard(part)
            raise _BrokenTransferError("what was fetched before does not fit") from error
        raise
    with response:
        resumed = response.status == http.client.PARTIAL_CONTENT
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        if (total or 0) > largest:
            raise DataError(f"it has {total} bytes, more than the limit of {largest}")
        with part.open("ab" if resumed else "wb") as file:
            if not resumed:
                _remember(part, address, response.headers)
            while piece := response.read(_PIECE):
                have += len(piece)
                if have > largest:
                    raise DataError(f"it has more than the limit of {largest} bytes")
                file.write(piece)
                if on_progress is not None:
                    on_progress(have, total)
    if total is not None and have < total:
        raise _BrokenTransferError(f"{have} of {total} bytes came")


def _resumable(part: Path, address: str) -> tuple[int, str]:
    """(bytes already fetched from this address, the server's mark of that version of the file)."""
    note = Path(f"{part}.json")
    if not part.exists() or not note.exists():
        return 0, ""
    with contextlib.suppress(ValueError):
        kept = json.loads(note.read_text("utf-8"))
        if kept.get("url") == address and kept.get("validator"):
            return part.stat().st_size, kept["validator"]
    return 0, ""


def _remember(part: Path, address: str, headers: Any) -> None:
    """Notes which version of which file `part` is the beginning of."""
    tag = headers.get("ETag", "")
    # A weak tag does not promise equal bytes, so it cannot serve to go on (RFC 9110, 13.1.5).
    validator = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")
    note = {"url": address, "validator": validator}
    Path(f"{part}.json").write_text(json.dumps(note), "utf-8")


def _check_recorded_size(name: str, target: Path) -> None:
    """Raises DataError where a cached file is not as long as it was when it was checked."""
    record = _record_path(target)
    if not record.exists():
        return
    with contextlib.suppress(ValueError):
        size = json.loads(record.read_text("utf-8")).get("bytes")
        if size is not None and size != target.stat().st_size:
            raise DataError(
                f"{name}: {target} has {target.stat().st_size} bytes, {size} were fetched: "
                f"delete it to fetch it again, or delete {record} to use it as it is"
            )


def _record_path(target: Path) -> Path:
    return Path(f"{target}.json")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    Path(f"{part}.json").unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) or type(error).__name__


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Makes the folder; turns a full disk and missing rights into our errors."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            raise DiskError(f"the disk is full while fetching {target}") from error
        raise DataError(
            f"cannot write {target} ({error.strerror or error}): set LEEWARD_CACHE to a folder "
            "that can be written"
        ) from error
