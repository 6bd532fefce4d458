"""Tells from a file's content what Nsight file it is, whatever it is called."""

from __future__ import annotations

import csv
import gzip
import lzma
import re
import zlib
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.reading import reason
from nsight_prof.parsers.text import decode
from nsight_prof.parsers.torch.events import is_trace

HEAD_BYTES = 1 << 18
# The log of a program may end with the output of a tool.
TEXT_BYTES = 1 << 26
SQLITE = b"SQLite format 3\0"
# .nsys-rep and the .qdrep before 2021.4 begin alike; so do all .ncu-rep since 2020.3.
NSYS_REPORT = b"NVIDIA Tegra Profiler Report"
NCU_REPORT = b"NVR\0"
# Content before nsys has converted it, which it does where it was captured, or not at all.
NSYS_STREAM = b"NVIDIA Nsight Systems Stream"
LFS = b"version https://git-lfs.github.com/spec/"
NCU_TEXT = re.compile(r"^==(PROF|ERROR|WARNING)==|^\s+Section: \S", re.MULTILINE)

_OPEN: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}


class Kind(StrEnum):
    """What a file is; the value says it to people."""

    SQLITE = "an SQLite export of nsys"
    NSYS_REPORT = "an nsys report"
    KERN_SUM = "a kernel summary of nsys stats"
    TORCH = "a trace of the torch profiler"
    NCU_REPORT = "an ncu report"
    NCU_TEXT = "an ncu output (CSV or text)"


TRACES = (Kind.SQLITE, Kind.NSYS_REPORT, Kind.KERN_SUM, Kind.TORCH)
COUNTERS = (Kind.NCU_REPORT, Kind.NCU_TEXT)


def recognize(path: Path) -> Kind:
    """Return what `path` (or what an .xz file holds) is.

    Raises:
        ArtifactUnreadable: it is empty, an LFS pointer, or nothing that prof knows.
    """
    head = read_head(path)
    if not head:
        raise ArtifactUnreadable(f"{path} is empty", "run the tool again: it wrote nothing")
    if head.startswith(LFS):
        raise ArtifactUnreadable(
            f"{path} is a Git LFS pointer, not the file itself", "fetch it: git lfs pull"
        )
    for magic, kind in (
        (SQLITE, Kind.SQLITE),
        (NSYS_REPORT, Kind.NSYS_REPORT),
        (NCU_REPORT, Kind.NCU_REPORT),
    ):
        if head.startswith(magic):
            return kind
    if NSYS_STREAM in head[:64]:
        raise ArtifactUnreadable(
            f"{path} is a raw capture of nsys (.qdstrm) that was not converted into a report",
            "convert it with the QdstrmImporter of the nsys that made it, which stands in its "
            f"host folder: QdstrmImporter --input-file {path}; then give the report it writes",
        )
    if is_trace(head):
        return Kind.TORCH
    kind_of_text = _recognize_text(head)
    if kind_of_text is None and len(head) == HEAD_BYTES:
        kind_of_text = _recognize_text(read_head(path, TEXT_BYTES))
    if kind_of_text is None:
        raise ArtifactUnreadable(
            f"{path} is none of the files that prof reads",
            "give an .nsys-rep, its .sqlite export, `nsys stats -r cuda_gpu_kern_sum --format csv`,"
            " an .ncu-rep, `ncu --import FILE --csv --page raw --print-units base`, or the chrome "
            "trace of torch.profiler",
        )
    return kind_of_text


def read_head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """Return the first bytes of a file, unpacked where it is an .xz or .gz file.

    Raises:
        ArtifactUnreadable: it does not exist or cannot be unpacked.
    """
    try:
        if path.exists() and not path.is_file():
            raise ArtifactUnreadable(
                f"{path} is no regular file", "give a file; of a pipe, write it to a file first"
            )
        with _OPEN.get(path.suffix, open)(path, "rb") as stream:
            head: bytes = stream.read(size)
            return head
    except (lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError, MemoryError) as error:
        raise ArtifactUnreadable(
            f"{path} cannot be unpacked: {reason(error)}", "copy it again"
        ) from error
    except OSError as error:
        raise ArtifactUnreadable(
            f"{path} cannot be read: {error.strerror}", "check the path and its permissions"
        ) from error


def _recognize_text(data: bytes) -> Kind | None:
    from nsight_prof.parsers.nsys.kern_sum_csv import is_kern_sum

    text = decode(data, final=False)
    if text is None:
        return None
    lines = (line for line in text.splitlines() if "Kernel Name" in line)
    if any(_cells(line) & {"ID", "Metric Name"} for line in lines):
        return Kind.NCU_TEXT
    if is_kern_sum(text):
        return Kind.KERN_SUM
    return Kind.NCU_TEXT if NCU_TEXT.search(text) else None


def _cells(line: str) -> set[str]:
    """Return the cells of a line that may be the header of a CSV page."""
    try:
        return {cell.strip() for cell in next(csv.reader([line]), [])}
    except csv.Error:  # no head of a table has a field of 128 KiB
        return set()
