"""`train` and `resume`: from a data set and an algorithm's name to a finished run directory."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from leeward import loop, run
from leeward.algorithms import get_algorithm
from leeward.backend import prepare_jax
from leeward.config import from_json, to_json
from leeward.data.checks import Report, inspect
from leeward.data.dataset import Dataset, best_episodes
from leeward.data.mapped import INSPECTED_BYTES, is_on_disk, leading_part
from leeward.data.sampling import check_sampling
from leeward.data.transforms import reward_transform
from leeward.description import describe
from leeward.devices import place
from leeward.environments import check_matches, environment_spec
from leeward.errors import ConfigError, DataError
from leeward.forms import Location, fitting_form, read
from leeward.job import Job
from leeward.options import RunOptions, check_options, option_names
from leeward.run import Run
from leeward.saving import check_goes_on
from leeward.settings import check_networks, make_config, preset_settings
from leeward.streaming import check_streams
from leeward.types import Algorithm, Box

OnMetrics = Callable[[Mapping[str, Any]], None]


def train(
    algorithm: str,
    data: str | Path | Dataset,
    *,
    env: str | Callable[[], Any] | None = None,
    seeds: Sequence[int] = (0,),
    run_dir: str | Path | None = None,
    preset: str | None = None,
    on_metrics: OnMetrics | None = None,
    data_options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Run:
    """Trains one run for every seed (and combination of settings) in one compiled program.

    Args:
        algorithm: its name, such as "fisher_brc"; where the data has discrete actions, "bcq" and
            the like mean their discrete form, here "discrete_bcq".
        data: a name, a path, a URL or a `Dataset`.
        env: where to evaluate: a Gymnasium id or a callable that makes an environment; default
            the one that the data names, if any.
        seeds: one run a seed.
        run_dir: where the run is kept; default runs/DATASET/ALGORITHM-TIME.
        preset: a named set of settings: one of the algorithm's own, such as "reference", or one
            that a paper published for this data set, such as "paper".
        on_metrics: called with every line of metrics.
        data_options: arguments of `load_dataset` that JSON can hold (`columns` as a mapping).
        settings: fields of the algorithm's `Config` and of `RunOptions`. A float field may be a
            list of values: all combinations are trained, beside the seeds.

    Returns:
        The finished run (unfinished only where `max_time` ran out).

    Raises:
        LeewardError: bad input; nothing was written.
        KeyboardInterrupt: interrupted; the run was saved and can be resumed.

    Example:
        >>> run = leeward.train("td3_bc", "pendulum.hdf5", seeds=range(3), steps=10_000)
        >>> run.scores()
    """
    location = "disk" if settings.get("data_location") == "disk" else "memory"
    strict = not settings.get("ignore_errors", False)
    chosen = fitting_form(
        get_algorithm(algorithm), data, env, data_options or {}, location, strict=strict
    )
    names = set(option_names()) - {"env", "seeds", "run_dir"}
    given = {name: settings.pop(name) for name in list(settings) if name in names}
    options = from_json(
        RunOptions,
        dict(preset_settings(chosen, preset, data).options)
        | given
        | {
            "env": env if isinstance(env, str) else None,
            "seeds": tuple(int(seed) for seed in seeds),
            "run_dir": None if run_dir is None else str(run_dir),
        },
    )
    check_options(options)
    config, swept = make_config(chosen, preset, settings, sorted(names), data)
    prepare_jax(options)
    dataset = load(
        chosen,
        data,
        env or options.env,
        data_options or {},
        options.data_location,
        strict=strict,
    )
    report = examine(dataset, options.ignore_errors)
    environment = find_environment(dataset, env)
    job = make_job(chosen, config, swept, options, dataset, environment)
    place(job)  # refuses devices that are not there
    directory = (
        Path(options.run_dir)
        if options.run_dir
        else run.default_directory(str(dataset.metadata.get("name", "data")), chosen.name)
    )
    begin(job, directory, describe(job, data, data_options or {}, report), on_metrics)
    return Run(directory)


def begin(
    job: Job, directory: Path, description: Mapping[str, Any], on_metrics: OnMetrics | None = None
) -> None:
    """Trains a job in a new run directory, whose config.json is `description`."""
    with run.locked(directory):
        run.create(directory, description)
        with eager(job.options.eager):
            loop.run(job, directory, on_metrics)


def resume(
    run_dir: str | Path,
    *,
    data: Dataset | None = None,
    env: Callable[[], Any] | None = None,
    steps: int | None = None,
    extend_schedule: bool = False,
    max_time: str | None = None,
    devices: int | None = None,
    quiet: bool = False,
    on_metrics: OnMetrics | None = None,
) -> Run:
    """Continues a killed, interrupted or finished run from its last checkpoint.

    Args:
        run_dir: the run's directory.
        data: the data set, where the run was trained on one made in Python.
        env: the environment, where the run was given a callable.
        steps: a new number of updates of the last phase, to train on.
        extend_schedule: let learning-rate schedules end at the new `steps`; else they keep the
            horizon of the run's first start.
        max_time: stop and save after this long.
        devices: how many devices share the work; default as the run was started.
        quiet: no progress view.
        on_metrics: called with every line of metrics.

    Raises:
        LeewardError: no run, a run in use, other data than it was trained on.
    """
    directory = Path(run_dir)
    saved = Run(directory).config
    if "origin" in saved:
        if extend_schedule:
            raise ConfigError(f"{directory} is a fine-tuned run, which has no schedule to extend")
        if devices is not None:
            raise ConfigError(f"{directory} is a fine-tuned run, which uses one device")
        from leeward.finetune import resume as resume_finetuning  # it builds on this module

        return resume_finetuning(
            directory,
            data=data,
            env=env,
            steps=steps,
            max_time=max_time,
            quiet=quiet,
            on_metrics=on_metrics,
        )
    algorithm = get_algorithm(saved["algorithm"])
    config = from_json(algorithm.config_type, saved["config"])
    if extend_schedule and steps is None:
        raise ConfigError("--extend-schedule needs --steps: the new end of the schedule")
    if steps is not None and steps < 1:
        raise ConfigError(f"--steps must be at least 1, got {steps}")
    if extend_schedule:
        config = dataclasses.replace(config, steps=steps)
    fields = dict(saved["options"], max_time=max_time, quiet=quiet, run_dir=str(directory))
    if devices is not None:
        fields["devices"] = devices
    options = from_json(RunOptions, fields)
    check_options(options)
    prepare_jax(options)
    dataset = load_again(directory, saved, data, env or saved["environment"], "resume")
    environment = env if env is not None else saved["environment"]
    job = make_job(algorithm, config, None, options, dataset, environment)
    job = with_runs(job, saved["runs"], steps if steps is not None else saved["steps"])
    check_unchanged(directory, saved, job)
    if steps is not None:
        check_goes_on(job, directory)
    place(job)  # refuses devices that are not there
    with run.locked(directory):
        extended = saved | {"steps": job.steps, "config": to_json(config)}
        if steps is not None:
            extended["extensions"] = [
                *saved.get("extensions", []),
                {"steps": steps, "extend_schedule": extend_schedule},
            ]
            run.write_json(directory / "config.json", extended)
        with eager(options.eager):
            loop.run(job, directory, on_metrics)
    return Run(directory)


def load_again(
    directory: Path,
    saved: Mapping[str, Any],
    data: Dataset | None,
    env: str | Callable[[], Any] | None,
    verb: str,
) -> Dataset:
    """The data set that a run was trained on.

    Args:
        directory: the run's.
        saved: its config.json.
        data: the data set where it was made in Python; else it is read as it was then.
        env: the environment that gives the action box.
        verb: what is done with the run, for the error.

    Raises:
        DataError: it cannot be read, or it was made in Python and is not given.
    """
    source = data if data is not None else saved["data"]["source"]
    if source is None:
        raise DataError(
            f"{directory} was trained on a data set made in Python: {verb} it there with data=…"
        )
    options = {} if data is not None else saved["data"]["options"]
    location = saved["options"].get("data_location", "memory")
    strict = not saved["options"].get("ignore_errors", False)
    return load(get_algorithm(saved["algorithm"]), source, env, options, location, strict=strict)


def with_runs(job: Job, rows: Sequence[Mapping[str, Any]], steps: int) -> Job:
    """The job with the runs of a config.json's table."""
    swept = [{name: row[name] for name in row if name not in ("run", "seed")} for row in rows]
    return dataclasses.replace(
        job, seeds=tuple(row["seed"] for row in rows), settings=tuple(swept), steps=steps
    )


