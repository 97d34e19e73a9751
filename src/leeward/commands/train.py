"""`leeward train ALGORITHM DATASET [flags]` and `leeward train --resume RUN`."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leeward.algorithms import ALGORITHMS, form_for, get_algorithm, has_discrete_form, installed
from leeward.commands.parsing import DataOptions, flags_of, load_arguments, parse, pick, positional
from leeward.commands.show import run_table
from leeward.errors import ConfigError
from leeward.options import RunOptions, option_names
from leeward.run import all_combinations
from leeward.settings import depends_on_data, preset_settings
from leeward.types import Algorithm, Discrete


@dataclass(frozen=True)
class TrainOptions:
    """Flags of `train` that are about the command, not the run."""

    preset: str | None = None
    """A named set of settings, such as paper: what was published for this algorithm and data set
    (leeward list algorithms names them all); flags given beside it win."""
    config: str | None = None
    """A JSON file of settings, such as a run's config.json; flags given beside it win."""
    epochs: int | None = None
    """Length of the last phase in epochs, in place of --steps."""
    steps_per_epoch: int = 1_000
    """Updates of an epoch, with --epochs."""
    print_config: bool = False
    """Print all settings as JSON and train nothing."""


@dataclass(frozen=True)
class ResumeOptions:
    """Flags of `train --resume`."""

    resume: str
    """The run directory to continue."""
    steps: int | None = None
    """A new number of updates of the last phase, to train on."""
    extend_schedule: bool = False
    """Let learning-rate schedules end at the new --steps; else they keep their first horizon."""
    max_time: str | None = None
    """Stop and save after this long (90s, 30m, 2h)."""
    devices: int | None = None
    """How many devices share the work; default as the run was started."""
    quiet: bool = False
    """No progress view."""


def main(arguments: list[str]) -> int:
    """Trains a new run or continues one."""
    if any(a.split("=")[0] == "--resume" for a in arguments):
        return _resume(arguments)
    if not arguments or arguments[0].startswith("-"):
        return _usage(arguments)
    algorithm = get_algorithm(arguments[0])
    if has_discrete_form(algorithm) and not {"-h", "--help"}.intersection(arguments):
        algorithm = _form(algorithm, arguments[1:])
    prog = f"leeward train {algorithm.name.replace('_', '-')}"
    early, _ = _early_parser().parse_known_args(arguments[1:])

    def parsed_with(defaults: Mapping[str, Any]) -> Any:
        return parse(
            [
                positional(
                    "dataset", "a name (leeward list datasets), a path, an address or an id"
                ),
                *flags_of(RunOptions, defaults),
                *flags_of(TrainOptions, defaults),
                *flags_of(algorithm.config_type, defaults, several=True),
                *flags_of(DataOptions, defaults),
            ],
            arguments[1:],
            prog=prog,
            description=_description(algorithm),
        )

    dataset = None
    if depends_on_data(algorithm, early.preset):  # the data set may stand behind any flag
        dataset = parsed_with({}).dataset
    parsed = parsed_with(_defaults(algorithm, early.preset, early.config, dataset))
    settings = {f.name: getattr(parsed, f.name) for f in dataclasses.fields(algorithm.config_type)}
    if parsed.epochs is not None:
        settings["steps"] = parsed.epochs * parsed.steps_per_epoch
    if parsed.print_config:
        print(json.dumps({"algorithm": algorithm.name, "config": settings}, indent=1))  # noqa: T201
        return 0
    from leeward.train import train  # what follows needs the whole engine

    options = dataclasses.asdict(pick(RunOptions, parsed))
    run = train(
        algorithm.name,
        parsed.dataset,
        env=options.pop("env"),
        seeds=options.pop("seeds"),
        run_dir=options.pop("run_dir"),
        data_options=load_arguments(pick(DataOptions, parsed)),
        **options,
        **settings,
    )
    if not parsed.quiet:
        run_table(run)
    return 0


