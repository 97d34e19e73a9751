"""The tables of Tianshou's Atari flags are whole, and say of ours what is true."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from flag_tables import Row, defaults_of, flags_in, holding_for, rows, says, wrong_defaults
from leeward.algorithms import discrete_bc, discrete_bcq, discrete_cql, discrete_crr, get_algorithm
from leeward.collect import CollectOptions
from leeward.commands.collect import OutputOptions
from leeward.commands.convert import ConvertOptions
from leeward.commands.parsing import DataOptions
from leeward.commands.train import TrainOptions
from leeward.commands.watch import WatchOptions
from leeward.online_qrdqn import QRDQNOptions
from leeward.options import RunOptions
from leeward.settings import make_config

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "tianshou-atari-flags.md").read_text("utf-8")
CONVERTING = (DOCS / "converting.md").read_text("utf-8")
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
    "task seed scale-obs eps-test eps-train eps-train-final buffer-size lr gamma num-quantiles "
    "n-step target-update-freq epoch step-per-epoch step-per-collect update-per-step batch-size "
    "training-num test-num logdir render watch device frames-stack resume-path resume-id logger "
    "wandb-project save-buffer-name"
)
CONVERTER = "task run-id shard-id total-num-shards dataset-dir cache-dir"
SECTIONS = {
    "discrete_bc": "atari_il.py",
    "discrete_bcq": "atari_bcq.py",
    "discrete_cql": "atari_cql.py",
    "discrete_crr": "atari_crr.py",
}
LABELS = {"discrete_bc": "BC", "discrete_bcq": "BCQ", "discrete_cql": "CQL", "discrete_crr": "CRR"}
SHARED = ("In all four", "In three or two")
CONFIGS = {
    "discrete_bc": discrete_bc.Config,
    "discrete_bcq": discrete_bcq.Config,
    "discrete_cql": discrete_cql.Config,
    "discrete_crr": discrete_crr.Config,
}


def table_of(algorithm: str) -> list[Row]:
    """The rows that are of one example."""
    wanted = f"{COMMON} {EXAMPLES[algorithm]}".split()
    titles = (*SHARED, SECTIONS[algorithm])
    return [row for title in titles for row in rows(PAGE, title) if row.theirs in wanted]


def names(table: list[Row]) -> set[str]:
    return {row.theirs for row in table}


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_every_flag_of_an_example_is_in_its_tables(algorithm: str) -> None:
    assert names(table_of(algorithm)) == set(f"{COMMON} {EXAMPLES[algorithm]}".split())


def test_the_tables_name_no_other_flags() -> None:
    theirs = set(" ".join([COMMON, *EXAMPLES.values()]).split())
    titles = (*SHARED, *SECTIONS.values())
    assert {flag for title in titles for flag in names(rows(PAGE, title))} == theirs
    assert names(rows(PAGE, "atari_qrdqn.py")) == set(ONLINE.split())
    assert names(rows(CONVERTING, "RL Unplugged's Atari data")) == set(CONVERTER.split())


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_every_flag_of_ours_exists_with_the_default_that_is_said(algorithm: str) -> None:
    types = (RunOptions, TrainOptions, DataOptions, WatchOptions, CONFIGS[algorithm])
    ours, table = defaults_of(*types), table_of(algorithm)
    assert flags_in(row.ours for row in table) <= {*ours, "resume"}
    assert wrong_defaults(table, ours, LABELS[algorithm]) == []


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_the_preset_has_the_example_s_defaults(algorithm: str) -> None:
    own = get_algorithm(algorithm)
    config, _ = make_config(own, "tianshou", {})
    values = {name.replace("_", "-"): value for name, value in dataclasses.asdict(config).items()}
    for row in table_of(algorithm):
        flag = row.ours.strip("`").removeprefix("--")
        if row.theirs == "hidden-sizes" and "head-hidden" in values:
            flag = "head-hidden"  # each head there has its own layers
            assert values["hidden"] == ()
        if flag in values:
            there = holding_for(row.default_there, LABELS[algorithm])
            assert says(there, values[flag]), f"--{row.theirs} {there}, the preset {values[flag]}"
    said = flags_in(text for row in table_of(algorithm) for text in (row.ours, row.notes))
    assert {name.replace("_", "-") for name in own.presets["tianshou"]} <= said


def test_the_learner_has_the_example_s_defaults() -> None:
    table, options = rows(PAGE, "atari_qrdqn.py"), defaults_of(QRDQNOptions)
    ours = defaults_of(WatchOptions, CollectOptions, QRDQNOptions, OutputOptions)
    assert flags_in(row.ours for row in table) <= set(ours)
    assert wrong_defaults(table, ours) == []
    in_other_units = {"steps", "updates-per-step"}
    for row in table:
        flag = row.ours.strip("`").removeprefix("--")
        if flag in options.keys() - in_other_units:
            assert says(row.default_there, options[flag]), row.theirs
    assert {"double", "adam-eps", "clip-rewards"} <= flags_in([PAGE.split("## atari_qrdqn.py")[1]])


def test_the_converter_s_flags_exist_with_the_default_that_is_said() -> None:
    table = rows(CONVERTING, "RL Unplugged's Atari data")
    assert wrong_defaults(table, defaults_of(ConvertOptions)) == []


def test_the_weights_by_size_are_the_presets() -> None:
    table = CONVERTING.split("| Transitions | Breakout | Pong |")[1].split("\n\n")[0]
    found = re.findall(r"`(tianshou[\w-]*)` \((\d+)", table)
    assert len(found) == 6
    presets = discrete_cql.ALGORITHM.presets
    for name, weight in found:
        values: dict[str, Any] = {"cql_weight": discrete_cql.Config().cql_weight, **presets[name]}
        assert values["cql_weight"] == float(weight), name


def test_what_says_what() -> None:
    """The comparison itself: it finds what is wrong."""
    assert holding_for("500 (BCQ: 8,000)", "BCQ") == "8,000"
    assert holding_for("500 (BCQ: 8,000)", "CQL") == "500"
    said = [("8,000", 8000), ("1e-4", 1e-4), ("yes", True), ("–", None), ("256 256", (256, 256))]
    said += [("2 · action size", 0), ("tensorboard", ("tensorboard",)), ("exp", "exp"), ("0", 0.0)]
    assert all(says(text, value) for text, value in said)
    wrong = [("8,000", 800), ("yes", False), ("3", None), ("256", (256, 256)), ("sign", "exp")]
    assert not any(says(text, value) for text, value in wrong)
    row = Row("lr", "1e-4", "`--lr`", "1e-3", "")
    assert wrong_defaults([row], {"lr": 1e-4}) == ["--lr: 1e-3, it is 0.0001"]
