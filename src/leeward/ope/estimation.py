"""`estimate`: the value of policies from logged data alone, by several estimators at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from leeward.data.dataset import Dataset
from leeward.errors import ConfigError, SpecError
from leeward.ope import fitted
from leeward.ope.fitted import Question
from leeward.ope.of_policy import behavior_estimate, policy_estimates
from leeward.ope.options import OpeOptions, check_options, fitted_config
from leeward.ope.problem import Problem
from leeward.ope.ratios import Behavior
from leeward.ope.report import Report
from leeward.ope.targets import Target, check_fits
from leeward.policy import Policy

OnProgress = Callable[[str, int, int], None]
"""Called with what is being fitted, the updates made and those in all."""


def estimate(
    dataset: Dataset,
    policies: Sequence[Target | Policy],
    options: OpeOptions | None = None,
    *,
    behavior: Behavior | None = None,
    on_progress: OnProgress | None = None,
) -> Report:
    """Every policy's discounted return from the first states of the data's episodes.

    Args:
        dataset: logged data.
        policies: saved policies, which act deterministically, or any others as `Target`s.
        options: settings.
        behavior: the density of the data's actions: a policy that has one, or the log-density of
            every row's action [R] in the environment's units; default one that is fitted.
        on_progress: told how far the fits are.

    Raises:
        ConfigError: an impossible setting, or no policy.
        SpecError: a policy that does not fit the data.
        DataError: data without any first state.
    """
    options = options or OpeOptions()
    check_options(options)
    if not policies:
        raise ConfigError("there is no policy to evaluate")
    targets = [
        Target.of_policy(f"policy {i}", p, dataset) if isinstance(p, Policy) else p
        for i, p in enumerate(policies)
    ]
    for target in targets:
        target.check(dataset)
    _check_behavior(behavior, dataset)
    problem = Problem.of(
        dataset, options, behavior, _named(on_progress, "behavior", options.behavior_steps)
    )
    questions = [
        Question(problem.next_choice(target), np.ones(dataset.transitions, np.float32))
        for target in targets
    ]
    known = problem.data_question()
    fits = fitted.fit(
        problem.data,
        dataset.spec,
        questions if known is None else [*questions, known],
        fitted_config(options),
        options.seed,
        _named(on_progress, "values", options.steps * (len(questions) + (known is not None))),
    )
    of_behavior = None if known is None else fits[-1]
    return Report(
        data=str(dataset.metadata.get("name", "data")),
        episodes=len(problem.walks.first),
        discount=options.discount,
        behavior=behavior_estimate(problem),
        policies=tuple(
            policy_estimates(problem, target, fit, of_behavior)
            for target, fit in zip(targets, fits, strict=False)
        ),
        notes=(
            *(("the behavior's density was fitted to the data",) if behavior is None else ()),
            "intervals are over episodes; they do not hold errors that all critics share",
        ),
    )


def _check_behavior(behavior: Behavior | None, dataset: Dataset) -> None:
    if isinstance(behavior, np.ndarray):
        if behavior.shape != dataset.reward.shape or not np.isfinite(behavior[dataset.start]).all():
            raise SpecError(
                f"the behavior's log-densities must be {len(dataset.reward)} finite numbers, one a "
                f"row, got shape {behavior.shape}"
            )
    elif behavior is not None:
        check_fits("the behavior policy", behavior.spec, dataset)
        if not behavior.has_density:
            raise SpecError(
                f"the behavior policy ({behavior.algorithm.name}) has no density: give one that "
                "has, such as BC with --density mixture, or none"
            )


def _named(on_progress: OnProgress | None, name: str, total: int) -> Callable[[int], None] | None:
    if on_progress is None:
        return None
    return lambda updates: on_progress(name, updates, total)
