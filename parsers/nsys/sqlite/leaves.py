"""Reads columns straight from the leaf pages of an SQLite file, for tables of millions of rows.

SQLite hands out cell after cell, which takes longer than all that is done with them. The records of
a trace look alike: their headers, which tell type and size of each cell, are some hundred distinct
ones. Each is decoded once, and tells where all records that begin with it have their cells.
https://www.sqlite.org/fileformat.html, sections 1.6 and 2.1.

What is not as nsys writes it (a record that goes on on another page, a number that is no integer)
raises Unusual, and is for SQLite to read or to refuse.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

Array = NDArray[Any]
LEAF = 13
"""Kind of a page that holds rows of a table."""
_FILE_HEAD, _PAGE_HEAD = 100, 8  # bytes
_MIN_OVERFLOW = 35  # bytes of a page that no record takes without going on on another one
_NULL, _FLOAT, _ONE, _TEXT = 0, 7, 9, 13
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)  # bytes of a cell by its type
_BITS = 8 * np.array(_SIZES)
_WORD = 8
_LONGEST = 32 * _WORD  # bytes of a header or a text; longer ones are rare
_HIGH_BITS = np.uint64(0x8080808080808080)
_ODD = np.int64(-7046029254386353131)  # products with it differ where the factors do


class Unusual(Exception):
    """What only SQLite reads."""


@dataclass(frozen=True)
class Column:
    """A column of a table, and what stands for rows without a value.

    Of texts that is always an empty one. Without `missing` all rows have an integer.
    """

    name: str
    missing: int | None = None
    is_text: bool = False


class Leaves:
    """The leaf pages of one file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        head = self._file.read(_FILE_HEAD)
        size = int.from_bytes(head[16:18], "big")
        self.size = 65536 if size == 1 else size
        self._usable = self.size - head[20]
        self._is_utf8 = int.from_bytes(head[56:60], "big") == 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, pages: Array, columns: Sequence[tuple[int, Column]]) -> list[Any]:
        """Return columns, of which the number in the table is given, of all rows of `pages`.

        Raises:
            Unusual: one of the rows is for SQLite to read.
        """
        if not self._is_utf8:
            raise Unusual
        numbers = tuple(number for number, _ in columns)
        data = self._bytes(pages)
        start, length = _records(data, *self._cells(data, len(pages)), self._usable)
        codes, headers = _headers(data, start, max(numbers))
        cells = np.array([_layout(header, numbers) for header in headers], np.int64)
        cells = cells.reshape(len(headers), len(columns), 3).T
        if (_looked_up(cells[1].max(axis=0), codes) > length).any():
            raise Unusual
        return [
            _texts(data, start, codes, *cell)
            if column.is_text
            else _integers(data, start, codes, cell, column.missing)
            for cell, (_, column) in zip(cells.transpose(1, 0, 2), columns, strict=True)
        ]

    def ends(self, pages: Array) -> tuple[int, int]:
        """Return the first and the last rowid of `pages`; (0, -1) where they have no rows.

        Raises:
            Unusual: they are no pages of rows.
        """
        found = []
        for at in (0, -1):
            data = self._bytes(pages[[at]])
            cells, _ = self._cells(data, 1)
            if not len(cells):
                return 0, -1
            cell = data[cells[at] :].tobytes()
            _, end = _varint(cell, 0)
            number, _ = _varint(cell, end)
            found.append(number - (number >> 63 << 64))  # of 64 bits with a sign
        return found[0], found[1]

    def _bytes(self, pages: Array) -> Array:
        """Read pages, one after the other, and some bytes behind the last that may be looked at."""
        data: Array = np.empty(len(pages) * self.size + _LONGEST, np.uint8)
        starts = np.flatnonzero(np.diff(pages, prepend=-1) != 1).tolist()
        for first, last in zip(starts, [*starts[1:], len(pages)], strict=True):
            into = data[first * self.size : last * self.size]
            at = (int(pages[first]) - 1) * self.size
            if os.preadv(self._file.fileno(), [into.data], at) < len(into):
                raise Unusual("it is cut off")
        return data

    def _cells(self, data: Array, pages: int) -> tuple[Array, Array]:
        """Return where each cell begins, and where its page ends."""
        grid = data[: pages * self.size].reshape(pages, self.size)
        counts = grid[:, 3:5].astype(np.int64) @ np.array([256, 1])
        end = _PAGE_HEAD + 2 * int(counts.max(initial=0))
        if (grid[:, 0] != LEAF).any() or end > self._usable:
            raise Unusual("what should be pages of rows is none")
        begin = np.arange(pages)[:, None] * self.size
        cells = grid[:, _PAGE_HEAD:end].view(">u2") + begin
        ends = np.broadcast_to(begin + self._usable, cells.shape)
        is_cell = np.arange(cells.shape[1]) < counts[:, None]
        return cells[is_cell], ends[is_cell]


def _gather(data: Array, at: Array, size: int) -> Array:
    """Return the `size` bytes at each place as one value."""
    found: Array = np.ndarray(len(data) - size + 1, f"V{size}", data, strides=1)[at]
    return found


def _words(data: Array, at: Array) -> Array:
    """Return the eight bytes at each place as a number."""
    return _gather(data, at, _WORD).view(">i8").astype(np.int64)


