"""Idle time of the GPU while the host is in work of a library that has a remedy of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pandas as pd

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.gpu_times import HOST
from nsight_prof.reports.analysis.idle import Stage, idle_stages
from nsight_prof.reports.analysis.lines import host_rows
from nsight_prof.reports.analysis.stages import program_time
from nsight_prof.reports.analysis.timeline import idle_at_start
from nsight_prof.reports.findings.gain import of_host, of_wall_time
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program import idle_rules
from nsight_prof.reports.findings.program.rule import (
    RULES,
    Rule,
    Threshold,
    column,
    measured,
    message,
    rows_of,
    wall_evidence,
)
from nsight_prof.reports.page import Evidence, Number, Text

COMPILATION, DATA_LOADING = RULES["compilation"], RULES["data_loading"]
CONVOLUTION_SEARCH, RECOMPUTATION = RULES["convolution_search"], RULES["recomputation"]
INTERPRETER_LOCK = RULES["interpreter_lock"]
THRESHOLDS = RULES["optimizer_loop"].thresholds
"""Limits of all rules about work of the host."""


class HostWork(NamedTuple):
    """A rule about a work of table `host_lines`, and the words of a finding.

    `title` takes `part` and `where`, `problem` takes `lost`, `wall` and `where`. `counted`: the
    column of samples and of time, those without GPU work unless the GPU works for it, too.
    """

    rule: Rule
    title: Callable[..., Text]
    problem: Callable[..., Text]
    counted: tuple[str, str] = ("idle_samples", "idle_ns")

    @property
    def waits(self) -> bool:
        """Whether only time in which the GPU waits for it counts."""
        return self.counted[1] == "idle_ns"


def _work(row: dict[str, str]) -> HostWork:
    counted = ("samples", "time_ns") if row.get("while_busy") else ("idle_samples", "idle_ns")
    if "what" in row:  # a clause tells all: the GPU waits while the host does it
        what = message(row["what"])
        title = partial(
            Text, "The GPU waits while {what}, for {part} of the time {where}", what=what
        )
        problem = partial(
            Text, "The GPU is idle for {lost} of {wall} {where} while {what}.", what=what
        )
        return HostWork(RULES[row["rule"]], title, problem, counted)
    title, problem = (partial(message, row[name]) for name in ("title", "problem"))
    return HostWork(RULES[row["rule"]], title, problem, counted)


OF_WORK = {
    name: _work(row)
    for name, row in rows_of("nsight_prof.reports.findings.program", "host_work.yaml").items()
}
"""What to say of each work in table `host_lines`."""


NOTING_STACKS = "noting stacks"
CAPTURING = "capturing graphs"
MOST_AT_ONE = 0.5
"""Part of the idle samples of a thread in libraries that tells that it is held up: at least so much
there, and less at each of its places."""
OF_STACKS = Text("stacks of Python, sampled by nsys")


def with_host_work(run: Run, waits: list[Finding]) -> list[Finding]:
    """Return findings about idle time with those about the work that the host is in meanwhile.

    What the host does otherwise is left out where this work is nearly all that it does.
    """
    found = list(waits)
    for stage in idle_stages(run) if not run.host_lines.empty else ():
        here = {f.rule for f in found if f.stage == stage.name}
        for name, work in OF_WORK.items():
            rows = _rows(run, stage, name)
            time, bound = rows[work.counted[1]].sum(), stage.idle if work.waits else stage.wall
            lost = Number(
                min(time, number(bound.value)), "ns", column("host_lines", work.counted[1])
            )
            if work.rule is CONVOLUTION_SEARCH and not _times_events(run):
                continue
            if work.rule.key in here or not _matters(run, stage, rows[work.counted[0]], lost):
                continue
            found = [f for f in found if not _explains(f, stage, lost)]
            found.append(_finding(run, stage, work, rows, lost))
    return [_with_threads(run, finding) for finding in found]


def busy_threads(run: Run) -> pd.DataFrame:
    """Return rows of table `thread_lines` of threads that run: not those that wait at one line.

    A loop gives the lock back at its last line, where all its samples are: such a thread runs where
    the one that calls CUDA stands in functions of libraries that do hardly anything but launch.
    """
    frame, limits = run.thread_lines, INTERPRETER_LOCK
    often = frame.groupby("thread")["samples"].sum()
    on_one_line = frame.groupby("thread")["samples"].max() / often
    minimum = limits.limit("present") * run.host_lines["samples"].sum()
    running = often[often >= max(minimum, 1)]
    if not _idles_in_libraries(run):
        running = running[on_one_line[running.index] <= limits.limit("one_line")]
    waits = frame["inner"].fillna("") != ""  # in a lock, a queue or a socket
    waiting = frame["samples"].where(waits, 0).groupby(frame["thread"]).sum()
    running = running[waiting[running.index] <= limits.limit("one_line") * running]
    return frame[frame["thread"].isin(running.index)]


def _idles_in_libraries(run: Run) -> bool:
    """Tell whether most of the idle time is spent at many places in libraries, none of them most.

    Work of the program's own is at one place; a thread that waits for its turn is anywhere.
    """
    rows = run.host_lines[run.host_lines["activity"] == "program"]
    inner = rows["inner"].fillna("")
    samples = rows["idle_samples"].groupby(inner).sum()
    in_libraries = samples[samples.index != ""]
    half = MOST_AT_ONE * samples.sum()
    return bool(len(in_libraries)) and half <= in_libraries.sum() and in_libraries.max() < half


def _with_threads(run: Run, finding: Finding) -> Finding:
    """Return a finding about a host that does something else, as one about the threads that run."""
    rows = busy_threads(run) if finding.rule == idle_rules.HOST_BOUND.key else pd.DataFrame()
    if rows.empty:
        return finding
    rule = INTERPRETER_LOCK
    samples = Number(rows["samples"].sum(), "count", column("thread_lines", "samples"))
    title = Text(
        "The GPU waits while another Python thread holds the interpreter's lock ({finding})",
        finding=finding.title,
    )
    return replace(
        finding,
        rule=rule.key,
        title=title,
        headline=title,
        verdict=Text(
            "{verdict} Meanwhile another thread of Python runs, which makes no CUDA call: only one "
            "of them has the interpreter's lock (GIL) at a time.",
            verdict=finding.verdict,
        ),
        action=rule.action,
        advice=rule.advice,
        disproof=rule.disproof,
        confidence="medium",
        evidence=(
            *finding.evidence,
            measured(Text("samples of Python threads that make no CUDA call"), samples, OF_STACKS),
        ),
    )


def _times_events(run: Run) -> bool:
    """Tell whether the program waits for events again and again, as cuDNN's search does."""
    calls = run.api_calls[run.api_calls["name"].fillna("").str.startswith("cudaEventSynchronize")]
    return bool(calls["calls"].sum() >= CONVOLUTION_SEARCH.limit("timed"))


