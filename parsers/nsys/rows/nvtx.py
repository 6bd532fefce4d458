"""Reads NVTX ranges and marks, event by event, as columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from nsight_prof.parsers.names.ranges import label
from nsight_prof.parsers.nsys.sqlite.codes import Codebook, Columns, Threads, factor
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import NVTX, OPEN_END, read_strings

PUSH_POP, START_END, MARK = "push/pop", "start/end", "mark"
# NvtxMark, NvtxPushPop and NvtxStartEnd of nsys, and the last two of its NVTX text files.
_KINDS = {34: MARK, 59: PUSH_POP, 60: START_END, 70: PUSH_POP, 71: START_END}
DOMAIN_CREATE = 75
_ELSEWHERE = 128  # added to the type of a range that ends on another thread
TEXT = "coalesce(CAST(text AS TEXT), '')"
_NO_ID = 0xFFFFFFFF
_DOMAIN = 0x7FFFFFFF


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
NAME_TYPE = pa.string()
NO_NVTX = NvtxEvents(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE.astype(bool), [])
_Coded = tuple[Array, list[tuple[int, ...]]]


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
    has_text = "text" in db.columns(NVTX)
    kinds = np.zeros(max(_KINDS) + 1, np.int8)
    kinds[list(_KINDS)] = [NvtxEvents.kinds.index(kind) for kind in _KINDS.values()]

    def read_chunk(columns: list[Array]) -> tuple[list[Array], _Coded, _Coded, pa.DictionaryArray]:
        start, end, thread, number, kind, *texts = columns
        if has_text and not texts and (number & _NO_ID == _NO_ID).any():
            raise _NeedText
        numbers = [start, end, kinds[kind & (_ELSEWHERE - 1)], kind >= _ELSEWHERE]
        # A part without a row of these kinds has no text, whose type would then be another.
        words = (
            pa.array(texts[0]) if texts and len(start) else pa.array([""] * len(start), NAME_TYPE)
        )
        codes = factor([thread]), factor([number, thread >> 24])
        return numbers, *codes, words.dictionary_encode()

    ids: Codebook[tuple[int, ...]] = Codebook()
    words = [pa.array([""], NAME_TYPE).dictionary_encode()]
    table = f"{db.table(NVTX)}"
    columns = Columns(
        db.most_rows(table),
        *(np.int64, np.int64, np.int32, np.int32, np.int8, np.int8),
    )
    for (start, end, kind, elsewhere), threaded, numbered, spelled in db.scan(
        _select(db.columns(NVTX), text and has_text), table, read_chunk, _WANTED, [TEXT]
    ):
        codes = threads.translate(*threaded), ids.translate(*numbered)
        columns.append(start, end, *codes, kind, elsewhere)
        words.append(spelled)
    start, end, thread, number, kind, elsewhere = columns.finish()
    name, keys = _distinct(number, ids.keys, pa.chunked_array(words[1:], words[0].type))
    names, code_of = _names(db, keys)
    return NvtxEvents(start, end, thread, code_of[name], kind, elsewhere.view(np.bool_), names)


def _distinct(
    number: Array, ids: Sequence[tuple[int, ...]], words: pa.ChunkedArray
) -> tuple[Array, list[tuple[int, int, str]]]:
    """Code the names of all ranges: id in StringIds and domain, process (`ids[number]`), text."""
    words = words.unify_dictionaries()
    key = np.concatenate([np.empty(0, np.int32), *(chunk.indices for chunk in words.chunks)])
    texts = words.chunk(0).dictionary.cast(pa.binary()).to_pylist() if words.num_chunks else []
    if len(texts) * len(ids) > np.iinfo(key.dtype).max:
        key = key.astype(np.int64)
    key *= len(ids)
    key += number
    codes, distinct = pd.factorize(key)
    pairs = (divmod(pair, len(ids)) for pair in distinct.tolist())
    return codes, [(*ids[pair], texts[word].decode("utf-8", "replace")) for word, pair in pairs]


_WANTED = "(eventType = 59 OR eventType IN (34, 60, 70, 71)) AND globalTid IS NOT NULL"
"""Events of _KINDS; nearly all are of type 59, for which SQLite tests this fastest."""


def _select(columns: frozenset[str], text: bool) -> list[str]:
    kind = "eventType"
    if "endGlobalTid" in columns:
        kind = f"iif(endGlobalTid IS NULL, eventType, eventType + {_ELSEWHERE})"
    number = f"coalesce(textId, {_NO_ID})" if "textId" in columns else str(_NO_ID)
    if "domainId" in columns:
        number = f"{number} | ((coalesce(domainId, 0) & {_DOMAIN}) << 32)"
    select = ["start", f"coalesce(end, {OPEN_END})", "globalTid", number, kind]
    return [*select, TEXT] if text else select


def _names(
    db: Database, keys: Sequence[tuple[int, int, str]]
) -> tuple[list[tuple[str, str]], Array]:
    """(domain, text) of all names, and the code of each of the keys.

    A key is id in StringIds and domain, process, text.
    """
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
