"""Says where on the page the numbers of findings stand: the way from a claim to its row.

The ids are those of templates/report.md.j2 and templates/kernel.md.j2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reports.evidence import Finding
from reports.finding_models import Place
from reports.time_models import IdleRow, StageRow

KINDS, KERNELS, STAGES, IDLE = "by-kind", "kernels", "by-stage", "idle"
LIMITS, SAVED, PEAKS, ROOFS = "by-limit", "could-save", "peaks", "roofs"
OPERATIONS, CALLS, PRODUCTS = "memory-operations", "api-calls", "products"
OPEN, ENVIRONMENT = "open-questions", "environment"
OF_TABLE = {
    "kernels": KERNELS,
    "launches": KERNELS,
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
"""Table of the run -> where the page shows it; `launches` is summed up in the kernel table."""
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
class Places:
    """What the page shows.

    `numbers` are the columns that the section of a kernel shows, by kernel id; `kernels` the
    numbers of the kernels; `anchors` the ids of tables, `stages` the names of its stages.
    """

    kernels: Mapping[str, int]
    numbers: Mapping[str, frozenset[str]]
    anchors: frozenset[str]
    stages: frozenset[str]

    def of_number(self, name: str, finding: Finding) -> Place:
        """Return the place of a number that the evidence of a finding names."""
        table, dot, column = name.rpartition(".")
        if table in ("counters", "stalls", "metrics") or not dot:
            return Place(name, self._of_counter(table, column, finding))
        if table == "kernels" and (finding.key == "kernel" or len(finding.kernel_ids) == 1):
            return Place(name, self._of_kernel(FACTS.get(column, ""), finding))
        if table in ("stages", "idle_gaps", "stage_kernels"):
            return Place(name, self._of_stage(table, finding.stage))
        return Place(name, self._shown(OF_TABLE.get(table, "")))

    def of_finding(self, finding: Finding) -> tuple[Place, ...]:
        """Return the tables that the sentence of a finding sums up."""
        found = SUMMED.get(finding.key, (KERNELS,))
        rows = {SAVED: self._saved(finding), STAGES: self._of_stage("stages", finding.stage)}
        rows[IDLE] = self._of_stage("idle_gaps", finding.stage)
        places = (Place(TITLES[name], self._shown(rows.get(name, name))) for name in found)
        return tuple(place for place in places if place.anchor)

    def _of_counter(self, table: str, column: str, finding: Finding) -> str:
        if not finding.kernel_ids or (finding.key == "clock" and PEAKS in self.anchors):
            return self._shown(PEAKS)
        row = "top_stall" if table == "stalls" else FACTS.get(column, column)
        return self._of_kernel(row, finding)

    def _of_kernel(self, row: str, finding: Finding) -> str:
        """Return the row of the finding's first kernel, else its section, else the table."""
        key = finding.kernel_ids[0]
        if key not in self.kernels:
            return self._shown(KERNELS)
        section = f"kernel-{self.kernels[key]}"
        shown = row in TRACED or row in self.numbers.get(key, ())
        return f"{section}-{row}" if shown else section

    def _of_stage(self, table: str, stage: str) -> str:
        name = stage_anchor(stage, IDLE if table == "idle_gaps" else "stage")
        if stage in self.stages and name in self.anchors:
            return name
        return self._shown(OF_TABLE[table]) or self._shown(STAGES)

    def _saved(self, finding: Finding) -> str:
        number = self.kernels.get(finding.kernel_ids[0]) if finding.kernel_ids else None
        saved = f"{SAVED}-{number}"
        return saved if saved in self.anchors else SAVED

    def _shown(self, anchor: str) -> str:
        return anchor if anchor in self.anchors else ""


def stage_anchor(stage: str, prefix: str) -> str:
    """Return the id of a stage's row: the prefix, letters and digits of its name, and dashes."""
    kept = "".join(c if c.isalnum() else "-" for c in stage)
    return f"{prefix}-{kept.strip('-') or 'none'}"


def kernel_anchors(columns: Iterable[str], stalls: bool) -> frozenset[str]:
    """Return the rows that the section of a profiled kernel shows, given its known `columns`."""
    return frozenset((*columns, "ncu_duration_ns", "roof_share", *(["top_stall"] * stalls)))


def row_anchors(
    stages: tuple[StageRow, ...], idle: tuple[IdleRow, ...]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the ids of the rows of stages and idle time, and the names of the stages."""
    names = [row.stage for row in stages]
    ids = [stage_anchor(name, "stage") for name in names]
    ids += [stage_anchor(row.stage, IDLE) for row in idle]
    return frozenset(ids), frozenset((*names, *(row.stage for row in idle)))
