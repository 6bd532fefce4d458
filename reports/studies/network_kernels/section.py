"""The section of the target network_kernels, and what its sweeps say."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nsight_prof.parsers.cells import Key, grouped, number
from nsight_prof.parsers.operations.models import KernelModel
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases import oscillation
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import (
    Column,
    Evidence,
    Finding,
    Json,
    Number,
    Section,
    Table,
    Text,
    arranged,
)
from nsight_prof.reports.page.charts import LineFigure, Panel, Series, spaced
from nsight_prof.reports.studies.network_kernels import side_by_side, whole
from nsight_prof.reports.studies.network_kernels.points import (
    FAMILIES,
    FINE,
    GRAPH,
    TARGET,
    Curve,
    Point,
    curves,
    pairs,
    points,
)

SENTENCES = Sentences("network_kernels")

MOST_LINES = 6
"""Curves of a figure: the quickest, the slowest, and evenly spaced ones between."""
DETAILS = 8
"""Rows of a table of details that a page shows."""
INTRO = SENTENCES.text("intro")
METHOD = SENTENCES.texts("method")


def section(run: Run) -> Section | None:
    """Return the section, or None where the run has no measured case of this target."""
    found = points(run)
    if not found:
        return None
    kernels = whole.kernels(run)
    by_key = sorted(kernels.models.items()) if kernels else ()
    models = [(f"{key}, {mode}", model) for (key, mode), model in by_key]
    wholes = whole.wholes(run, found, kernels)
    pairs, cold = side_by_side.pairs_of(run, found), curves(found)
    delays = [fitted for line in cold if (fitted := _delay(line)) is not None]
    conclusions = (
        whole.host_bound(wholes),
        saturation(found),
        layout(found),
        precision(found),
        recurrence(found),
        whole.additivity(wholes),
        cache(found),
        distance(found),
        between_sizes(models),
        side_by_side.finding(pairs),
        oscillation.finding(delays),
    )
    charts = (whole.chart(wholes), *(_chart(cold, family) for family in FAMILIES))
    tables: tuple[Table[Any], ...] = (
        whole.table(wholes),
        *(_table(cold, curves(found, hot=True), family) for family in FAMILIES),
        side_by_side.table(pairs),
        _models(models),
        oscillation.table(delays),
    )
    return Section(
        TARGET,
        Text("The operations of networks over their sizes"),
        arranged([INTRO], conclusions, charts, tables, METHOD),
        numbers=_numbers(found, wholes, models)
        | {
            "side_by_side": {pair.name: side_by_side.numbers(pair) for pair in pairs},
            "delay_factors": oscillation.numbers(delays),
        },
    )


def _delay(line: Curve) -> oscillation.Sweep | None:
    """Return the oscillation over evenly spaced sizes; None for other curves."""
    if line.last.family != FINE:
        return None
    sizes = [float(point.batch) for point in line.points]
    times = [(point.seconds, *point.interval) for point in line.points]
    return oscillation.sweep(line.name, sizes, times)


def _chart(lines: Sequence[Curve], family: str) -> LineFigure | None:
    """Return time and share of the roof of a family over the batch, a line an operation."""
    chosen = [line for line in lines if line.last.family == family and len(line.points) > 1]
    if not chosen:
        return None
    drawn = spaced(sorted(chosen, key=lambda line: line.last.seconds), MOST_LINES)
    axis = {"linear": "Tokens", "elementwise": "Elements", "norm": "Images or rows"}
    times = tuple(_series(line, 1e6, lambda point: point.time) for line in drawn)
    panels = [Panel("time (us)", times, y_log=True)]
    if any(line.last.fraction.value is not None for line in drawn):
        shares = tuple(_series(line, 100.0, lambda point: point.fraction) for line in drawn)
        panels.append(Panel("share of the roof (%)", shares))
    return LineFigure(
        f"network-{family}",
        f"{str(FAMILIES[family].message).capitalize()}: time and share of the roof over the batch",
        "Lines: time, and share of what the measured roofs allow, over the batch",
        axis.get(family, "Batch"),
        panels=tuple(panels),
        x_log=True,
        subtitle=f"On buffers that the cache has not seen. {len(drawn)} of {len(chosen)} sizes.",
    )


def _series(line: Curve, factor: float, quantity: Callable[[Point], Number]) -> Series:
    y = tuple(factor * number(quantity(point).value) for point in line.points)
    return Series(line.name, tuple(float(p.batch) for p in line.points), y)


def _table(cold: Sequence[Curve], hot: Sequence[Curve], family: str) -> Table[Point]:
    """Return the operations of a family at each batch: unused and used buffers, roof, memory."""
    lines = [line for line in cold if line.last.family == family]
    names = {point.ref: line.name for line in lines for point in line.points}
    used = {(line.name, point.batch, point.variant): point for line in hot for point in line.points}
    pairs = {
        p.ref: used.get((names[p.ref], p.batch, p.variant)) for line in lines for p in line.points
    }

    def of_hot(cell: Callable[[Point], Number]) -> Callable[[Point], Number | None]:
        return lambda point: None if (same := pairs[point.ref]) is None else cell(same)

    return Table(
        f"network-{family}",
        Text("Measured: {family}", family=FAMILIES[family]),
        [
            Column(Text("operation"), lambda point: names[point.ref]),
            Column(Text("batch"), lambda point: point.batch),
            Column(Text("cold"), lambda point: point.time),
            Column(Text("hot"), of_hot(lambda point: point.time)),
            Column(Text("of its roof"), lambda point: point.fraction),
            Column(Text("roof"), lambda point: point.roof or None),
            Column(Text("peak memory"), of_hot(lambda point: point.peak_memory)),
            Column(Text("counted FLOPs"), lambda point: point.flops_ratio),
            Column(Text("DRAM bytes"), lambda point: point.bytes_ratio),
        ],
        [point for line in lines for point in line.points],
        refs=lambda point: [point.ref, *([same.ref] if (same := pairs[point.ref]) else [])],
        preview=DETAILS,
    )


def _models(models: Sequence[tuple[str, KernelModel]]) -> Table[tuple[str, KernelModel]]:
    """Return how far each model lies from what was left out of it."""

    def error(model: KernelModel, known_shape: bool) -> Number:
        found = [abs(c.error) for c in model.held_out if c.known_shape is known_shape]
        return Number(statistics.fmean(found) if found else None, "fraction")

    return Table(
        "network-models",
        Text("Models between the sizes, and their held-out errors"),
        [
            Column(Text("operation"), lambda row: row[0]),
            Column(Text("cases"), lambda row: len(row[1].operations)),
            Column(Text("fixed time"), lambda row: Number(float(row[1].parameters[0]), "s")),
            Column(Text("other batches: MAPE"), lambda row: error(row[1], True)),
            Column(Text("other shapes: MAPE"), lambda row: error(row[1], False)),
        ],
        models,
        note=Text("Each shape was left out in turn, and each batch between two others of a shape."),
        preview=DETAILS,
    )


def _numbers(
    found: Sequence[Point], wholes: Sequence[whole.Whole], models: Sequence[tuple[str, KernelModel]]
) -> dict[str, Json]:
    return {
        "cases": {
            str(point.row["case_id"]): {
                "seconds": point.seconds,
                "roof_fraction": point.fraction.value,
                "peak_memory_bytes": point.peak_memory.value,
            }
            for point in found
        },
        "networks": {
            str(row.point.row["case_id"]): {
                "seconds": row.point.seconds,
                "sum_of_operations": row.predicted,
            }
            for row in wholes
        },
        "models": {
            name: {
                "cases": len(model.operations),
                "held_out": [
                    {"error": case.error, "known_shape": case.known_shape}
                    for case in model.held_out
                ],
            }
            for name, model in models
        },
    }


CLEAR = 1.1
"""Times of two cases that differ by less are alike."""
HALF = 0.5
USUAL = "channels-last"


def _medians(groups: Mapping[Key, Sequence[Point]]) -> dict[Key, Number]:
    """Return the lower median of the shares of each group, with the case that has it."""
    found = {}
    for key, same in groups.items():
        shares = [point.fraction for point in same if point.fraction.value is not None]
        shares.sort(key=lambda share: share.value or 0.0)
        unknown = Number(None, "fraction", missing="no measured roof")
        found[key] = shares[(len(shares) - 1) // 2] if shares else unknown
    return found


def saturation(found: Sequence[Point]) -> Finding | None:
    """State which share of their roof convolutions reach at each batch, and from where on half."""
    points = [p for curve in curves(found) if curve.last.family == "conv" for p in curve.points]
    usual = (p for p in points if p.layout == USUAL and p.dtype == "bf16")
    by_batch = sorted(grouped(usual, lambda point: point.batch).items())
    medians = _medians(dict(by_batch))
    if len(medians) < 2 or any(share.value is None for share in medians.values()):
        return None
    first, last = min(medians), max(medians)
    enough = [batch for batch, share in medians.items() if (share.value or 0.0) >= HALF]
    return replace(
        SENTENCES.finding(
            "conv_saturation",
            tuple(
                Evidence(Text("median share at a batch of {batch}", batch=batch), share)
                for batch, share in medians.items()
            ),
            low=medians[first],
            first=first,
            high=medians[last],
            last=last,
        ),
        action=Text("Collect inputs to a batch of {batch} or more.", batch=min(enough))
        if enough
        else Text("Raise the batch as far as latency allows."),
    )


def _mean(both: Sequence[tuple[Point, Point]], mean: float) -> Number:
    """Return the geometric mean of the ratios of pairs of cases."""
    refs = tuple(point.ref for pair in both for point in pair)
    return Number(mean, "x", refs).by(Text("geometric mean of {n} ratios", n=len(both)))


def layout(found: Sequence[Point]) -> Finding | None:
    """State what the order of torch's own costs convolutions beside channels-last."""
    both = [pair for pair in pairs(found, "layout", "channels-first", USUAL)
            if pair[0].family == "conv"]  # fmt: skip
    if not both:
        return None
    factors = [slow.seconds / fast.seconds for slow, fast in both]
    slow, fast = max(both, key=lambda pair: pair[0].seconds / pair[1].seconds)
    mean = statistics.geometric_mean(factors)
    if mean < CLEAR:
        return None
    return replace(
        SENTENCES.finding(
            "conv_layout",
            (Evidence(Text("pairs of cases"), len(both)),),
            dtype=slow.dtype,
            mean=_mean(both, mean),
            most=slow.time.times(fast.time),
            n=sum(f > CLEAR for f in factors),
        ),
        gain=slow.time - fast.time,
    )


