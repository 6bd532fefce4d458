"""Tables of what limits the kernels: roofs, rooflines, occupancy, and what each could save."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from nsight_prof.parsers.build.roofline import LEVELS
from nsight_prof.reports.analysis.models import RoofComparison
from nsight_prof.reports.analysis.stages import ALL
from nsight_prof.reports.findings.model import BoundShare
from nsight_prof.reports.page import Column, Number, Table, Text, Value, Word
from nsight_prof.reports.page.charts import Roof
from nsight_prof.reports.page.formats import brief
from nsight_prof.reports.page.section import Footer
from nsight_prof.reports.page.values import Words
from nsight_prof.reports.profile.links import Links
from nsight_prof.reports.profile.shown_rows import row_anchor
from nsight_prof.reports.profile.tables.time import (
    NO_TITLE,
    kernel_link,
    number_column,
    numbered,
    share,
    share_or_none,
    time,
)
from nsight_prof.reports.profile.view_models import GemmRow, KernelRow, LevelFigures, ReportView


def kernel_columns() -> list[Column[KernelRow]]:
    """Return the number and the name of a kernel."""
    return [number_column(), Column(Text("Kernel"), lambda k: brief(k.short_name))]


def explained(value: float | None, unit: str, kernel: KernelRow, column: str) -> Number:
    """Return a number of a kernel, or why its counters do not have it."""
    reasons = (gap.reason for gap in kernel.missing if gap.column == column)
    return Number(value, unit, missing=next(reasons, ""))


def explained_word(word: str, kernel: KernelRow, column: str) -> Value:
    """Return a word about a kernel, or why its counters do not tell it."""
    return Word(word) if word else explained(None, "", kernel, column)


def limit(kernel: KernelRow) -> Value:
    """Return what limits a kernel; of one whose launches differ, one launch."""
    label = explained_word(kernel.bound_label, kernel, "bound_by")
    of_one = Text("(of one launch)")
    return (
        Text("{limit} {of_one}", limit=label, of_one=of_one)
        if kernel.mixed and kernel.bound_label
        else label
    )


def bounds(rows: Sequence[BoundShare], links: Links | None = None) -> Table[BoundShare]:
    """Return the time by what limits it; with `links` also ids."""
    columns: list[Column[BoundShare]] = [
        Column(Text("Stage"), lambda row: Text("whole run") if row.stage == ALL else row.stage),
        Column(Text("Limited by"), lambda row: Word(row.label)),
        Column(Text("Type"), lambda row: row.dtype or None),
        Column(
            Text("Kernels"),
            lambda row: Number(row.kernels, "count") if row.kernels else None,
            right=True,
        ),
        Column(Text("Of the GPU time"), lambda row: share_or_none(row.share), right=True),
        Column(Text("Of the wall time"), lambda row: share(row.of_wall)),
        Column(Text("Of its roof"), lambda row: share_or_none(row.reached), right=True),
        Column(
            Text("Could save, of the GPU time"), lambda row: share_or_none(row.gain), right=True
        ),
    ]
    ids = (
        None
        if links is None
        else lambda row: links.wanted_id(row_anchor("limit", row.stage, row.bound, row.dtype))
    )
    return Table("bounds", NO_TITLE, columns, rows, ids=ids)


def peaks(view: ReportView) -> Table[KernelRow]:
    """Return the per cent of the peaks that each kernel reached."""

    def level(name: str, heading: Text) -> Column[KernelRow]:
        def figures(kernel: KernelRow) -> LevelFigures:
            found: LevelFigures = getattr(kernel, name)
            return found

        def cell(kernel: KernelRow) -> Value:
            fraction = explained(figures(kernel).pct, "%", kernel, f"{name}_pct")
            if figures(kernel).throughput is None:
                return fraction
            rate = Number(figures(kernel).throughput, "B/s")
            return Text("{part} ({rate})", part=fraction, rate=rate)

        return Column(heading, cell, sort=lambda kernel: figures(kernel).pct, right=True)

    def tensor(kernel: KernelRow) -> Value | None:
        return (
            None
            if kernel.matrix_work is False
            else explained(kernel.tensor_pct, "%", kernel, "tensor_pct")
        )

    columns: list[Column[KernelRow]] = [
        *kernel_columns(),
        level("dram", Text("DRAM")),
        level("l2", Text("L2")),
        level("l1", Text("L1")),
        Column(Text("Tensor Cores"), tensor, right=True),
        Column(Text("SM clock"), lambda k: explained(k.sm_clock_hz, "Hz", k, "sm_clock_hz")),
    ]
    cells: list[Value | None] = ["", Text("mean, weighted by GPU time")]
    cells += [Number(view.mean(attrgetter(f"{name}.pct")), "%") for name in LEVELS]
    cells += [Number(view.tensor_pct, "%"), Number(view.sm_clock_hz, "Hz")]
    mean = None if view.sm_clock_hz is None else Footer(cells, "peaks-mean")
    rows = [kernel for kernel in view.kernels if kernel.profiled]
    return Table("peaks", NO_TITLE, columns, rows, footer=mean, footnotes=True)


def could_save(view: ReportView, links: Links) -> Table[KernelRow]:
    """Return what each kernel could save at most, and all together."""
    columns: list[Column[KernelRow]] = [
        *kernel_columns(),
        Column(Text("Limited by"), limit),
        Column(Text("Of its roof"), lambda k: share(k.roof_share)),
        Column(Text("Cause"), lambda k: k.bound_cause.replace("_", " ") or None),
        Column(Text("Of its own time"), lambda k: share(k.gain)),
        Column(Text("Could save"), lambda k: time(k.gain_ns)),
        Column(Text("Of the GPU time"), lambda k: share(k.gain_program)),
    ]
    cells: list[Value | None] = ["", Text("all together"), "", "", "", ""]
    cells += [time(view.saved_ns), share(view.saved_share)]
    total = None if view.saved_ns is None else Footer(cells, links.wanted_id("could-save-all"))
    rows = [kernel for kernel in view.kernels if kernel.profiled and kernel.gain is not None]
    return Table("could-save", NO_TITLE, columns, rows, footer=total,
                 ids=lambda kernel: f"could-save-{kernel.number}")  # fmt: skip


def rooflines(view: ReportView) -> Table[KernelRow]:
    """Return what places each kernel on the rooflines."""

    def intensity(name: str, heading: Text) -> Column[KernelRow]:
        return Column(
            heading, lambda k: explained(getattr(k, name).intensity, "", k, f"intensity_{name}")
        )

    columns: list[Column[KernelRow]] = [
        *kernel_columns(),
        Column(Text("Limited by"), limit, right=False),
        Column(Text("Of its roof"), lambda k: explained(k.roof_share, "fraction", k, "roof_share")),
        Column(
            Text("FLOP/s"), lambda k: explained(k.flop_throughput, "FLOP/s", k, "flop_throughput")
        ),
        intensity("dram", Text("FLOP/B DRAM")),
        intensity("l2", Text("FLOP/B L2")),
        intensity("l1", Text("FLOP/B L1")),
    ]
    rows = [kernel for kernel in view.kernels if kernel.profiled]
    return Table("rooflines", NO_TITLE, columns, rows, footnotes=True)


def occupancy(view: ReportView) -> Table[KernelRow]:
    """Return occupancy, what limits it, and what warps wait for most."""

    def per_cent(heading: Text, column: str) -> Column[KernelRow]:
        return Column(heading, lambda k: explained(getattr(k, column), "%", k, column))

    columns: list[Column[KernelRow]] = [
        *kernel_columns(),
        per_cent(Text("Achieved"), "achieved_occupancy_pct"),
        per_cent(Text("Theoretical"), "theoretical_occupancy_pct"),
        Column(
            Text("Limited by"),
            lambda k: explained_word(k.occupancy_limiter, k, "occupancy_limiter"),
            right=False,
        ),
        Column(Text("Waves"), lambda k: explained(k.waves, "", k, "waves")),
        Column(
            Text("Largest stall"),
            lambda k: explained_word(k.top_stall.replace("_", " "), k, "top_stall"),
            right=False,
        ),
    ]
    rows = [kernel for kernel in view.kernels if kernel.profiled]
    return Table("occupancy", NO_TITLE, columns, rows, footnotes=True)


def stall_reasons(view: ReportView) -> Table[tuple[str, Words]]:
    """Return what each stall reason means."""
    columns: list[Column[tuple[str, Words]]] = [
        Column(Text("Reason"), lambda row: row[0].replace("_", " ")),
        Column(Text("Meaning"), lambda row: row[1]),
    ]
    rows = list(zip(view.stalls.reasons, view.stalls.meanings, strict=True))
    return Table("stall-reasons", NO_TITLE, columns, rows)


def roofs_by_source(comparison: Sequence[RoofComparison]) -> Table[RoofComparison]:
    """Return each roof from counters and datasheet, and as measured where one was."""

    def value(heading: Text, source: str) -> Column[RoofComparison]:
        def cell(roof: RoofComparison) -> Value | None:
            found: float | None = getattr(roof, source)
            return None if found is None else Number(found, roof.unit)

        return Column(heading, cell, right=True)

    def clock(source: str) -> Column[RoofComparison]:
        def cell(roof: RoofComparison) -> Value | None:
            found: float | None = getattr(roof, f"{source}_clock_hz")
            return None if found is None else Number(found, "Hz")

        return Column(Text("at clock"), cell, right=True)

    label: Column[RoofComparison] = Column(Text("Roof"), lambda roof: Word(roof.label))
    counters = value(Text("From counters"), "counters"), clock("counters")
    datasheet = value(Text("Datasheet"), "datasheet")
    columns = [label, *counters, datasheet]
    if any(roof.measured is not None for roof in comparison):
        columns = [
            *(label, value(Text("Measured"), "measured"), clock("measured")),
            *(*counters, datasheet),
            Column(
                Text("Measured of counters"), lambda r: share_or_none(r.of_counters), right=True
            ),
            Column(
                Text("Measured of datasheet"), lambda r: share_or_none(r.of_datasheet), right=True
            ),
        ]
    return Table("roofs-by-source", NO_TITLE, columns, comparison)


def roofs(view: ReportView) -> Table[Roof]:
    """Return how each roof came about."""
    columns: list[Column[Roof]] = [
        Column(Text("Roof"), lambda roof: Word(roof.label)),
        Column(Text("Value"), lambda roof: Number(roof.value, roof.unit)),
        Column(Text("From"), lambda roof: Word(roof.source)),
        Column(Text("Clock"), lambda roof: Number(roof.clock_hz, "Hz")),
        Column(Text("How"), lambda roof: roof.detail or None),
    ]
    return Table("roofs", NO_TITLE, columns, view.roofs,
                 ids=lambda roof: row_anchor("roof", f"{roof.label} {roof.source}"))  # fmt: skip


def products(view: ReportView, links: Links) -> Table[tuple[int, GemmRow]]:
    """Return matrix products of known size: operations counted over those needed."""
    columns: list[Column[tuple[int, GemmRow]]] = [
        Column(Text("Product"), lambda row: row[1].name),
        Column(Text("Stage"), lambda row: row[1].stage or None),
        Column(Text("M x N x K"), lambda row: f"{row[1].m} x {row[1].n} x {row[1].k}"),
        Column(
            Text("Kernel"),
            lambda row: kernel_link(row[1].kernel),
            sort=lambda row: row[1].kernel,
            right=True,
        ),
        Column(Text("Tile"), lambda row: row[1].tile or None),
        Column(Text("Counted"), lambda row: Number(row[1].counted_flops, "FLOP")),
        Column(Text("Needed"), lambda row: Number(row[1].useful_flops, "FLOP")),
        Column(Text("Ratio"), lambda row: Number(row[1].ratio), digits=5),
        Column(Text(""), lambda row: Word(row[1].reason) if row[1].reason else None),
    ]
    return numbered("product", columns, view.gemms, links)
