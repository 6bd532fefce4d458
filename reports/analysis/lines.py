"""Lines of the source: those of Python in which the host was, and those of kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import pandas as pd

from nsight_prof.parsers.cells import count, from_row, known, number, records, text
from nsight_prof.parsers.metrics.formulas import SECTOR_BYTES
from nsight_prof.parsers.names.activity import activity
from nsight_prof.parsers.names.source_text import DERIVES, OPTIMIZER, Result, results
from nsight_prof.parsers.names.stacks import called_rows, known_lines, of_waits, with_callers
from nsight_prof.parsers.ncu.places import (
    LOADS,
    at_barriers,
    at_loads,
    at_program,
    at_writers,
    in_order,
)
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.stages import ALL
from nsight_prof.reports.page import Number, Ref

Z95 = 1.959964
MOST = 0.5
"""Share of the samples from which on a line, or lines, say where the time goes."""
ITEMS = r"\[.*\w\(.*\bfor\b.*\bin\b.*\]|\.append\(\w.*\("
"""Lines that make a list of results, one item after another, none of which depends on another."""


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
    """Return the lines of a kernel, with headers, barriers and what waits for a load at the lines
    that ask for them.
    """
    lines = kernel_lines(run, kernel_id)
    if run.source_instructions.empty:
        return lines
    moved = at_loads(at_barriers(_instructions(run, kernel_id)))
    foreign = moved["is_foreign"]
    if foreign.all():
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
    return _in_order(found)


def _in_order(lines: Iterable[KernelLine]) -> list[KernelLine]:
    at_line = {(line.file, line.line): line for line in lines}
    return [at_line[at] for at in in_order({at: each.samples for at, each in at_line.items()})]


def _instructions(run: Run, kernel_id: str) -> pd.DataFrame:
    """Return the instructions of a kernel at lines of the program, with column is_foreign."""
    frame = run.source_instructions
    rows = frame[frame["kernel_id"] == kernel_id].sort_values("offset", ignore_index=True)
    lines = kernel_lines(run, kernel_id)
    return at_program(rows, {(line.file, line.line) for line in lines if "atomic" in line.source})


def lines_of(
    run: Run,
    kernel_id: str,
    counted: str,
    sass: str,
    *,
    of_values: bool = False,
    beyond_l1: bool = False,
) -> list[KernelLine]:
    """Return the lines of a kernel by a count of table `source_instructions`, the most first.

    Only instructions count that match `sass`, where they stand or, `of_values`, at the lines of
    the values that they take. `beyond_l1`: of loads the part counts that L1 does not serve. The
    share of a line is that of the count; of those about equal the first in the source stands first.
    """
    frame = _instructions(run, kernel_id)
    if beyond_l1:
        is_load = frame["sass"].fillna("").str.contains(LOADS)
        missed = _missed(run, frame, is_load)
        frame[counted] = frame[counted].astype(float) * is_load.map({True: missed, False: 1.0})
    chosen = frame["sass"].fillna("").str.contains(sass)
    frame = (at_writers(frame, chosen) if of_values else frame)[chosen]
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
    return _in_order(found)


def _missed(run: Run, frame: pd.DataFrame, is_load: pd.Series[bool]) -> float:
    """Return the part of the sectors of loads that a kernel's L1 asks L2 for; 1 where unknown.

    All sectors of stores and atomics go there (CUDA programming guide: L1 writes through).
    """
    counted = run.counters.loc[run.counters["kernel_id"].isin(frame["kernel_id"]), "l2_bytes"]
    of_l2 = counted.astype(float).max() / SECTOR_BYTES
    of_loads, others = (frame.loc[each, "sectors"].sum() for each in (is_load, ~is_load))
    missed = (of_l2 - number(others)) / max(1.0, number(of_loads))
    return 1.0 if math.isnan(missed) else min(1.0, max(0.0, missed))


def callers(run: Run, *kernel_ids: str) -> list[HostLine]:
    """Return the lines of Python that launched kernels, by the time that these run.

    They come from the run in which launches wait; without it, from samples within a launch.
    """
    frame = run.launch_lines
    frame = frame[frame["kernel_id"].isin(kernel_ids)]
    if frame.empty:
        frame = run.host_lines
        return host_lines(frame[frame["kernel_id"].isin(kernel_ids)])
    return host_lines(
        with_texts(run, frame).assign(idle_samples=0, activity="launching", nvtx_range="")
    )


def launching_rows(run: Run) -> pd.DataFrame:
    """Return rows of samples of Python stacks by the kernel that they launched, also at each line
    around (`depth` calls away), with the text of their line where samples of the host hold it.
    """
    rows = run.launch_lines[run.launch_lines["call"].fillna("") == ""]
    if rows.empty:
        rows = run.host_lines[run.host_lines["kernel_id"].fillna("") != ""]
    if rows.empty:
        return rows
    rows = with_callers(rows[rows["line"].notna()].reset_index(drop=True))
    return with_texts(run, rows.reset_index(names="launch"))


def launched_time(run: Run) -> pd.DataFrame:
    """Return `launching_rows` with the kernel's name and category, and what of its time and
    launches the row has: `gpu_ns` and `launches`.
    """
    rows = launching_rows(run)
    if rows.empty:
        return rows
    kernels = run.kernels.set_index("kernel_id")
    rows = rows[rows["kernel_id"].isin(kernels.index)]
    samples = rows["samples"].where(rows["depth"].eq(0), 0)
    of_kernel = samples.groupby(rows["kernel_id"]).transform("sum")
    launched = rows["kernel_id"].map(kernels["total_ns"]).astype(float)
    return rows.assign(
        category=rows["kernel_id"].map(kernels["category"]).fillna("other"),
        name=rows["kernel_id"].map(kernels["name"]).fillna(""),
        gpu_ns=launched * rows["samples"] / of_kernel,
        launches=rows["kernel_id"].map(kernels["calls"]) * rows["samples"] / of_kernel,
    )


def with_texts(run: Run, rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of lines of Python with the text of each, where that was kept."""
    texts = pd.concat([run.timed_lines, run.host_lines])[["file", "line", "source"]]
    texts = texts[texts["source"].fillna("") != ""].drop_duplicates(["file", "line"])
    return rows.drop(columns="source", errors="ignore").merge(
        texts, on=["file", "line"], how="left"
    )


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


