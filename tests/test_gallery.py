"""scripts/measured.py reads what benchmarks record; the gallery's figures are drawn from it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pages import DOCS, ROOT


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/ is no package."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("gallery")


@pytest.fixture
def measured(gallery: ModuleType) -> ModuleType:
    return gallery.measured


def write_lines(path: Path, *lines: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


# --- Figures ---


def test_figures_are_up_to_date(gallery: ModuleType) -> None:
    stale = []
    for picture in gallery.pictures():
        path = DOCS / "gallery" / f"{picture.name}.svg"
        wanted = f"<!-- drawn from {gallery.fingerprint(picture)} -->"
        if not path.is_file() or wanted not in path.read_text("utf-8"):
            stale.append(path.name)
    assert stale == [], "run: python scripts/gallery.py"


def test_no_figure_is_left_over_and_all_are_small(gallery: ModuleType) -> None:
    files = sorted((DOCS / "gallery").iterdir())
    assert [file.stem for file in files] == sorted(p.name for p in gallery.pictures())
    assert sum(file.stat().st_size for file in files) < 600_000


@pytest.fixture
def cartpole(measured: ModuleType, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """Rows of CartPole beside the recorded ones, whatever is recorded of it."""
    others = [row for row in measured.rows() if row.file != "cartpole.jsonl"]
    made = [
        measured.Row(f"cartpole-{name}", f"discrete_{name}", "cartpole", "", 6_000, "return",
                     (value, value + 1.5), 125.8, "cartpole.jsonl")
        for name, value in (("bc", 278.0), ("bcq", 188.0), ("cql", 133.0), ("crr", 90.0),
                            ("iql", 318.0))
    ]  # fmt: skip
    monkeypatch.setattr(measured, "rows", lambda results=None: [*others, *made])
    return tuple(made)


@pytest.mark.usefixtures("cartpole")
def test_a_figure_shows_its_rows_and_says_what_it_was_drawn_from(gallery: ModuleType) -> None:
    assert gallery.pictures() == (*gallery.CURVES, gallery.CARTPOLE)
    for picture in (gallery.CURVES[0], gallery.CARTPOLE):
        svg = gallery.draw(picture)
        assert f"<!-- drawn from {gallery.fingerprint(picture)} -->\n<svg" in svg
        for label in picture.rows.values():
            assert f">{label}</text>" in svg
        assert picture.title in svg


@pytest.mark.usefixtures("cartpole")
def test_the_text_for_those_who_hear_it_has_the_numbers(gallery: ModuleType) -> None:
    text = gallery.alternative(gallery.CARTPOLE)
    assert "; IQL ends at 318.0, 319.5 after 6,000 updates" in text
    assert text.endswith("; the data's mean is 125.8.")


def test_a_figure_whose_rows_are_not_recorded_is_left_out(
    gallery: ModuleType, measured: ModuleType, cartpole: tuple[Any, ...], monkeypatch: Any
) -> None:
    found = [row for row in measured.rows() if row is not cartpole[0]]
    monkeypatch.setattr(measured, "rows", lambda results=None: found)
    assert gallery.pictures() == gallery.CURVES
    assert "CartPole" not in gallery.markdown()


# --- Rows ---


def test_rows_of_learning_are_the_last_of_the_last_phase(
    measured: ModuleType, tmp_path: Path
) -> None:
    folder = tmp_path / "learning" / "tank-fisher-brc"
    lines = [
        {"phase": phase, "step": step, "seed": seed, "score_mean": 10.0 * step + seed}
        for phase, step in (("behavior", 9), ("train", 1), ("train", 2))
        for seed in (0, 1)
    ]
    write_lines(folder / "evaluations.jsonl", *lines)
    facts = {
        "command": "leeward train fisher-brc tank.hdf5 --reward-shift -1 --steps 2 --hidden 8 8 "
        "--seeds 0 1 --eval-every 1",
        "data": "tank",
        "data_score": 5.0,
    }
    (folder / "facts.json").write_text(json.dumps(facts))
    (row,) = measured.rows(tmp_path)
    assert (row.name, row.algorithm, row.data) == ("tank-fisher-brc", "fisher_brc", "tank")
    assert row.settings == "--reward-shift -1 --hidden 8 8"
    assert (row.updates, row.values, row.beside) == (2, (20.0, 21.0), 5.0)
    assert row.text == "20.0, 21.0"
    curves = measured.curves("tank-fisher-brc", tmp_path)
    np.testing.assert_array_equal(curves.updates, [1, 2])
    np.testing.assert_array_equal(curves.values, [[10.0, 20.0], [11.0, 21.0]])


def test_rows_of_comparisons_are_leeward_s_own(measured: ModuleType, tmp_path: Path) -> None:
    row = {"library": "leeward", "algorithm": "iql", "data": "hopper", "env": "Hopper-v4"}
    row |= {"updates": 30, "returns": [[-20.272305, 3234.3], [3234.3, 3234.3]]}
    write_lines(tmp_path / "compare.jsonl", row, row | {"library": "torch"})
    (found,) = measured.rows(tmp_path)
    assert (found.name, found.quantity) == ("compare-hopper-iql", "score")
    np.testing.assert_allclose(found.values, [50.0, 100.0], atol=1e-4)


def test_rows_of_searches_over_settings_are_left_out(measured: ModuleType, tmp_path: Path) -> None:
    line = {"data": "corridor", "method": "bc", "algorithm": "bc", "updates": 5, "seeds": [0, 1]}
    line |= {"runs": [{}, {}], "returns": {"usual": [[-1.0, -3.0], [-4.0]]}}
    line |= {"scores": {"usual": None}}
    write_lines(tmp_path / "fmr.jsonl", line | {"returns": {"usual": [[-1.0, -3.0], [-4.0, -4.0]]}})
    (row,) = measured.rows(tmp_path)
    assert (row.quantity, row.text) == ("return", "−2.0, −4.0")
    write_lines(tmp_path / "fmr.jsonl", line | {"runs": [{}] * 4})
    assert measured.rows(tmp_path) == []


def test_rows_of_discrete_benchmarks_have_names_of_their_own(
    measured: ModuleType, tmp_path: Path
) -> None:
    shared = {"steps": 9, "settings": {"lr": 0.1}}
    line = shared | {"data_mean_return": 1.0, "returns": [2.0, 4.0], "algorithm": "discrete_bc"}
    write_lines(tmp_path / "cartpole.jsonl", line | {"row": "bc"}, line | {"row": "bc, best 10 %"})
    line = shared | {"data": "pong", "data_return": -3.0, "returns": [[20.0, 18.0], [-21.0, 0.0]]}
    line |= {"algorithm": "discrete_crr", "row": "CRR+CQL"}
    other = line | {"row": "IQL", "preset": None}
    write_lines(tmp_path / "pong.jsonl", line | {"preset": "tianshou"}, other)
    found = {row.name: row for row in measured.rows(tmp_path)}
    assert list(found) == ["cartpole-bc", "cartpole-bc-best-10", "pong-crr-cql", "pong-iql"]
    assert found["cartpole-bc"].text == "2.0, 4.0"
    pong = found["pong-crr-cql"]
    assert (pong.values, pong.beside, pong.algorithm) == ((19.0, -10.5), -3.0, "discrete_crr")
    assert pong.settings == "--preset tianshou --lr 0.1"
    assert found["pong-iql"].settings == "--lr 0.1"


def test_a_benchmark_without_results_is_named_in_place_of_its_table(
    measured: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Not recorded yet: `python benchmarks/pong.py` writes this table.\n"
    assert measured.recorded("pong", tmp_path) == text
    (tmp_path / "pong.md").write_text("| a |\n")
    assert measured.recorded("pong", tmp_path) == "| a |\n"
    with pytest.raises(SystemExit, match=r"no benchmark 'pung': there is no benchmarks/pung\.py"):
        measured.recorded("pung", tmp_path)
    monkeypatch.setattr(measured, "RESULTS", tmp_path)
    assert measured.text_of("pong-il") == measured.beside_of("pong-il") == "not recorded yet"
    write_lines(tmp_path / "pong.jsonl", {})
    monkeypatch.setattr(measured, "rows", lambda results=None: [])
    with pytest.raises(SystemExit, match="no measured row 'pong-il'"):
        measured.text_of("pong-il")


def test_speeds_are_of_the_last_run_that_measured_all(measured: ModuleType, tmp_path: Path) -> None:
    def run(day: str, rates: dict[str, float]) -> list[dict[str, Any]]:
        where = {"date": day, "sgemm_gflops": 1.0}
        return [{"row": name, "updates_per_second": rate} | where for name, rate in rates.items()]

    whole = dict.fromkeys(measured.SPEEDS, 7.0)
    first, second = run("1", whole | {"bc": 1.0}), run("2", whole | {"bc": 2.0})
    write_lines(tmp_path / "speed.jsonl", *first, *second, *run("3", {"bc": 3.0}))
    assert measured.speed("bc", tmp_path) == 2.0


def test_a_row_that_is_not_there_is_an_error_that_lists_them(measured: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"no measured row 'nothing': there are .*hopper-bc"):
        measured.row_named("nothing")
