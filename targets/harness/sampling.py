"""Warms a case up and samples it until the stop rule is met: plainly, in bursts, or steadily."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from nsight_prof.targets.harness.api import Call, Case
from nsight_prof.targets.harness.batches import SAMPLE_S, Batches, graphs, loop
from nsight_prof.targets.harness.nvml import Watch
from nsight_prof.targets.harness.statistics import PATIENCE, StopRule
from nsight_prof.targets.harness.timers import CpuTimer, Sample, Timer

CAPTURE_BELOW_S = 5e-4
"""Shorter calls are batched in a graph: alone, events and the gap before a kernel would show."""
HOST_BOUND = 0.3
"""So are calls whose launch takes the host more than this share of their time."""
FIRST_ROUND_S = 0.5
WARM_UP_S = 0.2
WARM_TOLERANCE = 0.03
WARM_AGREEING = 2
GROUP = 10
GROUP_S = 0.05
MAX_SAMPLES = 500

# A burst is what the first 20 ms after idleness give. On an H200 (700 W, bf16 and fp8 products) the
# clock holds that long, and 20 to 40 ms after the start the power control takes a tenth of it away:
# longer windows would mix both. At one part of work in eight it was back at the next window.
BURST_PAUSE_S = 0.15
BURST_LEAD_S = 2e-3
BURST_S = 0.018
BURST_WINDOWS = 3
STEADY_LEAD_S = 2.0
STEADY_S = 0.35
STEADY_SAMPLES = 200


@dataclass(frozen=True)
class Limits:
    """Least samples, relative standard deviation to stop at, and seconds of sampling."""

    min_samples: int = 10
    max_noise: float = 0.005
    case_time: float = 1.0


@dataclass
class Measurement:
    """Samples of a case in the order they were taken, and how they were.

    Attributes:
        wall_s: seconds from the first to the last sample, pauses included.
        note: what a reader should know of how it was measured, or "".
    """

    samples: list[Sample] = field(default_factory=list)
    stop: str = ""
    calls_per_sample: int = 1
    captured: bool = False
    copies: int = 1
    wall_s: float = 0.0
    note: str = ""

    @property
    def busy(self) -> float:
        """Share of the wall time that the samples took; about 1 under steady load."""
        worked = sum(sample.seconds for sample in self.samples) * self.calls_per_sample
        return worked / self.wall_s if self.wall_s > 0 else 0.0


def measure(
    case: Case,
    calls: Sequence[Call],
    timer: Timer,
    limits: Limits,
    watch: Watch,
    inside: AbstractContextManager[None] | None = None,
) -> Measurement:
    """Sample a prepared case that has been warmed up by nobody yet.

    Args:
        case: says how it is launched and for how long.
        calls: on buffers of their own, in the order of their rotation.
        timer: of the device.
        limits: when to stop.
        watch: told to look at NVML while the device works.
        inside: entered for the samples, not for what goes before them.
    """
    first_round(calls, timer)
    batches = make_batches(case, calls, timer)
    gated = case.launch == "graph"
    one = warm_up(batches, timer, gated)
    if batches.captured and one < SAMPLE_S / 2:
        # The host was too slow for the estimate, which took its launches for the call.
        batches = graphs(calls, one / batches.calls, least_seconds(case))
        one = warm_up(batches, timer, gated)
    # A CPU has nothing to show in bursts; its cases only run the code.
    duration = "" if isinstance(timer, CpuTimer) else case.duration
    sampler = {"": _plain, "burst": _bursts, "steady": _steady}[duration]
    with inside or nullcontext():
        done = sampler(batches, timer, limits, watch, gated, one)
    done.calls_per_sample, done.captured = batches.calls, batches.captured
    done.copies, done.note = len(calls), batches.note
    return done


def first_round(calls: Sequence[Call], timer: Timer) -> None:
    """Call each copy once, as far as time allows: libraries load, compile and allocate then."""
    calls[0]()
    timer.synchronize()
    begin = time.perf_counter()
    for call in calls[1:2]:
        call()
        timer.synchronize()
    one = max(time.perf_counter() - begin, 1e-6)
    for call in calls[2 : 2 + int(FIRST_ROUND_S / one)]:
        call()
    timer.synchronize()


def make_batches(case: Case, calls: Sequence[Call], timer: Timer) -> Batches:
    """Return what one sample of a case times."""
    seconds, launch = timer.estimate(calls)
    least = least_seconds(case)
    if isinstance(timer, CpuTimer):
        return loop(calls, seconds, least)
    if case.launch == "eager":
        return loop(calls, max(seconds, launch), least)
    if seconds < CAPTURE_BELOW_S or launch > HOST_BOUND * seconds:
        return graphs(calls, seconds, least)
    return loop(calls, seconds, least if case.duration == "steady" else seconds)


def least_seconds(case: Case) -> float:
    """Return how long a sample of a case lasts at least; longer where there would be too many."""
    return max(SAMPLE_S, STEADY_S / STEADY_SAMPLES) if case.duration == "steady" else SAMPLE_S


def warm_up(batches: Batches, timer: Timer, gated: bool) -> float:
    """Run every batch once, then go on until durations agree; return the last of a batch."""
    for _ in batches.batches:
        batches.next()
    timer.synchronize()
    unwatched = Watch(None)
    deadline = time.perf_counter() + WARM_UP_S
    last, agreeing = 0.0, 0
    while True:
        (sample,) = timer.collect(timer.enqueue(batches, 1, gated), unwatched)
        same = last > 0 and abs(sample.seconds / last - 1) < WARM_TOLERANCE
        agreeing = agreeing + 1 if same else 0
        last = sample.seconds
        if agreeing >= WARM_AGREEING or time.perf_counter() > deadline:
            return max(last * batches.calls, 1e-9)


def _group(sample_s: float, most: int = GROUP, span: float = GROUP_S) -> int:
    return max(1, min(most, int(span / sample_s)))


def _plain(
    batches: Batches, timer: Timer, limits: Limits, watch: Watch, gated: bool, one: float
) -> Measurement:
    rule = StopRule(limits.min_samples, limits.max_noise, limits.case_time, MAX_SAMPLES)
    done = Measurement()
    begin = time.perf_counter()
    while not done.stop:
        for sample in timer.collect(timer.enqueue(batches, _group(one), gated), watch):
            done.samples.append(sample)
            rule.add(sample.seconds)
        done.wall_s = time.perf_counter() - begin
        done.stop = rule.reason(done.wall_s)
    return done


def _bursts(
    batches: Batches, timer: Timer, limits: Limits, watch: Watch, gated: bool, one: float
) -> Measurement:
    """Sample windows of 20 ms, each after a pause in which power and heat fall."""
    done = Measurement()
    begin = time.perf_counter()
    lead = max(1, int(BURST_LEAD_S / one))
    group = _group(one, MAX_SAMPLES // BURST_WINDOWS, BURST_S)
    windows = 0
    while not done.stop:
        timer.synchronize()
        time.sleep(BURST_PAUSE_S)
        for _ in range(lead):
            batches.next()
        done.samples += timer.collect(timer.enqueue(batches, group, gated), watch)
        done.wall_s = time.perf_counter() - begin
        windows += 1
        if windows >= BURST_WINDOWS and len(done.samples) >= limits.min_samples:
            done.stop = "samples"
        elif windows >= BURST_WINDOWS and done.wall_s > PATIENCE * limits.case_time:
            done.stop = "time limit"
    return done


def _steady(
    batches: Batches, timer: Timer, limits: Limits, watch: Watch, gated: bool, one: float
) -> Measurement:
    """Load the device for 2 s without a gap, then sample: one group is always queued ahead."""
    done = Measurement()
    begin = time.perf_counter()
    sampled_from: float | None = None
    pending = timer.enqueue(batches, _group(one), gated)
    while True:
        following = timer.enqueue(batches, _group(one), False)
        group = timer.collect(pending, watch)
        pending = following
        elapsed = time.perf_counter() - begin
        if sampled_from is None:
            if elapsed >= STEADY_LEAD_S:
                sampled_from = elapsed
                watch.forget_energy()
            continue
        done.samples += group
        done.wall_s = elapsed - sampled_from
        enough = done.wall_s >= STEADY_S and len(done.samples) >= limits.min_samples
        if enough or done.wall_s >= PATIENCE * STEADY_S:
            done.stop = "samples" if enough else "time limit"
            timer.collect(pending, watch)
            return done
