"""The table of Tianshou's flags is whole, and ours that it names exist."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from leeward.algorithms import get_algorithm
from leeward.commands.parsing import DataOptions
from leeward.commands.train import TrainOptions
from leeward.options import RunOptions

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


def table(title: str) -> dict[str, str]:
    """Their flag → ours, of one section."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:4] for line in section.splitlines() if line.startswith("| `--")]
    return {row[0].strip().strip("`").removeprefix("--"): row[2].strip() for row in rows}


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_every_flag_of_an_example_is_in_its_tables(algorithm: str) -> None:
    found = table("In all four") | table("In three or two") | table(SECTIONS[algorithm])
    assert set(f"{COMMON} {EXAMPLES[algorithm]}".split()) <= set(found)


def test_the_tables_name_no_other_flags() -> None:
    theirs = set(" ".join([COMMON, *EXAMPLES.values()]).split())
    titles = ("In all four", "In three or two", *SECTIONS.values())
    assert {flag for title in titles for flag in table(title)} == theirs


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_every_flag_of_ours_exists(algorithm: str) -> None:
    types = (RunOptions, TrainOptions, DataOptions, get_algorithm(algorithm).config_type)
    ours = {f.name.replace("_", "-") for cls in types for f in dataclasses.fields(cls)}
    wanted = table(SECTIONS[algorithm]).values()
    named = {flag for cell in wanted for flag in re.findall(r"--([\w-]+)", cell)}
    assert named <= ours
    shared = " ".join(table("In all four").values())
    assert set(re.findall(r"--([\w-]+)", shared)) <= ours | {"resume", "discount"}


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_every_example_has_a_preset(algorithm: str) -> None:
    assert "tianshou" in get_algorithm(algorithm).presets
