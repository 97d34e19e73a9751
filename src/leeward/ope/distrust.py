"""When an estimate should not be trusted, each reason in plain words. All limits are ours."""

from __future__ import annotations

import numpy as np

FEWEST_EPISODES = 10
"""Episodes, or effective ones, that an estimate must rest on."""
RARE = 0.01
"""Actions count as absent from the data where they are less likely than this share of its own."""
MOST_ABSENT = 0.2
"""Share of absent actions above which values are guesses."""
MOST_CUT = 0.05
"""Share of the discounted weight that may lie behind the end of recordings."""
MOST_SPREAD = 0.1
"""Difference of critics, and of a fit from itself halfway, as a share of the size of values."""
FITTED = ("fqe", "one-step", "dr", "wdr")
"""Estimators that ask critics about the policy's actions."""
CUT = ("one-step", "pdis", "wis", "sn-pdis")
"""Estimators that count no reward after a recording's end."""


def few_episodes(episodes: int) -> str | None:
    """Too few episodes for any interval."""
    if episodes >= FEWEST_EPISODES:
        return None
    return f"there {'is 1 episode' if episodes == 1 else f'are {episodes} episodes'} only"


def few_effective(effective: float, episodes: int) -> str | None:
    """Weights so uneven that hardly any episode counts."""
    if effective >= min(FEWEST_EPISODES, episodes):
        return None
    return f"it rests on {effective:.1f} effective episodes of {episodes:,}"


def absent_actions(at_policy: np.ndarray, of_data: np.ndarray) -> str | None:
    """Log behavior densities of the policy's actions and of the data's, at the same states."""
    share = float((at_policy < np.quantile(of_data, RARE)).mean())
    if share <= MOST_ABSENT:
        return None
    return f"{share:.0%} of the policy's actions are all but absent from the data there"


def cut_short(length: np.ndarray, terminated: np.ndarray, discount: float) -> str | None:
    """Recordings that stop while much of the return is still to come."""
    share = float(np.where(terminated, 0.0, discount**length).mean())
    if share <= MOST_CUT:
        return None
    return f"recordings stop while {share:.0%} of the discounted weight is still to come"


def apart(first: np.ndarray, halfway: float, size: float) -> list[str]:
    """Critics [E] that disagree on the value, or a fit that has not settled.

    Args:
        first: every critic's mean value of the first states.
        halfway: the same after half of the updates, over critics.
        size: the size of values.
    """
    reasons = []
    if float(np.ptp(first)) > MOST_SPREAD * size:
        values = " and ".join(f"{value:.4g}" for value in (first.min(), first.max()))
        reasons.append(f"its critics disagree (between {values})")
    if abs(float(first.mean()) - halfway) > MOST_SPREAD * size:
        reasons.append(
            f"it had not settled ({halfway:.4g} after half of the updates, {first.mean():.4g} at "
            "the end): use more --steps"
        )
    return reasons


def impossible(value: float, reward: np.ndarray, discount: float) -> str | None:
    """A value that no policy could have with the rewards seen."""
    low = min(float(reward.min()), 0.0) / (1.0 - discount)
    high = max(float(reward.max()), 0.0) / (1.0 - discount)
    slack = 0.01 * (high - low)
    if low - slack <= value <= high + slack:
        return None
    return (
        f"no policy can have it: with the rewards seen values lie between {low:.4g} and {high:.4g}"
    )
