"""Section about the steps of a serving engine: what the GPU did, and waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nsight_prof.parsers.cells import Row, count, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.operators.findings import calls
from nsight_prof.reports.engine.operators.products import excess_operator, stages_of_operators
from nsight_prof.reports.engine.stages.kinds import timed_steps
from nsight_prof.reports.engine.stages.names import KIND_NAMES, activity_name
from nsight_prof.reports.engine.steps.charts import idle_causes, timeline
from nsight_prof.reports.engine.steps.findings import agreement, findings
from nsight_prof.reports.engine.steps.times import (
    BEFORE,
    TRACED,
    UNTRACED,
    HostClock,
    KindTime,
    RankTime,
    host_clock,
    kind_times,
    rank_times,
)
from nsight_prof.reports.page import (
    Column,
    Json,
    Name,
    Number,
    Section,
    Table,
    Text,
    Value,
    Verbatim,
    arranged,
)
from nsight_prof.reports.page.formats import shorten

MOST_STEPS = 40
MOST_MODULES = 30
SMALL_CAUSE = 0.001
"""Part of a step's idle time below which a cause has no row."""
CLOCKS = {
    TRACED: Text("Host, traced"),
    BEFORE: Text("Host, before the trace"),
    UNTRACED: Text("Host, target by itself"),
}
METHOD = (
    Text(
        "A step's GPU work is what its process issued from the start of the NVTX range "
        "execute_context_… to the start of the next: tokens may be sampled after the range."
    ),
    Text(
        "A step has the GPU from its first operation to that of the next step, so that steps "
        "follow each other without a hole; idle is what remains of that time without the union of "
        "all kernels, copies and memsets."
    ),
    Text(
        "Idle time in front of an operation that the host had issued before is the GPU's own. Else "
        "it is the host's until its call returns, and goes to what the worker's thread did: a CUDA "
        "call that blocks or takes 0.1 ms, else the innermost NVTX range."
    ),
)
WAITING = Text(
    "A collective ends when the last GPU has come. What it takes longer than on the fastest GPU is "
    "waiting; durations are compared, so that the clocks of GPUs need not agree."
)


def section(run: Run) -> Section | None:
    """Return the section, or None where the trace has no engine steps."""
    kinds = kind_times(run)
    if not kinds:
        return None
    ranks, host = rank_times(run), host_clock(run)
    tables: list[Table[Any]] = []
    if any(kind.idle_by for kind in kinds):
        tables.append(_idle(kinds))
    tables.append(_timings(kinds, host))
    tables.append(_ranks(ranks))
    tables += [_modules(run)] if (run.modules["launches"] > 0).any() else []
    tables.append(_steps(run))
    method = (*METHOD, *((WAITING,) if ranks else ()), *_no_modules(run))
    return Section(
        "engine-steps",
        Text("Engine steps"),
        arranged(
            [_intro(kinds, ranks)],
            findings(run, kinds, ranks, host),
            (timeline(run), idle_causes(kinds)),
            tables,
            method,
        ),
        numbers=_numbers(kinds, ranks, host) | {"agreement": agreement(run, kinds, host)},
    )


def _intro(kinds: Sequence[KindTime], ranks: Sequence[RankTime]) -> Text:
    gpus = len({(rank.pid, rank.device) for rank in ranks})
    return Text(
        "The trace has these steps of the engine{where}: {kinds}. Times are of the GPU, from the "
        "start of a step's work to the start of the next step's.",
        where=Text(" on each of {gpus} GPUs", gpus=gpus) if gpus > 1 else "",
        kinds=[Text("{n} {kind}", n=kind.steps, kind=KIND_NAMES[kind.kind]) for kind in kinds],
    )


def _no_modules(run: Run) -> list[Text]:
    if not run.modules.empty:
        return []
    reasons = run.gaps[run.gaps["table"] == "module_kernels"]["reason"].tolist()
    return [Text("No time by module: {reason}.", reason=Verbatim(text(r))) for r in reasons]