def is_in_work(rows: pd.DataFrame, name: str) -> pd.Series[bool]:
    """Tell which rows of table `host_lines` are in a work, by its key in OF_WORK."""
    chosen = rows["work"] == name
    if name == NOTING_STACKS and chosen.any():  # gradients are checked, and waited for, there
        chosen |= rows["inner"].fillna("").str.endswith(" _engine_run_backward")
    return chosen


def _rows(run: Run, stage: Stage, name: str) -> pd.DataFrame:
    rows = host_rows(run, stage.name)
    chosen = is_in_work(rows, name)
    if name == CAPTURING and _captures(run):  # of what the capture records nothing runs
        chosen |= (rows["work"] == "") & (rows["activity"] != "waiting")
    if OF_WORK[name].rule is idle_rules.ALLOCATION_STALLS:  # what was given back is allocated again
        chosen |= rows["activity"] == "allocating"
    return rows[chosen]


def _captures(run: Run) -> bool:
    """Tell whether graphs are instantiated again and again."""
    calls = run.api_calls[run.api_calls["name"].fillna("").str.startswith("cudaGraphInstantiate")]
    return bool(calls["calls"].sum() >= idle_rules.LAUNCH_BOUND.limit("waits") / 2)


def _matters(run: Run, stage: Stage, samples: pd.Series[int], lost: Number) -> bool:
    limits = THRESHOLDS
    return bool(
        samples.sum() >= limits["samples"].value
        and number(lost.share_of(stage.wall).value) >= _share_limit(stage).value
        and number(lost.share_of(program_time(run)[0]).value) >= threshold("small_gain")
    )


