"""Turns the time in which the GPU has nothing to do into findings by what the host did then."""

from __future__ import annotations

import math

import pandas as pd

from nsight_prof.parsers.cells import Row, number
from nsight_prof.reports.analysis.stages import idle_share, stage_rows, wall_time
from nsight_prof.reports.evidence import Evidence, threshold
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.formats import counted, duration, share
from nsight_prof.reports.idle_stage import (
    CallTimes,
    LaunchCost,
    Stage,
    call_times,
    gaps_of,
    launch_cost,
)
from nsight_prof.reports.idle_words import (
    TRACING,
    host_calls,
    host_words,
    in_all,
    kept_words,
    launch_words,
    split_words,
    sync_words,
)
from nsight_prof.reports.load import Run
from nsight_prof.reports.program_rules import finding, limit, source_of

RULES = {"launches": "launch_bound", "host": "host_bound", "synchronisation": "sync_stalls"}
"""The rule that explains idle time of each cause of table `idle_gaps`; the GPU's own has none."""
MOSTLY = 0.5
"""Part of the gaps' time in launch calls from which on it may be nsys that makes them."""


def idle_findings(run: Run) -> list[Finding]:
    """Return a finding for each stage and cause of idle time that is worth one."""
    wall, most = wall_time(run)
    rows = stage_rows(run)
    found: list[Finding] = []
    for row in rows:
        stage = Stage(row, gaps_of(run, row), wall, most)
        told = [f for cause, rule in RULES.items() for f in _of_cause(run, stage, cause, rule)]
        found += told or _unexplained(run, stage)
    rest = _outside(run, rows)
    return [*found, _outside_finding(rest, wall)] if _worth_saying(rest, wall) else found


def _of_cause(run: Run, stage: Stage, cause: str, rule: str) -> list[Finding]:
    rows = stage.of_cause(cause)
    lost, gaps = number(rows["idle_ns"].sum()), number(rows["gaps"].sum())
    # What starts up once may idle long: a whole capture needs as much idle time as ever.
    least = limit("idle", "share") if stage.whole else limit(rule, "share")
    small = lost < least * stage.wall or lost < threshold("small_gain") * stage.program_wall
    few = rule == "launch_bound" and gaps < limit(rule, "gaps")
    if small or few or not gaps:
        return []
    cost, times = launch_cost(run), call_times(rows)
    kept = 0.0 if rule == "host_bound" else gaps * (limit("launch_bound", "graph_gap") + cost.added)
    saved = min(max(0.0, lost - kept), stage.program_idle)
    part = lost / stage.wall
    words = {
        "launch_bound": launch_words(stage, rows, times),
        "host_bound": host_words(stage, rows),
        "sync_stalls": sync_words(stage, rows),
    }[rule]
    of = "its wall time" if rule == "host_bound" else "its wall time under nsys"
    most = f"at most {share(saved / stage.program_wall)} of {of} ({duration(saved)})"
    sentence = f"{words}{in_all(stage, lost)} Without these gaps the program would save {most}."
    waits = {"launch_bound": "for launches", "host_bound": "for the host"}
    title = (
        f"The GPU waits {waits.get(rule, 'after synchronisations')} for {share(part)} of the time"
    )
    return [
        finding(
            rule,
            key="idle",
            stage=stage.name,
            title=f"{title} {stage.where}",
            sentence=f"{sentence} {kept_words(rule, cost)}".rstrip(),
            evidence=(
                *_seen(stage, rows, rule, least),
                *(times.evidence() if rule == "launch_bound" else []),
                *_gain(stage, rule, cost, saved),
                Evidence("idle time of all causes", stage.idle, "ns", "", "nsys",
                         ("stages.idle_ns",)),
                *stage.others(cause),
            ),
            gain_program=saved / stage.program_wall,
            gain_ns=saved,
            gain_of="wall time",
            confidence=_confidence(stage, rule, cost, times),
        )
    ]  # fmt: skip


def _seen(stage: Stage, rows: pd.DataFrame, rule: str, least: float) -> list[Evidence]:
    """Return the gaps and what they are held to."""
    lost, gaps = number(rows["idle_ns"].sum()), number(rows["gaps"].sum())
    idle, many = "idle_gaps.idle_ns", "idle_gaps.gaps"
    return [
        Evidence("idle share", 100 * lost / stage.wall, "%", f"{100 * least:g} % or more",
                 source_of(rule, "share"), (idle, "stages.wall_ns")),
        Evidence("idle time", lost, "ns", "", "nsys", (idle,)),
        Evidence("gaps", gaps, "", "", "nsys", (many,)),
        Evidence("mean gap", lost / gaps, "ns", *_held_to(rule), (idle, many)),
        Evidence("longest gap", number(rows["longest_ns"].max()), "ns", "", "nsys",
                 ("idle_gaps.longest_ns",)),
        Evidence("mean kernel", stage.kernel_mean, "ns", "", "nsys",
                 ("stages.kernel_ns", "stages.launches")),
    ]  # fmt: skip


