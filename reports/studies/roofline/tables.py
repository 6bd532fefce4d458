"""Tables of the measured roofs: arithmetic, memory, latency, host, ridge points, launch shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nsight_prof.parsers.build.roofline import roof_label
from nsight_prof.parsers.cells import known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.roofs import ARITHMETIC, MEMORY, MeasuredRoof, Search
from nsight_prof.reports.cases.rows import shape_text
from nsight_prof.reports.page import (
    Column,
    Document,
    Link,
    Name,
    Number,
    Ref,
    Table,
    Text,
    Value,
)

DIGITS = 4
"""Of measured roofs: they repeat within 0.1 %, which three digits would hide."""
VERDICTS = {True: Text("confirmed"), False: Text("contradicted"), None: Text("not confirmed")}
NOTE = Text(
    "In brackets 95 % confidence intervals. A roof marked with * is a line of the roofline and the "
    "one that later reports use. Of the counters' peak: over what the hardware can do by its "
    "counters, at the clock of the measurement. Of the datasheet: at the datasheet's clock. "
    "Counters: whether Nsight Compute confirms that the probe loaded this part and nothing else."
)


@dataclass(frozen=True)
class PipeRidges:
    """The measured ridge points of one pipe and input type, FLOP per byte of each level."""

    pipe: str
    dtype: str
    intensity: dict[str, float]

    @property
    def label(self) -> str:
        """The pipe: "FP32", "Tensor bf16"."""
        return roof_label(self.pipe, self.dtype)

    @property
    def ref(self) -> Ref:
        """Its row in the table of ridge points."""
        return Ref("ridge_points", self.label, "intensity")

    def at(self, level: str) -> Number:
        """Return the ridge point against a memory level."""
        ridge = Number(self.intensity.get(level, math.nan), "FLOP/B", (self.ref,))
        return ridge.by(Text("its peak / bandwidth of {level}", level=level.upper()))


def ridge_points(run: Run) -> list[PipeRidges]:
    """Return the ridge points of measured roofs, one entry per pipe and input type."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in records(run.ridge_points):
        if text(row["source"]) == "measured":
            levels = found.setdefault((text(row["pipe"]), text(row["dtype"])), {})
            levels[text(row["level"])] = number(row["intensity"])
    return [PipeRidges(*pipe, levels) for pipe, levels in found.items()]


def tables(
    roofs: Sequence[MeasuredRoof], tried: Sequence[Search], ridges: Sequence[PipeRidges]
) -> list[Table[Any]]:
    """Return the tables, some without rows."""
    arithmetic = [roof for roof in roofs if roof.key in ARITHMETIC]
    memory = [roof for roof in roofs if roof.key in MEMORY and roof.unit == "B/s"]
    latencies = [roof for roof in roofs if roof.key in MEMORY and roof.unit == "s"]
    return [
        _rates(
            "arithmetic",
            Text("Measured roofs: arithmetic"),
            Text("FLOP per clock and SM"),
            arithmetic,
        ),
        _rates("memory", Text("Measured roofs: memory"), Text("B per clock and SM"), memory),
        _times([*latencies, *(roof for roof in roofs if roof.key == "host")]),
        _ridges(ridges),
        _probes([r for r in roofs if r.unit != "cycles" and r.key != "host"], tried),
    ]


def _rates(
    key: str, title: Text, per_clock: Text, roofs: Sequence[MeasuredRoof]
) -> Table[MeasuredRoof]:
    return Table(
        f"roofline-{key}",
        title,
        [
            Column(Text("Roof"), lambda roof: f"{roof.name}{' *' if roof.is_ceiling else ''}"),
            Column(Text("Value"), lambda roof: roof.number, digits=DIGITS),
            Column(per_clock, lambda roof: _if_known(roof.per_clock_sm, ""), digits=DIGITS),
            Column(Text("SM clock"), lambda roof: roof.clock if roof.per_clock_sm > 0 else None),
            Column(Text("Of the counters' peak"), lambda r: _if_known(r.of_counters, "fraction")),
            Column(Text("Of the datasheet"), lambda r: _if_known(r.of_datasheet, "fraction")),
            Column(Text("Counters"), _counters_of),
            Column(Text("Samples"), lambda roof: roof.samples),
            Column(Text("Reached by"), _reached_by),
        ],
        roofs,
        note=NOTE if key == "arithmetic" else None,
        refs=lambda roof: [roof.ref],
    )


def _counters_of(roof: MeasuredRoof) -> Link:
    """Return whether counters confirm a roof, which leads to what they counted."""
    return Link(VERDICTS[roof.accepted], roof.probe.anchor)


