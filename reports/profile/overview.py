"""What the first picture of a report shows: the run over time, and where its time goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.profiled import is_mixed, profiled
from nsight_prof.reports.analysis.timeline import timeline
from nsight_prof.reports.findings.kernels.measure import ARITHMETIC
from nsight_prof.reports.page.figure_models import (
    COPIES,
    GRAPHS,
    IDLE,
    Lane,
    Overview,
    Span,
    TimePart,
)
from nsight_prof.reports.plots.palette import GRID, HOST_COPY, WHOLE_GRAPH, family
from nsight_prof.reports.profile.view_models import ReportView

BINS = 240
"""Bins of the strip: about four pixels each."""
LANES = 8
"""GPUs that have a lane of their own; of more the first ones are shown."""
SPANS = 400
"""Stages or steps that are drawn; of more none is, since none could be told apart."""


Times = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Starts and ends of operations in ns."""
CopiesAndGraphs = Mapping[int, Mapping[str, Times]]
"""Of each GPU the copies and the CUDA graphs that were traced as wholes, by their names."""


def overview(run: Run, view: ReportView, copies_and_graphs: CopiesAndGraphs) -> Overview:
    """Return what the first picture of the report of `run` shows."""
    time_parts = tuple(_time_parts(view))
    total_name = "run" if view.run_time.idle_ns is not None else "GPU time"
    frame = timeline(run)
    if frame is None:
        return Overview(0.0, (), (), time_parts, total_name)
    others = [times for of_gpu in copies_and_graphs.values() for times in of_gpu.values()]
    starts, ends = zip((frame["start_ns"], frame["end_ns"]), *others, strict=True)
    begin, end = int(np.concatenate(starts).min()), int(np.concatenate(ends).max())
    spans = tuple(_steps(run, begin, end)) or tuple(islice(_stages(frame, begin), SPANS + 1))
    gpus = sorted(frame["gpu"].unique())[:LANES]
    edges = np.linspace(begin, end, BINS + 1)
    drawn_of = frame[["gpu", "category", "start_ns", "end_ns"]]
    lanes = tuple(
        _lane(
            drawn_of[drawn_of["gpu"] == gpu], int(gpu), edges, copies_and_graphs.get(int(gpu), {})
        )
        for gpu in gpus
    )
    drawn = spans if len(spans) <= SPANS else ()
    top = number(run.gpus["clock_hz"].max())
    return Overview(
        float(end - begin),
        drawn,
        lanes,
        time_parts,
        total_name,
        _clock(run, frame, edges, top),
        top,
    )


def _time_parts(view: ReportView) -> Iterator[TimePart]:
    """Yield idle time, copies, and each kind of kernels, the longest kind first."""
    time = view.run_time
    if not time.whole_ns:
        return
    if time.idle_ns:
        yield TimePart(IDLE, GRID, time.idle_ns / time.whole_ns)
    kinds: dict[tuple[str, str], float] = defaultdict(float)
    for kernel in view.kernels:
        kinds[family(kernel.category)] += time.of_whole(kernel.share) or 0.0
    kinds[family("")] += time.of_whole(view.rest_share) or 0.0
    for (colour, name), share in sorted(kinds.items(), key=lambda item: -item[1]):
        if share:
            yield TimePart(name, colour, share)
    if time.copies_ns:
        yield TimePart(COPIES, HOST_COPY, time.copies_ns / time.whole_ns)
    if time.graphs_ns:
        yield TimePart(GRAPHS, WHOLE_GRAPH, time.graphs_ns / time.whole_ns)


def _steps(run: Run, begin: int, end: int) -> Iterator[Span]:
    """Yield the steps of an engine on its first GPU."""
    steps = run.engine_steps
    if steps.empty:
        return
    first = steps[steps["device"] == steps["device"].min()]
    for row in records(first.dropna(subset=["gpu_start_ns", "gpu_end_ns"])):
        at, to = number(row["gpu_start_ns"]), number(row["gpu_end_ns"])
        if at < end and to > begin:
            yield Span(max(at, begin) - begin, min(to, end) - begin, text(row["kind"]))


