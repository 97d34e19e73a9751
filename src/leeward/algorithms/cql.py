"""CQL: SAC whose critics are pushed down on sampled actions and up on the data's; and Cal-QL.

Kumar, Zhou, Tucker & Levine, "Conservative Q-Learning for Offline Reinforcement Learning", 2020,
arXiv 2006.04779: CQL(H) with importance-sampled logsumexp. Nakamoto et al., "Cal-QL", 2023, arXiv
2303.05479: the values of the policy's actions are bounded from below by the data's own return.

Networks are 2 × 256 as in d3rlpy and Tianshou (3 × 256 in CORL), the weight 5 and the rates 1e-4
and 3e-4 as in d3rlpy and the authors' code. CORL's gym settings: `hidden` 256 256 256, `cql_weight`
10, `actor_lr` 3e-5, `orthogonal` and normalized observations. Critics, actor and multipliers step
from the same parameters, as in CORL.

Differences: the temperature's loss is α(−log π − H̄) as SAC prints it (CORL and Tianshou descend
log α times the same); the log-std has no learned offset (CORL's has). Tianshou's published scores
come from faulty code: its "uniform" actions are all +1, its logsumexp runs over 3 values in place
of 30, and it bounds the uniform actions' values by the return too. `--preset tianshou` has the
example's settings on the right algorithm; its flags `--alpha 0.2` (α is tuned, from 1 on) and
`--n-step 3` reach nothing there, so they are not set.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from leeward.config import config as configuration
from leeward.data.dataset import Dataset
from leeward.data.returns import check_returns_known, return_to_go
from leeward.data.sampling import DeviceData
from leeward.errors import ConfigError
from leeward.losses import td_target, temperature_loss
from leeward.nn.actors import NormalActor, make_normal_actor, sample_action
from leeward.nn.critics import Ensemble, make_ensemble
from leeward.nn.distributions import TanhNormal
from leeward.nn.layers import fan_in_uniform, orthogonal
from leeward.nn.many import ensemble_each, spread
from leeward.optim import apply_gradient, clip_norm, descend, gradient_in_parts, polyak
from leeward.types import Algorithm, Batch, Metrics, Online, Phase, PRNGKey, Sampling, Spec, Step

PART = 16
"""States a part of the critics' gradient (ours: 16 × 31 actions × 256 units fit a core's cache)."""


@configuration
class Config:
    steps: int = 1_000_000
    """Updates in total."""
    batch_size: int = 256
    """Transitions an update."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden sizes of actor and critics."""
    cql_weight: float = 5.0
    """Weight of the conservative gap in the critics' loss."""
    temperature: float = 1.0
    """Temperature of the logsumexp over sampled actions."""
    sampled_actions: int = 10
    """Actions of each kind in the logsumexp: uniform, the policy's, the policy's one step later."""
    lagrange: Literal["off", "gap", "weighted-gap"] = "off"
    """Learn a multiplier of the penalty that holds the gap (or weight times gap) at a threshold."""
    lagrange_threshold: float = 10.0
    """The gap, or weighted gap, above which the multiplier grows (d3rlpy and Tianshou: 10)."""
    multiplier_lr: float = 3e-4
    """Adam rate of the multiplier."""
    calibrated: bool = False
    """Cal-QL: bound the values of the policy's actions from below by the data's return-to-go."""
    repeat_last_reward: bool = False
    """Count the last reward of a cut episode as going on for ever in the return-to-go (AntMaze)."""
    max_backup: bool = False
    """Bootstrap from the best of several sampled next actions in place of one."""
    backup_entropy: bool = False
    """Subtract α log π of the next action in the target (SAC's and Tianshou's backup)."""
    bc_steps: int = 0
    """First updates in which the actor clones the data's actions in place of climbing Q."""
    tune_alpha: bool = True
    """Fit the entropy temperature to an entropy of −A."""
    alpha: float = 1.0
    """Entropy temperature: its start where it is tuned."""
    alpha_lr: float = 1e-4
    """Adam rate of the entropy temperature."""
    actor_lr: float = 1e-4
    """Adam rate of the actor."""
    critic_lr: float = 3e-4
    """Adam rate of the critics."""
    gradient_clip: float = 0.0
    """Largest norm of each critic's gradient; 0 leaves it as it is."""
    discount: float = 0.99
    """Discount of future rewards."""
    tau: float = 0.005
    """Step of the target critics towards the online ones."""
    n_step: int = 1
    """Rewards summed before the target bootstraps."""
    orthogonal: bool = False
    """Start from orthogonal weights (gain √2, last layer 0.01; CORL) in place of PyTorch's."""
    normalize_observations: bool = False
    """Standardize observations by the data's mean and std + 1e-3."""
    sampling: Sampling = "uniform"
    """Draw transitions with replacement (uniform) or in shuffled epochs (epoch)."""


