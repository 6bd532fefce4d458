"""The finding about what keeps the server from answering more."""

from __future__ import annotations

import math
from collections.abc import Callable

from nsight_prof.parsers.cells import count
from nsight_prof.reports.page import Evidence, Finding, Number, Text, Value
from nsight_prof.reports.serving.formulas import Work, flops
from nsight_prof.reports.serving.roofs import roof_name
from nsight_prof.reports.studies.serving_load.causes import CLIENT_BUSY, more_front_ends
from nsight_prof.reports.studies.serving_load.points import BUSY, RATE, LoadTest, Point, keeping

FULL = 0.95
"""Part of the KV cache from which on it is full: the engine keeps some blocks free."""
UTILIZATION = "gpu_util_pct_mean"
FREE_CORES = Text("Run the client on a machine with free cores, and measure again.")
COARSE = Text(
    "NVML counts a moment as busy when any kernel runs: a busy GPU may still be used badly, and "
    "MFU says how well."
)


def limit(found: LoadTest) -> Finding | None:
    """State what limits throughput at the load that has most of it; None where none is known."""
    loads = [p for p in found.loads if p.value(RATE) > 0]
    if not loads:
        return None
    point = max(loads, key=lambda p: p.value(RATE))
    if not _saturated(found):
        return _not_reached(found, point)
    kinds: tuple[Callable[[LoadTest, Point], Finding | None], ...]
    kinds = (_cache, _client, _gpu, _host)
    judged = (kind(found, point) for kind in kinds)
    return next((finding for finding in judged if finding is not None), None)


def _not_reached(found: LoadTest, point: Point) -> Finding | None:
    """Say so where the most clients, or the highest rate, had the highest throughput of several."""
    sweep = found.closed if point.closed else found.opened
    if len(sweep) < 2 or point is not sweep[-1]:
        return None
    return Finding(
        "limit",
        Text(
            "No limit was reached: more load still brings more throughput, up to {rate} at {load}.",
            rate=point.number(RATE),
            load=point.load_text,
        ),
        technical=True,
    )


def _saturated(found: LoadTest) -> bool:
    """Whether some load was more than the server can answer, or brought little."""
    states = [keeping(point, found.law) for point in found.opened]
    behind = any(state is not None and state.verdict == "no" for state in states)
    return behind or (found.law is not None and found.law.bend <= found.law.last)


def _cache(found: LoadTest, point: Point) -> Finding | None:
    preempted = point.value("preemptions")
    if not (point.value("kv_usage_max") >= FULL or preempted > 0):
        return None
    values: dict[str, Value] = {
        "load": point.load_text,
        "used": point.number("kv_usage_max"),
        "preempted": point.number("preemptions"),
    }
    return Finding(
        "limit",
        Text(
            "Memory limits throughput: at {load} the KV cache is {used} full, and requests were "
            "preempted {preempted} times.",
            **values,
        ),
        action=Text(
            "Give the KV cache more memory ({memory}), smaller entries ({entries}), or more GPUs.",
            memory=found.option("cache_memory"),
            entries=found.option("cache_type"),
        ),
        lay_verdict=Text(
            "The GPU's memory is the limit: at {load} the part that holds requests is {used} full.",
            load=point.load_text,
            used=values["used"],
        ),
    )


def _client(_found: LoadTest, point: Point) -> Finding | None:
    used = point.server["client_cpu"]
    if not used >= CLIENT_BUSY:
        return None
    return Finding(
        "limit",
        Text(
            "The client limits throughput, not the server: at {load} it takes {used} of a core.",
            load=point.load_text,
            used=point.derived(used, "fraction"),
        ),
        action=FREE_CORES,
    )


def _gpu(found: LoadTest, point: Point) -> Finding | None:
    if not point.value(UTILIZATION) >= BUSY:
        return None
    busy: dict[str, Value] = {"load": point.load_text, "busy": point.number(UTILIZATION)}
    mfu = _mfu(found, point)
    lay = Text("The GPU itself is the limit: at {load} it works {busy} of the time.", **busy)
    if mfu:
        lay = Text(
            "The GPU itself is the limit: at {load} it works {busy} of the time, and computes at "
            "{mfu} of what it can keep up.",
            mfu=mfu["mfu"],
            **busy,
        )
    return Finding(
        "limit",
        _gpu_verdict(point, busy, mfu),
        _clock(point),
        action=_cheaper(found),
        disproof=COARSE,
        lay_verdict=lay,
    )


