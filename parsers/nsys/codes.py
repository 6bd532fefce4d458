"""Turns rows of integers into small codes, and sums over codes, part by part."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import pandas as pd

from parsers.nsys.database import Array

K = TypeVar("K", bound=Hashable)
STEP = 1 << 20  # rows of a part: 8 MB a column, so that temporaries stay small


def factor(columns: Sequence[Array]) -> tuple[Array, list[tuple[int, ...]]]:
    """Code each distinct row of `columns`, in order of appearance; give codes and distinct rows."""
    codes, _ = pd.factorize(columns[0])
    for column in columns[1:]:
        more, distinct = pd.factorize(column)
        codes, _ = pd.factorize(codes.astype(np.int64) * len(distinct) + more)
    first = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
    rows = zip(*(column[first].tolist() for column in columns), strict=True)
    return codes.astype(np.int32), list(rows)


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
        return np.array([self.code(key) for key in keys], np.int32)[codes]


def totals(codes: Array, values: Array, size: int) -> Array:
    """Exact integer sum of `values` for each code below `size`; negative codes are left out."""
    # bincount adds in float64, which is exact below 2**53: 104 days in nanoseconds.
    result = np.zeros(size, np.int64)
    for start in range(0, len(codes), STEP):
        part = codes[start : start + STEP]
        keep = part >= 0
        weights = values[start : start + STEP][keep]
        result += np.bincount(part[keep], weights, size).astype(np.int64)
    return result


def counts(codes: Array, size: int) -> Array:
    """How often each code below `size` occurs; negative codes are left out."""
    result = np.zeros(size, np.int64)
    for start in range(0, len(codes), STEP):
        part = codes[start : start + STEP]
        result += np.bincount(part[part >= 0], minlength=size)
    return result


def statistics(codes: Array, values: Array, size: int) -> pd.DataFrame:
    """Count, total, mean, median, min, max and sample standard deviation of each code.

    A code that does not occur has count 0 and NaN statistics.
    """
    grouped, starts = _grouped(codes, values, size)
    number = np.diff(starts)
    total = totals(codes, values, size)
    mean = np.divide(total, number, out=np.full(size, np.nan), where=number > 0)
    some = np.flatnonzero(number)
    first, last = starts[:-1][some], starts[1:][some] - 1
    columns = {name: np.full(size, np.nan) for name in ("median", "min", "max", "std")}
    columns["min"][some] = grouped[first]
    columns["max"][some] = grouped[last]
    columns["median"][some] = (grouped[(first + last) // 2] + grouped[(first + last + 1) // 2]) / 2
    for code in np.flatnonzero(number > 1):
        columns["std"][code] = grouped[starts[code] : starts[code + 1]].std(ddof=1)
    return pd.DataFrame({"count": number, "total": total, "mean": mean, **columns})


def _grouped(codes: Array, values: Array, size: int) -> tuple[Array, Array]:
    """Values sorted by code and value, and where each code starts."""
    starts = np.concatenate([[0], np.cumsum(counts(codes, size))])
    bits = max(1, int(values.max(initial=0)).bit_length())
    if bits + size.bit_length() < 63 and values.min(initial=0) >= 0:
        key = codes.astype(np.int64)
        key <<= bits
        key |= values
        key.sort()
        key &= (1 << bits) - 1
        return key, starts
    return values[np.lexsort((values, codes))], starts
