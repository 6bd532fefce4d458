"""How sure the numbers of a load test are: what they rest on, and what was not measured."""

from __future__ import annotations

import math
from collections.abc import Iterator

from nsight_prof.parsers.cells import count
from nsight_prof.reports.page import Basis, Finding, Text, Value
from nsight_prof.reports.serving.points import PERCENTILES
from nsight_prof.reports.studies.serving_load.points import ANSWERED, LoadTest, Point, keeping

MEDIAN = Text("median")


def basis(found: LoadTest, limit: Finding | None, agreement: Finding | None) -> Iterator[Basis]:
    """Yield how many requests were timed, how far client and server agree, and what is open."""
    point = found.recommended or found.capacity
    if point is not None:
        yield _timed(point)
    if found.planned is not None and found.capacity is not None:
        yield _of_capacity(found, found.capacity)
    if agreement is not None:
        yield Basis(agreement.verdict)
    unknown = [*([] if limit else [Text("what limits throughput")]), *_loads_not_measured(found)]
    not_measured = Text("Not measured: {what}.", what=unknown)
    yield Basis(not_measured, not_measured)


def _of_capacity(found: LoadTest, point: Point) -> Basis:
    """State what the planned rate rests on, and by how much the overloaded loops differ."""
    behind = [p for p in found.opened if p is not point and p.load > point.value(ANSWERED)]
    overloaded: Text | str = ""
    if behind:
        lowest = min(behind, key=lambda p: p.value(ANSWERED))
        overloaded = Text(
            " {load} were answered at {rate}, {part} less.",
            load=lowest.load_text,
            rate=lowest.number(ANSWERED),
            part=lowest.derived(1 - lowest.value(ANSWERED) / point.value(ANSWERED), "fraction"),
        )
    rests = Text(
        "The rate rests on {most}, the most that was answered (at {load}, {requests} requests in "
        "{time}): too short to show what minutes would.{other}",
        most=point.number(ANSWERED),
        load=point.load_text,
        requests=point.number("requests"),
        time=point.number("duration_s"),
        other=overloaded,
    )
    return Basis(rests, rests)


def _timed(point: Point) -> Basis:
    """State the requests at the load to run at, and the intervals of its latencies."""
    repeats = count(point.row["repeats"]) or 1
    values: dict[str, Value] = {
        "load": point.load_text,
        "requests": point.number("requests"),
        "times": Text("once") if repeats == 1 else Text("{n} times", n=repeats),
    }
    which = "p50" if math.isnan(point.percentile("ttft", "p95")) else "p95"
    ttft, tpot = point.interval("ttft", which), point.interval("tpot", "p50")
    intervals: list[Value] = [
        Text(
            "{interval} for {latency} ({percentile})",
            interval=ends,
            latency=latency,
            percentile=name,
        )
        for latency, name, ends in (
            (Text("TTFT"), MEDIAN if which == "p50" else PERCENTILES[which], ttft),
            (Text("TPOT"), MEDIAN, tpot),
        )
        if ends.low is not None
    ]
    timed = Text("At {load} {requests} requests were timed in {time}, {times}.",
                 time=point.number("duration_s"), **values)  # fmt: skip
    if not intervals:
        return Basis(timed, timed)
    return Basis(
        Text("{timed} 95 % intervals: {intervals}.", timed=timed, intervals=intervals),
        timed
        if ttft.low is None
        else Text(
            "At {load} {requests} requests were timed, {times}: the {wait} for the first word may "
            "as well be {interval}.",
            wait=point.latency("ttft", which),
            interval=ttft,
            **values,
        ),
    )


def _loads_not_measured(found: LoadTest) -> Iterator[Text]:
    """Yield what a reader might take from the numbers though nothing measured it."""
    judged = [(p, state) for p in found.opened if (state := keeping(p, found.law)) is not None]
    if not judged:
        yield Text("requests that arrive at random")
        return
    behind = next((p for p, state in judged if state.verdict == "no"), None)
    if behind is None:
        yield Text("rates above {load}", load=found.opened[-1].load_text)
    elif found.recommended is not None:
        yield Text(
            "rates between {load} and {over}",
            load=found.recommended.load_text,
            over=behind.load_text,
        )
    longest = max((p for p, _ in judged), key=lambda p: p.value("duration_s"))
    yield Text("load for longer than {time}", time=longest.number("duration_s"))
    yield Text("other lengths of prompts and answers")
