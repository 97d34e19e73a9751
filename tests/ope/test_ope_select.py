"""`train --select ope`: the best policy by estimate, with and without an environment."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leeward
from leeward.algorithms import td3_bc
from leeward.data.dataset import Dataset
from leeward.errors import ConfigError
from leeward.ope.select import Selector
from leeward.options import RunOptions
from leeward.policy import load_policies
from leeward.train import make_job
from pushing import push
from training import lines, train, weights

SELECT = {
    "select": "ope",
    "select_steps": 20,
    "steps": 30,
    "eval_every": 10,
    "log_every": 10,
    "checkpoint_every": 10,
    "actor_lr": 0.05,
    "seeds": (0, 1),
}


def estimates(directory: Path) -> dict[int, list[tuple[int, float]]]:
    """(step, value) of every run."""
    found: dict[int, list[tuple[int, float]]] = {0: [], 1: []}
    for line in lines(directory):
        if "ope/value" in line:
            found[line["run"]].append((line["step"], line["ope/value"]))
    return found


def test_the_policy_with_the_highest_estimate_is_kept(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    run = train(tmp_path / "run", continuous_dataset, keep_checkpoints=9, **SELECT)
    found = estimates(run)
    best = load_policies(run, "best")
    for index, trained in enumerate(best.runs):
        assert [step for step, _ in found[index]] == [10, 20, 30]
        assert trained.step == max(found[index], key=lambda pair: pair[1])[0]
        assert trained.return_mean is None  # no episode was played
        there = load_policies(run, str(trained.step)).select(run=index)
        kept = best.select(run=index)
        observation = continuous_dataset.observation[:5]
        np.testing.assert_array_equal(kept(observation), there(observation))
    # The number is what the selector says of that policy at any time.
    selector = Selector(continuous_dataset, 0.99, 20)
    again = selector.estimate(best)
    highest = [max(value for _, value in found[i]) for i in (0, 1)]
    np.testing.assert_allclose(again, highest, rtol=1e-5)


def test_a_resumed_run_keeps_the_same_policy(tmp_path: Path, npz: Path) -> None:
    whole = train(tmp_path / "whole", npz, **SELECT)
    part = train(tmp_path / "part", npz, **(SELECT | {"steps": 20}))
    leeward.resume(part, steps=30, quiet=True)
    # The shorter run chose at its end as well, which is on the way of the longer one.
    assert estimates(part) == estimates(whole)
    first, second = weights(whole, "best"), weights(part, "best")
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_rewards_and_episodes_are_those_that_were_logged(continuous_dataset: Dataset) -> None:
    options = RunOptions(select="ope", reward_scale=100.0, reward_shift=5.0, best_fraction=0.5)
    job = make_job(td3_bc.ALGORITHM, td3_bc.Config(), None, options, continuous_dataset, None)
    assert job.logged is continuous_dataset
    assert job.dataset.transitions < continuous_dataset.transitions
    plain = dataclasses.replace(options, select="evaluation")
    assert (
        make_job(td3_bc.ALGORITHM, td3_bc.Config(), None, plain, continuous_dataset, None).logged
        is None
    )


class Square(gymnasium.Env):
    """Three numbers to see, two to choose, one step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self.np_random.normal(size=3), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        return np.zeros(3), float(action[0]), True, False, {}


def test_evaluations_go_on_beside_estimates(tmp_path: Path, continuous_dataset: Dataset) -> None:
    changes = {"steps": 20, "eval_episodes": 1, "env": Square}
    run = train(tmp_path / "run", continuous_dataset, **(SELECT | changes))
    assert len(lines(run, "evaluations.jsonl")) == 4
    found = estimates(run)
    for index, trained in enumerate(load_policies(run, "best").runs):
        assert trained.step == max(found[index], key=lambda pair: pair[1])[0]
    config = json.loads((run / "config.json").read_text())
    assert config["options"]["select"] == "ope"


def test_choosing_by_estimate_needs_moments_to_choose_at(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    with pytest.raises(ConfigError) as caught:
        train(tmp_path / "run", continuous_dataset, select="ope", eval_every=0)
    assert (
        str(caught.value) == "--select ope chooses every --eval-every updates, which is 0 (never)"
    )
    with pytest.raises(ConfigError, match="--select-steps must be at least 1, got 0"):
        train(tmp_path / "run", continuous_dataset, select="ope", select_steps=0)
    assert not (tmp_path / "run").exists()


def test_a_policy_that_diverged_has_no_estimate(continuous_dataset: Dataset) -> None:
    one = push(continuous_dataset, 1.0)
    two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf * jnp.nan]), one.policy)
    stack = dataclasses.replace(one.stack(), policies=two, runs=(one.run, one.run))
    found = Selector(continuous_dataset, 0.99, 20).estimate(stack)
    assert np.isfinite(found[0])
    assert np.isnan(found[1])
