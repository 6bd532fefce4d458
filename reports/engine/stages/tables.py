"""Tables about the steps of a serving engine by kind."""

from __future__ import annotations

from collections.abc import Sequence

from nsight_prof.parsers.build.peaks import Peak
from nsight_prof.reports.bench.models import BenchTable
from nsight_prof.reports.engine.stages.agreement import Agreement
from nsight_prof.reports.engine.stages.batches import Batch
from nsight_prof.reports.engine.stages.counted import Counted
from nsight_prof.reports.engine.stages.findings import limit
from nsight_prof.reports.engine.stages.kinds import Kind, Stages
from nsight_prof.reports.formats import (
    NA,
    byte_rate,
    count,
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


def time_table(stages: Stages) -> BenchTable:
    """Return steps, time and tokens of each kind."""
    rows = [
        (
            kind.kind,
            count(kind.steps),
            count(kind.requests),
            count(kind.tokens / kind.steps),
            duration(kind.mean_ns),
            share(kind.share),
            count(kind.tokens / kind.time_ns * 1e9),
            duration(kind.kernel_ns / kind.steps),
            _idle(kind),
        )
        for kind in stages.kinds
    ]
    heads = ("Steps", "Requests a step", "New tokens a step", "Time a step", "Share of time")
    return BenchTable(
        "Steps by kind",
        ("Kind", *heads, "New tokens/s", "Kernel time a step", "GPU idle, mostly"),
        tuple(rows),
        "Means over the steps. Behind the idle part stands what the host did for most of it.",
        left=("Kind", "GPU idle, mostly"),
    )


def _idle(kind: Kind) -> str:
    """Return the idle part of the time, and what the host did for most of it."""
    part = share(kind.idle_ns / kind.time_ns)
    return f"{part}: {kind.gaps[0][0]}" if kind.gaps and kind.gaps[0][1] > 0 else part


def collective_table(stages: Stages) -> list[BenchTable]:
    """Return the time of collectives, where the GPUs of the run talk to each other."""
    if not any(kind.collective_ns > 0 for kind in stages.kinds):
        return []
    rows = [
        (
            kind.kind,
            duration(kind.collective_ns / kind.steps),
            share(kind.collective_ns / kind.time_ns),
            duration(kind.exposed_ns / kind.steps),
            share(1 - kind.exposed_ns / kind.collective_ns) if kind.collective_ns else NA,
        )
        for kind in stages.kinds
    ]
    return [
        BenchTable(
            "Collectives, a step",
            ("Kind", "Time", "Share of time", "Of that alone", "Overlapped"),
            tuple(rows),
            "Alone: no other kernel of the GPU ran. With several GPUs one waits for the other "
            "inside of a collective.",
            left=("Kind",),
        )
    ]


def floor_table(stages: Stages) -> BenchTable:
    """Return what a step of each kind needs, the least time for that, and the time it took."""
    rows = []
    for kind in stages.kinds:
        if kind.needed is None or stages.shard is None:
            rows.append((kind.kind, *([NA] * 7)))
            continue
        what, roof, floor = limit(stages, kind)
        moved = kind.needed.traffic
        rows.append(
            (
                kind.kind,
                flop_count(kind.needed.flops.total / kind.steps),
                data_size(moved.weights / kind.steps),
                data_size(moved.kv_read / kind.steps),
                f"{what}: {roof.name}" if roof else NA,
                seconds(floor),
                duration(kind.mean_ns),
                significant(kind.mean_ns / 1e9 / floor),
            )
        )
    heads = ("FLOPs", "Weights read", "KV cache read", "Limited by", "Floor", "Time", "Time/floor")
    return BenchTable(
        "Needed work of a step, and its floor",
        ("Kind", *heads),
        tuple(rows),
        left=("Kind", "Limited by"),
    )


def use_table(stages: Stages) -> list[BenchTable]:
    """Return MFU and MBU of each kind against every roof that is known."""
    roofs = stages.roofs
    compute = [peak for peak in (roofs.steady, roofs.burst, roofs.compute_sheet) if peak]
    memory = [peak for peak in (roofs.read, roofs.read_sheet) if peak]
    if not compute and not memory:
        return []
    rows = [
        (
            kind.kind,
            flop_rate(kind.flop_rate),
            *(share(kind.flop_rate / peak.value) for peak in compute),
            byte_rate(kind.read_rate),
            *(share(kind.read_rate / peak.value) for peak in memory),
        )
        for kind in stages.kinds
    ]
    columns = (
        "Kind",
        "FLOP/s",
        *(f"MFU, {peak.name}" for peak in compute),
        "Read B/s",
        *(f"MBU, {peak.name}" for peak in memory),
    )
    notes = [f"{_first_up(p.name)}: {flop_rate(p.value)}{_origin(p)}." for p in compute]
    notes += [f"{_first_up(p.name)}: {byte_rate(p.value)}{_origin(p)}." for p in memory]
    return [BenchTable("MFU and MBU", columns, tuple(rows), " ".join(notes), left=("Kind",))]


def _origin(peak: Peak) -> str:
    return f" ({peak.detail})" if peak.detail else ""


def _first_up(name: str) -> str:
    return name[0].upper() + name[1:]


def batch_table(timed: Sequence[Batch], stages: Stages) -> list[BenchTable]:
    """Return what a decode step takes at other batches, where the target timed some."""
    if len(timed) < 2:
        return []
    first = timed[0]
    rows = [
        (
            count(one.batch),
            seconds(one.seconds),
            difference(one.seconds / first.seconds - 1),
            count(one.tokens_per_s),
            seconds(one.floor_s),
            share(one.mbu),
        )
        for one in timed
    ]
    roof = f" MBU is of the {stages.roofs.memory.name}." if stages.roofs.memory else ""
    return [
        BenchTable(
            "Decode step by batch, without a profiler",
            (
                "Batch",
                "Time a step",
                f"against batch {first.batch}",
                "Tokens/s",
                "Floor",
                "MBU",
            ),
            tuple(rows),
            f"Medians by the host's clock, about {count(first.context)} tokens before.{roof}",
        )
    ]


def counted_table(work: Sequence[Counted]) -> list[BenchTable]:
    """Return counted over needed FLOPs of each kind and part."""
    if not work:
        return []
    rows = [
        (
            one.kind,
            one.part,
            flop_count(one.counted),
            flop_count(one.needed),
            significant(one.ratio, 4),
            one.reason or "–",
        )
        for one in work
    ]
    tiled = ""
    if any(one.by_tile for one in work):
        tiled = (
            "; of kernels that do products of several sizes, 2MNK of each rounded up to the tile, "
            "which the profiled launch confirms"
        )
    return [
        BenchTable(
            "FLOPs: counted by the GPU, and needed",
            ("Kind", "Part", "Counted", "Needed", "Ratio", "Why not"),
            tuple(rows),
            "Counted is calls x FLOPs of the launch that was profiled, summed over kernels"
            + tiled
            + ". More than 1 is work on padding.",
            left=("Kind", "Part", "Why not"),
        )
    ]


def agreement_table(agreed: Sequence[Agreement]) -> list[BenchTable]:
    """Return the trace beside the host's clock and vLLM's own numbers."""
    if not agreed:
        return []
    rows = [
        (
            one.quantity,
            _value(one.trace, one.unit),
            _value(one.other, one.unit),
            one.source,
            difference(one.difference),
            one.note or "–",
        )
        for one in agreed
    ]
    return [
        BenchTable(
            "The same from elsewhere",
            ("Quantity", "Trace", "Elsewhere", "Source", "Difference", "Note"),
            tuple(rows),
            "All of the batch that ran under the trace.",
            left=("Quantity", "Source", "Note"),
            folded=True,
        )
    ]


def _value(value: float, unit: str) -> str:
    return f"{count(value)} /s" if unit == "1/s" else quantity(value, unit)
