"""Kernels of several streams that never run at the same time, though each leaves SMs empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.gpu_times import per_gpu_gaps, queues
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.stages import program_time
from nsight_prof.reports.analysis.timeline import longest_kernels
from nsight_prof.reports.findings.gain import of_wall_time
from nsight_prof.reports.findings.kernels.measure import filled
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.rule import (
    DURATIONS,
    LISTED,
    STARTS,
    Rule,
    Threshold,
    column,
    measured,
    wall_evidence,
)
from nsight_prof.reports.page import Evidence, Number, Text

SERIAL_STREAMS = Rule(
    key="serial_streams",
    question="Do streams take turns where their kernels could run side by side?",
    requires="a trace with single launches and CUDA calls",
    thresholds={
        "changes": Threshold(
            20,
            Text("prof: changes from one stream to another from which on they are those of a loop"),
            "count",
        ),
        "beside": Threshold(
            0.05,
            Text("prof: part of the changes at which streams overlap, up to which they take turns"),
        ),
        "apart": Threshold(
            100_000, Text("prof: after longer gaps the host did something else"), "ns"
        ),
        "turn": Threshold(
            10, Text("prof: more kernels of one stream in a row are a phase, no turn"), "count"
        ),
        "share": Threshold(0.01, Text("prof: less than that is within the noise of two runs")),
    },
    gain="of each row of such kernels, their time - that of the longest stream, or that of SMs "
    "full of their blocks where it is longer. Of several GPUs the mean. None where most of the "
    "kernels are launched only after the one before has ended: then launches set the pace. Kernels "
    "that have a block for every SM, and communication between GPUs, are no part of it.",
    action=Text(
        "Find what orders them: a wait for an event that is not needed, work on the legacy default "
        "stream between them, one queue of the hardware (CUDA_DEVICE_MAX_CONNECTIONS=1), or one "
        "batched kernel in place of all of them."
    ),
    advice=Text("let steps that do not need each other run at the same time"),
    disproof=Text(
        "Each kernel reads what the one before it wrote, or without the waits (wrong results may "
        "do for a test) the steps take as long."
    ),
)
OF_EVENTS = Text(
    "Let a stream wait (cudaStreamWaitEvent, wait_stream in PyTorch) only for work whose result it "
    "reads: one fork before and one join after all streams, in place of a wait at each change."
)
OF_DEFAULT = Text(
    "Launch nothing on the legacy default stream between them: it waits for all streams, and they "
    "wait for it. Streams made with cudaStreamNonBlocking, or a default stream for each thread "
    "(--default-stream per-thread), do not."
)
OF_LAUNCHES = Text(
    "First launch faster (a CUDA graph whose branches are the streams, launches by a thread for "
    "each stream) or make one batched kernel of them: until then streams gain nothing."
)
LATE = Text(
    " Most of them are launched only after the one before has ended, so that there is nothing to "
    "run beside it: launches set the pace."
)
DEFAULT_STREAM = 7
"""The legacy default stream: CUPTI numbers that of a process's first context so (nsys 2021.2 to
2026.2)."""
LOOKED_AT = ["kernel_id", "stage", "gpu", "queue", "start_ns", "end_ns", "duration_ns"]
GRIDS = (*column("kernels", "grid"), *column("gpus", "sm_count"))


@dataclass(frozen=True)
class Turns:
    """Kernels of several streams in rows in which no two of them run at the same time.

    `changes` of them follow one of another stream, `of_default` from or to the default stream;
    `saved_ns` is what they save side by side. Numbers are of all `gpus`. `fill` is the part of the
    SMs that has blocks, the mean over their time.
    """

    launches: int
    streams: int
    changes: int
    of_default: int
    total_ns: float
    saved_ns: float
    fill: float
    gpus: int
    stages: frozenset[str]
    kernel_ids: tuple[str, ...]


def serial_streams(run: Run, frame: pd.DataFrame) -> list[Finding]:
    """Return a finding where kernels of several streams take turns for long."""
    wall = program_time(run)[0]
    turns = _turns(run, frame)
    if turns is None or run.api_calls.empty or not wall.value:
        return []
    saved = Number(turns.saved_ns / turns.gpus, "ns", (*STARTS, *DURATIONS))
    if number(saved.share_of(wall).value) < SERIAL_STREAMS.limit("share"):
        return []
    return [_finding(run, turns, saved, wall)]


def _turns(run: Run, frame: pd.DataFrame) -> Turns | None:
    """Return the kernels that take turns on all GPUs; None for too few."""
    stream = run.launch_times["stream"].to_numpy()[queues(run)[1]]
    if len(stream) < 2:
        return None
    # Communication runs beside all else, and waits for other GPUs.
    frame = frame.loc[frame["category"] != "collective", LOOKED_AT]
    frame["fill"] = frame["kernel_id"].map(filled(run)).astype(float).fillna(1.0)
    rows = pd.concat([_of_gpu(rows, stream) for _, rows in frame.groupby("gpu")] or [frame[:0]])
    if rows.empty or rows["change"].sum() < SERIAL_STREAMS.limit("changes"):
        return None
    rows = rows.assign(filled_ns=rows["duration_ns"] * rows["fill"])
    row = ["gpu", "row"]
    sums = rows.groupby(row)[["duration_ns", "filled_ns"]].sum()
    longest = rows.groupby([*row, "queue"])["duration_ns"].sum().groupby(row).max()
    total = float(sums["duration_ns"].sum())
    return Turns(
        len(rows),
        int(rows["queue"].nunique()),
        int(rows["change"].sum()),
        int(rows["of_default"].sum()),
        total,
        total - float(sums["filled_ns"].clip(lower=longest).sum()),
        float(sums["filled_ns"].sum()) / total,
        int(rows["gpu"].nunique()),
        frozenset(rows["stage"]),
        longest_kernels(rows, LISTED),
    )


def _of_gpu(rows: pd.DataFrame, stream: NDArray[Any]) -> pd.DataFrame:
    """Return launches of one GPU that take turns; none where its streams overlap.

    `stream` is the number of each queue. Columns added: row (number of a row of launches that
    follow each other), change (it follows one of another stream), of_default (from or to the
    default stream).
    """
    rule = SERIAL_STREAMS
    rows = rows.sort_values("start_ns", kind="stable")
    queue, end = rows["queue"].to_numpy(), rows["end_ns"].to_numpy()
    before = np.concatenate([queue[:1], queue[:-1]])
    idle = rows["start_ns"].to_numpy()[1:] - np.maximum.accumulate(end)[:-1]
    gap = np.concatenate([[-1], idle])
    change = queue != before
    if np.count_nonzero(change & (gap < 0)) > rule.limit("beside") * np.count_nonzero(change):
        return pd.DataFrame()
    turn = np.cumsum(change)
    fits = (rows["fill"].to_numpy() < 1) & (np.bincount(turn)[turn] <= rule.limit("turn"))
    follows = fits & np.roll(fits, 1) & (gap >= 0) & (gap <= rule.limit("apart"))
    of_default = (stream[queue] == DEFAULT_STREAM) | (stream[before] == DEFAULT_STREAM)
    rows = rows.assign(row=np.cumsum(~follows), change=change & follows)
    rows = rows.assign(of_default=rows["change"] & of_default)[fits]
    return rows[rows.groupby("row")["change"].transform("any")]


def _ordered_by(run: Run, turns: Turns) -> tuple[Text, Text | None]:
    """Return what makes the streams take turns, as far as the trace tells, and what to do."""
    calls = run.api_calls[run.api_calls["name"].fillna("").str.contains("StreamWaitEvent")]
    waits = Number(calls["calls"].sum(), "count", column("api_calls", "calls"))
    if 2 * number(waits.value) >= turns.changes:
        return Text(
            " The program lets a stream wait for an event {n} times (cudaStreamWaitEvent), which "
            "keeps what follows until another stream is done.",
            n=waits,
        ), OF_EVENTS
    if 2 * turns.of_default >= turns.changes:
        return Text(
            " At {n} of the changes one of the two is the legacy default stream, which waits for "
            "all streams that do not exclude it, and they for it.",
            n=turns.of_default,
        ), OF_DEFAULT
    return Text(
        " They were launched in time: the trace does not tell what orders them.",
    ), SERIAL_STREAMS.action


def _finding(run: Run, turns: Turns, saved: Number, wall: Number) -> Finding:
    gaps = per_gpu_gaps(run)
    calls = gaps.loc[gaps["stage"].fillna("").isin(turns.stages), "late_calls"].sum()
    late = 2 * number(calls) * turns.gpus >= turns.changes  # most were launched after its end
    reason, action = _ordered_by(run, turns)
    gain: dict[str, Any] = of_wall_time(saved, wall)
    saves = Text(
        " If none needs the result of another, they save at most {part} of the wall time side by "
        "side ({saved}).",
        part=saved.share_of(wall),
        saved=saved,
    )
    if late:
        reason, action, gain = LATE, OF_LAUNCHES, {"gain_of": "wall time"}
        saves = Text("")
    limits = SERIAL_STREAMS.thresholds
    total = Number(turns.total_ns, "ns", DURATIONS)
    fill = Number(turns.fill, "fraction", (*GRIDS, *DURATIONS))
    return SERIAL_STREAMS.finding(
        title=Text(
            "Kernels of {n} streams run one after another ({part} of the GPU time)",
            n=turns.streams,
            part=total.share_of(Number(kernel_time(run), "ns")),
        ),
        verdict=Text(
            "{launches} kernels of {streams} streams run one after another and never side by side, "
            "though they have blocks for only {fill} of the SMs: {total} in all.{why}{saves}",
            launches=turns.launches,
            streams=turns.streams,
            fill=fill,
            total=total,
            why=reason,
            saves=saves,
        ),
        action=action,
        kernel_ids=turns.kernel_ids,
        share=turns.total_ns / kernel_time(run),
        evidence=(
            Evidence(
                Text("changes from one stream to another"),
                Number(turns.changes, "count", column("launches", "stream")),
                Text("{limit} or more, none of them side by side", limit=limits["changes"].number),
                limits["changes"].source,
            ),
            Evidence(
                Text("part of the SMs that has a block"),
                fill,
                Text("less than all"),
                Text("grid of each kernel and SMs of the GPU, the mean over their time"),
            ),
            measured(Text("time of these kernels"), total),
            measured(
                Text("could save"),
                saved,
                Text("their time - that of the longest stream, or of SMs full of their blocks"),
            )
            if not late
            else None,
            wall_evidence(wall),
        ),
        confidence="low",
        **gain,
    )
