"""Which transitions an update sees, and how they are fetched, against slow loops."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from leeward.data.dataset import Dataset
from leeward.data.sampling import (
    Scaling,
    check_sampling,
    choose,
    fit_scaling,
    gather,
    permute,
    sample,
    to_device,
)
from leeward.errors import DataError
from leeward.types import Batch, PRNGKey

IDENTITY = Scaling(jnp.zeros(1), jnp.ones(1), jnp.zeros(1), jnp.ones(1))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 16, 17, 97, 128, 1000, 4096, 4099])
def test_permute_reaches_every_number_once(count: int) -> None:
    sent = jax.jit(permute, static_argnums=1)
    position = jnp.arange(count)
    for seed in range(3):
        found = np.asarray(sent(position, count, jax.random.key(seed)))
        np.testing.assert_array_equal(np.sort(found), position)


@pytest.mark.parametrize("count", [5, 7, 16])
def test_permute_sends_positions_and_pairs_anywhere_equally_often(count: int) -> None:
    """Small counts are where a Feistel network of too few rounds is biased."""
    keys = jax.random.split(jax.random.key(0), 20_000)
    found = np.asarray(jax.jit(jax.vmap(lambda k: permute(jnp.arange(count), count, k)))(keys))
    for position in range(count):
        frequency = np.bincount(found[:, position], minlength=count)
        assert scipy.stats.chisquare(frequency).pvalue > 1e-3
    pair = np.bincount(found[:, 0] * count + found[:, 1], minlength=count**2)
    apart = pair.reshape(count, count)[~np.eye(count, dtype=bool)]
    assert scipy.stats.chisquare(apart).pvalue > 1e-3


def test_epochs_show_every_transition_once_but_for_the_short_batch() -> None:
    count, size = 53, 8
    run_key = jax.random.key(0)
    chosen = jax.jit(
        jax.vmap(lambda step, key: choose("epoch", count, size, run_key, key, step)),
    )(jnp.arange(18), jax.random.split(jax.random.key(1), 18))  # three epochs of six batches
    epochs = np.asarray(chosen).reshape(3, 48)
    for epoch in epochs:
        assert len(np.unique(epoch)) == 48
    assert len({tuple(epoch) for epoch in epochs}) == 3
    # What one epoch leaves out another shows.
    assert set(range(count)) == set(epochs.flatten())


def test_epochs_depend_on_the_run_s_key_and_the_step_alone() -> None:
    def chosen(run: int, update: int, step: int) -> np.ndarray:
        keys = jax.random.key(run), jax.random.key(update)
        return np.asarray(choose("epoch", 64, 16, *keys, jnp.int32(step)))

    np.testing.assert_array_equal(chosen(0, 1, 2), chosen(0, 9, 2))
    assert not np.array_equal(chosen(0, 1, 2), chosen(5, 1, 2))
    assert not np.array_equal(chosen(0, 1, 2), chosen(0, 1, 6))  # the same place, an epoch later


def test_uniform_draws_are_uniform_with_replacement() -> None:
    count = 10
    chosen = choose("uniform", count, 20_000, jax.random.key(0), jax.random.key(1), jnp.int32(0))
    frequency = np.bincount(np.asarray(chosen), minlength=count)
    assert len(frequency) == count
    assert scipy.stats.chisquare(frequency).pvalue > 0.01
    pairs = np.asarray(chosen).reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).mean() == pytest.approx(1 / count, rel=0.1)


def test_uniform_draws_depend_on_the_update_s_key_alone() -> None:
    def chosen(run: int, update: int, step: int) -> np.ndarray:
        keys = jax.random.key(run), jax.random.key(update)
        return np.asarray(choose("uniform", 64, 16, *keys, jnp.int32(step)))

    np.testing.assert_array_equal(chosen(0, 1, 2), chosen(7, 1, 3))
    assert not np.array_equal(chosen(0, 1, 2), chosen(0, 2, 2))


class Step(NamedTuple):
    """One recorded step of the slow loops."""

    observation: float
    action: float
    reward: float
    termination: bool
    truncation: bool


def random_episodes() -> list[list[Step]]:
    """100 episodes of 1 to 6 steps that terminate or are truncated; the last one just stops."""
    draw = np.random.default_rng(0)
    episodes = []
    for _ in range(100):
        length, terminates = int(draw.integers(1, 7)), bool(draw.integers(2))
        episode = [
            Step(draw.normal(), draw.uniform(-1, 1), draw.normal(), False, False)
            for _ in range(length)
        ]
        episode[-1] = episode[-1]._replace(termination=terminates, truncation=not terminates)
        episodes.append(episode)
    episodes[-1][-1] = episodes[-1][-1]._replace(termination=False, truncation=False)
    return episodes


def build(episodes: list[list[Step]], last_known: bool) -> Dataset:
    """The data set of the steps; with `last_known`, 100 + i follows episode i's last step."""
    steps = [step for episode in episodes for step in episode]
    columns: dict[str, Any] = {
        "observation": np.asarray([[s.observation] for s in steps]),
        "action": np.asarray([[s.action] for s in steps]),
        "reward": np.asarray([s.reward for s in steps]),
        "termination": np.asarray([s.termination for s in steps]),
        "truncation": np.asarray([s.truncation for s in steps]),
    }
    if last_known:
        following = [
            [episode[i + 1].observation if i + 1 < len(episode) else 100.0 + number]
            for number, episode in enumerate(episodes)
            for i in range(len(episode))
        ]
        columns["next_observation"] = np.asarray(following)
    return Dataset.from_arrays(**columns, action_low=-1.0, action_high=1.0)


