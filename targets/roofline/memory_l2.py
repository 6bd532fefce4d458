"""L2: the same megabytes moved again and again, swept over sizes; the L1 is passed by.

Where the rate falls as the size grows is the edge of what the L2 holds, for data that all SMs read
(here, with the search of the launch shape) and for data that each SM has for itself
(`memory_l2_private.py`).
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import gcd

from nsight_prof.targets.harness import Call, Case, Setup, is_cuda, sm_count
from nsight_prof.targets.roofline import memory_l2_private
from nsight_prof.targets.roofline.memory_kernels import (
    KIB,
    MIB,
    VECTOR_BYTES,
    empty,
    filled,
    kernel,
    numbers,
    quoted,
    require_bulk_copies,
    size_name,
)
from nsight_prof.targets.roofline.memory_l2_points import (
    LOADS,
    MOVED,
    l2_case,
    sizes_up_to,
    sweep_sizes,
)

BLOCK_WAVES = 16
"""Blocks there are for each that fits at a time, so that faster SMs do more of them."""
MAX_THREADS_PER_SM = 2048
GOLDEN = (5**0.5 - 1) / 2
HOPS, LEAST_HOP = 16, 17
"""Ways of blocks from slice to slice, none shorter than the second number."""


@dataclass(frozen=True)
class Around:
    """One point of the sweep: blocks go around the whole buffer, which all SMs share.

    Attributes:
        size: bytes that are read, a multiple of MiB.
        threads: a block.
        unroll: vectors of 16 bytes in flight in a thread.
        load: key of LOADS.
        hops: ways from slice to slice; 1: all blocks go to the next one.
    """

    size: int
    threads: int = 256
    unroll: int = 4
    load: str = "cg"
    hops: int = HOPS

    @property
    def slice_bytes(self) -> int:
        """Contiguous bytes that a block reads at a time."""
        return self.threads * self.unroll * VECTOR_BYTES

    @property
    def slices(self) -> int:
        """Slices of the buffer."""
        return max(1, self.size // self.slice_bytes)

    @property
    def name(self) -> str:
        """Name of the point in its case: shared-32mib, shared-24mib-b512-u4-cg."""
        standard = (self.threads, self.unroll, self.load) == (256, 4, "cg")
        shape = "" if standard else f"-b{self.threads}-u{self.unroll}-{self.load}"
        order = "" if self.hops == HOPS else "-in-order"
        return f"shared-{size_name(self.size)}{shape}{order}"

    def layout(self, sms: int) -> tuple[int, int]:
        """Return blocks and slices that each reads, for so many SMs."""
        blocks = sms * (MAX_THREADS_PER_SM // self.threads) * BLOCK_WAVES
        return blocks, max(1, round(MOVED / (blocks * self.slice_bytes)))


def points(args: Namespace) -> list[Around]:
    """Return the size sweep, then other launch shapes at sizes that fit well."""
    found = [Around(size) for size in sweep_sizes(args)]
    if not is_cuda(args.device):
        return found
    middle, large = searched_sizes(args)
    found += [
        Around(large, threads, unroll) for threads in (256, 512, 1024) for unroll in (2, 4, 8)
    ]
    found += [Around(size, hops=1) for size in (middle, large)]
    found += [Around(large, load=load) for load in LOADS]
    return list(dict.fromkeys(found))


def searched_sizes(args: Namespace) -> tuple[int, int]:
    """Return the sizes at which other orders and launch shapes are tried: 16 and 24 of 60 MiB."""
    return sizes_up_to(args, 0.27)[-1], sizes_up_to(args, 0.4)[-1]


def spread(slices: int) -> int:
    """Return the step by which one block begins after another.

    Multiples of the golden ratio fill an interval evenly, however many there are; a step that has
    no divisor in common with the number of slices meets all of them.
    """
    step = max(1, round(slices * GOLDEN))
    while gcd(step, slices) != 1:
        step += 1
    return step


def hops(slices: int, count: int) -> list[int]:
    """Return different ways from slice to slice, by each of which a block comes to all of them.

    None is longer than the buffer; where there are not enough, they repeat.
    """
    found = [hop for hop in range(LEAST_HOP, slices) if gcd(hop, slices) == 1][:count]
    if count == 1 or not found:
        return [1] * count
    return [found[i % len(found)] for i in range(count)]


def _launch(point: Around, setup: Setup, copy: int) -> Call:
    """Return the launch of `l2_around` on a buffer of its own; on a CPU one pass by torch."""
    data = filled(setup, point.size, copy)
    if not is_cuda(setup.device):
        return partial(data.sum)
    sms = sm_count(setup.device)
    blocks, iterations = point.layout(sms)
    load, normal = LOADS[point.load]
    around = kernel(
        setup,
        "memory_l2.cu",
        "l2_around",
        OPERATION="READ",
        THREADS=point.threads,
        BLOCKS=1,
        UNROLL=point.unroll,
        LOAD=quoted(load),
        NORMAL=normal,
    )
    ways = hops(point.slices, point.hops)
    arguments = [empty(setup, VECTOR_BYTES), data, sms, point.slices, spread(point.slices)]
    arguments += [numbers(setup, ways), len(ways), iterations]
    return around.bind(blocks, point.threads, arguments)


def _case(point: Around, args: Namespace) -> Case:
    """Return the case of one point of the sweep."""
    moved = point.size
    if is_cuda(args.device):
        blocks, iterations = point.layout(sm_count(args.device))
        moved = blocks * iterations * point.slice_bytes
    # Loads that may not keep their lines in the L2 are no part of the curve of those that may.
    pattern = "shared" if point.load == "cg" else f"shared, {point.load}"
    return l2_case(
        args,
        point.name,
        "read",
        pattern,
        point.size,
        moved,
        partial(_launch, point),
        {
            "threads": point.threads,
            "unroll": point.unroll,
            "load": point.load,
            "hops": point.hops,
        },
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


def _bulk_case(shape: tuple[int, int, int], size: int, passes: int, args: Namespace) -> Case:
    """Return the case of reading `size` bytes so many times by bulk copies."""
    chunk, stages, blocks = shape
    return l2_case(
        args,
        f"bulk-{size_name(size)}-k{blocks}-c{chunk // KIB}k-s{stages}",
        "read",
        "shared",
        size,
        size * passes,
        partial(_launch_bulk, shape, size, passes),
        {"load": "bulk", "chunk_bytes": chunk, "stages": stages, "blocks_per_sm": blocks},
    )


def _bulk_cases(args: Namespace) -> Iterator[Case]:
    cuda = is_cuda(args.device)
    size = searched_sizes(args)[-1] if cuda else MIB // 16
    for shape in BULK_SHAPES:
        yield _bulk_case(shape, size, max(1, round(MOVED / size)) if cuda else 1, args)


def cases(args: Namespace) -> Iterator[Case]:
    """Yield the size sweeps of both patterns, the other launch shapes and the bulk copies."""
    shared = (_case(point, args) for point in points(args))
    return chain(shared, memory_l2_private.cases(args), _bulk_cases(args))
