"""Tables of one kernel, and of how a run was measured."""

from __future__ import annotations

from collections.abc import Sequence

from nsight_prof.reports.page import (
    Column,
    Name,
    Number,
    Series,
    Strong,
    Table,
    Text,
    Value,
    Verbatim,
    Word,
)
from nsight_prof.reports.page.formats import NA, difference, exact, quantity, shorten
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.caveats import label
from nsight_prof.reports.profile.links import Links
from nsight_prof.reports.profile.provenance import Provenance, RawCounter, Traced
from nsight_prof.reports.profile.tables.time import NO_TITLE, count, share, spread, time
from nsight_prof.reports.profile.view_models import (
    CounterFileRow,
    FailedJoin,
    GlossaryEntry,
    KernelRow,
    LeftOut,
    ReportView,
)

CHARACTERS = 80
"""Of the name of a kernel that was not found."""


def pairs(rows: Sequence[tuple[Value, Value, str]]) -> Table[tuple[Value, Value, str]]:
    """Return a table without headings: what each is, its value, and the id of the row."""
    columns: list[Column[tuple[Value, Value, str]]] = [
        Column(Text(""), lambda row: row[0], right=False),
        Column(Text(""), lambda row: row[1], right=False),
    ]
    return Table("pairs", NO_TITLE, columns, rows, ids=lambda row: row[2])


def kernel(kernel: KernelRow, links: Links) -> Table[tuple[Value, Value, str]]:
    """Return what is known of a kernel."""

    def listed(*texts: Value) -> Series:
        return Series([text or NA for text in texts])

    def row_id(row: str) -> str:
        return links.wanted_id(f"kernel-{kernel.number}-{row}")

    sizes = listed(kernel.grid, kernel.block)
    kind = listed(kernel.library, kernel.category, kernel.dtype, kernel.tile)
    durations = _durations(kernel)
    total: Value = NA
    if kernel.calls is not None:
        total = Series([count(kernel.calls), time(kernel.total_ns)])
    rows: list[tuple[Value, Value, str]] = [
        (Text("Kernel id"), Name(kernel.kernel_id), ""),
        (Text("Grid, block"), sizes if kernel.grid or kernel.block else NA, row_id("grid")),
        (Text("Library, category, type, tile"), kind, ""),
        (Text("Stages"), Series(kernel.stages) if kernel.stages else NA, ""),
        (Text("Launches, total (nsys)"), total, row_id("total_ns")),
        (Text("Duration: median, mean, min to max (nsys)"), durations, row_id("median_ns")),
    ]  # fmt: skip
    if kernel.mixed:
        mixed = Text("Its launches do different amounts of work: one launch does not stand for all")
        rows.append((Text("Mixed work"), mixed, ""))
    if kernel.profiled:
        rows.append((Text("Duration under ncu"), _under_ncu(kernel), row_id("ncu_duration_ns")))
        rows.append((Text("Limited by"), _limit(kernel), row_id("roof_share")))
    for gap in kernel.missing:
        column, reason = Word(label(gap.column)), Word(gap.reason)
        words = Text("{column}: {reason}", column=column, reason=reason)
        rows.append((Text("Not available"), words, ""))
    return pairs(rows)


def _durations(kernel: KernelRow) -> Value:
    if kernel.mean_ns is None:
        return NA
    ends: Value = spread(time(kernel.min_ns), time(kernel.max_ns))
    if kernel.std_ns is not None:
        deviation = Text("(standard deviation {time})", time=time(kernel.std_ns))
        ends = Text("{range} {deviation}", range=ends, deviation=deviation)
    return Series([time(kernel.median_ns), time(kernel.mean_ns), ends])


def _under_ncu(kernel: KernelRow) -> Value:
    duration: Value = time(kernel.ncu_duration_ns)
    if kernel.duration_difference is not None:
        change = Verbatim(difference(kernel.duration_difference))
        duration = Series([duration, Text("{change} against the median", change=change)])
    if not kernel.duration_flagged:
        return duration
    flag = Strong(Text("differs more than it should"))
    return Text("{duration} ({flag})", duration=duration, flag=flag)


def _limit(kernel: KernelRow) -> Value:
    limit: Value = Word(kernel.bound_label or NA)
    if kernel.roof_share is not None:
        of_roof = _of_roof(kernel)
        if kernel.roof is not None:
            rate, roof = (Number(value, kernel.roof_unit) for value in (kernel.rate, kernel.roof))
            rates: Value = Text("{rate} of {roof}", rate=rate, roof=roof)
            if kernel.bound_by == "latency":
                rates = Text("{label}: {rates}", label=kernel.roof_label, rates=rates)
            of_roof = Text("{part} ({rates})", part=of_roof, rates=rates)
        limit = Series([limit, of_roof])
    if not kernel.bound_reason.message:
        return limit
    return Text("{limit}: {reason}", limit=limit, reason=_in_text(kernel.bound_reason))


