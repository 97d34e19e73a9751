"""The TD3+BC update as eager PyTorch, 2 × 256, batch 256. Prints updates a second.

Needs PyTorch, which Leeward does not: run it with a Python that has it.
"""

from __future__ import annotations

import copy
import time

import numpy as np
import torch
from torch import nn

OBSERVATION, ACTION, ROWS, BATCH, UPDATES = 17, 6, 200_000, 256, 2_000


def make_network(size_in: int, size_out: int) -> nn.Sequential:
    """An MLP with ReLU."""
    return nn.Sequential(
        nn.Linear(size_in, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, size_out)
    )


def move(target: nn.Module, online: nn.Module) -> None:
    """Polyak averaging in place."""
    for old, new in zip(target.parameters(), online.parameters(), strict=True):
        old.data.copy_(0.005 * new.data + 0.995 * old.data)


def main() -> None:
    """Warms up, then times."""
    torch.manual_seed(0)
    observation, following = torch.randn(ROWS, OBSERVATION), torch.randn(ROWS, OBSERVATION)
    action, reward = torch.rand(ROWS, ACTION) * 2 - 1, torch.randn(ROWS, 1)
    termination = torch.zeros(ROWS, 1)
    actor = make_network(OBSERVATION, ACTION)
    critics = [make_network(OBSERVATION + ACTION, 1) for _ in range(2)]
    target_actor, target_critics = copy.deepcopy(actor), copy.deepcopy(critics)
    actor_adam = torch.optim.Adam(actor.parameters(), 3e-4)
    critic_adam = torch.optim.Adam([p for c in critics for p in c.parameters()], 3e-4)

    def update(step: int) -> None:
        index = np.random.randint(0, ROWS, BATCH)  # noqa: NPY002  (what the libraries do)
        o, a, r, n, d = (x[index] for x in (observation, action, reward, following, termination))
        with torch.no_grad():
            noise = (torch.randn_like(a) * 0.2).clamp(-0.5, 0.5)
            next_action = (torch.tanh(target_actor(n)) + noise).clamp(-1, 1)
            both = torch.cat([n, next_action], 1)
            target = r + 0.99 * (1 - d) * torch.min(*(c(both) for c in target_critics))
        both = torch.cat([o, a], 1)
        loss = sum(nn.functional.mse_loss(critic(both), target) for critic in critics)
        critic_adam.zero_grad()
        loss.backward()
        critic_adam.step()
        if step % 2:
            return
        chosen = torch.tanh(actor(o))
        q = critics[0](torch.cat([o, chosen], 1))
        loss = -2.5 / q.abs().mean().detach() * q.mean() + nn.functional.mse_loss(chosen, a)
        actor_adam.zero_grad()
        loss.backward()
        actor_adam.step()
        move(target_actor, actor)
        for old, new in zip(target_critics, critics, strict=True):
            move(old, new)

    for step in range(200):
        update(step)
    begin = time.perf_counter()
    for step in range(UPDATES):
        update(step)
    print(f"{UPDATES / (time.perf_counter() - begin):.1f}")


if __name__ == "__main__":
    main()
