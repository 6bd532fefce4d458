"""Reads what targets/value_profiler recorded: tables `operator_values` and `value_profiles`.

The file has a JSON object a line: `start`; a `stack` for each place; an `operator` for each kind of
call; the `call`s, whose numbers of inputs and results are equal where the values are; `end`.
"""

from __future__ import annotations

import gzip
import json
import lzma
import statistics
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.directory import most_unpacked

VALUES = "values.jsonl.gz"
TENSORS = 16
"""Tensors whose shapes a cell lists."""
VERSION = 1
LARGEST = 1 << 62


@dataclass
class _Calls:
    """An operator as it was called, and its calls from one stack.

    `earlier`: operators and stacks that had the inputs of a call before it.
    """

    row: Row
    inputs: list[int | None] = field(default_factory=list)
    results: list[int | None] = field(default_factory=list)
    zeros: list[list[float | None]] = field(default_factory=list)
    zero_rows: list[list[float | None]] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    readers: Counter[int] = field(default_factory=Counter)
    earlier: Counter[tuple[int, int]] = field(default_factory=Counter)
    time_ns: list[int | None] = field(default_factory=list)


def read_values(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return tables `operator_values` and `value_profiles` of a recording (.gz, .xz or unpacked).

    Raises:
        ArtifactUnreadable: the file is cut off, damaged, or of another recorder.
    """
    try:
        with _open(path) as stream:
            return _tables(_lines(stream, most_unpacked(path)))
    except (
        *(OSError, EOFError, lzma.LZMAError, zlib.error, ValueError, TypeError, LookupError),
        *(RecursionError, MemoryError, AttributeError, OverflowError),
    ) as error:
        raise ArtifactUnreadable(
            f"{path} cannot be read as recorded values: {type(error).__name__}: {error}",
            "record them again, or leave the step out: prof run RECIPE --set values.enabled=false",
        ) from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _lines(stream: IO[str], limit: int) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of no more characters than a recording may have."""
    while line := stream.readline(limit):
        limit -= len(line)
        if limit <= 0:
            raise ValueError("it is longer than any recording")
        found = json.loads(line, parse_constant=_refuse)
        if not isinstance(found, dict):
            raise ValueError(f"a line holds {type(found).__name__}, and no object")
        yield found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no value of a recording")


def _tables(lines: Iterator[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    start = next(lines, {})
    if start.get("kind") != "start" or start.get("version") != VERSION:
        raise ValueError("it does not begin as a recording of values")
    process = _count(start["pid"])
    stacks: list[list[Row]] = []
    operators: list[Row] = []
    groups: dict[tuple[int, int], _Calls] = {}
    first: dict[tuple[str, int], tuple[int, int]] = {}
    end: dict[str, Any] | None = None
    for line in lines:
        kind = line.get("kind")
        if end is not None:
            raise ValueError("it goes on behind its end")
        if kind == "stack":
            stacks.append([_frame(frame) for frame in line["frames"]])
        elif kind == "operator":
            operators.append(_operator(line, process))
        elif kind == "call":
            at = _key(line, len(operators), len(stacks))
            _add(groups.setdefault(at, _Calls(operators[at[0]])), line, len(operators))
            if (inputs := line["inputs"]) is not None:
                before = first.setdefault((operators[at[0]]["operator"], inputs), at)
                groups[at].earlier[before] += before != at
        elif kind == "end":
            end = line
    if end is None:
        raise ValueError("its end is missing")
    rows = [
        _row(calls, operators, stacks) | {"callers": json.dumps(stacks[stack][1:])}
        for (_, stack), calls in groups.items()
    ]
    return _frame_of(rows, "operator_values"), _frame_of([_profile(start, end)], "value_profiles")


def _frame_of(rows: Sequence[Row], table: str) -> pd.DataFrame:
    columns = [column.name for column in tables.tables()[table]]
    return tables.check(pd.DataFrame(rows, columns=columns), table)


def _operator(line: dict[str, Any], process: int) -> Row:
    file, function, number = line["place"] or ("", "", None)
    tensors = {
        f"{side}_{what}": json.dumps([_tensor(tensor)[at] for tensor in line[sides][:TENSORS]])
        for side, sides in (("input", "inputs"), ("result", "results"))
        for at, what in enumerate(("shapes", "dtypes"))
    }
    return {
        "process": process,
        "operator": _text(line["operator"]),
        "direction": _text(line["direction"]),
        **{"file": _text(file), "function": _text(function)},
        "line": None if number is None else _count(number),
        **tensors,
        **{name: _truth(line[name]) for name in ("random", "sampled")},
    }


def _key(line: dict[str, Any], operators: int, stacks: int) -> tuple[int, int]:
    """Return the numbers of the operator and of the stack of a call."""
    operator, stack = _count(line["operator"]), _count(line["stack"])
    if operator >= operators or stack >= stacks:
        raise ValueError("a call names what is not there")
    return operator, stack


def _add(calls: _Calls, line: dict[str, Any], operators: int) -> None:
    """Add a call, all of whose numbers are checked."""
    reader = _optional(line["reader"])
    if reader is not None and reader >= operators:
        raise ValueError("a call names what is not there")
    if reader is not None:
        calls.readers[reader] += 1
    calls.inputs.append(_optional(line["inputs"]))
    calls.results.append(_optional(line["results"]))
    calls.time_ns.append(_optional(line["ns"]))
    for name in ("zeros", "zero_rows"):
        if line[name]:
            getattr(calls, name).append([_share(value) for value in line[name][:TENSORS]])
    if (share := _share(line["read"])) is not None:
        calls.shares.append(share)


def _row(calls: _Calls, operators: list[Row], stacks: list[list[Row]]) -> Row:
    reader = max(calls.readers, key=calls.readers.__getitem__, default=None)
    read_by = None if reader is None else operators[reader]
    elsewhere = calls.earlier.total()
    earlier = max(calls.earlier, key=calls.earlier.__getitem__) if elsewhere else None
    times, calls_made = [time for time in calls.time_ns if time is not None], len(calls.time_ns)
    return calls.row | {
        "calls": calls_made,
        "distinct_inputs": _distinct(calls.inputs),
        "distinct_results": _distinct(calls.results),
        "apart": _distance(calls.inputs),
        "elsewhere": elsewhere if None not in calls.inputs else None,
        "earlier_at": json.dumps(earlier and stacks[earlier[1]]),
        "zeros": json.dumps(_means(calls.zeros)),
        "zero_rows": json.dumps(_means(calls.zero_rows)),
        "results_read": statistics.fmean(calls.shares) if calls.shares else None,
        "read_by": json.dumps(
            read_by and {name: read_by[name] for name in ("operator", "file", "function", "line")}
        ),
        # The median: in its first call a kernel is loaded.
        "time_ns": round(statistics.median(times) * len(times))
        if len(times) == calls_made
        else None,
    }


def _distance(numbers: Sequence[int | None]) -> float | None:
    """Return how many calls lie from one to the next with equal inputs, the median."""
    last: dict[int, int] = {}
    found = []
    for at, number in enumerate(numbers):
        if number is not None:
            if number in last:
                found.append(at - last[number])
            last[number] = at
    return statistics.median(found) if found else None


def _distinct(numbers: Sequence[int | None]) -> int | None:
    return None if None in numbers else len(set(numbers))


def _means(measured: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return the mean of each tensor over the calls that measured it."""
    columns = [[x for x in column if x is not None] for column in zip(*measured, strict=True)]
    return [statistics.fmean(column) if column else None for column in columns]


def _profile(start: dict[str, Any], end: dict[str, Any]) -> Row:
    missed = {_text(name): _count(number) for name, number in end["not_recorded"].items()}
    return {
        "process": start["pid"],
        "torch": _text(start["torch"]),
        "device": _text(start["device"]),
        "operators": _count(end["operators"]),
        "seconds": _number(end["seconds"]),
        "ended": _text(end["ended"]),
        "not_recorded": json.dumps(missed),
        "error": _text(end["error"]),
    }


def _frame(frame: Any) -> Row:
    file, function, line = frame
    return {"file": _text(file), "function": _text(function), "line": _count(line)}


def _tensor(tensor: Any) -> tuple[list[int], str]:
    shape, dtype = tensor
    return [_count(size) for size in shape], _text(dtype)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST:
        raise ValueError(f"{value!r} is no count")
    return value


def _optional(value: Any) -> int | None:
    return None if value is None else _count(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < LARGEST:
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _share(value: Any) -> float | None:
    if value is not None and not 0 <= _number(value) <= 1:
        raise ValueError(f"{value!r} is no share")
    return None if value is None else float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value
