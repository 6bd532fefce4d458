"""Reads what timed the lines of a Python program (targets/line_timer), a file for each process.

The file is JSON lines, some followed by 64-bit numbers; its end may be missing where the program
was killed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nsight_prof.parsers.nsys.rows.python_samples import Frame
from nsight_prof.parsers.nsys.sqlite.database import Array
from nsight_prof.parsers.run.directory import plain_file
from nsight_prof.parsers.run.sentences import stored

PATTERN = "lines-*.bin*"
MARK = "prof lines "
"""Begins NVTX marks of the program's clock, in ns."""
_WIDTHS = {"totals": 4, "spans": 3}


@dataclass
class Spans:
    """What the lines of one thread took, ordered by start; `line` is an index, times are of the
    program's clock, and `path` is an index into `paths`: the lines around each, outermost first.
    """

    line: Array
    start: Array
    end: Array
    parent: Array
    path: Array
    paths: list[tuple[int, ...]]

    def path_at(self, times: Array) -> Array:
        """Return the path of the innermost span at each time; -1 for none."""
        at = np.searchsorted(self.start, times, side="right") - 1
        while (over := (at >= 0) & (self.end[at] <= times)).any():
            at[over] = self.parent[at[over]]
        return np.where(at >= 0, self.path[at], -1)


@dataclass
class TimedProcess:
    """One process: its lines with their texts, sums of each by when they were written, and spans.

    `totals` has the columns time of writing, line, hits, time, time in other lines of the program;
    `spans` are by the system's id of the thread. `event_ns` is what the timer costs a line each
    time, `cost_ns` what all `events` cost the program, NaN where it does not tell; `until` is when
    it ended, `by` how it times, and `reason` why it ended before the program.
    """

    pid: int
    by: str
    events: int
    cost_ns: float
    event_ns: float
    lines: list[Frame]
    sources: list[str]
    totals: Array
    spans: dict[int, Spans]
    until: int
    reason: str


def read_timed_lines(folder: Path) -> list[TimedProcess]:
    """Read the files of a folder; what is no such file is left out."""
    found = []
    for path in sorted(folder.glob(PATTERN)):
        # What is damaged tells nothing; a link may lead out of the run.
        with suppress(OSError, ValueError, KeyError, TypeError, IndexError, OverflowError):
            if not path.is_symlink():
                with plain_file(path) as file:
                    found.append(_process(list(_blocks(file.read_bytes()))))
    return found


def _blocks(data: bytes) -> Iterator[tuple[Mapping[str, Any], Array]]:
    """Yield each block with its numbers; what a killed program left half is not there."""
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        head, at = json.loads(data[at:end]), end + 1
        width = _WIDTHS.get(head["kind"], 0)
        size = 8 * width * head["count"] if width else 0
        if size < 0 or at + size > len(data):
            return
        numbers = np.frombuffer(data, np.int64, size // 8, at).reshape(-1, width or 1)
        yield head, numbers
        at += size


def _process(blocks: list[tuple[Mapping[str, Any], Array]]) -> TimedProcess:
    head, totals = blocks[0][0], [np.empty((0, 5), np.int64)]
    lines: list[Frame] = []
    sources: list[str] = []
    spans: dict[int, list[Array]] = {}
    until, reason = 0, stored("the program was ended")
    for block, numbers in blocks:
        kind = block["kind"]
        if kind == "lines":
            for _, file, function, line, text in block["rows"]:
                lines.append(Frame(str(file), int(line), str(function)))
                sources.append(str(text))
        elif kind == "totals":
            until = int(block["end"])
            written = np.full((len(numbers), 1), until, np.int64)
            totals.append(np.hstack([written, numbers]))
        elif kind == "spans":
            spans.setdefault(int(block["thread"]), []).append(numbers)
        elif kind == "end":
            until, reason = int(block["end"]), str(block["reason"])
    every = np.concatenate(totals)
    used = [every[:, 1], *(rows[:, 0] for chunks in spans.values() for rows in chunks)]
    if any(((line < 0) | (line >= len(lines))).any() for line in used):
        raise ValueError("a line that the file does not name")
    nested = {thread: _nested(np.concatenate(chunks)) for thread, chunks in spans.items()}
    event_ns, events = float(head["event_ns"]), int(every[:, 2].sum())
    costs = (events, events * float(head.get("cost_ns", "nan")), event_ns)
    how = (int(head["pid"]), str(head["by"]), *costs)
    return TimedProcess(*how, lines, sources, every, nested, until, reason)


def _nested(rows: Array) -> Spans:
    """Order spans by start and say what is around each: each lies within another or beside it."""
    order = np.lexsort((-rows[:, 2], rows[:, 1]))
    line, start, end = (rows[order, column] for column in range(3))
    parent, path = np.full(len(line), -1, np.int64), np.empty(len(line), np.int64)
    numbers: dict[tuple[int, int], int] = {}
    paths: list[tuple[int, ...]] = []
    ends, lines, starts = end.tolist(), line.tolist(), start.tolist()
    open_spans: list[int] = []
    for at, begin in enumerate(starts):
        while open_spans and ends[open_spans[-1]] <= begin:
            open_spans.pop()
        around = open_spans[-1] if open_spans else -1
        of_parent = int(path[around]) if around >= 0 else -1
        key = (of_parent, lines[at])
        if key not in numbers:
            numbers[key] = len(paths)
            paths.append(((*paths[of_parent], lines[at])) if of_parent >= 0 else (lines[at],))
        parent[at], path[at] = around, numbers[key]
        open_spans.append(at)
    return Spans(line, start, end, parent, path, paths)
