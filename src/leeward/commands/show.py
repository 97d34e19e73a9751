"""What commands print: tables on standard output."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table

from leeward.run import Run


def run_table(run: Run) -> None:
    """The result of a run: every seed's last and best evaluation, and what to type next."""
    console = Console()
    evaluations = run.evaluations()
    if evaluations:
        console.print(evaluation_table(run))
    else:
        console.print(
            "not evaluated: the data name no environment (or --eval-every is 0); "
            "--env ID evaluates in one"
        )
    state = "" if run.finished else " (not finished)"
    console.print(f"run{state}: {run.directory}", soft_wrap=True, highlight=False)
    next_steps = f"next: leeward evaluate {run.directory} --episodes 100"
    console.print(
        next_steps if evaluations else f"next: leeward train --resume {run.directory} --steps …",
        soft_wrap=True,
        highlight=False,
    )


def evaluation_table(run: Run) -> Table:
    """One row a run: last and best evaluation, beside the mean return of the data."""
    data = run.config["data"]
    mean = data["return_mean"]
    table = Table(
        title=f"{run.algorithm.replace('_', '-')} on {data['name']} "
        f"(mean return of the data: {'not known' if mean is None else f'{mean:.1f}'})"
    )
    evaluations = run.evaluations()
    scored = all(row["score_mean"] is not None for row in evaluations)
    names = [name for name in run.table[0] if name != "run"]
    for name in names:
        table.add_column(name, justify="right")
    for name in ("last return", "best return", *(("last score",) if scored else ())):
        table.add_column(name, justify="right")
    last, best = run.returns(), run.returns("best")
    for i, row in enumerate(run.table):
        cells = [f"{row[name]:g}" for name in names] + [f"{last[i]:.1f}", f"{best[i]:.1f}"]
        table.add_row(*cells, *([f"{run.scores()[i]:.1f}"] if scored else []))
    return table


def returns_row(returns: np.ndarray) -> str:
    """Mean ± standard deviation, with the range."""
    return (
        f"{returns.mean():.1f} ± {returns.std():.1f} "
        f"(least {returns.min():.1f}, most {returns.max():.1f})"
    )
