"""What the code of one kernel does that it need not: calls, look-ups, threads that return at once.

From its instructions (table source_instructions) and the text of its lines (source_lines).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable

import pandas as pd

from nsight_prof.parsers.ncu.registers import writers

OUTSIDE, POINTERS = r"\bCALL\.ABS", r"\bCALL\.REL\S* R\d"
"""Calls of functions that are not in the listing (of CUDA's device library), and of the program's
own through an address in a register."""
HEAP = r"\bnew\b|\bmalloc *\(|\bdelete\b|\bfree *\("
"""Text of lines that take memory from the heap of the device, or give it back."""
OF_CALLS = r"\b(?:CALL|RET|BSSY|BSYNC|MOV|U?LDC|LD|STL|LDL)\b|\bIADD3 R1, R1"
"""Instructions that a call takes whose function is not inlined: addresses, arguments, the stack."""
BYTES, CUT = r"\bLDS\.[US]8\b", r"LOP3\.LUT.*\b0xff\b|\bSHF\.R|\bPRMT|\bLEA\.HI|\bSGXT|\bBFE"
"""Loads of one byte from shared memory, and instructions that cut an index of a few bits out."""
EACH_LOOKUP = 3
"""Instructions of a look-up: cutting its index out, the load, and what joins its result."""
SPECIAL, CYCLES = r"\b(?:MUFU|POPC|FLO|BREV|I2F|F2I|F2F)\b", 8
"""Instructions of the pipe of special functions, 16 threads per cycle and SM, and the cycles that
each keeps that of a scheduler busy (CUDA C programming guide, compute capability 7.0 to 9.0)."""
SIDES = r"tl\.where\([^,]+, *(?!tl\.)\w+\([^()]*\), *(?!tl\.)\w+\([^()]*\)\)"
"""A choice between the results of two functions of the program."""
FUNCTIONS = (
    r"(?<!_)\b(?:a?(?:sin|cos|tan)h?|sincos|sinpi|cospi|atan2|pow|cbrt|log1p|expm1|erfc?|[lt]gamma"
    r"|fmod|hypot)f?\("
)
"""Functions of which each call takes tens of instructions (of -use_fast_math, __sinf or __powf a
few), in the text of a line."""
BARRIER, SHARED = r"\bBAR\b", re.compile(r"\b(?P<what>LDS|STS)\b.*\[(?P<address>U?R\d+[^\]]*)\]")
AXIS = r"^\s*\w+ *=.*\btl\.program_id\({axis}\)"
ASSIGNED, NAME = re.compile(r"^\s*([\w, ]+?)\s*(?:[-+*/|&]?=)(?!=)\s*(.*)$"), re.compile(r"\w+")
LOAD = "tl.load("
ELEMENT = re.compile(
    r"tl\.load\((?P<address>[^,()]*(?:\([^()]*\)[^,()]*)*)"
    r"|\b(?P<element>\w+\[[^\[\]=]+\])(?! *[-+*/]?=(?!=))"
)
"""What a line loads: an address of Triton, or an element of an array that is not assigned to."""
LOOP = re.compile(r"^\s*for (\w+) in\b")
AUGMENTED = re.compile(r"^\s*\w+ *[-+*/|&]=(?!=)")
"""The head of a loop of Triton, and an assignment that goes on from what was there."""
RETURNS = r"^@!?U?P\w+\s+EXIT\b"
"""Instructions at which some threads of a kernel end, and others go on."""
RETURNING = 0.1
"""Part of the warps that go on beyond a return up to which nearly all have nothing to do."""
WORK = r"\b(?:BAR|SHFL|REDUX|STG?|STS|RED|ATOM[GS]?)\b"
"""What threads do that have work: they exchange values, or store them."""
IN_LOOP = 2
"""Times that a warp runs an instruction from which on that is in a loop."""


def executed(rows: pd.DataFrame, sass: str) -> float:
    """Return how many instructions of a pattern warps executed, of all that they executed."""
    times = rows["instructions"].fillna(0).astype(float)
    return float(times[rows["sass"].fillna("").str.contains(sass)].sum() / max(1.0, times.sum()))


def of_heap(rows: pd.DataFrame, source: pd.DataFrame, issued: float) -> float:
    """Return the part of all `issued` instructions that are of the heap of the device.

    Its functions are not among the instructions of the kernel, whose lines call them; 0 for others.
    """
    taking = set(source.loc[source["source"].fillna("").str.contains(HEAP), "line"])
    calls = rows["sass"].fillna("").str.contains(OUTSIDE) & rows["line"].isin(taking)
    of_kernel = float(rows["instructions"].fillna(0).sum())
    return max(0.0, 1 - of_kernel / issued) if calls.any() and issued > 0 else 0.0


def of_calls(rows: pd.DataFrame) -> float:
    """Return the part of the instructions that calls through pointers take, which none inlines."""
    return executed(rows, OF_CALLS) if executed(rows, POINTERS) > 0 else 0.0


def of_lookups(rows: pd.DataFrame) -> float:
    """Return the part of the instructions that look bytes up in a table in shared memory.

    The index of such a load was cut out of a word; rows are in the order of the program.
    """
    sass = rows["sass"].fillna("").str.strip().tolist()
    times = rows["instructions"].fillna(0).astype(float).tolist()
    loads = [at for at, text in enumerate(sass) if re.search(BYTES, text)]
    if not loads:
        return 0.0
    wrote = writers(sass, times)
    found = sum(times[at] for at in loads if any(re.search(CUT, sass[by]) for by in wrote[at]))
    return min(1.0, EACH_LOOKUP * found / max(1.0, sum(times)))


def of_sides(rows: pd.DataFrame, source: pd.DataFrame) -> float:
    """Return the part of the instructions that are in functions whose results a choice drops.

    Both sides of a choice (tl.where) are computed. Functions are inlined: they are in other lines
    than those of the kernel itself, from its head to the last choice.
    """
    texts = source["source"].fillna("")
    choices = source.loc[texts.str.contains(SIDES), "line"]
    heads = source.loc[texts.str.contains(r"^\s*def \w+\("), "line"]
    before = heads[heads < choices.min()] if len(choices) else heads[:0]
    if before.empty:
        return 0.0
    inside = rows["line"].between(before.max(), source["line"].max())
    times = rows["instructions"].fillna(0).astype(float)
    return float(times[~inside].sum() / max(1.0, times.sum()))


def of_functions(rows: pd.DataFrame, source: pd.DataFrame) -> float:
    """Return the part of the instructions in lines that call functions of tens of instructions."""
    calling = set(source.loc[source["source"].fillna("").str.contains(FUNCTIONS), "line"])
    times = rows["instructions"].fillna(0).astype(float)
    return float(times[rows["line"].isin(calling)].sum() / max(1.0, times.sum()))


def of_tree(rows: pd.DataFrame) -> float:
    """Return the part of the instructions in levels of a tree: from one barrier of a block to the
    next, each thread joins a number of another one to its own in shared memory.

    Rows are in the order of the program. What stores several numbers exchanges them (a sort).
    """
    sass, times = rows["sass"].fillna(""), rows["instructions"].fillna(0).astype(float)
    found = 0.0
    for _, level in sass.groupby(sass.str.contains(BARRIER).cumsum()):
        accesses = [access for access in map(SHARED.search, level) if access]
        stored = [access["address"] for access in accesses if access["what"] == "STS"]
        loaded = [access["address"] for access in accesses if access["what"] == "LDS"]
        if len(stored) == 1 and len(loaded) == 2 and stored[0] in loaded:
            found += times[level.index].sum()
    return float(found / max(1.0, times.sum()))


def chooses(text: str) -> bool:
    """Tell whether a line chooses between the results of two functions of the program."""
    return bool(re.search(SIDES, text))


def same_loads(source: pd.DataFrame, grid: Iterable[int]) -> float:
    """Return the part of the sectors that programs of Triton load though others load the same.

    The address of such a load depends on nothing that the program's number along an axis of the
    grid does: all along that axis load the same.
    """
    lines = source.sort_values("line")
    texts, touched = lines["source"].fillna(""), lines["sectors"].fillna(0).astype(float)
    largest = 0.0
    for axis, programs in enumerate(grid):
        if programs < 2 or not texts.str.contains(AXIS.format(axis=axis)).any():
            continue
        dependent: set[str] = set()
        alike = 0.0
        for text, sectors in zip(texts, touched, strict=True):
            form = ASSIGNED.match(text)
            value = form[2] if form else text
            depends = f"program_id({axis})" in value or bool(dependent & set(NAME.findall(value)))
            if depends and form:
                dependent |= set(NAME.findall(form[1]))
            elif LOAD in text and not depends:
                alike += sectors
        largest = max(largest, alike * (1 - 1 / programs))
    return largest / max(1.0, float(touched.sum()))


def loaded_again(source: pd.DataFrame) -> float:
    """Return the part of the sectors that a kernel loads though another line has loaded the same.

    A compiler loads once what two lines of one pass read: lines that both touch memory are of two
    passes over the data.
    """
    touched: dict[str, list[float]] = {}
    loading = source[source["sectors"].fillna(0).astype(float) > 0]
    for text, sectors in zip(loading["source"].fillna(""), loading["sectors"], strict=True):
        loaded = {(triton or cuda).replace(" ", "") for triton, cuda in ELEMENT.findall(text)}
        for element in loaded:
            touched.setdefault(element, []).append(float(sectors) / len(loaded))
    again = sum(sum(each) - max(each) for each in touched.values())
    return again / max(1.0, float(loading["sectors"].astype(float).sum()))


def loaded_each_pass(source: pd.DataFrame, rows: pd.DataFrame) -> float:
    """Return the part of the sectors that an inner loop of Triton loads anew in each pass of the
    loop around it, of whose passes their addresses do not depend.

    Texts have no indentation: a loop is within another one where, behind it, the program goes on
    as often as between their heads.
    """
    lines = source.sort_values("line")
    texts = dict(zip(lines["line"], lines["source"].fillna(""), strict=True))
    touched = dict(zip(lines["line"], lines["sectors"].fillna(0).astype(float), strict=True))
    heads: list[int] = [line for line, text in texts.items() if LOOP.match(text)]
    at_line = rows["line"].where(rows["file"].isin(lines["file"])).astype(float)
    times = rows["instructions"].fillna(0).astype(float)
    times /= max(1.0, float(times.iloc[0]))
    loaded: dict[int, float] = {}
    for outer, inner in itertools.combinations(heads, 2):
        between = times[at_line.between(outer, inner, inclusive="left") & times.ge(IN_LOOP)]
        passes = between.min()
        behind = at_line[at_line.gt(inner) & times.eq(passes)]
        body = [line for line in texts if outer < line <= behind.max()]
        if not any(line > inner and touched[line] for line in body):
            continue
        changing = _changing([texts[line] for line in body], LOOP.findall(texts[outer]))
        for line in body:
            addresses = [triton for triton, _ in ELEMENT.findall(texts[line]) if triton.strip()]
            stays = not any(changing & set(NAME.findall(address)) for address in addresses)
            if line > inner and addresses and stays:
                again = touched[line] * (1 - 1 / passes)
                loaded[line] = max(loaded.get(line, 0.0), again)
    return sum(loaded.values()) / max(1.0, sum(touched.values()))


def _changing(texts: Iterable[str], names: Iterable[str]) -> set[str]:
    """Return the names that change from pass to pass of a loop: its own, those that depend on them,
    and those that go on from what they were.
    """
    changing = set(names)
    for text in texts:
        form = ASSIGNED.match(text)
        written = set(NAME.findall(form[1])) if form else set()
        read = set(NAME.findall(form[2])) if form else set()
        if changing & read or written & read or (form and AUGMENTED.match(text)):
            changing |= written
    return changing


def beyond_return(rows: pd.DataFrame) -> float:
    """Return the part of a kernel's samples beyond a first return at which most warps end.

    `rows` are of table `source_instructions`, in the order of the program. NaN where there is no
    such return, or threads have worked until then: in a loop, or by what they exchange or store.
    """
    times, samples = (rows[name].fillna(0).astype(float) for name in ("instructions", "samples"))
    sass = rows["sass"].fillna("")
    beyond = sass.str.contains(RETURNS).shift(fill_value=False).cummax()
    has_worked = times[~beyond].ge(IN_LOOP * times.iloc[0]) | sass[~beyond].str.contains(WORK)
    nearly_all = times[beyond].iloc[:1].le(RETURNING * times.iloc[0]).any()
    if has_worked.any() or not nearly_all or not samples.any():
        return math.nan
    return float(samples[beyond].sum() / samples.sum())
