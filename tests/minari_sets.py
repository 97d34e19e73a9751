"""Minari data sets that tests make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import minari
from minari.data_collector import EpisodeBuffer


def create(name: str, buffers: Sequence[EpisodeBuffer], **arguments: Any) -> None:
    """Makes a set of these episodes; `arguments` are Minari's: spaces, the environment."""
    minari.create_dataset_from_buffers(
        name,
        list(buffers),
        algorithm_name="test",
        author="test",
        author_email="test@example.org",
        code_permalink="https://example.org",
        **arguments,
    )