def check_unchanged(directory: Path, saved: Mapping[str, Any], job: Job) -> None:
    """Raises DataError where the job's data are not those of the run's config.json."""
    if job.dataset_hash != saved["data"]["hash"]:
        raise DataError(
            f"{directory} was trained on other data than {saved['data']['name']} holds now: put "
            "the old file back, or start a new run"
        )


def load(
    algorithm: Algorithm,
    data: str | Path | Dataset,
    env: str | Callable[[], Any] | None,
    data_options: Mapping[str, Any],
    location: Location = "memory",
    *,
    strict: bool = True,
) -> Dataset:
    """The data set, its action box taken from the environment where one was named.

    Without `strict` faults of values are left to the data doctor.

    Raises:
        DataError: it cannot be read, or its actions are of a kind that the algorithm cannot learn.
    """
    dataset = read(data, env, data_options, location, strict=strict)
    check_actions(algorithm, dataset)
    return dataset


def check_actions(algorithm: Algorithm, dataset: Dataset) -> None:
    """Raises DataError where the algorithm cannot learn actions of the data's kind."""
    kind = "continuous" if isinstance(dataset.action_space, Box) else "discrete"
    if kind not in algorithm.actions:
        from leeward.algorithms import ALGORITHMS

        fitting = {  # bc for discrete_bc: a name stands for the form that the data ask for
            name.removeprefix("discrete_").replace("_", "-")
            for name, other in ALGORITHMS.items()
            if kind in other.actions
        }
        raise DataError(
            f"{algorithm.name.replace('_', '-')} needs {' or '.join(algorithm.actions)} actions, "
            f"but those of {dataset.metadata.get('name', 'the data')} are {kind}: "
            f"try {', '.join(sorted(fitting))}"
        )


