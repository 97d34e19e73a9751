"""How jobs are put on a cluster, by a stand-in for Ray: what fits, how tasks end, what is lost."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from leeward.errors import ConfigError, TrainingError
from leeward.sweep import cluster
from leeward.sweep.board import Board
from leeward.sweep.cluster import Cluster, Session, connected, run_on_cluster
from leeward.sweep.work import Outcome, attempts_file
from sweeping import states, waiting_jobs

KINDS = (
    *("TaskCancelledError", "RayTaskError", "OutOfMemoryError", "WorkerCrashedError"),
    *("NodeDiedError", "RaySystemError", "LocalRayletDiedError", "RpcError"),
    "ObjectStoreFullError",
)
"""Ray's own names."""
RayError = type("RayError", (Exception,), {})
EXCEPTIONS = SimpleNamespace(
    RayError=RayError, **{name: type(name, (RayError,), {}) for name in KINDS}
)
NOBODY = "127.0.0.1:9"


class FakeRay:
    """Tasks that end as it is told, in the order of their names; no process runs."""

    exceptions = EXCEPTIONS

    def __init__(
        self,
        ends: Mapping[str, Any] | None = None,
        *,
        machines: Sequence[Mapping[str, Any]] = (),
        address: str = NOBODY,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """How it answers.

        Args:
            ends: job → its outcome, or the exception that asking for it raises.
            machines: as `ray.nodes` has them.
            address: of its head.
            meanwhile: called in every wait.
        """
        self._ends = {} if ends is None else ends
        self._machines, self._address, self._meanwhile = machines, address, meanwhile
        self.takes: list[Mapping[str, Any]] = []
        self.given: list[tuple[Any, ...]] = []
        self.cancelled: list[str] = []
        self.waits: list[Mapping[str, Any]] = []

    def remote(self, function: Callable[..., Any]) -> Any:
        assert function is cluster._work
        return SimpleNamespace(options=self._options)

    def _options(self, **takes: Any) -> Any:
        def remote(*given: Any) -> str:
            self.takes.append(takes)
            self.given.append(given)
            return takes["name"]

        return SimpleNamespace(remote=remote)

    def wait(self, references: list[str], **how: Any) -> tuple[list[str], list[str]]:
        self.waits.append(how)
        assert len(self.waits) < 100, "nothing ends"
        self._meanwhile()
        ready = [name for name in references if name in self._ends]
        return ready, [name for name in references if name not in self._ends]

    def get(self, reference: str) -> Any:
        end = self._ends[reference]
        if isinstance(end, Exception):
            raise end
        return end

    def cancel(self, reference: str) -> None:
        self.cancelled.append(reference)

    def nodes(self) -> Sequence[Mapping[str, Any]]:
        return self._machines

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address=self._address)

    def is_initialized(self) -> bool:
        return bool(self._machines)

    def init(self, **how: Any) -> None:
        raise ConnectionError(f"nothing at {how['address']}\nmore about it")


def error(kind: str, text: str = "") -> Exception:
    """One of Ray's."""
    return getattr(EXCEPTIONS, kind)(text)


def run(place: Path, ray: FakeRay, count: int = 1, retries: int = 3, gpus: float = 0.0) -> Board:
    """A sweep of so many jobs on it, all of which Ray has begun."""
    jobs = waiting_jobs(count)
    board = Board(place, jobs, quiet=True)
    (place / "attempts").mkdir()
    for job in jobs:
        attempts_file(place, job).write_text('{"time": 0.0}\n')
    session = Session(ray, Cluster("somewhere:1", cpus_per_job=2.0, retries=retries), gpus)
    run_on_cluster(place, board, session, deadline=5.0)
    return board