@configuration
class CalQLConfig(Config):
    calibrated: bool = True
    """Bound the values of the policy's actions from below by the data's return-to-go."""
    max_backup: bool = True
    """Bootstrap from the best of several sampled next actions (the authors' code)."""


class State(NamedTuple):
    actor: NormalActor
    log_alpha: Float[Array, ""]
    log_multiplier: Float[Array, ""]
    critic: Ensemble
    target_critic: Ensemble
    return_to_go: Float[Array, " T"]  # empty unless calibrated
    actor_opt: optax.OptState
    alpha_opt: optax.OptState
    multiplier_opt: optax.OptState
    critic_opt: optax.OptState


class Contrast(NamedTuple):
    """What the critics' loss compares at every state; K = 3 × `sampled_actions`."""

    observation: Float[Array, "B obs"]
    action: Float[Array, "B K+1 A"]  # uniform, policy's at s, policy's at s'; the data's last
    log_density: Float[Array, "B K"]
    target: Float[Array, " B"]
    return_to_go: Float[Array, " B"]  # 0 unless calibrated


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    """A Gaussian actor and twin critics; the multiplier starts at 1."""
    actor_key, critic_key = jax.random.split(key)
    hidden = orthogonal(2**0.5) if config.orthogonal else fan_in_uniform
    last = orthogonal(1e-2) if config.orthogonal else fan_in_uniform
    actor = make_normal_actor(
        spec, config.hidden, actor_key, initializer=hidden, last_initializer=last
    )
    critic = make_ensemble(
        2, spec, config.hidden, critic_key, initializer=hidden, last_initializer=last
    )
    log_alpha = jnp.log(jnp.asarray(config.alpha, jnp.float32))
    adam = optax.adam(0.0)  # rates are set in the updates; the state does not depend on them
    return State(
        actor=actor,
        log_alpha=log_alpha,
        log_multiplier=jnp.zeros(()),
        critic=critic,
        target_critic=critic,
        return_to_go=jnp.zeros(1),
        actor_opt=adam.init(actor),  # type: ignore[arg-type]
        alpha_opt=adam.init(log_alpha),
        multiplier_opt=adam.init(log_alpha),
        critic_opt=adam.init(critic),  # type: ignore[arg-type]
    )


def check(config: Config, data: Dataset) -> None:
    """Raises ConfigError or DataError where Cal-QL's returns have no end, or are not known."""
    if not config.calibrated:
        return
    if config.repeat_last_reward and config.discount >= 1.0:
        raise ConfigError("--repeat-last-reward needs a --discount below 1: its sum has no end")
    check_returns_known(data.next_rows_chain())


def enter(config: Config, state: State, data: DeviceData, key: PRNGKey) -> State:
    """Computes the return-to-go of every transition, where it is used."""
    del key  # deterministic
    if not config.calibrated:
        return state
    returns = return_to_go(data, config.discount, config.repeat_last_reward)
    return state._replace(return_to_go=returns)


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    """Critics, multiplier, actor and temperature from the same parameters; then the targets."""
    target_key, contrast_key, actor_key = jax.random.split(key, 3)
    next_policy = state.actor(batch.next_observation)
    target = td_target(batch, next_value(config, state, batch, next_policy, target_key))
    contrast = make_contrast(config, state, batch, next_policy, target, contrast_key)
    actor, actor_opt, actor_metrics = update_actor(config, state, batch, actor_key, step)
    state, critic_metrics = update_critic(config, state, contrast)
    state, multiplier_metrics = update_multipliers(
        config,
        state._replace(actor=actor, actor_opt=actor_opt),
        critic_metrics["critic/gap"],
        -actor_metrics["actor/entropy"],
        -float(batch.action.shape[1]),
    )
    return state, critic_metrics | actor_metrics | multiplier_metrics