def _stages(frame: pd.DataFrame, begin: int) -> Iterator[Span]:
    """Yield runs of launches of one stage."""
    order = np.argsort(frame["start_ns"].to_numpy(), kind="stable")
    start, end = (frame[name].to_numpy()[order] for name in ("start_ns", "end_ns"))
    codes, names = pd.factorize(frame["stage"])
    stage = codes[order]
    at = np.flatnonzero(np.diff(stage, prepend=-1))
    ends = np.maximum.reduceat(end, at)
    for first, last, name in zip(start[at], ends, names[stage[at]], strict=True):
        if name:
            yield Span(float(first - begin), float(last - begin), str(name))


def _lane(
    frame: pd.DataFrame,
    gpu: int,
    edges: NDArray[np.float64],
    copies_and_graphs: Mapping[str, Times],
) -> Lane:
    code, categories = pd.factorize(frame["category"])
    kinds = np.array([family(category)[1] for category in categories], object)
    starts, ends = frame["start_ns"].to_numpy(float), frame["end_ns"].to_numpy(float)
    rows = {str(kind): np.flatnonzero((kinds == kind)[code]) for kind in sorted(set(kinds))}
    busy = {kind: _covered(starts[at], ends[at], edges) for kind, at in rows.items()}
    # Kernels of several streams run at the same time: together they fill a bin once.
    total = np.maximum(sum(busy.values(), np.zeros(BINS)), 1.0)
    shares = {kind: busy_ns / total for kind, busy_ns in busy.items()}
    for name, times in copies_and_graphs.items():
        # As in the bar below: copies are what runs where no kernel does.
        room = 1.0 - sum(shares.values(), np.zeros(BINS))
        starts, ends = (column.astype(float) for column in times)
        if (alone := np.minimum(_covered(starts, ends, edges), room)).any():
            shares[name] = alone
    return Lane(f"GPU {gpu}", shares)


def _clock(
    run: Run, frame: pd.DataFrame, edges: NDArray[np.float64], top_hz: float
) -> tuple[float, ...]:
    """Return the mean SM clock in each bin, NaN where no launch tells it; none where none does.

    A launch that arithmetic limits takes as many cycles as the one under ncu, so that its time
    tells its clock.
    """
    cycles = {
        text(row["kernel_id"]): number(row["sm_clock_hz"]) * number(row["duration_ns"])
        for row in profiled(run)
        if text(row["bound_by"]) in ARITHMETIC and not is_mixed(row)
    }
    if not cycles:
        return ()
    timed = frame[["start_ns", "duration_ns"]].assign(
        cycles=frame["kernel_id"].map(cycles).astype(float)
    )
    timed = timed[(timed["cycles"] > 0) & (timed["duration_ns"] > 0)]
    if timed.empty:
        return ()
    weight = timed["duration_ns"].to_numpy(float)
    clock = np.fmin(timed["cycles"].to_numpy(float) / weight, top_hz)
    at = np.clip(
        np.searchsorted(edges, timed["start_ns"].to_numpy(float), "right") - 1, 0, BINS - 1
    )
    weights = np.bincount(at, weight, BINS)
    with np.errstate(invalid="ignore"):
        return tuple(float(hz) for hz in np.bincount(at, weight * clock, BINS) / weights)


def _covered(
    starts: NDArray[np.float64], ends: NDArray[np.float64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the part of each bin that intervals cover, summed over intervals."""
    return np.diff(_passed(np.sort(starts), edges) - _passed(np.sort(ends), edges)) / np.diff(edges)


def _passed(moments: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each edge the time that has passed since the moments before it, summed."""
    before = np.searchsorted(moments, edges)
    sums = np.concatenate([[0.0], np.cumsum(moments - edges[0])])
    passed: NDArray[np.float64] = before * (edges - edges[0]) - sums[before]
    return passed
