"""What a load test tells of causes: waiting, stalls, power, the client, and who counted what."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median

from nsight_prof.reports.bench.models import BenchFinding
from nsight_prof.reports.bench.serving_load_points import LoadTest, Point
from nsight_prof.reports.bench.serving_load_tables import differences, name_of
from nsight_prof.reports.formats import count, counted, difference, listed, seconds, share
from nsight_prof.reports.formats import significant as digits

STALL = 5.0
"""Ratio of the 99th percentile of the time between tokens to its median that is told."""
CLIENT_BUSY = 0.8
"""Part of a core from which on the client itself may be what takes the time."""
LATE_S = 0.02
AGREE = 0.05
"""Largest difference of client and server that is called agreement."""
PARTS = {
    "queue": "waiting in the queue",
    "prefill": "prefill",
    "front": "the server's front end",
    "client": "HTTP and the client",
}
WORDS = {
    "tokens": "tokens/s",
    "ttft": "time to first token",
    "tpot": "time per output token",
    "e2e": "whole requests",
}


def waiting(found: LoadTest) -> BenchFinding | None:
    """Say what the time to first token is made of under light and heavy load."""
    points = [p for p in (*found.closed, *found.opened) if p.first_token_parts()]
    if not points:
        return None
    light = min(points, key=lambda p: p.value("ttft_mean_s"))
    heavy = max(points, key=lambda p: p.value("ttft_mean_s"))
    said = f"A first token takes {seconds(light.value('ttft_mean_s'))} with {name_of(light)}"
    beside = ""
    if heavy is not light:
        said += f" and {seconds(heavy.value('ttft_mean_s'))} with {name_of(heavy)}"
        beside = f" With {name_of(light)}: {_made_of(light)}."
    return BenchFinding(
        f"{said}; there it is {_made_of(heavy)}.",
        f"Means of the client's times and of vLLM's histograms.{beside}{_cache(points)}",
        "Prefill lasts from the engine's first step for the request to its first token, and those "
        "steps compute other requests too.",
    )


def _made_of(point: Point) -> str:
    parts, whole = point.first_token_parts(), point.value("ttft_mean_s")
    return listed([f"{share(value / whole)} {PARTS[name]}" for name, value in parts.items()])


def _cache(points: list[Point]) -> str:
    fullest = max((p.value("kv_usage_max") for p in points), default=math.nan)
    if math.isnan(fullest):
        return ""
    preempted = sum(max(0.0, p.value("preemptions")) for p in points)
    lost = f"{counted(preempted, 'preemption')}" if preempted else "no preemption"
    return f" The KV cache was at most {share(fullest)} full, with {lost}."


def stalls(found: LoadTest) -> BenchFinding | None:
    """Say how long tokens wait at times for the prompts of others."""
    known = [
        (p.percentile("itl", "p99") / p.percentile("itl", "p50"), p)
        for p in (*found.closed, *found.opened)
        if p.percentile("itl", "p50") > 0
    ]
    known = [pair for pair in known if pair[0] >= STALL]
    if not known:
        return None
    ratio, worst = max(known, key=lambda pair: pair[0])
    return BenchFinding(
        f"Text comes in jerks under load: with {name_of(worst)} half of the tokens follow within "
        f"{seconds(worst.percentile('itl', 'p50'))}, and 1 in 100 after "
        f"{seconds(worst.percentile('itl', 'p99'))} or more ({digits(ratio)} times as long).",
        f"{count(worst.samples('itl'))} gaps between tokens; {counted(len(known), 'load')} with a "
        f"99th percentile of at least {digits(STALL)} medians.",
        "A step that also computes prompts of others takes longer; --max-num-batched-tokens bounds "
        "how many of their tokens it takes. That they are the cause is not measured here.",
    )


def power(found: LoadTest) -> BenchFinding | None:
    """Say where a limit of power or heat held the clock down."""
    points = [p for p in (*found.closed, *found.opened) if p.value("sm_clock_hz_mean") > 0]
    held = [p for p in points if p.row["throttle_reasons"]]
    if not held:
        return None
    slow = min(held, key=_clock)
    fast = max(points, key=_clock)
    names = str(slow.row["throttle_reasons"]).replace("_", " ")
    watts = slow.value("power_w_mean")
    drawn = "" if math.isnan(watts) else f", at {digits(watts)} W"
    return BenchFinding(
        f"The clock was held down ({names}): {digits(_clock(slow) / 1e9)} GHz with "
        f"{name_of(slow)}{drawn}, {digits(_clock(fast) / 1e9)} GHz with {name_of(fast)}.",
        f"NVML's samples: {counted(len(held), 'load')} of {len(points)} ran under a limit for some "
        "of the time.",
    )


def _clock(point: Point) -> float:
    return point.value("sm_clock_hz_mean")


def agreement(found: LoadTest) -> BenchFinding | None:
    """Say how well the client's numbers agree with the server's own."""
    # A client that sends late makes requests late that the server answers in time.
    fair = [p for p in found.points if not _late(p)]
    both = [(p, made) for p in fair if (made := differences(p))]
    worst: dict[str, tuple[float, Point]] = {}
    for name in WORDS:
        # Tokens that wait in the front end are a finding of their own.
        sides = [(p, made) for p, made in both if name != "tpot" or not _lags(made)]
        known = [(made[name], p) for p, made in sides if name in made]
        if known:
            worst[name] = max(known, key=lambda pair: abs(pair[0]))
    if not worst:
        return None
    exact = [
        f"{WORDS[name]} within {share(abs(value))}"
        for name, (value, _) in worst.items()
        if name != "ttft"
    ]
    later = [p.first_token_parts()["client"] for p, _ in both if "client" in p.first_token_parts()]
    agree = all(abs(worst[name][0]) <= AGREE for name in worst if name != "ttft")
    how = "agree with" if agree else "differ from"
    first = f"; first tokens reach the client {seconds(median(later))} later" if later else ""
    return BenchFinding(
        f"The client's numbers {how} the server's own: {listed(exact)}{first}.",
        f"{counted(len(both), 'load')}; the largest differences are "
        + listed([f"{difference(v)} in {WORDS[n]} ({name_of(p)})" for n, (v, p) in worst.items()])
        + ".",
        "The client also times HTTP and JSON, a large part of a short time to first token.",
    )


def front_end(found: LoadTest) -> BenchFinding | None:
    """Say where tokens are made faster than the server sends them.

    vLLM times tokens in its engine and whole requests in its front end (v1/metrics/stats.py): where
    the client agrees with the second and not with the first, tokens waited in between.
    """
    lag = [(p, made) for p in found.points if _lags(made := differences(p))]
    if not lag:
        return None
    point, made = max(lag, key=lambda pair: pair[1]["tpot"])
    engine, client = point.server["tpot_mean_s"], point.value("tpot_mean_s")
    return BenchFinding(
        f"With {name_of(point)} tokens wait for the server's front end: the engine makes one of a "
        f"request every {seconds(engine)}, and they reach the client every {seconds(client)}.",
        f"vLLM's own time per output token is that of its engine; its whole requests, which its "
        f"front end times, differ from the client's by {difference(made['e2e'])}. "
        f"{counted(len(lag), 'load')} of {len(found.points)}.",
        "More front ends (--api-server-count) should bring both times together; if they do not, "
        "the cause is another.",
    )


def _lags(made: dict[str, float]) -> bool:
    slower = made.get("tpot", math.nan) > AGREE
    return slower and abs(made.get("e2e", math.nan)) <= AGREE


def client(found: LoadTest) -> BenchFinding | None:
    """Warn where the client itself may have been the limit."""
    busy = [p for p in found.points if p.server["client_cpu"] >= CLIENT_BUSY]
    late = [p for p in found.opened if _late(p)]
    if not busy and not late:
        return None
    words = []
    if busy:
        worst = _most(busy, lambda p: p.server["client_cpu"])
        words.append(f"it took {share(worst.server['client_cpu'])} of a core with {name_of(worst)}")
    if late:
        worst = _most(late, lambda p: p.server["client_late_s"])
        words.append(
            f"it sent a request {seconds(worst.server['client_late_s'])} late with {name_of(worst)}"
        )
    return BenchFinding(
        f"The client may have been the limit: {listed(words)}.",
        "Its own CPU time over the duration of the load, and when requests were sent against when "
        "they were due.",
        "Latencies of these loads may be those of the client, not of the server.",
    )


def _late(point: Point) -> bool:
    return not point.closed and bool(point.server["client_late_s"] >= LATE_S)


def _most(points: list[Point], value: Callable[[Point], float]) -> Point:
    return max(points, key=value)