def goes_on(rows: pd.DataFrame) -> pd.Series:
    """Tell for rows whether their line derives, or changes the weights, for what the lines before
    computed.
    """
    sources = rows["source"].fillna("")
    return sources.str.contains(DERIVES) | sources.str.contains(OPTIMIZER)


def item_lines(run: Run, rows: pd.DataFrame, counted: str) -> list[HostLine]:
    """Return the innermost lines that work on items one after another, the hottest first, where
    those of a function together hold the samples: all within them, however deep they are called.
    """
    texts = pd.concat([run.timed_lines, run.host_lines])[["file", "line", "source"]]
    known = results(run.timed_lines)
    places = zip(texts["file"], texts["line"], strict=True)
    of_items = pd.Series(
        [known.get(at, Result()).is_item for at in places], texts.index, dtype=bool
    )
    of_items |= texts["source"].fillna("").str.contains(ITEMS)
    texts = texts[of_items].drop_duplicates(["file", "line"])
    around = with_callers(rows.drop(columns="source").reset_index(drop=True)).rename_axis("row")
    around = around.reset_index().merge(texts, on=["file", "line"])
    total = rows.loc[~goes_on(rows), counted].sum()
    for _, each in around.groupby("depth"):
        of_function = each.groupby(["file", "function"])[counted].transform("sum")
        lines = host_lines(each[of_function >= MOST * total], counted)
        if lines:
            at = {(line.file, line.line) for line in lines}
            inside = [line in at for line in zip(around["file"], around["line"], strict=True)]
            lines = host_lines(around[inside].drop_duplicates("row"), counted)
            refs = lines[0].share.refs
            return [replace(x, share=of_samples(x.samples, int(total), refs)) for x in lines]
    return []


def waiting_rows(run: Run, stage: str = "") -> pd.DataFrame:
    """Return rows of table `host_lines` of the lines at which the host waits for the GPU."""
    return of_waits(host_rows(run, stage))


def native_lines(run: Run, doing: Iterable[str]) -> list[HostLine]:
    """Return the native lines that made CUDA calls of some activities, most time first.

    A sample is a microsecond of a call: as many calls that only begin something cost less. Calls
    that come again go before those that came once, of which the last waits for all that runs.
    """
    frame = run.launch_lines
    frame = frame.assign(activity=[activity(str(call)) for call in frame["call"]])
    frame = frame[(frame["call"] != "") & frame["activity"].isin(tuple(doing))]
    again = frame["samples"] > 1
    frame = frame[again] if again.any() else frame
    samples = (frame["time_ns"].astype(float) / 1000).round().astype(int)
    frame = known_lines(frame.assign(samples=samples, idle_samples=0, nvtx_range=""))
    return host_lines(frame)
