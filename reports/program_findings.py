"""Turns the trace of a program into findings: what takes the time, idle GPU, copies."""

from __future__ import annotations

import math

from reports.cells import Row, number, records, text
from reports.evidence import Evidence, Finding, say, source, threshold
from reports.formats import count, counted, duration, listed, share
from reports.load import Run
from reports.profiled import kernel_time

ALL = "(all)"
"""Name of the row of table `stages` that stands for the whole capture."""
MOST_STAGES = 12
FEW, MOST_PARTS = 5, 4
"""Kernels that are named one by one, and parts of the GPU time that a sentence lists."""
PLURALS = {
    "gemm": "matrix multiplications (GEMM)",
    "gemv": "matrix-vector products (GEMV)",
    "attention": "attention",
    "norm": "normalisation",
    "elementwise": "elementwise operations",
    "softmax": "softmax",
    "conv": "convolutions",
    "embedding": "embedding look-ups",
    "sort": "sorting",
    "fill": "fills",
    "reduction": "reductions",
    "copy": "copies inside the GPU",
    "collective": "communication between GPUs",
    "kv_cache": "key-value cache updates",
}


def program_findings(run: Run) -> list[Finding]:
    """Return findings about the whole program; empty without a trace."""
    if math.isnan(kernel_time(run)):
        return []
    return [_where_time_goes(run), *_idle(run), *_copies(run)]


def _where_time_goes(run: Run) -> Finding:
    kernels, total = run.kernels, kernel_time(run)
    parts = _by_kernel(run) if len(kernels) <= FEW else _by_kind(run)
    first, part = parts[0]
    plural = first in PLURALS.values()
    title = f"{first[0].upper()}{first[1:]}" if plural else first
    verb = "take" if plural else "takes"
    what = f"{title} {verb} {share(part)} of the GPU time"
    shown = listed([f"{name} {share(value)}" for name, value in parts[:MOST_PARTS]])
    words = f"Kernels keep the GPU busy for {duration(total)}: {shown}{_largest(run)}"
    headline = f"{what}{_largest(run)}"
    if len(kernels) <= FEW:
        headline = f"{len(kernels)} kernels keep the GPU busy for {duration(total)}"
    if len(kernels) == 1:
        what = headline = f"The GPU runs one kernel, for {duration(total)}"
        words = f"The GPU runs one kernel, {first}, for {duration(total)}"
    return Finding(
        key="time",
        title=what,
        headline=headline,
        sentence=f"{words}{_stage_shares(run)}.",
        kernel_ids=tuple(text(k) for k in kernels.head(FEW)["kernel_id"]),
        share=part,
        evidence=(Evidence("GPU time of all kernels", total, "ns", "", "nsys"),),
    )


def _by_kernel(run: Run) -> list[tuple[str, float]]:
    sums = run.kernels.groupby("short_name", sort=False)["share"].sum()
    ranked = sums.sort_values(ascending=False, kind="stable")
    return [(str(name), float(part)) for name, part in ranked.items()]


def _by_kind(run: Run) -> list[tuple[str, float]]:
    """Return kinds of kernels by their share; those of no known kind stand for themselves."""
    category = run.kernels["category"].fillna("other")
    kinds = category.map(lambda kind: PLURALS.get(kind, f"{kind} kernels"))
    kinds = kinds.where(category != "other", run.kernels["short_name"])
    sums = run.kernels.groupby(kinds)["share"].sum().sort_values(ascending=False)
    found = [(str(name), float(value)) for name, value in sums.items()]
    return [(n, v) for n, v in found if v >= threshold("small_gain")] or found[:1]


def _largest(run: Run) -> str:
    kernels = run.kernels
    if len(kernels) <= FEW:
        return ""
    part = share(kernels["share"].head(FEW).sum())
    return f"; the {FEW} largest of {count(len(kernels))} kernels hold {part}"


def _stage_shares(run: Run) -> str:
    stages = [row for row in stage_rows(run) if row["stage"] != ALL]
    ranked = sorted(stages, key=lambda row: -number(row["share"]))[:MOST_PARTS]
    parts = [f"{r['stage']} {share(r['share'])}" for r in ranked]
    return f"; by stage: {listed(parts)}" if len(parts) > 1 else ""


def stage_rows(run: Run) -> list[Row]:
    """Return the stages, or the whole capture where the program has none.

    More than MOST_STAGES names are no stages but NVTX ranges that a framework numbers.
    """
    named = run.stages[run.stages["stage"] != ALL]
    if 0 < len(named) <= MOST_STAGES:
        return records(named)
    return records(run.stages[run.stages["stage"] == ALL])


def wall_time(run: Run) -> tuple[float, float]:
    """Return wall and idle time in ns of the whole capture, else the sums over its stages."""
    whole = records(run.stages[run.stages["stage"] == ALL]) or stage_rows(run)
    if not whole:
        return math.nan, math.nan
    return sum(number(r["wall_ns"]) for r in whole), sum(number(r["idle_ns"]) for r in whole)