def _mfu(found: LoadTest, point: Point) -> dict[str, Value]:
    """Return the MFU at a load and the name of its roof; empty where it is not known."""
    rate = useful_flop_rate(found, point)
    peak = found.roofs.attained(rate)
    if peak is None or math.isnan(rate):
        return {}
    mfu = point.derived(rate / peak.value, "fraction").by(
        Text(
            "FLOPs that the model needs for all answers / time = {rate}, / {roof}",
            rate=Number(rate, "FLOP/s", digits=4),
            roof=Number(peak.value, "FLOP/s", digits=4),
        )
    )
    return {"mfu": mfu, "roof": roof_name(peak.name)}


def _gpu_verdict(point: Point, busy: dict[str, Value], mfu: dict[str, Value]) -> Text:
    """Return the sentence with the MFU and the part of the KV cache that is in use, if known."""
    facts: list[Value] = [Text("it is busy {busy} of the time", busy=busy["busy"])]
    if mfu:
        facts.append(Text("the model's FLOPs are {mfu} of the {roof} (MFU)", **mfu))
    if not math.isnan(point.value("kv_usage_max")):
        facts.append(Text("the KV cache is {used} full", used=point.number("kv_usage_max")))
    return Text("The GPU limits throughput: at {load} {facts}.", load=point.load_text, facts=facts)


def _cheaper(found: LoadTest) -> Text:
    recipe = found.option("kernels")
    if found.engine is not None and found.engine.dtype == "fp8":
        return Text(
            "For more per GPU make its work cheaper: shorter prompts or a prefix cache. The recipe "
            "{recipe} shows which kernels take its time.",
            recipe=recipe,
        )
    return Text(
        "For more per GPU make its work cheaper: shorter prompts, a prefix cache, or fp8 (at a "
        "cost in accuracy; --quantization fp8). The recipe {recipe} shows which kernels take its "
        "time.",
        recipe=recipe,
    )


def _host(found: LoadTest, point: Point) -> Finding | None:
    busy = point.value(UTILIZATION)
    if math.isnan(busy):
        return None
    values: dict[str, Value] = {"load": point.load_text, "idle": point.derived(100 - busy, "%")}
    return Finding(
        "limit",
        Text(
            "The host limits throughput, not the GPU: at {load} the GPU has nothing to do {idle} "
            "of the time.",
            **values,
        ),
        action=more_front_ends(found)
        if point.lags
        else Text(
            "Trace what the GPU waits for with the recipe {recipe}.", recipe=found.option("kernels")
        ),
        disproof=COARSE,
        lay_verdict=Text(
            "The processor of the machine is the limit: at {load} the GPU waits for it {idle} of "
            "the time.",
            **values,
        ),
    )


def _clock(point: Point) -> tuple[Evidence, ...]:
    if not point.value("sm_clock_hz_mean") > 0:
        return ()
    return (Evidence(Text("SM clock"), point.number("sm_clock_hz_mean").at_digits(3)),)


def useful_flop_rate(found: LoadTest, point: Point) -> float:
    """Return the FLOP/s that the answered requests need of one GPU, by the model's shape.

    A request computes all its tokens but the last one as a prefill of that length would, with
    logits for each output token. NaN where the shape is not known, where requests failed, and
    where a prefix cache computed less.
    """
    shard = found.engine.shard if found.engine is not None else None
    lengths = [(count(r["prompt_tokens"]), count(r["output_tokens"])) for r in point.requests]
    cached = point.server["prefix_hit_tokens"] > 0 or point.value("failed_requests") > 0
    if shard is None or cached or not all(prompt and output for prompt, output in lengths):
        return math.nan
    known = [(prompt or 0, output or 0) for prompt, output in lengths]
    work = Work(
        prefill=tuple((prompt + output - 1, 0) for prompt, output in known),
        sampled=sum(output for _, output in known),
    )
    return flops(shard, work).total / point.value("duration_s")
