"""Findings about the GPU: roofs, idle time, KV cache, and agreement with vLLM's counters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nsight_prof.reports.page import Evidence, Finding, Number, Text, Value
from nsight_prof.reports.serving.points import shape
from nsight_prof.reports.serving.roofs import roof_name
from nsight_prof.reports.studies.serving_baseline.points import BATCH, Baseline, Load, Point
from nsight_prof.reports.studies.serving_baseline.speed import RATE

UTILIZATION = "gpu_util_pct_mean"
SHORT_IDLE = 1.0
"""Per cent of idle time below which NVML sees no gap."""
MEMORY, COMPUTE, BOTH = "memory", "compute", "both"
BOUND = {
    MEMORY: Text("memory-bound"),
    COMPUTE: Text("compute-bound"),
    BOTH: Text("memory-bound at small batches and compute-bound at large ones"),
}
LIMIT = {
    MEMORY: Text("memory bandwidth"),
    COMPUTE: Text("arithmetic"),
    BOTH: Text("memory bandwidth at small batches and by arithmetic at large ones"),
}


def bound(found: Baseline) -> Finding | None:
    """State whether memory or arithmetic limits each stage."""
    sweep = [p for p in found.batches if not math.isnan(p.decode.seconds + p.decode.bytes)]
    if not sweep:
        return None
    point = _typical(sweep)
    load, prefill = point.decode, point.prefill
    memory = found.roofs.memory
    compute = found.roofs.attained(prefill.flops / prefill.seconds)
    if memory is None or compute is None:
        return _without_roofs(point)
    kind, prefill_kind = _kind([p.decode for p in sweep]), _kind([prefill])
    read, peak = roof_name(memory.name), roof_name(compute.name)
    recipe = Text("The recipe vllm-kernels shows which kernels miss the roof.")
    action = Text("Faster decode needs fewer or cheaper FLOPs (FP8). {recipe}", recipe=recipe)
    if kind != COMPUTE:
        action = Text(
            "Faster decode needs fewer bytes per step (FP8 weights or KV cache) or more requests "
            "that share the weights. {recipe}",
            recipe=recipe,
        )
    return Finding(
        "bound",
        Text(
            "Decode is {decode}: a step at batch {batch} takes {time}, and reading its {bytes} "
            "takes {floor} at the {roof} (MBU {mbu}). Prefill is {prefill}: {batch} x {prompt} "
            "tokens reach {mfu} of the {peak} (MFU).",
            decode=BOUND[kind], prefill=BOUND[prefill_kind], batch=point.batch, prompt=point.prompt,
            roof=read, peak=peak, time=point.derived(load.seconds, "s"),
            bytes=point.derived(load.bytes, "B"),
            floor=point.derived(load.bytes / memory.value, "s"),
            mbu=point.derived(load.mbu, "fraction"), mfu=point.derived(prefill.mfu, "fraction"),
        ),
        (
            *map(_utilization, sweep[:1] + sweep[1:][-1:]),
            Evidence(Text("{roof}:", roof=read), Number(memory.value, "B/s", digits=3)),
            Evidence(Text("{roof}:", roof=peak), Number(compute.value, "FLOP/s", digits=3)),
        ),
        action=action,
        disproof=Text(
            "Bytes and FLOPs are the least that the model needs, from its configuration; what the "
            "kernels really move is in the recipe vllm-kernels."
        ),
        lay_verdict=Text(
            "Generating text is limited by {decode}; reading the prompt by {prefill}.",
            decode=LIMIT[kind],
            prefill=LIMIT[prefill_kind],
        ),
    )  # fmt: skip


def _typical(sweep: Sequence[Point]) -> Point:
    """Return the point of the batch that the other recipes use too, else the middle one."""
    return next((p for p in sweep if p.batch == BATCH), sweep[len(sweep) // 2])


def _kind(loads: Sequence[Load]) -> str:
    kinds = [load.memory_bound for load in loads]
    if all(kinds):
        return MEMORY
    return BOTH if any(kinds) else COMPUTE


def _utilization(point: Point) -> Text:
    return Text(
        "batch {batch}: decode MBU {mbu} and MFU {mfu}, prefill MFU {prefill}",
        batch=point.batch, mbu=point.derived(point.decode.mbu, "fraction"),
        mfu=point.derived(point.decode.mfu, "fraction"),
        prefill=point.derived(point.prefill.mfu, "fraction"),
    )  # fmt: skip


def _without_roofs(point: Point) -> Finding:
    load = point.decode
    return Finding(
        "decode_rate",
        Text(
            "A decode step at batch {batch} must read {bytes} and takes {time}: {rate}.",
            batch=point.batch, bytes=point.derived(load.bytes, "B"),
            time=point.derived(load.seconds, "s"),
            rate=point.derived(load.bytes / load.seconds, "B/s"),
        ),
        (Text("no roof of this GPU is known to compare that with"),),
        action=Text("Measure the roofs with prof run recipes/roofline.yaml, then prof report RUN."),
        technical=True,
    )  # fmt: skip


def idle(found: Baseline) -> Finding | None:
    """State what NVML and the time of a step show of the GPU's idle time."""
    sampled = [p for p in found.batches if not math.isnan(p.value(UTILIZATION))]
    if not sampled:
        return None
    first, last, typical = sampled[0], sampled[-1], _typical(sampled)
    free = max(0.0, 100 - first.value(UTILIZATION))
    busy = first.number(UTILIZATION)
    verdict = Text(
        "The GPU is idle for at least {free} of the time at batch {batch}: NVML sees a kernel "
        "running for {busy}.",
        free=first.derived(free, "%"), batch=first.batch, busy=busy,
    )  # fmt: skip
    if free < SHORT_IDLE:
        verdict = Text(
            "Gaps between steps are too short for NVML to see: a kernel runs for {busy} of the "
            "time at batch {batch}.",
            busy=busy,
            batch=first.batch,
        )
    evidence: list[Evidence | Text] = []
    if last is not first:
        label = Text("at batch {batch} a kernel runs for", batch=last.batch)
        evidence.append(Evidence(label, last.number(UTILIZATION)))
    if not math.isnan(typical.decode.floor_s):
        over = typical.derived(typical.decode.seconds - typical.decode.floor_s, "s")
        label = Text(
            "gaps and kernels below their roof make a decode step at batch {batch} longer by",
            batch=typical.batch,
        )
        evidence.append(Evidence(label, over))
    return Finding(
        "idle",
        verdict,
        (*evidence, Text("means of NVML's samples, without the first second of each batch")),
        action=Text("Trace the gaps and their causes with the recipe vllm-kernels."),
        disproof=Text(
            "NVML counts a moment as busy when any kernel runs and samples it coarsely: the idle "
            "time is larger."
        ),
        technical=True,
    )


