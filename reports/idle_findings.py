"""Turns the time in which the GPU has nothing to do into findings by what the host did then."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from reports.cells import Row, number, records, text
from reports.evidence import Evidence, Finding, threshold
from reports.formats import counted, duration, listed, share
from reports.load import Run
from reports.program_rules import finding, limit, source_of
from reports.stage_times import ALL, idle_share, stage_rows, wall_time

RULES = {"launches": "launch_bound", "host": "host_bound", "synchronisation": "sync_stalls"}
"""The rule that explains idle time of each cause of table `idle_gaps`; the GPU's own has none."""
CAUSES = {
    "launches": "is waiting for launches",
    "host": "while the host does something else",
    "synchronisation": "after the host waited for the GPU",
    "queued": "between operations that were queued already",
}
TRACING = "nsys itself slows launches, so the real gaps are smaller."
LAUNCH = ("host", "launch")
"""Level and kind of the measured cost of a launch, in table `measured_roofs`."""
NAMED = 2
"""CUDA calls and NVTX ranges that a sentence names."""


@dataclass(frozen=True)
class Stage:
    """A stage, or the whole capture, with its idle time by cause; times in ns."""

    row: Row
    gaps: pd.DataFrame
    program_wall: float
    program_idle: float

    @property
    def whole(self) -> bool:
        """Whether it stands for the whole capture."""
        return text(self.row["stage"]) == ALL

    @property
    def where(self) -> str:
        """Where this is, to follow "of the time"."""
        return "from its first to its last kernel" if self.whole else f"in {self.row['stage']}"

    @property
    def wall(self) -> float:
        """Wall time."""
        return number(self.row["wall_ns"])

    @property
    def kernel_mean(self) -> float:
        """Mean duration of its kernels; NaN without launches."""
        launches = number(self.row["launches"])
        return number(self.row["kernel_ns"]) / launches if launches > 0 else math.nan


def idle_findings(run: Run) -> list[Finding]:
    """Return a finding for each stage and cause of idle time that is worth one."""
    wall, most = wall_time(run)
    rows = stage_rows(run)
    found: list[Finding] = []
    for row in rows:
        stage = Stage(row, _gaps_of(run, row), wall, most)
        told = [f for cause, rule in RULES.items() for f in _of_cause(run, stage, cause, rule)]
        found += told or _unexplained(run, stage)
    rest = _outside(run, rows)
    return [*found, _outside_finding(rest, wall)] if _worth_saying(rest, wall) else found


def _gaps_of(run: Run, row: Row) -> pd.DataFrame:
    gaps = run.idle_gaps
    return gaps if text(row["stage"]) == ALL else gaps[gaps["stage"] == text(row["stage"])]


def _of_cause(run: Run, stage: Stage, cause: str, rule: str) -> list[Finding]:
    rows = stage.gaps[stage.gaps["cause"] == cause]
    lost, gaps = number(rows["idle_ns"].sum()), number(rows["gaps"].sum())
    # What starts up once may idle long: a whole capture needs as much idle time as ever.
    least = limit("idle", "share") if stage.whole else limit(rule, "share")
    small = lost < least * stage.wall or lost < threshold("small_gain") * stage.program_wall
    if small or not gaps:
        return []
    traced = 0.0 if rule == "host_bound" else tracing_cost(run)
    kept = 0.0 if rule == "host_bound" else gaps * (limit("launch_bound", "graph_gap") + traced)
    saved = min(max(0.0, lost - kept), stage.program_idle)
    part = lost / stage.wall
    words = {
        "launch_bound": _launch_words,
        "host_bound": _host_words,
        "sync_stalls": _sync_words,
    }[rule]
    most = f"at most {share(saved / stage.program_wall)} of its wall time ({duration(saved)})"
    sentence = f"{words(run, stage, rows)} Without these gaps the program would save {most}."
    waits = {"launch_bound": "for launches", "host_bound": "for the host"}
    title = (
        f"The GPU waits {waits.get(rule, 'after synchronisations')} for {share(part)} of the time"
    )
    seen = [
        Evidence(
            "idle share", 100 * part, "%", f"{100 * least:g} % or more", source_of(rule, "share")
        ),
        Evidence("idle time", lost, "ns", "", "nsys"),
        Evidence("gaps", gaps, "", "", "nsys"),
        Evidence("mean gap", lost / gaps, "ns", *_held_to(rule)),
        Evidence("longest gap", number(rows["longest_ns"].max()), "ns", "", "nsys"),
        Evidence("mean kernel", stage.kernel_mean, "ns", "", "nsys"),
    ]
    return [
        finding(
            rule,
            key="idle",
            stage=text(stage.row["stage"]),
            title=f"{title} {stage.where}",
            sentence=sentence if rule == "host_bound" else f"{sentence} {_traced(traced)}",
            evidence=tuple(seen),
            gain_program=saved / stage.program_wall,
            gain_ns=saved,
            gain_of="wall time",
            confidence="low" if stage.whole else _confidence(rule),
        )
    ]


