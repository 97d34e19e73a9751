"""The table of Tianshou's Atari flags is whole, and ours that it names exist."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from leeward.algorithms import get_algorithm
from leeward.commands.collect import OutputOptions
from leeward.commands.parsing import DataOptions
from leeward.commands.train import TrainOptions
from leeward.commands.watch import WatchOptions
from leeward.online_qrdqn import QRDQNOptions
from leeward.options import RunOptions

PAGE = (Path(__file__).parents[1] / "docs" / "tianshou-atari-flags.md").read_text("utf-8")
COMMON = (
    "task seed load-buffer-name buffer-from-rl-unplugged lr epoch update-per-epoch batch-size "
    "hidden-sizes test-num frames-stack scale-obs logdir log-interval render watch device "
    "resume-path resume-id logger wandb-project"
)
# The flags of each example beside those, by its argument parser.
EXAMPLES = {
    "discrete_bc": "",
    "discrete_bcq": "gamma n-step eps-test target-update-freq unlikely-action-threshold "
    "imitation-logits-penalty",
    "discrete_cql": "gamma n-step eps-test target-update-freq min-q-weight num-quantiles",
    "discrete_crr": "gamma target-update-freq min-q-weight policy-improvement-mode "
    "ratio-upper-bound beta",
}
ONLINE = (
    "task seed eps-test eps-train eps-train-final buffer-size lr gamma num-quantiles n-step "
    "target-update-freq epoch step-per-epoch step-per-collect update-per-step batch-size "
    "training-num test-num logdir render watch device frames-stack resume-path save-buffer-name"
)
SECTIONS = {
    "discrete_bc": "atari_il.py",
    "discrete_bcq": "atari_bcq.py",
    "discrete_cql": "atari_cql.py",
    "discrete_crr": "atari_crr.py",
}


def table(title: str) -> dict[str, str]:
    """Their flag → ours, of one section."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:4] for line in section.splitlines() if line.startswith("| `--")]
    return {row[0].strip().strip("`").removeprefix("--"): row[2].strip() for row in rows}


def named(title: str) -> set[str]:
    """Our flags that a section names."""
    return {flag for cell in table(title).values() for flag in re.findall(r"--([\w-]+)", cell)}


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_every_flag_of_an_example_is_in_its_tables(algorithm: str) -> None:
    found = table("In all four") | table("In three or two") | table(SECTIONS[algorithm])
    assert set(f"{COMMON} {EXAMPLES[algorithm]}".split()) <= set(found)


def test_the_tables_name_no_other_flags() -> None:
    theirs = set(" ".join([COMMON, *EXAMPLES.values()]).split())
    titles = ("In all four", "In three or two", *SECTIONS.values())
    assert {flag for title in titles for flag in table(title)} == theirs
    assert set(table("atari_qrdqn.py")) == set(ONLINE.split())


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_every_flag_of_ours_exists(algorithm: str) -> None:
    own = get_algorithm(algorithm).config_type
    types = (RunOptions, TrainOptions, DataOptions, WatchOptions, own)
    ours = {f.name.replace("_", "-") for cls in types for f in dataclasses.fields(cls)}
    assert named(SECTIONS[algorithm]) <= ours
    assert named("In all four") <= ours | {"resume"}


def test_every_flag_of_the_learner_exists() -> None:
    from leeward.collect import CollectOptions

    types = (CollectOptions, QRDQNOptions, OutputOptions, WatchOptions)
    ours = {f.name.replace("_", "-") for cls in types for f in dataclasses.fields(cls)}
    assert named("atari_qrdqn.py") <= ours


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_every_example_has_a_preset(algorithm: str) -> None:
    assert "tianshou" in get_algorithm(algorithm).presets
