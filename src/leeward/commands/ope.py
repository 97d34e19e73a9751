"""`leeward ope RUN… DATASET`: what trained policies are worth, from logged data alone."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from leeward.backend import prepare_jax
from leeward.commands.parsing import DataOptions, flags_of, load_arguments, parse, pick
from leeward.data.dataset import Dataset
from leeward.errors import CheckpointError, ConfigError
from leeward.forms import read
from leeward.ope.candidates import candidates, find_places
from leeward.ope.estimation import estimate
from leeward.ope.options import OpeOptions, check_options
from leeward.ope.report import ESTIMATORS, Estimate, Report
from leeward.ope.targets import Target, weights_are_finite
from leeward.options import RunOptions
from leeward.policy import load_policy
from leeward.progress import View
from leeward.run import ESTIMATES
from leeward.whole_files import write_whole


@dataclass(frozen=True)
class OpeCommandOptions:
    """Flags of `ope` that are about the command."""

    policies: Literal["both", "last", "best", "all"] = "both"
    """Which policies of a run: the last and the best of every seed (both), one of them, or all
    checkpoints too."""
    stochastic: bool = False
    """Value policies that have a density as they sample their actions, not by their deterministic
    ones."""
    behavior: str | None = None
    """A run or saved policy with a density (such as BC with --density mixture) that made the data;
    default one that is fitted to the data."""
    env: str | None = None
    """The environment the data comes from, for its action box."""
    out: str | None = None
    """Write everything as JSON to this file, or as ope.json into this folder; leeward report shows
    an ope.json that lies in a run directory or beside the runs."""
    csv: str | None = None
    """Write one line a policy and estimator to this file."""
    json: bool = False
    """Print everything as JSON."""
    quiet: bool = False
    """No progress view."""
    device: Literal["cpu", "gpu", "tpu"] | None = None
    """Where to compute; default the fastest there is."""


def main(arguments: list[str]) -> int:
    """Prints the ranking."""
    mark = tyro.conf.arg(
        help="run directories or saved policies, then the data set", metavar="RUN… DATASET"
    )
    parsed = parse(
        [
            ("runs", Annotated[tyro.conf.Positional[tuple[str, ...]], mark], ()),
            *flags_of(OpeCommandOptions),
            *flags_of(OpeOptions),
            *flags_of(DataOptions),
        ],
        arguments,
        prog="leeward ope",
        description="Estimates what trained policies are worth from logged data, and ranks them.",
    )
    if len(parsed.runs) < 2:
        raise ConfigError(
            "name one run or more, then the data set: leeward ope RUN… DATASET (leeward list "
            "datasets shows the names)"
        )
    targets = _files(parsed)
    report = _report(parsed)
    text = {"out": json.dumps(report.to_json(), indent=1) + "\n", "csv": report.to_csv()}
    for flag, path in targets.items():
        _write(flag, path, text[flag])
    if parsed.json:
        print(json.dumps(report.to_json()))  # noqa: T201
    else:
        show(report)
    return 0


def _files(parsed: Any) -> dict[str, Path]:
    """Flag → the file that it asks for.

    Raises:
        ConfigError: its folder does not exist.
    """
    found = {}
    for flag in ("out", "csv"):
        given = getattr(parsed, flag)
        if given is None:
            continue
        path = Path(given)
        if flag == "out" and path.is_dir():
            path = path / ESTIMATES
        if not path.parent.is_dir():
            raise ConfigError(f"--{flag} {given}: there is no folder {path.parent}")
        found[flag] = path
    return found


def _report(parsed: Any) -> Report:
    """The estimates that were asked for."""
    options = pick(OpeOptions, parsed)
    check_options(options)
    prepare_jax(RunOptions(device=parsed.device))
    behavior = None if parsed.behavior is None else load_policy(parsed.behavior)
    dataset = read(parsed.runs[-1], parsed.env, load_arguments(pick(DataOptions, parsed)))
    targets, notes = _targets(parsed, dataset)
    view = View(None, parsed.quiet or parsed.json)
    try:
        report = estimate(
            dataset, targets, options, behavior=behavior, on_progress=Progress(view).show
        )
    finally:
        view.close()
    chosen = [f"--behavior: {behavior.note}"] if behavior is not None and behavior.note else []
    return dataclasses.replace(report, notes=(*report.notes, *notes, *chosen))


class Progress:
    """Shows how far the fits are."""

    def __init__(self, view: View) -> None:
        self._view, self._what, self._begin = view, "", 0.0

    def show(self, what: str, done: int, total: int) -> None:
        """`done` of `total` updates."""
        if what != self._what:
            self._view.start(what, 0, total)
            self._what, self._begin = what, time.monotonic()
        self._view.advance(done, done / max(time.monotonic() - self._begin, 1e-3))


def _targets(parsed: Any, dataset: Dataset) -> tuple[list[Target], list[str]]:
    """What every policy does on the data, and notes on what is left out."""
    places = find_places(parsed.runs[:-1])
    targets, notes = [], list(places.left_out)
    for name, policy in candidates(places.paths, parsed.policies):
        if not weights_are_finite(policy.policy):
            notes.append(f"{name} is left out: its training diverged")
            continue
        sampling = parsed.stochastic and policy.has_density
        targets.append(Target.of_policy(name, policy, dataset, stochastic=sampling))
        if parsed.stochastic:
            how = "as it samples" if sampling else "by its deterministic action: it has no density"
            notes.append(f"{name} is valued {how}")
    if not targets:
        raise CheckpointError(f"no policy is left to evaluate: {'; '.join(notes)}")
    return targets, notes


def show(report: Report) -> None:
    """The table, what can be relied on, and where estimators agree."""
    console = Console(width=None if Console().is_terminal else 160)
    table = Table(
        title=f"{report.data}: discounted return from {report.episodes:,} first states "
        f"(discount {report.discount:g})",
        caption="value (rank), 95 % interval; ? means: do not trust, see below",
    )
    table.add_column("policy")
    for name in ESTIMATORS:
        table.add_column(name, justify="right")
    ranks = {name: report.ranks(name) for name in ESTIMATORS}
    for i in report.order():
        policy = report.policies[i]
        cells = [_cell(policy.estimates[n], int(ranks[n][i])) for n in ESTIMATORS]
        table.add_row(policy.name, *cells)
    console.print(table)
    lines = [f"the data's own: {_plain(report.behavior)}"]
    lines += [report.policies[i].sentence for i in report.order()]
    agreement = ", ".join(f"{a}/{b} {tau:+.2f}" for (a, b), tau in report.agreement().items())
    if agreement:
        lines.append(f"agreement of ranks (Kendall's tau): {agreement}")
    lines += [f"note: {note}" for note in report.notes]
    if len(report.policies) > 1:
        lines.append(report.verdict())
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _cell(estimate: Estimate, rank: int) -> str:
    if estimate.value is None:
        return "–"
    mark = "" if estimate.trusted else "?"
    first = f"{estimate.value:.4g}{mark} ({rank})"
    if estimate.interval is None:
        return first
    return f"{first}\n{estimate.interval[0]:.4g}–{estimate.interval[1]:.4g}"


def _plain(estimate: Estimate) -> str:
    if estimate.value is None:
        return f"not known ({'; '.join(estimate.reasons)})"
    text = f"{estimate.value:.4g}"
    if estimate.interval is not None:
        text += f" [{estimate.interval[0]:.4g}, {estimate.interval[1]:.4g}]"
    return text + (f" ({'; '.join(estimate.reasons)})" if estimate.reasons else "")


def _write(flag: str, path: Path, text: str) -> None:
    """Writes the file whole or not at all."""
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise ConfigError(
            f"--{flag} {path} cannot be written ({error.strerror}): choose another file"
        ) from error
