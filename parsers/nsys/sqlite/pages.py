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

from nsight_prof.parsers.nsys.sqlite.records import LEAF, SLACK

_INDEX, _TABLE = 2, 5  # kinds of pages that have children
_AT_ONCE = 1 << 25  # bytes that are mapped at a time
_HEAD = 100  # bytes of the file's head, on the first page
_PLACES = np.array([1 << 24, 1 << 16, 1 << 8, 1], np.int64)  # numbers of pages: 4 bytes, big endian


class Pages:
    """The pages of one file, and which of them stand in a tree that was walked already."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        head = self._file.read(_HEAD)
        size = int.from_bytes(head[16:18], "big")
        self._is_usual = head[20:21] == b"\0" and head[56:60] == b"\0\0\0\1"
        self.size = 65536 if size == 1 else size
        if self.size < 512 or self.size & (self.size - 1):
            self._file.close()
            raise ValueError(f"its pages have {self.size} bytes")
        self._kinds = self._read_kinds()
        self._seen = np.zeros(len(self._kinds), bool)

    def _read_kinds(self) -> NDArray[np.uint8]:
        """Return the kind of each whole page by its number; there is no page 0.

        Mapped a part at a time: the system counts what is mapped as memory of this process.
        """
        file, kinds = self._file.fileno(), [np.zeros(1, np.uint8)]
        end = os.fstat(file).st_size // self.size * self.size
        for at in range(0, end, _AT_ONCE):
            window = mmap.mmap(file, min(_AT_ONCE, end - at), offset=at, access=mmap.ACCESS_READ)
            with closing(window):
                kinds.append(np.frombuffer(window, np.uint8)[:: self.size].copy())
        found = np.concatenate(kinds)
        self._file.seek(_HEAD)
        found[1:2] = np.frombuffer(self._file.read(1), np.uint8)  # the file's head comes first
        return found

    def walk(self, root: int) -> None:
        """Walk the tree of pages below `root`, each once.

        Raises:
            ValueError: a page stands in two places, or is none of the file.
        """
        level = np.array([root], np.int64)
        while len(level):
            unknown = level[(level < 1) | (level >= len(self._seen))]
            if len(unknown):
                raise ValueError(f"it has no page {unknown[0]}")
            numbers, counts = np.unique(level, return_counts=True)
            twice = numbers[(counts > 1) | self._seen[numbers]]
            if len(twice):
                raise ValueError(f"page {twice[0]} stands in two places")
            self._seen[numbers] = True
            kinds = self._kinds[numbers]
            inner = numbers[(kinds == _INDEX) | (kinds == _TABLE)]
            children, count = [np.empty(0, np.int64)], 0
            for number in inner.tolist():
                children.append(self._children(number))
                count += len(children[-1])
                if count > len(self._seen):  # more than pages: one of them comes twice
                    break
            level = np.concatenate(children)

    def leaves(self, root: int) -> NDArray[np.int64]:
        """Return the pages that hold the rows of a table, in their order, after a walk from `root`.

        None of them where they are not as `columns_of` takes them, as with texts in UTF-16.
        """
        level = np.array([root], np.int64)
        while (self._kinds[level] == _TABLE).all():
            level = np.concatenate([self._children(number) for number in level.tolist()])
        return level if self._is_usual and (self._kinds[level] == LEAF).all() else level[:0]

    def read(self, pages: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the bytes of some pages, and SLACK more; threads may read at the same time."""
        found = np.zeros(len(pages) * self.size + SLACK, np.uint8)
        ends = [*(np.flatnonzero(np.diff(pages) != 1) + 1).tolist(), len(pages)]
        with self._path.open("rb", buffering=0) as file:
            for first, last in zip([0, *ends], ends, strict=False):
                file.seek((int(pages[first]) - 1) * self.size)
                file.readinto(found[first * self.size : last * self.size].data)
        return found

    def _children(self, number: int) -> NDArray[np.int64]:
        self._file.seek((number - 1) * self.size)
        page = np.frombuffer(self._file.read(self.size), np.uint8)
        head = _HEAD if number == 1 else 0
        cells = int.from_bytes(page[head + 3 : head + 5].tobytes(), "big")
        if head + 12 + 2 * cells > self.size:
            raise ValueError(f"page {number} has {cells} cells")
        offsets = np.frombuffer(page, ">u2", cells, head + 12).astype(np.int64)
        at = np.append(offsets, head + 8)  # the last child stands in the head of the page
        if int(at.max()) + 4 > self.size:
            raise ValueError(f"page {number} is cut off")
        return page[at[:, None] + np.arange(4)].astype(np.int64) @ _PLACES

    def close(self) -> None:
        """Close the file."""
        self._file.close()
