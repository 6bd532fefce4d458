"""Times each line of a program's own Python code, in the further run of trace.launch_lines.

    PROF_LINES=folder PYTHONPATH=…/targets/line_timer python script.py

The interpreter imports a module of this name when it starts, also in processes that the program
starts. It needs the standard library alone: on Python 3.12 and newer `sys.monitoring`, which leaves
code of libraries at full speed; on 3.11 `sys.settrace`. Code is the program's own where its file is
neither of the interpreter, nor of an installed package, nor of a compiler.

Each process that runs such code leaves one file: JSON lines, some followed by 64-bit numbers.

    start   the process; event_ns is what one event costs its line beyond what is taken off already,
            cost_ns what it costs the program
    lines   number, file, function, line and its text of each number that follows
    totals  number, hits, time, and of it that in other lines of the program; since the last block
    spans   number, start, end of what took long enough to hold a call of CUDA (LEAST_NS)
    end     how many events, and why the recording ended before the program, if it did

A line lasts until the next line of its frame; what it calls is within. Times are of
perf_counter_ns. An NVTX mark with the time, each MARK_NS, says what it is in a trace of nsys.
"""

from __future__ import annotations

import atexit
import importlib.machinery
import importlib.util
import json
import linecache
import os
import re
import sys
import threading
from array import array
from collections.abc import Callable
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

VARIABLE = "PROF_LINES"
MONITORING: Any = getattr(sys, "monitoring", None)
LIBRARY = re.compile(
    r"/lib(?:64)?/python[\d.]+/|/(?:site|dist)-packages/|/torchinductor_[^/]+/|^<|^$"
)
"""Files of the interpreter, of installed packages and of compilers: not the program's own."""
LEAST_NS = 1_000
"""A line that took less holds no call of CUDA: these take 2 us and more under nsys."""
MARK_NS = 10_000_000
MOST_EVENTS = 40_000_000
"""Events after which the recording ends, at some 0.5 us each."""
MOST_SPANS = 2_000_000
LONGEST = 400
"""Characters of the text of a line that are kept."""
TOOLS = 4, 3
"""Numbers of tools of sys.monitoring that no kind of tool has for itself: cProfile needs 2."""
CALIBRATION = "prof-calibration.py"
MARK = "prof lines "

Thread = tuple[list[list[Any]], "array[int]", int]
Cell = list[int]
"""A line: its number, hits, time, time in other lines; and the last three as they were written."""


class Code:
    """Lines of one code object; `last` is that at which a generator of it stands."""

    def __init__(self, code: CodeType) -> None:
        self.code = code  # kept, so that no other object gets its id
        self.cells: dict[int, Cell] = {}
        self.last: Cell | None = None


