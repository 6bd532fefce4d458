"""Where the pages of a report show the cells of the run's tables: the way from a number to its row.

The ids are those of reports.profile.tables and of the templates report.md.j2 and tables.md.j2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from nsight_prof.parsers.cells import Row, known, records, text
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.padding import paddings
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.stages import ALL
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Evidence, Name, Number, Ref, Section, Text, Value
from nsight_prof.reports.page.frame import Places, derived, inside, numbers, sentence_values
from nsight_prof.reports.page.marks import mark
from nsight_prof.reports.page.rows import Rows
from nsight_prof.reports.profile.figure_views import all_roofs
from nsight_prof.reports.profile.provenance import Provenance, provenance, shown_columns
from nsight_prof.reports.profile.shown_rows import (
    IDLE,
    evidence_rows,
    row_anchor,
    shown_rows,
)
from nsight_prof.reports.profile.time_models import IdleRow
from nsight_prof.reports.profile.time_views import host_costs
from nsight_prof.reports.profile.view_models import KernelRow, ReportView

KINDS, KERNELS, STAGES, LAUNCHES = "by-kind", "kernels", "by-stage", "launches"
LIMITS, SAVED, PEAKS, ROOFS = "by-limit", "could-save", "peaks", "roofs"
OPERATIONS, PRODUCTS, OPEN = "memory-operations", "products", "open-questions"
CELLS = {
    **{("kernels", column): "grid" for column in ("grid", "block")},
    **{("kernels", column): "total_ns" for column in ("calls", "total_ns", "share")},
    **{
        ("kernels", column): "median_ns"
        for column in ("median_ns", "mean_ns", "min_ns", "max_ns", "std_ns")
    },
    **{
        ("counters", column): "ncu_duration_ns"
        for column in ("ncu_duration_ns", "trace_duration_ns", "duration_difference")
    },
    **{("counters", column): "roof_share" for column in ("bound_by", "roof_share")},
    **{("counters", column): "top_stall" for column in ("top_stall", "top_stall_ratio")},
    ("stalls", "share"): "top_stall",
}
"""(table, column) -> the row that shows it in the section of a kernel; other counters have a row of
their own name."""
SUMMED = {
    "time": (KINDS, KERNELS, STAGES),
    "bounds": (LIMITS, SAVED),
    "kernel": (SAVED,),
    "idle": (STAGES, IDLE),
    "copies": (OPERATIONS,),
    "clock": (PEAKS,),
    "padding": (PRODUCTS,),
}
"""Key of a finding -> tables that its sentence sums up; of others it is the kernel table."""
DERIVED = Text("derived value in the text")
TITLES = {
    KINDS: Text("GPU time by kind"),
    KERNELS: Text("every kernel"),
    STAGES: Text("by stage"),
    IDLE: Text("idle time by cause"),
    LIMITS: Text("time by limit"),
    SAVED: Text("what each kernel could save"),
    PEAKS: Text("per cent of the peaks"),
    OPERATIONS: Text("copies and memory sets"),
    PRODUCTS: Text("matrix products"),
}


@dataclass(frozen=True)
class Place:
    """A column that a number is read from: its `name`, and the id of its row on the page.

    The name is a column of the counters ("dram_pct"), or "table.column" of a table of the run.
    `anchor` is empty where the page does not show it. `kernel` is the number of the kernel, where
    a number is of several.
    """

    name: str
    anchor: str = ""
    kernel: int | None = None


@dataclass(frozen=True)
class Links:
    """Ids of the pages by cell, row and table of the run, and the numbers of kernels by id.

    A row is a Ref without a column, a column of all rows one without a row, a table one with
    neither. `rows` are the rows of the tables by their numbers; `leads` has the id of what a number
    or name in a sentence rests on, by the id of the place of the finding ("finding-1",
    "section-stages"), and `derived` the numbers of sentences that no row shows. Only what is in
    `wanted` gets an id: thousands of rows that nothing leads to would make a page too large to be
    shown.
    """

    kernels: Mapping[str, int]
    ids: Mapping[Ref, str]
    rows: Rows = field(default_factory=Rows)
    leads: Mapping[tuple[str, Value], str] = field(default_factory=dict)
    derived: Mapping[str, tuple[Evidence, ...]] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()

    def target(self, ref: Ref) -> str:
        """Return the id of a cell, else of its row, its column or its table; "" for none."""
        table, row, column = ref.table, ref.row, ref.column
        keys = (ref, Ref(table, row), Ref(table, "", column), Ref(table, ""))
        return next((self.ids[key] for key in keys if key in self.ids), "")

    def lead(self, value: Name | Number, anchor: str) -> str:
        """Return the id of what a value rests on in a sentence of the finding at `anchor`."""
        found = self.leads.get((anchor, value), "")
        if found or isinstance(value, Number):
            return found
        return self.target(value.ref) if value.ref is not None else ""

    def cell(self, evidence: Evidence) -> str:
        """Return the id of the row of a table that shows a number of evidence; "" for none."""
        if not isinstance(evidence.value, Number):
            return ""
        cells = [self.ids[ref] for ref in evidence.value.refs if ref.column and ref in self.ids]
        return self.rows.find(evidence.value, at=cells)

    def evidence(self, finding: Finding) -> tuple[Evidence, ...]:
        """Return the evidence of a finding, and the numbers of its sentences that no row shows."""
        return (*finding.evidence, *self.derived.get(finding.anchor, ()))

    def places(self, evidence: Evidence) -> tuple[Place, ...]:
        """Return the columns that a number is read or worked out from."""
        refs = evidence.value.refs if isinstance(evidence.value, Number) else ()
        columns = [ref for ref in refs if ref.column]
        several = Counter((ref.table, ref.column) for ref in columns)
        return tuple(
            Place(
                column_name(ref),
                self.target(ref),
                self.kernels.get(ref.row) if several[ref.table, ref.column] > 1 else None,
            )
            for ref in columns
        )

    def numbers_of(self, finding: Finding) -> tuple[int, ...]:
        """Return the numbers of the kernels of a finding that the page shows."""
        return tuple(self.kernels[key] for key in finding.kernel_ids if key in self.kernels)

    def tables(self, finding: Finding) -> tuple[tuple[Text, str], ...]:
        """Return the tables that the sentence of a finding sums up: titles and ids."""
        first = finding.kernel_ids[0] if finding.kernel_ids else ""
        ids = {
            STAGES: self.target(Ref("stages", finding.stage)),
            IDLE: self.target(Ref("idle_gaps", finding.stage)),
            SAVED: self.ids.get(Ref(SAVED, first)) or self.ids.get(Ref(SAVED, ""), ""),
        }
        names = SUMMED.get(finding.key, (KERNELS,))
        found = ((TITLES[name], ids.get(name, self.ids.get(Ref(name, ""), ""))) for name in names)
        return tuple((title, anchor) for title, anchor in found if anchor)

    def wanted_id(self, anchor: str) -> str:
        """Return an id that a finding leads to; "" for another."""
        return anchor if anchor in self.wanted else ""

    def mark(self, anchor: str) -> str:
        """Return the mark of an id that a finding leads to, else nothing."""
        return mark("id", anchor) if anchor in self.wanted else ""

    def leading(self, findings: Sequence[Finding], sections: Sequence[Section]) -> Links:
        """Return the same, with ids for what the findings and those of the sections lead to."""
        rows = Rows((*self.rows.shown, *(row for f in findings for row in evidence_rows(f))))
        leads: dict[tuple[str, Value], str] = {}
        extra = {}
        found = set()
        for finding in findings:
            anchor, about = finding.anchor, (finding.kernel_ids, {finding.stage})
            find = partial(_find, rows, ({anchor}, *about))
            missing = derived(finding, find)
            extra[anchor] = tuple(
                Evidence(DERIVED, number, source=number.formula) for number in missing
            )
            for value in sentence_values(finding):
                if isinstance(value, Number):
                    leads[anchor, value] = find(value)
                elif isinstance(value, Name) and value.ref is not None:
                    found.add(self.target(value.ref))
            first = len(finding.evidence) + 1
            leads |= {(anchor, number): f"{anchor}-{n}" for n, number in enumerate(missing, first)}
            for evidence in (*finding.evidence, *extra[anchor]):
                found |= {self.cell(evidence), *(where.anchor for where in self.places(evidence))}
                found |= set(map(self.rows.find, numbers(evidence.source)))
        for section in sections:
            places = Places(section)
            for of_section in section.findings:
                for value in inside(of_section.verdict):
                    if isinstance(value, (Name, Number)):
                        of_text = f"section-{section.key}", value
                        leads[of_text] = places.of(value, of_section)
        # The first screen leads to the row of the whole run.
        wanted = frozenset({*found, *leads.values(), "whole-run"})
        return replace(self, leads=leads, derived=extra, wanted=wanted)


def _find(rows: Rows, about: Sequence[Collection[str]], number: Number) -> str:
    return rows.find(number, *about)


def column_name(ref: Ref) -> str:
    """Return the name of a column: alone where it is a number of the counters' catalogue."""
    alone = ref.table == "counters" and ref.column in catalogue().columns
    return ref.column if alone else f"{ref.table}.{ref.column}"


