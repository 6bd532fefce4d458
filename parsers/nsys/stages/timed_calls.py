"""Tables of the run in which each line of Python was timed: `timed_lines`, `timed_calls` with the
line of each call of CUDA, and `launch_lines` of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.names.activity import activity
from nsight_prof.parsers.nsys.rows.calls import CALL_MASK, ApiCalls
from nsight_prof.parsers.nsys.rows.memory_events import COPY, read_memory_events
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import NVTX
from nsight_prof.parsers.nsys.stages.timed_lines import MARK, Spans, TimedProcess
from nsight_prof.parsers.nsys.stages.work import Work

TIMED, CALLED, LAUNCHES, TIMERS = "timed_lines", "timed_calls", "launch_lines", "line_timers"
PLACE = ["file", "line", "function", "callers"]
_PID, _TID = 24, (1 << 24) - 1
SMOOTHED = 9
"""Marks of which the least late one says what the time is: one may be late, none early."""
SHIFTS = range(0, 12_001, 500)
"""Times in ns by which a mark may be late (4 us with nsys 2023.4.4 and torch 2.14)."""
LOOKED_AT, AS_GOOD = 20_000, 0.998
"""Calls of a thread that are looked at for it, and the part of the most from which on shifts are
as good."""
ACTIVITIES = ("launching", "copying", "waiting", "allocating")
"""What calls do that are told by line."""


class Clock:
    """The clock of a program as the trace has it, by the marks of its process."""

    def __init__(self, db: Database, pid: int) -> None:
        rows = []
        if {"text", "textId", "globalTid"} <= db.columns(NVTX):
            with_text = f"SELECT id FROM StringIds WHERE value LIKE '{MARK}%'"
            rows = db.rows(
                "SELECT start, globalTid, coalesce(text, (SELECT value FROM StringIds WHERE id ="
                f" textId)) FROM \"{db.table(NVTX)}\" WHERE (text LIKE '{MARK}%' OR textId IN"
                f" ({with_text})) AND typeof(start) = 'integer' AND typeof(globalTid) = 'integer'"
                " ORDER BY start"
            )
        pairs = [
            (start, int(number))
            for start, thread, text in rows
            if thread >> _PID & _TID == pid and (number := text[len(MARK) :]).isdigit()
        ]
        self.traced = np.array([start for start, _ in pairs], np.int64)
        late = self.traced - np.array([number for _, number in pairs], np.int64)
        self._late = pd.Series(late).rolling(SMOOTHED, center=True, min_periods=1).min()

    @property
    def is_known(self) -> bool:
        """Whether the trace has marks."""
        return len(self.traced) > 0

    def of_program(self, times: Array) -> Array:
        """Return times of the trace in the clock of the program."""
        late = np.interp(times, self.traced, self._late)
        of_program: Array = times - late.astype(np.int64)
        return of_program


def timed_tables(
    db: Database, work: Work, calls: ApiCalls, threads: Array, processes: Sequence[TimedProcess]
) -> dict[str, pd.DataFrame]:
    """Return tables `timed_lines`, `timed_calls` and `launch_lines` of all processes with marks.

    A call belongs to the innermost line of its thread in its middle; on a thread without lines, as
    those of autograd, to that of the main thread, which waits for it. Without marks nobody knows
    when a line ran: all are empty.
    """
    lines, called = [tables.empty(TIMED)], [tables.empty(CALLED)]
    issued = _Issued(db, work)
    for process in processes:
        clock = Clock(db, process.pid)
        if clock.is_known and len(calls.start):
            ends = [calls.start.min(), (calls.start + calls.duration).max()]
            begin, end = clock.of_program(np.array(ends, np.int64))
            lines.append(_sums(process, int(begin), int(end)))
            called.append(_called(process, clock, (calls, threads), issued))
    timed, every = _by_time(lines, "own_ns"), _by_time(called, "time_ns")
    columns = ("pid", "by", "events", "cost_ns", "reason")
    rows = [{name: getattr(process, name) for name in columns} for process in processes]
    frame = pd.DataFrame(rows, columns=columns)
    timers = tables.check(frame.round({"cost_ns": 0}), TIMERS)
    return {TIMED: timed, CALLED: every, LAUNCHES: _launched(every), TIMERS: timers}


def _by_time(frames: list[pd.DataFrame], time: str) -> pd.DataFrame:
    found, order = pd.concat(frames), [time, "file", "line"]
    return found.sort_values(order, ascending=[False, True, True], ignore_index=True)


def _launched(called: pd.DataFrame) -> pd.DataFrame:
    """Return table `launch_lines`: of the calls those that launched kernels, by their time."""
    rows = called.loc[called["kernel_id"] != "", ["kernel_id", *PLACE, "gpu_ns"]]
    rows = rows.groupby(["kernel_id", *PLACE], as_index=False).sum()
    samples = (rows["gpu_ns"] / 1000).apply(np.ceil).astype(int)
    rows = rows.assign(call="", inner="", samples=samples, time_ns=rows.pop("gpu_ns").astype(float))
    order = ["time_ns", "kernel_id", "file", "line"]
    return tables.check(rows.sort_values(order, ascending=[False, *3 * [True]]), LAUNCHES)


def _sums(process: TimedProcess, begin: int, end: int) -> pd.DataFrame:
    """Return the lines that ended in a time of the program, without what timing them cost."""
    written, number, hits, time, inner = process.totals.T
    last = written[written >= end].min(initial=np.iinfo(np.int64).max)
    inside = (written >= begin) & (written <= last)
    frame = pd.DataFrame({"number": number, "hits": hits, "time_ns": time, "inner": inner})
    frame = frame[inside].groupby("number", as_index=False).sum()
    cost = frame["hits"] * process.event_ns
    own_ns = (frame["time_ns"] - frame.pop("inner") - cost).clip(lower=0)
    frames_at = [process.lines[at] for at in frame["number"]]
    frame = frame.assign(
        file=[at.file for at in frames_at],
        line=[at.line for at in frames_at],
        function=[at.function for at in frames_at],
        source=[process.sources[at] for at in frame.pop("number")],
        own_ns=own_ns,
    )
    by = ["file", "line", "function", "source"]
    frame = frame.groupby(by, as_index=False).sum()
    return tables.check(frame.round({"own_ns": 0}), TIMED)


class _Issued:
    """What calls issued: the kernel or the kind of a copy, and its time on the GPU."""

    def __init__(self, db: Database, work: Work) -> None:
        kernels, memory = work.kernels, read_memory_events(db)
        keys = kernels.correlation.astype(np.int64) | (kernels.queues[:, 3][kernels.queue] << 32)
        names = [kernel.kernel_id for kernel in kernels.kernels]
        copies = [name if kind == COPY else "" for kind, name in memory.kinds]
        frame = pd.DataFrame(
            {
                "call": np.concatenate([keys, memory.call]) & CALL_MASK,
                "kernel_id": [names[code] for code in kernels.kernel] + [""] * len(memory.call),
                "copy": [""] * len(keys) + [copies[code] for code in memory.kind],
                "gpu_ns": np.concatenate([kernels.duration, memory.duration]).astype(np.int64),
            }
        )
        first = frame.groupby("call")[["kernel_id", "copy"]].first()
        self.frame = first.assign(gpu_ns=frame.groupby("call")["gpu_ns"].sum())

    def of(self, keys: Array) -> pd.DataFrame:
        """Return what each call issued, by its key."""
        found = self.frame.reindex(keys & CALL_MASK)
        return found.fillna({"kernel_id": "", "copy": "", "gpu_ns": 0}).reset_index(drop=True)


def _called(
    process: TimedProcess, clock: Clock, called: tuple[ApiCalls, Array], issued: _Issued
) -> pd.DataFrame:
    calls, threads = called
    of_thread = threads[calls.thread]
    is_chosen = np.array([activity(name) in ACTIVITIES for name in calls.names], bool)[calls.name]
    at = np.flatnonzero(is_chosen & (of_thread >> _PID & _TID == process.pid))
    begin = clock.of_program(calls.start[at])
    recorded = begin <= process.until
    at, begin = at[recorded], begin[recorded]
    duration = calls.duration[at].astype(np.int64)
    begin = begin + _later(process, of_thread[at] & _TID, begin, duration)
    times = begin + duration // 2
    callers, found, files = of_thread[at] & _TID, np.full(len(at), -1), _Stacks(process)
    for thread in np.unique(callers):
        spans = process.spans.get(int(thread)) or process.spans.get(process.pid)
        if spans is not None:
            of_it = callers == thread
            found[of_it] = files.numbers(spans)[spans.path_at(times[of_it])]
    known = found >= 0
    at, found = at[known], found[known]
    frame = issued.of(calls.call[at]).assign(
        call=[calls.names[code] for code in calls.name[at]],
        stack=found,
        calls=1,
        time_ns=calls.duration[at].astype(np.int64),
    )
    frame = frame.groupby(["kernel_id", "call", "copy", "stack"], as_index=False).sum()
    stacks = [files.stacks[number] for number in frame.pop("stack")]
    frame = frame.assign(
        file=[process.lines[stack[-1]].file for stack in stacks],
        line=[process.lines[stack[-1]].line for stack in stacks],
        function=[process.lines[stack[-1]].function for stack in stacks],
        callers=[" < ".join(str(process.lines[n]) for n in stack[-2::-1]) for stack in stacks],
        source=[process.sources[stack[-1]] for stack in stacks],
        activity=[activity(name) for name in frame["call"]],
    )
    return tables.check(frame, CALLED)


def _later(process: TimedProcess, callers: Array, begin: Array, duration: Array) -> int:
    """Return by how much calls are later than marks say, which take some microseconds themselves.

    A call lies within one line: of all shifts those count with which most calls do.
    """
    agree = np.zeros(len(SHIFTS))
    for thread, spans in process.spans.items():
        at = np.flatnonzero(callers == thread)
        at = at[:: max(1, len(at) // LOOKED_AT)]
        for number, shift in enumerate(SHIFTS if len(at) else ()):
            first = spans.path_at(begin[at] + shift)
            last = spans.path_at(begin[at] + duration[at] + shift)
            agree[number] += np.count_nonzero((first == last) & (first >= 0))
    alike = np.flatnonzero(agree >= AS_GOOD * agree.max())
    return int(SHIFTS[alike[len(alike) // 2]]) if agree.any() else 0


class _Stacks:
    """Stacks of lines, the same number for the same stack of all threads."""

    def __init__(self, process: TimedProcess) -> None:
        self.stacks: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}

    def numbers(self, spans: Spans) -> Array:
        """Return the number of each path of spans, and last -1 for none."""
        for path in spans.paths:
            if path not in self._numbers:
                self._numbers[path] = len(self.stacks)
                self.stacks.append(path)
        return np.array([*(self._numbers[path] for path in spans.paths), -1], np.int64)
