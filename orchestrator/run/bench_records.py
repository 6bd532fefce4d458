"""What the orchestrator itself reads of a benchmark's records: how many, and of which dtypes.

Their whole meaning is parsers.bench's; here a file may still grow, or be cut by a kill.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nsight_prof.parsers.run.directory import RunDir, plain_file, read_manifest

TAIL_BYTES, BLOCK_BYTES = 4096, 1 << 18
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
# How targets spell the input types of the Tensor Cores -> how the metric catalogue does.
SPELLINGS = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float64": "fp64"}
FP8 = re.compile(r"fp8|float8|e4m3|e5m2")


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Give the records of a file that can be read, packed or not; a broken line is left out."""
    with plain_file(path) as unpacked, unpacked.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def cases(path: Path) -> Iterator[dict[str, Any]]:
    """Give the records of measured, counted and failed cases of a file."""
    return (record for record in records(path) if record.get("record") == "case")


def count_cases(path: Path) -> int:
    """Return how many cases the file holds, 0 where there is no file."""
    return sum(1 for _ in cases(path)) if path.is_file() else 0


def result_files(run: RunDir) -> list[Path]:
    """Return the files of the bench step of a run, in the order of their names."""
    record = read_manifest(run).step("bench")
    if record is None or not record.directory:
        return []
    folder = run.step(record)
    found = [*folder.glob("result-*.jsonl"), *folder.glob("result-*.jsonl.xz")]
    return sorted(run.inside(path) for path in found)


def measures_roofs(run: RunDir) -> bool:
    """Say whether a run has measured candidates for roofs on a GPU."""
    return any(_has_roofs(path) for path in result_files(run))


def _has_roofs(path: Path) -> bool:
    on_gpu = False
    for record in records(path):
        if record.get("record") == "conditions":
            on_gpu = record.get("device") == "cuda"
        elif on_gpu and record.get("roof") and record.get("status") == "ok":
            return True
    return False


def tensor_dtypes(paths: Iterable[Path]) -> set[str]:
    """Return the input types of cases that ran and are meant for the Tensor Cores.

    Where no case says that it is meant for them, the input types of all cases.
    """
    tensor: set[str] = set()
    others: set[str] = set()
    for path in paths:
        for case in cases(path):
            if case.get("status") != "ok" or not case.get("dtype"):
                continue
            dtype = str(case["dtype"]).lower()
            dtypes = tensor if case.get("level") == "tensor" else others
            dtypes.add("fp8" if FP8.match(dtype) else SPELLINGS.get(dtype, dtype))
    return tensor or others


def cut_half_line(path: Path) -> None:
    """Cut what a killed process left of a last line: half a record is none."""
    if not path.is_file() or path.is_symlink():
        return
    with path.open("rb+") as stream:
        end = stream.seek(0, os.SEEK_END)
        while end:
            begin = max(end - BLOCK_BYTES, 0)
            stream.seek(begin)
            length = stream.read(end - begin).rfind(b"\n") + 1
            if length:
                end = begin + length
                break
            end = begin
        stream.truncate(end)


def lines_of(path: Path) -> Iterator[str]:
    """Give the lines of a log of any size, long ones in pieces."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        while line := stream.readline(BLOCK_BYTES):
            yield line


def ends_of(path: Path) -> str:
    """Return a log, or begin and end of a long one; nothing where there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        begin = stream.read(BLOCK_BYTES)
        rest = path.stat().st_size - len(begin)
        stream.seek(max(rest - BLOCK_BYTES, 0), os.SEEK_CUR)
        ends = (begin, stream.read(BLOCK_BYTES))
    joint = b"\n" if rest > BLOCK_BYTES else b""
    return joint.join(ends).decode("utf-8", errors="replace")


def last_line(path: Path) -> str:
    """Return the last line of a growing log that says something, without control characters."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(os.fstat(stream.fileno()).st_size - TAIL_BYTES, 0))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    lines = [CONTROL.sub("", line).strip() for line in re.split(r"[\r\n]+", text)]
    return next((line for line in reversed(lines) if line), "")[:200]