def precision(found: Sequence[Point]) -> Finding | None:
    """State what bf16 gains over FP32 whose products are in TF32."""
    both = [pair for pair in pairs(found, "dtype", "tf32", "bf16") if pair[0].family == "conv"]
    if not both:
        return None
    factors = [slow.seconds / fast.seconds for slow, fast in both]
    slow, fast = max(both, key=lambda pair: pair[0].seconds - pair[1].seconds)
    return replace(
        SENTENCES.finding(
            "conv_precision",
            (Evidence(Text("pairs of cases"), len(both)),),
            mean=_mean(both, statistics.geometric_mean(factors)),
            low=Number(min(factors), "x"),
            high=Number(max(factors), "x"),
        ),
        gain=slow.time - fast.time,
    )


def cache(found: Sequence[Point]) -> Finding | None:
    """State what operations between products gain where their data are still in the L2 cache."""
    both = [
        pair for pair in pairs(found, "mode", "cold", "hot")
        if pair[0].family in ("norm", "elementwise")
    ]  # fmt: skip
    quicker = [pair for pair in both if pair[0].seconds > CLEAR * pair[1].seconds]
    if not quicker:
        return None
    cold, hot = max(quicker, key=lambda pair: pair[0].seconds / pair[1].seconds)
    largest = max(quicker, key=lambda pair: pair[0].bytes)[0]
    return SENTENCES.finding(
        "cache_gain",
        (Evidence(Text("pairs of cases"), len(both)),),
        factor=cold.time.times(hot.time),
        size=Number(largest.bytes, "B", (largest.ref,)).by(Text("each operand once")),
        n=len(quicker),
    )


