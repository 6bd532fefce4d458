"""Sentences about prefill and decode: what bounds them, what waits, and what would change it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from nsight_prof.parsers.build.peaks import Peak
from nsight_prof.reports.bench.models import BenchFinding
from nsight_prof.reports.engine.stages.agreement import Agreement
from nsight_prof.reports.engine.stages.batches import Batch
from nsight_prof.reports.engine.stages.counted import Counted
from nsight_prof.reports.engine.stages.kinds import Kind, Stages
from nsight_prof.reports.formats import (
    byte_rate,
    count,
    counted,
    data_size,
    difference,
    duration,
    flop_count,
    flop_rate,
    quantity,
    seconds,
    share,
    significant,
)

IDLE_WORTH_SAYING = 0.1
"""Part of a step from which on the sentence about it tells its idle time."""
PADDING_WORTH_SAYING = 1.02


def limit(stages: Stages, kind: Kind) -> tuple[str, Peak | None, float]:
    """Return what limits a kind ("memory" or "arithmetic"), by which roof, and the least s a step.

    The last is NaN, with no roof, where work or roofs are not known.
    """
    needed, roofs = kind.needed, stages.roofs
    compute, memory = roofs.attained(kind.flop_rate), roofs.memory
    if needed is None or compute is None or memory is None:
        return "", None, math.nan
    reading = needed.traffic.read / memory.value / kind.steps
    computing = needed.flops.total / compute.value / kind.steps
    if reading > computing:
        return "memory", memory, reading
    return "arithmetic", compute, computing


def findings(
    stages: Stages,
    timed: Sequence[Batch],
    work: Sequence[Counted],
    agreed: Sequence[Agreement],
) -> tuple[BenchFinding, ...]:
    """Return what the steps of a trace show, the telling first."""
    found = [_of_kind(stages, kind, timed) for kind in reversed(stages.kinds)]
    found += [_padding(stages, work), _agreement(agreed)]
    return tuple(finding for finding in found if finding is not None)


def _of_kind(stages: Stages, kind: Kind, timed: Sequence[Batch]) -> BenchFinding | None:
    what, roof, floor = limit(stages, kind)
    if kind.needed is None or roof is None:
        return None
    if what == "memory":
        return _memory_bound(stages, kind, roof, floor, timed)
    return _compute_bound(stages, kind, roof, floor)


def _memory_bound(
    stages: Stages, kind: Kind, roof: Peak, floor: float, timed: Sequence[Batch]
) -> BenchFinding | None:
    if kind.needed is None:
        return None
    moved = kind.needed.traffic
    weights, cached = (value / kind.steps for value in (moved.weights, moved.kv_read))
    size = round(kind.requests)
    other = _other_batch(timed, size)
    sentence = (
        f"{_named(kind)} at batch {size} reads {data_size(weights)} of weights and "
        f"{data_size(cached)} of KV cache a step: {seconds(floor)} floor, "
        f"{duration(kind.mean_ns)} in the trace's mean (MBU {share(kind.read_rate / roof.value)})"
        f"{_waits(kind)}"
    )
    plain = (
        f"Generating a token for each of {size} requests takes {duration(kind.mean_ns)}; reading "
        f"the model from memory once takes {seconds(floor)} of that"
    )
    if other is not None:
        cost = _cost(other, size, timed)
        sentence += f". {_untraced(other, size, timed)}"
        plain += f". {cost[0].upper()}{cost[1:]}"
    return BenchFinding(
        f"{sentence}.",
        f"{counted(kind.steps, 'step')} of the trace (median {duration(kind.step_ns)}); "
        f"{roof.name} {byte_rate(roof.value)}; {_above(kind, floor)}.",
        "The floor reads every weight once and no activation."
        + (
            _sheet(stages.roofs.read_sheet, kind.read_rate, byte_rate) if roof.key == "read" else ""
        ),
        f"{plain}.",
    )


def _compute_bound(stages: Stages, kind: Kind, roof: Peak, floor: float) -> BenchFinding | None:
    if kind.needed is None:
        return None
    size, tokens = round(kind.requests), round(kind.tokens / kind.steps)
    sentence = (
        f"{_named(kind)} of {count(tokens)} tokens ({counted(size, 'request')}) computes "
        f"{flop_count(kind.needed.flops.total / kind.steps)} a step: {seconds(floor)} floor, "
        f"{duration(kind.mean_ns)} in the trace (MFU {share(kind.flop_rate / roof.value)} of the "
        f"{roof.name}){_waits(kind)}"
    )
    limits = _sheet(stages.roofs.compute_sheet, kind.flop_rate, flop_rate)
    if roof.key == "burst" and stages.roofs.steady is not None:
        over = share(kind.flop_rate / stages.roofs.steady.value)
        limits = (
            f" It reaches {over} of the steady roof: the trace is over before the power limit "
            f"slows the clock, and load that lasts is slower.{limits}"
        )
    return BenchFinding(
        f"{sentence}.",
        f"{counted(kind.steps, 'step')} of the trace; {roof.name} {flop_rate(roof.value)}; "
        f"{_above(kind, floor)}.",
        limits.strip(),
        f"Reading {count(tokens)} prompt tokens takes {duration(kind.mean_ns)}, "
        f"{significant(kind.mean_ns / 1e9 / floor)} times the least that this GPU needs.",
    )


def _named(kind: Kind) -> str:
    names = {"prefill": "Prefill", "decode": "Decode", "mixed": "A mixed step"}
    return names[kind.kind]


def _waits(kind: Kind) -> str:
    """Say how long the GPU is idle where that is much of a step."""
    if kind.idle_ns < IDLE_WORTH_SAYING * kind.time_ns:
        return ""
    return f", {duration(kind.idle_ns / kind.steps)} of which the GPU is idle"


def _above(kind: Kind, floor: float) -> str:
    """Say how the time above the floor divides: idle, and kernels that do not reach the roof."""
    over = kind.mean_ns - floor * 1e9
    idle = kind.idle_ns / kind.steps
    return (
        f"of {duration(over)} above the floor {duration(idle)} is idle time and "
        f"{duration(over - idle)} kernels that do not reach the roof"
    )


def _sheet(peak: Peak | None, rate: float, show: Callable[[float], str]) -> str:
    if peak is None:
        return ""
    return f" Of the {peak.name} ({show(peak.value)}) it is {share(rate / peak.value)}."


def _other_batch(timed: Sequence[Batch], size: int) -> Batch | None:
    """Return the largest batch that was timed beside `size`, if `size` was timed too."""
    if not any(one.batch == size for one in timed):
        return None
    larger = [one for one in timed if one.batch > size]
    return max(larger, key=lambda one: one.batch) if larger else None


def _untraced(other: Batch, size: int, timed: Sequence[Batch]) -> str:
    """Say what a larger batch costs, on the one basis of these times: the host's clock alone."""
    base = next(one for one in timed if one.batch == size)
    return (
        f"Without a profiler batch {other.batch} takes {seconds(other.seconds)} a step and batch "
        f"{size} {seconds(base.seconds)}: {difference(other.seconds / base.seconds - 1)}, for "
        f"{significant(other.tokens_per_s / base.tokens_per_s, 2)} times the tokens a second"
    )