def page_links(
    run: Run, view: ReportView, sources: Mapping[str, Provenance] | None = None
) -> Links:
    """Return where the report of `run` shows its tables; `sources` are those of its counters."""
    kernels, stages, idle, kinds = view.kernels, view.stages, view.idle, view.kinds
    ids = dict(_tables(run, kernels, idle))
    ids |= {Ref("stages", row.stage): row_anchor("stage", row.stage) for row in stages}
    ids |= {Ref("stage_kernels", key.row): at for key, at in ids.items() if key.table == "stages"}
    for row in reversed(idle):
        ids[Ref("idle_gaps", row.stage)] = row_anchor(IDLE, row.stage, row.cause)
        ids[Ref("idle_gaps", f"{row.stage}-{row.cause}")] = row_anchor(IDLE, row.stage, row.cause)
    if kinds is not None:
        ids[Ref(KINDS, "")] = KINDS
        ids[Ref("kernels", ALL, "total_ns")] = "kind-all"
        for number, kind in enumerate(kinds.rows, 1):
            ids[Ref("kernels", kind.kind, "total_ns")] = f"kind-{number}"
    counted = {text(row["kernel_id"]): row for row in records(run.counters)}
    stalled = {text(key) for key in run.stalls["kernel_id"]}
    for kernel in kernels:
        key = kernel.kernel_id
        ids |= _section(kernel, counted.get(key), key in stalled)
    rows = Rows(shown_rows(view, provenance(run) if sources is None else sources))
    links = Links({row.kernel_id: row.number for row in kernels}, ids, rows)
    return links.leading(view.findings, view.sections)


