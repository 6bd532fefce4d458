"""Tables of lines of Python: `host_lines` (where the host was, and whether the GPU worked),
`thread_lines` (of threads beside) and `launch_lines` (what launched each kernel).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.names.activity import activity
from nsight_prof.parsers.names.ranges import Stages, shorten
from nsight_prof.parsers.nsys.rows.calls import ABI_VERSION, Calls, scan_calls
from nsight_prof.parsers.nsys.rows.nvtx import read_nvtx
from nsight_prof.parsers.nsys.rows.python_samples import (
    PythonSamples,
    StackEnd,
    has_samples,
)
from nsight_prof.parsers.nsys.sqlite.codes import Threads
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import RUNTIME, read_strings
from nsight_prof.parsers.nsys.stages.native_stacks import Lines, native_stacks
from nsight_prof.parsers.nsys.stages.stages import attribute_calls
from nsight_prof.parsers.nsys.stages.work import Work
from nsight_prof.parsers.run.sentences import stored

TABLE, OTHERS, LAUNCHES = "host_lines", "thread_lines", "launch_lines"
THREAD_MASK = (1 << 24) - 1
KEY_MASK = (1 << 56) - 1  # 32 bits of correlation, 24 of process
NESTED = 3
"""Calls into each other that are looked through: cudaLaunchKernel holds a call of the driver."""


def host_lines(db: Database, work: Work, every: PythonSamples, stages: Stages) -> pd.DataFrame:
    """Return table `host_lines`: samples of the threads that call CUDA, between the first GPU work
    of the capture and the last; empty where the trace has no stacks of Python.
    """
    samples = _of_callers(db, every)
    if not len(samples.start):
        return tables.empty(TABLE)
    begin, reached = _busy(work)
    if not len(begin):
        return tables.empty(TABLE)
    at = np.searchsorted(begin, samples.start, side="right") - 1
    inside = (at >= 0) & (samples.start < reached[-1])
    at, samples = at[inside], _pick(samples, inside)
    if not len(at):
        return tables.empty(TABLE)
    calls = Calls(samples.start.copy(), *_coded(samples.thread))
    threads = Threads()
    nvtx = read_nvtx(db, threads)
    found = attribute_calls(nvtx, calls, threads.ids, stages)
    stage = found.stage_of(np.arange(len(at)))
    called, launched = _calls_of(db, work, samples)
    innermost = [shorten(found.labels[path[-1]]) if path else "" for path in found.paths]
    frame = pd.DataFrame(
        {
            "stage": [found.stages[code] if code >= 0 else "" for code in stage],
            "call": called,
            "kernel_id": launched,
            "nvtx_range": [innermost[code] for code in found.path],
            "stack_end": samples.stack_end,
            "idle_samples": (reached[at] <= samples.start).astype(int),
            "samples": 1,
            "time_ns": _periods(samples),
        }
    )
    frame["idle_ns"] = frame["time_ns"] * frame["idle_samples"]
    frame = frame.groupby(
        ["stage", "call", "kernel_id", "nvtx_range", "stack_end"], as_index=False
    ).sum()
    frame["activity"] = [activity(call) for call in frame["call"]]
    stack_ends = [samples.stack_ends[code] for code in frame.pop("stack_end")]
    frame = frame.assign(**_places(stack_ends), work=[end.work for end in stack_ends], source="")
    order = ["time_ns", "stage", "file", "line"]
    frame = frame.sort_values(order, ascending=[False, True, True, True])
    return tables.check(frame.round({"time_ns": 0, "idle_ns": 0}), TABLE)


def thread_lines(db: Database, work: Work, every: PythonSamples) -> pd.DataFrame:
    """Return table `thread_lines`: samples of the threads that make no CUDA call, between the first
    GPU work of the capture and the last.
    """
    begin, reached = _busy(work)
    if not len(begin) or not len(every.start):
        return tables.empty(OTHERS)
    others = ~np.isin(every.thread, np.unique(_of_callers(db, every).thread))
    samples = _pick(every, others & (every.start >= begin[0]) & (every.start < reached[-1]))
    frame = pd.DataFrame(
        {
            "thread": samples.thread & THREAD_MASK,
            "stack_end": samples.stack_end,
            "samples": 1,
            "time_ns": _periods(samples),
        }
    )
    frame = frame.groupby(["thread", "stack_end"], as_index=False).sum()
    stack_ends = [samples.stack_ends[code] for code in frame.pop("stack_end")]
    frame = frame.assign(**_places(stack_ends)).sort_values("samples", ascending=False)
    return tables.check(frame.round({"time_ns": 0}), OTHERS)


def launch_lines(db: Database, work: Work, every: PythonSamples, native: Lines) -> pd.DataFrame:
    """Return table `launch_lines`: stacks of threads that call CUDA while a kernel runs; empty
    where the trace has none.

    In a run with CUDA_LAUNCH_BLOCKING=1 a launch returns when its kernel has ended, so that such a
    stack is that of the launch, or, of a kernel that another thread launches (autograd's), that of
    the call that waits for it. Kernels of CUDA graphs do not block: they are left out. Of a program
    without Python the native stacks of CUDA calls, where nsys unwound them, and their lines.
    """
    samples, rows = _of_callers(db, every), work.kernels
    if not len(samples.start):
        return native_stacks(db, _kernel_of_call(work), native)
    if not len(rows.start):
        return tables.empty(LAUNCHES)
    at = np.searchsorted(rows.start, samples.start, side="right") - 1
    runs = (at >= 0) & (samples.start < rows.start[at] + rows.duration[at])
    if rows.graph_node is not None:
        runs &= rows.graph_node[at] < 0
    frame = pd.DataFrame(
        {
            "kernel": rows.kernel[at],
            "stack_end": samples.stack_end,
            "call": "",
            "samples": 1,
            "time_ns": _periods(samples),
        }
    )
    frame = frame[runs].groupby(["kernel", "call", "stack_end"], as_index=False).sum()
    frame["kernel_id"] = [rows.kernels[code].kernel_id for code in frame.pop("kernel")]
    stack_ends = [samples.stack_ends[code] for code in frame.pop("stack_end")]
    order = ["time_ns", "kernel_id", "file", "line"]
    frame = frame.assign(**_places(stack_ends)).sort_values(order, ascending=[False, *3 * [True]])
    return tables.check(frame.round({"time_ns": 0}), LAUNCHES)


def _places(stack_ends: Sequence[StackEnd]) -> dict[str, Any]:
    """Return the columns that say where stacks end."""
    frames = [end.of_program for end in stack_ends]
    return {
        "file": [frame.file for frame in frames],
        "line": [frame.line or None for frame in frames],
        "function": [frame.function for frame in frames],
        "inner": ["" if end.inner == end.of_program else str(end.inner) for end in stack_ends],
        "callers": [" < ".join(map(str, end.callers)) for end in stack_ends],
    }


def why_no_lines(db: Database) -> str:
    """Why table `host_lines` is empty, and how to get it."""
    if not has_samples(db):
        return stored(
            "the trace has no samples of Python stacks: record it with trace.python_sampling: true "
            "(nsys profile --python-sampling=true)"
        )
    return stored(
        "the export has no stacks of Python, or no thread that calls CUDA was sampled: export it "
        "with nsys export --type=sqlite --include-blobs=true (after nsys 2024.2)"
    )


def _of_callers(db: Database, samples: PythonSamples) -> PythonSamples:
    """Samples of threads that call CUDA: others wait, read data or log."""
    table = db.table(RUNTIME)
    if table is None or not len(samples.start):
        return _pick(samples, np.zeros(len(samples.start), bool))
    callers = [row[0] for row in db.rows(f'SELECT DISTINCT globalTid FROM "{table}"')]
    known = [thread for thread in callers if thread is not None]
    return _pick(samples, np.isin(samples.thread, np.array(known, np.int64)))


def _pick(samples: PythonSamples, at: Array) -> PythonSamples:
    columns = (samples.start[at], samples.thread[at], samples.stack_end[at])
    return PythonSamples(*columns, samples.stack_ends)


def _coded(thread: Array) -> tuple[Array, Array]:
    ids, codes = np.unique(thread, return_inverse=True)
    return codes.astype(np.int32), ids


def _busy(work: Work) -> tuple[Array, Array]:
    """Starts of all GPU operations in order, and until when the GPU is busy from each on."""
    operations = (work.kernels, work.memory, work.graphs)
    start = np.concatenate([kind.start for kind in operations])
    end = start + np.concatenate([kind.duration.astype(np.int64) for kind in operations])
    order = np.argsort(start, kind="stable")
    return start[order], np.maximum.accumulate(end[order])


def _periods(samples: PythonSamples) -> Array:
    """Time that a sample stands for, in ns: the median distance on its thread."""
    periods = np.zeros(len(samples.start))
    for thread in np.unique(samples.thread):
        of_thread = samples.thread == thread
        distances = np.diff(samples.start[of_thread])
        periods[of_thread] = np.median(distances) if len(distances) else np.nan
    return periods


def _calls_of(db: Database, work: Work, samples: PythonSamples) -> tuple[list[str], list[str]]:
    """Name of the outermost CUDA call in which each sample lies, and the kernel that the innermost
    launched, by its id; empty for none.
    """
    table, threads = db.table(RUNTIME), sorted({int(thread) for thread in samples.thread})

    def read_chunk(columns: list[Array]) -> list[Array]:
        of_thread = np.isin(columns[0], threads)
        return [column[of_thread] for column in columns]

    chunks = list(scan_calls(db, str(table), read_chunk))
    thread, key, start, end, name = (np.concatenate(c) for c in zip(*chunks, strict=True))
    texts = read_strings(db, {int(number) for number in np.unique(name)})
    kernels, inside = _kernels_by_key(work), np.full(len(samples.start), -1, np.int64)
    launched = [""] * len(samples.start)
    for number in threads:
        at = np.flatnonzero(thread == number)
        at = at[np.argsort(start[at], kind="stable")]
        of_thread = np.flatnonzero(samples.thread == number)
        last = np.searchsorted(start[at], samples.start[of_thread], side="right") - 1
        for back in range(NESTED if len(at) else 0):
            before = at[np.maximum(last - back, 0)]
            encloses = (last >= back) & (end[before] > samples.start[of_thread])
            inside[of_thread[encloses]] = name[before[encloses]]
            for sample, call in zip(
                of_thread[encloses], key[before[encloses]] & KEY_MASK, strict=True
            ):
                launched[sample] = launched[sample] or kernels.get(int(call), "")
    return [ABI_VERSION.sub("", texts.get(int(code), "")) for code in inside], launched


def _kernel_of_call(work: Work) -> Callable[[int], tuple[str, str]]:
    """Return what finds id and name of the kernel that a call launched, by the key of the call."""
    ids = _kernels_by_key(work)
    names = {kernel.kernel_id: kernel.name for kernel in work.kernels.kernels}

    def kernel_of(key: int) -> tuple[str, str]:
        kernel_id = ids.get(key & KEY_MASK, "")
        return kernel_id, names.get(kernel_id, "")

    return kernel_of


def _kernels_by_key(work: Work) -> dict[int, str]:
    """Id of the kernel that each call launched; of a graph that of its first node."""
    rows = work.kernels
    keys = rows.correlation.astype(np.int64) | (rows.queues[:, 3][rows.queue] << 32)
    first, at = np.unique(keys & KEY_MASK, return_index=True)
    kernels = rows.kernel[at]
    return {
        int(key): rows.kernels[code].kernel_id for key, code in zip(first, kernels, strict=True)
    }
