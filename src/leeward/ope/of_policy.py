"""All estimates of one policy, and the reasons that speak against each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from leeward.ope import distrust, estimators, fitted, ratios
from leeward.ope.estimators import Sampled
from leeward.ope.fitted import Fitted
from leeward.ope.problem import Problem
from leeward.ope.ratios import in_network_density
from leeward.ope.report import ESTIMATORS, Estimate, PolicyEstimates
from leeward.ope.targets import Target
from leeward.types import Discrete

SUPPORT_STATES = 10_000
"""States at which the policy's actions are looked for in the data (ours: right within 1 %)."""
NOT_CHAINED = "next observations do not chain row to row, so episodes are not known as wholes"


class Values(NamedTuple):
    """What the critics of one policy say."""

    first: np.ndarray
    """[E, n]: every critic's value of every first state."""
    taken: np.ndarray
    """[L]: mean over critics of Q at the data's actions."""
    state: np.ndarray
    """[L]: of the policy's value of every state."""
    beyond: np.ndarray
    """[n]: of its value where a recording stopped; 0 where the task ended."""
    halfway: float
    """Mean value of the first states after half of the updates."""


def behavior_estimate(problem: Problem) -> Estimate:
    """The mean discounted return of the data."""
    walks = problem.walks
    if not walks.chained:
        return Estimate(None, reasons=(NOT_CHAINED,))
    found = estimators.averaged(walks.sums(problem.weight * problem.reward), problem.counts)
    cut = distrust.cut_short(walks.length, walks.terminated, problem.options.discount)
    return _estimate(found, [distrust.few_episodes(len(walks.first)), cut])


def policy_estimates(
    problem: Problem, target: Target, fit: Fitted, of_behavior: Fitted | None
) -> PolicyEstimates:
    """Every estimator's number for one policy.

    Args:
        problem: the data.
        target: the policy.
        fit: its critics.
        of_behavior: the behavior's critics, where the data tell what it did next.
    """
    values = values_of(problem, target, fit)
    found: dict[str, Sampled | None] = dict.fromkeys(ESTIMATORS)
    if fitted.is_finite(fit):
        found["fqe"] = estimators.averaged(values.first, problem.counts)
    if problem.walks.chained:
        found |= _over_episodes(problem, target, fit, values, of_behavior)
    reasons = _reasons(problem, target, fit, values, found)
    return PolicyEstimates(
        target.name, {name: _estimate(found[name], reasons[name]) for name in ESTIMATORS}
    )


def values_of(problem: Problem, target: Target, fit: Fitted) -> Values:
    """The values of the data's states and actions by the policy's critics."""
    walks, data, row = problem.walks, problem.data, problem.row
    choice = problem.in_units(target.choice[row])
    taken = fitted.predict(fit, data, row, problem.taken(row)).mean(axis=0)
    state = fitted.predict(fit, data, row, choice)
    start = walks.offset
    halfway = fitted.predict(fit.at_halfway(), data, row[start], choice[start])
    last = walks.transition[walks.last]
    beyond = fitted.predict_next(fit, data, last, problem.next_choice(target)[last])
    return Values(
        first=state[:, start],
        taken=taken,
        state=state.mean(axis=0),
        beyond=np.where(walks.terminated, 0.0, beyond.mean(axis=0)),
        halfway=float(halfway.mean()),
    )


def log_ratio(problem: Problem, target: Target) -> np.ndarray:
    """[L]: log of how much likelier the data's actions are under the policy."""
    row, dataset = problem.row, problem.dataset
    behavior = ratios.behavior_log_density(problem.behavior, dataset, problem.scaling, row)
    if target.log_density is not None:
        return in_network_density(target.log_density[row], dataset, problem.scaling) - behavior
    choice = problem.in_units(target.choice[row])
    if isinstance(dataset.action_space, Discrete):
        with np.errstate(divide="ignore"):  # actions that the policy never takes
            own = np.log(choice[np.arange(len(row)), dataset.action[row]].astype(np.float64))
        return own - behavior
    action = problem.taken(row)
    width = problem.options.bandwidth
    bandwidth = (
        ratios.default_bandwidth(action)
        if width is None
        else np.full(action.shape[1], width, np.float64)
    )
    return ratios.kernel_log_density(action, choice, bandwidth) - behavior


