"""IQL: values from the data's actions alone, by expectile regression.

Kostrikov, Nair & Levine, "Offline Reinforcement Learning with Implicit Q-Learning", 2021, arXiv
2110.06169. Defaults are the paper's for locomotion and the authors' code's (ikostrikov/
implicit_q_learning): expectile 0.7 and β 3. The paper has 0.9 and 10 for AntMaze, β 0.5 and a
dropout of 0.1 for Adroit and Kitchen, and scales rewards (data/transforms.py): to a range of
returns of 1000 for locomotion, minus 1 for AntMaze.

Difference from the authors' code: value, critics and actor step from the same parameters, as in
CORL; there the value network steps first, so that actor and critics see it one step later.

`fmr` holds the actor to a model of the data's behavior, cloned beside it, where V is low (see
algorithms/fmr.py). `replace` puts −KL·w in the place of log π(a|s); the weights by advantage stay.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from leeward.config import config as configuration
from leeward.losses import advantage_weight, expectile_loss, td_target
from leeward.nn.actors import sample_action
from leeward.nn.critics import Ensemble, Value, make_ensemble, make_value
from leeward.nn.divergence import normal_kl
from leeward.nn.feedback import Weighting, feedback_weight, standardize
from leeward.nn.gaussian import FixedStdActor, Normal, make_fixed_std_actor
from leeward.nn.layers import orthogonal
from leeward.optim import cosine, descend, polyak
from leeward.types import Algorithm, Batch, Metrics, Online, Phase, PRNGKey, Sampling, Spec, Step


@configuration
class Config:
    steps: int = 1_000_000
    """Updates in total; the actor's rate decays to 0 over them."""
    batch_size: int = 256
    """Transitions an update."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden sizes of actor, critics and value network."""
    expectile: float = 0.7
    """Which expectile of the data's action values V is: 0.5 their mean, near 1 their best."""
    beta: float = 3.0
    """Inverse temperature of the advantage in the actor's weights: 0 is behavior cloning."""
    weight_clip: float = 100.0
    """Largest weight of one action in the actor's loss."""
    dropout: bool = False
    """Drop hidden units of the actor in training (the paper's Adroit and Kitchen)."""
    dropout_rate: float = 0.1
    """Share of the units that dropout leaves out."""
    fmr: Literal["off", "add", "replace"] = "off"
    """FMR's term of the actor: none, beside the weighted likelihood, or in the likelihood's place,
    weighted as it by advantage."""
    fmr_weight: float = 0.1
    """λ: weight of that term."""
    fmr_weighting: Weighting = "low-value"
    """How its weights follow V (see fmr)."""
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
    """Standardize observations by the data's mean and std + 1e-3."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


class State(NamedTuple):
    actor: FixedStdActor
    critic: Ensemble
    target_critic: Ensemble
    value: Value
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    value_opt: optax.OptState
    behavior: FixedStdActor | None = None  # only with FMR's term
    behavior_opt: optax.OptState | None = None


SIGNAL_CLIP = 3.0
"""FMR's standardized values are clipped to ± this (ours, as in algorithms/fmr.py)."""


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """Networks with orthogonal weights (gain √2 in every layer), as the authors' code has."""
    actor_key, critic_key, value_key = jax.random.split(key, 3)
    weights = orthogonal(2**0.5)
    actor = make_fixed_std_actor(spec, config.hidden, actor_key, initializer=weights)
    critic = make_ensemble(2, spec, config.hidden, critic_key, initializer=weights)
    value = make_value(spec, config.hidden, value_key, initializer=weights)
    state = State(
        actor=actor,
        critic=critic,
        target_critic=critic,
        value=value,
        actor_opt=optax.adam(config.actor_lr).init(actor),  # type: ignore[arg-type]
        critic_opt=optax.adam(config.critic_lr).init(critic),  # type: ignore[arg-type]
        value_opt=optax.adam(config.value_lr).init(value),  # type: ignore[arg-type]
    )
    if config.fmr == "off":
        return state
    behavior_key = jax.random.fold_in(actor_key, 1)
    behavior = make_fixed_std_actor(spec, config.hidden, behavior_key, initializer=weights)
    behavior_opt = optax.adam(config.actor_lr).init(behavior)  # type: ignore[arg-type]
    return state._replace(behavior=behavior, behavior_opt=behavior_opt)


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """One step each of value network, critics and actor, then of the target critics."""
    target_q = state.target_critic(batch.observation, batch.action).min(axis=0)  # [B]
    advantage = target_q - state.value(batch.observation)  # [B]
    next_value = state.value(batch.next_observation)  # [B]
    value, value_opt, value_metrics = update_value(config, state, batch, target_q)
    critic, critic_opt, critic_metrics = update_critic(config, state, batch, next_value)
    actor, actor_opt, actor_metrics = update_actor(config, state, batch, advantage, key, step)
    if config.fmr != "off":
        state = update_behavior(config, state, batch, step)
    return state._replace(
        actor=actor,
        critic=critic,
        target_critic=polyak(state.target_critic, critic, config.tau),
        value=value,
        actor_opt=actor_opt,
        critic_opt=critic_opt,
        value_opt=value_opt,
    ), value_metrics | critic_metrics | actor_metrics


