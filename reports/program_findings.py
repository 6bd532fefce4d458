"""Turns the trace of a program into findings: what takes the time, idle GPU, copies."""

from __future__ import annotations

import math

import pandas as pd

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.reports.analysis.gpu_times import gpu_count
from nsight_prof.reports.analysis.stages import ALL, stage_rows, wall_time
from nsight_prof.reports.analysis.timeline import timeline, union
from nsight_prof.reports.backend_findings import backend_findings
from nsight_prof.reports.clock_findings import clock_findings
from nsight_prof.reports.evidence import Evidence, threshold
from nsight_prof.reports.findings.model import Finding, verbatim
from nsight_prof.reports.formats import count, counted, duration, listed, share
from nsight_prof.reports.fusion_findings import casts_and_copies, elementwise_chains
from nsight_prof.reports.idle_findings import idle_findings
from nsight_prof.reports.launch_findings import collectives, small_kernels
from nsight_prof.reports.load import Run
from nsight_prof.reports.profiled import kernel_time
from nsight_prof.reports.program_rules import finding, limit, source_of

FEW, MOST_PARTS = 5, 4
"""Kernels that are named one by one, and parts of the GPU time that a sentence lists."""
PLURALS = {
    "gemm": "matrix multiplications (GEMM)",
    "gemv": "matrix-vector products (GEMV)",
    "attention": "attention",
    "norm": "normalisation",
    "elementwise": "elementwise operations",
    "softmax": "softmax",
    "conv": "convolutions",
    "embedding": "embedding look-ups",
    "sort": "sorting",
    "fill": "fills",
    "reduction": "reductions",
    "copy": "copies inside the GPU",
    "collective": "communication between GPUs",
    "kv_cache": "key-value cache updates",
    "fusion": "fused operations",
    "fft": "Fourier transforms",
    "sparse": "sparse matrix kernels",
    "solver": "linear solvers",
    "search": "nearest-neighbour search",
}


def program_findings(run: Run) -> list[Finding]:
    """Return findings about the whole program; empty without a trace."""
    if math.isnan(kernel_time(run)):
        return []
    idle, frame = idle_findings(run), timeline(run)
    found = [_where_time_goes(run), *idle, *_copies(run, frame), *casts_and_copies(run)]
    found += [*backend_findings(run, frame), *clock_findings(run)]
    if frame is None:
        return found
    held_up = {f.stage for f in idle if f.rule == "launch_bound"}
    found += [*small_kernels(run, frame, held_up), *elementwise_chains(run, frame)]
    return [*found, *collectives(run, frame)]


def _where_time_goes(run: Run) -> Finding:
    kernels, total = run.kernels, kernel_time(run)
    parts = _by_kernel(run) if len(kernels) <= FEW else _by_kind(run)
    first, part = parts[0]
    plural = first in PLURALS.values()
    title = f"{first[0].upper()}{first[1:]}" if plural else first
    verb = "take" if plural else "takes"
    what = f"{title} {verb} {share(part)} of the GPU time"
    shown = listed([f"{name} {share(value)}" for name, value in parts[:MOST_PARTS]])
    spent = f"keep the GPU busy for {duration(total)}"
    if (gpus := gpu_count(run)) > 1:
        # Kernels of several streams run at the same time: their sum can exceed the wall time.
        spent = f"take {duration(total)} on {gpus} GPUs in all, {duration(total / gpus)} on each"
    words = f"Kernels {spent}: {shown}{_largest(run)}"
    headline = f"{what}{_largest(run)}"
    if len(kernels) <= FEW:
        headline = f"{len(kernels)} kernels {spent}"
    if len(kernels) == 1 and gpus == 1:
        what = headline = f"The GPU runs one kernel, for {duration(total)}"
        words = f"The GPU runs one kernel, {first}, for {duration(total)}"
    return Finding(
        key="time",
        rule="",
        title=verbatim(what),
        headline=verbatim(headline),
        verdict=verbatim(f"{words}{_stage_shares(run)}."),
        kernel_ids=tuple(text(k) for k in kernels.head(FEW)["kernel_id"]),
        share=part,
        evidence=(
            Evidence("GPU time of all kernels", total, "ns", "", "nsys", ("kernels.total_ns",)),
        ),
    )


