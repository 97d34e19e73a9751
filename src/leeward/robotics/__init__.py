"""D4RL's mazes and Adroit hand as environments, on the simulations of gymnasium-robotics.

gymnasium-robotics' own versions are other tasks than D4RL's data were recorded in: other
coordinates, goals, rewards, ends and lengths, and another ant. These are D4RL's (Fu et al. 2020,
arXiv 2004.07219, and its code), with ids such as Leeward/AntMazeUMaze-v2. What stays different is
the simulator: MuJoCo's own Python package and gymnasium-robotics' models, where D4RL has mujoco-py.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from typing import Any

import gymnasium

from leeward.errors import MissingExtra
from leeward.robotics import hands, mazes

PREFIX = "Leeward/"
"""Ids of these environments begin with it."""


def require(purpose: str) -> None:
    """Imports gymnasium-robotics.

    Args:
        purpose: what needs it, as the error says.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        # It warns of rewards of the hand that are put right here.
        with contextlib.redirect_stderr(io.StringIO()):
            importlib.import_module("gymnasium_robotics")
    except ImportError as error:
        raise MissingExtra("gymnasium-robotics", "robotics", purpose) from error


def register() -> None:
    """Registers the environments with Gymnasium; again changes nothing.

    To make one needs gymnasium-robotics.
    """
    for name, maze in mazes.TASKS.items():
        _register(name, maze, mazes.Maze)
    for name, hand in hands.TASKS.items():
        _register(name, hand, hands.Hand)


def _register(name: str, task: mazes.MazeTask | hands.HandTask, make: Any) -> None:
    if PREFIX + name not in gymnasium.registry:
        steps = task.max_episode_steps
        gymnasium.register(PREFIX + name, make, max_episode_steps=steps, kwargs={"task": task})
