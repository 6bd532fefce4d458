"""What a load test answers about rates and limits, in sentences."""

from __future__ import annotations

import math

from nsight_prof.reports.bench.models import BenchFinding
from nsight_prof.reports.bench.serving_load_points import Keeping, LoadTest, Point, keeping
from nsight_prof.reports.bench.serving_load_tables import brief, capital, limit, name_of, rate
from nsight_prof.reports.formats import count, counted, listed, seconds, share, speedup
from nsight_prof.reports.formats import significant as digits

ALIKE = 0.1
"""Largest difference of two throughputs that are compared as equal."""


def scaling(found: LoadTest) -> BenchFinding | None:
    """Say what more clients bring, and where that bends."""
    sweep = [p for p in found.closed if p.value("output_tokens_per_s") > 0]
    if len(sweep) < 2:
        return None
    first, last = sweep[0], sweep[-1]
    best = max(sweep, key=lambda p: p.value("output_tokens_per_s"))
    gain = best.value("output_tokens_per_s") / first.value("output_tokens_per_s")
    sentence = (
        f"{capital(name_of(first))} get{'s' if first.load == 1 else ''} "
        f"{rate(first.value('output_tokens_per_s'))}, {name_of(best)} together "
        f"{rate(best.value('output_tokens_per_s'))} ({speedup(gain)}), while a request takes "
        f"{seconds(best.percentile('e2e', 'p50'))} instead of "
        f"{seconds(first.percentile('e2e', 'p50'))}"
    )
    slower = first.percentile("e2e", "p50") / best.percentile("e2e", "p50")
    return BenchFinding(
        f"{sentence}{_bend(found, last)}.",
        f"Closed loops of {count(first.value('requests'))} to {count(last.value('requests'))} "
        f"requests, median latencies{_law(found)}.",
        f"For prompts of {count(first.prompt)} and answers of {count(first.output)} tokens.",
        f"{count(best.load)} users at once get {digits(gain)} times the text a second of "
        f"{'one' if first.load == 1 else count(first.load)}, each at {share(slower)} of the speed.",
    )


def _bend(found: LoadTest, last: Point) -> str:
    law = found.law
    if law is None:
        return ""
    if law.bend > law.last:
        return f"; scaling does not bend up to {name_of(last)}"
    return (
        f"; scaling bends at {digits(law.bend, 2)} clients, from where on 1 % more of them bring "
        "less than 0.5 % more tokens/s"
    )


def _law(found: LoadTest) -> str:
    law = found.law
    if law is None:
        return ""
    return (
        f"; a client waits {seconds(law.fixed_s)} for an answer and {seconds(law.each_s)} more for "
        f"each further one (fit, {share(law.residual)} off in the root mean square)"
    )


def limits(found: LoadTest) -> BenchFinding | None:
    """Say which rate the server keeps up with, and which not."""
    law = found.law
    judged = [(p, kept) for p in found.opened if (kept := keeping(p, law)) is not None]
    if not judged:
        return None
    behind = [(p, kept) for p, kept in judged if kept.verdict == "no"]
    good = [p for p, kept in judged if kept.verdict == "yes"]
    below = [p for p in good if not behind or p.load < behind[0][0].load]
    words = []
    if below:
        words.append(f"The server keeps up with {name_of(below[-1])}: {_latency(below[-1])}")
    if behind:
        words.append(_falling(*behind[0]))
    if not words:
        words.append(f"Requests still piled up at {name_of(judged[0][0])} when arrivals ended")
    top = "" if law is None or math.isinf(law.limit) else (
        f" By the law of the closed loops {digits(law.limit)} requests/s are the most, and the "
        "numbers in the server in the long run are "
        + listed([_long_run(kept.expected) for _, kept in judged])
        + "."
    )  # fmt: skip
    seen = "; ".join(
        f"{name_of(p)}: {digits(kept.in_flight)} in the server on average, {digits(kept.last)} at "
        f"the end of the arrivals"
        for p, kept in judged
    )
    return BenchFinding(
        f"{'; '.join(words)}.",
        f"{seen}.{top}",
        "Arrivals lasted only seconds: near its limit a server takes longer than that to settle.",
        f"Up to about {brief(below[-1].load)} requests a second are answered without a growing "
        "queue."
        if below
        else "",
    )


