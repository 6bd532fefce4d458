"""Moves rows about lines of Python along their stacks: to the line of a loop, of who asked, of what
holds the others. Rows are of tables `host_lines`, `launch_lines` or `timed_calls`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, count, records, text

ONE_LINE = 0.99
"""Part of the samples on one line of a function from which on it only calls what takes the time."""
HOLDS = 0.9
"""Part of the samples from which on a line holds what is launched: what is left pays for little."""
LARGE = 0.4
"""Part of the samples from which on a line of the step says more than the line that calls it."""
AGAIN = 10
"""Times that a line ran in the capture from which on it is in a loop."""
FORWARD = "forward"
WAITS_BEFORE = r"StreamWaitEvent"
"""Calls that let a stream wait for another one."""
FILLS = r"(?i)memset"
"""Calls that fill memory: they wait for nothing and bring nothing."""
WAITING, WAITS, MAIN_WAIT = ("waiting", "copying"), 0.1, 0.5
"""What the host does at a line that waits for results, and the part of its samples from which on it
is there for that, or the part of all waits: a line that launches much for each of its waits has few
samples in them."""
FRAME = re.compile(r"(?P<file>.*?):(?P<line>\d+) (?P<function>.*)")
"""A frame as callers have it; names of functions of C++ hold spaces and colons."""
Place = tuple[str, str, int | None]
"""File, function and line."""


def loop_lines(rows: pd.DataFrame, every: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the line of the loop around each in place of its own.

    The loop is in the outermost function of the program in which the samples of `every` lie on
    several lines: what is outside calls it once, what is inside is called again and again.
    """
    stacks = [(_frames(row), count(row["samples"]) or 0) for row in records(every)]
    depth = 0
    while True:
        line, weight = _heaviest(stacks, depth)
        if line is None or weight < ONE_LINE * sum(w for s, w in stacks if len(s) > depth):
            break
        depth += 1
    return _moved(rows, lambda stack: stack[min(depth, len(stack) - 1)])


