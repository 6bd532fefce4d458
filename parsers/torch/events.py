"""Reads the events of a chrome trace of the torch profiler (Kineto), one by one.

A trace of some hundred megabytes is never in memory as text: the file is decoded in pieces, and a
reader keeps of each event what it needs.
"""

from __future__ import annotations

import gzip
import json
import lzma
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.directory import most_unpacked

Event = dict[str, Any]
CHUNK = 1 << 20
"""Characters that are read at a time."""
LONGEST = 64 << 20
"""Characters of one value: an event has hundreds, tables of constants some thousands."""

_decode = json.JSONDecoder().raw_decode
_SPACE = " \t\r\n"
_ENDS = tuple(",]}" + _SPACE)


def read_events(path: Path, facts: Event | None = None) -> Iterator[Event]:
    """Yield the events of a trace (.json, also .gz or .xz) in the order of the file.

    `facts` gets what else the trace says: its GPUs, versions, the time of its clock.

    Raises:
        ArtifactUnreadable: the file is cut off, damaged, or no chrome trace.
    """
    try:
        with _open(path) as stream:
            packed = path.suffix in (".gz", ".xz")
            limit = most_unpacked(path) if packed else math.inf
            yield from _events(_Text(stream, limit), {} if facts is None else facts)
    except (
        *(OSError, EOFError, lzma.LZMAError, zlib.error, ValueError),
        *(RecursionError, MemoryError),
    ) as error:
        raise ArtifactUnreadable(
            f"{path} cannot be read as a trace of the torch profiler: {error}",
            "record it again, or leave the step out: prof run RECIPE --set operators.enabled=false",
        ) from error


def is_trace(head: bytes) -> bool:
    """Tell from the first bytes of a file whether it is a chrome trace with events of Kineto."""
    start = head.lstrip()
    return start[:1] in (b"{", b"[") and (
        b'"traceEvents"' in head or b'"deviceProperties"' in head or b'"cat": "cpu_op"' in head
    )


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


class _Text:
    """What is read of a stream and not yet decoded."""

    def __init__(self, stream: IO[str], limit: float) -> None:
        self._stream = stream
        self._left = limit
        self._text = ""
        self._at = 0

    def peek(self) -> str:
        """Return the next character that is no white space; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self, expected: str) -> None:
        """Go beyond one character of `expected`; ValueError where another one stands."""
        found = self.peek()
        if not found or found not in expected:
            what = repr(found) if found else "the end of the file"
            raise ValueError(f"{what} stands where one of {expected!r} should")
        self._at += 1

    def value(self) -> Any:
        """Decode the next JSON value, however long it is."""
        self.peek()
        while True:
            try:
                found, end = _decode(self._text, self._at)
            except ValueError:
                if not self._more(grow=True):
                    raise
                continue
            # A number at the end of what was read may go on: "1." is 1 and a rest.
            bare = not isinstance(found, (dict, list, str))
            if bare and self._text[end : end + 1] not in _ENDS and self._more():
                continue
            self._at = end
            return found

    def _more(self, grow: bool = False) -> bool:
        """Read on; `grow` reads as much again as is held, so that long values stay linear."""
        unread = self._text[self._at :]
        if len(unread) > LONGEST:
            raise ValueError(f"one value in it is longer than {LONGEST >> 20} MiB")
        added = self._stream.read(max(CHUNK, len(unread)) if grow else CHUNK)
        self._left -= len(added)
        if self._left < 0:
            raise ValueError("it unpacks to more than any recording does")
        self._text, self._at = unread + added, 0
        return bool(added)


def _events(text: _Text, facts: Event) -> Iterator[Event]:
    if text.peek() == "[":  # a chrome trace may be the bare list
        yield from _list(text)
        return
    text.take("{")
    found = False
    while text.peek() != "}":
        key = text.value()
        text.take(":")
        if key == "traceEvents":
            found = True
            yield from _list(text)
        else:
            facts[key] = text.value()
        if text.peek() != "}":
            text.take(",")
    if not found:
        raise ValueError("it has no traceEvents")


def _list(text: _Text) -> Iterator[Event]:
    text.take("[")
    while text.peek() != "]":
        event = text.value()
        if isinstance(event, dict):
            yield event
        if text.peek() != "]":
            text.take(",")
    text.take("]")
