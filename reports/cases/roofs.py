"""Measured roofs: names, fractions of the peaks of other sources, launch shapes that were tried."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nsight_prof.parsers.bench.records import roof_key
from nsight_prof.parsers.build.roofline import Ceiling, ceiling_of, roof_label
from nsight_prof.parsers.cells import Row, from_row, known, number, records, text
from nsight_prof.parsers.roofs.confirm import confirm
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.rows import cases, measured, params_of, ratio, roof_name, shape_text
from nsight_prof.reports.page import Number, Ref

ARITHMETIC = ("tensor", "fp16", "fp32", "fp64")
MEMORY = ("dram", "l2", "l1", "shared")


@dataclass(frozen=True)
class MeasuredRoof:
    """One row of table `measured_roofs`; NaN where a number is unknown.

    Attributes:
        key: memory level, pipe or "host".
        name: what a reader calls it: "DRAM read", "Tensor bf16, burst".
        of_counters, of_datasheet: fraction of the same roof by these sources; that of counters at
            the clock of the measurement.
        case: the case that reached it, with its parameters as a dict; {} where it is unknown.
        accepted: counters confirm it, contradict it, or (None) cannot tell; `reason` says why.
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
    samples: int
    candidates: int
    case: Row
    accepted: bool | None
    reason: str
    is_ceiling: bool

    @property
    def label(self) -> str:
        """The level or pipe without the kind: "DRAM", "Tensor bf16"."""
        return roof_label(self.key, self.dtype)

    @property
    def ref(self) -> Ref:
        """Its row of the table."""
        return Ref("measured_roofs", self.name, "value")

    @property
    def probe(self) -> Ref:
        """The row of what was counted of the case that reached it."""
        return Ref("probes", self.name)

    @property
    def number(self) -> Number:
        """The value with its confidence interval."""
        return Number(self.value, self.unit, (self.ref,), low=self.low, high=self.high)

    @property
    def clock(self) -> Number:
        """The SM clock while it was measured."""
        return Number(self.clock_hz, "Hz", (self.ref,))

    @property
    def shape(self) -> str:
        """Parameters of the case that reached it, in words."""
        return shape_text(self.case["params"]) if self.case else ""


def measured_roofs(run: Run) -> list[MeasuredRoof]:
    """Return the roofs of table `measured_roofs`: arithmetic, memory, then the rest, as ordered."""
    by_case = {text(row["case_id"]): row | {"params": params_of(row)} for row in records(run.bench)}
    ceilings = [ceiling_of(row) for row in records(run.roofs[run.roofs["source"] != "measured"])]
    by_source = {(ceiling.source, ceiling.key, ceiling.dtype): ceiling for ceiling in ceilings}
    roofs = [_roof(row, by_case, by_source) for row in records(run.measured_roofs)]
    order = {key: rank for rank, key in enumerate((*ARITHMETIC, *MEMORY, "host"))}
    return sorted(roofs, key=lambda roof: order.get(roof.key, len(order)))


def find(
    roofs: Sequence[MeasuredRoof], key: str, kind: str, dtype: str = ""
) -> MeasuredRoof | None:
    """Return the roof of a level or pipe, kind and (for the Tensor Cores) input type."""
    hits = (r for r in roofs if r.key == key and r.kind == kind and (not dtype or r.dtype == dtype))
    return next(hits, None)


def _roof(
    row: Row, by_case: dict[str, Row], by_source: dict[tuple[str, str, str], Ceiling]
) -> MeasuredRoof:
    key, dtype, kind = text(row["level_or_pipe"]), text(row["dtype"]), text(row["kind"])

    def fraction_of(source: str) -> float:
        # Pipes of one type are listed with its name or without.
        ceilings = (by_source.get((source, key, name)) for name in (dtype, "", key))
        return _fraction(row, next(filter(None, ceilings), None))

    accepted = known(row["accepted"])
    return from_row(
        MeasuredRoof,
        row,
        key=key,
        name=roof_name(key, dtype, kind),
        of_counters=fraction_of("counters"),
        of_datasheet=fraction_of("datasheet"),
        case=by_case.get(text(row["case_id"]), {}),
        accepted=None if accepted is None else accepted == 1,
        is_ceiling=number(row["is_ceiling"]) == 1,
    )


def _fraction(row: Row, ceiling: Ceiling | None) -> float:
    """Return the measured value over a ceiling of the same unit, at the clock of the measurement.

    A datasheet's peak holds at the datasheet's clock: it is not scaled.
    """
    if ceiling is None or ceiling.unit != text(row["unit"]):
        return math.nan
    clock = number(row["clock_hz"])
    limit = ceiling.value if ceiling.source == "datasheet" else ceiling.at_clock(clock)
    return ratio(row["value"], limit)


@dataclass(frozen=True)
class Search:
    """The launch shapes that were tried for one roof, the fastest first.

    `rates` are (rate, case), in the roof's unit.
    """

    roof: MeasuredRoof
    rates: tuple[tuple[float, Row], ...]

    @property
    def best(self) -> Row:
        """The case of the fastest shape."""
        return self.rates[0][1]

    @property
    def slowest(self) -> Row:
        """The case of the slowest shape."""
        return self.rates[-1][1]

    @property
    def median_fraction(self) -> float:
        """Rate of the shape in the middle over that of the fastest."""
        return self.rates[len(self.rates) // 2][0] / self.rates[0][0]

    @property
    def slowest_fraction(self) -> float:
        """Rate of the slowest shape over that of the fastest."""
        return self.rates[-1][0] / self.rates[0][0]


def searches(run: Run, roofs: Sequence[MeasuredRoof]) -> list[Search]:
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
        rates = [
            (number(row[column]), row)
            for row in rows
            if text(row["roof"]) == name
            and row["data"] == roof.case["data"]
            and number(row[column]) > 0
            and (key is None or confirm(row, key).accepted is not False)
        ]
        if len(rates) >= 3:
            found.append(Search(roof, tuple(sorted(rates, key=lambda pair: -pair[0]))))
    return found
