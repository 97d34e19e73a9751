"""What `collect` is asked for: options, their checks, and where everything goes."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from leeward.environments import EnvironmentSource, environment_id
from leeward.errors import ConfigError, DataError, did_you_mean
from leeward.online import OnlineOptions
from leeward.online_qrdqn import QRDQNOptions

QUALITIES = ("expert", "medium", "medium-replay", "full-replay", "medium-expert", "random")
"""What an online learner gives."""
ALIASES = {"replay": "medium-replay"}
"""Other names of qualities; a file is called as it was asked for."""
LEARNERS = ("sac", "qrdqn")
"""Policies that are trained first."""


@dataclass(frozen=True)
class CollectOptions:
    """What is collected."""

    policy: str = "sac"
    """Who acts: sac or qrdqn (online learners of continuous and of discrete actions, trained
    first), random, or a run directory."""
    dataset: tuple[str, ...] = ()
    """Qualities to write, for online learners: expert (the default), medium, medium-replay (or
    replay: all that it saw until medium; sac only), full-replay (sac only), medium-expert, random;
    one file each."""
    transitions: int = 1_000_000
    """Transitions of a data set. Of a replay the most: a longer one is thinned to whole episodes,
    evenly spread from the first to the last."""
    noise: float = 0.0
    """Std of normal noise on a policy's actions, in units of half the action range."""
    epsilon: float = 0.0
    """Share of a policy's steps with a uniformly random action instead."""
    checkpoint: str = "last"
    """Which policy of a run: last, best, or a checkpoint's STEP."""
    policy_seed: int | None = None
    """Which seed's policy of a run; default its first, with the settings that held-out episodes
    favor where there are several."""
    run_index: int | None = None
    """Which run, counted from 0, where several settings were trained together."""
    seed: int = 0
    """Fixes everything that is random."""


@dataclass(frozen=True)
class Plan:
    """What one call was asked for."""

    env: EnvironmentSource
    out: Path
    options: CollectOptions
    online: OnlineOptions | QRDQNOptions

    @property
    def name(self) -> str:
        """The environment's id."""
        return environment_id(self.env)

    @property
    def is_file(self) -> bool:
        """Whether `out` names a file."""
        return self.out.suffix.lower() in (".hdf5", ".h5")

    @property
    def training(self) -> Path:
        """The online learner's folder."""
        if self.is_file:
            return self.out.with_name(f"{self.out.stem}-training")
        return self.out / "training"

    def targets(self) -> dict[str, Path]:
        """Quality → file, none of which exists.

        Raises:
            ConfigError: an impossible option.
            DataError: a file that exists.
        """
        qualities = check_options(self.options)
        if self.is_file and len(qualities) > 1:
            raise ConfigError(
                f"--out {self.out} is one file, for {len(qualities)} data sets: name a folder"
            )
        targets = {q: self.out if self.is_file else self.out / self._file(q) for q in qualities}
        for path in targets.values():
            if path.exists():
                raise DataError(f"{path} exists already: remove it, or choose another --out")
        return targets

    def command(self) -> str:
        """The command that does the same, without what is default."""
        words = ["leeward collect", self.name]
        for given in (self.options, self.online):
            default = type(given)()
            for field in dataclasses.fields(given):
                value = getattr(given, field.name)
                if value != getattr(default, field.name):
                    values = value if isinstance(value, tuple) else (value,)
                    words += [f"--{field.name.replace('_', '-')}", *map(str, values)]
        return " ".join([*words, "--out", str(self.out)])

    def _file(self, quality: str) -> str:
        """TASK-QUALITY-vN.hdf5."""
        match = re.fullmatch(r"(?:.*[/:])?(?P<task>.+?)(?P<version>-v\d+)?", self.name)
        assert match is not None
        task = re.sub(r"[^a-z0-9.]+", "-", match["task"].lower()).strip("-")
        return f"{task}-{quality}{match['version'] or ''}.hdf5"


def check_options(options: CollectOptions) -> tuple[str, ...]:
    """The qualities to write.

    Raises:
        ConfigError: an impossible option, or one that the policy has no use for.
    """
    for quality in options.dataset:
        if quality not in (*QUALITIES, *ALIASES):
            raise ConfigError(
                f"unknown --dataset '{quality}'.{did_you_mean(quality, QUALITIES)} It is one of "
                f"{', '.join(QUALITIES)}"
            )
    if len({ALIASES.get(quality, quality) for quality in options.dataset}) != len(options.dataset):
        raise ConfigError(f"--dataset names one twice: {' '.join(options.dataset)}")
    if options.transitions < 1:
        raise ConfigError(f"--transitions must be at least 1, got {options.transitions}")
    if options.noise < 0.0:
        raise ConfigError(f"--noise must be 0 or more, got {options.noise}")
    if not 0.0 <= options.epsilon <= 1.0:
        raise ConfigError(f"--epsilon must lie between 0 and 1, got {options.epsilon}")
    if not 0 <= options.seed < 2**32:
        raise ConfigError(f"--seed must lie between 0 and 4294967295, got {options.seed}")
    if options.policy == "qrdqn":
        for quality in options.dataset:
            if quality.endswith("replay"):
                raise ConfigError(
                    f"--dataset {quality} needs --policy sac: qrdqn keeps its latest steps only"
                )
    if options.policy in LEARNERS:
        return options.dataset or ("expert",)
    return (_check_given_policy(options),)


def _check_given_policy(options: CollectOptions) -> str:
    """The only quality of a policy that is not learned here."""
    if options.dataset:
        raise ConfigError(
            f"--dataset chooses among what an online learner gives, and --policy {options.policy} "
            "gives one data set: leave --dataset out"
        )
    if options.policy == "random":
        if options.noise or options.epsilon:
            raise ConfigError("--noise and --epsilon change nothing with --policy random")
        return "random"
    if not Path(options.policy).exists():
        raise ConfigError(
            f"unknown --policy '{options.policy}'."
            f"{did_you_mean(options.policy, (*LEARNERS, 'random'))} "
            "It is sac, qrdqn, random, or a run directory"
        )
    return "policy"
