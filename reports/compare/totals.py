"""Compares the totals of two runs and those of their stages."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.reports.analysis.gpu_times import per_gpu_stages
from nsight_prof.reports.compare import noise
from nsight_prof.reports.compare.kernels import Clocked, change, row_ratio
from nsight_prof.reports.compare.models import Change, StageChange
from nsight_prof.reports.compare.noise import Ratio
from nsight_prof.reports.compare.oneoff import Apart
from nsight_prof.reports.compare.rows import Row
from nsight_prof.reports.compare.sides import ALL, Side
from nsight_prof.reports.compare.wording import threshold
from nsight_prof.reports.load import Run

Values = Mapping[str, float]
PER_UNIT = ("total_gpu_time", "gpu_time", "wall_time", "steady_gpu_time")
"""What `--per` divides by the units of work."""
HOST = {"wall_time": "wall time", "idle_time": "GPU idle time", "copy_time": "time of copies"}
"""Times of a run or stage that hang on the host: key -> label."""
LAUNCHES = ("launches", "kernel launches", "")


def totals(rows: Sequence[Row], times: Clocked, a: Side, b: Side) -> tuple[Change, ...]:
    """Return GPU, wall, idle and copy time, launches and copied bytes of the whole capture."""
    gpu = _gpu_time("total_gpu_time", rows, times, lambda _: True)
    ours, theirs = ([_whole(run) for run in side.runs] for side in (a, b))
    return tuple(c for c in (gpu, *_host(ours, theirs)) if c is not None)


def steady(rows: Sequence[Row], times: Clocked, apart: Apart) -> tuple[Change, ...]:
    """Return the time of a step, and the GPU time of all that is no one-off work."""
    found = []
    if apart.one_off:
        usual = [row for row in rows if row.stage not in apart.names]
        gpu = _gpu_time("steady_gpu_time", usual, times, lambda name: name not in apart.names)
        found.append(gpu and replace(gpu, label="GPU time without one-off steps"))
    return tuple(c for c in (*found, *apart.steps) if c is not None)


def stage_changes(
    rows: Sequence[Row], times: Clocked, apart: Apart, rename: Mapping[str, str]
) -> tuple[StageChange, ...]:
    """Return the stages of both runs, most GPU time first; none where there are no stages.

    Wall and idle time of a stage hold its one-off instances, too: where they stand in a stage of
    their own, the labels say so.
    """
    a, b = apart.a, apart.b
    torn = {one.stage for one in apart.one_off}
    ours, theirs = ([_stages(run, rename) for run in side.runs] for side in (a, b))
    spent: dict[str, float] = defaultdict(float)
    for row in rows:
        spent[row.stage] += max(row.total_a, row.total_b)
    named = sorted((name for name in spent if name), key=lambda name: -spent[name])
    found = []
    for name in named:
        mine = [row for row in rows if row.stage == name]
        calls = [sum(row.calls[side] for row in mine) for side in (0, 1)]
        on = [
            count > 0 or any(name in run for run in side)
            for count, side in zip(calls, (ours, theirs), strict=True)
        ]
        gpu = _gpu_time("gpu_time", mine, times, partial(str.__eq__, name))
        host = _host(*([run.get(name, {}) for run in side] for side in (ours, theirs)))
        changes = [c for c in (gpu, *host) if c is not None]
        if name in torn | apart.names:
            changes = [_torn(c) for c in changes if c.key != "launches"]
            ours_, theirs_ = ({"launches": float(n)} for n in calls)
            changes += [c for c in (_number(*LAUNCHES, ours_, theirs_),) if c is not None]
        which = "both" if all(on) else "a" if on[0] else "b"
        found.append(StageChange(name, which, tuple(changes)))
    return tuple(found)


def _torn(of: Change) -> Change:
    return replace(of, label=f"{of.label}, first ones too") if of.key in HOST else of


def _gpu_time(
    key: str, rows: Sequence[Row], times: Clocked, among: Callable[[str], bool]
) -> Change | None:
    a, b = sum(row.total_a for row in rows), sum(row.total_b for row in rows)
    if not (a > 0 or b > 0):
        return None
    if times.repeated:
        sums = [np.array([_sum(run, among) for run in side]) for side in (times.a, times.b)]
        ratio = noise.of_runs(*sums)
        a, b = map(noise.middle, sums)
    else:
        parts = [(row.total_a, row.total_b, row_ratio(row, times)) for row in rows]
        ratio = noise.of_sums(parts, threshold("floor"))
    verdict = "" if a > 0 and b > 0 else "new" if b > 0 else "gone"
    return change(key, "GPU time of kernels", "ns", (a, b), ratio, verdict)


def _sum(run: Mapping[tuple[str, str], float], among: Callable[[str], bool]) -> float:
    return sum(time for (name, _), time in run.items() if among(name))


def _whole(run: Run) -> Values:
    stages = per_gpu_stages(run)
    rows = records(stages[stages["stage"] == ALL])
    wall, idle = (number(rows[0][c]) if rows else math.nan for c in ("wall_ns", "idle_ns"))
    return (
        {
            "wall_time": wall,
            "idle_time": idle,
            "copy_time": _copied(run, "total_ns", bool(rows)),
            "launches": number(run.kernels["calls"].sum(min_count=1)),
            "copied_bytes": _copied(run, "bytes", bool(rows)),
        }
        if rows or not run.kernels.empty
        else {}
    )


def _copied(run: Run, column: str, traced: bool) -> float:
    """Return the sum over copies; 0 where a trace has none, NaN where nobody looked for them."""
    copies, gaps = run.memory_operations, run.gaps
    if copies.empty and traced and not (gaps["table"] == "memory_operations").any():
        return 0.0
    return number(copies[column].sum(min_count=1))


def _stages(run: Run, rename: Mapping[str, str]) -> dict[str, Values]:
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    columns = {"wall_time": "wall_ns", "idle_time": "idle_ns", "launches": "launches"}
    stages = per_gpu_stages(run)
    for row in records(stages[stages["stage"] != ALL]):
        name = text(row["stage"])
        for key, column in columns.items():
            found[rename.get(name, name)][key] += number(row[column])
    return {name: dict(values) for name, values in found.items()}


def _host(ours: Sequence[Values], theirs: Sequence[Values]) -> list[Change | None]:
    found = [_host_time(key, label, ours, theirs) for key, label in HOST.items()]
    found.append(_number(*LAUNCHES, ours[0], theirs[0]))
    found.append(_number("copied_bytes", "copied bytes", "B", ours[0], theirs[0]))
    return found


def _host_time(
    key: str, label: str, ours: Sequence[Values], theirs: Sequence[Values]
) -> Change | None:
    sides = [np.array([run.get(key, math.nan) for run in side]) for side in (ours, theirs)]
    a, b = float(sides[0][0]), float(sides[1][0])
    if math.isnan(a) and math.isnan(b):
        return None
    if len(sides[0]) + len(sides[1]) > 2:
        ratio = noise.of_runs(*sides)
        a, b = map(noise.middle, sides)
    else:
        ratio = Ratio(b / a if a > 0 else math.nan, floor=threshold("host_floor"))
    verdict = ratio.verdict
    if key != "wall_time":  # less idle time or fewer copies do not make the program faster alone
        verdict = {"faster": "less", "slower": "more"}.get(verdict, verdict)
    return change(key, label, "ns", (a, b), ratio, verdict)


def _number(key: str, label: str, unit: str, ours: Values, theirs: Values) -> Change | None:
    """Compare a count, which has no noise."""
    a, b = ours.get(key, math.nan), theirs.get(key, math.nan)
    if math.isnan(a) and math.isnan(b):
        return None
    known = not (math.isnan(a) or math.isnan(b))
    verdict = ("equal" if a == b else "more" if b > a else "less") if known else "unknown"
    return change(key, label, unit, (a, b), Ratio(b / a if a > 0 else math.nan), verdict)


def with_units(changes: tuple[Change, ...], unit: str, a: float, b: float) -> tuple[Change, ...]:
    """Add GPU and wall time per unit of work: `a` and `b` units were done."""
    found = list(changes)
    for change_ in changes:
        if change_.key not in PER_UNIT or change_.a is None or change_.b is None:
            continue
        scale = a / b
        ends = [
            None if v is None else v * scale for v in (change_.ratio, change_.low, change_.high)
        ]
        value, low, high = (math.nan if end is None else end for end in ends)
        ratio = Ratio(value, low, high, change_.basis, change_.floor)
        values = (change_.a / a, change_.b / b)
        key, label = f"{change_.key}_per_unit", f"{change_.label} per {unit}"
        found.append(change(key, label, change_.unit, values, ratio))
    return tuple(found)