def _form(algorithm: Algorithm, arguments: Sequence[str]) -> Algorithm:
    """The form of the algorithm that the data set asks for; flags of either are understood."""
    flags = {
        flag[0]: flag
        for form in (form_for(algorithm, Discrete(1)), algorithm)
        for flag in flags_of(form.config_type, several=True)
    }
    parsed = parse(
        [
            positional("dataset", "a data set"),
            *flags_of(RunOptions),
            *flags_of(TrainOptions),
            *flags.values(),
            *flags_of(DataOptions),
        ],
        arguments,
        prog=f"leeward train {algorithm.name.replace('_', '-')}",
        description=_description(algorithm),
    )
    from leeward.forms import fitting_form  # what follows reads data

    options = load_arguments(pick(DataOptions, parsed))
    form = fitting_form(
        algorithm,
        parsed.dataset,
        parsed.env,
        options,
        parsed.data_location,
        strict=not parsed.ignore_errors,
    )
    if form is not algorithm and not (parsed.quiet or parsed.print_config):
        name = form.name.replace("_", "-")
        print(f"actions are discrete: {algorithm.name} is {name} here")  # noqa: T201
    return form


def _resume(arguments: Sequence[str]) -> int:
    parsed = parse(
        flags_of(ResumeOptions),
        arguments,
        prog="leeward train --resume RUN",
        description="Continues a killed, interrupted or finished run from its last checkpoint.",
    )
    from leeward.train import resume

    run = resume(
        parsed.resume,
        steps=parsed.steps,
        extend_schedule=parsed.extend_schedule,
        max_time=parsed.max_time,
        devices=parsed.devices,
        quiet=parsed.quiet,
    )
    if not parsed.quiet:
        run_table(run)
    return 0


def _usage(arguments: Sequence[str]) -> int:
    names = ", ".join(name.replace("_", "-") for name in sorted([*ALGORITHMS, *installed()]))
    text = (
        "usage: leeward train ALGORITHM DATASET [flags]\n"
        "       leeward train --resume RUN [--steps N]\n\n"
        f"algorithms: {names}\n\n"
        "leeward train ALGORITHM --help lists the flags with their defaults and sources."
    )
    if arguments and arguments[0] in ("-h", "--help"):
        print(text)  # noqa: T201
        return 0
    raise ConfigError(
        f"name an algorithm first: leeward train ALGORITHM DATASET. Algorithms: {names}"
    )


def _early_parser() -> argparse.ArgumentParser:
    """Finds the two flags that other flags' defaults depend on."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset")
    parser.add_argument("--config")
    return parser


def _defaults(
    algorithm: Algorithm, preset: str | None, file: str | None, dataset: str | None
) -> dict[str, Any]:
    """What flags default to: a file's settings over a preset's over the algorithm's own."""
    chosen = preset_settings(algorithm, preset, dataset)
    values: dict[str, Any] = {**chosen.config, **chosen.options}
    if file is not None:
        values |= _read_config(algorithm, Path(file))
    return values


def _read_config(algorithm: Algorithm, path: Path) -> dict[str, Any]:
    """The settings and options of a JSON file: flat, or a run's config.json."""
    try:
        saved = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"--config {path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"--config {path}: not valid JSON ({error})") from error
    if not isinstance(saved, Mapping):
        raise ConfigError(f"--config {path}: must hold one JSON object of settings")
    if saved.get("algorithm", algorithm.name) != algorithm.name:
        raise ConfigError(
            f"--config {path} is of {saved['algorithm']}, not of {algorithm.name}: name that "
            "algorithm"
        )
    values = dict(saved.get("config", saved))
    values.pop("algorithm", None)
    if "runs" in saved:  # a run's config.json: its swept settings and options too
        for name in saved["runs"][0]:
            if name not in ("run", "seed"):
                values[name] = list(dict.fromkeys(row[name] for row in saved["runs"]))
        if not all_combinations(saved["runs"]):
            raise ConfigError(
                f"--config {path}: its runs are a part of a sweep, not all combinations of their "
                "settings: repeat the sweep"
            )
        values |= {n: v for n, v in saved["options"].items() if n not in ("run_dir", "max_time")}
    known = {f.name for f in dataclasses.fields(algorithm.config_type)} | set(option_names())
    for name in values:
        if name not in known:
            raise ConfigError(f"--config {path}: unknown setting '{name}'")
    return values


def _description(algorithm: Algorithm) -> str:
    module = inspect.getmodule(algorithm.init)
    text = (module.__doc__ or "") if module else ""
    return text.split("\n\n")[0].replace("\n", " ")
