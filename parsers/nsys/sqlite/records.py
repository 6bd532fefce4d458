"""Takes columns of many rows at once from the pages of an SQLite table, without SQLite.

SQLite hands over one cell of one row after the other. The rows of a trace are alike: a row begins
with the types of its cells, of which thousands of rows have some dozens of lists, and in all rows
of one list the cells stand in the same places. What is not as nsys writes it (rows longer than a
page, numbers as text) is left to SQLite: `columns_of` returns None.
https://www.sqlite.org/fileformat.html, sections 1.6 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nsight_prof.parsers.nsys.sqlite.codes import factor

Array = NDArray[Any]
LEAF = 13
"""Kind of a page that holds rows of a table."""
SLACK = 128
"""Bytes behind the pages of a part that may be read, and mean nothing."""
_HEAD, _SHORTEST = 8, 4  # bytes of the head of a leaf, and of a row at least
_BYTES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)  # of a cell by its type: NULL, integers, real, 0 and 1
_NULL, _REAL, _ZERO, _TEXT = 0, 7, 8, 12
_LONGEST_HEAD = 127  # longer ones take two bytes to say so
_OF_HEAD = np.array([(1 << 8 * n) - 1 for n in range(8)] + [-1] * _LONGEST_HEAD)
"""Bits of eight bytes that are of a head, by how many bytes of it are left."""


@dataclass(frozen=True)
class _Layout:
    """Types of the cells of some rows, and where these begin in a row; its size in bytes."""

    types: list[int]
    places: list[int]
    size: int


def columns_of(
    part: Array, size: int, wanted: Sequence[tuple[int, int | None]], text: int | None
) -> list[Any] | None:
    """Return the columns of all rows of a part, in their order; None where SQLite has to read it.

    `part` are leaves of `size` bytes each, then SLACK bytes. `wanted` are columns of whole numbers
    by their place in the table, and what stands for NULL there (None: there is none). The column
    `text`, if any, comes last, as a dictionary of bytes; NULL is the empty text.
    """
    rows = _rows(part, size)
    if rows is None:
        return None
    begin, length = rows
    heads = part[begin]
    longest = int(heads.max(initial=1))
    if longest > _LONGEST_HEAD:
        return None
    words = [_cells(part, begin + at, "<i8") for at in range(0, longest, 8)]
    shortest = int(heads.min(initial=longest))
    for number, word in enumerate(words):
        if shortest < 8 * number + 8:  # what follows a head are cells
            word &= _OF_HEAD[np.maximum(heads.astype(np.intp) - 8 * number, 0)]
    kind, lists = factor(words)
    kind = kind.astype(np.intp)
    layouts = [_layout(np.array(words_, "<i8").tobytes()) for words_ in lists]
    if not np.array_equal(np.array([layout.size for layout in layouts], np.int64)[kind], length):
        return None
    places = [place for place, _ in wanted] + ([] if text is None else [text])
    if any(len(layout.types) <= max(places) for layout in layouts):
        return None  # columns that were added later
    found = [_numbers(part, begin, kind, layouts, *column) for column in wanted]
    found += [] if text is None else [_texts(part, begin, kind, layouts, text)]
    return None if any(column is None for column in found) else found


def row_numbers(part: Array, size: int) -> tuple[int, int]:
    """Return the numbers of the first and the last row of a part.

    Raises:
        ValueError: a page has no row, or says that one stands beyond its end.
    """
    ends = []
    for page, last in ((0, False), (len(part) - SLACK - size, True)):
        head = part[page : page + size].tobytes()
        count = int.from_bytes(head[3:5], "big")
        place = _HEAD + 2 * (count - 1 if last else 0)
        if not count or place + 2 > size:
            raise ValueError(f"a page has {count} rows")
        _, at = _number(head, int.from_bytes(head[place : place + 2], "big"))
        ends.append(_number(head, at)[0])
    return ends[0], ends[1]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and what follows it: 7 bits a byte, the ninth has 8."""
    number = 0
    for byte in data[at : at + 8]:
        at += 1
        number = number << 7 | byte & 127
        if byte < 128:
            return number, at
    number = number << 8 | int.from_bytes(data[at : at + 1], "big")
    return number - (number >> 63 << 64), at + 1


