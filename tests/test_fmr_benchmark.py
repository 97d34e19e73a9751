"""benchmarks/fmr*.py: what is disturbed, which rows there are, small rows, the table, flows."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leeward.algorithms import get_algorithm
from leeward.algorithms.fmr import Config, enter_policy, init, update_policy
from leeward.data.sampling import fit_scaling, gather, to_device
from leeward.settings import make_config

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True, scope="module")
def _quick_compilation() -> Iterator[None]:
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


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


def test_a_row_is_measured_once(
    fmr: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(fmr.jax, "clear_caches", lambda: None)  # other tests need them
    out = tmp_path / "fmr.jsonl"
    small = ["--updates", "2", "--hidden", "4", "--seeds", "0", "1", "--episodes", "2"]
    chosen = ["--data", "corridor", "--methods", "bc-early", "--out", str(out)]
    assert fmr.main([*small, *chosen]) == 0
    (row,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert (row["episodes"], row["transitions"]) == (20, 400)
    assert [run["seed"] for run in row["runs"]] == [0, 1]
    assert np.shape(row["returns"]["start"]) == (2, 2)
    assert np.max(row["returns"]["action"]) < 0.0
    assert row["returns"]["start"] != row["returns"]["usual"]
    assert len(row["measured"]) == 2
    assert all(np.isfinite(one["held_out/log_likelihood"]) for one in row["measured"])
    assert "| bc-early | " in out.with_suffix(".md").read_text()
    capsys.readouterr()
    assert fmr.main([*small, *chosen]) == 0
    assert capsys.readouterr().out.startswith("corridor, bc-early: there already\n")
    assert len(out.read_text().splitlines()) == 1


def test_the_update_without_a_cache_is_the_one_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a batch of all the data, where both standardize the same values."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    speed = importlib.import_module("fmr_speed")
    dataset = importlib.import_module("fmr_corridor").demonstrations(episodes=2)
    data = to_device(dataset, fit_scaling(dataset, normalize_observations=True))
    config = Config(hidden=(5,), value_ensemble=1, actor_lr=0.01)
    key, step = jax.random.key(1), jnp.int32(0)
    state = enter_policy(config, init(config, dataset.spec, jax.random.key(0)), data, key)
    backwards = jnp.arange(data.start.shape[0])[::-1]
    batch = gather(data, backwards, config.discount)
    cached, numbers = jax.jit(update_policy)(config, state, batch, key, step)
    anew, others = jax.jit(speed.update_without_cache)(config, state, batch, key, step)
    assert float(numbers["actor/weight_variance"]) > 0.01
    for name, number in numbers.items():
        np.testing.assert_allclose(others[name], number, rtol=1e-4, atol=1e-6, err_msg=name)
    pairs = zip(*(jax.tree.leaves(one.actor) for one in (state, cached, anew)), strict=True)
    for before, one, other in pairs:
        assert not np.array_equal(before, one)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    kept = zip(*(jax.tree.leaves(one.reference) for one in (state, anew)), strict=True)
    assert all(np.array_equal(one, other) for one, other in kept)


def test_missing_files_are_named(fmr: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        fmr.main(["--data", "hopper-2"])
    assert stopped.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith("hopper-2 needs hopper-cs285-expert.hdf5 in --folder")


def test_gaps_are_to_bc_on_the_same_episodes_where_that_was_measured(fmr: ModuleType) -> None:
    rows = [line("bc", [-4.0, -4.2]), line("fmr-zero", [-3.0, -3.2]), line("fmr", [-2.0, -2.2])]
    text = fmr.make_table(rows)
    assert "in brackets the gap to fmr-zero, BC on the same episodes." in text
    shown = {row.split(" | ")[0].strip("| "): row.split(" | ")[1:2] for row in text.splitlines()}
    assert shown["fmr-zero"] == ["-3.1 ± 1.3"]
    assert shown["bc"] == ["-4.1 ± 1.3 (-1.0*)"]
    assert shown["fmr"] == ["-2.1 ± 1.3 (+1.0*)"]
    alone = fmr.make_table(rows[2:])
    assert "95 % t-intervals.\n" in alone
    assert "(+" not in alone


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
    assert "the gap to bc, which trains on the episodes that FMR holds out too." in text
    rows = {row.split(" | ")[0].strip("| "): row.split(" | ") for row in text.splitlines()}
    # t(0.975, 1) = 12.706 times the standard error 0.1.
    assert rows["bc"][1:] == ["-4.1 ± 1.3", "-4.1 ± 1.3", "-4.1 ± 1.3", "–", "12 |"]
    assert rows["fmr"][1] == "-4.5 ± 6.4 (-0.4)"
    assert rows["fmr-search (λ 0.1)"][1] == "-1.1 ± 1.3 (+3.0*)"
    assert rows["fmr-search (λ 0.1)"][4] == "2.10"
    assert rows["bc-early"][4] == "1.50"


@pytest.fixture
def flow(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("fmr_flow")


def test_between_two_ways_is_off_every_way(flow: ModuleType) -> None:
    state = jnp.asarray([[0.3, 5.0]] * 4)
    angle = np.asarray([0.3, 0.3 + np.pi / 2, 0.3 + np.pi / 4, 0.3 - np.pi / 2])
    length = np.asarray([0.7, 0.7 + 0.19, 0.7, 0.7 - 0.21])[:, None]
    action = jnp.asarray(length * np.stack([np.cos(angle), np.sin(angle)], axis=1))
    assert flow.off_every_way(state, action).tolist() == [False, False, True, True]
    shown = flow.demonstrate(500, jax.random.key(0))
    assert float(flow.off_every_way(*shown).mean()) < 0.01


def test_a_flow_of_the_right_velocity_carries_noise_to_the_action(flow: ModuleType) -> None:
    """On the straight path to c the velocity is (c − x) / (1 − t), and its loss is 0."""
    goal = jnp.asarray([[0.5, -0.2]] * 3)

    class Exact(flow.Flow):
        def __call__(self, state: Any, place: Any, moment: Any) -> Any:
            return (goal - place) / (1.0 - jnp.broadcast_to(moment, place.shape))

    exact = Exact(None)  # type: ignore[arg-type]
    noise = jax.random.normal(jax.random.key(0), (3, 2))
    np.testing.assert_allclose(flow.carried(exact, goal, noise, 7), goal, atol=1e-5)
    assert float(flow.flow_loss(exact, goal, goal, jax.random.key(1))) < 1e-8


def test_a_row_of_the_flow_benchmark(flow: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "flow.jsonl"
    asked = ["--rows", "flow", "--updates", "2", "--seeds", "4", "--out", str(out)]
    assert flow.main(asked) == flow.main(asked) == 0
    (row,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert 0.5 < row["sampled"][0] <= 1.0  # it has hardly learned anything
    assert "| flow (10 Euler steps) | 64 64, 2 | " in out.with_suffix(".md").read_text()
