"""IL, BCQ or CQL on stacked frames by Tianshou 2. Prints updates a second.

The networks and settings of its Atari examples, and its own batch sampling from single frames.

    python benchmarks/peers/pixels_tianshou.py cql 200
"""

from __future__ import annotations

import sys
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from tianshou.algorithm.imitation.discrete_bcq import DiscreteBCQ, DiscreteBCQPolicy
from tianshou.algorithm.imitation.discrete_cql import DiscreteCQL
from tianshou.algorithm.imitation.imitation_base import ImitationPolicy, OfflineImitationLearning
from tianshou.algorithm.modelfree.qrdqn import QRDQNPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, ReplayBuffer
from tianshou.env.atari.atari_network import DQNet, QRDQNet
from tianshou.utils.net.discrete import DiscreteActor
from tianshou.utils.torch_utils import policy_within_training_step

ROWS, SIDE, STACK, ACTIONS, BATCH = 5_000, 84, 4, 6, 32
WARM_UP = 20
SPACE = gymnasium.spaces.Discrete(ACTIONS)
IMAGE = {"c": STACK, "h": SIDE, "w": SIDE, "action_shape": ACTIONS}


def imitation() -> Any:
    """atari_il.py."""
    policy = ImitationPolicy(actor=DQNet(**IMAGE), action_space=SPACE)
    return OfflineImitationLearning(policy=policy, optim=AdamOptimizerFactory(lr=1e-4))


def bcq() -> Any:
    """atari_bcq.py: a layer of 512 each on the same convolutions, which run for each."""
    features = DQNet(**IMAGE, features_only=True)
    values, model = (
        DiscreteActor(
            preprocess_net=features,
            action_shape=ACTIONS,
            hidden_sizes=[512],
            softmax_output=False,
        )
        for _ in range(2)
    )
    policy = DiscreteBCQPolicy(model=values, imitator=model, action_space=SPACE)
    return DiscreteBCQ(
        policy=policy, optim=AdamOptimizerFactory(lr=6.25e-5), target_update_freq=8_000
    )


def cql() -> Any:
    """atari_cql.py."""
    policy = QRDQNPolicy(model=QRDQNet(**IMAGE, num_quantiles=200), action_space=SPACE)
    return DiscreteCQL(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-4),
        min_q_weight=10.0,
        target_update_freq=500,
    )


def make_buffer() -> ReplayBuffer:
    """Random frames, each stored once, in episodes of 1,000."""
    generator = np.random.default_rng(0)
    frames = generator.integers(0, 256, (ROWS, 1, SIDE, SIDE), np.uint8)
    buffer = ReplayBuffer(ROWS, stack_num=STACK, ignore_obs_next=True, save_only_last_obs=True)
    for row in range(ROWS):
        buffer.add(
            Batch(
                obs=frames[row],
                act=int(generator.integers(ACTIONS)),
                rew=float(generator.normal()),
                terminated=False,
                truncated=row % 1_000 == 999,
                obs_next=frames[row],
                info={},
            )
        )
    return buffer


def main() -> None:
    """Warms up, then times."""
    name, updates = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    algorithm = {"il": imitation, "bcq": bcq, "cql": cql}[name]()
    buffer = make_buffer()
    with policy_within_training_step(algorithm.policy):
        for _ in range(WARM_UP):
            algorithm.update(buffer=buffer, sample_size=BATCH)
        begin = time.perf_counter()
        for _ in range(updates):
            algorithm.update(buffer=buffer, sample_size=BATCH)
    print(f"{updates / (time.perf_counter() - begin):.1f}")


if __name__ == "__main__":
    main()
