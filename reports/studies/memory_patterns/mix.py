"""Mixes of reads and writes: bandwidth by ratio and granularity, and what a turnaround costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from nsight_prof.parsers.cells import Row, known
from nsight_prof.reports.page import Column, Evidence, Finding, Json, Number, Table, Text
from nsight_prof.reports.page.charts import LineFigure, Panel, Series
from nsight_prof.reports.studies.memory_patterns.points import (
    Outcome,
    Point,
    extremes,
    held_back,
    mix_points,
    pure,
    ratios,
    slower_in_turn,
    unmixed,
)
from nsight_prof.reports.studies.memory_patterns.turnaround_fit import (
    Estimate,
    MixFit,
    by_name,
    fit_all,
)
from nsight_prof.reports.studies.memory_patterns.turnaround_solve import REFERENCE, Mixes

SAME = 2.0
"""Difference of AICc under which two models explain the data alike (Burnham and Anderson 2002)."""

LEAST_DELAY = 0.01
"""Least relative difference between a call after others and one alone that is evidence."""

GB = 1e9

NAMES = {
    "none": Text("no penalty"),
    "switches": Text("each switch costs"),
    "mix": Text("each byte of the rarer direction costs"),
    "batched": Text("switches cost, down to a batch"),
    "drain": Text("reads pay for the writes before them"),
}
SWITCH = Text("A switch is one that the program asks for; DRAM may turn more often or more rarely.")


def mix_finding(points: Sequence[Point]) -> Iterator[Finding]:
    """State how much of the bandwidth of reads a mix of as many writes keeps, at best and worst."""
    found, (read, _) = extremes(points, "1:1"), pure(points)
    if found is None or not math.isfinite(read):
        return
    slow, fast = found
    loss = Number(1 - slow.rate / read, "fraction")
    verdict = Text(
        "Reading and writing at the same time costs up to {loss} of the memory bandwidth: 1:1 "
        "mixes reach {slow} in runs of {short} and {fast} in runs of {long}, reads alone {read}.",
        loss=loss,
        slow=Number(slow.rate, "B/s"),
        short=Number(slow.run_bytes, "iB"),
        fast=Number(fast.rate, "B/s"),
        long=Number(fast.run_bytes, "iB"),
        read=Number(read, "B/s"),
    )
    yield Finding(
        "mixed_bandwidth",
        verdict,
        (Text("Bandwidths of the 1:1 mixes of all granularities, bytes read and written."),),
        disproof=Text(
            "Written values are made up, not copied: no store waits for a load, as it does in "
            "a copy. The loss that the recipe roofline states is that of a copy."
        ),
        lay_verdict=Text(
            "A program that reads and writes at the same time loses up to {loss} of the memory's "
            "speed: reading for long, then writing for long loses least.",
            loss=loss,
        ),
    )


def turnaround_findings(models: Sequence[MixFit], points: Sequence[Point]) -> Iterator[Finding]:
    """State what a turnaround costs, or that noise hides it, and what explains it better."""
    linear = by_name(models, "switches")
    if linear is None or linear.turnaround is None:
        return
    best = models[0]
    left_out = Number(best.left_out_error, "fraction")
    evidence: list[Evidence | Text] = [
        Evidence(Text("cases fitted"), len(best.predicted)),
        Evidence(Text("residual"), Number(best.error, "fraction")),
        Evidence(Text("mixes predicted from all others to"), left_out),
        Evidence(Text("models, of which it is the best by AICc"), len(models)),
        *_growth(best),
        *_counted(points),
    ]
    yield Finding(
        "turnaround",
        _cost(best),
        tuple(evidence),
        action=None if best.model == "none" else Text("Read for long, then write for long."),
        disproof=_limits(best),
        technical=True,
    )
    yield from _alternatives(best, linear, models)


def _limits(best: MixFit) -> Text:
    if best.model != "drain":
        return SWITCH
    return Text(
        "{switch} That reads pay for lines which L2 held back is an interpretation of the law, "
        "not measured by itself; its power is empirical.",
        switch=SWITCH,
    )


def _cost(best: MixFit) -> Text:
    """Return the verdict about the best model."""
    if best.model == "none":
        return Text("Mixing reads and writes has no penalty above noise.")
    if best.model == "mix" and best.mix_cost is not None:
        return Text(
            "Mix less, not more rarely: each GB of the rarer direction costs {cost} (95 % interval "
            "{interval}), however often the direction changes.",
            cost=_per_gb(best.mix_cost),
            interval=_per_gb(best.mix_cost).interval,
        )
    assert best.turnaround is not None
    turn = Number(best.turnaround.value, "s", low=best.turnaround.low, high=best.turnaround.high)
    if best.batch is None or best.mix_cost is None:
        return Text(
            "Alternate rarely: each turnaround from writing to reading costs {turn} (95 % interval "
            "{interval}).",
            turn=turn,
            interval=turn.interval,
        )
    batch, cost = Number(best.batch.value, "B"), _per_gb(best.mix_cost)
    if best.model == "drain":
        return Text(
            "Alternate rarely: a turnaround from writing to reading costs {turn} (95 % interval "
            "{interval}) when {reference} of reads follow. Runs of writes shorter than {batch} "
            "cost {cost} per GB, however often they alternate.",
            turn=turn,
            interval=turn.interval,
            reference=Number(REFERENCE, "iB"),
            batch=batch,
            cost=cost,
        )
    return Text(
        "Alternate rarely: each turnaround from writing to reading costs {turn} (95 % interval "
        "{interval}) in runs longer than {batch}. Shorter runs cost {cost} per GB of the rarer "
        "direction, because L2 and the memory controllers gather them.",
        turn=turn,
        interval=turn.interval,
        batch=batch,
        cost=cost,
    )


def _per_gb(cost: Estimate) -> Number:
    return Number(GB * cost.value, "s", low=GB * cost.low, high=GB * cost.high)


def _growth(best: MixFit) -> list[Text]:
    """Return how the cost of a turn grows in the model "drain"; nothing for another."""
    if best.model != "drain" or best.batch is None or best.exponent is None:
        return []
    batch, power = best.batch, best.exponent
    return [
        Text(
            "the cost grows with the bytes of the reads that follow to the power of {power} "
            "({power_low} to {power_high}), as if they paid for the last {held} ({held_low} to "
            "{held_high}) written before them",
            power=Number(power.value),
            power_low=Number(power.low),
            power_high=Number(power.high),
            held=Number(batch.value, "B"),
            held_low=Number(batch.low, "B"),
            held_high=Number(batch.high, "B"),
        )
    ]


def _counted(points: Sequence[Point]) -> Iterator[Evidence]:
    """Yield what counters show of the turns; nothing without counters."""
    unwritten, slower = held_back(points), slower_in_turn(points)
    if math.isfinite(unwritten):
        label = Text("counters: written but not yet in DRAM at the end of a call")
        yield Evidence(label, Number(unwritten, "B"))
    if slower > LEAST_DELAY:
        label = Text(
            "reading all, then writing all, takes longer call after call than alone under ncu, "
            "where L2 holds nothing written before, by up to"
        )
        yield Evidence(label, Number(slower, "fraction"))


def _alternatives(best: MixFit, linear: MixFit, models: Sequence[MixFit]) -> Iterator[Finding]:
    """Yield how the plain formula, one price per switch, does where it is not the best."""
    near = [NAMES[model.model] for model in models[1:] if model.aicc - best.aicc < SAME]
    same = Text("The same cases and weights in all models.")
    if best.model != "switches" and linear.turnaround is not None:
        turn = linear.turnaround
        price = Number(turn.value, "s", low=turn.low, high=turn.high)
        verdict = Text(
            "A fixed cost per switch between reads and writes does not explain the times: with the "
            "best one, {price} (95 % interval {interval}), the error is {error}; with the model "
            "above, {best}.",
            price=price,
            interval=price.interval,
            error=Number(linear.error, "fraction"),
            best=Number(best.error, "fraction"),
        )
        yield Finding("one_price", verdict, (same,), technical=True)
    if near:
        verdict = Text("As good by AICc: {models}.", models=near)
        yield Finding("models_alike", verdict, (same,), technical=True)


Z = 1.96
"""Half-width of a 95 % interval in standard errors."""

FORMULAS = {
    "none": "R/Br + W/Bw",
    "switches": "R/Br + W/Bw + N t",
    "mix": "R/Br + W/Bw + min(R, W) c",
    "batched": "R/Br + W/Bw + min(R, W) / max(run, D) t",
    "drain": "R/Br + W/Bw + N c r^p min(w, D)^(1-p)",
}


def mixes(rows: Sequence[Row]) -> Outcome | None:
    """Return what the mixes say; None without a measured one."""
    points = mix_points(rows)
    if not points:
        return None
    used, models = fitted(points)
    turn = turn_chart(used, models[0]) if models else None
    return Outcome(
        (*mix_finding(points), *turnaround_findings(models, points)),
        (bandwidth_table(points), model_table(models)),
        (bandwidth_chart(points), turn),
        numbers(points, models),
    )


def fitted(points: Sequence[Point]) -> tuple[list[Point], list[MixFit]]:
    """Return the points that a fit may use, and all models, the best first.

    Mixes in two launches are left out: they pay for a launch, too.
    """
    used = [point for point in points if point.way != "launches"]
    if not used:
        return [], []
    data = Mixes(
        reads=np.array([point.reads for point in used]),
        writes=np.array([point.writes for point in used]),
        switches=np.array([point.switches for point in used]),
        seconds=np.array([point.seconds for point in used]),
        sigma=np.array([_sigma(point) for point in used]),
    )
    return used, fit_all(data)


def _sigma(point: Point) -> float:
    half = (point.high - point.low) / 2
    return half / Z if math.isfinite(half) else 0.0


def bandwidth_table(points: Sequence[Point]) -> Table[str]:
    """Return bandwidth by ratio and granularity, one row per ratio."""
    rates = {(point.ratio, point.column): point.rate for point in points}
    alone = {point.ratio: point.rate for point in points if point.way == "alone"}
    headings = dict.fromkeys(point.column for point in points if point.way != "alone")

    def no_mixing(ratio: str) -> Number:
        return Number(alone.get(ratio, unmixed(points, ratio)), "B/s")

    def mixed(heading: str) -> Column[str]:
        def cell(ratio: str) -> Number | None:
            if ratio in alone:
                return None
            rate = rates.get((ratio, heading))
            return Number(rate, "B/s")

        return Column(Text("{granularity}", granularity=heading), cell, "TB/s")

    return Table(
        "memory-patterns-mix",
        Text("Bandwidth of mixes by the length of a run, bytes read and written"),
        [
            Column(Text("read:write"), str),
            Column(Text("no mixing"), no_mixing, "TB/s"),
            *map(mixed, headings),
        ],
        ratios(points),
        note=Text(
            "No mixing: one direction alone, or the same bytes at the two pure bandwidths. A run "
            "is what is read or written before the direction changes, of the rarer direction; of "
            "the other it is as many times more as the ratio says."
        ),
    )


def model_table(models: Sequence[MixFit]) -> Table[MixFit]:
    """Return the models side by side, the best first."""
    return Table(
        "memory-patterns-models",
        Text("Models of the time of a mix"),
        [
            Column(Text("penalty"), lambda mix_fit: NAMES[mix_fit.model]),
            Column(Text("time of a call"), lambda mix_fit: FORMULAS[mix_fit.model]),
            Column(Text("t, per switch"), lambda mix_fit: _scaled(mix_fit.turnaround, "s"), "us"),
            Column(Text("c, per GB"), lambda mix_fit: _scaled(mix_fit.mix_cost, "s", 1e9), "us"),
            Column(Text("D"), lambda mix_fit: _scaled(mix_fit.batch, "iB"), "MiB"),
            Column(Text("p"), lambda mix_fit: _scaled(mix_fit.exponent, "")),
            Column(Text("Br"), lambda mix_fit: Number(mix_fit.read_rate.value, "B/s"), "TB/s"),
            Column(Text("Bw"), lambda mix_fit: Number(mix_fit.write_rate.value, "B/s"), "TB/s"),
            Column(Text("residual"), lambda mix_fit: Number(mix_fit.error, "fraction"), digits=2),
            Column(
                Text("left-out error"),
                lambda mix_fit: Number(mix_fit.left_out_error, "fraction"),
                digits=2,
            ),
            Column(Text("AICc above best"), lambda mix_fit: Number(mix_fit.aicc - models[0].aicc)),
        ],
        models,
        note=Text(
            "R, W: bytes read and written; Br, Bw: bandwidths of one direction; N: switches from "
            "writing to reading; r, w, run: bytes read, written, and of the rarer direction "
            "between two switches; t of the model with r: before 64 MiB of reads. In brackets "
            "95 % confidence intervals. Residual: root mean square of measured against fitted "
            "times; left-out error: the same for each mix predicted from all other cases."
        ),
    )


def _scaled(estimate: Estimate | None, unit: str, factor: float = 1.0) -> Number | None:
    """Return an estimate, times `factor`, with its interval; None where the model has none."""
    if estimate is None:
        return None
    value, low, high = (factor * end for end in (estimate.value, estimate.low, estimate.high))
    return Number(value, unit, low=low, high=high)


def numbers(points: Sequence[Point], models: Sequence[MixFit]) -> dict[str, Json]:
    """Return what metrics.json has of the mixes, in base units."""
    read, write = pure(points)
    return {
        "read_bytes_per_s": known(read),
        "write_bytes_per_s": known(write),
        "mixes": [
            {
                "ratio": p.ratio,
                "way": p.way,
                "run_bytes": p.run_bytes,
                "switches": p.switches,
                "bytes_per_s": known(p.rate),
            }
            for p in points
        ],
        "models": [_model_numbers(mix_fit) for mix_fit in models],
    }


def _model_numbers(mix_fit: MixFit) -> dict[str, Json]:
    estimates = {
        "turnaround_s": mix_fit.turnaround,
        "mix_cost_s_per_byte": mix_fit.mix_cost,
        "batch_bytes": mix_fit.batch,
        "exponent": mix_fit.exponent,
        "read_bytes_per_s": mix_fit.read_rate,
        "write_bytes_per_s": mix_fit.write_rate,
    }
    return {
        "model": mix_fit.model,
        "aicc": known(mix_fit.aicc),
        "relative_residual": known(mix_fit.error),
        "relative_left_out_error": known(mix_fit.left_out_error),
        **{
            name: {"value": known(e.value), "low": known(e.low), "high": known(e.high)}
            for name, e in estimates.items()
            if e is not None
        },
    }


SHORTEST = float(1 << 20)
"""Bytes of a run; what shorter ones cost each is below a microsecond and the same by the byte."""


def bandwidth_chart(points: Sequence[Point]) -> LineFigure:
    """Return measured bandwidth over the length of a run, one line per ratio."""
    series = []
    for ratio in ratios(points):
        switching = _switching(points, ratio)
        if not switching:
            continue
        total = switching[0].reads + switching[0].writes
        series.append(
            Series(
                ratio,
                tuple(p.run_bytes for p in switching),
                tuple(p.rate / 1e12 for p in switching),
                tuple(total / p.high / 1e12 for p in switching),
                tuple(total / p.low / 1e12 for p in switching),
            )
        )
    read, write = pure(points)
    alone = ((read, "reads alone"), (write, "writes alone"))
    return LineFigure(
        name="memory_patterns_mix",
        title="Bandwidth of mixed reads and writes",
        subtitle="One line per ratio of reads to writes, with its 95 % interval.",
        alt="Bandwidth of five ratios of reads to writes over the bytes moved before the direction "
        "changes, and of either direction alone.",
        x_label="run: bytes of the rarer direction before the direction changes",
        y_label="bandwidth, TB/s",
        series=tuple(series),
        x_log=True,
        x_bytes=True,
        y_zero=False,
        levels=tuple((rate / 1e12, words) for rate, words in alone if math.isfinite(rate)),
    )


def turn_chart(points: Sequence[Point], best: MixFit) -> LineFigure | None:
    """Return what each turn costs over the reads that follow it, by measurement and by a model.

    The cost is the time above R / B_read + W / B_write of the model, over the switches.

    Args:
        points: the cases of the fit, in its order.
        best: the model.

    Returns:
        None where all runs are short.
    """
    predicted = dict(zip(points, best.predicted, strict=True))
    costs, residuals = [], []
    for ratio in ratios(points):
        switching = [p for p in _switching(points, ratio) if p.run_bytes >= SHORTEST]
        if not switching:
            continue
        x = tuple(p.reads / p.switches for p in switching)
        modelled = tuple(1e6 * _seconds_per_switch(p, predicted[p], best) for p in switching)
        measured = tuple(1e6 * _seconds_per_switch(p, p.seconds, best) for p in switching)
        costs.append(Series(ratio, x, measured, style="points", group=ratio))
        costs.append(Series(f"{ratio}, model", x, modelled, group=ratio))
        off = tuple(100 * (p.seconds / predicted[p] - 1) for p in switching)
        residuals.append(Series(ratio, x, off, group=ratio))
    if not costs:
        return None
    return LineFigure(
        name="memory_patterns_turn",
        title="Cost of a turnaround from writing to reading",
        subtitle="Points: measured. Dashed: the best model. A constant price would be level. "
        "Runs from 1 MiB on.",
        alt="Time of a switch from writing to reading over the bytes read after it, measured and "
        "modelled, for five ratios; below, measured above modelled times of a call in per cent.",
        x_label="bytes read after a turnaround, before the next",
        x_log=True,
        x_bytes=True,
        panels=(
            Panel("us per turnaround", tuple(costs), y_log=True),
            Panel("call above model, %", tuple(residuals)),
        ),
    )


def _switching(points: Sequence[Point], ratio: str) -> list[Point]:
    switching = [p for p in points if p.ratio == ratio and p.switches and p.way != "launches"]
    return sorted(switching, key=lambda p: p.run_bytes)


def _seconds_per_switch(point: Point, seconds: float, model: MixFit) -> float:
    """Return the seconds a switch that `seconds` are above both directions alone."""
    alone = point.reads / model.read_rate.value + point.writes / model.write_rate.value
    return (seconds - alone) / point.switches
