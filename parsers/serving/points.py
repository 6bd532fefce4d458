"""Turns records of serving targets into table `serving_points`, one row per measured point.

Latencies are of single requests, of all repeats and processes together; rates are of whole repeats.
Percentiles interpolate linearly between order statistics. What was not measured is empty.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.bench.records import MEASURED
from nsight_prof.parsers.bench.stats import median
from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.serving.engine import engine_facts
from nsight_prof.parsers.serving.records import PointRecord, ServingRecords
from nsight_prof.parsers.tables import check, tables

PERCENTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}
LATENCIES = ("ttft", "tpot", "itl", "e2e")
FINISHED = "ok"
PARAMS = {
    "experiment": str,
    "engine": str,
    "model": str,
    "tensor_parallel": int,
    "batch": int,
    "concurrency": int,
    "request_rate": float,
    "prompt_tokens": int,
    "output_tokens": int,
    "requests_of": str,
    "arrivals": str,
    "too_long": int,
}
"""Parameters of a point that are columns, and what they must be."""

Repeat = tuple[int, int]
"""File of records and repeat of the point."""


def build_points(records: ServingRecords) -> pd.DataFrame:
    """Return table `serving_points`: points of one name are pooled over the files of a step."""
    groups: dict[tuple[str, str, bool | None], list[PointRecord]] = {}
    for point in records.points:
        groups.setdefault((point.source, point.case.case_id, point.traced), []).append(point)
    requests = _by_point(records.of("requests"))
    steps = _by_point(records.of("host_steps"))
    totals = _by_point(records.of("vllm_totals"))
    facts = engine_facts(records)
    rows = []
    for (source, _, traced), points in groups.items():
        case = points[0].case.name
        row = _point(points, _rows_of_point(requests, source, case, traced))
        row |= _steps(row["batch"], _rows_of_point(steps, source, case, traced))
        row |= facts.get((source, case), {})
        row["vllm_output_tokens_per_s"] = _own_rate(_rows_of_point(totals, source, case, traced))
        rows.append(row)
    names = [column.name for column in tables()["serving_points"]]
    return check(pd.DataFrame(rows, columns=names), "serving_points")


def _by_point(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Return rows by step of the run and point; those of a warm-up (repeat 0) are left out."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["case"] is not None and row["repeat"] != 0:
            found.setdefault((row["source"], row["case"]), []).append(row)
    return found


def _rows_of_point(
    rows: dict[tuple[str, str], list[Row]], source: str, case: str, traced: bool | None
) -> list[Row]:
    """Return the rows of a point; a row that does not tell whether it was traced may be any."""
    rows_of_case = rows.get((source, case), [])
    return [row for row in rows_of_case if row.get("traced") in (None, traced) or traced is None]


def _point(points: Sequence[PointRecord], requests: list[Row]) -> Row:
    good = [p for p in points if p.case.status == MEASURED]
    first = (good or list(points))[0]
    bad = dict.fromkeys(p.case.reason for p in points if p.case.status != MEASURED)
    done = [r for r in requests if (r["status"] or FINISHED) == FINISHED]
    row: Row = dict.fromkeys(column.name for column in tables()["serving_points"])
    row |= {
        "source": first.source,
        "case_id": first.case.case_id,
        "case": first.case.name,
        "traced": first.traced,
        "repeats": sum(len(p.case.time.samples) for p in good if p.case.time),
        "requests": len(done),
        "failed_requests": len(requests) - len(done),
        "status": first.case.status,
        "reason": "; ".join(reason for reason in bad if reason),
    }
    row |= {name: _param(first.case.params.get(name), kind) for name, kind in PARAMS.items()}
    if good:
        row |= _rates(_seconds(good), done)
        row |= _latencies(done)
        if row["batch"] is not None:
            row["prefill_s"] = median([_prefill(repeat) for repeat in _repeats(done).values()])
    return row


def _param(value: Any, kind: type) -> Any:
    if value is None or (kind is not str and (isinstance(value, bool | str))):
        return None
    return kind(value)


def _seconds(good: Sequence[PointRecord]) -> dict[Repeat, float]:
    """Return the seconds of each repeat, counted from 1 in each file."""
    return {
        (point.process, number): float(seconds)
        for point in good
        if point.case.time is not None
        for number, seconds in enumerate(point.case.time.samples, start=1)
    }


def _repeats(rows: Iterable[Row]) -> dict[Repeat, list[Row]]:
    """Return rows by file and place of the repeat, from 1, whatever number the target gave it."""
    numbers: dict[int, set[int]] = {}
    rows = list(rows)
    for row in rows:
        numbers.setdefault(row["process"], set()).add(row["repeat"] or 1)
    places = {
        (process, number): index
        for process, found in numbers.items()
        for index, number in enumerate(sorted(found), start=1)
    }
    grouped: dict[Repeat, list[Row]] = {}
    for row in rows:
        process = row["process"]
        grouped.setdefault((process, places[process, row["repeat"] or 1]), []).append(row)
    return grouped


def _rates(seconds: dict[Repeat, float], requests: list[Row]) -> Row:
    """Return duration and rates; the rates need the requests, whose tokens were counted."""
    repeats = _repeats(requests)
    both = [(seconds[key], repeat) for key, repeat in repeats.items() if key in seconds]

    def rate(count: Any) -> float:
        return median([sum(map(count, repeat)) / taken for taken, repeat in both])

    return {
        "duration_s": median(list(seconds.values())),
        "output_tokens_per_s": rate(_number_of("output_tokens")),
        "total_tokens_per_s": rate(
            lambda r: _number_of("prompt_tokens")(r) + _number_of("output_tokens")(r)
        ),
        "requests_per_s": rate(lambda _: 1.0),
    }


def _number_of(name: str) -> Any:
    return lambda row: math.nan if row[name] is None else float(row[name])


def _prefill(requests: list[Row]) -> float:
    """Return the seconds until all requests of a repeat have a first token."""
    firsts = [_number_of("first_token_s")(r) for r in requests]
    starts = [_number_of("arrival_s")(r) for r in requests]
    return max(firsts) - min(starts) if firsts else math.nan


def _latencies(requests: list[Row]) -> Row:
    values = {name: [r[f"{name}_s"] for r in requests] for name in ("ttft", "tpot", "e2e")}
    values["itl"] = [gap for request in requests for gap in token_gaps(request)]
    found: Row = {}
    for name in LATENCIES:
        known = np.array([v for v in values[name] if v is not None and math.isfinite(v)])
        found[f"{name}_mean_s"] = float(known.mean()) if len(known) else math.nan
        shares = [*PERCENTILES.values()]
        values_of = np.percentile(known, shares) if len(known) else [math.nan] * len(shares)
        for label, value in zip(PERCENTILES, values_of, strict=True):
            found[f"{name}_{label}_s"] = float(value)
    return found


def token_gaps(request: Row) -> list[float]:
    """Return the seconds between the tokens of a request; none where their times were not kept."""
    times = request["token_times_s"]
    if not times:
        return []
    gaps = json.loads(times)
    return [later - earlier for earlier, later in zip(gaps, gaps[1:], strict=False)]


def _steps(batch: int | None, steps: list[Row]) -> Row:
    """Return the time of a decode step: one that gave every request of the batch a token.

    The first of them ends the prefill; each further one that follows such a step is pure decode.
    """
    if batch is None:
        return {}
    taken: list[float] = []
    for repeat in _repeats(steps).values():
        ordered = sorted(repeat, key=lambda r: r["index"] or 0)
        pairs = zip(ordered, ordered[1:], strict=False)
        taken += [
            step["seconds"]
            for before, step in pairs
            if before["outputs"] == step["outputs"] == batch and step["seconds"] is not None
        ]
    return {"decode_step_s": median(taken), "decode_steps": len(taken) or None}


def _own_rate(totals: list[Row]) -> float:
    """Return tokens per second by vLLM's own counters, the median of the repeats."""
    complete = [r for r in totals if r["generation_tokens"] is not None and r["seconds"]]
    return median([r["generation_tokens"] / r["seconds"] for r in complete])
