"""Turns records of fresh processes into the tables `bench` (one row per case) and `bench_runs`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.bench.records import COUNTED, MEASURED, BenchRecords, CaseRecord, Timing
from nsight_prof.parsers.bench.stats import (
    known_median,
    largest,
    median,
    median_interval,
    pooled_interval,
    spread,
)
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.parsers.run.sentences import joined, stored
from nsight_prof.parsers.tables import check, tables

_FILE = re.compile(r"^result-(\d+)-(\d+)\.jsonl(?:\.xz)?$")
GPU_FACTS = ("name", "uuid", "max_sm_clock_hz", "max_memory_clock_hz", "power_limit_w")
SOFTWARE = ("driver", "cuda", "cudnn", "torch", "triton")

Row = dict[str, Any]


@dataclass(frozen=True)
class BenchTables:
    """The tables `bench` and `bench_runs`, and what to say in `gaps` about `bench`."""

    bench: pd.DataFrame
    bench_runs: pd.DataFrame
    problems: tuple[str, ...]


def bench_files(run: RunDir) -> list[Path]:
    """Return `result-<repeat>-<process>.jsonl` (or .xz) of the step `bench`, in their order."""
    record = read_manifest(run).step("bench")
    if record is None or not record.directory or not run.step(record).is_dir():
        return []
    found: dict[tuple[int, int], Path] = {}
    for path in sorted(run.step(record).iterdir(), key=lambda path: len(path.name)):
        if match := _FILE.match(path.name):
            found.setdefault((int(match[1]), int(match[2])), run.inside(path))
    return [found[key] for key in sorted(found)]


def build_bench(
    measured: BenchRecords,
    counted: BenchRecords | None = None,
    counters: pd.DataFrame | None = None,
) -> BenchTables:
    """Pool `measured` over processes and repeats.

    `counted`: records of the counting run, which add the cases that were not measured. `counters`:
    index case_id, the columns of `bench` that come from counters. Columns about roofs stay empty
    (see bench_fractions). A case that some process measured is `ok`; `reason` says which did not.
    """
    by_case: dict[str, list[CaseRecord]] = {}
    for record in [*measured.cases, *(counted.cases if counted else ())]:
        by_case.setdefault(record.case_id, []).append(record)
    expected = {(c.repeat, c.process) for c in measured.cases}
    sms = sm_count([*measured.conditions, *(counted.conditions if counted else ())])
    measured_ids = set(map(id, measured.cases))
    rows, runs = [], []
    for case_id, records in by_case.items():
        used = [r for r in records if id(r) in measured_ids]
        rows.append(_case(case_id, used or records, expected, sms))
        runs += [_run(record, record.time) for record in used if record.time is not None]
    bench = pd.DataFrame(rows, columns=_names("bench"))
    if counters is not None and len(bench):
        found = counters.reindex(bench["case_id"]).reset_index(drop=True)
        bench = bench.assign(**{str(name): found[name] for name in found})
    return BenchTables(
        check(bench, "bench"),
        check(pd.DataFrame(runs, columns=_names("bench_runs")), "bench_runs"),
        (*measured.problems, *differing_conditions(measured.conditions)),
    )


def sm_count(conditions: Sequence[Mapping[str, Any]]) -> float:
    """Return the SMs of the GPU; NaN where no process knew them."""
    counts = [c["gpu"].get("sm_count") for c in conditions]
    return next((float(count) for count in counts if count), math.nan)


def on_cpu(conditions: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether the cases ran on a CPU."""
    return any(c.get("device") == "cpu" for c in conditions)


