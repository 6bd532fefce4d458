"""The section of the target memory_patterns: mixes of reads and writes, strides and gathers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from nsight_prof.parsers.cells import Row, from_row, known
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.rows import cases, measured, ratio
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
from nsight_prof.reports.page.charts import LineFigure, Panel, line
from nsight_prof.reports.page.units import quantity
from nsight_prof.reports.studies.memory_patterns.access import Outcome, gathers, strides
from nsight_prof.reports.studies.memory_patterns.turnaround import (
    REFERENCE,
    Mixes,
    MixFit,
    fit_all,
)

SENTENCES = Sentences("memory_patterns")

KEY = "memory_patterns"

INTRO = SENTENCES.text("intro")
OF_MIXES = SENTENCES.texts("of_mixes")
OF_ACCESSES = SENTENCES.texts("of_accesses")


def section(run: Run) -> Section | None:
    """Return the section; None where no case of the target has a time."""
    rows = [row for row in measured(cases(run, KEY)) if row["params"].get("pattern")]
    kinds = {"mix": mixes(rows), "strides": strides(rows), "gathers": gathers(rows)}
    outcomes = {key: outcome for key, outcome in kinds.items() if outcome is not None}
    if not outcomes:
        return None
    found = outcomes.values()
    method = OF_MIXES if "mix" in outcomes else ()
    if outcomes.keys() & {"strides", "gathers"}:
        method = (*method, *OF_ACCESSES)
    return Section(
        KEY,
        Text("Memory as programs see it"),
        arranged(
            [INTRO],
            (finding for outcome in found for finding in outcome.findings),
            (chart for outcome in found for chart in outcome.charts),
            (table for outcome in found for table in outcome.tables),
            method,
        ),
        numbers={key: outcome.numbers for key, outcome in outcomes.items()},
    )


SAME = 2.0
"""Difference of AICc under which two models explain the data alike (Burnham and Anderson 2002)."""

LEAST_DELAY = 0.01
"""Least relative difference between a call after others and one alone that is evidence."""

NAMES = {
    "none": Text("no penalty"),
    "switches": Text("each switch costs"),
    "mix": Text("each byte of the rarer direction costs"),
    "batched": Text("switches cost, down to a batch"),
    "drain": Text("reads pay for the writes before them"),
}
FORMULAS = {
    "none": "R/Br + W/Bw",
    "switches": "R/Br + W/Bw + N t",
    "mix": "R/Br + W/Bw + min(R, W) c",
    "batched": "R/Br + W/Bw + min(R, W) / max(run, D) t",
    "drain": "R/Br + W/Bw + N c r^p min(w, D)^(1-p)",
}
NUMBERS = {
    "turnaround": "turnaround_s",
    "mix_cost": "mix_cost_s_per_byte",
    "batch": "batch_bytes",
    "exponent": "exponent",
    "read_rate": "read_bytes_per_s",
    "write_rate": "write_bytes_per_s",
}
"""Names of estimates in metrics.json."""
Z = 1.96
"""Half-width of a 95 % interval in standard errors."""
SHORTEST = float(1 << 20)
"""Bytes of a run; what shorter ones cost each is below a microsecond and the same by the byte."""

GB, TERA = 1e9, 1e12
WAYS = ("alone", "warp", "runs", "whole", "launches")
"""Granularities of mixes, the finest first behind each direction alone."""


@dataclass(frozen=True)
class Point:
    """One measured mix: bytes of one call, switches, seconds with their 95 % interval.

    `alone` are the seconds of one call under ncu, which leaves nothing written in L2 before it;
    `written` are the bytes that DRAM had written by its end. Both are NaN without counters.
    """

    ratio: str
    way: str
    run_bytes: float
    switches: float
    read_bytes: float
    write_bytes: float
    median_s: float
    ci_low_s: float
    ci_high_s: float
    alone: float = math.nan
    written: float = math.nan

    @property
    def total(self) -> float:
        """Bytes read and written."""
        return self.read_bytes + self.write_bytes

    @property
    def rate(self) -> float:
        """Bytes read and written a second."""
        return self.total / self.median_s

    @property
    def column(self) -> str:
        """Granularity as a table has it."""
        if self.way in ("runs", "warp"):
            words = quantity(self.run_bytes, "iB", 3)
            return f"{words} (warp)" if self.way == "warp" else words
        return {"whole": "all at once", "launches": "two launches"}.get(self.way, self.way)


def mix_points(rows: Sequence[Row]) -> list[Point]:
    """Return the measured mixes of the section's rows, finest granularity first."""
    points = [
        from_row(
            Point,
            row | row["params"],
            alone=ratio(row["counted_s"], row["counted_calls"]),
            written=ratio(row["dram_write_bytes"], row["counted_calls"]),
        )
        for row in rows
        if row["params"]["pattern"] == "mix"
    ]
    return sorted(points, key=lambda p: (WAYS.index(p.way), p.run_bytes))


