"""Says what is true of each rank of a job and its GPU, and how its kernels differ between ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.rank_tables import RANK_KERNELS, RANKS
from nsight_prof.parsers.cells import Row, count, known, records, text
from nsight_prof.parsers.run_dir import Manifest, RunDir, read_manifest
from nsight_prof.reports.formats import duration, share
from nsight_prof.reports.rank_models import JobView, RankKernelRow, RankRow
from nsight_prof.reports.view_models import Caveat

MOST_RANKS, MOST_KERNELS = 128, 20
"""Rows of the page; the tables have all."""
UNEQUAL = 0.02
"""Part of the GPU time of a rank from which on a kernel's difference between ranks is told."""
COLLECTIVE = "collective"
"""Category of kernels whose time holds the wait for other ranks."""


def job_view(path: Path) -> JobView:
    """Return what the report of the job `path` shows, from its tables.

    Raises:
        UsageError: the folder is not a run directory.
        ArtifactUnreadable: a table cannot be read.
    """
    manifest, folder = read_manifest(RunDir(path)), RunDir(path).tables
    ranks = tuple(map(_rank, records(tables.read(folder, RANKS))))
    kernels = records(tables.read(folder, RANK_KERNELS))
    shown = tuple(map(_kernel, kernels))
    total = sum(row.kernel_ns or 0.0 for row in ranks)
    return JobView(
        title=str(manifest.recipe.get("name", "")) or manifest.run_id,
        question=str(manifest.recipe.get("question", "")),
        run_id=manifest.run_id,
        created=manifest.created,
        answer=tuple(_answer(ranks, shown)),
        rank_count=len(manifest.ranks),
        rank_basis=manifest.rank_basis,
        gpu_time_ns=total or None,
        ranks=ranks[:MOST_RANKS],
        rest_ranks=max(0, len(ranks) - MOST_RANKS),
        kernels=shown[:MOST_KERNELS],
        rest_kernels=max(0, len(shown) - MOST_KERNELS),
        caveats=tuple(_caveats(manifest, ranks)),
    )


def _rank(row: Row) -> RankRow:
    wall, idle = known(row["wall_ns"]), known(row["idle_ns"])
    return RankRow(
        rank=int(row["rank"]),
        file=text(row["file"]),
        host=text(row["host"]),
        pids=text(row["pids"]),
        device=count(row["device"]),
        gpu=text(row["gpu"]),
        uuid=text(row["uuid"]),
        launches=count(row["launches"]),
        wall_ns=wall,
        busy_ns=known(row["gpu_busy_ns"]),
        idle_ns=idle,
        idle_share=idle / wall if wall and idle is not None else None,
        kernel_ns=known(row["kernel_ns"]),
        memory_ns=known(row["memory_ns"]),
        problem=text(row["problem"]),
    )


def _kernel(row: Row) -> RankKernelRow:
    least, most = known(row["min_ns"]), known(row["max_ns"])
    several = (count(row["ranks"]) or 0) > 1
    return RankKernelRow(
        name=text(row["short_name"]),
        grid=text(row["grid"]),
        category=text(row["category"]),
        ranks=count(row["ranks"]) or 0,
        calls=count(row["calls"]),
        total_ns=known(row["total_ns"]),
        share=known(row["share"]),
        min_ns=least,
        min_rank=count(row["min_rank"]),
        median_ns=known(row["median_ns"]),
        max_ns=most,
        max_rank=count(row["max_rank"]),
        spread=most / least - 1 if several and least and most is not None else None,
    )


def _answer(ranks: Sequence[RankRow], kernels: Sequence[RankKernelRow]) -> Iterator[str]:
    timed = [row for row in ranks if row.kernel_ns is not None]
    if not timed:
        return
    gpus, hosts = _gpus(timed), {row.host for row in timed if row.host}
    where = f" on {_counted(len(hosts), 'host')}" if hosts else ""
    total = sum(row.kernel_ns or 0.0 for row in timed)
    yield (
        f"{_counted(len({row.rank for row in timed}), 'rank')}{where} gave work to "
        f"{_counted(gpus, 'GPU')}: {duration(total)} in kernels, summed over the GPUs; "
        f"{_range(timed, lambda row: row.kernel_ns, duration)} on each."
    )
    idle = [row for row in timed if row.idle_share is not None]
    if idle:
        yield (
            f"The GPU was idle for {_range(idle, lambda row: row.idle_share, share)} of the time "
            "between the first and the last work of its rank."
        )
    if (uneven := _most_unequal(kernels, timed)) is not None:
        yield uneven


def _most_unequal(kernels: Sequence[RankKernelRow], ranks: Sequence[RankRow]) -> str | None:
    """Name the kernel whose time differs most between ranks, where that is worth a sentence."""
    least_time = min(row.kernel_ns or 0.0 for row in ranks)
    apart = [(k, (k.max_ns or 0.0) - (k.min_ns or 0.0)) for k in kernels if k.spread is not None]
    if not apart:
        return None
    kernel, difference = max(apart, key=lambda pair: pair[1])
    if difference < UNEQUAL * least_time:
        return None
    waits = ""
    if kernel.category == COLLECTIVE:
        waits = " Its time holds the wait for other ranks."
    return (
        f"{kernel.name} differs most between ranks: {duration(kernel.min_ns)} on rank "
        f"{kernel.min_rank}, {duration(kernel.max_ns)} on rank {kernel.max_rank}.{waits}"
    )


def _range(
    rows: Sequence[RankRow], value: Callable[[RankRow], float | None], show: Callable[[float], str]
) -> str:
    """Say the least and the most of a value, and whose they are."""
    least, most = (pick(rows, key=lambda row: value(row) or 0.0) for pick in (min, max))
    low, high = (show(value(row) or 0.0) for row in (least, most))
    if low == high:
        return low
    return f"{low} ({_place(least, rows)}) to {high} ({_place(most, rows)})"


def _place(row: RankRow, rows: Sequence[RankRow]) -> str:
    several = sum(other.rank == row.rank for other in rows) > 1
    return f"rank {row.rank}, GPU {row.device}" if several else f"rank {row.rank}"


def _gpus(rows: Sequence[RankRow]) -> int:
    """Count the GPUs: by UUID where it is known, since two ranks may share one."""
    return len({row.uuid or (row.host, row.rank, row.device) for row in rows})


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _caveats(manifest: Manifest, ranks: Sequence[RankRow]) -> Iterator[Caveat]:
    yield Caveat(
        "Each rank has its own clock: wall, busy and idle time are of one rank's trace, and which "
        "rank waits for which is not known.",
        (),
    )
    numbers = sorted(record.rank for record in manifest.ranks)
    missing = sorted(set(range(numbers[0], numbers[-1])) - set(numbers)) if numbers else []
    if missing:
        some = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
        yield Caveat(
            f"{len(numbers)} of the ranks {numbers[0]} to {numbers[-1]} are here; nothing is known "
            f"of {some}.",
            (),
        )
    kinds = sorted({row.gpu for row in ranks if row.gpu})
    if len(kinds) > 1:
        yield Caveat(f"The GPUs are of different kinds: {', '.join(kinds)}.", ())
    for row in ranks:
        if row.problem:
            yield Caveat(f"Rank {row.rank} ({row.file}) has no numbers: {row.problem}", ())
    yield from (Caveat(sentence, ()) for sentence in manifest.assumptions)
