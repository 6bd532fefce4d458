"""Which rank of which job this process is, whatever launched it, and what is captured of it."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nsight_prof.parsers.errors import StepFailed, UsageError

# Rank, rank on the node, number of ranks. Slurm's come after those of MPI: inside of sbatch,
# processes that mpirun starts have the SLURM_PROCID of their node.
LAUNCHERS = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),  # torchrun, Ray Train, DeepSpeed, Accelerate
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "", ""),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
    ("VLLM_DP_RANK", "VLLM_DP_RANK_LOCAL", "VLLM_DP_SIZE"),
)
JOB = (
    "TORCHELASTIC_RUN_ID",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
    "RAY_JOB_ID",
)
"""Variables that are the same for all ranks of a job, and differ between jobs."""
ELASTIC = JOB[0]
ROLE = "ROLE_NAME"
"""The variable of torchrun that holds what its --role was given."""
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
PID_FILE = "pid"
"""The file in the folder of a rank's tools into which its program writes its process id."""
KEPT = ("traces", "tables", "both")
"""What of a rank is kept: nsys's export and tables, the tables alone, or the .nsys-rep as well."""
MODES = ("one-rank", "one-pass", "application")
LIMIT_S = 600.0
"""Time after which a program that ncu holds is ended: a kernel may wait for one that never runs."""
ALL_UP_TO = 8
"""Ranks of a job up to which all are traced where nothing else is asked for."""


@dataclass(frozen=True)
class Launch:
    """One rank of a job: `size` (number of ranks) and `local` (rank on the node) may be unknown.

    `variable` is what the rank was read from; `job` is the same for all ranks of one job; `restart`
    counts how often the launcher started the job again. `elastic` is torchrun's name of the job,
    "none" where it was given none, empty of other launchers. `role` is what a variable calls the
    rank's part in the job, empty where none does.
    """

    rank: int
    local: int | None
    size: int | None
    variable: str
    job: str
    restart: int = 0
    elastic: str = ""
    role: str = ""


@dataclass(frozen=True)
class Selection:
    """Which ranks are traced: `ranks`, every n-th, those of `roles`, or a node's first."""

    ranks: frozenset[int] | None = None
    every: int = 1
    first_of_node: bool = False
    roles: frozenset[str] = frozenset()

    def has(self, launch: Launch) -> bool:
        """Tell whether this rank is traced."""
        if self.ranks is not None:
            return launch.rank in self.ranks
        if self.first_of_node:
            return launch.local == 0
        if self.roles:
            return launch.role in self.roles
        return launch.rank % self.every == 0

    def expected(self, size: int | None) -> list[int] | None:
        """Return the traced ranks of a job of `size` ranks; None where that cannot be known."""
        if size is None or self.first_of_node or self.roles:
            return None
        chosen = range(0, size, self.every) if self.ranks is None else sorted(self.ranks)
        return [rank for rank in chosen if rank < size]


def read_launch(
    environment: Mapping[str, str], rank_from: str = "", role_from: str = ROLE
) -> Launch:
    """Return which rank this process is; `rank_from` names a variable to read it from.

    `role_from` names the variable that holds its role.

    Raises:
        UsageError: no launcher's variable is set, or the number is none.
    """
    launchers = ((rank_from, "", ""),) if rank_from else LAUNCHERS
    for rank, local, size in launchers:
        if (number := _number(environment, rank)) is not None:
            return Launch(
                number,
                _number(environment, local),
                _number(environment, size),
                rank,
                " ".join(f"{name}={environment[name]}" for name in JOB if name in environment),
                _number(environment, RESTARTS) or 0,
                environment.get(ELASTIC, ""),
                environment.get(role_from, ""),
            )
    wanted = " nor ".join(name for name, _, _ in launchers)
    raise UsageError(
        f"which rank this is, is not known: neither {wanted} holds a number"
        if not rank_from
        else f"which rank this is, is not known: {rank_from} holds no number",
        "start prof rank by the launcher of the job (torchrun --no-python, srun, mpirun), or name "
        "the variable that holds the rank: --rank-from NAME",
    )


def parse_selection(text: str, launch: Launch) -> Selection:
    """Parse `all`, `none`, `0,8`, `every:8`, `role:NAME` or `first-of-node`.

    "": all of a job of few ranks, else the first of each node.

    Raises:
        UsageError: it is none of these.
    """
    if not text:
        few = launch.size is None or launch.size <= ALL_UP_TO or launch.local is None
        return Selection(first_of_node=not few)
    if text in ("all", "none", "first-of-node"):
        return Selection(
            frozenset() if text == "none" else None, first_of_node=text == "first-of-node"
        )
    word, _, step = text.partition(":")
    if word == "every" and step.isdecimal() and int(step) > 0:
        return Selection(every=int(step))
    if word == "role" and step:
        return Selection(roles=frozenset(step.split(",")))
    numbers = [number.strip() for number in text.split(",")]
    if all(number.isdecimal() for number in numbers):
        return Selection(frozenset(map(int, numbers)))
    raise UsageError(
        f"--trace {text} names no ranks",
        "give all, none, first-of-node, every:8, role:NAME, or numbers: 0,8",
    )


def check_selection(text: str) -> None:
    """Refuse what `parse_selection` cannot read; raises as it."""
    parse_selection(text, Launch(0, 0, 1, "", ""))


def run_alone(command: Sequence[str]) -> int:
    """Become the program of a rank that is not traced.

    Raises:
        StepFailed: it cannot be started.
    """
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        raise StepFailed(
            f"{command[0]} cannot be started: {error.strerror or error}",
            "check that the program exists and is executable",
        ) from error


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() and text.isascii() else None


@dataclass(frozen=True)
class Rank:
    """What is traced: the program of one rank, and how.

    `scratch` is a folder on a disk of this node; `stages` are regular expressions of NVTX ranges;
    `flush_s` is how long nsys may write after the program has ended; `gpu_metrics_hz` how often it
    samples the use of the rank's GPU, None: not at all. `window` are the steps that are kept: name
    of the range, first and last number; `keep` is one of KEPT. `own_ranks`: the program starts so
    many ranks itself, each a process.
    """

    launch: Launch
    selection: Selection
    command: tuple[str, ...]
    scratch: Path | None = None
    nsys_options: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    flush_s: float = 300.0
    gpu_metrics_hz: int | None = None
    window: tuple[str, int, int] | None = None
    keep: str = KEPT[0]
    own_ranks: int | None = None


def parse_window(text: str) -> tuple[str, int, int] | None:
    """Parse `step:20-23`, the name of an NVTX range and the numbers of those that are kept.

    Raises:
        UsageError: it is none.
    """
    name, _, numbers = text.rpartition(":")
    first, _, last = numbers.partition("-")
    if name and first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last):
        return name, int(first), int(last)
    if not text:
        return None
    raise UsageError(
        f"--window {text} names no steps",
        "give an NVTX range and the first and last of its numbers, from 1: step:20-23",
    )


def new_scratch(rank: Rank) -> Path:
    """Make the folder into which the tools of a rank write, on a disk of its node.

    Raises:
        StepFailed: there cannot be one.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"prof-rank-{rank.launch.rank}-", dir=rank.scratch))
        try:
            # What the program writes there fits, however full the disk is until then.
            (folder / PID_FILE).write_text(" " * 16)
        except OSError:
            shutil.rmtree(folder)
            raise
        return folder
    except OSError as error:
        raise StepFailed(
            f"there is no folder for what is captured on {socket.gethostname()}: {error}",
            "free some space there, or name a folder on a disk of the node: --scratch DIR",
        ) from error
