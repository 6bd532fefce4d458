"""Reads the kernel summary that `nsys stats` printed, as CSV or as a text table, of any version.

Reports `gpukernsum` (to 2022), `cuda_gpu_kern_sum` and `cuda_gpu_kern_gb_sum`; heads such as
`Time(%)`, `Time (%)`, `Total Time (ns)`, `Total Time (ms)`, `Average`, `Avg (ns)`, `Kernel`.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels
from nsight_prof.parsers.names.kernel_names import classify, kernel_id
from nsight_prof.parsers.nsys.kern_sums import added
from nsight_prof.parsers.numbers import Marks, decimal_mark
from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.run.directory import plain_file
from nsight_prof.parsers.text import decode

_NS = {"ns": 1, "nsec": 1, "us": 1e3, "usec": 1e3, "ms": 1e6, "msec": 1e6, "s": 1e9, "sec": 1e9}
_HEADS = {
    "time": "percent",
    "total time": "total_ns",
    "instances": "calls",
    "avg": "mean_ns",
    "average": "mean_ns",
    "med": "median_ns",
    "median": "median_ns",
    "min": "min_ns",
    "minimum": "min_ns",
    "max": "max_ns",
    "maximum": "max_ns",
    "stddev": "std_ns",
    "name": "name",
    "kernel": "name",
    "kernel name": "name",
    "gridxyz": "grid",
    "blockxyz": "block",
}
_NEEDED = {"total_ns", "calls", "name"}
_HEAD = re.compile(r"([A-Za-z_ ]+?)\s*(?:\(([^)]*)\))?")
# Where they are in ns they have no decimals; averages, medians and deviations have one.
_WHOLE_NS = {"total_ns", "min_ns", "max_ns"}
# A name may be longer than csv's own limit of a field.
csv.field_size_limit(1 << 30)
# What nsys stats says between two tables.
_STARTS_ANOTHER = re.compile(r"\s*(?:Processing \[|SKIPPED: |Generating |\*\* )")
NO_KERNELS = "does not contain CUDA kernel data"
_HINT = "make it with: nsys stats -r cuda_gpu_kern_sum --format csv trace.nsys-rep"
_TRACE_CUDA = "trace CUDA: nsys profile -t cuda,nvtx …"


@dataclass(frozen=True)
class KernelSummary:
    """Table `kernels`, and sentences on how it came about: several summaries in one text."""

    kernels: pd.DataFrame
    notes: list[str]


@dataclass(frozen=True)
class _Table:
    """One kernel summary within a text; `line` is that of its head, counted from 1."""

    line: int
    heads: list[str]
    rows: list[list[str]]


def read_kern_sum(path: Path) -> pd.DataFrame:
    """Read a kernel summary as table `kernels`; what it does not tell stays empty.

    Raises:
        ArtifactUnreadable: no kernel summary, or a damaged one.
        NoKernels: a summary of a trace without kernels.
    """
    return read_kernel_summary(path).kernels


def read_kernel_summary(path: Path) -> KernelSummary:
    """Read a kernel summary as `read_kern_sum` does, with what is to be said of it."""
    try:
        with plain_file(path) as unpacked:
            data = unpacked.read_bytes()
    except OSError as error:
        raise ArtifactUnreadable(f"{path} cannot be read: {error.strerror}", _HINT) from error
    if data.startswith(b"version https://git-lfs"):
        raise ArtifactUnreadable(f"{path} is a git LFS pointer", "fetch it: git lfs pull")
    if not data.strip():
        raise ArtifactUnreadable(f"{path} is empty", _HINT)
    text = decode(data)
    if text is None:
        raise ArtifactUnreadable(f"{path} is binary, not the text of nsys stats", _HINT)
    try:
        with reading(path, "a kernel summary of nsys stats", _HINT):
            return _summary(text)
    except ArtifactUnreadable as error:
        known = error.message.startswith(str(path))
        raise type(error)(
            error.message if known else f"{path}: {error.message}", error.hint
        ) from error


def parse_kern_sum(text: str) -> pd.DataFrame:
    """Turn the text of a kernel summary into table `kernels`; see `read_kern_sum`."""
    return _summary(text).kernels


def is_kern_sum(text: str) -> bool:
    """Return whether `text` holds a kernel summary, or says that a trace had no kernels for one."""
    return NO_KERNELS in text or next(_tables(text), None) is not None


def _summary(text: str) -> KernelSummary:
    found = list(_tables(text))
    if not found and NO_KERNELS in text:
        raise NoKernels("the trace had no kernels", _TRACE_CUDA)
    if not found:
        raise ArtifactUnreadable("holds no kernel summary of nsys stats", _HINT)
    filled = [table for table in found if table.rows]
    if not filled:
        raise NoKernels("the summary has no rows", _TRACE_CUDA)
    frames = {table.line: _frame(table) for table in filled}
    frame, notes = added(frames)
    return KernelSummary(_kernels(frame), notes)


def _tables(text: str) -> Iterator[_Table]:
    # A progress bar writes over itself: of such a line the last part counts.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    number = 0
    while number < len(lines):
        table, number = _table_at(lines, number)
        if table is not None:
            yield table


def _table_at(lines: Sequence[str], number: int) -> tuple[_Table | None, int]:
    """Return the kernel summary whose head is line `number`, if any, and where to look on."""
    line, first = lines[number], number + 1
    if "instances" not in line.lower():
        return None, first
    if _is_rule(lines, first):
        spans = [match.span() for match in re.finditer("-+", lines[first])]
        first += 1
        cut = partial(_cut, spans=spans)
    else:
        cut = partial(_split, separator=max("\t,;", key=line.count))
    heads = cut(line)
    if not _is_summary(heads):
        return None, first
    block = _block(lines, first)
    return _Table(number + 1, heads, [cut(row) for row in block]), first + len(block)


def _is_rule(lines: Sequence[str], number: int) -> bool:
    """Return whether a line is the dashes under the heads of a text table."""
    line = lines[number] if number < len(lines) else ""
    return bool(line.strip()) and not line.strip(" -")


def _is_summary(heads: Sequence[str]) -> bool:
    return set(map(_column, heads)) >= _NEEDED and not _is_other_report(heads)


def _block(lines: Sequence[str], start: int) -> list[str]:
    """Return the lines up to an empty one, or to the head of a further table.

    Ranks that write to one file leave no empty line between their tables.
    """
    end = start
    while end < len(lines) and lines[end].strip() and not _is_rule(lines, end + 1):
        if _STARTS_ANOTHER.match(lines[end]):
            break
        end += 1
    return list(lines[start:end])


def _cut(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    *inner, (last, _) = spans
    return [line[begin:end].strip() for begin, end in inner] + [line[last:].strip()]


def _split(line: str, separator: str) -> list[str]:
    if separator not in line:
        return re.split(r"\s{2,}", line.strip())
    return next(csv.reader([line], delimiter=separator), [])


def _column(head: str) -> str:
    """Our column of that head, "" where it is none."""
    match = _HEAD.fullmatch(head.strip())
    return _HEADS.get(match[1].lower().replace("_", " "), "") if match else ""


def _factor(head: str) -> float:
    """What turns the values of a column of times into nanoseconds."""
    match = _HEAD.fullmatch(head.strip())
    unit = (match[2] if match and match[2] else "ns").lower()
    if unit not in _NS:
        raise ArtifactUnreadable(f"unknown time unit {unit!r} in column {head!r}", _HINT)
    return _NS[unit]


def _is_other_report(heads: Sequence[str]) -> bool:
    """Other reports have instances and times as well: NVTX ranges, memory operations."""
    return bool({head.strip().lower() for head in heads} & {"range", "style", "category"})


def _frame(table: _Table) -> pd.DataFrame:
    """Return the columns of one summary, and in `whole_ns` the GPU time of all kernels."""
    heads = table.heads
    short = [row for row in table.rows if len(row) != len(heads)]
    if short:
        raise ArtifactUnreadable(
            f"is damaged: a row has {len(short[0])} of {len(heads)} fields: {short[0]}", _HINT
        )
    for row in table.rows:
        for head, cell in zip(heads, row, strict=True):
            if not cell.strip() and _column(head) in _NEEDED:
                raise ArtifactUnreadable(f"is damaged: a row has no {head!r}: {row}", _HINT)
    marks = _marks(table)
    read: dict[str, object] = dict.fromkeys(["median_ns", "std_ns", "min_ns", "max_ns"], np.nan)
    read |= dict.fromkeys(["grid", "block"], "")
    cells = pd.DataFrame(table.rows, columns=range(len(heads))).astype(object)
    for number, head in enumerate(heads):
        column = _column(head)
        if column in ("grid", "block"):
            read[column] = cells[number].str.findall(r"\d+").str.join("x")
        elif column == "name":
            read[column] = cells[number]
        elif column:
            read[column] = _numbers(cells[number], head, marks)
    frame = pd.DataFrame(read)
    frame["mean_ns"] = frame.get("mean_ns", frame["total_ns"] / frame["calls"])
    return frame.assign(whole_ns=_total_ns(frame))


def _marks(table: _Table) -> Marks:
    """Return how the numbers of a table are written, from all of them together.

    A per cent has a decimal mark or none. Otherwise the first number that proves a mark decides.
    Where all could be read in two ways (744.226), a number of more than three digits without a
    mark shows that digits are not grouped, and a whole number of ns that they are.
    """
    columns = [_column(head) for head in table.heads]
    cells = [
        (head, row[number].strip().removesuffix("%").strip())
        for row in table.rows
        for number, head in enumerate(table.heads)
        if columns[number] not in ("", "name", "grid", "block")
    ]
    marked = [(head, text) for head, text in cells if "." in text or "," in text]
    proofs = {_percent_mark(text) for head, text in marked if _column(head) == "percent"} - {""}
    proofs = proofs or {decimal_mark(text) for _, text in marked} - {""}
    if len(proofs) == 1 or not marked:
        return Marks(*proofs)
    unclear = {"." if "." in text else "," for _, text in marked}
    if not proofs and len(unclear) == 1:
        mark = unclear.pop()
        if any(re.fullmatch(r"\d{4,}", text) for _, text in cells):
            return Marks(mark)
        if all(_is_whole(head) for head, _ in marked):
            return Marks("," if mark == "." else ".")
    raise ArtifactUnreadable(
        f"the decimal mark cannot be told from {marked[0][1]!r} (table at line {table.line})",
        "export it again with the C locale: LC_ALL=C nsys stats -r cuda_gpu_kern_sum --format csv "
        "trace.nsys-rep",
    )


def _is_whole(head: str) -> bool:
    """Return whether the numbers of a column have no decimals: counts, and sums of ns."""
    column = _column(head)
    return column == "calls" or (column in _WHOLE_NS and _factor(head) == 1)


def _percent_mark(text: str) -> str:
    """Return the decimal mark of a per cent, which never has groups of digits."""
    found = {mark for mark in ".," if mark in text}
    return found.pop() if len(found) == 1 and sum(map(text.count, ".,")) == 1 else ""


def _numbers(texts: pd.Series, head: str, marks: Marks) -> pd.Series:
    """Values of a column, times in ns; an empty cell is unknown."""
    stripped = [text.strip().removesuffix("%").strip() for text in texts]
    numbers = [marks.parse(text) if text else np.nan for text in stripped]
    for text, number in zip(texts, numbers, strict=True):
        if number is None or number < 0 or math.isinf(number) or (_is_whole(head) and number % 1):
            raise ArtifactUnreadable(f"column {head!r} holds {text!r}", _HINT)
    factor = _factor(head) if _column(head).endswith("_ns") else 1
    return pd.Series(numbers, index=texts.index, dtype="float64") * factor


def _kernels(frame: pd.DataFrame) -> pd.DataFrame:
    frame["share"] = frame["total_ns"] / frame["whole_ns"]
    frame["std_ns"] = frame["std_ns"].where(frame["calls"] > 1)
    for column in ("calls", "total_ns", "min_ns", "max_ns"):
        frame[column] = frame[column].round()
    frame["kernel_id"] = _ids(frame)
    frame["mangled_name"] = frame["name"]
    known = [classify(name) for name in frame["name"]]
    for column in ("short_name", "library", "category", "dtype", "tile"):
        frame[column] = [getattr(k, column) for k in known]
    frame = frame.assign(stage="", registers=np.nan, shared_bytes=np.nan)
    frame = frame[[column.name for column in tables.tables()["kernels"]]]
    order = ["total_ns", "kernel_id"]
    return tables.check(frame.sort_values(order, ascending=[False, True]), "kernels")


def _total_ns(frame: pd.DataFrame) -> float:
    """GPU time of all kernels: of a list cut to its top rows, what the percentages are of."""
    listed = float(frame["total_ns"].sum())
    if "percent" not in frame:
        return listed
    large = frame[frame["percent"] >= 1]  # percentages have one decimal
    percent = large["percent"].sum()
    total = float(large["total_ns"].sum() / percent * 100) if percent else listed
    return total if total > 1.02 * listed else listed


def _ids(frame: pd.DataFrame) -> list[str]:
    """Text tables cut long names, so that several rows may show the same one."""
    uses: Counter[tuple[str, str, str]] = Counter()
    ids = []
    for row in zip(frame["name"], frame["grid"], frame["block"], strict=True):
        uses[row] += 1
        name = row[0] if uses[row] == 1 else f"{row[0]}#{uses[row]}"
        ids.append(kernel_id(name, row[1], row[2]))
    return ids
