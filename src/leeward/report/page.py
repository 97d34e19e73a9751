"""The page: one HTML file that needs nothing else, rendered from sections."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata, resources

import jinja2

from leeward.report.blocks import Section
from leeward.report.tables import Table


def render(title: str, verdict: str, notes: Sequence[str], sections: Sequence[Section]) -> str:
    """The page's HTML. All text is escaped; only figures and the style sheet are taken as markup.

    Args:
        title: of the page.
        verdict: the sentence that a hurried reader needs.
        notes: what to know before the numbers are believed.
        sections: the rest, in order.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("leeward.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["numeric"] = numeric_columns
    style = resources.files("leeward.report").joinpath("templates", "page.css").read_text("utf-8")
    return environment.get_template("page.html").render(
        title=title,
        verdict=verdict,
        notes=notes,
        sections=sections,
        style=style,
        version=metadata.version("leeward"),
    )


def numeric_columns(shown: Table) -> list[bool]:
    """Which columns hold numbers only, and are aligned as such."""
    cells = shown.shown()
    places = range(len(shown.columns))
    return [bool(cells) and all(row[place].number for row in cells) for place in places]
