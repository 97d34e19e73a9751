"""The jobs of a sweep on Ray: on this machine's cores and devices, or on a cluster's."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from leeward.attendance import interruptions
from leeward.errors import ConfigError, MissingExtra, TrainingError
from leeward.sweep.board import Board
from leeward.sweep.jobs import SweepJob
from leeward.sweep.loading import Loader
from leeward.sweep.work import Outcome, execute

LOCAL = "local"
POLL_SECONDS = 1.0
"""Between looks at what ended (ours)."""
HEAD_SECONDS = 20.0
"""How long a cluster's head may give no answer before it counts as lost (ours). Ray waits for a
minute, and then ends this process."""
PARTING_SECONDS = 60.0
"""How long interrupted jobs may take to save (ours)."""
DEVICE_MEMORY = 0.9
"""Of a device's memory, what jobs that share it may take together (ours: JAX takes 0.75)."""


@dataclass(frozen=True)
class Cluster:
    """Where jobs run, and what each may take."""

    address: str = LOCAL
    """"local" starts Ray on this machine; else the address of a cluster."""
    gpus_per_job: float | None = None
    """A fraction lets several share one; None: 1 where the cluster has any, else 0."""
    cpus_per_job: float = 1.0
    retries: int = 3
    """How often a job whose worker was lost is continued."""


def check_cluster(cluster: Cluster) -> None:
    """Raises ConfigError for impossible values, and MissingExtra where Ray is not installed."""
    gpus, cpus = cluster.gpus_per_job, cluster.cpus_per_job
    if gpus is not None and (gpus < 0.0 or (gpus > 1.0 and gpus != int(gpus))):
        raise ConfigError(
            f"--gpus-per-job must be 0, a fraction of 1, or a whole number, got {gpus:g}"
        )
    if cpus <= 0.0:
        raise ConfigError(f"--cpus-per-job must be above 0, got {cpus:g}")
    if cluster.retries < 0:
        raise ConfigError(f"--retries must be 0 or more, got {cluster.retries}")
    _import(cluster.retries)


class Session(NamedTuple):
    """A connection to a cluster that jobs fit into."""

    ray: Any
    cluster: Cluster
    gpus: float
    """Of a job."""


@contextlib.contextmanager
def connected(cluster: Cluster) -> Iterator[Session]:
    """A connection to Ray: one that is there already is used and left.

    Raises:
        ConfigError: no cluster at that address, or one that no job fits into.
    """
    ray = _import(cluster.retries)
    if ray.is_initialized():
        yield Session(ray, cluster, _fitting(ray, cluster))
        return
    _connect(ray, cluster.address)
    try:
        yield Session(ray, cluster, _fitting(ray, cluster))
    finally:
        ray.shutdown()


def run_on_cluster(
    directory: Path, board: Board, session: Session, deadline: float | None = None
) -> None:
    """Schedules all jobs that are left and waits for them.

    Raises:
        KeyboardInterrupt: interrupted; every job was saved.
        TrainingError: the cluster itself was lost.
    """
    ray, cluster, gpus = session
    task = ray.remote(_work)
    takes = {"num_cpus": cluster.cpus_per_job, "num_gpus": gpus, "max_retries": cluster.retries}
    place = str(directory.absolute())
    waiting = {
        task.options(name=job.name, **takes).remote(place, job, deadline, gpus): job
        for job in board.open_jobs()
    }
    head = Head(ray.get_runtime_context().gcs_address)
    with interruptions() as interrupted:
        while waiting and not interrupted.is_set():
            try:
                ready, _ = ray.wait(list(waiting), timeout=POLL_SECONDS)
                ended = {reference: _outcome(ray, reference, cluster, head) for reference in ready}
                head.check()
            except (ray.exceptions.RayError, ClusterLostError) as error:
                board.notice(list(waiting.values()))
                board.lose()
                raise _lost(directory, cluster, error) from error
            for reference, outcome in ended.items():
                board.end(waiting.pop(reference), outcome)
            board.notice(list(waiting.values()))
        if waiting:
            _part(ray, list(waiting))
            raise KeyboardInterrupt


class ClusterLostError(Exception):
    """The head of the cluster is gone, and with it all that it knew."""


