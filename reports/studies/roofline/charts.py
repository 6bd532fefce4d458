"""Figures and tables of the measured roofs, the sweeps around them, and what the L2 holds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nsight_prof.parsers.build.roofline import LEVELS, roof_label
from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.parsers.roofs.confirm import MOVED
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.roofs import ARITHMETIC, MEMORY, MeasuredRoof, Search
from nsight_prof.reports.cases.rows import data_pairs, ratio, shape_text, slowdown
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import (
    Column,
    Document,
    Evidence,
    Finding,
    Link,
    Name,
    Number,
    Ref,
    Table,
    Text,
    Value,
    Word,
)
from nsight_prof.reports.page.charts import (
    Bar,
    BarFigure,
    Chart,
    LineFigure,
    Panel,
    Roof,
    RooflineFigure,
    RooflinePanel,
    Series,
    ridges,
)
from nsight_prof.reports.page.units import quantity
from nsight_prof.reports.page.values import Words

SENTENCES = Sentences("roofline")

GIGA = 1e9
SIZES = ("footprint_bytes", "footprint", "working_set_bytes", "size_bytes", "bytes")
Points = dict[str, list[tuple[float, float]]]


def size_of(row: Row) -> float:
    """Return the bytes that a case of a sweep works on; NaN where its parameters do not say."""
    params = row["params"]
    return next((number(params[key]) for key in SIZES if key in params), math.nan)


def series(name: str, points: Sequence[tuple[float, float]]) -> Series:
    """Return a line through points (x, y)."""
    return Series(name, tuple(x for x, _ in points), tuple(y for _, y in points))


def _lines(lines: Mapping[str, Sequence[tuple[float, float]]]) -> tuple[Series, ...]:
    """Return the lines that have more than one point, sorted by x."""
    return tuple(series(name, sorted(points)) for name, points in lines.items() if len(points) > 1)


def latency_sweep(rows: Sequence[Row], l2_bytes: float) -> LineFigure | None:
    """Return cycles of one dependent load against the bytes that the chain wanders over."""
    lines: Points = defaultdict(list)
    for row in rows:
        cycles, size = number(row["latency_cycles"]), size_of(row)
        if cycles > 0 and size > 0 and "sweep" in text(row["name"]):
            name = "past the L1" if row["params"].get("past_l1") else "through the L1"
            lines[name].append((size, cycles))
    if not (curves := _lines(lines)):
        return None
    return LineFigure(
        **SENTENCES.chart("latency"),
        series=curves,
        x_log=True,
        marks=((l2_bytes, "L2 capacity"),) if l2_bytes > 0 else (),
        x_bytes=True,
    )


def stride_sweep(rows: Sequence[Row]) -> LineFigure | None:
    """Return bytes per clock and SM against the stride of neighbouring threads."""
    lines: Points = defaultdict(list)
    for row in rows:
        stride, rate = number(row["params"].get("stride_words")), number(row["bytes_per_clock_sm"])
        if "strided" in text(row["operation"]) and stride > 0 and rate > 0:
            lines[roof_label(text(row["level"]))].append((stride, rate))
    if not (curves := _lines(lines)):
        return None
    return LineFigure(
        **SENTENCES.chart("strides"),
        series=curves,
        x_log=True,
    )


def host_sweep(rows: Sequence[Row]) -> LineFigure | None:
    """Return bandwidth of copies between host and device against their size."""
    lines: Points = defaultdict(list)
    for row in rows:
        size, rate = size_of(row), number(row["bytes_per_s"])
        if text(row["level"]) == "host" and size > 0 and rate > 0:
            lines[text(row["operation"])].append((size, rate / GIGA))
    if not (curves := _lines(lines)):
        return None
    return LineFigure(
        **SENTENCES.chart("host-transfers"),
        series=curves,
        x_log=True,
        x_bytes=True,
    )


TERA = 1e12
PATTERNS = {"private": "a slice per SM", "shared": "all SMs the same"}
LEAK = 0.05
"""Fraction of the L2's bytes that come from DRAM above which it no longer holds the footprint."""
FULL_SPEED = 0.9
"""The L2 serves a footprint while its bandwidth is at least this fraction of the best."""
Sweep = list[tuple[float, Row]]
"""(footprint in bytes, case), by footprint."""


def sweeps(rows: Iterable[Row]) -> dict[str, Sweep]:
    """Return the fastest case of each operation on the L2 at each footprint.

    Cases whose bytes did not come to the L2, as far as counters tell, are left out.
    """
    fastest: dict[str, dict[float, Row]] = defaultdict(dict)
    for row in rows:
        if text(row["level"]) != "l2" or text(row["data"]) != "normal":
            continue
        moved = ratio(row["l2_bytes"], number(row["bytes"]) * number(row["counted_calls"]))
        size = size_of(row)
        if not size > 0 or not number(row["bytes"]) > 0 or abs(moved - 1) > MOVED:
            continue
        pattern = text(row["params"].get("pattern"))
        names = (text(row["operation"]), PATTERNS.get(pattern, pattern))
        by_size = fastest[", ".join(filter(None, names))]
        if size not in by_size or _rate(row) > _rate(by_size[size]):
            by_size[size] = row
    return {name: sorted(by_size.items()) for name, by_size in fastest.items()}


