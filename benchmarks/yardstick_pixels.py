"""IL, BCQ or CQL on stacked frames as eager PyTorch, in Tianshou's form. Prints updates a second.

What a library costs beside these is its own. The networks and losses are those of Tianshou's Atari
examples, written anew: the Nature network of 512; CQL on QR-DQN with 200 quantiles whose next
actions the online network chooses; BCQ's values and model with a layer of 512 each on the same
convolutions, which run once for each. Batches of 32 are gathered from single frames, as Tianshou's
buffer does. Needs PyTorch, which Leeward does not: run it with a Python that has it.

    python benchmarks/yardstick_pixels.py cql 200
"""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

ROWS, SIDE, STACK, ACTIONS, BATCH, QUANTILES = 5_000, 84, 4, 6, 32, 200
WARM_UP = 20


class Batch(NamedTuple):
    """B transitions; observations [B, 4, 84, 84] float32."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    following: Tensor
    termination: Tensor


Loss = Callable[[Batch], Tensor]


def convolutions() -> nn.Sequential:
    """The three layers of Mnih et al. 2015."""
    return nn.Sequential(
        nn.Conv2d(STACK, 32, 8, 4),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3, 1),
        nn.ReLU(inplace=True),
        nn.Flatten(),
    )


def head(outputs: int) -> nn.Sequential:
    """A layer of 512 and the outputs."""
    return nn.Sequential(nn.Linear(3136, 512), nn.ReLU(inplace=True), nn.Linear(512, outputs))


def taken(values: Tensor, action: Tensor) -> Tensor:
    """[B, A, …] → [B, …]: what belongs to the actions."""
    return values[torch.arange(len(action)), action]


def imitation() -> tuple[nn.Module, Loss]:
    """Cross-entropy."""
    network = nn.Sequential(convolutions(), head(ACTIONS))

    def loss(batch: Batch) -> Tensor:
        return functional.cross_entropy(network(batch.observation), batch.action)

    return network, loss


def cql() -> tuple[nn.Module, Loss]:
    """Quantile regression and ten times logsumexp Q(s, ·) − Q(s, a)."""
    network = nn.Sequential(convolutions(), head(ACTIONS * QUANTILES))
    target_network = copy.deepcopy(network)
    level = ((torch.arange(QUANTILES) + 0.5) / QUANTILES)[None, :, None]

    def quantiles(of: nn.Module, observation: Tensor) -> Tensor:
        return of(observation).view(-1, ACTIONS, QUANTILES)

    def loss(batch: Batch) -> Tensor:
        with torch.no_grad():
            best = quantiles(network, batch.following).mean(2).argmax(1)
            following = taken(quantiles(target_network, batch.following), best)
            target = batch.reward[:, None] + 0.99 * (1 - batch.termination[:, None]) * following
        found = quantiles(network, batch.observation)  # [B, A, K]
        own = taken(found, batch.action)[:, :, None]  # [B, K, 1]
        error = target[:, None] - own  # [B, K, K]
        huber = functional.smooth_l1_loss(
            own.expand_as(error), target[:, None].expand_as(error), reduction="none"
        )
        regression = (huber * (level - (error.detach() < 0).float()).abs()).sum(-1).mean(1).mean()
        q = found.mean(2)
        gap = (torch.logsumexp(q, 1) - taken(q, batch.action)).mean()
        return regression + 10.0 * gap

    return network, loss


def bcq() -> tuple[nn.Module, Loss]:
    """Temporal differences among likely actions, and cross-entropy."""
    shared = convolutions()
    network = nn.ModuleDict(
        {
            "q": nn.Sequential(shared, head(ACTIONS)),
            "behavior": nn.Sequential(shared, head(ACTIONS)),
        }
    )
    target_values = copy.deepcopy(network["q"])

    def loss(batch: Batch) -> Tensor:
        with torch.no_grad():
            likely = functional.log_softmax(network["behavior"](batch.following), 1)
            ratio = likely - likely.max(1, keepdim=True).values
            unlikely = (ratio < math.log(0.3)).float()
            best = (network["q"](batch.following) - 1e8 * unlikely).argmax(1)
            following = taken(target_values(batch.following), best)
            target = batch.reward + 0.99 * (1 - batch.termination) * following
        q = taken(network["q"](batch.observation), batch.action)
        logit = network["behavior"](batch.observation)
        regression = functional.smooth_l1_loss(q, target)
        cloning = functional.cross_entropy(logit, batch.action)
        return regression + cloning + 0.01 * logit.square().mean()

    return network, loss


def main() -> None:
    """Warms up, then times."""
    name, updates = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    frames = generator.integers(0, 256, (ROWS, SIDE, SIDE), np.uint8)
    action = generator.integers(0, ACTIONS, ROWS)
    reward = generator.normal(size=ROWS).astype(np.float32)
    network, loss = {"il": imitation, "bcq": bcq, "cql": cql}[name]()
    adam = torch.optim.Adam(network.parameters(), 1e-4)

    def stacks(row: np.ndarray) -> Tensor:
        index = np.maximum(row[:, None] + np.arange(1 - STACK, 1), row[:, None] // 1_000 * 1_000)
        return torch.as_tensor(frames[index], dtype=torch.float32) / 255.0

    def update() -> None:
        row = generator.integers(0, ROWS - 1, BATCH)
        row -= row % 1_000 == 999  # whose next frame belongs to another episode
        batch = Batch(
            stacks(row),
            torch.from_numpy(action[row]),
            torch.from_numpy(reward[row]),
            stacks(row + 1),
            torch.zeros(BATCH),
        )
        adam.zero_grad()
        loss(batch).backward()
        adam.step()

    for _ in range(WARM_UP):
        update()
    begin = time.perf_counter()
    for _ in range(updates):
        update()
    print(f"{updates / (time.perf_counter() - begin):.1f}")


if __name__ == "__main__":
    main()
