"""A report in a real browser: no error, everything drawn, nothing in the way of anything else."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fabricated import write_run
from leeward.report import report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium or Chrome on PATH (apt install chromium)"
)
METRICS = [{"critic/loss": 900.0 / (k + 1), "critic/q": 250.0 * k} for k in range(30)]
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
    sideways: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    paper: style(page.body).backgroundColor, ink: style(page.body).color,
    label: style(page.querySelector("figure svg text")).fill,
    smallest: Math.min(...figures.map((svg) => box(svg.querySelector("text")).height)),
  });
});
</script>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a report, out/index.html: six methods, one with a long name, on two tasks."""
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
            )
    report(folder / "runs", folder / "out")
    return folder


def look(folder: Path, width: int, *flags: str) -> tuple[dict[str, Any], list[str]]:
    """(what the probe measured, messages on the console) at a width in pixels."""
    assert BROWSER is not None
    probe = folder / f"probe-{width}.html"
    probe.write_text(PROBE.replace("WIDTH", str(width)))
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
            f"--window-size={width + 60},1000",
            "--dump-dom",
            *flags,
            probe.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert result is not None
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(result[1])), console


@pytest.mark.parametrize("width", [1200, 360])
def test_everything_is_drawn_and_nothing_overlaps(folder: Path, width: int) -> None:
    seen, console = look(folder, width)
    assert console == []
    assert seen["figures"] == 2 + 4 + 3 + 2 + 4
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
