"""The table of benchmarks/compare.py, from its rows."""

from __future__ import annotations

import json
import statistics
from typing import Any, NamedTuple

import numpy as np

REFERENCE_RETURNS = {"Hopper-v4": (-20.272305, 3234.3), "HalfCheetah-v4": (-280.178953, 12135.0)}
"""Random's and expert's return, which make a score 0 and 100 (D4RL)."""
NAMES = {"td3_bc": "TD3+BC", "iql": "IQL", "cql": "CQL", "bcq": "BCQ"}
LIBRARY_NAMES = {"leeward": "Leeward", "torch": "PyTorch, CORL style", "d3rlpy": "d3rlpy"}
BUSY = 0.1
"""Cores that other processes may take before a row's speed is marked."""
HEADER = (
    "| algorithm | library | updates | seeds | score | 95 % interval | over | against Leeward "
    "| updates/s | Leeward ÷ it | first update s (again) | peak MB |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)
NOTES = """\
Score: 0 is random, 100 expert; the mean of {episodes} deterministic episodes a seed after the last
update, with the same starts in all libraries. Interval: bootstrap of the mean, over seeds where
there are 3 or more, else over episodes, which leaves out how seeds differ. Against Leeward: whether
the intervals overlap ("within") or the library's lies wholly "above" or "below". Updates/s: the
training loop after its warm-up, batch sampling included, evaluation not; Leeward's seeds train in
one program and count together. "Leeward ÷ it": the ratio of the updates/s. First update: seconds
from the start of the process, imports and reading data included, caches empty; in parentheses the
same again. Peak: resident memory of the whole process, evaluation included.{busy}

Known differences: d3rlpy leaves out the last transition of a truncated episode (it does not read
the next observation there), backs up the policy's mode in CQL where the others draw an action, and
draws new latents at every step of its BCQ policy where Leeward keeps those drawn once. IQL starts
from orthogonal weights in Leeward (the authors' code), from PyTorch's in the others, where d3rlpy's
log-std goes through a sigmoid."""


class Group(NamedTuple):
    """Rows that differ in their seeds only."""

    algorithm: str
    library: str
    updates: int
    together: int
    """Seeds that trained in one program."""
    env: str
    settings: str
    """As JSON."""
    lines: list[dict[str, Any]]

    @property
    def rate(self) -> float:
        """Updates a second, the median of the rows."""
        return statistics.median(line["updates_per_second"] for line in self.lines)

    @property
    def seeds(self) -> int:
        """How many were trained."""
        return sum(len(line["seeds"]) for line in self.lines)


class Score(NamedTuple):
    """Mean of a normalized score and its interval."""

    mean: float
    low: float
    high: float
    over: str


def make_table(lines: list[dict[str, Any]]) -> str:
    """A Markdown section for every data set and environment in the rows."""
    sections = []
    for data, env in sorted({(line["data"], line["env"]) for line in lines}):
        own = [line for line in lines if (line["data"], line["env"]) == (data, env)]
        sections += [f"## {data}, {env}", "", HEADER]
        groups, names = group(own), names_of(own)
        sections += [render(row, leeward_like(row, groups), names) for row in groups]
        sections += ["", notes(own), "", *settings_of(names), "", where(own), ""]
    return "\n".join(sections)


def group(lines: list[dict[str, Any]]) -> list[Group]:
    """Rows that are alike but for their seeds, in the order above."""
    found: dict[tuple[Any, ...], Group] = {}
    for line in lines:
        what, seeds = (line["algorithm"], line["library"], line["updates"]), len(line["seeds"])
        key = (*what, seeds, line["env"], text_of(line["settings"]))
        found.setdefault(key, Group(*key, lines=[])).lines.append(line)
    algorithms, libraries = list(NAMES), list(LIBRARY_NAMES)
    return sorted(
        found.values(),
        key=lambda g: (algorithms.index(g.algorithm), g.updates, libraries.index(g.library)),
    )


def text_of(settings: dict[str, Any]) -> str:
    """Settings as JSON, the same for the same settings in any order."""
    return json.dumps(settings, sort_keys=True)


def names_of(lines: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """(algorithm, settings) → its name, numbered where an algorithm has several settings."""
    found: dict[str, dict[str, None]] = {name: {} for name in NAMES}
    for line in lines:
        found[line["algorithm"]][text_of(line["settings"])] = None
    return {
        (algorithm, text): NAMES[algorithm] + (f" ({number})" if len(texts) > 1 else "")
        for algorithm, texts in found.items()
        for number, text in enumerate(texts, 1)
    }


def leeward_like(row: Group, groups: list[Group]) -> Group | None:
    """Leeward's row that differs in seeds alone, the one with most; None for itself."""
    if row.library == "leeward":
        return None
    like = row._replace(library="leeward", together=0, lines=[])
    same = [other for other in groups if other._replace(together=0, lines=[]) == like]
    return max(same, key=lambda other: other.together, default=None)


def score(row: Group) -> Score:
    """The mean normalized score and its 95 % bootstrap interval."""
    random, expert = REFERENCE_RETURNS[row.env]
    returns = np.array([seed for line in row.lines for seed in line["returns"]])  # [N, K]
    scores = 100 * (returns - random) / (expert - random)
    generator = np.random.default_rng(0)
    seeds, episodes = scores.shape
    if seeds >= 3:
        drawn = generator.integers(seeds, size=(10_000, seeds))
        means, over = scores.mean(axis=1)[drawn].mean(axis=1), "seeds"
    else:
        drawn = generator.integers(episodes, size=(10_000, seeds, episodes))
        means = np.take_along_axis(scores[None], drawn, axis=2).mean(axis=(1, 2))
        over = "episodes"
    low, high = np.percentile(means, [2.5, 97.5])
    return Score(float(scores.mean()), float(low), float(high), over)


def render(row: Group, leeward: Group | None, names: dict[tuple[str, str], str]) -> str:
    """One line of the table."""
    own = score(row)
    verdict, ratio = "", ""
    if leeward is not None:
        other = score(leeward)
        verdict = "above" if own.low > other.high else "below" if own.high < other.low else "within"
        ratio = f"{leeward.rate / row.rate:.2f} ×"
    busy = " *" if any(is_busy(line) for line in row.lines) else ""
    first, again = (
        statistics.median(line["first_update_seconds"][i] for line in row.lines) for i in (0, 1)
    )
    cells = (
        names[row.algorithm, row.settings],
        LIBRARY_NAMES[row.library],
        f"{row.updates:,}",
        f"{row.seeds}" + (" together" if row.together > 1 else ""),
        f"{own.mean:.1f}",
        f"{own.low:.1f} to {own.high:.1f}",
        own.over,
        verdict,
        f"{row.rate:.1f}{busy}",
        ratio,
        f"{first:.1f} ({again:.1f})",
        f"{max(line['peak_rss_mb'] for line in row.lines):.0f}",
    )
    return "| " + " | ".join(cells) + " |"


def is_busy(line: dict[str, Any]) -> bool:
    """Whether other processes took a share of the cores while the row trained."""
    return line["cores_of_others"] is not None and line["cores_of_others"] > BUSY


def notes(lines: list[dict[str, Any]]) -> str:
    """What the columns mean."""
    busy = ""
    if any(is_busy(line) for line in lines):
        busy = f" *: other processes took more than {BUSY} of a core meanwhile."
    episodes = sorted({len(seed) for line in lines for seed in line["returns"]})
    return NOTES.format(episodes=" or ".join(map(str, episodes)), busy=busy)


def settings_of(names: dict[tuple[str, str], str]) -> list[str]:
    """A line of settings for every name."""
    return [
        f"- {name}: " + ", ".join(f"{n} {value}" for n, value in json.loads(text).items())
        for (_, text), name in names.items()
    ]


def where(lines: list[dict[str, Any]]) -> str:
    """Machine, days and versions."""
    machines = sorted({f"{line['processor']}, {line['cores']} cores" for line in lines})
    days = sorted({line["date"] for line in lines})
    parts = [f"{'; '.join(machines)}; {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")]
    for library, name in LIBRARY_NAMES.items():
        versions = {
            ", ".join(f"{package} {version}" for package, version in line["versions"].items())
            + (f" (commit {line['commit']})" if library == "leeward" and line["commit"] else "")
            for line in lines
            if line["library"] == library
        }
        parts += [f"{name}: {text}" for text in sorted(versions)]
    return "Measured on " + ". ".join(parts) + "."
