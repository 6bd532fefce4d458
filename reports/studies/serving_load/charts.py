"""Charts of a load test: latencies and throughput over the load, and their trade-off."""

from __future__ import annotations

import math

from nsight_prof.reports.page.charts import Chart, LineFigure, Panel, Series
from nsight_prof.reports.page.units import quantity, significant
from nsight_prof.reports.page.values import Text, Words
from nsight_prof.reports.studies.serving_load.points import RATE, LoadTest, Point

MS = 1e3
WIDE = 20.0
"""Ratio of the highest to the lowest latency from which on the axis is logarithmic."""
LINES = {"p50": "median", "p95": "P95", "p99": "P99"}


def charts(found: LoadTest) -> tuple[Chart | None, ...]:
    """Return the charts that the points allow: first that of rates, by which a server is sized."""
    return _open(found), _closed(found), _trade(found)


def _closed(found: LoadTest) -> LineFigure | None:
    """Return throughput and latencies over the number of clients."""
    sweep = found.closed
    if len(sweep) < 2:
        return None
    law = found.law
    output = Series("measured", tuple(p.load for p in sweep), tuple(p.value(RATE) for p in sweep))
    marks: tuple[tuple[float, Words], ...] = ()
    if law is not None and law.bend_measured:
        marks = ((law.bend, Text("bends at {n} clients", n=significant(law.bend, 2))),)
    return LineFigure(
        name="serving-clients",
        title="Latencies by number of clients",
        alt="Output tokens per second, TTFT and TPOT over the number of clients of closed loops",
        subtitle=_shape(sweep[0]),
        x_label="clients",
        x_log=True,
        marks=marks,
        panels=(Panel("output tokens/s", (output,), "Output"), *_latencies(found, sweep)),
    )


def _open(found: LoadTest) -> LineFigure | None:
    """Return what was answered, latencies and the share within the targets over the rate."""
    sweep = found.opened
    if len(sweep) < 2:
        return None
    at, rates = tuple(p.load for p in sweep), "rates"  # one colour, so percentiles keep theirs
    answered = Panel(
        "requests/s",
        (
            Series("answered", at, tuple(p.value("requests_per_s") for p in sweep), group=rates),
            Series("within targets", at, tuple(p.goodput for p in sweep), group=rates),
            Series("sent", at, at, group=rates),
        ),
        "Requests",
    )
    return LineFigure(
        name="serving-rates",
        title="Latencies by request rate",
        alt="Requests answered per second, those within the targets, time to first token and time "
        "per output token over the rate at which requests arrive",
        subtitle=Text(
            "{shape} Arrivals are Poisson. Rates of answers are over the time until the last one: "
            "below the sent rate where the load is short.",
            shape=_shape(sweep[0]),
        ),
        x_label="arriving requests/s",
        panels=(answered, *_latencies(found, sweep)),
    )


def _latencies(found: LoadTest, sweep: list[Point]) -> tuple[Panel, ...]:
    return (
        _latency(sweep, "ttft", "TTFT", found.slo.ttft_s),
        _latency(sweep, "tpot", "TPOT", found.slo.tpot_s),
    )


def _latency(sweep: list[Point], name: str, title: str, target_s: float) -> Panel:
    at = tuple(p.load for p in sweep)
    lines = [
        Series(words, at, tuple(MS * p.percentile(name, which) for p in sweep))
        for which, words in LINES.items()
    ]
    drawn = tuple(line for line in lines if not all(map(math.isnan, line.y)))
    values = [y for line in drawn for y in line.y if not math.isnan(y)]
    highest, lowest = max(values, default=0.0), min(values, default=0.0)
    # A target far above all that was measured would flatten the lines.
    near = MS * target_s <= 2 * highest
    target = Text("target {time}", time=quantity(target_s, "s", 3))
    levels = ((MS * target_s, target),) if near else ()
    return Panel("ms", drawn, title, levels=levels, y_log=highest > WIDE * lowest > 0)


def _trade(found: LoadTest) -> LineFigure | None:
    """Return the throughput of the server over that of each user."""
    overloaded = {p.load for p, state in found.judged if state.verdict == "no"}
    lines = []
    for kind, unit, sweep in (
        (Text("closed loops"), Text("clients"), found.closed),
        (Text("open loops"), Text("requests/s"), found.opened),
    ):
        known = [p for p in sweep if p.user_rate > 0 and (p.closed or p.load not in overloaded)]
        if known:
            lines.append(
                Series(
                    Text(
                        "{kind}, {low} to {high} {unit}",
                        kind=kind,
                        low=f"{known[0].load:g}",
                        high=f"{known[-1].load:g}",
                        unit=unit,
                    ),
                    tuple(p.user_rate for p in known),
                    tuple(p.value(RATE) for p in known),
                )
            )
    if not any(len(line.x) > 1 for line in lines):
        return None
    return LineFigure(
        name="serving-trade",
        title="Throughput of the server over that of one user",
        alt="Output tokens per second of the server over the tokens per second of one user",
        subtitle="Each point is a load that the server keeps up with; the lightest stand at the "
        "right. One user: tokens of an answer over the median latency of the whole request",
        x_label="tokens/s of one user",
        y_label="output tokens/s of the server",
        series=tuple(lines),
    )


def _shape(point: Point) -> Text:
    return Text(
        "{prompt} prompt and {output} output tokens per request.",
        prompt=point.prompt,
        output=point.output,
    )
