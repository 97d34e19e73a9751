"""`leeward report`: what is on the page, what lies beside it, and that it needs nothing else."""

from __future__ import annotations

import csv
import html.parser
import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from fabricated import write_run
from leeward import cli
from leeward.errors import CheckpointError, LeewardError
from leeward.report import report
from leeward.report.attachments import LARGEST_VIDEO
from leeward.report.diagnostics import MOST, diagnostic_figures, read_metrics
from leeward.report.figures import Gallery, style
from leeward.report.origins import repeat_command
from leeward.results import collect, find_runs
from leeward.run import Run

METRICS = [
    {"critic/loss": 1.0 / (k + 1), "critic/q": float(k), "actor/alpha": 0.5} for k in range(9)
]
HOSTILE = '<script>alert("x")</script>'


class Page(html.parser.HTMLParser):
    """The tags of a page, its text, and what its attributes point at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.identifiers: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
                self.addresses.append(value or "")
            if name == "id":
                self.identifiers.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        """All text, with single spaces."""
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods on two tasks, five seeds each, with all that a run directory may hold."""
    folder = tmp_path_factory.mktemp("made-up") / "runs"
    generator = np.random.default_rng(0)
    finding = {
        "code": "actions_on_bounds", "severity": "info", "count": 12, "rows": [1],
        "message": "12 actions lie on the bounds", "remedy": "widen the margin",
    }  # fmt: skip
    for method, level in (("td3_bc", 70.0), ("bc", 30.0)):
        for task in ("hopper-medium-v2", "walker2d-medium-v2"):
            curves = level * np.linspace(0.2, 1.0, 6) + generator.normal(0, 4, size=(5, 6))
            write_run(
                folder / method / task,
                curves.tolist(),
                algorithm=method,
                data=task,
                environment=f"{task.split('-')[0].title()}-v4",
                metrics=METRICS,
                data__findings=[finding],
                data__notes=["a note on the reading"],
            )
    return folder


@pytest.fixture(scope="module")
def out(runs: Path) -> Path:
    """The folder of their report, by the best evaluation of every run."""
    report([runs], runs.parent / "out", protocol="best")
    return runs.parent / "out"


