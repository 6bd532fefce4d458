"""The report of a job: what is true of each rank and GPU, and of each kernel over the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.rank_tables import (
    RANK_BINS,
    RANK_COLLECTIVES,
    RANK_COUNTERS,
    RANK_KERNELS,
    RANK_STAGES,
    RANK_STEPS,
    RANK_TIMES,
    RANKS,
    alignment,
)
from nsight_prof.parsers.cells import Row, count, from_row, known, records, text
from nsight_prof.parsers.roofs.comm import TABLE as COMM_ROOFS
from nsight_prof.parsers.run.directory import Manifest, RunDir, read_manifest
from nsight_prof.reports.engine.rank_counters import (
    CALLS,
    CallRow,
    RankCounterRow,
    call_rows,
    call_table,
    rank_counter_row,
    rank_counter_tables,
)
from nsight_prof.reports.engine.rank_steps import (
    StageBalance,
    StepsView,
    balance_table,
    stage_balances,
    steps_view,
    time_chart,
)
from nsight_prof.reports.engine.rank_times import (
    CollectiveRow,
    LinkRoof,
    TimesRow,
    collective_chart,
    collective_row,
    collective_table,
    has_several,
    has_skewed_starts,
    link_roof,
    next_host,
    rank_name,
    roof_findings,
    straggler,
    times_row,
    times_table,
    waiting_findings,
)
from nsight_prof.reports.engine.step_costs import StepCost, communication, cost_table, step_costs
from nsight_prof.reports.page import (
    Bullets,
    Column,
    Figure,
    Finding,
    Name,
    Number,
    Ref,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
    units,
)
from nsight_prof.reports.page.charts import HeatFigure

MOST_RANKS, MOST_KERNELS = 128, 20
"""Rows of the page; the tables have all."""
UNEQUAL = 0.02
"""Part of the GPU time of a rank from which on a kernel's difference between ranks is a finding."""
COLLECTIVE = "collective"
"""Category of kernels whose time includes the wait for other ranks."""
NOT_ALIGNED = Text(
    "Clocks of ranks are not aligned, as the recipe asks: wall, busy and idle time are of one "
    "rank's trace, and which rank waits for which is not stated."
)
HOST_CLOCKS = Text(
    "Clocks are those of the hosts, as the recipe asks, which agree within about 1 ms where NTP "
    "keeps them; waiting is from durations alone."
)
NO_CLOCK = Text(
    "Each rank has its own clock, and no collectives by which these could be aligned: wall, busy "
    "and idle time are of one rank's trace, and which rank waits for which is not known."
)


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

    def number(self, column: str, unit: str = "ns") -> Number:
        """Return a field as a number of its row in table `ranks`."""
        ref = Ref("ranks", f"{self.rank} {self.device}", column)
        return Number(getattr(self, column), unit, (ref,), self.problem)


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

    @property
    def difference_ns(self) -> float:
        """The longest less the shortest time of a rank."""
        return (self.max_ns or 0.0) - (self.min_ns or 0.0)


@dataclass(frozen=True)
class JobView:
    """A job of several ranks. `rank_basis` says where the numbers of the ranks are from.

    `rank_count` is how many ranks have numbers, of the `rank_total` that should have.
    `rest_ranks` and `rest_kernels` are rows of the tables that the page does not show.
    `gpu_time_ns` is the sum over all GPUs of the job. `caveats` is what a reader must know.
    """

    title: str
    question: str
    run_id: str
    created: str
    rank_count: int
    rank_total: int
    rank_basis: str
    gpu_time_ns: float | None
    ranks: tuple[RankRow, ...]
    rest_ranks: int
    kernels: tuple[RankKernelRow, ...]
    rest_kernels: int
    times: tuple[TimesRow, ...]
    collectives: tuple[CollectiveRow, ...]
    calls: tuple[CallRow, ...]
    counters: tuple[RankCounterRow, ...]
    steps: StepsView | None
    step_costs: tuple[StepCost, ...]
    over_time: HeatFigure | None
    stages: tuple[StageBalance, ...]
    roofs: tuple[LinkRoof, ...]
    caveats: tuple[Text, ...]


