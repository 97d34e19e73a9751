"""Runs whose weights become NaN: what is said of them, and which checkpoint is left."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import leeward
from leeward import loop
from leeward.algorithms import ALGORITHMS
from leeward.config import config as configuration
from leeward.data.dataset import Dataset
from leeward.errors import TrainingError
from leeward.job import Job, Position
from leeward.optim import every
from leeward.options import RunOptions
from leeward.types import Algorithm, Batch, Metrics, Phase, PRNGKey, Sampling, Spec, Step
from training import lines, weights


@configuration
class Config:
    steps: int = 20
    batch_size: int = 8
    fails_at: float = 1e9
    """The update, counted from 1, whose weights and loss are NaN."""
    normalize_observations: bool = False
    sampling: Sampling = "uniform"


class State(NamedTuple):
    weight: Float[Array, " A"]


def init(config: Config, spec: Spec, key: PRNGKey) -> State:
    return State(jnp.zeros(2))


def update(
    config: Config, state: State, batch: Batch, key: PRNGKey, step: Step
) -> tuple[State, Metrics]:
    failed = step + 1 >= config.fails_at
    loss = jnp.where(failed, jnp.nan, jnp.ones(()))
    _, seldom = every(2, step, lambda state: (state, {"fit/seldom": loss}), state)
    return State(jnp.where(failed, jnp.nan, state.weight)), {"fit/loss": loss} | seldom


def act(policy: State, observation: Float[Array, "*B obs"], key: PRNGKey) -> Array:
    return jnp.broadcast_to(policy.weight, (*observation.shape[:-1], 2))


FAILING = Algorithm(
    name="failing",
    config_type=Config,
    init=init,
    phases=(Phase("train", lambda config: config.steps, update),),
    policy=lambda state: state,
    act=act,
)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "failing", FAILING)


def error_of(directory: Path, data: Dataset, fails_at: Any, **settings: Any) -> str:
    """What a training says that fails at these updates, with a checkpoint every second one."""
    with pytest.raises(TrainingError) as error:
        leeward.train(
            "failing",
            data,
            run_dir=directory,
            fails_at=fails_at,
            checkpoint_every=2,
            quiet=True,
            logger=(),
            **settings,
        )
    return str(error.value)


def kept(directory: Path) -> list[int]:
    """The checkpoints that are left."""
    return sorted(int(folder.name) for folder in (directory / "checkpoints").iterdir())


def finite(directory: Path, step: int) -> list[bool]:
    """Whether the weights of every run are, at a checkpoint."""
    found = weights(directory / "checkpoints" / str(step), "policy")["policy/weight"]
    return [bool(np.isfinite(each).all()) for each in found]


def test_the_last_checkpoint_before_a_run_diverged_outlives_all_later_ones(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    run = tmp_path / "run"
    said = error_of(run, continuous_dataset, [1e9, 7.0], keep_checkpoints=2)
    told = (
        "training diverged (seed-0-fails_at-7: weights became NaN or infinite between updates 6 "
        f"and 8 of phase train, and so did fit/loss, fit/seldom; {run / 'checkpoints' / '6'}, made "
        "before, is kept): likely causes are a learning rate too high or rewards of great size"
    )
    assert said == f"{run}: {told}"
    assert kept(run) == [6, 18, 20]
    assert (finite(run, 6), finite(run, 20)) == ([True, True], [True, False])
    assert {row["run"] for row in lines(run)} == {0}
    # The other goes on, and what is known of the first is not forgotten.
    with pytest.raises(TrainingError) as error:
        leeward.resume(run, data=continuous_dataset, steps=24, quiet=True)
    assert str(error.value) == f"{run}: {told}"
    assert kept(run) == [6, 22, 24]


def test_where_all_runs_diverge_the_error_names_the_checkpoint_before_the_first(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    run = tmp_path / "run"
    said = error_of(run, continuous_dataset, [3.0, 8.0], keep_checkpoints=1, log_every=1)
    # The eighth update, at which fit/seldom is not measured, does not name it.
    assert said == (
        f"{run}: training diverged (seed-0-fails_at-3: weights became NaN or infinite between "
        "updates 2 and 3 of phase train, and so did fit/loss, fit/seldom; seed-0-fails_at-8: "
        "weights became NaN or infinite between updates 7 and 8 of phase train, and so did "
        f"fit/loss; {run / 'checkpoints' / '2'}, made before, is kept): likely causes are a "
        "learning rate too high or rewards of great size"
    )
    assert kept(run) == [2, 6]
    assert (finite(run, 2), finite(run, 6)) == ([True, True], [False, True])
    alone = tmp_path / "alone"
    assert str(alone / "checkpoints" / "2") in error_of(alone, continuous_dataset, 3.0)
    assert kept(alone) == [2]


def test_metrics_that_were_not_measured_are_null_and_no_number(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    seen: list[Any] = []
    leeward.train(
        "failing",
        continuous_dataset,
        run_dir=tmp_path / "run",
        on_metrics=seen.append,
        steps=2,
        log_every=1,
        quiet=True,
        logger=(),
    )
    assert [row["fit/seldom"] for row in lines(tmp_path / "run")] == [1.0, None]
    assert math.isnan(seen[1]["fit/seldom"])


def test_an_error_tells_a_few_ways_and_causes_that_the_algorithm_has(
    continuous_dataset: Dataset,
) -> None:
    bc = ALGORITHMS["bc"]
    job = Job(
        algorithm=bc,
        config=bc.config_type(),
        settings=({},) * 6,
        seeds=tuple(range(6)),
        steps=1,
        options=RunOptions(),
        dataset=continuous_dataset,
        environment=None,
    )
    position = Position(failed=[0])  # as an older version's checkpoint has it
    for run, how in enumerate(("first", "first", "second", "third", "fourth"), 1):
        position.fail(run, how)
    assert str(loop.divergence(job, Path("run"), position, None)) == (
        "run: training diverged (seed-0: log.txt says how; seed-1, seed-2: first; seed-3: second; "
        "2 other cases are in log.txt; no checkpoint was made before): likely causes are a "
        "learning rate too high, rewards of great size or actions on the bounds under a tanh "
        "density (a wider --margin)"
    )