def _in_text(value: Value) -> Value:
    """Return a value whose numbers are those of a sentence, in a table too."""
    if isinstance(value, Number):
        return Verbatim(Writer().value(value))
    if isinstance(value, Text):
        return value.with_values(_in_text)
    return [_in_text(item) for item in value] if isinstance(value, list | tuple) else value


def _of_roof(kernel: KernelRow) -> Text:
    of_roof = share(kernel.roof_share)
    if kernel.bound_unit:
        unit = Word(kernel.bound_unit)
        return Text("{unit}: busy in {part} of all cycles", unit=unit, part=of_roof)
    if kernel.bound_by == "latency":
        return Text("{part} of the nearest roof", part=of_roof)
    if kernel.bound_by == "issue":
        return Text("{part} of the issue slots", part=of_roof)
    return Text("{part} of that roof", part=of_roof)


def numbers(kernel: KernelRow, source: Provenance, links: Links) -> Table[Traced]:
    """Return the numbers of a launch, and what they were made from."""
    columns: list[Column[Traced]] = [
        Column(
            Text("Number"),
            lambda item: item.label if isinstance(item.label, Text) else Word(item.label),
        ),
        Column(
            Text("Value"),
            lambda item: item.text or Verbatim(quantity(item.value, item.unit)),
            right=True,
        ),
        Column(
            Text("Full precision"),
            lambda item: None if item.text else exact(item.value, item.unit),
            right=True,
        ),
        Column(Text("From"), lambda item: Name(item.origin) if item.origin else None),
    ]
    section = f"kernel-{kernel.number}"

    def ids(item: Traced) -> str:
        largest = [f"{section}-top_stall"] if item in source.stalls[:1] else []
        return " ".join(map(links.wanted_id, [*largest, f"{section}-{item.column}"]))

    return Table("numbers", NO_TITLE, columns, (*source.traced, *source.stalls), ids=ids)


def counters(heading: Text, rows: Sequence[RawCounter]) -> Table[RawCounter]:
    """Return counters of a launch in full precision."""
    columns: list[Column[RawCounter]] = [
        Column(heading, lambda item: Name(item.metric)),
        Column(Text("Value"), lambda item: item.text or exact(item.value, item.unit), right=True),
    ]
    return Table("counters", NO_TITLE, columns, rows)


def left_out(view: ReportView) -> Table[LeftOut]:
    """Return the kernels without counters."""
    columns: list[Column[LeftOut]] = [
        Column(Text("Left out"), lambda row: row.name),
        Column(Text("Kernels"), lambda row: count(row.kernels)),
        Column(Text("Share of GPU time"), lambda row: share(row.share)),
        Column(Text("Why"), lambda row: Word(row.reason)),
    ]
    return Table("left-out", NO_TITLE, columns, view.left_out)


def failed_joins(view: ReportView) -> Table[FailedJoin]:
    """Return launches in the counters that fit no kernel of the trace."""
    columns: list[Column[FailedJoin]] = [
        Column(Text("Kernel"), lambda row: shorten(row.name, CHARACTERS)),
        Column(Text("Grid"), lambda row: row.grid),
        Column(Text("Block"), lambda row: row.block),
        Column(Text("Why"), lambda row: Word(row.reason)),
    ]
    return Table("failed-joins", NO_TITLE, columns, view.failed_joins)


def counter_files(view: ReportView) -> Table[CounterFileRow]:
    """Return files of counters, and what each adds."""

    def new_values(row: CounterFileRow) -> Value:
        n = count(row.new_values)
        return n if row.new_values else Text("{n}: {nothing}", n=n, nothing=Text("adds nothing"))

    def counted(heading: Text, name: str) -> Column[CounterFileRow]:
        return Column(heading, lambda row: count(getattr(row, name)))

    columns: list[Column[CounterFileRow]] = [
        Column(Text("File"), lambda row: row.file),
        Column(Text("Page"), lambda row: row.page),
        counted(Text("Launches"), "launches"),
        counted(Text("New launches"), "new_launches"),
        counted(Text("New kernels"), "new_kernels"),
        counted(Text("Values"), "values"),
        Column(Text("New values"), new_values, sort=lambda row: row.new_values, right=True),
        counted(Text("Kernels shown"), "shown_kernels"),
    ]
    return Table("counter-files", NO_TITLE, columns, view.counter_files)


def environment(view: ReportView) -> Table[tuple[Value, Value, str]]:
    """Return versions and settings."""
    return pairs([(fact.label, fact.value, "") for fact in view.environment])


def glossary(entries: Sequence[GlossaryEntry]) -> Table[GlossaryEntry]:
    """Return the terms of a report in plain words."""
    columns: list[Column[GlossaryEntry]] = [
        Column(Text("Term"), lambda entry: Word(entry.term)),
        Column(Text("Meaning"), lambda entry: Word(entry.meaning)),
    ]
    return Table("glossary", NO_TITLE, columns, entries)
