"""Turns a run into the view models that reports and plots are made from.

The models themselves are in reports/profile/view_models.py, reports/page/figure_models.py and
reports/sweep/section.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pandas as pd

from nsight_prof.parsers.cells import count, known, number, records, text
from nsight_prof.parsers.ncu.command import to_measure
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports import page
from nsight_prof.reports.analysis.gpu_times import ALL, idle_range, working
from nsight_prof.reports.analysis.padding import Padding, paddings
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.roof_comparison import (
    compare_roofs,
    roofs_measured_by,
    roofs_of_another,
)
from nsight_prof.reports.analysis.run_time import run_time
from nsight_prof.reports.analysis.stages import program_time, stages_note, wall_time
from nsight_prof.reports.engine import (
    collectives,
    model,
    predictions,
    stage_memory,
    stage_work,
    telemetry,
)
from nsight_prof.reports.engine.operators.products import Saving, Savings
from nsight_prof.reports.engine.operators.section import section as operators
from nsight_prof.reports.engine.stages.section import section as stages_of_engine
from nsight_prof.reports.engine.steps.section import section as steps
from nsight_prof.reports.findings.gain import untraced_wall
from nsight_prof.reports.findings.kernels.findings import abstentions
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.ncu.view import rules_view
from nsight_prof.reports.findings.open_questions import open_questions, profiled_share
from nsight_prof.reports.page import OpenQuestion, Section, Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile import source_lines
from nsight_prof.reports.profile.caveats import caveats, selection_notes
from nsight_prof.reports.profile.figure_views import all_roofs
from nsight_prof.reports.profile.kernel_rows import kernel_figures, saved
from nsight_prof.reports.profile.launch_choice import left_out
from nsight_prof.reports.profile.links import OPEN
from nsight_prof.reports.profile.method_view import (
    counter_files,
    environment,
    failed_joins,
    glossary,
    method,
    section_words,
)
from nsight_prof.reports.profile.time_views import host_costs, idle_rows, kind_table, step_times
from nsight_prof.reports.profile.view_models import (
    GemmRow,
    KernelRow,
    OperationRow,
    ReportView,
    RuleAbstention,
)
from nsight_prof.reports.serving.workload import workload
from nsight_prof.reports.verdicts.bound_shares import bound_shares
from nsight_prof.reports.verdicts.ranking import findings

ANSWERS = 4
"""Findings whose sentences make the answer; the rest follows in the list of findings."""
TOP_CALLS = 8
TIERS = ("trace and counters", "trace only", "counters only", "nothing")
"""What a report rests on."""
ALL_OF_IT = 0.9995
"""A share that is shown as 100.0 %."""
BACKGROUND = (model.KEY,)
"""Sections that do not answer what the run was asked."""


def report_view(run: Run) -> ReportView:
    """Return everything that the report of `run` shows."""
    figures = kernel_figures(run)
    kernels = figures.kernels
    found = findings(run)
    unanswered = open_questions(run)
    sections = engine_sections(run, savings(kernels, found))
    answer, anchors = _answer(found, unanswered, sections)
    times = run_time(run)
    roofs = all_roofs(run)
    counted, (saved_ns, saved_share) = known(profiled_share(run)), saved(kernels)
    return ReportView(
        **vars(figures),
        **_from_manifest(run),
        workload=workload(run),
        tier=tier(run),
        answer=answer,
        answer_anchors=anchors,
        findings=tuple(found),
        abstained=unanswered,
        to_measure=to_measure(run) if run.counters.empty else None,
        rules_abstained=_rules_abstained(run, kernels),
        environment=environment(run),
        **_whole_times(run),
        run_time=replace(times, profiler_ns=(program_time(run)[0] - untraced_wall(run)).value),
        profiled_share=counted,
        unprofiled_share=1 - counted if counted is not None and counted < ALL_OF_IT else None,
        saved_ns=saved_ns,
        saved_share=saved_share,
        bound_shares=bound_shares(run),
        kinds=kind_table(run),
        stages_note=stages_note(run),
        idle=idle_rows(run),
        steps=tuple(step_times(run)),
        host_costs=host_costs(run),
        memory_operations=_operations(run.memory_operations, "kind"),
        api_calls=_operations(run.api_calls, "name")[:TOP_CALLS],
        sections=sections,
        roofs=roofs,
        steady_roofs={
            text(row["dtype"]): number(row["value"])
            for row in records(run.measured_roofs)
            if (row["level_or_pipe"], row["kind"]) == ("tensor", "steady")
        },
        roof_comparison=compare_roofs(roofs),
        roofs_measured_by=roofs_measured_by(run),
        roofs_of_another=roofs_of_another(run),
        gemms=tuple(_gemm(padding, kernels) for padding in paddings(run)),
        ncu_rules=rules_view(run, {row.kernel_id: row.number for row in kernels}),
        left_out=left_out(run),
        selection_notes=selection_notes(run, kernels),
        failed_joins=failed_joins(run),
        counter_files=counter_files(run),
        caveats=caveats(run, kernels, times),
        method=method(run, kernels),
        glossary=glossary(_report_text(found, bool(figures.rooflines), sections)),
    )


def savings(kernels: Iterable[KernelRow], found: Iterable[Finding]) -> Savings:
    """Return what the report says of single kernels: what each could save, and which to change."""
    advised = {key for finding in found if finding.key == "kernel" for key in finding.kernel_ids}
    return {
        row.kernel_id: Saving(row.number, row.gain, row.kernel_id in advised) for row in kernels
    }


def _from_manifest(run: Run) -> dict[str, Any]:
    """Return the fields of the report that stand in the manifest and its recipe."""
    manifest, recipe = run.manifest, run.manifest.recipe
    return {
        "title": str(recipe.get("name", "")) or manifest.run_id,
        "question": str(recipe.get("question", "")),
        "run_id": manifest.run_id,
        "created": manifest.created,
        "replayed_from": manifest.replayed_from,
        "assumptions": tuple(manifest.assumptions),
        "notes": tuple(str(note) for note in recipe.get("notes") or ()),
    }


def _whole_times(run: Run) -> dict[str, Any]:
    """Return the wall time of the whole capture, and idle shares."""
    wall, idle = wall_time(run)
    gpus = working(run)
    capture = records(run.stages[run.stages["stage"] == ALL])
    together = number(capture[0]["idle_ns"]) / wall if gpus and capture and wall > 0 else math.nan
    return {
        "wall_ns": known(wall),
        "idle_share": known(idle / wall) if wall > 0 else None,
        "idle_range": idle_range(gpus),
        "idle_together": known(together),
    }


def _answer(
    found: list[Finding], unanswered: tuple[OpenQuestion, ...], sections: tuple[Section, ...]
) -> tuple[tuple[Text, ...], tuple[str, ...]]:
    """Return the sentences of the answer, and the ids of the places that they rest on."""
    leads = section_verdicts(sections)
    top = found[: ANSWERS - 1 if leads else ANSWERS]
    # How the time divides by limits says already what share was not measured.
    rest = () if any(f.key == "bounds" for f in top) else unanswered[:1]
    anchors = (*section_anchors(sections), *(f.anchor for f in top), *(OPEN for _ in rest))
    return (*leads, *(f.verdict for f in top), *(question.text for question in rest)), anchors


def _rules_abstained(run: Run, kernels: tuple[KernelRow, ...]) -> tuple[RuleAbstention, ...]:
    numbers = {row.kernel_id: row.number for row in kernels}
    return tuple(
        RuleAbstention(
            abstention.rules,
            tuple(sorted(numbers[k] for k in abstention.kernel_ids if k in numbers)),
            abstention.reason,
        )
        for abstention in abstentions(run)
    )


def tier(run: Run) -> str:
    """Return what the run rests on: trace and counters, trace only, counters only, or nothing."""
    traced = known(kernel_time(run)) is not None
    counted = not run.counters.empty
    both, trace, counters, nothing = TIERS
    if traced:
        return both if counted else trace
    return counters if counted else nothing


def engine_sections(run: Run, savings: Savings) -> tuple[Section, ...]:
    """Return the sections that a run of a serving engine allows, in the order of the report.

    `savings` is what the report says of single kernels.
    """
    found = (
        stages_of_engine(run),
        steps(run),
        operators(run, savings),
        model.section(run),
        stage_work.section(run),
        predictions.section(run),
        stage_memory.section(run),
        telemetry.section(run),
        collectives.section(run),
        source_lines.section(run),
    )
    return tuple(section for section in found if section is not None)


def _leading(sections: tuple[Section, ...]) -> tuple[page.Finding, ...]:
    """Return what leads the answer: two findings of the first section, one of each other.

    The first section of a serving engine is about prefill and decode, a finding each. What is
    nothing to a reader of summaries, such as how far two clocks agree, does not lead.
    """
    leads = [
        found
        for section in sections
        if section.key not in BACKGROUND
        and (found := [finding for finding in section.findings if not finding.technical])
    ]
    return (*(leads[0][:2] if leads else ()), *(found[0] for found in leads[1:]))


def section_verdicts(sections: tuple[Section, ...]) -> tuple[Text, ...]:
    """Return the first findings of the sections: what a serving engine's user asks comes first."""
    return tuple(finding.verdict for finding in _leading(sections))


