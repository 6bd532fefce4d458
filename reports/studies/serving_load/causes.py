"""Findings about causes: waiting, stalls, front end, client, and agreement with the server."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median

from nsight_prof.parsers.cells import count
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Evidence, Finding, Number, Text, Value, adding_up
from nsight_prof.reports.serving.formulas import Work, flops
from nsight_prof.reports.serving.roofs import roof_name
from nsight_prof.reports.studies.serving_load.points import (
    AGREE,
    BUSY,
    RATE,
    LoadTest,
    Point,
)

SENTENCES = Sentences("serving_load")

STALL = 5.0
"""P99 of the time between tokens over its median from which on text stalls."""
CLIENT_BUSY = 0.8
"""CPU share of a core from which on the client itself may be the limit."""
LATE_S = 0.02
PHASES = {
    "queue": Text("waiting in the queue"),
    "prefill": Text("prefill"),
    "front": Text("the server's front end"),
    "server": Text("prefill and the rest of the server"),
    "client": Text("HTTP and the client"),
}
IN_PLAIN_WORDS = {"queue": Text("in a queue"), "prefill": Text("to read the prompt")}
SHORTEN = Text("Shorten prompts, or reuse common prefixes (prefix caching).")
QUANTITIES = {
    "tokens": Text("throughput"),
    "ttft": Text("TTFT"),
    "tpot": Text("TPOT"),
    "e2e": Text("end-to-end latency"),
}


def waiting(found: LoadTest) -> Finding | None:
    """State what TTFT is made of under light and heavy load."""
    points = [p for p in found.loads if p.first_token_parts()]
    if not points:
        return None
    light = min(points, key=lambda p: p.value("ttft_mean_s"))
    heavy = max(points, key=lambda p: p.value("ttft_mean_s"))
    phases = heavy.first_token_parts()
    evidence: list[Evidence | Text] = []
    if light is not heavy:
        evidence.append(
            Text(
                "with {load} {ttft}: {phases}",
                load=light.load_text, ttft=light.number("ttft_mean_s"), phases=_phases(light),
            )
        )  # fmt: skip
    evidence.append(Text("means of the client's times and of the server's histograms"))
    usage = [p for p in points if not math.isnan(p.value("kv_usage_max"))]
    if usage:
        fullest = max(usage, key=lambda p: p.value("kv_usage_max"))
        evidence.append(Evidence(Text("KV cache in use at most"), fullest.number("kv_usage_max")))
    if counted := [n for p in points if not math.isnan(n := p.value("preemptions"))]:
        evidence.append(Evidence(Text("preemptions:"), round(sum(counted))))
    verdict, lay_verdict = _of_first_token(found, heavy)
    return Finding(
        "first_token",
        verdict,
        tuple(evidence),
        action=_first_token_action(found, max(phases, key=lambda name: phases[name])),
        disproof=SENTENCES.text("waiting"),
        lay_verdict=lay_verdict,
    )  # fmt: skip


def _of_first_token(found: LoadTest, heavy: Point) -> tuple[Text, Text]:
    """Say what TTFT is made of at the heaviest load, and the queue's part at the one to run at."""
    shares, rate = _phase_shares(heavy), found.recommended
    values: dict[str, Value] = {"load": heavy.load_text, "ttft": heavy.number("ttft_mean_s")}
    verdict = Text(
        "With {load} the mean TTFT is {ttft}: {phases}.", phases=_phases(heavy), **values
    )
    lay_verdict = verdict
    if "queue" in shares:
        lay_verdict = Text(
            "With {load} the first word takes {ttft} on average, of which {parts}.",
            parts=_phases(heavy, IN_PLAIN_WORDS), **values,
        )  # fmt: skip
    at_rate = {} if rate is None or rate is heavy else _phase_shares(rate)
    if rate is None or "queue" not in at_rate:
        return verdict, lay_verdict
    less: dict[str, Value] = {"rate": rate.load_text, "less": rate.number("ttft_mean_s")}
    less["part"] = at_rate["queue"]
    return (
        Text("{verdict} At {rate} it is {less}, {part} of it waiting in the queue.",
             verdict=verdict, **less),
        Text("{verdict} At {rate} it is {less}, {part} of it in a queue.",
             verdict=lay_verdict, **less),
    )  # fmt: skip


def _first_token_action(found: LoadTest, phase: str) -> Text | None:
    if phase == "queue" and found.planned is not None:
        return SENTENCES.text("first_token_action")
    if phase == "queue":
        return Text("Send less to each server.")
    front = Text("Run more front ends ({option}).", option=found.option("front_ends"))
    return {"prefill": SHORTEN, "front": front}.get(phase)


def _phases(point: Point, labels: Mapping[str, Text] = PHASES) -> list[Value]:
    return [
        Text("{share} {phase}", share=share, phase=labels[name])
        for name, share in _phase_shares(point).items()
        if name in labels
    ]


