"""The data sets that one online training gives: its policies, ranked, and what it saw."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from leeward.attendance import interruptions
from leeward.behaviors import (
    Behavior,
    greedy_behavior,
    random_behavior,
    sampling_behavior,
)
from leeward.collect_plan import ALIASES, Plan
from leeward.data.registry import ReferenceScores, reference_scores
from leeward.environments import environment_spec
from leeward.errors import CheckpointError, ConfigError
from leeward.evaluate import evaluate
from leeward.online import Training
from leeward.online_qrdqn import DiscreteTraining, QRDQNOptions
from leeward.policy import Policy, load_policy
from leeward.progress import View
from leeward.rollout import Columns, roll_out
from leeward.run import write_json

REFERENCE_EPISODES = 100
"""Episodes of the random and of the expert policy whose mean returns count as 0 and 100."""
REFERENCE_TAG = 6
"""Tag of the episodes that give the random policy's mean return, and seed of the expert's."""


class Learned(NamedTuple):
    """What a finished training gives."""

    expert: Policy
    """The policy with the best evaluation."""
    medium: Policy
    """The one whose evaluation is nearest to a third of the expert's, 0 being random."""
    saw: Columns | None
    """Every step that it made, where the learner keeps them."""
    scores: ReferenceScores | None
    """Published ones, else random and expert as measured; None if it learned nothing."""


def train_learner(plan: Plan, view: View) -> Learned:
    """Trains the plan's learner, or what is left of it, in `plan.training`.

    Raises:
        ConfigError: another training lies there, or the options do not fit.
        KeyboardInterrupt: SIGINT or SIGTERM; the training was saved.
    """
    claim(plan)
    with interruptions() as interrupted:
        shared = plan.options.seed, plan.training, view, interrupted
        if isinstance(plan.online, QRDQNOptions):
            training = DiscreteTraining(plan.env, plan.online, *shared)
        else:
            training = Training(plan.env, plan.online, *shared)
        with contextlib.closing(training):
            training.go()
    known = reference_scores(plan.name)
    minimum = known.minimum if known else random_return(plan)
    expert, medium = choose_policies(plan.training, minimum, training.position.updates)
    return Learned(
        expert,
        medium,
        training.saw() if isinstance(training, Training) else None,
        known or own_scores(plan, view, minimum, expert),
    )


def claim(plan: Plan) -> None:
    """Writes down which training this is, or checks that the one that is there is the same.

    Raises:
        ConfigError: another training lies there.
        CheckpointError: its config.json is damaged.
    """
    own: dict[str, Any] = {"env": plan.name, "seed": plan.options.seed}
    own |= dataclasses.asdict(plan.online) | {"hidden": list(plan.online.hidden)}
    for may_change in ("steps", "checkpoint_every"):
        del own[may_change]
    path = plan.training / "config.json"
    if not path.is_file():
        write_json(path, {"format": 1, **own})
        return
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise CheckpointError(
            f"{path}: not valid JSON ({error}): remove the folder {plan.training}"
        ) from error
    for name, value in own.items():
        if found.get(name) != value:
            raise ConfigError(
                f"{plan.training} holds a training with {name.replace('_', '-')} "
                f"{found.get(name)}, not {value}: choose another --out"
            )


def choose_policies(directory: Path, minimum: float, steps: int) -> tuple[Policy, Policy]:
    """(expert, medium) among the policies that were evaluated.

    Args:
        directory: the training's folder.
        minimum: the random policy's return, which counts as a score of 0.
        steps: of the training; policies that a killed one left behind its checkpoint do not count.
    """
    folders = (directory / "policies").iterdir()
    found = (load_policy(folder) for folder in folders if not folder.name.startswith("."))
    policies = sorted(
        (policy for policy in found if policy.run.step <= steps), key=lambda policy: policy.run.step
    )
    means = np.array([policy.run.return_mean for policy in policies], np.float64)
    best = len(means) - 1 - int(np.argmax(means[::-1]))  # the last of equals
    third = minimum + (means[best] - minimum) / 3
    return policies[best], policies[int(np.argmin(np.abs(means[: best + 1] - third)))]


class Part(NamedTuple):
    """Rows that one behavior makes."""

    name: str
    behavior: Behavior
    transitions: int
    disturb: bool
    """Whether noise and random actions are put on it."""


