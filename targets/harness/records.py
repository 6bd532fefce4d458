"""The records of a target: one JSON object a line, flushed at once, so that a kill loses none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TextIO

from nsight_prof.targets.harness.api import Case
from nsight_prof.targets.harness.nvml import Watch
from nsight_prof.targets.harness.sampling import Measurement
from nsight_prof.targets.harness.statistics import percentile, summarize

SCHEMA = 1
DIGITS = 6
BUSY = 0.8
"""Least share of the sampling that the case's own work takes: else the power is that of pauses."""
IN_SECONDS = ("median", "mean", "std", "min", "max", "p5", "p95", "iqr", "ci_low", "ci_high")


class Records:
    """Writes records with the fields that all of a process share."""

    def __init__(self, stream: TextIO, target: str, process: int, repeat: int) -> None:
        self._stream = stream
        self._shared = {"schema": SCHEMA, "target": target}
        self._process = {"process": process, "repeat": repeat}

    def conditions(self, facts: dict[str, Any]) -> None:
        """Write under what the process measures."""
        self._write({"record": "conditions", **self._shared, **self._process, **facts})

    def case(
        self, case: Case, mode: str, data: str, outcome: dict[str, Any], extra: dict[str, Any]
    ) -> None:
        """Write the record of a case: `outcome` of `outcome()` or `timed()`."""
        fields = {
            "case": case.name,
            "mode": mode,
            "data": data,
            "operation": case.operation,
            "params": dict(case.params),
            "dtype": case.dtype,
            "level": case.level,
            "launch": case.launch,
            "duration": case.duration,
            **self._process,
            **outcome,
            "roof": None if case.roof is None else asdict(case.roof),
            "work": asdict(case.work),
            **extra,
        }
        self._write({"record": "case", **self._shared, **fields})

    def _write(self, record: dict[str, Any]) -> None:
        self._stream.write(json.dumps(record, allow_nan=False) + "\n")
        self._stream.flush()


def outcome(status: str, reason: str = "") -> dict[str, Any]:
    """Return what a record says of a case that was not timed."""
    return {
        "status": status,
        "reason": reason,
        "time": None,
        "clock": None,
        "throttle": None,
        "energy_j": None,
        "power_w": None,
        "temperature_c": None,
        "memory": None,
    }


def timed(
    measured: Measurement, watch: Watch, memory: dict[str, Any] | None, reason: str
) -> dict[str, Any]:
    """Return what a record says of a case that was timed."""
    time = _time(measured)
    power = watch.power_w if measured.busy >= BUSY else None
    return outcome("ok", reason) | {
        "time": time,
        "clock": _clock([sample.hz for sample in measured.samples]),
        "throttle": _throttle(measured, watch),
        "energy_j": None if power is None else rounded(power * time["median_s"]),
        "power_w": rounded(power),
        "temperature_c": watch.temperature_c,
        "memory": memory,
    }


def _time(measured: Measurement) -> dict[str, Any]:
    values = [sample.seconds for sample in measured.samples]
    summary = asdict(summarize(values))
    return {
        **{f"{name}_s": rounded(summary[name]) for name in IN_SECONDS},
        "n": summary["n"],
        "outliers": summary["outliers"],
        "relative_std": rounded(summary["relative_std"]),
        "stop": measured.stop,
        "calls_per_sample": measured.calls_per_sample,
        "captured": measured.captured,
        "copies": measured.copies,
        "samples_s": [rounded(value) for value in values],
    }


def _clock(hz: Sequence[float | None]) -> dict[str, Any] | None:
    known = sorted(value for value in hz if value is not None)
    if not known:
        return None
    return {
        "sm_hz_median": rounded(percentile(known, 50)),
        "sm_hz_min": rounded(known[0]),
        "sm_hz_max": rounded(known[-1]),
        "samples_hz": [rounded(value) for value in hz],
    }


def _throttle(measured: Measurement, watch: Watch) -> dict[str, Any] | None:
    if watch.nvml is None:
        return None
    return {
        "power_s": rounded(watch.power_s),
        "thermal_s": rounded(watch.thermal_s),
        "reasons": watch.reasons,
        "samples": sum(sample.marked for sample in measured.samples),
        "known": watch.known,
    }


def rounded(value: float | None) -> float | None:
    """Return a number with six significant digits; None stays None."""
    return None if value is None else float(f"{value:.{DIGITS}g}")