def _phase_shares(point: Point) -> dict[str, Number]:
    """Return the part that each phase is of the mean TTFT; they add up as they are shown."""
    phases = point.first_token_parts()
    total = sum(phases.values())
    shares = (
        point.derived(phase / total, "fraction").by(
            Text("{a} / {b}", a=Number(phase, "s", digits=4), b=Number(total, "s", digits=4))
        )
        for phase in phases.values()
    )
    _, *rounded = adding_up(Number(1, "fraction"), *shares, digits=2)
    return dict(zip(phases, rounded, strict=True))


def stalls(found: LoadTest) -> Finding | None:
    """State how long tokens wait at times for the prompts of others."""
    ratios = [
        (p.percentile("itl", "p99") / p.percentile("itl", "p50"), p)
        for p in found.loads
        if p.percentile("itl", "p50") > 0
    ]
    stalled = [pair for pair in ratios if pair[0] >= STALL]
    if not stalled:
        return None
    ratio, point = max(stalled, key=lambda pair: pair[0])
    p50, p99 = (point.latency("itl", quantile) for quantile in ("p50", "p99"))
    return SENTENCES.finding(
        "stalls",
        (
            Evidence(Text("gaps between tokens:"), point.samples("itl")),
            Text(
                "{n} load has a P99 of at least {ratio} the median",
                "{n} loads have a P99 of at least {ratio} the median",
                n=len(stalled),
                ratio=Number(STALL, "x"),
            ),
        ),
        load=point.load_text,
        p50=p50,
        p99=p99,
        ratio=point.derived(ratio, "x").by(Text("{a} / {b}", a=p99, b=p50)),
        option=found.option("step_tokens"),
    )


def front_end(found: LoadTest) -> Finding | None:
    """State where tokens are made faster than the server sends them.

    vLLM times tokens in its engine and whole requests in its front end (v1/metrics/stats.py): where
    the client agrees with the second and not with the first, tokens waited in between.
    """
    lagging = [p for p in found.points if p.lags]
    if not lagging:
        return None
    point = max(lagging, key=lambda p: p.differences()["tpot"])
    return SENTENCES.finding(
        "front_end",
        (
            Evidence(
                SENTENCES.text("front_end"),
                point.derived(abs(point.differences()["e2e"]), "fraction"),
            ),
        ),
        load=point.load_text,
        engine=point.derived(point.server["tpot_mean_s"], "s"),
        client=point.number("tpot_mean_s"),
        option=found.option("front_ends"),
        n=len(lagging),
        total=len(found.points),
    )


def client(found: LoadTest) -> Finding | None:
    """Warn where the client itself may have been the limit."""
    busy = [p for p in found.points if p.server["client_cpu"] >= CLIENT_BUSY]
    late = [p for p in found.opened if _late(p)]
    if not busy and not late:
        return None
    reasons: list[Value] = []
    if busy:
        point = max(busy, key=lambda p: p.server["client_cpu"])
        reasons.append(
            Text(
                "it took {cpu} of a core with {load}",
                cpu=point.derived(point.server["client_cpu"], "fraction"),
                load=point.load_text,
            )
        )
    if late:
        point = max(late, key=lambda p: p.server["client_late_s"])
        reasons.append(
            Text(
                "it sent a request {late} late with {load}",
                late=point.derived(point.server["client_late_s"], "s"),
                load=point.load_text,
            )
        )
    return SENTENCES.finding(
        "client",
        reasons=reasons,
    )


def _late(point: Point) -> bool:
    return not point.closed and bool(point.server["client_late_s"] >= LATE_S)


def agreement(found: LoadTest) -> Finding | None:
    """State how well the client's numbers agree with the server's own."""
    # A client that sends late makes requests late that the server answers in time.
    fair = [p for p in found.points if not _late(p) and p.differences()]
    tpot = Text("{what} (where the front end keeps up)", what=QUANTITIES["tpot"])
    quantities = QUANTITIES | {"tpot": tpot} if any(p.lags for p in fair) else QUANTITIES
    worst: dict[str, tuple[float, Point]] = {}
    for name in QUANTITIES:
        # Tokens that wait in the front end are a finding of their own.
        points = [p for p in fair if name != "tpot" or not p.lags]
        pairs = [(p.differences()[name], p) for p in points if name in p.differences()]
        if pairs:
            worst[name] = max(pairs, key=lambda pair: abs(pair[0]))
    if not worst:
        return None
    within: list[Value] = [
        Text(
            "{what} within {difference}",
            what=quantities[name],
            difference=point.derived(abs(value), "fraction").by(
                Text("client / server - 1, of tokens/s or mean latency")
            ),
        )
        for name, (value, point) in worst.items()
        if name != "ttft"
    ]
    agree = all(abs(value) <= AGREE for name, (value, _) in worst.items() if name != "ttft")
    largest: list[Value] = [
        Text(
            "{difference} in {what} ({load})",
            difference=point.derived(value, "fraction"), what=QUANTITIES[name],
            load=point.load_text,
        )
        for name, (value, point) in worst.items()
    ]  # fmt: skip
    evidence = [Evidence(Text("largest differences, client over server:"), largest)]
    later = [phases["client"] for p in fair if "client" in (phases := p.first_token_parts())]
    if later:
        label = Text("first tokens reach the client later by (median)")
        evidence.append(Evidence(label, Number(median(later), "s")))
    name = "agreement" if agree else "agreement/differs"
    return SENTENCES.finding(name, evidence, within=within)


