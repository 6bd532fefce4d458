"""An SM clock below its maximum, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.profiled import is_mixed, kernel_time, profiled
from nsight_prof.reports.analysis.timeline import MOST_LAUNCHES
from nsight_prof.reports.findings.kernels.measure import ARITHMETIC, SLOWER
from nsight_prof.reports.findings.model import Finding, concatenated
from nsight_prof.reports.findings.program.rule import NSYS, Rule, Threshold, column, measured
from nsight_prof.reports.page import Choice, Evidence, Name, Number, Ref, Text, Verbatim

COSTS = Text("more power and heat")
HIGHER_CLOCK = Text("Power, cooling: let the GPU run at a higher clock")
THROTTLING = Rule(
    key="throttling",
    question="Does a power or heat limit hold the clock down?",
    requires="counters without clock control, or telemetry",
    thresholds={
        "clock": Threshold(0.9, Text("prof: SM clock over its maximum")),
        "share": Threshold(0.01, Text("prof: less than that is within the noise of two runs")),
        "step": Threshold(
            SLOWER,
            Text(
                "prof: the same kernel on the same shape takes the same time within one or two per "
                "cent at one clock"
            ),
        ),
    },
    gain="only where NVML names a reason that can be ended (heat, a power brake, clocks that were "
    "set). Where kernels limited by arithmetic, and others at the same moment, take longer from "
    "some launch on: what these launches take beyond the median before. At most, sum over the "
    "kernels that DRAM does not limit of their time x (1 - their clock / highest clock). The clock "
    "is that under ncu; of kernels limited by arithmetic x duration under ncu / mean launch in the "
    "trace.",
    action=Text(
        "Look at what limits the clock (nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE): the power "
        "limit, cooling, other programs on the GPU. Data with many zeros or smaller types need "
        "less power."
    ),
    advice=Text("check power limit and cooling of the GPU: it runs below its highest clock"),
    disproof=Text(
        "nvidia-smi --query-gpu=clocks.sm,clocks_event_reasons.active shows the maximum clock and "
        "no active reason while the program runs without a profiler."
    ),
)
AT_CLOCK = ("tensor", "fp32", "fp64", "fp16", "alu", "xu", "issue", "l1", "l2", "latency")
"""Bounds that a higher SM clock moves; DRAM has a clock of its own."""
FEWEST = 8
"""Launches from which on a step in their times is evidence."""
NO_STEP = Text(
    " That is a limit, and no gain: no step of the program lifts a limit of power, and nothing "
    "recorded tells of another."
)
DIFFERENT = 0.02
"""Relative difference of two clocks from which on both are given."""
NAMED = 2
"""Kernels that a sentence names."""
LOST = Text("time lost since the clock fell")
LOST_BY = Text("sum of what later launches take beyond the median before, by kernel and shape")
LIFTED = ("thermal", "slowdown", "brake", "applications", "sync")
"""Words of NVML's reasons that an owner can end: cooling, power supply, clocks that were set. At
its limit of power a GPU has no higher clock to give, whatever the program does."""
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
    if mean / top >= THROTTLING.limit("clock") or gain < THROTTLING.limit("share"):
        return []
    return [_finding(run, rows, mean, top, gain)]


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
    """A kernel whose launches of one shape take longer from launch `first` (from 0) on.

    `lost` is the time by which all of these exceed the median before. `at_ns` is the start of the
    first of them, `apart_ns` the time from the launch before it.
    """

    name: Name
    first: int
    launches: int
    before: Number
    after: Number
    lost: Number
    at_ns: float
    apart_ns: float

    @property
    def longer(self) -> Number:
        """Part by which the later launches take longer."""
        refs = tuple(dict.fromkeys((*self.before.refs, *self.after.refs)))
        longer = number(self.after.value) / number(self.before.value) - 1
        return Number(longer, "fraction", refs).by(
            Text("{a} / {b} - 1", a=self.after.at_digits(4), b=self.before.at_digits(4))
        )

    @property
    def kernel(self) -> str:
        """The key of its kernel."""
        return self.lost.refs[0].row


def step_up(durations: NDArray[np.float64]) -> tuple[int, float, float] | None:
    """Return the first launch (from 0) of a step up that stays, and the medians before and after.

    None where there is no such step: nine tenths of the launches behind it take longer than nine
    tenths of those before it, and at least a sixteenth of all stand on each side.
    """
    count = len(durations)
    if count < FEWEST:
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
    """Return the kernels whose launches step up by enough, most GPU time first.

    Other kernels than those of arithmetic may get more work with time: they count where they step
    up with these.
    """
    large = [
        row
        for row in rows
        if text(row["bound_by"]) in AT_CLOCK and number(row["share"]) >= THROTTLING.limit("share")
    ]
    if not large or not run.kernels["calls"].sum() <= MOST_LAUNCHES:
        return []
    launches = run.launch_times.sort_values("start_ns", kind="stable")
    steps = {text(row["kernel_id"]): list(_of_kernel(row, launches)) for row in large}
    leads = [
        step
        for row in large
        if text(row["bound_by"]) in ARITHMETIC
        for step in steps[text(row["kernel_id"])]
    ]
    at_once = [
        step
        for found in steps.values()
        for step in found
        if step in leads or any(abs(step.at_ns - s.at_ns) <= s.apart_ns for s in leads)
    ]
    return at_once


def _of_kernel(row: Row, launches: pd.DataFrame) -> Iterator[Step]:
    """Yield the steps of a kernel, one for each of its shapes."""
    key = text(row["kernel_id"])
    of_kernel = launches[launches["kernel_id"].astype(str) == key]
    durations, starts = (of_kernel[c].to_numpy(np.float64) for c in ("duration_ns", "start_ns"))
    refs = column("launches", "duration_ns", key)
    for shape in _shapes(durations) if is_mixed(row) else [durations > 0]:
        times, begun = durations[shape], starts[shape]
        step = step_up(times)
        if step is not None and step[2] >= (1 + THROTTLING.limit("step")) * step[1]:
            first = step[0]
            before, after = (Number(ns, "ns", refs) for ns in step[1:])
            yield Step(
                Name(text(row["short_name"]), Ref("kernels", key)),
                first,
                len(times),
                before,
                after,
                Number(float((times[first:] - step[1]).sum()), "ns", refs),
                float(begun[first]),
                float(begun[first] - begun[first - 1]),
            )


def _shapes(durations: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
    """Return which launches are of the shorter and of the longer shape of a kernel that has two."""
    ranked = np.sort(durations)
    if len(ranked) < 2 or not ranked[0] > 0:
        return []
    edge = ranked[int(np.argmax(ranked[1:] / ranked[:-1]))]
    return [durations <= edge, durations > edge]


def _finding(run: Run, rows: Sequence[Row], mean_hz: float, top_hz: float, gain: float) -> Finding:
    steps, reasons = _steps(run, rows), throttle_reasons(run.telemetry)
    refs = tuple(dict.fromkeys(ref for step in steps for ref in step.lost.refs))
    lost = Number(sum(number(step.lost.value) for step in steps), "ns", refs)
    can_end = [reason for reason in reasons if any(word in reason for word in LIFTED)]
    # What was measured, and not at a clock that nobody saw.
    gain_ns = number(lost.value) if steps and can_end else math.nan
    clocks = (*column("counters", "sm_clock_hz"), *column("kernels", "share"))
    mean, top = Number(mean_hz, "Hz", clocks), Number(top_hz, "Hz", column("gpus", "clock_hz"))
    arithmetic = [r for r in rows if text(r["bound_by"]) in ARITHMETIC and not is_mixed(r)]
    in_trace = under_ncu = mean
    if arithmetic:
        refs = (
            *column("counters", "sm_clock_hz"),
            *column("counters", "duration_ns"),
            *column("kernels", "mean_ns"),
        )
        traced_hz = _mean(arithmetic, [traced_clock(r, top_hz) for r in arithmetic])
        in_trace = Number(traced_hz, "Hz", refs)
        counted_hz = _mean(arithmetic, [number(r["sm_clock_hz"]) for r in arithmetic])
        under_ncu = Number(counted_hz, "Hz", clocks).by(
            Text("mean of clock under ncu weighted by time, kernels limited by arithmetic")
        )
    differs = abs(number(in_trace.times(under_ncu).value) - 1) >= DIFFERENT
    share, limit = mean.share_of(top), THROTTLING.thresholds["clock"]
    return THROTTLING.finding(
        title=Text("The SM clock is {share} of its maximum", share=share),
        verdict=Text(
            "Under ncu the SMs ran at {mean} (mean weighted by GPU time), of {top} at most."
            "{by_times}{steps}{reasons} At the highest clock, kernels that are not bound by DRAM "
            "would save at most {gain} of the GPU time ({saved}); shares of roofs are at the clock "
            "of each kernel, so this comes on top.{limit}",
            mean=mean.at_digits(3),
            top=top.at_digits(3),
            by_times=Text(
                " By their times, kernels limited by arithmetic ran at {in_trace} in the trace, "
                "and at {under_ncu} under ncu.",
                in_trace=in_trace.at_digits(3),
                under_ncu=under_ncu.at_digits(3),
            )
            if differs
            else "",
            steps=concatenated([*map(_stepped, steps[:NAMED]), *_price(steps, lost)]),
            reasons=Text(
                " NVML names the reason: {reasons}.",
                reasons=[Verbatim(reason) for reason in reasons],
            )
            if reasons
            else "",
            limit="" if can_end else NO_STEP,
            gain=Number(gain, "fraction"),
            saved=Number(gain * kernel_time(run), "ns", clocks).by(
                Text(
                    "sum of time x (1 - clock / highest), kernels not bound by DRAM; the clock of "
                    "those limited by arithmetic is that in the trace"
                )
            ),
        ),
        evidence=(
            Evidence(
                Text("SM clock"),
                mean,
                Text("under {limit} of {top}", limit=limit.number, top=top.at_digits(3)),
                limit.source,
            ),
            measured(Text("highest SM clock"), top, Text("the driver")),
            measured(
                Text("GPU time saved at the highest clock"),
                Number(
                    100 * gain,
                    "%",
                    (
                        *column("kernels", "share"),
                        *column("counters", "bound_by"),
                        *column("counters", "sm_clock_hz"),
                    ),
                ),
                Text(
                    "sum of share x (1 - clock / highest), kernels not bound by DRAM; the clock of "
                    "those limited by arithmetic is that in the trace"
                ),
            ),
            measured(
                Text("SM clock in the trace, kernels limited by arithmetic"),
                in_trace,
                Text("mean of clock x duration under ncu / mean launch in the trace"),
            )
            if differs
            else None,
            *(row for step in steps[:NAMED] for row in _step_evidence(step)),
            measured(LOST, lost, LOST_BY) if steps else None,
        ),
        offers=Choice(HIGHER_CLOCK, lost if steps else Number(gain * kernel_time(run), "ns"), COSTS)
        if can_end
        else None,
        gain_program=gain_ns / kernel_time(run),
        gain_ns=gain_ns,
        # Launches that were faster before need not have had the highest clock.
        most_ns=gain * kernel_time(run) if can_end else math.nan,
        confidence="medium" if reasons or steps else "low",
    )


def _stepped(step: Step) -> Text:
    """Say that a kernel gets slower while the program runs."""
    return Text(
        " From launch {first} of {launches} on, {kernel} takes {after} instead of {before} for the "
        "same shape, {longer} longer: the clock fell while the program ran.",
        first=step.first + 1,
        launches=step.launches,
        kernel=step.name,
        after=step.after,
        before=step.before,
        longer=step.longer,
    )


def _price(steps: Sequence[Step], lost: Number) -> list[Text]:
    """Say what the fall of the clock costs in this run, over all kernels that show it."""
    if not steps:
        return []
    return [
        Text(
            " In all, {n} kernel shows it: that costs {lost} in this run.",
            " In all, {n} kernels show it: that costs {lost} in this run.",
            n=len({step.kernel for step in steps}),
            lost=lost,
        )
    ]


def _step_evidence(step: Step) -> tuple[Evidence, Evidence]:
    limit = THROTTLING.thresholds["step"]
    return (
        Evidence(
            Text("median launch before number {n}: {kernel}", n=step.first + 1, kernel=step.name),
            step.before,
            source=NSYS,
        ),
        Evidence(
            Text("median launch from there on: {kernel}", kernel=step.name),
            step.after,
            Text("{limit} longer", limit=limit.number),
            limit.source,
        ),
    )


def throttle_reasons(telemetry: pd.DataFrame) -> list[str]:
    """Return what NVML says holds the clocks down, the most frequent first."""
    names = telemetry["throttle"].fillna("").astype(str).str.split(",").explode().str.strip()
    return [str(name) for name in names[names != ""].value_counts().index]
