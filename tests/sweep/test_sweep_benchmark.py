"""benchmarks/sweep.py: what is made of two measured commands."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_overhead_of_a_long_run_is_its_start_and_its_slower_updates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # no package
    benchmark = importlib.import_module("sweep")
    order = [benchmark.Measured(wall, 100.0) for wall in (62.0, 61.0, 70.0)]
    ray = [benchmark.Measured(wall, 99.0) for wall in (6_000 / 99 + 8.0,) * 3]
    line = benchmark.summary({"order": order, "ray": ray}, 6_000)
    # 8 s beside 2 s before and after 60 s of updates; 300 s of updates take 300/99 s longer.
    assert line["fixed_seconds"] == 6.0
    assert line["of_five_minutes"] == pytest.approx((6.0 + 300 / 99) / 300, abs=1e-4)
    assert line["measured_overhead"] == pytest.approx((6_000 / 99 + 8.0) / 62.0 - 1.0, abs=1e-4)
