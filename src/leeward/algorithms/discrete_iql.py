"""IQL with discrete actions: the same losses, one output an action, and a categorical actor.

Kostrikov, Nair & Levine, "Offline Reinforcement Learning with Implicit Q-Learning", 2021, arXiv
2110.06169, which has continuous actions only; rates, τ, expectile 0.7 and β 3 are its.

Differences: PyTorch's default initialization in place of orthogonal weights, and no dropout.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

from leeward.config import config as configuration
from leeward.losses import advantage_weight, expectile_loss, of_action, td_target
from leeward.nn.discrete import (
    CategoricalActor,
    QNetwork,
    StateValue,
    make_categorical_actor,
    make_q_network,
    make_state_value,
)
from leeward.optim import cosine, descend, polyak
from leeward.types import Algorithm, Batch, Metrics, Phase, PRNGKey, Sampling, Spec, Step

Critics = tuple[QNetwork, QNetwork]


@configuration
class Config:
    steps: int = 1_000_000
    """Updates in total; the actor's rate decays to 0 over them."""
    batch_size: int = 256
    """Transitions an update."""
    hidden: tuple[int, ...] = (512,)
    """Hidden sizes of each of the four networks, behind the convolutions for images."""
    expectile: float = 0.7
    """Which expectile of the data's action values V is: 0.5 their mean, near 1 their best."""
    beta: float = 3.0
    """Inverse temperature of the advantage in the actor's weights: 0 is behavior cloning."""
    weight_clip: float = 100.0
    """Largest weight of one action in the actor's loss."""
    actor_lr: float = 3e-4
    """Adam rate of the actor at the start of its cosine decay."""
    critic_lr: float = 3e-4
    """Adam rate of the critics."""
    value_lr: float = 3e-4
    """Adam rate of the value network."""
    discount: float = 0.99
    """Discount of future rewards."""
    tau: float = 0.005
    """Step of the target critics towards the online ones."""
    normalize_observations: bool = False
    """Standardize vectors by the data's mean and std + 1e-3; images stay as they are."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    actor: CategoricalActor
    critic: Critics
    target_critic: Critics
    value: StateValue
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    value_opt: optax.OptState


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """Four networks; the target critics start as copies."""
    actor_key, first_key, second_key, value_key = jax.random.split(key, 4)
    actor = make_categorical_actor(spec, config.hidden, actor_key)
    critic = (
        make_q_network(spec, config.hidden, first_key),
        make_q_network(spec, config.hidden, second_key),
    )
    value = make_state_value(spec, config.hidden, value_key)
    return State(
        actor=actor,
        critic=critic,
        target_critic=critic,
        value=value,
        actor_opt=optax.adam(config.actor_lr).init(actor),  # type: ignore[arg-type]
        critic_opt=optax.adam(config.critic_lr).init(critic),  # type: ignore[arg-type]
        value_opt=optax.adam(config.value_lr).init(value),  # type: ignore[arg-type]
    )


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """One step each of value network, critics and actor, then of the target critics."""
    del key  # nothing is drawn
    target_q = q_of_data(state.target_critic, batch).min(axis=0)  # [B]
    advantage = target_q - state.value(batch.observation)  # [B]
    next_value = state.value(batch.next_observation)  # [B]
    value, value_opt, value_metrics = update_value(config, state, batch, target_q)
    critic, critic_opt, critic_metrics = update_critic(config, state, batch, next_value)
    actor, actor_opt, actor_metrics = update_actor(config, state, batch, advantage, step)
    return State(
        actor=actor,
        critic=critic,
        target_critic=polyak(state.target_critic, critic, config.tau),
        value=value,
        actor_opt=actor_opt,
        critic_opt=critic_opt,
        value_opt=value_opt,
    ), value_metrics | critic_metrics | actor_metrics


def q_of_data(critic: Critics, batch: Batch) -> Float[Array, "E B"]:
    """Every critic's value of the data's actions."""
    return jnp.stack([of_action(member(batch.observation), batch.action) for member in critic])


def update_value(
    config: Config, state: State, batch: Batch, target_q: Float[Array, " B"]
) -> tuple[StateValue, optax.OptState, Metrics]:
    """V towards an upper expectile of min Q⁻(s, a) over the data's actions (eq. 5)."""

    def loss(value: StateValue) -> tuple[Float[Array, ""], Metrics]:
        v = value(batch.observation)  # [B]
        total = expectile_loss(target_q - v, config.expectile).mean()
        return total, {"value/loss": total, "value/v": v.mean()}

    return descend(loss, state.value, optax.adam(config.value_lr), state.value_opt)


def update_critic(
    config: Config, state: State, batch: Batch, next_value: Float[Array, " B"]
) -> tuple[Critics, optax.OptState, Metrics]:
    """Both critics towards r + γ(1 − d)V(s'): no action outside the data is asked for (eq. 6)."""
    target = td_target(batch, next_value)

    def loss(critic: Critics) -> tuple[Float[Array, ""], Metrics]:
        q = q_of_data(critic, batch)  # [E, B]
        squared_error = jnp.square(q - target[None, :]).mean(axis=1).sum()
        return squared_error, {"critic/loss": squared_error, "critic/q": q.mean()}

    return descend(loss, state.critic, optax.adam(config.critic_lr), state.critic_opt)


def update_actor(
    config: Config, state: State, batch: Batch, advantage: Float[Array, " B"], step: Step
) -> tuple[CategoricalActor, optax.OptState, Metrics]:
    """Maximizes log π(a|s), weighted by min(exp(β·advantage), clip) (eq. 7)."""
    weight = advantage_weight(advantage, config.beta, config.weight_clip)  # [B]

    def loss(actor: CategoricalActor) -> tuple[Float[Array, ""], Metrics]:
        total = -(weight * actor(batch.observation).log_prob(batch.action)).mean()
        return total, {
            "actor/loss": total,
            "actor/advantage": advantage.mean(),
            "actor/weight": weight.mean(),
        }

    rate = cosine(step, config.actor_lr, config.steps)
    return descend(loss, state.actor, optax.adam(rate), state.actor_opt)


def policy(state: State) -> CategoricalActor:
    """The actor."""
    return state.actor


def act(
    policy: CategoricalActor, observation: Shaped[Array, "..."], key: PRNGKey
) -> Int[Array, "*batch"]:
    """The likeliest action."""
    del key  # deterministic
    return policy(observation).mode()


ALGORITHM = Algorithm(
    name="discrete_iql",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    policy=policy,
    act=act,
    actions=("discrete",),
)
