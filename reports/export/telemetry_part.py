"""Curves of a GPU's power, clock, heat, memory, traffic and units, and what held its clocks."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from nsight_prof.parsers.serving.engine import held_by
from nsight_prof.reports.export.event_text import Track, Tracks, complete, counter, label

CURVES = {
    "power_w": ("Power, W", 1.0),
    "sm_clock_hz": ("SM clock, MHz", 1e-6),
    "memory_used_bytes": ("Memory in use, GB", 1e-9),
    "temperature_c": ("Temperature, degrees C", 1.0),
    "pcie_rx_bytes_per_s": ("PCIe received, GB/s", 1e-9),
    "pcie_tx_bytes_per_s": ("PCIe sent, GB/s", 1e-9),
    "sm_active_pct": ("SMs active, %", 1.0),
    "tensor_active_pct": ("Tensor Cores active, %", 1.0),
    "dram_active_pct": ("DRAM active, %", 1.0),
}


def telemetry_events(
    telemetry: pd.DataFrame, tracks: Tracks, origin: int, end: int
) -> Iterator[str]:
    """Give the samples of table `telemetry` that lie in the trace, from `origin` to `end` (ns)."""
    at = telemetry["trace_ns"]
    inside = telemetry[(at.notna() & at.between(origin, end)).fillna(False)]
    for device in inside["device"].unique().tolist():
        rows, pid = inside[inside["device"] == device], tracks.gpu(device, f"GPU {device}")
        for column, (name, factor) in CURVES.items():
            for time, value in rows[["trace_ns", column]].dropna().itertuples(index=False):
                yield counter(int(time) - origin, Track(pid, pid), name, float(value) * factor)
        slices = list(_throttled(rows, end))
        track = str(tracks.thread(pid, "clocks held down by")) if slices else ""
        for start, duration, reasons in slices:
            yield complete(start - origin, duration, track, label("throttle", reasons))


def _throttled(rows: pd.DataFrame, end: int) -> Iterator[tuple[int, int, str]]:
    """Give when and what held the clocks down, from each sample that says so to the next one."""
    times = [*(int(time) for time in rows["trace_ns"]), end]
    for begin, after, throttle in zip(times, times[1:], rows["throttle"], strict=False):
        reasons = held_by(throttle if isinstance(throttle, str) else None)
        if reasons:
            yield begin, after - begin, ", ".join(reason.replace("_", " ") for reason in reasons)
