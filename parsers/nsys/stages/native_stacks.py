"""Native functions that made each CUDA call, from the stacks that nsys unwinds at calls
(`--cudabacktrace`, table CUDA_CALLCHAINS); they have symbols, and no lines: those are of addr2line,
kept beside the trace where it was recorded.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
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
ENTRY = "_start"
LINES = "native_lines.json"
Lines = Mapping[str, Mapping[str, str]]
"""`file:line` of addresses, by module."""
MOST = 2_000_000
"""Frames that are read: longer runs are cut, since each call has a stack of its own."""


def read_native_lines(path: Path | None) -> Lines:
    """Return the lines that were kept beside a trace; none where they cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        found = {}
    return (
        {k: v for k, v in found.items() if isinstance(v, dict)} if isinstance(found, dict) else {}
    )


def native_addresses(db: Database) -> dict[str, tuple[int, list[int]]]:
    """Return the return addresses of stacks in each module that is no library, and before them the
    one in its entry, which tells where it was loaded; modules without an entry are left out.
    """
    if not {"symbol", "module", "originalIP"} <= db.columns(CHAINS):
        return {}
    rows = db.rows(
        f'SELECT DISTINCT module, symbol, originalIP FROM "{db.table(CHAINS)}" LIMIT {MOST}'
    )
    texts = read_strings(db, {number for row in rows for number in row[:2]})
    found: dict[str, list[int]] = defaultdict(list)
    entries: dict[str, int] = {}
    for module, symbol, address in rows:
        name = texts.get(module, "")
        if LIBRARY.search(name) or not isinstance(address, int):
            continue
        found[name].append(address)
        if texts.get(symbol) == ENTRY:
            entries[name] = address
    return {name: (entries[name], found[name]) for name in found if name in entries}


def native_stacks(
    db: Database, kernel_of: Callable[[int], tuple[str, str]], lines: Lines
) -> pd.DataFrame:
    """Return rows of table `launch_lines` with the native function that made each CUDA call.

    `kernel_of` gives id and name of the kernel that the call of a key (CALL_KEY) launched, empty
    for none. File and line are of `lines` where it knows the address, else the module. Empty where
    the trace has no such stacks.
    """
    if not {"id", "symbol", "module", "stackDepth"} <= db.columns(CHAINS):
        return tables.empty(TABLE)
    frames: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    address = "originalIP" if "originalIP" in db.columns(CHAINS) else "0"
    query = (
        f'SELECT id, symbol, module, {address} FROM "{db.table(CHAINS)}" ORDER BY id, stackDepth'
    )
    for chain, symbol, module, at in db.rows(f"{query} LIMIT {MOST}"):
        frames[chain].append((symbol, module, at))
    calls = db.rows(
        f'SELECT nameId, callchainId, {CALL_KEY}, "end" - start FROM "{db.table(RUNTIME)}"'
        f" WHERE callchainId IS NOT NULL LIMIT {MOST}"
    )
    ids = {number for stack in frames.values() for frame in stack for number in frame[:2]}
    texts = read_strings(db, ids | {name for name, *_ in calls})
    sums: dict[tuple[Any, ...], list[float]] = defaultdict(lambda: [0, 0.0])
    for name, chain, key, time_ns in calls:
        kernel_id, kernel = kernel_of(key)
        path = [
            (*_line_of(lines, texts.get(module, ""), at), texts.get(symbol, ""))
            for symbol, module, at in frames.get(chain, [])
            if not LIBRARY.search(texts.get(module, ""))
            and not OF_RUNTIME.search(texts.get(symbol, ""))
        ]
        if path and kernel and _bare(path[0][2]) == _bare(kernel):
            path = path[1:]  # the compiler's function that launches the kernel has its name
        if path:
            counted = sums[kernel_id, texts.get(name, ""), *path[0], _callers(path[1:])]
            counted[0] += 1
            counted[1] += time_ns
    columns = ("kernel_id", "call", "file", "line", "function", "callers", "samples", "time_ns")
    rows = [(*call, *counted) for call, counted in sums.items()]
    frame = pd.DataFrame(rows, columns=columns).assign(inner="")
    return tables.check(frame.sort_values("time_ns", ascending=False), TABLE)


def _line_of(lines: Lines, module: str, address: int) -> tuple[str, int | None]:
    """Return file and line of an address, the module and None where they are not known."""
    file, _, line = str(lines.get(module, {}).get(str(address), "")).rpartition(":")
    return (file, int(line)) if file and line.isdigit() else (module, None)


def _bare(name: str) -> str:
    """Return the name of a function without what it returns, takes and is made for."""
    return re.sub(r"[<(].*", "", name).split(" ")[-1]


def _callers(frames: list[tuple[str, int | None, str]]) -> str:
    return " < ".join(f"{file}:{line or 0} {symbol}" for file, line, symbol in frames)
