"""A report in a real browser: no error, everything drawn, nothing in the way of anything else.

Its look is looked at by hand where it is changed: the pictures of these tests lie in pytest's
temporary folder (--basetemp chooses another).
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from fabricated import write_lines, write_run
from leeward.report import report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    BROWSER is None,
    reason="no browser: chromium, chromium-browser or google-chrome on PATH draws reports for "
    "these tests (apt install chromium)",
)
METRICS = [{"critic/loss": 900.0 / (k + 1), "critic/q": 250.0 * k} for k in range(30)]
FINDING = {
    "code": "action_on_bounds", "severity": "info", "count": 12, "rows": [1],
    "message": "12 actions lie on the bounds", "remedy": "widen --margin",
}  # fmt: skip
PROBE = """<!doctype html><iframe id="page" src="out/index.html" style="width:WIDTHpx;height:900px">
</iframe><pre id="result"></pre><script>
document.getElementById("page").addEventListener("load", (event) => {
  const page = event.target.contentDocument;
  for (const details of page.querySelectorAll("details")) details.open = true;
  const box = (element) => element.getBoundingClientRect();
  const overlaps = [], empty = [];
  const figures = [...page.querySelectorAll("figure svg")];
  for (const svg of figures) {
    const size = box(svg);
    const drawn = svg.querySelectorAll("path, use").length;
    if (size.width < 100 || size.height < 60 || drawn < 3) empty.push(svg.ariaLabel);
    const labels = [...svg.querySelectorAll("text")].filter((text) => text.textContent.trim());
    for (let i = 0; i < labels.length; i++) {
      const one = box(labels[i]);
      if (one.left < size.left - 1 || one.right > size.right + 1) {
        overlaps.push([svg.ariaLabel, labels[i].textContent, "the edge"]);
      }
      for (let j = i + 1; j < labels.length; j++) {
        const two = box(labels[j]);
        const wide = Math.min(one.right, two.right) - Math.max(one.left, two.left);
        const high = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
        if (wide > 1 && high > 3) {
          overlaps.push([svg.ariaLabel, labels[i].textContent, labels[j].textContent]);
        }
      }
    }
  }
  const style = (element) => page.defaultView.getComputedStyle(element);
  document.getElementById("result").textContent = JSON.stringify({
    figures: figures.length, empty, overlaps,
    sections: [...page.querySelectorAll("main > section")].map((section) => section.id),
    videos: page.querySelectorAll("video").length,
    sideways: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    paper: style(page.body).backgroundColor, ink: style(page.body).color,
    label: style(page.querySelector("figure svg text")).fill,
    smallest: Math.min(...figures.map((svg) => box(svg.querySelector("text")).height)),
  });
});
</script>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a report, out/index.html: six methods, one with a long name, on two tasks.

    Beside scores and metrics the runs hold findings, held-out measures, a close-up of V, estimates
    from data and a video.
    """
    folder = tmp_path_factory.mktemp("browser")
    generator = np.random.default_rng(0)
    methods = ("td3_bc", "bc", "fisher_brc", "iql", "cql", "an_algorithm_with_a_long_name_of_ours")
    for index, method in enumerate(methods):
        for task in ("hopper-medium-v2", "walker2d-medium-replay-v2"):
            curves = 15 * index * np.linspace(0.1, 1, 12) + generator.normal(0, 5, size=(5, 12))
            write_run(
                folder / "runs" / method / task,
                curves.tolist(),
                algorithm=method,
                data=task,
                environment=f"{task.split('-')[0].title()}-v4",
                metrics=METRICS,
                config={"validation_fraction": 0.1},
                data__findings=[FINDING],
            )
    _add_the_rest(folder / "runs")
    report(folder / "runs", folder / "out")
    return folder


def _add_the_rest(runs: Path) -> None:
    """What only some runs leave."""
    for method, likelihood in (("bc", 1.25), ("iql", 0.75)):
        path = runs / method / "hopper-medium-v2" / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for seed in range(5):
            label = {"step": 300, "run": seed, "seed": seed}
            lines.append({"phase": "train", **label, "held_out/log_likelihood": likelihood + seed})
            if method == "iql":
                lines.append({"phase": "value", **label, "held_out/v_mean": 40.0})
        write_lines(path, lines)
    draw = np.random.default_rng(1)
    scattered, along = 300, 200
    value = draw.normal(40.0, 9.0, size=(5, scattered + along))
    place = draw.normal(size=(scattered, 2)) * (3.0, 1.0)
    chosen = runs / "iql" / "hopper-medium-v2"
    (chosen / "closeups").mkdir()
    arrays: dict[str, Any] = {
        "walk": np.repeat([-1, 0, 1], [scattered, along // 2, along // 2]),
        "component": np.concatenate([place, np.full((along, 2), np.nan)]),
        "explained": np.array([0.6, 0.2]),
        "value": value,
        "return": value + draw.normal(0.0, 5.0, size=value.shape),
    }
    np.savez(chosen / "closeups" / "value.npz", **arrays)
    (chosen / "policy.mp4").write_bytes(bytes(2_000))
    estimate = {"value": 250.5, "low": 240.0, "high": 261.0, "reliable": True, "reasons": []}
    poor = {**estimate, "reliable": False, "reasons": ["it rests on 1.0 effective episodes of 40"]}
    names = ["td3-bc seed 0 last", "an-algorithm-with-a-long-name-of-ours seed 0 last"]
    held = {
        "data": "hopper-medium-v2", "episodes": 40, "discount": 0.99, "behavior": estimate,
        "policies": [
            {"name": name, "estimates": {"fqe": estimate, "wis": poor}, "sentence": f"{name}: so."}
            for name in names
        ],
        "agreement": [{"estimators": ["fqe", "wis"], "kendall_tau": 1.0}],
        "verdict": f"One estimator is trusted for every policy: fqe puts {names[0]} first.",
    }  # fmt: skip
    (runs / "ope.json").write_text(json.dumps(held))


def look(folder: Path, width: int, *flags: str) -> tuple[dict[str, Any], list[str]]:
    """(what the probe measured, messages on the console) at a width in pixels."""
    probe = folder / f"probe-{width}.html"
    probe.write_text(PROBE.replace("WIDTH", str(width)))
    size = f"--window-size={width + 60},1000"
    output, console = browse(folder, probe, size, "--dump-dom", *flags)
    result = re.search(r'<pre id="result">(.*?)</pre>', output, re.DOTALL)
    assert result is not None
    return json.loads(html.unescape(result[1])), console


def browse(folder: Path, page: Path, *flags: str) -> tuple[str, list[str]]:
    """(what the browser printed, messages on the console of the page)."""
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--allow-file-access-from-files",
            "--enable-logging=stderr",
            "--virtual-time-budget=10000",
            f"--user-data-dir={folder / 'profile'}",
            *flags,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("width", [1200, 360])
def test_everything_is_drawn_and_nothing_overlaps(folder: Path, width: int) -> None:
    seen, console = look(folder, width)
    assert console == []
    # Learning curves, aggregates, pairs and profiles, selections, metrics, V.
    assert seen["figures"] == 2 + 4 + 3 + 2 + 4 + 2
    assert set(seen["sections"]) >= {
        "scores", "aggregates", "held-out", "values", "learning", "selection", "estimates",
        "diagnostics", "data", "runs", "videos", "repeat",
    }  # fmt: skip
    assert seen["videos"] == 1
    assert seen["empty"] == []
    assert seen["overlaps"] == []
    assert seen["sideways"] <= 0
    assert seen["paper"] == "rgb(254, 254, 254)"
    assert seen["smallest"] > 8.0  # pixels of a label's height, on a phone too


def test_the_dark_page_is_dark(folder: Path) -> None:
    seen, console = look(folder, 1200, "--blink-settings=preferredColorScheme=0")
    assert console == []
    assert seen["paper"] == "rgb(20, 24, 29)"
    assert seen["ink"] == "rgb(232, 235, 239)"
    assert seen["label"] != "rgb(29, 35, 43)"


@pytest.mark.parametrize(("scheme", "paper"), [("light", 254), ("dark", 20)])
def test_a_picture_of_the_page_shows_it(folder: Path, scheme: str, paper: int) -> None:
    picture = folder / f"{scheme}.png"
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    flags = [f"--screenshot={picture}", "--window-size=1200,6000", "--hide-scrollbars", *dark]
    _, console = browse(folder, folder / "out" / "index.html", *flags)
    assert console == []
    pixels = np.round(255 * matplotlib.image.imread(picture)[..., :3]).astype(int)
    assert pixels.shape == (6000, 1200, 3)
    blank = np.abs(pixels - pixels[0, 0]).max(axis=2) < 8
    assert abs(int(pixels[0, 0, 0]) - paper) <= 1
    assert 0.02 < 1.0 - blank.mean() < 0.5
    written = ~blank.all(axis=1)  # rows of pixels with anything on them
    assert written.mean() > 0.5
    assert written[5_000:].any()
    # Lines of figures have a color; text has none.
    colored = np.ptp(pixels, axis=2) > 60
    assert colored.any(axis=1).sum() > 500


def test_the_printed_page_has_its_text_and_figures(folder: Path) -> None:
    printed = folder / "printed.pdf"
    _, console = browse(folder, folder / "out" / "index.html", f"--print-to-pdf={printed}")
    assert console == []
    content = printed.read_bytes()
    assert content.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) >= 4
    drawn = [
        zlib.decompress(stream)
        for stream in re.findall(rb"/FlateDecode[^>]*>>\s*stream\r?\n(.*?)endstream", content, re.S)
    ]
    assert sum(len(re.findall(rb"\bT[jJ]\b", stream)) for stream in drawn) > 300  # pieces of text
    assert sum(len(re.findall(rb"\sl\s", stream)) for stream in drawn) > 1_000  # lines of figures
