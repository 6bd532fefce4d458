"""Lines of the source: those of Python in which the host was, and those of kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import pandas as pd

from nsight_prof.parsers.cells import count, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.stages import ALL
from nsight_prof.reports.page import Number, Ref

Z95 = 1.959964


@dataclass(frozen=True)
class HostLine:
    """A line of the program with its share of the samples that were asked for.

    `share` has its 95 % interval. `doing` and `inner` are what most of its samples were in: the
    activity with its CUDA call, and the innermost frame of Python where that is another.
    """

    file: str
    line: int | None
    function: str
    samples: int
    share: Number
    idle: Number
    time: Number
    doing: str
    call: str
    nvtx_range: str
    inner: str

    @property
    def location(self) -> str:
        """File and line, without the folder."""
        return location(self.file, self.line)


@dataclass(frozen=True)
class KernelLine:
    """A line of a kernel with its share of the kernel's samples, which has its 95 % interval."""

    kernel_id: str
    file: str
    line: int
    source: str
    samples: int
    share: Number
    stall: str
    stalled: Number
    instructions: Number
    sectors: Number
    excessive: Number

    @property
    def location(self) -> str:
        """File and line, without the folder."""
        return location(self.file, self.line)


def location(file: str, line: int | None) -> str:
    """Return `train.py:41`, without the folder and, where it is not known, the line."""
    name = PurePath(file.replace("\\", "/")).name or "?"
    return name if line is None else f"{name}:{line}"


def of_samples(count: int, total: int, refs: Sequence[Ref] = ()) -> Number:
    """Return a share of samples with its 95 % interval, by Wilson's score (1927)."""
    if total <= 0:
        return Number(None, "fraction", tuple(refs), "no sample")
    share, z2 = count / total, Z95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = Z95 / (1 + z2 / total) * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    return Number(
        share, "fraction", tuple(refs), low=max(0.0, middle - half), high=min(1.0, middle + half)
    )


def host_rows(
    run: Run, stage: str = "", doing: Iterable[str] = (), *, idle: bool = False
) -> pd.DataFrame:
    """Return rows of table `host_lines`: of a stage, of activities, or with an idle GPU."""
    frame = run.host_lines
    if stage not in ("", ALL):
        frame = frame[frame["stage"] == stage]
    activities = tuple(doing)
    if activities:
        frame = frame[frame["activity"].isin(activities)]
    return frame[frame["idle_samples"] > 0] if idle else frame


def host_lines(rows: pd.DataFrame, counted: str = "samples") -> list[HostLine]:
    """Return the lines of rows of table `host_lines`, most samples first.

    `counted` is samples, or idle_samples for those alone in which no GPU worked.
    """
    total = int(rows[counted].sum())
    refs = (Ref("host_lines", "", counted),)
    found = []
    for _, group in rows.groupby(["file", "line", "function"], dropna=False):
        ordered = group.sort_values(counted, ascending=False)
        first = records(ordered.head(1))[0]
        samples, every = int(group[counted].sum()), int(group["samples"].sum())
        found.append(
            HostLine(
                file=text(first["file"]),
                line=count(first["line"]),
                function=text(first["function"]),
                samples=samples,
                share=of_samples(samples, total, refs),
                idle=of_samples(int(group["idle_samples"].sum()), every, refs),
                time=Number(group["time_ns"].sum(), "ns", (Ref("host_lines", "", "time_ns"),)),
                doing=text(first["activity"]),
                call=text(first["call"]),
                nvtx_range=text(first["nvtx_range"]),
                inner=text(first["inner"]),
            )
        )
    return sorted(found, key=lambda line: (-line.samples, line.file, line.line or 0))


def kernel_lines(run: Run, kernel_id: str) -> list[KernelLine]:
    """Return the lines of a kernel, most samples first; none without line information."""
    frame = run.source_lines
    rows = frame[frame["kernel_id"] == kernel_id]
    total = int(number(rows["samples"].sum())) if rows["samples"].notna().any() else 0

    def cell(row: dict[str, object], column: str) -> Number:
        return Number(known(row[column]), "count", (Ref("source_lines", kernel_id, column),))

    return [
        KernelLine(
            kernel_id=kernel_id,
            file=text(row["file"]),
            line=int(number(row["line"])),
            source=text(row["source"]),
            samples=int(known(row["samples"]) or 0),
            share=of_samples(
                int(known(row["samples"]) or 0), total, (Ref("source_lines", kernel_id, "share"),)
            ),
            stall=text(row["stall"]),
            stalled=cell(row, "stall_samples"),
            instructions=cell(row, "instructions"),
            sectors=cell(row, "sectors"),
            excessive=cell(row, "excessive_sectors"),
        )
        for row in records(rows)
    ]


def callers(run: Run, kernel_id: str) -> list[HostLine]:
    """Return the lines of Python that were sampled while they launched a kernel."""
    frame = run.host_lines
    return host_lines(frame[frame["kernel_id"] == kernel_id])
