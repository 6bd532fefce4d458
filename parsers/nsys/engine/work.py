"""GPU operations of an engine's processes with the host call that issued each, for its steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsight_prof.parsers.names.kernel_names import classify
from nsight_prof.parsers.nsys.engine.ranges import StepRange
from nsight_prof.parsers.nsys.rows.calls import call_key, scan_calls
from nsight_prof.parsers.nsys.rows.kernels import KernelRows
from nsight_prof.parsers.nsys.rows.timeline import ISSUED
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import (
    GRAPH_TRACE,
    MEMCPY,
    MEMSET,
    RUNTIME,
    read_strings,
)

_PROCESS = 0xFFFFFF
_NEVER = np.iinfo(np.int64).max
COLLECTIVE = "collective"


@dataclass(frozen=True)
class Calls:
    """CUDA API calls of the engine's processes by key, each once; `name` codes `names`."""

    key: Array
    thread: Array
    start: Array
    end: Array
    name: Array
    names: dict[int, str]


@dataclass(frozen=True)
class RankWork:
    """GPU operations of one process on one device, by start; times in ns.

    `step` is the index of the step that issued each, -1 before the first. `call_end` is the end of
    the call that issued it, -1 where the trace does not hold it. `launch` is an index into
    the kernel launches of the trace, -1 for copies, memsets and whole graphs.
    """

    pid: int
    device: int
    steps: list[StepRange]
    start: Array
    end: Array
    step: Array
    call_end: Array
    launch: Array
    collective: Array

    @property
    def is_kernel(self) -> Array:
        """Which operations are kernels."""
        mask: Array = self.launch >= 0
        return mask


def read_engine_calls(db: Database, pids: set[int]) -> Calls:
    """All CUDA API calls of the processes `pids`."""
    table = db.table(RUNTIME)
    none = np.empty(0, np.int64)
    if table is None:
        return Calls(none, none, none, none, none, {})

    def read_chunk(columns: list[Array]) -> list[Array]:
        is_inside = np.isin(columns[0] >> 24 & _PROCESS, [*pids])
        return [column[is_inside] for column in columns]

    chunks = list(scan_calls(db, table, read_chunk)) or [[none] * 5]
    thread, key, start, end, name = (np.concatenate(column) for column in zip(*chunks, strict=True))
    order = np.lexsort((start, key))
    first = np.diff(key[order], prepend=-1) != 0
    first_calls = order[first]
    names = read_strings(db, np.unique(name).tolist())
    return Calls(
        key[first_calls],
        thread[first_calls],
        start[first_calls],
        end[first_calls],
        name[first_calls],
        names,
    )


def read_work(
    db: Database, rows: KernelRows, steps: list[StepRange], calls: Calls
) -> list[RankWork]:
    """GPU operations of each process that has steps, a part a device, by process and device."""
    pid = rows.queues[:, 3][rows.queue]
    device = rows.queues[:, 0][rows.queue]
    key = rows.correlation.astype(np.int64) | (pid << 32)
    chunks = [
        (rows.start, rows.start + rows.duration.astype(np.int64), key, device, np.arange(len(key)))
    ]
    for name in (MEMCPY, MEMSET, GRAPH_TRACE):
        table = db.table(name)
        if table is None:
            continue
        for start, end, process, correlation, where in db.scan(ISSUED, table, list):
            called = call_key(process >> 24, correlation)
            chunks.append((start, end, called, where, np.full(len(start), -1)))
    columns = [np.concatenate(column).astype(np.int64) for column in zip(*chunks, strict=True)]
    of_kernel = [classify(kernel.name).category == COLLECTIVE for kernel in rows.kernels]
    collective = np.array(of_kernel, bool)[rows.kernel]
    found = []
    for process in sorted({step.pid for step in steps}):
        of_process = [column[(columns[2] >> 32) == process] for column in columns]
        own_steps = [step for step in steps if step.pid == process]
        found += _ranks(process, own_steps, of_process, calls, collective)
    return found


def _ranks(
    pid: int, steps: list[StepRange], columns: list[Array], calls: Calls, collective: Array
) -> list[RankWork]:
    """Work of one process; operations without a device count to its only device."""
    order = np.argsort(columns[0], kind="stable")
    start, end, key, device, launch = (column[order] for column in columns)
    known = np.unique(device[device >= 0])
    if len(known) == 1:
        device = np.full(len(device), known[0])
    at = np.minimum(np.searchsorted(calls.key, key), max(len(calls.key) - 1, 0))
    has_call = (calls.key[at] == key) if len(calls.key) else np.zeros(len(key), bool)
    begins = np.array([step.start for step in steps], np.int64)
    if len(calls.key):
        step = np.searchsorted(begins, calls.start[at], "right") - 1
        step, call_end = np.where(has_call, step, -1), np.where(has_call, calls.end[at], -1)
    else:
        step = call_end = np.full(len(key), -1)
    shared = np.append(collective, False)[launch]
    return [
        RankWork(
            pid,
            number,
            steps,
            *(column[device == number] for column in (start, end, step, call_end, launch, shared)),
        )
        # A device on which no step works is none of the engine's.
        for number in (np.unique(device[step >= 0]) if (step >= 0).any() else known[:1]).tolist()
    ]


@dataclass(frozen=True)
class Windows:
    """GPU time of the steps of one rank that have GPU work, in order; times in ns.

    `index` are their steps; step i has the GPU from `begin[i]` to `until[i]`, which is the begin of
    the next, or the end of its own work for the last. `end` is the end of its own work.
    """

    index: Array
    begin: Array
    end: Array
    until: Array


def find_windows(work: RankWork) -> Windows:
    """Give each step of a rank its part of the GPU's time."""
    count = len(work.steps)
    first, first_kernel = np.full(count, _NEVER), np.full(count, _NEVER)
    end, last_kernel = np.full(count, -1), np.full(count, -1)
    in_step = work.step >= 0
    kernels = in_step & work.is_kernel
    np.minimum.at(first, work.step[in_step], work.start[in_step])
    np.maximum.at(end, work.step[in_step], work.end[in_step])
    np.minimum.at(first_kernel, work.step[kernels], work.start[kernels])
    np.maximum.at(last_kernel, work.step[kernels], work.end[kernels])
    index = np.flatnonzero(first < _NEVER)
    # Inputs of a step may be copied on another stream while the step before still computes: its
    # own time begins when the kernels of that step are done.
    before = np.append(-1, np.maximum.accumulate(last_kernel[index]))[:-1]
    begin = np.minimum(np.maximum(first[index], before), first_kernel[index])
    begin = np.maximum.accumulate(begin)
    until = np.append(begin[1:], end[index][-1:])
    return Windows(index, begin, end[index], np.maximum(until, begin))