def _share_limit(stage: Stage) -> Threshold:
    # A program that starts up once may idle long: a whole capture is held to the higher share.
    return (idle_rules.IDLE.thresholds if stage.is_capture else THRESHOLDS)["share"]


def _explains(finding: Finding, stage: Stage, lost: Number) -> bool:
    """Tell whether a finding about what else the host does is about this time alone."""
    gaps = number(stage.of_cause(HOST).idle.value)
    enough = number(lost.value) >= THRESHOLDS["explained"].value * gaps
    return finding.rule == idle_rules.HOST_BOUND.key and finding.stage == stage.name and enough


def _finding(run: Run, stage: Stage, work: HostWork, rows: pd.DataFrame, lost: Number) -> Finding:
    rule, where, samples = work.rule, stage.where, work.counted[0]
    wall = program_time(run)[0]
    time = Number(rows["time_ns"].sum(), "ns", column("host_lines", "time_ns"))
    longest = stage.of_cause(HOST).longest.value or 0.0
    lasting = number(stage.idle.value) - _at_start(run, stage)
    saved_ns = min(number(time.value), number(wall.value))
    if work.waits:
        saved_ns = of_host(run, min(saved_ns, number(stage.idle.value), lasting))
    saved = Number(saved_ns, "ns", time.refs)
    gain = of_wall_time(saved, wall)
    if rule is COMPILATION and longest >= rule.limit("once") * number(lost.value):
        saves, gain = ONCE, {"gain_of": "wall time"}
    elif lasting < AT_START * rows["idle_ns"].sum():
        saves, gain = START_UP, {"gain_of": "wall time"}
    else:
        saves = _gain(saved, wall)
    limit = THRESHOLDS["samples"]
    return rule.finding(
        key="idle",
        stage=stage.name,
        title=work.title(part=lost.share_of(stage.wall), where=where),
        verdict=Text(
            "{problem} {gain}",
            problem=work.problem(lost=lost, wall=stage.wall, where=where),
            gain=saves,
        ),
        evidence=(
            Evidence(
                Text("idle share") if work.waits else Text("share of the time"),
                lost.share_of(stage.wall),
                Text("{limit} or more", limit=_share_limit(stage).number),
                _share_limit(stage).source,
            ),
            measured(Text("idle time"), lost, OF_STACKS) if work.waits else None,
            measured(Text("time of the host in it"), time, OF_STACKS),
            Evidence(
                Text("samples of stacks in it without GPU work")
                if work.waits
                else Text("samples of stacks in it"),
                Number(rows[samples].sum(), "count", column("host_lines", samples)),
                Text("{limit} or more", limit=limit.number),
                limit.source,
            ),
            wall_evidence(wall),
            measured(Text("idle time of all causes"), stage.idle),
        ),
        confidence="medium",
        **gain,
    )


def _at_start(run: Run, stage: Stage) -> float:
    """Return the idle time in ns of a whole capture that comes once, at its start."""
    return idle_at_start(run) if stage.is_capture else 0.0


AT_START = 0.5
"""Part of a work that must be after the start of a capture, else it is one of the start."""
ONCE = Text("Most of it is one gap: it comes once, and costs a long run nothing.")
START_UP = Text(
    "Most of it comes before all kernels that repeat have run: once, which costs a long run "
    "nothing."
)


def _gain(saved: Number, wall: Number) -> Text:
    return Text(
        "Without it at most {gain} of the wall time under nsys is saved ({saved}); it is part of "
        "what other findings about idle time tell.",
        gain=saved.share_of(wall),
        saved=saved,
    )
