"""Tables about engine steps: idle time by cause, three timings, GPUs, modules, and each step."""

from __future__ import annotations

import pandas as pd

from nsight_prof.parsers.cells import records, text
from nsight_prof.reports.bench.models import BenchTable
from nsight_prof.reports.engine.operators.stages import excess_operator, stages_of_operators
from nsight_prof.reports.engine.steps.times import (
    BEFORE,
    KINDS,
    TRACED,
    UNTRACED,
    HostTime,
    KindTime,
    RankTime,
    timed_steps,
)
from nsight_prof.reports.formats import NA, count, difference, duration, seconds, share, shorten
from nsight_prof.reports.load import Run

MOST_STEPS = 40
MOST_MODULES = 30
LEAST_SHARE = 0.001
"""Share of a step's idle time from which a cause has a row."""


def tables(
    run: Run,
    kinds: tuple[KindTime, ...],
    ranks: tuple[RankTime, ...],
    host: tuple[HostTime, ...],
) -> tuple[BenchTable, ...]:
    """Return the tables that the run has data for."""
    made = (
        _idle(kinds),
        _timings(kinds, host),
        _ranks(ranks),
        _modules(run),
        _steps(timed_steps(run)),
    )
    return tuple(table for table in made if table is not None)


def _idle(kinds: tuple[KindTime, ...]) -> BenchTable | None:
    causes: dict[str, float] = {}
    for kind in kinds:
        for name, value in kind.idle_by.items():
            if value >= LEAST_SHARE * kind.idle_mean:
                causes[name] = causes.get(name, 0.0) + value * kind.steps
    if not causes:
        return None
    rows = [
        (name, *(cell for kind in kinds for cell in _part(kind, kind.idle_by.get(name))))
        for name in sorted(causes, key=lambda name: -causes[name])
    ]
    rows.append(("all", *(cell for kind in kinds for cell in _part(kind, kind.idle_mean))))
    heads = [head for kind in kinds for head in (f"{kind.kind}: a step", "share of the step")]
    return BenchTable(
        "Idle time of the GPU by what the host did",
        ("GPU idle during", *heads),
        tuple(rows),
        "Means over steps and GPUs. The table engine_gaps has each NVTX range and CUDA call.",
        left=("GPU idle during",),
    )


def _part(kind: KindTime, value: float | None) -> tuple[str, str]:
    whole = kind.busy + kind.idle
    if value is None:
        return "", ""
    return seconds(value), share(value / whole if whole else None)


def _timings(kinds: tuple[KindTime, ...], host: tuple[HostTime, ...]) -> BenchTable | None:
    whens = [when for when in (TRACED, BEFORE, UNTRACED) if any(o.when == when for o in host)]
    rows = []
    for kind in kinds:
        times = {one.when: one.seconds for one in host if one.kind == kind.kind}
        cells = [seconds(times.get(when)) for when in whens]
        base = times.get(UNTRACED, times.get(BEFORE))
        slower = difference(times[TRACED] / base - 1) if TRACED in times and base else NA
        own = (kind.kernel, kind.memory, kind.idle, kind.seconds)
        rows.append((kind.kind, *(seconds(value) for value in own), *cells, slower))
    heads = {
        TRACED: "host, traced",
        BEFORE: "host, before the trace",
        UNTRACED: "host, target by itself",
    }
    return BenchTable(
        "Time of a step by the trace and by the host",
        (
            "step",
            "kernels",
            "copies",
            "idle",
            "trace",
            *(heads[when] for when in whens),
            "tracing adds",
        ),
        tuple(rows),
        "Medians over steps. The host times a step from the return of the one before to its own, "
        "after it has issued the next step: to it, the first step of a batch seems longer.",
        left=("step",),
    )


def _ranks(ranks: tuple[RankTime, ...]) -> BenchTable | None:
    if not ranks:
        return None
    rows = tuple(
        (
            rank.kind,
            str(rank.device),
            str(rank.pid),
            seconds(rank.seconds),
            seconds(rank.kernel),
            seconds(rank.collective),
            share(rank.collective / rank.seconds if rank.seconds else None),
            seconds(rank.exposed),
            seconds(rank.waiting),
            seconds(rank.idle),
        )
        for rank in ranks
    )
    heads = ("step", "GPU", "process", "time", "kernels", "collectives", "of the step")
    more = ("exposed", "waiting for others", "idle")
    note = (
        "Means of a step. Exposed: no other kernel of the GPU runs meanwhile. Waiting: longer than "
        "on the GPU on which the collective took least."
    )
    return BenchTable("Each GPU, and its collectives", (*heads, *more), rows, note, ("step",))


def _modules(run: Run) -> BenchTable | None:
    modules = run.modules
    shown = modules[modules["launches"] > 0]
    if shown.empty:
        return None
    order = {kind: place for place, kind in enumerate(KINDS)}
    shown = shown.assign(order=shown["stage"].map(order)).sort_values(
        ["order", "kernel_ns"], ascending=[True, False]
    )
    rows = tuple(
        (
            text(row["stage"]),
            text(row["module"]),
            count(row["instances"]),
            count(row["launches"]),
            duration(row["kernel_ns"]),
            share(row["share"]),
        )
        for row in records(shown.groupby("stage", sort=False).head(MOST_MODULES))
    )
    return BenchTable(
        "GPU time of the model's modules",
        ("step", "module", "times", "launches", "kernels", "of the step's kernels"),
        rows,
        "By vLLM's layer-wise NVTX ranges; * stands for all layers. Kernels outside of all modules "
        "are not in the table: inputs, sampling.",
        left=("step", "module"),
        lead="" if text(shown["source"].iloc[0]) == "trace" else _not_traced(run),
    )


def _not_traced(run: Run) -> str:
    """Say that the modules are of the operators step, and what it does that the trace does not."""
    told = (
        "Not of the traced steps: these are of the operators step, without CUDA graphs and "
        "compilation."
    )
    for stage in stages_of_operators(run):
        more = excess_operator(stage)
        if more is not None:
            told += (
                f" In {stage.stage} it has {duration(more.gpu_ns - more.traced_ns)} a step more of "
                f"{more.name} ({more.kernel}, {more.calls:g} calls with inputs "
                f"{shorten(more.shapes, 60)}) than the trace: the module that calls it seems "
                "larger here than it is."
            )
    return told


def _steps(steps: pd.DataFrame) -> BenchTable:
    many = len(steps) > MOST_STEPS
    rows = tuple(
        (
            count(row["step"]),
            count(row["device"]),
            text(row["kind"]),
            _requests(row["prefill_requests"], row["prefill_tokens"]),
            count(row["decode_requests"]),
            duration(row["time_ns"]),
            count(row["launches"]),
            duration(row["kernel_ns"]),
            duration(row["idle_here_ns"]),
            text(row["cause"]),
        )
        for row in records(steps.head(MOST_STEPS))
    )
    note = (
        f"The first {MOST_STEPS} rows of {len(steps)}: the table engine_steps has all."
        if many
        else ""
    )
    heads = ("step", "GPU", "kind", "prefill", "decode requests", "time", "launches", "kernels")
    return BenchTable(
        "Each step",
        (*heads, "idle", "idle after it during"),
        rows,
        note,
        left=("kind", "prefill", "idle after it during"),
        folded=True,
    )


def _requests(requests: object, tokens: object) -> str:
    return f"{count(requests)} ({count(tokens)} tokens)" if requests else ""
