"""Figures: one look, colors that keep apart, and SVG that can stand in a page."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from leeward.report import figures
from leeward.report.curves import draw_curves, thinned
from leeward.report.figures import DASHES, PAPER, SERIES, Gallery, inline, shortened, style
from leeward.report.files import file_name
from leeward.report.tables import table
from leeward.statistics import Estimate

STYLE_SHEET = Path(figures.__file__).parent / "templates" / "page.css"


def linear(color: str) -> np.ndarray:
    """Linear red, green and blue of #rrggbb, from 0 to 1."""
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2's contrast of two colors, from 1 to 21."""
    light = [float(linear(color) @ (0.2126, 0.7152, 0.0722)) for color in (one, other)]
    return (max(light) + 0.05) / (min(light) + 0.05)


def lab(mixed: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear red, green and blue."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    share = np.array(to_xyz) @ mixed / (0.9505, 1.0, 1.089)
    x, y, z = np.where(share > 0.008856, np.cbrt(share), 7.787 * share + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def palette(part: str) -> dict[str, str]:
    """The variables that a part of the style sheet sets."""
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part))


def scheme_colors(scheme: str) -> dict[str, str]:
    """The page's colors on light or dark paper."""
    light, dark = STYLE_SHEET.read_text().split("@media (prefers-color-scheme: dark)")
    return palette(light if scheme == "light" else dark.split("@media")[0])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_stand_out_from_the_paper(scheme: str) -> None:
    colors = scheme_colors(scheme)
    assert contrast(colors["ink"], colors["paper"]) > 12
    assert contrast(colors["muted"], colors["paper"]) >= 4.5
    assert contrast(colors["link"], colors["paper"]) >= 4.5
    assert contrast(colors["ink"], colors["warn"]) >= 7
    for index in range(len(SERIES)):
        assert contrast(colors[f"series-{index}"], colors["paper"]) >= 3.3, index


def test_files_have_the_page_s_light_colors() -> None:
    light = scheme_colors("light")
    assert [light[f"series-{i}"] for i in range(len(SERIES))] == list(SERIES)
    assert light["paper"] == PAPER


# How eyes without one kind of cone mix linear red, green and blue
# (Viénot, Brettel & Mollon, 1999).
EYES = {
    "usual": np.eye(3),
    "protan": [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
    "deutan": [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
}


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colors_of_series_keep_apart_for_every_eye(eye: str, scheme: str) -> None:
    colors = scheme_colors(scheme)
    series = [colors[f"series-{i}"] for i in range(len(SERIES))]
    seen = [lab(np.clip(np.array(EYES[eye]) @ linear(color), 0, 1)) for color in series]
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(one - other) > 17  # 2 is the least difference that eyes see


def test_two_dozen_series_look_different() -> None:
    looks = [style(index) for index in range(len(SERIES) * len(DASHES))]
    assert len(set(looks)) == 24


def curves() -> dict[str, tuple[np.ndarray, Estimate]]:
    """Two short curves."""
    x = np.array([1.0, 2.0, 3.0])
    return {"a": (x, Estimate(x, x - 1, x + 1)), "b": (x, Estimate(2 * x, None, None))}


def drawing(folder: Path, name: str = "figure") -> figures.Drawing:
    """A figure of them."""
    styles = {"a": style(0), "b": style(1)}
    return Gallery(folder).add(
        name,
        'A "title" & more',
        "",
        table(("x",), [(1.0,)]),
        lambda: draw_curves(curves(), "t", "x", "y", styles),
    )


def test_a_figure_in_the_page_takes_its_colors_from_the_page(tmp_path: Path) -> None:
    svg = drawing(tmp_path).svg
    assert "var(--series-0)" in svg
    assert "var(--series-1)" in svg
    assert "var(--ink)" in svg
    assert not re.search("#[0-9a-f]{6}", svg)
    assert SERIES[0] in (tmp_path / "figure.svg").read_text()
    assert 'aria-label="A &quot;title&quot; &amp; more"' in svg
    assert "<metadata" not in svg
    assert "<text" in svg  # not outlines


def test_ids_of_figures_in_one_page_do_not_meet(tmp_path: Path) -> None:
    ids = [set(re.findall(r'\bid="([^"]*)"', drawing(tmp_path, name).svg)) for name in "ab"]
    assert ids[0]
    assert not ids[0] & ids[1]
    svg = drawing(tmp_path, "a").svg
    used = set(re.findall(r"url\(#([^)]*)\)", svg)) | set(re.findall(r'href="#([^"]*)"', svg))
    assert used <= ids[0]


def test_a_name_that_was_used_gets_a_number(tmp_path: Path) -> None:
    gallery = Gallery(tmp_path)
    styles = {"a": style(0), "b": style(1)}
    for _ in range(2):
        gallery.add(
            "same", "t", "", table(("x",), []), lambda: draw_curves(curves(), "t", "", "", styles)
        )
    assert gallery.names == ["same", "same-2"]
    assert (tmp_path / "same-2.png").is_file()


def test_inline_needs_a_view_box() -> None:
    with pytest.raises(AssertionError):
        inline("<svg width='1'></svg>", "name", "title")


def test_names_of_files_are_plain() -> None:
    assert file_name("metric", "Critic's loss", "D4RL/../x") == "metric-critic-s-loss-d4rl-x"
    assert file_name("…") == "figure"


def test_long_names_lose_their_middle() -> None:
    assert shortened("short") == "short"
    assert shortened("td3-bc (alpha 2.5, hidden 256 256)", 20) == "td3-bc (al… 256 256)"
    assert len(shortened("x" * 100, 34)) == 34


def test_thinned_curves_keep_their_ends() -> None:
    kept = thinned(np.arange(1_000), 50)
    assert len(kept) == 50
    assert (kept[0], kept[-1]) == (0, 999)
    assert thinned(np.arange(5), 50).tolist() == [0, 1, 2, 3, 4]
