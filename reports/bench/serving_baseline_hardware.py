"""What the points of the offline baseline tell of the GPU: roofs, idle time, KV cache, power."""

from __future__ import annotations

import math

from nsight_prof.parsers.build.peaks import Peak
from nsight_prof.reports.bench.models import BenchFinding
from nsight_prof.reports.bench.serving_baseline_findings import capital
from nsight_prof.reports.bench.serving_baseline_points import Baseline, Load, Point
from nsight_prof.reports.formats import count, counted, data_size, percent, seconds, share
from nsight_prof.reports.formats import significant as digits


def bound(found: Baseline) -> BenchFinding | None:
    """Say whether each stage is held up by memory or by arithmetic."""
    sweep = [p for p in found.batches if not math.isnan(p.decode.seconds + p.decode.bytes)]
    if not sweep:
        return None
    shown = _typical(sweep)
    roofs = found.roofs
    memory, compute = roofs.memory, roofs.attained(shown.prefill.flops / shown.prefill.seconds)
    if memory is None or compute is None:
        return _rates(shown)
    kind = _kind([p.decode for p in sweep])
    load = shown.decode
    sentence = (
        f"Decode is bound by {kind}: a step at batch {shown.batch} must read "
        f"{data_size(load.bytes)}, {seconds(load.bytes / memory.value)} at the {memory.name}, and "
        f"takes {seconds(load.seconds)} (MBU {share(load.mbu)})"
    )
    first = shown.prefill
    if not math.isnan(first.mfu):
        of = "arithmetic" if not first.memory_bound else "memory"
        sentence += (
            f". Prefill is bound by {of}: {shown.batch} x {count(shown.prompt)} tokens reach "
            f"{share(first.mfu)} of the {compute.name} (MFU)"
        )
    ends = [sweep[0], sweep[-1]] if len(sweep) > 1 else sweep
    evidence = "; ".join(
        f"batch {p.batch}: decode MBU {share(p.decode.mbu)} and MFU {share(p.decode.mfu)}, prefill "
        f"MFU {share(p.prefill.mfu)}"
        for p in ends
    )
    return BenchFinding(
        f"{sentence}.",
        f"{capital(evidence)}; {_roof_words(memory)}, {_roof_words(compute)}.",
        "Bytes and FLOPs are the least that the model needs, from its configuration; what the "
        "kernels really move is in the recipe vllm-kernels.",
        f"Generating text is held up by {_plain_bound(kind)}; reading the prompt by "
        f"{'arithmetic' if not first.memory_bound else 'memory'}.",
    )