def cache(found: Baseline) -> Finding | None:
    """State how full the KV cache was, and how many requests had to wait for it."""
    gauged = [p for p in found.points if not math.isnan(p.value("kv_usage_max"))]
    if not gauged:
        return None
    fullest = max(gauged, key=lambda p: p.value("kv_usage_max"))
    preempted = [p for p in gauged if p.value("preemptions") > 0]
    values: dict[str, Value] = {"used": fullest.number("kv_usage_max"), "batch": fullest.batch}
    evidence: list[Evidence | Text] = [Evidence(Text("each with"), shape(fullest))]
    if found.engine and found.engine.kv_tokens:
        evidence.append(Evidence(Text("tokens that it holds:"), found.engine.kv_tokens))
    evidence.append(Text("vLLM's gauges, read in the warm-ups and between the timed repeats"))
    verdict = Text(
        "The KV cache was at most {used} full, at batch {batch}, and no request was preempted.",
        **values,
    )
    action = disproof = None
    if preempted:
        verdict = Text(
            "The KV cache is too small from batch {smallest} on: {n} request was preempted, and it "
            "was {used} full at batch {batch}.",
            "The KV cache is too small from batch {smallest} on: {n} requests were preempted, and "
            "it was {used} full at batch {batch}.",
            n=round(sum(p.value("preemptions") for p in preempted)),
            smallest=min(p.batch for p in preempted), **values,
        )  # fmt: skip
        action = Text(
            "Run smaller batches (--max-num-seqs), or give the KV cache more memory "
            "(--gpu-memory-utilization)."
        )
        disproof = Text(
            "A preempted request is computed again, so that its times hold both attempts."
        )
    return Finding(
        "kv_cache", verdict, tuple(evidence), action=action, disproof=disproof, technical=True
    )


def agreement(found: Baseline) -> Finding | None:
    """State how well the throughput agrees with vLLM's own counters."""
    both = [
        (p, p.value(RATE) / p.value("vllm_output_tokens_per_s") - 1)
        for p in found.points
        if p.value("vllm_output_tokens_per_s") > 0 and not math.isnan(p.value(RATE))
    ]
    if not both:
        return None
    point, difference = max(both, key=lambda pair: abs(pair[1]))
    return Finding(
        "agreement",
        Text(
            "Throughput by the tokens and times of single requests agrees with vLLM's own counters "
            "within {difference}.",
            difference=point.derived(abs(difference), "fraction"),
        ),
        (
            Text("medians of the repeats at {n} points", n=len(both)),
            Evidence(Text("the largest difference is that of"), point.name),
        ),
        technical=True,
    )
