"""L2, private: every warp goes around lines of its own, so that nothing is merged before the L2.

Loads of a line that is in flight already are merged on the way to the L2. So no warp may ask for
what another of its SM asks for, nor for what it has asked for itself and not got yet. That takes
a few kilobytes a warp: there is no such case of less than a few megabytes.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nsight_prof.targets.harness import Call, Case, Setup, is_cuda, sm_count
from nsight_prof.targets.roofline.memory_kernels import (
    KIB,
    VECTOR_BYTES,
    empty,
    filled,
    kernel,
    quoted,
    size_name,
    zeroed,
)
from nsight_prof.targets.roofline.memory_l2_points import (
    LOADS,
    MOVED,
    l2_case,
    sizes_up_to,
    sweep_sizes,
)

LINE, WARP, LOAD_BYTES = 128, 32, 512
"""Bytes of a line, lanes of a warp, bytes of a load of a warp: four lines."""
DRAWN = 0.2
"""Part of the bytes that is left to the warps that are served faster."""
TICKET = 24 * KIB
"""Bytes that a warp moves for one draw of it."""


@dataclass(frozen=True)
class Own:
    """One point of the sweep.

    Attributes:
        kind: read, write or copy.
        size: bytes that are touched; a multiple of 256.
        blocks: an SM.
        threads: a block.
        unroll: loads in flight of a warp.
    """

    kind: str
    size: int
    blocks: int = 2
    threads: int = 512
    unroll: int = 4
    shape_named: bool = False

    @property
    def buffers(self) -> int:
        """Buffers that are gone through at the same time."""
        return 2 if self.kind == "copy" else 1

    @property
    def name(self) -> str:
        """Name of the point in its case: private-48mib, private-40mib-k1-b1024-u8."""
        shape = f"-k{self.blocks}-b{self.threads}-u{self.unroll}" if self.shape_named else ""
        return f"private-{size_name(self.size)}{shape}"

    def owners(self, sms: int) -> int:
        """Return the warps that a buffer is shared out among: all of the grid."""
        return self.threads // WARP * sms * self.blocks

    def lines(self) -> int:
        """Return the lines of a buffer."""
        return self.size // self.buffers // LINE

    def apart(self, sms: int) -> bool:
        """Whether a warp has more lines than it asks for at a time, and one load's more."""
        return self.lines() // self.owners(sms) >= (self.unroll + 1) * (LOAD_BYTES // LINE)

    def steps(self, sms: int) -> tuple[int, int, int]:
        """Return the steps of every warp, those for a ticket, and tickets: MOVED bytes in all."""
        step = self.unroll * LOAD_BYTES * self.buffers
        warps = sms * self.blocks * self.threads // WARP
        more = max(1, round(TICKET / step))
        first = max(1, round((1 - DRAWN) * MOVED / warps / step))
        return first, more, max(0, round((MOVED - first * warps * step) / (more * step)))

    def moved(self, sms: int) -> int:
        """Return the bytes of a call."""
        first, more, tickets = self.steps(sms)
        steps = sms * self.blocks * self.threads // WARP * first + tickets * more
        return steps * self.unroll * LOAD_BYTES * self.buffers


def _fitting(point: Own, sms: int) -> Own | None:
    """Return the point with as many loads in flight as its lines allow, None if not even one."""
    for unroll in (4, 2, 1):
        if replace(point, unroll=unroll).apart(sms):
            return replace(point, unroll=unroll)
    return None


def points(args: Namespace) -> list[Own]:
    """Return the sweeps of the three kinds over sizes, then other launch shapes."""
    sms = sm_count(args.device)
    swept = [Own("read", size) for size in sweep_sizes(args)]
    # Writes fit in less of the L2 than reads: finer where that ends.
    written = [*sizes_up_to(args, 0.5)[2:], *sizes_up_to(args, 0.7)[-1:]]
    swept += [Own(kind, size) for kind in ("write", "copy") for size in written]
    if not is_cuda(args.device):
        return [*swept, Own("write", 64 * KIB), Own("copy", 64 * KIB)]
    found = [fitting for point in swept if (fitting := _fitting(point, sms)) is not None]
    held, largest = (sizes_up_to(args, part)[-1] for part in (0.4, 0.67))
    for blocks, threads, unroll in ((1, 1024, 8), (2, 1024, 2), (8, 256, 2)):
        found.append(Own("read", largest, blocks, threads, unroll, shape_named=True))
    for kind in ("write", "copy"):
        for blocks, threads, unroll in ((1, 1024, 2), (2, 1024, 1)):
            found.append(Own(kind, held, blocks, threads, unroll, shape_named=True))
    return [point for point in found if point.apart(sms)]


def _launch(point: Own, setup: Setup, copy: int) -> Call:
    """Return the launch of `l2_own` on buffers of its own; on a CPU one pass by torch."""
    size = point.lines() * LINE
    out = empty(setup, VECTOR_BYTES if point.kind == "read" else size)
    data = out if point.kind == "write" else filled(setup, size, copy)
    if not is_cuda(setup.device):
        if point.kind == "read":
            return partial(data.sum)
        return partial(out.copy_, data) if point.kind == "copy" else partial(out.fill_, 1.0)
    load, normal = LOADS["cg"]
    own = kernel(
        setup,
        "memory_l2.cu",
        "l2_own",
        OPERATION=point.kind.upper(),
        THREADS=point.threads,
        BLOCKS=point.blocks,
        UNROLL=point.unroll,
        LOAD=quoted(load),
        NORMAL=normal,
    )
    sms = sm_count(setup.device)
    arguments: list[Any] = [out, data, point.lines(), point.owners(sms)]
    arguments += [*point.steps(sms), zeroed(setup, VECTOR_BYTES)]
    return own.bind(sms * point.blocks, point.threads, arguments)


def cases(args: Namespace) -> Iterator[Case]:
    """Yield the cases of all points."""
    for point in points(args):
        size = point.lines() * LINE * point.buffers
        yield l2_case(
            args,
            point.name,
            point.kind,
            "private",
            size,
            point.moved(sm_count(args.device)) if is_cuda(args.device) else size,
            partial(_launch, point),
            {
                "blocks_per_sm": point.blocks,
                "threads": point.threads,
                "unroll": point.unroll,
                "load": "cg",
            },
        )
