"""Saved policies: the same after loading, replaced as a whole, and clear when broken."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from leeward import policy_folder
from leeward.algorithms import ALGORITHMS, td3_bc
from leeward.errors import CheckpointError, DiskError
from leeward.policy import PolicyStack, TrainedRun, load_policies, load_policy, save_policy
from leeward.types import Discrete, Spec
from test_policy import SPEC, error_of, stack_of

CONFIG = td3_bc.Config(hidden=(8,))
LEARNED = [(name, kind) for name, a in sorted(ALGORITHMS.items()) for kind in a.actions]


def saved(folder: Path, **changes: Any) -> PolicyStack:
    stack = dataclasses.replace(stack_of(td3_bc.ALGORITHM, CONFIG), **changes)
    save_policy(folder, stack)
    return stack


def change_json(folder: Path, **changes: Any) -> None:
    path = folder / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def message(folder: Path, **arguments: Any) -> str:
    return error_of(lambda: load_policies(folder, **arguments), CheckpointError)


@pytest.mark.parametrize(("name", "kind"), LEARNED)
def test_every_algorithm_s_policies_come_back_to_the_bit(
    name: str, kind: str, tmp_path: Path
) -> None:
    algorithm = ALGORITHMS[name]
    config = algorithm.config_type(hidden=(8, 8))
    spec = SPEC if kind == "continuous" else Spec((3,), "float32", Discrete(4))
    stack = stack_of(algorithm, config, spec)
    save_policy(tmp_path / "policy", stack)
    loaded = load_policies(tmp_path / "policy")
    assert jax.tree.structure(loaded.policies) == jax.tree.structure(stack.policies)
    for left, right in zip(
        jax.tree.leaves((loaded.policies, loaded.scaling)),
        jax.tree.leaves((stack.policies, stack.scaling)),
        strict=True,
    ):
        np.testing.assert_array_equal(left, right)
    observation = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    np.testing.assert_array_equal(loaded.act(observation), stack.act(observation))
    assert (loaded.algorithm.name, loaded.config, loaded.spec) == (name, config, spec)


def test_what_is_known_comes_back(tmp_path: Path) -> None:
    runs = (
        TrainedRun(3, {"alpha": 1.0}, 400, 12.5, 33.0),
        TrainedRun(1, {"alpha": 2.5}, 200, float("-inf"), None),
    )
    data = {"name": "logs", "hash": "abc"}
    stack = saved(tmp_path / "a" / "b", runs=runs, env="Hopper-v4", data=data)
    loaded = load_policies(tmp_path / "a" / "b")
    assert loaded.runs == (runs[0], runs[1]._replace(return_mean=None))
    assert (loaded.env, loaded.data) == ("Hopper-v4", data)
    policy = load_policy(tmp_path / "a" / "b", seed=1)
    assert policy.run.settings == {"alpha": 2.5}
    observation = np.ones((2, 1, 3), np.float32)
    # One policy and a stack are two programs: equal but for the last bit.
    np.testing.assert_allclose(policy(observation[1]), stack.act(observation)[1], rtol=1e-6)


def test_the_files_are_plain(tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["policy"]
    assert sorted(p.name for p in (tmp_path / "policy").iterdir()) == ["policy.json", "policy.npz"]
    description = json.loads((tmp_path / "policy" / "policy.json").read_text())
    assert description["format"] == 1
    assert description["algorithm"] == "td3_bc"
    assert description["config"]["hidden"] == [8]
    assert description["versions"].keys() == {"python", "leeward", "jax", "numpy"}
    with np.load(tmp_path / "policy" / "policy.npz", allow_pickle=False) as file:
        assert file["policy/mlp/layers/0/weight"].shape == (2, 3, 8)
        assert file["scaling/action_scale"].tolist() == [2.0, 5.0]


def test_settings_of_every_run_come_back(tmp_path: Path) -> None:
    rates = np.array([3e-4, 1e-3], np.float32)
    config = dataclasses.replace(CONFIG, actor_lr=rates)
    saved(tmp_path / "policy", config=config)
    text = (tmp_path / "policy" / "policy.json").read_text()
    assert json.loads(text)["config"]["actor_lr"] == [0.0003, 0.001]
    assert load_policy(tmp_path / "policy", run=1).config == dataclasses.replace(
        CONFIG, actor_lr=0.001
    )


def test_one_policy_is_saved_as_a_stack_of_one(tmp_path: Path) -> None:
    stack = stack_of(td3_bc.ALGORITHM, CONFIG)
    save_policy(tmp_path / "one", stack.select(seed=1))
    loaded = load_policies(tmp_path / "one")
    assert [run.seed for run in loaded.runs] == [1]
    observation = np.ones((1, 4, 3), np.float32)
    np.testing.assert_allclose(loaded.act(observation)[0], stack.select(seed=1)(observation[0]))


# --- Replacing ---


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours may catch it."""


