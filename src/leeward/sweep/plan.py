"""From what was asked to jobs: what can share a program does, and all of it is checked first."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from leeward import devices
from leeward.algorithms import get_algorithm
from leeward.config import float_fields, from_json, to_json
from leeward.data.dataset import Dataset
from leeward.description import lasting
from leeward.errors import ConfigError
from leeward.forms import fitting_form
from leeward.options import RunOptions, check_options, option_names
from leeward.settings import make_config, preset_settings
from leeward.sweep import combinations
from leeward.sweep.jobs import SweepJob
from leeward.sweep.loading import Loader
from leeward.sweep.request import Request, setting_name
from leeward.train import check_actions, examine, find_environment, make_job
from leeward.types import Algorithm

OWN = ("env", "seeds", "run_dir", "max_time", "quiet")
"""Options of a run that a sweep has itself."""
FIXED = (
    *OWN,
    *("device", "devices", "split", "shard_data", "data_location", "eager", "logger"),
    "ignore_errors",
)
"""Options of a run that are the same in a whole sweep."""
LONGEST_NAME = 80
"""Characters that a folder's name may take from its settings (ours: file systems end at 255)."""


class Task(NamedTuple):
    """One of the data sets."""

    source: str
    dataset: Dataset
    content: str
    """Its hash."""
    environment: Any
    """Where its runs are evaluated, if anywhere."""


class Share(NamedTuple):
    """Settings that share a program."""

    fixed: Mapping[str, Any]
    """Those that no program can vary, and those of one value."""
    varied: tuple[Mapping[str, float], ...]
    """Combinations of the others."""
    label: str
    """What tells it from the algorithm's other shares; empty where there is only one."""


def make_plan(request: Request, loader: Loader, *, here: bool = True) -> list[SweepJob]:
    """The jobs of a sweep, in the order in which they run; nothing is written.

    Args:
        request: what was asked.
        loader: reads the data.
        here: whether they run in this process, so that its devices are theirs.

    Raises:
        LeewardError: an impossible setting, unfit data, or anything else that `train` refuses.
    """
    _check_lists(request)
    env, jobs = request.options.get("env"), list[SweepJob]()
    location = "disk" if request.options.get("data_location") == "disk" else "memory"
    for given in request.datasets:
        source = str(lasting(given))
        ignored = bool(request.options.get("ignore_errors", False))
        dataset = loader.load(source, env, request.data_options, location, strict=not ignored)
        examine(dataset, ignored)
        task = Task(source, dataset, dataset.content_hash(), find_environment(dataset, env))
        folder = _folder_name(source, jobs)
        for name in request.algorithms:
            named = get_algorithm(name)
            algorithm = fitting_form(named, dataset, env, request.data_options)
            check_actions(algorithm, dataset)
            place = f"{algorithm.name.replace('_', '-')}/{folder}"
            if any(job.name.startswith(f"{place}/") or job.name == place for job in jobs):
                raise ConfigError(f"--algorithms names {algorithm.name} twice for {given}")
            for share in _shares(request, named, algorithm):
                made = _make(request, algorithm, share, task, here)
                jobs += _named(made, f"{place}/{share.label}" if share.label else place)
    return jobs


def _check_lists(request: Request) -> None:
    """Raises ConfigError where a list is empty or names something twice."""
    lists = {"algorithms": request.algorithms, "datasets": request.datasets}
    for what, values in lists.items():
        if not values:
            raise ConfigError(f"a sweep needs --{what}, or a file that names {what}")
        keys = [v if Path(v).exists() else setting_name(v.lower()) for v in values]
        twice = [v for v, key in zip(values, keys, strict=True) if keys.count(key) > 1]
        if twice:
            raise ConfigError(f"--{what} names {twice[0]} twice")
    if request.runs_per_job < 0:
        raise ConfigError(f"--runs-per-job must be 0 (all) or more, got {request.runs_per_job}")
    env = request.options.get("env")
    if env is not None and not isinstance(env, str):
        raise ConfigError("a sweep's env must be an environment's id: other processes make it")
    refused = [name for name in OWN if name in request.options and name != "env"]
    if refused:
        raise ConfigError(f"'{refused[0]}' is no option of a sweep's runs")