def _cost(other: Batch, size: int, timed: Sequence[Batch]) -> str:
    base = next(one for one in timed if one.batch == size)
    more = other.seconds / base.seconds - 1
    gain = other.tokens_per_s / base.tokens_per_s
    word = f"costs {share(more)} more" if more >= 0 else f"costs {share(-more)} less"
    return (
        f"batch {other.batch} {word} a step and gives {significant(gain, 2)} times the tokens a "
        "second"
    )


def _padding(stages: Stages, work: Sequence[Counted]) -> BenchFinding | None:
    wasted = [one for one in work if one.ratio is not None and one.ratio >= PADDING_WORTH_SAYING]
    if not wasted:
        return None
    worst = max(wasted, key=lambda one: (one.ratio or 0.0) * one.needed)
    return BenchFinding(
        f"In {worst.kind} the GPU computes {significant(worst.ratio)} times the FLOPs that the "
        f"model needs for {worst.part}: the rest is padding.",
        f"Counters of one launch of each kernel x its calls: {flop_count(worst.counted)}; needed: "
        f"{flop_count(worst.needed)}.{_rows(stages, worst)}",
        "Padding costs time only where arithmetic limits.",
    )


def _rows(stages: Stages, worst: Counted) -> str:
    """Say how few rows attention has in decode, where Tensor Cores work on tiles of them."""
    if worst.part != "attention" or worst.kind != "decode" or stages.shard is None:
        return ""
    group = stages.shard.heads // stages.shard.kv_heads
    rows = counted(group, "row")
    return f" Tensor Cores work on tiles; a step has {rows} of queries for a key-value head."


def _agreement(agreed: Sequence[Agreement]) -> BenchFinding | None:
    own = [one for one in agreed if "vLLM's time per output token" in one.source]
    rate = next((one for one in own if "MBU" in one.quantity), own[0] if own else None)
    if rate is None:
        return None
    name = "MBU" if "MBU" in rate.quantity else "step time"
    return BenchFinding(
        f"The {name} of decode by the trace differs from that by vLLM's own throughput by "
        f"{difference(rate.difference)}.",
        f"{quantity(rate.trace, rate.unit)} by the trace's median step, "
        f"{quantity(rate.other, rate.unit)} by {rate.source}, of the batch that ran under the "
        "trace.",
    )
