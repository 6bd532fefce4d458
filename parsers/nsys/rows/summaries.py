"""Summaries of memory operations and of CUDA API calls."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.rows.calls import ApiCalls
from nsight_prof.parsers.nsys.sqlite.codes import Codebook, statistics
from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.nsys.sqlite.schema import MEMCPY, MEMSET

# CUpti_ActivityMemcpyKind; from 11 on as nsys adds them (its ENUM_CUDA_MEMCPY_OPER).
COPY_KINDS = {
    1: "host to device",
    2: "device to host",
    3: "host to array",
    4: "array to host",
    5: "array to array",
    6: "array to device",
    7: "device to array",
    8: "device to device",
    9: "host to host",
    10: "peer to peer",
    11: "unified memory host to device",
    12: "unified memory device to host",
    13: "unified memory device to device",
}
PAGEABLE = 0  # CUDA_MEMOPR_MEMORY_KIND_PAGEABLE of ENUM_CUDA_MEM_KIND, nsys 2025.3.1


def memory_operations(db: Database, begun: int) -> pd.DataFrame:
    """Table `memory_operations`, most GPU time first; what starts before `begun` is start-up."""
    rows = []
    for name, kind in ((MEMCPY, "coalesce(copyKind, 0)"), (MEMSET, "0")):
        table = db.table(name)
        if table is not None:
            found = db.rows(
                f"SELECT {kind}, count(*), nullif(sum(bytes), 0), sum(end - start),"
                f" {_pageable_ns(db, name)}, sum(CASE WHEN start < {begun} THEN end - start ELSE 0"
                f' END) FROM "{table}" GROUP BY 1'
            )
            label = COPY_KINDS if name == MEMCPY else {0: "memset"}
            rows += [(label.get(k, f"copy of kind {k}"), *sums) for k, *sums in found]
    columns = ["kind", "calls", "bytes", "total_ns", "pageable_ns", "startup_ns"]
    frame = pd.DataFrame(rows, columns=columns)
    frame = frame.sort_values(["total_ns", "kind"], ascending=[False, True])
    return tables.check(frame, "memory_operations")


def _pageable_ns(db: Database, table: str) -> str:
    """Return the SQL of the time of copies from or to pageable memory; NULL where not known."""
    if table != MEMCPY or not {"srcKind", "dstKind"} <= db.columns(table):
        return "NULL"
    return (
        f"sum(CASE WHEN copyKind = 1 AND srcKind = {PAGEABLE}"
        f" OR copyKind = 2 AND dstKind = {PAGEABLE} THEN end - start ELSE 0 END)"
    )


def api_calls(calls: ApiCalls) -> pd.DataFrame:
    """Table `api_calls`, most host time first."""
    book: Codebook[str] = Codebook()
    of_name = np.array([book.code(name) for name in calls.names], np.int32)
    frame = statistics(of_name[calls.name], calls.duration, len(book.keys))
    frame = frame.rename(columns=_RENAMED).assign(name=pd.Series(book.keys, dtype="string"))
    frame = frame.sort_values(["total_ns", "name"], ascending=[False, True])
    return tables.check(frame[["name", "calls", "total_ns", "median_ns", "max_ns"]], "api_calls")


_RENAMED = {"count": "calls", "total": "total_ns", "median": "median_ns", "max": "max_ns"}
