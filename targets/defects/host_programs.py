"""The pairs of programs whose GPU waits for the host, or has too little to do at a time."""

from __future__ import annotations

import random
from typing import Any

from nsight_prof.targets.defects.own_kernels import FACTOR, TERM
from nsight_prof.targets.defects.pair import Pair, Step
from nsight_prof.targets.harness import CudaModule

LAUNCHES, NODES = 1000, 2000
LAUNCHED, CHAINED, SYNCHRONISED = 1 << 16, 1 << 15, 1 << 23
STEPS = 10
PREPARED = 20_000
"""Numbers that the host sorts for a step: about 5 ms."""


def graph_of(step: Step) -> Any:
    """Return a CUDA graph of one call."""
    import torch

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def _launch_bound() -> Pair:
    import torch

    x = torch.ones(LAUNCHED, device="cuda")

    def run() -> None:
        for _ in range(LAUNCHES):
            x.mul_(0.999)

    graph = graph_of(run)
    return Pair("launch_bound", run, graph.replay, repeats=3)


def _small_kernels() -> Pair:
    import torch

    from nsight_prof.targets.defects.own_kernels import source

    x = torch.ones(CHAINED, device="cuda")

    def run() -> None:
        for _ in range(NODES // 2):
            x.mul_(0.999)
            x.add_(0.001)

    kernel = CudaModule(source("compute")).function("many_steps_at_once")
    at_once = kernel.bind(CHAINED // 256, 256, [x, NODES // 2, FACTOR, TERM])
    return Pair("small_kernels", graph_of(run).replay, at_once, repeats=2)


def prepare(numbers: list[int]) -> float:
    """Return a scale that a program computes on the host from `numbers`: their middle value."""
    ranked = sorted(number * number % 10007 for number in numbers)
    return ranked[len(ranked) // 2] / 10007


def _host_bound() -> Pair:
    import torch

    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.zeros_like(a)
    numbers = random.Random(0).sample(range(10 * PREPARED), PREPARED)
    prepared = prepare(numbers)

    def multiply(scale: float) -> None:
        torch.addmm(out, a, b, beta=0.0, alpha=scale, out=out)

    def run() -> None:
        for _ in range(STEPS):
            torch.cuda.nvtx.range_push("prepare")
            scale = prepare(numbers)
            torch.cuda.nvtx.range_pop()
            multiply(scale)

    def repaired() -> None:
        for _ in range(STEPS):
            multiply(prepared)

    return Pair("host_bound", run, repaired, repeats=1)


def _sync_stalls() -> Pair:
    import torch

    x = torch.ones(SYNCHRONISED, device="cuda")

    def run() -> None:
        x.mul_(0.999)
        torch.cuda.synchronize()

    return Pair("sync_stalls", run, lambda: x.mul_(0.999), repeats=200)


def host_pairs() -> list[Pair]:
    """Return the pairs; allocates their tensors and captures their graphs."""
    return [_small_kernels(), _launch_bound(), _host_bound(), _sync_stalls()]