def _section(kernel: KernelRow, counters: Row | None, stalls: bool) -> Iterator[tuple[Ref, str]]:
    """Yield the rows of the section of a kernel."""
    key, section = kernel.kernel_id, f"kernel-{kernel.number}"
    tables = ("kernels", "counters", "stalls", "launches")
    yield from ((Ref(table, key), section) for table in tables)
    if kernel.bound_by:
        yield Ref(SAVED, key), f"{SAVED}-{kernel.number}"
    columns_shown = {"grid", "total_ns", "median_ns"}
    if counters is not None:
        columns = shown_columns(counters)
        columns_shown |= {"ncu_duration_ns", "roof_share", *(["top_stall"] * stalls)}
        yield from ((Ref("counters", key, column), f"{section}-{column}") for column in columns)
    for (table, column), row in CELLS.items():
        if row in columns_shown:
            yield Ref(table, key, column), f"{section}-{row}"


def _tables(
    run: Run, kernels: Sequence[KernelRow], idle: Sequence[IdleRow]
) -> Iterator[tuple[Ref, str]]:
    """Yield the tables that the report shows, and rows of small ones."""
    profiled = any(row.profiled for row in kernels)
    timed = known(kernel_time(run)) is not None
    operations, calls = not run.memory_operations.empty, not run.api_calls.empty
    by_limit = timed and not run.counters.empty
    idle_shown = IDLE if idle else STAGES
    for is_present, table, anchor in (
        (bool(kernels), "kernels", KERNELS),
        (not run.launch_times.empty, "launches", LAUNCHES),
        (not run.stages.empty, "stages", STAGES),
        (not run.stages.empty, "stage_kernels", STAGES),
        (bool(idle) or not run.stages.empty, "idle_gaps", idle_shown),
        (operations, "memory_operations", OPERATIONS),
        (calls, "api_calls", "api-calls"),
        (profiled, "counters", PEAKS),
        (bool(paddings(run)), "gemms", PRODUCTS),
        (True, "gpus", "environment"),
        (any(row.bound_by for row in kernels), SAVED, SAVED),
        (by_limit, LIMITS, LIMITS),
        (profiled, PEAKS, PEAKS),
        (operations, OPERATIONS, OPERATIONS),
        (bool(paddings(run)), PRODUCTS, PRODUCTS),
    ):
        if is_present:
            yield Ref(table, ""), anchor
    if by_limit:
        yield from ((Ref("counters", "", column), LIMITS) for column in ("bound_by", "roof_share"))
    if any(row.profiled and row.share and row.sm_clock_hz for row in kernels):
        yield Ref("counters", "", "sm_clock_hz"), "peaks-mean"
    if profiled and not run.roofs.empty:
        for table in ("roofs", "measured_roofs", "ridge_points"):
            yield Ref(table, ""), ROOFS
        for roof in all_roofs(run):
            label = f"{roof.label} {roof.source}"
            yield Ref("roofs", label), row_anchor("roof", label)
    if host_costs(run) and (operations or calls):
        yield Ref("measured_roofs", "host-launch"), "host-costs"
