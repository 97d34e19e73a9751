"""Clean data in which the data doctor finds nothing: columns to plant faults in."""

from __future__ import annotations

from typing import Any

import numpy as np

Columns = dict[str, np.ndarray]
LIMIT = 60


def masses() -> Columns:
    """60 episodes of a mass pushed to the origin with noise; it ends there, or after 60 steps."""
    generator = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {
        key: []
        for key in (
            "observation",
            "action",
            "reward",
            "termination",
            "truncation",
            "next_observation",
        )
    }
    for episode in range(60):
        # Every third mass starts too far away to arrive in time.
        side = generator.choice([-1, 1], 2)
        position = side * generator.uniform(4.0, 4.3, 2) if episode % 3 else side * 20.0
        position = position + generator.normal(0, 0.05, 2)
        velocity = generator.normal(0, 0.01, 2)
        for step in range(LIMIT):
            action = np.clip(-0.4 * np.sign(position) + 0.3 * generator.normal(size=2), -0.9, 0.9)
            state = np.concatenate([position, velocity])
            velocity = 0.9 * velocity + 0.03 * action + 0.002 * generator.normal(size=2)
            position = position + velocity
            arrived = bool(np.abs(position).max() < 0.6)
            following = np.concatenate([position, velocity])
            rows["observation"].append(state)
            rows["action"].append(action)
            rows["reward"].append(-np.square(action).sum() - 0.001 * np.square(following).sum())
            rows["termination"].append(arrived)
            rows["truncation"].append(not arrived and step == LIMIT - 1)
            rows["next_observation"].append(following)
            if arrived:
                break
    return {key: np.asarray(value, np.float32) for key, value in rows.items()}