def _over_episodes(
    problem: Problem, target: Target, fit: Fitted, values: Values, of_behavior: Fitted | None
) -> dict[str, Sampled | None]:
    """The estimators that need whole episodes."""
    walks, counts, discount = problem.walks, problem.counts, problem.options.discount
    weight = problem.weight
    log_weight = ratios.cumulative(log_ratio(problem, target), walks)
    reward = weight * problem.reward
    nothing = np.zeros(len(walks.first))

    def weighted(term: np.ndarray, base: np.ndarray, normalized: bool) -> Sampled:
        return estimators.weighted(
            walks, log_weight, term, base, counts, normalized=normalized, discount=discount
        )

    found: dict[str, Sampled | None] = {
        "pdis": weighted(reward, nothing, False),
        "wis": estimators.trajectory_weighted(walks, log_weight, walks.sums(reward), counts),
        "sn-pdis": weighted(reward, nothing, True),
    }
    if fitted.is_finite(fit):
        following = np.append(values.state[1:], 0.0)
        following[walks.last] = values.beyond
        term = weight * (problem.reward - values.taken + discount * following)
        base = values.first.mean(axis=0)
        found |= {"dr": weighted(term, base, False), "wdr": weighted(term, base, True)}
    if of_behavior is not None and fitted.is_finite(of_behavior):
        row, data = problem.row, problem.data
        choice = problem.in_units(target.choice[row])
        own = fitted.predict(of_behavior, data, row, problem.taken(row))
        gain = fitted.predict(of_behavior, data, row, choice) - own
        total = walks.sums(reward + weight * gain.mean(axis=0))
        found["one-step"] = estimators.averaged(total, counts)
    return found


def _reasons(
    problem: Problem,
    target: Target,
    fit: Fitted,
    values: Values,
    found: dict[str, Sampled | None],
) -> dict[str, list[str | None]]:
    """What speaks against each estimate."""
    walks, discount, episodes = problem.walks, problem.options.discount, len(problem.walks.first)
    reward = problem.dataset.reward[problem.dataset.start]
    own = values.first.mean(axis=1)
    size = max(float(fit.scale), abs(float(own.mean())))
    unsettled = distrust.apart(own, values.halfway, size)
    absent = _absent(problem, target)
    cut = distrust.cut_short(walks.length, walks.terminated, discount)
    result: dict[str, list[str | None]] = {}
    for name in ESTIMATORS:
        sampled = found[name]
        said: list[str | None] = [distrust.few_episodes(episodes)]
        if sampled is None:
            said.append(NOT_CHAINED if not walks.chained else "its critics diverged")
        else:
            if np.isfinite(sampled.value):
                said.append(distrust.impossible(sampled.value, reward, discount))
            if sampled.effective is not None:
                said.append(distrust.few_effective(sampled.effective, episodes))
        if name in distrust.FITTED and walks.chained | (name == "fqe"):
            said.append(absent)
        if name in ("fqe", "dr", "wdr") and sampled is not None:
            said += unsettled
        if name in distrust.CUT and walks.chained:
            said.append(cut)
        result[name] = said
    return result


def _absent(problem: Problem, target: Target) -> str | None:
    """Whether the data lack the policy's actions; not known from a density at the data's alone."""
    behavior, dataset, scaling = problem.behavior, problem.dataset, problem.scaling
    if isinstance(behavior, np.ndarray):
        return None
    row = problem.row
    if len(row) > SUPPORT_STATES:
        row = np.random.default_rng(2).choice(row, SUPPORT_STATES, replace=False)
    of_data = ratios.behavior_log_density(behavior, dataset, scaling, row)
    if isinstance(dataset.action_space, Discrete):
        chosen = target.choice[row].argmax(axis=1).astype(np.int32)
    elif target.choice.ndim == 3:
        chosen = target.choice[row, 0]  # one of the sampled ones
    else:
        chosen = target.choice[row]
    at_policy = ratios.behavior_log_density(behavior, dataset, scaling, row, chosen)
    return distrust.absent_actions(at_policy, of_data)


def _estimate(found: Sampled | None, reasons: Sequence[str | None]) -> Estimate:
    said = tuple(reason for reason in reasons if reason)
    if found is None:
        return Estimate(None, reasons=said)
    if not np.isfinite(found.value):
        return Estimate(None, None, found.effective, (*said, "its weights overflow or vanish"))
    return Estimate(found.value, found.interval(), found.effective, said)
