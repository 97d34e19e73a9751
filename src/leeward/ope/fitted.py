"""Fitted Q evaluation: the value of a policy by regression on its own Bellman equation.

Le, Voloshin & Yue, "Batch Policy Learning under Constraints", 2019, arXiv 1903.08738, algorithm 3,
with a slowly following target network in place of full regressions (as d3rlpy and Fu et al.,
arXiv 2103.16596, have it). What the policy does at every next observation is computed once and
gathered, so that an update costs the critics alone. Of a stochastic policy several actions are
drawn at every next observation, once too, and the mean of their values is the target.

Ours: critics begin at the mean of the data's returns and are scaled by their spread; there are
several, and their differences tell how far the fit can be relied on; the rate falls to 0 by a
cosine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Shaped

from leeward import engine
from leeward.config import config as configuration
from leeward.data.returns import return_to_go
from leeward.data.sampling import DeviceData, gather, observe
from leeward.losses import td_target
from leeward.nn.critics import Ensemble, make_ensemble
from leeward.nn.discrete import QNetwork, make_q_network
from leeward.optim import cosine, descend, polyak
from leeward.types import Batch, Discrete, Metrics, Phase, PRNGKey, Sampling, Spec, Step

CHOICE_BYTES = 1 << 29
"""Memory for the policies' choices on the device; more policies are fitted in groups (ours)."""
PIECE, IMAGES = 4096, 256
"""Vectors and images whose values are computed at once (ours: hidden units take tens of MB)."""


@configuration
class Config:
    """Settings of the fits."""

    steps: int = 20_000
    """Updates of every policy's critics."""
    batch_size: int = 256
    """Transitions an update."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden sizes of the critics."""
    critics: int = 2
    """Critics a policy."""
    lr: float = 1e-3
    """Adam rate at the start."""
    discount: float = 0.99
    """Discount of future rewards."""
    tau: float = 0.05
    """Step of the target critics towards the online ones."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement."""


class ActionValues(eqx.Module):
    """E networks that share nothing, each with the values of all discrete actions."""

    member: tuple[QNetwork, ...]

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, "E *batch C"]:
        """Every member's values, stacked."""
        return jnp.stack([network(observation) for network in self.member])


Critic = Ensemble | ActionValues


class State(NamedTuple):
    """The fit of one policy."""

    critic: Critic
    target: Critic
    opt: optax.OptState
    center: Float[Array, ""]  # value = center + scale · network
    scale: Float[Array, ""]
    next_choice: Float[Array, "T *samples C"]  # its actions, or probabilities of discrete ones
    weight: Float[Array, " T"]  # 0 where it is not known what the policy does next


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """Critics; what belongs to one policy is put in by `fit`."""
    if isinstance(spec.action, Discrete):
        keys = jax.random.split(key, config.critics)
        critic: Critic = ActionValues(tuple(make_q_network(spec, config.hidden, k) for k in keys))
    else:
        critic = make_ensemble(config.critics, spec, config.hidden, key)
    nothing = jnp.zeros(())
    return State(
        critic=critic,
        target=critic,
        opt=optax.adam(0.0).init(critic),  # type: ignore[arg-type]
        center=nothing,
        scale=nothing,
        next_choice=jnp.zeros((1, 1)),
        weight=jnp.zeros(1),
    )


def values(
    critic: Critic, observation: Shaped[Array, "..."], choice: Float[Array, "*batch C"]
) -> Float[Array, "E *batch"]:
    """Every network's output for an action, or its mean over the probabilities of actions."""
    if isinstance(critic, Ensemble):
        return critic(observation, choice)
    output = critic(observation)
    return (output * jnp.broadcast_to(choice[None], output.shape)).sum(axis=-1)