def job_view(path: Path) -> JobView:
    """Return what the report of the job `path` shows, from its tables.

    Raises:
        UsageError: the folder is not a run directory.
        ArtifactUnreadable: a table cannot be read.
    """
    manifest, folder = read_manifest(RunDir(path)), RunDir(path).tables
    ranks = tuple(map(_rank, records(tables.read(folder, RANKS))))
    kernels = tuple(map(_kernel, records(tables.read(folder, RANK_KERNELS))))
    times = tuple(map(times_row, records(tables.read(folder, RANK_TIMES))))
    total = sum(row.kernel_ns or 0.0 for row in ranks)
    of_steps = tables.read(folder, RANK_STEPS)
    steps = steps_view(of_steps)
    return JobView(
        title=str(manifest.recipe.get("name", "")) or manifest.run_id,
        question=str(manifest.recipe.get("question", "")),
        run_id=manifest.run_id,
        created=manifest.created,
        rank_count=len({row.rank for row in ranks if not row.problem}),
        rank_total=len(_expected(manifest)),
        rank_basis=manifest.rank_basis,
        gpu_time_ns=total or None,
        ranks=ranks,
        rest_ranks=max(0, len(ranks) - MOST_RANKS),
        kernels=kernels[:MOST_KERNELS],
        rest_kernels=max(0, len(kernels) - MOST_KERNELS),
        times=times,
        collectives=tuple(map(collective_row, records(tables.read(folder, RANK_COLLECTIVES)))),
        calls=call_rows(tables.read(folder, CALLS)),
        counters=tuple(map(rank_counter_row, records(tables.read(folder, RANK_COUNTERS)))),
        steps=steps,
        step_costs=step_costs(of_steps, skewed=has_skewed_starts(times)),
        # Where ranks have no steps in common; of these, steps tell more than time.
        over_time=time_chart(tables.read(folder, RANK_BINS)) if steps is None else None,
        stages=stage_balances(tables.read(folder, RANK_STAGES)),
        roofs=tuple(map(link_roof, records(tables.read(folder, COMM_ROOFS).sort_values("bytes")))),
        caveats=tuple(_caveats(RunDir(path), manifest, ranks, times)),
    )


def _expected(manifest: Manifest) -> set[int]:
    """Return the ranks that should have numbers, as far as that is known."""
    traced = manifest.job.traced if manifest.job is not None else None
    return {record.rank for record in manifest.ranks} | set(traced or ())


def _rank(row: Row) -> RankRow:
    wall, idle = known(row["wall_ns"]), known(row["idle_ns"])
    share = idle / wall if wall and idle is not None else None
    return from_row(RankRow, row, busy_ns=known(row["gpu_busy_ns"]), idle_share=share)


def _kernel(row: Row) -> RankKernelRow:
    shortest, longest = known(row["min_ns"]), known(row["max_ns"])
    several = (count(row["ranks"]) or 0) > 1 and shortest and longest is not None
    spread = (longest or 0.0) / shortest - 1 if several and shortest else None
    return from_row(RankKernelRow, row, name=text(row["short_name"]), spread=spread)


def _caveats(
    job: RunDir, manifest: Manifest, ranks: Sequence[RankRow], times: Sequence[TimesRow]
) -> Iterator[Text]:
    if not any(row.collectives for row in times):
        yield NOT_ALIGNED if alignment(manifest) == "none" else NO_CLOCK
    elif alignment(manifest) == "epoch":
        yield HOST_CLOCKS
    numbers = sorted(record.rank for record in manifest.ranks)
    missing = sorted(set(range(numbers[0], numbers[-1])) - set(numbers)) if numbers else []
    if manifest.job is not None:
        yield from _job_caveats(manifest)
    elif missing:
        yield Text(
            "{n} of the ranks {first} to {last} are here; nothing is known of {missing}.",
            n=len(numbers),
            first=numbers[0],
            last=numbers[-1],
            missing=", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else ""),
        )
    kinds = sorted({row.gpu for row in ranks if row.gpu})
    if len(kinds) > 1:
        yield Text("The GPUs are of different kinds: {kinds}.", kinds=kinds)
    for row in ranks:
        if row.problem:
            yield Text(
                "Rank {rank}{file} has no numbers: {problem}",
                rank=row.rank,
                file=Text(" ({file})", file=Name(row.file)) if row.file else "",
                problem=Verbatim(row.problem),
            )
    yield from _not_counted(job, manifest)
    yield from (Text("{assumption}", assumption=Verbatim(a)) for a in manifest.assumptions)


