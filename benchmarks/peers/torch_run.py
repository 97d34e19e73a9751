"""TD3+BC, IQL and CQL as eager PyTorch, one seed: one row of benchmarks/compare.py.

Single-file code in the manner of CORL, written anew: the whole data set as tensors, one Python
call an update. As fast as eager code reasonably gets: fused Adam, gradients of the trained
parameters only, batched sampling, no logging.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import protocol
import torch
from protocol import Stopwatch, Transitions
from torch import Tensor, nn
from torch.nn import functional


class Batch(NamedTuple):
    """B transitions."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    following: Tensor
    termination: Tensor


def make_network(size_in: int, hidden: list[int], size_out: int) -> nn.Sequential:
    """An MLP with ReLU and PyTorch's initialization."""
    sizes = [size_in, *hidden]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], size_out))


def values(critics: nn.ModuleList, observation: Tensor, action: Tensor) -> list[Tensor]:
    """Every critic's Q, one axis less than its input."""
    both = torch.cat([observation, action], -1)
    return [critic(both).squeeze(-1) for critic in critics]


def make_adam(rate: float, *parts: nn.Module | nn.Parameter) -> torch.optim.Adam:
    """Adam over the parameters of all parts."""
    parameters: list[nn.Parameter] = []
    for part in parts:
        parameters += [part] if isinstance(part, nn.Parameter) else part.parameters()
    return torch.optim.Adam(parameters, rate, fused=True)


def descend(optimizer: torch.optim.Adam, loss: Tensor) -> None:
    """One step, with gradients of the optimizer's own parameters and no others."""
    parameters = optimizer.param_groups[0]["params"]
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    optimizer.step()