def _gain(stage: Stage, rule: str, cost: LaunchCost, saved: float) -> list[Evidence]:
    """Return what the gain is worked out from, so that it can be done by hand."""
    wall = Evidence("wall time of the program under nsys", stage.program_wall, "ns", "", "nsys",
                    ("stages.wall_ns",))  # fmt: skip
    top = "at most the idle time of the capture"
    if rule == "host_bound":
        return [Evidence("could save", saved, "ns", "", f"idle time, {top}"), wall]
    formula = "gaps x (left of each gap + what nsys adds to a launch)"
    if not cost.added:
        formula = "gaps x left of each gap"
    return [
        Evidence("left of each gap", limit("launch_bound", "graph_gap"), "ns", "",
                 source_of("launch_bound", "graph_gap")),
        *cost.evidence(),
        Evidence("could save", saved, "ns", "", f"idle time - {formula}, at least 0 and {top}"),
        wall,
    ]  # fmt: skip


def _held_to(rule: str) -> tuple[str, str]:
    long_gap = f"{duration(limit('host_bound', 'long_gap'))}"
    side = f"{long_gap} or more each" if rule == "host_bound" else f"under {long_gap} each"
    return side, source_of("host_bound", "long_gap")


def _confidence(stage: Stage, rule: str, cost: LaunchCost, times: CallTimes) -> str:
    """Return how sure it is: tracing lengthens launches, and long gaps hardly."""
    in_calls = times.known and times.part(times.inside) > MOSTLY and not cost.added
    if stage.whole or (rule == "launch_bound" and in_calls):
        return "low"
    return "high" if rule == "host_bound" else "medium"


def _unexplained(run: Run, stage: Stage) -> list[Finding]:
    """Return a finding for idle time whose causes are small each, or not in the trace."""
    if not _worth_saying(stage.row, stage.program_wall):
        return []
    part, idle_ns = idle_share(stage.row), number(stage.row["idle_ns"])
    # A range also counts what lies before the first kernel of the capture and after the last.
    saved = min(idle_ns, stage.program_idle)
    launches = number(stage.row["launches"]) / stage.gpus
    gap = idle_ns / launches if launches > 0 else math.nan
    each = f"; {duration(gap)} for each of {counted(launches, 'launch')}" if gap > 0 else ""
    lost = f"{duration(idle_ns)} of the {duration(stage.wall)} {stage.where}"
    why = split_words(stage) or host_calls(run, idle_ns * stage.gpus)
    words = (
        f"The GPU has nothing to do for {lost} ({share(part)}{each}).{why} Without "
        f"the gaps the program would save at most {share(saved / stage.program_wall)} of its wall "
        f"time; {TRACING}"
    )
    return [
        finding(
            "idle",
            stage=stage.name,
            title=f"The GPU has nothing to do for {share(part)} of the time {stage.where}",
            headline=f"The GPU has nothing to do for {lost}",
            sentence=words,
            evidence=(
                Evidence("idle share", 100 * part, "%",
                         f"{100 * limit('idle', 'share'):g} % or more",
                         source_of("idle", "share"), ("stages.idle_ns", "stages.wall_ns")),
                Evidence("idle time", idle_ns, "ns", "", "nsys", ("stages.idle_ns",)),
                Evidence("idle time per launch", gap, "ns", "", "nsys",
                         ("stages.idle_ns", "stages.launches")),
                Evidence("wall time of the program under nsys", stage.program_wall, "ns", "",
                         "nsys", ("stages.wall_ns",)),
                *stage.others(""),
            ),
            gain_program=saved / stage.program_wall,
            gain_ns=saved,
            gain_of="wall time",
            confidence="low" if stage.whole else "medium",
        )
    ]  # fmt: skip


def _worth_saying(row: Row, wall_ns: float) -> bool:
    enough = number(row["idle_ns"]) / wall_ns >= threshold("small_gain") if wall_ns > 0 else False
    return enough and idle_share(row) >= limit("idle", "share")


def _outside(run: Run, stages: list[Row]) -> Row:
    """Return wall and idle time of the capture that lie in none of its stages.

    Too little rather than too much: ranges also begin before the first kernel and end after the
    last, and those of several threads overlap.
    """
    wall, idle = wall_time(run)
    return {
        "wall_ns": wall - sum(number(row["wall_ns"]) for row in stages),
        "idle_ns": idle - sum(number(row["idle_ns"]) for row in stages),
    }


def _outside_finding(rest: Row, wall_ns: float) -> Finding:
    """Return a finding without a gain: what happens once only costs a long run nothing."""
    idle_ns, part = number(rest["idle_ns"]), number(rest["idle_ns"]) / wall_ns
    lost = f"{duration(idle_ns)} outside of the stages ({share(part)} of the wall time)"
    return finding(
        "idle_outside",
        title=f"The GPU has nothing to do for {lost}",
        sentence=f"The GPU has nothing to do for {lost}: while the program starts, loads or "
        "prepares, before, between or after them. It matters where it comes again and again, not "
        "where it comes once.",
        evidence=(
            Evidence("idle time outside of the stages", idle_ns, "ns",
                     f"{100 * limit('idle', 'share'):g} % or more of the time there",
                     "idle time of the capture less that of its stages", ("stages.idle_ns",)),
        ),
        gain_of="wall time",
        confidence="low",
    )  # fmt: skip
