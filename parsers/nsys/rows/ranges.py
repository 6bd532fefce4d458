"""Finds the NVTX ranges that enclose CUDA API calls, and places them on the calls' axis.

A range is open for a call on its own thread that starts in [range start, range end). Push/pop and
start/end ranges count alike. The range that started first is the outermost; of two that started
together, the one that ended last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.nsys.rows.calls import Calls
from nsight_prof.parsers.nsys.rows.nvtx import MARK, NvtxEvents
from nsight_prof.parsers.nsys.sqlite.codes import STEP, Columns, counts
from nsight_prof.parsers.nsys.sqlite.database import Array


@dataclass
class Ranges:
    """Ranges that enclose at least one call, in the order of the file.

    `first` and `last` (exclusive) are positions in the calls ordered by thread and start; `name`
    is a code into `names`, whose entries are (domain, text); `end` is OPEN_END for a range that
    was not closed. `order` is by thread, start and end: an outer range before those inside.
    """

    first: Array
    last: Array
    start: Array
    end: Array
    name: Array
    names: list[tuple[str, str]]
    order: Array
    across_threads: int = 0


def find_ranges(nvtx: NvtxEvents, calls: Calls, tids: Array) -> Ranges:
    """Find the ranges around the calls; `tids` is the globalTid of each thread of `nvtx`."""
    columns = Columns(len(nvtx.start), np.int32, np.int32, np.int64, np.int64, np.int32)
    ends_elsewhere = nvtx.ends_elsewhere | (nvtx.kind == nvtx.kinds.index(MARK))
    bases = calls.bases(tids) if len(calls.order) else tids
    for at in range(0, len(nvtx.start) if len(calls.order) else 0, STEP):
        chunk = slice(at, at + STEP)
        start, end = nvtx.start[chunk], np.where(ends_elsewhere[chunk], -1, nvtx.end[chunk])
        keep, first, last = calls.locate(bases[nvtx.thread[chunk]], start, end)
        columns.append(first, last, start[keep], end[keep], nvtx.name[chunk][keep])
    first, last, start, end, name = columns.finish()
    used = counts(name, len(nvtx.names)) > 0
    names = [nvtx.names[code] for code in np.flatnonzero(used)]
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    for at in range(0, len(name), STEP):
        name[at : at + STEP] = number[name[at : at + STEP]]
    across = int(np.count_nonzero(nvtx.ends_elsewhere))
    found = Ranges(first, last, start, end, name, names, np.empty(0, np.int32), across)
    found.order = _nesting(found)
    return found


def _nesting(ranges: Ranges) -> Array:
    """Order by nesting; the first call stands for thread and start, except among equals."""
    key = np.arange(len(ranges.first))  # sorted in place: argsort needs three times the memory
    for at in range(0, len(key), STEP):
        key[at : at + STEP] |= ranges.first[at : at + STEP].astype(np.int64) << 32
    key.sort()
    order = np.empty(len(key), np.int32)
    at = 0
    while at < len(key):
        last = key[min(at + STEP, len(key)) - 1] >> 32
        upto = int(np.searchsorted(key, (last + 1) << 32))
        rows = key[at:upto].astype(np.int32)  # the lower half
        if not _is_nested(ranges, rows):
            keys = (np.negative(ranges.end[rows]), ranges.start[rows], ranges.first[rows])
            rows = rows[np.lexsort(keys)]
        order[at:upto] = rows
        at = upto
    return order


def _is_nested(ranges: Ranges, order: Array) -> bool:
    first, start, end = ranges.first[order], ranges.start[order], ranges.end[order]
    nested = (first[1:] != first[:-1]) | (start[1:] > start[:-1])
    nested |= (start[1:] == start[:-1]) & (end[1:] <= end[:-1])
    return bool(nested.all())
