"""Which row of the pages of a profile report shows which number.

The ids are those of reports.profile.tables and of the templates report.md.j2 and tables.md.j2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nsight_prof.reports.analysis.stages import ALL
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Number
from nsight_prof.reports.page.frame import numbers
from nsight_prof.reports.page.rows import Shown
from nsight_prof.reports.page.values import place_id
from nsight_prof.reports.profile.provenance import Provenance
from nsight_prof.reports.profile.view_models import KernelRow, ReportView

IDLE = "idle"
SECTION = {
    "total_ns": {"calls": "count", "total_ns": "ns"},
    "median_ns": dict.fromkeys(("median_ns", "mean_ns", "min_ns", "max_ns", "std_ns"), "ns"),
    "ncu_duration_ns": {"ncu_duration_ns": "ns", "duration_difference": "fraction"},
    "roof_share": {"roof_share": "fraction"},
}
"""Row of the section of a kernel -> the numbers that it shows, and their units."""
SAVES = {"gain": "fraction", "gain_ns": "ns", "gain_program": "fraction"}
STAGE = {
    **{"launches": "count", "kernel_ns": "ns", "share": "fraction"},
    **{"wall_ns": "ns", "idle_ns": "ns", "idle_share": "fraction"},
}
IDLE_TIME = {
    **{"gaps": "count", "late_calls": "count", "of_wall": "fraction"},
    **dict.fromkeys(("idle_ns", "before_call_ns", "in_call_ns", "longest_ns"), "ns"),
}
GPU = {
    **{"gpu_time_ns": "ns", "busy_ns": "ns", "copies_alone_ns": "ns", "copies_ns": "ns"},
    **{"wall_ns": "ns", "idle_ns": "ns", "idle_share": "fraction"},
}
KIND = {"total_ns": "ns", "share": "fraction", "launches": "count", "kernels": "count"}
WHOLE = {
    **{"gpu_time_ns": "ns", "wall_ns": "ns", "idle_share": "fraction"},
    "profiled_share": "fraction",
}


def shown_rows(view: ReportView, sources: Mapping[str, Provenance]) -> Iterator[Shown]:
    """Yield the numbers of the tables; of numbers in several rows the one that tells most first."""
    for kernel in view.kernels:
        yield from _kernel(kernel, sources.get(kernel.kernel_id))
    yield from _of("whole-run", view, WHOLE)
    yield from _stages(view)
    for gpu in view.gpus if len(view.gpus) > 1 else ():
        yield from _of(f"gpu-{gpu.gpu}", gpu, GPU)
    for share in view.bound_shares:
        units = dict.fromkeys(("share", "of_wall", "reached", "gain"), "fraction")
        yield from _of(row_anchor("limit", share.stage, share.bound, share.dtype), share, units)
    yield from _of("could-save-all", view, {"saved_ns": "ns", "saved_share": "fraction"})
    yield from _of("peaks-mean", view, {"sm_clock_hz": "Hz"})
    for n, call in enumerate(view.memory_operations, 1):
        yield from _of(f"operation-{n}", call, {"calls": "count", "total_ns": "ns", "bytes": "B"})
    for n, call in enumerate(view.api_calls, 1):
        yield from _of(f"api-call-{n}", call, {"calls": "count", "total_ns": "ns"})
    for n, cost in enumerate(view.host_costs, 1):
        yield from _of(f"host-cost-{n}", cost, {"time_ns": "ns"})
    for roof in view.roofs:
        label = f"{roof.label} {roof.source}"
        yield from _of(
            row_anchor("roof", label), roof, {"value": roof.unit, "clock_hz": "Hz"}, label
        )
    for n, gemm in enumerate(view.gemms, 1):
        counts = {"counted_flops": "FLOP", "useful_flops": "FLOP", "ratio": "x"}
        yield from _of(f"product-{n}", gemm, counts)


def evidence_rows(finding: Finding) -> Iterator[Shown]:
    """Yield the numbers of the evidence of a finding, and of what stands below it."""
    about = frozenset({finding.anchor})
    for n, item in enumerate(finding.evidence, 1):
        for value in (item.value, item.threshold, item.source):
            for number in numbers(value):
                yield Shown(f"{finding.anchor}-{n}", number, about)
    if finding.rank is not None:
        units = {"share": "fraction", "gain_ns": "ns", "gain_program": "fraction"}
        yield from _of(f"{finding.anchor}-saves", finding, units, finding.anchor)


def _kernel(kernel: KernelRow, source: Provenance | None) -> Iterator[Shown]:
    key, section = kernel.kernel_id, f"kernel-{kernel.number}"
    for row, columns in SECTION.items():
        yield from _of(f"{section}-{row}", kernel, columns, key)
    of_roof = dict.fromkeys(("rate", "roof"), kernel.roof_unit)
    yield from _of(f"{section}-roof_share", kernel, of_roof, key)
    for item in () if source is None else (*source.traced, *source.stalls):
        yield Shown(f"{section}-{item.column}", Number(item.value, item.unit), frozenset({key}))
    yield from _of(f"kernels-{kernel.number}", kernel, {"share": "fraction"}, key)
    if kernel.profiled and kernel.gain is not None:
        yield from _of(f"could-save-{kernel.number}", kernel, SAVES, key)


def _stages(view: ReportView) -> Iterator[Shown]:
    for stage in view.stages:
        yield from _of(row_anchor("stage", stage.stage), stage, STAGE, stage.stage)
    for idle in view.idle:
        of_cause = (idle.stage, f"{idle.stage}-{idle.cause}")
        yield from _of(row_anchor(IDLE, idle.stage, idle.cause), idle, IDLE_TIME, *of_cause)
    if view.kinds is None:
        return
    for n, kind in enumerate(view.kinds.rows, 1):
        yield from _of(f"kind-{n}", kind, KIND, kind.kind)
        for stage_ns in kind.by_stage:
            yield Shown(f"kind-{n}", Number(stage_ns, "ns"), frozenset({kind.kind}))
    yield from _of("kind-all", view.kinds.total, KIND)


def _of(anchor: str, row: Any, fields: Mapping[str, str], *about: str) -> Iterator[Shown]:
    """Yield the fields of a row with their units."""
    for name, unit in fields.items():
        yield Shown(anchor, Number(getattr(row, name), unit), frozenset(about))


def row_anchor(prefix: str, *names: str) -> str:
    """Return the id of a row: the prefix, and the id of its names, as of a stage and a cause."""
    return f"{prefix}-{place_id('-'.join(names))}".replace(place_id(ALL), "~all")