def _shares(request: Request, named: Algorithm, algorithm: Algorithm) -> list[Share]:
    """The settings of an algorithm, those that share a program together."""
    floats = float_fields(algorithm.config_type)
    try:
        found = combinations.of_algorithm(request, named, algorithm, _sweepable())
    except ConfigError as error:
        raise _from_file(request, error) from error
    varying = {name for name in found[0] if len({_text(c[name]) for c in found}) > 1}
    together = varying.intersection(floats)
    groups: dict[str, list[dict[str, Any]]] = {}
    for combination in found:
        apart = {n: v for n, v in combination.items() if n not in together}
        groups.setdefault(_text(apart), []).append(combination)
    shares = [
        Share(
            fixed={n: v for n, v in members[0].items() if n not in together},
            varied=tuple({n: member[n] for n in member if n in together} for member in members),
            label=_label({n: members[0][n] for n in members[0] if n in varying - together}),
        )
        for members in groups.values()
    ]
    labels = {share.label for share in shares}
    if len(labels) == len(shares) and max(map(len, labels)) <= LONGEST_NAME:
        return shares
    return [share._replace(label=f"settings-{n}") for n, share in enumerate(shares, 1)]


def _make(
    request: Request, algorithm: Algorithm, share: Share, task: Task, here: bool
) -> Iterator[SweepJob]:
    """The jobs of one share, checked as `train` checks them; they have no name yet."""
    names = option_names()
    varied = {name: [row[name] for row in share.varied] for name in share.varied[0]}
    values = {**share.fixed, **varied}
    given = {name: values.pop(name) for name in list(values) if name in names}
    try:
        _check_numbers(share.varied)
        config, _ = make_config(algorithm, request.preset, values, sorted(names), task.source)
        options = {
            **preset_settings(algorithm, request.preset, task.source).options,
            **request.options,
            **given,
            "quiet": True,
        }
        seeds = tuple(int(seed) for seed in request.seeds)
        checked = from_json(RunOptions, {**options, "seeds": seeds})
        check_options(checked)
    except ConfigError as error:
        raise _from_file(request, error) from error
    rows = [(seed, {n: float(v) for n, v in s.items()}) for s in share.varied for seed in seeds]
    size = request.runs_per_job or len(rows)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        own = dataclasses.replace(config, **part[0][1])
        chosen = dataclasses.replace(checked, seeds=tuple(dict.fromkeys(seed for seed, _ in part)))
        job = make_job(algorithm, own, None, chosen, task.dataset, task.environment, rows=part)
        if here:
            devices.place(job)  # refuses devices that are not there
        elif chosen.devices is not None:
            devices.check_split(job, chosen.devices)
        yield SweepJob(
            name="",
            algorithm=algorithm.name,
            source=task.source,
            data_hash=task.content,
            data_options=_plain(request.data_options),
            config=_plain(to_json(own)),
            options=_plain(dataclasses.asdict(chosen)),
            runs=[{"seed": seed, **settings} for seed, settings in part],
            phases=[
                [phase.name, job.phase_steps(index)] for index, phase in enumerate(algorithm.phases)
            ],
        )


def _check_numbers(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raises ConfigError where a setting that a program varies is no number."""
    for name, value in (item for row in rows for item in row.items()):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"setting '{name}' must be a number, got {value!r}")


def _named(jobs: Iterator[SweepJob], place: str) -> list[SweepJob]:
    """The parts of one share, numbered where there are several."""
    parts = list(jobs)
    if len(parts) == 1:
        return [dataclasses.replace(parts[0], name=place)]
    return [
        dataclasses.replace(part, name=f"{place}/part-{number}")
        for number, part in enumerate(parts, 1)
    ]


def _sweepable() -> list[str]:
    """Options of a run that may differ within a sweep."""
    return [name for name in option_names() if name not in FIXED]


def _folder_name(source: str, jobs: Sequence[SweepJob]) -> str:
    """A folder for the data set, with a number where another of that name came before."""
    path = Path(source)
    name = path.stem if path.expanduser().exists() else str(source)
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "data"
    taken = {job.name.split("/")[1] for job in jobs}
    numbers = itertools.count(2)
    found = safe
    while found in taken:
        found = f"{safe}-{next(numbers)}"
    return found


def _label(settings: Mapping[str, Any]) -> str:
    """A folder for settings, such as hidden-64x64."""
    words = []
    for name, value in settings.items():
        text = "x".join(map(str, value)) if isinstance(value, list) else str(value)
        safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in text)
        words.append(f"{name.replace('_', '-')}-{safe}")
    return ",".join(words)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    return json.loads(json.dumps(value))


def _from_file(request: Request, error: ConfigError) -> ConfigError:
    """The error, with the file that the settings come from."""
    return ConfigError(f"{request.origin}: {error}") if request.origin else error