def policy_values(
    critic: Critic, observation: Shaped[Array, "..."], choice: Float[Array, "B *samples C"]
) -> Float[Array, "E B"]:
    """`values`; the mean over sampled actions where a policy has several for every observation."""
    if choice.ndim == 2:
        return values(critic, observation, choice)
    shape = (*choice.shape[:2], *observation.shape[1:])  # [B, M, *obs]
    wide = jnp.broadcast_to(observation[:, None], shape)
    return values(critic, wide, choice).mean(axis=-1)


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """Every critic towards reward + discount · (1 − termination) · its own target's next value."""
    del key  # the policy's choices are there already
    center, scale = state.center, state.scale
    next_choice = state.next_choice[batch.index]
    weight = state.weight[batch.index]
    following = policy_values(state.target, batch.next_observation, next_choice)  # [E, B]
    next_value = center + scale * following
    target = jax.vmap(lambda value: (td_target(batch, value) - center) / scale)(next_value)
    discrete = isinstance(state.critic, ActionValues)
    taken = jax.nn.one_hot(batch.action, next_choice.shape[-1]) if discrete else batch.action

    def loss(critic: Critic) -> tuple[Float[Array, ""], Metrics]:
        error = values(critic, batch.observation, taken) - target  # [E, B]
        total = (jnp.square(error) * weight[None, :]).mean(axis=1).sum()
        return total, {"ope/loss": total}

    rate = cosine(step, config.lr, config.steps)
    critic, opt, metrics = descend(loss, state.critic, optax.adam(rate), state.opt)
    target_critic = polyak(state.target, critic, config.tau)
    return state._replace(critic=critic, target=target_critic, opt=opt), metrics


PHASE = Phase("ope", lambda config: config.steps, update)


class Question(NamedTuple):
    """A policy to fit, by what it does at the next observations of T transitions."""

    next_choice: np.ndarray
    """[T, A] network actions, [T, M, A] sampled ones, or [T, C] probabilities."""
    weight: np.ndarray
    """[T]: 0 where that is not known."""


class Fitted(NamedTuple):
    """The critics of one policy."""

    critic: Critic
    halfway: Critic
    """The same after half of the updates: a fit that has settled agrees with it."""
    center: Array
    scale: Array

    def at_halfway(self) -> Fitted:
        """The fit as it was after half of the updates."""
        return self._replace(critic=self.halfway)


