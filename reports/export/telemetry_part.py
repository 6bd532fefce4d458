"""Curves of a GPU's power, clock, heat, traffic over PCIe and busy units beside its streams."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from nsight_prof.reports.export.event_text import Track, counter
from nsight_prof.reports.export.tracks import Tracks

CURVES = {
    "power_w": ("Power, W", 1.0),
    "sm_clock_hz": ("SM clock, MHz", 1e-6),
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