def _rate(row: Row) -> float:
    return number(row["bytes_per_s"])


def _leak(row: Row) -> float:
    """Return DRAM bytes over L2 bytes of a case, both as counted; NaN where one is unknown."""
    return ratio(row["dram_bytes"], row["l2_bytes"])


def l2_chart(
    rows: Sequence[Row], roofs: Sequence[MeasuredRoof], l2_bytes: float
) -> LineFigure | None:
    """Return bandwidth against the footprint, and below it what DRAM served, by counters."""
    lines = {name: sweep for name, sweep in sweeps(rows).items() if len(sweep) >= 3}
    if not lines:
        return None
    dram = next((roof for roof in roofs if roof.key == "dram" and roof.kind == "read"), None)
    level = f"DRAM read {quantity(dram.value, 'B/s', 3)}" if dram else ""
    rates = Panel(
        "Bandwidth (TB/s)",
        tuple(_bandwidth(name, sweep) for name, sweep in lines.items()),
        levels=((dram.value / TERA, level),) if dram else (),
    )
    leaks = []
    for name, sweep in lines.items():
        points = [(size, 100 * _leak(row)) for size, row in sweep if not math.isnan(_leak(row))]
        if points:
            leaks.append(series(name, points))
    return LineFigure(
        **SENTENCES.chart("l2-size"),
        x_log=True,
        marks=((l2_bytes, "L2 capacity"),) if l2_bytes > 0 else (),
        x_bytes=True,
        panels=(rates, Panel("From DRAM (% of L2 bytes)", tuple(leaks))) if leaks else (rates,),
    )


def _bandwidth(name: str, sweep: Sweep) -> Series:
    def bandwidths(seconds: str) -> tuple[float, ...]:
        return tuple(number(row["bytes"]) / number(row[seconds]) / TERA for _, row in sweep)

    rates = tuple(_rate(row) / TERA for _, row in sweep)
    sizes = tuple(size for size, _ in sweep)
    return Series(name, sizes, rates, bandwidths("ci_high_s"), bandwidths("ci_low_s"))


def l2_finding(rows: Sequence[Row], l2_bytes: float) -> Finding | None:
    """State how many bytes the L2 holds, by pattern where counters tell."""
    reads = (row for row in rows if text(row["operation"]).endswith("read"))
    lines = {name: sweep for name, sweep in sweeps(reads).items() if len(sweep) > 3}
    if not lines:
        return None
    longest = max(lines.values(), key=len)
    best = max(_rate(row) for _, row in longest)
    largest, slowest = longest[-1][0], _rate(longest[-1][1])
    fast = [size for size, row in longest if _rate(row) >= FULL_SPEED * best]
    if largest in fast:
        return None
    capacities = {name: size for name, sweep in lines.items() if (size := _capacity(sweep))}
    fit = min(capacities.values(), default=max(fast))
    evidence: list[Evidence | Text] = [
        Evidence(Text("footprints from {low}:", low=Number(longest[0][0], "iB")), len(longest))
    ]
    if capacities:
        evidence.append(SENTENCES.text("by_counters", leak=Number(LEAK, "fraction")))
    else:
        evidence.append(Text("by bandwidth alone, without counters"))
    if len(capacities) > 1:
        evidence.append(SENTENCES.text("copies"))
    sizes = [
        Text("{size} ({pattern})", size=Number(size, "iB"), pattern=Word(name))
        for name, size in sorted(capacities.items())
    ]
    return SENTENCES.finding(
        "l2_capacity",
        evidence,
        sizes=sizes or None,
        speed=None if sizes else Number(FULL_SPEED, "fraction"),
        fit=Number(fit, "iB"),
        l2=Number(l2_bytes, "iB"),
        large=Number(largest, "iB"),
        left=Number(slowest, "B/s"),
        best=Number(best, "B/s"),
        size=Number(fit, "iB"),
        part=Number(1 - slowest / best, "fraction"),
    )


def _capacity(sweep: Sweep) -> float | None:
    """Return the largest footprint before the first that DRAM serves too; None without counters."""
    fits = None
    for size, row in sweep:
        if not _leak(row) <= LEAK:
            return fits if _leak(row) > LEAK else None
        fits = size
    return None


SHOWN = 3


def charts(
    rows: Sequence[Row], roofs: Sequence[MeasuredRoof], l2_bytes: float
) -> tuple[Chart | None, ...]:
    """Return the figures that the cases allow; `l2_bytes` is NaN where it is not known."""
    return (
        _roofline(roofs),
        _memory(roofs),
        _duration(roofs),
        _data(rows),
        l2_chart(rows, roofs, l2_bytes),
        latency_sweep(rows, l2_bytes),
        stride_sweep(rows),
        host_sweep(rows),
    )


