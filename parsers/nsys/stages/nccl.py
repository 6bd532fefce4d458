"""Table `collectives`: each NCCL call on each rank, with its bytes, communicator and bandwidth.

NCCL says in payloads of its NVTX ranges which communicator a call is of and how many bytes a rank
passes to it (nvtx_payload_schemas.h); the kernel that the call launched says how long it took. The
last rank to arrive at a collective has the shortest kernel, as all end together: what is longer on
others is waiting. Bandwidths are those of nccl-tests (doc/PERFORMANCE.md), from that time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.names.kernel_names import classify
from nsight_prof.parsers.nsys.rows.calls import scan_calls
from nsight_prof.parsers.nsys.rows.devices import Devices
from nsight_prof.parsers.nsys.rows.kernels import KernelRows
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import NVTX, PROCESS, RUNTIME, STRINGS
from nsight_prof.parsers.nsys.stages.payloads import SCHEMA_ENTRIES, Payload, read_payloads
from nsight_prof.parsers.nsys.stages.work import Work
from nsight_prof.parsers.run.sentences import stored

COMMUNICATOR, BYTES, RANKS = "NCCL communicator ID", "Message size [bytes]", "No. of ranks"
OPERATIONS = {
    "ncclAllReduce": "all-reduce",
    "ncclAllGather": "all-gather",
    "ncclReduceScatter": "reduce-scatter",
    "ncclBroadcast": "broadcast",
    "ncclReduce": "reduce",
    "ncclAlltoAll": "all-to-all",
    "ncclGather": "gather",
    "ncclScatter": "scatter",
    "ncclSend": "send",
    "ncclRecv": "receive",
}
"""NCCL function -> what it is called in tables."""
WHOLE = {"all-gather", "reduce-scatter", "all-to-all", "gather", "scatter"}
"""Operations to which each rank passes one part of as many as there are ranks."""
POINT_TO_POINT = {"send", "receive"}
GROUP = "ncclGroupEnd"
MOST_BYTES, MOST_RANKS = 1 << 40, 1 << 20
"""More than any call has: a payload that says so is damaged."""


@dataclass
class _Call:
    """A call of NCCL, or several of a group, on one thread; `launches` are indices of kernels."""

    ranges: list[Payload]
    launches: list[int] = field(default_factory=list)


def bus_factor(operation: str, ranks: int) -> float:
    """Bus over algorithm bandwidth, as nccl-tests has it."""
    if operation == "all-reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in WHOLE else 1.0


def collectives(db: Database, work: Work, devices: Devices) -> pd.DataFrame:
    """Return table `collectives`; empty where the trace has no payloads of NCCL."""
    if not _is_nccl(work.kernels).any():
        return tables.empty("collectives")
    payloads = read_payloads(db, "nccl%")
    calls = _calls(db, work.kernels, payloads)
    if not calls:
        return tables.empty("collectives")
    frame = pd.DataFrame([_row(call, work, devices) for call in calls])
    frame = frame.sort_values("start_ns", kind="stable", ignore_index=True)
    return tables.check(_compared(frame, _communicators(payloads)), "collectives")


def why_none(db: Database, kernels: KernelRows) -> str | None:
    """Why there is no table `collectives`; None where no NCCL kernel ran."""
    is_nccl = _is_nccl(kernels)
    if not is_nccl.any():
        return None
    if not _has_ranges(db):
        return stored("NCCL's NVTX ranges are not in the trace (nsys profile --trace=cuda,nvtx)")
    if not _has_payloads(db):
        return stored(
            "the export has no payloads of NVTX ranges: export it again with "
            "nsys export --type=sqlite --include-blobs=true"
        )
    if kernels.graph_node is not None and (kernels.graph_node[is_nccl] >= 0).all():
        return stored("the collectives ran in CUDA graphs, which launch them without NCCL's ranges")
    return stored("no payload of NCCL stands around the launch of a collective")


def _has_ranges(db: Database) -> bool:
    if "textId" not in db.columns(NVTX):
        return False
    names = f"SELECT id FROM \"{db.table(STRINGS)}\" WHERE value LIKE 'nccl%'"
    return bool(db.rows(f'SELECT 1 FROM "{db.table(NVTX)}" WHERE textId IN ({names}) LIMIT 1'))


def _has_payloads(db: Database) -> bool:
    if "binaryData" not in db.columns(NVTX) or db.table(SCHEMA_ENTRIES) is None:
        return False
    return bool(db.rows(f'SELECT 1 FROM "{db.table(NVTX)}" WHERE binaryData IS NOT NULL LIMIT 1'))


def _is_nccl(kernels: KernelRows) -> Array:
    """Which launches are of NCCL."""
    known = [classify(kernel.name) for kernel in kernels.kernels]
    is_nccl = [
        known_kernel.library == "NCCL" and known_kernel.category == "collective"
        for known_kernel in known
    ]
    mask: Array = np.array(is_nccl, bool)[kernels.kernel]
    return mask


def _calls(db: Database, kernels: KernelRows, payloads: list[Payload]) -> list[_Call]:
    """Find the launches of each call: those in its range, or in the end of its group."""
    sent = [p for p in payloads if p.name in OPERATIONS and _bytes(p) is not None]
    if not sent:
        return []
    by_thread: dict[int, list[_Call]] = defaultdict(list)
    for payload in sent:
        by_thread[payload.thread].append(_Call([payload]))
    groups = _groups(db, set(by_thread))
    launched = _launched(db, kernels)
    found: list[_Call] = []
    for thread, calls in by_thread.items():
        found += _of_thread(calls, groups.get(thread, []), launched.get(thread, []))
    return [call for call in found if call.launches]


def _of_thread(
    calls: list[_Call], ends: list[tuple[int, int]], launches: list[tuple[int, int]]
) -> list[_Call]:
    """Give the launches (time of the call, index) of one thread to its calls of NCCL."""
    starts, closing = [call.ranges[0].start for call in calls], [start for start, _ in ends]
    of_group: dict[int, list[int]] = defaultdict(list)
    for time, index in launches:
        at = bisect_right(starts, time) - 1
        group = bisect_right(closing, time) - 1
        if at >= 0 and time <= calls[at].ranges[0].end:
            calls[at].launches.append(index)
        elif group >= 0 and time <= ends[group][1]:
            of_group[group].append(index)
    joined, done = [], -1
    for group, indices in sorted(of_group.items()):
        # The calls of a group end before it launches them.
        own_calls = [
            call
            for call in calls[bisect_right(starts, done) : bisect_right(starts, closing[group])]
            if not call.launches
        ]
        done = closing[group]
        if own_calls:
            joined.append(_Call([p for call in own_calls for p in call.ranges], indices))
    return [*calls, *joined]


def _groups(db: Database, threads: set[int]) -> dict[int, list[tuple[int, int]]]:
    """Start and end of the ends of groups on these threads, by start."""
    rows = db.rows(
        f'SELECT globalTid, start, end FROM "{db.table(NVTX)}" WHERE eventType = 59'
        " AND end IS NOT NULL AND textId IN"
        f" (SELECT id FROM \"{db.table(STRINGS)}\" WHERE value = '{GROUP}') ORDER BY start"
    )
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for thread, start, end in rows:
        if thread in threads:
            found[thread].append((start, end))
    return found


def _launched(db: Database, kernels: KernelRows) -> dict[int, list[tuple[int, int]]]:
    """Time of the API call and index of each launch of NCCL, by thread."""
    table = db.table(RUNTIME)
    index = np.flatnonzero(_is_nccl(kernels))
    pid = kernels.queues[:, 3][kernels.queue[index]]
    keys = kernels.correlation[index].astype(np.int64) | (pid << 32)
    order = np.argsort(keys, kind="stable")
    keys, index = keys[order], index[order]
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    if table is None or not len(keys):
        return found

    def read_chunk(columns: list[Array]) -> list[Array]:
        thread, key, start, *_ = columns
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        hit = np.flatnonzero(keys[at] == key)
        return [at[hit], thread[hit], start[hit]]

    for at, thread, start in scan_calls(db, table, read_chunk):
        for first, tid, time in zip(at.tolist(), thread.tolist(), start.tolist(), strict=True):
            upto = int(np.searchsorted(keys, keys[first], "right"))
            found[tid] += [(time, int(index[i])) for i in range(first, upto)]
    return {thread: sorted(set(times)) for thread, times in found.items()}


def _row(call: _Call, work: Work, devices: Devices) -> dict[str, object]:
    rows, at = work.kernels, np.array(call.launches)
    start, queue = int(rows.start[at].min()), rows.queue[at[:1]]
    end = int((rows.start[at] + rows.duration[at].astype(np.int64)).max())
    names = Counter(OPERATIONS[p.name] for p in call.ranges)
    alike = {(p.fields.get(COMMUNICATOR), p.name) for p in call.ranges}
    kernel = rows.kernels[int(rows.kernel[at[0]])]
    stage = int(work.attributed.stage_of(rows.call[at[:1]])[0])
    first = call.ranges[0].fields
    reductions = {str(p.fields.get("Reduction operation", "")) for p in call.ranges}
    return {
        "operation": ", ".join(names),
        "calls": len(call.ranges),
        "dtype": classify(kernel.name).dtype or None,
        "reduction": reductions.pop().lower() or None if len(reductions) == 1 else None,
        "communicator": _hex(first.get(COMMUNICATOR)) if len({c for c, _ in alike}) == 1 else None,
        "message_bytes": sum(_bytes(p) or 0 for p in call.ranges),
        "alike": len(alike) == 1,
        "pid": call.ranges[0].thread >> 24 & PROCESS,
        "gpu": int(devices.of(rows.places, queue)[0]),
        "kernel_id": kernel.kernel_id,
        "kernels": len(at),
        "start_ns": start,
        "duration_ns": end - start,
        "stage": work.attributed.stages[stage] if stage >= 0 else None,
    }


def _bytes(payload: Payload) -> int | None:
    """Bytes that a rank passes to a call; None where the payload does not tell, or is damaged."""
    size = payload.fields.get(BYTES)
    return size if isinstance(size, int) and 0 <= size <= MOST_BYTES else None


def _hex(communicator: object) -> str | None:
    return f"0x{communicator:016x}" if isinstance(communicator, int) else None


def _communicators(payloads: Sequence[Payload]) -> dict[tuple[str, int], tuple[int, int]]:
    """Number of ranks and own rank of each communicator in each process, as NCCL made it."""
    found = {}
    for payload in payloads:
        name, ranks = _hex(payload.fields.get(COMMUNICATOR)), payload.fields.get(RANKS)
        rank, pid = payload.fields.get("Rank"), payload.thread >> 24 & PROCESS
        if (
            name
            and isinstance(ranks, int)
            and isinstance(rank, int)
            and 0 <= rank < ranks <= MOST_RANKS
        ):
            found[name, pid] = (ranks, rank)
    return found


def _compared(frame: pd.DataFrame, inits: dict[tuple[str, int], tuple[int, int]]) -> pd.DataFrame:
    """Compare the ranks of each communicator: the n-th call of one is the n-th of all."""
    columns = ["communicator", "pid", "gpu"]
    frame["sequence"] = frame.groupby(columns, dropna=False).cumcount()
    rank_counts = frame.drop_duplicates(columns).groupby("communicator").size()
    known = [
        inits.get((name, pid)) if isinstance(name, str) else None
        for name, pid in zip(frame["communicator"], frame["pid"], strict=True)
    ]
    frame["rank"] = pd.array([init[1] if init else pd.NA for init in known], dtype="Int64")
    in_trace = frame["communicator"].map(rank_counts).astype("Int64")
    of_init = pd.array([init[0] if init else pd.NA for init in known], dtype="Int64")
    frame["ranks"] = pd.Series(of_init, index=frame.index).fillna(in_trace)
    frame["ranks_known_by"] = np.where(pd.isna(of_init), "trace", "communicator")
    frame.loc[frame["ranks"].isna(), "ranks_known_by"] = None
    same = ["communicator", "sequence"]
    groups = frame.groupby(same)
    # Send and receive are two calls of one transfer, and ranks of a group may differ.
    complete = (
        frame["alike"]
        & ~frame["operation"].isin(POINT_TO_POINT)
        & (frame["ranks"] > 1)
        & (groups["pid"].transform("size") == frame["ranks"])
        & (groups["operation"].transform("nunique") == 1)
        & (groups["message_bytes"].transform("nunique") == 1)
    ).fillna(False)
    shortest = groups["duration_ns"].transform("min")
    frame["transfer_ns"] = shortest.where(complete).astype("Int64")
    frame["wait_ns"] = (frame["duration_ns"] - shortest).where(complete).astype("Int64")
    shares = frame["ranks"].where(frame["operation"].isin(WHOLE), 1)
    single = frame["alike"] & (frame["ranks"] > 1).fillna(False)
    frame["bytes"] = (frame["message_bytes"].astype("Int64") * shares).where(single)
    rate = frame["bytes"].astype("float64") / frame["transfer_ns"].astype("float64") * 1e9
    frame["algorithm_bandwidth"] = rate
    factors = [
        bus_factor(operation, int(ranks)) if not pd.isna(ranks) and ranks > 1 else np.nan
        for operation, ranks in zip(frame["operation"], frame["ranks"], strict=True)
    ]
    frame["bus_bandwidth"] = rate * factors
    return frame.drop(columns="alike")
