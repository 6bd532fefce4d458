"""Measured roofs as a reader sees them: names, shares of other sources' peaks, launch shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nsight_prof.parsers.bench_records import roof_key
from nsight_prof.parsers.build.roofline import Ceiling, ceiling_of
from nsight_prof.parsers.cells import Row, count, known, number, records, text
from nsight_prof.parsers.confirm import confirm
from nsight_prof.reports.bench.cases import (
    cases,
    measured,
    params_of,
    ratio,
    roof_name,
    shape_text,
    value_text,
)
from nsight_prof.reports.formats import share, significant
from nsight_prof.reports.load import Run

ARITHMETIC = ("tensor", "fp16", "fp32", "fp64")
MEMORY = ("dram", "l2", "l1", "shared")


@dataclass(frozen=True)
class MeasuredRoof:
    """One roof that the run measured: value in `unit`, NaN where a number is unknown.

    `of_counters` and `of_datasheet` are shares of the same roof of the other sources, at the clock
    of the measurement. `accepted`: counters confirm it, contradict it, or (None) cannot tell.
    """

    key: str
    dtype: str
    kind: str
    name: str
    value: float
    unit: str
    low: float
    high: float
    per_clock_sm: float
    clock_hz: float
    of_counters: float
    of_datasheet: float
    repeatability: float
    repeats: int
    processes: int
    samples: int
    candidates: int
    case: Row
    accepted: bool | None
    reason: str
    is_ceiling: bool

    @property
    def value_text(self) -> str:
        """The value with its unit."""
        return value_text(self.value, self.unit)

    @property
    def shape(self) -> str:
        """Parameters of the case that reached it, in words."""
        return shape_text(params_of(self.case)) if self.case else ""

    @property
    def confirmation(self) -> str:
        """What the counters say, in one word or two."""
        words = {True: "confirmed", False: "contradicted", None: "not told"}
        return words[self.accepted]


def measured_roofs(run: Run) -> list[MeasuredRoof]:
    """Return the roofs of table `measured_roofs`: arithmetic, memory, then the rest, as ordered."""
    by_case = {text(row["case_id"]): row for row in records(run.bench)}
    others = _ceilings(run)
    found = [_roof(row, by_case, others) for row in records(run.measured_roofs)]
    order = {key: place for place, key in enumerate((*ARITHMETIC, *MEMORY, "host"))}
    return sorted(found, key=lambda roof: order.get(roof.key, len(order)))


def find(roofs: list[MeasuredRoof], key: str, kind: str, dtype: str = "") -> MeasuredRoof | None:
    """Return the roof of a level or pipe, kind and (for the Tensor Cores) input type."""
    hits = (r for r in roofs if r.key == key and r.kind == kind and (not dtype or r.dtype == dtype))
    return next(hits, None)


def _ceilings(run: Run) -> dict[tuple[str, str, str], Ceiling]:
    """Return the roofs of counters and datasheet by (source, level or pipe, input type)."""
    found = [ceiling_of(row) for row in records(run.roofs[run.roofs["source"] != "measured"])]
    return {(one.source, one.key, one.dtype): one for one in found}


def _roof(
    row: Row, by_case: dict[str, Row], others: dict[tuple[str, str, str], Ceiling]
) -> MeasuredRoof:
    key, dtype, kind = text(row["level_or_pipe"]), text(row["dtype"]), text(row["kind"])
    names = (dtype, "", key)  # pipes of one type stand with its name or without
    shares = {
        source: _share(row, next(filter(None, (others.get((source, key, d)) for d in names)), None))
        for source in ("counters", "datasheet")
    }
    accepted = known(row["accepted"])
    return MeasuredRoof(
        key=key,
        dtype=dtype,
        kind=kind,
        name=roof_name(key, dtype, kind),
        value=number(row["value"]),
        unit=text(row["unit"]),
        low=number(row["low"]),
        high=number(row["high"]),
        per_clock_sm=number(row["per_clock_sm"]),
        clock_hz=number(row["clock_hz"]),
        of_counters=shares["counters"],
        of_datasheet=shares["datasheet"],
        repeatability=number(row["repeatability"]),
        repeats=count(row["repeats"]) or 0,
        processes=count(row["processes"]) or 0,
        samples=count(row["samples"]) or 0,
        candidates=count(row["candidates"]) or 0,
        case=by_case.get(text(row["case_id"]), {}),
        accepted=None if accepted is None else accepted == 1,
        reason=text(row["reason"]),
        is_ceiling=number(row["is_ceiling"]) == 1,
    )


def _share(row: Row, ceiling: Ceiling | None) -> float:
    """Return the measured value over a ceiling of the same unit, at the clock of the measurement.

    A datasheet's peak holds at the datasheet's clock: it is not scaled.
    """
    if ceiling is None or ceiling.unit != text(row["unit"]):
        return math.nan
    clock = number(row["clock_hz"])
    limit = ceiling.value if ceiling.source == "datasheet" else ceiling.at_clock(clock)
    return ratio(row["value"], limit)


def share_text(value: float) -> str:
    """Return a share as per cent, "–" where it is unknown: the other source has no such roof."""
    return "–" if math.isnan(value) else share(value)


@dataclass(frozen=True)
class Search:
    """The launch shapes that were tried for one roof; rates are those of the roof's unit."""

    roof: MeasuredRoof
    rows: tuple[tuple[float, Row], ...]

    @property
    def best(self) -> tuple[float, Row]:
        """The fastest shape."""
        return self.rows[0]

    @property
    def poorest(self) -> tuple[float, Row]:
        """The slowest shape."""
        return self.rows[-1]

    @property
    def median(self) -> float:
        """Rate of the shape in the middle."""
        return self.rows[len(self.rows) // 2][0]

    @property
    def kept(self) -> float:
        """What the poorest shape keeps of the best, 0 to 1."""
        return self.poorest[0] / self.best[0]


def searches(run: Run, roofs: list[MeasuredRoof]) -> list[Search]:
    """Return the search behind each throughput roof with at least three candidates.

    Candidates that the counters contradict are no candidates.
    """
    rows = measured(cases(run, "roofline"))
    found = []
    for roof in roofs:
        column = {"B/s": "bytes_per_s", "FLOP/s": "flop_per_s"}.get(roof.unit)
        if column is None or not roof.case:
            continue
        name = text(roof.case["roof"])
        key = roof_key(name)
        same = [r for r in rows if text(r["roof"]) == name and r["data"] == roof.case["data"]]
        same = [r for r in same if key is None or confirm(r, key).accepted is not False]
        rates = [(number(r[column]), r) for r in same if number(r[column]) > 0]
        rates.sort(key=lambda pair: -pair[0])
        if len(rates) >= 3:
            found.append(Search(roof, tuple(rates)))
    return found


def clock_text(roof: MeasuredRoof) -> str:
    """Return what the roof is per clock and SM: "126 B", "4,018 FLOP"; "–" where unknown."""
    if math.isnan(roof.per_clock_sm):
        return "–"
    return f"{significant(roof.per_clock_sm, 4)} {roof.unit.removesuffix('/s')}"
