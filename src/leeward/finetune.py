"""Offline to online: a trained run goes on learning in its environment, with mixed replay.

Updates are those of the algorithm's last phase, on batches of the data and of what the run sees
(replay_mixed.py); critics, targets, optimizers and the observation map are those of its last
checkpoint. Sources: symmetric sampling, Ball et al., "Efficient Online Reinforcement Learning with
Offline Data" (RLPD), 2023, arXiv 2302.02948, and Cal-QL, arXiv 2303.05479 (mixing ratio 0.5);
appended replay, IQL's train_finetune.py; α's course, Beeson & Montana, "Improving TD3-BC", 2022,
arXiv 2211.11802.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from leeward import checkpoint, engine, finetune_loop, run
from leeward.algorithms import ALGORITHMS, get_algorithm
from leeward.backend import prepare_jax
from leeward.config import from_json
from leeward.data.dataset import Dataset
from leeward.data.sampling import Scaling, to_device
from leeward.data.transforms import RewardMap, fit_reward_map
from leeward.description import versions
from leeward.environments import EnvironmentSource
from leeward.errors import CheckpointError, ConfigError
from leeward.finetune_job import Start
from leeward.job import Job
from leeward.loop import OnMetrics
from leeward.options import RunOptions, check_options
from leeward.policy import load_policies
from leeward.replay_mixed import Mixture, Way
from leeward.run import Run
from leeward.saving import Keeper
from leeward.train import (
    check_unchanged,
    find_environment,
    load_again,
    make_job,
    with_runs,
)
from leeward.types import Algorithm


@dataclass(frozen=True)
class FinetuneOptions:
    """How a run goes on online. Fields become flags."""

    env: str | None = None
    """Gymnasium environment to act and evaluate in; default the one that the run was evaluated in,
    or that its data name."""
    steps: int = 100_000
    """Steps in the environment, of every run."""
    replay: Literal["mixed", "appended"] = "mixed"
    """mixed: a fixed share of every batch comes from the data (RLPD, Cal-QL); appended: batches are
    drawn evenly from the data and all that was seen (IQL's own code)."""
    offline_fraction: float = 0.5
    """That share, of mixed replay: 0.5 is RLPD's and Cal-QL's."""
    updates_per_step: int = 1
    """Updates after every step (UTD ratio)."""
    alpha_end: float | None = None
    """TD3+BC: the alpha to which the run's own goes geometrically over the steps (arXiv 2211.11802
    halves the weight of cloning: from 2.5 to 5); default: it stays."""
    run_dir: str | None = None
    """Where the run is kept; default runs/DATASET/ALGORITHM-finetuned-TIME."""
    log_every: int = 1_000
    """Steps between lines of metrics, which are means over the updates between them."""
    eval_every: int = 10_000
    """Steps between evaluations, besides those before the first and after the last; 0: never."""
    eval_episodes: int = 10
    """Episodes of every evaluation and run."""
    checkpoint_every: int = 10_000
    """Steps between checkpoints; at each, all runs begin new episodes."""
    keep_checkpoints: int = 3
    """How many of the newest checkpoints are kept."""
    logger: tuple[str, ...] = ("tensorboard",)
    """Where metrics go besides metrics.jsonl: tensorboard, wandb, or nothing."""
    quiet: bool = False
    """No progress view."""
    max_time: str | None = None
    """Stop and save after this long (90s, 30m, 2h); continue with --resume."""
    device: Literal["cpu", "gpu", "tpu"] | None = None
    """Where to train; default the fastest there is."""


OWN = ("steps", "replay", "offline_fraction", "updates_per_step", "alpha_end")
"""The options that offline training does not have; config.json keeps them as "finetune"."""
KEPT = ("best_fraction", "reward_transform", "reward_scale", "reward_shift")
"""The options of offline training that say what is learned from."""


def finetune(
    origin: str | Path,
    *,
    env: EnvironmentSource | None = None,
    data: Dataset | None = None,
    on_metrics: OnMetrics | None = None,
    **options: Any,
) -> Run:
    """Goes on with a trained run in an environment; the result is a run directory of its own.

    Args:
        origin: the run trained offline (IQL, CQL, Cal-QL or TD3+BC); all its seeds go on together,
            those that diverged left out.
        env: a Gymnasium id or a callable that makes an environment; default the one that the run
            was evaluated in, or that its data name.
        data: the data set, where the run was trained on one made in Python.
        on_metrics: called with every line of metrics.
        options: fields of `FinetuneOptions`, such as `steps` and `run_dir`.

    Raises:
        LeewardError: bad input; nothing was written.
        KeyboardInterrupt: interrupted; the run was saved and can be resumed.

    Example:
        >>> finetuned = leeward.finetune("runs/hopper/iql", steps=100_000)  # doctest: +SKIP
        >>> finetuned.scores()  # doctest: +SKIP
    """
    origin = Path(origin)
    given: dict[str, Any] = {**options, "env": env if isinstance(env, str) else None}
    if given.get("run_dir") is not None:
        given["run_dir"] = str(given["run_dir"])
    chosen = make_options(given)
    saved = Run(origin).config
    if "origin" in saved:
        raise ConfigError(
            f"{origin} is a fine-tuned run: go on with leeward finetune --resume {origin} and more "
            "--steps"
        )
    check_algorithm(origin, get_algorithm(saved["algorithm"]), chosen)
    if saved["options"].get("data_location") == "disk":
        raise ConfigError(
            f"{origin} was trained with --data-location disk, and fine-tuning has all rows in "
            "memory: train with --data-location memory first (results are the same), on a part of "
            "the data where not all fit (leeward convert --fraction)"
        )
    run_options = _run_options(saved, chosen)
    prepare_jax(run_options)
    job, rewards = _job(origin, saved, saved["environment"], run_options, data, "fine-tune")
    environment = find_environment(job.dataset, env if env is not None else saved["environment"])
    if environment is None:
        raise ConfigError(f"{origin} names no environment to act in: name one (--env ID)")
    job = dataclasses.replace(job, environment=environment)
    job, start = _from_offline(origin, saved, job, rewards, chosen)
    name = f"{job.algorithm.name}-finetuned"
    directory = Path(chosen.run_dir or run.default_directory(saved["data"]["name"], name))
    with run.locked(directory):
        run.create(directory, _describe(origin, saved, chosen, job, start))
        finetune_loop.run(job, directory, start, on_metrics)
    return Run(directory)


def resume(
    run_dir: str | Path,
    *,
    data: Dataset | None = None,
    env: Callable[[], Any] | None = None,
    steps: int | None = None,
    max_time: str | None = None,
    quiet: bool = False,
    on_metrics: OnMetrics | None = None,
) -> Run:
    """Continues a killed, interrupted or finished fine-tuning; arguments as `leeward.resume`."""
    directory = Path(run_dir)
    saved = Run(directory).config
    if "origin" not in saved:
        raise ConfigError(
            f"{directory} is no fine-tuned run: continue it with leeward train --resume "
            f"{directory}, or go on online with leeward finetune {directory}"
        )
    if steps is not None and steps < 1:
        raise ConfigError(f"--steps must be at least 1, got {steps}")
    fields = dict(saved["options"], max_time=max_time, quiet=quiet, run_dir=str(directory))
    options = from_json(RunOptions, fields)
    check_options(options)
    prepare_jax(options)
    saved = {**saved, "steps": saved["steps"] if steps is None else steps}
    place = saved["origin"]["environment"]
    job, rewards = _job(directory, saved, place, options, data, "resume")
    environment = env if env is not None else saved["environment"]
    if environment is None:
        raise ConfigError(
            f"{directory} was fine-tuned in an environment made in Python: resume it there with "
            "env=…"
        )
    job = dataclasses.replace(job, environment=environment)
    job, start = _from_own(directory, saved, job, rewards)
    with run.locked(directory):
        run.write_json(directory / "config.json", saved)
        finetune_loop.run(job, directory, start, on_metrics)
    return Run(directory)


def online_algorithms() -> list[str]:
    """Names of the algorithms that go on online, as they are typed."""
    return sorted(
        name.replace("_", "-") for name, one in ALGORITHMS.items() if one.online is not None
    )


def check_algorithm(directory: Path, algorithm: Algorithm, options: FinetuneOptions) -> None:
    """Raises ConfigError where a run's algorithm has no online form, or not these options."""
    name = algorithm.name.replace("_", "-")
    if algorithm.online is None:
        raise ConfigError(
            f"{directory} is a run of {name}, which leeward finetune does not know; it knows "
            f"{', '.join(online_algorithms())}, which learn continuous actions"
        )
    if options.alpha_end is not None and algorithm.name != "td3_bc":
        raise ConfigError(f"--alpha-end is td3-bc's, and {directory} is a run of {name}")


def make_options(given: Mapping[str, Any]) -> FinetuneOptions:
    """The options, checked as far as they can be alone.

    Raises:
        ConfigError: an unknown name, or an impossible value.
    """
    options = from_json(FinetuneOptions, given)
    for name in ("steps", "updates_per_step"):
        if getattr(options, name) < 1:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} must be at least 1, got {getattr(options, name)}")
    if not 0.0 <= options.offline_fraction < 1.0:
        raise ConfigError(
            f"--offline-fraction must be in [0, 1), got {options.offline_fraction}: what is seen "
            "online needs a share too"
        )
    if options.alpha_end is not None and not 0.0 < options.alpha_end < math.inf:
        raise ConfigError(f"--alpha-end must be a finite number above 0, got {options.alpha_end}")
    return options