def read_csv(path: Path) -> list[dict[str, str]]:
    """A CSV file's rows."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_says_what_the_runs_say(out: Path) -> None:
    page = Page((out / "index.html").read_text())
    for words in (
        "bc, td3-bc on hopper-medium-v2, walker2d-medium-v2",
        "td3-bc is better than bc: a run of td3-bc beats a run of bc with probability 1.00",
        "Interquartile mean",
        "Optimality gap",
        "mean of the data",
        "12 actions lie on the bounds",
        "widen the margin",
        "hopper-medium-v2: a note on the reading",
        "leeward train td3-bc hopper-medium-v2 --config",
        "mujoco 4.0.0",
        "cloning of the best episodes",
        "td3-bc/hopper-medium-v2",  # a published row
        "not comparable because",
    ):
        assert words in page.text, words
    drawn = page.tags.count("svg")
    # 2 learning curves, 4 aggregates, improvement, profile, sample efficiency, 2 selections and
    # 3 metrics of 2 tasks.
    assert drawn == 2 + 4 + 3 + 2 + 6


def test_the_page_needs_nothing_else(out: Path) -> None:
    text = (out / "index.html").read_text()
    page = Page(text)
    outside = [a for a in page.addresses if not a.startswith(("#", "data:", "figures/"))]
    assert outside == []
    assert "script" not in page.tags
    assert page.handlers == []
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert "default-src 'none'" in text
    for address in page.addresses:
        if address.startswith("figures/"):
            assert (out / address).is_file(), address
    assert len(page.identifiers) == len(set(page.identifiers))
    missing = [a for a in page.addresses if a.startswith("#") and a[1:] not in page.identifiers]
    assert missing == []
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert 'name="viewport"' in text


def test_every_figure_lies_beside_the_page_as_svg_png_and_csv(out: Path) -> None:
    names = {path.stem for path in (out / "figures").iterdir()}
    assert {"learning-hopper-medium-v2", "performance-profile", "sample-efficiency"} <= names
    for name in names:
        ET.parse(out / "figures" / f"{name}.svg")
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert len(read_csv(out / "figures" / f"{name}.csv")) > 0
    learning = read_csv(out / "figures" / "learning-hopper-medium-v2.csv")
    assert {row["method"] for row in learning} == {"bc", "td3-bc"}
    assert len(learning) == 12


def test_tables_have_the_numbers_of_the_runs(runs: Path, out: Path) -> None:
    rows = read_csv(out / "tables" / "scores.csv")
    for row in rows:
        run = Run(runs / row["method"].replace("-", "_") / row["task"])
        best = run.scores("best")
        np.testing.assert_allclose(float(row["mean"]), best.mean())
        np.testing.assert_allclose([float(v) for v in row["values"].split()], best, rtol=1e-5)
        assert row["protocol"] == "best"
        assert float(row["low"]) < float(row["mean"]) < float(row["high"])
    assert len(rows) == 4
    assert len(read_csv(out / "tables" / "improvement.csv")) == 2
    chosen = read_csv(out / "tables" / "online-selection.csv")
    assert [(row["Task"], row["Method"]) for row in chosen[-2:]] == [
        ("mean of 2 tasks", "bc"),
        ("mean of 2 tasks", "td3-bc"),
    ]
    assert len(chosen) == 2 * 2 + 2
    for tries in ("1 episode", "5 episodes", "20 episodes", "100 episodes"):
        each = [float(row[tries]) for row in chosen[:-2] if row["Method"] == "bc"]
        np.testing.assert_allclose(float(chosen[-2][tries]), np.mean(each), rtol=1e-5)
    assert len(read_csv(out / "tables" / "runs.csv")) == 4


def test_the_same_runs_give_the_same_bytes(runs: Path, out: Path, tmp_path: Path) -> None:
    report([runs], tmp_path, protocol="best")
    for file in out.rglob("*.*"):
        assert file.read_bytes() == (tmp_path / file.relative_to(out)).read_bytes(), file


def test_what_users_write_stays_text(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / f"run {HOSTILE.replace('/', '')}",
        [[10.0, 20.0], [20.0, 30.0], [30.0, 40.0]],
        algorithm=HOSTILE,
        data=f"{HOSTILE} $x_1$ \\frac",
        environment=HOSTILE,
        config={HOSTILE: HOSTILE},
        metrics=[{HOSTILE: 1.0, "a $b$": 2.0}] * 3,
        data__notes=[HOSTILE],
        data__findings=[{"code": HOSTILE, "message": HOSTILE, "severity": HOSTILE}],
        versions__leeward=HOSTILE,
    )
    (run / "ope.json").write_text(json.dumps({"policies": [{"name": HOSTILE}], "verdict": HOSTILE}))
    (run / "diagnostics.json").write_text(json.dumps({HOSTILE: [{HOSTILE: HOSTILE}]}))
    (run / '"><script>.mp4').write_bytes(b"x")
    page = Page(report([run], tmp_path / "out").read_text())
    assert "script" not in page.tags
    assert page.handlers == []
    assert HOSTILE in page.text
    for path in (tmp_path / "out" / "figures").glob("*.svg"):
        tags = {one.tag.rpartition("}")[2] for one in ET.parse(path).iter()}
        assert "script" not in tags


def test_runs_without_evaluations_are_reported_by_their_diagnostics(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [[], []], environment=None, metrics=METRICS)
    page = Page(report(run, tmp_path / "out").read_text())
    assert "No run was evaluated in an environment, so there are no scores" in page.text
    assert "scores" not in page.identifiers
    assert page.tags.count("svg") == 3


def test_one_seed_has_numbers_and_no_interval(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [[10.0, 42.0]], metrics=METRICS)
    out = tmp_path / "out"
    page = Page(report(run, out).read_text())
    assert "td3-bc: interquartile mean score 42.0 (the last evaluation)." in page.text
    assert "Fewer than 3 seeds bear no interval" in page.text
    (row,) = read_csv(out / "tables" / "scores.csv")
    assert (row["mean"], row["low"], row["high"]) == ("42", "", "")


def test_estimates_from_data_are_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [1.0], metrics=METRICS)
    estimate = {
        "value": 12.25, "low": 11.0, "high": 13.0, "effective_sample_size": 7.5,
        "reliable": False, "reasons": ["too few effective episodes"],
    }  # fmt: skip
    held = {
        "data": "small", "episodes": 40, "discount": 0.99, "behavior": {**estimate, "value": 9.0},
        "policies": [
            {"name": "run-0", "rank": 1, "estimates": {"fqe": estimate}, "sentence": "run-0: no."}
        ],
        "agreement": [{"estimators": ["fqe", "wis"], "kendall_tau": 0.5}],
        "verdict": "One estimator is trusted.", "notes": ["a note"],
    }  # fmt: skip
    (tmp_path / "ope.json").write_text(json.dumps(held))  # beside the run
    page = Page(report(run, tmp_path / "out").read_text())
    assert "12.2 [11.0, 13.0]" in page.text
    assert page.text.count("Estimated from") == 1
    (tmp_path / "ope.json").rename(run / "ope.json")  # in it
    page = Page(report(run, tmp_path / "out").read_text())
    for words in (
        "12.2 [11.0, 13.0]", "too few effective episodes", "One estimator is trusted.",
        "run-0: no.", "a note", "fqe and wis",
        "Estimated from 40 episodes of small, discounted by 0.99",
    ):  # fmt: skip
        assert words in page.text, words


def test_small_videos_lie_in_the_page_and_large_ones_beside_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [1.0], metrics=METRICS)
    (run / "small.mp4").write_bytes(b"small")
    (run / "large one.mp4").write_bytes(b"l" * (LARGEST_VIDEO + 1))
    out = tmp_path / "out"
    page = Page(report(run, out).read_text())
    assert page.tags.count("video") == 1
    assert "data:video/mp4;base64,c21hbGw=" in page.addresses
    assert "videos/0-large-one.mp4" in page.addresses
    assert (out / "videos" / "0-large-one.mp4").stat().st_size == LARGEST_VIDEO + 1


def test_what_was_measured_once_is_a_table(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [1.0, 2.0, 3.0], metrics=METRICS)
    with (run / "metrics.jsonl").open("a") as file:
        for seed, value in enumerate((-1.0, -2.0, -3.0)):
            line = {"phase": "behavior", "step": 5, "run": seed, "seed": seed}
            file.write(json.dumps(line | {"held_out/log_likelihood": value}) + "\n")
    out = tmp_path / "out"
    page = Page(report(run, out).read_text())
    assert "Measured once, at the end of a phase" in page.text
    (row,) = read_csv(out / "tables" / "measurements.csv")
    assert (row["Phase"], row["Measure"], row["Seeds"], row["Mean over seeds"]) == (
        "behavior",
        "held_out/log_likelihood",
        "3",
        "-2",
    )
    assert not list((out / "figures").glob("*log-likelihood*"))


def test_metrics_are_thinned_before_they_are_parsed(tmp_path: Path) -> None:
    many = [{"critic/loss": float(k)} for k in range(1_000)]
    run = Run(write_run(tmp_path / "run", [1.0, 2.0], metrics=many))
    steps, values = read_metrics(run)["train", "critic/loss", 1]
    assert len(steps) == 50
    assert (steps[0], steps[-1]) == (10, 10_000)
    assert values[-1] == 999.0


def test_the_command_that_repeats_a_run_has_its_flags(tmp_path: Path) -> None:
    options = {"columns": {"observation": ["o 1", "o2"], "termination": "end"}, "offline": True}
    run = Run(write_run(tmp_path / "run", [1.0], data="my log.csv", data__options=options))
    assert repeat_command(run) == (
        f"leeward train td3-bc 'my log.csv' --config {tmp_path}/run/config.json --offline "
        "--observation 'o 1' o2 --terminal end"
    )


def refused(*paths: Path) -> str:
    """The error's text, with the folder of the tests as DIR; nothing is written."""
    out = paths[0].parent / "refused"
    with pytest.raises(LeewardError) as caught:
        report(paths, out)
    assert not out.exists()
    return str(caught.value).replace(str(paths[0].parent), "DIR")