def asking_lines(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows at the lines that called those of their own.

    A data loader calls code of the program itself: that is where it works, not who waits for it.
    """
    return _moved(rows, lambda stack: stack[-2] if len(stack) > 1 else stack[-1])


def known_lines(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows at the innermost frame whose line is known: a library that is compiled into a
    program has none.
    """
    return _moved(rows, lambda stack: next((f for f in stack[::-1] if f[2]), stack[-1]))


def calling_lines(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows at the nearest other line around each."""
    return _moved(rows, lambda stack: next((f for f in stack[::-1] if f != stack[-1]), stack[-1]))


def entered_again(rows: pd.DataFrame, timed: pd.DataFrame) -> pd.DataFrame:
    """Return rows with those of functions that several lines call, each more often than it runs
    itself, at these calls; `rows` themselves where none is or all are.
    """
    called, hits = calling_lines(rows), timed.groupby(["file", "line"])["hits"].sum().to_dict()
    callers = called["line"].groupby([rows["file"], rows["function"]]).transform("nunique")
    inner, outer = ([*zip(at["file"], at["line"], strict=True)] for at in (rows, called))
    more = [hits.get(at, 0) >= 2 * hits.get(by, 0) > 0 for at, by in zip(inner, outer, strict=True)]
    again = callers.gt(1) & pd.Series(more, rows.index, dtype=bool)
    return rows if again.all() or not again.any() else pd.concat([rows[~again], called[again]])


def holding_lines(rows: pd.DataFrame, counted: str, timed: pd.DataFrame) -> pd.DataFrame:
    """Return rows at the innermost line of a loop that holds nearly all of them, outside of models.

    It is what a graph, or a larger batch, takes in: the call of a step, not a line of it, unless
    that has a large part of it. `timed`
    is table `timed_lines`, which says what runs again and again; where no such line holds so much,
    or nobody knows, rows are outside of models, at the line that calls their function for each of
    several items, if one does.
    """
    again = timed[timed["hits"] >= AGAIN]
    in_loops = set(zip(again["file"], again["line"], strict=True))
    weighed = [(_outside(_frames(row)), count(row[counted]) or 0) for row in records(rows)]
    total, depth, inside = sum(weight for _, weight in weighed), 0, list(weighed)
    found: tuple[int, Place] | None = None
    while True:
        line, weight = _heaviest(inside, depth)
        if line is None or weight < HOLDS * total:
            break
        if (line[0], line[2]) in in_loops:
            found = depth, line
        inside = [(stack, w) for stack, w in inside if stack[depth : depth + 1] == [line]]
        depth += 1

    line, weight = _heaviest(inside, depth)
    if found is not None and found[0] == depth - 1 and line is not None and weight >= LARGE * total:
        found = depth, line

    def holder(stack: list[Place]) -> Place:
        in_loop = found is not None and stack[found[0] : found[0] + 1] == [found[1]]
        return found[1] if found is not None and in_loop else repeating(_outside(stack))

    repeating = _repeating(timed)
    return _moved(rows, holder)


def _repeating(timed: pd.DataFrame) -> Callable[[list[Place]], Place]:
    """Return what gives the innermost line of a stack that calls what is in it again and again each
    time that it runs, in a comprehension or by map, else the innermost of all.
    """
    ordered = timed.sort_values("line")
    runs = ordered.groupby(["file", "line"])["hits"].sum().to_dict()
    first = ordered.drop_duplicates(["file", "function"])  # a loop is not run once for each call
    first = first[first["source"].fillna("").str.contains(r"^(?!for |while )\S")]
    entered = first.set_index(["file", "function"])["hits"].to_dict()

    def is_of_items(caller: Place, called: Place) -> bool:
        times = runs.get((caller[0], caller[2]), 0)
        return bool(0 < AGAIN * times <= entered.get(called[:2], 0))

    def line_of(stack: list[Place]) -> Place:
        calls = reversed(list(zip(stack, stack[1:], strict=False)))
        return next((caller for caller, called in calls if is_of_items(caller, called)), stack[-1])

    return line_of


def called_rows(calls: pd.DataFrame, doing: Sequence[str]) -> pd.DataFrame:
    """Return rows of table `timed_calls` of activities, as rows of table `host_lines`.

    A sample is a microsecond: of copies one of the GPU, else one of the host. Copies that follow,
    in the same function, a wait of their stream for another one are at the line of that wait: they
    could overlap if it waited for less. Waits are those that come again: the one for all work, at
    the end of a program, holds nothing up.
    """
    is_fill = calls["call"].fillna("").str.contains(FILLS)
    rows = calls[calls["activity"].isin(doing) & ~is_fill]
    if tuple(doing) == ("copying",):
        waits = calls[calls["call"].fillna("").str.contains(WAITS_BEFORE)]
        rows = rows[rows["copy"] != ""]
        each = [_waiting_first(rows.iloc[[at]], waits) for at in range(len(rows))]
        rows = pd.concat(each) if each else rows
        time = rows["gpu_ns"]
    else:
        again = rows["activity"].ne("waiting") | rows["calls"].gt(1)
        rows = rows[again] if again.any() else rows
        time = rows["time_ns"]
    samples = np.ceil(time.astype(float) / 1000).astype(int)
    empty = {name: "" for name in ("stage", "nvtx_range", "inner", "work")}
    return rows.assign(samples=samples, idle_samples=0, **empty)


def of_waits(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of table `host_lines` of the lines at which the host waits for the GPU."""
    if rows.empty:
        return rows
    waits = rows["activity"].isin(WAITING)
    places = [rows[name] for name in ("file", "line")]
    every = rows["samples"].groupby(places, dropna=False).transform("sum")
    waited = (rows["samples"] * waits).groupby(places, dropna=False).transform("sum")
    surely = (rows["activity"] == "waiting").groupby(places, dropna=False).transform("any")
    main = waited > MAIN_WAIT * (rows["samples"] * waits).sum()
    return rows[surely & (main | (waited >= WAITS * every))]


def with_callers(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with, below them, the same rows at each line around theirs, the innermost first.

    The index stays that of the row, column `depth` is the number of calls between.
    """
    inward = [_frames(row)[::-1] for row in records(rows)]
    found = []
    for depth in range(max(map(len, inward), default=0)):
        chosen = [len(stack) > depth for stack in inward]
        frames = [stack[depth] for stack in inward if len(stack) > depth]
        files, functions, lines = zip(*frames, strict=True)
        found.append(rows[chosen].assign(file=files, function=functions, line=lines, depth=depth))
    return pd.concat(found) if found else rows.assign(depth=0)


def _waiting_first(row: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    for name in ("file", "function", "callers"):
        waits = waits[waits[name] == row[name].iloc[0]]
    waits = waits[(waits["line"] < row["line"].iloc[0]) & (waits["calls"] >= row["calls"].iloc[0])]
    if waits.empty:
        return row
    first = waits.sort_values("line").iloc[-1]
    return row.assign(line=first["line"], source=first["source"])


def _outside(stack: list[Place]) -> list[Place]:
    inside = next((at for at, frame in enumerate(stack) if frame[1] == FORWARD), len(stack))
    return stack[: max(inside, 1)]


def _heaviest(stacks: Sequence[tuple[list[Place], int]], depth: int) -> tuple[Place | None, int]:
    """Return the line with the most samples among frames of a depth, and these."""
    lines: dict[Place, int] = {}
    for stack, weight in stacks:
        if len(stack) > depth:
            lines[stack[depth]] = lines.get(stack[depth], 0) + weight
    line = max(lines, key=lines.__getitem__, default=None)
    return line, 0 if line is None else lines[line]


def _moved(rows: pd.DataFrame, frame_of: Callable[[list[Place]], Place]) -> pd.DataFrame:
    places = [frame_of(_frames(row)) for row in records(rows)]
    if not places:
        return rows
    columns = zip(("file", "function", "line"), zip(*places, strict=True), strict=True)
    return rows.assign(**{name: list(values) for name, values in columns}, source="")


def _frames(row: Row) -> list[Place]:
    """Return file, function and line of the program's frames of a row, outermost first."""
    innermost = (text(row["file"]), text(row["function"]), count(row["line"]))
    around = []
    for caller in filter(None, text(row["callers"]).split(" < ")):
        if frame := FRAME.match(caller):
            around.append((frame["file"], frame["function"], int(frame["line"]) or None))
    return [*reversed(around), innermost]
