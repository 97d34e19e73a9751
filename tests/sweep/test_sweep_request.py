"""What a sweep is asked for: values and ranges on the command line, and TOML files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from leeward.commands.parsing import DataOptions
from leeward.errors import ConfigError
from leeward.options import RunOptions
from leeward.sweep.file import read_file
from leeward.sweep.request import assignments, distribution, distributions

TABLES = {"options": RunOptions, "data": DataOptions}


def test_values_are_numbers_truths_lists_and_words() -> None:
    texts = ["alpha=1,2.5,1e-3", "hidden=[64,64],[8]", "lr-decay=true,False", "density=gaussian"]
    assert assignments([*texts, "td3-bc.tau=0.01"], "--grid") == {
        "alpha": [1, 2.5, 0.001],
        "hidden": [[64, 64], [8]],
        "lr_decay": [True, False],
        "density": ["gaussian"],
        "td3_bc.tau": [0.01],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alpha", "--grid takes NAME=VALUE, such as alpha=1,2.5, got 'alpha'"),
        ("=1", "--grid takes NAME=VALUE, such as alpha=1,2.5, got '=1'"),
        ("alpha=", "--grid alpha=: a value is missing"),
        ("alpha=1,,2", "--grid alpha=1,,2: a value is missing"),
    ],
)
def test_texts_of_another_form_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        assignments([text], "--grid")
    assert str(error.value) == message


def test_a_name_is_given_once() -> None:
    with pytest.raises(ConfigError) as error:
        assignments(["alpha=1", "alpha=2"], "--grid")
    assert str(error.value) == "--grid names 'alpha' twice: give all its values at once"


def test_ranges_and_choices_are_told_apart() -> None:
    found = distributions(["lr=log:1e-5..1e-3", "hidden=[8],[16]"])
    assert found == {"lr": "log:1e-5..1e-3", "hidden": [[8], [16]]}


def test_draws_lie_in_their_range_with_four_digits() -> None:
    generator = np.random.default_rng(0)
    source = distribution("lr", "log:1e-5..1e-2", whole=False)
    drawn = [source.draw(generator, whole=False) for _ in range(400)]
    assert all(1e-5 <= value <= 1e-2 for value in drawn)
    assert all(value == float(f"{value:.4g}") for value in drawn)
    # The logarithm is even: about a third in each decade.
    assert 0.25 < np.mean(np.array(drawn) < 1e-4) < 0.42


def test_whole_numbers_reach_both_ends() -> None:
    generator = np.random.default_rng(0)
    source = distribution("n_step", "1..3", whole=True)
    drawn = [source.draw(generator, whole=True) for _ in range(300)]
    assert {type(value) for value in drawn} == {int}
    counts = [drawn.count(value) for value in (1, 2, 3)]
    assert sum(counts) == 300
    assert min(counts) > 70


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            "1e-4",
            "random setting 'lr' must be LOW..HIGH, log:LOW..HIGH or a list of values, got '1e-4'",
        ),
        ("2..1", "random setting 'lr' needs LOW below HIGH, got '2..1'"),
        ("log:0..1", "random setting 'lr' needs LOW below HIGH and LOW above 0, got 'log:0..1'"),
        ([], "random setting 'lr' needs at least one value"),
    ],
)
def test_impossible_ranges_are_refused(asked: object, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        distribution("lr", asked, whole=False)
    assert str(error.value) == message


def test_a_file_s_tables(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        """
        algorithms = ["td3-bc", "iql"]
        datasets = ["small.npz"]
        seeds = [0, 1]
        draws = 3
        [settings]
        steps = 20
        [grid]
        hidden = [[8], [16]]
        [grid.td3-bc]
        alpha = [1.0, 2.5]
        [random]
        discount = "0.9..0.99"
        [options]
        eval_every = 0
        """
    )
    assert read_file(file, TABLES) == {
        "algorithms": ("td3-bc", "iql"),
        "datasets": ("small.npz",),
        "seeds": (0, 1),
        "draws": 3,
        "settings": {"steps": 20},
        "grid": {"hidden": [[8], [16]], "td3_bc.alpha": [1.0, 2.5]},
        "random": {"discount": "0.9..0.99"},
        "options": {"eval_every": 0},
        "data": {},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds = [0, true]", "'seeds' takes whole numbers, got True"),
        ("seeds = 3", "'seeds' must be a list, got 3"),
        ("draws = 'many'", "'draws' takes whole numbers, got 'many'"),
        ("grid = 3", "'grid' must be a table, [grid], got 3"),
        ("[grid]\nalpha = 3", "'grid.alpha' must be a list of values, got 3"),
        ("[random]\nlr = 1", "'random.lr' must be a range or a list of values, got 1"),
        ("[options]\neval_every = 'x'", "[options] setting 'eval_every' must be int, got 'x'"),
        (
            "[data]\nd4rl_rows = 'some'",
            "[data] setting 'd4rl_rows' must be one of qlearning, all, got 'some'",
        ),
    ],
)
def test_files_that_cannot_be_understood(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_file(file, TABLES)
    assert str(error.value) == f"{file}: {message}"


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("seeds = [", "not valid TOML ("),
        (
            "algorithm = ['bc']",
            "unknown key 'algorithm'. Did you mean algorithms? Keys: algorithms, data, datasets,",
        ),
        (
            "[options]\neval_evry = 1",
            "unknown key 'options.eval_evry'. Did you mean eval_every",
        ),
        ("[options]\nrun_dir = 'x'", "unknown key 'options.run_dir'."),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path: Path, text: str, beginning: str) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_file(file, TABLES, ("run_dir",))
    assert str(error.value).startswith(f"{file}: {beginning}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read_file(tmp_path / "none.toml", TABLES)
    assert str(error.value) == (
        f"{tmp_path / 'none.toml'}: cannot be read (No such file or directory)"
    )
