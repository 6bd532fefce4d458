"""Walks the pages of an SQLite file before it is queried: no page may stand in two places.

SQLite follows what a file says. In a damaged or a made-up one a page may be its own descendant, or
the child of two, and a table of 20 pages has then more rows than anybody can read. Where each page
stands once, a file holds no more rows than its size allows, and reading it ends.
https://www.sqlite.org/fileformat.html, section 1.6.
"""

from __future__ import annotations

import mmap
import os
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_INDEX, _TABLE = 2, 5  # kinds of pages that have children
_ROWS = 13  # kind of a page of rows
_AT_ONCE = 1 << 25  # bytes that are mapped at a time
_HEAD = 100  # bytes of the file's head, on the first page
_PLACES = np.array([1 << 24, 1 << 16, 1 << 8, 1], np.int64)  # numbers of pages: 4 bytes, big endian


class Pages:
    """The pages of one file, and which of them stand in a tree that was walked already."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        size = int.from_bytes(self._file.read(18)[16:], "big")
        self._size = 65536 if size == 1 else size
        if self._size < 512 or self._size & (self._size - 1):
            self._file.close()
            raise ValueError(f"its pages have {self._size} bytes")
        self._kinds = self._read_kinds()
        self._seen = np.zeros(len(self._kinds), bool)

    def _read_kinds(self) -> NDArray[np.uint8]:
        """Return the kind of each whole page by its number; there is no page 0.

        Mapped a part at a time: the system counts what is mapped as memory of this process.
        """
        file, kinds = self._file.fileno(), [np.zeros(1, np.uint8)]
        end = os.fstat(file).st_size // self._size * self._size
        for at in range(0, end, _AT_ONCE):
            window = mmap.mmap(file, min(_AT_ONCE, end - at), offset=at, access=mmap.ACCESS_READ)
            with closing(window):
                kinds.append(np.frombuffer(window, np.uint8)[:: self._size].copy())
        found = np.concatenate(kinds)
        self._file.seek(_HEAD)
        found[1:2] = np.frombuffer(self._file.read(1), np.uint8)  # the file's head comes first
        return found

    def walk(self, root: int) -> NDArray[np.int64]:
        """Walk the tree of pages below `root`, each once; return those of rows, in their order.

        None are returned of an index, and where they are not all as deep in the tree.

        Raises:
            ValueError: a page stands in two places, or is none of the file.
        """
        level, is_regular = np.array([root], np.int64), True
        while True:
            unknown = level[(level < 1) | (level >= len(self._seen))]
            if len(unknown):
                raise ValueError(f"it has no page {unknown[0]}")
            numbers, counts = np.unique(level, return_counts=True)
            twice = numbers[(counts > 1) | self._seen[numbers]]
            if len(twice):
                raise ValueError(f"page {twice[0]} stands in two places")
            self._seen[numbers] = True
            kinds = self._kinds[level]
            inner = level[(kinds == _INDEX) | (kinds == _TABLE)]
            is_regular &= len(inner) in (0, len(level))
            if not len(inner):
                return level if is_regular and (kinds == _ROWS).all() else level[:0]
            children, count = [np.empty(0, np.int64)], 0
            for number in inner.tolist():
                children.append(self._children(number))
                count += len(children[-1])
                if count > len(self._seen):  # more than pages: one of them comes twice
                    break
            level = np.concatenate(children)

    def _children(self, number: int) -> NDArray[np.int64]:
        self._file.seek((number - 1) * self._size)
        page = np.frombuffer(self._file.read(self._size), np.uint8)
        head = _HEAD if number == 1 else 0
        cells = int.from_bytes(page[head + 3 : head + 5].tobytes(), "big")
        if head + 12 + 2 * cells > self._size:
            raise ValueError(f"page {number} has {cells} cells")
        offsets = np.frombuffer(page, ">u2", cells, head + 12).astype(np.int64)
        at = np.append(offsets, head + 8)  # the last child stands in the head of the page
        if int(at.max()) + 4 > self._size:
            raise ValueError(f"page {number} is cut off")
        return page[at[:, None] + np.arange(4)].astype(np.int64) @ _PLACES

    def close(self) -> None:
        """Close the file."""
        self._file.close()
