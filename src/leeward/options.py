"""What a training run is told besides the algorithm's own settings. Fields become flags."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import itertools
import math
import re
import textwrap
from dataclasses import dataclass
from typing import Literal

from leeward.errors import ConfigError, MissingExtra, did_you_mean

LOGGERS = ("tensorboard", "wandb")
"""Where metrics can go besides metrics.jsonl."""


@dataclass(frozen=True)
class RunOptions:
    """Options of a run that no algorithm cares about."""

    env: str | None = None
    """Gymnasium environment to evaluate in; default the one that the data names, if any."""
    seeds: tuple[int, ...] = (0,)
    """One run a seed, all in one program."""
    run_dir: str | None = None
    """Where the run is kept; default runs/DATASET/ALGORITHM-TIME."""
    log_every: int = 1_000
    """Updates between lines of metrics, which are means over these updates."""
    eval_every: int = 10_000
    """Updates of the last phase between evaluations; 0: never, not even at the end."""
    eval_episodes: int = 10
    """Episodes of every evaluation and run."""
    select: Literal["evaluation", "ope"] = "evaluation"
    """How the best policy is chosen, every --eval-every updates: by evaluation in the environment,
    or by off-policy evaluation on the data (ope), which needs no environment."""
    select_steps: int = 10_000
    """Updates of every off-policy evaluation (--select ope)."""
    checkpoint_every: int = 10_000
    """Updates between checkpoints."""
    keep_checkpoints: int = 3
    """How many of the newest checkpoints are kept."""
    logger: tuple[str, ...] = ("tensorboard",)
    """Where metrics go besides metrics.jsonl: tensorboard, wandb, or nothing."""
    quiet: bool = False
    """No progress view."""
    best_fraction: float = 1.0
    """Train on this share of episodes only, those with the highest return (0.1: 10 % BC)."""
    reward_transform: Literal["none", "return-range", "sign"] = "none"
    """return-range: rewards times 1,000 / (largest − least return), as IQL has for locomotion;
    sign: −1, 0 or 1, as is usual for Atari."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this in training (evaluation counts the environment's own)."""
    reward_shift: float = 0.0
    """Added to every reward last, such as −1 for AntMaze."""
    ignore_errors: bool = False
    """Train although the data doctor (leeward inspect) finds errors."""
    data_location: Literal["memory", "disk"] = "memory"
    """Where rows are while training: in memory, on the device, or on disk, in mapped files of which
    only the next updates' rows are read. Results are the same."""
    max_time: str | None = None
    """Stop and save after this long (90s, 30m, 2h); continue with --resume."""
    eager: bool = False
    """Run without compilation, for debugging: slow."""
    device: Literal["cpu", "gpu", "tpu"] | None = None
    """Where to train; default the fastest there is."""
    devices: int | None = None
    """How many devices share the work; default all accelerators where there are several runs, else
    one."""
    split: Literal["runs", "batch"] = "runs"
    """What devices share: each trains its own runs, or its part of every batch of all runs."""
    shard_data: bool = False
    """With several devices: each holds a part of the observations, not all of them."""


def field_help(cls: type) -> dict[str, str]:
    """The sentence under every field of a dataclass, inherited ones too: its flag's help."""
    body: list[ast.stmt] = []
    for owner in reversed(cls.__mro__[:-1]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        body += tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    result = {}
    for field, comment in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(comment, ast.Expr)
            and isinstance(comment.value, ast.Constant)
        ):
            result[field.target.id] = " ".join(str(comment.value.value).split())
    return result


def check_options(options: RunOptions) -> None:
    """Rejects impossible values before anything is written.

    Raises:
        ConfigError: the option, its value and what is allowed.
        MissingExtra: a logger's package is not installed.
    """
    if not options.seeds:
        raise ConfigError("--seeds needs at least one seed, such as --seeds 0 1 2")
    if len(set(options.seeds)) != len(options.seeds):
        raise ConfigError(f"--seeds names a seed twice: {' '.join(map(str, options.seeds))}")
    if min(options.seeds) < 0 or max(options.seeds) >= 2**32:
        raise ConfigError("--seeds must lie between 0 and 4294967295")
    positive = (
        "log_every",
        "eval_episodes",
        "checkpoint_every",
        "keep_checkpoints",
        "select_steps",
        "devices",
    )
    for name in positive:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{_flag(name)} must be at least 1, got {value}")
    if options.eval_every < 0:
        raise ConfigError(f"--eval-every must be 0 (never) or more, got {options.eval_every}")
    if options.select == "ope" and options.eval_every == 0:
        raise ConfigError("--select ope chooses every --eval-every updates, which is 0 (never)")
    if not 0.0 < options.best_fraction <= 1.0:
        raise ConfigError(f"--best-fraction must be in (0, 1], got {options.best_fraction}")
    if not (0.0 < options.reward_scale < math.inf):
        raise ConfigError(
            f"--reward-scale must be a finite number above 0, got {options.reward_scale}"
        )
    if not math.isfinite(options.reward_shift):
        raise ConfigError(f"--reward-shift must be a finite number, got {options.reward_shift}")
    for name in options.logger:
        if name not in LOGGERS:
            raise ConfigError(
                f"unknown logger '{name}': choose from {', '.join(LOGGERS)}."
                + did_you_mean(name, LOGGERS)
            )
        if name == "wandb" and not is_installed(name):
            raise MissingExtra("wandb", "wandb", "--logger wandb")
    if options.max_time is not None:
        seconds(options.max_time)


def is_installed(package: str) -> bool:
    """Whether a package can be imported; a folder of that name alone, as W&B leaves, is none."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None


def seconds(text: str) -> float:
    """'90s', '30m', '2h', '1d' or plain seconds as a number of seconds.

    Raises:
        ConfigError: another form.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text)
    if not match:
        raise ConfigError(f"--max-time must look like 90s, 30m or 2h, got '{text}'")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def option_names() -> tuple[str, ...]:
    """Names of all run options."""
    return tuple(field.name for field in dataclasses.fields(RunOptions))


def _flag(name: str) -> str:
    return name.replace("_", "-")
