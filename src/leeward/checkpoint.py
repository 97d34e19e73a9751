"""Checkpoints of a run: arrays by orbax, a manifest beside them, both there or neither.

A checkpoint is a folder `checkpoints/NAME` with `arrays/` (orbax) and `manifest.json`. It is
written under a temporary name, put on the disk itself and renamed when complete. Where one of that
name is replaced, the older one is moved aside first and counts until the new one is in place; what
is removed gets a temporary name first. So a kill or a power cut leaves only whole ones.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from leeward.errors import CheckpointError, DiskError
from leeward.whole_files import settle, settle_all

TEMPORARY, PREVIOUS = ".incomplete-", ".previous-"
MANIFEST = "manifest.json"
_DISK_TEXTS = ("No space left", "quota exceeded", "Input/output error", "Read-only file system")


def save(
    directory: Path,
    name: str,
    arrays: Any,
    manifest: Mapping[str, Any],
    also: Callable[[Path], None],
) -> Path:
    """Writes the pytree `arrays` and the JSON `manifest` as checkpoint `name`; returns its folder.

    Args:
        directory: the folder of all checkpoints.
        name: the folder's name in it; an older one of that name is replaced.
        arrays: a pytree of arrays.
        manifest: JSON values; `updates` orders the checkpoints.
        also: writes more files into the folder it is given.

    Raises:
        DiskError: the disk is full or fails; earlier checkpoints are untouched.
    """
    import orbax.checkpoint as ocp

    temporary, final = directory / f"{TEMPORARY}{name}", directory / name
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        _check_space(temporary, arrays)
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save((temporary / "arrays").absolute(), _by_path(arrays))
        also(temporary)
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1))
        settle_all(temporary)
        _replace(temporary, final)
        settle(directory)
    except Exception as error:  # orbax wraps what the file system says in kinds of its own
        shutil.rmtree(temporary, ignore_errors=True)
        if not isinstance(error, OSError) and not any(t in str(error) for t in _DISK_TEXTS):
            raise
        raise DiskError(
            f"{directory}: the checkpoint {name} could not be written ({_reason(error)}); "
            "the one before it is kept: free some space and continue with --resume"
        ) from error
    return final


def _check_space(folder: Path, arrays: Any) -> None:
    """Raises OSError where the arrays do not fit: orbax notices late, in threads of its own."""
    needed = sum(leaf.nbytes for leaf in jax.tree.leaves(arrays))
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: it takes {needed:,} bytes, {free:,} free"
        )


def restore(checkpoint: Path, like: Any) -> Any:
    """The arrays of a checkpoint in the structure of `like` (arrays or their shapes).

    Raises:
        CheckpointError: the checkpoint is damaged or was written by another configuration.
    """
    import orbax.checkpoint as ocp

    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), like)
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            arrays = checkpointer.restore((checkpoint / "arrays").absolute(), _by_path(shapes))
    except Exception as error:  # orbax raises many kinds for missing, damaged and unlike files
        raise CheckpointError(
            f"{checkpoint}: damaged, or written with other settings ({_reason(error)}): "
            "remove this folder to continue from the checkpoint before it"
        ) from error
    leaves = [arrays[path] for path in _by_path(like)]
    # Copies that JAX owns, since the program donates them. Those of orbax are bound to a device,
    # for which the program would be compiled again.
    owned = [jax.numpy.array(np.asarray(leaf)) for leaf in leaves]
    return jax.tree.unflatten(jax.tree.structure(like), owned)


def manifest(checkpoint: Path) -> dict[str, Any]:
    """The manifest of a checkpoint.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    path = checkpoint / MANIFEST
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: missing or damaged: remove the folder {checkpoint} to continue from the "
            "checkpoint before it"
        ) from error


def complete(directory: Path) -> list[Path]:
    """Complete checkpoints, the newest (by updates made) last."""
    if not directory.is_dir():
        return []
    found = filter(_counts, directory.iterdir())
    return sorted(found, key=lambda folder: manifest(folder)["updates"])


def name_of(checkpoint: Path) -> str:
    """The name that a checkpoint was saved by, which its folder has unless it was moved aside."""
    return checkpoint.name.removeprefix(PREVIOUS)


def keep_last(directory: Path, count: int, spared: Path | None = None) -> None:
    """Removes all but the newest `count` checkpoints, and what a kill left half-written.

    `spared` is a checkpoint that stays however old it is.
    """
    for folder in complete(directory)[:-count]:
        if folder != spared:
            _remove(folder)
    for folder in directory.glob(f"{PREVIOUS}*"):
        if not _counts(folder):
            _remove(folder)
    for folder in directory.glob(f"{TEMPORARY}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _counts(folder: Path) -> bool:
    """Whether a folder is a complete checkpoint; one that was moved aside, until it is replaced."""
    if not (folder / MANIFEST).is_file():
        return False
    if folder.name.startswith(PREVIOUS):
        return not (folder.with_name(name_of(folder)) / MANIFEST).is_file()
    return not folder.name.startswith(".")


def _replace(temporary: Path, final: Path) -> None:
    """Gives a new checkpoint its name; the older one of that name, if any, counts until then."""
    previous = final.with_name(f"{PREVIOUS}{final.name}")
    if _counts(final):
        _remove(previous)
        final.replace(previous)
    else:
        shutil.rmtree(final, ignore_errors=True)
    temporary.replace(final)
    _remove(previous)


def _remove(folder: Path) -> None:
    """Removes a checkpoint, which is none from the first moment on."""
    doomed = folder.with_name(f"{TEMPORARY}{folder.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.replace(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _by_path(tree: Any) -> dict[str, Any]:
    """The leaves by their path as text: what is on disk does not depend on our classes."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).strip() or type(error).__name__
    first = text.splitlines()[0]
    return first if len(first) <= 200 else first[:200] + " …"
