"""What timeline and tree are made of: rows of segments, items, operations, nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from nsight_prof.parsers.nsys.bins import Array, Segments
from nsight_prof.reports.page.values import Text, Word

KERNELS, STAGES, STEPS, IDLE, RANGES, CALLS = (
    "kernels", "stages", "steps", "idle", "ranges", "calls",
)  # fmt: skip
RANGE, KERNEL, IDLE_NODE, REST = "range", "kernel", "idle", "rest"
"""Kinds of rows of the timeline, and of nodes of the tree."""

Label: TypeAlias = str | Text | Word
"""Words of a timeline or a tree; a str is a name, which no language changes."""
Kernels = list[tuple[Label, str, int, tuple[Label, ...]]]
"""Name, colour, number on the page and facts of each kernel."""


class Item(NamedTuple):
    """What segments stand for: a kernel in a stage, a copy, a range, a call, a cause of idle time.

    `colour` is a CSS variable of the page (without --), "" for a row of quiet boxes. `kernel` is
    the number of the kernel on the page, 0 for none. `facts` are further lines of its tooltip.
    """

    name: Label
    colour: str = ""
    kernel: int = 0
    stage: str = ""
    facts: tuple[Label, ...] = ()


@dataclass(frozen=True)
class Row:
    """One row of the timeline; `group` is the GPU or process that it belongs to."""

    group: Label
    kind: str
    name: Label
    segments: Segments


@dataclass
class Work:
    """Launches and copies as columns, launches first; `path` and `stage` are -1 for none.

    `queue` is a code into `queues`: GPU, process, context, stream. `key` is what an operation has
    in common with the CUDA call that issued it. `launches` is the number of launches.
    """

    start: Array
    duration: Array
    kernel: Array
    stage: Array
    path: Array
    queue: Array
    key: Array
    queues: list[tuple[int, int, int, int]]
    stages: list[str]
    paths: list[str]
    kernels: list[str]
    launches: int
    memory: list[str] = field(default_factory=list)

    @cached_property
    def gpu(self) -> Array:
        """GPU of each operation."""
        return np.array([queue[0] for queue in self.queues], np.int64)[self.queue]


@dataclass(frozen=True)
class Gaps:
    """Times in which a GPU had nothing to do; `op` is the operation that ended each."""

    gpu: Array
    start: Array
    duration: Array
    op: Array


@dataclass
class Items:
    """The items of a timeline and the code of each, in the order of their first use."""

    all: list[Item] = field(default_factory=list)
    _codes: dict[Item, int] = field(default_factory=dict)

    def code(self, item: Item) -> int:
        """Return the code of an item, a new one where there is none yet."""
        found = self._codes.setdefault(item, len(self.all))
        if found == len(self.all):
            self.all.append(item)
        return found

    def codes(self, items: Iterable[Item]) -> Array:
        """Return the codes of several items."""
        return np.array([self.code(item) for item in items], np.int64)


@dataclass
class Node:
    """A range, or a kernel in it; times in ns over all of the run.

    `busy_ns` adds up kernels and copies, `idle_ns` the idle time that work of the node ended.
    `colour` is a CSS variable of the page and `kernel` the kernel's number there, 0 for none.
    """

    name: Label
    kind: str = RANGE
    busy_ns: int = 0
    idle_ns: int = 0
    launches: int = 0
    colour: str = ""
    kernel: int = 0
    children: list[Node] = field(default_factory=list)

    @property
    def total_ns(self) -> int:
        """What the node's width stands for."""
        return self.busy_ns + self.idle_ns
