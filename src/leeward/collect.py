"""Data made in a simulator: by an online learner (SAC), a trained run, or random actions.

The learner gives the qualities that D4RL names. `expert`: its best policy; `medium`: the policy
whose evaluation is nearest to a third of the expert's; `replay`: all that it saw until medium;
`full-replay`: all that it saw; `medium-expert`: half of each. Its policies are sampled from, as
D4RL's are.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from leeward.behaviors import Behavior, disturbed, random_behavior
from leeward.collect_learner import learned_columns, train_learner
from leeward.collect_plan import CollectOptions, Plan
from leeward.data.registry import ReferenceScores, reference_scores
from leeward.data.write import write_d4rl
from leeward.environments import EnvironmentSource, check_matches, environment_spec
from leeward.errors import ConfigError
from leeward.online import OnlineOptions, check_online
from leeward.policy import load_policy
from leeward.progress import View
from leeward.rollout import Columns, roll_out
from leeward.run import locked
from leeward.types import Box

__all__ = ["CollectOptions", "Collected", "OnlineOptions", "collect"]

EPISODES_OF = {"random": 2, "medium": 3, "expert": 4, "policy": 5}
"""Tags that give every purpose episodes of its own; 0 is evaluation's, 1 online training's."""


class Collected(NamedTuple):
    """One data set that was written."""

    path: Path
    quality: str
    transitions: int
    returns: np.ndarray
    """[E]: the return of every episode."""
    scores: ReferenceScores | None
    """Returns that count as 0 and 100, where known."""


def collect(
    env: EnvironmentSource,
    out: str | Path,
    options: CollectOptions | None = None,
    online: OnlineOptions | None = None,
    *,
    quiet: bool = True,
) -> list[Collected]:
    """Writes data sets in D4RL layout.

    Args:
        env: a Gymnasium id, or a callable that makes an environment.
        out: a folder, which gets TASK-QUALITY-vN.hdf5, or a file (.hdf5) for one data set. The
            online learner is kept beside them, in `training` (FILE-training for a file); the same
            call goes on with it after a kill, and another one takes more data sets from it.
        options: what is collected.
        online: how the online learner trains.
        quiet: no progress view.

    Raises:
        ConfigError: impossible options.
        SpecError: an environment that does not fit the learner or the policy.
        DataError: a data set of that name exists, or cannot be written.
        KeyboardInterrupt: SIGINT or SIGTERM; the training was saved.
    """
    plan = Plan(env, Path(out), options or CollectOptions(), online or OnlineOptions())
    targets = plan.targets()
    known = environment_spec(env)
    if plan.options.noise and not isinstance(known.action, Box):
        raise ConfigError(f"--noise needs continuous actions, and {plan.name} has discrete ones")
    if plan.options.policy != "sac":
        with contextlib.closing(View(None, quiet)) as view:
            ((quality, path),) = targets.items()
            behavior, text = _given_behavior(plan)
            count = plan.options.transitions
            columns = _Gatherer(plan, view)(quality, behavior, count, quality != "random")
            return [_write(plan, view, path, quality, columns, text, reference_scores(plan.name))]
    check_online(plan.online)
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(plan.training, "--out"))
        view = stack.enter_context(contextlib.closing(View(plan.training / "log.txt", quiet)))
        learned = train_learner(plan, view)
        count, seed = plan.options.transitions, plan.options.seed
        written = []
        for quality, path in targets.items():
            columns, text = learned_columns(learned, quality, count, seed, _Gatherer(plan, view))
            written.append(_write(plan, view, path, quality, columns, text, learned.scores))
        return written


def _given_behavior(plan: Plan) -> tuple[Behavior, str]:
    """A random or a trained policy, and how its actions came about."""
    options, known = plan.options, environment_spec(plan.env)
    if options.policy == "random":
        return random_behavior(known.action, options.seed), "uniformly random actions"
    policy = load_policy(options.policy, options.policy_seed, options.checkpoint)
    check_matches(policy.spec, {"name": "the policy", "env": policy.env}, known)
    text = (
        f"{policy.algorithm.name}, seed {policy.run.seed}, after {policy.run.step} updates; noise "
        f"{options.noise}, epsilon {options.epsilon}"
    )
    return lambda observation, step: policy(observation), text


class _Gatherer(NamedTuple):
    """Lets a behavior act and shows how far it is."""

    plan: Plan
    view: View

    def __call__(self, name: str, behavior: Behavior, count: int, disturb: bool) -> Columns:
        options = self.plan.options
        if disturb:
            space = environment_spec(self.plan.env).action
            behavior = disturbed(behavior, space, options.noise, options.epsilon, options.seed)
        begun = time.monotonic()
        self.view.start(f"collecting {name}", 0, count)
        return roll_out(
            self.plan.env,
            behavior,
            transitions=count,
            tag=EPISODES_OF[name],
            seed=options.seed,
            on_step=lambda rows: self.view.advance(
                rows, rows / (time.monotonic() - begun), "steps"
            ),
        )


def _write(
    plan: Plan,
    view: View,
    path: Path,
    quality: str,
    columns: Columns,
    text: str,
    scores: ReferenceScores | None,
) -> Collected:
    """Writes one file, with all that is needed to make it again."""
    returns = columns.episode_returns()
    space = environment_spec(plan.env).action
    metadata = {
        "env_id": plan.name,
        "quality": quality,
        "behavior": text,
        "command": plan.command(),
        "seed": plan.options.seed,
        "episodes": len(returns),
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "return_min": float(returns.min()),
        "return_max": float(returns.max()),
        **{f"version_{name}": version for name, version in _versions().items()},
    }
    if isinstance(space, Box):
        metadata |= {"action_low": list(space.low), "action_high": list(space.high)}
    else:
        metadata["action_count"] = space.size
    if scores is not None:
        metadata |= {
            "reference_minimum": scores.minimum,
            "reference_maximum": scores.maximum,
            "reference_source": scores.source,
        }
    write_d4rl(path, **columns._asdict(), metadata=metadata)
    view.event(
        f"{path}: {len(columns.reward)} transitions, {len(returns)} episodes, mean return "
        f"{returns.mean():.1f} ({text})"
    )
    return Collected(path, quality, len(columns.reward), returns, scores)


def _versions() -> dict[str, str]:
    names = ("leeward", "gymnasium", "mujoco", "jax", "numpy")
    return {"python": platform.python_version()} | {
        name: importlib.metadata.version(name) for name in names
    }
