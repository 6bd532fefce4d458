"""Compares the measured cases of two benchmark runs, and their serving points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.cells import Row, number, records, text
from reports.compare import noise
from reports.compare.kernels import change
from reports.compare.models import Change, PointChange
from reports.compare.noise import Ratio
from reports.compare.sides import Side
from reports.compare.wording import section, threshold
from reports.load import Run

OK = "ok"
OPPOSITE = {"faster": "slower", "slower": "faster"}


def case_changes(a: Side, b: Side) -> tuple[Change, ...]:
    """Return every case of either side: time of a call in s; the largest change first.

    Noise: medians of fresh processes and of repeats of the recipe or run where both sides have two;
    else the 95 % intervals of the medians that the runs themselves give.
    """
    ours, theirs = _cases(a.run), _cases(b.run)
    medians = _medians(a), _medians(b)
    found = [
        _case(key, ours.get(key), theirs.get(key), (medians[0].get(key), medians[1].get(key)))
        for key in dict.fromkeys([*ours, *theirs])
    ]
    return tuple(sorted(found, key=lambda c: -abs(math.log(c.ratio)) if c.ratio else math.inf))


def geometric_mean(cases: Sequence[Change]) -> Change | None:
    """Return the geometric mean of the ratios of all cases that both runs measured."""
    logs = [math.log(c.ratio) for c in cases if c.ratio]
    if not logs:
        return None
    halves = [math.log(c.high / c.low) / 2 for c in cases if c.ratio and c.low and c.high]
    middle = float(np.mean(logs))
    half = math.sqrt(sum(h * h for h in halves)) / len(logs)
    ratio = Ratio(
        math.exp(middle),
        math.exp(middle - half),
        math.exp(middle + half),
        f"{len(logs)} cases",
        min(c.floor for c in cases if c.ratio),
    )
    return change("cases", "geometric mean of all cases", "", (math.nan, math.nan), ratio)


def _cases(run: Run) -> dict[str, Row]:
    return {text(row["case_id"]): row for row in records(run.bench)}


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
) -> Change:
    label = text((a or b or {}).get("name")) or key
    values = tuple(
        number(row["median_s"]) if row and text(row["status"]) == OK else math.nan for row in (a, b)
    )
    missing = [math.isnan(value) for value in values]
    if any(missing):
        verdict = "missing" if all(missing) else "new" if missing[0] else "gone"
        return change(key, label, "s", (values[0], values[1]), noise.UNKNOWN, verdict)
    ratio = _ratio(a or {}, b or {}, (values[0], values[1]), medians)
    return change(key, label, "s", (values[0], values[1]), ratio)


def _ratio(
    a: Row,
    b: Row,
    values: tuple[float, float],
    medians: tuple[noise.Values | None, noise.Values | None],
) -> Ratio:
    ours, theirs = medians
    if ours is not None and theirs is not None and min(len(ours), len(theirs)) > 1:
        found = noise.of_runs(ours, theirs)
        basis = f"{len(ours)} and {len(theirs)} processes"
        return Ratio(found.value, found.low, found.high, basis)
    ends = [
        (v, number(r["ci_low_s"]), number(r["ci_high_s"]))
        for v, r in zip(values, (a, b), strict=True)
    ]
    return noise.of_intervals(ends[0], ends[1], "samples", threshold("floor"))


def point_changes(a: Side, b: Side) -> tuple[PointChange, ...]:
    """Return the serving points that both sides have, with their rates and latencies.

    Noise: medians of each repeat of a point, over all runs of a side.
    """
    ours, theirs = _points(a.run), _points(b.run)
    repeats = _repeats(a), _repeats(b)
    found = []
    for key in ours.keys() & theirs.keys():
        changes = [
            _metric(entry, ours[key], theirs[key], (repeats[0].get(key), repeats[1].get(key)))
            for entry in section("serving")
        ]
        known = tuple(c for c in changes if c is not None)
        found.append(PointChange(*key, known))
    return tuple(sorted(found, key=lambda p: list(ours).index((p.source, p.case))))


def _points(run: Run) -> dict[tuple[str, str], Row]:
    """Return the points that were measured without a profiler, by source and name."""
    found: dict[tuple[str, str], Row] = {}
    for row in records(run.serving_points):
        if text(row["status"]) == OK and text(row["source"]) in ("bench", "untraced"):
            found.setdefault((text(row["source"]), text(row["case"])), row)
    return found


Repeats = dict[tuple[str, str], dict[str, noise.Values]]


def _repeats(side: Side) -> Repeats:
    """Return the medians of each repeat of a point, metric by metric."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for run in side.runs:
        frame = run.requests
        if frame.empty:
            continue
        for key, part in frame.groupby(["source", "process", "case", "repeat"], dropna=False):
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
    a: Row,
    b: Row,
    repeats: tuple[dict[str, noise.Values] | None, dict[str, noise.Values] | None],
) -> Change | None:
    column = str(entry["column"])
    x, y = number(a[column]), number(b[column])
    if not (x > 0 and y > 0):
        return None
    name = str(entry.get("of", column))
    ours, theirs = ((of or {}).get(name) for of in repeats)
    ratio = Ratio(y / x, floor=threshold("host_floor"))
    if ours is not None and theirs is not None and min(len(ours), len(theirs)) > 1:
        found = noise.of_runs(ours, theirs)
        # The table's median over repeats or requests is what readers know; the spread is the same.
        scale = ratio.value / found.value
        basis = f"{len(ours)} and {len(theirs)} repeats"
        ratio = Ratio(ratio.value, found.low * scale, found.high * scale, basis)
    verdict = ratio.verdict
    if entry["better"] == "higher":
        verdict = OPPOSITE.get(verdict, verdict)
    return change(column, str(entry["label"]), str(entry["unit"]), (x, y), ratio, verdict)
