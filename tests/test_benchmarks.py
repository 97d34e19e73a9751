"""benchmarks/compare.py: its command line, which rows it runs, its settings and its table.

Nothing here trains: the runners of the peers need PyTorch, and rates are measured on idle machines.
"""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from leeward.algorithms import get_algorithm
from leeward.options import option_names
from leeward.settings import make_config

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of benchmarks/, which is no package."""
    for folder in (BENCHMARKS / "peers", BENCHMARKS):
        monkeypatch.syspath_prepend(str(folder))
    return importlib.import_module(name)


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("compare", monkeypatch)


@pytest.fixture
def compare_table(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("compare_table", monkeypatch)


class Measured:
    """Stands for `compare.measure`: notes the rows, and fails those named in `broken`."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.broken: set[str] = set()

    def __call__(self, row: Any, options: Any) -> dict[str, Any]:
        name = f"{row.library}/{row.algorithm}"
        if name in self.broken:
            raise subprocess.CalledProcessError(1, "runner", output="first\nno such algorithm")
        self.rows.append(f"{name} {' '.join(map(str, row.seeds))}")
        return result(returns=[[3234.3, -20.272305]] * len(row.seeds))


def result(**changes: Any) -> dict[str, Any]:
    """What a runner writes."""
    return {
        "first_update_seconds": [9.0, 4.0],
        "updates_per_second": 300.0,
        "training_seconds": 90.0,
        "cores_of_others": 0.01,
        "returns": [[3234.3] * 4],
        "peak_rss_mb": 700.4,
        "versions": {"python": "3.11.7"},
    } | changes


def line(library: str, algorithm: str, seeds: list[int], **changes: Any) -> dict[str, Any]:
    """A line of compare.jsonl."""
    key = {"library": library, "algorithm": algorithm, "updates": 30_000, "seeds": seeds}
    place = {"data": "hopper", "env": "Hopper-v4", "settings": {"batch_size": 256}}
    where = {"processor": "Some CPU", "cores": 2, "date": "2027-01-02", "commit": "abc1234"}
    return key | place | result() | where | changes


