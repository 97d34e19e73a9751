"""benchmarks/ope.py: its plan and its table, on made-up numbers. Nothing here trains."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from leeward.ope.report import ESTIMATORS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("ope")


def found(benchmark: ModuleType, values: dict[str, list[float | None]]) -> dict[str, Any]:
    """What `leeward ope --json` would say of all candidates."""
    count = len(benchmark.CANDIDATES)
    policies = []
    for i, candidate in enumerate(benchmark.CANDIDATES):
        estimates = {
            name: {"value": values.get(name, [1.0 * i for i in range(count)])[i], "reliable": i > 0}
            for name in ESTIMATORS
        }
        policies.append({"name": str(candidate), "rank": count - i, "estimates": estimates})
    return {
        "policies": policies,
        "episodes": 2_000,
        "seconds": 60.0,
        "ranked_by": ["fqe"],
        "verdict": "They agree.",
    }


def test_at_least_eight_policies_of_checkpoints_that_are_kept(benchmark: ModuleType) -> None:
    assert len(benchmark.CANDIDATES) >= 8
    for run, step in benchmark.CANDIDATES:
        assert step % benchmark.EVERY == 0
        assert step <= benchmark.RUNS[run]["steps"]
    assert benchmark.scaled(30_000, 0.01) == 300
    assert benchmark.scaled(1_000, 0.01) == 10


def test_regret_is_what_the_policy_put_first_loses(benchmark: ModuleType) -> None:
    true = np.array([10.0, 40.0, 50.0])
    assert benchmark.regret(np.array([1.0, 2.0, 3.0]), true) == 0.0
    assert benchmark.regret(np.array([1.0, 9.0, 3.0]), true) == pytest.approx(0.25)
    assert benchmark.regret(np.array([9.0, 2.0, 3.0]), true) == 1.0
    # Two of the three are put first: what is lost in the mean of them, in either order.
    assert benchmark.regret(np.array([9.0, 9.0, 3.0]), true) == pytest.approx(0.625)
    assert benchmark.regret(np.array([3.0, 9.0, 9.0]), true) == pytest.approx(0.125)


def test_the_table_has_a_line_for_every_estimator_and_policy(
    benchmark: ModuleType, tmp_path: Path
) -> None:
    count = len(benchmark.CANDIDATES)
    options = benchmark.make_parser().parse_args(["--data", str(tmp_path / "hopper.hdf5")])
    truth = [[10.0 * i, 10.0 * i + 2.0] for i in range(count)]
    backwards: list[float | None] = [-1.0 * i for i in range(count)]
    missing: list[float | None] = [None, *backwards[1:]]
    tied: list[float | None] = [5.0] * count
    text = benchmark.table(
        list(benchmark.CANDIDATES),
        truth,
        found(benchmark, {"pdis": missing, "wis": backwards, "sn-pdis": tied}),
        options,
    )
    lines = text.splitlines()
    by_name = {line.split("|")[1].strip(): line for line in lines if line.startswith("|")}
    assert by_name["fqe"] == "| fqe | 1.00 | 0.00 | 41.5 | 9 of 10 |"  # the mean of 9i + 1
    assert by_name["wis"].startswith("| wis | -1.00 | 1.00 |")
    assert by_name["pdis"] == "| pdis | – | – | – | 9 of 10 |"
    assert by_name["sn-pdis"].startswith("| sn-pdis | – | – | ")  # the same for all ranks nothing
    ranking = "ranking of `leeward ope`"
    assert by_name[ranking] == f"| {ranking} | 1.00 | 0.00 | | by fqe |"
    best = str(benchmark.CANDIDATES[-1])
    assert by_name[best].startswith(f"| {best} | 91.0 ± 1.0 | 9 | 9 | -9 |")
    assert by_name[str(benchmark.CANDIDATES[0])].count("?") == 6
