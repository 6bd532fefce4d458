"""What takes the GPU time: kernels, or kinds of kernels, and stages."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.gpu_times import gpu_count
from nsight_prof.reports.analysis.kinds import FEW, MOST_PARTS, kind_of
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.run_time import run_time
from nsight_prof.reports.analysis.stages import ALL, stage_rows
from nsight_prof.reports.analysis.timeline import timeline
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.rule import column, measured
from nsight_prof.reports.page import Name, Number, Ref, Text, Value, Verbatim

SPLIT, SPLIT_SHARE = (8, 64), 0.1
"""Kernels that a range launches at a time, and their part of a stage without the largest of them,
from which on it is told: more of them are a whole step."""


def where_time_goes(run: Run) -> Finding:
    """Return what takes the GPU time; it is nothing to do by itself."""
    kernels = run.kernels
    total = Number(kernel_time(run), "ns", column("kernels", "total_ns"))
    shares = _by_kernel(kernels) if len(kernels) <= FEW else _by_kind(kernels)
    (first, share), *_ = shares
    largest = _largest(kernels)
    title = Text("{share} of the GPU time goes to {what}", what=first, share=share)
    headline = Text("{title}{largest}", title=title, largest=largest)
    busy = _busy(run, total)
    if len(kernels) <= FEW:
        headline = Text("{n} kernels {busy}", n=len(kernels), busy=busy)
    verdict = Text(
        "Kernels {busy}: {shares}{largest}{stages}.{ranges}{graphs}",
        busy=busy,
        shares=[Text("{what} {share}", what=w, share=s) for w, s in shares[:MOST_PARTS]],
        largest=largest,
        stages=_stage_shares(run),
        ranges=_split_ranges(run),
        graphs=_graphs(run),
    )
    if len(kernels) == 1 and gpu_count(run) == 1:
        title = headline = Text(
            "The GPU runs one kernel, {what}, for {time}", what=first, time=total
        )
        verdict = Text(
            "{title}{stages}.{graphs}", title=title, stages=_stage_shares(run), graphs=_graphs(run)
        )
    times = run_time(run)
    if (times.copies_ns or 0.0) > 2 * (times.kernels_ns or 0.0):  # to copy is what the GPU does
        title = headline = Text(
            "Copies and memsets keep the GPU busy for {copies}, kernels for {time}",
            copies=Number(times.copies_ns, "ns"),
            time=Number(times.kernels_ns, "ns"),
        )
    if (times.graphs_ns or 0.0) > number(total.value):
        title = headline = Text(
            "CUDA graphs that were traced as wholes take {time}, all other kernels {total}",
            time=Number(times.graphs_ns, "ns"),
            total=total,
        )
    return Finding(
        rule="",
        key="time",
        title=title,
        headline=headline,
        verdict=verdict,
        kernel_ids=tuple(text(k) for k in kernels.head(FEW)["kernel_id"]),
        share=number(share.value),
        evidence=(measured(Text("GPU time of all kernels"), total),),
    )


def _graphs(run: Run) -> Text | str:
    """Say how long graphs run whose kernels are not known."""
    if not (graphs_ns := run_time(run).graphs_ns):
        return ""
    return Text(
        " CUDA graphs that were traced as wholes take another {time}: which kernels run in them is "
        "not known (trace with --cuda-graph-trace=node).",
        time=Number(graphs_ns, "ns", column("stages", "gpu_busy_ns")),
    )


def _split_ranges(run: Run) -> Text | str:
    """Name NVTX ranges that are many kernels at a time: one job, which findings see in pieces."""
    if (frame := timeline(run)) is None:
        return ""
    path, stage_of = frame["nvtx_path"].array, frame["stage"].array
    innermost = pd.Categorical([text.rpartition("/")[2] for text in path.categories])
    name, names = innermost.codes[path.codes], innermost.categories
    of_stage = names.get_indexer(stage_of.categories)
    inside = np.flatnonzero((names != "")[name] & (of_stage[stage_of.codes] != name))
    if not len(inside):
        return ""
    launched = frame[["stage", "kernel_id", "duration_ns"]].iloc[inside]
    launched["range"] = pd.Categorical.from_codes(name[inside], names)
    launched["opened"] = np.cumsum(np.diff(name, prepend=-1) != 0)[inside]
    stage_ns = frame.groupby("stage", observed=True)["duration_ns"].sum()
    by = ["stage", "range"]
    by_kernel = launched.groupby([*by, "kernel_id"], observed=True)["duration_ns"].sum()
    sums = by_kernel.groupby(by, observed=True).agg(["sum", "max"])
    often = launched.groupby(by, observed=True).size()
    opened = launched[[*by, "opened"]].drop_duplicates().groupby(by, observed=True).size()
    times = pd.DataFrame({"rest_ns": sums["sum"] - sums["max"], "count": often / opened})
    times = times[times["count"].between(*SPLIT)].reset_index()
    times["share"] = times["rest_ns"] / times["stage"].map(stage_ns).astype("int64").clip(lower=1)
    large = times[times["share"] >= SPLIT_SHARE]
    large = large.sort_values("rest_ns", ascending=False, kind="stable")
    ranges = [_split_range(row) for row in records(large.head(MOST_PARTS))]
    return Text(" NVTX ranges of many kernels: {ranges}.", ranges=ranges) if ranges else ""


def _split_range(row: Row) -> Text:
    return Text(
        "{range} in {stage} ({n} each time; all but the largest take {share} of the stage's GPU "
        "time)",
        range=Verbatim(text(row["range"])),
        stage=Name(text(row["stage"]), Ref("stages", text(row["stage"]))),
        n=Number(row["count"], "count", column("launches", "nvtx_path"), digits=2).by(
            Text("launches in the range / times that it was opened")
        ),
        share=Number(row["share"], "fraction", column("launches", "duration_ns")).by(
            Text("sum of all its kernels but the largest / sum of the stage's kernels")
        ),
    )


def _busy(run: Run, total: Number) -> Text:
    gpus = gpu_count(run)
    if gpus == 1:
        return Text("keep the GPU busy for {time}", time=total)
    # Kernels of several streams run at the same time: their sum can exceed the wall time.
    each = Number(number(total.value) / gpus, "ns", total.refs).by(
        Text("{a} / {b}", a=total.at_digits(4), b=gpus)
    )
    return Text(
        "take {time} on {n} GPUs in all, {each} on each. Of this GPU time",
        time=total,
        n=gpus,
        each=each,
    )


def _by_kernel(kernels: pd.DataFrame) -> list[tuple[Value, Number]]:
    groups = kernels.groupby("short_name", sort=False)
    shares = groups["share"].sum().sort_values(ascending=False, kind="stable")
    keys = groups["kernel_id"].first()
    return [
        (Name(str(name), Ref("kernels", str(keys[str(name)]))), Number(value, "fraction"))
        for name, value in shares.items()
    ]


def _by_kind(kernels: pd.DataFrame) -> list[tuple[Value, Number]]:
    """Return kinds of kernels by their share; those of no known kind stand for themselves."""
    category = kernels["category"].fillna("other")
    known = category != "other"
    kinds = kernels.assign(kind=category.where(known, kernels["short_name"]), known=known)
    sums = kinds.groupby(["known", "kind"], as_index=False).agg(
        {"share": "sum", "kernel_id": "first"}
    )
    found: list[tuple[Value, Number]] = []
    for row in records(sums.sort_values("share", ascending=False)):
        kind, share = text(row["kind"]), Number(row["share"], "fraction")
        name = Name(kind, Ref("kernels", text(row["kernel_id"])))
        found.append((kind_of(kind) if row["known"] else name, share))
    large = [pair for pair in found if number(pair[1].value) >= threshold("small_gain")]
    return large or found[:1]


def _largest(kernels: pd.DataFrame) -> Text | str:
    if len(kernels) <= FEW:
        return ""
    return Text(
        "; the {few} largest of {n} kernels hold {share}",
        few=FEW,
        n=len(kernels),
        share=Number(kernels["share"].head(FEW).sum(), "fraction", column("kernels", "share")).by(
            Text("sum of the {n} largest shares", n=FEW)
        ),
    )


def _stage_shares(run: Run) -> Text | str:
    stages = [row for row in stage_rows(run) if row["stage"] != ALL]
    if len(stages) < 2:
        return ""
    ranked = sorted(stages, key=lambda row: -number(row["share"]))[:MOST_PARTS]
    return Text(
        "; by stage: {stages}",
        stages=[
            Text(
                "{stage} {share}",
                stage=Name(text(row["stage"]), Ref("stages", text(row["stage"]))),
                share=Number(row["share"], "fraction"),
            )
            for row in ranked
        ],
    )