def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty") == (
        "DIR/empty: not a run directory (it has no config.json), nor does it hold one"
    )
    bare = write_run(tmp_path / "bare", [[]])
    assert refused(bare) == (
        "DIR/bare holds no metrics and no evaluations yet, so there is nothing to report: leave it "
        "out, or wait"
    )
    damaged = write_run(tmp_path / "damaged", [1.0])
    (damaged / "metrics.jsonl").write_text("nonsense\n")
    assert refused(damaged) == ("DIR/damaged/metrics.jsonl: line 1 is not one of metrics (damaged)")
    broken = write_run(tmp_path / "broken", [1.0], metrics=METRICS)
    (broken / "ope.json").write_text("{")
    assert refused(broken).startswith("DIR/broken/ope.json: cannot be read as JSON (")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [1.0], metrics=METRICS)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        report(run, tmp_path / "file" / "out")


def test_the_command_writes_the_report(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["report", str(runs), "--out", str(out), "--protocol", "last-10"]) == 0
    assert capsys.readouterr().out == f"report: {out / 'index.html'}\n"
    assert "the mean of the last ten evaluations" in (out / "index.html").read_text()
    assert cli.main(["report"]) == 2
    assert capsys.readouterr().err == (
        "leeward: error: name at least one run: leeward report RUN [RUN …] --out DIR\n"
    )


def test_with_very_many_metrics_the_telling_ones_are_drawn(tmp_path: Path) -> None:
    names = ("critic/loss", "critic/q1", "actor/loss", "actor/alpha", "actor/entropy")
    many = [*names, *(f"actor/other_{k}" for k in range(MOST))]
    run = write_run(
        tmp_path / "run", [1.0], metrics=[{name: float(k) for name in many} for k in range(3)]
    )
    with (run / "metrics.jsonl").open("a") as file:
        for step in (10, 20, 30):  # lines of `train --select ope`
            line = {"phase": "train", "step": step, "run": 0, "seed": 0, "ope/value": 2.0 * step}
            file.write(json.dumps(line) + "\n")
    results = collect(find_runs([run]))
    metrics = {one.directory: read_metrics(one) for one in results.runs}
    styles = {"td3-bc": style(0)}
    found = diagnostic_figures(results, metrics, Gallery(tmp_path / "figures"), styles)
    (drawings,) = found.values()
    assert {one.title for one in drawings} == {
        "Value",
        "Critic's loss",
        "Actor's loss",
        "Entropy",
        "Temperature",
        "Value estimated from the data",
    }
    rows = read_csv(tmp_path / "figures" / "metric-value-estimated-from-the-data-made-up-v0.csv")
    assert [float(row["value"]) for row in rows] == [20.0, 40.0, 60.0]
