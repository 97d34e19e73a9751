"""docs/your-data.md from its first block to its last: a CSV log to a policy in onnxruntime."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from leeward import cli
from pages import DOCS, blocks_of, run_python, shell_lines

PAGE = DOCS / "your-data.md"
LEFT_OUT = {
    ("pip", "install"): "tests use no network",
    ("leeward", "ope"): "half a minute of compilation; the page says that it is not run",
}


def test_the_whole_story_runs_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    ran = []
    for block in blocks_of(PAGE):
        if block.language == "python":
            run_python(block, namespace)
            continue
        assert block.language == "sh"
        for line in shell_lines(block):
            command, *arguments = shlex.split(line)
            if (command, arguments[0]) in LEFT_OUT:
                continue
            assert command == "leeward"
            assert cli.main(arguments) == 0, f"{line}\n{capsys.readouterr().err}"
            ran.append(arguments[0])
    assert ran == ["inspect", "convert", "convert", "train", "train", "export"]
    assert 0.0 < namespace["after"] < namespace["before"]
    card = json.loads((tmp_path / "tank.onnx.json").read_text())
    assert card["algorithm"] == "td3_bc"
    assert (card["action"]["low"], card["action"]["high"]) == ([-1.0, -1.0], [1.0, 1.0])