def _not_counted(job: RunDir, manifest: Manifest) -> Iterator[Text]:
    """Say of which ranks counters were tried and are missing, or cut short, and why."""
    for record in manifest.ranks:
        if record.reason or not job.rank(record.rank).manifest_path.is_file():
            continue
        step = read_manifest(job.rank(record.rank)).step("counters")
        if step is not None and step.error:
            yield Text(
                "Counters of rank {rank}: {problem}",
                rank=record.rank,
                problem=Verbatim(step.error),
            )


def _job_caveats(manifest: Manifest) -> Iterator[Text]:
    """Say which ranks of a captured job left nothing, and how many were not to be traced."""
    expected, job = _expected(manifest), manifest.job
    absent = sorted(expected - {record.rank for record in manifest.ranks})
    if absent:
        yield Text(
            "Nothing is known of these ranks, which were to be traced: {missing}.",
            missing=", ".join(map(str, absent[:8])) + (", …" if len(absent) > 8 else ""),
        )
    if job is not None and job.size is not None and job.size > len(expected):
        yield Text(
            "{n} of the {size} ranks was traced; of the others nothing is stated.",
            "{n} of the {size} ranks were traced; of the others nothing is stated.",
            n=len(expected),
            size=job.size,
        )


def job_section(view: JobView) -> Section:
    """Return the page of a job: its findings, ranks and kernels."""
    bandwidths = collective_chart(view.collectives, view.roofs)
    return Section(
        "ranks",
        Text("Ranks and GPUs"),
        (
            *(tuple(_findings(view)) or (Text("No rank has numbers; the caveats say why."),)),
            *((cost_table(view.step_costs, MOST_RANKS),) if view.step_costs else ()),
            *((times_table(_page_rows(view.times)),) if view.times else ()),
            *(map(Figure, view.steps.charts) if view.steps is not None else ()),
            *((Figure(view.over_time),) if view.over_time is not None else ()),
            *((balance_table(view.stages),) if view.stages else ()),
            *((collective_table(view.collectives),) if view.collectives else ()),
            *((Figure(bandwidths),) if bandwidths is not None else ()),
            *((call_table(view.calls, several=has_several(view.times)),) if view.calls else ()),
            _rank_table(view),
            Text(
                "One rank in full, with its stages, idle causes and kernels: {command}.",
                command=Name(f"prof report RUN --rank {view.ranks[0].rank if view.ranks else 0}"),
            ),
            *((_kernel_table(view),) if view.kernels else ()),
            *rank_counter_tables(view.counters),
            _file_table(view),
            *((Bullets(Text("Caveats"), view.caveats),) if view.caveats else ()),
        ),
    )


def _page_rows(rows: Sequence[TimesRow]) -> Sequence[TimesRow]:
    """Return the rows of the page: the first ones, and the late rank."""
    slow = straggler(rows)
    return [*rows[:MOST_RANKS], *(row for row in rows[MOST_RANKS:] if row is slow)]


def communication_findings(view: JobView) -> Iterator[Finding]:
    """Yield what communication costs a step, where ranks have steps in common."""
    if view.steps is not None:
        bound = next_host(view.times)
        host = None if bound is None else bound.number("host_step_ns")
        yield from communication(view.step_costs, [view.steps.stage], host=host)


def known_ranks(view: JobView) -> Text:
    """Say how many ranks have numbers, where some have none."""
    return Text(
        "{known} of {n} rank has numbers; of the others nothing is stated.",
        "{known} of {n} ranks have numbers; of the others nothing is stated.",
        known=view.rank_count,
        n=view.rank_total,
    )


