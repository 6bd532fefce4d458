"""A program that loses its time in lines that are known: does `prof where` name them?

    python planted_lines.py --steps 40
    python planted_lines.py --device cpu --steps 2     # without a GPU, to see that it runs

NVTX ranges, each with one planted cause in one line, marked `# planted: RANGE`:
`item` reads a result in each step, `allocation` gives memory back and asks for it again,
`pageable` copies from memory that is not pinned, `preparation` computes on the host in Python, and
`strided` runs a Triton kernel whose loads are scattered. The CUDA profiler API brackets them all.
Lines of JSON tell the seconds of each range, the last one the planted lines as well.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parent / "standalone.py"))
from nsight_prof.targets.standalone import need

need("torch")
import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # no GPU: there is no kernel to scatter loads
    triton = None


def planted_lines(path: Path = Path(__file__)) -> dict[str, int]:
    """Return the number of the line with the planted cause of each range, from 1."""
    lines = path.read_text().splitlines()
    marked = {n: line.partition("# planted: ")[2] for n, line in enumerate(lines, 1)}
    return {name: n for n, name in marked.items() if name.isidentifier()}


def read_result(x: torch.Tensor, w: torch.Tensor, total: float) -> float:
    """One step that asks for its result: the host waits until the GPU has nothing left."""
    for _ in range(6):
        x = torch.tanh(x @ w)
    loss = x.square().mean()
    total += loss.item()  # planted: item
    return total


def new_buffers(x: torch.Tensor) -> torch.Tensor:
    """One step with buffers that the allocator has just given back."""
    wide = [x.repeat(8, 1) for _ in range(4)]
    y = torch.stack(wide).sum(0)
    del wide
    if x.is_cuda:
        torch.cuda.empty_cache()  # planted: allocation
    return y


def copied(batch: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """One step whose batch lies in memory that is not pinned."""
    x = batch.to(w.device)  # planted: pageable
    return x @ w


def prepared(size: int) -> list[float]:
    """Work of the host on numbers of Python."""
    values = []
    for i in range(size):
        values.append((i * 7919 % 104729) / 104729.0)  # planted: preparation
    return values


def on_prepared(w: torch.Tensor, size: int) -> torch.Tensor:
    """One step that works on what the host has prepared."""
    x = torch.tensor(prepared(size), device=w.device, dtype=w.dtype)
    return x.view(-1, w.shape[0]) @ w


if triton is not None:

    @triton.jit
    def strided_sum(  # type: ignore[no-untyped-def]  # Triton compiles annotations too
        x_ptr, y_ptr, n, STRIDE: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr
    ):
        """Sums of elements that lie STRIDE apart: each load of a warp takes 32 sectors."""
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        for i in range(ROUNDS):
            at = (place * STRIDE + i * 4099) % n
            total += tl.load(x_ptr + at)  # planted: strided
        tl.store(y_ptr + place, total * 0.5)


def strided(x: torch.Tensor, y: torch.Tensor) -> None:
    """One launch of the kernel with scattered loads."""
    if triton is not None and x.is_cuda:
        strided_sum[(y.numel() // 256,)](x, y, x.numel(), STRIDE=64, ROUNDS=16, BLOCK=256)


@contextlib.contextmanager
def stage(name: str, times: dict[str, float], wait: Callable[[], None]) -> Iterator[None]:
    """An NVTX range; its wall time in seconds goes to `times`."""
    wait()
    started = time.perf_counter()
    pushed = torch.cuda.is_available()
    if pushed:
        torch.cuda.nvtx.range_push(name)
    yield
    wait()
    if pushed:
        torch.cuda.nvtx.range_pop()
    times[name] = time.perf_counter() - started


def run(device: str, steps: int, width: int, repeats: int = 1) -> dict[str, float]:
    """Run all ranges `repeats` times, the last one bracketed; return the seconds of each range."""
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
    torch.manual_seed(0)
    dtype = torch.float32
    w = torch.randn(width, width, device=device, dtype=dtype) / width**0.5
    x = torch.randn(64, width, device=device, dtype=dtype)
    tall = torch.randn(2 * width, width, device=device, dtype=dtype)
    batch = torch.randn(width * 4, width, dtype=dtype)
    far = torch.randn(1 << 24 if device == "cuda" else 1 << 12, device=device)
    sums = torch.empty(1 << 20 if device == "cuda" else 1 << 8, device=device)
    times: dict[str, float] = {}

    def everything(count: int) -> None:
        total = 0.0
        with stage("item", times, wait):
            for _ in range(4 * count):
                total = read_result(tall, w, total)
        with stage("allocation", times, wait):
            for _ in range(4 * count):
                new_buffers(x)
        with stage("pageable", times, wait):
            for _ in range(2 * count):
                copied(batch, w)
        with stage("preparation", times, wait):
            for _ in range(count):
                on_prepared(w, 32 * width)
        with stage("strided", times, wait):
            for _ in range(2 * count):
                strided(far, sums)

    everything(1)
    for _ in range(repeats - 1):
        everything(steps)
        print(json.dumps({"seconds": times}))
    if device == "cuda":
        torch.cuda.profiler.start()
    everything(steps)
    if device == "cuda":
        torch.cuda.profiler.stop()
    return times


def main(argv: list[str]) -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="Lines that lose a known part of the time.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=1, help="the last one is bracketed")
    args = parser.parse_args(argv)
    times = run(args.device, args.steps, args.width, args.repeats)
    print(json.dumps({"lines": planted_lines(), "seconds": times}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