def _long_run(expected: float) -> str:
    return "without end" if math.isinf(expected) else digits(expected)


def _latency(point: Point) -> str:
    which = "p95" if not math.isnan(point.percentile("ttft", "p95")) else "p50"
    of = "95 % of first tokens within" if which == "p95" else "half of first tokens within"
    return (
        f"{of} {seconds(point.percentile('ttft', which))}, the next ones "
        f"{seconds(point.percentile('tpot', 'p50'))} apart (median)"
    )


def _falling(point: Point, kept: Keeping) -> str:
    each = digits(kept.growth / kept.seconds)
    return f"at {name_of(point)} it falls behind, by {each} more requests in it each second"


def goodput(found: LoadTest) -> BenchFinding | None:
    """Say how many requests a second are answered within the targets."""
    slo = found.slo
    known = [p for p in (*found.closed, *found.opened) if not math.isnan(p.goodput)]
    if not known or (math.isinf(slo.ttft_s) and math.isinf(slo.tpot_s)):
        return None
    best = max(known, key=lambda p: p.goodput)
    target = f"a first token within {limit(slo.ttft_s)} and {limit(slo.tpot_s)} a token after it"
    limits_ = "The targets are the run's options slo_ttft and slo_tpot, no property of the server."
    if best.goodput <= 0:
        return BenchFinding(f"No request of any load had {target}.", "", limits_)
    lost = [p for p in known if p.met < 1]
    missed = "; ".join(f"{name_of(p)}: {share(p.met)}, {_missed(p)}" for p in lost[:4])
    return BenchFinding(
        f"Goodput is at most {digits(best.goodput)} requests/s, with {name_of(best)}: "
        f"{share(best.met)} of its requests had {target}.",
        f"Within the targets with {missed}." if lost else "All requests of all loads had them.",
        limits_,
    )


def _missed(point: Point) -> str:
    late = sum(_above(row["ttft_s"], point.slo.ttft_s) for row in point.requests)
    slow = sum(_above(row["tpot_s"], point.slo.tpot_s) for row in point.requests)
    words = [counted(late, "first token") + " late"] if late else []
    words += [f"{counted(slow, 'request')} slow after it"] if slow else []
    return listed(words) or "the others failed"


def _above(value: object, most: float) -> bool:
    return isinstance(value, int | float) and float(value) > most


def bursts(found: LoadTest) -> BenchFinding | None:
    """Compare clients in step with random arrivals at the same throughput."""
    pairs = [
        (closed, opened)
        for closed in found.closed
        for opened in found.opened
        if closed.load > 1
        and abs(closed.value("requests_per_s") / opened.value("requests_per_s") - 1) <= ALIKE
        and not math.isnan(closed.percentile("ttft", "p50") + opened.percentile("ttft", "p50"))
    ]
    if not pairs:
        return None
    closed, opened = max(pairs, key=lambda pair: pair[0].load)
    firsts = [p.percentile("ttft", "p50") for p in (closed, opened)]
    return BenchFinding(
        f"How requests arrive decides the first token: at {digits(closed.value('requests_per_s'))} "
        f"answers/s it takes {seconds(firsts[0])} with {name_of(closed)} that begin together, and "
        f"{seconds(firsts[1])} with {name_of(opened)} at random.",
        f"Medians; {digits(opened.value('requests_per_s'))} answers/s in the open loop. The time "
        f"per token after it is {seconds(closed.percentile('tpot', 'p50'))} and "
        f"{seconds(opened.percentile('tpot', 'p50'))}.",
        "Clients of a closed loop whose answers are equally long stay in step: their prompts come "
        "in bursts and wait for each other. Real users are more like the open loop.",
    )
