"""Says where on the page the numbers of findings stand: the way from a claim to its row.

The ids are those of templates/report.md.j2 and templates/kernel.md.j2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nsight_prof.reports import page
from nsight_prof.reports.evidence import Evidence
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Number
from nsight_prof.reports.time_models import IdleRow, KindTable, StageRow

KINDS, KERNELS, STAGES, IDLE = "by-kind", "kernels", "by-stage", "idle"
LIMITS, SAVED, PEAKS, ROOFS = "by-limit", "could-save", "peaks", "roofs"
MEAN = "peaks-mean"
OPERATIONS, CALLS, PRODUCTS = "memory-operations", "api-calls", "products"
OPEN, ENVIRONMENT, COSTS = "open-questions", "environment", "host-costs"
MOST = 4
"""Kernels of a finding whose counters are led to one by one."""
OF_TABLE = {
    "kernels": KERNELS,
    "stages": STAGES,
    "stage_kernels": STAGES,
    "idle_gaps": IDLE,
    "memory_operations": OPERATIONS,
    "api_calls": CALLS,
    "roofs": ROOFS,
    "measured_roofs": ROOFS,
    "ridge_points": ROOFS,
    "gemms": PRODUCTS,
    "gpus": ENVIRONMENT,
}
"""Table of the run -> where the page shows it; the page does not show single launches."""
FACTS = {
    **dict.fromkeys(("grid", "block"), "grid"),
    **dict.fromkeys(("calls", "total_ns", "share"), "total_ns"),
    **dict.fromkeys(("median_ns", "mean_ns", "min_ns", "max_ns", "std_ns"), "median_ns"),
    **dict.fromkeys(("trace_duration_ns", "duration_difference"), "ncu_duration_ns"),
    **dict.fromkeys(("bound_by", "roof_share"), "roof_share"),
    **dict.fromkeys(("top_stall", "top_stall_ratio"), "top_stall"),
}
"""Column of `kernels` or `counters` -> the row that shows it in the first table of a kernel."""
TRACED = ("grid", "total_ns", "median_ns")
"""Rows of FACTS that every kernel has; the others are those of a profiled one."""
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
TITLES = {
    KINDS: "GPU time by kind",
    KERNELS: "every kernel",
    STAGES: "by stage",
    IDLE: "idle time by cause",
    LIMITS: "time by limit",
    SAVED: "what each kernel could save",
    PEAKS: "per cent of the peaks",
    OPERATIONS: "copies and memory sets",
    PRODUCTS: "matrix products",
}


@dataclass(frozen=True)
class Place:
    """Where a number stands: its `name`, and the id of its row or table on the page.

    The name of a number is a column of the counters ("dram_pct"), or "table.column" of a table of
    the run ("kernels.total_ns" is in tables/kernels.csv). `anchor` is empty where the page does
    not show it. `kernel` is the number of the kernel, where a number is of several.
    """

    name: str
    anchor: str = ""
    kernel: int | None = None


@dataclass(frozen=True)
class Places:
    """What the page shows.

    `kernels` are the numbers of the kernels by id; `numbers` the columns that the section of a
    profiled kernel shows; `anchors` the ids of tables and of rows of tables. `values` are the
    numbers of the tables `kernels`, `stages` and `roofs` by row and column: a number that stands in
    a row as it is leads to that row, and a sum to that of `kinds`. `shown` are the numbers of rows
    by their ids, fractions for shares.
    """

    kernels: Mapping[str, int]
    numbers: Mapping[str, frozenset[str]]
    anchors: frozenset[str]
    idle: tuple[IdleRow, ...]
    kinds: KindTable | None
    values: Mapping[str, Mapping[str, Mapping[str, float]]]
    shown: Mapping[str, tuple[float, ...]]

    def numbers_of(self, finding: Finding) -> tuple[int, ...]:
        """Return the numbers of the kernels of a finding that the page shows."""
        return tuple(self.kernels[key] for key in finding.kernel_ids if key in self.kernels)

    def of_evidence(self, row: page.Evidence, finding: Finding) -> tuple[Place, ...]:
        """Return where the number of a row of evidence stands, or those it is worked out from."""
        if not isinstance(row.value, Number):
            return ()
        value = math.nan if row.value.value is None else row.value.value
        named = (self._of_number(n, value, row.value.unit, finding) for n in _columns(row))
        return tuple(one for places in named for one in places)

    def _of_number(self, name: str, value: float, unit: str, finding: Finding) -> tuple[Place, ...]:
        table, dot, column = name.rpartition(".")
        if table in ("counters", "stalls", "metrics") or not dot:
            return self._of_counter(name, table, column, finding)
        if table == "kernels" and (finding.key == "kernel" or len(finding.kernel_ids) == 1):
            anchor = self._of_kernel_table(column, value, finding)
        elif table in ("stages", "stage_kernels"):
            anchor = self._of_stage(column, value, finding.stage)
        elif table == "idle_gaps":
            anchor = self._of_gaps(column, value, finding.stage)
        elif table == "measured_roofs" and unit == "ns":
            anchor = self._shown(COSTS)
        elif table == "kernels":
            anchor = self._of_kind(value)
        elif table == "roofs":
            whose = _row_of(self.values.get(table, {}), column, value, "")
            anchor = self._shown(roof_anchor(whose or "")) or self._shown(ROOFS)
        else:
            anchor = self._shown(OF_TABLE.get(table, ""))
        return (Place(name, anchor),)

    def of_value(self, row: page.Evidence, finding: Finding) -> str:
        """Return the id of the row that holds the number itself; empty for a derived one.

        A number of one column stands in the row of that column, where that shows no other.
        """
        where, number = self.of_evidence(row, finding), row.value
        if not isinstance(number, Number) or number.value is None:
            return ""
        value = number.value
        whole = {"", KERNELS, ROOFS, *(f"kernel-{number}" for number in self.kernels.values())}
        anchors = [place.anchor for place in where if place.anchor not in whole]
        if len(_columns(row)) == len(anchors) == 1 and anchors[0] not in self.shown:
            return anchors[0]
        scale = 0.01 if number.unit == "%" else 1.0
        holds = (a for a in anchors if self._holds(a, value, scale))
        return next(holds, "")

    def _holds(self, anchor: str, value: float, scale: float) -> bool:
        """Tell whether a row shows a number, or it as a fraction; a share of idle time too."""
        numbers = self.shown.get(anchor, ())
        return any(_same(one, value) or _same(one, scale * value) for one in numbers)

    def of_finding(self, finding: Finding) -> tuple[Place, ...]:
        """Return the tables that the sentence of a finding sums up."""
        found = SUMMED.get(finding.key, (KERNELS,))
        rows = {
            SAVED: self._saved(finding),
            STAGES: self._of_stage("", math.nan, finding.stage),
            IDLE: self._of_gaps("", math.nan, finding.stage),
        }
        places = (Place(TITLES[name], self._shown(rows.get(name, name))) for name in found)
        return tuple(place for place in places if place.anchor)

    def _of_counter(
        self, name: str, table: str, column: str, finding: Finding
    ) -> tuple[Place, ...]:
        if not finding.kernel_ids or finding.key == "clock":
            of_bound = FACTS.get(column) == "roof_share"
            mean = MEAN if column == "sm_clock_hz" else PEAKS
            return (Place(name, self._shown(LIMITS if of_bound else mean)),)
        row = "top_stall" if table == "stalls" else FACTS.get(column, column)
        whose = [key for key in finding.kernel_ids if row in self.numbers.get(key, ())]
        # The evidence about kernels of one name and cause is that of the largest.
        if finding.key == "kernel" or not 1 < len(whose) <= MOST:
            return (Place(name, self._of_kernel(finding.kernel_ids[0], row)),)
        return tuple(Place(name, self._of_kernel(key, row), self.kernels.get(key)) for key in whose)

    def _of_kernel_table(self, column: str, value: float, finding: Finding) -> str:
        """Return the row of the kernel whose number it is; of a number of none that of the first.

        A number of a kernel that the page does not show is on no row of it.
        """
        first = finding.kernel_ids[0]
        rows = self.values.get("kernels", {})
        whose = _row_of(rows, column, value, first)
        if whose is None:
            return self._of_kernel(first, FACTS.get(column, ""))
        return self._of_kernel(whose, FACTS.get(column, "")) if whose in self.kernels else ""

    def _of_kernel(self, key: str, row: str) -> str:
        """Return the row in the section of a kernel, else its section, else the table."""
        if key not in self.kernels:
            return self._shown(KERNELS)
        section = f"kernel-{self.kernels[key]}"
        shown = row in TRACED or row in self.numbers.get(key, ())
        return f"{section}-{row}" if shown else section

    def _of_kind(self, value: float) -> str:
        """Return the row of the kinds that holds a sum of times, else the kernel table."""
        if self.kinds is not None:
            if _same(self.kinds.total.total_ns, value):
                return "kind-all"
            for place, row in enumerate(self.kinds.rows, 1):
                if _same(row.total_ns, value):
                    return f"kind-{place}"
        return self._shown(KERNELS)

    def _of_stage(self, column: str, value: float, stage: str) -> str:
        whose = _row_of(self.values.get("stages", {}), column, value, stage)
        anchor = stage_anchor(stage if whose is None else whose, "stage")
        return self._shown(anchor) or self._shown(STAGES)

    def _of_gaps(self, column: str, value: float, stage: str) -> str:
        """Return the row of the stage and cause whose number it is, else the stage's first row."""
        mine = [row for row in self.idle if row.stage == stage]
        for row in mine:
            if _same(getattr(row, column, None), value):
                return idle_anchor(row)
        return idle_anchor(mine[0]) if mine else self._shown(IDLE) or self._shown(STAGES)

    def _saved(self, finding: Finding) -> str:
        number = self.kernels.get(finding.kernel_ids[0]) if finding.kernel_ids else None
        return self._shown(f"{SAVED}-{number}") or SAVED

    def _shown(self, anchor: str) -> str:
        return anchor if anchor in self.anchors else ""


