"""Which instructions of a kernel wrote the registers that another reads, by their text (SASS)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

STACK = 1
"""Register that points to the stack of a thread."""
INSTRUCTION = re.compile(r"^(?:@!?U?P\w+\s+)?(?P<name>[A-Z]\S*)\s*(?P<operands>.*)$")
REGISTER = re.compile(r"\bR(?P<number>\d+)(?P<pair>\.64)?")
WRITES_NONE = re.compile(r"^(?:ST|RED|BRA|BAR|EXIT|MEMBAR|R2UR|.*SETP)")
"""Instructions that write no register of a thread."""
PREDICATE_FIRST = re.compile(r"^(?:ATOM|SHFL|MATCH)")
"""Instructions that write a register behind a predicate."""
TILE = re.compile(r"GMMA\.\d+x(?P<columns>\d+)x")
WIDE = re.compile(r"(?P<bits>\.128|\.64|WIDE|CS2R(?!\.32)|^D|MMA|\.M88\.[24])")


def writers(sass: Sequence[str], executed: Sequence[float]) -> list[list[int]]:
    """Return the positions of those that wrote what each instruction reads, the last one first.

    That is the one before it in the program, whatever branches do; but of what only comes into a
    loop, which is `executed` less often, the last one in the loop: it goes on with that.
    """
    of_each = [_registers(text) for text in sass]
    every: dict[int, list[int]] = {}
    for position, (written, _) in enumerate(of_each):
        for register in written:
            every.setdefault(register, []).append(position)
    last: dict[int, int] = {}
    found = []
    for position, (written, read) in enumerate(of_each):
        of_value = set()
        for register in set(read) & every.keys() - {STACK}:
            writer = last.get(register)
            if writer is None or executed[writer] < executed[position]:
                in_loop = [at for at in every[register] if executed[at] >= executed[position]]
                writer = in_loop[-1] if in_loop else writer
            of_value |= set() if writer is None else {writer}
        found.append(sorted(of_value, reverse=True))
        last |= dict.fromkeys(written, position)
    return found


def _registers(text: str) -> tuple[list[int], list[int]]:
    """Return the registers that an instruction writes, and those that it reads."""
    form = INSTRUCTION.match(text.strip())
    if form is None:
        return [], []
    name, operands = form["name"], form["operands"].split(",")
    at = bool(PREDICATE_FIRST.match(name)) and not operands[0].strip().startswith("R")
    target = REGISTER.match(operands[at].strip()) if at < len(operands) else None
    if WRITES_NONE.match(name) or target is None:
        return [], [register for operand in operands for register in _read(operand, name)]
    first = int(target["number"])
    rest = operands[at + 1 :]
    return (
        list(range(first, first + _width(name))),
        [register for operand in rest for register in _read(operand, "")],
    )


def _read(operand: str, name: str) -> list[int]:
    """Return the registers of an operand; what a store writes to memory is as wide as `name` says.

    The address of a store, in brackets, is one register, or a pair where the text says so.
    """
    width = 1 if "[" in operand else _width(name)
    return [
        int(found["number"]) + offset
        for found in REGISTER.finditer(operand)
        for offset in range(2 if found["pair"] else width)
    ]


def _width(name: str) -> int:
    """Return how many registers an operand of an instruction has."""
    tile, wide = TILE.search(name), WIDE.search(name)
    if tile is not None:
        return int(tile["columns"]) // 2
    if wide is None:
        return 1
    return 4 if wide["bits"] in (".128", "MMA", ".M88.4") else 2


ADDRESS = re.compile(r"\[(?:UR\d+\]\[)?R(?P<number>\d+)")
STORES, LOADS = re.compile(r"^(?:@!?U?P\w+\s+)?STG\b"), re.compile(r"^(?:@!?U?P\w+\s+)?LDG\b")
PASSES = 8
"""Times per warp from which on an instruction is one of the passes of a loop."""
HALF = re.compile(r"^(?:@!?U?P\w+\s+)?H(?:ADD|MUL|FMA|MNMX|SETP?)2\S*\s+(?P<operands>.*)$")
HALF_SOURCE = re.compile(r"\|?R\d+(?P<alone>\.H([01])_H\2)?")


def fixed_stores(sass: Sequence[str], executed: Sequence[float], sectors: Sequence[float]) -> float:
    """Return the part of the sectors of global memory that loops touch at addresses that stay.

    They store in each pass what the next one stores again, or load what was just stored. 0 where
    no store is among them.
    """
    accesses = [at for at, text in enumerate(sass) if STORES.match(text) or LOADS.match(text)]
    often: dict[int, float] = {}
    for text, times in zip(sass, executed, strict=True):
        for written in _registers(text)[0]:
            often[written] = max(often.get(written, 0.0), times)
    fixed = [
        at
        for at in accesses
        if executed[at] >= PASSES * executed[0] > 0
        and (register := ADDRESS.search(sass[at]))
        and 2 * often.get(int(register["number"]), 0.0) < executed[at]
    ]
    if not any(STORES.match(sass[at]) for at in fixed):
        return 0.0
    return sum(sectors[at] for at in fixed) / max(1.0, sum(sectors[at] for at in accesses))


def scalar_halves(sass: Sequence[str], executed: Sequence[float]) -> float:
    """Return the part of the instructions that work on one half number where they could on two."""
    alone = 0.0
    for text, times in zip(sass, executed, strict=True):
        form = HALF.match(text)
        sources = form["operands"].partition(",")[2] if form else ""
        halves = [match["alone"] for match in HALF_SOURCE.finditer(sources)]
        alone += times if halves and all(halves) else 0.0
    return alone / sum(executed) if sum(executed) else 0.0


MULTIPLY = re.compile(r"^(?:@!?U?P\w+\s+)?(?P<type>[FD])MUL\b")
ADD = re.compile(r"^(?:@!?U?P\w+\s+)?(?P<type>[FD])ADD\b")
OF_FLOATS = re.compile(r"^(?:@!?U?P\w+\s+)?[FD](?:ADD|MUL|FMA)\b")


def products_added(sass: Sequence[str], executed: Sequence[float]) -> float:
    """Return the part of the additions and multiplications that add a product: one could do both.

    Adds and multiplications as such need not meet, and a compiler fuses those that do.
    """
    total = sum(times for text, times in zip(sass, executed, strict=True) if OF_FLOATS.match(text))
    if not total or not any(MULTIPLY.match(text) for text in sass):
        return 0.0
    wrote = writers(sass, executed)
    found = 0.0
    for at, text in enumerate(sass):
        add = ADD.match(text)
        products = (MULTIPLY.match(sass[by]) for by in wrote[at]) if add else ()
        if add and any(product and product["type"] == add["type"] for product in products):
            found += executed[at]
    return found / total


EXCHANGE, STORED = (rf"^(?:@!?U?P\w+\s+)?{name}" for name in (r"SHFL\b", r"(?:STG|REDG?|ATOMG?)\b"))
LOADED_EACH = 128.0
"""Bytes that a warp loads for each exchange between its threads below which it exchanges each
number, rather than what threads have added up."""


def exchanged(rows: pd.DataFrame, loaded: float) -> float:
    """Return the part of the instructions that exchange numbers in each pass of a loop.

    `loaded` are the bytes that the kernel loads. 0 where a warp loads `LOADED_EACH` for each, or
    the loop stores what each pass makes, so that none of it can wait for the end of the loop.
    """
    executed, sass = rows["instructions"].fillna(0).astype(float), rows["sass"].fillna("")
    times, stores = (executed[sass.str.contains(name)] for name in (EXCHANGE, STORED))
    in_loop = times[times >= PASSES * executed.iloc[0]]
    if in_loop.empty or not loaded < LOADED_EACH * in_loop.sum():
        return 0.0
    if (PASSES * stores > in_loop.max()).any():
        return 0.0
    return float(in_loop.sum() / executed.sum())