def next_value(
    config: Config, state: State, batch: Batch, next_policy: TanhNormal, key: PRNGKey
) -> Float[Array, " B"]:
    """min Q⁻(s', a'), a' ~ π: one sample, or the best of several with `max_backup`."""
    count = config.sampled_actions if config.max_backup else 1
    action, log_prob = spread(next_policy, count).sample_and_log_prob(key)  # [B, N, A], [B, N]
    q = ensemble_each(state.target_critic, batch.next_observation, action).min(axis=0)  # [B, N]
    best = jnp.argmax(q, axis=1)[:, None]  # [B, 1]
    value = jnp.take_along_axis(q, best, axis=1)[:, 0]
    if config.backup_entropy:
        value = value - jnp.exp(state.log_alpha) * jnp.take_along_axis(log_prob, best, axis=1)[:, 0]
    return value


def make_contrast(
    config: Config,
    state: State,
    batch: Batch,
    next_policy: TanhNormal,
    target: Float[Array, " B"],
    key: PRNGKey,
) -> Contrast:
    """Draws the actions that are pushed down, all to be valued at s, with their log-densities."""
    uniform_key, policy_key, next_key = jax.random.split(key, 3)
    size, count = batch.action.shape[1], config.sampled_actions
    shape = (batch.action.shape[0], count, size)
    uniform = jax.random.uniform(uniform_key, shape, batch.action.dtype, -1.0, 1.0)
    policy = spread(state.actor(batch.observation), count)
    action, log_prob = policy.sample_and_log_prob(policy_key)  # [B, N, A], [B, N]
    next_action, next_log_prob = spread(next_policy, count).sample_and_log_prob(next_key)
    flat = jnp.full(shape[:2], size * math.log(0.5), batch.action.dtype)  # ½ in each dimension
    contrast = Contrast(
        observation=batch.observation,
        action=jnp.concatenate([uniform, action, next_action, batch.action[:, None]], axis=1),
        log_density=jnp.concatenate([flat, log_prob, next_log_prob], axis=1),
        target=target,
        return_to_go=jnp.zeros_like(batch.reward),
    )
    if config.calibrated:
        contrast = contrast._replace(return_to_go=state.return_to_go[batch.index])
    return jax.lax.stop_gradient(contrast)


def update_critic(config: Config, state: State, contrast: Contrast) -> tuple[State, Metrics]:
    """Squared TD error plus the weighted conservative gap of both critics; then their targets."""

    def loss(critic: Ensemble, part: Contrast) -> tuple[Float[Array, ""], Metrics]:
        q = ensemble_each(critic, part.observation, part.action)  # [E, B, K + 1]
        sampled, q = q[:, :, :-1], q[:, :, -1]  # [E, B, K], [E, B]
        gap = conservative_gap(config, sampled, q, part)  # [E, B]
        squared_error = jnp.square(q - part.target[None, :])
        total = (squared_error + penalty(config, state.log_multiplier, gap)).mean(axis=1).sum()
        return total, {
            "critic/loss": total,
            "critic/td_error": squared_error.mean(),
            "critic/gap": gap.mean(),
            "critic/q": q.mean(),
        }

    gradient, metrics = gradient_in_parts(loss, state.critic, contrast, PART)
    gradient = Ensemble(tuple(clip_norm(g, config.gradient_clip) for g in gradient.member))
    critic, critic_opt = apply_gradient(
        gradient, state.critic, optax.adam(config.critic_lr), state.critic_opt
    )
    return state._replace(
        critic=critic,
        critic_opt=critic_opt,
        target_critic=polyak(state.target_critic, critic, config.tau),
    ), metrics


def conservative_gap(
    config: Config, sampled: Float[Array, "E B K"], q: Float[Array, "E B"], contrast: Contrast
) -> Float[Array, "E B"]:
    """T log Σ exp((Q(s, ã) − log density(ã)) / T) − Q(s, a) (appendix F).

    Cal-QL (its section 5) takes the larger of Q and the data's return for the policy's actions,
    before the density is divided out; uniform actions, which come first, are left as they are.
    """
    if config.calibrated:
        uniform, policy = jnp.split(sampled, [config.sampled_actions], axis=2)
        policy = jnp.maximum(policy, contrast.return_to_go[None, :, None])
        sampled = jnp.concatenate([uniform, policy], axis=2)
    weighted = (sampled - contrast.log_density[None]) / config.temperature
    return config.temperature * jax.nn.logsumexp(weighted, axis=2) - q


