"""Sentences about engine steps: is the GPU idle, for what, and what does tracing change."""

from __future__ import annotations

from nsight_prof.parsers.nsys.engine_gaps import LAUNCHES, OF_GPU
from nsight_prof.reports.bench.models import BenchFinding
from nsight_prof.reports.engine.steps.times import (
    BEFORE,
    TRACED,
    UNTRACED,
    HostTime,
    KindTime,
    RankTime,
    host_total,
    trace_total,
)
from nsight_prof.reports.formats import counted, difference, listed, seconds, share, significant
from nsight_prof.reports.load import Run
from nsight_prof.reports.serving.engine import engine_of

HOST_BOUND = 0.3
"""Share of a step that the host makes the GPU idle from which the host limits it."""


WORTH_SAYING = 0.05
"""Part of a step from which the idle time of prefill has a sentence of its own."""
LEAST = 0.001
"""Part of a step below which idle time is none."""
CLOSE = 0.02
"""Difference between two timings of the same steps up to which they agree."""

ENOUGH = 8
"""Host-timed steps from which their median is compared with the trace."""


def findings(
    run: Run,
    kinds: tuple[KindTime, ...],
    ranks: tuple[RankTime, ...],
    host: tuple[HostTime, ...],
) -> tuple[BenchFinding, ...]:
    """Return what the steps show, idle time of the longest kind first."""
    engine = engine_of(run)
    mode = engine.mode if engine else ""
    order = sorted(kinds, key=lambda kind: (kind.kind != "decode", -kind.total))
    made = [
        *(_idle(kind, mode) for kind in order),
        *(_collectives(kind.kind, ranks) for kind in order),
        _agreement(run, kinds, host),
        _overhead(run, host),
    ]
    return tuple(finding for finding in made if finding is not None)


def _idle(kind: KindTime, mode: str) -> BenchFinding | None:
    """Say how long the GPU is idle and for what; of decode always, else where it is much."""
    part = _of(kind.idle_mean, kind)
    if kind.kind != "decode" and part < WORTH_SAYING:
        return None
    by_host = {name: value for name, value in kind.idle_by.items() if name not in OF_GPU}
    host = sum(by_host.values())
    step = f"{seconds(kind.idle_mean)} ({share(part)}) of a {kind.kind} step"
    if host * 2 < kind.idle_mean:
        own = (kind.idle_mean - host) / kind.launches if kind.launches else 0.0
        waits = "hardly waits" if _of(host, kind) >= LEAST else "does not wait"
        return BenchFinding(
            f"The GPU {waits} for the CPU in {kind.kind}: it is idle {step}, in gaps of "
            f"{seconds(own)} between kernels that are queued already; the CPU schedules, samples "
            "and detokenizes while the GPU works.",
            _evidence(kind),
            plain=f"The CPU keeps up: in {kind.kind} the GPU works {share(1 - part)} of the time.",
        )
    main = next(iter(by_host))
    limits = "The CPU limits" if _of(host, kind) >= HOST_BOUND else "The GPU waits for the CPU in"
    graph = main == LAUNCHES and mode == "eager"
    return BenchFinding(
        f"{limits} {kind.kind}: the GPU is idle {step}{_between(kind)}, "
        f"{share(host / kind.idle_mean)} of that waiting for the CPU, the longest for: {main}"
        f"{'; a CUDA graph would launch the step at once' if graph else ''}.",
        _evidence(kind),
        "Tracing slows the CPU down: without it the GPU waits less.",
        f"In {kind.kind} the GPU waits {share(_of(host, kind))} of the time for the CPU ({main}).",
    )


def _between(kind: KindTime) -> str:
    if _of(kind.after_mean, kind) < LEAST:
        return ""
    return f", {seconds(kind.after_mean)} of it between a step and the next"


def _of(value: float, kind: KindTime) -> float:
    whole = kind.busy + kind.idle
    return value / whole if whole else 0.0