class Head:
    """The process that a cluster cannot be without; asked again and again whether it is there."""

    def __init__(self, address: str) -> None:
        """Asks for the first time.

        Args:
            address: HOST:PORT of the cluster's control store.
        """
        host, _, port = address.rpartition(":")
        self._address = host.strip("[]"), int(port)
        self._known = self._answers()  # else this machine cannot reach it directly: no news
        self._last = time.monotonic()

    def check(self, patience: float | None = None) -> None:
        """Raises ClusterLostError where it has given no answer for so many seconds.

        `patience` is `HEAD_SECONDS` by default.
        """
        if not self._known:
            return
        if self._answers():
            self._last = time.monotonic()
            return
        silent = time.monotonic() - self._last
        if silent >= (HEAD_SECONDS if patience is None else patience):
            raise ClusterLostError(f"its head has not answered for {silent:.0f} s")

    def _answers(self) -> bool:
        try:
            socket.create_connection(self._address, timeout=POLL_SECONDS).close()
        except OSError:
            return False
        return True


def _work(directory: str, job: SweepJob, deadline: float | None, gpus: float) -> Outcome:
    """One job, in a process of Ray's; a retry comes here again and continues its run."""
    import jax

    if gpus == 0.0:
        jax.config.update("jax_platforms", "cpu")
    elif gpus < 1.0:  # JAX would take most of a device's memory for itself
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{DEVICE_MEMORY * gpus:.3f}")
    return execute(Path(directory), job, Loader(), deadline)


def _outcome(ray: Any, reference: Any, cluster: Cluster, head: Head) -> Outcome:
    """How a task ended.

    Raises:
        ClusterLostError: it was lost with the cluster.
        RayError: so it was, or Ray does not know how.
    """
    kinds = ray.exceptions
    again = f"{cluster.retries + 1} times, and --retries is {cluster.retries}"
    try:
        return Outcome(*ray.get(reference))
    except kinds.TaskCancelledError:
        return Outcome("waiting")
    except kinds.RayTaskError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Outcome("failed", f"its worker could not run it: {lines[-1]}")
    except kinds.OutOfMemoryError:
        return Outcome(
            "failed",
            f"its machine had no memory left {again}: let fewer jobs run at once (a higher "
            "--cpus-per-job), or fewer runs share one (--runs-per-job)",
        )
    except (kinds.WorkerCrashedError, kinds.NodeDiedError) as error:
        head.check(patience=0.0)
        return Outcome("failed", f"its worker was lost {again}: {_first_line(error)}")
    except (kinds.RaySystemError, kinds.LocalRayletDiedError, kinds.RpcError):
        raise  # of the cluster, not of the job
    except kinds.RayError as error:
        return Outcome("failed", f"Ray could not run it: {_first_line(error)}")


def _part(ray: Any, references: list[Any]) -> None:
    """Interrupts tasks and gives them time to save."""
    with contextlib.suppress(ray.exceptions.RayError):  # the cluster may be lost
        for reference in references:
            ray.cancel(reference)
        ray.wait(references, num_returns=len(references), timeout=PARTING_SECONDS)


def _lost(directory: Path, cluster: Cluster, error: Exception) -> TrainingError:
    begin = "" if cluster.address == LOCAL else "start it again and "
    return TrainingError(
        f"the Ray cluster was lost ({_first_line(error)}): {begin}continue with "
        f"leeward sweep --resume {directory} --ray {cluster.address}"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _connect(ray: Any, address: str) -> None:
    quiet: Mapping[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        if address == LOCAL:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init(address=LOCAL, include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ConfigError(
            f"--ray {address}: no Ray cluster could be reached ({_first_line(error)}): start one "
            "with `ray start --head`, set RAY_AUTH_MODE=token where it asks for its token, or use "
            "--ray local"
        ) from error


def _fitting(ray: Any, cluster: Cluster) -> float:
    """GPUs of a job.

    Raises:
        ConfigError: no machine of the cluster has what a job takes, so that it would never start.
    """
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = {name: max((m.get(name, 0.0) for m in machines), default=0.0) for name in ("CPU", "GPU")}
    gpus = cluster.gpus_per_job
    if gpus is None:
        gpus = 1.0 if most["GPU"] else 0.0
    for flag, asked, name in (
        ("--cpus-per-job", cluster.cpus_per_job, "CPU"),
        ("--gpus-per-job", gpus, "GPU"),
    ):
        if asked > most[name]:
            raise ConfigError(
                f"{flag} {asked:g}: no machine of the Ray cluster has as many (the most is "
                f"{most[name]:g})"
            )
    return gpus


def _import(retries: int) -> Any:
    """Ray, told at its first import how often a task may use up its machine's memory."""
    # Else it would begin such a task again for ever.
    os.environ.setdefault("RAY_task_oom_retries", str(retries))
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray", "--ray") from error
    return ray
