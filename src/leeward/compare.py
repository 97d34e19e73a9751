"""Is one method better than another? Probability of improvement, its interval, one sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from leeward import statistics
from leeward.errors import ConfigError
from leeward.judgement import FEWEST_SEEDS
from leeward.online_selection import TRIES, Selection, mean_worth, online_selection
from leeward.published.scores import RULES, Rule
from leeward.result_notes import notes
from leeward.results import Results, collect, environment_name, find_runs, method_names
from leeward.statistics import Estimate
from leeward.trained import Task

SIGNIFICANCE = 0.05
"""Two-sided p below which chance is no explanation (ours: the usual one)."""

Outcome = Literal["better", "worse", "not shown", "too few"]


class TaskComparison(NamedTuple):
    """Both methods on one task, in the task's quantity."""

    task: Task
    first: np.ndarray
    """[N] one number a run of A."""
    second: np.ndarray
    """[M] one number a run of B."""
    difference: Estimate
    """Mean of A − mean of B."""
    probability: Estimate
    """That a run of A beats a run of B."""
    selection: tuple[Selection, Selection] | None
    """What choosing among the runs of each costs; None where either has one run only."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Whether A is better than B. `str()` is the sentence."""

    first: str
    """What A is called."""
    second: str
    rule: Rule
    tasks: tuple[TaskComparison, ...]
    probability: Estimate
    """Probability of improvement, over all tasks."""
    p_value: float
    """How often methods that are the same would differ this much."""
    outcome: Outcome
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return sentence(self)

    @property
    def selection(self) -> tuple[np.ndarray, np.ndarray] | None:
        """[K] each: the mean over tasks of what choosing by trying gives.

        None where there are not two tasks or more that tell, all of them in normalized scores.
        """
        both = [one.selection for one in self.tasks if one.selection is not None]
        scored = all(one.task.quantity == "score" for one in self.tasks)
        if len(both) < 2 or len(both) < len(self.tasks) or not scored:
            return None
        first, second = (mean_worth(side) for side in zip(*both, strict=True))
        return first, second


def compare(first: str | Path, second: str | Path, *, protocol: Rule = "last") -> Comparison:
    """Compares two methods by their runs.

    Args:
        first: a run directory of A, or a folder that holds its runs on several tasks.
        second: the same of B.
        protocol: which evaluations of a run give its number: "last", "last-10" (the mean of the
            last ten) or "best".

    Raises:
        LeewardError: no run there, a run that was never evaluated, several methods in one place,
            no task in common, or different environments.

    Example:
        >>> print(leeward.compare("runs/hopper/td3-bc", "runs/hopper/bc"))  # doctest: +SKIP
    """
    if Path(first).resolve() == Path(second).resolve():
        raise ConfigError(f"{first} is both A and B: name two")
    sides = [_side(path) for path in (first, second)]
    shared = _shared(sides, (first, second))
    trained = [[one for cell in side.cells.values() for one in cell] for side in sides]
    named = method_names([*trained[0], *trained[1]])
    names = [named[0], named[-1]]
    if names[0] == names[1]:
        names = [str(first), str(second)]
    cells = {
        (name, task): cell
        for name, side in zip(names, sides, strict=True)
        for (_, task), cell in side.cells.items()
    }
    kept = {task.name for task in shared}
    alone = [task.name for side in sides for task in side.tasks if task.name not in kept]
    left_out = [f"Only one of them was trained on {', '.join(alone)}: left out."] if alone else []
    found = notes([*sides[0].runs, *sides[1].runs], cells)
    one, two = ([side.values(side.methods[0], task, protocol) for task in shared] for side in sides)
    judged = judge((names[0], names[1]), shared, one, two, protocol, (*left_out, *found))
    tasks = [task._replace(selection=_selection(sides, task.task)) for task in judged.tasks]
    return dataclasses.replace(judged, tasks=tuple(tasks))


def _side(path: str | Path) -> Results:
    """The runs of one method.

    Raises:
        ConfigError: none was evaluated, or they are of several methods.
    """
    found = collect(find_runs([path]))
    if len(found.methods) > 1:
        raise ConfigError(
            f"{path} holds several methods ({', '.join(found.methods)}): compare takes one on each "
            "side; `leeward report` shows them all"
        )
    for place, cell in found.cells.items():
        if not any(one.evaluations for one in cell):
            raise ConfigError(
                f"{cell[0].run.directory} was never evaluated on {place[1]}, so there is nothing "
                "to compare: train it with --env"
            )
    return found


def _shared(sides: Sequence[Results], paths: Sequence[str | Path]) -> list[Task]:
    """The tasks of both, in a quantity that both have.

    Raises:
        ConfigError: there is none, or they were evaluated in different environments.
    """
    shared = []
    for one in sides[0].tasks:
        for two in sides[1].tasks:
            if one.name != two.name:
                continue
            if one.environment != two.environment:
                there = [environment_name(task.environment) for task in (one, two)]
                raise ConfigError(
                    f"{paths[0]} was evaluated in {there[0]} and {paths[1]} in {there[1]}, both "
                    f"trained on {one.name}: their numbers cannot be compared"
                )
            shared.append(one if one.quantity == "return" else two)
    if not shared:
        there = [", ".join(task.name for task in side.tasks) for side in sides]
        raise ConfigError(
            f"{paths[0]} and {paths[1]} share no task: one is of {there[0]}, the other of "
            f"{there[1]}"
        )
    return shared


