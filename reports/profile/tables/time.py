"""Tables of where the time goes: kernels, kinds, stages, idle time, copies and calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from nsight_prof.reports.analysis.stages import ALL
from nsight_prof.reports.page import Column, Link, Number, Series, Table, Text, Value, Word, formats
from nsight_prof.reports.page.formats import NA
from nsight_prof.reports.page.section import Footer
from nsight_prof.reports.profile.links import Links
from nsight_prof.reports.profile.shown_rows import IDLE, row_anchor
from nsight_prof.reports.profile.time_models import (
    HostCost,
    IdleRow,
    KindRow,
    KindTable,
    OperationRow,
    StageKernel,
    StageRow,
    StepTimes,
)
from nsight_prof.reports.profile.view_models import GpuTime, KernelRow, ReportView

T = TypeVar("T")
NO_TITLE = Text("")
"""Of tables below a heading of the template."""
MEASURED = ("trace", "counters")
"""Steps that the report of a program rests on."""


def kernel_link(number: int | None) -> Link | None:
    """Return the number of a kernel, which leads to all that is known of it."""
    return None if number is None else Link(str(number), f"kernel-{number}")


def kernel_links(numbers: Sequence[int], limit: int | None = None) -> Series:
    """Return numbers of kernels as links, the first `limit` of them."""
    return Series(
        [Link(str(n), f"kernel-{n}") for n in numbers[:limit]], len(numbers[:limit]) < len(numbers)
    )


def number_column() -> Column[KernelRow]:
    """Return the column of the numbers of kernels."""
    return Column(Text("#"), lambda k: kernel_link(k.number), sort=lambda k: k.number, right=True)


def count(value: float | None) -> Number:
    """Return a number of things."""
    return Number(value, "count")


def time(value: float | None) -> Number:
    """Return a time in ns."""
    return Number(value, "ns")


def share(value: float | None) -> Number:
    """Return a part of 1."""
    return Number(value, "fraction")


COLLECTIVE = "collective"


def share_or_none(value: float | None) -> Number | None:
    """Return a part of 1, or nothing where it does not apply."""
    return None if value is None else share(value)


def spread(low: Value, high: Value) -> Text:
    """Return the ends of a range; once if they are the same."""
    return Text("{low} to {high}", low=low, high=high)


def of_gpus(view: ReportView, heading: Text) -> Text:
    """Return a heading that says of how many GPUs a time is the sum."""
    if view.working_gpus < 2:
        return heading
    gpus = Text("(sum of {n} GPUs)", n=view.working_gpus)
    return Text("{heading} {gpus}", heading=heading, gpus=gpus)


def kernels(
    view: ReportView, rows: Sequence[KernelRow], links: Links | None = None
) -> Table[KernelRow]:
    """Return kernels by their time; with `links` also ids, and a row for what is left out."""

    def median(kernel: KernelRow) -> Value:
        value = time(kernel.median_ns)
        if not kernel.mixed:
            return value
        ends = spread(time(kernel.min_ns), time(kernel.max_ns))
        if kernel.category == COLLECTIVE:  # messages of several sizes have no median in common
            return ends
        return Text("{median} ({range})", median=value, range=ends)

    def limited(kernel: KernelRow) -> Value | None:
        label = Word(kernel.bound_label)
        of_roof = Text("{limit} ({part})", limit=label, part=share(kernel.roof_share))
        return (label if kernel.roof_share is None else of_roof) if kernel.bound_label else None

    rest = None
    if links is not None and view.rest_kernels:
        left_out = Text("{n} further kernel", "{n} further kernels", n=view.rest_kernels)
        rest = Footer(["", left_out, "", "", share(view.rest_share), "", "", ""])
    of_trace: list[Column[KernelRow]] = [
        Column(Text("Launches"), lambda k: count(k.calls)),
        Column(Text("Share"), lambda k: share(k.share)),
        Column(Text("Total"), lambda k: time(k.total_ns)),
        Column(Text("Median"), median, sort=lambda k: k.median_ns, right=True),
    ]
    of_launch = Column[KernelRow](Text("Profiled launch"), lambda k: time(k.ncu_duration_ns))
    columns: list[Column[KernelRow]] = [
        number_column(),
        Column(Text("Kernel"), lambda k: k.short_name),
        Column(Text("Category"), lambda k: Word(k.category)),
        *([of_launch] if view.gpu_time_ns is None else of_trace),
        Column(Text("Limited by (of its roof)"), limited, sort=lambda k: k.roof_share),
    ]
    ids = None if links is None else lambda k: links.wanted_id(f"kernels-{k.number}")
    return Table("kernels", NO_TITLE, columns, rows, ids=ids, footer=rest)


def kernel_shapes(view: ReportView) -> Table[KernelRow]:
    """Return library, type, tile, grid and stages of each kernel."""

    def stages(kernel: KernelRow) -> Value | None:
        return Series(kernel.stages[:4], len(kernel.stages) > 4) if kernel.stages else None

    columns: list[Column[KernelRow]] = [
        number_column(),
        Column(Text("Library"), lambda k: k.library or None),
        Column(Text("Category"), lambda k: Word(k.category)),
        Column(Text("Type"), lambda k: k.dtype or None),
        Column(Text("Tile"), lambda k: k.tile or None),
        Column(Text("Grid"), lambda k: k.grid or NA),
        Column(Text("Block"), lambda k: k.block or NA),
        Column(Text("Stages"), stages),
    ]
    return Table("kernel-shapes", NO_TITLE, columns, view.kernels)


def kinds(
    view: ReportView, table: KindTable, rows: Sequence[KindRow], *, ids: bool
) -> Table[KindRow]:
    """Return GPU time by kind of kernel and stage, and the sum of all kinds."""

    def in_stage(index: int) -> Column[KindRow]:
        stage = Text("In {stage}", stage=table.stages[index])
        return Column(stage, lambda row: time(row.by_stage[index]))

    places = {kernel.kernel_id: kernel.number for kernel in view.kernels}

    def largest(row: KindRow) -> Series:
        return kernel_links([places[key] for key in row.kernel_ids if key in places], 3)

    columns: list[Column[KindRow]] = [
        Column(Text("Kind"), lambda row: Word(row.kind)),
        Column(Text("Category"), lambda row: Series(row.categories)),
        Column(Text("Kernels"), lambda row: count(row.kernels)),
        Column(Text("The largest"), largest),
        Column(Text("Launches"), lambda row: count(row.launches)),
        Column(of_gpus(view, Text("GPU time")), lambda row: time(row.total_ns)),
        Column(Text("Share"), lambda row: share(row.share)),
        *map(in_stage, range(len(table.stages))),
    ]
    cells: list[Value | None] = [column.cell(table.total) for column in columns]
    total = Footer(["", Text("all"), *cells[2:]], "kind-all" if ids else "")
    numbers = {row.kind: number for number, row in enumerate(table.rows, 1)}
    row_id = (lambda row: f"kind-{numbers[row.kind]}") if ids else None
    return Table("kinds", NO_TITLE, columns, rows, ids=row_id, footer=total)


def stage_name(stage: str | Text) -> Value:
    """Return the name of a stage in a table."""
    return Text("whole capture") if stage == ALL else stage


def stages(view: ReportView, rows: Sequence[StageRow], *, ids: bool) -> Table[StageRow]:
    """Return the stages with their GPU, wall and idle time."""
    columns: list[Column[StageRow]] = [
        Column(Text("Stage"), lambda row: stage_name(row.stage)),
        Column(Text("Times run"), lambda row: count(row.instances)),
        Column(Text("Launches"), lambda row: count(row.launches)),
        Column(of_gpus(view, Text("GPU time")), lambda row: time(row.kernel_ns)),
        Column(Text("Share"), lambda row: share(row.share)),
        Column(Text("Wall time"), lambda row: time(row.wall_ns)),
        Column(Text("Idle time"), lambda row: time(row.idle_ns)),
        Column(Text("Idle"), lambda row: share(row.idle_share)),
    ]
    row_id = (lambda row: row_anchor("stage", row.stage)) if ids else None
    return Table("stages", NO_TITLE, columns, rows, ids=row_id)


def stage_kernels(stage: StageRow) -> Table[StageKernel]:
    """Return the largest kernels of a stage."""
    columns: list[Column[StageKernel]] = [
        Column(Text("#"), lambda k: kernel_link(k.number), sort=lambda k: k.number, right=True),
        Column(Text("Kernel"), lambda k: k.short_name),
        Column(Text("Launches"), lambda k: count(k.calls)),
        Column(Text("Time"), lambda k: time(k.total_ns)),
        Column(Text("Share of the stage"), lambda k: share(k.share)),
    ]
    return Table("stage-kernels", NO_TITLE, columns, stage.top)


def idle(rows: Sequence[IdleRow], *, ids: bool) -> Table[IdleRow]:
    """Return idle time by stage and cause."""
    columns: list[Column[IdleRow]] = [
        Column(Text("Stage"), lambda row: stage_name(row.stage or Text("outside of the stages"))),
        Column(Text("Cause"), lambda row: Word(row.cause)),
        Column(Text("Gaps"), lambda row: count(row.gaps)),
        Column(Text("Call came late"), lambda row: count(row.late_calls)),
        Column(Text("Idle time"), lambda row: time(row.idle_ns)),
        Column(Text("Before the call"), lambda row: time(row.before_call_ns)),
        Column(Text("In the call"), lambda row: time(row.in_call_ns)),
        Column(Text("Of its wall time"), lambda row: share_or_none(row.of_wall), right=True),
        Column(Text("Longest gap"), lambda row: time(row.longest_ns)),
    ]
    row_id = (lambda row: row_anchor(IDLE, row.stage, row.cause)) if ids else None
    return Table("idle", NO_TITLE, columns, rows, ids=row_id)


def steps_by_start(rows: Sequence[StepTimes]) -> Table[StepTimes]:
    """Return steps that were queued ahead of the GPU apart from those that wait for the host."""
    columns: list[Column[StepTimes]] = [
        Column(Text("Stage"), lambda row: stage_name(row.stage)),
        Column(Text("Its steps"), lambda row: row.how),
        Column(Text("Steps"), lambda row: count(row.steps)),
        Column(Text("From step"), lambda row: count(row.first)),
        Column(Text("Per step, median"), lambda row: row.median),
        Column(Text("From the shortest to the longest"), lambda row: row.ends, right=True),
    ]
    return Table("steps-by-start", NO_TITLE, columns, rows)


def numbered(
    key: str, columns: Sequence[Column[tuple[int, T]]], rows: Sequence[T], links: Links
) -> Table[tuple[int, T]]:
    """Return a table whose rows have the ids "key-1", "key-2", …"""
    pairs = list(enumerate(rows, 1))
    return Table(f"{key}s", NO_TITLE, columns, pairs,
                 ids=lambda row: links.wanted_id(f"{key}-{row[0]}"))  # fmt: skip


def operations(view: ReportView, links: Links) -> Table[tuple[int, OperationRow]]:
    """Return copies and memory sets on the GPU."""
    columns: list[Column[tuple[int, OperationRow]]] = [
        Column(Text("On the GPU"), lambda row: row[1].name),
        Column(Text("Times"), lambda row: count(row[1].calls)),
        Column(Text("Bytes"), lambda row: Number(row[1].bytes, "B")),
        Column(of_gpus(view, Text("GPU time")), lambda row: time(row[1].total_ns)),
    ]
    return numbered("operation", columns, view.memory_operations, links)


def api_calls(view: ReportView, links: Links) -> Table[tuple[int, OperationRow]]:
    """Return calls of the CUDA API on the host."""
    columns: list[Column[tuple[int, OperationRow]]] = [
        Column(Text("On the host, all threads"), lambda row: row[1].name),
        Column(Text("Calls"), lambda row: count(row[1].calls)),
        Column(Text("Time in the call"), lambda row: time(row[1].total_ns)),
    ]
    return numbered("api-call", columns, view.api_calls, links)


def host_costs(view: ReportView, links: Links) -> Table[tuple[int, HostCost]]:
    """Return what calls cost without a profiler."""
    columns: list[Column[tuple[int, HostCost]]] = [
        Column(Text("Measured without a profiler"), lambda row: Word(row[1].name)),
        Column(Text("Case"), lambda row: row[1].case),
        Column(Text("Time"), lambda row: time(row[1].time_ns)),
    ]
    return numbered("host-cost", columns, view.host_costs, links)


def gpus(view: ReportView) -> Table[GpuTime]:
    """Return how each of several GPUs spent the run."""

    def name(gpu: GpuTime) -> Value:
        number = str(gpu.gpu)
        return Text("{number} ({name})", number=number, name=gpu.name) if gpu.name else number

    columns: list[Column[GpuTime]] = [
        Column(Text("GPU"), name, sort=lambda gpu: gpu.gpu, right=True),
        Column(Text("Processes"), lambda gpu: count(gpu.processes)),
        Column(Text("Launches"), lambda gpu: count(gpu.launches)),
        Column(Text("GPU time"), lambda gpu: time(gpu.gpu_time_ns)),
        Column(Text("Busy"), lambda gpu: time(gpu.busy_ns)),
        Column(Text("Only copies"), lambda gpu: time(gpu.copies_alone_ns)),
        Column(Text("Copies, summed"), lambda gpu: time(gpu.copies_ns)),
        Column(Text("Wall time"), lambda gpu: time(gpu.wall_ns)),
        Column(Text("Idle time"), lambda gpu: time(gpu.idle_ns)),
        Column(Text("Idle"), lambda gpu: share(gpu.idle_share)),
    ]
    return Table("gpus", NO_TITLE, columns, view.gpus, ids=lambda gpu: f"gpu-{gpu.gpu}")


def whole_run(view: ReportView, links: Links) -> Table[ReportView]:
    """Return the run in one row."""

    def idle_share(row: ReportView) -> Value:
        if not row.idle_range:
            return share(row.idle_share)
        low, high = map(share, row.idle_range)
        return low if formats.share(low.value) == formats.share(high.value) else spread(low, high)

    def rests_on(row: ReportView) -> Value:
        """Return the steps whose files hold what was measured, else what was."""
        steps = [step.link for step in row.method.commands if step.folder and step.step in MEASURED]
        return Series(steps) if steps else Word(row.tier)

    dram = Number(view.mean(lambda kernel: kernel.dram.pct), "%")
    used: tuple[Column[ReportView], ...] = (
        Column(Text("DRAM peak used in kernels"), lambda _: dram),
        Column(Text("Tensor Cores used in kernels"), lambda row: Number(row.tensor_pct, "%")),
    )
    idle_heading = Text("GPU idle")
    if view.working_gpus > 1:
        idle_heading = Text("GPU idle (each of {n} GPUs)", n=view.working_gpus)
    profiled = Text(
        "{n} of {total} profiled", n=view.method.profiled_kernels, total=view.method.total_kernels
    )
    columns: list[Column[ReportView]] = [
        Column(of_gpus(view, Text("GPU time in kernels")), lambda row: time(row.gpu_time_ns)),
        Column(Text("Wall time"), lambda row: time(row.wall_ns)),
        Column(idle_heading, idle_share, right=True),
        *(used if dram.value is not None else ()),
        Column(Text("Time with counters"), lambda row: share(row.profiled_share)),
        Column(Text("Kernels"), lambda row: profiled, right=True),
        Column(Text("Rests on"), rests_on),
    ]
    if view.gpu_time_ns is None:
        columns = columns[-2:]  # without a trace no time is known
    row_id = links.wanted_id("whole-run")
    return Table("whole-run", NO_TITLE, columns, [view], ids=lambda _: row_id, cards=True)
