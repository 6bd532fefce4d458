"""Tells where the SM clock stays below its maximum, and what that costs."""

from __future__ import annotations

import math

import pandas as pd

from reports.cells import number, text
from reports.evidence import Evidence, Finding
from reports.formats import clock, listed, share
from reports.load import Run
from reports.profiled import kernel_time, profiled
from reports.program_rules import finding, limit, source_of

AT_CLOCK = ("tensor", "fp32", "fp64", "fp16", "issue", "l1", "l2", "latency")
"""Bounds that a higher SM clock moves; DRAM has a clock of its own."""
LOCKED = ("base", "boost")
"""Values of ncu's clock control with which it sets the clock itself."""


def clock_findings(run: Run) -> list[Finding]:
    """Return a finding where kernels ran below the highest clock, and it was not ncu that set it.

    The gain: what is bound by anything but DRAM gets faster as the clock does.
    """
    control = text((run.manifest.recipe.get("counters") or {}).get("clock_control"))
    total, top = kernel_time(run), number(run.gpus["clock_hz"].max())
    rows = [r for r in profiled(run) if number(r["sm_clock_hz"]) > 0 and number(r["share"]) > 0]
    if control in LOCKED or not rows or math.isnan(top) or math.isnan(total):
        return []
    weights = sum(number(r["share"]) for r in rows)
    mean = sum(number(r["sm_clock_hz"]) * number(r["share"]) for r in rows) / weights
    gain = sum(
        number(r["share"]) * (1 - number(r["sm_clock_hz"]) / top)
        for r in rows
        if text(r["bound_by"]) in AT_CLOCK
    )
    if mean / top >= limit("throttling", "clock") or gain < limit("throttling", "share"):
        return []
    return [_finding(run, mean, top, gain, total)]


def _finding(run: Run, mean: float, top: float, gain: float, total: float) -> Finding:
    reasons = throttle_reasons(run.telemetry)
    why = f" NVML names the reason: {listed(reasons)}." if reasons else ""
    words = (
        f"Under ncu the SMs ran at {clock(mean)} (mean weighted by GPU time), of {clock(top)} at "
        f"most.{why} At the highest clock, kernels that are not bound by DRAM would save at most "
        f"{share(gain)} of the GPU time; shares of roofs are at the clock of each kernel, so this "
        "comes on top."
    )
    return finding(
        "throttling",
        title=f"The SM clock is {share(mean / top)} of its maximum",
        sentence=words,
        evidence=(
            Evidence("SM clock", mean, "Hz", f"under {share(limit('throttling', 'clock'))} of "
                     f"{clock(top)}", source_of("throttling", "clock"),
                     ("sm_clock_hz", "kernels.share")),
            Evidence("highest SM clock", top, "Hz", "", "the driver", ("gpus.clock_hz",)),
            Evidence("GPU time saved at the highest clock", 100 * gain, "%", "",
                     "sum of share x (1 - clock / highest), kernels not bound by DRAM",
                     ("kernels.share", "counters.bound_by", "sm_clock_hz")),
        ),
        # A GPU under full load lowers its clock by itself: something to gain needs a reason.
        gain_program=gain if reasons else math.nan,
        gain_ns=gain * total if reasons else math.nan,
        confidence="medium" if reasons else "low",
    )  # fmt: skip


def throttle_reasons(telemetry: pd.DataFrame) -> list[str]:
    """Return what NVML says holds the clocks down, the most frequent first."""
    said = telemetry["throttle"].fillna("").astype(str).str.split(",").explode().str.strip()
    return [str(name) for name in said[said != ""].value_counts().index]
