"""benchmarks/fmr.py: what is disturbed, which rows there are, and the table. Nothing trains."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

from leeward.algorithms import get_algorithm
from leeward.settings import make_config

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def fmr(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/ is no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("fmr")


def line(method: str, usual: list[float], **changes: Any) -> dict[str, Any]:
    """A row with one episode a seed."""
    returns = [[value] for value in usual]
    return {
        "data": "corridor",
        "method": method,
        "seeds": [0, 1],
        "runs": [{"seed": seed} for seed in range(len(usual))],
        "episodes": 20,
        "transitions": 400,
        "returns": {"usual": returns, "start": returns, "action": returns},
        "scores": {"usual": None, "start": None, "action": None},
        "measured": [],
        "training_seconds": 12.3,
    } | changes


def test_the_corridor_s_return_is_minus_the_drift(fmr: ModuleType) -> None:
    env = fmr.Corridor()
    for gain, drift in ((0.1, 0.0), (0.0, None)):
        observation, _ = env.reset(seed=3)
        start, total, ended = float(observation[1]), 0.0, False
        while not ended:
            observation, reward, ended, *_ = env.step(np.asarray([-gain * observation[1]]))
            total += reward
        expected = sum(abs(start) * (1 - 0.9**k) for k in range(1, 51)) if drift is None else drift
        assert -total == pytest.approx(expected, abs=1e-5)


def test_no_demonstration_shows_the_gap(fmr: ModuleType) -> None:
    data = fmr.demonstrations()
    place = data.observation[data.start][:, 0]
    assert not ((place >= 0.4) & (place < 0.6)).any()
    assert data.episodes == 20
    np.testing.assert_allclose(
        data.action[data.start][:, 0], -0.1 * data.observation[data.start][:, 1], atol=0.1
    )


@pytest.mark.parametrize("name", ["corridor", "hopper"])
def test_disturbances_come_from_the_seed_of_the_episode(fmr: ModuleType, name: str) -> None:
    def make() -> Any:
        if name == "corridor":
            return fmr.Corridor()
        return gymnasium.make("Hopper-v5", disable_env_checker=True)

    plain, _ = make().reset(seed=1)
    moved = [fmr.Disturbed(make(), 0.05, 0.0).reset(seed=seed)[0] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(moved[0], moved[1])
    assert 0.0 < np.abs(moved[0] - plain).max() < 0.5
    assert not np.array_equal(moved[0], moved[2])
    noisy = fmr.Disturbed(make(), 0.0, 0.2)
    np.testing.assert_array_equal(noisy.reset(seed=1)[0], plain)
    still = make()
    still.reset(seed=1)
    action = np.zeros(still.action_space.shape, np.float32)
    assert not np.array_equal(noisy.step(action)[0], still.step(action)[0])


def test_every_method_s_settings_exist(fmr: ModuleType) -> None:
    data = fmr.demonstrations()
    options = fmr.make_parser().parse_args([])
    for method in fmr.METHODS:
        key = fmr.key_of("corridor", method, data, options)
        make_config(get_algorithm(key["algorithm"]), None, key["settings"])
        assert key["settings"]["steps"] == 5_000
    few = fmr.demonstrations(episodes=2)
    assert fmr.key_of("corridor", "bc-early", few, options) is None
    settings = fmr.key_of("corridor", "fmr", few, options)["settings"]
    assert (settings["validation_fraction"], settings["behavior_steps"]) == (0.0, 1_000)


def test_missing_files_are_named(fmr: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        fmr.main(["--data", "hopper-2"])
    assert stopped.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith("hopper-2 needs hopper-cs285-expert.hdf5 in --folder")


def test_the_table_compares_with_bc(fmr: ModuleType) -> None:
    search = line(
        "fmr-search",
        [-1.0, -1.2, -9.0, -9.0],
        runs=[{"seed": s, "fmr_weight": w} for w in (0.1, 1.0) for s in (0, 1)],
        measured=[
            {"phase": "policy", "held_out/log_likelihood": value} for value in (2.0, 2.2, 1.0, 1.0)
        ],
    )
    early = line(
        "bc-early", [-4.0, -4.2], measured=[{"phase": "train", "held_out/log_likelihood": 1.5}] * 2
    )
    text = fmr.make_table([line("bc", [-4.0, -4.2]), line("fmr", [-4.0, -5.0]), search, early])
    assert "20 episodes, 400 transitions; minus the summed drift, mean over 2 seeds" in text
    rows = {row.split(" | ")[0].strip("| "): row.split(" | ") for row in text.splitlines()}
    # t(0.975, 1) = 12.706 times the standard error 0.1.
    assert rows["bc"][1:] == ["-4.1 ± 1.3", "-4.1 ± 1.3", "-4.1 ± 1.3", "–", "12 |"]
    assert rows["fmr"][1] == "-4.5 ± 6.4 (-0.4)"
    assert rows["fmr-search (λ 0.1)"][1] == "-1.1 ± 1.3 (+3.0*)"
    assert rows["fmr-search (λ 0.1)"][4] == "2.10"
    assert rows["bc-early"][4] == "1.50"