def fit(
    data: DeviceData,
    spec: Spec,
    questions: Sequence[Question],
    config: Config,
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> list[Fitted]:
    """The critics of every policy, fitted side by side in one compiled program.

    All see the same batches and begin with the same weights, so that differences between policies
    are not chance.

    Args:
        data: the data in network units.
        spec: its shapes.
        questions: the policies.
        config: settings.
        seed: of weights and batches.
        on_progress: called with the updates made so far, over all policies.
    """
    found: dict[int, Fitted] = {}
    for group in _groups(questions):
        before = len(found) * config.steps
        fits = _fit_group(
            data, spec, [questions[i] for i in group], config, seed, _shifted(on_progress, before)
        )
        found.update(zip(group, fits, strict=True))
    return [found[i] for i in range(len(questions))]


def _groups(questions: Sequence[Question]) -> Iterator[list[int]]:
    """The numbers of those that are fitted together: of one shape, and not too large in all."""
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for i, question in enumerate(questions):
        by_shape.setdefault(question.next_choice.shape, []).append(i)
    for alike in by_shape.values():
        most = max(1, CHOICE_BYTES // max(1, questions[alike[0]].next_choice.nbytes))
        size = -(-len(alike) // -(-len(alike) // most))  # groups of about one size
        for begin in range(0, len(alike), size):
            yield alike[begin : begin + size]


def _shifted(on_progress: Callable[[int], None] | None, before: int) -> Callable[[int], None]:
    def report(updates: int) -> None:
        if on_progress is not None:
            on_progress(before + updates)

    return report


def _fit_group(
    data: DeviceData,
    spec: Spec,
    questions: Sequence[Question],
    config: Config,
    seed: int,
    on_progress: Callable[[int], None],
) -> list[Fitted]:
    count = len(questions)
    key = engine.run_keys([seed] * count)
    stacked = engine.stack_configs(config, [{}] * count)
    center, scale = value_range(data, config.discount)
    state = engine.init_states(init, spec, stacked, key)._replace(
        center=jnp.full(count, center, jnp.float32),
        scale=jnp.full(count, scale, jnp.float32),
        next_choice=jnp.asarray(np.stack([q.next_choice for q in questions])),
        weight=jnp.asarray(np.stack([q.weight for q in questions])),
    )
    means = engine.zero_means(PHASE, 0, stacked, state, data, key)
    halfway: Any = jax.tree.map(jnp.copy, state.critic)
    step, half = 0, config.steps // 2
    length = max(1, config.steps // 20)
    while step < config.steps:
        now = min(length, (half if step < half else config.steps) - step)
        state, means, _, _ = engine.run_chunk(
            PHASE, 0, stacked, state, data, key, means, jnp.int32(step), jnp.int32(now)
        )
        step += now
        if step == half:
            halfway = jax.tree.map(jnp.copy, state.critic)
        jax.block_until_ready(means)
        on_progress(step * count)
    whole = Fitted(state.critic, halfway, state.center, state.scale)
    return [jax.tree.map(lambda leaf, i=i: leaf[i], whole) for i in range(count)]


def value_range(data: DeviceData, discount: float) -> tuple[float, float]:
    """Mean and spread of the data's own discounted returns from every transition on.

    Where a recording stops, the mean reward is taken to go on for ever, with ends at the data's
    rate; where next observations do not chain, from the first step on.
    """
    reward = np.asarray(data.reward[data.start], np.float64)
    ended = np.asarray(data.termination[data.start])
    mean = float(reward.mean()) / (1.0 - discount * (1.0 - float(ended.mean())))
    left = np.ones(len(reward), np.int64)
    returns = reward
    if data.next_observation is None:
        left = np.asarray(data.steps_left, np.int64)
        returns = np.asarray(return_to_go(data, discount), np.float64)
    cut = ~ended[np.arange(len(left)) + left - 1]
    returns = returns + np.where(cut, discount**left * mean, 0.0)
    spread = float(returns.std())
    # Returns that are all alike: any size will do.
    return float(returns.mean()), spread if spread > 1e-6 else max(1.0, abs(mean))


def predict(fitted: Fitted, data: DeviceData, row: np.ndarray, choice: np.ndarray) -> np.ndarray:
    """[E, M]: every critic's value of a choice at each row.

    Args:
        fitted: the critics.
        data: the data in network units.
        row: [M] rows.
        choice: [M, C] network actions or probabilities, or [M, S, C] S sampled actions, of which
            the mean value counts.
    """
    return _in_pieces(_at_rows, fitted, data, row, choice)


def predict_next(
    fitted: Fitted, data: DeviceData, transition: np.ndarray, choice: np.ndarray
) -> np.ndarray:
    """[E, M]: the same at what follows each of the transitions [M]."""
    return _in_pieces(_after_transitions, fitted, data, transition, choice)


def _in_pieces(
    program: Callable[..., Array],
    fitted: Fitted,
    data: DeviceData,
    number: np.ndarray,
    choice: np.ndarray,
) -> np.ndarray:
    count, size = len(number), PIECE if data.observation.ndim == 2 else IMAGES
    pieces = -(-count // size)
    missing = pieces * size - count
    number = np.pad(number, (0, missing)).astype(np.int32).reshape(pieces, size)
    choice = np.pad(choice, ((0, missing), *[(0, 0)] * (choice.ndim - 1))).astype(np.float32)
    choice = choice.reshape(pieces, size, *choice.shape[1:])
    output = program(fitted, data, jnp.asarray(number), jnp.asarray(choice))  # [K, E, P]
    numbers = np.asarray(output, np.float64).transpose(1, 0, 2)
    return numbers.reshape(len(numbers), -1)[:, :count]


@jax.jit
def _at_rows(
    fitted: Fitted,
    data: DeviceData,
    row: Int[Array, "K P"],
    choice: Float[Array, "K P *samples C"],
) -> Float[Array, "K E P"]:
    def piece(part: tuple[Array, Array]) -> Array:
        output = policy_values(fitted.critic, observe(data, part[0]), part[1])
        return fitted.center + fitted.scale * output

    return jax.lax.map(piece, (row, choice))


@jax.jit
def _after_transitions(
    fitted: Fitted,
    data: DeviceData,
    transition: Int[Array, "K P"],
    choice: Float[Array, "K P *samples C"],
) -> Float[Array, "K E P"]:
    def piece(part: tuple[Array, Array]) -> Array:
        following = gather(data, part[0], 1.0).next_observation
        output = policy_values(fitted.critic, following, part[1])
        return fitted.center + fitted.scale * output

    return jax.lax.map(piece, (transition, choice))


def is_finite(fitted: Fitted) -> bool:
    """Whether all weights are finite numbers."""
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(fitted.critic))