def _idle(kinds: Sequence[KindTime]) -> Table[str]:
    """Return the idle time of a step by what the host did; "" stands for all."""
    causes: dict[str, float] = {}
    for kind in kinds:
        for activity, idle in kind.idle_by.items():
            if idle >= SMALL_CAUSE * kind.idle_mean:
                causes[activity] = causes.get(activity, 0.0) + idle * kind.steps

    def columns(kind: KindTime) -> tuple[Column[str], Column[str]]:
        def idle(activity: str) -> float | None:
            return kind.idle_by.get(activity) if activity else kind.idle_mean

        def share(activity: str) -> Number | None:
            time = idle(activity)
            return None if time is None else kind.share(time)

        def idle_time(activity: str) -> Number | None:
            time = idle(activity)
            return None if time is None else Number(time, "ns")

        name = KIND_NAMES[kind.kind]
        return (
            Column(Text("{kind}: per step", kind=name), idle_time),
            Column(Text("{kind}: share of the step", kind=name), share),
        )

    return Table(
        "engine-idle",
        Text("Idle time of the GPU by what the host did"),
        [
            Column(Text("GPU idle during"), lambda a: activity_name(a) if a else Text("all")),
            *(column for kind in kinds for column in columns(kind)),
        ],
        [*sorted(causes, key=lambda name: -causes[name]), ""],
        note=Text(
            "Means over steps and GPUs. The table engine_gaps has each NVTX range and CUDA call."
        ),
    )


def _timings(kinds: Sequence[KindTime], host: HostClock) -> Table[KindTime]:
    """Return the time of a step by the trace and by the host."""

    def clock(when: str) -> Column[KindTime]:
        return Column(CLOCKS[when], lambda kind: host.step(when, kind.kind))

    def added(kind: KindTime) -> Number:
        traced, base = host.step(TRACED, kind.kind), host.step(UNTRACED, kind.kind)
        base = host.step(BEFORE, kind.kind) if base.value is None else base
        return (traced - base).share_of(base)

    timed = {when for when, _ in host.steps}
    return Table(
        "engine-timings",
        Text("Time of a step by the trace and by the host"),
        [
            Column(Text("Step"), lambda k: KIND_NAMES[k.kind]),
            Column(Text("Kernels"), lambda k: k.middle("kernel_ns")),
            Column(Text("Copies"), lambda k: k.middle("memory_ns")),
            Column(Text("Idle"), lambda k: k.middle("idle_here_ns")),
            Column(Text("Trace"), lambda k: k.middle("time_ns")),
            *(clock(when) for when in CLOCKS if when in timed),
            Column(Text("Tracing adds"), added),
        ],
        kinds,
        note=Text(
            "Medians over steps. The host times a step from the return of the one before to its "
            "own return, after it has issued the next step: to it, the first step of a batch seems "
            "longer."
        ),
        refs=lambda k: k.number(0, "").refs,
    )


def _ranks(ranks: Sequence[RankTime]) -> Table[RankTime]:
    """Return each GPU beside the others, with its collectives."""
    return Table(
        "engine-gpus",
        Text("Each GPU, and its collectives"),
        [
            Column(Text("Step"), lambda r: KIND_NAMES[r.kind]),
            Column(Text("GPU"), lambda r: r.device),
            Column(Text("Process"), lambda r: Verbatim(str(r.pid), r.pid)),
            Column(Text("Time"), lambda r: r.number("time_ns")),
            Column(Text("Kernels"), lambda r: r.number("kernel_ns")),
            Column(Text("Collectives"), lambda r: r.number("collective_ns")),
            Column(
                Text("Of the step"),
                lambda r: r.number("collective_ns").share_of(r.number("time_ns")),
            ),
            Column(Text("Exposed"), lambda r: r.number("collective_exposed_ns")),
            Column(Text("Waiting for others"), lambda r: r.number("collective_wait_ns")),
            Column(Text("Idle"), lambda r: r.number("idle_here_ns")),
        ],
        ranks,
        note=Text(
            "Means of a step. Exposed: no other kernel of the GPU runs meanwhile. Waiting: longer "
            "than on the GPU on which the collective took least."
        ),
    )


def _modules(run: Run) -> Table[Row]:
    """Return the GPU time of the model's modules, the largest of each kind of step."""
    modules = run.modules[run.modules["launches"] > 0]
    order = {kind: number for number, kind in enumerate(KIND_NAMES)}
    modules = modules.assign(order=modules["stage"].map(order)).sort_values(
        ["order", "kernel_ns"], ascending=[True, False]
    )
    rows = records(modules.groupby("stage", sort=False).head(MOST_MODULES))
    return Table(
        "engine-modules",
        Text("GPU time of the model's modules"),
        [
            Column(Text("Step"), lambda r: KIND_NAMES.get(text(r["stage"])) or text(r["stage"])),
            Column(Text("Module"), lambda r: Name(text(r["module"]))),
            Column(Text("Times"), lambda r: count(r["instances"])),
            Column(Text("Launches"), lambda r: count(r["launches"])),
            Column(Text("Kernels"), lambda r: Number(known(r["kernel_ns"]), "ns")),
            Column(Text("Of the step's kernels"), lambda r: Number(known(r["share"]), "fraction")),
        ],
        rows,
        note=Text(
            "By vLLM's layer-wise NVTX ranges; * stands for all layers. Kernels outside of all "
            "modules are not in the table: inputs, sampling."
        ),
        lead=None if text(rows[0]["source"]) == "trace" else _not_traced(run),
    )


