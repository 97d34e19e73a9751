"""A policy at work: in a window where there is a display, else in a video file."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from leeward.environments import EnvironmentSource, environment_id
from leeward.errors import DiskError, LeewardError, MissingExtra, SimulationError
from leeward.evaluate import Evaluator, environment_of
from leeward.policy import Policy

FRAMES_PER_SECOND = 30
"""Of environments that name no rate of their own."""
MOST_FRAMES_PER_SECOND = 60
"""Of faster environments only every second, third, … frame is drawn: no screen shows more."""
_PROBE = """
import importlib, sys
context = importlib.import_module("mujoco." + sys.argv[1]).GLContext(8, 8)
context.make_current()
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco/>")
mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
"""
"""Fails unless MuJoCo can draw with that backend. It runs in a process of its own, since a backend
that failed cannot be exchanged for another one."""


class Watched(NamedTuple):
    """What was shown. K episodes."""

    returns: np.ndarray
    """[K] float64: undiscounted returns."""
    lengths: np.ndarray
    """[K] int64: steps."""
    video: Path | None
    """The file that was written, None for a window."""


def watch(
    policy: Policy,
    env: EnvironmentSource | None = None,
    *,
    video: str | Path | None = None,
    episodes: int = 1,
    seed: int = 0,
) -> Watched:
    """Shows episodes of a policy: those that an evaluation with the same seed counts.

    Args:
        policy: what acts.
        env: an id or a callable that takes `render_mode`; default the policy's environment.
        video: the mp4 file to write. Without it a window opens, or, where there is no display, a
            file named after the environment is written in the current folder.
        episodes: how many.
        seed: another one gives other starts.

    Raises:
        SpecError: policy and environment do not fit.
        SimulationError: the environment cannot be made, stepped or rendered, or the file cannot be
            written.
        MissingExtra: a video is to be written and there is no ffmpeg.
        DiskError: the disk is full. No file is left half-written.
    """
    env = environment_of(policy, env)
    if video is None and not has_display():
        name = environment_id(env).partition("?")[0].rpartition(":")[2]
        video = "".join(c if c.isalnum() or c in "-_." else "-" for c in name) + ".mp4"
    if video is None:
        return _in_a_window(policy, env, episodes, seed)
    name = environment_id(env)
    with (
        VideoFile(Path(video)) as file,
        Evaluator(
            env,
            episodes=episodes,
            evaluation_seed=seed,
            copies=1,
            render_mode="rgb_array",
            wrapper=lambda made: _Filmed(made, name, file),
        ) as evaluator,
    ):
        shown = evaluator.evaluate(policy.stack())
    return Watched(shown.returns[0], shown.lengths[0], Path(video))


def _in_a_window(policy: Policy, env: EnvironmentSource, episodes: int, seed: int) -> Watched:
    try:
        with Evaluator(
            env, episodes=episodes, evaluation_seed=seed, copies=1, render_mode="human"
        ) as evaluator:
            shown = evaluator.evaluate(policy.stack())
    except SimulationError as error:
        raise SimulationError(f"{error}; a video needs no window (--video FILE)") from error
    return Watched(shown.returns[0], shown.lengths[0], None)


def has_display() -> bool:
    """Whether a window can be expected to open."""
    if sys.platform != "linux":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def ffmpeg() -> str:
    """The program that writes videos: the system's, else that of imageio-ffmpeg.

    IMAGEIO_FFMPEG_EXE, imageio's own setting, names another one.

    Raises:
        MissingExtra: there is none.
    """
    found = os.environ.get("IMAGEIO_FFMPEG_EXE") or shutil.which("ffmpeg")
    if found is not None:
        return found
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise MissingExtra("imageio-ffmpeg", "video", "a video, where ffmpeg is not on PATH,")
    import imageio_ffmpeg

    return imageio_ffmpeg.get_ffmpeg_exe()


class VideoFile:
    """An mp4 file that appears under its name when it is complete; a context manager."""

    def __init__(self, path: Path) -> None:
        """Prepares the file; it is begun with the first frame.

        Raises:
            SimulationError: not an mp4 file, or a folder that does not exist.
            MissingExtra: there is no ffmpeg.
        """
        if path.suffix.lower() != ".mp4":
            raise SimulationError(f"a video is written as .mp4, not as {path.name}")
        if not path.resolve().parent.is_dir():
            raise SimulationError(f"{path} cannot be written: there is no folder {path.parent}")
        self._program = ffmpeg()
        self.path, self._incomplete = path, path.with_name(f".{path.stem}.incomplete.mp4")
        self._encoder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> VideoFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._encoder is not None:
                self._finish(self._encoder, complete=error is None)
        finally:
            self._incomplete.unlink(missing_ok=True)

    def write(self, frame: np.ndarray, frames_per_second: float) -> None:
        """Adds a frame [height, width, 3] uint8; the first one fixes size and rate.

        Raises:
            SimulationError: the file cannot be written.
            DiskError: the disk is full.
        """
        if self._encoder is None:
            self._encoder = self._open(frame, frames_per_second)
        assert self._encoder.stdin is not None
        try:
            self._encoder.stdin.write(np.ascontiguousarray(frame, np.uint8).tobytes())
        except OSError:  # the encoder has ended and says why
            self._finish(self._encoder, complete=True)

    def _open(self, frame: np.ndarray, frames_per_second: float) -> subprocess.Popen[bytes]:
        size = f"{frame.shape[1]}x{frame.shape[0]}"
        source = f"-f rawvideo -pix_fmt rgb24 -s {size} -r {frames_per_second:g} -i -"
        # The format stores the colors of 2 × 2 pixels, so an odd size is made even.
        target = "-an -c:v libx264 -pix_fmt yuv420p -vf pad=ceil(iw/2)*2:ceil(ih/2)*2 -f mp4"
        try:
            self._incomplete.touch()  # where that is impossible, the reason is plain
            return subprocess.Popen(
                [
                    self._program,
                    *f"-y -v error {source} {target}".split(),
                    str(self._incomplete.resolve()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for us
            )
        except OSError as error:
            raise self._failure(error.strerror or str(error)) from error

    def _finish(self, encoder: subprocess.Popen[bytes], *, complete: bool) -> None:
        self._encoder = None
        if not complete:
            encoder.kill()
        messages = encoder.communicate()[1].decode(errors="replace").strip()
        if not complete:
            return
        if encoder.returncode != 0:
            raise self._failure(messages or f"ffmpeg ended with {encoder.returncode}")
        try:
            self._incomplete.replace(self.path)
        except OSError as error:
            raise self._failure(error.strerror or str(error)) from error

    def _failure(self, reason: str) -> LeewardError:
        if "No space left" in reason:
            return DiskError(f"{self.path} cannot be written: the disk is full")
        return SimulationError(f"{self.path} cannot be written: {reason.splitlines()[-1]}")


class _Filmed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Sends a frame to the file after every reset, and after every step or every few."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, file: VideoFile) -> None:
        super().__init__(env)
        self._name, self._file = name, file
        rate = float(env.metadata.get("render_fps") or FRAMES_PER_SECOND)
        self._every = math.ceil(rate / MOST_FRAMES_PER_SECOND)
        self._rate, self._steps = rate / self._every, 0
        if env.render_mode != "rgb_array" or "rgb_array" not in env.metadata["render_modes"]:
            raise SimulationError(
                f"environment {name} cannot be filmed: it has no render mode 'rgb_array'"
            )

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(**arguments)
        self._steps = 0
        self._film()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._steps += 1
        if self._steps % self._every == 0:
            self._film()
        return result

    def _film(self) -> None:
        try:
            with _drawing(self.env):
                frame = self.env.render()
        except LeewardError as error:
            raise SimulationError(f"environment {self._name} cannot be filmed: {error}") from error
        except Exception as error:  # renderers raise anything
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise SimulationError(f"environment {self._name} cannot be filmed: {reason}") from error
        if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
            raise SimulationError(f"environment {self._name} cannot be filmed: it gives no picture")
        self._file.write(frame, self._rate)


@contextmanager
def _drawing(env: gymnasium.Env[Any, Any]) -> Iterator[None]:
    """Lets MuJoCo draw off the screen, with a backend that works here.

    Gymnasium's renderer reads the choice from MUJOCO_GL; without it, it needs a display.
    """
    is_mujoco = hasattr(env.unwrapped, "mujoco_renderer")
    if not is_mujoco or sys.platform != "linux" or "MUJOCO_GL" in os.environ:
        yield
        return
    os.environ["MUJOCO_GL"] = working_backend()
    try:
        yield
    finally:
        del os.environ["MUJOCO_GL"]


@cache
def working_backend() -> str:
    """The first of EGL, OSMesa and (with a display) GLFW with which MuJoCo can draw here.

    Raises:
        SimulationError: none works.
    """
    for backend in ("egl", "osmesa", "glfw") if has_display() else ("egl", "osmesa"):
        found = subprocess.run(
            [sys.executable, "-c", _PROBE, backend],
            env={**os.environ, "MUJOCO_GL": backend},
            capture_output=True,
            check=False,
        )
        if found.returncode == 0:
            return backend
    raise SimulationError(
        "MuJoCo can draw with neither EGL nor OSMesa: install one of them, such as with "
        "`apt-get install libegl1` or `apt-get install libosmesa6`"
    )
