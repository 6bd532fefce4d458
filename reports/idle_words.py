"""Sentences about idle time of the GPU: what the host did meanwhile."""

from __future__ import annotations

import pandas as pd

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.reports.evidence import threshold
from nsight_prof.reports.formats import counted, duration, listed, share
from nsight_prof.reports.idle_stage import CAUSES, CallTimes, LaunchCost, Stage
from nsight_prof.reports.load import Run
from nsight_prof.reports.program_rules import limit

TRACING = "nsys itself slows launches, so the real gaps are smaller."
NAMED = 2
"""CUDA calls and NVTX ranges that a sentence names."""


def lost_time(stage: Stage, rows: pd.DataFrame) -> str:
    """Say how much of the stage the gaps take."""
    lost = number(rows["idle_ns"].sum())
    return f"{duration(lost)} of the {duration(stage.wall)} {stage.where}"


def launch_words(stage: Stage, rows: pd.DataFrame, times: CallTimes) -> str:
    """Say how slowly the host launches, and what the trace shows of it."""
    lost, gaps = number(rows["idle_ns"].sum()), number(rows["gaps"].sum())
    kernels = (
        f"kernels take {duration(stage.kernel_mean)} on average"
        if stage.whole
        else f"a kernel takes {duration(stage.kernel_mean)} there on average"
    )
    return (
        f"The GPU has nothing to do for {lost_time(stage, rows)}, because the host launches too "
        f"slowly: {counted(gaps, 'gap')} of {duration(lost / gaps)} on average, while {kernels}."
        f"{_call_words(times)}"
    )


def _call_words(times: CallTimes) -> str:
    """Say when the launch calls came; empty where the trace does not tell."""
    if not times.known:
        return ""
    return (
        f" In {share(times.late / times.gaps)} of the gaps the host began the launch call only "
        f"after the GPU had run dry; {share(times.part(times.before))} of their time lies before "
        f"this call, {share(times.part(times.inside))} in it."
    )


def kept_words(rule: str, cost: LaunchCost) -> str:
    """Say what of each gap is taken to stay, or to be of nsys."""
    if rule == "host_bound":
        return ""
    stays = f"{duration(limit('launch_bound', 'graph_gap'))} of each gap, which a CUDA graph keeps"
    if not cost.added:
        return f"This leaves out {stays}. But {TRACING}"
    return (
        f"This leaves out {stays}, and the {duration(cost.added)} by which nsys lengthens a "
        f"launch: a call takes {duration(cost.traced)} here, {duration(cost.alone)} without nsys."
    )


def in_all(stage: Stage, lost: float) -> str:
    """Say how much the stage is idle for all causes, where that is visibly more."""
    here, whole = share(lost / stage.wall), share(stage.idle / stage.wall)
    if here == whole or stage.idle <= lost:
        return ""
    where = "the capture" if stage.whole else stage.name
    return f" Other causes bring the idle share of {where} to {whole}."


def host_words(stage: Stage, rows: pd.DataFrame) -> str:
    """Say what the host did, and whether it had waited for the GPU before."""
    gaps, longest = number(rows["gaps"].sum()), number(rows["longest_ns"].max())
    more = f"{counted(gaps, 'gap')}, the longest {duration(longest)}"
    return (
        f"The GPU has nothing to do for {lost_time(stage, rows)}, because the host does something "
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


def sync_words(stage: Stage, rows: pd.DataFrame) -> str:
    """Say which call waited, how often, and how long the GPU then has nothing to do."""
    lost, gaps = number(rows["idle_ns"].sum()), number(rows["gaps"].sum())
    calls = rows.groupby("waited")["gaps"].sum().sort_values(ascending=False)
    return (
        f"The GPU has nothing to do for {lost_time(stage, rows)}, because the host waits until it "
        f"has finished ({calls.index[0]}) before it launches more: {counted(gaps, 'time')}, "
        f"{duration(lost / gaps)} each."
    )


def split_words(stage: Stage) -> str:
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


def host_calls(run: Run, idle_ns: float) -> str:
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