def _run_options(saved: Mapping[str, Any], chosen: FinetuneOptions) -> RunOptions:
    """The options that training and fine-tuning share, checked."""
    shared = {f.name for f in dataclasses.fields(chosen)} - set(OWN)
    values = {name: getattr(chosen, name) for name in shared}
    values |= {name: saved["options"][name] for name in KEPT}
    seeds = dict.fromkeys(row["seed"] for row in saved["runs"])
    options = from_json(RunOptions, values | {"seeds": tuple(seeds)})
    check_options(options)
    return options


def _job(
    directory: Path,
    saved: Mapping[str, Any],
    environment: str | None,
    options: RunOptions,
    data: Dataset | None,
    verb: str,
) -> tuple[Job, RewardMap]:
    """All runs of a config.json on its data, and what is done to rewards."""
    algorithm = get_algorithm(saved["algorithm"])
    config = from_json(algorithm.config_type, saved["config"])
    dataset = load_again(directory, saved, data, environment, verb)
    job = make_job(algorithm, config, None, options, dataset, None)
    job = with_runs(job, saved["runs"], saved["steps"])
    check_unchanged(directory, saved, job)
    return job, fit_reward_map(
        dataset, options.reward_transform, options.reward_scale, options.reward_shift
    )


def _with_policy(job: Job, folder: Path) -> tuple[Job, Scaling]:
    """The job with the action box that its policies were trained for, and their maps."""
    policies = load_policies(folder / "policy")
    dataset = dataclasses.replace(job.dataset, action_space=policies.spec.action)
    return dataclasses.replace(job, dataset=dataset), policies.scaling


