"""Tables of the measured roofs: arithmetic, memory, latency, host, ridge points, confirmation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.reports.bench.cases import interval_text, shape_text, value_text
from nsight_prof.reports.bench.models import BenchTable
from nsight_prof.reports.bench.roofs import (
    ARITHMETIC,
    MEMORY,
    MeasuredRoof,
    Search,
    clock_text,
    share_text,
)
from nsight_prof.reports.figure_views import roof_label
from nsight_prof.reports.formats import NA, clock, count, seconds, share, significant
from nsight_prof.reports.load import Run

_OF_TABLE = (
    "Of the counters' peak: over what the counters say the hardware can do at the clock of the "
    "measurement. Of the datasheet: at the datasheet's clock. Counters: whether Nsight Compute saw "
    "the probe load what it should load, and nothing else. A roof marked with * is a line of the "
    "roofline, and the one that later reports use."
)


def tables(run: Run, roofs: list[MeasuredRoof], found: list[Search]) -> tuple[BenchTable, ...]:
    """Return the tables that the roofs allow."""
    made = (
        _rates("Arithmetic", [r for r in roofs if r.key in ARITHMETIC]),
        _rates("Memory", [r for r in roofs if r.key in MEMORY and r.unit == "B/s"]),
        _latencies([r for r in roofs if r.key in MEMORY and r.unit == "s"]),
        _host([r for r in roofs if r.key == "host"]),
        _ridges(run),
        _searches(found),
        _confirmation(roofs),
    )
    return tuple(table for table in made if table is not None)


def _rates(title: str, roofs: Sequence[MeasuredRoof]) -> BenchTable | None:
    if not roofs:
        return None
    return BenchTable(
        f"Measured roofs: {title.lower()}",
        (
            "Roof",
            "Value",
            "95 % interval",
            "Per clock and SM",
            "SM clock",
            "Of the counters' peak",
            "Of the datasheet",
            "Counters",
            "Reached by",
        ),
        tuple(
            (
                f"{roof.name}{' *' if roof.is_ceiling else ''}",
                roof.value_text,
                interval_text(roof.low, roof.high, roof.unit),
                clock_text(roof),
                clock(roof.clock_hz) if roof.per_clock_sm > 0 else "–",
                share_text(roof.of_counters),
                share_text(roof.of_datasheet),
                roof.confirmation,
                _shape(roof),
            )
            for roof in roofs
        ),
        _OF_TABLE,
        ("Roof", "Counters", "Reached by"),
    )


def _shape(roof: MeasuredRoof) -> str:
    best = f", best of {roof.candidates}" if roof.candidates > 1 else ""
    return f"{roof.shape}{best}" if roof.shape else best.removeprefix(", ") or "–"


def _latencies(roofs: Sequence[MeasuredRoof]) -> BenchTable | None:
    rows = tuple(
        (
            roof.name.removesuffix(" latency"),
            _cycles(roof.case) if roof.case else roof.value_text,
            seconds(number(roof.case["latency_s"])) if roof.case else NA,
            clock(roof.clock_hz),
            interval_text(roof.low, roof.high, roof.unit),
            roof.confirmation,
            roof.shape or "–",
        )
        for roof in roofs
    )
    if not rows:
        return None
    return BenchTable(
        "Latency of one dependent load",
        ("Level", "Cycles", "Time", "SM clock", "95 % interval", "Counters", "Reached by"),
        rows,
        "One thread follows a chain of pointers: each load waits for the one before it.",
        ("Level", "Counters", "Reached by"),
    )


def _cycles(row: Row) -> str:
    return significant(number(row["latency_cycles"]), 4)


def _host(roofs: Sequence[MeasuredRoof]) -> BenchTable | None:
    if not roofs:
        return None
    return BenchTable(
        "Host: transfers and launches",
        ("What", "Value", "95 % interval", "Samples", "Reached by"),
        tuple(
            (
                roof.name,
                roof.value_text,
                interval_text(roof.low, roof.high, roof.unit),
                count(roof.samples),
                roof.shape or "–",
            )
            for roof in roofs
        ),
        "",
        ("What", "Reached by"),
    )


def _ridges(run: Run) -> BenchTable | None:
    rows = [r for r in records(run.ridge_points) if text(r["source"]) == "measured"]
    levels = [level for level in MEMORY if any(text(r["level"]) == level for r in rows)]
    if not rows:
        return None
    cells = {(text(r["pipe"]), text(r["dtype"]), text(r["level"])): r for r in rows}
    pipes = list(dict.fromkeys((pipe, dtype) for pipe, dtype, _ in cells))
    return BenchTable(
        "Ridge points (FLOP/B)",
        ("Pipe", *(f"against {roof_label(level, '')}" for level in levels)),
        tuple(
            (
                roof_label(pipe, dtype if pipe == "tensor" else ""),
                *(_ridge(cells.get((pipe, dtype, level))) for level in levels),
            )
            for pipe, dtype in pipes
        ),
        "A kernel that does fewer operations for each byte it moves at that level is limited by "
        "the level, one that does more by the pipe.",
        ("Pipe",),
    )


def _ridge(row: Row | None) -> str:
    return NA if row is None else significant(row["intensity"])


def _searches(found: Sequence[Search]) -> BenchTable | None:
    if not found:
        return None
    return BenchTable(
        "Search of the launch shape",
        (
            "Roof",
            "Shapes",
            "Best",
            "Shape",
            "Median keeps",
            "Poorest keeps",
            "Poorest shape",
        ),
        tuple(_search(search) for search in found),
        "What the median and the poorest of the shapes that were tried keep of the best.",
        ("Roof", "Shape", "Poorest shape"),
    )


def _search(search: Search) -> tuple[str, ...]:
    roof = search.roof
    return (
        roof.name,
        count(len(search.rows)),
        value_text(search.best[0], roof.unit),
        shape_text(search.best[1]["params"]) or text(search.best[1]["name"]),
        share(search.median / search.best[0]),
        share(search.kept),
        shape_text(search.poorest[1]["params"]) or text(search.poorest[1]["name"]),
    )


def _confirmation(roofs: Sequence[MeasuredRoof]) -> BenchTable | None:
    rows = tuple(_seen(roofs))
    if not rows:
        return None
    return BenchTable(
        "What the counters showed",
        ("Roof", "Case", "Counters", "What they showed"),
        rows,
        "A probe of a level stands only if the levels under it stay idle.",
        ("Roof", "Case", "Counters", "What they showed"),
        folded=True,
    )


def _seen(roofs: Sequence[MeasuredRoof]) -> Iterator[tuple[str, ...]]:
    for roof in roofs:
        if roof.reason and roof.unit != "cycles" and roof.key != "host":
            case = text(roof.case["case_id"]) if roof.case else ""
            reason = roof.reason.partition("onfirmed: ")[2] or roof.reason
            yield roof.name, case or "–", roof.confirmation, reason.removeprefix("contradicted: ")