def examine(dataset: Dataset, ignore_errors: bool) -> Report:
    """The data doctor's report, which the run keeps; of data on disk, that of a first part.

    Raises:
        DataError: it found errors, and they are not to be ignored; or there is no transition.
    """
    report = inspect(leading_part(dataset, INSPECTED_BYTES) if is_on_disk(dataset) else dataset)
    if dataset.transitions == 0:
        raise DataError(
            f"{report.name} has no transition to learn from: store next observations, or longer "
            "episodes"
        )
    if report.errors and not ignore_errors:
        first = report.errors[0]
        raise DataError(
            f"{report.name}: {first.message} [{first.code}]. {first.remedy}. `leeward inspect` "
            f"shows all {len(report.errors)} errors; --ignore-errors trains all the same"
        )
    return report


def find_environment(
    dataset: Dataset, env: str | Callable[[], Any] | None
) -> str | Callable[[], Any] | None:
    """The environment to evaluate in: the one given, or the one that the data names."""
    environment = env if env is not None else dataset.metadata.get("env")
    if environment is not None:
        check_matches(dataset.spec, dataset.metadata, environment_spec(environment))
    return environment


def make_job(
    algorithm: Algorithm,
    config: Any,
    swept: Mapping[str, list[float]] | None,
    options: RunOptions,
    dataset: Dataset,
    environment: str | Callable[[], Any] | None,
    *,
    rows: Sequence[tuple[int, Mapping[str, float]]] | None = None,
) -> Job:
    """Everything the training loop needs, with one row for every seed and combination.

    Args:
        algorithm: what is trained.
        config: its settings.
        swept: values of float settings, all combinations of which are trained with every seed.
        options: of the run.
        dataset: what it is trained on.
        environment: where it is evaluated.
        rows: seed and settings of every run, in place of those combinations.
    """
    logged = dataset if options.select == "ope" else None
    if options.best_fraction < 1.0:
        dataset = best_episodes(dataset, options.best_fraction)
    dataset = reward_transform(
        dataset, options.reward_transform, options.reward_scale, options.reward_shift
    )
    check_sampling(dataset, config.sampling, config.batch_size, getattr(config, "n_step", 1))
    check_networks(algorithm, config, dataset)
    swept = swept or {}
    combinations: list[Mapping[str, float]] = [
        dict(zip(swept, values, strict=True)) for values in itertools.product(*swept.values())
    ]
    if rows is None:
        rows = [(seed, setting) for setting in combinations for seed in options.seeds]
    if algorithm.check is not None:
        different = {tuple(setting.items()): setting for _, setting in rows}
        for setting in different.values():
            algorithm.check(dataclasses.replace(config, **setting), dataset)
    job = Job(
        algorithm=algorithm,
        config=config,
        settings=tuple(setting for _, setting in rows),
        seeds=tuple(seed for seed, _ in rows),
        steps=config.steps,
        options=options,
        dataset=dataset,
        environment=environment,
        logged=logged,
    )
    if options.data_location == "disk":
        check_streams(job)
    return job


@contextlib.contextmanager
def eager(enabled: bool) -> Iterator[None]:
    """Runs without compilation where `enabled`."""
    with jax.disable_jit() if enabled else contextlib.nullcontext():
        yield
