"""Section of an engine's steps by kind: what prefill and decode take, and their floors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from nsight_prof.parsers.build.peaks import Peak
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.stages.agreement import Agreement, agreements
from nsight_prof.reports.engine.stages.counted import COMPONENT_NAMES, Counted, counted
from nsight_prof.reports.engine.stages.findings import BYTES, FLOPS, findings
from nsight_prof.reports.engine.stages.kinds import Batch, Kind, Stages, batches, stages_of
from nsight_prof.reports.engine.stages.names import KIND_NAMES, LIMITS, activity_name
from nsight_prof.reports.page import (
    Column,
    Fact,
    Json,
    Name,
    Number,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
    arranged,
)
from nsight_prof.reports.page.charts import Bar, BarFigure
from nsight_prof.reports.page.units import quantity
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.serving.engine import ENCODER_APART, ENCODER_LEFT_OUT
from nsight_prof.reports.serving.roofs import roof_at, roof_name

NO_WORK = Text("work or roofs are not known")
CLOCKS = Text(
    " The burst roof and the steady one differ by the clock: a power limit lowers it under load "
    "that lasts. Counters hold a kernel to the burst roof at the clock of its counted launch."
)
LONGER = 8
"""Times the decode steps of a trace for which it is said what part of the time they would have."""
METHOD = (
    Text(
        "A step is one call of the engine's worker, by its NVTX range execute_context_…: prefill "
        "has prompts alone, decode one token per request, mixed both. Its time is from the start "
        "of its GPU work to that of the next step, so that busy and idle time add up to it."
    ),
    Text(
        "MFU is the FLOPs that the model needs over time and the roof of the Tensor Cores; MBU the "
        "weights and KV cache that it must read over time and the bandwidth of DRAM. The floor is "
        "the larger of the two at the highest roofs that were measured, which no step beats."
    ),
)


def section(run: Run) -> Section | None:
    """Return the section; None for a run whose trace has no engine steps."""
    stages = stages_of(run)
    if stages is None:
        return None
    timed, work, agreed = batches(run, stages), counted(run, stages), agreements(run, stages)
    tables: list[Table[Any]] = [_times(stages)]
    if any(kind.collective_ns > 0 for kind in stages.kinds):
        tables.append(_collectives(stages))
    if any(kind.work for kind in stages.kinds):
        tables += [_floors(stages), *_utilization(stages)]
    tables += [_batches(timed, stages)] if len(timed) > 1 else []
    tables += [_counted(work), _agreements(agreed)]
    chart = _chart(stages)
    return Section(
        "stages",
        Text("Prefill and decode"),
        arranged(
            [_intro(stages)],
            findings(stages, timed, work, agreed),
            [chart if chart.bars else None],
            tables,
            METHOD,
        ),
        numbers=_numbers(stages, timed, work, agreed),
        facts=tuple(_facts(stages)),
    )


def _intro(stages: Stages) -> Text:
    missing: Value = ""
    if stages.reason:
        missing = Text(" MFU, MBU and floors are not available: {why}.", why=stages.reason)
    elif stages.roofs.compute is None or stages.roofs.memory is None:
        missing = Text(
            " MFU, MBU and floors lack a roof of this GPU: measure it with {command}.",
            command=Name("prof run recipes/roofline.yaml"),
        )
    return Text(
        "Engine steps in the trace: {n}, in {time} of GPU time, busy and idle.{ranks}{missing}"
        "{encoder}",
        n=stages.steps,
        time=Number(stages.span_ns, "ns", digits=3),
        ranks=Text(" Numbers are of the first of {gpus} GPUs.", gpus=stages.gpus)
        if stages.gpus > 1
        else "",
        missing=missing,
        encoder=_encoder(stages),
    )


def _encoder(stages: Stages) -> Value:
    """Say what of a model that sees the work of a step leaves out."""
    if stages.engine is None or stages.engine.shape is None or not stages.engine.sees:
        return ""
    has_encoder = any(kind.encoder_ns for kind in stages.kinds)
    return ENCODER_APART if has_encoder else ENCODER_LEFT_OUT


def _name(kind: Kind) -> Text:
    return KIND_NAMES[kind.kind]


def _times(stages: Stages) -> Table[Kind]:
    """Return steps, time and tokens of each kind."""

    def idle(kind: Kind) -> Value:
        """Return the idle part of the time, and what the host did for most of it."""
        share = Number(kind.idle_ns / kind.time_ns, "fraction", digits=3)
        if not kind.gaps or not kind.gaps[0][1] > 0:
            return share
        return Text("{part}: {activity}", part=share, activity=activity_name(kind.gaps[0][0]))

    return Table(
        "stages-times",
        Text("Steps by kind"),
        [
            Column(Text("Kind"), _name),
            Column(Text("Steps"), lambda k: k.steps),
            Column(Text("Requests per step"), lambda k: Number(k.requests, "count")),
            Column(Text("New tokens per step"), lambda k: Number(k.tokens / k.steps, "count")),
            Column(Text("Time per step"), lambda k: k.per_step("time_ns")),
            Column(Text("Share of time"), lambda k: k.number(k.share, "fraction")),
            Column(Text("New tokens/s"), lambda k: Number(k.tokens / k.time_ns * 1e9, "count")),
            Column(Text("Kernel time per step"), lambda k: k.per_step("kernel_ns")),
            Column(Text("GPU idle, mostly"), idle),
            Column(Text("Median step"), lambda k: k.number(k.step_ns, "ns")),
        ],
        stages.kinds,
        note=Text(
            "Means over the steps, but for the median step. Behind the idle part stands what the "
            "host did for most of it."
            "{longer}",
            longer=_longer(stages),
        ),
        refs=lambda k: k.number(0, "").refs,
    )


def _longer(stages: Stages) -> Value:
    """Say how the shares of prefill and decode move with the tokens that are generated."""
    prefill, decode = stages.kind("prefill"), stages.kind("decode")
    if prefill is None or decode is None or stages.kind("mixed") is not None:
        return ""
    time = decode.time_ns * LONGER
    return Text(
        " Shares of the time are those of {n} decode steps to {m} of prefill: with {times} times "
        "as many, as long as these, decode would have {share}.",
        n=decode.steps,
        m=prefill.steps,
        times=LONGER,
        share=Number(time / (time + prefill.time_ns), "fraction"),
    )


def _collectives(stages: Stages) -> Table[Kind]:
    """Return the time of collectives, where the GPUs of the run talk to each other."""

    def overlapped(kind: Kind) -> Number:
        every, alone = kind.per_step("collective_ns"), kind.per_step("exposed_ns")
        return (every - alone).share_of(every)

    return Table(
        "stages-collectives",
        Text("Collectives per step"),
        [
            Column(Text("Kind"), _name),
            Column(Text("Time"), lambda k: k.per_step("collective_ns")),
            Column(
                Text("Share of time"),
                lambda k: k.per_step("collective_ns").share_of(k.per_step("time_ns")),
            ),
            Column(Text("Exposed"), lambda k: k.per_step("exposed_ns")),
            Column(Text("Overlapped"), overlapped),
        ],
        stages.kinds,
        note=Text(
            "Exposed: no other kernel of the GPU ran. With several GPUs one waits for the other "
            "inside of a collective."
        ),
    )


def _floors(stages: Stages) -> Table[Kind]:
    """Return what a step of each kind needs, the least time for that, and the time it took."""

    def work(kind: Kind, value: Callable[[Any], float], unit: str) -> Number:
        per_step = value(kind.work) / kind.steps if kind.work else None
        return Number(per_step, unit, missing="the work of a step is not known")

    def limit(kind: Kind) -> Value:
        if kind.floor is None:
            return NO_WORK
        roof = roof_name(kind.floor.roof.name)
        return Text("{what}: {roof}", what=LIMITS[kind.floor.limited_by], roof=roof)

    return Table(
        "stages-floors",
        Text("Needed work of a step, and its floor"),
        [
            Column(Text("Kind"), _name),
            Column(Text("FLOPs"), lambda k: work(k, lambda w: w.flops.total, "FLOP")),
            Column(Text("Weights read"), lambda k: work(k, lambda w: w.traffic.weights, "B")),
            Column(Text("KV cache read"), lambda k: work(k, lambda w: w.traffic.kv_read, "B")),
            Column(Text("Limited by"), limit),
            Column(Text("Floor"), lambda k: Number(k.floor.seconds if k.floor else None, "s")),
            Column(Text("Time"), lambda k: k.per_step("model_ns")),
            Column(Text("Time over floor"), lambda k: k.over_floor),
        ],
        stages.kinds,
    )


def _utilization(stages: Stages) -> list[Table[Kind]]:
    """Return MFU and MBU of each kind against every roof that is known."""
    compute, memory = _roofs(stages)
    if not compute and not memory:
        return []
    floors = dict.fromkeys(kind.floor.roof.name for kind in stages.kinds if kind.floor)

    def used(name: Text, peak: Peak, rate: Callable[[Kind], float]) -> Column[Kind]:
        return Column(
            Text("{used}, {roof}", used=name, roof=roof_name(peak.name)),
            lambda kind: Number(rate(kind) / peak.value, "fraction"),
        )

    def origin(peak: Peak, unit: str) -> Text:
        roof = roof_at(peak, unit)
        detail = Verbatim(peak.detail)
        return Text("{roof}: {detail}", roof=roof, detail=detail) if peak.detail else roof

    return [
        Table(
            "stages-utilization",
            Text("MFU and MBU"),
            [
                Column(Text("Kind"), _name),
                Column(Text("FLOP/s"), lambda k: Number(k.flop_rate, FLOPS)),
                *(used(Text("MFU"), peak, lambda k: k.flop_rate) for peak in compute),
                Column(Text("Read B/s"), lambda k: Number(k.read_rate, BYTES)),
                *(used(Text("MBU"), peak, lambda k: k.read_rate) for peak in memory),
            ],
            stages.kinds,
            note=Text(
                "{floors}Roofs: {roofs}.{clocks}",
                floors=Text(
                    "Floors are by the {roofs}; the others are for comparison. ",
                    roofs=[*map(roof_name, floors)],
                )
                if floors
                else "",
                roofs=[origin(p, FLOPS) for p in compute] + [origin(p, BYTES) for p in memory],
                clocks=CLOCKS if stages.roofs.steady and stages.roofs.burst else "",
            ),
        )
    ]


def _roofs(stages: Stages) -> tuple[list[Peak], list[Peak]]:
    """Return the roofs of arithmetic and of memory that are known."""
    roofs = stages.roofs
    compute = [peak for peak in (roofs.steady, roofs.burst, roofs.compute_sheet) if peak]
    return compute, [peak for peak in (roofs.read, roofs.read_sheet) if peak]


def _batches(timed: Sequence[Batch], stages: Stages) -> Table[Batch]:
    """Return what a decode step takes at other batches."""
    first, roof = timed[0], stages.roofs.memory
    return Table(
        "stages-batches",
        Text("Decode step by batch, without a profiler"),
        [
            Column(Text("Batch"), lambda b: b.batch),
            Column(Text("Time per step"), lambda b: Number(b.seconds, "s")),
            Column(
                Text("More than batch {n}", n=first.batch),
                lambda b: Number(b.seconds / first.seconds - 1, "fraction"),
            ),
            Column(Text("Tokens/s"), lambda b: Number(b.tokens_per_s, "count")),
            Column(Text("Floor"), lambda b: Number(b.floor_s, "s")),
            Column(Text("MBU"), lambda b: Number(b.mbu, "fraction")),
        ],
        timed,
        note=Text(
            "Medians by the host's clock, about {n} tokens before.{roof}",
            n=first.context,
            roof=Text(" MBU is of the {roof}.", roof=roof_name(roof.name)) if roof else "",
        ),
    )


def _counted(work: Sequence[Counted]) -> Table[Counted]:
    """Return counted over required FLOPs of each kind and component."""
    by_tile = Text(
        "; of kernels that do products of several sizes, 2MNK of each rounded up to the tile, "
        "which the profiled launch confirms"
    )
    return Table(
        "stages-counted",
        Text("FLOPs: counted by the GPU, and required"),
        [
            Column(Text("Kind"), lambda c: KIND_NAMES[c.kind]),
            Column(Text("Of"), lambda c: COMPONENT_NAMES[c.component]),
            Column(Text("Counted"), lambda c: Number(c.counted, "FLOP")),
            Column(Text("Required"), lambda c: Number(c.required, "FLOP")),
            Column(Text("Ratio"), lambda c: Number(c.ratio), digits=4),
            Column(Text("Why not"), lambda c: c.reason),
        ],
        work,
        note=Text(
            "Counted is calls x FLOPs of the launch that was profiled, summed over kernels{tiled}. "
            "More than 1 is work on padding.",
            tiled=by_tile if any(row.by_tile for row in work) else "",
        ),
    )


def _agreements(agreed: Sequence[Agreement]) -> Table[Agreement]:
    """Return the trace beside the host's clock and vLLM's own numbers."""
    return Table(
        "stages-agreement",
        Text("The same from elsewhere"),
        [
            Column(Text("Quantity"), lambda a: a.quantity),
            Column(Text("Trace"), lambda a: Number(a.trace, a.unit)),
            Column(Text("Elsewhere"), lambda a: Number(a.elsewhere, a.unit)),
            Column(Text("Source"), lambda a: a.source),
            Column(Text("Difference"), lambda a: a.difference),
            Column(Text("Note"), lambda a: a.note),
        ],
        agreed,
        note=Text("All of the batch that ran under the trace."),
        folded=True,
    )


def _chart(stages: Stages) -> BarFigure:
    """Return busy and whole time of a step of each kind in per cent of its floor."""
    bars = [
        Bar(Text("{kind}: {name}", kind=_name(kind), name=name),
            ns / kind.floor.seconds / 1e7, group=name.message, text=quantity(ns, "ns", 3))
        for kind in stages.kinds if kind.floor
        for name, ns in ((Text("GPU busy"), (kind.model_ns - kind.model_idle_ns) / kind.steps),
                         (Text("step"), kind.model_ns / kind.steps))
    ]  # fmt: skip
    return BarFigure(
        "steps-and-floors",
        "A step of each kind against its floor",
        "Bars: time of a step of each kind and its busy part, in per cent of the least time that "
        "the roofs allow",
        "% of the floor",
        tuple(bars),
        levels=((100.0, "floor"),),
        subtitle="Floor: the least that the model's work takes at the measured roofs.",
    )


def _numbers(
    stages: Stages, timed: Sequence[Batch], work: Sequence[Counted], agreed: Sequence[Agreement]
) -> dict[str, Json]:
    """Return the section for metrics.json, in base units."""
    write = Writer()
    return {
        "roofs": {
            field.name: peak.value if (peak := getattr(stages.roofs, field.name)) else None
            for field in dataclasses.fields(stages.roofs)
        },
        "gpus": stages.gpus,
        "reason": write.value(stages.reason) if stages.reason else "",
        "kinds": {kind.kind: _kind_numbers(stages, kind) for kind in stages.kinds},
        "batches": [dataclasses.asdict(batch) for batch in timed],
        "counted_flops": [
            {
                "kind": row.kind,
                "part": row.component,
                "counted": row.counted,
                "needed": row.required,
                "by_tile": row.by_tile,
                "reason": write.text(row.reason) if row.reason else "",
                "ratio": row.ratio,
            }
            for row in work
        ],
        "agreement": [
            {
                "quantity": write.text(row.quantity),
                "unit": row.unit,
                "trace": row.trace,
                "other": row.elsewhere,
                "source": write.text(row.source),
                "note": write.text(row.note) if row.note else "",
                "difference": row.difference.value,
            }
            for row in agreed
        ],
    }


def _kind_numbers(stages: Stages, kind: Kind) -> dict[str, Json]:
    compute, memory = _roofs(stages)
    work, floor = kind.work, kind.floor
    derived = ("gaps", "work", "floor")
    fields = (field.name for field in dataclasses.fields(kind) if field.name not in derived)
    return {
        **{name: getattr(kind, name) for name in fields},
        "idle_ns": kind.idle_ns,
        "flops": work.flops.total if work else None,
        "weight_bytes": work.traffic.weights if work else None,
        "kv_read_bytes": work.traffic.kv_read if work else None,
        "floor_s": floor.seconds if floor else None,
        "limited_by": floor.limited_by if floor else "",
        "limiting_roof": floor.roof.key if floor else None,
        "gaps_ns": dict(kind.gaps),
        **{f"mfu_{peak.key}": kind.flop_rate / peak.value for peak in compute},
        **{f"mbu_{peak.key}": kind.read_rate / peak.value for peak in memory},
    }


def _facts(stages: Stages) -> list[Fact]:
    """Return what a reader who does not know GPUs can use."""
    facts = []
    for kind in stages.kinds:
        per_second = Number(kind.tokens / kind.time_ns * 1e9, "count")
        if kind.kind == "prefill":
            facts.append(Fact(Text("Prompt tokens read per second"), per_second))
        if kind.kind == "decode":
            requests = round(kind.requests)
            label = Text("Time to generate a token for each of {n} requests", n=requests)
            facts.append(Fact(label, kind.per_step("time_ns").at_digits(3)))
            generated = Number(kind.generated / kind.time_ns * 1e9, "count")
            facts.append(Fact(Text("Tokens generated per second"), generated))
    return facts
