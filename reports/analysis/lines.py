"""Lines of the source: those of Python in which the host was, and those of kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import pandas as pd

from nsight_prof.parsers.cells import count, from_row, known, number, records, text
from nsight_prof.parsers.names.activity import activity
from nsight_prof.parsers.names.stacks import called_rows
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.stages import ALL
from nsight_prof.reports.page import Number, Ref

Z95 = 1.959964
WAITING, WAITS, MAIN_WAIT = ("waiting", "copying"), 0.1, 0.5
"""What the host does at a line that waits for results, and the part of its samples from which on it
is there for that, or the part of all waits: a line that launches much for each of its waits has few
samples in them."""
HEADERS = r"(?:^|/)(?:cuda[^/]*|targets/[^/]+)/include/"
"""Files of the CUDA toolkit, by a part of their path."""


class Located:
    """What has a line of a file."""

    file: str
    line: int | None

    @property
    def location(self) -> str:
        """File and line, without the folder."""
        return location(self.file, self.line)


@dataclass(frozen=True)
class HostLine(Located):
    """A line of the program with its share of the samples that were asked for.

    `share` has its 95 % interval, `source` is its text, where that was kept. `doing` and `inner`
    are what most of its samples were in: the activity with its CUDA call, and the innermost frame
    of Python where that is another.
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
    callers: str = ""
    source: str = ""


@dataclass(frozen=True)
class KernelLine(Located):
    """A line of a kernel with its share of the kernel's samples, which has its 95 % interval.

    `inlined`: samples in functions of CUDA's headers, which the line inlines, are among them.
    """

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
    inlined: bool = False


@dataclass(frozen=True)
class FusedLine(Located):
    """A line of the program with an operator that torch.compile fused into a kernel."""

    file: str
    line: int
    function: str
    source: str


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
    """Return rows of table `host_lines`: of a stage, of activities, or with an idle GPU.

    Those of activities in CUDA calls are of all calls, where the run has them by line.
    """
    activities = tuple(doing)
    if activities and not idle and stage in ("", ALL) and len(run.timed_calls):
        return called_rows(run.timed_calls, activities)
    frame = run.host_lines
    if stage not in ("", ALL):
        frame = frame[frame["stage"] == stage]
    if activities:
        frame = frame[frame["activity"].isin(activities)]
    return frame[frame["idle_samples"] > 0] if idle else frame


def host_lines(rows: pd.DataFrame, counted: str = "samples") -> list[HostLine]:
    """Return the lines of rows of table `host_lines`, most samples first.

    `counted` is samples, or idle_samples for those alone in which no GPU worked.
    """
    if rows.empty:  # as in most runs
        return []
    total = int(rows[counted].sum())
    refs = (Ref("host_lines", "", counted),)
    found = []
    for _, group in rows.groupby(["file", "line", "function"], dropna=False):
        ordered = group.sort_values(counted, ascending=False)
        first = records(ordered.head(1))[0]
        samples, every = int(group[counted].sum()), int(group["samples"].sum())
        found.append(
            from_row(
                HostLine,
                first,
                samples=samples,
                share=of_samples(samples, total, refs),
                idle=of_samples(int(group["idle_samples"].sum()), every, refs),
                time=Number(group["time_ns"].sum(), "ns", (Ref("host_lines", "", "time_ns"),)),
                doing=text(first["activity"]),
            )
        )
    return sorted(found, key=lambda line: (-line.samples, line.file, line.line or 0))


def kernel_lines(run: Run, kernel_id: str) -> list[KernelLine]:
    """Return the lines of a kernel, most samples first; none without line information."""
    frame = run.source_lines
    if frame.empty:  # as in most runs
        return []
    rows = frame[frame["kernel_id"] == kernel_id]
    total = int(number(rows["samples"].sum())) if rows["samples"].notna().any() else 0

    def cell(row: dict[str, object], column: str) -> Number:
        return Number(known(row[column]), "count", (Ref("source_lines", kernel_id, column),))

    return [
        from_row(
            KernelLine,
            row,
            share=of_samples(
                count(row["samples"]) or 0, total, (Ref("source_lines", kernel_id, "share"),)
            ),
            stalled=cell(row, "stall_samples"),
            instructions=cell(row, "instructions"),
            sectors=cell(row, "sectors"),
            excessive=cell(row, "excessive_sectors"),
            inlined=False,
        )
        for row in records(rows)
    ]


def program_lines(run: Run, kernel_id: str) -> list[KernelLine]:
    """Return the lines of a kernel, with functions of CUDA's headers at the lines that inline them.

    The table names the header alone. An instruction of one is taken to belong to the program's line
    of the instruction before it: right for the planted lines of three kernels of llm.c.
    """
    lines = kernel_lines(run, kernel_id)
    if run.source_instructions.empty:
        return lines
    moved = _instructions(run, kernel_id)
    foreign = moved["is_foreign"]
    if not foreign.any() or foreign.all():
        return lines
    moved = moved[moved["samples"].fillna(0) > 0]
    known = {(line.file, line.line): line for line in lines}
    total, found = int(moved["samples"].sum()), []
    for (file, number_of_line), rows in moved.groupby(["file", "line"]):
        line = known.get((str(file), int(number(number_of_line))))
        if line is not None:
            count_of_line = int(rows["samples"].sum())
            stalls = rows.groupby("stall")["samples"].sum()
            found.append(
                replace(
                    line,
                    samples=count_of_line,
                    share=of_samples(count_of_line, total, line.share.refs),
                    stall=str(stalls.idxmax()) if len(stalls) else "",
                    inlined=bool(foreign[rows.index].any()),
                )
            )
    return sorted(found, key=lambda line: -line.samples)


