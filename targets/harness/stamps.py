"""The SM clock of each sample, in the kernel's own time: clock64 over %globaltimer.

A stamp is a tiny kernel before and after a sample. On each SM it writes the SM's cycle counter and
the time in nanoseconds; the cycles between two stamps over the time between them are that SM's
clock. nvbench measures the clock of its samples the same way.
"""

from __future__ import annotations

from typing import Any

from nsight_prof.targets.harness.cuda import CInt32, CudaModule, Kernel
from nsight_prof.targets.harness.device import sm_count

SOURCE = r"""
extern "C" __global__ void stamp(unsigned long long *out, int slots) {
    unsigned sm;
    unsigned long long now;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    unsigned long long cycles = clock64();
    if (threadIdx.x == 0 && sm < slots) {
        out[2 * sm] = cycles;
        out[2 * sm + 1] = now;
    }
}

extern "C" __global__ void timer_step(unsigned long long *out, int changes) {
    unsigned long long last, now, least = ~0ull;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(last));
    for (int seen = 0; seen < changes;) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now > last) {
            if (seen > 0 && now - last < least) least = now - last;
            last = now;
            ++seen;
        }
    }
    out[0] = least;
}
"""
PRECISION = 0.005
"""Wanted relative error of the clock: the timer's step at both ends over the time between them."""
CHANGES = 64
BLOCK = 1024
"""Threads of a stamp's block: two fill an SM, so that the blocks of a grid spread over all SMs."""


class Stamps:
    """Writes stamps into a buffer and turns pairs of them into clocks in Hz."""

    def __init__(self, device: Any) -> None:
        """Compile the kernels and measure the step of the timer.

        Raises:
            Unsupported: there is no NVRTC or cuda.bindings.
            CudaError: the kernels do not compile or run.
        """
        import torch

        module = CudaModule(SOURCE)
        self._torch = torch
        self._device = device
        self._stamp: Kernel = module.function("stamp")
        self._blocks = sm_count(device)
        # SM numbers may have holes where some SMs are switched off; twice as many hold them.
        self.slots = 2 * self._blocks
        step = torch.zeros(1, dtype=torch.int64, device=device)
        module.function("timer_step")(1, 1, [step, CInt32(CHANGES)])
        self.step_s = int(step.item()) * 1e-9

    def buffer(self, stamps: int) -> Any:
        """Return a zeroed device buffer (stamps, slots, 2) of int64: cycles and nanoseconds."""
        torch = self._torch
        return torch.zeros((stamps, self.slots, 2), dtype=torch.int64, device=self._device)

    def write(self, row: Any) -> None:
        """Queue a stamp into one row of a buffer."""
        self._stamp(self._blocks, BLOCK, [row, CInt32(self.slots)])

    def clocks(self, written: Any) -> list[float | None]:
        """Return the clock in Hz between each two stamps of a buffer on the host."""
        return clocks(written, self.step_s)


def make_stamps(device: Any) -> tuple[Stamps | None, str]:
    """Return stamps for a CUDA device, or None and why the clock cannot be measured."""
    try:
        return Stamps(device), ""
    except Exception as error:  # the clock is an extra: nothing it lacks may stop a measurement
        return None, f"{type(error).__name__}: {error}"


def clocks(written: Any, step_s: float) -> list[float | None]:
    """Return the SM clock in Hz between stamps 0 and 1, 2 and 3, ...

    Args:
        written: torch tensor (2 x samples, slots, 2) of int64 on the host: cycles and nanoseconds
            of each SM; 0 where an SM wrote nothing.
        step_s: step of the timer in seconds.

    Returns:
        The median over the SMs that wrote both stamps; None where there are none, or where the
        time between the stamps is too short for the timer's step.
    """
    before, after = written[0::2], written[1::2]
    there = (before[..., 1] > 0) & (after[..., 1] > before[..., 1])
    deltas = (after - before).double()
    found: list[float | None] = []
    for pair, mask in zip(deltas, there, strict=True):
        cycles, nanoseconds = pair[mask].unbind(-1)
        if not len(cycles) or 2 * step_s > PRECISION * float(nanoseconds.median()) * 1e-9:
            found.append(None)
            continue
        found.append(float((cycles / nanoseconds).median()) * 1e9)
    return found