def slow_transitions(
    episodes: list[list[Step]], last_known: bool, n_step: int, discount: float
) -> list[dict[str, float]]:
    """Every transition, walked step by step."""
    found = []
    for number, episode in enumerate(episodes):
        for i in range(len(episode)):
            total, factor, ended, j = 0.0, 1.0, False, i
            while j < len(episode) and j - i < n_step and not ended:
                step = episode[j]
                is_last = j + 1 == len(episode)
                if is_last and not last_known and not step.termination:
                    break  # nothing is known to follow: not a transition
                total += factor * step.reward
                factor *= discount
                ended = step.termination
                j += 1
            if j == i:
                continue
            inside = j < len(episode)
            found.append(
                {
                    "observation": episode[i].observation,
                    "action": episode[i].action,
                    "reward": total,
                    "discount": factor,
                    "termination": float(ended),
                    "next_observation": episode[j].observation if inside else 100.0 + number,
                    "next_action": episode[j].action if inside else np.nan,
                }
            )
    return found


@pytest.mark.parametrize("last_known", [True, False])
@pytest.mark.parametrize("n_step", [1, 3, 20])
def test_transitions_equal_a_slow_walk(n_step: int, last_known: bool) -> None:
    episodes = random_episodes()
    data = to_device(build(episodes, last_known), IDENTITY)
    expected = slow_transitions(episodes, last_known, n_step, 0.9)
    assert data.start.shape == (len(expected),)
    batch = jax.jit(gather, static_argnames="n_step")(
        data, jnp.arange(len(expected)), 0.9, n_step=n_step
    )
    batch = jax.tree.map(np.asarray, batch)
    for i, transition in enumerate(expected):
        compare(batch, i, transition)


def compare(batch: Batch, i: int, transition: dict[str, float]) -> None:
    """Row i of the batch is the slow loop's transition."""
    for name in ("reward", "discount", "termination"):
        assert float(getattr(batch, name)[i]) == pytest.approx(
            transition[name], rel=1e-5, abs=1e-6
        ), name
    for name in ("observation", "action"):
        assert float(getattr(batch, name)[i, 0]) == pytest.approx(transition[name], rel=1e-6)
    if not transition["termination"]:  # what follows the task's end is never used
        assert float(batch.next_observation[i, 0]) == pytest.approx(
            transition["next_observation"], rel=1e-6
        )
    known = not np.isnan(transition["next_action"])
    assert bool(batch.next_action_known[i]) == known
    if known:
        assert float(batch.next_action[i, 0]) == pytest.approx(transition["next_action"], rel=1e-6)


def test_walks_stop_before_a_row_that_starts_no_transition() -> None:
    """Row 2 of one episode is left out: the walk from row 0 bootstraps from it."""
    episode = [Step(float(i), 0.1 * i, 10.0**i, i == 4, False) for i in range(5)]
    dataset = build([episode], last_known=False)
    dataset = dataclasses.replace(dataset, start=np.asarray([0, 1, 3, 4]))
    batch = gather(to_device(dataset, IDENTITY), jnp.arange(4), 0.5, 4)
    np.testing.assert_allclose(batch.reward, [6.0, 10.0, 6000.0, 10000.0])
    np.testing.assert_allclose(batch.discount, [0.25, 0.5, 0.25, 0.5])
    np.testing.assert_allclose(batch.termination, [0.0, 0.0, 1.0, 1.0])
    np.testing.assert_allclose(batch.next_observation[:2, 0], [2.0, 2.0])


def test_stored_next_observations_that_do_not_chain_are_used() -> None:
    rows = np.arange(4.0)
    dataset = Dataset.from_arrays(
        rows[:, None],
        np.zeros((4, 1)),
        rows,
        np.zeros(4, bool),
        np.zeros(4, bool),
        next_observation=rows[:, None] + 50.0,
        action_low=-1.0,
        action_high=1.0,
    )
    batch = gather(to_device(dataset, IDENTITY), jnp.asarray([3, 0, 2]), 0.9)
    np.testing.assert_array_equal(batch.next_observation[:, 0], [53.0, 50.0, 52.0])
    np.testing.assert_array_equal(batch.reward, [3.0, 0.0, 2.0])
    np.testing.assert_array_equal(batch.index, [3, 0, 2])