def update_value(
    config: Config, state: State, batch: Batch, target_q: Float[Array, " B"]
) -> tuple[Value, optax.OptState, Metrics]:
    """V towards an upper expectile of min Q⁻(s, a) over the data's actions (eq. 5)."""

    def loss(value: Value) -> tuple[Float[Array, ""], Metrics]:
        v = value(batch.observation)  # [B]
        total = expectile_loss(target_q - v, config.expectile).mean()
        return total, {"value/loss": total, "value/v": v.mean()}

    return descend(loss, state.value, optax.adam(config.value_lr), state.value_opt)


def update_critic(
    config: Config, state: State, batch: Batch, next_value: Float[Array, " B"]
) -> tuple[Ensemble, optax.OptState, Metrics]:
    """Both critics towards r + γ(1 − d)V(s'): no action outside the data is asked for (eq. 6)."""
    target = td_target(batch, next_value)

    def loss(critic: Ensemble) -> tuple[Float[Array, ""], Metrics]:
        q = critic(batch.observation, batch.action)  # [E, B]
        squared_error = jnp.square(q - target[None, :]).mean(axis=1).sum()
        return squared_error, {"critic/loss": squared_error, "critic/q": q.mean()}

    return descend(loss, state.critic, optax.adam(config.critic_lr), state.critic_opt)


def update_actor(
    config: Config,
    state: State,
    batch: Batch,
    advantage: Float[Array, " B"],
    key: PRNGKey,
    step: Step,
) -> tuple[FixedStdActor, optax.OptState, Metrics]:
    """Maximizes log π(a|s), weighted by min(exp(β·advantage), clip) (eq. 7)."""
    weight = advantage_weight(advantage, config.beta, config.weight_clip)  # [B]

    def loss(actor: FixedStdActor) -> tuple[Float[Array, ""], Metrics]:
        if config.dropout:
            distribution = actor.with_dropout(batch.observation, config.dropout_rate, key)
        else:
            distribution = actor(batch.observation)
        total = -(weight * distribution.log_prob(batch.action)).mean()
        metrics = {"actor/advantage": advantage.mean(), "actor/weight": weight.mean()}
        if config.fmr != "off":
            feedback = fmr_term(config, state, batch, distribution)  # [B]
            metrics["actor/feedback"] = feedback.mean()
            if config.fmr == "add":
                total = total + config.fmr_weight * feedback.mean()
            else:
                total = config.fmr_weight * (weight * feedback).mean()
        return total, metrics | {"actor/loss": total}

    rate = cosine(step, config.actor_lr, config.steps)
    return descend(loss, state.actor, optax.adam(rate), state.actor_opt)


def fmr_term(config: Config, state: State, batch: Batch, policy: Normal) -> Float[Array, " B"]:
    """KL(policy ‖ behavior model) · w of every state, w by V(s)."""
    assert state.behavior is not None
    signal = standardize(state.value(batch.observation))
    weight = feedback_weight(signal, config.fmr_weighting, SIGNAL_CLIP)
    return normal_kl(policy, state.behavior(batch.observation)) * weight


def update_behavior(config: Config, state: State, batch: Batch, step: Step) -> State:
    """One step of the behavior model's cloning, at the actor's rate."""
    assert state.behavior is not None
    assert state.behavior_opt is not None

    def loss(behavior: FixedStdActor) -> tuple[Float[Array, ""], Metrics]:
        return -behavior(batch.observation).log_prob(batch.action).mean(), {}

    adam = optax.adam(cosine(step, config.actor_lr, config.steps))
    behavior, behavior_opt, _ = descend(loss, state.behavior, adam, state.behavior_opt)
    return state._replace(behavior=behavior, behavior_opt=behavior_opt)


def policy(state: State) -> FixedStdActor:
    """The actor."""
    return state.actor


def act(
    policy: FixedStdActor, observation: Float[Array, "*batch obs"], key: PRNGKey
) -> Float[Array, "*batch A"]:
    """The mean action, without dropout."""
    del key  # deterministic
    return policy(observation).mode()


ALGORITHM = Algorithm(
    name="iql",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    policy=policy,
    act=act,
    online=Online(sample_action),  # without dropout
)
