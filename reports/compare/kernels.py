"""What changed in each row of matched kernels: times, their noise, and counters."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nsight_prof.parsers.cells import Row as TableRow
from nsight_prof.parsers.cells import known, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.compare import noise, threshold
from nsight_prof.reports.compare.changes import (
    NEUTRAL,
    Change,
    Comparison,
    CounterChange,
    KernelChange,
    change,
)
from nsight_prof.reports.compare.match import Launches, Row, operators_of
from nsight_prof.reports.compare.noise import Ratio
from nsight_prof.reports.compare.sides import Side, sequences
from nsight_prof.reports.page import Number, Text, Value
from nsight_prof.reports.page.formats import brief

Times = Mapping[tuple[str, str], float]
"""GPU time in ns by (stage, kernel_id)."""
WIDTH = 56
"""Characters of a readable name in a title."""
MAX_REASONS = 3
"""Counters that a sentence names."""
MAX_NAMES = 4
"""Kernels of a side that a sentence names."""
COUNTERS = (
    ("flops", Text("FLOPs"), "FLOP"),
    ("dram_bytes", Text("DRAM bytes"), "B"),
    ("l2_bytes", Text("L2 bytes"), "B"),
    ("sm_clock_hz", Text("SM clock under ncu"), "Hz"),
    ("dram_pct", Text("share of the DRAM roof"), "%"),
    ("tensor_pct", Text("Tensor Core activity"), "%"),
    ("achieved_occupancy_pct", Text("achieved occupancy"), "%"),
    ("l2_hit_pct", Text("L2 hit rate"), "%"),
    ("waves", Text("waves"), ""),
    ("registers", Text("registers per thread"), ""),
    ("shared_bytes", Text("shared memory per block"), "B"),
    ("roof_share", Text("share of its own roof"), "fraction"),
)
"""Columns of table `counters` that a comparison reads, with their unit."""
SCALING = (
    *("total_gpu_time", "steady_gpu_time", "gpu_time", "wall_time"),
    *("queued_step", "host_step"),
)
"""Times that grow with the work: more of one is no slowdown."""


@dataclass(frozen=True)
class Clocked:
    """Times of each run of a side, to see how much repeats differ.

    `floor`: the smallest relative difference of a kernel that counts between single runs.
    """

    a: tuple[Times, ...]
    b: tuple[Times, ...]
    floor: float

    @property
    def repeated(self) -> bool:
        """Whether any side has more than one run."""
        return len(self.a) + len(self.b) > 2


def clocked(a: Side, b: Side, rename: Mapping[str, str], floor: float) -> Clocked:
    """Return the time of every kernel in every run."""
    of_a, of_b = (tuple(_times(run, rename) for run in side.runs) for side in (a, b))
    return Clocked(of_a, of_b, floor)


def _times(run: Run, rename: Mapping[str, str]) -> Times:
    found: dict[tuple[str, str], float] = defaultdict(float)
    for stage, sequence in sequences(run, rename).items():
        totals = [total for _, total, _ in sequence.summed] or sequence.durations
        for key, time in zip(sequence.ids, totals, strict=True):
            found[stage, key] += float(time)
    return found


def row_ratio(row: Row, times: Clocked) -> Ratio:
    """Return the ratio of the times of a row, with its noise."""
    if times.repeated:
        return noise.of_runs(*_over_runs(row, times))
    if len(row.a) == len(row.b) == 1 and row.calls[0] == row.calls[1]:
        a, b = row.a[0].durations, row.b[0].durations
        if a is not None and b is not None:
            return noise.of_launches(a, b, times.floor)
    return _of_totals(row, times)


def _of_totals(row: Row, times: Clocked) -> Ratio:
    groups = [[(x.calls, x.total, x.spread) for x in side] for side in (row.a, row.b)]
    return noise.of_totals(groups, times.floor)


def _over_runs(row: Row, times: Clocked) -> list[noise.Values]:
    """Return the time of a row in each run; kernels are shared out to rows as in the first."""
    sums = [
        [sum(x.portion * run.get((row.stage, x.kernel.kernel_id), 0.0) for x in side)
         for run in runs]
        for side, runs in ((row.a, times.a), (row.b, times.b))
    ]  # fmt: skip
    return [np.array([value for value in side if value > 0]) for side in sums]


def _values(row: Row, times: Clocked) -> tuple[float, float]:
    """Return the times of A and B: of the runs, or their geometric means."""
    if not times.repeated:
        return row.total_a, row.total_b
    a, b = (noise.middle(side) if len(side) else 0.0 for side in _over_runs(row, times))
    return a, b


def kernel_changes(
    rows: Sequence[Row], times: Clocked, a: Side, b: Side, one_off: Collection[str] = ()
) -> tuple[KernelChange, ...]:
    """Return all rows, the largest change of the program's time first, numbered from 1.

    Those of stages in `one_off`, work that a loop does once, come last.
    """
    gpu_time = sum(row.total_a for row in rows)
    counters = [{text(r["kernel_id"]): r for r in records(side.run.counters)} for side in (a, b)]
    ranked = sorted(rows, key=lambda r: (r.stage in one_off, -abs(r.total_b - r.total_a)))
    found = []
    for number, row in enumerate(ranked, 1):
        ratio, values = row_ratio(row, times), _values(row, times)
        total, launch = _total(row, ratio, values), _launch(row, times, ratio, values)
        of_a, of_b = (
            known_counters.get(side[0].kernel.kernel_id if side else "", {})
            for known_counters, side in zip(counters, (row.a, row.b), strict=True)
        )
        changed = _counters(row, of_a, of_b)
        found.append(
            KernelChange(
                **vars(row),
                number=number,
                title=_title(row),
                total=total,
                launch=launch,
                program=known((values[1] - values[0]) / gpu_time) if gpu_time > 0 else None,
                reasons=tuple(_reasons(row, total, launch, changed)),
                counters=changed,
                bound_a=text(of_a.get("bound_by")),
                bound_b=text(of_b.get("bound_by")),
                one_off=row.stage in one_off,
            )
        )
    return tuple(found)


def _title(row: Row) -> str:
    names = []
    for side in (row.a, row.b):
        if short := list(dict.fromkeys(x.kernel.short_name for x in side)):
            more = f" and {len(short) - 1} more" if len(short) > 1 else ""
            names.append(f"{brief(short[0], WIDTH)}{more}")
    return " → ".join(dict.fromkeys(names))


def _total(row: Row, ratio: Ratio, values: tuple[float, float]) -> Change:
    verdict = ratio.verdict
    if row.match in ("new", "gone"):
        verdict = row.match
    elif row.is_pair and row.calls[0] != row.calls[1]:
        # The counts are exact, so this is no noise; fewer launches may take more time in all.
        verdict = "more" if values[1] > values[0] else "less"
    return change("gpu_time", Text("GPU time"), "ns", values, ratio, verdict)


def _launch(row: Row, times: Clocked, total: Ratio, values: tuple[float, float]) -> Change | None:
    """Compare a single launch, where the rows have one kernel per side."""
    calls_a, calls_b = row.calls
    if not row.is_pair or not min(row.calls):
        return None
    if times.repeated:
        ratio = replace(total.times(calls_a / calls_b), floor=0.0)
    elif calls_a == calls_b:
        ratio = total
    else:
        ratio = _of_totals(row, times).times(calls_a / calls_b)
    each = (values[0] / calls_a, values[1] / calls_b)
    return change("launch_time", Text("time per launch"), "ns", each, ratio)


def _counters(row: Row, of_a: TableRow, of_b: TableRow) -> tuple[CounterChange, ...]:
    """Return the counters of a kernel that both runs profiled."""
    if not row.is_pair or len(row.a) != 1 or len(row.b) != 1 or not of_a or not of_b:
        return ()
    found = []
    for column, label, unit in COUNTERS:
        a, b = known(of_a[column]), known(of_b[column])
        if a is not None and b is not None:
            found.append(CounterChange(column, label, unit, a, b, known(b / a) if a else None))
    return tuple(found)


def _reasons(
    row: Row, total: Change, launch: Change | None, counters: Sequence[CounterChange]
) -> Iterator[Text]:
    if row.match in ("fused", "split", "regrouped"):
        yield _became(row)
    if launch is not None and row.calls[0] != row.calls[1]:
        (a, b), before, after = row.calls, launch.before or 0, launch.after or 0
        yield Text("{b} launches instead of {a}, {after} each instead of {before}",
                          a=a, b=b, before=before, after=after)  # fmt: skip
    if (launch or total).verdict in ("faster", "slower") and counters:
        yield _changed_counters(row, counters)


def _became(row: Row) -> Text:
    """Say which kernels became which, and what ties them."""
    of_a, of_b = (
        frozenset().union(*(operators_of(x.kernel) for x in side)) for side in (row.a, row.b)
    )
    shared: list[Value] = list(sorted(of_a & of_b))
    if not shared:
        tie = Text("same position in the stage")
    elif row.by_place:
        tie = Text("names share {operators}, the others ran at the same position", operators=shared)
    else:
        tie = Text("both names include {operators}", operators=shared)
    return Text("{a} became {b} ({tie})", a=_names(row.a), b=_names(row.b), tie=tie)


def _names(side: Sequence[Launches]) -> list[Value]:
    calls: Counter[str] = Counter()
    for launches in side:
        calls[brief(launches.kernel.short_name, WIDTH)] += launches.calls
    found: list[Value] = [
        Text("{name} ({n} launch)", "{name} ({n} launches)", name=name, n=n)
        for name, n in calls.most_common(MAX_NAMES)
    ]
    if len(calls) > MAX_NAMES:
        found.append(Text("{n} more kernel", "{n} more kernels", n=len(calls) - MAX_NAMES))
    return found


def _changed_counters(row: Row, counters: Sequence[CounterChange]) -> Text:
    """Say which counters changed most with the time."""
    flops = next((c.ratio for c in counters if c.column == "flops"), None)
    if row.match == "identical" and flops and abs(flops - 1) >= threshold("counter"):
        return Text("ncu counted launches that do different work")
    changed = sorted(filter(_is_material, counters), key=lambda c: -abs(math.log(c.ratio or 1.0)))
    if not changed:
        return Text("no counter changed with it")
    found = [
        Text("{counter} {a} → {b} ({ratio})", counter=c.label, a=Number(c.a, c.unit),
             b=Number(c.b, c.unit), ratio=Number(c.ratio, "x"))
        for c in changed[:MAX_REASONS]
    ]  # fmt: skip
    return Text("counters: {counters}", counters=found)


def _is_material(counter: CounterChange) -> bool:
    if not counter.ratio:
        return False
    # A tenth of a per cent doubles easily.
    minimum = {"%": 1.0, "fraction": 0.01, "": 0.05}.get(counter.unit, 0.0)
    return abs(counter.ratio - 1) >= threshold("counter") and abs(counter.b - counter.a) >= minimum


def per_work(found: Comparison) -> Comparison:
    """Return the comparison with kernels judged per unit of work; as it is where none is known.

    Rows come by the time that B takes beyond (or short of) that of A for as much work. `program`
    is that time per unit over the GPU time of A; a verdict is that of the time per unit. Totals and
    stages took more or less time, their times per unit were faster or slower.
    """
    work = found.work
    if work is None:
        return found
    gpu_time = work * sum(row.total.a or 0.0 for row in found.kernels)
    added = {row.number: row.added(work) for row in found.kernels}
    ranked = sorted(found.kernels, key=lambda row: (row.one_off, -abs(added[row.number])))
    kernels = tuple(
        replace(
            row,
            number=number,
            program=known(added[row.number] / gpu_time) if gpu_time > 0 else None,
            total=_per_unit(row.total, work),
        )
        for number, row in enumerate(ranked, 1)
    )
    stages = tuple(replace(s, changes=_neutral(s.changes)) for s in found.stages)
    return replace(found, totals=_neutral(found.totals), stages=stages, kernels=kernels)


def _neutral(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(
        replace(c, verdict=NEUTRAL.get(c.verdict, c.verdict)) if c.key in SCALING else c
        for c in changes
    )


def _per_unit(total: Change, work: float) -> Change:
    """Return a time with the verdict of the time per unit; new and gone kernels stay so."""
    if total.ratio is None:
        return total
    return replace(total, verdict=total.noise.times(1 / work).verdict)
