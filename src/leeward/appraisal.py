"""What policies in training are worth: played in an environment, or estimated from the data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leeward.evaluate import Evaluator
from leeward.job import Job, Position
from leeward.ope.select import Selector
from leeward.policy import PolicyStack
from leeward.progress import View
from leeward.recorder import Recorder, summary

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
        self, policies: PolicyStack, position: Position, recorder: Recorder, view: View
    ) -> np.ndarray:
        """[N]: the number of every run that the best policies are chosen by; writes all found."""
        phase, step, failed = position.phase, position.step, position.failed
        worth = np.full(len(policies.runs), np.nan)
        if self._evaluator is not None:
            result = self._evaluator.evaluate(policies, without=failed)
            recorder.evaluation(phase, step, result, failed)
            view.event(f"{step:>9,} updates   {summary(result)}")
            worth = result.mean_return
        if self._selector is not None:
            worth = self._selector.estimate(policies)
            recorder.estimate(phase, step, worth, failed)
            view.event(f"{step:>9,} updates   estimate {_said(worth)}")
        return worth


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
