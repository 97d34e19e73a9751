"""Published settings and scores: every fact names things that exist, and presets pick the right."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
from pathlib import Path
from typing import Any

import pytest

import leeward
from leeward import cli
from leeward.algorithms import ALGORITHMS, get_algorithm
from leeward.config import from_json
from leeward.data import registry
from leeward.data.dataset import Dataset
from leeward.errors import ConfigError
from leeward.options import RunOptions, check_options
from leeward.published import scores
from leeward.published import settings as published
from leeward.settings import check_config, make_config, preset_settings

ENTRIES = published.entries()
ROWS = scores.rows()
TABLES = ("hidden", "steps", "batch_size")


def name_of(entry: published.Settings) -> str:
    return f"{entry.algorithm}-{entry.preset}-{entry.datasets[0]}"


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_settings_are_fields_that_exist_with_values_of_their_types(
    entry: published.Settings,
) -> None:
    algorithm = get_algorithm(entry.algorithm)
    if entry.config is None:
        assert entry.why
        return
    config = from_json(algorithm.config_type, entry.config)
    check_config(config)
    assert set(TABLES) <= set(entry.config)  # lengths and sizes never follow our defaults
    options = from_json(RunOptions, entry.options)
    check_options(options)
    assert not set(entry.options) - {f.name for f in dataclasses.fields(RunOptions)}


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_every_pattern_fits_a_data_set_for_which_its_entry_counts(
    entry: published.Settings,
) -> None:
    for pattern in entry.datasets:
        fitting = [n for n in registry.names() if fnmatch.fnmatchcase(n, pattern)]
        assert fitting, pattern
        if entry.config is not None:
            found = [published.find(entry.algorithm, entry.preset, name) for name in fitting]
            assert entry in found, f"{pattern} is hidden by an earlier entry"


def test_every_source_names_a_file_at_a_commit_or_a_paper() -> None:
    for entry in ENTRIES:
        assert "@" in entry.source or "arXiv" in entry.source, entry.source


@pytest.mark.parametrize("algorithm", sorted({row.algorithm for row in ROWS.values()}))
def test_rows_name_algorithms_data_sets_and_presets_that_exist(algorithm: str) -> None:
    own = get_algorithm(algorithm).presets
    for row in ROWS.values():
        if row.algorithm != algorithm:
            continue
        assert registry.find(row.dataset) is not None or row.made is not None, row.name
        if row.preset is not None and row.preset not in own:
            assert row.preset in published.names(algorithm), row.name
            if not row.name.startswith("cql/hopper-medium-v2@corl"):  # which is said to be withheld
                published.find(algorithm, row.preset, row.dataset)


def test_raw_returns_are_tianshou_s_alone_and_normalized_scores_have_references() -> None:
    for row in ROWS.values():
        assert (row.quantity == "return") == row.name.startswith("tianshou/")
        name = row.dataset if row.made is None else row.made.env
        assert registry.reference_scores(name) is not None


@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [
        ("tianshou/il-halfcheetah-expert", 11355.31, None),
        ("tianshou/il-halfcheetah-medium", 5098.16, None),
        ("tianshou/bcq-halfcheetah-expert", 11509.95, None),
        ("tianshou/bcq-halfcheetah-medium", 5147.43, None),
        ("tianshou/cql-halfcheetah-expert", 2864.37, None),
        ("tianshou/cql-halfcheetah-medium", 6505.41, None),
        ("tianshou/td3-bc-halfcheetah-expert", 11788.25, None),
        ("tianshou/td3-bc-halfcheetah-expert@no-norm-obs", 11665.77, None),
        ("tianshou/td3-bc-halfcheetah-medium", 5741.13, None),
        ("tianshou/td3-bc-halfcheetah-medium@no-norm-obs", 5724.41, None),
        ("tianshou/td3-bc-walker2d-medium", 4051.76, None),
        ("tianshou/td3-bc-walker2d-medium@no-norm-obs", 3985.59, None),
        ("tianshou/td3-bc-walker2d-expert", 5068.15, None),
        ("tianshou/td3-bc-walker2d-expert@no-norm-obs", 5027.75, None),
        ("tianshou/atari-il-pong-1e6", 20.0, None),
        ("tianshou/atari-bcq-pong-1e6", 20.1, None),
        ("tianshou/atari-cql-pong-1e6", 20.4, None),
        ("tianshou/atari-cql-pong-1e5", 21.0, None),
        ("tianshou/atari-cql-pong-1e4", 1.8, None),
        ("tianshou/atari-crr-pong-1e6", -21.0, None),
        ("tianshou/atari-crr-cql-pong-1e6", 17.7, None),
        ("tianshou/atari-il-breakout-1e6", 121.9, None),
        ("tianshou/atari-bcq-breakout-1e6", 64.6, None),
        ("tianshou/atari-cql-breakout-1e6", 129.4, None),
        ("tianshou/atari-cql-breakout-1e5", 40.8, None),
        ("tianshou/atari-cql-breakout-1e4", 22.5, None),
        ("tianshou/atari-crr-breakout-1e6", 23.3, None),
        ("tianshou/atari-crr-cql-breakout-1e6", 76.9, None),
        ("td3-bc/hopper-medium-expert-v2", 98.0, 9.4),
        ("td3-bc/hopper-medium-expert-v0", 112.2, 0.2),
        ("fisher-brc/hopper-medium-v0", 99.4, 0.3),
        ("cql/walker2d-expert-v0", 153.9, None),
        ("iql/hopper-medium-v2", 66.3, None),
        ("iql/antmaze-large-play-v0", 39.6, None),
        ("iql/pen-human-v0", 71.5, None),
        ("rebrac/hopper-medium-v2", 102.0, 1.0),
        ("bc-10/hopper-medium-v2@corl", 55.48, 7.3),
        ("awac/maze2d-large-v1@corl-best", 227.93, 1.9),
        ("cal-ql/antmaze-umaze-v2@corl", 76.75, 7.53),
        ("bcq/hopper-medium-expert-v0@d3rlpy", 111.5, 2.8),
    ],
)
def test_numbers_are_those_of_the_tables(name: str, mean: float, std: float | None) -> None:
    row = scores.find(name)
    assert (row.mean, row.std) == (mean, std)


def test_the_rows_without_normalized_observations_say_so_in_their_settings() -> None:
    for name, row in ROWS.items():
        if name.endswith("@no-norm-obs"):
            assert row.config == {"normalize_observations": False}
        elif row.made is None:
            assert row.config == {}


def test_long_mazes_are_evaluated_over_a_hundred_episodes() -> None:
    assert scores.find("iql/antmaze-umaze-v2@corl").episodes == 100
    assert scores.find("iql/antmaze-umaze-v0").episodes == 100
    assert scores.find("iql/maze2d-umaze-v1@corl").episodes == 100
    assert scores.find("iql/hopper-medium-v2@corl").episodes == 10


def test_names_may_be_written_with_underscores_and_capitals() -> None:
    assert scores.find("TD3_BC/Hopper-medium_v2") is ROWS["td3-bc/hopper-medium-v2"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "bc/hopper-medium-v2",
            "bc/hopper-medium-v2 has no number of its own paper: choose bc/hopper-medium-v2@iql or "
            "bc/hopper-medium-v2@corl or bc/hopper-medium-v2@corl-best",
        ),
        (
            "iql/hoper-medium-v2",
            "no published row 'iql/hoper-medium-v2'. Did you mean iql/hopper-medium-v2 or "
            "cql/hopper-medium-v0 or iql/hopper-medium-v2@corl? leeward reproduce --list shows "
            "them all",
        ),
    ],
)
def test_an_unknown_row_names_those_that_exist(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        scores.find(name)
    assert str(caught.value) == text


def expanded(pattern: str) -> list[str]:
    """The names of a pattern such as {hopper,walker2d}-expert-v2."""
    before, brace, rest = pattern.partition("{")
    if not brace:
        return [pattern]
    choices, _, after = rest.partition("}")
    return [name for c in choices.split(",") for name in expanded(f"{before}{c}{after}")]


def test_the_page_names_every_preset_that_no_row_judges() -> None:
    judged = {(row.algorithm, row.preset, row.dataset) for row in ROWS.values()}
    expected = {
        (entry.algorithm.replace("_", "-"), entry.preset, name)
        for entry in ENTRIES
        for name in registry.names()
        if entry.config is not None
        and any(fnmatch.fnmatchcase(name, pattern) for pattern in entry.datasets)
        and (entry.algorithm, entry.preset, name) not in judged
    }
    page = (Path(__file__).parents[1] / "docs" / "reproduce.md").read_text("utf-8")
    section = page.split("### Settings without a published number\n")[1].split("\n## ")[0]
    said: list[tuple[str, str, str]] = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and "`" in cells[2]:
            algorithms, presets, sets = cells[0].split(", "), cells[1].split(", "), cells[2]
            names = [name for part in sets.split() for name in expanded(part.strip("`"))]
            said += [(a, p, name) for a in algorithms for p in presets for name in names]
    assert len(said) == len(set(said))
    assert set(said) == expected


def row_like(**facts: Any) -> scores.Row:
    return scores.find("td3-bc/hopper-medium-expert-v2")._replace(**facts)


def test_the_published_interval() -> None:
    low, high = row_like(mean=50.0, std=10.0, seeds=4).interval
    assert (low, high) == pytest.approx((40.2, 59.8))  # 1.96 · 10 / 2
    assert row_like(mean=50.0, std=10.0, seeds=None).interval == (40.0, 60.0)
    assert row_like(mean=50.0, std=None, seeds=4).interval == (50.0, 50.0)


# Presets.


def test_a_paper_s_preset_depends_on_the_data_set() -> None:
    medium, _ = make_config(ALGORITHMS["iql"], "paper", {}, data="hopper-medium-v2")
    maze, _ = make_config(ALGORITHMS["iql"], "paper", {}, data="antmaze-umaze-v0")
    adroit, _ = make_config(ALGORITHMS["iql"], "paper", {}, data="pen-human-v0")
    found = [(c.expectile, c.beta, c.dropout) for c in (medium, maze, adroit)]
    assert found == [(0.7, 3.0, False), (0.9, 10.0, False), (0.7, 0.5, True)]


def test_where_the_paper_has_nothing_corl_s_configuration_counts() -> None:
    own = preset_settings(ALGORITHMS["iql"], "paper", "maze2d-large-v1")
    assert own == preset_settings(ALGORITHMS["iql"], "corl", "maze2d-large-v1")
    assert own.config["normalize_observations"] is True
    assert preset_settings(ALGORITHMS["bc"], "corl-10", "hopper-medium-v2").options == {
        "best_fraction": 0.1
    }


def test_the_first_entry_that_fits_counts() -> None:
    weight = [
        preset_settings(ALGORITHMS["cql"], "d3rlpy", name).config["cql_weight"]
        for name in ("hopper-medium-v0", "hopper-medium-expert-v0")
    ]
    assert weight == [10.0, 5.0]


def test_settings_given_beside_a_preset_win() -> None:
    config, _ = make_config(ALGORITHMS["td3_bc"], "paper", {"alpha": 1.0}, data="hopper-medium-v0")
    assert (config.alpha, config.batch_size) == (1.0, 256)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("Hopper_medium-v2", "hopper-medium-v2"),
        ("/some/where/hopper_medium-v2.hdf5", "hopper-medium-v2"),
        (Path("hopper-medium-v2.hdf5"), "hopper-medium-v2"),
        ("http://localhost/gym/hopper_medium-v2.hdf5", "hopper-medium-v2"),
    ],
)
def test_a_file_counts_as_what_it_is_called(data: str | Path, name: str) -> None:
    assert published.data_name(data) == name


def test_a_data_set_made_in_python_counts_as_its_name(continuous_dataset: Dataset) -> None:
    assert published.data_name(continuous_dataset) == "small-continuous"


GYM = "halfcheetah-*-v0, hopper-*-v0, walker2d-*-v0"


@pytest.mark.parametrize(
    ("algorithm", "preset", "data", "text"),
    [
        (
            "fisher_brc",
            "paper",
            "hopper-medium-v2",
            f"fisher-brc has no preset 'paper' for hopper-medium-v2: it is for {GYM}",
        ),
        (
            "cql",
            "corl",
            "hopper-medium-v2",
            "cql has no preset 'corl' for hopper-medium-v2: CORL normalizes the rewards of "
            "hopper-medium-v2 by a scale and a shift that its configuration leaves to the version "
            "of the code",
        ),
        ("iql", "paper", None, "preset 'paper' depends on the data set: name one"),
        (
            "iql",
            "papr",
            "hopper-medium-v2",
            "iql has no preset 'papr' (it has: paper, corl, d3rlpy). Did you mean paper?",
        ),
    ],
)
def test_a_preset_that_a_data_set_lacks_says_which_have_one(
    algorithm: str, preset: str, data: str | None, text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        preset_settings(ALGORITHMS[algorithm], preset, data)
    assert str(caught.value) == text


def test_a_run_takes_its_options_from_the_preset_too(
    tmp_path: Path, continuous_dataset: Dataset
) -> None:
    data = continuous_dataset.with_metadata(name="hopper-medium-v2")
    run = leeward.train(
        "bc",
        data,
        preset="corl-10",
        steps=2,
        hidden=(8,),
        run_dir=tmp_path / "run",
        quiet=True,
        logger=(),
    )
    saved = run.config
    assert saved["options"]["best_fraction"] == 0.1
    assert (saved["config"]["lr"], saved["config"]["hidden"]) == (3e-4, [8])
    assert saved["data"]["transitions"] < continuous_dataset.transitions


def printed_config(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert cli.main(["train", *arguments, "--print-config"]) == 0
    return json.loads(capsys.readouterr().out)["config"]


def test_the_command_s_preset_fits_the_data_set_wherever_it_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = printed_config(capsys, "iql", "antmaze-umaze-v0", "--preset", "paper")
    last = printed_config(capsys, "iql", "--preset=paper", "--steps", "7", "antmaze-umaze-v0")
    own = printed_config(capsys, "iql", "antmaze-umaze-v0", "--preset", "paper", "--beta", "2")
    assert [c["beta"] for c in (first, last, own)] == [[10.0], [10.0], [2.0]]
    assert [c["steps"] for c in (first, last)] == [1_000_000, 7]


def test_the_command_says_which_data_sets_have_a_preset(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["train", "fisher-brc", "log.csv", "--preset", "paper"]) == 2
    assert capsys.readouterr().err == (
        f"leeward: error: fisher-brc has no preset 'paper' for log.csv: it is for {GYM}\n"
    )


def test_the_list_of_algorithms_names_published_presets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["list", "algorithms", "td3-bc"]) == 0
    assert "paper, corl, d3rlpy" in capsys.readouterr().out