FULL = 0.95
"""Part of the KV cache from which on it is full: the engine keeps some blocks free."""
UTILIZATION = "gpu_util_pct_mean"


def limit(found: LoadTest) -> Finding | None:
    """State what limits throughput at the load that has most of it; None where none is known."""
    loads = [p for p in found.loads if p.value(RATE) > 0]
    if not loads:
        return None
    point = max(loads, key=lambda p: p.value(RATE))
    bends = found.law is not None and found.law.bend <= found.law.last
    if found.behind is None and not bends:
        return _not_reached(found, point)
    return _cache(found, point) or _client(point) or _gpu(found, point) or _host(found, point)


def _not_reached(found: LoadTest, point: Point) -> Finding | None:
    """Say so where the most clients, or the highest rate, had the highest throughput of several."""
    sweep = found.closed if point.closed else found.opened
    if len(sweep) < 2 or point is not sweep[-1]:
        return None
    return SENTENCES.finding(
        "limit",
        rate=point.number(RATE),
        load=point.load_text,
    )


def _cache(found: LoadTest, point: Point) -> Finding | None:
    preempted = point.value("preemptions")
    if not (point.value("kv_usage_max") >= FULL or preempted > 0):
        return None
    return SENTENCES.finding(
        "limit/cache",
        load=point.load_text,
        used=point.number("kv_usage_max"),
        preempted=point.number("preemptions"),
        memory=found.option("cache_memory"),
        entries=found.option("cache_type"),
    )


def _client(point: Point) -> Finding | None:
    used = point.server["client_cpu"]
    if not used >= CLIENT_BUSY:
        return None
    return SENTENCES.finding(
        "limit/client", load=point.load_text, used=point.derived(used, "fraction")
    )


def _gpu(found: LoadTest, point: Point) -> Finding | None:
    if not point.value(UTILIZATION) >= BUSY:
        return None
    mfu = _mfu(found, point)
    light = min(found.loads, key=lambda p: p.value(RATE))
    if light is not point and light.value(UTILIZATION) >= BUSY:
        return _busy_anyway(found, point, light, mfu)
    busy = point.number(UTILIZATION)
    in_fp8 = found.engine is not None and found.engine.dtype == "fp8"
    return SENTENCES.finding(
        "limit/gpu-fp8" if in_fp8 else "limit/gpu",
        _clock(point),
        load=point.load_text,
        facts=[Text("it is busy {busy} of the time", busy=busy), *_facts(point, mfu)],
        busy=busy,
        mfu=mfu.get("mfu"),
        recipe=found.option("kernels"),
    )


def _busy_anyway(found: LoadTest, point: Point, light: Point, mfu: dict[str, Value]) -> Finding:
    """Say what is known of a server whose GPU is as busy at the lightest load.

    A kernel runs at every moment there too, so that being busy does not tell of a full GPU.
    """
    both = SENTENCES.text(
        "busy_with_both",
        light_busy=light.number(UTILIZATION),
        light=light.load_text,
        load=point.load_text,
        busy=point.number(UTILIZATION),
    )
    waits, recipe = front_end(found), found.option("kernels")
    if waits is None or waits.lay_verdict is None:
        signs: tuple[Evidence | Text, ...] = (*_clock(point), *_facts(point, mfu))
        return SENTENCES.finding("limit/unknown", signs, both=both, recipe=recipe)
    facts: list[Value] = [] if point.lags else [SENTENCES.text("keeps_up")]
    facts += _facts(point, mfu)
    return SENTENCES.finding(
        "front_end/most",
        (*waits.evidence, *_clock(point), both),
        waits=waits.verdict,
        waits_lay=waits.lay_verdict,
        load=point.load_text,
        facts=facts or None,
        mfu=mfu.get("mfu"),
        option=found.option("front_ends"),
        recipe=recipe,
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


def _facts(point: Point, mfu: dict[str, Value]) -> Iterator[Text]:
    """Yield the MFU and the part of the KV cache that is in use, if known."""
    if mfu:
        yield Text("the model's FLOPs are {mfu} of the {roof} (MFU)", **mfu)
    if not math.isnan(point.value("kv_usage_max")):
        yield Text("the KV cache is {used} full", used=point.number("kv_usage_max"))


def _host(found: LoadTest, point: Point) -> Finding | None:
    busy = point.value(UTILIZATION)
    if math.isnan(busy):
        return None
    return SENTENCES.finding(
        "limit/host",
        load=point.load_text,
        idle=point.derived(100 - busy, "%"),
        option=found.option("front_ends") if point.lags else None,
        recipe=None if point.lags else found.option("kernels"),
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
