"""L2: the same megabytes moved again and again, swept over sizes; the L1 is passed by.

Two patterns, because the L2 of the larger GPUs is two partitions, and an SM's data is cached in
the one near it. *private*: each SM has a part of the buffer of its own. *shared*: all SMs
go through the whole buffer, as those of a matrix product do, so that both partitions serve or hold
all of it. Where the rate falls as the size grows is the edge of what the L2 holds.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any

from targets.harness import Call, Case, Roof, Setup, Work, is_cuda, l2_bytes, sm_count
from targets.roofline.memory_kernels import (
    KIB,
    MIB,
    VECTOR_BYTES,
    empty,
    filled,
    kernel,
    quoted,
    require_bulk_copies,
    size_name,
)

MOVED = 10e9
"""Bytes of a call: over 1 ms, and so many passes over the buffer that the first, which may come
from DRAM, is under 1 % of them for a buffer that fits in 64 MiB."""
BLOCK_WAVES = 4
"""Blocks there are for each that fits at a time, so that faster SMs do more of them."""
LOADS = {"cg": "ld.global.cg", "na": "ld.global.nc.L1::no_allocate"}
MAX_THREADS_PER_SM = 2048
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Sweep:
    """One point: what is moved, how, and over how many bytes.

    Attributes:
        kind: read, write or copy.
        pattern: private or shared.
        size: bytes that are touched, nominal.
        threads: a block.
        unroll: vectors of 16 bytes in flight in a thread.
        load: key of LOADS.
    """

    kind: str
    pattern: str
    size: int
    threads: int = 256
    unroll: int = 4
    load: str = "cg"

    @property
    def slice_bytes(self) -> int:
        """Contiguous bytes that a block does at a time."""
        return self.threads * self.unroll * VECTOR_BYTES

    @property
    def name(self) -> str:
        """Name of the point in its case: private-48mib, shared-32mib-b512-u4-na."""
        standard = (self.threads, self.unroll, self.load) == (256, 4, "cg")
        shape = "" if standard else f"-b{self.threads}-u{self.unroll}-{self.load}"
        return f"{self.pattern}-{size_name(self.size)}{shape}"

    def layout(self, sms: int) -> tuple[int, int, int]:
        """Return slices that an SM works on, bytes of a buffer and blocks, for so many SMs."""
        buffers = 2 if self.kind == "copy" else 1
        parts = sms if self.pattern == "private" else 1
        slices = max(1, round(self.size / (buffers * parts * self.slice_bytes)))
        blocks = sms * (MAX_THREADS_PER_SM // self.threads) * BLOCK_WAVES
        return slices, slices * parts * self.slice_bytes, blocks


def sweep_sizes(args: Namespace) -> list[int]:
    """Return the sizes in bytes: fifteenths of the L2 (4 MiB of 60) up to it and a little more."""
    if not is_cuda(args.device):
        return [l2_bytes(args.device) // 2]
    l2 = l2_bytes(args.device)
    step = max(MIB, l2 // 15 // MIB * MIB)
    small = [size for size in (2 * MIB, 4 * MIB) if size < 2 * step]
    fine = [step * i for i in range(2, 18)]
    return sorted({*small, *fine, step * 18, step * 24, step * 32, step * 64})


def points(args: Namespace) -> list[Sweep]:
    """Return the size sweep of both patterns, then other launch shapes at sizes that fit well."""
    sizes = sweep_sizes(args)
    found = [Sweep("read", "private", size) for size in sizes]
    found += [Sweep("read", "shared", size) for size in sizes[::2]]
    fitting = [size for size in sizes if size <= 0.8 * l2_bytes(args.device)]
    middle, large = fitting[len(fitting) // 2], fitting[-1]
    for size in sorted({middle, large}):
        for threads, unroll, load in (
            (256, 4, "na"), (256, 8, "cg"), (512, 4, "cg"), (1024, 2, "cg"), (128, 8, "cg")
        ):  # fmt: skip
            found.append(Sweep("read", "private", size, threads, unroll, load))
    for kind in ("write", "copy"):
        found += [Sweep(kind, "private", size) for size in fitting[1::3]]
        found.append(Sweep(kind, "private", middle, 512, 2))
    return found


def _spread(slices: int) -> int:
    """Return the step by which one block begins after another.

    Multiples of the golden ratio fill an interval evenly, however many there are; a step that has
    no divisor in common with the number of slices meets all of them.
    """
    step = max(1, round(slices * GOLDEN))
    while gcd(step, slices) != 1:
        step += 1
    return step


def _launch(point: Sweep, iterations: int, setup: Setup, copy: int) -> Call:
    """Return the launch of `memory_l2.cu` on buffers of its own; on a CPU one pass by torch."""
    sms = sm_count(setup.device)
    slices, size, blocks = point.layout(sms)
    out = empty(setup, VECTOR_BYTES if point.kind == "read" else size)
    data = out if point.kind == "write" else filled(setup, size, copy)
    if not is_cuda(setup.device):
        if point.kind == "read":
            return partial(data.sum)
        return partial(out.copy_, data) if point.kind == "copy" else partial(out.fill_, 1.0)
    stream = kernel(
        setup,
        "memory_l2.cu",
        "l2_stream",
        OPERATION=point.kind.upper(),
        THREADS=point.threads,
        UNROLL=point.unroll,
        LOAD=quoted(LOADS[point.load]),
    )
    private = point.pattern == "private"
    step = _spread(slices)
    arguments: list[Any] = [
        out,
        data,
        sms,
        slices * point.threads * point.unroll if private else 0,
        slices,
        0 if private else step,
        step if private else step * sms % slices,
        iterations,
    ]
    return stream.bind(blocks, point.threads, arguments)


def _case(point: Sweep, args: Namespace) -> Case:
    """Return the case of one point of the sweep."""
    slices, size, blocks = point.layout(sm_count(args.device))
    buffers = 2 if point.kind == "copy" else 1
    if is_cuda(args.device):
        iterations = max(1, round(MOVED / (buffers * blocks * point.slice_bytes)))
        moved = buffers * blocks * point.slice_bytes * iterations
    else:
        iterations, moved = 1, buffers * size
    fits = buffers * size <= l2_bytes(args.device)
    return Case(
        name=f"l2/{point.kind}/{point.name}",
        operation=f"L2 {point.kind}",
        prepare=lambda setup: [
            _launch(point, iterations, setup, copy) for copy in range(setup.copies)
        ],
        work=Work(bytes=moved),
        footprint_bytes=buffers * size,
        params={
            "footprint_bytes": buffers * size,
            "pattern": point.pattern,
            "threads": point.threads,
            "unroll": point.unroll,
            "load": point.load,
            "passes": moved / (buffers * size),
        },
        level="l2",
        modes=("hot",),
        roof=Roof("l2", point.kind) if fits else None,
    )


BULK_SHAPES = ((16 * KIB, 6, 2), (8 * KIB, 6, 4))
"""Bytes of a bulk copy, copies in flight of a block, and blocks an SM."""


def _launch_bulk(
    shape: tuple[int, int, int], size: int, passes: int, setup: Setup, copy: int
) -> Call:
    """Return the launch of `bulk_read`, which the L1 has no part in; on a CPU one sum."""
    chunk, stages, blocks = shape
    data = filled(setup, size, copy)
    if not is_cuda(setup.device):
        return partial(data.sum)
    require_bulk_copies(setup, chunk * stages)
    bulk = kernel(setup, "memory_bulk.cu", "bulk_read", CHUNK=chunk, STAGES=stages)
    bulk.allow_shared(chunk * stages)
    chunks = size // chunk
    grid = blocks * sm_count(setup.device)
    arguments = [empty(setup, VECTOR_BYTES), data, chunks, chunks * passes]
    return bulk.bind(grid, 32, arguments, chunk * stages)


def _bulk_case(shape: tuple[int, int, int], size: int, passes: int) -> Case:
    """Return the case of reading `size` bytes so many times by bulk copies."""
    chunk, stages, blocks = shape
    return Case(
        name=f"l2/read/bulk-{size_name(size)}-k{blocks}-c{chunk // KIB}k-s{stages}",
        operation="L2 read",
        prepare=lambda setup: [
            _launch_bulk(shape, size, passes, setup, copy) for copy in range(setup.copies)
        ],
        work=Work(bytes=size * passes),
        footprint_bytes=size,
        params={
            "footprint_bytes": size,
            "pattern": "shared",
            "load": "bulk",
            "chunk_bytes": chunk,
            "stages": stages,
            "blocks_per_sm": blocks,
            "passes": passes,
        },
        level="l2",
        modes=("hot",),
        roof=Roof("l2", "read"),
    )


def cases(args: Namespace) -> Iterator[Case]:
    """Yield the size sweeps, the other launch shapes and the bulk copies."""
    for point in dict.fromkeys(points(args)):
        yield _case(point, args)
    fitting = [size for size in sweep_sizes(args) if size <= 0.8 * l2_bytes(args.device)]
    for size in sorted({fitting[len(fitting) // 2], fitting[-1]}):
        passes = max(1, round(MOVED / size)) if is_cuda(args.device) else 1
        for shape in BULK_SHAPES:
            yield _bulk_case(shape, size, passes)
