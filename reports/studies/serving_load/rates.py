"""Findings about rates: which load to run at, scaling, goodput, and how requests arrive."""

from __future__ import annotations

import math
from dataclasses import replace

from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Evidence, Finding, Interval, Number, Text, Value
from nsight_prof.reports.serving.points import PERCENTILES, REQUEST_RATE
from nsight_prof.reports.studies.serving_load.points import (
    ANSWERED,
    MIN_MET,
    RATE,
    RESERVE,
    Keeping,
    LoadTest,
    Planned,
    Point,
)

SENTENCES = Sentences("serving_load")

ALIKE = 0.1
"""Relative difference of two throughputs that count as equal."""
SHOWN = 4
"""Loads whose missed targets are listed."""


def limits(found: LoadTest) -> list[Finding]:
    """State which rate to run at, and from which rate on the server falls behind."""
    law = found.law
    judged = found.judged
    if not judged:
        return []
    evidence: list[Evidence | Text] = [
        Text(
            "{load}: {mean} requests in the server on average, {last} when arrivals ended",
            load=p.load_text, mean=p.derived(state.in_flight, ""), last=p.derived(state.last, ""),
        )
        for p, state in judged
    ]  # fmt: skip
    if (best := found.capacity) is not None:
        label = Text("most that was answered at any load ({load}):", load=best.load_text)
        evidence.append(Evidence(label, best.number(ANSWERED)))
    if law is not None and math.isfinite(law.limit):
        # Beyond the measured clients the law is an extrapolation: a server saturates earlier.
        long_run: list[Value] = [
            p.derived(state.expected, "")
            if state.expected <= law.last
            else Text("more than {n}", n=round(law.last))
            for p, state in judged
        ]
        label = Text("requests in the server in the long run by the law of the closed loops:")
        evidence.append(Evidence(label, long_run))
    findings = []
    if found.recommended is not None:
        findings.append(_run_at(found, found.recommended))
    if found.behind is not None:
        findings.append(_falls_behind(*found.behind, sized=found.recommended is not None))
    if not findings:
        findings.append(SENTENCES.finding("run_at/none", load=judged[0][0].load_text))
    disproof = SENTENCES.text("arrivals")
    first, *others = findings
    return [replace(first, evidence=(*first.evidence, *evidence), disproof=disproof), *others]


def _run_at(found: LoadTest, point: Point) -> Finding:
    which, users = "p95", Text("95 of 100 users wait")
    if math.isnan(point.percentile("ttft", which)):
        which, users = "p50", Text("half of the users wait")
    percentile = Text("median") if which == "p50" else PERCENTILES[which]
    ttft, tpot = point.latency("ttft", which), point.latency("tpot", "p50")
    met, load, plan = point.derived(point.met, "fraction"), point.load_text, found.planned
    within: tuple[Evidence, ...] = ()
    if point.slo.limited:
        within = (Evidence(Text("requests within the targets at {load}", load=load), met),)
    if point.slo.limited and point.met < MIN_MET:
        return SENTENCES.finding(
            "run_at/late",
            within,
            load=load,
            met=met,
            wait=ttft,
            pace=tpot,
            percentile=percentile,
            rate=point.number(RATE),
            ttft=target(point.slo.ttft_s),
            tpot=target(point.slo.tpot_s),
        )
    if plan is None:
        return SENTENCES.finding(
            "run_at",
            within,
            load=load,
            ttft=ttft,
            percentile=percentile,
            tpot=tpot,
            rate=point.number(RATE),
            users=users,
        )
    rate = _rate(plan)
    low = plan.share < 1 - RESERVE - ALIKE
    planned = SENTENCES.finding(
        "run_at/planned",
        within,
        rate=rate,
        percentile=percentile,
        more=_of_highest(plan, 1 - RESERVE, REQUEST_RATE) if low else None,
        **_plan(found, plan, which),
    )
    lay_verdict = SENTENCES.text(
        "planned",
        rate=rate,
        reserve=plan.base.derived(1 - plan.share, "fraction"),
        users=users,
        ttft=ttft,
        tpot=tpot,
    )
    return replace(planned, lay_verdict=lay_verdict)


def _highest_rate(plan: Planned) -> Number:
    """Return the rate that the planned one is a part of."""
    return plan.base.derived(plan.rate / plan.share, REQUEST_RATE).at_digits(4)


def _rate(plan: Planned) -> Text:
    """Return the planned rate for readers, as that of a load."""
    if plan.measured:
        return plan.high.load_text
    return Text("{rate} requests/s", rate=_of_highest(plan, plan.share, ""))


def _of_highest(plan: Planned, share: float, unit: str) -> Number:
    """Return a part of the highest rate."""
    formula = Text("{part} x {most}", part=Number(share, "fraction"), most=_highest_rate(plan))
    return plan.base.derived(share / plan.share * plan.rate, unit).by(formula)


def _plan(found: LoadTest, plan: Planned, which: str) -> dict[str, Value]:
    """Return what part of the capacity the planned rate is, and the latencies there."""
    high, low = plan.high, plan.low
    kept_up: Value = Text("{load} that it kept up with at most", load=high.load_text)
    if found.capacity is not None:
        kept_up = Text(
            "{most} that it answered at most ({load}, {time})",
            most=plan.base.number(ANSWERED),
            load=plan.base.load_text,
            time=plan.base.number("duration_s"),
        )

    def between(name: str, quantile: str) -> Value:
        if plan.measured:
            return high.latency(name, quantile)
        if low is None:
            return Text("at most {most}", most=high.latency(name, quantile))
        lower, upper = (point.latency(name, quantile) for point in (low, high))
        return Text("{low} to {high}", low=lower, high=upper)

    loads: list[Value] = [] if low is None or plan.measured else [low.load_text]
    formula = Text(
        "1 - {reserve}, what prof leaves in reserve", reserve=Number(RESERVE, "fraction")
    )
    if plan.measured:
        highest = _highest_rate(plan)
        formula = Text("{a} / {b}", a=Number(plan.rate, REQUEST_RATE, digits=4), b=highest)
    return {
        "part": plan.base.derived(plan.share, "fraction").by(formula),
        "most": kept_up,
        "ttft": between("ttft", which),
        "tpot": between("tpot", "p50"),
        "loads": [*loads, high.load_text],
    }


