"""Ray as an executor: work runs where its file lies, and again where a worker or a node was lost.

Workers return small summaries; tables and traces never go through Ray's object store.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from nsight_prof.orchestrator.recipe.ranks import WORKER_BYTES
from nsight_prof.orchestrator.system.version import prof_version
from nsight_prof.parsers.errors import StepFailed, ToolMissing, UsageError

RETRIES = 3
CONNECT_S = 5.0


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, and how many GPUs it gives; two nodes may be on one host."""

    id: str
    host: str
    gpus: int = 0

    def __str__(self) -> str:
        return f"{self.host} (node {self.id[:8]})"


class RayExecutor(Executor):
    """Runs functions as Ray tasks; a task whose worker or node is lost runs again elsewhere."""

    def __init__(self, memory: int | None = None) -> None:
        import ray

        self._ray = ray
        self._run = ray.remote(num_cpus=1, memory=memory or WORKER_BYTES, max_retries=RETRIES)(_run)
        self.nodes = self._alive()

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it on any node."""
        return self._started(self._run, None, work, args, kwargs)

    def submit_to(
        self, node: Node | None, work: Callable[..., Any], /, *args: Any, gpus: int = 0
    ) -> Future[Any]:
        """Run it on the node whose disk alone has the file, or which has the GPUs; or on any."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if node is None:
            return self.submit(work, *args)
        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        placed = self._run.options(scheduling_strategy=there, num_gpus=gpus)
        return self._started(placed, node, work, args, {})

    def lost(self) -> list[Node]:
        """Return the nodes that were there at the beginning, and are no more."""
        alive = {node.id for node in self._alive()}
        return [node for node in self.nodes if node.id not in alive]

    def _alive(self) -> list[Node]:
        # The cluster learns of a node's death seconds later than those who ask the node itself.
        is_inside = not self._ray.util.client.ray.is_connected()
        return [
            Node(n["NodeID"], n["NodeManagerHostname"], int(n["Resources"].get("GPU", 0)))
            for n in self._ray.nodes()
            if n["Alive"] and n["Resources"].get("CPU")
            if not is_inside or _answers(n["NodeManagerAddress"], n["NodeManagerPort"])
        ]

    def _started(
        self,
        run: Any,
        node: Node | None,
        work: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Future[Any]:
        reference = run.remote(prof_version(), work, args, kwargs)
        found: Future[Any] = Future()

        def done(result: Future[Any]) -> None:
            if found.cancelled():
                return
            error = result.exception()
            if error is None:
                found.set_result(result.result())
            else:
                found.set_exception(self._explained(error, node))

        reference.future().add_done_callback(done)
        return found

    def _explained(self, error: BaseException, node: Node | None) -> BaseException:
        """Return the error of the work itself, or what became of its worker."""
        from ray.exceptions import RayError, RayTaskError

        if isinstance(error, RayTaskError):
            return error.cause if isinstance(error.cause, Exception) else error
        if not isinstance(error, RayError):
            return error
        lost = node or next(iter(self.lost()), None)
        where = f"the node {lost} was lost" if lost else "its worker was killed"
        return StepFailed(
            f"a rank could not be read: {where}, {RETRIES} further attempts included"
            if node is None
            else f"a rank could not be read: {where}, whose disk has its trace",
            "if the memory of the node was full, give Ray fewer CPUs there; when it is back, the "
            "same command with --resume does what is missing",
        )


def _run(
    version: str, work: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Do the work on a node, where prof must be the same."""
    if version != prof_version():
        raise UsageError(
            f"{socket.gethostname()} has prof {prof_version()}, and this machine {version}",
            "install the same version on all nodes of the cluster",
        )
    return work(*args, **kwargs)


@contextmanager
def ray_executor(address: str, memory: int | None = None) -> Iterator[RayExecutor]:
    """Give the executor of a cluster that runs; without `address`, RAY_ADDRESS or this machine's.

    `memory` is what each worker needs (bytes): Ray starts no more of them on a node than fit.

    Raises:
        ToolMissing: Ray is not installed, or no cluster answers.
    """
    try:
        import ray
    except ImportError as error:
        raise ToolMissing(
            "--on ray needs Ray, which is not installed", "pip install 'nsight-prof[ray]'"
        ) from error
    address = address or os.environ.get("RAY_ADDRESS", "auto")
    _check_address(address)
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # a ConnectionError, RuntimeError or one of gRPC, by the address
        raise _no_cluster(address) from error
    try:
        yield RayExecutor(memory)
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Refuse an address where nobody listens, for which Ray waits a minute."""
    url = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = url.hostname, url.port
    except ValueError:
        raise _no_cluster(address) from None
    if host is None or port is None:  # "auto"
        return
    if not _answers(host, port):
        raise _no_cluster(address)


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except OSError:
        return False
    return True


def _no_cluster(address: str) -> ToolMissing:
    where = "on this machine" if address == "auto" else f"at {address}"
    return ToolMissing(
        f"no Ray cluster runs {where}",
        "start one (ray start --head), or take processes of this machine: --workers N",
    )
