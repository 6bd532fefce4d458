"""Findings about engine steps: is the GPU idle, for what, and what does tracing change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nsight_prof.parsers.nsys.engine.gaps import LAUNCHES, OF_GPU
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.gpu_times import QUEUED, per_gpu_gaps
from nsight_prof.reports.engine.stages.names import KIND_NAMES, activity_name
from nsight_prof.reports.engine.steps.times import (
    BEFORE,
    TRACED,
    UNTRACED,
    HostClock,
    KindTime,
    RankTime,
    trace_total,
)
from nsight_prof.reports.page import Evidence, Finding, Number, Ref, Text, Value
from nsight_prof.reports.serving.engine import engine_of

HOST_BOUND = 0.3
"""Part of a step that the host makes the GPU idle from which the host limits it."""
LARGE_IDLE = 0.05
"""Part of a step from which the idle time of prefill has a finding of its own."""
NEGLIGIBLE = 0.001
"""Part of a step below which idle time is none."""
RECOUNTED = 5
"""Digits of two times whose difference, of two digits, a reader can work out again."""
CLOSE = 0.02
"""Difference between two timings of the same steps up to which they agree."""
ENOUGH = 8
"""Host-timed steps from which their median is compared with the trace."""
CAUSES = 4
"""Activities that the evidence has."""


def findings(
    run: Run, kinds: Sequence[KindTime], ranks: Sequence[RankTime], host: HostClock
) -> Iterator[Finding]:
    """Yield what the steps show, idle time of decode and of the longest kind first."""
    engine = engine_of(run)
    order = sorted(kinds, key=lambda kind: (kind.kind != "decode", -kind.total))
    for kind in order:
        idle = kind.share(kind.idle_mean).value or 0.0
        if kind.kind == "decode" or idle >= LARGE_IDLE:
            limited = kind.host_idle * 2 >= kind.idle_mean
            yield (
                _host_limits(kind, engine.mode if engine else "")
                if limited
                else _keeps_up(run, kind)
            )
    for kind in order:
        yield from _collectives(kind, [rank for rank in ranks if rank.kind == kind.kind])
    yield from _agreement(run, kinds, host)
    yield from _overhead(host)


def _keeps_up(run: Run, kind: KindTime) -> Finding:
    gap, name = _queued_gap(run, kind.kind), KIND_NAMES[kind.kind]
    return Finding(
        "host_keeps_up",
        Text(
            "The CPU keeps ahead in {kind}: the GPU is idle for {part} of a step ({idle}), mostly "
            "{gaps}between kernels that are queued already.",
            kind=name,
            part=kind.share(kind.idle_mean),
            idle=kind.number(kind.idle_mean, "ns", "idle_ns"),
            gaps="" if gap.value is None else Text("in gaps of {gap} ", gap=gap),
        ),
        (
            *_evidence(kind),
            *([Evidence(Text("mean gap between queued kernels:"), gap)] if gap.value else []),
            Text("the CPU schedules, samples and detokenizes while the GPU works"),
        ),
        lay_verdict=Text(
            "The CPU keeps up: in {kind} the GPU works {part} of the time.",
            kind=name,
            part=Number(1 - (kind.share(kind.idle_mean).value or 0.0), "fraction"),
        ),
    )


def _queued_gap(run: Run, stage: str) -> Number:
    """Return the mean time between two operations of a stage that the GPU had queued."""
    gaps = per_gpu_gaps(run)
    queued = gaps[(gaps["stage"] == stage) & (gaps["cause"] == QUEUED)]
    count = queued["gaps"].sum()
    row = f"{stage}-{QUEUED}"
    refs = Ref("idle_gaps", row, "idle_ns"), Ref("idle_gaps", row, "gaps")
    return Number(queued["idle_ns"].sum() / count if count else None, "ns", refs)


def _host_limits(kind: KindTime, mode: str) -> Finding:
    activity = next(name for name in kind.idle_by if name not in OF_GPU)
    share = kind.share(kind.host_idle)
    after = kind.share(kind.after_mean).value or 0.0
    values: dict[str, Value] = {
        "kind": KIND_NAMES[kind.kind],
        "part": kind.share(kind.idle_mean),
        "idle": kind.number(kind.idle_mean, "ns", "idle_ns"),
        "between": Text(", {time} of it between steps", time=Number(kind.after_mean, "ns"))
        if after >= NEGLIGIBLE
        else "",
        "host": Number(kind.host_idle / kind.idle_mean, "fraction"),
        "activity": activity_name(activity),
        "graph": Text("; a CUDA graph would launch the step at once")
        if activity == LAUNCHES and mode == "eager"
        else "",
    }
    verdict = Text(
        "The GPU waits for the CPU in {kind}: it is idle for {part} of a step ({idle}{between}), "
        "{host} of that for the CPU, most for {activity}{graph}.",
        **values,
    )
    if (share.value or 0.0) >= HOST_BOUND:
        verdict = Text(
            "The CPU limits {kind}: the GPU is idle for {part} of a step ({idle}{between}), {host} "
            "of that waiting for the CPU, most for {activity}{graph}.",
            **values,
        )
    return Finding(
        "host_bound_step",
        verdict,
        tuple(_evidence(kind)),
        disproof=Text("Tracing slows the CPU down: without it the GPU waits less."),
        lay_verdict=Text(
            "In {kind} the GPU waits {part} of the time for the CPU ({activity}).",
            kind=values["kind"],
            part=share,
            activity=values["activity"],
        ),
    )


def _evidence(kind: KindTime) -> Iterator[Evidence | Text]:
    yield Text(
        "steps: {n}; median {step}, of which kernels {kernels} in {launches} launches",
        n=kind.steps,
        step=kind.middle("time_ns"),
        kernels=kind.middle("kernel_ns"),
        launches=Number(kind.median["launches"], "count"),
    )
    for activity, idle in list(kind.idle_by.items())[:CAUSES]:
        yield Text(
            "idle per step for {activity}: {idle}",
            activity=activity_name(activity),
            idle=Number(idle, "ns"),
        )


def _collectives(kind: KindTime, ranks: Sequence[RankTime]) -> Iterator[Finding]:
    def mean(column: str) -> Number:
        known = [value for rank in ranks if (value := rank.number(column).value) is not None]
        return Number(sum(known) / len(known) if known else None, "ns")

    step, time, waiting = map(mean, ("time_ns", "collective_ns", "collective_wait_ns"))
    if not time.value:
        return
    yield Finding(
        "collectives",
        Text(
            "Collectives take {part} of a {kind} step ({time}{waiting}); {exposed} of their time "
            "no other kernel runs beside them.",
            part=time.share_of(step),
            kind=KIND_NAMES[kind.kind],
            time=time,
            waiting=Text(", {time} of it waiting for another GPU", time=waiting)
            if waiting.value is not None
            else "",
            exposed=mean("collective_exposed_ns").share_of(time),
        ),
        (Text("{n} GPU, mean of its steps of {step}", "{n} GPUs, mean of their steps of {step}",
              n=len(ranks), step=step),),
        technical=True,
    )  # fmt: skip


def agreement(run: Run, kinds: Sequence[KindTime], host: HostClock) -> dict[str, float]:
    """Return busy + idle of the trace over what the host timed of the same steps, minus 1.

    Of the whole batch, and of the median decode step: a step of the host returns after it has
    issued the next one, so that the first step of a batch, the prefill, seems longer to it, and
    few steps differ by chance.
    """
    found = {
        name: (trace - timed).share_of(timed).value
        for name, (trace, timed) in _clocks(run, kinds, host).items()
    }
    return {name: value for name, value in found.items() if value is not None}


def _clocks(
    run: Run, kinds: Sequence[KindTime], host: HostClock
) -> dict[str, tuple[Number, Number]]:
    """Return the seconds of the batch and of the median decode step, by trace and by host."""
    pairs = {"batch": (trace_total(run), host.batch(TRACED))}
    decode = next((kind for kind in kinds if kind.kind == "decode"), None)
    if decode and len(host.steps.get((TRACED, "decode"), ())) >= ENOUGH:
        step = Number(decode.median["time_ns"] / 1e9, "s")
        pairs["decode step"] = step, host.step(TRACED, "decode")
    return pairs


def _agreement(run: Run, kinds: Sequence[KindTime], host: HostClock) -> Iterator[Finding]:
    """Yield whether what the trace adds up is what the host timed in the same run."""
    found = agreement(run, kinds, host)
    if not found:
        return
    labels = {"batch": Text("the batch"), "decode step": Text("decode step")}
    clocks: dict[str, dict[str, Value]] = {
        name: {
            "name": labels[name],
            "trace": trace.at_digits(RECOUNTED),
            "host": timed.at_digits(RECOUNTED),
            "difference": Number(found[name], "fraction"),
        }
        for name, (trace, timed) in _clocks(run, kinds, host).items()
        if name in found
    }
    differences = [
        Text("{name} {trace} against {host} ({difference})", **values) for values in clocks.values()
    ]
    verdict = Text("The trace and the host's clock differ: {differences}.", differences=differences)
    if all(abs(value) <= CLOSE for value in found.values()):
        verdict = Text(
            "The trace and the host's clock agree within {close}: {differences}.",
            close=Number(CLOSE, "fraction", digits=1),
            differences=differences,
        )
    evidence = [
        Text(
            "{name}: {trace} of busy and idle time in the trace, {host} by the host's clock "
            "({difference})",
            **values,
        )
        for values in clocks.values()
    ]
    yield Finding("agreement_with_host", verdict, tuple(evidence), technical=True)


def _overhead(host: HostClock) -> Iterator[Finding]:
    """Yield what tracing adds, against the run without any profiler where there is one."""
    traced = host.batch(TRACED)
    when = next((w for w in (UNTRACED, BEFORE) if host.batch(w).value), "")
    if traced.value is None or not when:
        return
    base = host.batch(when)
    evidence = [
        Text(
            "batch {traced} against {base} by the host's clock ({difference})",
            traced=traced.at_digits(3),
            base=base.at_digits(3),
            difference=(traced - base).share_of(base),
        )
    ]
    for kind, name in KIND_NAMES.items():
        step, base_step = host.step(TRACED, kind), host.step(when, kind)
        if step.value is not None and base_step.value is not None:
            evidence.append(
                Text(
                    "{kind} step {traced} against {base} ({difference})",
                    kind=name,
                    traced=step.at_digits(3),
                    base=base_step.at_digits(3),
                    difference=(step - base_step).share_of(base_step),
                )
            )
    yield Finding(
        "tracing_overhead",
        Text(
            "Tracing changes the time of the batch by {difference}, against {base}.",
            difference=(traced - base).share_of(base),
            base=Text("the target run by itself")
            if when == UNTRACED
            else Text("the same process before the trace"),
        ),
        tuple(evidence),
        technical=True,
    )
