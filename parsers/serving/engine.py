"""What the GPU and the engine did during each point: telemetry in its phase, the engine's counters.

NVML averages power over about a second on recent GPUs and utilization over its own sample period
(documentation of nvmlDeviceGetPowerUsage and nvmlDeviceGetUtilizationRates), so the first second of
a phase still shows what was before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.serving.records import ServingRecords

MEASURE = "measure"
"""Name of the phase in which a point is timed."""
IDLE = "gpu_idle"
SETTLE_S = 1.0
"""Seconds at the start of a phase that NVML's averages reach back into."""

Key = tuple[str, str]
"""Step of the run, and name of the point."""


def engine_facts(records: ServingRecords) -> dict[Key, Row]:
    """Return the columns of `serving_points` that come from telemetry and engine_stats."""
    facts: dict[Key, Row] = {}
    for key, spans in _measured(records.of("phases")).items():
        facts.setdefault(key, {}).update(_telemetry(records.of("telemetry"), key[0], spans))
    for key, row in _stats(records.of("engine_stats")).items():
        facts.setdefault(key, {}).update(row)
    return facts


def _measured(phases: Iterable[Row]) -> dict[Key, list[tuple[int, float, float]]]:
    """Return (file, begin, end) of the phases in which each point was timed."""
    spans: dict[Key, list[tuple[int, float, float]]] = {}
    for phase in phases:
        begin, end = phase["begin_s"], phase["end_s"]
        if phase["name"] == MEASURE and phase["case"] and None not in (begin, end):
            spans.setdefault((phase["source"], phase["case"]), []).append(
                (phase["process"], begin, end)
            )
    return spans


def _telemetry(rows: Iterable[Row], source: str, spans: list[tuple[int, float, float]]) -> Row:
    inside, settled = [], []
    for row in rows:
        at = row["t_s"]
        if row["source"] != source or at is None:
            continue
        for process, begin, end in spans:
            if row["process"] == process and begin <= at <= end:
                inside.append(row)
                if at >= begin + SETTLE_S:
                    settled.append(row)
                break
    reasons = dict.fromkeys(reason for row in inside for reason in held_by(row["throttle"]))
    powers = [_mean(samples, "power_w") for samples in _by_device(settled)]
    return {
        "power_w_mean": sum(powers) if powers else math.nan,
        "gpu_util_pct_mean": _mean(settled, "gpu_util_pct"),
        "sm_clock_hz_mean": _mean(inside, "sm_clock_hz"),
        "temperature_c_max": _maximum(inside, "temperature_c"),
        "memory_used_bytes_max": _maximum(inside, "memory_used_bytes"),
        "throttle_reasons": ", ".join(sorted(reasons)),
    }


def held_by(throttle: str | None) -> list[str]:
    """Return what holds the clocks down by a cell of table telemetry, without an idle GPU."""
    return [reason for reason in (throttle or "").split(", ") if reason not in ("", IDLE)]


def _by_device(rows: Iterable[Row]) -> list[list[Row]]:
    found: dict[int | None, list[Row]] = {}
    for row in rows:
        found.setdefault(row["device"], []).append(row)
    return list(found.values())


def _mean(rows: Iterable[Row], name: str) -> float:
    known = [row[name] for row in rows if row[name] is not None]
    return float(np.mean(known)) if known else math.nan


def _maximum(rows: Iterable[Row], name: str) -> float:
    return max((float(row[name]) for row in rows if row[name] is not None), default=math.nan)


def _stats(rows: Iterable[Row]) -> dict[Key, Row]:
    """Return what the engine said of its queue and cache during each point.

    Preemptions are counted since the engine started: what is new since the record before belongs to
    the point of this one; a smaller number is that of an engine that was started again.
    """
    found: dict[Key, Row] = {}
    before: dict[tuple[str, int], int] = {}
    for row in sorted(rows, key=lambda r: (r["source"], r["process"], r["t_s"] or 0.0)):
        here = (row["source"], row["process"])
        so_far = row["preemptions"]
        new = None
        if so_far is not None:
            last = before.get(here, 0)
            new = so_far - last if so_far >= last else so_far
            before[here] = so_far
        if not row["case"]:
            continue
        fact = found.setdefault((row["source"], row["case"]), _nothing())
        if new is not None:
            fact["preemptions"] = (fact["preemptions"] or 0) + new
        for name, column in _MAXIMA.items():
            if row[name] is not None:
                fact[column] = max(row[name], fact[column] if fact[column] is not None else 0)
    return found


_MAXIMA = {"running": "running_max", "waiting": "waiting_max", "kv_usage": "kv_usage_max"}


def _nothing() -> Row:
    return {"preemptions": None} | dict.fromkeys(_MAXIMA.values())
