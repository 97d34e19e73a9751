"""Exported files that are damaged, of somebody else, newer, or hostile: one clear line each."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporting import FILES, archive_in, error_of, with_archive, write_all
from leeward.errors import CheckpointError
from leeward.export import load_exported


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy in every form."""
    return write_all(tmp_path_factory.mktemp("exported"))


def copied(folder: Path, name: str, target: Path) -> Path:
    path = target / name
    path.write_bytes((folder / name).read_bytes())
    return path


def arrays_in(program: Path) -> dict[str, np.ndarray]:
    """What the archive in a file of NumPy's form holds."""
    with np.load(io.BytesIO(archive_in(program)), allow_pickle=False) as archive:
        return dict(archive)


def archive_of(**arrays: np.ndarray) -> bytes:
    """An archive."""
    archive = io.BytesIO()
    np.savez(archive, **arrays)
    return archive.getvalue()


def test_not_a_file_of_ours(folder: Path, tmp_path: Path) -> None:
    assert error_of(lambda: load_exported(tmp_path / "p.pt"), CheckpointError) == (
        f"{tmp_path / 'p.pt'} is no exported policy: those end in .onnx, .stablehlo, .py"
    )
    assert error_of(lambda: load_exported(tmp_path / "p.onnx"), CheckpointError) == (
        f"{tmp_path / 'p.onnx'} cannot be read (No such file or directory)"
    )
    for name in FILES.values():
        (tmp_path / name).write_bytes(b"nothing of ours")
        (tmp_path / f"{name}.json").write_bytes((folder / f"{name}.json").read_bytes())
        text = error_of(lambda name=name: load_exported(tmp_path / name), CheckpointError)
        assert text.startswith(f"{tmp_path / name} is damaged"), text
    for content, text in (
        (
            with_archive(folder / "p.py", archive_of(weight=np.zeros(3))),
            "not a policy in NumPy's form",
        ),
        (b"print(1)\n", "it has no ARCHIVE"),
    ):
        (tmp_path / "q.py").write_bytes(content)
        assert error_of(lambda: load_exported(tmp_path / "q.py"), CheckpointError) == (
            f"{tmp_path / 'q.py'} is damaged, or no policy that this version of leeward exported "
            f"({text})"
        )


def test_a_program_is_read_and_never_run(folder: Path, tmp_path: Path) -> None:
    hostile = b"raise SystemExit('it ran')\n" + (folder / "p.py").read_bytes()
    (tmp_path / "p.py").write_bytes(hostile)
    seen = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(
        load_exported(tmp_path / "p.py")(seen), load_exported(folder / "p.py")(seen)
    )


def test_a_file_cut_short(folder: Path, tmp_path: Path) -> None:
    for name in FILES.values():
        content = (folder / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        text = error_of(lambda name=name: load_exported(tmp_path / name), CheckpointError)
        assert text.startswith(f"{tmp_path / name} is damaged"), text


def test_an_onnx_file_of_somebody_else(folder: Path, tmp_path: Path) -> None:
    import onnx

    model = onnx.load(str(folder / "p.onnx"))
    del model.metadata_props[:]
    onnx.save(model, str(tmp_path / "p.onnx"))
    assert error_of(lambda: load_exported(tmp_path / "p.onnx"), CheckpointError) == (
        f"{tmp_path / 'p.onnx'} was not exported by leeward: it has no card"
    )


def test_stablehlo_needs_its_own_card(folder: Path, tmp_path: Path) -> None:
    path = copied(folder, "p.stablehlo", tmp_path)
    card = tmp_path / "p.stablehlo.json"
    assert error_of(lambda: load_exported(path), CheckpointError) == (
        f"{path} needs its card beside it, and {card} cannot be read"
    )
    card.write_bytes((folder / "p.onnx.json").read_bytes())
    assert error_of(lambda: load_exported(path), CheckpointError) == (
        f"{card} is the card of another file than {path}"
    )


def rewritten(folder: Path, target: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The NumPy form with another program."""
    arrays = arrays_in(folder / "p.py")
    program = json.loads(arrays["program"].tobytes())
    change(program)
    arrays["program"] = np.frombuffer(json.dumps(program).encode(), np.uint8)
    path = target / "p.py"
    path.write_bytes(with_archive(folder / "p.py", archive_of(**arrays)))
    return path


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda p: p["nodes"][0].update(operator="eval"),
            "is damaged, or no policy that this version of leeward exported "
            "(unknown operator 'eval')",
        ),
        (
            lambda p: p.update(format=2),
            "is damaged, or no policy that this version of leeward exported "
            "(format 2, and this program reads format 1)",
        ),
        (
            lambda p: p["card"].update(card=2),
            ": its card has version 2, newer than this version of leeward reads (1): "
            "upgrade leeward",
        ),
        (lambda p: p["card"].pop("action"), ": its card is damaged"),
        (lambda p: p["card"].pop("seed"), ": its card is damaged"),
    ],
    ids=["operator", "format", "card", "action", "seed"],
)
def test_other_programs_and_cards(
    folder: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object], text: str
) -> None:
    path = rewritten(folder, tmp_path, change)
    found = error_of(lambda: load_exported(path), CheckpointError)
    assert found in (f"{path}{text}", f"{path} {text}")


def test_no_archive_unpacks_to_more_than_it_is(folder: Path, tmp_path: Path) -> None:
    compressed = io.BytesIO()
    np.savez_compressed(compressed, **arrays_in(folder / "p.py"))
    for archive, text in (
        (compressed.getvalue(), "(compressed)"),
        (archive_of(program=np.array([object()])), "allow_pickle=False"),
    ):
        (tmp_path / "q.py").write_bytes(with_archive(folder / "p.py", archive))
        assert text in error_of(lambda: load_exported(tmp_path / "q.py"), CheckpointError)
