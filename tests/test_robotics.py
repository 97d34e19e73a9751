"""D4RL's mazes and Adroit tasks, where gymnasium-robotics is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from leeward import cli
from leeward.data import registry
from leeward.data.load import load_dataset
from leeward.data.write import write_d4rl
from leeward.disturbance import Disturbed
from leeward.environments import check_matches, environment_spec, make_environment
from leeward.train import find_environment
from leeward.types import Box, Spec

pytest.importorskip(
    "gymnasium_robotics", reason="they are an extra: pip install 'leeward[robotics]'"
)
# Walls as D4RL's code draws them; rows from above, columns from the left.
U_MAZE = ("#####", "#   #", "### #", "#   #", "#####")
OPEN = ("#######", "#     #", "#     #", "#     #", "#######")
MEDIUM = (
    "########",
    "#  ##  #",
    "#  #   #",
    "##   ###",
    "#  #   #",
    "# #  # #",
    "#   #  #",
    "########",
)
LARGE = (
    "############",
    "#    #     #",
    "# ## # # # #",
    "#      #   #",
    "# #### ### #",
    "#  # #     #",
    "## # # # ###",
    "#  #   #   #",
    "############",
)


def cells(maze: tuple[str, ...], kind: str) -> set[tuple[int, int]]:
    """Rows and columns of walls (#) or free cells ( )."""
    return {(r, c) for r, line in enumerate(maze) for c, one in enumerate(line) if one == kind}


def made(name: str) -> gymnasium.Env[Any, Any]:
    return make_environment(f"Leeward/{name}")


def inside(env: gymnasium.Env[Any, Any]) -> tuple[Any, Any]:
    """MuJoCo's model and data."""
    renderer: Any = env.unwrapped.mujoco_renderer  # type: ignore[attr-defined]
    return renderer.model, renderer.data


# Both kinds of mazes.


@pytest.mark.parametrize(
    ("name", "observation", "action", "steps"),
    [
        ("antmaze-umaze-v2", 29, 8, 700),
        ("antmaze-medium-diverse-v0", 29, 8, 1000),
        ("antmaze-large-play-v2", 29, 8, 1000),
        ("maze2d-open-v0", 4, 2, 150),
        ("maze2d-umaze-v1", 4, 2, 300),
        ("maze2d-medium-dense-v1", 4, 2, 600),
        ("maze2d-large-v1", 4, 2, 800),
        ("pen-human-v1", 45, 24, 100),
        ("door-cloned-v1", 39, 28, 200),
        ("hammer-expert-v0", 46, 26, 200),
        ("relocate-human-v1", 39, 30, 200),
    ],
)
def test_environments_fit_the_data_that_imply_them(
    name: str, observation: int, action: int, steps: int
) -> None:
    entry = registry.find(name)
    assert entry is not None
    assert entry.env is not None
    known = environment_spec(entry.env)
    assert known.max_episode_steps == entry.max_episode_steps == steps
    bounds = Box((-1.0,) * action, (1.0,) * action)
    assert known.action == bounds
    data = Spec((observation,), "float32", bounds)
    check_matches(data, {"name": name, "env": entry.env}, known)


@pytest.mark.parametrize(
    ("name", "maze"),
    [
        ("AntMazeUMaze-v2", U_MAZE),
        ("AntMazeLarge-v2", LARGE),
        ("Maze2dUMaze-v1", U_MAZE),
        ("Maze2dOpen-v0", OPEN),
        ("Maze2dMedium-v1", MEDIUM),
        ("Maze2dLarge-v1", LARGE),
    ],
)
def test_walls_stand_where_d4rl_has_them(name: str, maze: tuple[str, ...]) -> None:
    env = made(name)
    observation, _ = env.reset(seed=0)
    model, data = inside(env)
    origin = data.qpos[:2] - observation[:2]
    boxes = [model.geom(i) for i in range(model.ngeom) if model.geom(i).name.startswith("block")]
    found = {tuple(np.round(box.pos[:2] - origin, 6)) for box in boxes}
    if name.startswith("Ant"):  # cells of 4, the start at row 1 and column 1, x along a row
        expected = {(4.0 * (c - 1), 4.0 * (r - 1)) for r, c in cells(maze, "#")}
    else:  # cells of 1, x down the rows, cells named by where balls start in them
        expected = {(round(r - 0.2, 6), round(c - 0.2, 6)) for r, c in cells(maze, "#")}
    assert found == expected
    assert {float(box.size[0]) for box in boxes} == {2.0 if name.startswith("Ant") else 0.5}
    env.close()


def test_an_episode_is_fixed_by_its_seed() -> None:
    for name in ("AntMazeUMaze-v2", "Maze2dUMaze-v1", "AdroitHandDoor-v1"):
        env = made(name)
        starts = [env.reset(seed=seed)[0] for seed in (3, 3, 4)]
        steps = [env.reset(seed=3) and env.step(env.action_space.high)[0] for _ in range(2)]
        np.testing.assert_array_equal(starts[0], starts[1])
        np.testing.assert_array_equal(steps[0], steps[1])
        assert not np.array_equal(starts[0], starts[2])
        env.close()


def test_first_states_can_be_moved() -> None:
    for name in ("Maze2dUMaze-v1", "AdroitHandDoor-v1"):
        env = made(name)
        plain = env.reset(seed=3)[0]
        moved = Disturbed(env, 0.01, 0.0).reset(seed=3)[0]
        assert 0.0 < np.abs(moved[:2] - plain[:2]).max() < 0.1
        env.close()


# The ant.


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("AntMazeUMaze-v2", (0.0, 8.0)),
        ("AntMazeMedium-v2", (20.0, 20.0)),
        ("AntMazeLarge-v2", (32.0, 24.0)),
    ],
)
def test_the_ant_starts_at_the_origin_and_its_goal_is_drawn_anew(
    name: str, goal: tuple[float, float]
) -> None:
    env, starts, goals = made(name), [], []
    for seed in range(30):
        observation, info = env.reset(seed=seed)
        starts.append(observation)
        goals.append(info["goal"])
    start, past = np.stack(starts), np.stack(goals) - goal
    assert np.abs(start[:, :2]).max() <= 0.1
    np.testing.assert_allclose(start[:, 2], 0.75, atol=0.1)
    assert start[:, 15:].std() == pytest.approx(0.1, abs=0.02)
    # Two uniform draws, up to 1 and up to 0.5
    assert past.min() > 0.0
    assert past.max() < 1.5
    np.testing.assert_allclose(past.mean(axis=0), 0.75, atol=0.25)
    env.close()


