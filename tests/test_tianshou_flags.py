"""The tables of Tianshou's flags are whole, and say of ours what is true."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from flag_tables import Row, defaults_of, flags_in, rows, says, wrong_defaults
from leeward.algorithms import bc, bcq, cql, get_algorithm, td3_bc
from leeward.commands.parsing import DataOptions
from leeward.commands.train import TrainOptions
from leeward.options import RunOptions
from leeward.settings import make_config

PAGE = (Path(__file__).parents[1] / "docs" / "tianshou-flags.md").read_text(encoding="utf-8")
COMMON = (
    "task seed expert-data-task hidden-sizes epoch step-per-epoch batch-size gamma test-num logdir "
    "render watch device resume-path resume-id logger wandb-project"
)
# The flags of each example beside those, by its argument parser.
EXAMPLES = {
    "bc": "lr",
    "bcq": "buffer-size actor-lr critic-lr start-timesteps n-step vae-hidden-sizes latent-dim tau "
    "lmbda phi",
    "cql": "buffer-size actor-lr critic-lr alpha auto-alpha alpha-lr cql-alpha-lr start-timesteps "
    "n-step tau temperature cql-weight with-lagrange lagrange-threshold eval-freq calibrated",
    "td3_bc": "buffer-size actor-lr critic-lr n-step alpha exploration-noise policy-noise "
    "noise-clip update-actor-freq tau norm-obs eval-freq",
}
SECTIONS = {
    "bc": "d4rl_il.py",
    "bcq": "d4rl_bcq.py",
    "cql": "d4rl_cql.py",
    "td3_bc": "d4rl_td3_bc.py",
}
SHARED = ("In all four", "In three or two")
CONFIGS = {"bc": bc.Config, "bcq": bcq.Config, "cql": cql.Config, "td3_bc": td3_bc.Config}
NOTHING = {("bcq", "n-step"), ("cql", "n-step"), ("cql", "alpha")}
"""Flags that reach nothing there: the preset leaves ours as they are."""
IN_OUR_WORDS = {"with-lagrange": "weighted-gap", "norm-obs": "yes"}
"""What defaults of theirs mean that are written in another way."""


def table_of(algorithm: str) -> list[Row]:
    """The rows that are of one example; d4rl_il.py has a discount that reaches nothing."""
    wanted = set(f"{COMMON} {EXAMPLES[algorithm]}".split())
    if algorithm == "bc":
        wanted -= {"gamma"}
    titles = (*SHARED, SECTIONS[algorithm])
    return [row for title in titles for row in rows(PAGE, title) if row.theirs in wanted]


def preset_of(algorithm: str) -> dict[str, Any]:
    """Flag → value, of all settings with --preset tianshou."""
    config, _ = make_config(get_algorithm(algorithm), "tianshou", {})
    return {name.replace("_", "-"): v for name, v in dataclasses.asdict(config).items()}


def own_flag(row: Row) -> str:
    return row.ours.strip("`").removeprefix("--")


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_every_flag_of_an_example_is_in_its_tables(algorithm: str) -> None:
    theirs = {row.theirs for row in table_of(algorithm)} | {"gamma"}
    assert theirs == set(f"{COMMON} {EXAMPLES[algorithm]}".split())


def test_the_tables_name_no_other_flags() -> None:
    theirs = set(" ".join([COMMON, *EXAMPLES.values()]).split())
    titles = (*SHARED, *SECTIONS.values())
    assert {row.theirs for title in titles for row in rows(PAGE, title)} == theirs


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_every_flag_of_ours_exists_with_the_default_that_is_said(algorithm: str) -> None:
    ours = defaults_of(RunOptions, TrainOptions, DataOptions, CONFIGS[algorithm])
    table = table_of(algorithm)
    assert flags_in(row.ours for row in table) <= {*ours, "resume"}
    assert wrong_defaults(table, ours) == []


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_the_preset_has_the_example_s_defaults(algorithm: str) -> None:
    values, ours = preset_of(algorithm), defaults_of(CONFIGS[algorithm])
    for row in table_of(algorithm):
        flag = own_flag(row)
        if flag not in values:
            continue
        if (algorithm, row.theirs) in NOTHING:
            assert "reaches nothing" in row.notes
            assert values[flag] == ours[flag], row.theirs
            continue
        there = IN_OUR_WORDS.get(row.theirs, row.default_there.partition(" (")[0])
        assert says(there, values[flag]), f"--{row.theirs} {there}, the preset {values[flag]}"
    section = PAGE.split(f"\n## {SECTIONS[algorithm]}\n")[1].split("\n## ")[0]
    said = flags_in([section, *(row.ours for row in table_of(algorithm))])
    assert {name.replace("_", "-") for name in get_algorithm(algorithm).presets["tianshou"]} <= said


def test_notes_give_the_preset_its_own_numbers() -> None:
    """Where a clause of a note names the preset, its numbers are the flag's there."""
    seen = 0
    for title in (*SHARED, *SECTIONS.values()):
        for row in rows(PAGE, title):
            values = [v for a in EXAMPLES if (v := preset_of(a).get(own_flag(row))) is not None]
            flat = [n for v in values for n in (v if isinstance(v, tuple) else (v,))]
            clauses = re.split(r"[.;:](?:\s|$)", row.notes)
            for clause in (clause for clause in clauses if "preset" in clause):
                found = re.findall(r"(?<!\w)\d[\d.]*(?:e-?\d+)?", clause)
                seen += len(found)
                assert {float(number) for number in found} <= set(flat), row
    assert seen >= 3