class Timer:
    """What is open on each thread, and what was measured."""

    def __init__(self, out: str) -> None:
        self.out, self.pid = out, os.getpid()
        self.codes: dict[int, Code | None] = {}
        # Of a thread: its open frames (id of the code, line, start of the line, time of it in other
        # lines, start of the frame, code), outermost first, its spans, and its id in the system.
        self.threads: dict[int, Thread] = {}
        self.cells: list[Cell] = []
        self.fresh: list[tuple[int, str, str, int]] = []
        self.events = self.spans = 0
        self.next_ns = 0
        self.event_ns = self.cost_ns = 0.0
        self.running = True
        self.stop_events: Callable[[], None] = lambda: None
        self._file: Any = None
        self._mark: Callable[[str], object] | None = None

    def code_of(self, code: CodeType) -> Code | None:
        """Return the lines of a code object; None where it is not the program's own."""
        key = id(code)
        if key in self.codes:
            return self.codes[key]
        is_own = not LIBRARY.search(code.co_filename) and code.co_filename != __file__
        found = Code(code) if is_own else None
        if found is not None or MONITORING is None:
            self.codes[key] = found
        return found

    def _thread(self) -> Thread:
        number = threading.get_ident()
        if number not in self.threads:
            self.threads[number] = ([], array("q"), threading.get_native_id())
        return self.threads[number]

    def enter(self, code: Code, resumed: bool = False) -> None:
        """A frame begins, or goes on where it had yielded."""
        stack = self._thread()[0]
        now = perf_counter_ns()
        stack.append([id(code.code), code.last if resumed else None, now, 0, now, code])

    def line(self, code: CodeType, number: int) -> None:
        """A line begins, and with it ends the one before."""
        now = perf_counter_ns()
        try:
            stack, spans, _ = self.threads[threading.get_ident()]
        except KeyError:
            stack, spans, _ = self._thread()
        if (not stack or stack[-1][0] != id(code)) and not self._find(stack, code, now):
            return
        top = stack[-1]
        cell = top[1]
        if cell is not None:
            took = now - top[2]
            cell[1] += 1
            cell[2] += took
            cell[3] += top[3]
            top[3] = 0
            if took >= LEAST_NS:
                spans.extend((cell[0], top[2], now))
        cells = top[5].cells
        cell = cells.get(number)
        if cell is None:
            cell = cells[number] = self._cell(code, number)
        top[1] = cell
        self.events += 1
        if now > self.next_ns:
            self.flush(now)
        top[2] = perf_counter_ns()

    def leave(self, code: CodeType, yields: bool = False) -> None:
        """A frame returns, yields or is unwound."""
        now = perf_counter_ns()
        stack, spans, _ = self._thread()
        if not stack or stack[-1][0] != id(code):
            # Frames that were entered before the recording, or on another greenlet.
            if not any(frame[0] == id(code) for frame in stack):
                return
            while stack[-1][0] != id(code):
                self._close(stack, spans, now)
        if yields:
            stack[-1][5].last = stack[-1][1]
        self._close(stack, spans, now)

    def _close(self, stack: list[list[Any]], spans: array[int], now: int) -> None:
        _, cell, start, inner, entered, _ = stack.pop()
        if cell is not None:
            cell[1] += 1
            cell[2] += now - start
            cell[3] += inner
            if now - start >= LEAST_NS:
                spans.extend((cell[0], start, now))
        if stack:
            stack[-1][3] += perf_counter_ns() - entered  # with what this cost

    def _find(self, stack: list[list[Any]], code: CodeType, now: int) -> bool:
        known = self.code_of(code)
        if known is None:
            return False
        if any(frame[0] == id(code) for frame in stack):
            spans = self._thread()[1]
            while stack[-1][0] != id(code):
                self._close(stack, spans, now)
        else:
            self.enter(known)
        return True

    def _cell(self, code: CodeType, number: int) -> Cell:
        name = getattr(code, "co_qualname", code.co_name).rpartition(".")[2]
        self.fresh.append((len(self.cells), code.co_filename, name, number))
        self.cells.append([len(self.cells), 0, 0, 0, 0, 0, 0])
        return self.cells[-1]

    def flush(self, now: int) -> None:
        """Write what was measured since the last time, and mark the time in the trace."""
        self.next_ns = now + MARK_NS
        if not self.running or os.getpid() != self.pid:
            return
        fresh, self.fresh = self.fresh, []
        rows = [(*row, linecache.getline(row[1], row[3]).strip()[:LONGEST]) for row in fresh]
        blocks = [_line({"kind": "lines", "rows": rows})] if rows else []
        totals = array("q")
        for cell in self.cells:
            number, *sums = cell[:4]
            if sums[0] != cell[4]:
                totals.extend(
                    (number, *(at - before for at, before in zip(sums, cell[4:], strict=True)))
                )
                cell[4:] = sums
        if totals:
            blocks.append(_line({"kind": "totals", "end": now, "count": len(totals) // 4}))
            blocks.append(totals.tobytes())
        for number, (stack, spans, thread) in list(self.threads.items()):
            if spans:
                self.threads[number] = (stack, array("q"), thread)
                self.spans += len(spans) // 3
                blocks.append(_line({"kind": "spans", "thread": thread, "count": len(spans) // 3}))
                blocks.append(spans.tobytes())
        self._write(b"".join(blocks))
        try:
            self._mark = self._mark or nvtx_mark()
            if self._mark is not None:
                self._mark(f"{MARK}{perf_counter_ns()}")
        except Exception:
            self._mark = None
        if self.events > MOST_EVENTS or self.spans > MOST_SPANS:
            self.end(f"{self.events:,} lines had run, and {self.spans:,} of them took long")

    def _write(self, data: bytes) -> None:
        if not data:
            return
        try:
            if self._file is None:
                path = os.path.join(self.out, f"lines-{self.pid}.bin")
                self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - open to the end
                how = "sys.monitoring" if MONITORING is not None else "sys.settrace"
                head = {"kind": "start", "pid": self.pid, "argv": sys.argv[:1], "by": how}
                costs = {"event_ns": round(self.event_ns, 1), "cost_ns": round(self.cost_ns, 1)}
                data = _line(head | costs) + data
            self._file.write(data)
        except OSError:  # a full disk, a folder that is gone: the program goes on
            self.running = False
            self.stop_events()

    def end(self, reason: str = "") -> None:
        """End the recording; open lines end now."""
        if not self.running or os.getpid() != self.pid:
            return
        self.stop_events()
        now = perf_counter_ns()
        for stack, spans, _ in list(self.threads.values()):
            while stack:
                self._close(stack, spans, now)
        self.events = 0 if self._file is None else self.events
        events, self.events, self.spans = self.events, 0, 0  # flush does not end it again
        self.flush(now)
        self.running = False
        if self._file is not None:
            self._write(_line({"kind": "end", "end": now, "events": events, "reason": reason}))


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"


def nvtx_mark() -> Callable[[str], object] | None:
    """Return what marks a time in a trace; None before a library that can was imported."""
    torch = sys.modules.get("torch")
    of_torch = getattr(getattr(torch, "_C", None), "_nvtx", None)
    found = getattr(of_torch, "markA", None) or getattr(sys.modules.get("nvtx"), "mark", None)
    of_cupy = getattr(getattr(sys.modules.get("cupy"), "cuda", None), "nvtx", None)
    return found or getattr(of_cupy, "Mark", None)


class Monitor:
    """Tells the timer by sys.monitoring (Python 3.12)."""

    def __init__(self, timer: Timer, tool: int) -> None:
        self._timer, self._tool = timer, tool
        self._on = MONITORING.events
        self._own = self._on.LINE | self._on.PY_RETURN | self._on.PY_YIELD
        MONITORING.use_tool_id(tool, "prof lines")
        everywhere: dict[int, Callable[..., object]] = {
            self._on.PY_START: self.start,
            self._on.PY_RESUME: self.resume,
            self._on.PY_THROW: self.resume,
            self._on.PY_UNWIND: self.unwind,
        }
        self._callbacks = {
            **everywhere,
            self._on.LINE: timer.line,
            self._on.PY_RETURN: lambda code, _offset, _value: timer.leave(code),
            self._on.PY_YIELD: lambda code, _offset, _value: timer.leave(code, yields=True),
        }
        for event, callback in self._callbacks.items():
            MONITORING.register_callback(tool, event, callback)
        MONITORING.set_events(tool, sum(everywhere))

    def start(self, code: CodeType, _offset: int) -> object:
        """A function begins; code of others is asked for once."""
        known = self._timer.codes.get(id(code))
        if known is None:
            known = self._timer.code_of(code)
            if known is None:
                return MONITORING.DISABLE
            MONITORING.set_local_events(self._tool, code, self._own)
        self._timer.enter(known)
        return None

    def resume(self, code: CodeType, _offset: int, exception: object = None) -> object:
        """A generator goes on; what an exception goes into cannot be left out."""
        known = self._timer.codes.get(id(code))
        if known is not None:
            self._timer.enter(known, resumed=True)
        elif exception is None:
            return MONITORING.DISABLE
        return None

    def unwind(self, code: CodeType, _offset: int, _exception: object) -> None:
        """An exception ends a function."""
        if id(code) in self._timer.codes:
            self._timer.leave(code)

    def stop(self) -> None:
        """Leave the program as it was."""
        MONITORING.set_events(self._tool, 0)
        for event in self._callbacks:
            MONITORING.register_callback(self._tool, event, None)
        for known in list(self._timer.codes.values()):
            if known is not None:
                MONITORING.set_local_events(self._tool, known.code, 0)
        MONITORING.free_tool_id(self._tool)


def by_monitoring(timer: Timer) -> str:
    """Let sys.monitoring tell the timer; returns why it cannot, if so."""
    names = {number: MONITORING.get_tool(number) for number in TOOLS}
    tool = next((number for number, name in names.items() if name is None), None)
    if tool is None:
        return f"{' and '.join(map(str, names.values()))}: other tools monitor the program already"
    timer.stop_events = Monitor(timer, tool).stop
    return ""


def by_trace(timer: Timer) -> str:
    """Let sys.settrace (Python 3.11) tell the timer; returns why it cannot, if so."""
    if sys.gettrace() is not None:
        return "a debugger or a measure of coverage traces the program already"

    def outer(frame: FrameType, event: str, _value: object) -> Any:
        known = timer.code_of(frame.f_code)
        if known is None or not timer.running:
            return None
        timer.enter(known, resumed=frame.f_lasti > 0)
        return inner

    def inner(frame: FrameType, event: str, _value: object) -> Any:
        if not timer.running:
            return None
        if event == "line":
            timer.line(frame.f_code, frame.f_lineno)
        elif event == "return":
            known = timer.codes.get(id(frame.f_code))
            if known is not None:
                timer.leave(frame.f_code, yields=True)
        return inner

    sys.settrace(outer)
    threading.settrace(outer)

    def stop() -> None:
        timer.running = timer.running and timer.pid == os.getpid()
        sys.settrace(None)
        threading.settrace(None)

    timer.stop_events = stop
    return ""


def calibrate(timer: Timer) -> None:
    """Measure what an event costs its line, on lines that do nothing."""
    names: dict[str, Any] = {}
    text = "def lines():\n" + "    x = 0\n" * 50
    exec(compile(text, CALIBRATION, "exec"), names)
    cost = []
    for _ in range(200):
        begin, before = perf_counter_ns(), timer.events
        names["lines"]()
        cost.append((perf_counter_ns() - begin) / max(timer.events - before, 1))
    # The least: other programs take turns on the processor.
    timer.event_ns = min((cell[2] / cell[1] for cell in timer.cells if cell[1]), default=0.0)
    timer.cost_ns = min(cost)
    timer.cells.clear()
    timer.fresh.clear()
    timer.threads.clear()
    timer.codes.clear()
    timer.events = timer.spans = 0


def start(out: str) -> None:
    """Record this process into the folder `out`."""
    timer = Timer(out)
    timer.next_ns = 1 << 62  # nothing is written of the calibration
    reason = by_monitoring(timer) if MONITORING is not None else by_trace(timer)
    if reason:
        ended = {"kind": "end", "end": perf_counter_ns(), "events": 0, "reason": reason}
        timer._write(_line(ended))
        return
    calibrate(timer)
    timer.next_ns = 0
    atexit.register(timer.end)
    os.register_at_fork(after_in_child=timer.stop_events)


def _next_of_this_name() -> None:
    """Run the module of this name that would have been imported without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    sys.modules["prof_lines"] = sys.modules[__name__]
    _next_of_this_name()
    if os.environ.get(VARIABLE):
        start(os.environ[VARIABLE])