def learned_columns(learned: Learned, quality: str, transitions: int) -> tuple[Columns, str] | None:
    """The rows of a replay, and how they came about; None for what a policy has yet to make."""
    saw, step = learned.saw, learned.medium.run.step
    if saw is None or not quality.endswith("replay"):
        return None
    if ALIASES.get(quality, quality) == "medium-replay":
        columns, text = until(saw, step), f"all that SAC saw in its first {step} steps"
    else:
        columns, text = saw, f"all that SAC saw in {len(saw.reward)} steps"
    kept = thinned(columns, transitions)
    if len(kept.reward) < len(columns.reward):
        episodes = [len(some.episode_returns()) for some in (kept, columns)]
        text = f"{episodes[0]} of {episodes[1]} episodes, evenly spread over {text}"
    return kept, text


def learned_parts(
    learned: Learned, quality: str, transitions: int, seed: int
) -> tuple[list[Part], str]:
    """Who makes the rows of a quality, one after another, and how to say so.

    Args:
        learned: the training's outcome.
        quality: which data set.
        transitions: how many rows in all.
        seed: of the policies' samples.
    """
    expert, medium = learned.expert, learned.medium
    if quality == "random":
        behavior = random_behavior(medium.spec.action, seed)
        return [Part("random", behavior, transitions, False)], "uniformly random actions"
    samples = expert.algorithm.name == "sac"
    learner, manner = ("SAC", "sampled") if samples else ("QR-DQN", "greedy")

    def part(policy: Policy, name: str, count: int) -> Part:
        behavior = sampling_behavior(policy, seed) if samples else greedy_behavior(policy)
        return Part(name, behavior, count, True)

    described = [f"{learner} after {policy.run.step} steps" for policy in (medium, expert)]
    if quality == "medium-expert":
        half = transitions // 2
        parts = [part(medium, "medium", half), part(expert, "expert", transitions - half)]
        return parts, f"{described[0]} ({half} rows), then {described[1]}, {manner}"
    policy = expert if quality == "expert" else medium
    return [part(policy, quality, transitions)], f"{described[policy is expert]}, {manner}"


def until(columns: Columns, step: int) -> Columns:
    """The first rows; an episode that goes on behind them is cut."""
    first = Columns(*(column[:step] for column in columns))
    truncation = first.truncation.copy()
    truncation[-1] = not first.termination[-1]
    return first._replace(truncation=truncation)


def thinned(columns: Columns, transitions: int) -> Columns:
    """At most so many rows: as many whole episodes as fit, evenly spread from first to last.

    Where not even the one in the middle fits, its first rows.
    """
    if len(columns.reward) <= transitions:
        return columns
    ends = np.flatnonzero(columns.termination | columns.truncation)
    begins = np.concatenate([[0], ends[:-1] + 1])
    chosen = np.arange(len(ends))
    while len(chosen) > 1 and (ends - begins + 1)[chosen].sum() > transitions:
        count = len(chosen) - 1
        chosen = ((np.arange(count) + 0.5) * len(ends) / count).astype(np.int64)
    row = np.concatenate([np.arange(begins[i], ends[i] + 1) for i in chosen])
    return until(Columns(*(column[row] for column in columns)), transitions)


def random_return(plan: Plan) -> float:
    """The mean return of uniformly random actions."""
    columns = roll_out(
        plan.env,
        random_behavior(environment_spec(plan.env).action, plan.options.seed),
        episodes=REFERENCE_EPISODES,
        tag=REFERENCE_TAG,
        seed=plan.options.seed,
    )
    return float(columns.episode_returns().mean())


def own_scores(plan: Plan, view: View, minimum: float, expert: Policy) -> ReferenceScores | None:
    """Random and expert return as the task's references, where none are published."""
    result = evaluate(expert, plan.env, episodes=REFERENCE_EPISODES, evaluation_seed=REFERENCE_TAG)
    maximum = float(result.returns.mean())
    view.event(
        f"mean return of {REFERENCE_EPISODES} episodes: random {minimum:.1f}, expert (after "
        f"{expert.run.step} steps) {maximum:.1f}"
    )
    if maximum <= minimum:
        view.event("the learner is no better than random: no reference returns are kept")
        return None
    return ReferenceScores(minimum, maximum, "random and expert of this collection")
