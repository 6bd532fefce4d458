"""Writes chrome traces as the torch profiler does: operators, ranges, launches and kernels."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class TraceBuilder:
    """A program on one thread; `now` is in microseconds and moves on with what happens."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 1000.0
        self.thread = 7
        self._number = 0

    @contextmanager
    def operator(
        self, name: str, dims: Any = None, types: Any = None, external: bool = True
    ) -> Iterator[Event]:
        args: Event = {"Record function id": 0}
        if external:
            self._number += 1
            args["External id"] = self._number
        if dims is not None:
            args |= {"Input Dims": dims, "Input type": types or ["c10::BFloat16"] * len(dims)}
        with self._span("cpu_op", name, args) as event:
            yield event

    @contextmanager
    def range(self, name: str) -> Iterator[Event]:
        with self._span("user_annotation", name, {}) as event:
            yield event

    @contextmanager
    def function(self, name: str) -> Iterator[Event]:
        with self._span("python_function", name, {}) as event:
            yield event

    @contextmanager
    def _span(self, kind: str, name: str, args: Event) -> Iterator[Event]:
        event = self._event(kind, name, args)
        self.now += 1.0
        yield event
        self.now += 1.0
        event["dur"] = self.now - event["ts"]

    def _event(self, kind: str, name: str, args: Event) -> Event:
        event = {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": self.thread}
        event |= {"ts": self.now, "dur": 0.0, "args": args}
        self.events.append(event)
        return event

    def launch(
        self,
        kernel: str,
        duration: float = 10.0,
        *,
        of: Event | None = None,
        kind: str = "kernel",
        call: str = "cudaLaunchKernel",
        grid: tuple[int, int, int] = (1, 1, 1),
    ) -> Event:
        """Launch a kernel from the host now; `of` is the operator that it names as its own."""
        self._number += 1
        self._event("cuda_runtime", call, {"correlation": self._number})["dur"] = 0.5
        self.now += 1.0
        args: Event = {"correlation": self._number, "device": 0, "stream": 7, "grid": list(grid)}
        if of is not None:
            args["External id"] = of["args"]["External id"]
        event = self._event(kind, kernel, args)
        event |= {"pid": 0, "tid": 7, "ts": self.now + 50.0, "dur": duration}
        return event

    def product(
        self, m: int, n: int, k: int, kernel: str, duration: float = 10.0, reduce: float = 0.0
    ) -> None:
        """Call aten::linear on M x K by K x N, which calls aten::mm, which launches `kernel`."""
        with (
            self.operator("aten::linear", [[m, k], [n, k]]),
            self.operator("aten::mm", [[m, k], [k, n]]) as mm,
        ):
            self.launch(kernel, duration, of=mm)
            if reduce:
                name = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(int)"
                self.launch(name, reduce, of=mm)

    def write(self, path: Path) -> Path:
        with gzip.open(path, "wt", encoding="utf-8") as stream:
            json.dump({"schemaVersion": 1, "traceEvents": self.events}, stream, indent=1)
        return path