def test_the_ant_is_d4rl_s() -> None:
    env = made("AntMazeUMaze-v2")
    env.reset(seed=0)
    model, data = inside(env)
    observation, reward, termination, truncation, info = env.step(np.ones(8, np.float32))
    assert (reward, termination, truncation, info) == (0.0, False, False, {"success": False})
    assert data.time == pytest.approx(0.1)
    np.testing.assert_allclose(data.qfrc_actuator[6:], 30.0)
    np.testing.assert_array_equal(model.geom_solimp[:, :3], [[0.8, 0.8, 0.01]] * model.ngeom)
    np.testing.assert_array_equal(observation[2:], [*data.qpos[2:], *data.qvel])
    assert env.metadata["render_fps"] == 10
    env.close()


def test_the_ant_s_episode_ends_at_the_goal_with_reward_1() -> None:
    env = made("AntMazeUMaze-v2")
    observation, _ = env.reset(seed=0)
    env.unwrapped.goal = observation[:2] + np.array([0.9, 0.0])  # type: ignore[attr-defined]
    still = np.zeros(8, np.float32)
    assert env.step(still)[1:] == (0.0, False, False, {"success": False})
    env.unwrapped.goal = observation[:2] + np.array([0.3, 0.0])  # type: ignore[attr-defined]
    assert env.step(still)[1:] == (1.0, True, False, {"success": True})
    env.close()


# The ball.


def test_the_ball_starts_in_any_free_cell_and_has_one_goal() -> None:
    for name, maze, goal in (
        ("Maze2dUMaze-v1", U_MAZE, (1.0, 1.0)),
        ("Maze2dOpen-v0", OPEN, (2.0, 3.0)),
        ("Maze2dMedium-v1", MEDIUM, (6.0, 6.0)),
        ("Maze2dLarge-v1", LARGE, (7.0, 9.0)),
    ):
        env, seen = made(name), set()
        for seed in range(12 * len(cells(maze, " "))):
            observation, info = env.reset(seed=seed)
            place = np.round(observation[:2])
            assert np.abs(observation[:2] - place).max() <= 0.1
            np.testing.assert_allclose(info["goal"], goal)
            seen.add((int(place[0]), int(place[1])))
        assert seen == cells(maze, " ")
        env.close()


def started(env: gymnasium.Env[Any, Any], cell: tuple[int, int]) -> np.ndarray:
    """The first episode that starts in a cell."""
    for seed in range(200):
        observation, _ = env.reset(seed=seed)
        if tuple(np.round(observation[:2])) == cell:
            return observation
    raise AssertionError(cell)


def test_the_ball_goes_on_at_the_goal_until_the_time_limit() -> None:
    env, dense = made("Maze2dUMaze-v1"), made("Maze2dUMazeDense-v1")
    np.testing.assert_array_equal(started(env, (1, 1)), started(dense, (1, 1)))
    still, total = np.zeros(2, np.float32), 0.0
    for step in range(1, 301):
        observation, reward, termination, truncation, info = env.step(still)
        near = dense.step(still)[1]
        total += float(reward)
        assert near == pytest.approx(np.exp(-np.linalg.norm(observation[:2] - [1.0, 1.0])))
        assert (termination, truncation, info) == (False, step == 300, {"success": True})
    assert total == 300.0
    started(env, (3, 3))
    assert env.step(still)[1:] == (0.0, False, False, {"success": False})