def recurrence(found: Sequence[Point]) -> Finding | None:
    """State what a step of an LSTM takes at least, and how little more a larger batch takes."""
    lines = [c for c in curves(found, hot=True) if c.last.op == "lstm" and len(c.points) > 1]
    if not lines:
        return None
    line = max(lines, key=lambda c: c.last.batch / c.points[0].batch * c.points[0].seconds
               / c.last.seconds)  # fmt: skip
    single, many = line.points[0], line.last
    steps = int(single.param("steps")) * int(single.param("layers"))
    return SENTENCES.finding(
        "lstm_steps",
        (Evidence(Text("share of the roof with the largest batch"), many.fraction),),
        shape=line.shape,
        small=single.time,
        one=single.batch,
        large=many.time,
        many=many.batch,
        step=single.time.per(Number(steps, digits=len(str(steps))), "s"),
    )


def distance(found: Sequence[Point]) -> Finding | None:
    """State which family is farthest from its roof at its largest sizes."""
    last = (curve.last for curve in curves(found) if len(curve.points) > 1)
    of_family = (p for p in last if p.family in FAMILIES and p.variant == GRAPH)
    medians = _medians(grouped(of_family, lambda point: point.family))
    known = {family: share for family, share in medians.items() if share.value is not None}
    if len(known) < 2:
        return None
    worst, best = (pick(known, key=lambda f: known[f].value or 0.0) for pick in (min, max))
    return SENTENCES.finding(
        "family_roof",
        tuple(
            Evidence(Text("median share of {family}", family=FAMILIES[family]), share)
            for family, share in sorted(known.items(), key=lambda item: -(item[1].value or 0.0))
        ),
        worst=FAMILIES[worst],
        low=known[worst],
        best=FAMILIES[best],
        high=known[best],
        family=FAMILIES[worst],
    )


def between_sizes(models: Sequence[tuple[str, KernelModel]]) -> Finding | None:
    """State how far models lie from sizes that were left out of them."""
    held_out = [case for _, model in models for case in model.held_out]
    groups = [[abs(c.error) for c in held_out if c.known_shape is known] for known in (True, False)]
    if not all(groups):
        return None
    known, unknown = (Number(statistics.fmean(group), "fraction") for group in groups)
    return SENTENCES.finding(
        "between_sizes",
        tuple(
            Text(
                "{what}: {n} cases, 90th percentile {p90}",
                what=words,
                n=len(group),
                p90=Number(statistics.quantiles(group, n=10)[-1], "fraction"),
            )
            for words, group in zip(
                (Text("batches left out"), Text("shapes left out")), groups, strict=True
            )
        ),
        known=known,
        other=unknown,
    )