def section_anchors(sections: tuple[Section, ...]) -> tuple[str, ...]:
    """Return the ids of the sections whose findings `section_verdicts` returns, in its order."""
    of = {id(finding): section.key for section in sections for finding in section.findings}
    return tuple(f"section-{of[id(finding)]}" for finding in _leading(sections))


def _gemm(padding: Padding, kernels: tuple[KernelRow, ...]) -> GemmRow:
    shape, row = padding.shape, padding.row
    numbers = {kernel.kernel_id: kernel.number for kernel in kernels}
    return GemmRow(
        shape.name,
        shape.stage,
        shape.m,
        shape.n,
        shape.k,
        text(row["tile"]) if row else "",
        numbers.get(text(row["kernel_id"])) if row else None,
        padding.counted,
        shape.flops,
        padding.ratio,
        padding.reason,
    )


def _operations(frame: pd.DataFrame, name: str) -> tuple[OperationRow, ...]:
    return tuple(
        OperationRow(text(r[name]), count(r["calls"]), known(r["total_ns"]), known(r.get("bytes")))
        for r in records(frame.sort_values("total_ns", ascending=False))
    )


def _report_text(found: list[Finding], counted: bool, sections: tuple[Section, ...]) -> str:
    """Return the words of a report whose terms the glossary explains."""
    always = "GPU time, kernel, stage, nsys"
    if counted:
        always += (
            ", ncu, roof, roofline, intensity, bound, DRAM, L2, L1, occupancy, stall, warp, SM"
        )
    texts = (text for f in found for text in (f.title, f.verdict, f.action) if text is not None)
    sentences = [Writer().text(text) for text in texts]
    return " ".join([always, *sentences, section_words(sections, "") if sections else ""])
