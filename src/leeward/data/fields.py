"""The names under which files keep the columns of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leeward.errors import DataError

FIELDS: dict[str, tuple[str, ...]] = {
    "observation": ("observations", "observation"),
    "action": ("actions", "action"),
    "reward": ("rewards", "reward"),
    "termination": ("terminals", "terminal", "terminations", "termination"),
    "truncation": ("timeouts", "timeout", "truncations", "truncation"),
    "next_observation": ("next_observations", "next_observation"),
}
"""Our name → the names looked for, in this order."""

REQUIRED = ("observation", "action", "reward", "termination")


def find_field(field: str, keys: Sequence[str]) -> str | None:
    """The key that holds `field`, or None."""
    return next((name for name in FIELDS[field] if name in keys), None)


def required_fields(path: Path, keys: Sequence[str]) -> dict[str, str]:
    """Our name → the key that holds it, for the columns that every data set needs.

    Raises:
        DataError: one is missing.
    """
    found = {field: find_field(field, keys) for field in REQUIRED}
    missing = [FIELDS[field][0] for field, key in found.items() if key is None]
    if missing:
        held = ", ".join(sorted(keys)) or "nothing"
        raise DataError(
            f"{path} has no '{missing[0]}': a data set needs observations, actions, rewards and "
            f"terminals; it holds {held}"
        )
    return {field: key for field, key in found.items() if key is not None}
