"""Frozen view models of a job: what is true of each rank and GPU, and of its kernels over ranks.

Units and the meaning of None are as in reports/view_models.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsight_prof.reports.view_models import Caveat


@dataclass(frozen=True)
class RankRow:
    """One GPU of one rank; `problem` says why there are no numbers.

    `wall_ns` is from the first to the last work of this rank, by the clock of its own trace.
    """

    rank: int
    file: str
    host: str
    pids: str
    device: int | None
    gpu: str
    uuid: str
    launches: int | None
    wall_ns: float | None
    busy_ns: float | None
    idle_ns: float | None
    idle_share: float | None
    kernel_ns: float | None
    memory_ns: float | None
    problem: str


@dataclass(frozen=True)
class RankKernelRow:
    """One kernel over the ranks; the times of single ranks are sums of all its launches there.

    `ranks` is on how many ranks it ran; `spread` is the longest over the shortest time less 1, None
    where fewer than two ranks ran it.
    """

    name: str
    grid: str
    category: str
    ranks: int
    calls: int | None
    total_ns: float | None
    share: float | None
    min_ns: float | None
    min_rank: int | None
    median_ns: float | None
    max_ns: float | None
    max_rank: int | None
    spread: float | None


@dataclass(frozen=True)
class JobView:
    """A job of several ranks. `rank_basis` says where the numbers of the ranks are from.

    `rest_ranks` and `rest_kernels` are rows of the tables that the page does not show.
    `gpu_time_ns` is the sum over all GPUs of the job.
    """

    title: str
    question: str
    run_id: str
    created: str
    answer: tuple[str, ...]
    rank_count: int
    rank_basis: str
    gpu_time_ns: float | None
    ranks: tuple[RankRow, ...]
    rest_ranks: int
    kernels: tuple[RankKernelRow, ...]
    rest_kernels: int
    caveats: tuple[Caveat, ...]
