"""Timers: CUDA events on the GPU, the host's clock on a CPU. Both time batches of calls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nsight_prof.targets.harness.api import Call
from nsight_prof.targets.harness.batches import Batches
from nsight_prof.targets.harness.nvml import Watch
from nsight_prof.targets.harness.stamps import Stamps

SPIN_CYCLES = 1_000_000
"""About 0.5 ms at 2 GHz: the GPU waits so long while the host queues what is to be timed."""
LOOK_S = 5e-4
ESTIMATE_S = 2e-3


@dataclass(frozen=True)
class Sample:
    """Seconds a call; SM clock in Hz or None; `marked` where NVML saw the clocks held down."""

    seconds: float
    hz: float | None
    marked: bool


class Timer(Protocol):
    """Times groups of batches."""

    def enqueue(self, batches: Batches, count: int, gated: bool) -> Any:
        """Start `count` samples, one batch each; `gated`: no launch time of the host in them."""

    def collect(self, pending: Any, watch: Watch) -> list[Sample]:
        """Wait for samples that were started."""

    def estimate(self, calls: Sequence[Call]) -> tuple[float, float]:
        """Return about how many seconds a call takes the device, and the host to launch."""

    def synchronize(self) -> None:
        """Wait for the device."""


class CpuTimer:
    """Times with time.perf_counter."""

    def enqueue(self, batches: Batches, count: int, gated: bool) -> list[Sample]:
        """Run the samples now."""
        samples = []
        for _ in range(count):
            start = time.perf_counter()
            calls = batches.next()
            samples.append(Sample((time.perf_counter() - start) / calls, None, False))
        return samples

    def collect(self, pending: list[Sample], watch: Watch) -> list[Sample]:
        """Return them."""
        return pending

    def estimate(self, calls: Sequence[Call]) -> tuple[float, float]:
        """Return the time of one call, twice: the host is the device."""
        start = time.perf_counter()
        calls[0]()
        seconds = max(time.perf_counter() - start, 1e-9)
        return seconds, seconds

    def synchronize(self) -> None:
        """Do nothing: calls on a CPU have ended when they return."""


@dataclass
class _Group:
    events: list[tuple[Any, Any]]
    calls: list[int]
    stamps: Any
    done: Any


class CudaTimer:
    """Times with CUDA events on torch's current stream; stamps stand outside of the events."""

    def __init__(self, device: Any, stamps: Stamps | None) -> None:
        import torch

        self._torch = torch
        self._device = device
        self._stamps = stamps

    def _event(self) -> Any:
        return self._torch.cuda.Event(enable_timing=True)

    def enqueue(self, batches: Batches, count: int, gated: bool) -> _Group:
        """Queue samples behind a kernel that spins, so that their launches are not measured."""
        buffer = None if self._stamps is None else self._stamps.buffer(2 * count)
        events = [(self._event(), self._event()) for _ in range(count)]
        calls = []
        if gated:
            self._torch.cuda._sleep(SPIN_CYCLES)
        for number, (start, end) in enumerate(events):
            self._stamp(buffer, 2 * number)
            start.record()
            calls.append(batches.next())
            end.record()
            self._stamp(buffer, 2 * number + 1)
        host = None
        if buffer is not None:
            # In the stream's order: a group queued behind this one is not waited for.
            host = self._torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True)
            host.copy_(buffer, non_blocking=True)
        done = self._event()
        done.record()
        return _Group(events, calls, host, done)

    def _stamp(self, buffer: Any, row: int) -> None:
        if self._stamps is not None:
            self._stamps.write(buffer[row])

    def collect(self, pending: _Group, watch: Watch) -> list[Sample]:
        """Wait for the samples while NVML is looked at; any throttling marks all of them."""
        marked = watch.poll()
        while not pending.done.query():
            marked = watch.poll() or marked
            time.sleep(LOOK_S)
        pending.done.synchronize()
        hz: list[float | None] = [None] * len(pending.calls)
        if self._stamps is not None:
            hz = self._stamps.clocks(pending.stamps)
        return [
            Sample(start.elapsed_time(end) * 1e-3 / calls, clock, marked)
            for (start, end), calls, clock in zip(pending.events, pending.calls, hz, strict=True)
        ]

    def estimate(self, calls: Sequence[Call]) -> tuple[float, float]:
        """Time one call by the host, then a few by events behind a spinning kernel."""
        self.synchronize()
        begin = time.perf_counter()
        calls[0]()
        launch = time.perf_counter() - begin
        self.synchronize()
        whole = max(time.perf_counter() - begin, 1e-7)
        if whole > 10 * ESTIMATE_S:
            return whole, launch
        count = max(1, min(20, int(ESTIMATE_S / whole)))
        start, end = self._event(), self._event()
        self._torch.cuda._sleep(SPIN_CYCLES)
        start.record()
        begin = time.perf_counter()
        for number in range(count):
            calls[number % len(calls)]()
        launch = (time.perf_counter() - begin) / count
        end.record()
        self.synchronize()
        return max(start.elapsed_time(end) * 1e-3 / count, 1e-7), launch

    def synchronize(self) -> None:
        """Wait for all work of the device."""
        self._torch.cuda.synchronize()