def ratios(points: Sequence[Point]) -> list[str]:
    """Return the ratios from most reads to most writes."""
    read_shares = {p.ratio: p.read_bytes / p.total for p in points}
    return sorted(read_shares, key=lambda ratio: -read_shares[ratio])


def pure(points: Sequence[Point]) -> tuple[float, float]:
    """Return the bandwidths of reads alone and writes alone; NaN where not measured."""
    alone = [point for point in points if point.way == "alone"]
    read = next((p.rate for p in alone if p.write_bytes == 0), math.nan)
    write = next((p.rate for p in alone if p.read_bytes == 0), math.nan)
    return read, write


def mixes(rows: Sequence[Row]) -> Outcome | None:
    """Return what the mixes say; None without a measured one.

    Mixes in two launches are not in the fit: they pay for a launch, too.
    """
    points = mix_points(rows)
    if not points:
        return None
    used = [point for point in points if point.way != "launches"]
    models = fit_all(_cases(used)) if used else []
    return Outcome(
        (*mix_finding(points), *turnaround_findings(models, points)),
        (bandwidth_table(points), model_table(models)),
        (bandwidth_chart(points), turn_chart(used, models[0]) if models else None),
        numbers(points, models),
    )


def _cases(points: Sequence[Point]) -> Mixes:
    halves = ((p.ci_high_s - p.ci_low_s) / 2 for p in points)
    sigmas = [half / Z if math.isfinite(half) else 0.0 for half in halves]
    names = ("read_bytes", "write_bytes", "switches", "median_s")
    reads, writes, switches, seconds = (np.array([getattr(p, n) for p in points]) for n in names)
    return Mixes(reads, writes, switches, seconds, np.array(sigmas))


def mix_finding(points: Sequence[Point]) -> Iterator[Finding]:
    """State how much of the bandwidth of reads a mix of as many writes keeps, at best and worst."""
    even = [p for p in points if p.ratio == "1:1" and p.way in ("warp", "runs", "whole")]
    read, _ = pure(points)
    if not even or not math.isfinite(read):
        return
    slow, fast = (pick(even, key=lambda point: point.rate) for pick in (min, max))
    loss = Number(1 - slow.rate / read, "fraction")
    yield SENTENCES.finding(
        "mixed_bandwidth",
        loss=loss,
        slow=Number(slow.rate, "B/s"),
        short=Number(slow.run_bytes, "iB"),
        fast=Number(fast.rate, "B/s"),
        long=Number(fast.run_bytes, "iB"),
        read=Number(read, "B/s"),
    )