def differing_conditions(conditions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say which conditions were not the same in all processes: their times are not of one thing."""
    facts: list[tuple[tuple[str, ...], str]] = [(("device",), "device"), (("seed",), "seed")]
    facts += [(("gpu", key), f"GPU {key}") for key in GPU_FACTS]
    facts += [(("software", key), key) for key in SOFTWARE]
    found = []
    for keys, label in facts:
        first_values: dict[str, str] = {}
        for condition in conditions:
            value: Any = condition
            for key in keys:
                value = value.get(key)
            if value is not None:
                first_values.setdefault(str(value), f"process {condition['process']}")
        if len(first_values) > 1:
            words = ", ".join(f"{value} ({where})" for value, where in first_values.items())
            found.append(
                stored(
                    "{label} is not the same in all processes: {words}", label=label, words=words
                )
            )
    return found


def _case(
    case_id: str, records: Sequence[CaseRecord], expected: set[tuple[int, int]], sms: float
) -> Row:
    good = [r for r in records if r.time is not None]
    status, reason = _status(records, good, expected)
    first = (good or list(records))[0]
    row: Row = dict.fromkeys(_names("bench")) | {
        "case_id": case_id,
        "params": json.dumps(dict(first.params), sort_keys=True, ensure_ascii=False),
        "status": status,
        "reason": reason,
        "roof": str(first.roof) if first.roof else "",
    }
    for name in ("target", "name", "operation", "mode", "data", "dtype", "level", "launch"):
        row[name] = getattr(first, name)
    for name in ("duration", "flops", "bytes", "accesses", "launches"):
        row[name] = getattr(first, name)
    if good:
        row |= _pooled(good)
        row |= _rates(row, sms)
    return row


def _status(
    records: Sequence[CaseRecord], good: Sequence[CaseRecord], expected: set[tuple[int, int]]
) -> tuple[str, str]:
    bad = [r for r in records if r.time is None]
    if not good:
        reasons = dict.fromkeys(r.reason for r in bad if r.reason)
        worst = [r.status for r in bad if r.status != COUNTED] or [COUNTED]
        return worst[0], joined("; ", reasons)
    reasons = dict.fromkeys(f"{_where(r)}: {r.status}, {r.reason}".rstrip(", ") for r in bad)
    missing = expected - {(r.repeat, r.process) for r in records}
    several = len({repeat for repeat, _ in expected}) > 1
    for repeat, process in sorted(missing):
        words = stored("process {process} has no record of it", process=process)
        if several:
            words = stored(
                "process {process} of repeat {repeat} has no record of it",
                process=process,
                repeat=repeat,
            )
        reasons[words] = None
    return MEASURED, joined("; ", reasons)


def _where(record: CaseRecord) -> str:
    of = f" of repeat {record.repeat}" if record.repeat > 1 else ""
    return f"process {record.process}{of}"


def _pooled(good: Sequence[CaseRecord]) -> Row:
    times = [r.time for r in good if r.time is not None]
    samples = [time.samples for time in times]
    pooled = np.concatenate(samples)
    p5, q1, q3, p95 = np.percentile(pooled, [5, 25, 75, 95])
    low, high = pooled_interval(samples)
    known = [r.throttled_samples for r in good if r.throttled_samples is not None]
    reasons = sorted({reason for r in good for reason in r.throttle_reasons})
    clock = median([r.clock_hz for r in good])
    return {
        "median_s": known_median(pooled),
        "mean_s": pooled.mean(),
        "std_s": pooled.std(ddof=1) if len(pooled) > 1 else math.nan,
        "min_s": pooled.min(),
        "max_s": pooled.max(),
        "p5_s": p5,
        "p95_s": p95,
        "iqr_s": q3 - q1,
        "ci_low_s": low,
        "ci_high_s": high,
        "n": len(pooled),
        "processes": len(good),
        "repeats": len({r.repeat for r in good}),
        "outliers": sum(time.outliers for time in times),
        "relative_std": median([time.relative_std for time in times]),
        "process_spread": spread([time.median_s for time in times]),
        "captured": all(time.captured for time in times),
        "copies": times[0].copies,
        "clock_hz": clock,
        "throttled_samples": sum(known) if known else None,
        "throttle_reasons": ", ".join(reasons),
        "power_w": median([r.power_w for r in good]),
        "energy_j": median([r.energy_j for r in good]),
        "temperature_c": largest([r.temperature_c for r in good]),
        "peak_allocated_bytes": largest([r.allocated_bytes for r in good]),
        "peak_reserved_bytes": largest([r.reserved_bytes for r in good]),
    }


def _rates(row: Row, sms: float) -> Row:
    """Rates of the median time; NaN where work, clock or SMs are unknown."""
    seconds, clock = row["median_s"], row["clock_hz"]
    per_clock: Callable[[float], float] = lambda rate: rate / clock / sms  # noqa: E731
    flop_rate, byte_rate = row["flops"] / seconds, row["bytes"] / seconds
    latency = seconds / row["accesses"] if row["accesses"] else math.nan
    return {
        "flop_per_s": flop_rate,
        "bytes_per_s": byte_rate,
        "flop_per_clock_sm": per_clock(flop_rate),
        "bytes_per_clock_sm": per_clock(byte_rate),
        "latency_s": latency,
        "latency_cycles": latency * clock,
    }


def _run(record: CaseRecord, time: Timing) -> Row:
    low, high = time.ci_low_s, time.ci_high_s
    if math.isnan(low) or math.isnan(high):
        low, high = median_interval(time.samples)
    return {
        "case_id": record.case_id,
        "repeat": record.repeat,
        "process": record.process,
        "median_s": time.median_s,
        "ci_low_s": low,
        "ci_high_s": high,
        "n": len(time.samples),
        "relative_std": time.relative_std,
        "clock_hz": record.clock_hz,
        "throttled_samples": record.throttled_samples,
        "power_w": record.power_w,
        "temperature_c": record.temperature_c,
    }


def _names(table: str) -> list[str]:
    return [column.name for column in tables()[table]]
