"""Events of the Trace Event Format as JSON text: what Perfetto and chrome://tracing open.

The format: "Trace Event Format" of the Chromium project, JSON Object Format. `ts` and `dur` are
microseconds with three decimals, so that nanoseconds stay whole. They come before all text, because
older versions of Perfetto look for `ts` with a reader that knows no \\u escapes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Track:
    """Where a viewer draws an event: `pid` and `tid` of the format, for GPUs made up by us."""

    pid: int
    tid: int

    def __str__(self) -> str:
        return f'"pid":{self.pid},"tid":{self.tid}'


def micros(nanoseconds: int) -> str:
    """Return a time that is not negative in microseconds, exact."""
    microseconds, rest = divmod(nanoseconds, 1000)
    return f"{microseconds}.{rest:03d}"


def encoded(value: Any) -> str:
    """Return JSON that is as short as it can be, without escapes for letters of any language."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def label(category: str, name: str) -> str:
    """Return the fields `cat` and `name`, which many events share."""
    return f'"cat":{encoded(category)},"name":{encoded(name)}'


def complete(start: int, duration: int, track: str, label: str, args: str = "") -> str:
    """Return an event that lasts; `args` are the encoded inner fields."""
    extra = f',"args":{{{args}}}' if args else ""
    return f'{{"ph":"X","ts":{micros(start)},"dur":{micros(duration)},{track},{label}{extra}}}'


def counter(at: int, track: Track, name: str, value: float) -> str:
    """Return a value of a curve that a viewer draws among the tracks of a process."""
    args = encoded({"value": value})
    return f'{{"ph":"C","ts":{micros(at)},{track},"name":{encoded(name)},"args":{args}}}'


def instant(at: int, track: str, label: str) -> str:
    """Return an event of a thread without a length."""
    return f'{{"ph":"i","ts":{micros(at)},{track},"s":"t",{label}}}'


def begin_and_end(start: int, end: int, number: int, track: str, label: str) -> tuple[str, str]:
    """Return an asynchronous event, which may overlap others and end on another thread."""
    rest = f'{track},"id":"0x{number:x}",{label}'
    return (
        f'{{"ph":"b","ts":{micros(start)},{rest}}}',
        f'{{"ph":"e","ts":{micros(end)},{rest}}}',
    )


def arrow(number: int, start: int, source: str, end: int, target: str) -> tuple[str, str]:
    """Return an arrow from the event that runs on `source` at `start` to that on `target`."""
    rest = f'"id":{number},"cat":"launch","name":"launch"'
    return (
        f'{{"ph":"s","ts":{micros(start)},{source},{rest}}}',
        f'{{"ph":"f","ts":{micros(end)},{target},"bp":"e",{rest}}}',
    )


def metadata(what: str, track: Track, /, **args: Any) -> str:
    """Return an event that names or sorts a process or a thread."""
    return f'{{"ph":"M","ts":0,{track},"name":"{what}","args":{encoded(args)}}}'


# Above the 24 bits that nsys has for the ids of the system.
_MADE_UP = 1 << 24


@dataclass
class Tracks:
    """Tracks handed out so far: first all of the host, then those of the GPUs.

    A thread keeps its own id; an id is used once in a file. (Viewers show ids beside the names;
    Perfetto names a thread by its id alone, and takes id 0 for the idle task.)
    """

    scope: str = ""
    """What the processes and GPUs that follow are of, in a file of several ranks: `rank 3`."""
    _processes: dict[object, tuple[int, str]] = field(default_factory=dict)
    _threads: list[tuple[Track, str]] = field(default_factory=list)
    _used: set[int] = field(default_factory=set)

    def host_process(self, pid: int, name: str) -> int:
        """Return the id of a process of the system."""
        return self._process(("host", pid), pid, name)

    def gpu(self, device: int, name: str) -> int:
        """Return the id under which a GPU is shown as a process: its index + 1 where it can be."""
        return self._process(("gpu", device), device + 1, name)

    def _process(self, key: tuple[str, int], wanted: int, name: str) -> int:
        """Return the id of a process, `wanted` where no other one of the file has it."""
        scoped = (self.scope, *key)
        if scoped not in self._processes:
            taken = {pid for pid, _ in self._processes.values()}
            pid = wanted if wanted > 0 and wanted not in taken else _MADE_UP + len(taken)
            self._processes[scoped] = pid, f"{self.scope}, {name}" if self.scope else name
        return self._processes[scoped][0]

    def thread(self, pid: int, name: str, wanted: int = 0) -> Track:
        """Return a new track of a process, with the id `wanted` where that is free."""
        tid = wanted if wanted > 0 and wanted not in self._used else _MADE_UP + len(self._used)
        self._used.add(tid)
        track = Track(pid, tid)
        self._threads.append((track, name))
        return track

    def metadata(self) -> Iterator[str]:
        """Give the events that name all tracks and keep them in the order of their first use."""
        for index, (pid, name) in enumerate(self._processes.values()):
            track = next((track for track, _ in self._threads if track.pid == pid), Track(pid, pid))
            yield metadata("process_name", track, name=name)
            yield metadata("process_sort_index", track, sort_index=index)
        for index, (track, name) in enumerate(self._threads):
            yield metadata("thread_name", track, name=name)
            yield metadata("thread_sort_index", track, sort_index=index)


def lane_name(name: str, lane: int) -> str:
    """Return the name of a further lane of a track whose events overlap."""
    return name if lane == 0 else f"{name} (overlapping, {lane + 1})"
