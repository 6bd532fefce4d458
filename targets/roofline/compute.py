"""Roofs of the FP64, FP32 and packed FP16 pipes: chains of fused multiply-adds in registers.

    python compute.py --only fp32

The launch shape (threads per block and per SM, chains per thread, length of the loop) is searched.
The loop holds 256 or 1024 multiply-adds beside its three other instructions, and the operands stay
in registers, so that nothing but the pipe is at work. Each shape is measured in short windows; one
more case of each pipe loads it for over 2 s, with the shape that was quickest in a trial.
"""

from __future__ import annotations

import argparse
import functools
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))
from nsight_prof.targets.harness import (
    Call,
    Case,
    CudaModule,
    Roof,
    Setup,
    Work,
    is_cuda,
    run_target,
    sm_count,
)

SOURCE = Path(__file__).with_name("fma_chains.cu")


@dataclass(frozen=True)
class Precision:
    """A pipe: its number in fma_chains.cu, operations of a multiply-add, links a thread."""

    name: str
    real: int
    flops: int
    links: int


# With 2048 threads on an SM that does 128 multiply-adds a clock: 4.2 million clocks, about 2 ms.
PRECISIONS = (
    Precision("fp64", 1, 2, 1 << 17),
    Precision("fp32", 2, 2, 1 << 18),
    Precision("fp16", 3, 4, 1 << 18),
)


@dataclass(frozen=True)
class Shape:
    """A launch shape: threads per block and resident per SM, chains per thread, links in a loop."""

    block: int
    threads_per_sm: int
    chains: int
    loop: int

    @property
    def name(self) -> str:
        """Part of the case's name."""
        return f"b{self.block}-t{self.threads_per_sm}-c{self.chains}-l{self.loop}"


SHAPES = (
    Shape(128, 512, 16, 1024),
    Shape(128, 1024, 8, 1024),
    Shape(128, 2048, 8, 1024),
    Shape(256, 1024, 4, 1024),
    Shape(256, 1024, 8, 256),
    Shape(256, 1024, 16, 1024),
    Shape(256, 2048, 8, 1024),
    Shape(1024, 2048, 2, 1024),
    Shape(1024, 2048, 4, 1024),
    Shape(1024, 2048, 8, 256),
    Shape(1024, 2048, 8, 1024),
)
SAME_WORK = tuple(shape for shape in SHAPES if shape.threads_per_sm == 2048)
"""Shapes whose launches do the same work, so that their times can be compared."""


@functools.cache
def _module(real: int, chains: int, loop: int) -> CudaModule:
    options = (f"-DREAL={real}", f"-DCHAINS={chains}", f"-DUNROLL={loop // chains}")
    return CudaModule(SOURCE.read_text(), options)


def flops_of(precision: Precision, shape: Shape, sms: int) -> float:
    """Return the operations of one launch: threads x links x operations of a link."""
    return float(sms * shape.threads_per_sm) * precision.links * precision.flops


def _chains(setup: Setup, precision: Precision, shape: Shape) -> Call:
    """Return the launch; starts are N(0, 1) within (-1, 1), summands uniform in (-1.9, -1.5)."""
    import torch

    torch.manual_seed(setup.seed)
    dtype = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16}[precision.name]
    lanes = 2 if precision.name == "fp16" else 1
    size = (1 + shape.chains, shape.block * lanes)
    numbers = torch.randn(size, device=setup.device, dtype=torch.float32).tanh_()
    numbers[0].uniform_(-1.9, -1.5)
    if setup.data == "zeros":
        numbers.zero_()
    numbers = numbers.to(dtype)
    out = torch.empty(shape.block, device=setup.device, dtype=dtype)
    kernel = _module(precision.real, shape.chains, shape.loop).function("fma_chains")
    grid = sm_count(setup.device) * shape.threads_per_sm // shape.block
    return kernel.bind(grid, shape.block, (numbers, out, precision.links // shape.loop))


def _on_cpu(setup: Setup, precision: Precision) -> Call:
    """Return a stand-in of the same operations as one link on 4096 numbers."""
    import torch

    dtype = torch.float64 if precision.name == "fp64" else torch.float32
    torch.manual_seed(setup.seed)
    chain, summand = (torch.randn(4096, dtype=dtype) for _ in range(2))
    return lambda: torch.addcmul(summand, chain, chain)


def _prepare(precision: Precision, shape: Shape) -> Callable[[Setup], Sequence[Call]]:
    def prepare(setup: Setup) -> Sequence[Call]:
        if not is_cuda(setup.device):
            return [_on_cpu(setup, precision)]
        return [_chains(setup, precision, shape)]

    return prepare


def _prepare_quickest(precision: Precision) -> Callable[[Setup], Sequence[Call]]:
    """Prepare the shape that takes the least time a multiply-add in one trial of each."""

    def prepare(setup: Setup) -> Sequence[Call]:
        if not is_cuda(setup.device):
            return [_on_cpu(setup, precision)]
        calls = [_chains(setup, precision, shape) for shape in SAME_WORK]
        return [min(calls, key=trial_seconds)]

    return prepare


def trial_seconds(call: Call) -> float:
    """Return the seconds of a call's second run on the GPU: enough to choose among several."""
    import torch

    call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Return the cases: each pipe in each launch shape, and each pipe under steady load."""
    on_gpu = is_cuda(args.device)
    sms = sm_count(args.device)
    for precision in PRECISIONS:
        shapes = SHAPES if on_gpu else SHAPES[:2]
        for shape in shapes:
            yield Case(
                name=f"fma/{precision.name}/{shape.name}",
                operation=f"{precision.name.upper()} multiply-add",
                prepare=_prepare(precision, shape),
                work=Work(flops=flops_of(precision, shape, sms) if on_gpu else 2 * 4096),
                params={
                    "block": shape.block,
                    "threads_per_sm": shape.threads_per_sm,
                    "chains": shape.chains,
                    "loop": shape.loop,
                },
                dtype=precision.name,
                level=precision.name,
                modes=("hot",),
                data=("normal", "zeros") if shape == SAME_WORK[0] else ("normal",),
                roof=Roof(precision.name, "fma", precision.name),
            )
        widest = SAME_WORK[0]
        yield Case(
            name=f"fma/{precision.name}/steady",
            operation=f"{precision.name.upper()} multiply-add",
            prepare=_prepare_quickest(precision),
            work=Work(flops=flops_of(precision, widest, sms) if on_gpu else 2 * 4096),
            params={"launch_shape": f"quickest of {len(SAME_WORK)}"},
            dtype=precision.name,
            level=precision.name,
            modes=("hot",),
            roof=Roof(precision.name, "steady", precision.name),
            duration="steady",
        )


def main(argv: list[str] | None = None) -> int:
    """Measure the pipes."""
    return run_target("roofline", cases, argv, description=__doc__)


if __name__ == "__main__":
    sys.exit(main())
