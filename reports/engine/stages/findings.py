"""Findings about prefill and decode: what bounds them, what waits, and what would change it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nsight_prof.parsers.build.peaks import Peak
from nsight_prof.reports.engine.stages.agreement import THROUGHPUT, Agreement
from nsight_prof.reports.engine.stages.counted import ATTENTION, COMPONENT_NAMES, Counted
from nsight_prof.reports.engine.stages.kinds import Batch, Floor, Kind, ModelWork, Stages
from nsight_prof.reports.engine.stages.names import KIND_NAMES
from nsight_prof.reports.page import Choice, Evidence, Finding, Number, Text, Value
from nsight_prof.reports.serving.roofs import roof_at, roof_name

LARGE_IDLE = 0.1
"""Part of a step from which on the verdict about it has its idle time."""
PADDED = 1.02
"""Counted over required FLOPs from which on padding has a finding."""
FLOPS, BYTES = "FLOP/s", "B/s"


def findings(
    stages: Stages, timed: Sequence[Batch], work: Sequence[Counted], agreed: Sequence[Agreement]
) -> Iterator[Finding]:
    """Yield what the steps of a trace show, decode first."""
    for kind in reversed(stages.kinds):
        if kind.work is not None and kind.floor is not None:
            bound = _memory_bound if kind.floor.limited_by == "memory" else _compute_bound
            yield bound(stages, kind, kind.work, kind.floor)
    yield from _larger_batch(stages, timed)
    yield from _padding(stages, work)
    yield from _agreement(agreed)


def _memory_bound(stages: Stages, kind: Kind, work: ModelWork, floor: Floor) -> Finding:
    time, minimum, *_ = _divided(kind, floor)
    size = round(kind.requests)
    values: dict[str, Value] = {
        **_step(kind),
        "n": size,
        "time": time,
        "ratio": kind.over_floor,
        "floor": minimum,
        "weights": kind.number(work.traffic.weights / kind.steps, "B"),
        "cache": kind.number(work.traffic.kv_read / kind.steps, "B"),
        "mbu": kind.number(kind.read_rate / floor.roof.value, "fraction"),
        "roof": roof_name(floor.roof.name),
        "idle": _idle(kind),
    }
    return Finding(
        "memory_bound_step",
        Text(
            "{step} at batch {n} takes {time}{mean}, {ratio} its floor of {floor}: it reads "
            "{weights} of weights and {cache} of KV cache at {mbu} of the {roof}{idle}.",
            **values,
        ),
        (
            *_above_floor(kind, floor, BYTES, 0.0),
            *_of_sheet(stages.roofs.read_sheet, floor, kind.read_rate, BYTES),
        ),
        disproof=Text("The floor reads every weight once and no activation."),
        technical=True,
    )


def _compute_bound(stages: Stages, kind: Kind, work: ModelWork, floor: Floor) -> Finding:
    time, minimum, *_ = _divided(kind, floor)
    tokens = round(kind.tokens / kind.steps)
    evidence = list(_above_floor(kind, floor, FLOPS, kind.power_ns(stages.roofs)))
    steady = stages.roofs.steady
    if floor.roof.key == "burst" and steady is not None:
        evidence.append(
            Text(
                "for comparison, {share} of the {roof}, which is lower by the clock alone: the "
                "power limit slows it under load that lasts",
                share=Number(kind.flop_rate / steady.value, "fraction"),
                roof=roof_at(steady, FLOPS),
            )
        )
    values: dict[str, Value] = {
        **_step(kind),
        "tokens": tokens,
        "time": time,
        "encoder": _besides(kind),
        "ratio": kind.over_floor,
        "floor": minimum,
        "flops": kind.number(work.flops.total / kind.steps, "FLOP"),
        "mfu": kind.number(kind.flop_rate / floor.roof.value, "fraction"),
        "roof": roof_name(floor.roof.name),
        "idle": _idle(kind),
    }
    return Finding(
        "compute_bound_step",
        Text(
            "{step} of {tokens} tokens takes {time}{mean}{encoder}, {ratio} its floor of {floor}: "
            "it computes {flops} at {mfu} of the {roof}{idle}.",
            **values,
        ),
        (*evidence, *_of_sheet(stages.roofs.compute_sheet, floor, kind.flop_rate, FLOPS)),
        technical=True,
    )


def _step(kind: Kind) -> dict[str, Value]:
    """Return what sentences call a step, of several the mean one."""
    name = KIND_NAMES[kind.kind]
    if kind.steps > 1:
        return {"step": Text("a {kind} step", kind=name), "mean": Text(" on average")}
    return {"step": Text("the {kind} step", kind=name), "mean": ""}


def _divided(kind: Kind, floor: Floor, power_ns: float = 0.0) -> tuple[Number, ...]:
    """Return the time of a step, its floor, and of the time above that: idle time, what the power
    limit takes, and kernels.

    Where steps are shorter than their floor the last is negative.
    """
    time, idle = kind.per_step("model_ns"), kind.per_step("model_idle_ns")
    minimum, power = (kind.number(ns, "ns") for ns in (floor.seconds * 1e9, power_ns))
    kernels = time - minimum - idle - power
    return tuple(n.at_digits(3) for n in (time, minimum, idle, power, kernels))


def _idle(kind: Kind) -> Text | str:
    """Return how long the GPU is idle where that is much of a step."""
    if kind.model_idle_ns < LARGE_IDLE * kind.model_ns:
        return ""
    return Text("; the GPU is idle for {idle} of it", idle=kind.per_step("model_idle_ns"))


def _besides(kind: Kind) -> Text | str:
    """Return how long a step takes for what comes before the language model."""
    if not kind.encoder_ns:
        return ""
    return Text(
        " besides {time} of its vision encoder and projector",
        time=kind.per_step("encoder_ns").at_digits(3),
    )


def _above_floor(kind: Kind, floor: Floor, unit: str, power_ns: float) -> Iterator[Evidence | Text]:
    """Yield how the time above the floor divides: idle, and kernels that do not reach the roof."""
    _, _, idle, power, kernels = _divided(kind, floor, power_ns)
    median = kind.number(kind.step_ns, "ns").at_digits(3)
    mean = kind.per_step("time_ns").at_digits(3)
    yield Text("steps: {n} (mean {mean}, median {median})", n=kind.steps, mean=mean, median=median)
    if power_ns:
        yield Text(
            "above the floor: {idle} of idle time, {power} by the power limit, which lowers the "
            "clock, and {kernels} of kernels that do not reach the roof",
            idle=idle,
            power=power,
            kernels=kernels,
        )
    else:
        yield Text(
            "above the floor: {idle} of idle time and {kernels} of kernels that do not reach the "
            "roof",
            idle=idle,
            kernels=kernels,
        )
    yield Evidence(Text("the floor is by the"), roof_at(floor.roof, unit))


def _of_sheet(peak: Peak | None, floor: Floor, rate: float, unit: str) -> Iterator[Text]:
    if peak is not None and peak.key != floor.roof.key:
        yield Text(
            "for comparison, {share} of the {roof}",
            share=Number(rate / peak.value, "fraction"),
            roof=roof_at(peak, unit),
        )


def _larger_batch(stages: Stages, timed: Sequence[Batch]) -> Iterator[Finding]:
    """Yield what the largest batch costs, on the one basis of these times: the host's clock."""
    decode = stages.kind("decode")
    size = round(decode.requests) if decode else 0
    base = next((batch for batch in timed if batch.batch == size), None)
    if base is None or timed[-1].batch <= size:
        return
    large = timed[-1]
    ratio = Number(large.seconds / base.seconds, "x")
    factor = Number(large.tokens_per_s / base.tokens_per_s, "x")
    values: dict[str, Value] = {
        "ratio": ratio,
        "large": large.batch,
        "small": size,
        "factor": factor,
    }
    saves = 1 - base.tokens_per_s / large.tokens_per_s
    gains = Text("{factor} the tokens per second while it decodes", factor=factor)
    costs = Text("{ratio} the time of a decode step, and more prompts to read first", ratio=ratio)
    action = Text(
        "Where enough requests come at once, answer more of them together: batch {large} takes "
        "{ratio} the time of batch {small} per decode step and gives {factor} the tokens per "
        "second while it decodes; prompts take their time besides.",
        **values,
    )
    evidence: list[Evidence | Text] = [
        *(
            Evidence(
                Text("batch {n} without a profiler:", n=batch.batch), Number(batch.seconds, "s")
            )
            for batch in (base, large)
        ),
        Text("{ratio} the time, {factor} the tokens per second", ratio=ratio, factor=factor),
    ]
    if base.rate > 0 and large.rate > 0:
        throughput, saves = Number(large.rate / base.rate, "x"), 1 - base.rate / large.rate
        lengths: dict[str, Value] = {"prompt": large.prompt, "output": large.output}
        gains = Text(
            "{whole} the tokens per second, prompts included ({prompt} prompt and {output} output "
            "tokens); {factor} while it decodes",
            whole=throughput,
            factor=factor,
            **lengths,
        )
        costs = Text(
            "{time} the time until a batch is answered, prompts included; {ratio} that of a decode "
            "step",
            time=Number(large.batch / size * base.rate / large.rate, "x"),
            ratio=ratio,
        )
        action = Text(
            "Where enough requests come at once, answer more of them together: batch {large} gives "
            "{whole} the tokens per second of batch {small} with prompts of {prompt} and answers "
            "of {output} tokens. While it decodes it gives {factor}, for {ratio} the time per "
            "decode step.",
            whole=throughput,
            **values,
            **lengths,
        )
        evidence.append(
            Text(
                "whole batches, prompts included: {before} and {after}, {whole}",
                before=Number(base.rate, "tokens/s"),
                after=Number(large.rate, "tokens/s"),
                whole=throughput,
            )
        )
    yield Finding(
        "larger_batch",
        Text(
            "A decode step at batch {large} takes {ratio} the time of one at batch {small} and "
            "gives {factor} the tokens per second.",
            **values,
        ),
        tuple(evidence),
        action=action,
        offers=Choice(
            Text("Batch {large} instead of {small}, where enough requests come at once",
                 large=large.batch, small=size),
            gains,
            costs,
            saves,
        ),
    )  # fmt: skip