def _typical(sweep: list[Point]) -> Point:
    """Return the point of batch 8, which the other recipes use too, or the middle one."""
    return next((p for p in sweep if p.batch == 8), sweep[len(sweep) // 2])


def _kind(loads: list[Load]) -> str:
    kinds = [load.memory_bound for load in loads]
    if all(kinds):
        return "memory"
    return "arithmetic" if not any(kinds) else "memory at small batches, arithmetic at large ones"


def _plain_bound(kind: str) -> str:
    return "the speed of memory" if kind == "memory" else kind


def _roof_words(peak: Peak) -> str:
    unit = "TB/s" if "DRAM" in peak.name or "bandwidth" in peak.name else "TFLOP/s"
    return f"{peak.name} {digits(peak.value / 1e12)} {unit}"


def _rates(shown: Point) -> BenchFinding:
    load = shown.decode
    return BenchFinding(
        f"A decode step at batch {shown.batch} must read {data_size(load.bytes)} and takes "
        f"{seconds(load.seconds)}: {digits(load.bytes / load.seconds / 1e12)} TB/s.",
        "No roof of this GPU is known, so that nothing says how near that is to what it can do.",
        "Measure the roofs with prof run recipes/roofline.yaml, then prof report RUN.",
    )


def idle(found: Baseline) -> BenchFinding | None:
    """Say what NVML and the time of a step tell of the GPU's idle time."""
    seen = [p for p in found.batches if not math.isnan(p.value("gpu_util_pct_mean"))]
    if not seen:
        return None
    first, last = seen[0], seen[-1]
    busy = [p.value("gpu_util_pct_mean") for p in (first, last)]
    words = f"NVML sees a kernel running for {percent(busy[0])} of the time at batch {first.batch}"
    if last is not first:
        words += f" and {percent(busy[1])} at batch {last.batch}"
    shown = _typical(seen)
    beside = ""
    if not math.isnan(shown.decode.floor_s):
        over = shown.decode.seconds - shown.decode.floor_s
        beside = (
            f". A decode step at batch {shown.batch} takes {seconds(over)} more than the roofs "
            "allow: gaps, and kernels below their roof"
        )
    free = max(0.0, 100 - busy[0])
    answer = f"so that the GPU is idle for at least {percent(free)} at batch {first.batch}"
    if free < 1:
        answer = "so that its gaps between steps are too short for NVML to see"
    return BenchFinding(
        f"{words}, {answer}{beside}.",
        "Means of NVML's samples while the batches were timed, without the first second of each.",
        "NVML counts a moment as busy when any kernel runs and samples it coarsely: the idle time "
        "is larger. The gaps themselves and their causes are in the recipe vllm-kernels.",
    )


def cache(found: Baseline) -> BenchFinding | None:
    """Say how full the KV cache was, and who had to wait for it."""
    seen = [p for p in found.points if not math.isnan(p.value("kv_usage_max"))]
    if not seen:
        return None
    fullest = max(seen, key=lambda p: p.value("kv_usage_max"))
    lost = [p for p in seen if p.value("preemptions") > 0]
    engine = found.engine
    holds = f" of {count(engine.kv_tokens)} tokens" if engine and engine.kv_tokens else ""
    said = f"The KV cache{holds} was at most {share(fullest.value('kv_usage_max'))} full"
    where = (
        f"at batch {fullest.batch} with {count(fullest.prompt)} + {count(fullest.output)} tokens"
    )
    if lost:
        total = sum(p.value("preemptions") for p in lost)
        smallest = min(lost, key=lambda p: p.batch)
        sentence = (
            f"{said} ({where}), and {counted(total, 'request')} had to be preempted, from batch "
            f"{smallest.batch} on"
        )
    else:
        sentence = f"{said} ({where}), and no request was preempted"
    return BenchFinding(
        f"{sentence}.",
        "vLLM's own gauges, read in the warm-ups and between the timed repeats.",
        "A preempted request is computed again, so that its times hold both attempts."
        if lost
        else "",
    )


def power(found: Baseline) -> BenchFinding | None:
    """Say where a limit of power or heat held the clock down."""
    held = [p for p in found.batches if p.row["throttle_reasons"]]
    known = [p for p in found.batches if not math.isnan(p.value("sm_clock_hz_mean"))]
    if not held or not known:
        return None
    slowest = min(held, key=lambda p: p.value("sm_clock_hz_mean"))
    fastest = max(known, key=lambda p: p.value("sm_clock_hz_mean"))
    names = str(slowest.row["throttle_reasons"]).replace("_", " ")
    watts = slowest.value("power_w_mean")
    drawn = "" if math.isnan(watts) else f", at {digits(watts)} W"
    slow, fast = slowest.value("sm_clock_hz_mean"), fastest.value("sm_clock_hz_mean")
    return BenchFinding(
        f"The clock was held down ({names}): {digits(slow / 1e9)} GHz at batch {slowest.batch}"
        f"{drawn}, {digits(fast / 1e9)} GHz at batch {fastest.batch}.",
        f"NVML's samples while each batch was timed: {counted(len(held), 'batch')} of "
        f"{len(found.batches)} ran under a limit for some of the time.",
    )


def agreement(found: Baseline) -> BenchFinding | None:
    """Say how well our throughput agrees with vLLM's own counters."""
    both = [
        (p, p.value("output_tokens_per_s") / p.value("vllm_output_tokens_per_s") - 1)
        for p in found.points
        if p.value("vllm_output_tokens_per_s") > 0
        and not math.isnan(p.value("output_tokens_per_s"))
    ]
    if not both:
        return None
    worst, most = max(both, key=lambda pair: abs(pair[1]))
    return BenchFinding(
        f"Throughput from the tokens and times of single requests agrees with vLLM's own counters "
        f"within {share(abs(most))}.",
        f"{counted(len(both), 'point')}; the largest difference is that of "
        f"{worst.row['case']}. Both are medians of the repeats.",
    )
