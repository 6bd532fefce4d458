"""Tables of the offline baseline: latencies, batches, lengths, eager against CUDA graphs."""

from __future__ import annotations

import math

from nsight_prof.reports.bench.models import BenchTable
from nsight_prof.reports.bench.serving_baseline_findings import rate
from nsight_prof.reports.bench.serving_baseline_points import MODES, Baseline, Point, pairs
from nsight_prof.reports.formats import NA, count, data_size, percent, seconds, share, speedup
from nsight_prof.reports.formats import significant as digits

FOLD_FROM = 12
FEW = 100
"""Requests below which the 99th percentile is little more than the slowest of them."""
QUANTITIES = (
    ("ttft", "Time to first token (TTFT)"),
    ("tpot", "Time per output token after it (TPOT)"),
    ("itl", "Between two tokens (ITL)"),
    ("e2e", "Whole request"),
)


def tables(found: Baseline) -> tuple[BenchTable, ...]:
    """Return the tables that the points allow."""
    made = (
        latency_table(found),
        batch_table(found),
        machine_table(found),
        lengths_table(found),
        graphs_table(found),
    )
    return tuple(table for table in made if table is not None)


def latency_table(found: Baseline) -> BenchTable | None:
    """Return the percentiles of the latency of a single request."""
    points = found.of("latency")
    if not points:
        return None
    rows = [
        (_shape(point), words, *(seconds(point.value(f"{name}_{q}_s")) for q in _PERCENTILES))
        for point in points
        for name, words in QUANTITIES
        if not math.isnan(point.value(f"{name}_p50_s"))
    ]
    n = ", ".join(count(point.value("requests")) for point in points)
    few = min(point.value("requests") for point in points) < FEW
    slowest = "; of so few the 99 % is little more than the slowest" if few else ""
    return BenchTable(
        "Latency of a single request",
        ("Request", "Latency", "Mean", "Median", "90 %", "95 %", "99 %"),
        tuple(rows),
        f"{n} requests, one at a time; percentiles interpolate between them{slowest}.",
        ("Request", "Latency"),
    )


_PERCENTILES = ("mean", "p50", "p90", "p95", "p99")


def batch_table(found: Baseline) -> BenchTable | None:
    """Return throughput, speed-up and the two stages by batch."""
    sweep = found.batches
    if not sweep:
        return None
    first = sweep[0]
    rows = []
    for point in sweep:
        faster = point.value("output_tokens_per_s") / first.value("output_tokens_per_s")
        rows.append(
            (
                count(point.batch),
                seconds(point.value("duration_s")),
                rate(point.value("output_tokens_per_s")),
                speedup(faster),
                share(faster / (point.batch / first.batch)),
                seconds(point.value("prefill_s")),
                seconds(point.step_s),
                rate(point.batch / point.step_s),
                share(point.prefill.mfu),
                share(point.decode.mbu),
            )
        )
    return BenchTable(
        "Throughput over the batch size",
        (
            "Batch",
            "Duration",
            "Output",
            f"Speed-up over batch {first.batch}",
            "Of proportional",
            "Prefill",
            "Decode step",
            "While decoding",
            "Prefill MFU",
            "Decode MBU",
        ),
        tuple(rows),
        f"{_shape(first)} each, {MODES.get(first.mode, first.mode)}. Prefill: until every request "
        "of the batch has a first token. MFU and MBU: share of the roofs for the least FLOPs and "
        "bytes that the model needs.",
    )


def machine_table(found: Baseline) -> BenchTable | None:
    """Return KV cache, preemptions, power and clocks by batch."""
    sweep = [p for p in found.batches if any(not math.isnan(p.value(c)) for c in _MACHINE)]
    if not sweep:
        return None
    return BenchTable(
        "The engine and the GPU meanwhile",
        (
            "Batch",
            "KV cache in use",
            "Preemptions",
            "Most running",
            "Most waiting",
            "Power",
            "SM clock",
            "GPU utilization",
            "Memory in use",
            "Clock held down by",
        ),
        tuple(_machine(point) for point in sweep),
        "KV cache, running and waiting requests: the most that vLLM's gauges showed. Power, clock "
        "and utilization: means of NVML while the batch was timed; utilization is the part of the "
        "time in which any kernel ran.",
        ("Clock held down by",),
        folded=True,
    )


_MACHINE = ("kv_usage_max", "power_w_mean", "sm_clock_hz_mean", "gpu_util_pct_mean")


def _machine(point: Point) -> tuple[str, ...]:
    watts, clock = point.value("power_w_mean"), point.value("sm_clock_hz_mean")
    return (
        count(point.batch),
        share(point.value("kv_usage_max")),
        count(point.value("preemptions")),
        count(point.value("running_max")),
        count(point.value("waiting_max")),
        NA if math.isnan(watts) else f"{digits(watts)} W",
        NA if math.isnan(clock) else f"{digits(clock / 1e9)} GHz",
        percent(point.value("gpu_util_pct_mean")),
        data_size(point.value("memory_used_bytes_max")),
        str(point.row["throttle_reasons"] or "").replace("_", " ") or "–",
    )


def lengths_table(found: Baseline) -> BenchTable | None:
    """Return first token, time per token and latency by prompt and output length."""
    points = sorted(found.of("lengths", found.mode), key=lambda p: (p.prompt, p.output))
    if not points:
        return None
    return BenchTable(
        "Prompt and output length, one request at a time",
        (
            "Prompt tokens",
            "Output tokens",
            "Time to first token",
            "Time per output token",
            "Whole request",
            "Output",
            "Prefill MFU",
            "Decode MBU",
        ),
        tuple(
            (
                count(point.prompt),
                count(point.output),
                seconds(point.value("ttft_p50_s")),
                seconds(point.value("tpot_p50_s")),
                seconds(point.value("e2e_p50_s")),
                rate(point.value("output_tokens_per_s")),
                share(point.prefill.mfu),
                share(point.decode.mbu),
            )
            for point in points
        ),
        "Medians of all repeats.",
        folded=len(points) > FOLD_FROM,
    )


def graphs_table(found: Baseline) -> BenchTable | None:
    """Return decode steps and throughput with and without CUDA graphs."""
    both = pairs(found)
    if not both:
        return None
    return BenchTable(
        "Eager against CUDA graphs",
        (
            "Batch",
            "Decode step, eager",
            "Decode step, CUDA graphs",
            "Faster",
            "Output, eager",
            "Output, CUDA graphs",
            "More output",
        ),
        tuple(
            (
                count(eager.batch),
                seconds(eager.step_s),
                seconds(graph.step_s),
                speedup(eager.step_s / graph.step_s),
                rate(eager.value("output_tokens_per_s")),
                rate(graph.value("output_tokens_per_s")),
                speedup(graph.value("output_tokens_per_s") / eager.value("output_tokens_per_s")),
            )
            for eager, graph in both
        ),
        f"{_shape(both[0][0])} each.",
    )


def _shape(point: Point) -> str:
    return f"{count(point.prompt)} prompt and {count(point.output)} output tokens"
