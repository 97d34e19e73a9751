"""What else lies in run directories: off-policy estimates, other diagnostics, videos."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from leeward.errors import CheckpointError
from leeward.report.tables import Table, table
from leeward.run import ESTIMATES, Run
from leeward.statistics import Estimate

_KNOWN = {"config.json", "reproduction.json", "played.json", ESTIMATES}
LARGEST_VIDEO = 2 << 20
"""Bytes up to which a video lies in the page itself; larger ones lie beside it."""
LARGEST_TOTAL = 4 << 20
"""Bytes of all videos in the page."""


class Video(NamedTuple):
    """A video of a run."""

    title: str
    address: str | None
    """The video itself, for the page; None where it is too large."""
    path: Path
    """Where it lies."""


class Attached(NamedTuple):
    """A file's contents as text and tables."""

    title: str
    text: tuple[str, ...]
    tables: tuple[Table, ...]


def off_policy(places: Sequence[Path]) -> list[Attached]:
    """The off-policy estimates that lie in run directories, or in folders of them.

    Raises:
        CheckpointError: a file that is not JSON.
    """
    found = []
    for place in {place.resolve(): place for place in places}.values():
        path = place / ESTIMATES
        if path.is_file():
            held = read_json(path)
            if isinstance(held, Mapping) and isinstance(held.get("policies"), list):
                found.append(_estimates(str(path), held))
            else:
                found.append(Attached(str(path), (), tuple(tables_of(held))))
    return found


def _estimates(title: str, held: Mapping[str, Any]) -> Attached:
    """The file that `leeward ope` writes."""
    rows: list[tuple[Any, ...]] = []
    behavior = held.get("behavior")
    if isinstance(behavior, Mapping):
        rows.append(("the data", "", *_estimate(behavior)))
    sentences = [str(held["verdict"])] if held.get("verdict") else []
    for policy in held["policies"]:
        for name, estimate in policy.get("estimates", {}).items():
            rows.append((str(policy.get("name", "")), name, *_estimate(estimate)))
        if policy.get("sentence"):
            sentences.append(str(policy["sentence"]))
    sentences += map(str, held.get("notes", ()))
    about = (
        f"Estimated from {held.get('episodes', '?')} episodes of {held.get('data', '?')}, "
        f"discounted by {held.get('discount', '?')}; intervals are of 95 %, over episodes."
    )
    columns = ("Policy", "Estimator", "Value", "Effective episodes", "Trusted", "Why not")
    tables = [table(columns, rows)]
    if held.get("agreement"):
        pairs = [
            (" and ".join(map(str, pair["estimators"])), _number(pair["kendall_tau"]))
            for pair in held["agreement"]
        ]
        tables.append(table(("Estimators", "Kendall's τ"), pairs, title="Do they agree?", digits=2))
    return Attached(title, (about, *dict.fromkeys(sentences)), tuple(tables))


def _estimate(held: Mapping[str, Any]) -> tuple[Any, ...]:
    value = None
    if held.get("value") is not None:
        ends = [
            None if held.get(e) is None else np.asarray(held[e], float) for e in ("low", "high")
        ]
        value = Estimate(np.asarray(held["value"], float), *ends)
    return (
        value,
        _number(held.get("effective_sample_size")),
        bool(held.get("reliable", False)),
        "; ".join(map(str, held.get("reasons", ()))),
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def other_files(runs: Sequence[Run]) -> list[Attached]:
    """Every other JSON file that lies in a run directory, as tables.

    Raises:
        CheckpointError: a file that is not JSON.
    """
    return [
        Attached(str(path), (), tuple(tables_of(read_json(path))))
        for run in runs
        for path in sorted(run.directory.glob("*.json"))
        if path.name not in _KNOWN
    ]


def tables_of(value: Any, name: str = "") -> Iterator[Table]:
    """JSON as tables: plain values together, every list of objects and every object by itself."""
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        columns = list(dict.fromkeys(key for one in value for key in one))
        rows = [[_cell(one.get(key)) for key in columns] for one in value]
        yield table([str(key) for key in columns], rows, title=name, digits=4)
        return
    if not isinstance(value, Mapping):
        yield table(("value",), [[_cell(value)]], title=name, digits=4)
        return
    plain = {key: item for key, item in value.items() if not _nested(item)}
    if plain:
        rows = [[str(key), _cell(item)] for key, item in plain.items()]
        yield table(("name", "value"), rows, title=name, digits=4)
    for key, item in value.items():
        if key not in plain:
            yield from tables_of(item, f"{name} / {key}" if name else str(key))


def _nested(item: Any) -> bool:
    if isinstance(item, list):
        return bool(item) and all(isinstance(one, Mapping) for one in item)
    return isinstance(item, Mapping)


def _cell(item: Any) -> Any:
    if isinstance(item, list) and len(item) > 12:
        return f"{len(item)} values"
    if isinstance(item, list | Mapping):
        return json.dumps(item)
    return item


def read_json(path: Path) -> Any:
    """A file's JSON.

    Raises:
        CheckpointError: it is not JSON, or cannot be read.
    """
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({error})") from error


def videos(runs: Sequence[Run]) -> list[Video]:
    """The mp4 files in run directories; small ones ready for the page."""
    found, total = [], 0
    for run in runs:
        for path in sorted(run.directory.rglob("*.mp4")):
            size = path.stat().st_size
            address = None
            if size <= LARGEST_VIDEO and total + size <= LARGEST_TOTAL:
                total += size
                content = base64.b64encode(path.read_bytes()).decode()
                address = f"data:video/mp4;base64,{content}"
            found.append(Video(str(path), address, path))
    return found
