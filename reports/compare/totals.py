"""Compares the totals of two runs and those of their stages."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.gpu_times import per_gpu_stages
from nsight_prof.reports.compare import noise, threshold
from nsight_prof.reports.compare.changes import NEUTRAL, Change, StageChange, change
from nsight_prof.reports.compare.kernels import SCALING, Clocked, row_ratio
from nsight_prof.reports.compare.match import Row
from nsight_prof.reports.compare.noise import Ratio
from nsight_prof.reports.compare.oneoff import Split, queued_apart
from nsight_prof.reports.compare.sides import ALL, Side
from nsight_prof.reports.page import Text

Values = Mapping[str, float]
HOST = {
    "wall_time": Text("wall time"),
    "idle_time": Text("GPU idle time"),
    "copy_time": Text("time of copies"),
}
"""Times of a run or stage that depend on the host."""
COUNTS = {"launches": (Text("kernel launches"), ""), "copied_bytes": (Text("copied bytes"), "B")}
"""Counts of a run or stage with their unit."""


def totals(rows: Sequence[Row], times: Clocked, a: Side, b: Side) -> tuple[Change, ...]:
    """Return GPU, wall, idle and copy time, launches and copied bytes of the whole capture."""
    gpu = _gpu_time("total_gpu_time", rows, times, lambda _: True)
    return (*gpu, *_of_host(*([_of_run(run) for run in side.runs] for side in (a, b))))


def steady(rows: Sequence[Row], times: Clocked, split: Split) -> tuple[Change, ...]:
    """Return the time of a step, and the GPU time of all that is no one-off work."""
    found = []
    if split.one_off:
        usual = [row for row in rows if row.stage not in split.names]
        gpu = _gpu_time("steady_gpu_time", usual, times, lambda name: name not in split.names)
        found = [replace(c, label=Text("GPU time without one-off steps")) for c in gpu]
    return (*found, *split.steps)


def stage_changes(
    rows: Sequence[Row], times: Clocked, split: Split, rename: Mapping[str, str]
) -> tuple[StageChange, ...]:
    """Return the stages of both runs, most GPU time first; none where there are no stages.

    Wall and idle time of a stage include its one-off instances: where these are a stage of their
    own, the labels say so.
    """
    torn = {x.stage for x in split.one_off} | split.names
    of_a, of_b = ([_of_stages(run, rename) for run in s.runs] for s in (split.a, split.b))
    gpu_time: dict[str, float] = defaultdict(float)
    for row in rows:
        gpu_time[row.stage] += max(row.total_a, row.total_b)
    found = []
    for name in sorted(filter(None, gpu_time), key=lambda name: -gpu_time[name]):
        of_stage = [row for row in rows if row.stage == name]
        calls = [sum(row.calls[side] for row in of_stage) for side in (0, 1)]
        on = [
            count > 0 or any(name in run for run in side)
            for count, side in zip(calls, (of_a, of_b), strict=True)
        ]
        changes = _of_host(*([run.get(name, {}) for run in side] for side in (of_a, of_b)))
        if name in torn:
            changes = [_with_first(c) for c in changes if c.key != "launches"]
            changes += _count("launches", {"launches": calls[0]}, {"launches": calls[1]})
        gpu = _gpu_time("gpu_time", of_stage, times, name.__eq__)
        which = "both" if all(on) else "a" if on[0] else "b"
        steps = queued_apart(split.a.run, split.b.run, name)
        found.append(StageChange(name, which, (*gpu, *changes, *steps)))
    return tuple(found)


def _with_first(of: Change) -> Change:
    label = Text("{quantity}, first instances included", quantity=of.label)
    return replace(of, label=label) if of.key in HOST else of


def _gpu_time(
    key: str, rows: Sequence[Row], times: Clocked, among: Callable[[str], bool]
) -> list[Change]:
    a, b = sum(row.total_a for row in rows), sum(row.total_b for row in rows)
    if not (a > 0 or b > 0):
        return []
    if times.repeated:
        sums = [
            np.array([sum(t for (name, _), t in run.items() if among(name)) for run in side])
            for side in (times.a, times.b)
        ]
        ratio = noise.of_runs(*sums)
        a, b = map(noise.middle, sums)
    else:
        terms = [(row.total_a, row.total_b, row_ratio(row, times)) for row in rows]
        ratio = noise.of_sums(terms, threshold("floor"))
    verdict = "" if a > 0 and b > 0 else "new" if b > 0 else "gone"
    return [change(key, Text("GPU time"), "ns", (a, b), ratio, verdict)]


def _of_run(run: Run) -> Values:
    stages = per_gpu_stages(run)
    rows = records(stages[stages["stage"] == ALL])
    if not rows and run.kernels.empty:
        return {}
    wall, idle = (number(rows[0][c]) if rows else math.nan for c in ("wall_ns", "idle_ns"))
    return {
        "wall_time": wall,
        "idle_time": idle,
        "copy_time": _copied(run, "total_ns", bool(rows)),
        "launches": number(run.kernels["calls"].sum(min_count=1)),
        "copied_bytes": _copied(run, "bytes", bool(rows)),
    }


def _copied(run: Run, column: str, traced: bool) -> float:
    """Return the sum over copies; 0 where a trace has none, NaN where nobody looked for them."""
    copies, gaps = run.memory_operations, run.gaps
    if copies.empty and traced and not (gaps["table"] == "memory_operations").any():
        return 0.0
    return number(copies[column].sum(min_count=1))


def _of_stages(run: Run, rename: Mapping[str, str]) -> dict[str, Values]:
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    columns = {"wall_time": "wall_ns", "idle_time": "idle_ns", "launches": "launches"}
    stages = per_gpu_stages(run)
    for row in records(stages[stages["stage"] != ALL]):
        name = text(row["stage"])
        for key, column in columns.items():
            found[rename.get(name, name)][key] += number(row[column])
    return {name: dict(values) for name, values in found.items()}


def _of_host(a: Sequence[Values], b: Sequence[Values]) -> list[Change]:
    return [
        *(c for key in HOST for c in _host_time(key, a, b)),
        *(c for key in COUNTS for c in _count(key, a[0], b[0])),
    ]


def _host_time(key: str, a: Sequence[Values], b: Sequence[Values]) -> list[Change]:
    sides = [np.array([run.get(key, math.nan) for run in side]) for side in (a, b)]
    values = float(sides[0][0]), float(sides[1][0])
    if all(map(math.isnan, values)):
        return []
    if len(a) + len(b) > 2:
        ratio = noise.of_runs(*sides)
        values = noise.middle(sides[0]), noise.middle(sides[1])
    else:
        ratio = Ratio(_over(values), floor=threshold("host_floor"))
    verdict = ratio.verdict
    if key != "wall_time":  # less idle time or fewer copies do not make the program faster alone
        verdict = NEUTRAL.get(verdict, verdict)
    return [change(key, HOST[key], "ns", values, ratio, verdict)]


def _count(key: str, a: Values, b: Values) -> list[Change]:
    """Compare a count, which has no noise."""
    values = a.get(key, math.nan), b.get(key, math.nan)
    unknown = list(map(math.isnan, values))
    if all(unknown):
        return []
    verdict = "equal" if values[0] == values[1] else "more" if values[1] > values[0] else "less"
    return [
        change(
            key, *COUNTS[key], values, Ratio(_over(values)), "unknown" if any(unknown) else verdict
        )
    ]


def _over(values: tuple[float, float]) -> float:
    return values[1] / values[0] if values[0] > 0 else math.nan


def with_units(changes: Iterable[Change], unit: str, a: float, b: float) -> tuple[Change, ...]:
    """Add GPU and wall time per unit of work: `a` and `b` units were done."""
    found = list(changes)
    for c in tuple(found):
        if c.key in SCALING and c.a is not None and c.b is not None:
            label = Text("{quantity} per {unit}", quantity=c.label, unit=unit)
            values = (c.a / a, c.b / b)
            found.append(change(f"{c.key}_per_unit", label, c.unit, values, c.noise.times(a / b)))
    return tuple(found)
