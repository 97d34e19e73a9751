"""What policies in training are worth: played in an environment, or estimated from the data."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from leeward import engine
from leeward.evaluate import Evaluator
from leeward.job import Job, Position
from leeward.ope.select import Selector
from leeward.policy import PolicyStack
from leeward.progress import View
from leeward.recorder import Recorder, summary
from leeward.saving import Arrays, Keeper, better_runs

DISCOUNT = 0.99
"""Of estimates, for algorithms that have no discount of their own (such as BC)."""


class Appraiser:
    """Evaluates and estimates the policies of a job; the best are chosen by one of the two."""

    def __init__(self, evaluator: Evaluator | None, selector: Selector | None) -> None:
        self._evaluator, self._selector = evaluator, selector

    def close(self) -> None:
        """Closes the environments."""
        if self._evaluator is not None:
            self._evaluator.close()

    def appraise(
        self,
        policies: PolicyStack,
        position: Position,
        recorder: Recorder,
        view: View,
        unit: str = "updates",
    ) -> np.ndarray:
        """[N]: the number of every run that the best policies are chosen by; writes all found.

        `unit` is what `position.step` counts.
        """
        phase, step, failed = position.phase, position.step, position.failed
        worth = np.full(len(policies.runs), np.nan)
        if self._evaluator is not None:
            result = self._evaluator.evaluate(policies, without=failed)
            recorder.evaluation(phase, step, result, failed)
            view.event(f"{step:>9,} {unit}   {summary(result)}")
            worth = result.mean_return
        if self._selector is not None:
            worth = self._selector.estimate(policies)
            recorder.estimate(phase, step, worth, failed)
            view.event(f"{step:>9,} {unit}   estimate {_said(worth)}")
        return worth


def appraise_all(
    job: Job,
    keeper: Keeper,
    appraiser: Appraiser,
    arrays: Arrays,
    position: Position,
    recorder: Recorder,
    view: View,
    unit: str = "updates",
) -> None:
    """Finds out what every run's policy is worth; keeps the best in `arrays` and in best/."""
    step, policy = position.step, keeper.policies(arrays.state)
    stack = keeper.stack(policy, [step] * job.runs, None)
    worth = appraiser.appraise(stack, position, recorder, view, unit)
    better = better_runs(worth, position, step)
    if arrays.best_policy is None:
        arrays.best_policy = jax.tree.map(jnp.copy, policy)
    elif better.any():
        arrays.best_policy = engine.select_runs(better, policy, arrays.best_policy)
    if better.any():
        # A saved policy's return is one that was played.
        played = position.best_return if job.options.select == "evaluation" else None
        keeper.save_policy(keeper.best, arrays.best_policy, position.best_step, played)


def make_appraiser(job: Job) -> Appraiser | None:
    """The appraiser that a job asks for, or None where nothing tells what policies are worth."""
    options, evaluator, selector = job.options, None, None
    if options.eval_every == 0:
        return None
    if job.environment is not None:
        evaluator = Evaluator(
            job.environment, episodes=options.eval_episodes, reference=job.dataset.metadata
        )
    if options.select == "ope":
        discount = float(getattr(job.config, "discount", DISCOUNT))
        logged = job.dataset if job.logged is None else job.logged
        selector = Selector(logged, discount, options.select_steps)
    if evaluator is None and selector is None:
        return None
    return Appraiser(evaluator, selector)


def _said(worth: Sequence[float] | np.ndarray) -> str:
    return " ".join("none" if np.isnan(value) else f"{value:.1f}" for value in worth)