def _looked_up(values: Array, codes: Array) -> Array:
    """Return `values[codes]`; one value where all are equal."""
    return values[:1] if len(values) and (values == values[0]).all() else values[codes]


def _records(data: Array, cells: Array, ends: Array, usable: int) -> tuple[Array, Array]:
    """Return where the record of each cell begins, and its length.

    A cell begins with two numbers, length and rowid, whose last bytes are below 128.
    """
    word = _words(data, cells).view(np.uint64)
    lasts = ~word & _HIGH_BITS
    first = _first_byte(lasts)
    size = np.uint64(8) * (_WORD - first).astype(np.uint64)
    second = _first_byte(lasts ^ np.uint64(0x80) << size)
    if len(cells) and (first.max() > 2 or second.max() > _WORD):
        raise Unusual
    word >>= size
    length = ((word & 0x7F) | (word >> 1 & 0x3F80)).view(np.int64)
    start = cells + second
    if ((length > usable - _MIN_OVERFLOW) | (start + length > ends)).any():
        raise Unusual
    return start, length


def _first_byte(bits: Array) -> Array:
    """Return the number of the first byte with a bit, from 1 on; of words of _HIGH_BITS."""
    exponent: Array = bits.astype(np.float64).view(np.int64) >> 52
    return _WORD - (exponent - 1023 >> 3)


def _headers(data: Array, start: Array, last: int) -> tuple[Array, list[bytes]]:
    """Code the headers of records, up to the column `last`, and return the distinct ones."""
    width = data[start]
    if width.max(initial=0) >= 0x80:
        raise Unusual
    size = (last + 6 + _WORD - 1) // _WORD * _WORD  # four bytes more than columns: of longer texts
    codes, found, _ = _distinct(_gather(data, start, size), width)
    return codes, [value.tobytes() for value in found]


def _distinct(values: Array, lengths: Array) -> tuple[Array, Array, Array]:
    """Code values that are cut at lengths; return the distinct ones and their lengths."""
    size = values.dtype.itemsize
    words = values.view(np.int64).reshape(-1, size // _WORD)
    if lengths.min(initial=size) < size:
        inside = np.arange(size) < np.arange(size + 1)[:, None]
        masks = np.where(inside, 0xFF, 0).astype(np.uint8).view(values.dtype)[:, 0]
        words &= masks[np.minimum(lengths, size)].view(np.int64).reshape(words.shape)
    key = lengths.astype(np.int64)
    for at in range(words.shape[1]):
        key *= _ODD
        key += words[:, at]
    codes, keys = pd.factorize(key)
    rows = np.empty(len(keys), np.int64)
    rows[codes] = np.arange(len(codes))
    found = values[rows]
    if (found[codes].view(np.int64).reshape(words.shape) != words).any():
        raise Unusual  # two values of one key
    return codes, found, lengths[rows]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and where it ends."""
    value = 0
    for last in range(at, at + _WORD):
        value = value << 7 | data[last] & 0x7F
        if data[last] < 0x80:
            return value, last + 1
    return value << 8 | data[at + _WORD], at + _WORD + 1


@lru_cache(1 << 10)
def _layout(header: bytes, columns: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Return where the cell of each column begins and ends in a record, and its type."""
    begin, at = _varint(header, 0)
    end, cells = begin, []
    try:
        for _ in range(max(columns) + 1):
            if at >= end:  # the column was added later
                raise Unusual
            kind, at = _varint(header, at)
            size = _SIZES[kind] if kind < _TEXT - 1 else kind - _TEXT + 1 >> 1
            cells.append((begin, begin + size, kind))
            begin += size
    except IndexError as error:
        raise Unusual from error
    return [cells[column] for column in columns]


def _integers(data: Array, start: Array, codes: Array, cell: Array, missing: int | None) -> Array:
    at, _, kind = cell
    is_wrong = (kind > _ONE) | (kind == _FLOAT) | ((kind == _NULL) & (missing is None))
    if is_wrong.any():
        raise Unusual
    constant = np.where(kind == _NULL, missing or 0, kind == _ONE)
    is_constant = _BITS[kind] == 0
    if is_constant.all():
        return np.broadcast_to(_looked_up(constant, codes), len(codes))
    found = _words(data, start + _looked_up(at, codes))
    found >>= _looked_up(8 * _WORD - _BITS[kind], codes)
    if is_constant.any():
        found = np.where(is_constant[codes], constant[codes], found)
    return found


def _texts(data: Array, start: Array, codes: Array, at: Array, end: Array, kind: Array) -> pa.Array:
    """Return texts as codes of the distinct ones; no text is an empty one."""
    longest = (int((end - at).max(initial=1)) + _WORD - 1) // _WORD * _WORD
    is_number = (kind != _NULL) & (kind < _TEXT - 1)
    if is_number.any() or longest > _LONGEST:
        raise Unusual
    found = _gather(data, start + _looked_up(at, codes), longest)
    text, values, sizes = _distinct(found, (end - at)[codes])
    letters = values.view(np.uint8).reshape(-1, longest)
    letters = letters[np.arange(longest) < sizes[:, None]]
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
    texts = pa.StringArray.from_buffers(len(sizes), *map(pa.py_buffer, (offsets, letters)))
    return pa.DictionaryArray.from_arrays(text.astype(np.int32), texts)
