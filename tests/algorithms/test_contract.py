"""Every algorithm keeps the contract of contract.py and contract_settings.py."""

from __future__ import annotations

from collections.abc import Callable

import jax
import pytest

import contract
import contract_settings
from leeward.algorithms import ALGORITHMS
from subjects import Subject

SUBJECTS = [
    Subject(algorithm, kind) for algorithm in ALGORITHMS.values() for kind in algorithm.actions
]


def checks_of(module: object) -> list[Callable[[Subject], None]]:
    return [check for name, check in vars(module).items() if name.startswith("check_")]


def named(check: Callable[[Subject], None], subject: Subject | str) -> str:
    return f"{subject}-{check.__name__.removeprefix('check_')}"


RUNS = [
    *(pytest.param(c, s, id=named(c, s)) for s in SUBJECTS for c in checks_of(contract)),
    *(
        pytest.param(c, s, id=named(c, s.algorithm.name))
        for s in SUBJECTS
        for c in checks_of(contract_settings)
        if s.kind == s.algorithm.actions[0]  # they look at the other kind themselves
    ),
]


@pytest.mark.parametrize(("check", "subject"), RUNS)
def test_contract(check: Callable[[Subject], None], subject: Subject) -> None:
    assert jax.config.jax_numpy_rank_promotion == "raise"
    check(subject)


def test_every_algorithm_is_listed_under_its_own_name() -> None:
    assert {name: algorithm.name for name, algorithm in ALGORITHMS.items()} == {
        name: name for name in ALGORITHMS
    }
    assert all(set(a.actions) <= {"continuous", "discrete"} for a in ALGORITHMS.values())


def test_no_metrics_are_stored_for_algorithms_that_are_gone() -> None:
    stored = sorted(path.stem for path in contract.GOLDEN.iterdir())
    assert stored == sorted(map(str, SUBJECTS))
