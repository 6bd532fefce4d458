"""What a target prints about its work, as lines of JSON in the log of the trace.

``{"gemms": [{"name": "gate_up", "stage": "decode", "m": 8, "n": 28672, "k": 4096}]}`` are matrix
products that it does. ``{"work": [{"kernel": "name or part of it", "stage": "prefill", "bytes":
268435456}]}`` are the bytes that one launch must move through DRAM, each once.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Shape:
    """A GEMM that the program says it does: m x n x k in `stage`."""

    name: str
    stage: str
    m: int
    n: int
    k: int

    @property
    def flops(self) -> float:
        """2MNK: a multiplication and an addition for each product."""
        return 2.0 * self.m * self.n * self.k


@dataclass(frozen=True)
class Work:
    """Minimum `bytes` through DRAM of one launch of the kernels whose name holds `kernel`."""

    kernel: str
    stage: str
    bytes: float


@dataclass(frozen=True)
class Need:
    """Bytes of one launch that must cross DRAM (NaN where unknown) and m, n, k of a product."""

    bytes: float = math.nan
    size: tuple[int, ...] = ()


def read_shapes(log: Path | None) -> list[Shape]:
    """Return the GEMM shapes that the target printed, each once; none without a log."""
    return list(dict.fromkeys(_printed(log, "gemms", _shape)))


def read_work(log: Path | None) -> list[Work]:
    """Return the work that the target declared; none without a log."""
    return [work for work in _printed(log, "work", _work) if work.bytes > 0]


def _printed(log: Path | None, key: str, make: Callable[[dict[str, Any]], Item]) -> list[Item]:
    """Return the items under `key` of all lines of JSON; other lines have none."""
    if log is None:
        return []
    try:
        opener = lzma.open if log.suffix == ".xz" else open
        with opener(log, "rt", encoding="utf-8", errors="replace") as stream:
            lines = [line for line in stream if f'"{key}"' in line]
    except (OSError, lzma.LZMAError, EOFError):
        return []
    items: list[Item] = []
    for line in lines:
        try:
            items += [make(item) for item in json.loads(line[line.index("{") :])[key]]
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return items


def _shape(item: dict[str, Any]) -> Shape:
    sizes = (int(item["m"]), int(item["n"]), int(item["k"]))
    return Shape(str(item["name"]), str(item.get("stage", "")), *sizes)


def _work(item: dict[str, Any]) -> Work:
    return Work(str(item.get("kernel", "")), str(item.get("stage", "")), float(item["bytes"]))