def idle_share(row: Row) -> float:
    """Return idle over wall time of a stage, 0 to 1; NaN where unknown."""
    wall = number(row["wall_ns"])
    return number(row["idle_ns"]) / wall if wall > 0 else math.nan


def _idle(run: Run) -> list[Finding]:
    wall, most = wall_time(run)
    rows = stage_rows(run)
    found = [_idle_finding(run, row, wall, most) for row in rows if _worth_saying(row, wall)]
    rest = _outside(run, rows)
    return [*found, _outside_finding(rest, wall)] if _worth_saying(rest, wall) else found


def _worth_saying(row: Row, wall_ns: float) -> bool:
    enough = number(row["idle_ns"]) / wall_ns >= threshold("small_gain") if wall_ns > 0 else False
    return enough and idle_share(row) >= threshold("idle")


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
    return Finding(
        key="idle_outside",
        title=f"The GPU has nothing to do for {lost}",
        headline=f"The GPU has nothing to do for {lost}",
        sentence=f"The GPU has nothing to do for {lost}: while the program starts, loads or "
        "prepares, before, between or after them. It matters where it comes again and again, not "
        "where it comes once.",
        evidence=(Evidence("idle time outside of the stages", idle_ns, "ns", "", "nsys"),),
        gain_of="wall time",
        action=say("actions", "idle_outside"),
        advice=say("advice", "idle_outside"),
        confidence="low",
    )


def _idle_finding(run: Run, row: Row, wall_ns: float, most_ns: float) -> Finding:
    part, idle_ns = idle_share(row), number(row["idle_ns"])
    # A range also counts what lies before the first kernel of the capture and after the last.
    saved_ns = min(idle_ns, most_ns)
    whole = text(row["stage"]) == ALL
    where = "from its first to its last kernel" if whole else f"in {row['stage']}"
    gap = idle_ns / number(row["launches"]) if number(row["launches"]) > 0 else math.nan
    each = f"; {duration(gap)} for each of {counted(row['launches'], 'launch')}" if gap > 0 else ""
    lost = f"{duration(idle_ns)} of the {duration(row['wall_ns'])} {where}"
    words = (
        f"The GPU has nothing to do for {lost} ({share(part)}{each}): the host does not feed it "
        f"fast enough.{_host(run, idle_ns)} Without the gaps the program would save at most "
        f"{share(saved_ns / wall_ns)} of its wall time; nsys itself slows launches, so the real "
        "gap is smaller."
    )
    return Finding(
        key="idle",
        title=f"The GPU has nothing to do for {share(part)} of the time {where}",
        headline=f"The GPU has nothing to do for {lost}",
        sentence=words,
        evidence=(
            Evidence("idle share", 100 * part, "%", "10 % or more", source("idle")),
            Evidence("idle time", idle_ns, "ns", "", "nsys"),
            Evidence("idle time a launch", gap, "ns", "", "nsys"),
        ),
        gain_program=saved_ns / wall_ns,
        gain_ns=saved_ns,
        gain_of="wall time",
        action=say("actions", "idle"),
        advice=say("advice", "idle"),
        confidence="low" if whole else "medium",
    )


def _host(run: Run, idle_ns: float) -> str:
    """Say what the host does meanwhile; empty where the trace has no calls.

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


def _copies(run: Run) -> list[Finding]:
    rows = records(run.memory_operations.sort_values("total_ns", ascending=False))
    crossing = [r for r in rows if "host" in text(r["kind"]).lower()]
    spent = sum(number(r["total_ns"]) for r in crossing)
    busy = kernel_time(run) + sum(number(r["total_ns"]) for r in rows)
    if not crossing or spent / busy < threshold("copies"):
        return []
    # Copies of several GPUs or streams run at once: together they hold no more than the wall time.
    wall, idle = wall_time(run)
    saved = min(spent, wall - idle) if wall > 0 else spent
    top = crossing[0]
    words = (
        f"Copies between host and GPU take {share(spent / busy)} of the GPU's busy time "
        f"({duration(spent)}), most of it {text(top['kind']).lower()} "
        f"({counted(top['calls'], 'time')}). Behind kernels, or avoided, they would cost "
        "nothing."
    )
    return [
        Finding(
            key="copies",
            title=f"Copies between host and GPU take {share(spent / busy)} of the busy time",
            headline=f"Copies between host and GPU take {share(spent / busy)} of the busy time",
            sentence=words,
            evidence=(Evidence("copy time", spent, "ns", "5 % of busy time", source("copies")),),
            gain_program=saved / wall,
            gain_ns=saved,
            gain_of="wall time",
            action=say("actions", "copies"),
            advice=say("advice", "copies"),
            confidence="medium",
        )
    ]