def _by_kernel(run: Run) -> list[tuple[str, float]]:
    sums = run.kernels.groupby("short_name", sort=False)["share"].sum()
    ranked = sums.sort_values(ascending=False, kind="stable")
    return [(str(name), float(part)) for name, part in ranked.items()]


def _by_kind(run: Run) -> list[tuple[str, float]]:
    """Return kinds of kernels by their share; those of no known kind stand for themselves."""
    sums = run.kernels.groupby(kinds(run))["share"].sum().sort_values(ascending=False)
    found = [(str(name), float(value)) for name, value in sums.items()]
    return [(n, v) for n, v in found if v >= threshold("small_gain")] or found[:1]


def kinds(run: Run) -> pd.Series[str]:
    """Return the kind of each row of `kernels` in words; one of no known kind is its own."""
    category = run.kernels["category"].fillna("other")
    named = category.map(lambda kind: PLURALS.get(kind, f"{kind} kernels"))
    return named.where(category != "other", run.kernels["short_name"])


def _largest(run: Run) -> str:
    kernels = run.kernels
    if len(kernels) <= FEW:
        return ""
    part = share(kernels["share"].head(FEW).sum())
    return f"; the {FEW} largest of {count(len(kernels))} kernels hold {part}"


def _stage_shares(run: Run) -> str:
    stages = [row for row in stage_rows(run) if row["stage"] != ALL]
    ranked = sorted(stages, key=lambda row: -number(row["share"]))[:MOST_PARTS]
    parts = [f"{r['stage']} {share(r['share'])}" for r in ranked]
    return f"; by stage: {listed(parts)}" if len(parts) > 1 else ""


def _copies(run: Run, frame: pd.DataFrame | None) -> list[Finding]:
    rows = records(run.memory_operations.sort_values("total_ns", ascending=False))
    crossing = [r for r in rows if "host" in text(r["kind"]).lower()]
    gpus = gpu_count(run)  # times of one on average: they work at the same time
    spent = sum(number(r["total_ns"]) for r in crossing) / gpus
    busy = (kernel_time(run) + sum(number(r["total_ns"]) for r in rows)) / gpus
    if not crossing or spent / busy < limit("copies", "share"):
        return []
    # Copies of several streams run at once: together they hold no more than the time in which the
    # GPU works and no kernel runs.
    wall, idle = wall_time(run)
    alone = wall - idle - (_kernel_union(frame) / gpus if frame is not None else 0.0)
    saved = max(0.0, min(spent, alone)) if wall > 0 else spent
    top = crossing[0]
    words = (
        f"Copies between host and GPU take {share(spent / busy)} of the GPU's busy time "
        f"({duration(spent)}{_of_each(gpus)}), most of it {text(top['kind']).lower()} "
        f"({counted(top['calls'], 'time')}). Behind kernels, or avoided, they would cost nothing: "
        f"that saves at most {share(saved / wall)} of the wall time ({duration(saved)})."
    )
    least = limit("copies", "share")
    return [
        finding(
            "copies",
            title=f"Copies between host and GPU take {share(spent / busy)} of the busy time",
            sentence=words,
            evidence=(
                Evidence("copy time", spent, "ns", f"{share(least)} of busy time",
                         source_of("copies", "share"), ("memory_operations.total_ns",)),
                Evidence("busy time: kernels and copies", busy, "ns", "", "nsys",
                         ("kernels.total_ns", "memory_operations.total_ns")),
                *([Evidence("time in which the GPU works and no kernel runs", alone, "ns", "",
                            "nsys", ("stages.gpu_busy_ns", "launches.duration_ns"))]
                  if wall > 0 and frame is not None else []),
                Evidence("could save", saved, "ns", "",
                         "the copy time, at most the time without kernels"),
                Evidence("wall time of the program under nsys", wall, "ns", "", "nsys",
                         ("stages.wall_ns",)),
            ),
            gain_program=saved / wall,
            gain_ns=saved,
            gain_of="wall time",
            confidence="medium",
        )
    ]  # fmt: skip


def _kernel_union(frame: pd.DataFrame) -> float:
    """Return the ns in which at least one kernel runs on a GPU, summed over the GPUs."""
    return sum(
        union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
        for _, rows in frame.groupby("gpu")
    )


def _of_each(gpus: int) -> str:
    return f" of each of {gpus} GPUs on average" if gpus > 1 else ""