def _falls_behind(point: Point, state: Keeping, *, sized: bool) -> Finding:
    """State what the server lacks; `sized`: another finding says how much to send to it."""
    return replace(
        SENTENCES.finding(
            "falls_behind",
            load=point.load_text,
            answered=point.number(ANSWERED),
            last=point.derived(state.last, "").by(
                Text("requests sent less those that were answered when the last one was sent")
            ),
        ),
        action=None
        if sized
        else Text("Add servers, or turn requests away, before {load}.", load=point.load_text),
    )


def scaling(found: LoadTest) -> Finding | None:
    """State what more clients bring, and where scaling bends."""
    sweep = [p for p in found.closed if p.value(RATE) > 0]
    if len(sweep) < 2:
        return None
    first, law = sweep[0], found.law
    best = max(sweep, key=lambda p: p.value(RATE))
    gain = best.number(RATE).times(first.number(RATE))
    counts = [p.value("requests") for p in sweep]
    evidence: list[Evidence | Text] = [
        Evidence(Text("requests per load:"), Interval(min(counts), max(counts), "count"))
    ]
    advice, action = Text("More clients bring more throughput"), None
    if law is not None:
        evidence.append(
            SENTENCES.text(
                "client_law",
                fixed=Number(law.fixed_s, "s"),
                each=Number(law.each_s, "s"),
                error=Number(law.residual, "fraction"),
            )
        )
        advice = Text("Throughput scales up to {clients}", clients=sweep[-1].load_text)
        if law.bend <= law.last:
            bend = Number(law.bend)
            evidence.append(
                Text(
                    "from {bend} clients on 1 % more of them bring less than 0.5 % more throughput",
                    bend=bend,
                )
            )
            advice = SENTENCES.text(
                "beyond_bend",
                bend=bend,
            )
            if not found.opened:  # a rate of requests sizes the server, not clients that wait
                action = Text("Limit concurrency to about {bend} clients per server.", bend=bend)
    slower = first.latency("e2e", "p50").share_of(best.latency("e2e", "p50"))
    return replace(
        SENTENCES.finding(
            "client_scaling",
            evidence,
            advice=advice,
            clients=best.load_text,
            rate=best.number(RATE),
            gain=gain,
            first=first.load_text,
            e2e=best.latency("e2e", "p50"),
            alone=first.latency("e2e", "p50"),
            prompt=first.prompt,
            output=first.output,
        ),
        action=action,
        lay_verdict=SENTENCES.text(
            "users",
            n=round(best.load),
            gain=gain,
            first=round(first.load),
            part=slower,
        ),
    )


def goodput(found: LoadTest) -> Finding | None:
    """State how many requests per second are answered within the targets."""
    slo = found.slo
    known = [p for p in found.loads if not math.isnan(p.goodput)]
    if not known or not slo.limited:
        return None
    best = max(known, key=lambda p: p.goodput)
    missed = [
        Text(
            "{load}: {met} within, TTFT missed by {late} requests, TPOT by {slow}",
            load=p.load_text, met=p.derived(p.met, "fraction"),
            late=_above(p, "ttft_s", slo.ttft_s), slow=_above(p, "tpot_s", slo.tpot_s),
        )
        for p in known
        if p.met < 1
    ]  # fmt: skip
    return SENTENCES.finding(
        "goodput/one" if len(known) == 1 else "goodput",
        missed[:SHOWN] or [Text("all requests of all loads met them")],
        goodput=best.derived(best.goodput, REQUEST_RATE),
        load=best.load_text,
        met=best.derived(best.met, "fraction"),
        ttft=target(slo.ttft_s),
        tpot=target(slo.tpot_s),
    )


def target(seconds: float) -> Value:
    """Return a target as it is shown."""
    return Text("any") if math.isinf(seconds) else Number(seconds, "s")


def _above(point: Point, column: str, limit: float) -> int:
    values = (row[column] for row in point.requests)
    return sum(isinstance(value, int | float) and value > limit for value in values)


def bursts(found: LoadTest) -> Finding | None:
    """Compare clients in step with random arrivals at the same throughput, where none pile up."""
    pairs = [
        (closed, opened)
        for closed in found.closed
        for opened, state in found.judged
        if closed.load > 1
        and state.verdict == "yes"
        and abs(closed.value(ANSWERED) / opened.value(ANSWERED) - 1) <= ALIKE
        and not math.isnan(closed.percentile("ttft", "p50") + opened.percentile("ttft", "p50"))
    ]
    if not pairs:
        return None
    closed, opened = max(pairs, key=lambda pair: pair[0].load)
    values: dict[str, Value] = {
        "slow": closed.latency("ttft", "p50"),
        "clients": closed.load_text,
        "fast": opened.latency("ttft", "p50"),
        "load": opened.load_text,
    }
    return SENTENCES.finding(
        "bursts",
        (
            Evidence(Text("answered in the open loop:"), opened.number(ANSWERED)),
            Evidence(Text("TPOT in step"), closed.latency("tpot", "p50")),
            Evidence(Text("TPOT at random"), opened.latency("tpot", "p50")),
        ),
        rate=closed.number(ANSWERED),
        **values,
    )