def test_the_kinds_of_error_that_are_told_apart_are_ray_s() -> None:
    found = importlib.util.find_spec("ray")
    if found is None or found.origin is None:
        pytest.skip("needs Ray: pip install 'leeward[ray]'")
    tree = ast.parse((Path(found.origin).parent / "exceptions.py").read_text())
    bases = {
        node.name: [ast.unparse(base) for base in node.bases]
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    assert {name: bases.get(name) for name in KINDS} == {n: ["RayError"] for n in KINDS}


# --- What fits ---


def machine(*, alive: bool = True, **resources: float) -> Mapping[str, Any]:
    return {"Alive": alive, "Resources": resources}


@pytest.mark.parametrize(
    ("machines", "asked", "gpus"),
    [
        ([machine(CPU=4.0)], Cluster(), 0.0),
        ([machine(CPU=4.0), machine(CPU=2.0, GPU=1.0)], Cluster(), 1.0),
        ([machine(CPU=4.0, GPU=1.0)], Cluster(gpus_per_job=0.25, cpus_per_job=4.0), 0.25),
        ([machine(CPU=4.0, GPU=2.0)], Cluster(gpus_per_job=0.0), 0.0),
    ],
)
def test_a_job_takes_one_gpu_where_there_are_any(
    machines: list[Any], asked: Cluster, gpus: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = FakeRay(machines=machines)
    monkeypatch.setattr(cluster, "_import", lambda retries: ray)
    with connected(asked) as session:
        assert session == (ray, asked, gpus)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            Cluster(cpus_per_job=5.0),
            "--cpus-per-job 5: no machine of the Ray cluster has as many (the most is 4)",
        ),
        (
            Cluster(gpus_per_job=2.0),
            "--gpus-per-job 2: no machine of the Ray cluster has as many (the most is 1)",
        ),
    ],
)
def test_a_job_larger_than_any_machine_is_refused(
    asked: Cluster, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = machine(alive=False, CPU=64.0, GPU=8.0)
    machines = [machine(CPU=4.0, GPU=1.0), machine(CPU=4.0, GPU=1.0), lost]
    monkeypatch.setattr(cluster, "_import", lambda retries: FakeRay(machines=machines))
    with pytest.raises(ConfigError) as caught, connected(asked):
        pass
    assert str(caught.value) == text


def test_an_address_without_a_cluster_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_import", lambda retries: FakeRay())
    with pytest.raises(ConfigError) as caught, connected(Cluster("10.0.0.1:6379")):
        pass
    assert str(caught.value) == (
        "--ray 10.0.0.1:6379: no Ray cluster could be reached (nothing at 10.0.0.1:6379): start "
        "one with `ray start --head`, set RAY_AUTH_MODE=token where it asks for its token, or use "
        "--ray local"
    )


@pytest.mark.parametrize(
    ("gpus", "before", "share"),
    [(0.25, None, "0.225"), (0.25, "0.1", "0.1"), (1.0, None, None), (0.0, None, None)],
)
def test_jobs_that_share_a_gpu_share_its_memory(
    gpus: float,
    before: str | None,
    share: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "XLA_PYTHON_CLIENT_MEM_FRACTION"
    monkeypatch.setenv(name, before or "")  # so that it is put back
    if before is None:
        monkeypatch.delenv(name)
    set_to: list[tuple[str, str]] = []
    monkeypatch.setattr(jax.config, "update", lambda *given: set_to.append(given))
    monkeypatch.setattr(cluster, "execute", lambda *given: Outcome("done", str(given[0])))
    (job,) = waiting_jobs(1)
    assert cluster._work(str(tmp_path), job, None, gpus) == ("done", str(tmp_path))
    assert os.environ.get(name) == share
    assert set_to == ([("jax_platforms", "cpu")] if gpus == 0.0 else [])


# --- How tasks end ---


def test_every_open_job_becomes_a_task(tmp_path: Path) -> None:
    ray = FakeRay({"bc/set-0": ("done", ""), "bc/set-1": ("waiting", ""), "bc/set-2": ("done", "")})
    board = run(tmp_path, ray, count=3, retries=2, gpus=0.5)
    assert [takes["name"] for takes in ray.takes] == ["bc/set-0", "bc/set-1", "bc/set-2"]
    assert {(t["num_cpus"], t["num_gpus"], t["max_retries"]) for t in ray.takes} == {(2.0, 0.5, 2)}
    assert [given[0] for given in ray.given] == [str(tmp_path)] * 3
    assert [given[2:] for given in ray.given] == [(5.0, 0.5)] * 3
    assert [s.state for s in board.standings.values()] == ["done", "waiting", "done"]


@pytest.mark.parametrize(
    ("end", "state", "message"),
    [
        (("failed", "it diverged"), "failed", "it diverged"),
        (error("TaskCancelledError"), "waiting", ""),
        (
            error("RayTaskError", "Traceback\nImportError: no leeward there"),
            "failed",
            "its worker could not run it: ImportError: no leeward there",
        ),
        (
            error("WorkerCrashedError", "The worker died.\nCheck its log."),
            "failed",
            "its worker was lost 3 times, and --retries is 2: The worker died.",
        ),
        (
            error("NodeDiedError", "Node 5 died."),
            "failed",
            "its worker was lost 3 times, and --retries is 2: Node 5 died.",
        ),
        (
            error("OutOfMemoryError", "Task was killed\n…"),
            "failed",
            "its machine had no memory left 3 times, and --retries is 2: let fewer jobs run at "
            "once (a higher --cpus-per-job), or fewer runs share one (--runs-per-job)",
        ),
        (error("ObjectStoreFullError"), "failed", "Ray could not run it: ObjectStoreFullError"),
    ],
)
def test_each_end_of_a_task_is_told_apart(
    tmp_path: Path, answering: socket.socket, end: Any, state: str, message: str
) -> None:
    ray = FakeRay({"bc/set-0": end, "bc/set-1": ("done", "")}, address=address_of(answering))
    board = run(tmp_path, ray, count=2, retries=2)
    standing = board.standings["bc/set-0"]
    assert (standing.state, standing.message) == (state, message)
    assert board.standings["bc/set-1"].state == "done"


def test_an_interrupt_reaches_every_task_and_gives_it_time_to_save(tmp_path: Path) -> None:
    waits: list[int] = []

    def meanwhile() -> None:
        waits.append(0)
        if len(waits) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    ray = FakeRay({"bc/set-1": ("done", "")}, meanwhile=meanwhile)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, ray, count=3)
    assert ray.cancelled == ["bc/set-0", "bc/set-2"]
    assert ray.waits[-1] == {"num_returns": 2, "timeout": cluster.PARTING_SECONDS}
    assert states(tmp_path)["bc/set-1"] == "done"


# --- A lost cluster ---


@pytest.fixture
def answering() -> Iterator[socket.socket]:
    """A socket that stands for a head."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server


def address_of(server: socket.socket) -> str:
    host, port = server.getsockname()
    return f"{host}:{port}"


def lost(place: Path, ray: FakeRay) -> str:
    """The text of the error that a lost cluster leads to; its running jobs are lost."""
    with pytest.raises(TrainingError) as caught:
        run(place, ray, count=2)
    assert "\n" not in str(caught.value)
    assert set(states(place).values()) == {"lost"}
    return str(caught.value)


def test_a_head_that_is_silent_for_long_ends_the_sweep(
    tmp_path: Path, answering: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "HEAD_SECONDS", 0.3)
    waits: list[float] = []

    def meanwhile() -> None:
        waits.append(time.monotonic())
        if len(waits) == 4:
            answering.close()
        time.sleep(0.05)

    text = lost(tmp_path, FakeRay(address=address_of(answering), meanwhile=meanwhile))
    assert text == (
        "the Ray cluster was lost (its head has not answered for 0 s): start it again and continue "
        f"with leeward sweep --resume {tmp_path} --ray somewhere:1"
    )
    assert len(waits) > 5  # it was given time to come back
    kept = json.loads((tmp_path / "state.json").read_text())["jobs"]
    assert {(job["state"], job["message"]) for job in kept.values()} == {
        ("lost", "its cluster was lost")
    }
    # Where the sweep is continued, what was lost waits.
    again = Board(tmp_path, waiting_jobs(2), quiet=True)
    assert {standing.state for standing in again.standings.values()} == {"waiting"}


@pytest.mark.parametrize("kind", ["RaySystemError", "LocalRayletDiedError", "RpcError"])
def test_errors_of_the_cluster_are_no_job_s(tmp_path: Path, kind: str) -> None:
    text = lost(tmp_path, FakeRay({"bc/set-1": error(kind, "the raylet\nis gone")}))
    assert text.startswith("the Ray cluster was lost (the raylet): start it again and continue ")


def test_a_worker_that_is_lost_with_the_head_does_not_fail_its_job(
    tmp_path: Path, answering: socket.socket
) -> None:
    ends = {"bc/set-1": error("WorkerCrashedError", "The worker died.")}
    ray = FakeRay(ends, address=address_of(answering), meanwhile=answering.close)
    assert lost(tmp_path, ray).startswith("the Ray cluster was lost (its head has not answered for")


def test_a_head_that_cannot_be_reached_from_here_is_no_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "HEAD_SECONDS", 0.0)
    ends: dict[str, Any] = {}
    waits: list[int] = []

    def meanwhile() -> None:
        waits.append(0)
        if len(waits) == 3:
            ends["bc/set-0"] = ("done", "")

    board = run(tmp_path, FakeRay(ends, address=NOBODY, meanwhile=meanwhile))
    assert board.standings["bc/set-0"].state == "done"