def _counted(roof: MeasuredRoof) -> tuple[str, Number, Number | None]:
    """Return the column of table `bench` that a roof is judged by, its value of a call, the work's.

    A dependent load is judged by its accesses, which are no bytes.
    """
    column, work, unit = "counted_flops", "flops", "FLOP"
    if roof.key in MEMORY:
        level = {"shared": "shared_memory"}.get(roof.key, roof.key)
        of_dram = "dram_read_bytes" if roof.key == "dram" and roof.kind == "latency" else ""
        column, work, unit = of_dram or f"{level}_bytes", "bytes", "B"
    ref = (Ref("bench", text(roof.case.get("case_id")), column),)
    calls = Number(known(roof.case.get("counted_calls")))
    counted = Number(known(roof.case.get(column)), unit, ref).per(calls, unit)
    done = None if roof.kind == "latency" else Number(known(roof.case.get(work)), unit)
    return column, counted, done


def _if_known(value: float, unit: str) -> Number | None:
    return None if math.isnan(value) else Number(value, unit)


def _reached_by(roof: MeasuredRoof) -> Value | None:
    if roof.candidates > 1:
        return Text("{shape}, best of {n}", shape=roof.shape, n=roof.candidates)
    return roof.shape or None


def _times(roofs: Sequence[MeasuredRoof]) -> Table[MeasuredRoof]:
    def cycles(roof: MeasuredRoof) -> Number | None:
        return Number(number(roof.case.get("latency_cycles"))) if roof.kind == "latency" else None

    return Table(
        "roofline-latency",
        Text("Latency of one dependent load (pointer chase), transfers and launches"),
        [
            Column(Text("What"), lambda roof: roof.name),
            Column(Text("Value"), lambda roof: roof.number, digits=DIGITS),
            Column(Text("Cycles"), cycles, digits=DIGITS),
            Column(Text("SM clock"), lambda roof: roof.clock if roof.kind == "latency" else None),
            Column(
                Text("Counters"),
                lambda roof: None if roof.key == "host" else _counters_of(roof),
            ),
            Column(Text("Samples"), lambda roof: roof.samples),
            Column(Text("Reached by"), lambda roof: roof.shape or None),
        ],
        roofs,
        refs=lambda roof: [roof.ref],
    )


def _ridges(ridges: Sequence[PipeRidges]) -> Table[PipeRidges]:
    def at_level(level: str) -> Column[PipeRidges]:
        heading = Text("against {level}", level=roof_label(level))
        return Column(heading, lambda pipe: pipe.at(level), "FLOP/B")

    levels = [level for level in MEMORY if any(level in pipe.intensity for pipe in ridges)]
    return Table(
        "roofline-ridges",
        Text("Ridge points"),
        [Column[PipeRidges](Text("Pipe"), lambda pipe: pipe.label), *map(at_level, levels)],
        ridges,
        note=Text(
            "A ridge point is the peak of a pipe over the bandwidth of a level, both as measured "
            "(Williams, Waterman, Patterson 2009). A kernel with fewer FLOP per byte of a level is "
            "bound by that level, one with more by the pipe."
        ),
        refs=lambda pipe: [pipe.ref],
    )


def _probes(roofs: Sequence[MeasuredRoof], tried: Sequence[Search]) -> Table[MeasuredRoof]:
    """Return what the counters showed of each probe and what launch shapes lose, doubtful first."""
    searches = {search.roof.name: search for search in tried}

    def rank(roof: MeasuredRoof) -> tuple[int, float]:
        search = searches.get(roof.name)
        trust = {False: 0, None: 1, True: 2}[roof.accepted]
        return trust, search.slowest_fraction if search else math.inf

    def of_search(cell: Any) -> Any:
        return lambda roof: cell(searches[roof.name]) if roof.name in searches else None

    return Table(
        "roofline-probes",
        Text("How far to trust each roof: what the counters showed, and the launch shapes tried"),
        [
            Column(Text("Roof"), lambda roof: roof.name),
            Column(Text("Case"), lambda roof: text(roof.case.get("case_id")) or None),
            Column(Text("Counters"), lambda roof: VERDICTS[roof.accepted]),
            Column(Text("What they showed"), lambda roof: roof.reason or None),
            Column(Text("Counted, per call"), lambda roof: _counted(roof)[1], digits=DIGITS),
            Column(Text("Work of a call"), lambda roof: _counted(roof)[2], digits=DIGITS),
            Column(Text("Column"), lambda roof: Name(_counted(roof)[0])),
            Column(Text("Shapes"), of_search(lambda search: len(search.rates))),
            Column(
                Text("Median shape reaches"),
                of_search(lambda search: Number(search.median_fraction, "fraction")),
            ),
            Column(
                Text("Slowest reaches"),
                of_search(lambda search: Number(search.slowest_fraction, "fraction")),
            ),
            Column(
                Text("Slowest shape"),
                of_search(
                    lambda search: (
                        shape_text(search.slowest["params"]) or text(search.slowest["name"])
                    )
                ),
            ),
        ],
        sorted(roofs, key=rank),
        note=Text(
            "A probe of a level stands only if the levels below it stay idle. Doubtful roofs come "
            "first, then those that lose most by a slow launch shape; fractions are of the best "
            "shape. Column: where the counter stands in {bench}, in the row of the case.",
            bench=Document("bench.csv", "tables/bench.csv"),
        ),
        refs=lambda roof: [roof.probe],
        folded=True,
    )
