"""docs/writing-an-algorithm.md as it stands: the package is found, trains, keeps the contract."""

from __future__ import annotations

import importlib
import inspect
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import leeward
from leeward import cli
from leeward.algorithms import ALGORITHMS, GROUP, get_algorithm
from leeward.errors import ConfigError
from pages import DOCS, blocks_of, module_at

PAGE = DOCS / "writing-an-algorithm.md"
ALGORITHM, TEST, CONTRACT = (block.text for block in blocks_of(PAGE, "python"))
(PROJECT,) = (tomllib.loads(block.text) for block in blocks_of(PAGE, "toml"))


def install(folder: Path, name: str, version: str, points: dict[str, str]) -> None:
    """What pip leaves of a package beside its modules."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{key} = {value}\n" for key, value in points.items()]
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{''.join(lines)}")
    importlib.invalidate_caches()


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The page's package, installed; the module is imported where Leeward asks for it."""
    folder = tmp_path_factory.mktemp("site-packages")
    (folder / "leeward_awc.py").write_text(ALGORITHM, encoding="utf-8")
    project = PROJECT["project"]
    install(folder, project["name"], project["version"], project["entry-points"][GROUP])
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder
    sys.modules.pop("leeward_awc", None)


@pytest.fixture(scope="module")
def guide_tests(guide: Path) -> ModuleType:
    """The page's test file, the lines for a package of one's own at its end."""
    file = guide / "test_awc.py"
    file.write_text(TEST + CONTRACT, encoding="utf-8")
    return module_at("test_awc_of_the_guide", file)


def test_it_trains_acts_and_is_loaded(
    guide: Path, continuous_dataset: leeward.Dataset, tmp_path: Path
) -> None:
    run = leeward.train(
        "awc",
        continuous_dataset,
        seeds=range(2),
        steps=400,
        hidden=(32,),
        lr=3e-3,
        log_every=100,
        run_dir=tmp_path / "run",
        quiet=True,
    )
    policy = leeward.load_policy(run.directory, seed=1)
    start = continuous_dataset.start
    predicted = policy(continuous_dataset.observation[start])
    action = continuous_dataset.action[start]
    # The data's noise has a std of 0.3; the spread of its actions is twice that.
    assert np.square(predicted - action).mean() < 0.5 * action.var()


def test_the_command_knows_it(guide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "algorithms", "awc"]) == 0
    assert "awc" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["train", "awc", "--help"])
    assert "How sharply the weight follows the advantage" in capsys.readouterr().out
    assert cli.main(["train"]) == 2
    assert "awac, awc, bc" in capsys.readouterr().err


def test_its_own_tests_pass(guide_tests: ModuleType) -> None:
    functions = inspect.getmembers(guide_tests, inspect.isfunction)
    alone = [f for name, f in functions if name.startswith("test_") and name != "test_contract"]
    assert len(alone) == 2
    for function in alone:
        function()


def test_it_keeps_the_contract(guide_tests: ModuleType) -> None:
    assert len(guide_tests.CHECKS) >= 15
    for name in guide_tests.CHECKS:
        guide_tests.test_contract(name)


# --- Faults of other packages ---


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a package with entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(name: str, module: str = "", **points: str) -> None:
        install(tmp_path, name, "1.0", points)
        if module:
            (tmp_path / f"{name}.py").write_text(module)

    return add


def test_a_name_of_leeward_s_own_cannot_be_taken(site: Callable[..., None]) -> None:
    site("thief", bc="thief:ALGORITHM")
    assert get_algorithm("bc") is ALGORITHMS["bc"]
    with pytest.raises(ConfigError) as raised:
        get_algorithm("some-other")
    assert str(raised.value) == (
        "the package thief adds an algorithm 'bc', a name that leeward uses already: rename it "
        "there, or uninstall the package"
    )


def test_two_packages_cannot_use_one_name(site: Callable[..., None]) -> None:
    site("first", new="first:ALGORITHM")
    site("second", new="second:ALGORITHM")
    with pytest.raises(ConfigError, match=r"a name that (first|second) uses already"):
        get_algorithm("new")


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("import nowhere", "which cannot be imported (ModuleNotFoundError: No module named"),
        ("ALGORITHM = 3", "which is no leeward.types.Algorithm: mend the entry point"),
        (
            "from leeward.algorithms.bc import ALGORITHM",
            "whose own name is 'bc': give both the same name",
        ),
    ],
)
def test_a_faulty_package_is_named(
    site: Callable[..., None], monkeypatch: pytest.MonkeyPatch, module: str, message: str
) -> None:
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    site("faulty", module, my_own="faulty:ALGORITHM")
    with pytest.raises(ConfigError) as raised:
        get_algorithm("my-own")
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    begin = "the package faulty adds an algorithm 'my_own' (faulty:ALGORITHM), "
    assert str(raised.value).startswith(begin + message)


def test_an_unknown_name_lists_those_of_other_packages(guide: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown algorithm 'awk'.*awac, awc, bc"):
        get_algorithm("awk")
