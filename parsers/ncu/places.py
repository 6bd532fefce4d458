"""Moves instructions of a kernel to the lines of the program that they belong to, and orders these.

Rows are of table `source_instructions`, of one kernel, in the order of the program.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

import pandas as pd

from nsight_prof.parsers.ncu.registers import writers

HEADERS = r"(?:^|/)(?:(?:cuda[^/]*|targets/[^/]+)/include|triton/language)/"
"""Files of the CUDA toolkit and of Triton, by a part of their path."""
ATOMICS = r"\b(?:RED|ATOM)"
BARRIER, AT_BARRIER = r"\bBAR\b", "barrier"
LOADS, AT_LOADED = r"\bLDG?\b", "long_sb"
"""The instruction, and the stall of warps that wait at it, or for it."""
SPILLED_AT = r"^((?:@\S+\s+)?STL\S*\s+)\[[^\]]*\]"
"""Where in local memory a value is stored."""
PLACE = ("file", "line")
Place = tuple[str, int]
"""Their values."""
ALIKE, MAX_DISTANCE = 0.8, 2
"""Part of the samples of the hottest line from which on another is about as hot, and how many lines
a line of a group may come after the one before it."""
CALL, RETURN = r"\bCALL\.REL\S* 0x([0-9a-f]+)", r"\bRET\.REL\S* R\d+, 0x([0-9a-f]+)"
"""A call, with the address of what it calls, and the return, with that of the kernel's start."""


def in_order(samples: Mapping[Place, int]) -> list[Place]:
    """Return lines with most samples first, but those that are about as hot by where they stand.

    Neighbours are one group, which begins at the first of them: the group with most samples stands
    first.
    """
    ordered = sorted(samples, key=lambda at: (-samples[at], at[1]))
    file, most_samples = (ordered[0][0], samples[ordered[0]]) if ordered else ("", 0)
    alike = [at for at in ordered if at[0] == file and samples[at] >= ALIKE * most_samples]
    groups: list[list[Place]] = []
    for at in sorted(alike):
        if groups and at[1] - groups[-1][-1][1] <= MAX_DISTANCE:
            groups[-1].append(at)
        else:
            groups.append([at])
    groups.sort(key=lambda group: -sum(samples[at] for at in group))
    return [*(at for group in groups for at in group), *(at for at in ordered if at not in alike)]


def at_program(rows: pd.DataFrame, atomic: Container[Place] = ()) -> pd.DataFrame:
    """Return instructions with those of headers at the program's lines, and column is_foreign.

    Where nobody knows what an instruction was inlined into, it is taken to belong to the program's
    line of the instruction before it: right for the planted lines of three kernels of llm.c. An
    atomic operation then belongs to the line that made its operands last, best one of lines that
    are `atomic`.
    """
    rows = at_calls(rows)
    foreign = rows["file"].fillna("").str.contains(HEADERS)
    rows = rows.assign(is_foreign=foreign)
    inlined = [_caller(text) for text in rows["callers"].where(foreign).fillna("")]
    known = pd.Series([at is not None for at in inlined], rows.index, dtype=bool)
    if (foreign & ~known).all():
        return rows
    found = pd.DataFrame([at or (None, None) for at in inlined], rows.index, [*PLACE])
    places = {name: rows[name].mask(foreign, found[name]) for name in PLACE}
    rows = rows.assign(**{name: column.ffill().bfill() for name, column in places.items()})
    atomics = foreign & ~known & rows["sass"].fillna("").str.contains(ATOMICS)
    return at_writers(rows, atomics, atomic)


def _caller(callers: str) -> Place | None:
    """Return the innermost line of the program of those that an instruction was inlined into."""
    for text in filter(None, callers.split(" < ")):
        file, _, line = text.rpartition(":")
        if not re.search(HEADERS, file):
            return file, int(line)
    return None


def at_calls(rows: pd.DataFrame) -> pd.DataFrame:
    """Return instructions with those of the compiler's functions at the line that calls them most.

    Divisions of 64 bits and slow paths of others have no line (seen with nvcc 13.0): ncu gives them
    that of the instruction before their first one, the end of the kernel. Functions of the program
    have lines of their own and stay there.
    """
    sass = rows["sass"].fillna("")
    called = sass.str.extract(CALL, expand=False)
    returns = sass.str.extract(RETURN, expand=False)
    if called.isna().all() or returns.isna().all():
        return rows
    rows = rows.reset_index(drop=True)
    base = int(returns.dropna().iloc[-1], 16)
    position = {offset: at for at, offset in enumerate(rows["offset"])}
    given: list[Place] = list(zip(rows["file"], rows["line"], strict=True))
    places = [*given]
    ends = returns.notna().to_numpy().nonzero()[0]
    for target in called.dropna().unique():
        start = position.get(int(target, 16) - base, 0)
        end = next((int(at) for at in ends if at > start), 0)
        calls = rows["instructions"].fillna(0).where((called == target).to_numpy())
        if 0 < start < end and set(given[start - 1 : end]) == {given[start]}:
            places[start : end + 1] = [given[int(calls.argmax())]] * (end + 1 - start)
    return rows.assign(**dict(zip(PLACE, map(list, zip(*places, strict=True)), strict=True)))


def at_writers(
    rows: pd.DataFrame, chosen: pd.Series[bool], better: Container[Place] = (), by: str = ""
) -> pd.DataFrame:
    """Return instructions with the `chosen` ones at the line that wrote their operands last.

    Lines that are `better` go before others. Only instructions that match `by` count as writers.
    """
    if not chosen.any():
        return rows
    rows = rows.reset_index(drop=True)
    places: list[Place] = list(zip(rows["file"], rows["line"], strict=True))
    sass = rows["sass"].fillna("").tolist()
    values = [re.sub(SPILLED_AT, r"\1[]", text) for text in sass]
    written = writers(values, rows["instructions"].fillna(0).tolist())
    for at in chosen.to_numpy().nonzero()[0]:
        wrote = [writer for writer in written[at] if re.search(by, sass[writer])]
        found = [*(places[writer] for writer in wrote), places[at]]
        rows.loc[at, list(PLACE)] = next((line for line in found if line in better), found[0])
    return rows


def at_loads(rows: pd.DataFrame) -> pd.DataFrame:
    """Return instructions with those at which warps wait for a load at the line of that load.

    Warps stand where its value is first needed, which may be many lines on.
    """
    return at_writers(rows, rows["stall"].eq(AT_LOADED), by=LOADS)


def at_barriers(rows: pd.DataFrame) -> pd.DataFrame:
    """Return instructions with those at which warps wait for a barrier at the line of that.

    Warps go on behind it, to the next branch, before they wait (seen with ncu 2025.3).
    """
    waiting = rows["stall"].eq(AT_BARRIER)
    barriers = rows["sass"].fillna("").str.contains(BARRIER)
    last = {name: rows[name].where(barriers).ffill().fillna(rows[name]) for name in PLACE}
    return rows.assign(**{name: rows[name].mask(waiting, last[name]) for name in PLACE})
