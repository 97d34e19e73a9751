"""The estimators' sums equal slow loops, and numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

import slow_estimators as slow
from leeward.data.dataset import Dataset
from leeward.errors import DataError
from leeward.ope import estimators
from leeward.ope.estimators import Sampled, averaged, trajectory_weighted, weighted
from leeward.ope.ratios import cumulative, default_bandwidth, kernel_log_density
from leeward.ope.walks import Walks, find_walks, resampled

DISCOUNT = 0.9


def make_episodes(seed: int = 0) -> list[slow.Episode]:
    draw = np.random.default_rng(seed)
    episodes = []
    for length in (3, 1, 5, 2):
        v = draw.normal(size=length + 1)
        v[-1] *= length != 5  # the third is cut off, the others end
        episodes.append(
            slow.Episode(
                draw.normal(size=length), draw.gamma(2.0, 0.5, length), draw.normal(size=length), v
            )
        )
    return episodes


def walks_of(episodes: list[slow.Episode]) -> Walks:
    length = np.array([len(e.reward) for e in episodes])
    return Walks(np.cumsum(length) - length, length, length != 5, chained=True)


def flat(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays)


class Pieces:
    """The episodes as `weighted` takes them."""

    def __init__(self, episodes: list[slow.Episode]) -> None:
        self.walks = walks_of(episodes)
        self.log = cumulative(np.log(flat([e.ratio for e in episodes])), self.walks)
        self.factor = DISCOUNT**self.walks.step
        self.reward = self.factor * flat([e.reward for e in episodes])
        following = flat([e.v[1:] for e in episodes])
        q = self.factor * flat([e.q for e in episodes])
        self.correction = self.reward - q + self.factor * DISCOUNT * following
        self.first = np.array([e.v[0] for e in episodes])
        self.counts = resampled(len(episodes))

    def sum(self, term: np.ndarray, base: np.ndarray, normalized: bool) -> Sampled:
        return weighted(
            self.walks,
            self.log,
            term,
            base,
            self.counts,
            normalized=normalized,
            discount=DISCOUNT,
        )


@pytest.mark.parametrize("block", [4_000_000, 4])  # all steps at once, and one at a time
@pytest.mark.parametrize("normalized", [False, True])
def test_sums_equal_slow_loops(
    normalized: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimators, "BLOCK", block)
    episodes = make_episodes()
    pieces = Pieces(episodes)
    simple = pieces.sum(pieces.reward, np.zeros(4), normalized)
    assert simple.value == pytest.approx(slow.per_decision(episodes, DISCOUNT, normalized))
    robust = pieces.sum(pieces.correction, pieces.first, normalized)
    assert robust.value == pytest.approx(slow.doubly_robust(episodes, DISCOUNT, normalized))
    whole = trajectory_weighted(
        pieces.walks, pieces.log, pieces.walks.sums(pieces.reward), pieces.counts
    )
    assert whole.value == pytest.approx(slow.trajectory(episodes, DISCOUNT))
    weights = [slow.weight(e, len(e.reward) - 1) for e in episodes]
    assert whole.effective == pytest.approx(slow.effective(weights))
    sizes = [slow.effective([slow.weight(e, t) for e in episodes]) for t in range(5)]
    assert simple.effective == pytest.approx(np.average(sizes, weights=DISCOUNT ** np.arange(5)))


@pytest.mark.parametrize("normalized", [False, True])
def test_a_resample_is_the_estimate_of_its_episodes(normalized: bool) -> None:
    episodes = make_episodes()
    pieces = Pieces(episodes)
    found = pieces.sum(pieces.correction, pieces.first, normalized)
    assert found.resampled.shape == (1_000,)
    for i in (0, 7):
        drawn = np.repeat(np.arange(4), pieces.counts[1 + i])
        assert len(drawn) == 4
        expected = slow.doubly_robust([episodes[j] for j in drawn], DISCOUNT, normalized)
        assert found.resampled[i] == pytest.approx(expected)


def test_two_episodes_by_hand() -> None:
    # Ratios 2, 1/2 and 1/2, 3; rewards 1, 2 and 3, 4; discount 1/2.
    episodes = [
        slow.Episode(np.array([1.0, 2.0]), np.array([2.0, 0.5]), np.zeros(2), np.zeros(3)),
        slow.Episode(np.array([3.0, 4.0]), np.array([0.5, 3.0]), np.zeros(2), np.zeros(3)),
    ]
    walks = walks_of(episodes)
    log = cumulative(np.log(flat([e.ratio for e in episodes])), walks)
    np.testing.assert_allclose(np.exp(log), [2.0, 1.0, 0.5, 1.5])
    reward = 0.5**walks.step * flat([e.reward for e in episodes])
    counts, nothing = resampled(2), np.zeros(2)

    def value(normalized: bool) -> float:
        return weighted(
            walks, log, reward, nothing, counts, normalized=normalized, discount=0.5
        ).value

    assert value(False) == pytest.approx((2.0 + 1.5) / 2 + 0.5 * (2.0 + 6.0) / 2)
    assert value(True) == pytest.approx((2.0 + 1.5) / 2.5 + 0.5 * (2.0 + 6.0) / 2.5)
    whole = trajectory_weighted(walks, log, walks.sums(reward), counts)
    assert whole.value == pytest.approx((1.0 * 2.0 + 1.5 * 5.0) / 2.5)
    assert whole.effective == pytest.approx(2.5**2 / (1.0 + 1.5**2))


def test_huge_weights_overflow_only_where_they_are_not_normalized() -> None:
    walks = Walks(np.array([0, 2]), np.array([2, 2]), np.ones(2, bool), chained=True)
    log, one = np.array([400.0, 800.0, 399.0, 799.0]), np.ones(4)
    counts = resampled(2)

    def sums(normalized: bool) -> Sampled:
        return weighted(walks, log, one, np.zeros(2), counts, normalized=normalized, discount=1.0)

    assert not np.isfinite(sums(False).value)
    assert sums(True).value == pytest.approx(2.0)
    assert sums(True).effective == pytest.approx((1 + np.e) ** 2 / (1 + np.e**2))
    assert trajectory_weighted(walks, log, np.array([1.0, 3.0]), counts).value == pytest.approx(
        (np.e * 1.0 + 3.0) / (np.e + 1.0)
    )


def test_actions_that_the_policy_never_takes_end_a_weight_for_good() -> None:
    walks = Walks(np.array([0, 3]), np.array([3, 2]), np.ones(2, bool), chained=True)
    log = cumulative(np.array([0.5, -np.inf, 0.5, -np.inf, 2.0]), walks)
    np.testing.assert_array_equal(log, [0.5, -np.inf, -np.inf, -np.inf, -np.inf])
    nothing = trajectory_weighted(walks, log, np.ones(2), resampled(2))
    assert np.isnan(nothing.value)
    assert nothing.effective == 0.0
    assert nothing.interval() is None


def test_one_episode_has_no_interval() -> None:
    assert averaged(np.array([2.0]), resampled(1)).interval() is None
    assert averaged(np.array([2.0, 4.0]), resampled(2)).interval() == (2.0, 4.0)


def test_an_interval_holds_the_spread_between_critics() -> None:
    episodes = 10_000
    one = averaged(np.full(episodes, 5.0), resampled(episodes)).interval()
    assert one == (5.0, 5.0)
    two = averaged(np.stack([np.full(episodes, 4.0), np.full(episodes, 6.0)]), resampled(episodes))
    assert two.value == 5.0
    assert two.interval() == (4.0, 6.0)


def test_bootstrap_intervals_cover_the_mean_as_often_as_they_say() -> None:
    draw, inside = np.random.default_rng(0), 0
    counts = resampled(60)
    for _ in range(300):
        low, high = averaged(draw.exponential(size=60), counts).interval() or (1.0, 0.0)
        inside += low <= 1.0 <= high
    # 95 % nominal; of skewed samples of 60 the percentile bootstrap covers about 93 %.
    assert 0.90 < inside / 300 < 0.98


def test_the_kernel_is_a_density_on_the_box() -> None:
    width, center = np.array([0.3, 0.1]), np.array([[0.9, -0.2]])
    grid = (np.arange(400) + 0.5) / 200 - 1.0
    first, second = np.meshgrid(grid, grid, indexing="ij")
    action = np.stack([first.ravel(), second.ravel()], axis=1)
    density = np.exp(kernel_log_density(action, np.broadcast_to(center, action.shape), width))
    assert density.mean() * 4.0 == pytest.approx(1.0, abs=1e-3)
    assert np.exp(kernel_log_density(np.array([[0.0]]), np.zeros((1, 1)), np.array([0.01])))[
        0
    ] == pytest.approx(1.0 / (0.01 * np.sqrt(2.0 * np.pi)))


def test_the_bandwidth_narrows_with_more_data() -> None:
    action = np.random.default_rng(0).uniform(-1.0, 1.0, (100_000, 2))
    expected = np.sqrt(1.0 / 3.0) * 100_000 ** (-1.0 / 6.0)
    np.testing.assert_allclose(default_bandwidth(action), expected, rtol=0.01)
    assert default_bandwidth(np.zeros((100, 1))).min() > 0.0  # an action that never changes


def test_walks_follow_episodes_from_their_first_step(continuous_dataset: Dataset) -> None:
    walks = find_walks(continuous_dataset)
    data = continuous_dataset
    assert len(walks.first) == 40
    for i in range(40):
        rows = np.flatnonzero(data.episode_of_row[data.start] == i)
        own = walks.transition[walks.offset[i] : walks.offset[i] + walks.length[i]]
        np.testing.assert_array_equal(own, rows)
        assert walks.terminated[i] == data.termination[data.start[rows]].any()
    np.testing.assert_array_equal(walks.step[walks.offset], 0)
    np.testing.assert_array_equal(walks.step[walks.last], walks.length - 1)


def test_without_any_first_step_there_is_nothing_to_estimate(continuous_dataset: Dataset) -> None:
    data = continuous_dataset
    without = data.select_transitions(~np.isin(data.start, data.episode_start))
    with pytest.raises(DataError) as caught:
        find_walks(without)
    assert str(caught.value) == (
        "small-continuous has no episode whose first step is known, so there is no first state to "
        "estimate a policy's value from"
    )
