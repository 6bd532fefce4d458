"""Starts the ranks of a job on a cluster of Ray, as torchrun does on a node.

    python -m nsight_prof.orchestrator.ranks.on_ray COUNT [--address=HOST:PORT] -- COMMAND

Each rank is an actor with a GPU. It sees the GPUs of all ranks of its node, of which the one with
the number LOCAL_RANK is its own, and has this process's environment. Once a rank fails, or this
process gets SIGTERM, all ranks get SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsight_prof.orchestrator.system.process import Command, Finished, run_launcher
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.orchestrator.workers.on_ray import ray_executor
from nsight_prof.parsers.errors import ProfError, ToolMissing

GRACE_S = 60.0
"""Time that a rank has after SIGTERM: prof rank keeps its trace meanwhile."""
LOOK_S = 0.5
OF_NODE = ("CUDA_VISIBLE_DEVICES", "RAY_")
"""Beginnings of variables that a node sets itself."""


class _Stopped(Exception):
    """The rank is to end."""


@dataclass(frozen=True)
class _Place:
    """Where an actor is: its node, and the GPU that Ray gave it."""

    node: str
    address: str
    gpu: str


class _Actor:
    """One rank; `stop` is called while `run` runs."""

    def __init__(self) -> None:
        self._is_stopped = False

    def placement(self) -> _Place:
        import ray

        gpus = ray.get_runtime_context().get_accelerator_ids()["GPU"]
        node = ray.get_runtime_context().get_node_id()
        return _Place(node, ray.util.get_node_ip_address(), gpus[0])

    def port(self) -> int:
        with socket.socket() as free:
            free.bind(("", 0))
            return int(free.getsockname()[1])

    def stop(self) -> None:
        self._is_stopped = True

    def run(self, argv: tuple[str, ...], variables: dict[str, str], folder: str) -> Finished:
        def waits(_elapsed: float) -> None:
            if self._is_stopped:
                raise _Stopped

        there = Path(folder)
        with tempfile.TemporaryDirectory(prefix="prof-ray-") as logs:
            out, err = Path(logs) / "stdout", Path(logs) / "stderr"
            command = Command(
                argv, {**os.environ, **variables}, there if there.is_dir() else Path.cwd(),
                out, err, grace_s=GRACE_S,
            )  # fmt: skip
            try:
                return run_launcher(command, waits)
            except _Stopped:
                tail = out.read_text(errors="replace") + err.read_text(errors="replace")
                return Finished(None, 0.0, False, "SIGTERM", tail)


def start_ranks(count: int, argv: tuple[str, ...]) -> int:
    """Run a command as `count` ranks on the cluster that is connected; return the first bad code.

    Raises:
        ToolMissing: the cluster has not so many GPUs.
    """
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    gpus = int(ray.cluster_resources().get("GPU", 0))
    if gpus < count:
        raise ToolMissing(
            f"the Ray cluster has {gpus} GPUs, and {count} ranks need one each",
            "see `ray status`; fewer ranks: --set ranks.count=N",
        )
    group = placement_group([{"GPU": 1, "CPU": 1}] * count, strategy="PACK")
    ray.get(group.ready())
    strategies = [PlacementGroupSchedulingStrategy(group, n) for n in range(count)]
    of_ray = ray.remote(num_gpus=1, num_cpus=1, max_concurrency=2)(_Actor)
    actors = [of_ray.options(scheduling_strategy=s).remote() for s in strategies]
    placements: list[_Place] = ray.get([actor.placement.remote() for actor in actors])
    nodes = list(dict.fromkeys(placement.node for placement in placements))
    numbers = sorted(
        range(count), key=lambda n: (nodes.index(placements[n].node), placements[n].gpu)
    )
    actors, placements = [actors[n] for n in numbers], [placements[n] for n in numbers]
    port = ray.get(actors[0].port.remote())
    common = {name: value for name, value in os.environ.items() if not name.startswith(OF_NODE)}
    common |= {"WORLD_SIZE": str(count), "MASTER_ADDR": placements[0].address}
    common |= {"MASTER_PORT": str(port), "RAY_JOB_ID": ray.get_runtime_context().get_job_id()}
    running = {}
    for rank, (actor, placement) in enumerate(zip(actors, placements, strict=True)):
        of_node = [near for near in placements if near.node == placement.node]
        variables = {
            **common,
            "RANK": str(rank),
            "LOCAL_RANK": str(of_node.index(placement)),
            "LOCAL_WORLD_SIZE": str(len(of_node)),
            "CUDA_VISIBLE_DEVICES": ",".join(near.gpu for near in of_node),
        }
        running[actor.run.remote(argv, variables, os.getcwd())] = rank
    return _awaited(running, actors)


def _awaited(running: dict[Any, int], actors: list[Any]) -> int:
    """Wait for all ranks, print what they said, and return the first exit code that is not 0."""
    import ray
    from ray.exceptions import RayError

    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
    code, is_ended = 0, False
    while running:
        done, _ = ray.wait(list(running), timeout=LOOK_S)
        for reference in done:
            rank = running.pop(reference)
            try:
                finished: Finished = ray.get(reference)
            except RayError as error:
                finished = Finished(1, 0.0, False, "", f"rank {rank}: {type(error).__name__}")
            say(finished.tail.rstrip(), err=True)
            if not finished.ok:
                code = code or finished.exit_code or 128 + signal.SIGTERM
        if (code or stops) and not is_ended:
            is_ended = True
            for actor in actors:
                actor.stop.remote()
    return code


def main() -> int:
    """Start the ranks that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--address", default="")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    try:
        with ray_executor(given.address):
            return start_ranks(given.count, tuple(given.command))
    except ProfError as error:
        say(f"error: {error.message}\n\nhint: {error.hint}", err=True)
        return error.exit_code


if __name__ == "__main__":
    # Ray looks classes up by their module, which is not this one where it is run as a program.
    from nsight_prof.orchestrator.ranks import on_ray

    sys.exit(on_ray.main())
