"""`prof run --on ray --every gpu`: a recipe on each GPU of a cluster, which leaves a run for each.

Ray gives one task all GPUs of a node, which measures them one after the other: GPUs that work at
the same time share the links, the power and the air of their node.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nsight_prof.orchestrator.system.environment import read_gpus
from nsight_prof.orchestrator.system.process import Command, run
from nsight_prof.orchestrator.workers.on_ray import Node, RayExecutor
from nsight_prof.parsers.errors import ProfError, StepFailed, ToolMissing
from nsight_prof.parsers.run.directory import RunDir, StepState, read_manifest

UNFINISHED = {StepState.PENDING, StepState.RUNNING, StepState.FAILED}


@dataclass(frozen=True)
class Asked:
    """What is run on each GPU: the words after `prof run`, read in `folder`.

    `out` is for the runs, a folder that all nodes see.
    """

    words: tuple[str, ...]
    out: Path
    folder: Path


@dataclass(frozen=True)
class OfGpu:
    """The run of a GPU; `error` says why it was not measured, empty where it was."""

    uuid: str
    host: str
    run: str
    error: str = ""


def run_on_every_gpu(
    executor: RayExecutor, asked: Asked, say: Callable[[str], None]
) -> list[OfGpu]:
    """Run the recipe once on each GPU of the cluster; runs in `asked.out` that are whole are kept.

    A node is lost with its GPUs: those that it had not measured have an error. One that two nodes
    of a machine have is measured on the first of them.

    Raises:
        ToolMissing: no node has a GPU.
        ProfError: a node does not tell its GPUs, or has another version of prof.
    """
    nodes = [node for node in executor.nodes if node.gpus]
    if not nodes:
        raise ToolMissing(
            "no node of the Ray cluster has a GPU",
            "`ray status` shows what Ray found; a node's own number: ray start --num-gpus N",
        )
    asking = [executor.submit_to(node, uuids_of_task, gpus=node.gpus) for node in nodes]
    known: set[str] = set()
    of_node: dict[Node, list[str]] = {}
    for node, future in zip(nodes, asking, strict=True):
        of_node[node] = [uuid for uuid in future.result() if uuid not in known]
        known.update(of_node[node])
        say(f"{node}: {', '.join(of_node[node]) or 'GPUs that another node has, too'}")
    measuring = [
        executor.submit_to(node, measure, asked, node.host, uuids, gpus=node.gpus)
        for node, uuids in of_node.items()
    ]
    found: list[OfGpu] = []
    for (node, uuids), future in zip(of_node.items(), measuring, strict=True):
        try:
            found += future.result()
        except StepFailed:
            reason = "was lost" if node in executor.lost() else "lost its worker"
            found += _of_lost_node(asked, node, uuids, f"{node} {reason} before it was measured")
    return found


def uuids_of_task() -> list[str]:
    """Return the UUIDs of the GPUs that Ray gave this task.

    Raises:
        ToolMissing: NVML does not tell them.
    """
    nvml = read_gpus()
    uuids = [str(gpu.get("uuid", "")) for gpu in nvml.gpus]
    words = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    try:
        return [uuids[int(word)] if word.isdecimal() else word for word in words]
    except IndexError:
        raise ToolMissing(
            f"{socket.gethostname()} does not tell the UUIDs of its GPUs {', '.join(words)}: NVML "
            f"has {len(uuids)}{f' ({nvml.error})' if nvml.error else ''}",
            "check nvidia-smi there; give Ray as many GPUs as the node has (--num-gpus)",
        ) from None


def measure(asked: Asked, host: str, uuids: Sequence[str]) -> list[OfGpu]:
    """Measure the GPUs of this node one after the other, those that have no whole run yet."""
    return [_measured(asked, host, uuid) for uuid in uuids]


def _measured(asked: Asked, host: str, uuid: str) -> OfGpu:
    folder = asked.out / host / uuid
    if _is_whole(folder):
        return OfGpu(uuid, host, str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    begun = ("--resume",) if RunDir(folder).manifest_path.is_file() else ("--force", "--out")
    command = Command(
        (sys.executable, "-m", "nsight_prof", "run", *asked.words, "--quiet", *begun, str(folder)),
        {**os.environ, "CUDA_VISIBLE_DEVICES": uuid},
        asked.folder if asked.folder.is_dir() else Path.cwd(),
        folder / "run.stdout.log",
        folder / "run.stderr.log",
    )
    finished = run(command)
    if finished.ok:
        return OfGpu(uuid, host, str(folder))
    lines = [line for line in finished.tail.splitlines() if line.startswith("error: ")]
    reason = lines[-1].removeprefix("error: ") if lines else f"its words are in {command.stderr}"
    ended = finished.signal or f"exit code {finished.exit_code}"
    return OfGpu(uuid, host, str(folder), f"prof run ended with {ended}: {reason}")


def _of_lost_node(asked: Asked, node: Node, uuids: Sequence[str], reason: str) -> Iterator[OfGpu]:
    """Return what a lost node left: whole runs, and GPUs that have none."""
    for uuid in uuids:
        folder = asked.out / node.host / uuid
        yield OfGpu(uuid, node.host, str(folder), "" if _is_whole(folder) else reason)


def _is_whole(folder: Path) -> bool:
    """Tell whether a run has done all its steps, and has its report."""
    job = RunDir(folder)
    with suppress(ProfError):
        steps = read_manifest(job).steps
        return (job.report / "metrics.json").is_file() and not any(
            step.state in UNFINISHED or step.error for step in steps
        )
    return False
