"""Reads NVTX ranges and marks, event by event, as columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from nsight_prof.parsers.names.ranges import label
from nsight_prof.parsers.nsys.sqlite.codes import Codebook, Columns, Threads, factor, narrow
from nsight_prof.parsers.nsys.sqlite.database import Array, Database, as_python
from nsight_prof.parsers.nsys.sqlite.leaves import Column
from nsight_prof.parsers.nsys.sqlite.schema import NVTX, OPEN_END, read_strings

PUSH_POP, START_END, MARK = "push/pop", "start/end", "mark"
# NvtxMark, NvtxPushPop and NvtxStartEnd of nsys, and the last two of its NVTX text files.
_KINDS = {34: MARK, 59: PUSH_POP, 60: START_END, 70: PUSH_POP, 71: START_END}
DOMAIN_CREATE = 75
_ELSEWHERE = 128  # added to the type of a range that ends on another thread
TEXT = "coalesce(CAST(text AS TEXT), '')"
# In one number: 32 bits of the id in StringIds, 23 of the domain (counted from 0), 8 of the type.
_NO_ID = 0xFFFFFFFF
_DOMAIN_AT, _DOMAIN = 32, 0x7FFFFF
_KIND_AT = 55
_USUAL = 59
_NULL = -1 << 62
_COLUMNS = [
    *(Column("start"), Column("end", OPEN_END), Column("eventType", 0), Column("globalTid", _NULL)),
    *(Column("endGlobalTid", _NULL), Column("domainId", 0), Column("textId", _NO_ID)),
]


@dataclass
class NvtxEvents:
    """Ranges and marks in the order of the file.

    `end` is OPEN_END for a range that was not closed; for a mark it says nothing. `thread` is a
    code into the threads, `kind` into `kinds`, `name` into `names` of (domain, text).
    `ends_elsewhere` are ranges that end on another thread than they start on.
    """

    start: Array
    end: Array
    thread: Array
    name: Array
    kind: Array
    ends_elsewhere: Array
    names: list[tuple[str, str]]
    kinds: tuple[str, ...] = (PUSH_POP, START_END, MARK)

    @property
    def labels(self) -> list[str]:
        """Each of `names` as text."""
        return [label(name) for name in self.names]


_NONE = np.empty(0, np.int64)
NO_NVTX = NvtxEvents(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE.astype(bool), [])
_Chunk = tuple[Array, Array, tuple[Array, list[tuple[int, ...]]], pa.Array | None]


class _NeedText(Exception):
    """Some names stand in the text column, which costs time to read."""


def read_nvtx(db: Database, threads: Threads) -> NvtxEvents:
    """Read every range and mark of a known thread; `threads` gets those that have some."""
    if not db.has_rows(NVTX):
        return NO_NVTX
    try:
        return _read(db, threads, text="textId" not in db.columns(NVTX) or _begins_with_text(db))
    except _NeedText:
        return _read(db, threads, text=True)


def _begins_with_text(db: Database) -> bool:
    """Whether one of the first names stands in the text column: then no part is read in vain."""
    first = f'SELECT textId FROM "{db.table(NVTX)}" WHERE {_WANTED} LIMIT 1000'
    return bool(db.rows(f"SELECT 1 FROM ({first}) WHERE textId IS NULL LIMIT 1"))


def _read(db: Database, threads: Threads, *, text: bool) -> NvtxEvents:
    has_text, table = "text" in db.columns(NVTX), f"{db.table(NVTX)}"

    def read_chunk(columns: list[Any]) -> _Chunk:
        kind, thread = columns[2:4]
        if (kind != _USUAL).any() or (thread == _NULL).any():
            is_range = np.isin(kind, [*_KINDS]) & (thread != _NULL)
            columns = [_filtered(column, is_range) for column in columns]
        start, end, kind, thread, end_thread, domain, number, *words = columns
        if has_text and not words and (number == _NO_ID).any():
            raise _NeedText
        kind = np.where(end_thread == _NULL, kind, kind + _ELSEWHERE)
        number = number | kind << _KIND_AT | (domain & _DOMAIN) << _DOMAIN_AT
        return start, end, factor([thread, number]), words[0] if words else None

    book: Codebook[tuple[int, ...]] = Codebook()
    words: list[pa.Array] = []
    columns = Columns(db.most_rows(table), np.int64, np.int64, np.int16)
    texts = [Column("text", is_text=True)] if text and has_text else []
    for start, end, coded, spelled in db.scan([*_COLUMNS, *texts], table, read_chunk):
        code = book.translate(*coded)
        columns.append(start, end, narrow(code, len(book.keys)))
        words += [spelled] if spelled is not None else []
    start, end, code = columns.finish()
    name, names = _name_codes(db, code, book.keys, words)
    thread = np.array([threads.code((thread,)) for thread, _ in book.keys], np.int32)
    kinds = np.array([number >> _KIND_AT for _, number in book.keys], np.int64)
    kind_names = [_KINDS[kind & (_ELSEWHERE - 1)] for kind in kinds.tolist()]
    kind = np.array([NvtxEvents.kinds.index(name) for name in kind_names], np.int8)
    thread, kind = _looked_up(thread, code), _looked_up(kind, code)
    elsewhere = _looked_up(kinds >= _ELSEWHERE, code)
    return NvtxEvents(start, end, thread, name, kind, elsewhere, names)


def _looked_up(values: Array, code: Array) -> Array:
    """Return `values[code]`; of one value, as kinds in most traces are, without a look at codes."""
    if len(values) and (values == values[0]).all():
        return np.full(len(code), values[0])
    found: Array = values[code]
    return found


def _name_codes(
    db: Database, code: Array, keys: Sequence[tuple[int, ...]], words: list[pa.Array]
) -> tuple[Array, list[tuple[str, str]]]:
    """Code of the name of each event, and the names as (domain, text).

    Args:
        code: of each event, what stands in `keys`: thread, and id, domain and type in one number.
        words: texts of all events, part by part; none where all are named by ids.
    """
    ids: Codebook[tuple[int, int, int]] = Codebook()  # process, domain and id in StringIds
    id_of = []
    for thread, number in keys:
        domain = number >> _DOMAIN_AT & _DOMAIN
        id_of.append(ids.code((thread >> 24 if domain else 0, domain, number & _NO_ID)))
    name: Array = np.array(id_of, np.int64)
    texts = [""]
    if words:
        name = name[code] if len(ids.keys) > 1 else name[:0]
        unified = pa.chunked_array(words).unify_dictionaries()
        texts = as_python(unified.chunk(0).dictionary)
        word = np.concatenate([chunk.indices for chunk in unified.chunks])
        name = word if len(ids.keys) == 1 else name + word * np.int64(len(ids.keys))
    pairs = np.arange(len(texts) * len(ids.keys))
    if len(texts) > 1 and len(ids.keys) > 1:  # nowhere near all pairs are names
        name, pairs = pd.factorize(name)
    strings = read_strings(db, {number for _, _, number in ids.keys} - {_NO_ID})
    domains = _domains(db) if any(domain for _, domain, _ in ids.keys) else {}
    names: Codebook[tuple[str, str]] = Codebook()
    codes = []
    for pair in pairs.tolist():
        process, domain, number = ids.keys[pair % len(ids.keys)]
        text = strings.get(number, texts[pair // len(ids.keys)])
        codes.append(names.code((domains.get((process, domain), ""), text)))
    if not words:  # so far of the keys
        return _looked_up(np.array(codes, np.int32)[name], code), names.keys
    if len(names.keys) == len(codes):  # each name once: its number is its code
        return name.astype(np.int32, copy=False), names.keys
    return np.array(codes, np.int32)[name], names.keys


_OF_DOMAIN = f"(coalesce(domainId, 0) & {_DOMAIN})"
_WANTED = "eventType IN (34, 59, 60, 70, 71) AND globalTid IS NOT NULL"
"""Events of _KINDS."""


def _filtered(column: Any, is_wanted: Array) -> Any:
    if isinstance(column, pa.DictionaryArray):  # without the texts of other events
        return column.filter(is_wanted).dictionary_decode().dictionary_encode()
    return column[is_wanted]


def _id(columns: frozenset[str]) -> str:
    return f"coalesce(textId, {_NO_ID})" if "textId" in columns else str(_NO_ID)


def _domains(db: Database) -> dict[tuple[int, int], str]:
    """Names of the domains by process (globalTid without thread) and domain id."""
    columns = db.columns(NVTX)
    text = TEXT if "text" in columns else "''"
    rows = db.rows(
        f"SELECT globalTid >> 24, {_OF_DOMAIN}, {_id(columns)}, {text}"
        f' FROM "{db.table(NVTX)}"'
        f" WHERE eventType = {DOMAIN_CREATE} ORDER BY start DESC"
    )
    strings = read_strings(db, {row[2] for row in rows})
    return {(process, domain): strings.get(n, text) for process, domain, n, text in rows}
