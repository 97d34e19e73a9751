"""D4RL's AntMaze and Maze2d: a quadruped, or a ball, on its way through a maze.

Observations are positions, then velocities: 29 numbers of the ant, 4 of the ball. Rewards are
sparse (1 within 0.5 of the goal, else 0), for some mazes of the ball exp(−distance); AntMaze ends
at the goal, Maze2d never. AntMaze starts in one cell and draws its goal anew for every episode,
near the middle of another (so does D4RL's v2; its v0 and v1 drew one goal for a whole run, which
has the same mean over runs and more spread). Maze2d starts anywhere and has one goal.

Coordinates. gymnasium-robotics has its origin in the middle of the map, x along a row and y up the
rows. In D4RL's AntMaze the origin is the middle of the start cell, x runs along a row and y down
the rows; in its Maze2d x runs down the rows and y along them, and the cell in row 2 and column 3
has its starts and goals around (2, 3), which is 0.2 past its middle. So maps are handed over
turned until the axes agree, and positions are shifted.

Source: arXiv 2004.07219, and d4rl/locomotion and d4rl/pointmaze of its code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from jaxtyping import Float

Cell = tuple[int, int]
"""Row and column of a map, counted from 0 at its upper left."""
REACHED = 0.5
"""Distance from the goal within which it is reached, in both tasks."""
START_NOISE = 0.1
"""Bound of the uniform noise on first positions, std of that on first velocities."""


class MazeTask(NamedTuple):
    """One maze for one robot."""

    robot: Literal["ant", "point"]
    walls: str
    """The map, as gymnasium_robotics.envs.maze.maps calls it; D4RL's are the same."""
    goal: Cell
    max_episode_steps: int
    dense: bool = False
    """Rewards exp(−distance) in place of sparse ones."""


class _Frame(NamedTuple):
    """Where D4RL puts a robot's coordinates."""

    zero: Cell
    """The cell whose starts and goals lie around (0, 0)."""
    beside: float
    """How far starts and goals lie past the middle of their cell, along both axes."""


ANT_START = (1, 1)
_FRAMES = {"ant": _Frame(ANT_START, 0.0), "point": _Frame((0, 0), 0.2)}
TASKS = {
    "AntMazeUMaze-v2": MazeTask("ant", "U_MAZE", (3, 1), 700),
    "AntMazeMedium-v2": MazeTask("ant", "MEDIUM_MAZE", (6, 6), 1000),
    "AntMazeLarge-v2": MazeTask("ant", "LARGE_MAZE", (7, 9), 1000),
    "Maze2dOpen-v0": MazeTask("point", "OPEN", (2, 3), 150),
    "Maze2dOpenDense-v0": MazeTask("point", "OPEN", (2, 3), 150, dense=True),
    "Maze2dUMaze-v1": MazeTask("point", "U_MAZE", (1, 1), 300),
    "Maze2dUMazeDense-v1": MazeTask("point", "U_MAZE", (1, 1), 300, dense=True),
    "Maze2dMedium-v1": MazeTask("point", "MEDIUM_MAZE", (6, 6), 600),
    "Maze2dMediumDense-v1": MazeTask("point", "MEDIUM_MAZE", (6, 6), 600, dense=True),
    "Maze2dLarge-v1": MazeTask("point", "LARGE_MAZE", (7, 9), 800),
    "Maze2dLargeDense-v1": MazeTask("point", "LARGE_MAZE", (7, 9), 800, dense=True),
}


