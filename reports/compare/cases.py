"""Compares the measured cases of two benchmark runs, and their serving points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.reports.compare import noise
from nsight_prof.reports.compare.kernels import change
from nsight_prof.reports.compare.models import Change, PointChange
from nsight_prof.reports.compare.noise import Ratio
from nsight_prof.reports.compare.sides import Side
from nsight_prof.reports.compare.wording import section, threshold
from nsight_prof.reports.load import Run

OK = "ok"
OPPOSITE = {"faster": "slower", "slower": "faster"}


def case_changes(a: Side, b: Side, floor: float) -> tuple[Change, ...]:
    """Return every case of either side: time of a call in s; the largest change first.

    Noise: medians of fresh processes and of repeats of the recipe or run where both sides have two;
    else the 95 % intervals of the medians that the runs themselves give. `floor`: the least
    relative difference that is one where each side is a single run. Cases that are serving points
    are left out: their time is how long the load was offered.
    """
    ours, theirs = _cases(a.run), _cases(b.run)
    medians = _medians(a), _medians(b)
    found = [
        _case(
            key, ours.get(key), theirs.get(key), (medians[0].get(key), medians[1].get(key)), floor
        )
        for key in dict.fromkeys([*ours, *theirs])
    ]
    return tuple(sorted(found, key=lambda c: -abs(math.log(c.ratio)) if c.ratio else math.inf))


def geometric_mean(cases: Sequence[Change]) -> Change | None:
    """Return the geometric mean of the ratios of all cases that both runs measured.

    A case without an interval of its own is as sure as single runs are; of such cases alone the
    mean has none either.
    """
    both = [(math.log(c.ratio), _half(c), c.floor) for c in cases if c.ratio]
    if not both:
        return None
    logs, halves, floors = zip(*both, strict=True)
    middle, floor = float(np.mean(logs)), max(floors)
    ratio = Ratio(math.exp(middle), floor=floor)
    if any(half is not None for half in halves):
        squares = sum((threshold("single") if h is None else h) ** 2 for h in halves)
        half = math.sqrt(squares) / len(both)
        ends = math.exp(middle - half), math.exp(middle + half)
        ratio = Ratio(math.exp(middle), *ends, f"{len(both)} cases", floor)
    return change("cases", "geometric mean of all cases", "", (math.nan, math.nan), ratio)


def _half(case: Change) -> float | None:
    """Return half the width of the interval of a ratio's logarithm; None where it has none."""
    return math.log(case.high / case.low) / 2 if case.low and case.high else None


def _cases(run: Run) -> dict[str, Row]:
    points = set(run.serving_points["case_id"].dropna())
    return {text(row["case_id"]): row for row in records(run.bench) if row["case_id"] not in points}


def timed_cases(run: Run) -> dict[str, Row]:
    """Return the cases of a benchmark that have a time, rows of table `bench` by their id."""
    return {key: row for key, row in _cases(run).items() if text(row["status"]) == OK}


def _medians(side: Side) -> dict[str, noise.Values]:
    """Return for each case its median in every process of every run, in s."""
    frames = [run.bench_runs[["case_id", "median_s"]] for run in side.runs]
    frame = pd.concat(frames).dropna()
    return {str(key): part["median_s"].to_numpy(float) for key, part in frame.groupby("case_id")}


def _case(
    key: str,
    a: Row | None,
    b: Row | None,
    medians: tuple[noise.Values | None, noise.Values | None],
    floor: float,
) -> Change:
    label = text((a or b or {}).get("name")) or key
    values = tuple(
        number(row["median_s"]) if row and text(row["status"]) == OK else math.nan for row in (a, b)
    )
    missing = [math.isnan(value) for value in values]
    if any(missing):
        verdict = "missing" if all(missing) else "new" if missing[0] else "gone"
        return change(key, label, "s", (values[0], values[1]), noise.UNKNOWN, verdict)
    ratio = _ratio(a or {}, b or {}, (values[0], values[1]), medians, floor)
    return change(key, label, "s", (values[0], values[1]), ratio)