def _not_traced(run: Run) -> Text:
    """Return that the modules are of the operators step, and what the trace does not do of it."""
    excess: list[Value] = []
    for stage in stages_of_operators(run):
        if (operator := excess_operator(stage)) is not None:
            excess.append(
                Text(
                    "{operator} in {stage} ({time} more per step; {kernel}, {calls} calls with "
                    "inputs {shapes})",
                    operator=Name(operator.name),
                    stage=stage.label,
                    time=Number(operator.excess_ns, "ns"),
                    kernel=Name(operator.kernel),
                    calls=calls(operator.calls),
                    shapes=Verbatim(shorten(operator.shapes, 60)),
                )
            )
    return Text(
        "Not of the traced steps: these are of the operators step, without CUDA graphs and "
        "compilation.{excess}",
        excess=Text(
            " It takes longer than the trace for {operators}: the module that calls it seems "
            "larger here than it is.",
            operators=excess,
        )
        if excess
        else "",
    )


def _steps(run: Run) -> Table[Row]:
    """Return the first steps one by one."""
    steps = timed_steps(run)

    def prefill(row: Row) -> Value | None:
        if not row["prefill_requests"]:
            return None
        requests, tokens = count(row["prefill_requests"]), count(row["prefill_tokens"])
        return Text("{requests} ({tokens} tokens)", requests=requests or 0, tokens=tokens or 0)

    def time(heading: Text, column: str) -> Column[Row]:
        return Column(heading, lambda row: Number(number(row[column]), "ns"))

    return Table(
        "engine-each-step",
        Text("Each step"),
        [
            Column(Text("Step"), lambda r: count(r["step"])),
            Column(Text("GPU"), lambda r: count(r["device"])),
            Column(Text("Kind"), lambda r: KIND_NAMES.get(text(r["kind"])) or text(r["kind"])),
            Column(Text("Prefill"), prefill),
            Column(Text("Decode requests"), lambda r: count(r["decode_requests"])),
            time(Text("Time"), "time_ns"),
            Column(Text("Launches"), lambda r: count(r["launches"])),
            time(Text("Kernels"), "kernel_ns"),
            time(Text("Idle"), "idle_here_ns"),
            Column(Text("Idle after it during"), lambda r: text(r["cause"]) or None),
        ],
        records(steps.head(MOST_STEPS)),
        note=Text(
            "The first {shown} rows of {n}: the table engine_steps has all.",
            shown=MOST_STEPS,
            n=len(steps),
        )
        if len(steps) > MOST_STEPS
        else None,
        folded=True,
    )


def _numbers(
    kinds: Sequence[KindTime], ranks: Sequence[RankTime], host: HostClock
) -> dict[str, Json]:
    """Return for metrics.json, in seconds: each kind of step, each GPU, and the host's timing."""
    medians = {
        "step_s": "time_ns",
        "kernel_s": "kernel_ns",
        "copies_s": "memory_ns",
        "busy_s": "busy_ns",
        "idle_s": "idle_here_ns",
    }
    means = {
        "step_s": "time_ns",
        "kernel_s": "kernel_ns",
        "collective_s": "collective_ns",
        "collective_exposed_s": "collective_exposed_ns",
        "collective_waiting_s": "collective_wait_ns",
        "idle_s": "idle_here_ns",
    }
    return {
        "kinds": {
            kind.kind: {
                "steps": kind.steps,
                **{name: kind.median[column] / 1e9 for name, column in medians.items()},
                "idle_mean_s": kind.idle_mean / 1e9,
                "idle_between_steps_mean_s": kind.after_mean / 1e9,
                "launches": kind.median["launches"],
                "idle_by_s": {name: idle / 1e9 for name, idle in kind.idle_by.items()},
            }
            for kind in kinds
        },
        "ranks": [
            {"kind": rank.kind, "pid": rank.pid, "device": rank.device}
            | {name: rank.mean[column] / 1e9 for name, column in means.items()}
            for rank in ranks
        ],
        "host": [
            {
                "kind": kind,
                "when": when,
                "step_s": host.step(when, kind).value,
                "steps": len(host.steps[when, kind]),
            }
            for when in CLOCKS
            for kind in KIND_NAMES
            if (when, kind) in host.steps
        ],
    }
