"""Latency of each memory level: one thread follows pointers, each load waiting for the last.

    python targets/roofline/latency.py --only latency/sweep

The chain visits lines of 128 bytes of its buffer in random order (one cycle over all), so that no
prefetcher and no second access to a line helps. The value of a level is the mean over its chain.
The sweep over buffer sizes shows a plateau for each level, and the reach of the TLBs; two cases
show how the latency of the L2 depends on where the line is and on which SM asks.
"""

from __future__ import annotations

import runpy
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))

from nsight_prof.targets.harness import (
    Call,
    Case,
    Roof,
    Setup,
    Unsupported,
    Work,
    is_cuda,
    l2_bytes,
    run_target,
    sm_count,
)
from nsight_prof.targets.roofline.memory_kernels import (
    GIB,
    KIB,
    MIB,
    empty,
    kernel,
    memory_bytes,
    size_name,
)

LINE = 128
"""Bytes of a cache line: the distance between two nodes of a chain."""
ON_CPU = 64
"""Accesses of a call on a CPU, where the chain is followed by torch."""
BLOCK = 1024
"""Threads that load or follow a chain before one follows it alone."""
SETTLING = 6
"""Times that they go over it."""
PRESENT = 512 * KIB
"""Chains up to this size are in the L1, as far as they fit, when the thread begins."""
START_SPACING = 2048
"""Nodes from one start to the next: more than one thread follows in the 2^18 ns after which
`latency.cu` takes the next start, if no DRAM access is faster than 128 ns."""


@dataclass(frozen=True)
class Chain:
    """A chain of pointers in global memory.

    Attributes:
        size: bytes of the buffer that the nodes lie in.
        nodes: visited in a random cycle; 0 for one in every line of the buffer.
        accesses: of a call; a multiple of 16.
        past_l1: the loads do not look into the L1.
        timed_start: begin at a place that the time chooses, else where the call before ended.
        present: each call first has the whole buffer loaded into the L1, by many threads.
    """

    size: int
    accesses: int
    nodes: int = 0
    past_l1: bool = False
    timed_start: bool = False
    present: bool = False


def cycle(generator: Any, lines: int, nodes: int, device: Any) -> Any:
    """Return a random cycle: which lines of a buffer are visited, in order.

    Args:
        generator: torch.Generator of the device.
        lines: there are in the buffer.
        nodes: visited, at most `lines`.
        device: where to.

    Returns:
        int64 tensor [nodes] of distinct line numbers.
    """
    import torch

    return torch.randperm(lines, generator=generator, device=device)[:nodes]


