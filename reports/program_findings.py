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
MOST_STAGES = 12
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
    what = _most_of_it(run, str(top.index[0]), float(top.iloc[0]))
    words = f"Kernels keep the GPU for {duration(total)}: {_listed(parts)}; "
    return Finding(
        key="time",
        title=what,
        headline=f"{what}; {_largest(run)}",
        sentence=f"{words}{_largest(run)}{_stage_shares(run)}.",
        kernel_ids=tuple(text(k) for k in few["kernel_id"]),
        share=float(top.iloc[0]),
        evidence=(Evidence("GPU time of all kernels", total, "ns", "", "nsys"),),
    )


def _most_of_it(run: Run, kind: str, part: float) -> str:
    """Name the kind of kernel that takes the most time, or the kernel where no kind is known."""
    if kind == "other":
        row = records(run.kernels.head(1))[0]
        return f"{text(row['short_name'])} takes {share(row['share'])} of the GPU time"
    name = PLURALS.get(kind, kind)
    return f"{name[0].upper()}{name[1:]} take {share(part)} of the GPU time"


def _largest(run: Run) -> str:
    kernels = run.kernels
    if len(kernels) <= 5:
        return "it is the only kernel" if len(kernels) == 1 else f"there are {len(kernels)} kernels"
    part = share(kernels["share"].head(5).sum())
    return f"the 5 largest of {count(len(kernels))} kernels hold {part}"


def _stage_shares(run: Run) -> str:
    stages = run.stages[run.stages["stage"] != ALL].sort_values("share", ascending=False)
    parts = [f"{r['stage']} {share(r['share'])}" for r in records(stages.head(4))]
    return f"; by stage: {_listed(parts)}" if parts else ""


def _listed(parts: list[str]) -> str:
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


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
    wall, _ = wall_time(run)
    idle = [
        row
        for row in stage_rows(run)
        if idle_share(row) >= threshold("idle")
        and number(row["idle_ns"]) / wall >= threshold("small_gain")
    ]
    return [_idle_finding(run, row, wall) for row in idle]


def _idle_finding(run: Run, row: Row, wall_ns: float) -> Finding:
    part, idle_ns = idle_share(row), number(row["idle_ns"])
    whole = text(row["stage"]) == ALL
    where = "from its first to its last kernel" if whole else f"in {row['stage']}"
    gap = idle_ns / number(row["launches"]) if number(row["launches"]) > 0 else math.nan
    lost = f"{duration(idle_ns)} of {duration(row['wall_ns'])}"
    each = f"; {duration(gap)} a launch over {count(row['launches'])} launches" if gap > 0 else ""
    words = (
        f"The GPU has nothing to do for {share(part)} of the time {where} ({lost}{each}): the "
        f"host does not feed it fast enough.{_host(run, idle_ns)} Without the gaps the program "
        f"would save at most {share(idle_ns / wall_ns)} of its wall time; nsys itself slows "
        "launches, so the real gap is smaller."
    )
    return Finding(
        key="idle",
        title=f"The GPU idles {share(part)} of the time {where}",
        headline=f"The GPU idles {share(part)} of the time {where} ({duration(idle_ns)})",
        sentence=words,
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
            evidence=(Evidence("copy time", spent, "ns", "5 % of busy time", source("copies")),),
            gain_program=spent / busy,
            gain_ns=spent,
            gain_of="wall time",
            action=say("actions", "copies"),
            confidence="medium",
        )
    ]
