"""Work of the GPU that a line asks for, of which less would do: known by the text of the line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.names.source_text import DERIVES, Result, results
from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.lines import launched_time, location
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

    `used` matches what becomes of their result, which stands there as RESULT: each line that uses
    it, or the line itself behind a bracket; `once`: one such use tells enough; `at_use`: that line
    is what to mend. `around`: the line
    may be one that calls others, whose launches count. `loop`: times per call of its function that
    it launches a kernel, at least; `state`: what the lines of its function tell of it (`Result`).
    `kernels` matches names, `launches` that of a kernel that the line launches, too. `watched`: its
    result is not what its function returns, as far as the text tells.

    `does` stands behind "the program", `saves` is what goes of the time of their kernels, of some
    categories alone where these are given; where `multiple` is given, all but that many times the
    time of all other kernels, and with it the waits for the lines. `unless` matches kernels that
    show it to be needed. `onwards`: kernels count, too, which pass over its result where that is
    used, and in the backward pass.
    Where `saves` is 0, all but one of `loop` go, or what steps of a slice leave out.
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
    onwards: bool = False
    multiple: float = math.nan
    used: str = ""
    at_use: bool = False
    once: bool = False
    around: bool = False
    loop: int = 0
    state: str = ""
    kernels: str = ""
    launches: str = ""
    watched: bool = False

    def saved(self, rows: pd.DataFrame, time: Number, total: Number) -> Number:
        """Return what goes of the time of its kernels, of `rows`; `total` is that of all."""
        if math.isnan(self.multiple):
            fraction = self.saves or 1 - (rows["gpu_ns"] / rows["equal"]).sum() / number(time.value)
            return Number(fraction * number(time.value), "ns", time.refs)
        stays = self.multiple * number((total - time).value)
        return Number(max(0.0, number(time.value) - stays), "ns", time.refs)

    def is_at(self, rows: pd.DataFrame) -> pd.Series[bool]:
        """Tell which rows of launches by line are its own."""
        fits = np.full(len(rows), not (self.pattern or self.inner))
        for name, pattern in (("source", self.pattern), ("inner", self.inner)):
            if pattern:
                texts = rows[name].fillna("")
                fits |= np.array([re.search(pattern, text) is not None for text in texts], bool)
        found = pd.Series(fits, rows.index)
        if not fits.any():  # of nearly all works
            return found
        if self.state:
            found &= rows[self.state]
        if self.used:
            itself = rows["source"].fillna("").str.replace(CLOSED, " RESULT", regex=True)
            enough = any if self.once else all
            of_all = rows["uses"].map(
                lambda uses: enough(re.search(self.used, use) for use in uses)
            )
            unsure = rows["uses"].map(lambda uses: any(EITHER.search(use) for use in uses))
            of_all &= (rows["uses"].str.len() > 0) & (rows["copied"] | ~unsure)
            found &= (itself.str.count(self.used) > 0) | of_all
        found &= rows["name"].str.contains(self.kernels) & (rows["times"] >= self.loop)
        if self.launches:
            telling = rows["name"].str.contains(self.launches)
            found &= telling.groupby([rows["file"], rows["line"]]).transform("any")
        found &= (self.around | rows["depth"].eq(0)) & ~(self.watched & rows["is_returned"])
        return found & (rows["category"].isin(self.categories) | (not self.categories))


CLOSED = r"[)\]](?=[.\[])"
"""What stands before the use of a result that has no name."""
PASSED_ON, TAKES = "return RESULT", " RESULT["
"""The use of a result that is that of its function, and of one of which a part is taken at once."""
SLICED, EITHER = re.compile(r"::(\d+)"), re.compile(r" if .* else ")
"""Steps of a slice, and what does one of two things: a part that is taken is copied together."""
ALIKE = 0.9
"""Part of the time of the longest line from which on another takes about as long."""
ENOUGH, LONGER = 0.9, 2.0
"""Launches of a gradient for each item, and times that of zeros that a sum takes, at least."""
ADDS, SELECTED = "CUDAFunctor_add", "select_backward"
"""Kernels that add gradients up, and what those of single items are of."""
WORKS = [
    of_row(Work, row)
    for row in packaged_yaml("nsight_prof.reports.findings.program", "needless.yaml")
]
"""Work that a line tells by its text, the most telling first; a line is of the first that fits."""


def needless_work(run: Run) -> list[Finding]:
    """Return a finding for each kind of work whose lines launch enough of the GPU time."""
    rows = launched_time(run)
    return list(_found(run, _with_texts(run, _with_selections(run, rows)))) if len(rows) else []


def _with_selections(run: Run, rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with gradients of items at the line that takes these by number.

    The backward pass of each fills a tensor of the size of all with zeros, and adds it to those of
    the others: it reads two and writes one, so that this takes longer than to write zeros.
    """
    known = results(run.timed_lines)
    indexed = {at: result for at, result in known.items() if result.indexed}
    if not indexed:
        return rows
    at = max(indexed, key=lambda at: indexed[at].indexed)
    takes, entries = (
        sum(getattr(r, name) for r in indexed.values()) for name in ("indexed", "entries")
    )
    derived = rows["source"].fillna("").str.contains(DERIVES) & rows["depth"].eq(0)
    derived &= rows["launches"] >= ENOUGH * (takes - entries)
    each = rows["gpu_ns"] / rows["launches"]
    zeros = derived & rows["category"].eq("fill")
    sums = derived & rows["name"].str.contains(ADDS) & (each >= LONGER * each[zeros].max())
    if not sums.any():
        return rows
    line = run.timed_lines.set_index(["file", "line"])["source"].get(at)
    moved = dict(zip(("file", "line", "source", "inner"), (*at, line, SELECTED), strict=True))
    for name, to in moved.items():
        rows = rows.assign(**{name: rows[name].mask(zeros | sums, to)})
    return rows