def _instructions(run: Run, kernel_id: str) -> pd.DataFrame:
    """Return the instructions of a kernel with those of CUDA's headers at the program's lines, and
    column is_foreign.
    """
    frame = run.source_instructions
    frame = frame[frame["kernel_id"] == kernel_id].sort_values("offset")
    foreign = frame["file"].fillna("").str.contains(HEADERS)
    frame = frame.assign(is_foreign=foreign)
    if foreign.all():
        return frame
    places = {name: frame[name].mask(foreign).ffill().bfill() for name in ("file", "line")}
    return frame.assign(**places)


def lines_of(run: Run, kernel_id: str, counted: str, sass: str) -> list[KernelLine]:
    """Return the lines of a kernel by a count of table `source_instructions`, the most first.

    Only instructions count that match `sass`. The share of a line is that of the count; of equal
    ones the first in the source stands first.
    """
    frame = _instructions(run, kernel_id)
    frame = frame[frame["sass"].fillna("").str.contains(sass)]
    total = number(frame[counted].sum())
    if not total > 0:
        return []
    known = {(line.file, line.line): line for line in kernel_lines(run, kernel_id)}
    ref, found = (Ref("source_instructions", "", counted),), []
    for (file, line), rows in frame.groupby(["file", "line"]):
        of_line = int(number(rows[counted].sum()))
        if (known_line := known.get((str(file), int(number(line))))) is not None and of_line:
            share = Number(of_line / total, "fraction", ref)
            found.append(replace(known_line, samples=of_line, share=share))
    return sorted(found, key=lambda line: (-line.samples, line.line))


def callers(run: Run, *kernel_ids: str) -> list[HostLine]:
    """Return the lines of Python that launched kernels, by the time that these run.

    They come from the run in which launches wait; without it, from samples within a launch.
    """
    frame = run.launch_lines
    frame = frame[frame["kernel_id"].isin(kernel_ids)]
    if frame.empty:
        frame = run.host_lines
        return host_lines(frame[frame["kernel_id"].isin(kernel_ids)])
    return host_lines(frame.assign(idle_samples=0, activity="launching", nvtx_range="", source=""))


def launching_rows(run: Run) -> pd.DataFrame:
    """Return rows of samples of Python stacks by the kernel that they launched, with the text of
    their line where samples of the host hold it.
    """
    rows = run.launch_lines[run.launch_lines["call"].fillna("") == ""]
    if rows.empty:
        rows = run.host_lines[run.host_lines["kernel_id"].fillna("") != ""]
    if rows.empty:
        return rows
    texts = pd.concat([run.timed_lines, run.host_lines])
    texts = texts[texts["source"].fillna("") != ""]
    texts = texts.drop_duplicates(["file", "line"])[["file", "line", "source"]]
    rows = rows.drop(columns="source", errors="ignore")
    return rows[rows["line"].notna()].merge(texts, on=["file", "line"], how="left")


def fused_lines(run: Run, *kernel_ids: str) -> list[FusedLine]:
    """Return the lines that torch.compile fused into kernels, in order; none where unknown."""
    frame = run.fused_lines
    rows = records(frame[frame["kernel_id"].isin(kernel_ids)])
    found = {
        FusedLine(
            text(row["file"]), int(number(row["line"])), text(row["function"]), text(row["source"])
        )
        for row in rows
    }
    return sorted(found, key=lambda line: (line.file, line.line))


def waiting_rows(run: Run, stage: str = "") -> pd.DataFrame:
    """Return rows of table `host_lines` of the lines at which the host waits for the GPU."""
    rows = host_rows(run, stage)
    if rows.empty:
        return rows
    waits = rows["activity"].isin(WAITING)
    places = [rows[name] for name in ("file", "line")]
    every = rows["samples"].groupby(places, dropna=False).transform("sum")
    waited = (rows["samples"] * waits).groupby(places, dropna=False).transform("sum")
    surely = (rows["activity"] == "waiting").groupby(places, dropna=False).transform("any")
    main = waited > MAIN_WAIT * (rows["samples"] * waits).sum()
    return rows[surely & (main | (waited >= WAITS * every))]


def native_lines(run: Run, doing: Iterable[str]) -> list[HostLine]:
    """Return the native functions that made CUDA calls of some activities, most calls first."""
    frame = run.launch_lines
    frame = frame[frame["call"] != ""]
    frame = frame.assign(
        idle_samples=0,
        nvtx_range="",
        source="",
        activity=[activity(str(call)) for call in frame["call"]],
    )
    return host_lines(frame[frame["activity"].isin(tuple(doing))])