def _ratio(
    a: Row,
    b: Row,
    values: tuple[float, float],
    medians: tuple[noise.Values | None, noise.Values | None],
    floor: float,
) -> Ratio:
    ours, theirs = medians
    if ours is not None and theirs is not None and min(len(ours), len(theirs)) > 1:
        found = noise.of_runs(ours, theirs)
        basis = f"{len(ours)} and {len(theirs)} processes"
        return Ratio(found.value, found.low, found.high, basis, floor)
    ends = [
        (v, number(r["ci_low_s"]), number(r["ci_high_s"]))
        for v, r in zip(values, (a, b), strict=True)
    ]
    return noise.of_intervals(ends[0], ends[1], "samples", floor)


def point_changes(a: Side, b: Side) -> tuple[PointChange, ...]:
    """Return the serving points that both sides have, with their rates and latencies.

    Noise: the runs of a side where there are several; else the repeats of a point within one run,
    which share a process and a host, so that small differences are noise all the same.
    """
    ours, theirs = (tuple(_points(run) for run in side.runs) for side in (a, b))
    repeats = _repeats(a.run), _repeats(b.run)
    found = []
    for key in (key for key in ours[0] if key in theirs[0]):
        runs = [[points[key] for points in side if key in points] for side in (ours, theirs)]
        of_point = repeats[0].get(key, {}), repeats[1].get(key, {})
        changes = [_metric(entry, runs[0], runs[1], of_point) for entry in section("serving")]
        found.append(PointChange(*key, tuple(c for c in changes if c is not None)))
    return tuple(found)


def _points(run: Run) -> dict[tuple[str, str], Row]:
    """Return points that were measured without a profiler or predicted, by source and name."""
    found: dict[tuple[str, str], Row] = {}
    for row in records(run.serving_points):
        if text(row["status"]) == OK and text(row["source"]) in ("bench", "untraced"):
            found.setdefault((text(row["source"]), text(row["case"])), row)
    for row in records(run.predicted_points):
        if text(row["status"]) == OK:
            found.setdefault(("predicted", text(row["case"])), row)
    return found


Repeats = dict[tuple[str, str], dict[str, noise.Values]]


def _repeats(run: Run) -> Repeats:
    """Return the medians of each repeat of a point, metric by metric."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    if run.requests.empty:
        return {}
    grouped = run.requests.groupby(["source", "process", "case", "repeat"], dropna=False)
    for key, part in grouped:
        of = found.setdefault((str(key[0]), str(key[2])), {})
        for name, value in _of_repeat(part).items():
            of.setdefault(name, []).append(value)
    return {
        key: {name: np.array(values) for name, values in of.items()} for key, of in found.items()
    }


def _of_repeat(part: pd.DataFrame) -> dict[str, float]:
    values = {name: number(part[name].median()) for name in ("ttft_s", "tpot_s", "e2e_s")}
    lasted = number(part["finish_s"].max()) - number(part["arrival_s"].min())
    if lasted > 0:
        values["output_tokens_per_s"] = number(part["output_tokens"].sum()) / lasted
    return {name: value for name, value in values.items() if value > 0}


def _metric(
    entry: Mapping[str, Any],
    a: Sequence[Row],
    b: Sequence[Row],
    repeats: tuple[dict[str, noise.Values], dict[str, noise.Values]],
) -> Change | None:
    column = str(entry["column"])
    runs = [np.array([number(row[column]) for row in side]) for side in (a, b)]
    x, y = (noise.middle(side) for side in runs)
    if not (x > 0 and y > 0):
        return None
    if len(a) + len(b) > 2:
        ratio = noise.of_runs(*runs)
    else:
        ratio = _of_repeats(x, y, *(of.get(str(entry.get("of", column))) for of in repeats))
    verdict = ratio.verdict
    if entry["better"] == "higher":
        verdict = OPPOSITE.get(verdict, verdict)
    return change(column, str(entry["label"]), str(entry["unit"]), (x, y), ratio, verdict)


def _of_repeats(x: float, y: float, a: noise.Values | None, b: noise.Values | None) -> Ratio:
    """Return y over x with the spread of repeats; x and y are what the table says of them."""
    floor = threshold("host_floor")
    if a is None or b is None or min(len(a), len(b)) < 2:
        return Ratio(y / x, floor=floor)
    found = noise.of_runs(a, b)
    scale = y / x / found.value
    basis = f"{len(a)} and {len(b)} repeats"
    return Ratio(y / x, found.low * scale, found.high * scale, basis, floor)
