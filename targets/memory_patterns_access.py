"""Sectors at a stride, and items gathered from random places of a large table.

A sector is 32 bytes, the least that L2 asks DRAM for. A stride of s uses one sector in s: useful
bytes are those of the sectors asked for, table / s. A gather fetches items of 4 to 128 bytes,
aligned to their size, from places that an array of 4-byte indices made in advance names: uniform
over the table, with repetition, or 0, 1, 2, ... as a control. Repetitions are far apart in time:
the table is many times larger than L2. Useful bytes are the items and the indices; `gathered_bytes`
and `index_bytes` tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from nsight_prof.targets.harness import Call, Case, Setup, Work, is_cuda
from nsight_prof.targets.memory_patterns_kernels import (
    BLOCK,
    MIB,
    TILE_BYTES,
    TILE_VECTORS,
    VECTOR_BYTES,
    buffer,
    kernel,
    sink,
)

SECTOR = 32
STRIDES = (1, 2, 3, 4, 6, 8, 16, 32, 64)
WRITE_STRIDES = (1, 2, 4, 8, 16)
ITEMS = (4, 8, 16, 32, 64, 128)
ORDERED_ITEMS = (4, 32)
GATHERS = 1 << 24
INDEX_BYTES = 4

CPU_TABLE = 2 * MIB
CPU_GATHERS = 1 << 12


def _copies(setup: Setup, call: Callable[[int], Call]) -> list[Call]:
    return [call(copy) for copy in range(setup.copies)]


def _strided_call(setup: Setup, copy: int, *, tiles: int, stride: int, writes: bool) -> Call:
    size = tiles * TILE_BYTES * stride
    table = buffer(setup, size, copy, filled=not writes)
    if not is_cuda(setup.device):
        sectors = table.view(-1, stride, SECTOR // 2)[:, 0]
        return (lambda: sectors.fill_(1.0)) if writes else (lambda: sectors.sum())
    if writes:
        return kernel("strided_write").bind(tiles, BLOCK, (table, stride))
    return kernel("strided_read").bind(tiles, BLOCK, (table, sink(setup), stride))


def _strided(table_bytes: int, stride: int, *, writes: bool) -> Case:
    tiles = table_bytes // (TILE_BYTES * stride)
    useful = float(tiles * TILE_BYTES)
    verb = "write" if writes else "read"

    def prepare(setup: Setup) -> list[Call]:
        def call(copy: int) -> Call:
            return _strided_call(setup, copy, tiles=tiles, stride=stride, writes=writes)

        return _copies(setup, call)

    return Case(
        name=f"stride/{verb}/{stride}",
        operation=f"DRAM {verb}, one sector in {stride}" if stride > 1 else f"DRAM {verb}, strided",
        prepare=prepare,
        work=Work(bytes=useful),
        footprint_bytes=useful,
        params={
            "pattern": "stride",
            "access": verb,
            "stride_sectors": stride,
            "useful_bytes": int(useful),
            "span_bytes": int(useful) * stride,
            "block": BLOCK,
        },
        level="dram",
    )


def stride_cases(device: str, table_bytes: int) -> Iterator[Case]:
    """Yield reads and writes of one sector in 1 to 64, over a table of `table_bytes`.

    A CPU uses 2 MiB whatever `table_bytes` says.
    """
    size = table_bytes if is_cuda(device) else CPU_TABLE
    for writes, strides in ((False, STRIDES), (True, WRITE_STRIDES)):
        yield from (_strided(size, stride, writes=writes) for stride in strides)


def _indices(setup: Setup, copy: int, count: int, places: int, *, ordered: bool) -> Any:
    """Return `count` int32 indices below `places` (at most 2^31)."""
    import torch

    if ordered:
        return torch.arange(count, dtype=torch.int32, device=setup.device)
    generator = torch.Generator(device=setup.device).manual_seed(setup.seed + copy)
    return torch.randint(
        0, places, (count,), dtype=torch.int32, device=setup.device, generator=generator
    )


def _gather_call(
    setup: Setup, copy: int, *, table_bytes: int, item: int, count: int, ordered: bool
) -> Call:
    table = buffer(setup, table_bytes, copy)
    indices = _indices(setup, copy, count, table_bytes // item, ordered=ordered)
    if not is_cuda(setup.device):
        rows = table.view(-1, item // 2)
        return lambda: rows.index_select(0, indices)
    lanes = max(1, item // VECTOR_BYTES)
    grid = count * lanes // TILE_VECTORS
    return kernel(f"gather_{item}").bind(grid, BLOCK, (indices, table, sink(setup)))


def _gather(table_bytes: int, item: int, count: int, *, ordered: bool) -> Case:
    gathered, index = count * item, count * INDEX_BYTES
    order = "ordered" if ordered else "random"

    def prepare(setup: Setup) -> list[Call]:
        def call(copy: int) -> Call:
            return _gather_call(
                setup, copy, table_bytes=table_bytes, item=item, count=count, ordered=ordered
            )

        return _copies(setup, call)

    return Case(
        name=f"gather/{order}/{item}",
        operation=f"gather of {item} B, {order}",
        prepare=prepare,
        work=Work(bytes=float(gathered + index)),
        # Ordered items share sectors; a random one has a sector of its own.
        footprint_bytes=float((gathered if ordered else count * max(item, SECTOR)) + index),
        params={
            "pattern": "gather",
            "order": order,
            "item_bytes": item,
            "items": count,
            "gathered_bytes": gathered,
            "index_bytes": index,
            "table_bytes": table_bytes,
            "block": BLOCK,
        },
        level="dram",
    )


def gather_cases(device: str, table_bytes: int) -> Iterator[Case]:
    """Yield gathers of 4 to 128 B from a table, and two in order as a control.

    Args:
        device: "cuda" or "cpu"; a CPU has a table of 2 MiB and fewer gathers.
        table_bytes: size of the table, at most 8 GiB (indices of 4-byte items are int32).
    """
    on_gpu = is_cuda(device)
    size, count = (min(table_bytes, 8192 * MIB), GATHERS) if on_gpu else (CPU_TABLE, CPU_GATHERS)
    for item in ITEMS:
        yield _gather(size, item, count, ordered=False)
    for item in ORDERED_ITEMS:
        yield _gather(count * item, item, count, ordered=True)