def tracing_cost(run: Run) -> float:
    """Return the ns by which nsys lengthens a launch; 0 where no launch was measured without it."""
    roofs = run.measured_roofs
    alone = roofs.loc[(roofs["level_or_pipe"] == LAUNCH[0]) & (roofs["kind"] == LAUNCH[1]), "value"]
    mean = _launch_call(run)
    return max(0.0, mean - 1e9 * float(alone.min())) if len(alone) and mean > 0 else 0.0


def _traced(cost_ns: float) -> str:
    """Say what tracing adds to the gaps, and whether it is taken off."""
    if not cost_ns:
        return f"But {TRACING}"
    return (
        f"This leaves out the {duration(cost_ns)} by which nsys lengthens a launch here, compared "
        "with the measured cost of a launch."
    )


def _launch_call(run: Run) -> float:
    """Return the mean host time of a launch call in ns; NaN without one."""
    calls = run.api_calls[run.api_calls["name"].str.contains("LaunchKernel", na=False)]
    often, spent = number(calls["calls"].sum()), number(calls["total_ns"].sum())
    return spent / often if often else math.nan


def _held_to(rule: str) -> tuple[str, str]:
    long_gap = f"{duration(limit('host_bound', 'long_gap'))}"
    side = f"{long_gap} or more each" if rule == "host_bound" else f"under {long_gap} each"
    return side, source_of("host_bound", "long_gap")


def _confidence(rule: str) -> str:
    """Return how sure it is: tracing lengthens launches, and long gaps hardly."""
    return "high" if rule == "host_bound" else "medium"


def _lost(stage: Stage, rows: pd.DataFrame) -> str:
    lost = number(rows["idle_ns"].sum())
    return f"{duration(lost)} of the {duration(stage.wall)} {stage.where}"


def _launch_words(run: Run, stage: Stage, rows: pd.DataFrame) -> str:
    lost, gaps = number(rows["idle_ns"].sum()), number(rows["gaps"].sum())
    kernels = (
        f"kernels take {duration(stage.kernel_mean)} on average"
        if stage.whole
        else (f"a kernel takes {duration(stage.kernel_mean)} there on average")
    )
    return (
        f"The GPU has nothing to do for {_lost(stage, rows)}, because the host launches too "
        f"slowly: {counted(gaps, 'gap')} of {duration(lost / gaps)} on average, while {kernels}."
        f"{_launch_cost(run)}"
    )


def _launch_cost(run: Run) -> str:
    mean = _launch_call(run)
    return f" A launch call takes the host {duration(mean)} on average." if mean > 0 else ""


def _host_words(run: Run, stage: Stage, rows: pd.DataFrame) -> str:
    gaps, longest = number(rows["gaps"].sum()), number(rows["longest_ns"].max())
    more = f"{counted(gaps, 'gap')}, the longest {duration(longest)}"
    return (
        f"The GPU has nothing to do for {_lost(stage, rows)}, because the host does something "
        f"else: {more}.{_activity(rows)}{_dry(rows)}"
    )


def _activity(rows: pd.DataFrame) -> str:
    """Say what the host did: a CUDA call that takes long, else the program's own code."""
    total = number(rows["idle_ns"].sum())
    called = rows[rows["call"] != ""].groupby("call")["idle_ns"].sum()
    ranked = [(str(k), float(v)) for k, v in called.sort_values(ascending=False).items()]
    named = [f"{name} ({share(v / total)})" for name, v in ranked if v >= 0.1 * total][:NAMED]
    own = total - sum(value for _, value in ranked)
    code = f"the program's own code ({share(own / total)})" if own >= 0.1 * total else ""
    said = f" Meanwhile the host is in {listed([*([code] if code else []), *named])}."
    where = rows[rows["nvtx_range"] != ""].groupby("nvtx_range")["idle_ns"].sum()
    ranges = where.sort_values(ascending=False)
    top = [str(name) for name, value in ranges.items() if float(value) >= 0.2 * total][:NAMED]
    return f"{said} What it launches next is in NVTX range {listed(top)}." if top else said