@torch.no_grad()
def move(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Polyak averaging in place."""
    for old, new in zip(target.parameters(), online.parameters(), strict=True):
        old.lerp_(new, tau)


class Learner(NamedTuple):
    """One algorithm's networks, behind two functions."""

    update: Callable[[Batch, int], None]
    """Makes the update of that number, 1 the first."""
    policy: Callable[[Tensor], Tensor]
    """From observations to the deterministic policy's actions."""


class Critics:
    """Twin critics, their targets and their optimizer: what all three algorithms have."""

    def __init__(self, sizes: tuple[int, int], settings: Mapping[str, Any]) -> None:
        self.settings = settings
        both = sum(sizes)
        self.online = nn.ModuleList(make_network(both, settings["hidden"], 1) for _ in range(2))
        self.target = copy.deepcopy(self.online)
        self.adam = make_adam(settings["critic_lr"], self.online)

    def least_target(self, observation: Tensor, action: Tensor) -> Tensor:
        """The smaller target value [B]."""
        return torch.min(*values(self.target, observation, action))

    def bootstrap(self, batch: Batch, next_value: Tensor) -> Tensor:
        """r + γ(1 − d) of the next value [B]."""
        return batch.reward + self.settings["discount"] * (1 - batch.termination) * next_value

    def fit(self, batch: Batch, target: Tensor) -> None:
        """One step of both critics towards the target [B]."""
        first, second = values(self.online, batch.observation, batch.action)
        loss = functional.mse_loss(first, target) + functional.mse_loss(second, target)
        descend(self.adam, loss)

    def move_target(self) -> None:
        """One step of the targets."""
        move(self.target, self.online, self.settings["tau"])


def td3_bc(sizes: tuple[int, int], settings: Mapping[str, Any], updates: int) -> Learner:
    """TD3+BC: Fujimoto & Gu 2021."""
    del updates  # no schedule
    critics = Critics(sizes, settings)
    actor = make_network(sizes[0], settings["hidden"], sizes[1])
    target_actor = copy.deepcopy(actor)
    actor_adam = make_adam(settings["actor_lr"], actor)
    bound = settings["noise_clip"]

    def update(batch: Batch, step: int) -> None:
        with torch.no_grad():
            noise = (torch.randn_like(batch.action) * settings["noise_std"]).clamp(-bound, bound)
            next_action = (torch.tanh(target_actor(batch.following)) + noise).clamp(-1, 1)
            next_value = critics.least_target(batch.following, next_action)
            target = critics.bootstrap(batch, next_value)
        critics.fit(batch, target)
        if step % settings["policy_delay"]:
            return
        action = torch.tanh(actor(batch.observation))
        q = critics.online[0](torch.cat([batch.observation, action], -1))
        weight = settings["alpha"] / q.abs().mean().detach()
        descend(actor_adam, functional.mse_loss(action, batch.action) - weight * q.mean())
        move(target_actor, actor, settings["tau"])
        critics.move_target()

    return Learner(update, lambda observation: torch.tanh(actor(observation)))


def iql(sizes: tuple[int, int], settings: Mapping[str, Any], updates: int) -> Learner:
    """IQL: Kostrikov, Nair & Levine 2021; all networks step from the same parameters."""
    critics = Critics(sizes, settings)
    actor = make_network(sizes[0], settings["hidden"], sizes[1])
    log_std = nn.Parameter(torch.zeros(sizes[1]))
    value = make_network(sizes[0], settings["hidden"], 1)
    value_adam = make_adam(settings["value_lr"], value)
    actor_adam = make_adam(settings["actor_lr"], actor, log_std)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(actor_adam, updates)

    def log_prob(batch: Batch) -> Tensor:
        """log π(a|s) [B]: a normal around tanh of the mean, its density not squashed."""
        bounded = log_std.clamp(-5, 2)
        distance = (batch.action - torch.tanh(actor(batch.observation))) * torch.exp(-bounded)
        return (-0.5 * distance.square() - bounded - 0.5 * math.log(2 * math.pi)).sum(-1)

    def update(batch: Batch, step: int) -> None:
        del step  # every one is alike
        with torch.no_grad():
            q = critics.least_target(batch.observation, batch.action)
            target = critics.bootstrap(batch, value(batch.following).squeeze(-1))
        advantage = q - value(batch.observation).squeeze(-1)
        side = torch.abs(settings["expectile"] - (advantage.detach() < 0).float())
        descend(value_adam, (side * advantage.square()).mean())
        critics.fit(batch, target)
        weight = torch.exp(settings["beta"] * advantage.detach()).clamp(max=settings["weight_clip"])
        descend(actor_adam, -(weight * log_prob(batch)).mean())
        schedule.step()
        critics.move_target()

    return Learner(update, lambda observation: torch.tanh(actor(observation)))


def cql(sizes: tuple[int, int], settings: Mapping[str, Any], updates: int) -> Learner:
    """CQL(H), fixed weight: Kumar et al. 2020; all networks step from the same parameters."""
    del updates  # no schedule
    critics = Critics(sizes, settings)
    actor = make_network(sizes[0], settings["hidden"], 2 * sizes[1])
    log_alpha = nn.Parameter(torch.tensor(math.log(settings["alpha"])))
    actor_adam = make_adam(settings["actor_lr"], actor)
    alpha_adam = make_adam(settings["alpha_lr"], log_alpha)

    def distribution(observation: Tensor) -> Normal:
        mean, log_std = actor(observation).chunk(2, -1)
        return Normal(mean, log_std.clamp(-20, 2))

    def update(batch: Batch, step: int) -> None:
        del step  # every one is alike
        current = distribution(batch.observation)
        with torch.no_grad():
            following = distribution(batch.following)
            next_action = draw(following, 1)[0][:, 0]
            next_value = critics.least_target(batch.following, next_action)
            target = critics.bootstrap(batch, next_value)
            contrast = contrasting(batch, current, following, settings["sampled_actions"])
        action, log_prob = (drawn[:, 0] for drawn in draw(current, 1))
        alpha = log_alpha.exp()
        q = torch.min(*values(critics.online, batch.observation, action))
        descend(actor_adam, (alpha.detach() * log_prob - q).mean())
        descend(alpha_adam, -alpha * (log_prob.detach() - sizes[1]).mean())  # entropy to −A
        descend(critics.adam, critic_loss(batch, target, *contrast))
        critics.move_target()

    def critic_loss(batch: Batch, target: Tensor, action: Tensor, log_density: Tensor) -> Tensor:
        observation = batch.observation[:, None].expand(-1, action.shape[1], -1)
        loss = torch.zeros(())
        for q in values(critics.online, observation, action):  # [B, K + 1]
            gap = torch.logsumexp(q[:, :-1] - log_density, 1) - q[:, -1]
            loss = loss + functional.mse_loss(q[:, -1], target)
            loss = loss + settings["cql_weight"] * gap.mean()
        return loss

    return Learner(update, lambda observation: torch.tanh(distribution(observation).mean))


class Normal(NamedTuple):
    """A diagonal normal over actions before tanh."""

    mean: Tensor
    log_std: Tensor


def draw(normal: Normal, count: int) -> tuple[Tensor, Tensor]:
    """`count` actions [B, N, A], squashed by tanh, and their log-densities [B, N]."""
    mean, log_std = normal.mean[:, None], normal.log_std[:, None]
    noise = torch.randn(len(mean), count, mean.shape[-1])
    before = mean + log_std.exp() * noise
    log_normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    log_slope = 2 * (math.log(2) - before - functional.softplus(-2 * before))
    return torch.tanh(before), (log_normal - log_slope).sum(-1)


def contrasting(
    batch: Batch, current: Normal, following: Normal, count: int
) -> tuple[Tensor, Tensor]:
    """Actions [B, K + 1, A], the data's last, and the log-densities [B, K] of the others."""
    size = batch.action.shape[1]
    uniform = torch.rand(len(batch.action), count, size) * 2 - 1
    flat = torch.full(uniform.shape[:2], size * math.log(0.5))
    at_current, current_density = draw(current, count)
    at_following, following_density = draw(following, count)
    return (
        torch.cat([uniform, at_current, at_following, batch.action[:, None]], 1),
        torch.cat([flat, current_density, following_density], 1),
    )


LEARNERS = {"td3_bc": td3_bc, "iql": iql, "cql": cql}


def to_tensors(transitions: Transitions, mean: np.ndarray, std: np.ndarray) -> Batch:
    """The data set with standardized observations."""
    columns = (
        (transitions.observations - mean) / std,
        transitions.actions,
        transitions.rewards,
        (transitions.next_observations - mean) / std,
        transitions.terminals.astype(np.float32),
    )
    return Batch(*(torch.from_numpy(column) for column in columns))


def main() -> None:
    """Trains, evaluates and writes the result."""
    job = protocol.read_job()
    (seed,) = job.seeds
    torch.manual_seed(seed)
    transitions = protocol.read_transitions(job)
    size = transitions.observations.shape[1]
    mean, std = np.zeros(size, np.float32), np.ones(size, np.float32)
    if job.settings["normalize_observations"]:
        mean = transitions.observations.mean(0)
        std = transitions.observations.std(0) + np.float32(1e-3)
    table = to_tensors(transitions, mean, std)
    sizes = size, transitions.actions.shape[1]
    learner = LEARNERS[job.algorithm](sizes, job.settings, job.updates)
    stopwatch = Stopwatch(job)
    for step in range(1, job.updates + 1):
        index = torch.randint(len(table.reward), (job.settings["batch_size"],))
        learner.update(Batch(*(column[index] for column in table)), step)
        stopwatch.after(step)

    @torch.no_grad()
    def act(observation: np.ndarray) -> np.ndarray:
        return learner.policy(torch.from_numpy((observation - mean) / std)).numpy()

    returns = [] if job.probe else [protocol.episode_returns(act, job, seed)]
    protocol.write_result(job, stopwatch, returns, ("torch",))


if __name__ == "__main__":
    main()