def link(order: Any, lines: int) -> Any:
    """Return a buffer in which each visited line begins with the address of the next.

    Args:
        order: int64 tensor [nodes] of distinct line numbers.
        lines: of the buffer.

    Returns:
        int64 tensor [lines, 16]; element [order[i], 0] is the address of line order[i + 1].
    """
    import torch

    buffer = torch.zeros((lines, LINE // 8), dtype=torch.int64, device=order.device)
    buffer[order, 0] = buffer.data_ptr() + order.roll(-1) * LINE
    return buffer


def _generator(setup: Setup) -> Any:
    import torch

    return torch.Generator(device=setup.device).manual_seed(setup.seed)


def _follow_on_cpu(setup: Setup, nodes: int) -> Call:
    """Return a call that follows a chain of indices by torch."""
    order = cycle(_generator(setup), nodes, nodes, setup.device)
    following = order.new_empty(nodes)
    following[order] = order.roll(-1)

    def follow() -> int:
        place = 0
        for _ in range(ON_CPU):
            place = int(following[place])
        return place

    return follow


def _settle(setup: Setup, buffer: Any, order: Any) -> None:
    """Let one SM wander over a chain until the L2 holds of it what it holds in the long run.

    That is not what it holds after a first pass: what lies in the far partition gets a second place
    in the near one, and the longer a chain that fits only once has been followed, the more of it
    that pushes out.
    """
    import torch

    threads = min(BLOCK, len(order))
    starts = buffer.data_ptr() + order[:: len(order) // threads][:threads] * LINE
    passes = SETTLING if buffer.nbytes <= 8 * setup.l2_bytes else 1
    accesses = passes * len(order) // threads
    wander = kernel(setup, "latency.cu", "wander")
    wander(1, threads, [starts.contiguous(), accesses, empty(setup, 8)])
    torch.cuda.synchronize()


def _launch(chain: Chain, setup: Setup) -> Call:
    """Return the launch of `chase_l1` or `chase_l2` over a chain of its own."""
    if not is_cuda(setup.device):
        return _follow_on_cpu(setup, 256)
    lines = chain.size // LINE
    order = cycle(_generator(setup), lines, chain.nodes or lines, setup.device)
    buffer = link(order, lines)
    # A power of two of them, because the kernel takes the remainder by a mask.
    entries = 1 << max(0, (len(order) // START_SPACING).bit_length() - 1)
    entries = entries if chain.timed_start else 1
    starts = (buffer.data_ptr() + order[:: len(order) // entries][:entries] * LINE).contiguous()
    name = "chase_l2" if chain.past_l1 else "chase_l1"
    chase = kernel(setup, "latency.cu", name)
    chase.prefer_shared(0)  # all of the unified L1 for the L1
    _settle(setup, buffer, order)
    resume, present = int(not chain.timed_start), lines if chain.present else 0
    arguments = [starts, entries, resume, chain.accesses, buffer, present, empty(setup, 8)]
    once = chase.bind(1, BLOCK if present else 1, arguments)

    def follow(_kept: Any = buffer) -> None:  # the chain lives as long as its call
        once()

    return follow


def _prepare_shared(size: int, accesses: int, setup: Setup) -> list[Call]:
    """Return the launches of `chase_shared`."""
    import torch

    if not is_cuda(setup.device):
        return [_follow_on_cpu(setup, size // 4) for _ in range(setup.copies)]
    order = cycle(_generator(setup), size // 4, size // 4, setup.device)
    offsets = torch.empty(size // 4, dtype=torch.int32, device=setup.device)
    offsets[order] = (order.roll(-1) * 4).to(torch.int32)
    chase = kernel(setup, "latency.cu", "chase_shared")
    arguments = [offsets, size, accesses, empty(setup, 8)]
    return [chase.bind(1, 256, arguments, size)] * setup.copies


def _chain_case(name: str, level: str, chain: Chain, args: Namespace, **other: Any) -> Case:
    """Return the case of following one chain."""
    accesses = chain.accesses if is_cuda(args.device) else ON_CPU
    return Case(
        name=f"latency/{name}",
        operation=f"{level} latency" if level else "latency",
        prepare=lambda setup: [_launch(chain, setup) for _ in range(setup.copies)],
        work=Work(accesses=accesses),
        footprint_bytes=chain.size,
        params={
            "footprint_bytes": chain.size,
            "nodes": chain.nodes or chain.size // LINE,
            "past_l1": chain.past_l1,
        },
        level={"L1": "l1", "L2": "l2", "DRAM": "dram"}.get(level, ""),
        **other,
    )


LINES, LINE_ACCESSES = 512, 64
"""Lines of the L2 whose latency is measured from every SM, and accesses to each."""


def line_latencies(setup: Setup) -> Any:
    """Measure the latency of LINES random lines of the L2 as seen from each SM.

    Returns:
        float64 array [SMs, LINES] of seconds an access.

    Raises:
        Unsupported: the device is no GPU.
    """
    import torch

    if not is_cuda(setup.device):
        raise Unsupported("the latency of a line is measured by the clock of an SM")
    size = min(16 * MIB, setup.l2_bytes // 4)
    lines = cycle(_generator(setup), size // LINE, LINES, setup.device)
    buffer = torch.zeros((size // LINE, LINE // 8), dtype=torch.int64, device=setup.device)
    addresses = buffer.data_ptr() + lines * LINE
    buffer[lines, 0] = addresses
    sms = sm_count(setup.device)
    ticks = torch.zeros((sms, LINES), dtype=torch.int64, device=setup.device)
    when = torch.zeros((sms, 2), dtype=torch.int64, device=setup.device)
    measure = kernel(setup, "latency.cu", "line_latency")
    arguments = [addresses, LINES, LINE_ACCESSES, ticks, when, empty(setup, 8)]
    for _ in range(2):  # the first is the warm-up
        measure(sms, 1, arguments)
    torch.cuda.synchronize()
    cycles, nanoseconds = when.double().sum(dim=0).tolist()
    seconds_a_cycle = nanoseconds * 1e-9 / cycles
    return (ticks.double() / LINE_ACCESSES * seconds_a_cycle).cpu().numpy()


def _by_address(setup: Setup) -> Sequence[float]:
    """Return the latency of each line from the SM of the first block: near and far partition."""
    return [float(value) for value in line_latencies(setup)[0]]


def _by_sm(setup: Setup) -> Sequence[float]:
    """Return the mean latency over the lines from each SM."""
    return [float(value) for value in line_latencies(setup).mean(axis=1)]


def _not_counted(setup: Setup) -> Sequence[Call]:
    del setup
    raise Unsupported("measured by its own clock reads, of which counters say nothing")


def _spread_cases() -> Iterator[Case]:
    """Yield the distributions of the L2's latency; each sample is a line or an SM."""
    for name, samples in (("by-address", _by_address), ("by-sm", _by_sm)):
        yield Case(
            name=f"latency/l2/{name}",
            operation="L2 latency",
            prepare=_not_counted,
            work=Work(accesses=1),
            footprint_bytes=16 * MIB,
            params={"lines": LINES, "samples_are": "lines" if name == "by-address" else "SMs"},
            level="l2",
            modes=("hot",),
            samples=samples,
            counted=False,
        )


def _level_cases(args: Namespace) -> Iterator[Case]:
    """Yield the candidate for the latency of each level."""
    l2 = l2_bytes(args.device)
    cuda = is_cuda(args.device)
    yield Case(
        name="latency/shared",
        operation="shared memory latency",
        prepare=lambda setup: _prepare_shared(4 * KIB, 131072, setup),
        work=Work(accesses=131072 if cuda else ON_CPU),
        footprint_bytes=4 * KIB,
        params={"footprint_bytes": 4 * KIB, "nodes": KIB},
        level="shared",
        modes=("hot",),
        roof=Roof("shared", "latency"),
    )
    hot: dict[str, Any] = {"modes": ("hot",)}
    first = Chain(16 * KIB, 65536, present=True)
    yield _chain_case("l1", "L1", first, args, roof=Roof("l1", "latency"), **hot)
    # Few nodes, far apart: a call meets each so often that the first time, from DRAM, is lost.
    second = Chain(min(16 * MIB, l2 // 4), 262144, nodes=512, past_l1=True)
    yield _chain_case("l2/mean", "L2", second, args, roof=Roof("l2", "latency"), **hot)
    size = GIB
    if cuda:
        while size > memory_bytes(args.device) // 8 and size > 8 * l2:
            size //= 2
    last = Chain(size, 4096, past_l1=True, timed_start=True)
    name = f"dram/{size_name(size)}"
    yield _chain_case(name, "DRAM", last, args, roof=Roof("dram", "latency"))


def sweep_sizes(args: Namespace) -> list[int]:
    """Return the buffer sizes of the sweep in bytes: 16 KiB to 4 GiB, finer about the levels."""
    if not is_cuda(args.device):
        return [16 * KIB, MIB]
    l2 = l2_bytes(args.device) // MIB * MIB
    sizes = {16 * KIB << i for i in range(19)}  # to 4 GiB
    sizes |= {96 * KIB, 160 * KIB, 192 * KIB, 208 * KIB, 224 * KIB, 240 * KIB, 288 * KIB}
    parts = (0.4, 0.47, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)
    sizes |= {int(l2 * part) // MIB * MIB for part in parts}
    return sorted(size for size in sizes if size <= memory_bytes(args.device) // 8)


def cases(args: Namespace) -> Iterator[Case]:
    """Yield the latency of each level, its distribution in the L2, and the sweep over sizes."""
    yield from _level_cases(args)
    yield from _spread_cases()
    l2 = l2_bytes(args.device)
    for size in sweep_sizes(args):
        # Where a part of the accesses hits, many are needed for a mean that repeats.
        accesses = 32768 if size <= PRESENT else 16384 if l2 // 4 < size <= 4 * l2 else 8192
        # Where a call ended the next goes on: hot is then what a program sees that does so.
        yield _chain_case(
            f"sweep/{size_name(size)}",
            "",
            Chain(size, accesses, present=size <= PRESENT),
            args,
            modes=("hot",),
            counted=False,
        )


if __name__ == "__main__":
    sys.exit(
        run_target(
            "roofline",
            cases,
            sys.argv[1:],
            description="Measure the latency of L1, shared memory, L2 and DRAM.",
        )
    )
