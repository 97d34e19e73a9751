"""`leeward export`: what it writes beside the policy, how files are used, and what it refuses."""

from __future__ import annotations

import base64
import dataclasses
import errno
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leeward
import small_environments  # noqa: F401  # registers them
from exporting import (
    CHOICES,
    FILES,
    VECTORS,
    archive_in,
    error_of,
    files_in,
    observations,
    policy_of,
    td3_bc_policy,
    write_all,
)
from leeward import cli
from leeward.algorithms import ALGORITHMS
from leeward.errors import (
    CheckpointError,
    ConfigError,
    DiskError,
    MissingExtra,
    SpecError,
)
from leeward.evaluate import evaluate
from leeward.export import export, load_exported, operators, runner
from leeward.export.forms import FORMS
from leeward.policy import save_policy
from test_evaluate import LINE, line_policies


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy in every form."""
    return write_all(tmp_path_factory.mktemp("exported"))


# --- What is written ---


def test_files_and_their_cards(folder: Path) -> None:
    assert files_in(folder) == [
        *("p.onnx", "p.onnx.json", "p.py", "p.py.json"),
        *("p.stablehlo", "p.stablehlo.json"),
    ]
    card = json.loads((folder / "p.onnx.json").read_text())
    assert card["card"] == 1
    assert (card["format"], card["algorithm"]) == ("onnx", "td3_bc")
    assert card["observation"] == {
        "name": "observation",
        "shape": ["batch", 3],
        "dtype": "float32",
        "mean": [0.5, 0.5, 0.5],
        "std": [2.0, 2.0, 2.0],
    }
    assert card["action"] == {
        "name": "action",
        "shape": ["batch", 2],
        "dtype": "float32",
        "low": [-2.0, 0.0],
        "high": [2.0, 10.0],
    }
    assert card["data"] == {"name": "drawn", "hash": "abc"}
    assert (card["seed"], card["step"], card["return_mean"], card["score_mean"]) == (
        *(3, 40, 12.5, None),
    )
    assert card["config"]["hidden"] == [6, 6]
    inside = load_exported(folder / "p.onnx").card
    assert {**inside, "sha256": card["sha256"]} == card


@pytest.mark.parametrize("name", FILES.values())
def test_a_loaded_file_acts_as_the_policy(folder: Path, name: str) -> None:
    act = load_exported(folder / name)
    live = td3_bc_policy()
    for leading in ((), (1,), (2, 3), (0,), (0, 4)):
        seen = observations(VECTORS, 6)[: int(np.prod(leading))].reshape((*leading, 3))
        found = act(seen.astype(np.float64))
        assert (found.shape, found.dtype) == ((*leading, 2), np.float32)
        np.testing.assert_allclose(found, live(seen), rtol=1e-5, atol=1e-5)
    assert error_of(lambda: act(np.zeros(4)), SpecError) == (
        "the policy expects observations of shape (3,) with any leading axes, got (4,)"
    )
    assert error_of(lambda: act(np.array([[0.0] * 3, [0.0, np.nan, 0.0]])), SpecError) == (
        "observation 1 holds a value that is not a finite number"
    )


def test_discrete_actions(tmp_path: Path) -> None:
    policy = policy_of(ALGORITHMS["dqn"], CHOICES)
    done = export(policy, tmp_path / "p.py")
    act = load_exported(tmp_path / "p.py")
    assert act.card["action"] == {
        "name": "action",
        "shape": ["batch"],
        "dtype": "int32",
        "count": 4,
    }
    seen = observations(CHOICES, 6).reshape(2, 3, 3)
    np.testing.assert_array_equal(act(seen), policy(seen))
    assert act(seen[:0]).shape == (0, 3)
    assert done.difference == 0.0


def actions_without(packages: str, code: str, folder: Path) -> np.ndarray:
    """What a program makes of observations where none of the packages can be imported."""
    np.save(folder / "seen.npy", observations(VECTORS, 4))
    refusing = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {packages.split()}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", refusing + code], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return np.load(folder / "actions.npy")


def test_the_numpy_form_is_one_file_that_needs_numpy_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_bytes((folder / "p.py").read_bytes())
    code = (
        "import runpy\n"
        "sys.argv = ['p.py', 'seen.npy', 'actions.npy']\n"
        "runpy.run_path('p.py', run_name='__main__')\n"
    )
    found = actions_without("jax leeward onnx scipy equinox", code, tmp_path)
    expected = td3_bc_policy()(observations(VECTORS, 4))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_stablehlo_form_needs_jax_and_flatbuffers_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "p.stablehlo").write_bytes((folder / "p.stablehlo").read_bytes())
    code = (
        "import numpy as np\n"
        "from jax import export\n"
        "with open('p.stablehlo', 'rb') as file:\n"
        "    program = export.deserialize(bytearray(file.read()))\n"
        "np.save('actions.npy', program.call(np.load('seen.npy')))\n"
    )
    others = "leeward equinox jaxtyping optax orbax onnx onnxruntime gymnasium"
    found = actions_without(others, code, tmp_path)
    expected = td3_bc_policy()(observations(VECTORS, 4))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_numpy_form_says_what_is_wrong(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ARCHIVE", base64.b64encode(archive_in(folder / "p.py")))
    act = runner.load()
    assert act(np.zeros((2, 5, 3))).shape == (2, 5, 2)
    with pytest.raises(ValueError, match=r"observations have shape \(4,\), the policy expects"):
        act(np.zeros(4))
    with pytest.raises(ValueError, match="observations are uint8, not float32"):
        act(np.zeros(3, np.uint8))
    assert runner.main([]) == 2
    assert capsys.readouterr().err == "usage: python policy.py OBSERVATIONS.npy ACTIONS.npy\n"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_policy(tmp_path / "run", td3_bc_policy())
    out = tmp_path / "new" / "p.onnx"
    assert cli.main(["export", str(tmp_path / "run"), "--format", "onnx", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        f"{out}: td3_bc, seed 3, observation ['batch', 3] float32 → action ['batch', 2] float32"
    )
    assert lines[1] == f"card: {out}.json"
    assert lines[2].startswith("largest difference from the run's policy: ")
    assert lines[3].startswith("latency of one observation: ")
    assert lines[3].endswith(" µs (median; onnxruntime, CPU, one thread)")
    assert cli.main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "p.py")]) == 0
    line = f"it needs NumPy alone: python {tmp_path / 'p.py'} OBSERVATIONS.npy ACTIONS.npy"
    assert line in capsys.readouterr().out.splitlines()


# --- Evaluating a file ---


@pytest.mark.parametrize("name", ["p.onnx", "p.py", "p.stablehlo"])
def test_an_exported_file_is_evaluated(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = line_policies([3.0], seeds=[4])
    export(policies.select(), tmp_path / name)
    arguments = ["evaluate", str(tmp_path / name), "--episodes", "3", "--json"]
    assert cli.main(arguments) == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    expected = evaluate(policies, episodes=3, evaluation_seed=1)
    np.testing.assert_allclose([found["returns"]], expected.returns, rtol=1e-4)
    assert [found["lengths"]] == expected.lengths.tolist()
    assert found["seed"] == 4
    assert load_exported(tmp_path / name).env == LINE


# --- What is refused ---


def test_bad_arguments(tmp_path: Path) -> None:
    policy = td3_bc_policy()
    assert error_of(lambda: export(policy, "p.onnx", form="onx"), ConfigError) == (
        "unknown format 'onx'. Did you mean onnx? Formats: onnx, stablehlo, numpy"
    )
    assert error_of(lambda: export(policy, "p.py", form="onnx"), ConfigError) == (
        "--out p.py must end in .onnx for --format onnx"
    )
    assert error_of(lambda: export(policy, "p.pt"), ConfigError) == (
        "--out p.pt must end in .onnx (onnx), .stablehlo (stablehlo), .py (numpy), or say which "
        "with --format"
    )
    assert error_of(lambda: export(tmp_path / "no", "p.onnx"), CheckpointError) == (
        f"{tmp_path / 'no'} does not exist"
    )
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "p.py"
    assert error_of(lambda: export(policy, out), CheckpointError).startswith(
        f"{out} cannot be written ("
    )


def test_the_command_s_errors_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", str(tmp_path / "no"), "--out", "p.onnx"]) == 2
    assert capsys.readouterr().err == f"leeward: error: {tmp_path / 'no'} does not exist\n"
    assert cli.main(["export", str(tmp_path), "--out", "p.tf", "--format", "tf"]) == 2
    assert capsys.readouterr().err == (
        "leeward: error: unknown format 'tf'. Formats: onnx, stablehlo, numpy\n"
    )


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("mine")
    text = error_of(lambda: export(td3_bc_policy(), tmp_path / "p.py"), ConfigError)
    assert text == f"{tmp_path / 'p.py'} exists: --overwrite replaces it"
    assert files_in(tmp_path) == ["p.py"]
    assert (tmp_path / "p.py").read_text() == "mine"
    export(td3_bc_policy(), tmp_path / "p.py", overwrite=True)
    assert load_exported(tmp_path / "p.py").card["seed"] == 3


@pytest.mark.parametrize(
    ("form", "missing"),
    [("onnx", "onnx"), ("onnx", "onnxruntime"), ("stablehlo", "flatbuffers")],
)
def test_a_missing_extra(
    form: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else found(name)
    )
    out = tmp_path / FILES[form]
    assert error_of(lambda: export(td3_bc_policy(), out, form=form), MissingExtra) == (
        f"--format {form} needs the package '{missing}', which is not installed: "
        "pip install 'leeward[export]'"
    )
    assert files_in(tmp_path) == []


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "p.py"
    export(td3_bc_policy(), out)
    before = {name: (tmp_path / name).read_bytes() for name in files_in(tmp_path)}

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    text = error_of(lambda: export(td3_bc_policy(), out, overwrite=True), DiskError)
    assert text == f"{out} could not be written: No space left on device: free some space"
    assert {name: (tmp_path / name).read_bytes() for name in files_in(tmp_path)} == before


@pytest.mark.parametrize("algorithm", ["td3_bc", "dqn"])
def test_a_diverged_policy(algorithm: str, tmp_path: Path) -> None:
    policy = policy_of(ALGORITHMS[algorithm], CHOICES if algorithm == "dqn" else VECTORS)
    broken = dataclasses.replace(policy, policy=jax.tree.map(lambda x: x * jnp.nan, policy.policy))
    assert error_of(lambda: export(broken, tmp_path / "p.py"), SpecError) == (
        "the policy of seed 3 has weights that are not finite numbers: its training diverged"
    )


@pytest.mark.parametrize("algorithm", ["td3_bc", "dqn"])
def test_a_translation_that_is_wrong_is_not_kept(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(operators.EMIT, "max", operators.EMIT["min"])
    policy = policy_of(ALGORITHMS[algorithm], CHOICES if algorithm == "dqn" else VECTORS)
    text = error_of(lambda: export(policy, tmp_path / "p.onnx"), CheckpointError)
    assert text.startswith("the exported file does not act as the policy does (difference ")
    assert text.endswith("): nothing was written")
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("algorithm", "exchanged", "kept"),
    [
        ("td3_bc", 1, False),
        ("bcq", 2, True),
        ("bcq", 3, False),
        ("dqn", 2, True),
        ("dqn", 3, False),
    ],
)
def test_a_few_other_actions_are_kept_only_where_the_best_of_several_is_taken(
    algorithm: str, exchanged: int, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = FORMS["numpy"]

    def read(path: Path, content: bytes) -> Any:
        card, call = form.read(path, content)

        def otherwise(observation: np.ndarray) -> np.ndarray:
            action = call(observation).copy()
            action[5 : 5 + exchanged] = (action[5 : 5 + exchanged] + 1) % 3
            return action

        return card, otherwise

    monkeypatch.setitem(FORMS, "numpy", form._replace(read=read))
    policy = policy_of(ALGORITHMS[algorithm], CHOICES if algorithm == "dqn" else VECTORS)
    if kept:
        export(policy, tmp_path / "p.py")
    else:
        text = error_of(lambda: export(policy, tmp_path / "p.py"), CheckpointError)
        assert text.startswith("the exported file does not act as the policy does (difference ")
    assert (tmp_path / "p.py").exists() == kept


def test_the_library_has_both(tmp_path: Path) -> None:
    save_policy(tmp_path / "run", td3_bc_policy())
    done = leeward.export(tmp_path / "run", tmp_path / "p.py", seed=3)
    assert leeward.load_exported(done.path).card["seed"] == 3
    assert (
        error_of(
            lambda: leeward.export(tmp_path / "run", tmp_path / "q.py", seed=4), CheckpointError
        )
        == "there is no run with seed 4: seeds are 3"
    )
