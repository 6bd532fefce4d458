"""Section of an engine's steps by kind: what prefill and decode take, and the least they could."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from nsight_prof.parsers.build.peaks import NOT_MEASURED, Peak
from nsight_prof.reports.bench.models import Json, Section
from nsight_prof.reports.engine.stages.agreement import Agreement, agreements
from nsight_prof.reports.engine.stages.batches import Batch, batches
from nsight_prof.reports.engine.stages.counted import Counted, counted
from nsight_prof.reports.engine.stages.findings import findings, limit
from nsight_prof.reports.engine.stages.kinds import Kind, Stages, stages_of
from nsight_prof.reports.engine.stages.tables import (
    agreement_table,
    batch_table,
    collective_table,
    counted_table,
    floor_table,
    time_table,
    use_table,
)
from nsight_prof.reports.formats import count, duration
from nsight_prof.reports.json_text import finite
from nsight_prof.reports.load import Run
from nsight_prof.reports.page.charts import Bar, BarFigure, Chart

KEY, TITLE = "stages", "Prefill and decode"
METHOD = (
    "A step is one call of the engine's worker, by vLLM's own NVTX range: prefill has prompts "
    "alone, decode one token a request, mixed both. Its time is from the start of its GPU work to "
    "that of the next step, so that busy and idle time add up to it.",
    "MFU is the FLOPs that the model needs over time and the roof of the Tensor Cores; MBU the "
    "weights and KV cache that it must read over time and the bandwidth of DRAM. The floor is the "
    "larger of the two at the measured roofs: no step of this model is faster.",
)


def section(run: Run) -> Section | None:
    """Return the section; None for a run whose trace has no engine steps."""
    stages = stages_of(run)
    if stages is None:
        return None
    timed, work = batches(run, stages), counted(run, stages)
    agreed = agreements(run, stages)
    tables = [time_table(stages), *collective_table(stages)]
    if any(kind.needed for kind in stages.kinds):
        tables += [floor_table(stages), *use_table(stages)]
    tables += [*batch_table(timed, stages), *counted_table(work), *agreement_table(agreed)]
    return Section(
        key=KEY,
        title=TITLE,
        intro=_intro(stages),
        findings=findings(stages, timed, work, agreed),
        tables=tuple(tables),
        figures=figures(stages),
        method=METHOD,
        numbers=numbers(stages, timed, work, agreed),
        plain=_plain(stages),
    )


def _intro(stages: Stages) -> str:
    ranks = f" Numbers are of the first of {stages.gpus} GPUs." if stages.gpus > 1 else ""
    missing = f" MFU, MBU and floors are not available: {stages.reason}." if stages.reason else ""
    if not missing and (stages.roofs.compute is None or stages.roofs.memory is None):
        missing = f" MFU, MBU and floors lack a roof: {NOT_MEASURED}."
    return (
        f"The trace holds {count(stages.steps)} engine steps in {duration(stages.span_ns)} of GPU "
        f"time, busy and idle.{ranks}{missing}"
    )


def figures(stages: Stages) -> tuple[Chart, ...]:
    """Return bars of each kind: floor, busy time and time of a step, in ms."""
    bars = []
    for kind in stages.kinds:
        parts: list[tuple[str, float]] = []
        if kind.needed is not None:
            parts.append(("floor", limit(stages, kind)[2] * 1e3))
        parts += [("busy", kind.busy_ns / kind.steps / 1e6), ("step", kind.mean_ns / 1e6)]
        bars += [
            Bar(f"{kind.kind}: {name}", value, group=name, text=duration(value * 1e6))
            for name, value in parts
            if math.isfinite(value)
        ]
    return (
        BarFigure(
            "steps-and-floors",
            "A step, its busy time and its floor",
            "Bars: time of a step of each kind, its busy time and the least that the roofs allow",
            "ms",
            tuple(bars),
            subtitle="floor: the least that the model's work takes at the measured roofs",
        ),
    )


def numbers(
    stages: Stages,
    timed: Sequence[Batch],
    work: Sequence[Counted],
    agreed: Sequence[Agreement],
) -> dict[str, Json]:
    """Return the section for metrics.json, in base units."""
    roofs = {
        field.name: peak.value if (peak := getattr(stages.roofs, field.name)) else None
        for field in dataclasses.fields(stages.roofs)
    }
    return {
        "roofs": roofs,
        "gpus": stages.gpus,
        "reason": stages.reason,
        "kinds": {kind.kind: _kind_numbers(stages, kind) for kind in stages.kinds},
        "batches": [finite(dataclasses.asdict(one)) for one in timed],
        "counted_flops": [finite(dataclasses.asdict(one) | {"ratio": one.ratio}) for one in work],
        "agreement": [
            finite(dataclasses.asdict(one) | {"difference": one.difference}) for one in agreed
        ],
    }


def _kind_numbers(stages: Stages, kind: Kind) -> dict[str, Json]:
    roofs = stages.roofs
    what, roof, floor = limit(stages, kind)
    rates: dict[str, Callable[[Peak], float]] = {
        "mfu": lambda peak: kind.flop_rate / peak.value,
        "mbu": lambda peak: kind.read_rate / peak.value,
    }
    against = {
        "mfu": (roofs.steady, roofs.burst, roofs.compute_sheet),
        "mbu": (roofs.read, roofs.read_sheet),
    }
    used = {
        f"{name}_{peak.key}": rates[name](peak)
        for name, several in against.items()
        for peak in several
        if peak is not None
    }
    plain = {
        f.name: getattr(kind, f.name)
        for f in dataclasses.fields(kind)
        if f.name not in ("gaps", "needed")
    }
    needed = kind.needed
    more = {
        "idle_ns": kind.idle_ns,
        "flops": needed.flops.total if needed else None,
        "weight_bytes": needed.traffic.weights if needed else None,
        "kv_read_bytes": needed.traffic.kv_read if needed else None,
        "floor_s": floor,
        "limited_by": what,
        "limiting_roof": roof.key if roof else None,
        "gaps_ns": dict(kind.gaps),
    }
    numbers: dict[str, Json] = finite(plain | more | used)
    return numbers


def _plain(stages: Stages) -> tuple[tuple[str, str], ...]:
    """Return what a reader who does not know GPUs can use."""
    found = []
    for kind in stages.kinds:
        if kind.kind == "decode":
            name = f"Generating, {count(kind.requests)} requests at once: a token of each"
            found.append((name, duration(kind.mean_ns)))
            found.append(("Tokens generated a second", count(kind.generated / kind.time_ns * 1e9)))
        elif kind.kind == "prefill":
            rate = count(kind.tokens / kind.time_ns * 1e9)
            found.append(("Prompt tokens read a second", rate))
    return tuple(found)
