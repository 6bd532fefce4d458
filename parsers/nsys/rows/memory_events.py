"""Copies, memsets and CUDA graphs traced as wholes, event by event, with the stream of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.nsys.rows.calls import call_key
from nsight_prof.parsers.nsys.rows.summaries import COPY_KINDS
from nsight_prof.parsers.nsys.sqlite.codes import Codebook, Columns, factor, short
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.leaves import Column
from nsight_prof.parsers.nsys.sqlite.schema import GRAPH_TRACE, MEMCPY, MEMSET, check_times

COPY, SET, GRAPH = "copy", "memset", "CUDA graph"
UNKNOWN = -1
"""Device, context or stream that the export does not tell; bytes of a graph."""


@dataclass
class MemoryEvents:
    """Operations as columns, ordered by start; times in ns from the start of the capture.

    `queue` is a code into `queues` (device, context, stream, process), `kind` into `kinds` (what it
    is, and what a reader calls it). `call` is `call_key` of the API call that issued it.
    """

    start: Array
    duration: Array
    bytes: Array
    queue: Array
    kind: Array
    call: Array
    queues: list[tuple[int, ...]]
    kinds: list[tuple[str, str]]


def read_memory_events(db: Database) -> MemoryEvents:
    """Read every copy, memset and CUDA graph that was traced as a whole."""
    tables = [(name, table) for name in (MEMCPY, MEMSET, GRAPH_TRACE) if (table := db.table(name))]
    columns = Columns(
        sum(db.most_rows(table) for _, table in tables),
        np.int64, np.uint32, np.int64, np.int32, np.int16, np.int64,
    )  # fmt: skip
    queues: Codebook[tuple[int, ...]] = Codebook()
    kinds: Codebook[tuple[str, str]] = Codebook()
    for name, table in tables:
        for numbers, queued, kind in db.scan(_COLUMNS, table, _read_chunk):
            start, duration, size, call = numbers
            check_times(db, name, start, duration)
            codes, values = kind
            kind_codes = kinds.translate(codes, [_kind(name, value) for (value,) in values])
            queue = queues.translate(*queued)
            columns.append(start, duration, size, queue, kind_codes.astype(np.int16), call)
    start, duration, size, queue, kind_of, call = columns.finish()
    order = np.argsort(start, kind="stable")
    sorted_by_start = (start[order], duration[order], size[order], queue[order], kind_of[order])
    return MemoryEvents(*sorted_by_start, call[order], queues.keys, kinds.keys)


_COLUMNS = [
    *(Column("start"), Column("end")),
    *(Column(name, UNKNOWN) for name in ("deviceId", "contextId", "streamId", "bytes")),
    *(Column(name, 0) for name in ("globalPid", "correlationId", "copyKind")),
]
_Coded = tuple[Array, list[tuple[int, ...]]]


def _read_chunk(columns: list[Array]) -> tuple[list[Array], _Coded, _Coded]:
    start, end, device, context, stream, size, process, correlation, kind = columns
    pid = process >> 24 & 0xFFFFFF
    numbers = [start, short(end - start), size, call_key(pid, correlation)]
    return numbers, factor([device, context, stream, pid]), factor([kind])


def _kind(table: str, value: int) -> tuple[str, str]:
    if table == MEMCPY:
        return COPY, f"copy {COPY_KINDS.get(value, f'of kind {value}')}"
    return (SET, SET) if table == MEMSET else (GRAPH, GRAPH)
