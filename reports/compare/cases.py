"""Compares the measured cases of two benchmark runs, and their serving points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.compare import noise, threshold
from nsight_prof.reports.compare.changes import Change, PointChange, change
from nsight_prof.reports.compare.noise import Ratio
from nsight_prof.reports.compare.sides import Side
from nsight_prof.reports.page import Text

OK = "ok"
OPPOSITE = {"faster": "slower", "slower": "faster"}


class Metric(NamedTuple):
    """A column of table `serving_points`; `of_request`: of `requests`, for its noise."""

    column: str
    label: Text
    unit: str = "s"
    of_request: str = ""
    higher_is_better: bool = False


SERVING = (
    Metric("output_tokens_per_s", Text("output rate"), "tokens/s", "output_tokens_per_s", True),
    Metric("ttft_p50_s", Text("time to first token"), of_request="ttft_s"),
    Metric("tpot_p50_s", Text("time per output token"), of_request="tpot_s"),
    Metric("e2e_p50_s", Text("request latency"), of_request="e2e_s"),
    Metric("decode_step_s", Text("decode step")),
)


def case_changes(a: Side, b: Side, floor: float) -> tuple[Change, ...]:
    """Return every case of either side: time per call in s; the largest change first.

    Noise: medians of fresh processes and of repeats of the recipe or run where both sides have two;
    else the 95 % intervals of the medians that the runs themselves give. `floor`: the smallest
    relative difference that counts where each side is a single run. Cases that are serving points
    are left out: their time is how long the load was offered.
    """
    cases, medians = (_cases(a.run), _cases(b.run)), (_medians(a), _medians(b))
    found = [
        _case(key, cases[0].get(key), cases[1].get(key), [of.get(key) for of in medians], floor)
        for key in dict.fromkeys([*cases[0], *cases[1]])
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
        ratio = Ratio(math.exp(middle), *ends, Text("{n} cases", n=len(both)), floor)
    return change("cases", Text("geometric mean of all cases"), "", (math.nan, math.nan), ratio)


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
    by_case = pd.concat(frames).dropna().groupby("case_id")["median_s"]
    return {str(key): medians.to_numpy(float) for key, medians in by_case}


def _case(
    key: str, a: Row | None, b: Row | None, medians: Sequence[noise.Values | None], floor: float
) -> Change:
    label = text((a or b or {}).get("name")) or key
    values = _median(a), _median(b)
    missing = [math.isnan(value) for value in values]
    if any(missing):
        verdict = "missing" if all(missing) else "new" if missing[0] else "gone"
        return change(key, label, "s", values, noise.UNKNOWN, verdict)
    of_a, of_b = medians
    if of_a is not None and of_b is not None and min(len(of_a), len(of_b)) > 1:
        basis = Text("{a} and {b} processes", a=len(of_a), b=len(of_b))
        ratio = replace(noise.of_runs(of_a, of_b), basis=basis, floor=floor)
    else:
        x, y = (
            (value, number(row["ci_low_s"]), number(row["ci_high_s"]))
            for value, row in zip(values, (a or {}, b or {}), strict=True)
        )
        ratio = noise.of_intervals(x, y, Text("samples"), floor)
    return change(key, label, "s", values, ratio)


def _median(row: Row | None) -> float:
    return number(row["median_s"]) if row and text(row["status"]) == OK else math.nan


def point_changes(a: Side, b: Side) -> tuple[PointChange, ...]:
    """Return the serving points that both sides have, with their rates and latencies.

    Noise: the runs of a side where there are several; else the repeats of a point within one run,
    which share a process and a host, so that small differences are noise all the same.
    """
    of_a, of_b = (tuple(_points(run) for run in side.runs) for side in (a, b))
    repeats = _repeats(a.run), _repeats(b.run)
    found = []
    for key in (key for key in of_a[0] if key in of_b[0]):
        runs = [[points[key] for points in side if key in points] for side in (of_a, of_b)]
        of_point = repeats[0].get(key, {}), repeats[1].get(key, {})
        changes = [_metric(metric, runs[0], runs[1], of_point) for metric in SERVING]
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


Repeats = dict[str, list[float]]


def _repeats(run: Run) -> dict[tuple[str, str], Repeats]:
    """Return the medians of each repeat of a point, metric by metric."""
    found: dict[tuple[str, str], Repeats] = {}
    if run.requests.empty:
        return {}
    grouped = run.requests.groupby(["source", "process", "case", "repeat"], dropna=False)
    for key, requests in grouped:
        of_point = found.setdefault((str(key[0]), str(key[2])), {})
        values = {name: number(requests[name].median()) for name in ("ttft_s", "tpot_s", "e2e_s")}
        lasted = number(requests["finish_s"].max()) - number(requests["arrival_s"].min())
        if lasted > 0:
            values["output_tokens_per_s"] = number(requests["output_tokens"].sum()) / lasted
        for name, value in values.items():
            if value > 0:
                of_point.setdefault(name, []).append(value)
    return found


def _metric(
    metric: Metric, a: Sequence[Row], b: Sequence[Row], repeats: tuple[Repeats, Repeats]
) -> Change | None:
    runs = [np.array([number(row[metric.column]) for row in side]) for side in (a, b)]
    x, y = (noise.middle(side) for side in runs)
    if not (x > 0 and y > 0):
        return None
    if len(a) + len(b) > 2:
        ratio = noise.of_runs(*runs)
    else:
        ratio = _of_repeats(x, y, *(np.array(of.get(metric.of_request, ())) for of in repeats))
    verdict = ratio.verdict
    if metric.higher_is_better:
        verdict = OPPOSITE.get(verdict, verdict)
    return change(metric.column, metric.label, metric.unit, (x, y), ratio, verdict)


def _of_repeats(x: float, y: float, a: noise.Values, b: noise.Values) -> Ratio:
    """Return y over x with the spread of repeats; x and y are the values of the table."""
    floor = threshold("host_floor")
    if min(len(a), len(b)) < 2:
        return Ratio(y / x, floor=floor)
    found = noise.of_runs(a, b)
    scaled = found.times(y / x / found.value)
    basis = Text("{a} and {b} repeats", a=len(a), b=len(b))
    return replace(scaled, value=y / x, basis=basis, floor=floor)