@pytest.fixture
def measured(compare: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Measured:
    stand_in = Measured()
    monkeypatch.setattr(compare, "measure", stand_in)
    return stand_in


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """Flags that all runs need; the files are never opened."""
    for name in ("hopper.hdf5", "python"):
        (tmp_path / name).touch()
    return [
        *("--data", str(tmp_path / "hopper.hdf5")),
        *("--peers-python", str(tmp_path / "python")),
        *("--out", str(tmp_path / "compare.jsonl")),
    ]


# --- Command line ---


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--data is needed: a D4RL file, such as hopper-medium-expert.hdf5"),
        (["--data", "missing.hdf5"], "no such file: missing.hdf5"),
        (["--data", __file__, "--only", "d3rlpy"], "no row fits --only; peers need --peers-python"),
        (["--data", __file__, "--env", "Ant-v4"], "invalid choice: 'Ant-v4'"),
    ],
)
def test_bad_arguments_are_one_line(
    compare: ModuleType, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        compare.main(flags)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_without_peers_python_only_leeward_is_planned(compare: ModuleType) -> None:
    options = compare.make_parser().parse_args(["--peer-seeds", "2"])
    assert [str(row) for row in compare.planned(options)] == [
        "leeward/td3_bc, 30,000 updates, seeds 0 1 2",
        "leeward/iql, 30,000 updates, seeds 0 1 2",
        "leeward/cql, 5,000 updates, seeds 0 1 2",
        "leeward/bcq, 5,000 updates, seeds 0 1 2",
    ]


def test_further_seeds_of_the_peers_come_last(compare: ModuleType) -> None:
    flags = ["--peer-seeds", "2", "--peers-python", "python", "--updates", "7", "--seeds", "5"]
    rows = compare.planned(compare.make_parser().parse_args(flags))
    first = [(r.library, r.algorithm) for r in rows if r.seeds in ((5,), (0,))]
    second = [(r.library, r.algorithm) for r in rows if r.seeds == (1,)]
    assert rows[len(first) :] == [compare.Row(*peer, 7, (1,)) for peer in second]
    assert [peer for peer in first if peer[0] != "leeward"] == second
    assert ("d3rlpy", "bcq") in second
    assert ("torch", "bcq") not in second


def test_only_names_libraries_algorithms_or_both(compare: ModuleType) -> None:
    flags = ["--peers-python", "python"]
    rows = compare.planned(compare.make_parser().parse_args(flags))
    chosen = compare.choose(rows, ["leeward/cql", "torch"])
    assert [f"{row.library}/{row.algorithm}" for row in chosen] == [
        "torch/td3_bc",
        "torch/iql",
        "leeward/cql",
        "torch/cql",
    ]


@pytest.mark.parametrize(
    ("updates", "warm_up"), [(30_000, 1_000), (5_000, 500), (20, 2), (1, 1), (7, 1), (2_002, 182)]
)
def test_warm_up_divides_the_updates(compare: ModuleType, updates: int, warm_up: int) -> None:
    assert compare.warm_up(updates) == warm_up


# --- Rows ---


def test_rows_that_are_there_are_skipped(
    compare: ModuleType, measured: Measured, arguments: list[str], tmp_path: Path
) -> None:
    assert compare.main([*arguments, "--only", "iql"]) == 0
    assert measured.rows == ["leeward/iql 0 1 2", "torch/iql 0", "d3rlpy/iql 0"]
    assert compare.main([*arguments, "--only", "iql", "--peer-seeds", "2"]) == 0
    assert measured.rows[3:] == ["torch/iql 1", "d3rlpy/iql 1"]
    out = tmp_path / "compare.jsonl"
    kept = [text for text in out.read_text().splitlines() if '"leeward"' not in text]
    out.write_text("\n".join(kept) + "\n")
    assert compare.main([*arguments, "--only", "iql"]) == 0
    assert measured.rows[5:] == ["leeward/iql 0 1 2"]


@pytest.mark.parametrize("change", [["--updates", "9"], ["--env", "HalfCheetah-v4"]])
def test_another_setting_is_another_row(
    compare: ModuleType, measured: Measured, arguments: list[str], change: list[str]
) -> None:
    flags = [*arguments, "--only", "leeward/cql"]
    compare.main(flags)
    compare.main([*flags, *change])
    assert measured.rows == ["leeward/cql 0 1 2"] * 2


def test_new_hyper_parameters_make_a_row_anew(
    compare: ModuleType,
    measured: Measured,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags = [*arguments, "--only", "leeward/cql"]
    compare.main(flags)
    monkeypatch.setitem(compare.SETTINGS, "cql", compare.SETTINGS["cql"] | {"cql_weight": 10.0})
    compare.main(flags)
    assert measured.rows == ["leeward/cql 0 1 2"] * 2


def test_a_failed_row_leaves_no_line_and_the_others_go_on(
    compare: ModuleType,
    measured: Measured,
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured.broken = {"torch/iql"}
    assert compare.main([*arguments, "--only", "iql"]) == 1
    lines = [json.loads(text) for text in (tmp_path / "compare.jsonl").read_text().splitlines()]
    assert [one["library"] for one in lines] == ["leeward", "d3rlpy"]
    expected = "torch/iql, 30,000 updates, seeds 0: failed\nfirst\nno such algorithm\n"
    assert expected in capsys.readouterr().out
    measured.broken = set()
    assert compare.main([*arguments, "--only", "iql"]) == 0
    assert measured.rows[-1] == "torch/iql 0"


def test_no_row_starts_after_the_budget(
    compare: ModuleType, measured: Measured, arguments: list[str]
) -> None:
    assert compare.main([*arguments, "--budget-minutes", "0"]) == 1
    assert measured.rows == []


def test_a_broken_line_is_named(compare: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "compare.jsonl"
    out.write_text('{}\n{"library": "lee\n')
    with pytest.raises(SystemExit, match=r"compare\.jsonl, line 2, is not JSON: delete the line"):
        compare.main(["--table", "--out", str(out)])


@pytest.mark.parametrize("algorithm", ["td3_bc", "iql", "cql", "bcq"])
def test_leeward_has_every_setting(compare: ModuleType, algorithm: str) -> None:
    settings = compare.SETTINGS[algorithm]
    own = {name: value for name, value in settings.items() if name not in option_names()}
    config, swept = make_config(get_algorithm(algorithm), None, own)
    assert swept == {}
    assert {name: getattr(config, name) for name in own} == {
        name: tuple(value) if isinstance(value, list) else value for name, value in own.items()
    }
    assert settings.keys() - own.keys() <= {"reward_transform"}


# --- Table ---


def test_the_table_compares_every_peer_with_leeward(
    compare: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        line("d3rlpy", "iql", [0], updates_per_second=80.0, returns=[[0.0] * 4]),
        line("d3rlpy", "iql", [1], updates_per_second=120.0, cores_of_others=0.5),
        line("torch", "td3_bc", [0], updates_per_second=150.0, returns=[[-20.272305] * 4]),
        line("leeward", "iql", [0, 1, 2], returns=[[3234.3] * 4, [-20.272305] * 4, [3234.3] * 4]),
        line("leeward", "td3_bc", [0, 1, 2], returns=[[3234.3] * 4] * 3),
    ]
    out = tmp_path / "compare.jsonl"
    out.write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert compare.main(["--table", "--out", str(out)]) == 0
    text = out.with_suffix(".md").read_text()
    assert text in capsys.readouterr().out
    assert [row for row in text.splitlines() if row.startswith("| ")][1:] == [
        "| TD3+BC | Leeward | 30,000 | 3 together | 100.0 | 100.0 to 100.0 | seeds |  | 300.0 |  "
        "| 9.0 (4.0) | 700 |",
        "| TD3+BC | PyTorch, CORL style | 30,000 | 1 | 0.0 | 0.0 to 0.0 | episodes | below | 150.0 "
        "| 2.00 × | 9.0 (4.0) | 700 |",
        "| IQL | Leeward | 30,000 | 3 together | 66.7 | 0.0 to 100.0 | seeds |  | 300.0 |  "
        "| 9.0 (4.0) | 700 |",
        "| IQL | d3rlpy | 30,000 | 2 | 50.3 | 50.3 to 50.3 | episodes | within | 100.0 * | 3.00 × "
        "| 9.0 (4.0) | 700 |",
    ]
    assert "mean of 4 deterministic episodes" in text
    assert "*: other processes took more than 0.1 of a core meanwhile." in text
    assert "Measured on Some CPU, 2 cores; 2027-01-02. Leeward: python 3.11.7" in text


def test_lines_of_other_settings_or_environments_are_rows_of_their_own(
    compare_table: ModuleType,
) -> None:
    """Old and new lines in one file are neither pooled nor compared with each other."""
    old, new = {"batch_size": 64, "lr": 0.1}, {"lr": 0.1, "batch_size": 256}
    lines = [
        line("torch", "iql", [0], settings=old, updates_per_second=100.0),
        line("torch", "iql", [1], settings=dict(reversed(old.items())), updates_per_second=100.0),
        line("torch", "iql", [0], settings=new, updates_per_second=50.0),
        line("leeward", "iql", [0, 1], settings=new, updates_per_second=300.0),
        line("leeward", "td3_bc", [0, 1]),
        line("leeward", "iql", [0, 1], settings=old, env="HalfCheetah-v4"),
    ]
    groups = compare_table.group(lines)
    assert [(g.library, g.algorithm, g.env, g.seeds) for g in groups] == [
        ("leeward", "td3_bc", "Hopper-v4", 2),
        ("leeward", "iql", "Hopper-v4", 2),
        ("leeward", "iql", "HalfCheetah-v4", 2),
        ("torch", "iql", "Hopper-v4", 2),
        ("torch", "iql", "Hopper-v4", 1),
    ]
    like = [compare_table.leeward_like(row, groups) for row in groups]
    assert like == [None, None, None, None, groups[1]]
    text = compare_table.make_table(lines)
    assert [row.split(" | ")[:4] for row in text.splitlines() if "| PyTorch" in row] == [
        ["| IQL (1)", "PyTorch, CORL style", "30,000", "2"],
        ["| IQL (2)", "PyTorch, CORL style", "30,000", "1"],
    ]
    assert text.index("## hopper, HalfCheetah-v4") < text.index("## hopper, Hopper-v4")
    for settings in (
        "- TD3+BC: batch_size 256",
        "- IQL (1): batch_size 64, lr 0.1",
        "- IQL (2): batch_size 256, lr 0.1",
    ):
        assert settings in text


def test_a_table_without_rows_says_so(
    compare: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main(["--table", "--out", str(tmp_path / "none.jsonl")]) == 1
    assert capsys.readouterr().out == f"{tmp_path / 'none.jsonl'} holds no row yet\n"


def test_the_interval_is_over_episodes_below_three_seeds(compare_table: ModuleType) -> None:
    episodes = [float(value) for value in range(20)]
    one = compare_table.group([line("torch", "iql", [0], returns=[episodes])])[0]
    found = compare_table.score(one)
    unit = 100 / (3234.3 + 20.272305)
    spread = 1.96 * np.std(episodes) / np.sqrt(20) * unit
    assert found.over == "episodes"
    assert found.mean == pytest.approx((9.5 + 20.272305) * unit)
    assert found.high - found.mean == pytest.approx(spread, rel=0.05)
    assert found.mean - found.low == pytest.approx(spread, rel=0.05)


def test_one_training_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    one_training = load("one_training", monkeypatch)
    settings = {"steps": 6, "log_every": 2, "hidden": [8], "batch_size": 4, "alpha": [1.0, 2.0]}
    job = one_training.Job("td3_bc", settings, seeds=2, transitions=100)
    found = one_training.measure(job)
    assert (found["runs"], found["updates"]) == (4, 4)
    assert found["updates_per_second"] > 0.0
    # Actor and two critics, each with its target, and Adam's two moments and count.
    actor, critics = (18 + 6) * 8 + 6, 2 * ((24 + 1) * 8 + 1)
    assert found["state_bytes"] == 4 * (4 * (actor + critics) + 2)
    assert found["program_bytes"] is None
    broken_off = one_training.measure(job._replace(enough=0.0))
    assert broken_off["updates"] == 2
    single = job._replace(settings={**settings, "alpha": 1.0}, seeds=1)
    sizes = [one_training.measure(single._replace(transitions=n)) for n in (100, 5_000)]
    one_run = {size["program_bytes"] for size in sizes}  # data does not count
    assert len(one_run) == 1
    assert one_run.pop() > found["state_bytes"]


def test_cases_for_accelerators_have_settings_that_exist(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu = load("gpu", monkeypatch)
    jobs: list[Any] = []
    monkeypatch.setattr(gpu, "in_child", lambda job: jobs.append(job) or {"runs": job.seeds})
    out = tmp_path / "gpu.jsonl"
    monkeypatch.setattr("sys.argv", ["gpu.py", "--out", str(out)])
    gpu.main()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["row"], row["runs"]) for row in rows] == [
        (name, seeds) for seeds in (1, 10, 100) for name in ("td3-bc", "fisher-brc", "pixel cql")
    ]
    for job in [*jobs, *map(gpu.smaller, jobs)]:
        settings = {n: v for n, v in job.settings.items() if n not in option_names()}
        make_config(get_algorithm(job.algorithm), None, settings)


def test_many_runs_are_compared_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = load("seeds", monkeypatch)
    one = {"runs": 1, "updates_per_second": 300.0, "peak_mb": 500.0, "state_bytes": 3_000_000}
    one["program_bytes"] = 5_000_000
    many = {"runs": 32, "updates_per_second": 330.0, "peak_mb": 624.0, "state_bytes": 3_000_000}
    found = dict(zip(seeds.CASES, ([one, one], [many, many]), strict=True))
    compared = seeds.summary(found)
    assert compared["throughput_of_one_run"] == 1.1
    assert compared["memory_mb_each"] == 4.0
    assert compared["memory_of_one_run"] == 0.8