def turnaround_findings(models: Sequence[MixFit], points: Sequence[Point]) -> Iterator[Finding]:
    """State what a turnaround costs, or that noise hides it, and what explains it better."""
    linear = next((fit for fit in models if fit.model == "switches"), None)
    if linear is None:
        return
    best = models[0]
    turn, cost = _estimate(best, "turnaround", "s"), _estimate(best, "mix_cost", "s", GB)
    leading = turn or cost
    is_drain, batch = best.model == "drain", best.estimates.get("batch")
    yield SENTENCES.finding(
        f"turnaround/{best.model}",
        (
            Evidence(Text("cases fitted"), len(best.predicted)),
            Evidence(Text("residual"), Number(best.error, "fraction")),
            Evidence(
                Text("mixes predicted from all others to"), Number(best.left_out_error, "fraction")
            ),
            Evidence(Text("models, of which it is the best by AICc"), len(models)),
            *_growth(best),
            *_counted(points),
        ),
        turn=turn,
        cost=cost,
        interval=leading.interval if leading else None,
        reference=Number(REFERENCE, "iB") if is_drain else None,
        batch=Number(batch.value, "B") if batch else None,
        switch=SENTENCES.text("switch") if is_drain else None,
    )
    same = (SENTENCES.text("same"),)
    price = _estimate(linear, "turnaround", "s")
    if best is not linear and price is not None:
        yield SENTENCES.finding(
            "one_price",
            same,
            price=price,
            interval=price.interval,
            error=Number(linear.error, "fraction"),
            best=Number(best.error, "fraction"),
        )
    near = [NAMES[model.model] for model in models[1:] if model.aicc - best.aicc < SAME]
    if near:
        yield SENTENCES.finding("models_alike", same, models=near)


def _estimate(fit: MixFit, name: str, unit: str = "", factor: float = 1.0) -> Number | None:
    """Return an estimate, times `factor`, with its interval; None where the model has none."""
    if name not in fit.estimates:
        return None
    value, low, high = (factor * end for end in fit.estimates[name])
    return Number(value, unit, low=low, high=high)


def _growth(best: MixFit) -> Iterator[Text]:
    """Yield how the cost of a turn grows in the model "drain"; nothing for another."""
    if best.model == "drain":
        power, power_low, power_high = map(Number, best.estimates["exponent"])
        size, low, high = (Number(end, "B") for end in best.estimates["batch"])
        yield SENTENCES.text(
            "growth",
            power=power,
            power_low=power_low,
            power_high=power_high,
            held=size,
            held_low=low,
            held_high=high,
        )


def _counted(points: Sequence[Point]) -> Iterator[Evidence]:
    """Yield what counters show of the turns; nothing without counters."""
    # Calls that write at least a GB: all of them fill what L2 can hold.
    unwritten = [p.write_bytes - p.written for p in points if p.write_bytes >= GB]
    if unwritten := [size for size in unwritten if math.isfinite(size)]:
        label = Text("counters: written but not yet in DRAM at the end of a call")
        yield Evidence(label, Number(median(unwritten), "B"))
    # What reads alone differ by, events and the gap between kernels, is taken off.
    counted = [(p, p.median_s / p.alone - 1) for p in points if p.alone > 0]
    reads = [slowdown for p, slowdown in counted if p.write_bytes == 0]
    in_turn = [slowdown for p, slowdown in counted if p.way == "whole"]
    if reads and in_turn and max(in_turn) - reads[0] > LEAST_DELAY:
        label = SENTENCES.text("counted")
        yield Evidence(label, Number(max(in_turn) - reads[0], "fraction"))


def bandwidth_table(points: Sequence[Point]) -> Table[str]:
    """Return bandwidth by ratio and granularity, one row per ratio."""
    rates = {(point.ratio, point.column): point.rate for point in points}
    alone = {point.ratio: point.rate for point in points if point.way == "alone"}
    headings = dict.fromkeys(point.column for point in points if point.way != "alone")
    read, write = pure(points)

    def no_mixing(ratio: str) -> Number:
        p = next(point for point in points if point.ratio == ratio)
        one_by_one = p.total / (p.read_bytes / read + p.write_bytes / write)
        return Number(alone.get(ratio, one_by_one), "B/s")

    def mixed(heading: str) -> Column[str]:
        def cell(ratio: str) -> Number | None:
            return None if ratio in alone else Number(rates.get((ratio, heading)), "B/s")

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
        note=SENTENCES.note("memory-patterns-mix"),
    )


