"""Watching: the video holds the episodes that an evaluation counts, or the error says why not."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import imageio_ffmpeg
import jax.numpy as jnp
import numpy as np
import pytest

import small_environments
from leeward import watch as watching
from leeward.errors import DiskError, MissingExtra, SimulationError
from leeward.evaluate import evaluate
from leeward.policy import Policy
from leeward.types import Box, Spec
from leeward.watch import VideoFile, watch
from test_evaluate import line_policies, linear_actor

LINE = "LeewardTest/Line-v0"


@pytest.fixture(autouse=True)
def headless(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)


def policy() -> Policy:
    return line_policies([3.0]).select()


def pendulum_policy() -> Policy:
    """For InvertedPendulum: pushes where the pole leans."""
    scaling = dataclasses.replace(
        policy().scaling, observation_mean=jnp.zeros(4), observation_std=jnp.ones(4)
    )
    return dataclasses.replace(
        policy(),
        spec=Spec((4,), "float32", Box((-1.5,), (1.5,))),
        scaling=scaling,
        policy=linear_actor([[1.0]] * 4),
    )


def frames_of(path: Path, height: int, width: int) -> np.ndarray:
    """[frames, height, width, 3] uint8: everything in a video of that size."""
    arguments = ["-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decoded = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), *arguments], capture_output=True, check=True
    )
    return np.frombuffer(decoded.stdout, np.uint8).reshape(-1, height, width, 3)


def seconds_of(path: Path) -> float:
    """How long a video plays."""
    shown = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path)], capture_output=True, check=False
    )
    duration = re.search(rb"Duration: 00:00:([\d.]+)", shown.stderr)
    assert duration is not None
    return float(duration[1])


def error_of(call: Callable[[], object], kind: type[Exception] = SimulationError) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_the_video_shows_what_an_evaluation_counts(tmp_path: Path) -> None:
    path = tmp_path / "line.mp4"
    result = watch(policy(), video=path, episodes=3, seed=5)
    counted = evaluate(policy(), episodes=3, evaluation_seed=5)
    np.testing.assert_allclose(result.returns, counted.returns[0], rtol=1e-5)
    assert result.lengths.tolist() == counted.lengths[0].tolist()
    assert result.video == path
    assert [p.name for p in tmp_path.iterdir()] == ["line.mp4"]


def test_the_video_has_every_second_frame_of_a_fast_environment(tmp_path: Path) -> None:
    path = tmp_path / "line.mp4"
    shades: list[float] = []

    class Noted(small_environments.Line):
        def render(self) -> np.ndarray:
            frame = super().render()
            shades.append(frame.mean())
            return frame

    def make(render_mode: str) -> gymnasium.Env:
        return gymnasium.wrappers.TimeLimit(Noted(render_mode=render_mode), 11)

    result = watch(policy(), make, video=path, episodes=2)
    assert result.lengths.tolist() == [11, 11]
    assert len(shades) == 2 * 6  # steps 0, 2, 4, 6, 8, 10 of 90 a second
    frames = frames_of(path, 34, 66)  # an odd size is made even
    assert len(frames) == 12
    np.testing.assert_allclose(frames[:, :33, :65].mean(axis=(1, 2, 3)), shades, atol=3)
    assert seconds_of(path) == pytest.approx(12 / 45, abs=0.02)


def test_without_a_display_a_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = watch(policy())
    assert result.video == Path("LeewardTest-Line-v0.mp4")
    assert len(frames_of(result.video, 34, 66)) == 7


def test_with_a_display_a_window_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    modes: list[str] = []

    def make(render_mode: str) -> gymnasium.Env:
        modes.append(render_mode)
        return small_environments.line_of_twelve_steps()

    assert watch(policy(), make).video is None
    assert set(modes) == {"human"}


def test_a_window_that_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")

    def make(render_mode: str) -> gymnasium.Env:
        raise RuntimeError(f"no {render_mode} here")

    make.__module__, make.__qualname__ = "mine", "make"
    assert error_of(lambda: watch(policy(), make)) == (
        "environment mine:make cannot be made: RuntimeError: no human here; a video needs no "
        "window (--video FILE)"
    )


def test_mujoco_is_drawn_without_a_display(tmp_path: Path) -> None:
    try:
        watching.working_backend()
    except SimulationError as error:
        pytest.skip(f"nothing here can draw MuJoCo: {error}")
    result = watch(pendulum_policy(), "InvertedPendulum-v5", video=tmp_path / "pendulum.mp4")
    frames = frames_of(tmp_path / "pendulum.mp4", 480, 480)
    assert len(frames) == result.lengths[0] + 1
    assert frames.std() > 1.0  # not one color
    assert np.abs(frames[-1].astype(float) - frames[0]).max() > 30  # it moved


def test_where_nothing_can_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watching.working_backend.cache_clear()
    monkeypatch.setattr(watching, "_PROBE", "raise SystemExit(1)")
    assert error_of(
        lambda: watch(pendulum_policy(), "InvertedPendulum-v5", video=tmp_path / "no.mp4")
    ) == (
        "environment InvertedPendulum-v5 cannot be filmed: MuJoCo can draw with neither EGL nor "
        "OSMesa: install one of them, such as with `apt-get install libegl1` or `apt-get install "
        "libosmesa6`"
    )
    assert list(tmp_path.iterdir()) == []
    watching.working_backend.cache_clear()


@pytest.mark.parametrize(
    ("render", "text"),
    [
        (lambda self: 1 / 0, "cannot be filmed: division by zero"),
        (lambda self: None, "cannot be filmed: it gives no picture"),
        (lambda self: [[1, 2]], "cannot be filmed: it gives no picture"),
    ],
)
def test_a_renderer_that_fails(render: Callable[[Any], Any], text: str, tmp_path: Path) -> None:
    made = type("Made", (small_environments.Line,), {"render": render, "__module__": "mine"})
    path = tmp_path / "no.mp4"
    assert error_of(lambda: watch(policy(), made, video=path)) == f"environment mine:Made {text}"
    assert list(tmp_path.iterdir()) == []


def test_an_environment_without_pictures(tmp_path: Path) -> None:
    make = small_environments.Line  # of a callable that takes no render_mode

    def plain() -> gymnasium.Env:
        return make()

    plain.__module__, plain.__qualname__ = "mine", "plain"
    assert error_of(lambda: watch(policy(), plain, video=tmp_path / "no.mp4")) == (
        "environment mine:plain cannot be filmed: it has no render mode 'rgb_array'"
    )


def test_ffmpeg_is_the_one_named_else_the_system_s_else_the_package_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("IMAGEIO_FFMPEG_EXE", raising=False)
    monkeypatch.setattr(shutil, "which", {"ffmpeg": "/of/the/system"}.get)
    assert watching.ffmpeg() == "/of/the/system"
    monkeypatch.setattr(shutil, "which", {}.get)
    assert Path(watching.ffmpeg()).is_relative_to(Path(imageio_ffmpeg.__file__).parent)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/of/mine")
    assert watching.ffmpeg() == "/of/mine"


def test_without_any_ffmpeg_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IMAGEIO_FFMPEG_EXE", raising=False)
    monkeypatch.setattr(shutil, "which", {}.get)
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "imageio_ffmpeg" else found(name)
    )
    text = error_of(lambda: watch(policy(), video=tmp_path / "line.mp4"), MissingExtra)
    assert text == (
        "a video, where ffmpeg is not on PATH, needs the package 'imageio-ffmpeg', which is not "
        "installed: pip install 'leeward[video]'"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_episode_that_fails_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "old.mp4").write_bytes(b"an older video")

    class Breaks(small_environments.Line):
        def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
            raise RuntimeError("stuck")

    with pytest.raises(SimulationError, match="stuck"):
        watch(policy(), Breaks, video=tmp_path / "old.mp4")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [
        ("old.mp4", b"an older video")
    ]


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    assert error_of(lambda: watch(policy(), video=tmp_path / "line.gif")) == (
        "a video is written as .mp4, not as line.gif"
    )
    missing = tmp_path / "no" / "line.mp4"
    assert error_of(lambda: watch(policy(), video=missing)) == (
        f"{missing} cannot be written: there is no folder {tmp_path / 'no'}"
    )
    (tmp_path / "taken.mp4").mkdir()
    (tmp_path / "taken.mp4" / "file").write_text("")
    text = error_of(lambda: watch(policy(), video=tmp_path / "taken.mp4"))
    assert text.startswith(f"{tmp_path / 'taken.mp4'} cannot be written: ")
    assert [p.name for p in tmp_path.iterdir()] == ["taken.mp4"]


def test_a_full_disk(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / ".line.incomplete.mp4").symlink_to("/dev/full")
    frame = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)

    def write() -> None:
        with VideoFile(tmp_path / "line.mp4") as file:
            for _ in range(100):
                file.write(frame, 30.0)

    assert error_of(write, DiskError) == (
        f"{tmp_path / 'line.mp4'} cannot be written: the disk is full"
    )
    assert list(tmp_path.iterdir()) == []
