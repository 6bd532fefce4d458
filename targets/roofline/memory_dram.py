"""DRAM: read, write, copy, scale and triad streams over buffers far larger than the L2.

The launch shape is searched: every shape below is a case, and the fastest that the counters
confirm is the roof. The five streams are those of BabelStream without dot (which is a read), in
float32, with write-allocate counted nowhere: a GPU's L2 writes whole sectors without reading them.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nsight_prof.targets.harness import (
    Call,
    Case,
    CFloat,
    CInt32,
    Roof,
    Setup,
    Work,
    is_cuda,
    sm_count,
)
from nsight_prof.targets.roofline.memory_kernels import (
    GIB,
    KEPT,
    KIB,
    MIB,
    VECTOR_BYTES,
    empty,
    filled,
    kernel,
    memory_bytes,
    quoted,
    require_bulk_copies,
)

STREAMS = {"read": (1, 0), "write": (0, 1), "copy": (1, 1), "scale": (1, 1), "triad": (2, 1)}
"""Buffers read and buffers written by each kind of stream."""

LOADS = {
    "": "ld.global.nc.L1::no_allocate",
    "l2-256b": "ld.global.nc.L1::no_allocate.L2::256B",
    "cs": "ld.global.cs",
}
STORES = {"": "st.global", "cs": "st.global.cs", "wt": "st.global.wt"}
SIGN_AND_MANTISSA, EXPONENT = 0x807FFFFF, 0x3F000000
"""Bits of the floats in +-[0.5, 1) that the write stream makes instead of reading random data."""
FACTOR = 0.75


@dataclass(frozen=True)
class Shape:
    """How a stream is launched.

    Attributes:
        threads: a block.
        unroll: vectors of 16 bytes that a thread has in flight.
        blocks_per_sm: 0: as many blocks as chunks (one-shot); else of a grid-stride loop.
        load: key of LOADS.
        store: key of STORES.
        evict: bits: 1 loads, 2 stores are the first to leave the L2.
    """

    threads: int
    unroll: int
    blocks_per_sm: int = 0
    load: str = ""
    store: str = ""
    evict: int = 0

    @property
    def chunk_bytes(self) -> int:
        """Contiguous bytes of one buffer that a block does at a time."""
        return self.threads * self.unroll * VECTOR_BYTES

    @property
    def name(self) -> str:
        """Name of the shape in its case: one-shot-b256-u4, grid-stride-k8-b256-u4-st-cs."""
        grid = f"grid-stride-k{self.blocks_per_sm}" if self.blocks_per_sm else "one-shot"
        hints = [f"ld-{self.load}"] * bool(self.load) + [f"st-{self.store}"] * bool(self.store)
        hints += [("", "ld-evict", "st-evict", "evict")[self.evict]] * bool(self.evict)
        return "-".join([grid, f"b{self.threads}", f"u{self.unroll}", *hints])


@dataclass(frozen=True)
class Bulk:
    """How a stream by the bulk copy engine is launched.

    Attributes:
        chunk_bytes: of a bulk copy.
        stages: chunks of shared memory of a block.
        blocks_per_sm: 0: as many blocks as chunks; else each block does every n-th chunk.
        evict: 2: what is stored is the first to leave the L2; else 0.
    """

    chunk_bytes: int
    stages: int
    blocks_per_sm: int = 0
    evict: int = 0

    @property
    def name(self) -> str:
        """Name of the shape in its case: bulk-one-shot-c16k-s1, bulk-k2-c16k-s6."""
        grid = f"k{self.blocks_per_sm}" if self.blocks_per_sm else "one-shot"
        hint = "-st-evict" if self.evict else ""
        return f"bulk-{grid}-c{self.chunk_bytes // KIB}k-s{self.stages}{hint}"


def _one_shots(*shapes: tuple[int, int]) -> list[Shape]:
    return [Shape(threads, unroll) for threads, unroll in shapes]


def _with_stores(*shapes: tuple[int, int]) -> list[Shape]:
    """Return one-shot shapes with each way of storing: plain, first to leave the L2, streaming."""
    return [
        Shape(threads, unroll, store=store, evict=evict)
        for threads, unroll in shapes
        for store, evict in (("", 0), ("", 2), ("cs", 0))
    ]


SMALL = ((128, 1), (256, 1), (512, 1))
"""One vector a thread: on an H200 the fastest way to write, and to read and write at once."""
COMMON = (Shape(256, 4), Shape(256, 4, blocks_per_sm=8))
"""Shapes that programs often have: what they lose shows what the search is worth."""

SHAPES: dict[str, list[Shape | Bulk]] = {
    "read": [
        *_one_shots((128, 8), (256, 1), (256, 2), (512, 4), (1024, 4)),
        Shape(256, 4, load="cs"),
        Shape(256, 4, evict=1),
        Bulk(8 * KIB, 1),
        Bulk(16 * KIB, 1),
        Bulk(32 * KIB, 1),
        Shape(1024, 1),
        *COMMON,
    ],
    "write": [
        *_one_shots(*SMALL, (1024, 1), (512, 2)),
        Shape(256, 1, evict=2),
        Shape(512, 1, evict=2),
        Shape(256, 1, store="cs"),
        Bulk(32 * KIB, 2, 2),
        *COMMON,
    ],
    "copy": [
        *_with_stores(*SMALL),
        Shape(512, 4, load="cs", store="cs"),
        Bulk(16 * KIB, 1),
        Bulk(64 * KIB, 1, evict=2),
        *COMMON,
    ],
    "scale": [*_with_stores(*SMALL), *COMMON],
    "triad": [*_with_stores(*SMALL), *COMMON],
}
DEFAULT = Shape(256, 1)
"""The shape that is also run on zeros, for the gap to random data: every stream has it."""


def buffer_bytes(args: Namespace, kind: str) -> int:
    """Return the size of each of a stream's buffers: a call moves `--dram-gib`, whatever the kind.

    The default moves 16 GiB a call (about 4 ms at 4 TB/s: a launch and a pair of events are under
    0.1 % of it), or an eighth of the device memory where that is less. It is no part of the memory
    that happens to be free: the work of a case must not differ from process to process.
    """
    if not is_cuda(args.device):
        return 256 * KIB
    asked = getattr(args, "dram_gib", None)
    moved = asked * GIB if asked else min(16 * GIB, memory_bytes(args.device) // 8)
    return max(1, int(moved / sum(STREAMS[kind])) // MIB) * MIB


def _on_cpu(kind: str, reads: Sequence[Any], writes: Sequence[Any]) -> Call:
    """Return the stream as torch operations."""
    import torch

    if kind == "read":
        return lambda: reads[0].sum()
    if kind == "write":
        return lambda: writes[0].fill_(FACTOR)
    if kind == "copy":
        return lambda: writes[0].copy_(reads[0])
    if kind == "scale":
        return lambda: torch.mul(reads[0], FACTOR, out=writes[0])
    return lambda: torch.add(reads[0], reads[1], alpha=FACTOR, out=writes[0])


def _signed(word: int) -> CInt32:
    """Return a 32-bit word as the argument of a kernel."""
    return CInt32(word - (1 << 32) if word >= 1 << 31 else word)


def _launch(
    setup: Setup, kind: str, shape: Shape, size: int, reads: Sequence[Any], writes: Sequence[Any]
) -> Call:
    """Return the launch of `memory_stream.cu` on these buffers of `size` bytes."""
    stream = kernel(
        setup,
        "memory_stream.cu",
        "stream",
        OPERATION=kind.upper(),
        THREADS=shape.threads,
        UNROLL=shape.unroll,
        ONE_SHOT=int(not shape.blocks_per_sm),
        LOAD=quoted(LOADS[shape.load]),
        STORE=quoted(STORES[shape.store]),
        EVICT=shape.evict,
    )
    chunks = size // shape.chunk_bytes
    grid = shape.blocks_per_sm * sm_count(setup.device) or chunks
    random = setup.data == "normal"
    out = writes[0] if writes else empty(setup, VECTOR_BYTES)
    first = reads[0] if reads else out
    arguments = [
        out,
        first,
        reads[1] if len(reads) > 1 else first,
        chunks,
        CFloat(FACTOR),
        _signed(SIGN_AND_MANTISSA if random else 0),
        _signed(EXPONENT if random else 0),
    ]
    return stream.bind(min(grid, chunks), shape.threads, arguments)


def _launch_bulk(
    setup: Setup, kind: str, shape: Bulk, size: int, reads: Sequence[Any], writes: Sequence[Any]
) -> Call:
    """Return the launch of `memory_bulk.cu` on these buffers of `size` bytes."""
    shared = shape.chunk_bytes * shape.stages
    require_bulk_copies(setup, shared)
    function = kernel(
        setup,
        "memory_bulk.cu",
        f"bulk_{kind}",
        CHUNK=shape.chunk_bytes,
        STAGES=shape.stages,
        EVICT=shape.evict,
    )
    function.allow_shared(shared)
    chunks = size // shape.chunk_bytes
    grid = min(shape.blocks_per_sm * sm_count(setup.device) or chunks, chunks)
    out = writes[0] if writes else empty(setup, VECTOR_BYTES)
    arguments = [out, reads[0] if reads else filled(setup, shared), chunks, chunks]
    # One warp is enough to copy; a write first fills shared memory, which more do faster.
    threads = 128 if kind == "write" else 32
    return function.bind(grid, threads, arguments, shared)


def _buffers(setup: Setup, kind: str, size: int, copy: int) -> tuple[list[Any], list[Any]]:
    """Return what a stream reads and writes: the same for all shapes of a kind."""
    of = (kind, size, setup.data, setup.seed, str(setup.device))
    reading, writing = STREAMS[kind]
    reads = [
        KEPT.get(of, f"read {number}", partial(filled, setup, size, number))
        for number in range(reading * copy, reading * (copy + 1))
    ]
    writes = [
        KEPT.get(of, f"write {number}", partial(empty, setup, size))
        for number in range(writing * copy, writing * (copy + 1))
    ]
    return reads, writes


def _prepare(kind: str, shape: Shape | Bulk | None, size: int, setup: Setup) -> list[Call]:
    """Return the calls of a stream; a shape of None is torch's own way (cudaMemcpy, cudaMemset)."""
    calls = []
    for copy in range(setup.copies):
        reads, writes = _buffers(setup, kind, size, copy)
        if shape is None and kind == "write":
            calls.append(writes[0].zero_)
        elif shape is None or not is_cuda(setup.device):
            calls.append(_on_cpu(kind, reads, writes))
        elif isinstance(shape, Bulk):
            calls.append(_launch_bulk(setup, kind, shape, size, reads, writes))
        else:
            calls.append(_launch(setup, kind, shape, size, reads, writes))
    return calls


