"""What a change saves: host and GPU work side by side, and the slower of them sets the time.

The host issues what the GPU does. While the GPU is idle it waits for the host: what the host does
less, or does not wait for, ends sooner, until the GPU works without a pause but for those that a
queue leaves (and nsys adds). Kernels that end sooner save nothing where the host issues the next
one late anyway, and did not wait for them; but never less than the host stands in waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nsight_prof.parsers.cells import number, text
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.gpu_times import HOST, LAUNCHES, QUEUED, gpu_count, per_gpu_gaps
from nsight_prof.reports.analysis.stages import ALL, program_time, stage_rows
from nsight_prof.reports.analysis.timeline import timeline
from nsight_prof.reports.findings.launch_cost import LAUNCH_NS, added_to_call, launch_cost
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.shortest_launch import QUEUE_GAP_NS
from nsight_prof.reports.page import Evidence, Number, Ref, Text

Gains = dict[str, Any]
"""Fields of `Finding` that say what is saved."""
HIDDEN_CELLS = (Ref("idle_gaps", "", "gaps"), Ref("launches", "", "duration_ns"))
"""Columns that tell what the host hides."""
HIDDEN = Text(
    "time of its launches in a stage x part of the gaps there before which the host was late and "
    "had not waited for the GPU, / its time; at most what is beyond the time in waits for the GPU"
)
LEFT_OUT = (
    *("casts_and_copies", "needless_work", "repeated_work", "unread_results", "zeros_multiplied"),
)
"""Rules whose kernels are to be left out, so that the host need not launch them either."""
ISSUED = Text(
    "launches before which the GPU had run dry x the part of their time that goes x the time from "
    "the launch before to theirs (first quartile) less what nsys adds ({usual} at least) x wall "
    "time / that without nsys, at most the time of the kernels",
    usual=Number(LAUNCH_NS, "ns"),
)
BLOCKING = r"cu(?:da)?(?:(?:Stream|Device|Ctx)Synchronize|Memcpy\w*)"
"""CUDA calls in which the host waits until all work of a stream or of the GPU is done."""
AROUND = 1.6
"""What nsys adds to a call of CUDA and around it where it also samples stacks of Python, over what
it adds to the call itself: median of 26 programs whose GPU waited for each launch (H200)."""
CALLS = 3.0
"""Calls for each launch that nsys lengthens as much, at most: more are short ones."""
LATE = 0.05
"""Part of a stage in which the GPU waits for a late host from which on the host sets its pace."""


def of_host(run: Run, saved_ns: float, late: float = 0.0) -> float:
    """Return the ns of wall time that go with work, or waits, of the host.

    `late`: launches of which a queue keeps a gap, and nsys lengthens the call. The GPU is idle for
    that time; what it is idle for between queued operations stays.
    """
    gaps, idle = per_gpu_gaps(run, capture=True), number(program_time(run)[1].value)
    queued = number(gaps.loc[gaps["cause"] == QUEUED, "idle_ns"].sum())
    between = late * (QUEUE_GAP_NS + number(launch_cost(run).added.value)) if late else 0.0
    return max(0.0, min(saved_ns - between, idle - queued))


@once
def untraced_wall(run: Run) -> Number:
    """Return about what the program takes without nsys, which lengthens calls of CUDA: as long as
    the host does without that, or the GPU where it works for longer.

    Of 124 recorded programs whose GPU idles for 30 % and more, half are within 1.15 of this without
    nsys, and within 1.47 of the wall time under it (half of them were looked at for that).
    """
    wall, idle = program_time(run)
    added = _added(run, added_to_call(run))
    added_ns = min(added, number(idle.value)) if added > 0 else 0.0
    return wall - Number(added_ns, "ns", (Ref("api_calls", "", "calls"),))


def _added(run: Run, to_call: float) -> float:
    """Return the ns that nsys adds to a program, of what it adds to a call of CUDA."""
    often = min(run.api_calls["calls"].sum(), CALLS * run.kernels["calls"].sum()) / gpu_count(run)
    return float(often * (1.0 if run.host_lines.empty else AROUND) * to_call)


@once
def _issue_wall(run: Run) -> float:
    """Return the ns that the host takes to issue all work, without nsys and any wait for the GPU.

    That is its time outside of calls of CUDA, and each launch as the fastest kind of them. 0 where
    it never waits: it may have gone on to what is not recorded, while the GPU still worked.
    """
    calls, names = run.api_calls, run.api_calls["name"].fillna("")
    launches = calls[names.str.contains("Launch")]
    if launches.empty or not names.str.fullmatch(BLOCKING).any():
        return 0.0
    each = float(launches["median_ns"].min())
    issued = (launches["calls"].sum() * each - calls["total_ns"].sum()) / gpu_count(run)
    return number(program_time(run)[0].value) + issued - _added(run, max(0.0, each - LAUNCH_NS))


def of_gpu_time(
    saved: Number, time: Number, gpu_time: Number, bound: Number | None = None
) -> Gains:
    """Return share and gains of a finding about kernels that take `time`, of which `saved` goes.

    `bound` is the most that goes, where nothing shows that what is tried reaches it.
    """
    return {
        "share": number(time.share_of(gpu_time).value),
        "gain_kernel": number(saved.share_of(time).value),
        **_gains(saved, gpu_time, bound),
    }


def of_wall_time(saved: Number, wall: Number, bound: Number | None = None) -> Gains:
    """Return the gains of a finding about wall time, of which `saved` goes, at most `bound`."""
    return {**_gains(saved, wall, bound), "gain_of": "wall time"}


def _gains(saved: Number, total: Number, bound: Number | None) -> Gains:
    saved_ns = number(saved.value)
    bound_ns = math.nan if bound is None else number(bound.value)
    return {
        "gain_program": number(saved.share_of(total).value),
        "gain_ns": saved_ns,
        "most_ns": bound_ns if bound_ns > saved_ns else math.nan,
    }


def behind_host(run: Run, finding: Finding) -> Finding:
    """Return a finding about kernels with what it saves as things are.

    What the host hides of their time is saved only once it issues faster: at most, then.
    """
    of_kernels = finding.rule and finding.gain_of == "GPU time" and finding.gain_ns > 0
    hidden = by_stage = _hidden(run, finding.kernel_ids) if of_kernels else 0.0
    wall, idle = program_time(run)
    if of_kernels:  # once kernels end sooner, the host is late that had been ahead
        hidden = max(hidden, 1 - (number(wall.value) - _issue_wall(run)) / finding.gain_ns)
    if hidden > 0:  # a host that stands in waits for a GPU that works gains so much at least
        calls = run.api_calls[run.api_calls["name"].fillna("").str.fullmatch(BLOCKING)]
        waited = min(calls["total_ns"].sum() / gpu_count(run), number((wall - idle).value))
        hidden = min(hidden, max(0.0, 1 - waited / finding.gain_ns))
    if not hidden > 0:
        return finding
    hidden_share = Number(hidden, "fraction", HIDDEN_CELLS)
    evidence = (
        *finding.evidence,
        Evidence(
            Text("could save of a program whose host is never late"), Number(finding.gain_ns, "ns")
        ),
        Evidence(Text("the same, of the GPU time"), Number(finding.gain_program, "fraction")),
        Evidence(Text("share of that which would become idle time"), hidden_share, source=HIDDEN),
    )
    found = replace(
        finding,
        evidence=evidence,
        most_ns=max(finding.gain_ns, number(finding.most_ns)),
        verdict=Text(
            "{verdict} {part} of that would become idle time, since the host issues the next "
            "kernels too late: it is saved only once the GPU no longer waits for the host.",
            verdict=finding.verdict,
            part=hidden_share,
        ),
        gain_kernel=(1 - hidden) * finding.gain_kernel,
        gain_program=(1 - hidden) * finding.gain_program,
        gain_ns=(1 - hidden) * finding.gain_ns,
    )
    issued = _issue_time(run, finding) if finding.rule in LEFT_OUT else Number(0.0, "ns")
    if not number(issued.value) > found.gain_ns:
        return found if hidden == by_stage else _shared(found)
    return replace(
        found,
        evidence=(*evidence, Evidence(Text("their launches"), issued, source=ISSUED)),
        verdict=Text(
            "{verdict} But left out, they need not be launched: that saves {issued} of the host.",
            verdict=found.verdict,
            issued=issued,
        ),
        **of_wall_time(issued, program_time(run)[0], Number(found.most_ns, "ns")),
    )


def _shared(finding: Finding) -> Finding:
    """Return a finding whose gain is what the host leaves of that of any kernels."""
    return replace(
        finding,
        shared_ns=finding.gain_ns,
        verdict=Text(
            "{verdict} In this run the host leaves {saved} of what faster kernels gain: findings "
            "with that gain save together at most as much.",
            verdict=finding.verdict,
            saved=Number(finding.gain_ns, "ns", digits=3),
        ),
    )


def _issue_time(run: Run, finding: Finding) -> Number:
    """Return the time of the host for launches of kernels before which the GPU had run dry, as much
    of them as goes of the kernels' time, at most that: shorter ones may be launched beside others,
    in one call of a library.
    """
    frame = timeline(run)
    if frame is None:
        return Number(0.0, "ns")
    frame = frame.sort_values("start_ns", kind="stable")
    late = frame["start_ns"] - frame["end_ns"].cummax().shift() > QUEUE_GAP_NS
    since = frame["start_ns"].diff()[late & frame["kernel_id"].isin(finding.kernel_ids)]
    # Before some the host is elsewhere too, for what is launched after them: not in the short ones.
    launches = finding.gain_kernel * len(since) / gpu_count(run)
    wall, untraced = program_time(run)[0], untraced_wall(run)
    added = number((wall - untraced).value) * gpu_count(run) / len(frame)
    each = max(LAUNCH_NS, number(since.quantile(0.25)) - added)
    share = launches * each / number(untraced.value)  # of the time without nsys
    issued_ns = min(share * number(wall.value), finding.gain_ns)
    return Number(issued_ns, "ns", (Ref("launches", "", "start_ns"),))


def _hidden(run: Run, kernel_ids: Sequence[str]) -> float:
    """Return the part of the time of kernels, or of all, that the host hides."""
    frame, stages = timeline(run), _late_stages(run)
    if frame is None or not stages:
        return 0.0
    rows = frame[frame["kernel_id"].isin(kernel_ids)] if kernel_ids else frame
    late = rows["stage"].map(stages).fillna(stages.get(ALL, 0.0))
    return float((late * rows["duration_ns"]).sum() / rows["duration_ns"].sum())


@once
def _late_stages(run: Run) -> dict[str, float]:
    """Return for stages whose pace the host sets, by what nsys does not add, the part of the gaps
    before which it was late and had not waited for the GPU.
    """
    added, found = added_to_call(run), {}
    wall, idle = program_time(run)
    idle_untraced = (untraced_wall(run) - (wall - idle)).share_of(untraced_wall(run))
    for row in stage_rows(run):
        stage = text(row["stage"])
        if stage == ALL and not number(idle_untraced.value) >= LATE:
            continue  # without nsys the host is on time
        gaps = per_gpu_gaps(run, capture=stage == ALL)
        gaps = gaps[(gaps["cause"] != QUEUED) & ((stage == ALL) | (gaps["stage"] == stage))]
        late = gaps[gaps["cause"].isin((LAUNCHES, HOST)) & (gaps["waited"].fillna("") == "")]
        by_itself = late["idle_ns"].sum() - added * late["gaps"].sum()
        if by_itself >= LATE * number(row["wall_ns"]):
            found[stage] = float(late["gaps"].sum() / gaps["gaps"].sum())
    return found