def _evidence(kind: KindTime) -> str:
    parts = [f"{name} {seconds(value)}" for name, value in list(kind.idle_by.items())[:4]]
    told = f"; idle by cause, a step: {listed(parts)}" if parts else ""
    return (
        f"{counted(kind.steps, 'step')}, median {seconds(kind.seconds)}, of which kernels "
        f"{seconds(kind.kernel)} in {counted(kind.launches, 'launch')}{told}."
    )


def _collectives(kind: str, ranks: tuple[RankTime, ...]) -> BenchFinding | None:
    mine = [rank for rank in ranks if rank.kind == kind]
    if not mine or not any(rank.collective for rank in mine):
        return None
    count = len(mine)
    step = sum(rank.seconds for rank in mine) / count
    time = sum(rank.collective for rank in mine) / count
    exposed = sum(rank.exposed for rank in mine) / count
    known = [rank.waiting for rank in mine if rank.waiting is not None]
    waits = f", {seconds(sum(known) / count)} of it waiting for another GPU" if known else ""
    return BenchFinding(
        f"Collectives take {share(time / step if step else 0)} of a {kind} step "
        f"({seconds(time)}{waits}); {share(exposed / time if time else 0)} of their time no other "
        "kernel runs beside them.",
        f"{counted(count, 'GPU')}, mean of their steps of {seconds(step)}.",
    )


def agreement(
    run: Run, kinds: tuple[KindTime, ...], host: tuple[HostTime, ...]
) -> dict[str, float]:
    """Return busy + idle of the trace over what the host timed of the same steps, minus 1.

    Of the whole batch, and of the median decode step: a step of the host returns after it has
    issued the next one, so that the first step of a batch, the prefill, seems longer to it, and
    few steps differ by chance.
    """
    found = {}
    traced, whole = trace_total(run), host_total(run, TRACED)
    if traced is not None and whole:
        found["batch"] = traced / whole - 1
    for kind in kinds:
        timed = [o for o in host if (o.when, o.kind) == (TRACED, kind.kind)]
        if kind.kind == "decode" and timed and timed[0].steps >= ENOUGH:
            found["decode step"] = kind.seconds / timed[0].seconds - 1
    return found


def _agreement(
    run: Run, kinds: tuple[KindTime, ...], host: tuple[HostTime, ...]
) -> BenchFinding | None:
    """Compare what the trace adds up with what the host timed in the same run."""
    found = agreement(run, kinds, host)
    if not found:
        return None
    told = listed([f"{what} {difference(value)}" for what, value in found.items()])
    close = all(abs(value) <= CLOSE for value in found.values())
    words = f"agree within {significant(100 * CLOSE, 1)} %" if close else "differ"
    return BenchFinding(
        f"Busy and idle time of the trace and the time that the host measured {words}: {told}.",
        f"batch: {seconds(trace_total(run))} in the trace, {seconds(host_total(run, TRACED))} by "
        "the host's clock.",
    )


def _overhead(run: Run, host: tuple[HostTime, ...]) -> BenchFinding | None:
    """Say what tracing adds, against the run without any profiler where there is one."""
    traced = host_total(run, TRACED)
    for when, words in (
        (UNTRACED, "the target run by itself"),
        (BEFORE, "the same process before the trace"),
    ):
        plain = host_total(run, when)
        if traced is None or not plain:
            continue
        compared = [
            (one.kind, one.seconds, other.seconds)
            for one in host
            for other in host
            if (one.when, other.when) == (TRACED, when) and one.kind == other.kind
        ]
        steps = listed([f"{kind} step {difference(a / b - 1)}" for kind, a, b in compared])
        times = [f"{kind} step {seconds(a)} against {seconds(b)}" for kind, a, b in compared]
        return BenchFinding(
            f"Tracing changes the time of the batch by {difference(traced / plain - 1)} ({steps}), "
            f"compared with {words}.",
            f"by the host's clock: batch {seconds(traced)} against {seconds(plain)}; "
            f"{'; '.join(times)}.",
        )
    return None