def _dry(rows: pd.DataFrame) -> str:
    waited = rows[rows["waited"] != ""]
    if waited.empty:
        return ""
    calls = waited.groupby("waited")["gaps"].sum().sort_values(ascending=False)
    often = counted(float(waited["gaps"].sum()), "time")
    return (
        f" Before that it had waited for the GPU {often} ({calls.index[0]}), so nothing is queued."
    )


def _sync_words(run: Run, stage: Stage, rows: pd.DataFrame) -> str:
    lost, gaps = number(rows["idle_ns"].sum()), number(rows["gaps"].sum())
    calls = rows.groupby("waited")["gaps"].sum().sort_values(ascending=False)
    return (
        f"The GPU has nothing to do for {_lost(stage, rows)}, because the host waits until it has "
        f"finished ({calls.index[0]}) before it launches more: {counted(gaps, 'time')}, "
        f"{duration(lost / gaps)} each."
    )


def _unexplained(run: Run, stage: Stage) -> list[Finding]:
    """Return a finding for idle time whose causes are small each, or not in the trace."""
    if not _worth_saying(stage.row, stage.program_wall):
        return []
    part, idle_ns = idle_share(stage.row), number(stage.row["idle_ns"])
    # A range also counts what lies before the first kernel of the capture and after the last.
    saved = min(idle_ns, stage.program_idle)
    gap = idle_ns / number(stage.row["launches"]) if number(stage.row["launches"]) > 0 else math.nan
    each = (
        f"; {duration(gap)} for each of {counted(stage.row['launches'], 'launch')}"
        if gap > 0
        else ""
    )
    lost = f"{duration(idle_ns)} of the {duration(stage.wall)} {stage.where}"
    why = _split(stage) or _host(run, idle_ns)
    words = (
        f"The GPU has nothing to do for {lost} ({share(part)}{each}).{why} Without "
        f"the gaps the program would save at most {share(saved / stage.program_wall)} of its wall "
        f"time; {TRACING}"
    )
    return [
        finding(
            "idle",
            stage=text(stage.row["stage"]),
            title=f"The GPU has nothing to do for {share(part)} of the time {stage.where}",
            headline=f"The GPU has nothing to do for {lost}",
            sentence=words,
            evidence=(
                Evidence("idle share", 100 * part, "%", "10 % or more", source_of("idle", "share")),
                Evidence("idle time", idle_ns, "ns", "", "nsys"),
                Evidence("idle time a launch", gap, "ns", "", "nsys"),
            ),
            gain_program=saved / stage.program_wall,
            gain_ns=saved,
            gain_of="wall time",
            confidence="low" if stage.whole else "medium",
        )
    ]


def _split(stage: Stage) -> str:
    """Say how the idle time divides by cause; empty where the trace does not tell."""
    sums = stage.gaps.groupby("cause")["idle_ns"].sum().sort_values(ascending=False)
    total = number(sums.sum())
    if sums.empty or sums.index[0] == "unknown":
        return ""
    parts = [
        f"{share(float(value) / total)} {CAUSES[str(cause)]}"
        for cause, value in sums.items()
        if cause in CAUSES and float(value) >= threshold("small_share") * total
    ]
    return f" Of this, {listed(parts)}."


def _host(run: Run, idle_ns: float) -> str:
    """Say what the host does over all; empty where the trace has no calls.

    A call that synchronises waits while the GPU works, so its time explains no idle GPU; but each
    one empties the GPU's queue, and the next launch must get through first.
    """
    calls = records(run.api_calls.sort_values("total_ns", ascending=False))
    if not calls:
        return ""
    waits = [row for row in calls if "Synchronize" in text(row["name"])]
    launches = [row for row in calls if "Launch" in text(row["name"])]
    said = ""
    often = sum(number(row["calls"]) for row in waits)
    if often * threshold("sync_cost") >= threshold("sync_share") * idle_ns:
        said = (
            f" The program waits for the GPU to finish {counted(often, 'time')} "
            f"({text(waits[0]['name'])}), and each time the GPU runs out of work."
        )
    spent = sum(number(row["total_ns"]) for row in launches)
    if spent >= threshold("host_calls") * idle_ns:
        started = counted(sum(number(row["calls"]) for row in launches), "launch")
        return f"{said} Launching takes the host {duration(spent)} ({started})."
    if said:
        return said
    return (
        f" Launching takes the host only {duration(spent)}: the rest is lost in the program's own "
        "code on the host."
    )


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
        evidence=(Evidence("idle time outside of the stages", idle_ns, "ns", "", "nsys"),),
        gain_of="wall time",
        confidence="low",
    )