def _padding(stages: Stages, work: Sequence[Counted]) -> Iterator[Finding]:
    padded = [item for item in work if item.ratio is not None and item.ratio >= PADDED]
    if not padded:
        return
    worst = max(padded, key=lambda item: (item.ratio or 0.0) * item.required)
    counted, required = Number(worst.counted, "FLOP"), Number(worst.required, "FLOP")
    ratio = counted.times(required).at_digits(3)
    evidence: list[Evidence | Text] = [
        Evidence(Text("counters of one launch of each kernel x its calls:"), counted.at_digits(3)),
        Evidence(Text("required:"), required.at_digits(3)),
        Evidence(Text("ratio:"), ratio),
    ]
    if worst.component == ATTENTION and worst.kind == "decode" and stages.shard is not None:
        evidence.append(
            Text(
                "Tensor Cores work on tiles; rows of queries per key-value head in a step: {n}",
                n=stages.shard.heads // stages.shard.kv_heads,
            )
        )
    yield Finding(
        "padding",
        Text(
            "In {kind} the GPU computes {ratio} the FLOPs that the model needs for {component}: "
            "the rest is padding.",
            kind=KIND_NAMES[worst.kind],
            ratio=ratio,
            component=COMPONENT_NAMES[worst.component],
        ),
        tuple(evidence),
        disproof=Text("Padding costs time only where arithmetic limits."),
        technical=True,
    )


def _agreement(agreed: Sequence[Agreement]) -> Iterator[Finding]:
    """Yield how far the trace is from vLLM's own throughput: by MBU where that is known."""
    by_vllm = [row for row in agreed if row.source is THROUGHPUT]
    if not by_vllm:
        return
    rate = next((row for row in by_vllm if row.unit == "fraction"), by_vllm[0])
    difference = rate.difference.value or 0.0
    name = Text("MBU") if rate.unit == "fraction" else Text("step time")
    yield Finding(
        "agreement_with_engine",
        Text(
            "The {quantity} of decode by the trace and by vLLM's own throughput differ by {part}.",
            quantity=name,
            part=Number(abs(difference), "fraction"),
        ),
        (
            Evidence(Text("by the trace's median step"), Number(rate.trace, rate.unit, digits=3)),
            Evidence(rate.source, Number(rate.elsewhere, rate.unit, digits=3)),
            Text("of the batch that ran under the trace"),
        ),
        technical=True,
    )
