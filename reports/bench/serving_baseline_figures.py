"""Figures of the offline baseline: throughput over batch, steps, lengths, eager against graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nsight_prof.reports.bench.scaling_fit import Scaling, fit_scaling
from nsight_prof.reports.bench.serving_baseline_findings import batch_law, first_tokens
from nsight_prof.reports.bench.serving_baseline_points import MODES, Baseline, Point, pairs
from nsight_prof.reports.formats import count, seconds
from nsight_prof.reports.formats import significant as digits
from nsight_prof.reports.page.charts import Bar, BarFigure, Chart, LineFigure, Panel, Series

MS = 1e3
CURVE = 80
"""Points of a fitted curve."""
FLOOR = "what the roofs allow"


def figures(found: Baseline) -> tuple[Chart, ...]:
    """Return the figures that the points allow."""
    made = (
        throughput_figure(found),
        stages_figure(found),
        first_token_figure(found),
        lengths_figure(found),
        graphs_figure(found),
    )
    return tuple(figure for figure in made if figure is not None)


def _curve(law: Scaling) -> list[float]:
    step = (law.last / law.first) ** (1 / (CURVE - 1))
    return [law.first * step**n for n in range(CURVE)]


def _measured(at: tuple[float, ...], values: list[float], law: Scaling | None) -> Series:
    """Return the measured values: points where a law is drawn through them, else a line."""
    return Series("measured", at, tuple(values), style="line" if law is None else "points")


def throughput_figure(found: Baseline) -> LineFigure | None:
    """Return tokens a second over the batch, with the law and what proportional growth would be."""
    sweep = [p for p in found.batches if not math.isnan(p.value("output_tokens_per_s"))]
    if len(sweep) < 2:
        return None
    first = sweep[0]
    at = tuple(float(p.batch) for p in sweep)
    one = first.value("output_tokens_per_s") / first.batch
    law = batch_law(found)
    lines = [
        _measured(at, [p.value("output_tokens_per_s") for p in sweep], law),
        Series("while decoding", at, tuple(p.batch / p.step_s for p in sweep)),
        Series("proportional", at, tuple(one * b for b in at)),
    ]
    marks: tuple[tuple[float, str], ...] = ()
    if law is not None:
        xs = _curve(law)
        lines.insert(0, Series("fit", tuple(xs), tuple(first.output * x / law.at(x) for x in xs)))
        if law.seen:
            marks = ((law.bend, f"bends at batch {digits(law.bend, 2)}"),)
    return LineFigure(
        name="serving-throughput",
        title="Throughput over the batch size",
        alt="Output tokens a second over the batch, measured, fitted and proportional to batch 1",
        subtitle=f"{count(first.prompt)} prompt and {count(first.output)} output tokens a request. "
        "measured: end to end; while decoding: batch over the time of a decode step",
        x_label="requests in a batch",
        y_label="output tokens/s",
        series=tuple(lines),
        x_log=True,
        y_log=True,
        marks=marks,
    )


def stages_figure(found: Baseline) -> LineFigure | None:
    """Return prefill and decode step over the batch, beside what the roofs allow."""
    sweep = [p for p in found.batches if not math.isnan(p.step_s)]
    if len(sweep) < 2:
        return None
    at = tuple(float(p.batch) for p in sweep)
    known = not math.isnan(sweep[0].decode.floor_s)

    def lines(seconds: Iterable[float], floors: Iterable[float]) -> tuple[Series, ...]:
        measured = Series("measured", at, _ms(seconds))
        return (measured, Series(FLOOR, at, _ms(floors))) if known else (measured,)

    decode = lines((p.step_s for p in sweep), (p.decode.floor_s for p in sweep))
    prefill = lines((p.value("prefill_s") for p in sweep), (p.prefill.floor_s for p in sweep))
    return LineFigure(
        name="serving-stages",
        title="Decode step and prefill over the batch size",
        alt="Milliseconds of a decode step and of the prefill over the batch, and the least times",
        subtitle=_least_time(found),
        x_label="requests in a batch",
        x_log=True,
        panels=(
            Panel("ms", decode, "A decode step"),
            Panel("ms", prefill, "Prefill of the whole batch", y_log=True),
        ),
    )


def _least_time(found: Baseline) -> str:
    memory, compute = found.roofs.memory, found.roofs.compute
    if memory is None or compute is None:
        return ""
    return f"The roofs allow: bytes at the {memory.name} or FLOPs at the {compute.name}, if longer"


def _ms(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(MS * value for value in values)


def first_token_figure(found: Baseline) -> LineFigure | None:
    """Return the time to first token over the prompt length, with its law."""
    first = first_tokens(found)
    if len(first) < 2:
        return None
    at, times = tuple(float(n) for n in first), list(first.values())
    law = fit_scaling(at, times)
    lines = [_measured(at, [MS * t for t in times], law)]
    if law is not None:
        xs = _curve(law)
        lines.insert(0, Series("fit", tuple(xs), tuple(MS * law.at(x) for x in xs)))
    floors = {p.prompt: p.prefill.floor_s for p in found.of("lengths", found.mode)}
    least = _ms(floors.get(n, math.nan) for n in first)
    if not all(map(math.isnan, least)):
        lines.append(Series(FLOOR, at, least))
    return LineFigure(
        name="serving-first-token",
        title="Time to first token over the prompt length",
        alt="Milliseconds until the first token over prompt tokens, measured and fitted",
        subtitle=f"One request at a time; {seconds(times[0])} at {count(at[0])} tokens is the "
        "part that a short prompt pays anyway",
        x_label="prompt tokens",
        y_label="ms",
        series=tuple(lines),
        x_log=True,
        y_log=True,
    )


def lengths_figure(found: Baseline) -> LineFigure | None:
    """Return the latency of a whole request over the prompt length, a line an output length."""
    points = found.of("lengths", found.mode)
    outputs = sorted({p.output for p in points})
    lines = []
    for output in outputs:
        mine = sorted((p for p in points if p.output == output), key=lambda p: p.prompt)
        at = tuple(float(p.prompt) for p in mine)
        times = tuple(MS * p.value("e2e_p50_s") for p in mine)
        lines.append(Series(f"{count(output)} output tokens", at, times))
    if not any(len(line.x) > 1 for line in lines):
        return None
    return LineFigure(
        name="serving-lengths",
        title="A whole request over its prompt length",
        alt="Milliseconds of a whole request over prompt tokens, a line an output length",
        subtitle="One request at a time, medians of the repeats",
        x_label="prompt tokens",
        y_label="ms",
        series=tuple(lines),
        x_log=True,
    )


def graphs_figure(found: Baseline) -> BarFigure | None:
    """Return the decode step with and without CUDA graphs, by batch."""
    both = [(e, g) for e, g in pairs(found) if not math.isnan(e.step_s + g.step_s)]
    if not both:
        return None
    bars = [bar for pair in both for bar in map(_step_bar, pair)]
    return BarFigure(
        name="serving-graphs",
        title="A decode step, eager and with CUDA graphs",
        alt="Milliseconds of a decode step by batch, eager and with CUDA graphs",
        value_label="ms",
        bars=tuple(bars),
    )


def _step_bar(point: Point) -> Bar:
    return Bar(
        f"batch {point.batch}",
        MS * point.step_s,
        group=MODES.get(point.mode, point.mode),
        text=seconds(point.step_s),
    )
