"""The tables that templates may show: `{{ table.kernels(view, view.kernels) }}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nsight_prof.reports.page import Table
from nsight_prof.reports.profile.tables import findings, kernels, limits, time
from nsight_prof.reports.summary import tables as summary

TABLES: Mapping[str, Callable[..., Table[Any]]] = {
    function.__name__: function
    for function in (
        *(time.kernels, time.kernel_shapes, time.kinds, time.stages, time.stage_kernels),
        *(time.idle, time.operations, time.api_calls, time.host_costs, time.gpus, time.whole_run),
        time.steps_by_start,
        *(limits.bounds, limits.peaks, limits.could_save, limits.rooflines, limits.occupancy),
        *(limits.stall_reasons, limits.roofs_by_source, limits.roofs, limits.products),
        *(findings.findings, findings.evidence, findings.abstained),
        *(findings.ncu_rules, findings.ncu_rules_of),
        *(kernels.kernel, kernels.numbers, kernels.counters, kernels.left_out),
        *(kernels.failed_joins, kernels.counter_files, kernels.environment, kernels.glossary),
        *(summary.actions, summary.steps, summary.floor_parts, summary.choices, summary.narrowed),
        *(summary.parts_of_time, summary.works),
        *(summary.facts, summary.overview),
    )
}
