"""L1 and shared memory: each SM reads its own few kilobytes again and again.

Strided variants show what bank conflicts (shared memory) and extra cache lines (L1) cost; they are
no candidates for a roof.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import gcd

from nsight_prof.targets.harness import Call, Case, Roof, Setup, Work, is_cuda, sm_count
from nsight_prof.targets.roofline.memory_kernels import (
    KIB,
    empty,
    filled,
    kernel,
    require_shared,
    size_name,
)

MOVED_PER_SM = 400e6
"""Useful bytes of a call that each SM reads at unit stride: about 1.6 ms at 128 bytes a clock."""
STRIDES = (1, 2, 4, 8, 16, 32)
STRIDED_REGION = 16 * KIB
"""Bytes over which the warps of a strided variant are spread: a power of two that any L1 holds."""
WARP = 32
DEFAULT_SHARED = 48 * KIB
"""Dynamic shared memory that a block gets without asking."""


@dataclass(frozen=True)
class Shape:
    """How each SM reads.

    Attributes:
        level: l1 or shared.
        blocks: an SM.
        threads: a block.
        unroll: loads in flight of a thread.
        words: 32-bit words of a load.
        stride: of the lanes of a warp, in loads; 0 for a roof candidate, whose lanes and warps
            read neighbouring words of the whole buffer.
    """

    level: str
    blocks: int
    threads: int
    unroll: int
    words: int
    stride: int = 0

    @property
    def hop(self) -> int:
        """Bytes from one load of a thread to its next: past all threads, or past all banks."""
        return 128 if self.stride else self.threads * 4 * self.words

    @property
    def half(self) -> int:
        """Bytes that the loads of an iteration are moved by in every second iteration."""
        return self.unroll * self.hop

    @property
    def buffer_bytes(self) -> int:
        """Bytes of a block's buffer."""
        if not self.stride:
            return 2 * self.half
        last_lane = (WARP - 1) * 4 * self.words * self.stride
        return -(-(STRIDED_REGION + last_lane + 2 * self.half) // 128) * 128

    @property
    def iteration_bytes(self) -> int:
        """Useful bytes of one iteration of a block."""
        return self.threads * self.unroll * 4 * self.words

    def iterations(self) -> int:
        """Return the iterations of a call: of about the same time for every stride.

        A strided load of L1 takes a pass for each line of 128 bytes that it touches, one of shared
        memory for each of the words that lie in one bank.
        """
        slower = 1
        if self.stride:
            slower = gcd(self.stride, WARP) if self.level == "shared" else min(self.stride, WARP)
        return max(2, round(MOVED_PER_SM / slower / (self.blocks * self.iteration_bytes)))

    @property
    def name(self) -> str:
        """Name of the shape in its case: k2-b1024-u1-w4, stride-8."""
        if self.stride:
            return f"stride-{self.stride}"
        return f"k{self.blocks}-b{self.threads}-u{self.unroll}-w{self.words}"


CANDIDATES = (
    (1, 1024, 1, 4), (1, 1024, 2, 4), (2, 1024, 1, 4), (2, 1024, 2, 4), (1, 512, 4, 4),
    (2, 512, 2, 4), (4, 256, 2, 4), (2, 1024, 2, 2), (1, 1024, 4, 2), (2, 1024, 4, 1),
)  # fmt: skip
"""Blocks an SM, threads, loads in flight, words: 32 to 128 KiB an SM."""


def _launch(shape: Shape, iterations: int, setup: Setup, copy: int) -> Call:
    """Return the launch of `memory_sm.cu` on a buffer of its own; on a CPU a sum of the buffer."""
    blocks = shape.blocks * sm_count(setup.device)
    data = filled(setup, blocks * shape.buffer_bytes, copy)
    if not is_cuda(setup.device):
        return partial(data.sum)
    read = kernel(
        setup,
        "memory_sm.cu",
        "sm_read",
        LEVEL=shape.level.upper(),
        THREADS=shape.threads,
        UNROLL=shape.unroll,
        WORDS=shape.words,
        HOP=shape.hop,
    )
    shared = shape.buffer_bytes if shape.level == "shared" else 0
    # The L1 and shared memory are one: as much of it as can be for what is measured.
    read.prefer_shared(100 if shared else 0)
    if shared > DEFAULT_SHARED:
        require_shared(setup, shared)
        read.allow_shared(shared)
    mask = (STRIDED_REGION if shape.stride else 1 << 30) - 1
    arguments = [empty(setup, 16), data, shape.buffer_bytes, max(1, shape.stride), mask]
    arguments += [shape.half, iterations]
    return read.bind(blocks, shape.threads, arguments, shared)


def _case(shape: Shape, args: Namespace) -> Case:
    """Return the case of one shape."""
    iterations = shape.iterations() if is_cuda(args.device) else 1
    blocks = shape.blocks * sm_count(args.device)
    title = {"l1": "L1", "shared": "shared memory"}[shape.level]
    return Case(
        name=f"{shape.level}/read/{shape.name}",
        operation=f"{title} read, strided" if shape.stride else f"{title} read",
        prepare=lambda setup: [
            _launch(shape, iterations, setup, copy) for copy in range(setup.copies)
        ],
        work=Work(bytes=float(blocks * iterations * shape.iteration_bytes)),
        footprint_bytes=blocks * shape.buffer_bytes,
        params={
            "blocks_per_sm": shape.blocks,
            "threads": shape.threads,
            "unroll": shape.unroll,
            "load_bytes": 4 * shape.words,
            "bytes_per_sm": shape.blocks * shape.buffer_bytes,
            "buffer": size_name(shape.buffer_bytes),
            "stride_words": max(1, shape.stride),
        },
        level=shape.level,
        modes=("hot",),
        roof=None if shape.stride else Roof(shape.level, "read"),
    )


def cases(args: Namespace) -> Iterator[Case]:
    """Yield the candidates for the roofs of L1 and shared memory, and their strided variants."""
    for level in ("l1", "shared"):
        for candidate in CANDIDATES:
            yield _case(Shape(level, *candidate), args)
        strided = Shape(level, 1, 1024, 4, 1)
        for stride in STRIDES:
            yield _case(replace(strided, stride=stride), args)