def _with_passes(
    known: dict[tuple[str, int], Result], rows: pd.DataFrame, found: pd.DataFrame
) -> pd.DataFrame:
    """Return rows of lines that were found and those of kernels that pass over their results.

    These are launched by lines that use them, and where the program derives. They take as long as
    one pass over memory: a third of the longest of the lines, which reads two and writes one.
    """
    at = set(zip(found["file"], found["line"], strict=True))
    at |= {(file, n) for file, line in at for n in known.get((file, line), Result()).used_at}
    each = rows["gpu_ns"] / rows["launches"]
    passes = each >= (found["gpu_ns"] / found["launches"]).max() / 3
    passes &= rows["category"].isin((*set(found["category"]), "copy", "elementwise", "reduction"))
    pairs = zip(rows["file"], rows["line"], strict=True)
    uses = pd.Series([pair in at for pair in pairs], rows.index)
    uses |= rows["source"].fillna("").str.contains(DERIVES)
    passing: pd.DataFrame = rows[passes & uses & rows["depth"].eq(0)]
    return pd.concat([found, passing])


def _with_texts(run: Run, rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with what the text of their function tells of their line (`Result`).

    `times` is how often a kernel is launched there for each call of the function, `equal` the
    number of which one would do: these, or all places of which a slice takes one.
    """
    known, empty = results(run.timed_lines), Result(entries=0)
    of_row = [known.get(at, empty) for at in zip(rows["file"], rows["line"], strict=True)]
    per_line = rows.groupby(["file", "line", "kernel_id"])["launches"].transform("sum")
    times = [
        n / result.entries if result.entries else 0.0
        for n, result in zip(per_line, of_row, strict=True)
    ]
    places = [rows[name] for name in ("file", "line")]
    texts = zip(of_row, rows["source"].fillna(""), times, strict=True)
    passed_on = _uses_by_callers(known, rows)
    tables = rows["depth"].eq(0) & pd.Series([r.is_table for r in of_row], rows.index, dtype=bool)
    of_tables = set(rows.loc[tables, "launch"])
    uses = [
        passed_on.get(launch, each.uses) if set(each.uses) == {PASSED_ON} else each.uses
        for each, launch in zip(of_row, rows["launch"], strict=True)
    ]
    return rows.assign(
        uses=pd.Series(uses, rows.index, dtype=object),
        again=[result.again for result in of_row],
        is_same=[result.is_same for result in of_row],
        is_last=[result.is_last for result in of_row],
        is_kept=[result.is_kept for result in of_row],
        is_returned=[result.is_returned for result in of_row],
        is_constant=[result.is_constant for result in of_row],
        is_table=[
            result.is_fixed and depth == 1 and launch in of_tables
            for result, depth, launch in zip(of_row, rows["depth"], rows["launch"], strict=True)
        ],
        copied=rows["category"].eq("copy").groupby(places).transform("any"),
        times=times,
        equal=[_left_out([*result.uses, source]) or max(1.0, n) for result, source, n in texts],
    )


def _uses_by_callers(
    known: dict[tuple[str, int], Result], rows: pd.DataFrame
) -> dict[int, list[str]]:
    """Return by launch how the line that calls its function uses what that returns."""
    calling = rows[rows["depth"].eq(1)]
    places = zip(calling["launch"], calling["file"], calling["line"], strict=True)
    texts = calling["source"].fillna("").str.replace(CLOSED, " RESULT", regex=True)
    return {
        launch: [source] if TAKES in source else known.get((file, line), Result()).uses
        for (launch, file, line), source in zip(places, texts, strict=True)
    }


def _left_out(uses: list[str]) -> int:
    """Return of how many places a slice takes one; 0 where no use is one."""
    steps = [[int(step) for step in SLICED.findall(use)] for use in uses]
    return max((math.prod(each) for each in steps if each), default=0)


def _found(run: Run, rows: pd.DataFrame) -> Iterator[Finding]:
    rule, total = NEEDLESS_WORK, Number(kernel_time(run), "ns", column("kernels", "total_ns"))
    for work in WORKS:
        found = of_text = rows[work.is_at(rows)]
        if found.empty:
            continue
        if work.onwards:
            found = _with_passes(results(run.timed_lines), rows, found)
        found = found.drop_duplicates("launch")  # the innermost line
        rows = rows[~rows["launch"].isin(found["launch"])]
        refs = (*total.refs, Ref("launch_lines", "", "samples"))
        time = Number(found["gpu_ns"].sum(), "ns", refs)
        share, samples = time.share_of(total), Number(found["samples"].sum(), "count", refs[1:])
        if work.unless and run.kernels["name"].fillna("").str.contains(work.unless).any():
            continue
        if not number(share.value) >= rule.limit("share"):
            continue
        if number(samples.value) < rule.limit("samples"):
            continue
        saved = work.saved(found, time, total)
        if not number(saved.share_of(total).value) >= rule.limit("share"):
            continue
        gains, waits = of_gpu_time(saved, time, total), Number(0.0, "ns")
        if work.state or not math.isnan(work.multiple):  # nor need it be launched
            waits = _waits(run, found, number(saved.share_of(time).value))
            gains |= of_wall_time(saved + waits, program_time(run)[0])
        of_line = of_text.groupby(["file", "line"])["gpu_ns"].sum().sort_values(ascending=False)
        at = _in_order(of_line)[:2]
        if work.at_use:
            at = [*((at[0][0], n) for n in results(run.timed_lines)[at[0]].used_at[:1]), *at][:2]
        places = [Verbatim(location(*pair)) for pair in at]
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


def _in_order(of_line: pd.Series[float]) -> list[tuple[str, int]]:
    """Return lines in the order of the program as far as they take about as long as the longest."""
    at = [(str(file), int(line)) for file, line in of_line.index]
    alike = int((of_line >= ALIKE * of_line.max()).sum())
    return [*sorted(at[:alike]), *at[alike:]]


def _formula(work: Work) -> Text:
    if math.isnan(work.multiple):
        return Text("the time x {part}", part=Number(work.saves))
    return Text("the time - {n} x that of all other kernels", n=Number(work.multiple))


def _waits(run: Run, found: pd.DataFrame, saved_share: float) -> Number:
    """Return the part of the idle time in which the host is at these lines."""
    lines = run.host_lines.merge(found[["file", "line"]].drop_duplicates(), on=["file", "line"])
    idle = saved_share * number(lines["idle_ns"].sum())
    return Number(idle, "ns", (Ref("host_lines", "", "idle_ns"),))
