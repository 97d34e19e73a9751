"""BCQ: one update equals a slow computation from the paper (arXiv 1812.02900)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import independent as slow
from fixed import (
    ACTION_SIZE,
    BATCH_SIZE,
    CONTINUOUS,
    assert_close,
    assert_memory_close,
    fixed_batch,
    memory,
    numbers,
    randomize,
)
from leeward.algorithms.bcq import (
    ALGORITHM,
    Config,
    Proposal,
    State,
    act,
    best_value,
    init,
    policy,
    update,
)
from leeward.nn.critics import Critic, Ensemble
from leeward.nn.layers import MLP, Linear
from leeward.nn.many import map_in_parts
from leeward.nn.vae import VAE

CONFIG = Config(
    hidden=(5, 4),
    vae_hidden=(6, 5),
    latent_size=3,
    phi=0.3,
    minimum_weight=0.6,
    sampled_actions=4,
    acting_samples=7,
    actor_lr=0.013,
    critic_lr=0.021,
    vae_lr=0.017,
    tau=0.1,
)
KEY = 5
SEED = 13


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@functools.cache
def run() -> tuple[State, State, dict[str, float]]:
    """The state before, the state after, and the metrics of one update."""
    state = init(CONFIG, CONTINUOUS, jax.random.key(0))
    fixed = state.latent, state.phi
    state = randomize(state, seed=SEED)._replace(latent=fixed[0], phi=fixed[1])
    new, metrics = jax.jit(update)(
        CONFIG, state, fixed_batch(), jax.random.key(KEY), jnp.asarray(0)
    )
    return state, new, {name: float(value) for name, value in metrics.items()}


def rows() -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in fixed_batch()._asdict().items()}


def draws(part: int, *shape: int) -> np.ndarray:
    """The normal numbers that the VAE (0), the critics (1) or the perturbation (2) draw."""
    return np.asarray(jax.random.normal(jax.random.split(jax.random.key(KEY), 3)[part], shape))


def pair(layers: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return slow.mlp(list(layers), np.concatenate([first, second], axis=1))


def decode(decoder: Any, observation: np.ndarray, latent: np.ndarray) -> np.ndarray:
    return np.tanh(pair(decoder, observation, latent))


def perturb(layers: Any, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    return np.clip(action + CONFIG.phi * np.tanh(pair(layers, observation, action)), -1.0, 1.0)


def decoder_of(state: State) -> list[np.ndarray]:
    return numbers(state.vae.decoder)


def test_a_vae_step_equals_the_slow_computation() -> None:
    state, new, metrics = run()
    batch, noise = rows(), draws(0, BATCH_SIZE, 3)
    parameters = numbers(state.vae)
    half = len(parameters) // 2

    def loss(parameters: Any) -> float:
        output = pair(parameters[:half], batch["observation"], batch["action"])
        mean, std = output[:, :3], np.exp(np.clip(output[:, 3:], -4.0, 15.0))
        decoded = decode(parameters[half:], batch["observation"], mean + std * noise)
        # KL(N(m, s²) ‖ N(0, 1)) by its definition: E[log q − log p], with E[z²] = m² + s².
        divergence = -0.5 - np.log(std) + 0.5 * (mean**2 + std**2)
        return float(((decoded - batch["action"]) ** 2).mean() + 0.5 * divergence.mean())

    slope = slow.gradient(loss, parameters)
    moved, adam = slow.adam(parameters, slope, memory(state.vae_opt), CONFIG.vae_lr, 1e-8)
    assert metrics["behavior/loss"] == pytest.approx(loss(parameters), rel=1e-9)
    assert_memory_close(new.vae_opt, adam)
    assert_close(new.vae, moved)


def slow_target(state: State, new: State, *, perturbed: bool = True, clipped: bool = True) -> Any:
    """All proposals of every row in turn; the decoder has made its step, the targets not."""
    batch, noise = rows(), draws(1, BATCH_SIZE, 4, 3)
    latent = np.clip(noise, -0.5, 0.5) if clipped else noise
    best = np.full(BATCH_SIZE, -np.inf)
    for i in range(BATCH_SIZE):
        following = batch["next_observation"][i : i + 1]
        for j in range(4):
            action = decode(decoder_of(new), following, latent[i, j : j + 1])
            if perturbed:
                action = perturb(numbers(state.target_perturbation), following, action)
            q = [slow.critic(numbers(m), following, action)[0] for m in state.target_critic.member]
            best[i] = max(best[i], 0.6 * min(q) + 0.4 * max(q))
    return batch["reward"] + batch["discount"] * (1.0 - batch["termination"]) * best


def slow_critic_loss(parameters: Any, target: np.ndarray) -> float:
    batch, half = rows(), len(parameters) // 2
    values = [
        slow.critic(list(p), batch["observation"], batch["action"])
        for p in (parameters[:half], parameters[half:])
    ]
    return float(sum(((q - target) ** 2).mean() for q in values))


def test_a_critic_step_equals_the_slow_computation_and_moves_the_targets() -> None:
    state, new, metrics = run()
    target, parameters = slow_target(state, new), numbers(state.critic)
    slope = slow.gradient(lambda p: slow_critic_loss(p, target), parameters)
    moved, adam = slow.adam(parameters, slope, memory(state.critic_opt), CONFIG.critic_lr, 1e-8)
    assert metrics["critic/loss"] == pytest.approx(slow_critic_loss(parameters, target), rel=1e-9)
    assert_memory_close(new.critic_opt, adam)
    assert_close(new.critic, moved)
    assert_close(new.target_critic, slow.average(numbers(state.target_critic), moved, CONFIG.tau))


def test_a_perturbation_step_equals_the_slow_computation_and_moves_its_target() -> None:
    state, new, metrics = run()
    observation = rows()["observation"]
    proposed = decode(decoder_of(new), observation, np.clip(draws(2, BATCH_SIZE, 3), -0.5, 0.5))
    critic = numbers(new.critic.member[0])  # after its step

    def loss(parameters: Any) -> float:
        action = perturb(parameters, observation, proposed)
        return float(-slow.critic(critic, observation, action).mean())

    parameters = numbers(state.perturbation)
    slope = slow.gradient(loss, parameters)
    opt = memory(state.perturbation_opt)
    moved, adam = slow.adam(parameters, slope, opt, CONFIG.actor_lr, 1e-8)
    assert metrics["actor/loss"] == pytest.approx(loss(parameters), rel=1e-6)
    assert_memory_close(new.perturbation_opt, adam)
    assert_close(new.perturbation, moved)
    expected = slow.average(numbers(state.target_perturbation), moved, CONFIG.tau)
    assert_close(new.target_perturbation, expected)


# --- Mistakes, each shown to give another number ---


@pytest.mark.parametrize("mistake", [{"perturbed": False}, {"clipped": False}])
def test_the_target_s_actions_are_perturbed_and_their_latents_clipped(mistake: Any) -> None:
    """A popular library decodes the target's actions and never perturbs them."""
    state, new, metrics = run()
    wrong = slow_critic_loss(numbers(state.critic), slow_target(state, new, **mistake))
    assert abs(metrics["critic/loss"] - wrong) > 0.01