@pytest.mark.parametrize(
    ("push", "axis", "end"),
    [
        # From row 1 and column 1 of the U: the only way is to the right.
        # D4RL's walls begin 0.3 past and 0.7 before a cell's name, and the ball has radius 0.1.
        ((-1.0, 0.0), 0, 0.4),
        ((1.0, 0.0), 0, 1.2),
        ((0.0, -1.0), 1, 0.4),
        ((0.0, 1.0), 1, 3.2),
    ],
)
def test_the_ball_is_stopped_by_d4rl_s_walls(
    push: tuple[float, float], axis: int, end: float
) -> None:
    env = made("Maze2dUMaze-v1")
    observation = started(env, (1, 1))
    for _ in range(150):
        observation = env.step(np.array(push, np.float32))[0]
    assert observation[axis] == pytest.approx(end, abs=0.02)
    env.close()


# The hand.


def reward_of_d4rl(name: str, data: Any, observation: np.ndarray) -> float:
    """The dense reward as D4RL's code computes it, from the simulation's state."""
    gap = np.linalg.norm

    def site(one: str) -> np.ndarray:
        return data.site(one).xpos

    if name == "AdroitHandDoor-v1":
        angle = data.joint("door_hinge").qpos[0]
        bonus = 2.0 * (angle > 0.2) + 8.0 * (angle > 1.0) + 10.0 * (angle > 1.35)
        cost = 0.1 * gap(site("S_grasp") - site("S_handle")) + 0.1 * (angle - 1.57) ** 2
        return bonus - cost - 1e-5 * np.sum(data.qvel**2)
    thing = data.body("Object").xpos
    if name == "AdroitHandHammer-v1":
        deep = gap(site("S_target") - site("nail_goal"))
        bonus = 2.0 * (thing[2] > 0.04 and site("tool")[2] > 0.04)
        bonus += 25.0 * (deep < 0.02) + 75.0 * (deep < 0.01)
        cost = 0.1 * gap(site("S_grasp") - thing) + gap(site("tool") - site("S_target"))
        return bonus - cost - 10.0 * deep - 0.01 * gap(data.qvel)
    if name == "AdroitHandRelocate-v1":
        palm, target = site("S_grasp"), site("target")
        away = gap(thing - target)
        lifted = (thing[2] > 0.04) * (1.0 - 0.5 * gap(palm - target) - 0.5 * away)
        return lifted - 0.1 * gap(palm - thing) + 10.0 * (away < 0.1) + 20.0 * (away < 0.05)
    away, alike = gap(thing - site("eps_ball")), float(observation[33:36] @ observation[36:39])
    held = 10.0 * (away < 0.075 and alike > 0.9) + 50.0 * (away < 0.075 and alike > 0.95)
    return alike - away + held - 5.0 * (thing[2] < 0.075)


@pytest.mark.parametrize(
    "name",
    ["AdroitHandPen-v1", "AdroitHandDoor-v1", "AdroitHandHammer-v1", "AdroitHandRelocate-v1"],
)
def test_a_step_of_the_hand_has_d4rl_s_reward(name: str) -> None:
    env = made(name)
    env.reset(seed=0)
    action = np.linspace(-0.5, 0.5, env.action_space.shape[0], dtype=np.float32)  # type: ignore[index]
    observation, reward, termination, truncation, _ = env.step(action)
    _, data = inside(env)
    assert reward == pytest.approx(reward_of_d4rl(name, data, observation), abs=1e-6)
    assert (termination, truncation) == (False, False)
    env.close()


def test_a_dropped_pen_ends_the_episode() -> None:
    env = made("AdroitHandPen-v1")
    env.reset(seed=0)
    generator, heights, ended = np.random.default_rng(0), [], False
    while not ended:
        action = generator.uniform(-1.0, 1.0, 24).astype(np.float32)
        observation, _, ended, truncation, _ = env.step(action)
        heights.append(observation[26])
        assert not truncation
    assert heights[-1] < 0.075 <= min(heights[:-1])
    env.close()


# From a name to a score.


def test_environments_are_listed_with_d4rl_s_references(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "environments", "leeward/maze2du"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["Leeward/Maze2dUMaze-v1", "23.9", "161.9"],
        ["Leeward/Maze2dUMazeDense-v1", "68.5", "193.7"],
    ]


def test_named_data_imply_their_environment_and_score(cache: Path) -> None:
    generator = np.random.default_rng(0)
    (cache / "d4rl").mkdir(parents=True)
    write_d4rl(
        cache / "d4rl" / "maze2d-open-v0.hdf5",
        observation=generator.normal(size=(300, 4)).astype(np.float32),
        action=generator.uniform(-1, 1, size=(300, 2)).astype(np.float32),
        reward=np.zeros(300, np.float32),
        termination=np.zeros(300, bool),
        truncation=np.arange(300) % 150 == 149,
    )
    data = load_dataset("maze2d-open-v0", offline=True)
    assert find_environment(data, None) == "Leeward/Maze2dOpen-v0"
    score = registry.normalized_score(data.metadata, [0.01, 20.66])
    assert score is not None
    np.testing.assert_allclose(score, [0.0, 100.0])