def penalty(
    config: Config, log_multiplier: Float[Array, ""], gap: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """The weighted gap; with a multiplier α' its excess over the threshold (CORL's form).

    "weighted-gap" compares the weighted gap with the threshold, as Tianshou does.
    """
    if config.lagrange == "off":
        return config.cql_weight * gap
    multiplier = jnp.clip(jnp.exp(log_multiplier), 0.0, 1e6)
    if config.lagrange == "gap":
        return multiplier * config.cql_weight * (gap - config.lagrange_threshold)
    return multiplier * (config.cql_weight * gap - config.lagrange_threshold)


def update_actor(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[NormalActor, optax.OptState, Metrics]:
    """Minimizes α log π(ã|s) − min Q(s, ã), ã ~ π; in the warm-up −log π(a|s) stands for −min Q."""
    alpha = jnp.exp(state.log_alpha)

    def loss(actor: NormalActor) -> tuple[Float[Array, ""], Metrics]:
        distribution = actor(batch.observation)
        action, log_prob = distribution.sample_and_log_prob(key)
        objective = state.critic(batch.observation, action).min(axis=0)  # [B]
        if config.bc_steps > 0:
            cloning = distribution.log_prob(batch.action)  # of the data's actions, not of samples
            objective = jnp.where(step < config.bc_steps, cloning, objective)
        total = (alpha * log_prob - objective).mean()
        return total, {"actor/loss": total, "actor/entropy": -log_prob.mean()}

    return descend(loss, state.actor, optax.adam(config.actor_lr), state.actor_opt)


def update_multipliers(
    config: Config,
    state: State,
    gap: Float[Array, ""],
    log_prob: Float[Array, ""],
    target_entropy: float,
) -> tuple[State, Metrics]:
    """Dual ascent of the penalty's multiplier, and the temperature towards the entropy −A."""
    metrics: Metrics = {}
    if config.lagrange != "off":

        def multiplier_loss(log_multiplier: Float[Array, ""]) -> tuple[Float[Array, ""], Metrics]:
            return -penalty(config, log_multiplier, gap), {
                "critic/multiplier": jnp.exp(log_multiplier)
            }

        log_multiplier, multiplier_opt, metrics = descend(
            multiplier_loss,
            state.log_multiplier,
            optax.adam(config.multiplier_lr),
            state.multiplier_opt,
        )
        state = state._replace(log_multiplier=log_multiplier, multiplier_opt=multiplier_opt)
    if not config.tune_alpha:
        return state, metrics

    def alpha_loss(log_alpha: Float[Array, ""]) -> tuple[Float[Array, ""], Metrics]:
        total = temperature_loss(log_alpha, log_prob, target_entropy)
        return total, {"actor/alpha_loss": total, "actor/alpha": jnp.exp(log_alpha)}

    log_alpha, alpha_opt, alpha_metrics = descend(
        alpha_loss, state.log_alpha, optax.adam(config.alpha_lr), state.alpha_opt
    )
    return state._replace(log_alpha=log_alpha, alpha_opt=alpha_opt), metrics | alpha_metrics


def policy(state: State) -> NormalActor:
    """The actor."""
    return state.actor


def act(
    policy: NormalActor, observation: Float[Array, "*batch obs"], key: PRNGKey
) -> Float[Array, "*batch A"]:
    """tanh of the actor's mean."""
    del key  # deterministic
    return policy(observation).mode()


ALGORITHM = Algorithm(
    name="cql",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update, enter=enter),),
    check=check,
    policy=policy,
    act=act,
    online=Online(sample_action, whole_episodes=lambda config: config.calibrated),
    presets={
        "tianshou": {  # examples/offline/d4rl_cql.py
            "hidden": (256, 256),
            "cql_weight": 1.0,
            "temperature": 1.0,
            "lagrange": "weighted-gap",
            "lagrange_threshold": 10.0,
            "multiplier_lr": 3e-4,
            "calibrated": True,
            "max_backup": False,
            "backup_entropy": True,
            "alpha_lr": 1e-4,
            "actor_lr": 1e-4,
            "critic_lr": 3e-4,
            "gradient_clip": 1.0,
            "normalize_observations": False,
        }
    },
)

CAL_QL = ALGORITHM._replace(name="cal_ql", config_type=CalQLConfig)