def _roofline(roofs: Sequence[MeasuredRoof]) -> RooflineFigure | None:
    ceilings = [roof for roof in roofs if roof.is_ceiling]
    memory = [_line(roof) for level in LEVELS for roof in ceilings if roof.key == level]
    compute = [_line(roof) for roof in ceilings if roof.key in ARITHMETIC]
    compute.sort(key=lambda roof: -roof.value)
    if not memory or not compute:
        return None
    title = "Measured roofline"
    return RooflineFigure(
        **SENTENCES.chart("roofline-measured"),
        title=title,
        panel=RooflinePanel(
            "measured", title, tuple(memory), tuple(compute), ridges(memory, compute), ()
        ),
    )


def _line(roof: MeasuredRoof) -> Roof:
    dtype = roof.dtype if roof.key == "tensor" else ""
    hertz = known(roof.clock_hz)
    return Roof(roof.key, dtype, roof.label, roof.value, roof.unit, "", hertz, roof.reason)


def _memory(roofs: Sequence[MeasuredRoof]) -> BarFigure | None:
    bars = [
        _bar(roof.name, roof.label, roof, _with_fraction(roof))
        for roof in roofs
        if roof.key in MEMORY and roof.unit == "B/s"
    ]
    return BarFigure(**SENTENCES.chart("memory-roofs"), bars=tuple(bars)) if bars else None


def _bar(label: str, group: str, roof: MeasuredRoof, words: Words) -> Bar:
    low, high = (None if known(end) is None else end / TERA for end in (roof.low, roof.high))
    return Bar(label, roof.value / TERA, low, high, group, words)


def _value(roof: MeasuredRoof) -> str:
    return quantity(roof.value, roof.unit, SHOWN)


def _with_fraction(roof: MeasuredRoof) -> Words:
    if known(roof.of_datasheet) is not None:
        share = quantity(roof.of_datasheet, "fraction", SHOWN)
        return Text("{value}, {share} of datasheet", value=_value(roof), share=share)
    if known(roof.of_counters) is not None:
        share = quantity(roof.of_counters, "fraction", SHOWN)
        return Text("{value}, {share} of the counters' peak", value=_value(roof), share=share)
    return _value(roof)


def _clock(hertz: float) -> Words:
    return quantity(hertz, "Hz", SHOWN) if known(hertz) is not None else Text("an unknown clock")


def _duration(roofs: Sequence[MeasuredRoof]) -> BarFigure | None:
    """Return bars of burst and steady for each pipe and type that has both, the fastest first."""
    steady = {(r.key, r.dtype): r for r in roofs if r.kind == "steady" and r.case}
    bars = [
        _bar(
            burst.label,
            group,
            roof,
            Text("{value} at {clock}", value=_value(roof), clock=_clock(roof.clock_hz)),
        )
        for burst in sorted(roofs, key=lambda roof: -roof.value)
        if burst.kind in ("burst", "fma") and burst.case and (burst.key, burst.dtype) in steady
        for group, roof in (("burst", burst), ("steady", steady[burst.key, burst.dtype]))
    ]
    return BarFigure(**SENTENCES.chart("burst-steady"), bars=tuple(bars)) if bars else None


def _data(rows: Sequence[Row]) -> BarFigure | None:
    """Return bars of the throughput on zeros, 100 % being that on random data."""
    pairs = sorted(data_pairs(rows), key=lambda pair: -slowdown(pair))
    return (
        BarFigure(
            **SENTENCES.chart("zeros"),
            bars=tuple(_data_bar(pair) for pair in pairs),
            levels=((100.0, "random data"),),
        )
        if pairs
        else None
    )


def _data_bar(pair: tuple[Row, Row]) -> Bar:
    random, zeros = (_clock(number(row["clock_hz"])) for row in pair)
    clocks = Text("{zeros} against {random}", zeros=zeros, random=random)
    if zeros == random:
        clocks = Text("both at {clock}", clock=zeros)
    row, speed = pair[0], slowdown(pair)
    size = shape_text(row["params"]) if "m" in row["params"] else ""
    name = f"{text(row['operation'])} {size}".strip()
    return Bar(
        name,
        100 * speed,
        text=Text("{share}, {clocks}", share=quantity(speed, "fraction", SHOWN), clocks=clocks),
    )


DIGITS = 4
"""Of measured roofs: they repeat within 0.1 %, which three digits would hide."""
VERDICTS = {True: Text("confirmed"), False: Text("contradicted"), None: Text("not confirmed")}
NOTE = SENTENCES.text("note")


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
        note=SENTENCES.note("roofline-ridges"),
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
        note=SENTENCES.text("probes", bench=Document("bench.csv", "tables/bench.csv")),
        refs=lambda roof: [roof.probe],
        folded=True,
    )
