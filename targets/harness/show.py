"""A case's result as a line for people."""

from __future__ import annotations

from typing import Any

from nsight_prof.targets.harness.api import Case, case_id

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def line(case: Case, mode: str, data: str, result: dict[str, Any]) -> str:
    """Return id, time, spread and rates; or status and reason."""
    name = case_id(case, mode, data)
    timing = result["time"]
    if timing is None:
        reason = f": {result['reason']}" if result["reason"] else ""
        return f"{name}: {result['status']}{reason}"
    median = timing["median_s"]
    parts = [f"{duration(median)}"]
    if timing["relative_std"] is not None:
        parts[0] += f" +- {100 * timing['relative_std']:.2g} % (n {timing['n']}, {timing['stop']})"
    if case.work.flops:
        parts.append(f"{case.work.flops / median / 1e12:.4g} TFLOP/s")
    if case.work.bytes:
        parts.append(f"{case.work.bytes / median / 1e9:.4g} GB/s")
    if result["clock"] is not None:
        parts.append(f"{result['clock']['sm_hz_median'] / 1e6:.0f} MHz")
    if result["throttle"] is not None and result["throttle"]["samples"]:
        parts.append("held down: " + ", ".join(result["throttle"]["reasons"]))
    if result["reason"]:
        parts.append(result["reason"])
    return f"{name}: " + ", ".join(parts)


def duration(seconds: float) -> str:
    """Return a duration with its best unit: "12.3 us"."""
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:.3g} s"
