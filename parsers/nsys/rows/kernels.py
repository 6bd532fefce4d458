"""Reads the kernel launches of an export as columns of numbers, ordered by start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nsight_prof.parsers.names.kernel_names import kernel_id
from nsight_prof.parsers.nsys.sqlite.codes import Codebook, Columns, factor, narrow, short
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.leaves import Column
from nsight_prof.parsers.nsys.sqlite.schema import (
    KERNEL,
    PROCESS,
    check_times,
    read_strings,
)

_ID, _NONE = 0xFFFFFFFF, -1
_GRID = ((0, _ID), (32, 0xFFFF), (48, 0xFFFF))  # shift and mask of x, y, z in _read_chunk
_BLOCK = ((0, 0xFFF), (12, 0xFFF), (24, 0xFF))
_Coded = tuple[Array, list[tuple[int, ...]]]


@dataclass(frozen=True)
class Kernel:
    """What all launches of one kernel have in common: mangled name, grid and block."""

    kernel_id: str
    name: str
    mangled_name: str
    grid: str
    block: str


REPEATED = 5
"""Launches from which on a kernel is one of a loop's: what is copied before comes once."""


@dataclass
class KernelRows:
    """Launches as columns, ordered by start.

    `config` and `queue` are codes into `configs` (kernel, registers, static and dynamic shared
    bytes) and `queues` (device, context, stream, process). `call` is the key of the API call, later
    its index.
    `graph_node` is None where no launch came from a CUDA graph node; -1 outside of graphs.
    """

    start: Array
    duration: Array
    call: Array
    correlation: Array
    config: Array
    queue: Array
    graph_node: Array | None
    configs: Array
    queues: Array
    kernels: list[Kernel]

    @property
    def kernel(self) -> Array:
        """Index into `kernels` of each launch."""
        codes: Array = self.configs[:, 0].astype(np.int32)[self.config]
        return codes

    @property
    def places(self) -> list[tuple[int, int]]:
        """Device and process of each of `queues`."""
        return [(int(queue[0]), int(queue[3])) for queue in self.queues]

    @property
    def first_of_repeated(self) -> int:
        """Start of the first launch of a kernel that is launched REPEATED times; 0 for none."""
        codes = self.kernel
        repeats = np.bincount(codes, minlength=1)[codes] >= REPEATED
        return int(self.start[np.argmax(repeats)]) if repeats.any() else 0

    def pick(self, at: Array) -> KernelRows:
        """Those at positions `at`, or where the mask `at` holds."""
        return replace(
            self,
            start=self.start[at],
            duration=self.duration[at],
            call=self.call[at],
            correlation=self.correlation[at],
            config=self.config[at],
            queue=self.queue[at],
            graph_node=None if self.graph_node is None else self.graph_node[at],
        )


def read_kernels(db: Database) -> KernelRows:
    """Read all kernel launches."""
    table = db.table(KERNEL) or KERNEL
    configs: Codebook[tuple[int, ...]] = Codebook()
    queues: Codebook[tuple[int, ...]] = Codebook()
    rows = Columns(
        db.most_rows(table), np.int64, np.uint32, np.int64, np.uint32, np.int16, np.int16
    )
    nodes: list[tuple[int, Array | None]] = []
    for numbers, launched, queued, node in db.scan(_COLUMNS, table, _read_chunk):
        config, queue = configs.translate(*launched), queues.translate(*queued)
        rows.append(*numbers, narrow(config, len(configs.keys)), narrow(queue, len(queues.keys)))
        nodes.append((len(config), node))
    kernels, of_config = _kernels(configs, _names(db, configs))
    where = np.array(queues.keys, np.int64).T
    of_queue = np.stack([where[0], where[1] >> 32, where[1] & _ID, where[2]], axis=1)
    start, duration, call, correlation, config, queue = rows.finish()
    check_times(db, KERNEL, start, duration)
    facts = (_nodes(nodes), of_config, of_queue, kernels)
    return _ordered(KernelRows(start, duration, call, correlation, config, queue, *facts))


_COLUMNS = [
    *map(Column, ("start", "end")),
    *(Column("correlationId", 0), Column("globalPid", 0), Column("mangledName", _NONE)),
    *map(Column, ("demangledName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")),
    *map(Column, ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")),
    *map(Column, ("deviceId", "contextId", "streamId")),
    Column("graphNodeId", _NONE),
]


def _read_chunk(columns: list[Array]) -> tuple[list[Array], _Coded, _Coded, Array | None]:
    start, end, correlation, pid, mangled, demangled, *shape, device, context, stream, node = (
        columns
    )
    duration, mangled = end - start, np.where(mangled == _NONE, demangled, mangled)
    grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, static, dynamic = shape
    # Widths follow the CUPTI activity records: 32-bit ids; blocks up to 1024x1024x64.
    block = block_x | (block_y << 12) | (block_z << 24) | (registers << 32) | (static << 44)
    config = factor(
        [
            mangled | (demangled << 32),
            grid_x | (grid_y << 32) | (grid_z << 48),
            *(block, dynamic & _ID),
        ]
    )
    call = correlation | ((pid >> 24) << 32)
    where = factor([device, (stream & _ID) | (context << 32), call >> 32 & PROCESS])
    numbers = [start, short(duration), call, (call & _ID).astype(np.uint32)]
    return numbers, config, where, None if (node < 0).all() else node


def _nodes(chunks: list[tuple[int, Array | None]]) -> Array | None:
    if all(chunk is None for _, chunk in chunks):
        return None
    return np.concatenate([np.full(n, -1) if chunk is None else chunk for n, chunk in chunks])


def _names(db: Database, configs: Codebook[tuple[int, ...]]) -> dict[int, str]:
    pairs = [key[0] for key in configs.keys]
    return read_strings(db, {name & _ID for name in pairs} | {name >> 32 for name in pairs})


def _kernels(
    configs: Codebook[tuple[int, ...]], names: dict[int, str]
) -> tuple[list[Kernel], Array]:
    """Kernels, and for each config: kernel, registers, static and dynamic shared bytes."""
    kernels: list[Kernel] = []
    book: Codebook[tuple[str, str, str]] = Codebook()
    rows = []
    for name, grid, block, dynamic in configs.keys:
        mangled = names.get(name & _ID, f"kernel {name & _ID}")
        grid_text, block_text = _dimensions(grid, _GRID), _dimensions(block, _BLOCK)
        code = book.code((mangled, grid_text, block_text))
        if code == len(kernels):
            identity = kernel_id(mangled, grid_text, block_text)
            demangled = names.get(name >> 32 & _ID, mangled)
            kernels.append(Kernel(identity, demangled, mangled, grid_text, block_text))
        rows.append((code, block >> 32 & 0xFFF, block >> 44 & 0xFFFFF, dynamic))
    return kernels, np.array(rows, np.int64)


def _dimensions(packed: int, fields: Sequence[tuple[int, int]]) -> str:
    """A grid or block as XxYxZ; empty where the trace does not tell it: none has 0 of anything."""
    sizes = [packed >> shift & mask for shift, mask in fields]
    return "x".join(map(str, sizes)) if all(sizes) else ""


def _ordered(rows: KernelRows) -> KernelRows:
    if (rows.start[1:] >= rows.start[:-1]).all():
        return rows
    order = np.argsort(rows.start, kind="stable")
    for name in ("start", "duration", "call", "correlation", "config", "queue", "graph_node"):
        column = getattr(rows, name)
        if column is not None:
            setattr(rows, name, column[order])
    return rows