class Maze(gymnasium.Env[np.ndarray, np.ndarray]):
    """One of D4RL's mazes; `goal` is the episode's, in D4RL's coordinates."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 100}  # noqa: RUF012

    def __init__(self, task: MazeTask, render_mode: str | None = None) -> None:
        """Builds the simulation; needs gymnasium-robotics."""
        self.task, self.render_mode = task, render_mode
        self.walls = _walls(task.walls)
        self._simulation, self._robot = _simulate(task.robot, self.walls, render_mode)
        self._frame = _FRAMES[task.robot]
        self._origin = self._middle(self._frame.zero) + self._frame.beside
        self.goal = self._place(task.goal)
        model = self._robot.model
        self.metadata = {**self.metadata, "render_fps": round(1 / self._robot.dt)}
        self.observation_space = gymnasium.spaces.Box(
            -np.inf, np.inf, (model.nq + model.nv,), np.float64
        )
        self.action_space = self._robot.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode; `seed` fixes its start and goal."""
        super().reset(seed=seed)
        draw, robot = self.np_random, self._robot
        robot.reset()
        start = self._draw_places()
        position = robot.init_qpos + draw.uniform(-START_NOISE, START_NOISE, robot.model.nq)
        position[:2] += start + self._origin
        velocity = robot.init_qvel + START_NOISE * draw.standard_normal(robot.model.nv)
        robot.set_state(position, velocity)
        self._simulation.goal = self.goal + self._origin
        self._simulation.update_target_site_pos()  # where it is drawn
        return self._observation(), {"goal": self.goal.copy()}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step: 0.1 s of the ant, 0.01 s of the ball."""
        self._robot.step(action)
        observation = self._observation()
        distance = float(np.linalg.norm(observation[:2] - self.goal))
        reached = distance <= REACHED
        reward = float(np.exp(-distance)) if self.task.dense else float(reached)
        ended = reached and self.task.robot == "ant"
        return observation, reward, ended, False, {"success": reached}

    def move_start(self, std: float, generator: np.random.Generator) -> np.ndarray:
        """Moves the state by Gaussian noise on positions and velocities; the new observation."""
        data = self._robot.data
        position = data.qpos + std * generator.normal(size=data.qpos.shape)
        self._robot.set_state(position, data.qvel + std * generator.normal(size=data.qvel.shape))
        return self._observation()

    def render(self) -> Any:
        """The picture that `render_mode` names."""
        return self._robot.render()

    def close(self) -> None:
        """Frees the simulation."""
        self._simulation.close()

    @property
    def mujoco_renderer(self) -> Any:
        """Gymnasium's renderer, where it is looked for in MuJoCo tasks."""
        return self._robot.mujoco_renderer

    def _draw_places(self) -> Float[np.ndarray, "2"]:
        """Where the robot starts; an ant's goal is drawn too."""
        if self.task.robot == "point":
            free = np.argwhere(self.walls == 0)
            return self._place(tuple(free[self.np_random.integers(len(free))].tolist()))
        size = self._simulation.maze.maze_size_scaling
        # D4RL moves the goal twice, once where it turns a cell into a place.
        near = self.np_random.uniform(0, size / 4, 2) + self.np_random.uniform(0, size / 8, 2)
        self.goal = self._place(self.task.goal) + near
        return self._place(ANT_START)

    def _observation(self) -> Float[np.ndarray, " size"]:
        data = self._robot.data
        state = np.concatenate([data.qpos, data.qvel])
        state[:2] -= self._origin
        return state

    def _place(self, cell: Cell) -> Float[np.ndarray, "2"]:
        """Around where D4RL has the starts and goals of a cell, in its coordinates."""
        return self._middle(cell) + self._frame.beside - self._origin

    def _middle(self, cell: Cell) -> Float[np.ndarray, "2"]:
        """The middle of a cell in the simulation's coordinates."""
        (row, column), (rows, columns) = cell, self.walls.shape
        turned = (
            (rows - 1 - row, column) if self.task.robot == "ant" else (columns - 1 - column, row)
        )
        return self._simulation.maze.cell_rowcol_to_xy(np.array(turned))


def _walls(name: str) -> np.ndarray:
    """[rows, columns]: 1 where there is a wall, else 0."""
    from gymnasium_robotics.envs.maze import maps

    return np.array(getattr(maps, name))


def _simulate(robot: str, walls: np.ndarray, render_mode: str | None) -> tuple[Any, Any]:
    """gymnasium-robotics' maze and the robot's MuJoCo environment in it, with D4RL's axes."""
    if robot == "ant":
        from gymnasium_robotics.envs.maze.ant_maze_v5 import AntMazeEnv

        simulation: Any = AntMazeEnv(render_mode, maze_map=walls[::-1].tolist())
        inside: Any = simulation.ant_env
        _make_d4rl_s_ant(inside.model)
    else:
        from gymnasium_robotics.envs.maze.point_maze import PointMazeEnv

        simulation = PointMazeEnv(walls.T[::-1].tolist(), render_mode)
        inside = simulation.point_env
    Path(simulation.tmp_xml_file_path).unlink()  # read by now
    return simulation, inside


def _make_d4rl_s_ant(model: Any) -> None:
    """Sets the time step, motors and contacts of D4RL's ant, all in which Gymnasium's differs."""
    model.opt.timestep = 0.02  # five to a step; Gymnasium has 0.01
    model.actuator_gear[:, 0] = 30.0  # D4RL's motors take −30 to 30, scaled from −1 to 1
    model.geom_solimp[:, :3] = 0.8, 0.8, 0.01
