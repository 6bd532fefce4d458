"""Native functions that made each CUDA call, from the stacks that nsys unwinds at calls
(`--cudabacktrace`, table CUDA_CALLCHAINS); they have symbols, and no lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.nsys.sqlite.schema import CALL_KEY, RUNTIME, read_strings

TABLE, CHAINS = "launch_lines", "CUDA_CALLCHAINS"
LIBRARY = re.compile(r"/lib[^/]*\.so|^\[|^$")
"""Modules that are libraries, or none."""
OF_RUNTIME = re.compile(r"^(?:cuda[A-Z]\w*|libcudart_static_\w+|_start|__libc_\w+|0x[0-9a-f]+)$")
"""Functions of a CUDA runtime that is linked into a program, and of its start."""
MOST = 2_000_000
"""Frames that are read: longer runs are cut, since each call has a stack of its own."""


def native_stacks(db: Database, kernel_of: Callable[[int], tuple[str, str]]) -> pd.DataFrame:
    """Return rows of table `launch_lines` with the native function that made each CUDA call.

    `kernel_of` gives id and name of the kernel that the call of a key (CALL_KEY) launched, empty
    for none. Empty where the trace has no such stacks.
    """
    if not {"id", "symbol", "module", "stackDepth"} <= db.columns(CHAINS):
        return tables.empty(TABLE)
    frames: dict[int, list[tuple[int, int]]] = defaultdict(list)
    query = f'SELECT id, symbol, module FROM "{db.table(CHAINS)}" ORDER BY id, stackDepth'
    for chain, symbol, module in db.rows(f"{query} LIMIT {MOST}"):
        frames[chain].append((symbol, module))
    calls = db.rows(
        f'SELECT nameId, callchainId, {CALL_KEY}, "end" - start FROM "{db.table(RUNTIME)}"'
        f" WHERE callchainId IS NOT NULL LIMIT {MOST}"
    )
    ids = {number for stack in frames.values() for frame in stack for number in frame}
    texts = read_strings(db, ids | {name for name, *_ in calls})
    sums: dict[tuple[Any, ...], list[float]] = defaultdict(lambda: [0, 0.0])
    for name, chain, key, time_ns in calls:
        kernel_id, kernel = kernel_of(key)
        path = [
            (texts.get(module, ""), texts.get(symbol, ""))
            for symbol, module in frames.get(chain, [])
            if not LIBRARY.search(texts.get(module, ""))
            and not OF_RUNTIME.search(texts.get(symbol, ""))
        ]
        if path and kernel and _bare(path[0][1]) == _bare(kernel):
            path = path[1:]  # the compiler's function that launches the kernel has its name
        if path:
            counted = sums[kernel_id, texts.get(name, ""), *path[0], _callers(path[1:])]
            counted[0] += 1
            counted[1] += time_ns
    columns = ("kernel_id", "call", "file", "function", "callers", "samples", "time_ns")
    rows = [(*call, *counted) for call, counted in sums.items()]
    frame = pd.DataFrame(rows, columns=columns).assign(line=None, inner="")
    return tables.check(frame.sort_values("time_ns", ascending=False), TABLE)


def _bare(name: str) -> str:
    """Return the name of a function without what it returns, takes and is made for."""
    return re.sub(r"[<(].*", "", name).split(" ")[-1]


def _callers(frames: list[tuple[str, str]]) -> str:
    return " < ".join(f"{module}:0 {symbol}" for module, symbol in frames)
