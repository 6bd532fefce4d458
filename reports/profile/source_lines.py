"""Section about lines of the source: where the host was, and where the warps of kernels stood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nsight_prof.parsers.cells import Row, count, known, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.lines import (
    HostLine,
    KernelLine,
    host_lines,
    kernel_lines,
    location,
)
from nsight_prof.reports.page import (
    Column,
    Name,
    Number,
    Ref,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
)

KEY, TITLE = "source-lines", Text("Lines of the source")
HOST_SHOWN, LINES_SHOWN, INSTRUCTIONS_SHOWN = 8, 6, 40
"""Lines of a stage and of a kernel, and instructions of a kernel; the tables have all."""
INTRO = Text(
    "Where the host was and where the warps of kernels stood, line by line. Shares are of samples, "
    "with their 95 % interval (Wilson): few samples make it wide."
)
HOST_NOTE = Text(
    "Samples of the stacks of Python threads that call CUDA. A line is the innermost one of the "
    "program's own code; what it called in a package stands in table host_lines. A call that waits "
    "takes its time while the GPU works, so look at both columns: a line with an idle GPU holds it "
    "up."
)
KERNEL_NOTE = Text(
    "Samples of warps by ncu. A warp stands at the instruction that needs what it waits for, so a "
    "slow load shows at the line that uses its value; its sectors show at the load. Excessive "
    "sectors are those that contiguous accesses would not need."
)


def section(run: Run) -> Section | None:
    """Return the section; None where no line is known, and none was asked for."""
    host, kernels = _host_tables(run), _kernel_tables(run)
    missing = run.gaps[run.gaps["table"].isin(("host_lines", "source_lines"))]
    reasons = [
        Text("Not available: {reason}.", reason=Verbatim(str(reason)))
        for reason in missing["reason"].dropna()
    ]
    if not host and not kernels:
        return Section(KEY, TITLE, tuple(reasons)) if reasons else None
    return Section(KEY, TITLE, (INTRO, *host, *kernels, *reasons))


def _host_tables(run: Run) -> list[Table[Any]]:
    frame = run.host_lines
    times = frame.groupby("stage")["time_ns"].sum().sort_values(ascending=False)
    rows = [
        (str(stage), line)
        for stage in times.index
        for line in host_lines(frame[frame["stage"] == stage])[:HOST_SHOWN]
    ]
    if not rows:
        return []
    columns: list[Column[tuple[str, HostLine]]] = [
        Column(Text("Stage"), lambda row: row[0] or None),
        Column(Text("Line"), lambda row: Verbatim(row[1].location)),
        Column(Text("Function"), lambda row: Verbatim(row[1].function)),
        Column(Text("The host"), lambda row: Verbatim(doing(row[1]))),
        Column(Text("Samples"), lambda row: row[1].samples),
        Column(Text("Share of the stage"), lambda row: alone(row[1].share)),
        Column(Text("95 %"), lambda row: row[1].share.interval),
        Column(Text("GPU idle"), lambda row: alone(row[1].idle)),
    ]
    return [
        Table(
            "host-lines",
            Text("Lines of Python by stage"),
            columns,
            rows,
            note=HOST_NOTE,
            refs=lambda row: [Ref("host_lines", f"{row[0]} {row[1].file} {row[1].line}")],
        )
    ]


def doing(line: HostLine) -> str:
    """Return what the host did at a line: its activity, and the CUDA call."""
    return f"{line.doing}: {line.call}" if line.call else line.doing


def alone(share: Number) -> Number:
    """Return a share without its interval, which stands beside it."""
    return replace(share, low=None, high=None)


def _kernel_tables(run: Run) -> list[Table[Any]]:
    """A table of the lines of each kernel, and one of its instructions, folded."""
    names = dict(zip(run.kernels["kernel_id"], run.kernels["short_name"], strict=True))
    present = set(run.source_lines["kernel_id"])
    return [
        table
        for key, name in names.items()
        if key in present
        for table in (_lines_table(run, key, name), _instructions_table(run, key, name))
    ]


def _lines_table(run: Run, kernel_id: str, name: str) -> Table[KernelLine]:
    columns: list[Column[KernelLine]] = [
        Column(Text("Line"), lambda row: Verbatim(row.location)),
        Column(
            Text("Source code"), lambda row: Verbatim(row.source.strip()) if row.source else None
        ),
        Column(Text("Share of the samples"), lambda row: alone(row.share)),
        Column(Text("95 %"), lambda row: row.share.interval),
        Column(Text("Most for"), lambda row: Verbatim(row.stall) if row.stall else None),
        Column(Text("Instructions of warps"), lambda row: row.instructions),
        Column(Text("L2 sectors"), lambda row: row.sectors),
        Column(Text("Of them excessive"), lambda row: row.excessive.share_of(row.sectors)),
    ]
    return Table(
        f"source-lines-{kernel_id}",
        Text("Lines of {kernel}", kernel=Name(name, Ref("kernels", kernel_id))),
        columns,
        kernel_lines(run, kernel_id)[:LINES_SHOWN],
        note=KERNEL_NOTE,
    )


def _instructions_table(run: Run, kernel_id: str, name: str) -> Table[Row]:
    """Source and SASS side by side, the instruction with most samples first."""
    frame = run.source_instructions
    rows = frame[frame["kernel_id"] == kernel_id].sort_values(
        ["samples", "instructions", "offset"], ascending=[False, False, True]
    )
    lines = {(line.file, line.line): line.source for line in kernel_lines(run, kernel_id)}
    total = Number(known(rows["samples"].sum(min_count=1)), "count")

    def source(row: Row) -> Value | None:
        found = lines.get((text(row["file"]), count(row["line"]) or 0), "").strip()
        return Verbatim(found) if found else None

    def measured(column: str) -> Callable[[Row], Number]:
        return lambda row: Number(known(row[column]), "count")

    columns: list[Column[Row]] = [
        Column(Text("Line"), lambda row: Verbatim(location(text(row["file"]), count(row["line"])))),
        Column(Text("Source code"), source),
        Column(Text("Instruction"), lambda row: Verbatim(text(row["sass"]))),
        Column(Text("Share of the samples"), lambda row: measured("samples")(row).share_of(total)),
        Column(
            Text("Most for"), lambda row: Verbatim(text(row["stall"])) if row["stall"] else None
        ),
        Column(Text("Warps"), measured("instructions")),
        Column(Text("L2 sectors"), measured("sectors")),
    ]
    return Table(
        f"source-sass-{kernel_id}",
        Text("Source and instructions of {kernel}", kernel=Name(name, Ref("kernels", kernel_id))),
        columns,
        records(rows.head(INSTRUCTIONS_SHOWN)),
        folded=True,
    )
