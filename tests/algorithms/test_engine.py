"""The engine on algorithms of every structure: interrupted again and again, nothing changes.

That a checkpoint keeps the state of any algorithm is in the contract suite.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leeward
from leeward import devices, engine
from leeward.algorithms import ALGORITHMS
from leeward.config import to_json
from leeward.data.sampling import fit_scaling, to_device
from leeward.types import Phase
from subjects import UPDATES, small_config, small_dataset

STRUCTURES = {
    "discrete_bc-discrete": "integer actions",
    "cal_ql-continuous": "a state that changes its shape on entering a phase",
    "fisher_brc-continuous": "two phases",
    "td3_bc-continuous": "metrics that are not measured at every update",
}


def train(
    case: str, directory: Path, on_metrics: Callable[[Any], None] | None = None, **changes: Any
) -> None:
    """Two seeds, a line of metrics and a checkpoint every ten updates."""
    name, kind = case.rsplit("-", 1)
    leeward.train(
        name,
        small_dataset(kind),
        seeds=(0, 1),
        run_dir=directory,
        on_metrics=on_metrics,
        log_every=10,
        checkpoint_every=10,
        logger=(),
        quiet=True,
        **to_json(small_config(ALGORITHMS[name], **changes)),
    )


def train_in_pieces(case: str, directory: Path) -> int:
    """The same run, interrupted in every phase and resumed; how often it was resumed."""
    name, kind = case.rsplit("-", 1)

    def interrupt(row: Mapping[str, Any]) -> None:
        if row["run"] == 1 and row["step"] == 20:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(case, directory, interrupt)
    for count in range(1, 1 + len(ALGORITHMS[name].phases)):
        with contextlib.suppress(KeyboardInterrupt):
            leeward.resume(directory, data=small_dataset(kind), quiet=True, on_metrics=interrupt)
            return count
    raise AssertionError("interrupted more often than there are phases")


def metrics(directory: Path) -> list[dict[str, Any]]:
    """The lines of metrics without what depends on the clock."""
    rows = map(json.loads, (directory / "metrics.jsonl").read_text("utf-8").splitlines())
    return [{n: v for n, v in row.items() if not n.startswith("time/")} for row in rows]


def weights(directory: Path) -> dict[str, np.ndarray]:
    """The final policy's arrays."""
    with np.load(directory / "final" / "policy.npz", allow_pickle=False) as archive:
        return dict(archive)


def test_a_chunk_makes_no_round_trip_to_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program calls nothing outside, and it is given nothing that lies on the host."""
    seen: list[int] = []

    def guarded(phase: Phase, index: int, *given: Any) -> Any:
        if not seen:
            program = engine.run_chunk.lower(phase, index, *given).as_text()
            assert "stablehlo.while" in program  # it is the loop
            assert "callback" not in program
        with jax.transfer_guard("disallow"):
            with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
                jnp.sin(np.ones(3))  # the guard works here
            result = engine.run_chunk(phase, index, *given)
        seen.append(int(given[-1]))
        return result

    programs = devices.Programs(run_chunk=guarded)
    monkeypatch.setattr(devices.Placement, "programs", property(lambda _: programs))
    train("td3_bc-continuous", tmp_path)
    assert sum(seen) == UPDATES


@pytest.mark.parametrize("case", STRUCTURES)
def test_interrupted_and_resumed_is_the_same_to_the_bit(case: str, tmp_path: Path) -> None:
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    train(case, whole)
    assert train_in_pieces(case, pieces) == len(ALGORITHMS[case.rsplit("-", 1)[0]].phases)
    assert metrics(pieces) == metrics(whole)
    assert metrics(whole)[-1]["step"] == UPDATES
    first, second = weights(whole), weights(pieces)
    assert first.keys() == second.keys()
    for part, value in first.items():
        np.testing.assert_array_equal(value, second[part], err_msg=part)


def test_normalized_observations_are_what_training_and_the_policy_see(tmp_path: Path) -> None:
    for folder, normalize in (("plain", False), ("scaled", True)):
        train("bc-continuous", tmp_path / folder, normalize_observations=normalize)
    plain, scaled = weights(tmp_path / "plain"), weights(tmp_path / "scaled")
    first = "policy/mlp/layers/0/weight"
    assert not np.array_equal(plain[first], scaled[first])
    dataset = small_dataset("continuous")
    used = dataset.observation[dataset.start]
    np.testing.assert_array_equal(plain["scaling/observation_mean"], np.zeros(3))
    for part, expected in (("mean", used.mean(axis=0)), ("std", used.std(axis=0) + 1e-3)):
        np.testing.assert_allclose(scaled[f"scaling/observation_{part}"], expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["bc", "iql"])
def test_a_chunk_copies_no_weights(name: str) -> None:
    algorithm, dataset = ALGORITHMS[name], small_dataset("continuous")
    config = algorithm.config_type(hidden=(37, 37), batch_size=4)
    index, phase = len(algorithm.phases) - 1, algorithm.phases[-1]
    data = to_device(dataset, fit_scaling(dataset, config.normalize_observations))
    stacked, key = engine.stack_configs(config, [{}]), engine.run_keys([0])
    state = engine.init_states(algorithm.init, dataset.spec, stacked, key)
    given = phase, index, stacked, state, data, key
    numbers = engine.zero_means(*given), jnp.int32(0), jnp.int32(1)
    program = str(engine.run_chunk.lower(*given, *numbers).compile().as_text())
    assert "f32[37,37]" in program
    assert re.findall(r"= f32\[37,37\]\S* copy\(", program) == []
