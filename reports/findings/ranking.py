"""Turns a run into findings ranked by what they gain for the whole program, and says what is open.

A finding needs evidence; a question that the evidence does not answer is listed by `abstained`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count

from nsight_prof.parsers.run_dir import StepState
from nsight_prof.reports.evidence import threshold
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.rules import program_findings
from nsight_prof.reports.formats import share
from nsight_prof.reports.gemm import padding_findings, paddings
from nsight_prof.reports.kernel_findings import bound_findings, kernel_findings
from nsight_prof.reports.load import Run, once
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profiled import kernel_time

TABLES_OF = {"trace": ("kernels",), "counters": ("metrics", "counters")}
QUESTIONS = {
    "launches": "Whether kernels could fuse, or communication runs alone,",
    "idle_gaps": "Why the GPU is idle",
}
"""What cannot be told without a table of the trace."""
OVERVIEW = ("time", "bounds")
"""Findings about the whole program that come first: they have no gain of their own."""


@once
def findings(run: Run) -> list[Finding]:
    """Return what takes the time, and then everything else by its gain in time, largest first."""
    found = program_findings(run)
    found += [*bound_findings(run), *kernel_findings(run, found), *padding_findings(run)]
    ranks = count(1)
    return [
        f if f.key in OVERVIEW else replace(f, rank=next(ranks))
        for f in sorted(found, key=lambda f: (_position(f), -_gain(f)))
    ]


def _position(finding: Finding) -> int:
    return OVERVIEW.index(finding.key) if finding.key in OVERVIEW else len(OVERVIEW)


def _gain(finding: Finding) -> float:
    if not math.isnan(finding.gain_ns):
        return finding.gain_ns
    return 0.0 if math.isnan(finding.gain_kernel) else finding.gain_kernel / 1e9


def headline(run: Run) -> list[str]:
    """Return at most three short sentences: what a reader should know first."""
    write = Writer()
    found = [f"{write.text(finding.headline)}." for finding in findings(run)]
    open_ones = abstained(run)
    # Who asked for counters and got none must learn that before the third finding.
    most = 2 if run.counters.empty and open_ones else 3
    return [*found[:most], *open_ones][:3]


def profiled_share(run: Run) -> float:
    """Return the part of the GPU time whose kernels have counters; NaN without a trace."""
    if math.isnan(kernel_time(run)) or run.kernels["share"].isna().all():
        return math.nan
    ours = run.kernels["kernel_id"].isin(run.counters["kernel_id"])
    return float(run.kernels.loc[ours, "share"].sum())


def abstained(run: Run) -> list[str]:
    """Return the questions that this run cannot answer, each with the reason."""
    counted = [*_no_counters(run), *_no_bound(run), *_no_shapes(run)]
    return [*_no_trace(run), *counted, *_no_order(run)]


def _no_trace(run: Run) -> list[str]:
    if not math.isnan(kernel_time(run)):
        return []
    return [f"How much of the time each kernel takes is not known: {_why(run, 'trace')}."]


def _no_order(run: Run) -> list[str]:
    """Tell where the order of launches, or the host's calls, are not in the trace."""
    if math.isnan(kernel_time(run)):
        return []
    lacking = {
        "launches": run.launches.empty,
        "idle_gaps": not set(run.idle_gaps["cause"]) - {"unknown"},
    }
    found = []
    for table in (name for name, lacks in lacking.items() if lacks):
        reasons = run.gaps.loc[run.gaps["table"] == table, "reason"]
        found += [f"{QUESTIONS[table]} is not known: {str(r).rstrip('.')}." for r in reasons[:1]]
    return found


def _no_counters(run: Run) -> list[str]:
    if run.counters.empty:
        return [f"What limits the kernels is not known: {_why(run, 'counters')}."]
    part = 1 - profiled_share(run)
    if not part >= threshold("small_share"):
        return []
    return [f"What limits the other kernels ({share(part)} of the GPU time) was not measured."]


def _no_bound(run: Run) -> list[str]:
    unknown = run.counters[run.counters["bound_by"].fillna("") == ""]
    if unknown.empty:
        return []
    names = run.kernels.set_index("kernel_id")["short_name"]
    who = ", ".join(str(names.get(k, k)) for k in unknown["kernel_id"].head(5))
    more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
    return [f"What limits {who}{more} is not known: decisive counters are missing."]


def _no_shapes(run: Run) -> list[str]:
    if run.counters.empty:
        return []
    open_ones = [p.shape.name + f" ({p.shape.stage})" for p in paddings(run) if p.row is None]
    if not open_ones:
        return []
    who = ", ".join(open_ones)
    return [f"How much the tile pads {who} is not known: no counted launch has their FLOPs."]


def _why(run: Run, step_name: str) -> str:
    step = run.manifest.step(step_name)
    if step is None:
        return f"the run has no {step_name} step"
    if step.error:
        return step.error.rstrip(".")
    if step.state is not StepState.DONE:
        return f"the {step_name} step was {step.state.value}"
    found = run.gaps[run.gaps["table"].isin(TABLES_OF[step_name])]["reason"].tolist()
    lost = run.joins[run.joins["method"] == "none"]["reason"].value_counts()
    reasons = [str(reason) for reason in (*found[:1], *lost.index[:1])]
    return "; ".join(reasons) or f"the {step_name} step gave nothing that could be read"