def _columns(row: page.Evidence) -> tuple[str, ...]:
    """Return the columns that a number of evidence is read or computed from."""
    if isinstance(row, Evidence):
        return row.where
    refs = row.value.refs if isinstance(row.value, Number) else ()
    names = (r.column if r.table == "counters" else f"{r.table}.{r.column}" for r in refs)
    return tuple(dict.fromkeys(names))


def _row_of(
    rows: Mapping[str, Mapping[str, float]], column: str, value: float, first: str
) -> str | None:
    """Return the row that holds a number as it is, `first` before the others; None for none."""
    keys = [first, *(key for key in rows if key != first)]
    return next((key for key in keys if _same(rows.get(key, {}).get(column), value)), None)


def _same(one: float | None, other: float) -> bool:
    return one is not None and math.isclose(one, other, rel_tol=1e-9)


def roof_anchor(label: str) -> str:
    """Return the id of the row of a roof with its label, such as "Tensor bf16 measured"."""
    return stage_anchor(label, "roof")


def idle_anchor(row: IdleRow) -> str:
    """Return the id of a row of idle time: its stage and cause."""
    return stage_anchor(f"{row.stage}-{row.cause}", IDLE)


def stage_anchor(stage: str, prefix: str) -> str:
    """Return the id of a stage's row: the prefix, letters and digits of its name, and dashes."""
    kept = "".join(c if c.isalnum() else "-" for c in stage)
    return f"{prefix}-{kept.strip('-') or 'none'}"


def kernel_anchors(columns: Iterable[str], stalls: bool) -> frozenset[str]:
    """Return the rows that the section of a profiled kernel shows, given its known `columns`."""
    return frozenset((*columns, "ncu_duration_ns", "roof_share", *(["top_stall"] * stalls)))


def row_anchors(stages: Iterable[StageRow], idle: Iterable[IdleRow]) -> frozenset[str]:
    """Return the ids of the rows of stages and of idle time."""
    ids = [stage_anchor(row.stage, "stage") for row in stages]
    return frozenset((*ids, *(idle_anchor(row) for row in idle)))