def _online(job: Job) -> Job:
    """The job with the last phase alone, as the one that goes on."""
    phase = job.algorithm.phases[-1]._replace(name="online", early_stopping=None, measurement=None)
    return dataclasses.replace(job, algorithm=job.algorithm._replace(phases=(phase,)))


def _from_offline(
    origin: Path,
    saved: Mapping[str, Any],
    job: Job,
    rewards: RewardMap,
    chosen: FinetuneOptions,
) -> tuple[Job, Start]:
    """What a fine-tuning begins with: the last checkpoint, without runs that diverged.

    Raises:
        CheckpointError: there is none, it is damaged, or all runs diverged.
        ConfigError: a batch too small for the shares.
    """
    config = engine.stack_configs(job.config, job.settings)
    found = checkpoint.complete(origin / "checkpoints")
    if not found:
        raise CheckpointError(f"{origin} has no checkpoint to go on from")
    job, scaling = _with_policy(job, found[-1])
    keeper = Keeper(job, origin, config, scaling)
    position = keeper.position(found[-1])
    sound = [run for run in range(job.runs) if run not in position.failed]
    if not sound:
        raise CheckpointError(f"{origin}: all runs diverged, so none can go on")
    state = keeper.restore(
        found[-1],
        position,
        engine.run_keys(list(job.seeds)),
        lambda phase: to_device(job.dataset, scaling),
    ).state
    note = None
    if position.failed:
        left = ", ".join(job.run_name(run) for run in position.failed)
        note = f"left out, since they diverged offline: {left}"
        state = jax.tree.map(lambda leaf: leaf[np.array(sound)], state)
        job = with_runs(job, [saved["runs"][run] for run in sound], job.steps)
    start = Start(
        state=state,
        step=position.step,
        scaling=scaling,
        rewards=rewards,
        mixture=make_mixture(chosen.replay, chosen.offline_fraction, job.config.batch_size),
        updates_per_step=chosen.updates_per_step,
        alpha_end=chosen.alpha_end,
        horizon=chosen.steps,
        note=note or f"going on from {found[-1]}",
    )
    return dataclasses.replace(_online(job), steps=chosen.steps), start


