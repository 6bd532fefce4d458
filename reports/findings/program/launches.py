"""Rows of tiny kernels, whose time is mostly the cost of starting and ending them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.gpu_times import LAUNCHES, QUEUED
from nsight_prof.reports.analysis.kinds import NO_LIBRARY
from nsight_prof.reports.analysis.lines import location
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.stages import ALL, program_time
from nsight_prof.reports.analysis.timeline import SINGLE_STEPS, Short, Tiny, runs, short_kernels
from nsight_prof.reports.findings.gain import of_gpu_time, of_host, of_wall_time, untraced_wall
from nsight_prof.reports.findings.kernels.measure import blocks, filled
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.launch_rules import (
    BLOCKING_LAUNCHES,
    GRAPH_BREAKS,
    GROWING_STEPS,
    HOST_FUNCTIONS,
    ONE_BY_ONE,
    PADDED_BATCHES,
    SMALL_KERNELS,
)
from nsight_prof.reports.findings.program.rule import (
    DURATIONS,
    LISTED,
    STARTS,
    column,
    measured,
    names_of,
    wall_evidence,
)
from nsight_prof.reports.findings.shortest_launch import Floor, shortest_launch
from nsight_prof.reports.page import Evidence, Name, Number, Ref, Text, Verbatim

PADS = r"\bpad_sequence\(|\bpadding *= *(?:True|[\"']longest)|\bDataCollatorWithPadding\("
"""Lines that pad sequences to the longest of their batch."""
AGAIN, ALIKE = 10, 0.9
"""Times that a line runs in a loop, and part of the largest size from which on one is about it."""
OF_ROWS = ("norm",)
"""Categories of kernels that work once on each element of a sequence, and on nothing else."""
ACTIVATIONS = "gelu|silu|swiglu|relu"
"""The same by their names."""
IN_STREAM = "LaunchHostFunc|StreamAddCallback"
"""Calls of CUDA that put a function of the host into a stream."""
RESUMED = r"torch_dynamo_resume_in_\w*_at_(\d+)$"
"""Function in which torch.compile goes on behind the line that broke its graph (PyTorch 2.11)."""
FUSED, POINTWISE = "Inductor", "triton_poi"
"""Library of compiled kernels, and in the names of those that it fuses with their neighbours."""
BLOCKED = 0.9
"""Part of the launches whose call began when the GPU had nothing to do."""


def small_kernels(run: Run, frame: pd.DataFrame, launch_bound: Mapping[str, bool]) -> list[Finding]:
    """Return a finding for each stage with rows of tiny kernels, unless it is launch-bound.

    A kernel takes at least as long as the shortest launch of the trace, whatever it does: of each
    row, all but one of these are saved, with the gaps between queued kernels. Launches that repeat
    one kernel and leave SMs empty save what they would take side by side. Of several GPUs the mean.
    `launch_bound`: stages -> whether closing their gaps saves nothing without nsys.
    """
    rule, floor = SMALL_KERNELS, shortest_launch(run)
    wall = program_time(run)[0]
    if not wall.value:
        return []
    tiny = Tiny(
        short=rule.limit("short"),
        fewest=int(rule.limit("run")),
        gap=rule.limit("queue_gap"),
        floor=floor.ns,
        fill=filled(run),
    )
    found = [
        _finding(row, floor, wall, _lengthened(run, row), kernel_time(run))
        for row in short_kernels(frame, tiny)
        if all(
            of_nsys and len(row.kernel_ids) == 1
            for stage, of_nsys in launch_bound.items()
            if stage in (row.stage, ALL)
        )
    ]
    return [f for f in found if f.gain_program >= rule.limit("share")]


def one_by_one(run: Run, frame: pd.DataFrame) -> list[Finding]:
    """Return a finding where the same few small kernels are launched again and again in a row.

    The GPU waits for the host between them, which does the same for each item of a loop. Repeats of
    one kernel alone are a matter of launches.
    """
    rule, wall, floor = ONE_BY_ONE, program_time(run)[0], shortest_launch(run)
    if not wall.value or run.api_calls.empty:
        return []
    mean = frame["duration_ns"].groupby(frame["kernel_id"], observed=True).transform("mean")
    in_program = frame["category"].eq("other") & frame["library"].isin(("Triton", *NO_LIBRARY))
    small = (frame["category"].isin(SINGLE_STEPS) | in_program) & (mean < rule.limit("short"))
    loops = runs(frame, small.to_numpy(dtype=bool), through_copies=True)
    loops = loops[loops["launches"] >= 2 * rule.limit("repeats")]
    ids, start, end = (frame[name].to_numpy() for name in ("kernel_id", "start_ns", "end_ns"))
    again, repeats = [], rule.limit("repeats")
    for a, b, _ in loops.itertuples(index=False):
        often = pd.Series(ids[a:b]).value_counts()
        if (often >= repeats).sum() > 1 and len(often) * repeats <= b - a:
            again.append((a, b))
    if not again:
        return []
    rows = frame.iloc[np.concatenate([np.arange(a, b) for a, b in again])]
    spans = sum(int(end[a:b].max()) - int(end[a - 1] if a else start[a]) for a, b in again)
    if rows["duration_ns"].sum() > rule.limit("busy") * spans:
        return []  # queued, or nodes of a graph
    busy = (rows["duration_ns"] - floor.ns).clip(lower=0).sum()
    gpus = int(rows["gpu"].nunique())
    saved = Number(max(0.0, spans - float(busy)) / gpus, "ns", (*STARTS, *DURATIONS))
    if number(saved.share_of(wall).value) < rule.limit("share"):
        return []
    often = rows["kernel_id"].astype(object).value_counts()
    names = dict(zip(rows["kernel_id"], rows["short_name"], strict=True))
    total = Number(rows["duration_ns"].sum(), "ns", DURATIONS)
    return [
        rule.finding(
            key="idle",
            stage=str(rows["stage"].mode()[0]) or ALL,
            title=Text(
                "{n} small kernels are launched one by one, for each item of a loop", n=len(rows)
            ),
            verdict=Text(
                "{n} small kernels ({names}) are launched one by one, the same ones again and "
                "again: {each} in a row on average. They take {total}, the loop {span}. As one "
                "operation on all items at most {gain} of the wall time is saved ({saved}).",
                n=len(rows),
                names=names_of((str(key), str(names[key])) for key in often.index),
                each=Number(len(rows) / len(again), "count", STARTS),
                total=total,
                span=Number(spans, "ns", (*STARTS, *DURATIONS)),
                gain=saved.share_of(wall),
                saved=saved,
            ),
            kernel_ids=tuple(map(str, often.index[:LISTED])),
            share=number(total.value) / kernel_time(run),
            evidence=(
                rule.thresholds["repeats"].met(
                    Text("launches in a row for each of their kernels"),
                    Number(len(rows) / len(again) / len(often), "count", STARTS),
                ),
                measured(Text("time of these kernels"), total),
                measured(Text("time of the loops"), Number(spans, "ns", STARTS)),
                floor.evidence(),
                measured(Text("could save"), saved),
                wall_evidence(wall),
            ),
            confidence="medium",
            **of_wall_time(saved, wall),
        )
    ]


def growing_steps(run: Run, frame: pd.DataFrame) -> list[Finding]:
    """Return a finding where norms or activations work on a few rows more in each step.

    Each element of a sequence has a row there: that all of them come again in every step shows that
    results of earlier steps are computed anew.
    """
    rule, limits, wall = GROWING_STEPS, GROWING_STEPS.thresholds, program_time(run)[0]
    kernels = run.kernels
    of_rows = kernels["category"].isin(OF_ROWS) | kernels["short_name"].str.contains(ACTIVATIONS)
    grids = {text(row["kernel_id"]): text(row["grid"]) for row in records(kernels[of_rows])}
    known = {key: float(n) for key, grid in grids.items() if (n := blocks(grid)) > 0}
    rows = frame.loc[frame["kernel_id"].isin(list(known)), ["kernel_id", "short_name"]]
    sizes, ids = np.empty(0), list[str]()
    for _, launches in rows.groupby("short_name", sort=False, observed=True):
        of_kernel = launches["kernel_id"].map(known).to_numpy(dtype=float)
        of_steps = of_kernel[np.diff(of_kernel, prepend=0.0) != 0]
        ratio = of_steps[1:] / of_steps[:-1]
        # A loop over prompts starts over: its longest rise counts.
        starts_over = np.flatnonzero((ratio <= 1) | (ratio > 1 + rule.limit("growth"))) + 1
        rise = max(np.split(of_steps, starts_over), key=len)
        if len(rise) > len(sizes):
            sizes, ids = rise, list(map(str, launches["kernel_id"].unique()))
    if not wall.value or len(sizes) < rule.limit("sizes") or not _padding(run).empty:
        return []
    total = Number(kernel_time(run), "ns", column("kernels", "total_ns"))
    saved = Number(number(total.value) * (1 - 1 / len(sizes)), "ns", total.refs)
    steps = Number(len(sizes), "count", column("launches", "grid"))
    return [
        rule.finding(
            title=Text("Each of {n} steps computes the whole of a growing sequence again", n=steps),
            verdict=Text(
                "In {n} steps one after another norms or activations work on ever more blocks ({a} "
                "in the first, {b} in the last): each step works on all elements of a sequence "
                "again, and a few new ones (the same tokens, without a KV cache). If earlier "
                "results were kept, at most {gain} of the GPU time would be saved ({saved}).",
                n=steps,
                a=Number(float(sizes[0]), "count", column("launches", "grid")),
                b=Number(float(sizes[-1]), "count", column("launches", "grid")),
                gain=saved.share_of(total),
                saved=saved,
            ),
            kernel_ids=tuple(ids[:LISTED]),
            evidence=(
                limits["sizes"].met(Text("steps, each of more blocks than the one before"), steps),
                measured(Text("GPU time of all kernels"), total),
                measured(Text("could save"), saved),
            ),
            confidence="low",
            **of_gpu_time(saved, total, total),
        )
    ]


def _padding(run: Run) -> pd.DataFrame:
    """Return the lines that pad sequences of batch after batch to the longest one."""
    lines = run.timed_lines
    return lines[(lines["hits"] >= AGAIN) & lines["source"].fillna("").str.contains(PADS)]


def padded_batches(run: Run, frame: pd.DataFrame) -> list[Finding]:
    """Return a finding where batches are padded, and nearly all as far as the longest of all.

    Batches of like lengths differ in size; where they are of about one size, a few long sequences
    in each make it so. Norms have a row for each element of a sequence, used or not.
    """
    rule, padding = PADDED_BATCHES, _padding(run)
    norms = run.kernels[run.kernels["category"].isin(OF_ROWS)].set_index("kernel_id")
    rows = frame[frame["kernel_id"].isin(norms.index)]
    if padding.empty or rows.empty:
        return []
    rows = rows[rows["short_name"] == rows["short_name"].mode()[0]]
    sizes = rows["kernel_id"].astype(object).map(norms["grid"]).map(blocks).astype(float)
    refs = column("launches", "grid")
    alike = Number((sizes >= ALIKE * sizes.max()).mean(), "fraction", refs)
    if not rule.limit("alike") <= number(alike.value) or sizes.min() >= ALIKE * sizes.max():
        return []
    first = records(padding.nlargest(1, "hits"))[0]
    return [
        rule.finding(
            title=Text(
                "Sequences are padded: {share} of the batches are about as large as any",
                share=alike,
            ),
            verdict=Text(
                "Sequences are padded to the longest of their batch at {place}, and {share} of the "
                "batches are about as large as any ({b} blocks of norms; the smallest {a}): "
                "lengths are mixed, so that a few long sequences give all others padding, on which "
                "the GPU works as on the rest. How much that is no trace tells.",
                place=Verbatim(location(text(first["file"]), int(number(first["line"])))),
                share=alike,
                a=Number(sizes.min(), "count", refs),
                b=Number(sizes.max(), "count", refs),
            ),
            evidence=(
                rule.thresholds["alike"].met(
                    Text("launches of norms about as large as the largest"), alike
                ),
            ),
            confidence="low",
            gain_of="GPU time",
        )
    ]


def blocking_launches(run: Run) -> list[Finding]:
    """Return a finding where launch calls last longer than the kernels that they start.

    A host that need not wait returns at once, and one whose queue is full leaves no GPU idle.
    """
    rule, wall = BLOCKING_LAUNCHES, program_time(run)[0]
    calls = run.api_calls[run.api_calls["name"].fillna("").str.contains("LaunchKernel")]
    launches, kernels = number(calls["calls"].sum()), number(run.kernels["calls"].sum())
    if not wall.value or launches < rule.limit("launches") or launches < kernels:
        return []
    median = number((calls["median_ns"] * calls["calls"]).sum()) / launches
    mean = Number(kernel_time(run) / kernels, "ns", column("kernels", "total_ns"))
    blocked = (
        number(mean.value) >= rule.limit("kernel")
        and median >= rule.limit("longer") * number(mean.value)
        and number(run.idle_gaps["late_calls"].sum()) >= BLOCKED * launches
    )
    if not blocked:
        return []
    refs = column("api_calls", "total_ns")
    waited = number(calls["total_ns"].sum()) - launches * rule.limit("start")
    saved = Number(of_host(run, waited), "ns", refs)
    each = Number(median, "ns", column("api_calls", "median_ns"))
    return [
        rule.finding(
            key="idle",
            stage=ALL,
            title=Text(
                "Each launch waits for its kernel: {n} launches of {each}",
                n=round(launches),
                each=each,
            ),
            verdict=Text(
                "A launch call takes {each} (median), the kernel that it starts {kernel} on "
                "average, and the GPU is idle before nearly each of them: launches wait until "
                "their kernel has ended (blocking, synchronous launches), as with "
                "CUDA_LAUNCH_BLOCKING=1. Without that at most {gain} of the wall time is saved "
                "({saved}).",
                each=each,
                kernel=mean,
                gain=saved.share_of(wall),
                saved=saved,
            ),
            evidence=(
                Evidence(
                    Text("median launch call"),
                    each,
                    Text(
                        "{limit} times the mean kernel or more",
                        limit=rule.thresholds["longer"].number,
                    ),
                    rule.thresholds["longer"].source,
                ),
                measured(Text("mean kernel"), mean),
                measured(Text("could save"), saved),
                wall_evidence(wall),
            ),
            confidence="medium",
            **of_wall_time(saved, wall),
        )
    ]


def graph_breaks(run: Run, frame: pd.DataFrame) -> list[Finding]:
    """Return a finding where Python goes on in functions behind breaks of a compiled graph.

    Compiled kernels that touch elements and follow on each other are those of different graphs:
    one that has both keeps what the first passes on.
    """
    rule, wall = GRAPH_BREAKS, program_time(run)[0]
    lines = pd.concat([run.timed_lines, run.host_lines, run.launch_lines])
    at = lines["function"].fillna("").str.extract(RESUMED, expand=False)
    breaks = lines.assign(at=at)[at.notna()].drop_duplicates(["file", "at"])
    if breaks.empty or not wall.value:
        return []
    breaks = breaks.assign(at=breaks["at"].astype(int)).sort_values(["file", "at"])
    remains = 1 / (len(breaks) + 1)
    compiled = run.kernels["library"].eq(FUSED) & run.kernels["name"].str.contains(POINTWISE)
    is_compiled = frame["kernel_id"].isin(run.kernels.loc[compiled, "kernel_id"])
    of_another = is_compiled & is_compiled.shift(fill_value=False)
    of_another &= frame["kernel_id"].ne(frame["kernel_id"].shift())
    shorter = np.minimum(frame["duration_ns"], frame["duration_ns"].shift())
    passed = Number((1 - remains) * number(shorter[of_another].sum()), "ns", DURATIONS)
    gaps = run.idle_gaps[run.idle_gaps["cause"].eq(LAUNCHES)]
    waits = of_host(run, (1 - remains) * number(gaps["idle_ns"].sum()))
    waiting = Number(waits, "ns", column("idle_gaps", "idle_ns"))
    saved = passed + waiting
    if not number(saved.share_of(wall).value) >= rule.limit("share"):
        return []
    return [
        rule.finding(
            key="idle",
            stage=ALL,
            title=Text(
                "torch.compile breaks the graph of a step at {n} line",
                "torch.compile breaks the graph of a step at {n} lines",
                n=len(breaks),
            ),
            verdict=Text(
                "Python goes on behind breaks of the compiled graph at {places}: each piece is "
                "compiled, entered and launched by itself, and what it hands over goes through "
                "memory. In one graph (no graph breaks) compiled kernels that follow on each other "
                "are one, which saves {passed}, and {waiting} of waits for launches: at most "
                "{gain} of the wall time ({saved}).",
                places=[
                    Verbatim(location(str(row["file"]), int(number(row["at"]))))
                    for row in records(breaks.head(LISTED))
                ],
                passed=passed,
                waiting=waiting,
                gain=saved.share_of(wall),
                saved=saved,
            ),
            evidence=(
                Evidence(
                    Text("could save"),
                    saved,
                    Text("{limit} of the wall time", limit=rule.thresholds["share"].number),
                    rule.thresholds["share"].source,
                ),
                measured(Text("compiled kernels right behind those of another graph"), passed),
                measured(Text("idle waiting for launches"), waiting),
                wall_evidence(wall),
            ),
            confidence="low",
            **of_wall_time(saved, wall),
        )
    ]


def host_functions(run: Run) -> list[Finding]:
    """Return a finding where kernels wait for functions of the host in their stream."""
    rule, limits, wall = HOST_FUNCTIONS, HOST_FUNCTIONS.thresholds, program_time(run)[0]
    calls = run.api_calls[run.api_calls["name"].fillna("").str.contains(IN_STREAM)]
    often = Number(calls["calls"].sum(), "count", column("api_calls", "calls"))
    queued = run.idle_gaps[run.idle_gaps["cause"].eq(QUEUED)]
    gaps = number(queued["gaps"].sum())
    if not wall.value or not gaps or number(often.value) < rule.limit("calls"):
        return []
    idle = Number(queued["idle_ns"].sum(), "ns", column("idle_gaps", "idle_ns"))
    each = idle.per(Number(gaps, "count", column("idle_gaps", "gaps")), "ns")
    beyond = max(0.0, number(each.value) - rule.limit("queue_gap"))
    # Those behind no function are shorter: what is beyond is all of these.
    saved = Number(min(gaps, number(often.value)) * beyond, "ns", (*idle.refs, *often.refs))
    if number(saved.share_of(wall).value) < rule.limit("share"):
        return []
    return [
        rule.finding(
            key="idle",
            stage=ALL,
            title=Text("The stream waits for functions of the host: {n} calls", n=often),
            verdict=Text(
                "{n} functions of the host stand in the streams of the GPU "
                "(cudaLaunchHostFunc, callbacks), and between queued operations it is idle for "
                "{each} on average, where {gap} are usual: what follows such a function waits "
                "until a thread of the host has run it. Without them at most {gain} of the wall "
                "time is saved ({saved}).",
                n=often,
                each=each,
                gap=rule.thresholds["queue_gap"].number,
                gain=saved.share_of(wall),
                saved=saved,
            ),
            evidence=(
                limits["calls"].met(Text("calls that put a function into a stream"), often),
                measured(Text("mean gap between queued operations"), each),
                measured(Text("could save"), saved),
                wall_evidence(wall),
            ),
            confidence="medium",
            **of_wall_time(saved, wall),
        )
    ]


def _lengthened(run: Run, row: Short) -> float:
    """Return how many times as long nsys makes a program that its launches do not hold up: what
    goes is as large a part of the time without it, which has the gaps of a queue.
    """
    wall, untraced = program_time(run)[0], untraced_wall(run)
    without = number(untraced.value) + row.queued_ns / row.gpus
    return max(1.0, number(wall.value) / without) if without > 0 else 1.0


def _finding(row: Short, floor: Floor, wall: Number, lengthened: float, total_ns: float) -> Finding:
    starts = row.launches - row.runs - row.batched
    saved_ns = min(row.batched_ns + floor.ns * starts, row.total_ns) + row.queued_ns
    saved_ns *= lengthened
    # GPUs work at the same time: what is saved on each is saved once.
    saved = Number(min(saved_ns / row.gpus, wall.value or 0.0), "ns")
    gain = saved.share_of(wall)
    where = _where(row)
    return SMALL_KERNELS.finding(
        stage=row.stage,
        title=Text("{n} tiny kernels run one after another{where}", n=row.launches, where=where),
        verdict=Text(
            "{n} kernels of {mean} run one after another{where}, in rows of {length} on average: "
            "{total}, {part} of the GPU time. {cause} One kernel per row would save about {gain} "
            "of the wall time ({saved}).",
            n=row.launches,
            mean=Number(row.total_ns / row.launches, "ns"),
            where=where,
            length=round(row.launches / row.runs),
            total=Number(row.total_ns, "ns", DURATIONS).by(
                Text("sum of the launches in these rows")
            ),
            part=Number(row.total_ns / total_ns, "fraction"),
            cause=_cause(row, floor),
            gain=gain,
            saved=saved,
        ),
        kernel_ids=row.kernel_ids,
        share=row.total_ns / total_ns,
        evidence=_evidence(row, floor, saved, wall),
        confidence="medium",
        **of_wall_time(saved, wall),
    )


def _where(row: Short) -> Text | str:
    stage = Name(row.stage, Ref("stages", row.stage))
    if row.stage and row.gpus > 1:
        return Text(" in {stage} on {n} GPUs", stage=stage, n=row.gpus)
    if row.gpus > 1:
        return Text(" on {n} GPUs", n=row.gpus)
    return Text(" in {stage}", stage=stage) if row.stage else ""


def _cause(row: Short, floor: Floor) -> Text:
    """Say what the row costs that one kernel would not."""
    if 2 * row.batched > row.launches:
        return Text(
            "{n} of them repeat the kernel before them, which leaves SMs empty: if none needs the "
            "result of another, they can run side by side, as one batched call.",
            n=row.batched,
        )
    shortest = Number(floor.ns, "ns")
    if floor.kernel:
        return Text(
            "Starting and ending kernels is much of it: the shortest kernel of the trace takes "
            "{shortest}.",
            shortest=shortest,
        )
    return Text(
        "Starting and ending kernels is much of it: the shortest kernel of recorded runs takes "
        "{shortest}.",
        shortest=shortest,
    )


def _evidence(row: Short, floor: Floor, saved: Number, wall: Number) -> tuple[Evidence, ...]:
    limits = SMALL_KERNELS.thresholds
    grids = (*column("kernels", "grid"), *column("gpus", "sm_count"))
    formula = Text(
        "(shortest launch x (kernels - rows) + time between them) / GPUs x time under nsys / "
        "without it"
    )
    batched: list[Evidence] = []
    if row.batched:
        formula = Text(
            "(saved side by side + shortest launch x (kernels - rows - repeats) + time between "
            "them) / GPUs x time under nsys / without it"
        )
        batched = [
            measured(
                Text("of these, repeats of one kernel that leaves SMs empty"),
                Number(row.batched, "count", (*column("launches", "kernel_id"), *grids)),
            ),
            measured(
                Text("saved by them side by side"),
                Number(row.batched_ns, "ns", (*DURATIONS, *grids)),
                Text("their time - that of the longest, or of SMs full of their blocks"),
            ),
        ]
    return (
        Evidence(
            Text("mean kernel"),
            Number(row.total_ns / row.launches, "ns", DURATIONS),
            Text("under {limit}", limit=limits["short"].number),
            limits["short"].source,
        ),
        limits["run"].met(Text("kernels in a row"), Number(row.launches / row.runs, "", STARTS)),
        measured(Text("kernels in these rows"), Number(row.launches, "count", STARTS)),
        measured(Text("rows"), Number(row.runs, "count", STARTS)),
        *batched,
        floor.evidence(),
        Evidence(
            Text("time between them"),
            Number(row.queued_ns, "ns", (*STARTS, *DURATIONS)),
            Text("{limit} per gap at most", limit=limits["queue_gap"].number),
            limits["queue_gap"].source,
        ),
        measured(Text("could save"), saved, formula),
        measured(
            Text("GPUs that run them"), Number(row.gpus, "count", column("launches", "device"))
        ),
        wall_evidence(wall),
    )