def _case(kind: str, shape: Shape | Bulk | None, size: int, name: str = "", **other: Any) -> Case:
    """Return the case of one stream in one shape on buffers of `size` bytes."""
    if shape is not None:  # whole chunks only, and the work says how many
        size = max(1, size // shape.chunk_bytes) * shape.chunk_bytes
    moved = sum(STREAMS[kind]) * size
    params: dict[str, Any] = {"buffer_bytes": size, "shape": shape.name if shape else name}
    if isinstance(shape, Shape):
        params |= {"threads": shape.threads, "unroll": shape.unroll}
    flops = {"scale": 1, "triad": 2}.get(kind, 0) * size / 4
    return Case(
        name=f"dram/{kind}/{name or params['shape']}",
        operation=f"DRAM {kind}",
        prepare=lambda setup: _prepare(kind, shape, size, setup),
        work=Work(bytes=moved, flops=flops or None),
        footprint_bytes=moved,
        params=params,
        dtype="fp32",
        level="dram",
        roof=other.pop("roof", Roof("dram", kind)),
        **other,
    )


def cases(args: Namespace) -> Iterator[Case]:
    """Yield the candidates for the five DRAM roofs, and the same on zeros for one shape of each."""
    for kind, shapes in SHAPES.items():
        size = buffer_bytes(args, kind)
        for shape in shapes:
            yield _case(kind, shape, size)
        if kind == "copy":  # a roof of its own: no counter confirms it, for ncu sees kernels only
            yield _case(kind, None, size, "memcpy", roof=Roof("dram", "memcpy"), counted=False)
        if kind == "write":  # memset writes one value
            yield _case(kind, None, size, "memset", data=("zeros",), roof=None, counted=False)
        zeros = f"zeros-{DEFAULT.name}"
        yield _case(kind, DEFAULT, size, zeros, data=("zeros",), roof=None, counted=False)
        KEPT.release()  # whoever asks for the next case is done with the one before it
