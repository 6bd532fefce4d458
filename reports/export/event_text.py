"""Events of the Trace Event Format as JSON text: what Perfetto and chrome://tracing open.

The format: "Trace Event Format" of the Chromium project, JSON Object Format. `ts` and `dur` are
microseconds with three decimals, so that nanoseconds stay whole. They come before all text, because
older versions of Perfetto look for `ts` with a reader that knows no \\u escapes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
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
