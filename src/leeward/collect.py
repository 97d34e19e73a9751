"""Data made in a simulator: by an online learner, a trained run, or random actions.

The learner gives the qualities that D4RL names. `expert`: its best policy; `medium`: the policy
whose evaluation is nearest to a third of the expert's; `medium-replay`: all that it saw until
medium; `full-replay`: all that it saw; `medium-expert`: half of each. SAC's policies are sampled
from, as D4RL's are; QR-DQN's, of discrete actions, are greedy, and `epsilon` mixes random actions
in.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import platform
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from leeward.atari import find_game
from leeward.behaviors import Behavior, disturbed, random_behavior
from leeward.collect_frames import Part as FramePart
from leeward.collect_frames import write_frames
from leeward.collect_learner import (
    Learned,
    Part,
    learned_columns,
    learned_parts,
    train_learner,
)
from leeward.collect_plan import LEARNERS, CollectOptions, Plan
from leeward.data.registry import ReferenceScores, reference_scores
from leeward.data.write import write_d4rl
from leeward.environments import EnvironmentSource, check_matches, environment_spec
from leeward.errors import ConfigError
from leeward.online import OnlineOptions, check_online
from leeward.online_qrdqn import QRDQNOptions, check_qrdqn
from leeward.policy import load_policy
from leeward.progress import View
from leeward.rollout import Columns, concatenate, roll_out
from leeward.run import locked
from leeward.types import Box

__all__ = ["CollectOptions", "Collected", "OnlineOptions", "QRDQNOptions", "collect"]

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
    online: OnlineOptions | QRDQNOptions | None = None,
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
        online: how the online learner that `options.policy` names trains.
        quiet: no progress view.

    Raises:
        ConfigError: impossible options.
        SpecError: an environment that does not fit the learner or the policy.
        DataError: a data set of that name exists, or cannot be written.
        KeyboardInterrupt: SIGINT or SIGTERM; the training was saved.
    """
    options = options or CollectOptions()
    if online is None:
        online = QRDQNOptions() if options.policy == "qrdqn" else OnlineOptions()
    plan = Plan(env, Path(out), options, online)
    targets = plan.targets()
    known = environment_spec(env)
    if plan.options.noise and not isinstance(known.action, Box):
        raise ConfigError(f"--noise needs continuous actions, and {plan.name} has discrete ones")
    if plan.options.policy not in LEARNERS:
        with contextlib.closing(View(None, quiet)) as view:
            ((quality, path),) = targets.items()
            behavior, text = _given_behavior(plan)
            part = Part(quality, behavior, plan.options.transitions, quality != "random")
            return [_make(plan, view, path, quality, [part], text, reference_scores(plan.name))]
    if isinstance(plan.online, QRDQNOptions):
        check_qrdqn(plan.online)
    else:
        check_online(plan.online)
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(plan.training, "--out"))
        view = stack.enter_context(contextlib.closing(View(plan.training / "log.txt", quiet)))
        learned = train_learner(plan, view)
        return [
            _from_learner(plan, view, path, quality, learned) for quality, path in targets.items()
        ]


def _from_learner(plan: Plan, view: View, path: Path, quality: str, learned: Learned) -> Collected:
    """One data set of what a learner gives."""
    count, seed = plan.options.transitions, plan.options.seed
    seen = learned_columns(learned, quality, count)
    if seen is not None:
        return _write(plan, view, path, quality, *seen, learned.scores)
    parts, text = learned_parts(learned, quality, count, seed)
    return _make(plan, view, path, quality, parts, text, learned.scores)


def _make(
    plan: Plan,
    view: View,
    path: Path,
    quality: str,
    parts: list[Part],
    text: str,
    scores: ReferenceScores | None,
) -> Collected:
    """Lets behaviors act and writes what they did; stacked frames are written as they come."""
    if find_game(plan.env) is None:
        columns = concatenate([_gather(plan, view, part) for part in parts])
        return _write(plan, view, path, quality, columns, text, scores)
    begun, count = time.monotonic(), sum(part.transitions for part in parts)
    view.start(f"collecting {quality}", 0, count)
    returns = write_frames(
        path,
        plan.env,
        [
            FramePart(_disturbed(plan, part), part.transitions, EPISODES_OF[part.name])
            for part in parts
        ],
        plan.options.seed,
        lambda returns: _metadata(plan, quality, text, returns, scores),
        lambda rows: view.advance(rows, rows / (time.monotonic() - begun), "steps"),
        json.dumps([plan.command(), quality, text, _versions(plan)]),
    )
    return _collected(view, path, quality, count, returns, text, scores)


def _given_behavior(plan: Plan) -> tuple[Behavior, str]:
    """A random or a trained policy, and how its actions came about."""
    options, known = plan.options, environment_spec(plan.env)
    if options.policy == "random":
        return random_behavior(known.action, options.seed), "uniformly random actions"
    policy = load_policy(
        options.policy, options.policy_seed, options.checkpoint, run=options.run_index
    )
    check_matches(policy.spec, {"name": "the policy", "env": policy.env}, known)
    settings = "".join(f", {name} {value:g}" for name, value in policy.run.settings.items())
    text = (
        f"{policy.algorithm.name}, seed {policy.run.seed}{settings}, after {policy.run.step} "
        f"updates; noise {options.noise}, epsilon {options.epsilon}"
    )
    return lambda observation, step: policy(observation), text


def _disturbed(plan: Plan, part: Part) -> Behavior:
    """A part's behavior, with the noise and random actions that were asked for."""
    options = plan.options
    if not part.disturb:
        return part.behavior
    space = environment_spec(plan.env).action
    return disturbed(part.behavior, space, options.noise, options.epsilon, options.seed)


def _gather(plan: Plan, view: View, part: Part) -> Columns:
    """The rows of a part; shows how far they are."""
    begun = time.monotonic()
    view.start(f"collecting {part.name}", 0, part.transitions)
    return roll_out(
        plan.env,
        _disturbed(plan, part),
        transitions=part.transitions,
        tag=EPISODES_OF[part.name],
        seed=plan.options.seed,
        on_step=lambda rows: view.advance(rows, rows / (time.monotonic() - begun), "steps"),
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
    """Writes one file."""
    returns = columns.episode_returns()
    metadata = _metadata(plan, quality, text, returns, scores)
    write_d4rl(path, **columns._asdict(), metadata=metadata)
    return _collected(view, path, quality, len(columns.reward), returns, text, scores)


def _collected(
    view: View,
    path: Path,
    quality: str,
    transitions: int,
    returns: np.ndarray,
    text: str,
    scores: ReferenceScores | None,
) -> Collected:
    """What is said of a file that was written."""
    view.event(
        f"{path}: {transitions} transitions, {len(returns)} episodes, mean return "
        f"{returns.mean():.1f} ({text})"
    )
    return Collected(path, quality, transitions, returns, scores)


def _metadata(
    plan: Plan, quality: str, text: str, returns: np.ndarray, scores: ReferenceScores | None
) -> dict[str, Any]:
    """All that is needed to make a file again."""
    space = environment_spec(plan.env).action
    metadata: dict[str, Any] = {
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
        **{f"version_{name}": version for name, version in _versions(plan).items()},
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
    return metadata


def _versions(plan: Plan) -> dict[str, str]:
    names = ["leeward", "gymnasium", "mujoco", "jax", "numpy"]
    names += ["ale-py"] if find_game(plan.env) is not None else []
    return {"python": platform.python_version()} | {
        name: importlib.metadata.version(name) for name in names
    }
