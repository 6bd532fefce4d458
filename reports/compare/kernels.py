"""Turns matched rows into what the comparison says of each: differences, noise, counters."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.cells import Row as TableRow
from nsight_prof.parsers.cells import known, records, text
from nsight_prof.reports.compare import noise
from nsight_prof.reports.compare.models import Change, CounterChange, KernelChange, Member
from nsight_prof.reports.compare.noise import Ratio
from nsight_prof.reports.compare.operators import operators
from nsight_prof.reports.compare.rows import Part, Row
from nsight_prof.reports.compare.sides import Side, sequences
from nsight_prof.reports.compare.wording import section, threshold
from nsight_prof.reports.formats import brief, counted, listed, quantity, speedup
from nsight_prof.reports.load import Run

Times = Mapping[tuple[str, str], float]
"""GPU time in ns by (stage, kernel_id)."""
Counted = Mapping[str, TableRow]
"""Row of table `counters` by kernel_id."""
ONE_TO_ONE = ("identical", "shape", "replaced")
WIDTH = 56
"""Characters of a readable name in a title."""
MOST_EXPLAINED = 3
"""Counters that a sentence names."""


@dataclass(frozen=True)
class Clocked:
    """Times of each run of a side, to see how much repeats differ.

    `floor`: the least relative difference of a kernel that single runs may call one.
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
    ours, theirs = (tuple(_times(run, rename) for run in side.runs) for side in (a, b))
    return Clocked(ours, theirs, floor)


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
        return noise.of_runs(
            *(
                _over_runs(row, row_parts, of)
                for row_parts, of in ((row.a, times.a), (row.b, times.b))
            )
        )
    floor = times.floor
    if len(row.a) == len(row.b) == 1 and row.calls[0] == row.calls[1]:
        ours, theirs = row.a[0].durations, row.b[0].durations
        if ours is not None and theirs is not None:
            return noise.of_launches(ours, theirs, floor)
    return noise.of_totals(_spreads(row), floor)


def _values(row: Row, times: Clocked) -> tuple[float, float]:
    """Return the times of A and B: of the runs, or their geometric means."""
    if not times.repeated:
        return row.total_a, row.total_b
    runs = (_over_runs(row, row.a, times.a), _over_runs(row, row.b, times.b))
    a, b = (noise.middle(of) if len(of) else 0.0 for of in runs)
    return a, b


def _spreads(row: Row) -> list[list[noise.Spread]]:
    return [[(p.calls, p.total, p.spread) for p in side] for side in (row.a, row.b)]


def _over_runs(row: Row, parts: Sequence[Part], runs: Sequence[Times]) -> noise.Values:
    """Return the time of a row in each run; kernels are shared out to rows as in the first."""
    sums = [
        sum(p.portion * of.get((row.stage, p.kernel.kernel_id), 0.0) for p in parts) for of in runs
    ]
    return np.array([value for value in sums if value > 0])


def kernel_changes(
    rows: Sequence[Row], times: Clocked, a: Side, b: Side, apart: Collection[str] = ()
) -> tuple[KernelChange, ...]:
    """Return all rows, the largest change of the program's time first, numbered from 1.

    Those of stages in `apart`, work that a loop does once, come last.
    """
    whole = sum(row.total_a for row in rows)
    counters = tuple(
        {text(r["kernel_id"]): r for r in records(side.run.counters)} for side in (a, b)
    )
    ranked = sorted(rows, key=lambda r: (r.stage in apart, -abs(r.total_b - r.total_a)))
    return tuple(
        _change(number, row, times, whole, counters, row.stage in apart)
        for number, row in enumerate(ranked, 1)
    )


def _change(
    place: int,
    row: Row,
    times: Clocked,
    whole: float,
    counters: tuple[Counted, ...],
    one_off: bool,
) -> KernelChange:
    ratio = row_ratio(row, times)
    values = _values(row, times)
    total, launch = _total(row, ratio, values), _launch(row, times, ratio, values)
    seen = _counters(row, counters[0], counters[1])
    bounds = [
        text(of.get(_first(side), {}).get("bound_by"))
        for of, side in zip(counters, (row.a, row.b), strict=True)
    ]
    return KernelChange(
        number=place,
        stage=row.stage,
        match=row.match,
        match_label=section("matches")[row.match],
        title=_title(row),
        a=tuple(map(_member, row.a)),
        b=tuple(map(_member, row.b)),
        total=total,
        launch=launch,
        program=known((values[1] - values[0]) / whole) if whole > 0 else None,
        explanation=tuple(_explanation(row, total, launch, seen)),
        counters=seen,
        bound_a=bounds[0],
        bound_b=bounds[1],
        one_off=one_off,
    )


def _first(parts: Sequence[Part]) -> str:
    return parts[0].kernel.kernel_id if parts else ""


def _member(part: Part) -> Member:
    k = part.kernel
    return Member(k.kernel_id, k.short_name, k.name, k.grid, k.block, part.calls, part.total)


def _title(row: Row) -> str:
    names = [list(dict.fromkeys(p.kernel.short_name for p in side)) for side in (row.a, row.b)]
    shown = [_named(side) for side in names if side]
    return " → ".join(dict.fromkeys(shown))


