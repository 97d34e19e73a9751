"""FMR on images: behind convolutions it learns what the pictures tell, whatever the actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leeward
from leeward.algorithms.fmr import ALGORITHM, Config, act, enter_policy, init
from leeward.data.dataset import Dataset
from leeward.data.sampling import fit_scaling, gather, to_device
from leeward.errors import SpecError
from leeward.nn.behavior import augmented, blurred
from leeward.nn.discrete import CategoricalActor
from leeward.nn.distributions import Categorical
from leeward.nn.encoders import Encoded
from leeward.types import PRNGKey
from training import lines

SIDE = 36
PLACES = 3


def picture(place: int | np.ndarray) -> np.ndarray:
    """A white band of twelve rows at one of three heights: [..., 36, 36] bytes."""
    row = np.arange(SIDE) // (SIDE // PLACES)
    band = row == np.asarray(place)[..., None]
    return np.broadcast_to(255 * band[..., None], (*np.shape(place), SIDE, SIDE)).astype(np.uint8)


def pictures(kind: str) -> Dataset:
    """16 walks through the three places in turn; the action is the place, or half of it − 0.5.

    Two gray frames make one observation; frames are stored once. No rewards.
    """
    place = np.tile(np.arange(12) % PLACES, 16)
    last = np.arange(len(place)) % 12 == 11
    if kind == "discrete":
        action: Any = place
        space: dict[str, Any] = {"action_count": PLACES}
    else:
        action = (0.5 * place - 0.5)[:, None]
        space = {"action_low": -1.0, "action_high": 1.0}
    return Dataset.from_arrays(
        picture(place),
        action,
        np.zeros(len(place)),
        last,
        np.zeros(len(place), bool),
        **space,
        metadata={"name": "bands", "frame_stack": 2},
    )


SETTINGS: dict[str, Any] = {
    "steps": 60,
    "value_steps": 2,
    "behavior_steps": 60,
    "value_ensemble": 1,
    "batch_size": 16,
    "hidden": (16,),
    "actor_lr": 3e-3,
    "behavior_lr": 3e-3,
    "validation_fraction": 0.0,
    "log_every": 60,
    "quiet": True,
    "logger": (),
}


def test_the_policy_learns_what_the_pictures_tell(tmp_path: Path) -> None:
    """Discrete actions and stacked frames: the actions of all three places."""
    directory = tmp_path / "run"
    leeward.train("fmr", pictures("discrete"), run_dir=directory, **SETTINGS)
    rows = [row for row in lines(directory) if "training/accuracy" in row]
    assert [row["phase"] for row in rows] == ["behavior", "policy"]
    assert all(row["training/accuracy"] == 1.0 for row in rows)
    policy = leeward.load_policy(directory)
    now = np.arange(PLACES)
    before = (now - 1) % PLACES
    stack = np.stack([picture(before), picture(now)], axis=1)
    np.testing.assert_array_equal(policy(stack), now)
    with np.load(directory / "closeups" / "value.npz", allow_pickle=False) as held:
        assert np.isfinite(held["value"]).all()
        assert 0.5 < held["explained"].sum() <= 1.0 + 1e-6


def test_every_state_of_the_data_is_computed_once_with_its_own_stack() -> None:
    """More states than a part holds; the frozen outputs are those of the stacked frames."""
    dataset = pictures("discrete")
    data = to_device(dataset, fit_scaling(dataset, normalize_observations=True))
    config = Config(hidden=(8,), value_ensemble=1)
    state = init(config, dataset.spec, jax.random.key(0))
    entered = jax.jit(lambda s: enter_policy(config, s, data, jax.random.key(0)))(state)
    assert isinstance(entered.reference, Categorical)
    assert entered.reference.logit.shape == (dataset.transitions, PLACES)
    for number in (0, 1, 130, 191):
        row = dataset.start[number]
        older = row if row % 12 == 0 else row - 1
        stack = np.stack([dataset.observation[older], dataset.observation[row]])
        alone = state.behavior.model(jnp.asarray(stack)[None])
        assert isinstance(alone, Categorical)
        np.testing.assert_allclose(
            entered.reference.logit[number], alone.logit[0], rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_every_phase_takes_images_whatever_the_actions(kind: str) -> None:
    """Traced, not run: with Q, a mixture, the conservative term and the discriminator."""
    dataset = pictures(kind)
    data = to_device(dataset, fit_scaling(dataset, normalize_observations=True))
    config = Config(
        hidden=(8,), signal="q", density="mixture", conservative=True, adversarial=True,
        batch_size=4,
    )  # fmt: skip

    def whole(key: PRNGKey) -> tuple[Any, list[Any]]:
        state, metrics = init(config, dataset.spec, key), []
        batch = gather(data, jnp.arange(4), 0.99)
        for phase in ALGORITHM.phases:
            assert phase.enter is not None
            assert phase.measurement is not None
            state = phase.enter(config, state, data, key)
            state, found = phase.update(config, state, batch, key, jnp.int32(0))
            metrics += [found, phase.measurement.numbers(config, state, data, None)]
        return state, metrics

    state, metrics = jax.eval_shape(whole, jax.random.key(0))
    assert all(value.shape == () for found in metrics for value in found.values())
    assert "training/discriminator_accuracy" in metrics[1]
    size = 1 if kind == "continuous" else PLACES
    assert state.value.critic.network.mlp.layers[0].weight.shape == (64 + size, 8)
    assert isinstance(state.value.judge.network, Encoded)
    assert isinstance(state.actor, Encoded if kind == "continuous" else CategoricalActor)
    image = jax.ShapeDtypeStruct((5, 2, SIDE, SIDE), jnp.uint8)
    action = jax.eval_shape(lambda actor, o: act(actor, o, jax.random.key(0)), state.actor, image)
    assert action.shape == ((5, 1) if kind == "continuous" else (5,))


def test_kernels_do_not_compare_images() -> None:
    with pytest.raises(SpecError) as caught:
        leeward.train("fmr", pictures("discrete"), behavior="kernel", **SETTINGS)
    assert str(caught.value) == (
        "bands: --behavior kernel compares states as vectors, which images of shape (2, 36, 36) "
        "are not: use another --behavior, such as gaussian"
    )


def test_noise_on_images_is_a_share_of_white() -> None:
    images = jnp.asarray(picture(np.zeros((6, 2), int)))
    key = jax.random.key(0)
    noisy = np.asarray(blurred(images, 0.1, key)) - np.asarray(images, np.float32)
    assert noisy.std() == pytest.approx(25.5, rel=0.05)
    still = augmented(images, images, 0.0, 0.0, key)
    np.testing.assert_array_equal(still, np.asarray(images, np.float32))
    moved = np.asarray(augmented(jnp.zeros_like(images), images, 0.0, 0.5, key))
    share = moved.max(axis=(1, 2, 3)) / 255.0
    assert (share <= 0.5).all()
    assert len(set(share.tolist())) == 6
    np.testing.assert_allclose(
        moved, share[:, None, None, None] * np.asarray(images, np.float32), rtol=1e-5
    )
