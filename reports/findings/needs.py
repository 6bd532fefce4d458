"""Finds what the work of a kernel needs at least: bytes, and the size of a matrix product.

Counters tell what a kernel moved, not what it had to. The torch profiler's shapes (table `gemms`)
and the program itself tell that, in a line of JSON on its standard output:
``{"work": [{"kernel": "name or part of it", "stage": "prefill", "bytes": 268435456}]}``, with the
bytes that one launch must move through DRAM, each once, and ``{"gemms": [...]}`` (see gemm.py).
"""

from __future__ import annotations

import json
import lzma
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsight_prof.parsers.cells import Row, names, number, records, text
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.findings.padding import paddings


@dataclass(frozen=True)
class Need:
    """Bytes of one launch that must cross DRAM (NaN where unknown) and m, n, k of a product."""

    bytes: float = math.nan
    size: tuple[int, ...] = ()


@once
def needs(run: Run) -> dict[str, Need]:
    """Return what is known of each kernel, by kernel_id.

    A kernel that computes products of several sizes has none of them: its launches differ.
    """
    found = _printed(run) | _products(run)
    for item in _declared(run):
        for row in records(run.kernels):
            if _meant(item, row):
                known = found.get(text(row["kernel_id"]), Need())
                found[text(row["kernel_id"])] = Need(float(item["bytes"]), known.size)
    return found


def _products(run: Run) -> dict[str, Need]:
    sizes: dict[str, set[tuple[float, tuple[int, ...]]]] = {}
    for row in records(run.gemms):
        if text(row["kernel_id"]) and number(row["bytes"]) > 0:
            size = tuple(int(number(row[side])) for side in ("m", "n", "k"))
            sizes.setdefault(text(row["kernel_id"]), set()).add((number(row["bytes"]), size))
    return {key: Need(*one.pop()) for key, one in sizes.items() if len(one) == 1}


def _printed(run: Run) -> dict[str, Need]:
    """Return the sizes that the program printed, where the counted FLOPs tell whose they are."""
    sizes: dict[str, set[tuple[int, ...]]] = {}
    for one in paddings(run):
        if one.row is not None:
            size = (one.shape.m, one.shape.n, one.shape.k)
            sizes.setdefault(text(one.row["kernel_id"]), set()).add(size)
    return {key: Need(size=only.pop()) for key, only in sizes.items() if len(only) == 1}


def _meant(item: dict[str, Any], row: Row) -> bool:
    stage, kernel = str(item.get("stage", "")), str(item.get("kernel", ""))
    named = kernel in text(row["name"]) or kernel in text(row["short_name"])
    return named and bool(stage or kernel) and (not stage or stage in names(row["stage"]))


def _declared(run: Run) -> list[dict[str, Any]]:
    path = run.directory.artifact("trace", "stdout.log")
    return [] if path is None else [item for line in _lines(path) for item in _items(line)]


def _lines(path: Path) -> list[str]:
    try:
        opener = lzma.open if path.suffix == ".xz" else open
        with opener(path, "rt", encoding="utf-8", errors="replace") as stream:
            return [line for line in stream if '"work"' in line]
    except (OSError, lzma.LZMAError, EOFError):
        return []


def _items(line: str) -> list[dict[str, Any]]:
    """Return the declared items of a line; a line that says something else has none."""
    try:
        items = json.loads(line[line.index("{") :])["work"]
        return [item for item in items if float(item["bytes"]) > 0]
    except (ValueError, KeyError, TypeError):
        return []
