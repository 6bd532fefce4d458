"""One process of a target on one device: prepares each case, measures or counts it, cleans up."""

from __future__ import annotations

import contextlib
import gc
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

from nsight_prof.targets.harness.api import Call, Case, Setup, case_id
from nsight_prof.targets.harness.batches import recover
from nsight_prof.targets.harness.conditions import gpu, gpu_uuid, software
from nsight_prof.targets.harness.copies import DISTINCT, copies_for, free_bytes, shortfall
from nsight_prof.targets.harness.device import is_cuda, l2_bytes
from nsight_prof.targets.harness.failures import classify
from nsight_prof.targets.harness.nvml import Nvml, Watch, make_nvml
from nsight_prof.targets.harness.records import outcome, timed
from nsight_prof.targets.harness.sampling import Limits, Measurement, measure
from nsight_prof.targets.harness.stamps import make_stamps
from nsight_prof.targets.harness.timers import CpuTimer, CudaTimer, Sample, Timer


class ContextLost(Exception):
    """The CUDA context is in error: no case after this one can run in this process."""


class Session:
    """The device, its timer and NVML, for all cases of a process."""

    def __init__(self, args: Namespace) -> None:
        import torch

        self._torch = torch
        self.args = args
        self.cuda = is_cuda(args.device)
        self.device = torch.device("cuda", torch.cuda.current_device()) if self.cuda else "cpu"
        self.limits = Limits(args.min_samples, args.max_noise, args.case_time)
        self.nvml: Nvml | None = None
        self.notes: list[str] = []
        self.timer: Timer = CpuTimer()
        if self.cuda:
            self._start_cuda()
        else:
            torch.set_num_threads(1)  # sizes are tiny there; threads would only wait for each other
        # Nothing that exists now is garbage later; collecting after each case is quick then.
        gc.collect()
        gc.freeze()

    def close(self) -> None:
        """Let the interpreter end as it would without the session."""
        gc.unfreeze()

    def _start_cuda(self) -> None:
        # Graphs cannot be captured on the default stream; all work is on one other stream.
        self._torch.cuda.set_stream(self._torch.cuda.Stream())
        self.nvml, reason = make_nvml(gpu_uuid(self.device))
        if reason:
            self.notes.append(f"throttling and power are not known: {reason}")
        stamps = None
        if not self.args.count:
            stamps, reason = make_stamps(self.device)
            if stamps is None:
                self.notes.append(f"the SM clock is not measured: {reason}")
        self.timer = CudaTimer(self.device, stamps)

    def conditions(self) -> dict[str, Any]:
        """Return what the conditions record says of the device and the software."""
        return {"gpu": gpu(self.device, self.nvml), "software": software(self.nvml)}

    def run(self, case: Case, mode: str, data: str) -> dict[str, Any]:
        """Measure or count a case; whatever it raises becomes the reason of its record.

        Raises:
            ContextLost: the CUDA context did not survive it; the text is the reason.
        """
        try:
            return (
                self._count(case, mode, data) if self.args.count else self._time(case, mode, data)
            )
        except Exception as error:
            status, reason = classify(error)
        finally:
            self._clean()
        lost = self._lost()
        if lost:
            raise ContextLost(f"{reason} ({lost})")
        return outcome(status, reason)

    def _setup(self, case: Case, mode: str, data: str, copies: int | None = None) -> Setup:
        l2 = l2_bytes(self.device)
        if copies is None:
            cold = mode == "cold"
            free = free_bytes(self.device)
            copies = copies_for(case.footprint_bytes, l2, free) if cold else 1
        return Setup(self._torch.device(self.device), copies, data, self.args.seed, l2)

    def _prepare(self, case: Case, setup: Setup) -> list[Call]:
        self._torch.manual_seed(setup.seed)
        self._torch.backends.cuda.matmul.allow_tf32 = False
        calls = list(case.prepare(setup))
        if not calls:
            raise RuntimeError("prepare returned no calls")
        return calls[: setup.copies]

    def _time(self, case: Case, mode: str, data: str) -> dict[str, Any]:
        setup = self._setup(case, mode, data)
        if self.cuda:
            self._torch.cuda.reset_peak_memory_stats()
        watch = Watch(self.nvml)
        if case.samples is not None:
            with watch, self._profiled(case_id(case, mode, data)):
                measured = _measured_itself(case.samples(setup), watch)
        else:
            calls = self._prepare(case, setup)
            gc.disable()
            try:
                with watch:
                    inside = self._profiled(case_id(case, mode, data))
                    measured = measure(case, calls, self.timer, self.limits, watch, inside)
            finally:
                gc.enable()
        notes = [measured.note]
        if mode == "cold" and case.samples is None:
            notes.append(shortfall(case.footprint_bytes, setup.l2_bytes, measured.copies))
        return timed(measured, watch, self._memory(), "; ".join(note for note in notes if note))

    def _memory(self) -> dict[str, Any] | None:
        if not self.cuda:
            return None
        return {
            "allocated_peak_bytes": int(self._torch.cuda.max_memory_allocated()),
            "reserved_peak_bytes": int(self._torch.cuda.max_memory_reserved()),
        }

    def _count(self, case: Case, mode: str, data: str) -> dict[str, Any]:
        """Run a case between cudaProfilerStart and Stop, after a call that is not counted."""
        launches = self.args.launches
        setup = self._setup(case, mode, data, 1 if mode == "hot" or launches == 1 else None)
        calls = self._prepare(case, setup)
        calls[0]()
        if mode == "cold" and case.footprint_bytes > 0:
            self._flush(setup.l2_bytes)
        self.timer.synchronize()
        with self._profiled(case_id(case, mode, data)):
            for number in range(launches):
                calls[number % len(calls)]()
            self.timer.synchronize()
        return outcome("counted")

    def _flush(self, l2: int) -> None:
        """Read so much that nothing else is left in the L2, dirty lines written back."""
        if not self.cuda:
            return
        other = self._torch.zeros(DISTINCT * l2 // 4, dtype=self._torch.float32, device=self.device)
        other.sum()
        other.sum()

    @contextlib.contextmanager
    def _profiled(self, identity: str) -> Iterator[None]:
        """Bracket what is inside for profilers: the CUDA profiler API and an NVTX range."""
        if not self.cuda:
            yield
            return
        self._torch.cuda.profiler.start()
        self._torch.cuda.nvtx.range_push(f"case:{identity}")
        try:
            yield
        finally:
            self._torch.cuda.nvtx.range_pop()
            self._torch.cuda.profiler.stop()

    def _clean(self) -> None:
        gc.collect()
        # What is left stays: modules that the case imported, kernels that it compiled. After
        # torch.compile these are 300,000 objects, and looking at them again takes 0.1 s a case.
        gc.freeze()
        if self.cuda:
            with contextlib.suppress(Exception):
                self._torch.cuda.empty_cache()

    def _lost(self) -> str:
        """Return why the CUDA context is lost, "" where it works."""
        if not self.cuda:
            return ""
        recover()
        try:
            self._torch.cuda.synchronize()
            self._torch.ones(1, device=self.device).item()
        except Exception as error:
            return " ".join(str(error).split())[:200]
        return ""


def _measured_itself(seconds: Sequence[float], watch: Watch) -> Measurement:
    watch.poll()
    if not seconds:
        raise RuntimeError("the case measured nothing")
    samples = [Sample(float(value), None, False) for value in seconds]
    return Measurement(samples, stop="samples")
