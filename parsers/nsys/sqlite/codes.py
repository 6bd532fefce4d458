"""Turns rows of integers into small codes, and sums over codes, part by part."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd

from nsight_prof.parsers.nsys.sqlite.database import Array

K = TypeVar("K", bound=Hashable)
_SORTED = 1 << 21  # rows to be sorted at once
_WIDEST = 1 << 62
STEP = 1 << 18  # rows of a part: 2 MB a column, so that temporaries stay small


def factor(columns: Sequence[Array]) -> tuple[Array, list[tuple[int, ...]]]:
    """Code each distinct row of `columns`, in order of appearance; give codes and distinct rows."""
    codes, first = code_rows(columns)
    rows = zip(*(column[first].tolist() for column in columns), strict=True)
    return codes, list(rows)


def code_rows(columns: Sequence[Array]) -> tuple[Array, Array]:
    """Code each distinct row of `columns`, in order of appearance; give where each comes first."""
    key = np.zeros(len(columns[0]), np.int64)
    size = 1
    for column in columns if len(key) else ():
        low, high = int(column.min()), int(column.max())
        if low == high:  # as of most: one process, one device
            continue
        if (high - low + 1) * size > _WIDEST:  # too wide for one number
            (key, keys), (column, distinct) = pd.factorize(key), pd.factorize(column)
            low, high, size = 0, len(distinct) - 1, len(keys)
        column = column.astype(np.int64, copy=False) - low
        key = column if size == 1 else key * (high - low + 1) + column
        size *= high - low + 1
    codes, distinct = pd.factorize(key)
    first = np.empty(len(distinct), np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # the last that is written stays
    return codes.astype(np.int32), first


@dataclass
class Codebook(Generic[K]):
    """Codes that stay the same over all parts of a table; a code stands for `keys[code]`."""

    keys: list[K] = field(default_factory=list)
    _codes: dict[K, int] = field(default_factory=dict)

    def code(self, key: K) -> int:
        """Code of `key`, new if need be."""
        code = self._codes.setdefault(key, len(self.keys))
        if code == len(self.keys):
            self.keys.append(key)
        return code

    def translate(self, codes: Array, keys: Sequence[K]) -> Array:
        """Turn the codes of one part, which stand for `keys`, into codes of this book."""
        known = self._codes  # a long trace has a million names of ranges: no call for each
        for key in keys:
            if key not in known:
                known[key] = len(self.keys)
                self.keys.append(key)
        return np.fromiter(map(known.__getitem__, keys), np.int32, len(keys))[codes]


class Threads(Codebook[tuple[int, ...]]):
    """Codes of the threads of a trace."""

    @property
    def ids(self) -> Array:
        """The globalTid of each code."""
        return np.array([thread for (thread,) in self.keys], np.int64)


class Columns:
    """Columns that grow part by part, without a copy of the whole.

    `capacity` is a bound of the rows: memory that is not written is not used. A column gets wider
    when a part has a wider type.
    """

    def __init__(self, capacity: int, *dtypes: type[np.integer[Any]]) -> None:
        self._columns: list[Array] = [np.empty(capacity, dtype) for dtype in dtypes]
        self._rows = 0

    def append(self, *columns: Array) -> None:
        """Add the rows of one part."""
        rows = slice(self._rows, self._rows + len(columns[0]))
        for number, values in enumerate(columns):
            column = self._columns[number]
            wider = np.promote_types(column.dtype, values.dtype)
            if wider != column.dtype:
                wide = np.empty(len(column), wider)
                wide[: self._rows] = column[: self._rows]
                self._columns[number] = column = wide
            column[rows] = values
        self._rows = rows.stop

    def finish(self) -> list[Array]:
        """All columns, as long as what was added."""
        return [column[: self._rows] for column in self._columns]


def narrow(codes: Array, size: int) -> Array:
    """Codes below `size` in the narrowest type of 16 or 32 bits."""
    return codes.astype(np.int16 if size < 1 << 15 else np.int32)


def short(durations: Array) -> Array:
    """Durations in 32 bits where all of the part fit: up to 4.3 s."""
    fits = durations.min(initial=0) >= 0 and durations.max(initial=0) < 1 << 32
    return durations.astype(np.uint32) if fits else durations


def totals(codes: Array, values: Array, size: int) -> Array:
    """Exact integer sum of `values` for each code below `size`; negative codes are left out."""
    # bincount adds in float64, which is exact below 2**53: 104 days in nanoseconds.
    result = np.zeros(size, np.int64)
    for start in range(0, len(codes), STEP):
        chunk = codes[start : start + STEP]
        keep = chunk >= 0
        weights = values[start : start + STEP][keep]
        result += np.bincount(chunk[keep], weights, size).astype(np.int64)
    return result


def counts(codes: Array, size: int) -> Array:
    """How often each code below `size` occurs; negative codes are left out."""
    result = np.zeros(size, np.int64)
    for start in range(0, len(codes), STEP):
        chunk = codes[start : start + STEP]
        known = chunk if chunk.min() >= 0 else chunk[chunk >= 0]
        result += np.bincount(known, minlength=size)
    return result


def statistics(codes: Array, values: Array, size: int) -> pd.DataFrame:
    """Count, total, mean, median, min, max and sample standard deviation of each code.

    A code that does not occur has count 0 and NaN statistics.
    """
    number, total = counts(codes, size), totals(codes, values, size)
    mean = np.divide(total, number, out=np.full(size, np.nan), where=number > 0)
    columns = {name: np.full(size, np.nan) for name in ("median", "min", "max", "std")}
    for low, high in _batches(number):
        inside = (codes >= low) & (codes < high)
        grouped = _grouped(codes[inside], values[inside])
        last = np.cumsum(number[low:high])
        for code in low + np.flatnonzero(number[low:high]):
            group = grouped[last[code - low] - number[code] : last[code - low]]
            middle = (len(group) - 1) // 2, len(group) // 2
            columns["median"][code] = (group[middle[0]] + group[middle[1]]) / 2
            columns["min"][code], columns["max"][code] = group[0], group[-1]
            if len(group) > 1:
                columns["std"][code] = group.std(ddof=1)
    return pd.DataFrame({"count": number, "total": total, "mean": mean, **columns})


def _batches(number: Array) -> list[tuple[int, int]]:
    """Runs of codes that have few enough rows to be sorted at once."""
    run = (np.cumsum(number) - 1) // _SORTED
    starts = np.flatnonzero(np.diff(run, prepend=-1)).tolist()
    ends = [*starts[1:], len(number)]
    return list(zip(starts, ends[: len(starts)], strict=True))


def _grouped(codes: Array, values: Array) -> Array:
    """Values sorted by code and value."""
    bits = max(1, int(values.max(initial=0)).bit_length())
    if values.min(initial=0) < 0 or bits + int(codes.max(initial=0)).bit_length() > 62:
        return values[np.lexsort((values, codes))].astype(np.int64)
    key = codes.astype(np.int64)
    key <<= bits
    key |= values
    key.sort()
    key &= (1 << bits) - 1
    return key
