"""Do action and reward belong to their row? Least squares on what each lag would explain.

The action of a row should explain the change of the state to the next row better than the action
of the row before or after does; the reward should follow from the row's own state and action.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leeward.data.columns import finite_rows
from leeward.data.findings import Finding, Steps, finding
from leeward.types import Box

# All limits are ours: clean D4RL-like data stays far below them, data shifted by one row above.
_FEWEST, _MOST = 500, 20_000  # rows used
_WIDEST = 128  # numbers in one observation; wider ones cost more than they tell
_BETTER = 2.0  # how many times more another row's action must explain
_LEAST = 0.05  # share of the change that it must explain more
_NOISE = 1e-4  # share of the reward left unexplained that rounding may account for
_LEFT = 0.3  # share of the reward's unexplained part that another row may leave at most


def check_alignment(steps: Steps) -> Iterator[Finding]:
    """Actions and rewards that lie one row off."""
    if steps.observation is None or not steps.in_order or len(steps.reward) < _FEWEST:
        return
    if steps.observation.shape[1] > _WIDEST:
        return
    episode = steps.episode
    row = np.arange(1, len(episode) - 2)
    row = row[(episode[row - 1] == episode[row]) & (episode[row + 2] == episode[row])]
    finite = _finite(steps)  # the others are findings of their own
    row = row[finite[row - 1] & finite[row] & finite[row + 1]]
    row = np.random.default_rng(0).permutation(row)[:_MOST]
    if len(row) < _FEWEST:
        return
    observation = steps.observation.astype(np.float64)
    action = _action_features(steps)
    state = np.column_stack([observation[row], _standardized(observation[row]) ** 2])
    change = observation[row + 1] - observation[row]
    shifted = _action_lag(state, change, action, row)
    if shifted is None:  # else the reward has no action to follow from
        shifted = _reward_lag(state, observation, action, steps.reward, row)
    if shifted is not None:
        yield shifted


def _finite(steps: Steps) -> np.ndarray:
    """[S] bool: steps all of whose values are finite numbers."""
    columns = (steps.observation, steps.action, steps.reward)
    return np.logical_and.reduce([finite_rows(c) for c in columns if c is not None])


def _action_lag(
    state: np.ndarray, change: np.ndarray, action: np.ndarray, row: np.ndarray
) -> Finding | None:
    left = _unexplained(state, change)
    gain = {}
    for lag in (-1, 0, 1):
        still = _unexplained(np.column_stack([state, action[row + lag]]), change)
        gain[lag] = float(np.clip(1 - still / np.maximum(left, 1e-9), 0, 1).mean())
    lag = max((-1, 1), key=gain.__getitem__)
    if gain[lag] > _BETTER * gain[0] + _LEAST:
        where = "before" if lag < 0 else "after"
        return finding(
            "action_off_by_one",
            "warning",
            f"the action of the row {where} explains {gain[lag]:.0%} of how the state changes, the "
            f"row's own {gain[0]:.0%}",
            f"actions seem to lie one row too {'early' if lag < 0 else 'late'}: shift them within "
            "each episode",
        )
    return None


def _reward_lag(
    state: np.ndarray,
    observation: np.ndarray,
    action: np.ndarray,
    reward: np.ndarray,
    row: np.ndarray,
) -> Finding | None:
    following = observation[row + 1]
    own = _standardized(action[row])
    features = np.column_stack([state, own, own**2, following, _standardized(following) ** 2])
    left = {
        lag: float(_unexplained(features, reward[row + lag][:, None].astype(np.float64))[0])
        for lag in (-1, 0, 1)
    }
    lag = min((-1, 1), key=left.__getitem__)
    if left[0] > _NOISE and left[lag] < 0.5 and left[lag] < _LEFT * left[0]:
        where = "before" if lag < 0 else "after"
        return finding(
            "reward_off_by_one",
            "warning",
            f"state and action explain {1 - left[lag]:.1%} of the reward of the row {where}, and "
            f"{1 - left[0]:.1%} of the row's own",
            f"rewards seem to lie one row too {'early' if lag < 0 else 'late'}: shift them within "
            "each episode",
        )
    return None


def _action_features(steps: Steps) -> np.ndarray:
    """[S, A]: continuous actions as they are, discrete ones as one column of 0 and 1 each."""
    if isinstance(steps.space, Box):
        return steps.action.astype(np.float64)
    return (steps.action[:, None] == np.arange(min(steps.space.size, 64))).astype(np.float64)


def _unexplained(features: np.ndarray, target: np.ndarray) -> np.ndarray:
    """[D]: share of each target's variance left in the second half by a fit to the first."""
    half = len(features) // 2
    design = np.column_stack([np.ones(len(features)), _standardized(features)])
    scaled = _standardized(target)
    fitted, held_out = design[:half], design[half:]
    ridge = 1e-6 * half * np.eye(design.shape[1])  # constant columns must not be singular
    weight = np.linalg.solve(fitted.T @ fitted + ridge, fitted.T @ scaled[:half])
    rest = ((scaled[half:] - held_out @ weight) ** 2).mean(axis=0)
    total = scaled[half:].var(axis=0)
    return np.where(total > 0, rest / np.where(total > 0, total, 1), 1.0)


def _standardized(values: np.ndarray) -> np.ndarray:
    std = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(std > 0, std, 1)