def linear(*weight: list[float], bias: float = 0.0) -> MLP:
    """One layer with the given rows."""
    return MLP((Linear(jnp.asarray(weight), jnp.full(1, bias)),), ())


def test_the_target_of_a_case_small_enough_to_enumerate() -> None:
    """Actions tanh(z) for z in −0.5, 0, 0.5, each moved up by 0.1; Q₁ = a and Q₂ = −a.

    ¾·min + ¼·max = −|a|/2, so the best proposal is the smallest: −0.05 at tanh(0) + 0.1. Without
    the perturbation it would be 0.
    """
    config = Config(phi=0.1, minimum_weight=0.75)
    state, _, _ = run()
    state = state._replace(
        vae=VAE(state.vae.encoder, linear([0.0], [1.0])),
        target_perturbation=linear([0.0], [0.0], bias=100.0),
        target_critic=Ensemble((Critic(linear([0.0], [1.0])), Critic(linear([0.0], [-1.0])))),
    )
    proposal = Proposal(jnp.zeros((1, 1)), jnp.asarray([[[-0.5], [0.0], [0.5]]]))
    np.testing.assert_allclose(best_value(config, state, proposal), [-0.05], rtol=1e-9)
    still = state._replace(target_perturbation=linear([0.0], [0.0]))
    np.testing.assert_allclose(best_value(config, still, proposal), [0.0], atol=1e-12)


# --- Acting, parts, settings ---


def test_the_policy_takes_the_best_of_its_own_proposals() -> None:
    state, _, _ = run()
    assert state.latent.shape == (7, 3)
    assert np.abs(state.latent).max() <= 0.5
    observation = rows()["observation"]
    candidates = []
    for latent in np.asarray(state.latent):
        latents = np.broadcast_to(latent, (BATCH_SIZE, 3))
        decoded = decode(decoder_of(state), observation, latents)
        candidates.append(perturb(numbers(state.perturbation), observation, decoded))
    first = numbers(state.critic.member[0])
    values = np.stack([slow.critic(first, observation, c) for c in candidates])  # [7, B]
    best = np.stack(candidates)[values.argmax(axis=0), np.arange(BATCH_SIZE)]
    assert len(set(values.argmax(axis=0))) > 1
    for key in (0, 1):  # nothing is drawn while acting
        found = act(policy(state), fixed_batch().observation, jax.random.key(key))
        np.testing.assert_allclose(found, best, rtol=1e-6)
    single = act(policy(state), fixed_batch().observation[0], jax.random.key(0))
    np.testing.assert_allclose(single, best[0], rtol=1e-6)


def test_latents_and_phi_of_the_policy_never_change() -> None:
    state, new, _ = run()
    np.testing.assert_array_equal(state.latent, new.latent)
    assert float(new.phi) == pytest.approx(CONFIG.phi)


@pytest.mark.parametrize("part_size", [2, 3, 6, 4])
def test_parts_give_what_all_rows_give(part_size: int) -> None:
    batch = {"a": jnp.arange(12.0).reshape(6, 2), "b": jnp.arange(6.0)}

    def function(part: Any) -> Any:
        return part["a"] * part["b"][:, None]

    np.testing.assert_array_equal(map_in_parts(function, batch, part_size), function(batch))


def test_defaults_and_tianshou_s_preset() -> None:
    config = Config()
    assert (config.vae_hidden, config.hidden) == ((750, 750), (256, 256))
    assert (config.phi, config.minimum_weight) == (0.05, 0.75)
    assert (config.sampled_actions, config.acting_samples) == (10, 100)
    assert (config.actor_lr, config.critic_lr, config.vae_lr) == (1e-3, 1e-3, 1e-3)
    assert init(config, CONTINUOUS, jax.random.key(0)).latent.shape == (100, 2 * ACTION_SIZE)
    preset = Config(**ALGORITHM.presets["tianshou"])
    assert preset.vae_hidden == (512, 512)
    assert preset.n_step == 1  # its flag reaches nothing


def test_targets_start_as_copies() -> None:
    state = init(CONFIG, CONTINUOUS, jax.random.key(3))
    assert_close(state.target_critic, numbers(state.critic), rtol=0)
    assert_close(state.target_perturbation, numbers(state.perturbation), rtol=0)
