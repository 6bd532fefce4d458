"""Reads the NVTX ranges that enclose CUDA API calls, and gives each call the path of open ranges.

A range is open for a call on its own thread that starts in [range start, range end). Push/pop and
start/end ranges count alike. The range that started first is the outermost; of two that started
together, the one that ended last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from parsers.nsys.calls import Calls
from parsers.nsys.codes import Codebook, factor
from parsers.nsys.database import Array, Database
from parsers.nsys.schema import NVTX
from parsers.nsys.strings import read_strings

# NvtxPushPop, NvtxStartEnd (59, 60) and the same of NVTX text files. SQLite tests this twice as
# fast as `IN (…)`, because nearly all rows are of type 59.
RANGES = "(eventType = 59 OR eventType BETWEEN 60 AND 60 OR eventType BETWEEN 70 AND 71)"
DOMAIN_CREATE = 75
OPEN_END = np.iinfo(np.int64).max
_NO_ID = 0xFFFFFFFF
_DOMAIN = 0x7FFFFFFF


@dataclass
class Ranges:
    """Ranges that enclose at least one call, ordered by thread, start and end.

    `first` and `last` (exclusive) are positions in the calls ordered by thread and start; `name`
    is a code into `names`, whose entries are (domain, text); `end` is OPEN_END for a range that
    was not closed.
    """

    first: Array
    last: Array
    start: Array
    end: Array
    name: Array
    names: list[tuple[str, str]]
    across_threads: int = 0


_Key = tuple[int, int, str]  # id in StringIds and domain, process, text
_Coded = tuple[Array, list[_Key]]


class _NeedText(Exception):
    """Some names stand in the text column, which costs time to read."""


class _Timeline:
    """Calls as one sorted axis over all threads, to place ranges on with one search."""

    def __init__(self, calls: Calls, order: Array) -> None:
        self.low = int(calls.start[order].min(initial=OPEN_END))
        self.span = int(calls.start[order].max(initial=self.low)) - self.low + 2
        axis = calls.thread[order] * np.int64(self.span) + (calls.start[order] - self.low)
        self.axis = np.append(axis, OPEN_END)
        self.by_id = np.argsort(calls.threads)
        self.ids = calls.threads[self.by_id]

    def place(self, thread_id: Array, start: Array, end: Array) -> tuple[Array, Array, Array]:
        """Indices of ranges that enclose calls, and their first and last positions."""
        at = np.searchsorted(self.ids, thread_id)
        at[at == len(self.ids)] = 0
        index = np.flatnonzero(self.ids[at] == thread_id)
        base = self.by_id[at[index]] * np.int64(self.span)
        first = np.searchsorted(self.axis, base + self._offset(start[index]))
        end_at = base + self._offset(end[index])
        # Most ranges enclose no call: the next call comes after their end.
        hit = np.flatnonzero(self.axis[first] < end_at)
        last = np.searchsorted(self.axis, end_at[hit])
        return index[hit], first[hit].astype(np.int32), last.astype(np.int32)

    def _offset(self, time: Array) -> Array:
        offset: Array = np.clip(time, self.low, self.low + self.span - 1) - self.low
        return offset


def read_ranges(db: Database, calls: Calls, order: Array) -> Ranges:
    """Read the ranges around the calls; `order` sorts the calls by thread and start."""
    if not db.has_rows(NVTX) or not len(order):
        none = np.empty(0, np.int64)
        return Ranges(none, none, none, none, none, [])
    timeline = _Timeline(calls, order)
    try:
        ranges, book = _read(db, timeline, text=not db.columns(NVTX) >= {"textId"})
    except _NeedText:
        ranges, book = _read(db, timeline, text=True)
    ranges.names, codes = _names(db, book)
    thread = calls.thread[order[ranges.first]]
    by_nesting = np.lexsort((np.negative(ranges.end), ranges.start, thread))
    for column in ("first", "last", "start", "end"):
        setattr(ranges, column, getattr(ranges, column)[by_nesting])
    ranges.name = codes[ranges.name][by_nesting]
    return ranges


def _select(columns: frozenset[str], text: bool) -> list[str]:
    end = f"coalesce(end, {OPEN_END})"
    if "endGlobalTid" in columns:
        end = f"iif(endGlobalTid IS NULL, {end}, -1)"
    number = f"coalesce(textId, {_NO_ID})" if "textId" in columns else str(_NO_ID)
    if "domainId" in columns:
        number = f"{number} | ((domainId & {_DOMAIN}) << 32)"
    select = ["start", end, "globalTid", number]
    return [*select, "coalesce(text, '')"] if text else select


def _read(db: Database, timeline: _Timeline, *, text: bool) -> tuple[Ranges, Codebook[_Key]]:
    names_elsewhere = not text and "text" in db.columns(NVTX)

    def part(columns: list[Array]) -> tuple[list[Array], _Coded, int]:
        start, end, thread, number, *texts = columns
        keep, first, last = timeline.place(thread, start, end)
        if names_elsewhere and (number[keep] & _NO_ID == _NO_ID).any():
            raise _NeedText
        coded = _coded([number[keep], thread[keep] >> 24], texts, keep)
        return [first, last, start[keep], end[keep]], coded, int(np.count_nonzero(end < 0))

    book: Codebook[_Key] = Codebook()
    parts, across_threads = [[np.empty(0, np.int64)] * 5], 0
    select, table = _select(db.columns(NVTX), text), f"{db.table(NVTX)}"
    for placed, coded, across in db.scan(select, table, part, RANGES):
        parts.append([*placed, book.translate(*coded)])
        across_threads += across
    first, last, start, end, name = (
        np.concatenate([part[i] for part in parts if len(part[i])] or parts[0][:1])
        for i in range(5)
    )
    return Ranges(first, last, start, end, name, [], across_threads), book


def _coded(columns: list[Array], texts: list[Array], keep: Array) -> _Coded:
    """Codes of the names of the ranges `keep`, and what they stand for."""
    if not texts or not len(keep):
        codes, keys = factor(columns)
        return codes, [(number, process, "") for number, process in keys]
    coded = pa.array(texts[0]).take(pa.array(keep)).dictionary_encode()
    codes, keys = factor([*columns, coded.indices.to_numpy()])
    words = coded.dictionary.cast(pa.binary()).to_pylist()
    texts_of = [word.decode("utf-8", "replace") for word in words]
    return codes, [(number, process, texts_of[text]) for number, process, text in keys]


def _names(db: Database, book: Codebook[_Key]) -> tuple[list[tuple[str, str]], Array]:
    """(domain, text) of all names, and the code of each of the book's keys."""
    keys = book.keys
    strings = read_strings(db, {number & _NO_ID for number, _, _ in keys} - {_NO_ID})
    domains = _domains(db) if any(number >> 32 for number, _, _ in keys) else {}
    names: Codebook[tuple[str, str]] = Codebook()
    codes = [
        names.code((domains.get((process, number >> 32), ""), strings.get(number & _NO_ID, text)))
        for number, process, text in keys
    ]
    return names.keys, np.array(codes, np.int32)


def _domains(db: Database) -> dict[tuple[int, int], str]:
    """Names of the domains by process (globalTid without thread) and domain id."""
    columns = db.columns(NVTX)
    text = "coalesce(text, '')" if "text" in columns else "''"
    number = f"coalesce(textId, {_NO_ID})" if "textId" in columns else str(_NO_ID)
    rows = db.rows(
        f'SELECT globalTid >> 24, domainId & {_DOMAIN}, {number}, {text} FROM "{db.table(NVTX)}"'
        f" WHERE eventType = {DOMAIN_CREATE} ORDER BY start DESC"
    )
    strings = read_strings(db, {row[2] for row in rows})
    return {(process, domain): strings.get(n, text) for process, domain, n, text in rows}
