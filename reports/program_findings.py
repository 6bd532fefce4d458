"""Turns the trace of a program into findings: what takes the time, idle GPU, copies."""

from __future__ import annotations

import math

from reports.cells import Row, number, records, text
from reports.evidence import Evidence, Finding, say, source, threshold
from reports.formats import count, duration, share
from reports.load import Run
from reports.profiled import kernel_time

ALL = "(all)"
"""Name of the row of table `stages` that stands for the whole capture."""
PLURALS = {
    "gemm": "matrix multiplications (GEMM)",
    "gemv": "matrix-vector products (GEMV)",
    "attention": "attention",
    "norm": "normalisation",
    "elementwise": "elementwise operations",
    "reduction": "reductions",
    "copy": "copies inside the GPU",
    "collective": "communication between GPUs",
    "kv_cache": "key-value cache updates",
    "other": "kernels of unknown kind",
}


def program_findings(run: Run) -> list[Finding]:
    """Return findings about the whole program; empty without a trace."""
    if math.isnan(kernel_time(run)):
        return []
    return [_where_time_goes(run), *_idle(run), *_copies(run)]


def _where_time_goes(run: Run) -> Finding:
    kernels, total = run.kernels, kernel_time(run)
    kinds = kernels.groupby(kernels["category"].fillna("other"))["share"].sum()
    top = kinds.sort_values(ascending=False).head(3)
    parts = [f"{PLURALS.get(str(k), str(k))} {share(v)}" for k, v in top.items() if v >= 0.01]
    few = kernels.head(5)
    largest = (
        f"the {len(few)} largest of {count(len(kernels))} kernels hold {share(few['share'].sum())}"
    )
    if len(kernels) <= len(few):
        largest = f"it has {count(len(kernels))} different kernels"
    stages = _stage_shares(run)
    words = f"Kernels keep the GPU for {duration(total)}: {_listed(parts)}; {largest}{stages}."
    kind, part = str(top.index[0]), float(top.iloc[0])
    name = PLURALS.get(kind, kind)
    return Finding(
        key="time",
        title=f"{name[0].upper()}{name[1:]} take {share(part)} of the GPU time",
        headline=f"{name[0].upper()}{name[1:]} take {share(part)} of the GPU time; {largest}",
        sentence=words,
        kernel_ids=tuple(text(k) for k in few["kernel_id"]),
        share=part,
        evidence=(Evidence("GPU time of all kernels", total, "ns", "", "nsys"),),
    )


def _stage_shares(run: Run) -> str:
    stages = run.stages[run.stages["stage"] != ALL].sort_values("share", ascending=False)
    parts = [f"{r['stage']} {share(r['share'])}" for r in records(stages.head(4))]
    return f"; by stage: {_listed(parts)}" if parts else ""


def _listed(parts: list[str]) -> str:
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def stage_rows(run: Run) -> list[Row]:
    """Return the stages, or the whole capture where the program has none."""
    named = run.stages[run.stages["stage"] != ALL]
    return records(named if len(named) else run.stages)


def idle_share(row: Row) -> float:
    """Return idle over wall time of a stage, 0 to 1; NaN where unknown."""
    wall = number(row["wall_ns"])
    return number(row["idle_ns"]) / wall if wall > 0 else math.nan


def _idle(run: Run) -> list[Finding]:
    wall = sum(number(row["wall_ns"]) for row in stage_rows(run))
    idle = [row for row in stage_rows(run) if idle_share(row) >= threshold("idle")]
    return [_idle_finding(run, row, wall) for row in idle]


def _idle_finding(run: Run, row: Row, wall_ns: float) -> Finding:
    part, idle_ns = idle_share(row), number(row["idle_ns"])
    whole = text(row["stage"]) == ALL
    where = "from its first to its last kernel" if whole else f"in {row['stage']}"
    gap = idle_ns / number(row["launches"]) if number(row["launches"]) > 0 else math.nan
    lost = f"{duration(idle_ns)} of {duration(row['wall_ns'])}"
    words = (
        f"The GPU has nothing to do for {share(part)} of the time {where} ({lost}; "
        f"{duration(gap)} a launch over {count(row['launches'])} launches): the host does not feed "
        f"it fast enough.{_host(run, idle_ns)} Without the gaps the program would save at most "
        f"{share(idle_ns / wall_ns)} of its wall time; nsys itself slows launches, so the "
        "real gap is smaller."
    )
    return Finding(
        key="idle",
        title=f"The GPU idles {share(part)} of the time {where}",
        headline=f"The GPU idles {share(part)} of the time {where} ({duration(idle_ns)})",
        sentence=words,
        share=part,
        evidence=(
            Evidence("idle share", 100 * part, "%", "10 % or more", source("idle")),
            Evidence("idle time", idle_ns, "ns", "", "nsys"),
            Evidence("idle time a launch", gap, "ns", "", "nsys"),
        ),
        gain_program=idle_ns / wall_ns,
        gain_ns=idle_ns,
        gain_of="wall time",
        action=say("actions", "idle"),
        confidence="low" if whole else "medium",
    )


def _host(run: Run, idle_ns: float) -> str:
    """Say whether CUDA calls explain the idle time; empty where the trace has no calls."""
    calls = run.api_calls.sort_values("total_ns", ascending=False)
    spent = number(calls["total_ns"].sum(min_count=1))
    if math.isnan(spent):
        return ""
    if spent < threshold("host_calls") * idle_ns:
        return (
            f" CUDA calls take only {duration(spent)}: the rest is lost in the program's own code "
            "on the host."
        )
    top = records(calls.head(1))[0]
    taken = f"{duration(top['total_ns'])} in {count(top['calls'])} calls"
    return f" The CUDA call that takes the host the longest is {text(top['name'])} ({taken})."


def _copies(run: Run) -> list[Finding]:
    rows = records(run.memory_operations.sort_values("total_ns", ascending=False))
    crossing = [r for r in rows if "host" in text(r["kind"]).lower()]
    spent = sum(number(r["total_ns"]) for r in crossing)
    busy = kernel_time(run) + sum(number(r["total_ns"]) for r in rows)
    if not crossing or spent / busy < threshold("copies"):
        return []
    top = crossing[0]
    words = (
        f"Copies between host and GPU take {share(spent / busy)} of the GPU's busy time "
        f"({duration(spent)}), most of it {text(top['kind']).lower()} ({count(top['calls'])} "
        "copies). Behind kernels, or avoided, they would cost nothing."
    )
    return [
        Finding(
            key="copies",
            title=f"Copies between host and GPU take {share(spent / busy)} of the busy time",
            headline=f"Copies between host and GPU take {share(spent / busy)} of the busy time",
            sentence=words,
            share=spent / busy,
            evidence=(Evidence("copy time", spent, "ns", "5 % of busy time", source("copies")),),
            gain_program=spent / busy,
            gain_ns=spent,
            gain_of="wall time",
            action=say("actions", "copies"),
            confidence="medium",
        )
    ]
