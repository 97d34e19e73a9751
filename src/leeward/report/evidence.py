"""Sections of a report about how good the policies are."""

from __future__ import annotations

from collections.abc import Mapping

from leeward.compare import judge, sentence
from leeward.published.scores import RULES, Rule
from leeward.report import blocks
from leeward.report.aggregates import (
    Aggregates,
    aggregate_figures,
    aggregate_table,
    improvement_figure,
    improvement_table,
    profile_figure,
)
from leeward.report.blocks import Block, Section
from leeward.report.curves import data_value, learning_curves, sample_efficiency
from leeward.report.figures import Gallery, Style
from leeward.report.references import reference_table
from leeward.report.tables import Table, table
from leeward.results import Results
from leeward.statistics import Estimate, seeds_estimate

CLONING = ("bc", "discrete_bc")
"""Algorithms that imitate their data."""
UNEVALUATED = (
    "No run was evaluated in an environment, so there are no scores: what can be said is in the "
    "estimates from data, where there are some, and in the diagnostics."
)
APART = (
    "No task with scores was run by every method, so there is no number over all of them: see the "
    "scores of each task."
)
INTERVALS = (
    "Brackets and bands are 95 % bootstrap intervals over seeds (stratified by task, percentile); "
    "fewer than three seeds bear none."
)


def verdict(found: Aggregates | None, results: Results, rule: Rule) -> str:
    """Which method is best, and whether it is shown, in one sentence."""
    if found is None:
        return APART if results.scores(rule) else UNEVALUATED
    methods = list(found.scores)
    if len(methods) == 1:
        number = found.estimates[methods[0]]["iqm"]
        ends = ""
        if number.low is not None and number.high is not None:
            ends = f" [{float(number.low):.1f}, {float(number.high):.1f}]"
        return (
            f"{methods[0]}: interquartile mean {found.quantity} {float(number.value):.1f}{ends} "
            f"({RULES[rule]})."
        )
    first, second = methods[:2]
    pair = judge((first, second), found.tasks, found.scores[first], found.scores[second], rule)
    return sentence(pair)


def scores_section(results: Results, rule: Rule, tables: dict[str, Table]) -> Section | None:
    """Every method on every task, and what was published."""
    scores = results.scores(rule)
    if not scores:
        return None
    estimates = {
        (method, name): seeds_estimate(values)
        for method, cells in scores.items()
        for name, values in cells.items()
    }
    shown: list[tuple[object, ...]] = [
        ("random", *(0.0 if task.quantity == "score" else None for task in results.tasks)),
        ("mean of the data", *(data_value(results, task) for task in results.tasks)),
    ]
    shown += [
        (method, *(estimates.get((method, task.name)) for task in results.tasks))
        for method in scores
    ]
    same = len({task.quantity for task in results.tasks}) == 1
    units = [task.name if same else f"{task.name} ({task.quantity})" for task in results.tasks]
    tables["scores"] = _long_table(results, rule, estimates)
    parts = [
        blocks.text(
            f"A run's number is {RULES[rule]}; a cell is the mean over seeds. {_units(results)} "
            + INTERVALS
        ),
        blocks.rows(table(("Method", *units), shown)),
    ]
    missing = _missing_baselines(results)
    if missing:
        parts.append(blocks.text(missing))
    references = reference_table(results)
    if references is not None:
        tables["published"] = references
        parts.append(
            blocks.rows(
                references,
                folded=f"Published numbers of these methods ({len(references.rows)}), by their own "
                "protocols",
            )
        )
    return Section("scores", "Scores", tuple(parts))


def _units(results: Results) -> str:
    kinds = {task.quantity for task in results.tasks}
    score = "Scores are normalized: 0 is a random policy, 100 the reference expert."
    raw = "Returns are raw: no reference returns are known."
    return " ".join(text for kind, text in (("score", score), ("return", raw)) if kind in kinds)


def _long_table(
    results: Results, rule: Rule, estimates: Mapping[tuple[str, str], Estimate]
) -> Table:
    quantity = {task.name: task.quantity for task in results.tasks}
    scores = results.scores(rule)
    lines = []
    for (method, name), number in estimates.items():
        ends = [None if end is None else float(end) for end in number]
        values = " ".join(f"{value:.6g}" for value in scores[method][name])
        count = len(scores[method][name])
        lines.append((method, name, quantity[name], rule, count, *ends, values))
    columns = ("method", "task", "quantity", "protocol", "seeds", "mean", "low", "high", "values")
    return table(columns, lines)


def _missing_baselines(results: Results) -> str:
    """What a table of scores should also have."""
    cloned = [run for run in results.runs if run.algorithm in CLONING]
    whole = [run.config["options"].get("best_fraction", 1.0) == 1.0 for run in cloned]
    missing = [] if any(whole) else ["behavior cloning (leeward train bc …)"]
    if all(whole):
        missing.append("cloning of the best episodes (leeward train bc … --best-fraction 0.1)")
    if not missing:
        return ""
    return (
        f"Not among these runs: {' and '.join(missing)}. A method that does not beat cloning its "
        "data has learned little from the rewards."
    )


def aggregate_section(
    found: Aggregates | None,
    results: Results,
    gallery: Gallery,
    styles: Mapping[str, Style],
    tables: dict[str, Table],
) -> Section | None:
    """All tasks together."""
    if found is None:
        return None
    left_out = [task.name for task in results.tasks if task not in found.tasks]
    tables["aggregates"] = _estimates_table(found)
    parts: list[Block] = [
        blocks.text(
            "The interquartile mean (IQM) is the mean of the middle half of all runs: it is moved "
            "less by single runs than the mean, and wastes less than the median. The optimality "
            "gap is how far runs fall short of 100. " + INTERVALS
        )
    ]
    if left_out:
        parts.append(
            blocks.text(
                f"Not in these numbers, for not all methods have a score: {', '.join(left_out)}."
            )
        )
    parts.append(blocks.rows(aggregate_table(found)))
    parts.append(blocks.figures(aggregate_figures(found, gallery, styles)))
    more = [
        *improvement_figure(found, gallery, styles),
        *profile_figure(found, gallery, styles),
        *sample_efficiency(results, found, gallery, styles),
    ]
    parts.append(blocks.figures(more))
    if len(found.scores) > 1:
        tables["improvement"] = _pairs_table(found)
        parts.append(
            blocks.rows(improvement_table(found), folded="Probability of improvement, every pair")
        )
    names = [task.name for task in found.tasks]
    title = "All tasks together" if len(names) > 1 else f"On {names[0]}"
    return Section("aggregates", title, tuple(parts))


def _estimates_table(found: Aggregates) -> Table:
    lines = [
        (method, name, *(None if end is None else float(end) for end in number))
        for method, own in found.estimates.items()
        for name, number in own.items()
    ]
    return table(("method", "statistic", "value", "low", "high"), lines)


def _pairs_table(found: Aggregates) -> Table:
    lines = [
        (one, other, *(None if end is None else float(end) for end in number))
        for (one, other), number in found.pairs.items()
    ]
    return table(("method", "beats", "probability", "low", "high"), lines)


def learning_section(
    results: Results, gallery: Gallery, styles: Mapping[str, Style]
) -> Section | None:
    """Learning curves."""
    curves = learning_curves(results, gallery, styles)
    if not curves:
        return None
    words = "The mean over seeds at every evaluation. " + INTERVALS
    return Section("learning", "Learning curves", (blocks.text(words), blocks.figures(curves)))