def _from_own(
    directory: Path, saved: Mapping[str, Any], job: Job, rewards: RewardMap
) -> tuple[Job, Start]:
    """What a fine-tuning goes on with; its arrays are in its newest checkpoint.

    Raises:
        CheckpointError: there is none.
        ConfigError: it is past the steps that are asked for.
    """
    found = checkpoint.complete(directory / "checkpoints")
    if not found:
        raise CheckpointError(
            f"{directory} was stopped before its first checkpoint: remove it and start again"
        )
    made = checkpoint.manifest(found[-1])["step"]
    if made > saved["steps"]:
        raise ConfigError(f"{directory} has made {made} steps: give at least --steps {made}")
    job, scaling = _with_policy(job, found[-1])
    config = engine.stack_configs(job.config, job.settings)
    key, own = engine.run_keys(list(job.seeds)), saved["finetune"]
    return _online(job), Start(
        state=jax.eval_shape(
            lambda: engine.init_states(job.algorithm.init, job.dataset.spec, config, key)
        ),
        step=saved["origin"]["updates"],
        scaling=scaling,
        rewards=rewards,
        mixture=make_mixture(own["replay"], own["offline_fraction"], job.config.batch_size),
        updates_per_step=own["updates_per_step"],
        alpha_end=own["alpha_end"],
        horizon=own["steps"],
    )


def make_mixture(way: Way, offline_fraction: float, batch_size: int) -> Mixture:
    """How batches of this size are put together.

    Raises:
        ConfigError: no row is left for what is seen online.
    """
    rows = round(offline_fraction * batch_size)
    if way == "mixed" and rows == batch_size:
        raise ConfigError(
            f"--offline-fraction {offline_fraction} leaves no row of a batch of {batch_size} for "
            "what is seen online"
        )
    return Mixture(way, rows)


def _describe(
    origin: Path, saved: Mapping[str, Any], chosen: FinetuneOptions, job: Job, start: Start
) -> dict[str, Any]:
    """config.json: as training has it, with where it comes from and how it went on."""
    kept = {name: value for name, value in saved.items() if name != "extensions"}
    return kept | {
        "steps": job.steps,
        "runs": [job.label(run) for run in range(job.runs)],
        "options": dataclasses.asdict(job.options),
        "environment": job.environment if isinstance(job.environment, str) else None,
        "versions": versions(),
        "origin": {
            "run": str(origin.absolute()),
            "updates": start.step,
            "environment": saved["environment"],
        },
        "finetune": {name: getattr(chosen, name) for name in OWN},
    }
