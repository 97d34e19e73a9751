"""Disturbed environments: what is moved, by how much, and where nothing can be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import small_environments
from leeward import cli
from leeward.data.dataset import Dataset
from leeward.disturbance import Disturbed
from leeward.errors import CheckpointError, SimulationError
from leeward.evaluate import evaluate
from leeward.played import keep, read_played
from leeward.policy import load_policies
from training import train


class Pushed(small_environments.Line):
    """The line, with a state that can be moved; it keeps its actions."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[float] = []

    def move_start(self, std: float, generator: np.random.Generator) -> np.ndarray:
        self.position += std * float(generator.normal())
        return self._observation()

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self.taken.append(float(action[0]))
        return super().step(action)


def pushed() -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(Pushed(), 12)


def test_starts_are_moved_by_the_episode_s_own_seed() -> None:
    plain, _ = Pushed().reset(seed=3)
    moved = [Disturbed(Pushed(), 0.5, 0.0).reset(seed=seed)[0] for seed in (3, 3, 4)]
    expected = plain[0] + 0.5 * np.random.default_rng(3).normal()
    assert moved[0][0] == moved[1][0] == pytest.approx(expected)
    assert moved[2][0] != moved[0][0]


def test_mujoco_states_are_moved_by_positions_and_velocities() -> None:
    def make() -> gymnasium.Env:
        return gymnasium.make("InvertedPendulum-v5", disable_env_checker=True)

    still = make()
    plain, _ = still.reset(seed=1)
    inner: Any = still.unwrapped
    draw = np.random.default_rng(1)
    noise = np.concatenate([draw.normal(size=inner.data.qpos.shape), draw.normal(size=2)])
    moved, _ = Disturbed(make(), 0.1, 0.0).reset(seed=1)
    np.testing.assert_allclose(moved, plain + 0.1 * noise)


def test_actions_are_moved_in_half_ranges_and_stay_inside() -> None:
    """The line's actions reach from −2 to 2, so half a range is 2."""
    env = Pushed()
    disturbed = Disturbed(gymnasium.wrappers.TimeLimit(env, 200), 0.0, 0.25)
    disturbed.reset(seed=0)
    for _ in range(200):
        env.position = 0.0
        disturbed.step(np.zeros(1, np.float32))
    expected = 0.5 * np.random.default_rng(0).normal(size=200)
    np.testing.assert_allclose(env.taken, np.clip(expected, -2.0, 2.0), rtol=1e-5)
    disturbed.step(np.full(1, 2.0, np.float32))
    assert max(env.taken) <= 2.0


def test_discrete_actions_are_replaced_with_a_probability() -> None:
    taken: list[int] = []

    class Kept(small_environments.Corridor):
        def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
            taken.append(action)
            self.place = 0
            return super().step(action)

    disturbed = Disturbed(Kept(), 0.0, 0.3)
    disturbed.reset(seed=0)
    for _ in range(600):
        disturbed.step(1)
    # A third of the random ones are the same action.
    assert np.mean(np.asarray(taken) != 1) == pytest.approx(0.2, abs=0.04)


@pytest.mark.parametrize(
    ("make", "start", "action", "message"),
    [
        (pushed, -0.1, 0.0, "--start-noise must be a finite number from 0 on, got -0.1"),
        (pushed, 0.0, np.nan, "--action-noise must be a finite number from 0 on, got nan"),
        (
            small_environments.Corridor,
            0.0,
            1.5,
            "--action-noise of discrete actions is the probability of a random one, so at most 1, "
            "got 1.5",
        ),
    ],
)
def test_impossible_noise_is_refused(make: Any, start: float, action: float, message: str) -> None:
    with pytest.raises(SimulationError) as caught:
        Disturbed(make(), start, action)
    assert str(caught.value) == message


def test_states_that_cannot_be_moved_are_said_so() -> None:
    with pytest.raises(SimulationError) as caught:
        Disturbed(gymnasium.make("LeewardTest/Line-v0"), 0.1, 0.0).reset(seed=0)
    assert str(caught.value) == (
        "the first state of Line cannot be moved: --start-noise needs a MuJoCo task, or an "
        "environment with a method move_start(std, generator); --action-noise works everywhere"
    )


# --- The command ---


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds on the line."""
    generator = np.random.default_rng(0)
    place = generator.uniform(-1.0, 1.0, size=(24, 2))
    data = Dataset.from_arrays(
        place, -place[:, :1], np.zeros(24), np.arange(24) % 6 == 5, action_low=-2.0,
        action_high=2.0, metadata={"name": "line", "env": "LeewardTest/Line-v0"},
    )  # fmt: skip
    return train(
        tmp_path_factory.mktemp("disturbed") / "run", data, "bc", steps=4, seeds=(0, 1),
        eval_every=0,
    )  # fmt: skip


def test_evaluations_are_disturbed_and_kept(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["evaluate", str(trained), "--episodes", "3", "--json", "--keep"]
    assert cli.main([*line, "--action-noise", "0.5"]) == 0
    noisy = json.loads(capsys.readouterr().out)["runs"]
    assert cli.main(line) == 0
    plain = json.loads(capsys.readouterr().out)["runs"]
    assert [row["returns"] for row in noisy] != [row["returns"] for row in plain]
    policies = load_policies(trained, "last")
    again = evaluate(policies, episodes=3, evaluation_seed=1, action_noise=0.5)
    np.testing.assert_array_equal([row["returns"] for row in noisy], again.returns)
    assert cli.main(line) == 0  # replaces the one made in the same way
    kept = read_played(trained)
    assert [one["action_noise"] for one in kept] == [0.5, 0.0]
    assert kept[0]["runs"] == noisy
    assert (kept[0]["episodes"], kept[0]["checkpoint"]) == (3, "last")


def test_what_cannot_be_kept_is_refused_before_anything_is_played(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained / "final"
    assert cli.main(["evaluate", str(folder), "--keep"]) == 2
    assert capsys.readouterr().err == (
        f"leeward: error: {folder} is no run directory, so nothing can be kept there: leave --keep "
        "out, or use --json\n"
    )
    (tmp_path / "played.json").write_text('{"evaluations": [{"runs": []}]}')
    with pytest.raises(CheckpointError, match=r"played.json: damaged \(KeyError: 'environment'\)"):
        keep(tmp_path, {})