def _findings(view: JobView) -> Iterator[Finding]:
    if view.rank_count < view.rank_total:
        yield Finding("missing_ranks", known_ranks(view))
    yield from waiting_findings(view.times, view.steps)
    yield from communication_findings(view)
    yield from roof_findings(view.collectives)
    timed = [row for row in view.ranks if row.kernel_ns is not None]
    if not timed:
        return
    # By UUID where it is known, since two ranks may share a GPU.
    gpus = len({row.uuid or (row.host, row.rank, row.device) for row in timed})
    hosts = len({row.host for row in timed if row.host})
    yield Finding(
        "gpu_time",
        Text(
            "{ranks} gave work to {n} GPU{hosts}: {time} in kernels, {range} of each rank.",
            "{ranks} gave work to {n} GPUs{hosts}: {time} in kernels over all GPUs, {range} "
            "on each.",
            ranks=Text("{n} rank", "{n} ranks", n=len({row.rank for row in timed})),
            n=gpus,
            hosts=Text(" on {hosts} hosts", hosts=hosts) if hosts > 1 else "",
            time=Number(sum(row.kernel_ns or 0.0 for row in timed), "ns", digits=3),
            range=_range(timed, "kernel_ns", "ns"),
        ),
        disproof=Text("Its time includes the wait for other ranks.")
        if any(row.wait_ns for row in view.times)
        else None,
    )
    skewed = has_skewed_starts(view.times)
    idle = [row for row in (view.times if skewed else timed) if row.idle_share is not None]
    if idle:
        unused = [row for row in view.times if row.unused_share is not None]
        facts: dict[str, Value] = {
            "range": _range(idle, "idle_share", "fraction"),
            "apart": Text(", the wait in first collectives left out") if skewed else "",
        }
        verdict = Text(
            "The GPU is idle for {range} of the time between the first and the last work of its "
            "rank{apart}.",
            **facts,
        )
        if any(row.later_wait_ns for row in unused):
            verdict = Text(
                "The GPU is idle or waits for other ranks for {unused} of the time between the "
                "first and the last work of its rank{apart}; idle alone, without the waits, for "
                "{range}.",
                **facts,
                unused=_range(unused, "unused_share", "fraction"),
            )
        yield Finding("idle", verdict)
    yield from _most_unequal(view.kernels, timed)


def _most_unequal(kernels: Sequence[RankKernelRow], ranks: Sequence[RankRow]) -> Iterator[Finding]:
    """Yield the kernel whose time differs most between ranks, where that matters.

    Collectives are told of by their waits.
    """
    compared = [k for k in kernels if k.spread is not None and k.category != COLLECTIVE]
    kernel = max(compared, key=lambda k: k.difference_ns, default=None)
    shortest = min(row.kernel_ns or 0.0 for row in ranks)
    if kernel is None or kernel.difference_ns < UNEQUAL * shortest:
        return
    yield Finding(
        "unequal_ranks",
        Text(
            "{kernel} differs most between ranks: {shortest} on rank {fast}, {longest} on rank "
            "{slow}.",
            kernel=Name(kernel.name),
            shortest=Number(kernel.min_ns, "ns", digits=3),
            fast=kernel.min_rank or 0,
            longest=Number(kernel.max_ns, "ns", digits=3),
            slow=kernel.max_rank or 0,
        ),
    )


def _range(rows: Sequence[RankRow | TimesRow], column: str, unit: str) -> Value:
    """Return the smallest and the largest value, and whose they are."""
    low, high = (
        pick(rows, key=lambda row: getattr(row, column) or 0.0) for pick in (min, max)
    )  # fmt: skip
    first, last = (row.number(column, unit).at_digits(3) for row in (low, high))
    if units.quantity(first.value or 0.0, unit, 3) == units.quantity(last.value or 0.0, unit, 3):
        return first
    several = has_several(rows)
    return Text(
        "{low} ({low_place}) to {high} ({high_place})",
        low=first,
        low_place=rank_name(low.rank, low.device, several=several),
        high=last,
        high_place=rank_name(high.rank, high.device, several=several),
    )


