"""Which tables and columns of an nsys export the reader needs, and which versions it knows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice

import numpy as np
import pandas as pd

from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.run.sentences import stored

NEWEST_KNOWN = (3, 25)  # nsys 2026.2.1
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NVTX = "NVTX_EVENTS"
STRINGS = "StringIds"
GPU = "TARGET_INFO_GPU"
CUDA_GPU = "TARGET_INFO_CUDA_GPU"  # nsys until 2021.1
CUDA_DEVICE = "TARGET_INFO_CUDA_DEVICE"
SESSION = "TARGET_INFO_SESSION_START_TIME"
# Key of an API call: 32-bit correlation and process, as its row and what it issued have it. Where
# these do not tell (NULL or 0), a row of a call gets -1 and an operation no key of any call.
CALL_KEY = "(coalesce(nullif(correlationId, 0), -1) | ((coalesce(globalTid, 0) >> 24) << 32))"
ISSUED_KEY = "(coalesce(correlationId, 0) | ((coalesce(globalPid, 0) >> 24) << 32))"
PROCESS = 0xFFFFFF  # process id within such a key that was shifted by 32
# NvtxPushPop, NvtxStartEnd (59, 60) and the same of NVTX text files. SQLite tests this twice as
# fast as `IN (…)`, because nearly all rows are of type 59.
RANGES = "(eventType = 59 OR eventType BETWEEN 60 AND 60 OR eventType BETWEEN 70 AND 71)"
OPEN_END = np.iinfo(np.int64).max
_AT_ONCE = 1000

_FIRST_NSYS, _LATEST = 1.5e9, 4.1e9  # 2017 to 2099, in s: else it is no time of a trace

NEEDED = {
    STRINGS: "id value",
    KERNEL: "start end deviceId contextId streamId correlationId globalPid demangledName "
    "registersPerThread gridX gridY gridZ blockX blockY blockZ "
    "staticSharedMemory dynamicSharedMemory",
    RUNTIME: "start end globalTid correlationId nameId",
    MEMCPY: "start end correlationId globalPid bytes copyKind",
    MEMSET: "start end correlationId globalPid bytes",
    GRAPH_TRACE: "start end correlationId globalPid",
    NVTX: "start end eventType globalTid",
}


def versions(db: Database) -> tuple[str, str]:
    """Product and schema version; empty where the export does not say (before nsys 2021.5)."""
    for name in ("META_DATA_EXPORT", "EXPORT_META_DATA"):  # the second until nsys 2023.1
        table = db.table(name)
        if table is not None:
            if not db.columns(name) >= {"name", "value"}:
                continue
            found = dict(db.rows(f'SELECT name, value FROM "{table}"'))
            return (
                str(found.get("EXPORT_PRODUCT_VERSION") or ""),
                str(found.get("EXPORT_SCHEMA_VERSION") or ""),
            )
    return "", ""


def recorded(db: Database) -> str:
    """When nsys recorded the trace, UTC in ISO 8601; empty where the export does not tell."""
    if "utcEpochNs" not in db.columns(SESSION):
        return ""
    rows = db.rows(f'SELECT max(utcEpochNs) FROM "{db.table(SESSION)}"')
    seconds = pd.to_numeric(rows[0][0], errors="coerce") / 1e9
    if not _FIRST_NSYS < seconds < _LATEST:
        return ""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def warnings(db: Database, schema: str) -> list[str]:
    """What a reader of the tables must know of this export."""
    found = []
    numbers = [int(number) for number in schema.split(".")[:2] if number.isdigit()]
    if len(numbers) == 2 and tuple(numbers) > NEWEST_KNOWN:
        known = ".".join(map(str, NEWEST_KNOWN))
        found.append(
            stored(
                "the trace has export schema {schema}; known up to {known}: read, because all "
                "needed tables and columns are there",
                schema=schema,
                known=known,
            )
        )
    if db.has_rows(GRAPH_TRACE):
        ((graphs,),) = db.rows(f'SELECT count(*) FROM "{db.table(GRAPH_TRACE)}"')
        found.append(
            stored(
                "{graphs} launches of CUDA graphs were traced as wholes: the kernels in them "
                "are not in these tables; trace again with --cuda-graph-trace=node",
                graphs=graphs,
            )
        )
    if not db.has_rows(GPU) and not db.has_rows(CUDA_GPU):
        found.append(stored("the trace does not describe its GPUs (no table TARGET_INFO_GPU)"))
    if db.path.with_name(f"{db.path.name}-wal").exists():
        found.append(
            stored(
                "{name}-wal lies beside the trace: another program changed the export, and "
                "what it did not write back is not read",
                name=db.path.name,
            )
        )
    return found


def check(db: Database, schema: str) -> None:
    """Check that all needed columns are there; a table that is absent holds no events.

    Raises:
        ArtifactUnreadable: no nsys export, or a column is missing.
        NoKernels: the trace holds no GPU kernel.
    """
    if db.table(STRINGS) is None:
        raise ArtifactUnreadable(
            f"{db.path} is an SQLite file, but no nsys export: it has no table {STRINGS}",
            "export the report: nsys export --type sqlite -o trace.sqlite trace.nsys-rep",
        )
    if not db.has_rows(KERNEL):
        raise _no_kernels(db)
    for name, columns in NEEDED.items():
        table = db.table(name)
        missing = sorted(set(columns.split()) - db.columns(name))
        if table is not None and missing:
            raise ArtifactUnreadable(
                f"{db.path}: table {table} has no column {', '.join(missing)}"
                + (f" (export schema {schema})" if schema else ""),
                "export the report with the nsys that recorded it, or upgrade prof",
            )


def check_times(db: Database, name: str, start: Array | None, duration: Array) -> None:
    """Check times that were read from the table `name`; `start` is None where only lengths were.

    Raises:
        ArtifactUnreadable: one ends before it starts, or all starts are 0.
    """
    if not len(duration):
        return
    wrong = ""
    if duration.min() < 0:
        wrong = f"holds {np.count_nonzero(duration < 0)} of {len(duration)} events that end before"
        wrong += " they start"
    elif start is not None and not start.max():
        wrong = "has no times: the start of all is 0"
    if wrong:
        raise ArtifactUnreadable(
            f"{db.path}: table {db.table(name)} {wrong}",
            "export the report again with the nsys that recorded it: nsys export --type sqlite",
        )


def _no_kernels(db: Database) -> NoKernels:
    if db.has_rows(GRAPH_TRACE):
        return NoKernels(
            f"{db.path} holds no kernels: all ran inside CUDA graphs, traced as whole graphs",
            "trace again with --cuda-graph-trace=node",
        )
    if launches := _launches(db):
        return NoKernels(
            f"{db.path} holds launches of kernels ({launches:,}), but nothing of what ran on the "
            "GPU: nsys did not record it",
            "trace again, and look at nsys's warnings (DIAGNOSTIC_EVENT of the export): its CUPTI "
            "may not fit the driver (update nsys), another profiler may hold the GPU, or the "
            "program ended before its buffers were written (nsys profile --cuda-flush-interval)",
        )
    if db.has_rows(RUNTIME):
        return NoKernels(
            f"{db.path} holds CUDA calls but no kernels",
            "the program launched none in the traced range (widen --capture-range, --delay, "
            "--duration), or in forked children, which nsys loses (start workers with spawn)",
        )
    return NoKernels(
        f"{db.path} holds no kernels and no CUDA calls ({_traced(db)})",
        "trace CUDA: nsys profile -t cuda,nvtx …; kernels of forked children are lost: "
        "start workers with spawn; and the program must really reach the GPU",
    )


def _launches(db: Database) -> int:
    """CUDA calls that launch a kernel or a graph; 0 where the table lacks their names."""
    table = db.table(RUNTIME)
    if table is None or "nameId" not in db.columns(RUNTIME):
        return 0
    names = (
        f'SELECT id FROM "{db.table(STRINGS)}"'
        " WHERE value GLOB 'cu*Launch*' AND value NOT GLOB '*HostFunc*'"
    )
    ((number,),) = db.rows(f'SELECT count(*) FROM "{table}" WHERE nameId IN ({names})')
    return int(number)


def _traced(db: Database) -> str:
    kinds = {"OSRT_API": "OS runtime calls", NVTX: "NVTX ranges", "SCHED_EVENTS": "CPU scheduling"}
    found = [words for name, words in kinds.items() if db.has_rows(name)]
    return "it holds " + ", ".join(found) if found else "it holds no traced events"


def read_strings(db: Database, ids: Iterable[int]) -> dict[int, str]:
    """Text of each id that StringIds has."""
    found: dict[int, str] = {}
    rest = iter(sorted(set(ids)))
    while chunk := list(islice(rest, _AT_ONCE)):
        query = f'SELECT id, value FROM "{db.table(STRINGS)}" WHERE id IN ({str(chunk)[1:-1]})'
        found.update((int(number), str(text)) for number, text in db.rows(query) if text)
    return found