def _rows(part: Array, size: int) -> tuple[Array, Array] | None:
    """Return where the rows of some leaves begin, after their numbers, and how long they are."""
    pages = part[:-SLACK].reshape(-1, size)
    count = pages[:, 3].astype(np.int32) << 8 | pages[:, 4]
    most = int(count.max(initial=0))
    if (pages[:, 0] != LEAF).any() or _HEAD + 2 * most > size:
        return None
    places = pages[:, _HEAD : _HEAD + 2 * most].copy().view(">u2").astype(np.intp)
    there = np.arange(most) < count[:, None]
    if int(places.max(initial=0, where=there)) > size - _SHORTEST:
        return None
    places += np.arange(0, len(part) - SLACK, size)[:, None]
    at = places[there]
    length = part[at].astype(np.int32)
    long = np.flatnonzero(length >= 128)  # a byte of 128 and more is followed by another
    at[long] += 1
    more = part[at[long]]
    length[long] = (length[long] - 128) << 7 | more
    at = _behind_number(part, at + 1)
    # What does not fit into a page goes on in others.
    if (more >= 128).any() or (at % size + length > size).any() or (length > size - 35).any():
        return None
    return at, length


def _behind_number(part: Array, at: Array) -> Array:
    """Return what follows the numbers at `at`, of up to 9 bytes."""
    going = part[at] >= 128
    at += 1
    for _ in range(8):
        if not going.any():
            break
        on = part[at] >= 128
        at += going
        going &= on
    return at


def _layout(head: bytes) -> _Layout:
    """Return what the head of a row tells; types that are not known make it longer than it is."""
    types, places, at, place = [], [], 1, head[0]
    while at < head[0]:
        kind, at = _number(head, at)
        types.append(kind)
        places.append(place)
        place += (kind - _TEXT) // 2 if kind >= _TEXT else _BYTES[kind] if kind < 10 else 1 << 30
    return _Layout(types, places, place)


def _cells(part: Array, at: Array, dtype: str) -> Array:
    """Return the bytes at each of `at` as one `dtype`, whatever they are aligned to."""
    width = np.dtype(dtype).itemsize
    found: Array = np.ndarray((len(part) - width + 1,), dtype, part.data, strides=(1,))[at]
    return found


def _numbers(
    part: Array, begin: Array, kind: Array, layouts: Sequence[_Layout], place: int, null: int | None
) -> Array | None:
    types = np.array([layout.types[place] for layout in layouts], np.int64)
    if (types > _ZERO + 1).any() or _REAL in types or (null is None and _NULL in types):
        return None
    values = types - _ZERO
    values[types == _NULL] = null or 0
    stored = (types != _NULL) & (types < _ZERO)
    if not stored.any():
        return np.asarray(_of_each(values, kind))
    # A number of n bytes is the first n of eight: the lowest ones are shifted out.
    places = np.array([layout.places[place] for layout in layouts], np.int64)
    shift = np.array([64 - 8 * _BYTES[type_] for type_ in types.tolist()], np.int64)
    found = _cells(part, begin + _of_each(places, kind), "<i8").byteswap()
    found >>= _of_each(np.where(stored, shift, 0), kind)
    if not stored.all():
        other = np.flatnonzero(~stored[kind])
        found[other] = values[kind[other]]
    return found


def _of_each(values: Array, kind: Array) -> Any:
    """Return the value of each row: one for all where they do not differ."""
    same = len(values) and (values == values[0]).all()
    return np.broadcast_to(values[0], len(kind)) if same else values[kind]


def _texts(
    part: Array, begin: Array, kind: Array, layouts: Sequence[_Layout], place: int
) -> pa.DictionaryArray | None:
    types = np.array([layout.types[place] for layout in layouts], np.int64)
    if ((types != _NULL) & (types < _TEXT)).any():
        return None
    lengths = np.maximum(types - _TEXT, 0) // 2
    places = np.array([layout.places[place] for layout in layouts], np.int64)
    length, at = lengths[kind], begin + places[kind]
    code, texts, known = np.zeros(len(kind), np.int32), [pa.array([b""])], 1
    for width in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(length == width)
        found = pa.py_buffer(_cells(part, at[rows], f"V{width}"))
        same = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), [None, found])
        coded = same.dictionary_encode()
        code[rows] = coded.indices.to_numpy() + known
        texts.append(coded.dictionary.cast(pa.binary()))
        known += len(texts[-1])
    return pa.DictionaryArray.from_arrays(pa.array(code), pa.concat_arrays(texts))
