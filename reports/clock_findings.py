"""Tells where the SM clock stays below its maximum, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.reports.analysis.timeline import MOST_LAUNCHES
from nsight_prof.reports.evidence import Evidence
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.formats import clock, duration, listed, share
from nsight_prof.reports.load import Run
from nsight_prof.reports.profiled import is_mixed, kernel_time, profiled
from nsight_prof.reports.program_rules import finding, limit, source_of

AT_CLOCK = ("tensor", "fp32", "fp64", "fp16", "issue", "l1", "l2", "latency")
"""Bounds that a higher SM clock moves; DRAM has a clock of its own."""
ARITHMETIC = ("tensor", "fp32", "fp64", "fp16", "issue")
"""Bounds under which a launch takes the same number of cycles at any clock."""
LEAST = 8
"""Launches from which on a step in their times tells something."""
DIFFERS = 0.02
"""Relative difference of two clocks from which on it is told."""
NAMED = 2
"""Kernels that a sentence names."""
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
    mean = _mean(rows, [number(r["sm_clock_hz"]) for r in rows])
    gain = sum(
        number(r["share"]) * (1 - traced_clock(r, top) / top)
        for r in rows
        if text(r["bound_by"]) in AT_CLOCK
    )
    if mean / top >= limit("throttling", "clock") or gain < limit("throttling", "share"):
        return []
    return [_finding(run, rows, mean, top, gain, total)]


def _mean(rows: Sequence[Row], clocks: Sequence[float]) -> float:
    """Return the mean of clocks in Hz, weighted by the GPU time of the kernels."""
    shares = [number(r["share"]) for r in rows]
    return sum(s * c for s, c in zip(shares, clocks, strict=True)) / sum(shares)


def traced_clock(row: Row, top_hz: float) -> float:
    """Return the SM clock in Hz at which a kernel ran in the trace, as its times tell.

    One that arithmetic or the issue of instructions limits takes as many cycles each time: the
    clock under ncu x the duration there / that in the trace, at most `top_hz`. Others have the
    clock under ncu, and so do kernels whose launches do different work.
    """
    counted, mean = number(row["sm_clock_hz"]), number(row["mean_ns"])
    if text(row["bound_by"]) not in ARITHMETIC or is_mixed(row) or not mean > 0:
        return counted
    return min(top_hz, counted * number(row["duration_ns"]) / mean)


@dataclass(frozen=True)
class Step:
    """A kernel whose launches of one shape take longer from one of them on: times in ns."""

    row: Row
    first: int
    launches: int
    before: float
    after: float

    @property
    def longer(self) -> float:
        """Part by which the later launches take longer."""
        return self.after / self.before - 1


def step_up(durations: NDArray[np.float64]) -> tuple[int, float, float] | None:
    """Return the first launch (from 0) of a step up that stays, and the medians before and after.

    None where there is no such step: nine tenths of the launches behind it take longer than nine
    tenths of those before it, and at least a sixteenth of all stand on each side.
    """
    count = len(durations)
    if count < LEAST:
        return None
    sums = np.cumsum(durations)
    sizes = np.arange(1, count)
    before, after = sums[:-1] / sizes, (sums[-1] - sums[:-1]) / (count - sizes)
    between = (after - before) * np.sqrt(sizes * (count - sizes))
    edge = max(2, count // 16)
    at = edge + int(np.argmax(between[edge - 1 : count - edge]))
    low, high = durations[:at], durations[at:]
    if np.quantile(high, 0.1) <= np.quantile(low, 0.9):
        return None
    return at, float(np.median(low)), float(np.median(high))


def _steps(run: Run, rows: Sequence[Row]) -> list[Step]:
    """Return the kernels at the clock whose launches step up, most GPU time first."""
    ours = [
        row
        for row in rows
        if text(row["bound_by"]) in ARITHMETIC
        and not is_mixed(row)
        and number(row["share"]) >= limit("throttling", "share")
    ]
    if not ours or not run.kernels["calls"].sum() <= MOST_LAUNCHES:
        return []
    launches = run.launches.sort_values("start_ns", kind="stable")
    found = []
    for row in ours:
        mine = launches.loc[launches["kernel_id"].astype(str) == text(row["kernel_id"])]
        step = step_up(mine["duration_ns"].to_numpy(np.float64))
        if step is not None and step[2] >= (1 + limit("throttling", "step")) * step[1]:
            found.append(Step(row, step[0], len(mine), step[1], step[2]))
    return found


def _stepped(steps: Sequence[Step]) -> str:
    """Say which kernels get slower while the program runs, as sentences behind a space."""
    return "".join(
        f" From launch {one.first + 1} of {one.launches} on, {text(one.row['short_name'])} takes "
        f"{duration(one.after)} instead of {duration(one.before)} for the same shape, "
        f"{share(one.longer)} longer: the clock fell while the program ran."
        for one in steps[:NAMED]
    )


def _step_evidence(steps: Sequence[Step]) -> list[Evidence]:
    found = []
    for one in steps[:NAMED]:
        name, held = text(one.row["short_name"]), f"{share(limit('throttling', 'step'))} longer"
        source = source_of("throttling", "step")
        where = ("launches.duration_ns",)
        found += [
            Evidence(f"median launch before number {one.first + 1}: {name}", one.before, "ns", "",
                     "nsys", where),
            Evidence(f"median launch from there on: {name}", one.after, "ns", held, source, where),
        ]  # fmt: skip
    return found


def _finding(
    run: Run, rows: Sequence[Row], mean: float, top: float, gain: float, total: float
) -> Finding:
    steps = _steps(run, rows)
    arithmetic = [r for r in rows if text(r["bound_by"]) in ARITHMETIC and not is_mixed(r)]
    traced = _mean(arithmetic, [traced_clock(r, top) for r in arithmetic]) if arithmetic else mean
    there = (
        _mean(arithmetic, [number(r["sm_clock_hz"]) for r in arithmetic]) if arithmetic else mean
    )
    differs = abs(traced / there - 1) >= DIFFERS
    by_times = (
        f" By their times, kernels limited by arithmetic ran at {clock(traced)} in the trace, and "
        f"at {clock(there)} under ncu."
        if differs
        else ""
    )
    reasons = throttle_reasons(run.telemetry)
    why = f" NVML names the reason: {listed(reasons)}." if reasons else ""
    words = (
        f"Under ncu the SMs ran at {clock(mean)} (mean weighted by GPU time), of {clock(top)} at "
        f"most.{by_times}{_stepped(steps)}{why} At the highest clock, kernels that are not bound "
        f"by DRAM would save at most {share(gain)} of the GPU time; shares of roofs are at "
        "the clock of each kernel, so this comes on top."
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
            *([Evidence("SM clock in the trace, kernels limited by arithmetic", traced, "Hz", "",
                        "mean of clock x duration under ncu / mean launch in the trace",
                        ("sm_clock_hz", "duration_ns", "kernels.mean_ns"))] if differs else []),
            *_step_evidence(steps),
        ),
        # A GPU under full load lowers its clock by itself: something to gain needs a reason.
        gain_program=gain if reasons else math.nan,
        gain_ns=gain * total if reasons else math.nan,
        confidence="medium" if reasons or steps else "low",
    )  # fmt: skip


def throttle_reasons(telemetry: pd.DataFrame) -> list[str]:
    """Return what NVML says holds the clocks down, the most frequent first."""
    said = telemetry["throttle"].fillna("").astype(str).str.split(",").explode().str.strip()
    return [str(name) for name in said[said != ""].value_counts().index]