def _named(names: list[str]) -> str:
    first = brief(names[0], WIDTH)
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def _total(row: Row, ratio: Ratio, values: tuple[float, float]) -> Change:
    verdict = ratio.verdict
    if row.match in ("new", "gone"):
        verdict = row.match
    elif row.match in ONE_TO_ONE and row.calls[0] != row.calls[1]:
        # The counts are exact, so this is no noise; fewer launches may take more time in all.
        verdict = "more" if values[1] > values[0] else "less"
    return change("gpu_time", "GPU time", "ns", values, ratio, verdict)


def change(
    key: str, label: str, unit: str, values: tuple[float, float], ratio: Ratio, verdict: str = ""
) -> Change:
    """Return a quantity of both runs as view model; the verdict is that of a time if not given."""
    ends = (known(ratio.low), known(ratio.high)) if ratio.known else (None, None)
    return Change(
        key,
        label,
        unit,
        known(values[0]),
        known(values[1]),
        known(ratio.value),
        *ends,
        verdict or ratio.verdict,
        ratio.basis,
        ratio.floor,
    )


def _launch(row: Row, times: Clocked, total: Ratio, values: tuple[float, float]) -> Change | None:
    """Compare a single launch, where the rows have one kernel a side."""
    if row.match not in ONE_TO_ONE or not min(row.calls):
        return None
    calls_a, calls_b = row.calls
    scale = calls_a / calls_b
    if times.repeated:
        ratio = Ratio(total.value * scale, total.low * scale, total.high * scale, total.basis)
    elif calls_a == calls_b:
        ratio = total
    else:
        found = noise.of_totals(_spreads(row), times.floor)
        ratio = Ratio(
            found.value * scale, found.low * scale, found.high * scale, found.basis, found.floor
        )
    each = (values[0] / calls_a, values[1] / calls_b)
    return change("launch_time", "time of a launch", "ns", each, ratio)


def _counters(row: Row, of_a: Counted, of_b: Counted) -> tuple[CounterChange, ...]:
    """Return the counters of a kernel that both runs profiled."""
    if row.match not in ONE_TO_ONE or len(row.a) != 1 or len(row.b) != 1:
        return ()
    ours, theirs = of_a.get(_first(row.a)), of_b.get(_first(row.b))
    if ours is None or theirs is None:
        return ()
    found = []
    for entry in section("counters"):
        a, b = known(ours[entry["column"]]), known(theirs[entry["column"]])
        if a is not None and b is not None:
            found.append(
                CounterChange(
                    entry["column"],
                    entry["label"],
                    entry["unit"],
                    a,
                    b,
                    known(b / a) if a else None,
                )
            )
    return tuple(found)


def _explanation(
    row: Row, total: Change, launch: Change | None, seen: Sequence[CounterChange]
) -> list[str]:
    told = []
    if row.match in ("fused", "split", "regrouped"):
        told.append(_became(row))
    if launch is not None and row.calls[0] != row.calls[1]:
        told.append(
            f"It runs {counted(row.calls[1], 'time')} instead of {row.calls[0]:,}; a launch "
            f"takes {quantity(launch.a, 'ns')} in A and {quantity(launch.b, 'ns')} in B."
        )
    if (launch or total).verdict in ("faster", "slower") and seen:
        told += _why(row, seen)
    return told


def _became(row: Row) -> str:
    """Say which kernels became which, and what ties them."""
    ours, theirs = (_list(side) for side in (row.a, row.b))
    shared = _operators(row.a) & _operators(row.b)
    if shared and not row.by_place:
        tie = f"both names hold {listed(sorted(shared))}"
    elif shared:
        tie = f"names share {listed(sorted(shared))}, the others ran at the same place"
    else:
        tie = "they ran at the same place of the stage"
    return f"{ours} became {theirs}: {tie}."


def _operators(parts: Sequence[Part]) -> frozenset[str]:
    return frozenset().union(*(operators(p.kernel.short_name, p.kernel.name) for p in parts))


def _list(parts: Sequence[Part]) -> str:
    calls: Counter[str] = Counter()
    for part in parts:
        calls[part.kernel.short_name] += part.calls
    shown = [f"{name} ({counted(n, 'launch')})" for name, n in calls.most_common(4)]
    if len(calls) > 4:
        shown.append(f"{len(calls) - 4} more kernels")
    return listed(shown)


def _why(row: Row, seen: Sequence[CounterChange]) -> list[str]:
    """Say which counters changed most with the time."""
    flops = next((c.ratio for c in seen if c.column == "flops"), None)
    if row.match == "identical" and flops and abs(flops - 1) >= threshold("counter"):
        return ["ncu measured launches that do different work, so counters explain nothing here."]
    changed = [c for c in seen if _worth_a_word(c)]
    if not changed:
        return ["No counter that was read changed with it."]
    changed.sort(key=lambda c: -abs(math.log(c.ratio or 1.0)))
    parts = [
        f"{c.label} {quantity(c.a, c.unit)} → {quantity(c.b, c.unit)} ({speedup(c.ratio)})"
        for c in changed[:MOST_EXPLAINED]
    ]
    return [f"Counters that changed with it: {'; '.join(parts)}."]


def _worth_a_word(counter: CounterChange) -> bool:
    if not counter.ratio or counter.a is None or counter.b is None:
        return False
    least = section("least").get(counter.unit, 0.0)
    return abs(counter.ratio - 1) >= threshold("counter") and abs(counter.b - counter.a) >= least