def test_scaling_is_fitted_to_the_observations_that_start_a_transition() -> None:
    """The last row's 1000 starts none, so it is not counted."""
    observation = np.asarray([[1.0, 5.0], [3.0, 5.0], [1000.0, 1000.0]])
    dataset = Dataset.from_arrays(
        observation,
        np.zeros((3, 1)),
        np.zeros(3),
        np.zeros(3, bool),
        action_low=np.asarray([-0.5]),
        action_high=np.asarray([2.5]),
    )
    scaling = fit_scaling(dataset, normalize_observations=True)
    np.testing.assert_allclose(scaling.observation_mean, [2.0, 5.0])
    np.testing.assert_allclose(scaling.observation_std, [1.001, 0.001], rtol=1e-5)
    np.testing.assert_allclose([scaling.action_center[0], scaling.action_scale[0]], [1.0, 1.5])
    plain = fit_scaling(dataset, normalize_observations=False)
    np.testing.assert_array_equal(plain.normalize(jnp.asarray(observation)), observation)


def test_scaling_goes_to_the_box_and_back() -> None:
    scaling = Scaling(jnp.zeros(2), jnp.ones(2), jnp.asarray([1.0, 0.0]), jnp.asarray([1.5, 0.1]))
    bounds = jnp.asarray([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5]])
    box = scaling.to_environment(bounds)
    np.testing.assert_allclose(box, [[-0.5, -0.1], [2.5, 0.1], [1.0, 0.05]], rtol=1e-6)
    np.testing.assert_allclose(scaling.to_network(box), bounds, rtol=1e-6)
    integers = jnp.asarray([0, 3])
    assert scaling.to_network(integers) is integers
    assert scaling.to_environment(integers) is integers


def test_images_are_left_to_the_encoder() -> None:
    shape = (2, 3)
    scaling = Scaling(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(1), jnp.ones(1))
    image = jnp.full((4, *shape), 200, jnp.uint8)
    assert scaling.normalize(image) is image


def test_vectors_of_bytes_are_numbers_like_others() -> None:
    rows = np.asarray([[0, 10], [200, 10], [0, 10]], np.uint8)
    dataset = Dataset.from_arrays(
        rows, np.zeros((3, 1)), np.zeros(3), np.zeros(3, bool), action_low=-1.0, action_high=1.0
    )
    scaling = fit_scaling(dataset, normalize_observations=True)
    data = to_device(dataset, scaling)
    assert data.observation.dtype == jnp.float32
    np.testing.assert_allclose(data.observation[:, 0], [-1.0, 1.0, -1.0], rtol=1e-4)


def test_actions_on_the_bounds_stay_on_them() -> None:
    draw = np.random.default_rng(0)
    low, high = draw.uniform(-3, -1, 200), draw.uniform(0.1, 2, 200)
    dataset = Dataset.from_arrays(
        np.zeros((2, 1)),
        np.stack([low, high]).astype(np.float32),
        np.zeros(2),
        np.asarray([False, True]),
        action_low=low.astype(np.float32),
        action_high=high.astype(np.float32),
    )
    action = np.asarray(to_device(dataset, fit_scaling(dataset, False)).action)
    assert np.abs(action).max() == 1.0
    np.testing.assert_allclose(action, [[-1.0] * 200, [1.0] * 200], rtol=1e-6)


@dataclasses.dataclass(frozen=True)
class Settings:
    batch_size: int = 16
    discount: float = 0.9
    n_step: int = 3


def test_sample_takes_size_discount_and_steps_from_the_config(
    continuous_dataset: Dataset, key: PRNGKey
) -> None:
    data = to_device(continuous_dataset, fit_scaling(continuous_dataset, False))
    update_key, step = jax.random.key(1), jnp.int32(0)
    batch = sample(Settings(), "uniform", data, key, update_key, step)
    index = choose("uniform", continuous_dataset.transitions, 16, key, update_key, step)
    np.testing.assert_array_equal(batch.index, index)
    np.testing.assert_allclose(batch.reward, gather(data, index, 0.9, 3).reward)
    assert not np.array_equal(batch.reward, gather(data, index, 0.9, 1).reward)


def test_batches_that_cannot_be_drawn_are_refused(continuous_dataset: Dataset) -> None:
    count = continuous_dataset.transitions
    check_sampling(continuous_dataset, "epoch", count, 5)
    with pytest.raises(DataError) as error:
        check_sampling(continuous_dataset, "epoch", count + 1, 1)
    assert str(error.value) == (
        f"small-continuous has {count} transitions, fewer than one batch of {count + 1}: "
        "use --sampling uniform or a smaller --batch-size"
    )
    apart = dataclasses.replace(
        continuous_dataset, next_observation=np.zeros((count, 3), np.float32)
    )
    check_sampling(apart, "uniform", 8, 1)
    with pytest.raises(DataError) as error:
        check_sampling(apart, "uniform", 8, 2)
    assert str(error.value) == (
        "small-continuous keeps next observations that do not chain row to row, so n-step returns "
        "cannot be computed: use --n-step 1"
    )
    nothing = dataclasses.replace(continuous_dataset, start=np.zeros(0, np.int64))
    with pytest.raises(DataError) as error:
        to_device(nothing, fit_scaling(continuous_dataset, False))
    assert str(error.value) == "small-continuous has no transition left"
