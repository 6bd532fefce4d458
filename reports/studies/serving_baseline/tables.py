"""Tables of the offline baseline: latencies, batches, lengths, eager against CUDA graphs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from nsight_prof.reports.page import Column, Number, Table, Text
from nsight_prof.reports.serving.points import (
    LATENCIES,
    PERCENTILES,
    TOKEN_RATE,
    cell_column,
    engine_columns,
    gpu_columns,
    shape,
)
from nsight_prof.reports.studies.serving_baseline.points import Baseline, Load, Point
from nsight_prof.reports.studies.serving_baseline.speed import RATE

FOLD_FROM = 12
MIN_P99 = 100
"""Requests below which the 99th percentile is little more than the slowest of them."""
GAUGES = ("kv_usage_max", "power_w_mean", "sm_clock_hz_mean", "gpu_util_pct_mean")
Pair = tuple[Point, Point]


def tables(found: Baseline) -> Iterator[Table[Any]]:
    """Yield the tables that the points allow."""
    if points := found.of("latency"):
        yield _latencies(points)
    if sweep := found.batches:
        yield _batches(sweep)
    if sampled := [p for p in sweep if any(not math.isnan(p.value(c)) for c in GAUGES)]:
        yield _machine(sampled)
    if points := found.of("lengths", found.mode):
        yield _lengths(sorted(points, key=lambda p: (p.prompt, p.output)))
    if found.pairs:
        yield _graphs(found.pairs)


def _latencies(points: list[Point]) -> Table[tuple[Point, str]]:
    def percentile(which: str) -> Column[tuple[Point, str]]:
        return Column(PERCENTILES[which], lambda row: row[0].number(f"{row[1]}_{which}_s"))

    return Table(
        "serving-latency",
        Text("Latency of a single request"),
        [
            Column(Text("Request"), lambda row: shape(row[0])),
            Column(Text("Requests"), lambda row: row[0].number("requests")),
            Column(Text("Latency"), lambda row: LATENCIES[row[1]]),
            *map(percentile, PERCENTILES),
        ],
        [(p, name) for p in points for name in LATENCIES
         if not math.isnan(p.value(f"{name}_p50_s"))],
        note=Text(
            "Single requests, one at a time; percentiles interpolate between them. Of fewer than "
            "{n} requests P99 is little more than the slowest.",
            n=MIN_P99,
        ),
        refs=lambda row: [row[0].ref],
    )  # fmt: skip


def _batches(sweep: list[Point]) -> Table[Point]:
    first = sweep[0]

    def gain(point: Point) -> Number:
        return point.number(RATE).times(first.number(RATE))

    def efficiency(point: Point) -> Number:
        proportional = point.batch / first.batch
        return point.derived((gain(point).value or math.nan) / proportional, "fraction")

    return Table(
        "serving-batches",
        Text("Throughput over the batch size"),
        [
            Column(Text("Batch"), lambda p: p.batch),
            cell_column(Text("Duration"), "duration_s"),
            cell_column(Text("Output"), RATE, TOKEN_RATE),
            Column(Text("Speed-up over batch {n}", n=first.batch), gain),
            Column(Text("Scaling efficiency"), efficiency),
            cell_column(Text("TTFT, median"), "ttft_p50_s"),
            cell_column(Text("TPOT, median"), "tpot_p50_s"),
            cell_column(Text("Prefill"), "prefill_s"),
            Column(Text("Decode step"), lambda p: p.step),
            Column(
                Text("Output while decoding"),
                lambda p: p.derived(p.batch / p.step_s, TOKEN_RATE),
                TOKEN_RATE,
            ),
            *_utilization(),
        ],
        sweep,
        note=Text(
            "{shape} each, {mode}. Scaling efficiency: speed-up over that of a throughput "
            "proportional to the batch. Prefill: until every request of the batch has a first "
            "token. MFU and MBU: share of the roofs for the least FLOPs and bytes that the model "
            "needs.",
            shape=shape(first),
            mode=first.mode_text,
        ),
        refs=lambda p: [p.ref],
    )


def _utilization() -> list[Column[Point]]:
    def share(point: Point, load: Load, utilization: float) -> Number:
        missing = "" if math.isfinite(load.flops) else "the model's shape is not known"
        return Number(utilization, "fraction", (point.ref,), missing or "no roof is known")

    return [
        Column(Text("Prefill MFU"), lambda p: share(p, p.prefill, p.prefill.mfu)),
        Column(Text("Decode MBU"), lambda p: share(p, p.decode, p.decode.mbu)),
    ]


def _machine(sweep: list[Point]) -> Table[Point]:
    return Table(
        "serving-machine",
        Text("Engine and GPU by batch"),
        [Column(Text("Batch"), lambda p: p.batch), *engine_columns(), *gpu_columns()],
        sweep,
        note=Text(
            "KV cache, running and waiting requests: the most that vLLM's gauges showed. Power, "
            "clock and utilization: means of NVML while the batch was timed; utilization is the "
            "part of the time in which any kernel ran."
        ),
        refs=lambda p: [p.ref],
        folded=True,
    )


def _lengths(points: list[Point]) -> Table[Point]:
    return Table(
        "serving-lengths",
        Text("Prompt and output length, one request at a time"),
        [
            Column(Text("Prompt tokens"), lambda p: p.prompt),
            Column(Text("Output tokens"), lambda p: p.output),
            cell_column(Text("TTFT, median"), "ttft_p50_s"),
            cell_column(Text("TPOT, median"), "tpot_p50_s"),
            cell_column(Text("End to end, median"), "e2e_p50_s"),
            cell_column(Text("Output"), RATE, TOKEN_RATE),
            *_utilization(),
        ],
        points,
        refs=lambda p: [p.ref],
        folded=len(points) > FOLD_FROM,
    )


def _graphs(pairs: list[Pair]) -> Table[Pair]:
    def output(mode: int) -> Column[Pair]:
        heading = (Text("Output, eager"), Text("Output, CUDA graphs"))[mode]
        return Column(heading, lambda pair: pair[mode].number(RATE), TOKEN_RATE)

    return Table(
        "serving-graphs",
        Text("Eager against CUDA graphs"),
        [
            Column(Text("Batch"), lambda pair: pair[0].batch),
            Column(Text("Decode step, eager"), lambda pair: pair[0].step),
            Column(Text("Decode step, CUDA graphs"), lambda pair: pair[1].step),
            Column(Text("Speed-up of a step"), lambda pair: pair[0].step.times(pair[1].step)),
            output(0),
            output(1),
            Column(
                Text("Speed-up of the output"),
                lambda pair: pair[1].number(RATE).times(pair[0].number(RATE)),
            ),
        ],
        pairs,
        note=Text("{shape} each.", shape=shape(pairs[0][0])),
        refs=lambda pair: [point.ref for point in pair],
    )
