"""Reads the kernel summary that `nsys stats` printed, as CSV or as a text table, of any version.

Reports `gpukernsum` (to 2022), `cuda_gpu_kern_sum` and `cuda_gpu_kern_gb_sum`; heads such as
`Time(%)`, `Time (%)`, `Total Time (ns)`, `Total Time (ms)`, `Average`, `Avg (ns)`, `Kernel`.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels
from nsight_prof.parsers.kernel_names import classify, kernel_id
from nsight_prof.parsers.run_dir import plain_file

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
_HEAD = re.compile(r"([A-Za-z ]+?)\s*(?:\(([^)]*)\))?")
_HINT = "make it with: nsys stats -r cuda_gpu_kern_sum --format csv trace.nsys-rep"


def read_kern_sum(path: Path) -> pd.DataFrame:
    """Read a kernel summary as table `kernels`; what it does not tell stays empty.

    Raises:
        ArtifactUnreadable: no kernel summary, or a damaged one.
        NoKernels: a summary of a trace without kernels.
    """
    try:
        with plain_file(path) as plain:
            data = plain.read_bytes()
    except OSError as error:
        raise ArtifactUnreadable(f"{path} cannot be read: {error.strerror}", _HINT) from error
    if data.startswith(b"version https://git-lfs"):
        raise ArtifactUnreadable(f"{path} is a git LFS pointer", "fetch it: git lfs pull")
    if not data.strip():
        raise ArtifactUnreadable(f"{path} is empty", _HINT)
    # PowerShell's `>` writes UTF-16 with a byte order mark.
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        return parse_kern_sum(data.decode("utf-16" if wide else "utf-8-sig", "replace"))
    except ArtifactUnreadable as error:
        raise type(error)(f"{path}: {error.message}", error.hint) from error


def parse_kern_sum(text: str) -> pd.DataFrame:
    """Turn the text of a kernel summary into table `kernels`; see `read_kern_sum`."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if set(following.split()) and not following.strip(" -"):
            spans = [match.span() for match in re.finditer("-+", following)]
            heads, start = _cut(line, spans), number + 2
            rows = [_cut(row, spans) for row in _block(lines[start:])]
        else:
            dialect = "excel-tab" if "\t" in line else "excel"
            heads, start = next(csv.reader([line], dialect), []), number + 1
            rows = list(csv.reader(_block(lines[start:]), dialect))
        if {column for column, _ in map(_column, heads)} >= _NEEDED and not _other(heads):
            return _frame(heads, rows)
    if "does not contain CUDA kernel data" in text:
        raise NoKernels("the trace had no kernels", "trace CUDA: nsys profile -t cuda,nvtx …")
    raise ArtifactUnreadable("holds no kernel summary of nsys stats", _HINT)


def _block(lines: Sequence[str]) -> list[str]:
    end = next((n for n, line in enumerate(lines) if not line.strip()), len(lines))
    return list(lines[:end])


def _cut(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    *inner, (last, _) = spans
    return [line[begin:end].strip() for begin, end in inner] + [line[last:].strip()]


def _column(head: str) -> tuple[str, float]:
    """Our column and the factor that turns its values into nanoseconds."""
    match = _HEAD.fullmatch(head.strip())
    if match is None:
        return "", 1
    column = _HEADS.get(match[1].lower(), "")
    if not column.endswith("_ns"):
        return column, 1
    unit = (match[2] or "ns").lower()
    if unit not in _NS:
        raise ArtifactUnreadable(f"unknown time unit {unit!r} in column {head!r}", _HINT)
    return column, _NS[unit]


def _other(heads: Sequence[str]) -> bool:
    """Other reports have instances and times as well: NVTX ranges, memory operations."""
    return bool({head.strip().lower() for head in heads} & {"range", "style", "category"})


def _frame(heads: Sequence[str], rows: list[list[str]]) -> pd.DataFrame:
    columns = dict.fromkeys(["median_ns", "std_ns", "min_ns", "max_ns"], np.nan)
    short = [row for row in rows if len(row) != len(heads)]
    if short:
        raise ArtifactUnreadable(
            f"is damaged: a row has {len(short[0])} of {len(heads)} fields: {short[0]}", _HINT
        )
    if not rows:
        raise NoKernels("the summary has no rows", "trace CUDA: nsys profile -t cuda,nvtx …")
    frame = pd.DataFrame(rows, columns=range(len(heads))).astype(object)
    read: dict[str, object] = dict(columns)
    for number, head in enumerate(heads):
        column, factor = _column(head)
        if column in ("name", "grid", "block"):
            read[column] = frame[number]
        elif column:
            read[column] = _numbers(frame[number], head) * factor
    return _kernels(pd.DataFrame(read))


def _numbers(texts: pd.Series, head: str) -> pd.Series:
    """Values of a column; large ones carry thousand separators in some text tables."""
    plain = texts.str.replace(",", "").str.strip().str.removesuffix("%")
    numbers = pd.to_numeric(plain, errors="coerce")
    wrong = texts[numbers.isna() & (plain != "")]
    if len(wrong):
        raise ArtifactUnreadable(f"column {head!r} holds {wrong.iloc[0]!r}", _HINT)
    return numbers


def _kernels(frame: pd.DataFrame) -> pd.DataFrame:
    for column in ("grid", "block"):
        dims = frame[column] if column in frame else pd.Series([""] * len(frame))
        frame[column] = dims.str.findall(r"\d+").str.join("x")
    frame["share"] = frame["total_ns"] / _whole(frame)
    frame["mean_ns"] = frame.get("mean_ns", frame["total_ns"] / frame["calls"])
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


def _whole(frame: pd.DataFrame) -> float:
    """GPU time of all kernels: of a list cut to its top rows, what the percentages are of."""
    listed = float(frame["total_ns"].sum())
    if "percent" not in frame:
        return listed
    large = frame[frame["percent"] >= 1]  # percentages have one decimal
    percent = large["percent"].sum()
    whole = float(large["total_ns"].sum() / percent * 100) if percent else listed
    return whole if whole > 1.02 * listed else listed


def _ids(frame: pd.DataFrame) -> list[str]:
    """Text tables cut long names, so that several rows may show the same one."""
    seen: Counter[tuple[str, str, str]] = Counter()
    ids = []
    for row in zip(frame["name"], frame["grid"], frame["block"], strict=True):
        seen[row] += 1
        name = row[0] if seen[row] == 1 else f"{row[0]}#{seen[row]}"
        ids.append(kernel_id(name, row[1], row[2]))
    return ids