@pytest.mark.parametrize("renames_before", [0, 1, 2])
def test_a_kill_while_replacing_leaves_the_old_or_the_new(
    renames_before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "best"
    old = saved(folder, env="old")
    done: list[Path] = []
    replace = Path.replace

    def killed(path: Path, target: Path) -> Path:
        if len(done) == renames_before:
            raise Killed
        done.append(path)
        return replace(path, target)

    new = dataclasses.replace(old, env="new")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        if renames_before < 2:
            with pytest.raises(Killed):
                save_policy(folder, new)
        else:
            save_policy(folder, new)
    assert load_policies(folder).env == ("new" if renames_before == 2 else "old")
    save_policy(folder, dataclasses.replace(old, env="later"))
    assert load_policies(folder).env == "later"
    assert [p.name for p in tmp_path.iterdir()] == ["best"]


def test_a_full_disk_keeps_the_old_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "best"
    old = saved(folder, env="old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        text = error_of(lambda: save_policy(folder, old), DiskError)
    assert text == f"the policy {folder} could not be written: No space left on device"
    assert load_policies(folder).env == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["best"]


def test_other_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    stack = stack_of(td3_bc.ALGORITHM, CONFIG)
    assert error_of(lambda: save_policy(tmp_path, stack), CheckpointError) == (
        f"{tmp_path} holds other files: choose another folder"
    )
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    stack = stack_of(td3_bc.ALGORITHM, CONFIG)
    folder = tmp_path / "file" / "policy"
    assert error_of(lambda: save_policy(folder, stack), CheckpointError) == (
        f"the policy {folder} could not be written: Not a directory"
    )


# --- Broken ---


def test_a_truncated_archive(tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    path = tmp_path / "policy" / "policy.npz"
    whole = path.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert message(tmp_path / "policy") == f"{path} is damaged or truncated"


def test_a_flipped_bit(tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    path = tmp_path / "policy" / "policy.npz"
    content = bytearray(path.read_bytes())
    content[300] ^= 1  # within the first array's numbers
    path.write_bytes(content)
    assert message(tmp_path / "policy") == f"{path} is damaged or truncated"


@pytest.mark.parametrize("name", ["policy.json", "policy.npz"])
def test_a_missing_file(name: str, tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    (tmp_path / "policy" / name).unlink()
    if name == "policy.json":
        expected = f"{tmp_path / 'policy'} is no run directory and no saved policy"
    else:
        expected = (
            f"{tmp_path / 'policy' / name} cannot be read (No such file or directory): the saved "
            "policy is incomplete"
        )
    assert message(tmp_path / "policy") == expected


def test_a_newer_format(tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    change_json(tmp_path / "policy", format=policy_folder.FORMAT + 1)
    assert message(tmp_path / "policy") == (
        f"{tmp_path / 'policy' / 'policy.json'}: format 2 is newer than this version of leeward "
        "reads (1): upgrade leeward"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"format": 1}', "\xff"])
def test_a_damaged_description(text: str, tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    path = tmp_path / "policy" / "policy.json"
    path.write_bytes(text.encode("latin-1"))
    assert message(tmp_path / "policy").startswith(f"{path} is damaged")


@pytest.mark.parametrize(
    "changes",
    [
        {"runs": [{"sed": 3}]},
        {"runs": []},
        {"spec": {"observation_shape": [3], "observation_dtype": "float32", "action": {}}},
        {"config": 7},
        {"algorithm": None},
    ],
)
def test_a_description_with_wrong_parts(changes: dict[str, Any], tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    change_json(tmp_path / "policy", **changes)
    path = tmp_path / "policy" / "policy.json"
    assert message(tmp_path / "policy") == f"{path} is damaged"


def test_an_algorithm_or_setting_that_this_version_lacks(tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    change_json(tmp_path / "policy", algorithm="td4_bc")
    assert message(tmp_path / "policy").startswith(
        f"{tmp_path / 'policy'}: this version of leeward cannot read it: unknown algorithm "
        "'td4_bc'. Did you mean td3_bc"
    )
    change_json(tmp_path / "policy", algorithm="td3_bc", config={"actor_rate": 1.0})
    assert message(tmp_path / "policy") == (
        f"{tmp_path / 'policy'}: this version of leeward cannot read it: unknown setting "
        "'actor_rate' for td3_bc. Did you mean actor_lr?"
    )


def test_arrays_that_do_not_fit_the_description(tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    path = tmp_path / "policy" / "policy.npz"
    change_json(tmp_path / "policy", config={"hidden": [16]})
    assert message(tmp_path / "policy") == (
        f"{path}: the array 'policy/mlp/layers/0/weight' is (2, 3, 8) float32, policy.json asks "
        "for (2, 3, 16) float32"
    )
    change_json(tmp_path / "policy", config={"hidden": [8, 8]})
    assert message(tmp_path / "policy") == (
        f"{path} lacks the array 'policy/mlp/layers/2/weight' that policy.json asks for"
    )
    change_json(tmp_path / "policy", config={"hidden": []})
    assert "policy.json asks for (2, 3, 2) float32" in message(tmp_path / "policy")


def test_an_archive_that_swells_is_not_unpacked(tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    path = tmp_path / "policy" / "policy.npz"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["policy/mlp/layers/0/weight.npy"] += bytes(10**7)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert message(tmp_path / "policy") == (
        f"{path}: the array 'policy/mlp/layers/0/weight' is too large: policy.json asks for "
        "(2, 3, 8) float32"
    )


# --- Run directories ---


def run_directory(tmp_path: Path) -> Path:
    """A run with a best policy after 200 steps, a final one after 400, checkpoints 300 and 400."""
    directory = tmp_path / "run"
    stack = stack_of(td3_bc.ALGORITHM, CONFIG)

    def save(folder: Path, step: int) -> None:
        runs = tuple(run._replace(step=step) for run in stack.runs)
        save_policy(folder, dataclasses.replace(stack, runs=runs))

    save(directory / "best", 200)
    save(directory / "final", 400)
    for step in (300, 400):
        checkpoint = directory / "checkpoints" / str(step)
        save(checkpoint / "policy", step)
        (checkpoint / "manifest.json").write_text(json.dumps({"updates": step}))
    (directory / "config.json").write_text("{}")
    return directory


@pytest.mark.parametrize(
    ("checkpoint", "step"),
    [(None, 200), ("best", 200), ("last", 400), ("300", 300), (300, 300), (400, 400)],
)
def test_which_policy_of_a_run(checkpoint: str | int | None, step: int, tmp_path: Path) -> None:
    policy = load_policy(run_directory(tmp_path), checkpoint=checkpoint)
    assert policy.run.step == step


def remove(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()


def test_the_last_is_a_newer_checkpoint_of_a_run_that_was_trained_on(tmp_path: Path) -> None:
    directory = run_directory(tmp_path)
    newer = directory / "checkpoints" / "500"
    stack = load_policies(directory, "last")
    runs = tuple(run._replace(step=500) for run in stack.runs)
    save_policy(newer / "policy", dataclasses.replace(stack, runs=runs))
    assert load_policy(directory, checkpoint="last").run.step == 400  # it is not complete yet
    (newer / "manifest.json").write_text(json.dumps({"updates": 500}))
    assert load_policy(directory, checkpoint="last").run.step == 500


def test_a_run_without_evaluations_has_a_last_policy_only(tmp_path: Path) -> None:
    directory = run_directory(tmp_path)
    remove(directory / "best")
    assert load_policy(directory).run.step == 400
    assert message(directory, checkpoint="best") == (
        f"{directory} has no best policy, since it was not evaluated in training: ask for the "
        "last (--checkpoint last)"
    )
    remove(directory / "final")
    assert load_policy(directory).run.step == 400
    remove(directory / "checkpoints")
    assert message(directory) == f"{directory} has no checkpoint yet"


def test_a_policy_that_is_not_there(tmp_path: Path) -> None:
    directory = run_directory(tmp_path)
    assert message(directory, checkpoint=7) == (
        f"{directory} has no checkpoint '7': there are best, last and 300, 400"
    )
    assert message(directory / "best", checkpoint=7) == (
        f"{directory / 'best'} is one saved policy, not a run directory, and has no checkpoint '7'"
    )
    assert load_policies(directory / "best", "last").runs[0].step == 200
    assert message(tmp_path / "no") == f"{tmp_path / 'no'} does not exist"
    assert message(tmp_path) == f"{tmp_path} is no run directory and no saved policy"


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "policy")
    monkeypatch.chdir(tmp_path / "policy")
    assert load_policy(".").run.seed == 3
    save_policy("../other", load_policy("."))
    assert load_policy(Path("../other")).spec == SPEC
