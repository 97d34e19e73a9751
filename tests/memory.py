"""How much memory a part of a test takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak_of(work: Callable[[], object]) -> int:
    """The most bytes in use while it works; what other threads take meanwhile counts too."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
