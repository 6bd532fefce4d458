"""Operators of table `operator_values` as rules look at them: by kind, stack and repetition."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import number, records, text
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
SORTS = re.compile(r"aten::(?:arg)?sort$")
FRESH = 0.25
"""Part of the time of all operators that has inputs as new as those of the step."""
HALF = 0.5
"""Part of the new inputs of the step up to which an operator repeats its work."""
OFTEN = 4
"""Calls from which on it does."""


@once
def operator_calls(run: Run) -> pd.DataFrame:
    """Return the rows of table `operator_values` with what rules ask of them.

    `stack`: frames of the program, the outermost first. `is_work`: it computes, in memory of its
    own. `fresh`: new inputs per call of the operators that take the time. `repeated`: the part of
    its calls beyond those, where it repeats its work, else 0.
    """
    rows = run.operator_values
    rows = rows[rows["file"].fillna("") != ""].reset_index(drop=True)
    name, forward = rows["operator"].fillna(""), rows["direction"].eq("forward")
    changes = name.str.contains(IN_PLACE)
    is_view = name.str.fullmatch(VIEWS)
    share = rows["distinct_inputs"].astype(float) / rows["calls"].astype(float)
    rows = rows.assign(
        stack=pd.Series([_stack(row) for row in records(rows)], rows.index, dtype=object),
        time_ns=rows["time_ns"].astype(float),
        is_work=~is_view & ~changes & ~name.str.fullmatch(MAKES),
        is_random=rows["random"].fillna(False).astype(bool)
        & ~(rows["distinct_results"] <= rows["distinct_inputs"]).fillna(False).astype(bool),
        new=share,
    )
    rows = rows.assign(fresh=rows["process"].map(_fresh(rows[~is_view])).fillna(0.0))
    again = rows["new"] <= HALF * rows["fresh"]
    again &= forward & ~rows["is_random"] & rows["calls"].ge(OFTEN) & ~_in_turn(rows)
    again = again.fillna(False).astype(bool)
    return rows.assign(
        same=again, repeated=(1 - rows["new"] / rows["fresh"]).where(again & rows["is_work"], 0.0)
    )


def _fresh(rows: pd.DataFrame) -> dict[int, float]:
    """Return by process the new inputs per call that a part FRESH of the time has, or more."""
    found = {}
    for process, each in rows[rows["new"].notna()].groupby("process"):
        each = each.sort_values("new", ascending=False, kind="stable")
        parts = each["time_ns"].cumsum() / rows.loc[rows["process"].eq(process), "time_ns"].sum()
        above = each.loc[parts >= FRESH, "new"]
        found[int(number(process))] = float(above.iloc[0]) if len(above) else 0.0
    return found


def _in_turn(rows: pd.DataFrame) -> pd.Series[bool]:
    """Tell which operators see inputs that come in turn (batches), not the same in each step.

    A step is what comes as often as the operator with the fewest calls, and again and again. Where
    the inputs of all come in turn, `fresh` says so.
    """
    often = rows[rows["calls"].ge(OFTEN)]
    steps = rows["process"].map(often.groupby("process")["calls"].min())
    per_step = rows["calls"].astype(float) / steps.astype(float)
    distinct = rows["distinct_inputs"].astype(float)
    return (distinct > per_step) & (distinct < steps) & (rows["fresh"] > 2 * rows["new"])


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


def _stack(row: Any) -> tuple[Place, ...]:
    callers = json.loads(text(row["callers"]) or "[]")
    frames = [(str(f["file"]), str(f["function"]), int(f["line"] or 0)) for f in callers]
    innermost = (text(row["file"]), text(row["function"]), int(number(row["line"]) or 0))
    return (*reversed(frames), innermost)


def hoisted(rows: pd.DataFrame, part: float) -> dict[Place, list[int]]:
    """Return the outermost frames at which work is repeated, each with the index of its operators.

    That is a line below which at least `part` of the time is repeated, a line that calls a function
    of which so much is, and a line whose own operators are repeated beside others.
    """
    rows = rows[rows["is_work"]]
    stacks, same, time = (rows[name].to_dict() for name in ("stack", "same", "time_ns"))
    found: dict[Place, list[int]] = {}

    def repeats(inside: Sequence[int]) -> list[int]:
        """Return those that repeat, where they are nearly all."""
        again = [at for at in inside if same[at]]
        enough = sum(time[at] for at in again) >= part * sum(time[at] for at in inside)
        return again if enough else []

    def visit(index: Sequence[int], depth: int) -> None:
        for place, inside in grouped(index, lambda at: stacks[at][depth]).items():
            if again := repeats(inside):
                found.setdefault(place, []).extend(again)
                continue
            deeper = [at for at in inside if len(stacks[at]) > depth + 1]
            again = [at for at in inside if same[at] and at not in deeper]
            for called in grouped(deeper, lambda at: stacks[at][depth + 1][:2]).values():
                if whole := repeats(called):
                    again += whole
                else:
                    visit(called, depth + 1)
            if again:
                found.setdefault(place, []).extend(again)

    visit([*map(int, rows.index)], 0)
    return found


def grouped(index: Iterable[int], key: Callable[[int], Any]) -> dict[Any, list[int]]:
    """Return what has the same key."""
    groups: dict[Any, list[int]] = {}
    for at in index:
        groups.setdefault(key(at), []).append(at)
    return groups
