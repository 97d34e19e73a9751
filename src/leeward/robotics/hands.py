"""D4RL's Adroit tasks: a hand turns a pen, opens a door, drives a nail, moves a ball.

gymnasium-robotics has the same observations and actions; its rewards and ends are put right here.
Its door, hammer and relocate tasks add a tenth of the hand's distance from what it should grasp to
the reward, where D4RL takes it away; its pen may be dropped and goes on for 200 steps, where D4RL's
task ends with it, and after 100.

Source: arXiv 2004.07219, and d4rl/hand_manipulation_suite of its code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from jaxtyping import Float

DROPPED = 0.075
"""Height of the pen's middle, in meters, below which it was dropped."""
DISTANCE_WEIGHT = 0.1


class HandTask(NamedTuple):
    """One task."""

    simulated: str
    """gymnasium-robotics' id."""
    max_episode_steps: int


TASKS = {
    "AdroitHandPen-v1": HandTask("AdroitHandPen-v1", 100),
    "AdroitHandDoor-v1": HandTask("AdroitHandDoor-v1", 200),
    "AdroitHandHammer-v1": HandTask("AdroitHandHammer-v1", 200),
    "AdroitHandRelocate-v1": HandTask("AdroitHandRelocate-v1", 200),
}


class Hand(gymnasium.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """gymnasium-robotics' task with D4RL's rewards and ends."""

    def __init__(self, task: HandTask, render_mode: str | None = None) -> None:
        """Makes the task; needs gymnasium-robotics."""
        import gymnasium_robotics  # noqa: F401 (registers it)

        made = gymnasium.make(task.simulated, render_mode=render_mode, disable_env_checker=True)
        super().__init__(made.unwrapped)
        self.task = task

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step of 0.05 s."""
        observation, reward, termination, truncation, info = self.env.step(action)
        if self.task.simulated == "AdroitHandPen-v1":
            termination = bool(observation[26] < DROPPED)
        else:
            distance = float(np.linalg.norm(_reach(self.task.simulated, observation)))
            reward = float(reward) - 2 * DISTANCE_WEIGHT * distance
        return observation, float(reward), termination, truncation, info


def _reach(name: str, observation: Float[np.ndarray, " size"]) -> Float[np.ndarray, "3"]:
    """From what the hand should grasp to its palm, in meters."""
    if name == "AdroitHandDoor-v1":
        return observation[35:38]
    if name == "AdroitHandHammer-v1":
        return observation[33:36] - observation[36:39]
    return observation[30:33]
