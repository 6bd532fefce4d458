"""Work of the GPU that a line asks for, of which less would do: known by the text of the line."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.lines import launching_rows, location
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.stages import program_time
from nsight_prof.reports.findings.gain import of_gpu_time, of_wall_time
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.rule import (
    LISTED,
    Rule,
    Threshold,
    column,
    measured,
    of_row,
)
from nsight_prof.reports.page import Evidence, Number, Ref, Text, Verbatim

NEEDLESS_WORK = Rule(
    key="needless_work",
    question="Does the GPU compute at a line what could be left out, or had for less?",
    requires="a trace with samples of Python stacks",
    thresholds={
        "share": Threshold(0.03, Text("prof: part of the GPU time worth a finding")),
        "samples": Threshold(
            10, Text("prof: fewer samples tell a share to no better than a factor of two"), "count"
        ),
    },
    gain="time of the kernels that these lines launch, by samples of stacks, x the part that goes: "
    "all of it where the result is the same each time, or needed rarely. Of gradients all but "
    "twice the time of what they are of: a backward pass takes about twice its forward pass.",
)


class Work(NamedTuple):
    """What lines do that match `pattern`, or that are in functions of a library (`inner`).

    `does` stands behind "the program", `saves` is what goes of the time of their kernels, of some
    categories alone where these are given; where `multiple` is given, all but that many times the
    time of all other kernels, and with it the waits for the lines. `unless` matches kernels that
    show it to be needed.
    """

    does: Text
    action: Text
    advice: Text
    disproof: Text
    pattern: str = ""
    saves: float = 1.0
    categories: tuple[str, ...] = ()
    inner: str = ""
    unless: str = ""
    multiple: float = math.nan

    def saved(self, time: Number, total: Number) -> Number:
        """Return what goes of the time of its kernels; `total` is that of all."""
        if math.isnan(self.multiple):
            return Number(self.saves * number(time.value), "ns", time.refs)
        stays = self.multiple * number((total - time).value)
        return Number(max(0.0, number(time.value) - stays), "ns", time.refs)

    def is_at(self, rows: pd.DataFrame) -> pd.Series[bool]:
        """Tell which rows of launches by line are its own."""
        found = pd.Series(False, rows.index)
        for name, pattern in (("source", self.pattern), ("inner", self.inner)):
            if pattern:
                found |= rows[name].fillna("").str.count(pattern) > 0  # contains warns of groups
        return found & (rows["category"].isin(self.categories) | (not self.categories))


WORKS = [
    of_row(Work, row)
    for row in packaged_yaml("nsight_prof.reports.findings.program", "needless.yaml")
]
"""Work that a line tells by its text, the most telling first; a line is of the first that fits."""


def needless_work(run: Run) -> list[Finding]:
    """Return a finding for each kind of work whose lines launch enough of the GPU time."""
    rows = launching_rows(run)
    if rows.empty:
        return []
    kernels = run.kernels.set_index("kernel_id")
    rows = rows[rows["kernel_id"].isin(kernels.index)]
    of_kernel = rows["samples"].groupby(rows["kernel_id"]).transform("sum")
    launched = rows["kernel_id"].map(kernels["total_ns"]).astype(float)
    rows = rows.assign(
        category=rows["kernel_id"].map(kernels["category"]).fillna("other"),
        gpu_ns=launched * rows["samples"] / of_kernel,
    )
    return list(_found(run, rows))


def _found(run: Run, rows: pd.DataFrame) -> Iterator[Finding]:
    rule, total = NEEDLESS_WORK, Number(kernel_time(run), "ns", column("kernels", "total_ns"))
    for work in WORKS:
        chosen = work.is_at(rows)
        found, rows = rows[chosen], rows[~chosen]
        refs = (*total.refs, Ref("launch_lines", "", "samples"))
        time = Number(found["gpu_ns"].sum(), "ns", refs)
        share, samples = time.share_of(total), Number(found["samples"].sum(), "count", refs[1:])
        if work.unless and run.kernels["name"].fillna("").str.contains(work.unless).any():
            continue
        if not number(share.value) >= rule.limit("share"):
            continue
        if number(samples.value) < rule.limit("samples"):
            continue
        saved = work.saved(time, total)
        if not number(saved.share_of(total).value) >= rule.limit("share"):
            continue
        gains, waits = of_gpu_time(saved, time, total), Number(0.0, "ns")
        if not math.isnan(work.multiple):
            waits = _waits(run, found, number(saved.share_of(time).value))
            gains |= of_wall_time(saved + waits, program_time(run)[0])
        of_line = found.groupby(["file", "line"])["gpu_ns"].sum().sort_values(ascending=False)
        places = [Verbatim(location(str(f), int(n))) for f, n in of_line.index[:2]]
        ids = found.groupby("kernel_id")["gpu_ns"].sum().sort_values(ascending=False).index
        yield rule.finding(
            title=Text("The program {does}: {share} of the GPU time", does=work.does, share=share),
            verdict=Text(
                "The program {does} at {places}: kernels that are launched there take {share} of "
                "the GPU time ({time}). Without that, or with less of it, at most {gain} of the "
                "GPU time is saved ({saved}).{waits}",
                does=work.does,
                places=places,
                share=share,
                time=time,
                gain=saved.share_of(total),
                saved=saved,
                waits=Text(" So are {waits} in which the GPU waits for these lines.", waits=waits)
                if waits.value
                else "",
            ),
            kernel_ids=tuple(map(str, ids[:LISTED])),
            action=work.action,
            advice=work.advice,
            disproof=work.disproof,
            evidence=(
                Evidence(
                    Text("time of kernels launched there"),
                    time,
                    Text("{limit} of the GPU time", limit=rule.thresholds["share"].number),
                    Text("nsys: time of each kernel x the line's part of its samples"),
                ),
                measured(Text("samples of stacks at these lines"), samples),
                measured(Text("could save"), saved, _formula(work)),
                measured(Text("waits for these lines that go with it"), waits)
                if waits.value
                else None,
            ),
            confidence="low",
            **gains,
        )


def _formula(work: Work) -> Text:
    if math.isnan(work.multiple):
        return Text("the time x {part}", part=Number(work.saves))
    return Text("the time - {n} x that of all other kernels", n=Number(work.multiple))


def _waits(run: Run, found: pd.DataFrame, saved_share: float) -> Number:
    """Return the part of the idle time in which the host is at these lines."""
    lines = run.host_lines.merge(found[["file", "line"]].drop_duplicates(), on=["file", "line"])
    idle = saved_share * number(lines["idle_ns"].sum())
    return Number(idle, "ns", (Ref("host_lines", "", "idle_ns"),))
