"""`Loader`: data sets by what they are called, each read once while jobs on it follow another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from leeward.data.dataset import Dataset
from leeward.forms import Location, read


class Loader:
    """Reads data sets and keeps the last one."""

    def __init__(self) -> None:
        self._key: str | None = None
        self._dataset: Dataset | None = None

    def load(
        self,
        source: str,
        env: str | None,
        options: Mapping[str, Any],
        location: Location,
        *,
        strict: bool = True,
    ) -> Dataset:
        """The data set, its rows where they are to be while training.

        Without `strict` faults of values are left to the data doctor.

        Raises:
            LeewardError: it cannot be read, or the environment cannot be made.
        """
        key = json.dumps([source, env, options, location, strict], sort_keys=True)
        if self._dataset is None or self._key != key:
            self._dataset = None  # two large ones may not fit
            self._dataset = read(source, env, options, location, strict=strict)
            self._key = key
        return self._dataset
