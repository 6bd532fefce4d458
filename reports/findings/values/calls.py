"""Operators of table `operator_values` as rules look at them: by kind, stack and repetition."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.parsers.run.run import Run, once

Place = tuple[str, str, int]
"""File, function and line of a frame."""
VIEWS = re.compile(
    r"aten::(?:_?reshape\w*|_unsafe_view|alias|as_strided|chunk|detach|diagonal|expand(?:_as)?|flatten"
    r"|imag|lift_fresh|m?T|mH|movedim|narrow|numpy_T|permute|real|result_type|select|slice|split\w*"
    r"|squeeze|swap\w+|t|transpose|unbind|unflatten|unfold|unsqueeze|view\w*|to|contiguous"
    r"|resolve_\w+|is_\w+|size|stride|_local_scalar_dense|item)$|(?:profiler|prim)::\w+$"
)
"""Operators that compute nothing: another look at memory, or a question about it."""
MAKES = re.compile(r"aten::(?:new_)?(?:zeros|ones|full|empty|clone|scalar_tensor)(?:_\w+)?$")
"""Memory to be written into: a fresh one each time is what the program asks for."""
IN_PLACE = re.compile(r"\w_$|::copy_|_out$")
PRODUCTS = re.compile(
    r"aten::(?:(?:add)?mm|(?:b?add)?bmm|addmv|mv|dot|matmul|linear|_?convolution\w*|conv[123]d"
    r"|cudnn_conv\w*|einsum|_scaled_mm|_int_mm)$"
)
"""Operators whose time goes with the size of each operand."""
DEAR = re.compile(
    PRODUCTS.pattern[:-1] + r"|aten::(?:_\w*attention\w*|\w*sort|topk|_?fft\w*|_?linalg\w*)"
)
"""Operators that are worth a variable for a result which another line has, too."""
SORTS = re.compile(r"aten::(?:arg)?sort$")
FRESH = 0.1
"""Part of the time of all operators that has inputs as new as those of the step."""
HALF = 0.5
"""Part of the new inputs of the step up to which an operator repeats its work."""
RARE = 0.25
"""The same where nobody knows that it comes several times in a step."""
ALIKE = 0.9
"""Calls from one to the next with equal inputs, over distinct inputs: what comes in turn has 1."""
OFTEN = 4
"""Calls from which on it does."""


@once
def operator_calls(run: Run) -> pd.DataFrame:
    """Return the rows of table `operator_values` with what rules ask of them.

    `stack`: frames of the program, the outermost first. `is_work`: it computes, in memory of its
    own; `changes`: in that of others. `fresh`: new inputs per call of the operators that take the
    time. `repeated`: the part of its calls beyond those, where it repeats its work, else 0.
    `before`: the frames of the place that did it first, the innermost first, where that is another
    one. `is_of_batch`: it is the same in all steps of a training, whose weights are not: a batch
    may be what repeats. `of_numbers`: it takes no tensor but those that a line which leads to it
    makes of numbers, so that other data change nothing.
    """
    rows = run.operator_values
    rows = rows[rows["file"].fillna("") != ""].reset_index(drop=True)
    name = rows["operator"].fillna("")
    changes = name.str.contains(IN_PLACE)
    is_view = name.str.fullmatch(VIEWS)
    share = rows["distinct_inputs"].astype(float) / rows["calls"].astype(float)
    rows = rows.assign(
        stack=pd.Series([_stack(row) for row in records(rows)], rows.index, dtype=object),
        time_ns=rows["time_ns"].astype(float).fillna(0.0),
        changes=changes,
        is_work=~is_view & ~changes & ~name.str.fullmatch(MAKES),
        is_random=rows["random"].fillna(False).astype(bool)
        & ~(rows["distinct_results"] <= rows["distinct_inputs"]).fillna(False).astype(bool),
        new=share,
    )
    often = rows["calls"].ge(OFTEN)
    is_number = (
        rows[["input_shapes", "result_shapes"]].map(elements).max(axis=1) <= 1
    )  # sums of all
    fresh = _fresh(rows[rows["is_work"] & often & ~is_number])
    rows = rows.assign(fresh=rows["process"].map(fresh).astype(float).fillna(0.0))
    can_be = rows["direction"].eq("forward") & ~rows["is_random"] & often
    again = can_be & (rows["new"] <= HALF * rows["fresh"]) & _comes_again(rows)
    again &= ~_by_chance(rows, again)
    of_numbers = _of_numbers(rows)
    again |= can_be & of_numbers & (rows["new"] <= HALF)
    elsewhere = rows["elsewhere"].astype(float) / rows["calls"].astype(float)
    is_second = can_be & (elsewhere >= HALF) & ~again
    fraction = 1 - rows["new"] / rows["fresh"].mask(of_numbers, 1.0)
    fraction = fraction.mask(is_second, elsewhere)
    trained = rows["process"].map(rows["direction"].eq("optimizer").groupby(rows["process"]).any())
    return rows.assign(
        is_repeated=again,
        is_of_batch=again & trained & (_per_step(rows) < 2) & ~of_numbers,
        of_numbers=of_numbers,
        same=again | is_second,
        repeated=fraction.where((again | is_second) & rows["is_work"], 0.0),
        before=pd.Series(
            [_frames(cell) for cell in rows["earlier_at"].where(is_second, "")],
            rows.index,
            dtype=object,
        ),
    )


def differentiated(run: Run, file: str, line: int) -> Place | None:
    """Return where the operator ran whose gradient takes most of the time at a line that derives.

    A gradient takes what is of the shape of a result and gives what is of that of an input. None
    where no operator has most of the time, or operators of several lines fit.
    """
    if run.operator_values.empty:
        return None
    rows = operator_calls(run)
    at_line = rows[rows["file"].eq(file) & rows["line"].eq(line) & rows["direction"].eq("backward")]
    if at_line.empty or at_line["time_ns"].max() <= HALF * at_line["time_ns"].sum():
        return None
    gradient = records(at_line.nlargest(1, "time_ns"))[0]
    taken, given = (_shapes(gradient[name]) for name in ("input_shapes", "result_shapes"))
    forward = rows[rows["direction"].eq("forward") & rows["is_work"]]
    places = {
        (text(row["file"]), text(row["function"]), int(number(row["line"])))
        for row in records(forward)
        if _shapes(row["result_shapes"]) & taken and _shapes(row["input_shapes"]) & given
    }
    return places.pop() if len(places) == 1 else None


def _shapes(cell: object) -> set[str]:
    return {json.dumps(shape) for shape in json.loads(text(cell) or "[]")}


def _fresh(rows: pd.DataFrame) -> dict[int, float]:
    """Return by process the new inputs per call that a part FRESH of the time has, or more."""
    found = {}
    for process, every in rows.groupby("process"):
        each = every[every["new"].notna()].sort_values("new", ascending=False, kind="stable")
        fractions = each["time_ns"].cumsum() / every["time_ns"].sum()
        above = each.loc[fractions >= FRESH, "new"]
        found[int(number(process))] = float(above.iloc[0]) if len(above) else 0.0
    return found


def _comes_again(rows: pd.DataFrame) -> pd.Series[bool]:
    """Tell which operators see the same inputs within a step, or in all steps.

    Those of a step may come again in another one where batches take turns, which is no defect. A
    step is what comes as often as the operator with the fewest calls, and again and again; where
    all come as often, what has new inputs that rarely repeats within something smaller.
    """
    per_step = _per_step(rows)
    distinct = rows["distinct_inputs"].astype(float)
    in_turn = rows["apart"].astype(float) >= ALIKE * distinct
    is_rare = (per_step >= 2) | (rows["new"] <= RARE * rows["fresh"])
    return (distinct <= per_step) | (is_rare & ~in_turn)


def _per_step(rows: pd.DataFrame) -> pd.Series[float]:
    often = rows[rows["calls"].ge(OFTEN)]
    steps = rows["process"].map(often.groupby("process")["calls"].min())
    return rows["calls"].astype(float) / steps.astype(float)


def _by_chance(rows: pd.DataFrame, again: pd.Series[bool]) -> pd.Series[bool]:
    """Tell which operators have equal inputs only since what makes these gives equal results for
    other inputs (comparisons, indices), and all that comes of them: nobody knows that before.
    """
    site = _sites(rows)
    reader = rows["read_by"].map(_reader)
    distinct = rows["distinct_inputs"].astype(float)
    known = {key for key, each in again.groupby(site) if each.all()}
    highest = distinct.groupby(site).max().to_dict()
    calls = rows["calls"].astype(float).groupby(site).max().to_dict()
    chance = {
        to
        for to, d, n, is_same in zip(reader, distinct, rows["calls"], again, strict=True)
        if to in known and not is_same and d > highest[to] and n >= calls[to]
    }
    while more := set(reader[site.isin(chance)]) & known - chance:
        chance |= more
    return site.isin(chance)


def _of_numbers(rows: pd.DataFrame) -> pd.Series[bool]:
    """Tell which operators are of a line within which nothing takes a tensor from outside."""
    lines: dict[tuple[Place, ...], list[int]] = {}
    for at, stack in rows["stack"].items():
        for depth in range(1, len(stack) + 1):
            lines.setdefault(stack[:depth], []).append(int(str(at)))
    found = set[int]()
    readers, sites = rows["read_by"].map(_reader), _sites(rows)
    for inside in lines.values():
        if not found.issuperset(inside) and _makes_all(rows.loc[inside], readers, sites):
            found |= {*inside}
    return pd.Series(rows.index.isin(found), rows.index)


def _makes_all(rows: pd.DataFrame, readers: pd.Series[str], sites: pd.Series[str]) -> bool:
    """Tell whether operators begin with one that takes no tensor and go on with results of each
    other: a tensor that they take has the size and type of such a result, and what reads the
    results is known of all but one.
    """
    results = set[tuple[int, str]]()
    begins = False
    outside = readers.drop(index=rows.index)
    if outside.isin(set(sites[rows.index])).any():
        return False
    for at, row in zip(rows.index, records(rows), strict=True):
        takes = _tensors(row, "input")
        read = int((readers[rows.index] == sites[at]).sum())
        if not results.issuperset(takes) or len(takes) - read > 1 or row["is_random"]:
            return False
        begins |= bool(row["is_work"]) and not takes
        results |= {*_tensors(row, "result")}
    return begins


def _tensors(row: Row, which: str) -> list[tuple[int, str]]:
    """Return the elements and the type of each tensor that an operator takes or returns."""
    shapes = json.loads(text(row[f"{which}_shapes"]) or "[]")
    types = dtypes(row[f"{which}_dtypes"])
    return [(int(np.prod(shape)), of) for shape, of in zip(shapes, types, strict=False)]


def _sites(rows: pd.DataFrame) -> pd.Series[str]:
    """Return operator and line of each row, as of the reader of a result."""
    at = zip(rows["operator"], rows["file"], rows["line"], strict=True)
    return pd.Series([f"{o} {f}:{n}" for o, f, n in at], rows.index)


def operands(cell: object) -> list[float]:
    """Return the numbers of a cell with a JSON list, NaN where unknown."""
    listed = json.loads(text(cell) or "[]") or []
    return [np.nan if value is None else float(value) for value in listed]


def dtypes(cell: object) -> list[str]:
    """Return the types of a cell with a JSON list."""
    return [str(value) for value in json.loads(text(cell) or "[]")]


def elements(cell: object) -> int:
    """Return the elements of the largest tensor of a cell with shapes as JSON."""
    shapes = json.loads(text(cell) or "[]")
    return max((int(np.prod(shape)) for shape in shapes if shape is not None), default=0)


def _reader(cell: object) -> str:
    """Return the operator and line of a cell with who reads a result."""
    by = json.loads(text(cell) or "null") or {}
    return f"{by['operator']} {by['file']}:{by['line']}" if by else ""


def _frames(cell: object) -> list[Place]:
    """Return the frames of a cell, innermost first."""
    listed = json.loads(text(cell) or "null") or []
    return [(str(f["file"]), str(f["function"]), int(f["line"] or 0)) for f in listed]


def _stack(row: Any) -> tuple[Place, ...]:
    innermost = (text(row["file"]), text(row["function"]), int(number(row["line"]) or 0))
    return (*reversed(_frames(row["callers"])), innermost)


def hoisted(
    rows: pd.DataFrame, fraction: float, is_all: Callable[[Sequence[Place], set[Place]], bool]
) -> dict[Place, list[int]]:
    """Return the outermost frames at which work is repeated, each with the index of its operators;
    of what comes of numbers the innermost one around all of it.

    That is a line below which at least `part` of the time is repeated, a line that calls a function
    of which so much is, and a line whose own operators are repeated beside others. `is_all` tells
    whether what a trace shows within frames is launched at some lines: not all is recorded.
    """
    stacks, is_work = rows["stack"].to_dict(), rows["is_work"].to_dict()
    counts = rows["is_work"] | rows["changes"]
    same = (rows["same"] | ~counts).to_dict()
    time = rows["time_ns"].where(counts, 0.0).to_dict()
    alone = rows["is_repeated"] | rows["operator"].str.fullmatch(DEAR)
    found: dict[Place, list[int]] = {}

    def repeats(inside: Sequence[int], frames: Sequence[Place]) -> list[int]:
        """Return those that repeat, where they are nearly all."""
        again = [at for at in inside if same[at]]
        enough = sum(time[at] for at in again) >= fraction * sum(time[at] for at in inside)
        enough = enough and is_all(frames, {stacks[at][-1] for at in again})
        return [at for at in again if is_work[at]] if enough else []

    def visit(index: Sequence[int], depth: int) -> None:
        for site, inside in grouped(index, lambda at: stacks[at][depth]).items():
            deeper = [at for at in inside if len(stacks[at]) > depth + 1]
            if deeper and (again := repeats(inside, [site])):
                found.setdefault(_innermost(rows, inside, depth), []).extend(again)
                continue
            again = [
                at for at in inside if is_work[at] and same[at] and alone[at] and at not in deeper
            ]
            for function, called in grouped(deeper, lambda at: stacks[at][depth + 1][:2]).items():
                if complete := repeats(called, [site, (*function, 0)]):
                    found.setdefault(_innermost(rows, called, depth), []).extend(complete)
                else:
                    visit(called, depth + 1)
            if again:
                found.setdefault(site, []).extend(again)

    visit([*map(int, rows.index)], 0)
    return found


def _innermost(rows: pd.DataFrame, inside: Sequence[int], depth: int) -> Place:
    """Return the line at a depth of stacks, or of what comes of numbers the innermost one that
    leads to all: its arguments are all that the result depends on.
    """
    stacks = rows.loc[[*inside], "stack"]
    while rows.loc[[*inside], "of_numbers"].all() and stacks.str.len().gt(depth + 2).all():
        if stacks.str[depth + 1].nunique() > 1:
            break
        depth += 1
    frame: Place = stacks.iloc[0][depth]
    return frame


def grouped(index: Iterable[int], key: Callable[[int], Any]) -> dict[Any, list[int]]:
    """Return what has the same key."""
    groups: dict[Any, list[int]] = {}
    for at in index:
        groups.setdefault(key(at), []).append(at)
    return groups
