"""The table of benchmarks/fmr.py: means over seeds with 95 % intervals, and gaps to BC.

FMR holds episodes out of all training, plain BC does not. So gaps are to FMR with λ = 0, which is
BC on the same episodes, wherever that row is there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.stats

BASES = {
    "fmr-zero": "fmr-zero, BC on the same episodes",
    "bc": "bc, which trains on the episodes that FMR holds out too",
}
"""What methods are compared with, the first that there is, and how the table names it."""
CONDITIONS = {"usual": "usual starts", "start": "disturbed starts", "action": "noisy actions"}


def make_table(lines: list[dict[str, Any]]) -> str:
    """One section a data set, one row a method; a search over λ shows the one it chose."""
    parts = []
    for name in dict.fromkeys(line["data"] for line in lines):
        rows = [line for line in lines if line["data"] == name]
        scored = rows[0]["scores"]["usual"] is not None
        unit = "normalized scores" if scored else "minus the summed drift"
        first = rows[0]
        seeds = len(first["seeds"])
        base = base_of(rows)
        gap = "" if base is None else f"; in brackets the gap to {BASES[base['method']]}"
        parts.append(
            f"### {name}\n\n{first['episodes']} episodes, {first['transitions']:,} transitions; "
            f"{unit}, mean over {seeds} seeds with 95 % t-intervals{gap}.\n"
        )
        head = ["method", *CONDITIONS.values(), "held-out log-likelihood", "training s"]
        parts.append(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
        parts += [f"| {' | '.join(cells(line, base, scored))} |" for line in rows]
        parts.append("")
    return "\n".join(parts) + "\n"


def base_of(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The row that a data set's other rows are compared with; None where it is not there yet."""
    found = {line["method"]: line for line in rows}
    return next((found[method] for method in BASES if method in found), None)


def cells(line: dict[str, Any], base: dict[str, Any] | None, scored: bool) -> list[str]:
    """One row of the table."""
    chosen, label = chosen_runs(line)
    found = [f"{line['method']}{label}"]
    for condition in CONDITIONS:
        value = per_seed(line, condition, scored)[chosen]
        text = interval(value)
        if base is not None and base is not line:
            other = per_seed(base, condition, scored)
            text += f" ({value.mean() - other.mean():+.1f}{significance(value, other)})"
        found.append(text)
    likelihood = held_out(line)
    number = "–" if likelihood is None else f"{np.mean(likelihood[chosen]):.2f}"
    return [*found, number, f"{line['training_seconds']:.0f}"]


def per_seed(line: dict[str, Any], condition: str, scored: bool) -> np.ndarray:
    """[N] one number a run."""
    if scored:
        return np.asarray(line["scores"][condition])
    return np.asarray(line["returns"][condition]).mean(axis=1)


def interval(value: np.ndarray) -> str:
    """Mean ± half the 95 % t-interval over seeds."""
    if len(value) < 2:
        return f"{value.mean():.1f}"
    half = scipy.stats.t.ppf(0.975, len(value) - 1) * scipy.stats.sem(value)
    return f"{value.mean():.1f} ± {half:.1f}"


def significance(value: np.ndarray, other: np.ndarray) -> str:
    """A star where Welch's test tells two methods apart at 5 %."""
    if min(len(value), len(other)) < 2 or value.std() + other.std() == 0.0:
        return ""
    return "*" if scipy.stats.ttest_ind(value, other, equal_var=False).pvalue < 0.05 else ""


def held_out(line: dict[str, Any]) -> np.ndarray | None:
    """[N] the held-out log-likelihood of every run's policy, where it was measured."""
    found = [
        row["held_out/log_likelihood"]
        for row in line["measured"]
        if row["phase"] in ("policy", "train") and row.get("held_out/log_likelihood") is not None
    ]
    return np.asarray(found) if found else None


def chosen_runs(line: dict[str, Any]) -> tuple[np.ndarray, str]:
    """The runs whose λ has the best held-out log-likelihood, and what to say of it."""
    weights = np.asarray([row.get("fmr_weight", 0.0) for row in line["runs"]])
    values = np.unique(weights)
    if len(values) == 1:
        return np.ones(len(weights), bool), ""
    likelihood = held_out(line)
    if likelihood is None:  # nothing was held out: the middle of the search, chosen beforehand
        best = values[len(values) // 2]
        return weights == best, f" (λ {best:g}, nothing held out)"
    best = max(values, key=lambda value: likelihood[weights == value].mean())
    return weights == best, f" (λ {best:g})"