def model_table(models: Sequence[MixFit]) -> Table[MixFit]:
    """Return the models side by side, the best first."""

    def estimate(heading: Text, unit: str, *what: Any) -> Column[MixFit]:
        return Column(heading, lambda fit: _estimate(fit, *what), unit)

    def rate(heading: Text, name: str) -> Column[MixFit]:
        return Column(heading, lambda fit: Number(fit.estimates[name].value, "B/s"), "TB/s")

    def error(heading: Text, field: str) -> Column[MixFit]:
        return Column(heading, lambda fit: Number(getattr(fit, field), "fraction"), digits=2)

    return Table(
        "memory-patterns-models",
        Text("Models of the time of a mix"),
        [
            Column(Text("penalty"), lambda fit: NAMES[fit.model]),
            Column(Text("time of a call"), lambda fit: FORMULAS[fit.model]),
            estimate(Text("t, per switch"), "us", "turnaround", "s"),
            estimate(Text("c, per GB"), "us", "mix_cost", "s", GB),
            estimate(Text("D"), "MiB", "batch", "iB"),
            estimate(Text("p"), "", "exponent"),
            rate(Text("Br"), "read_rate"),
            rate(Text("Bw"), "write_rate"),
            error(Text("residual"), "error"),
            error(Text("left-out error"), "left_out_error"),
            Column(Text("AICc above best"), lambda fit: Number(fit.aicc - models[0].aicc)),
        ],
        models,
        note=SENTENCES.note("memory-patterns-models"),
    )


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
        "models": [
            {
                "model": fit.model,
                "aicc": known(fit.aicc),
                "relative_residual": known(fit.error),
                "relative_left_out_error": known(fit.left_out_error),
                **{
                    NUMBERS[name]: {key: known(end) for key, end in estimate._asdict().items()}
                    for name in NUMBERS
                    if (estimate := fit.estimates.get(name))
                },
            }
            for fit in models
        ],
    }


def bandwidth_chart(points: Sequence[Point]) -> LineFigure:
    """Return measured bandwidth over the length of a run, one line per ratio."""
    alone = zip(pure(points), ("reads alone", "writes alone"), strict=True)
    return LineFigure(
        **SENTENCES.chart("memory_patterns_mix"),
        series=tuple(
            line(
                ratio,
                switching,
                lambda p: p.run_bytes,
                lambda p: p.rate / TERA,
                lambda p: p.total / p.ci_high_s / TERA,
                lambda p: p.total / p.ci_low_s / TERA,
            )
            for ratio in ratios(points)
            if (switching := _switching(points, ratio))
        ),
        x_log=True,
        x_bytes=True,
        y_zero=False,
        levels=tuple((rate / TERA, words) for rate, words in alone if math.isfinite(rate)),
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
    rates = best.estimates["read_rate"].value, best.estimates["write_rate"].value

    def cost(p: Point, seconds: float) -> float:
        alone = p.read_bytes / rates[0] + p.write_bytes / rates[1]
        return 1e6 * ((seconds - alone) / p.switches)

    def read(p: Point) -> float:
        return p.read_bytes / p.switches

    costs, residuals = [], []
    for name in ratios(points):
        long = [p for p in _switching(points, name) if p.run_bytes >= SHORTEST]
        if not long:
            continue
        costs += [
            line(name, long, read, lambda p: cost(p, p.median_s), style="points", group=name),
            line(f"{name}, model", long, read, lambda p: cost(p, predicted[p]), group=name),
        ]
        off = line(name, long, read, lambda p: 100 * (p.median_s / predicted[p] - 1), group=name)
        residuals.append(off)
    if not costs:
        return None
    return LineFigure(
        **SENTENCES.chart("memory_patterns_turn"),
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