def judge(
    names: tuple[str, str],
    tasks: Sequence[Task],
    first: statistics.Scores,
    second: statistics.Scores,
    rule: Rule,
    told: Sequence[str] = (),
) -> Comparison:
    """Compares the numbers of two methods.

    Args:
        names: what the methods are called.
        tasks: what they were run on.
        first: [N] one number a run of A, one array a task.
        second: [M] the same of B.
        rule: which evaluations gave the numbers.
        told: notes.
    """
    chance = statistics.probability_of_improvement
    probability = statistics.estimate(chance, first, second)
    p_value = statistics.permutation_test(first, second)
    return Comparison(
        first=names[0],
        second=names[1],
        rule=rule,
        tasks=tuple(
            TaskComparison(
                task=task,
                first=one,
                second=two,
                difference=statistics.estimate(_difference, [one], [two]),
                probability=statistics.estimate(chance, [one], [two]),
                selection=None,
            )
            for task, one, two in zip(tasks, first, second, strict=True)
        ),
        probability=probability,
        p_value=p_value,
        outcome=decide(probability, p_value),
        notes=tuple(told),
    )


def _difference(first: statistics.Scores, second: statistics.Scores) -> np.ndarray:
    return np.asarray(statistics.mean(first) - statistics.mean(second))


def _selection(sides: Sequence[Results], task: Task) -> tuple[Selection, Selection] | None:
    both = []
    for side in sides:
        policies = side.evaluated(side.methods[0], task)
        scored = [task.scored(one.last_returns()) for one in policies]
        known = [scores for scores in scored if scores is not None]
        if len(known) < 2:
            return None
        both.append(online_selection(known))
    return both[0], both[1]


def decide(probability: Estimate, p_value: float) -> Outcome:
    """What can be said: both the interval and the permutation test must agree.

    The interval alone would be certain after three runs that happen to beat three others.
    """
    if probability.low is None or probability.high is None:
        return "too few"
    if p_value < SIGNIFICANCE and probability.low > 0.5:
        return "better"
    if p_value < SIGNIFICANCE and probability.high < 0.5:
        return "worse"
    return "not shown"


def sentence(found: Comparison) -> str:
    """The verdict in one plain sentence."""
    better, other = found.first, found.second
    chance, low, high = (None if e is None else float(e) for e in found.probability)
    if found.outcome == "worse" and low is not None and high is not None and chance is not None:
        better, other = other, better
        chance, low, high = 1.0 - chance, 1.0 - high, 1.0 - low
    shown = f"{chance:.2f}" + ("" if low is None else f" [{low:.2f}, {high:.2f}]")
    beats = f"a run of {better} beats a run of {other} with probability {shown}"
    basis = f"{RULES[found.rule]}, {_seeds(found)}"
    if found.outcome == "too few":
        return (
            f"Whether {better} is better than {other} cannot be said with fewer than "
            f"{FEWEST_SEEDS} seeds of each: {beats} ({basis})."
        )
    if found.outcome == "not shown":
        return (
            f"These runs do not show whether {better} is better than {other}: {beats}, and chance "
            f"alone would differ as much with p = {found.p_value:.2g} ({basis}). More seeds tell."
        )
    return f"{better} is better than {other}: {beats}, p = {found.p_value:.2g} ({basis})."


def _seeds(found: Comparison) -> str:
    one, two = (
        sorted({len(values) for values in side})
        for side in ([t.first for t in found.tasks], [t.second for t in found.tasks])
    )
    counts = [str(c[0]) if len(c) == 1 else f"{c[0]} to {c[-1]}" for c in (one, two)]
    tasks = "1 task" if len(found.tasks) == 1 else f"{len(found.tasks)} tasks"
    return f"{counts[0]} against {counts[1]} seeds, {tasks}"


def report(found: Comparison) -> dict[str, Any]:
    """A comparison as JSON values."""
    return {
        "first": found.first,
        "second": found.second,
        "protocol": found.rule,
        "outcome": found.outcome,
        "text": sentence(found),
        "probability_of_improvement": _json(found.probability),
        "p_value": found.p_value,
        "tasks": [
            {
                "task": one.task.name,
                "environment": one.task.environment,
                "quantity": one.task.quantity,
                "first": one.first.tolist(),
                "second": one.second.tolist(),
                "difference": _json(one.difference),
                "probability_of_improvement": _json(one.probability),
                "online_selection": None
                if one.selection is None
                else _tries(one.selection[0].mean, one.selection[1].mean),
            }
            for one in found.tasks
        ],
        "online_selection": None if found.selection is None else _tries(*found.selection),
        "notes": list(found.notes),
    }


def _json(number: Estimate) -> dict[str, float | None]:
    low, high = (None if end is None else float(end) for end in number[1:])
    return {"value": float(number.value), "low": low, "high": high}


def _tries(first: np.ndarray, second: np.ndarray) -> list[dict[str, float]]:
    return [
        {
            "episodes": float(number),
            "first": float(first[number - 1]),
            "second": float(second[number - 1]),
        }
        for number in TRIES
    ]