def _rank_table(view: JobView) -> Table[RankRow]:
    def gpu(row: RankRow) -> Value | None:
        return None if row.device is None else Verbatim(f"{row.device}: {row.gpu or '?'}")

    def time(heading: Text, column: str) -> Column[RankRow]:
        return Column(heading, lambda row: row.number(column))

    several = has_several(view.ranks)
    return Table(
        "ranks",
        Text("Each rank and its GPUs"),
        [
            Column(Text("Rank"), lambda row: row.rank),
            Column(Text("Host"), lambda row: row.host or None),
            Column(Text("Process"), lambda row: row.pids or None),
            Column(Text("GPU"), gpu),
            Column(Text("Launches"), lambda row: row.launches),
            time(Text("Wall time"), "wall_ns"),
            time(Text("Busy"), "busy_ns"),
            time(Text("Idle time"), "idle_ns"),
            Column(Text("Idle"), lambda row: row.number("idle_share", "fraction")),
            time(Text("Kernels"), "kernel_ns"),
            time(Text("Copies and sets"), "memory_ns"),
        ],
        view.ranks[:MOST_RANKS],
        lead=Text(
            "Wall time is from the first to the last work of the rank, on whichever of its GPUs, "
            "by the clock of its own trace. Busy: at least one kernel, copy or memory set ran. "
            "Kernels and copies of several streams overlap, so that their times may add up to more "
            "than the busy time. The numbers of the ranks are from {basis}.",
            basis=Verbatim(view.rank_basis),
        ),
        note=Text("{n} further rows in tables/ranks.csv.", n=view.rest_ranks)
        if view.rest_ranks
        else None,
        refs=lambda row: row.number("rank", "").refs,
        called=lambda row: rank_name(row.rank, row.device, several=several),
    )


def _file_table(view: JobView) -> Table[RankRow]:
    return Table(
        "rank-files",
        Text("Files and GPU identifiers"),
        [
            Column(Text("Rank"), lambda row: row.rank),
            Column(Text("File"), lambda row: row.file),
            Column(Text("GPU UUID"), lambda row: row.uuid or None),
        ],
        view.ranks[:MOST_RANKS],
        folded=True,
    )


def _kernel_table(view: JobView) -> Table[RankKernelRow]:
    def on_rank(heading: Text, time: str, rank: str) -> Column[RankKernelRow]:
        def cell(row: RankKernelRow) -> Value:
            duration = Number(getattr(row, time), "ns", digits=3)
            return Text("{time} (rank {rank})", time=duration, rank=getattr(row, rank) or 0)

        return Column(heading, cell)

    return Table(
        "rank-kernels",
        Text("Kernels over the ranks"),
        [
            Column(Text("Kernel"), lambda row: Name(row.name)),
            Column(Text("Grid"), lambda row: row.grid or None),
            Column(Text("Category"), lambda row: row.category),
            Column(Text("Ranks"), lambda row: row.ranks),
            Column(Text("Launches"), lambda row: row.calls),
            Column(Text("GPU time of all ranks"), lambda row: Number(row.total_ns, "ns")),
            Column(Text("Share"), lambda row: Number(row.share, "fraction")),
            on_rank(Text("Shortest"), "min_ns", "min_rank"),
            Column(Text("Median"), lambda row: Number(row.median_ns, "ns")),
            on_rank(Text("Longest"), "max_ns", "max_rank"),
            Column(
                Text("Spread"),
                lambda row: None if row.category == COLLECTIVE else Number(row.spread, "fraction"),
            ),
        ],
        view.kernels,
        note=Text(
            "The time of a kernel on a rank is the sum of all its launches there. Spread: the "
            "longest over the shortest, less one; not of collectives, whose times hold the wait "
            "for other ranks.{rest}",
            rest=Text(" {n} further kernels in tables/rank_kernels.csv.", n=view.rest_kernels)
            if view.rest_kernels
            else "",
        ),
    )
