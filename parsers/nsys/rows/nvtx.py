"""Reads the NVTX ranges that enclose CUDA API calls, and gives each call the path of open ranges.

A range is open for a call on its own thread that starts in [range start, range end). Push/pop and
start/end ranges count alike. The range that started first is the outermost; of two that started
together, the one that ended last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from nsight_prof.parsers.nsys.rows.calls import Calls
from nsight_prof.parsers.nsys.sqlite.codes import STEP, Codebook, Columns, factor
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import NVTX, OPEN_END, RANGES, read_strings

DOMAIN_CREATE = 75
TEXT = "coalesce(CAST(text AS TEXT), '')"
_NO_ID = 0xFFFFFFFF
_DOMAIN = 0x7FFFFFFF


@dataclass
class Ranges:
    """Ranges that enclose at least one call, in the order of the file.

    `first` and `last` (exclusive) are positions in the calls ordered by thread and start; `name`
    is a code into `names`, whose entries are (domain, text); `end` is OPEN_END for a range that
    was not closed. `order` is by thread, start and end: an outer range before those inside.
    """

    first: Array
    last: Array
    start: Array
    end: Array
    name: Array
    names: list[tuple[str, str]]
    order: Array
    across_threads: int = 0


_Key = tuple[int, int, str]  # id in StringIds and domain, process, text
_Coded = tuple[Array, list[_Key]]


class _NeedText(Exception):
    """Some names stand in the text column, which costs time to read."""


def read_ranges(db: Database, calls: Calls) -> Ranges:
    """Read the ranges around the calls."""
    if not db.has_rows(NVTX) or not len(calls.order):
        none = np.empty(0, np.int64)
        return Ranges(none, none, none, none, none, [], none)
    try:
        ranges, book = _read(db, calls, text=not db.columns(NVTX) >= {"textId"})
    except _NeedText:
        ranges, book = _read(db, calls, text=True)
    ranges.names, codes = range_names(db, book)
    for at in range(0, len(ranges.name), STEP):
        ranges.name[at : at + STEP] = codes[ranges.name[at : at + STEP]]
    ranges.order = _nesting(ranges)
    return ranges


def _nesting(ranges: Ranges) -> Array:
    """Order by nesting; the first call stands for thread and start, except among equals."""
    key = np.arange(len(ranges.first))  # sorted in place: argsort needs three times the memory
    for at in range(0, len(key), STEP):
        key[at : at + STEP] |= ranges.first[at : at + STEP].astype(np.int64) << 32
    key.sort()
    order = np.empty(len(key), np.int32)
    at = 0
    while at < len(key):
        last = key[min(at + STEP, len(key)) - 1] >> 32
        upto = int(np.searchsorted(key, (last + 1) << 32))
        rows = key[at:upto].astype(np.int32)  # the lower half
        if not _is_nested(ranges, rows):
            keys = (np.negative(ranges.end[rows]), ranges.start[rows], ranges.first[rows])
            rows = rows[np.lexsort(keys)]
        order[at:upto] = rows
        at = upto
    return order


def _is_nested(ranges: Ranges, order: Array) -> bool:
    first, start, end = ranges.first[order], ranges.start[order], ranges.end[order]
    nested = (first[1:] != first[:-1]) | (start[1:] > start[:-1])
    nested |= (start[1:] == start[:-1]) & (end[1:] <= end[:-1])
    return bool(nested.all())


def _select(columns: frozenset[str], text: bool) -> list[str]:
    end = f"coalesce(end, {OPEN_END})"
    if "endGlobalTid" in columns:
        end = f"iif(endGlobalTid IS NULL, {end}, -1)"
    number = f"coalesce(textId, {_NO_ID})" if "textId" in columns else str(_NO_ID)
    if "domainId" in columns:
        number = f"{number} | ((coalesce(domainId, 0) & {_DOMAIN}) << 32)"
    select = ["start", end, "coalesce(globalTid, -1)", number]
    return [*select, TEXT] if text else select


def _read(db: Database, calls: Calls, *, text: bool) -> tuple[Ranges, Codebook[_Key]]:
    names_elsewhere = not text and "text" in db.columns(NVTX)

    def read_chunk(columns: list[Array]) -> tuple[list[Array], _Coded, int]:
        start, end, thread, number, *texts = columns
        keep, first, last = calls.locate(thread, start, end)
        if names_elsewhere and (number[keep] & _NO_ID == _NO_ID).any():
            raise _NeedText
        coded = coded_names([number[keep], thread[keep] >> 24], texts, keep)
        return [first, last, start[keep], end[keep]], coded, int(np.count_nonzero(end < 0))

    book: Codebook[_Key] = Codebook()
    across_threads = 0
    select, table = _select(db.columns(NVTX), text), f"{db.table(NVTX)}"
    columns = Columns(db.most_rows(table), np.int32, np.int32, np.int64, np.int64, np.int32)
    for placed, coded, across in db.scan(select, table, read_chunk, RANGES):
        columns.append(*placed, book.translate(*coded))
        across_threads += across
    first, last, start, end, name = columns.finish()
    none = np.empty(0, np.int32)
    return Ranges(first, last, start, end, name, [], none, across_threads), book


def coded_names(columns: list[Array], texts: list[Array], keep: Array) -> _Coded:
    """Codes of the names of the ranges `keep`, and what they stand for."""
    if not texts or not len(keep):
        codes, keys = factor(columns)
        return codes, [(number, process, "") for number, process in keys]
    coded = pa.array(texts[0]).take(pa.array(keep)).dictionary_encode()
    codes, keys = factor([*columns, coded.indices.to_numpy()])
    words = coded.dictionary.cast(pa.binary()).to_pylist()
    texts_of = [word.decode("utf-8", "replace") for word in words]
    return codes, [(number, process, texts_of[text]) for number, process, text in keys]


def range_names(db: Database, book: Codebook[_Key]) -> tuple[list[tuple[str, str]], Array]:
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
    text = TEXT if "text" in columns else "''"
    number = f"coalesce(textId, {_NO_ID})" if "textId" in columns else str(_NO_ID)
    rows = db.rows(
        f"SELECT globalTid >> 24, coalesce(domainId, 0) & {_DOMAIN}, {number}, {text}"
        f' FROM "{db.table(NVTX)}"'
        f" WHERE eventType = {DOMAIN_CREATE} ORDER BY start DESC"
    )
    strings = read_strings(db, {row[2] for row in rows})
    return {(process, domain): strings.get(n, text) for process, domain, n, text in rows}
