"""Section about the steps of a serving engine in the trace: what the GPU did, and waited for."""

from __future__ import annotations

from nsight_prof.reports.bench.models import Json, Section
from nsight_prof.reports.engine.steps.figures import figures
from nsight_prof.reports.engine.steps.findings import agreement, findings
from nsight_prof.reports.engine.steps.tables import tables
from nsight_prof.reports.engine.steps.times import (
    HostTime,
    KindTime,
    RankTime,
    host_times,
    kind_times,
    rank_times,
)
from nsight_prof.reports.load import Run

METHOD = (
    "A step's GPU work is what its process issued from the start of vLLM's NVTX range "
    "execute_context_… to the start of the next: tokens are sampled after the range.",
    "A step has the GPU from its first operation to that of the next step, so that steps follow "
    "each other without a hole; idle is what is left of that time when the union of all kernels, "
    "copies and memsets is taken away.",
    "Idle time in front of an operation that the host had issued before is the GPU's own. Else it "
    "is the host's until its call returns, and goes to what the worker's thread did: a CUDA call "
    "that blocks or takes 0.1 ms, else the innermost NVTX range.",
)
WAITING = (
    "A collective ends when the last GPU has come. What it takes longer than on the GPU that takes "
    "least is waiting; durations are compared, so that the clocks of GPUs need not agree."
)


def section(run: Run) -> Section | None:
    """Return the section, or None where the trace has no engine steps."""
    kinds = kind_times(run)
    if not kinds:
        return None
    ranks, host = rank_times(run), host_times(run)
    return Section(
        key="engine-steps",
        title="Engine steps",
        intro=_intro(kinds, ranks),
        findings=findings(run, kinds, ranks, host),
        tables=tables(run, kinds, ranks, host),
        figures=figures(run, kinds),
        method=(*METHOD, *((WAITING,) if ranks else ()), *_no_modules(run)),
        numbers=numbers(kinds, ranks, host) | {"agreement": agreement(run, kinds, host)},
    )


def _intro(kinds: tuple[KindTime, ...], ranks: tuple[RankTime, ...]) -> str:
    gpus = len({(rank.pid, rank.device) for rank in ranks})
    where = f" on each of {gpus} GPUs" if gpus > 1 else ""
    told = ", ".join(f"{kind.steps} {kind.kind}" for kind in kinds)
    return (
        f"The trace has these steps of the engine{where}: {told}. Times are of the GPU, from the "
        "start of a step's work to the start of the next step's."
    )


def _no_modules(run: Run) -> tuple[str, ...]:
    if not run.modules.empty:
        return ()
    gaps = run.gaps[run.gaps["table"] == "module_kernels"]
    return tuple(f"No time by module: {reason}." for reason in gaps["reason"].tolist())


def numbers(
    kinds: tuple[KindTime, ...], ranks: tuple[RankTime, ...], host: tuple[HostTime, ...]
) -> dict[str, Json]:
    """Return for metrics.json, in seconds: each kind of step, each GPU, and the host's timing."""
    return {
        "kinds": {
            kind.kind: {
                "steps": kind.steps,
                "step_s": kind.seconds,
                "kernel_s": kind.kernel,
                "copies_s": kind.memory,
                "busy_s": kind.busy,
                "idle_s": kind.idle,
                "idle_mean_s": kind.idle_mean,
                "idle_between_steps_mean_s": kind.after_mean,
                "launches": kind.launches,
                "idle_by_s": dict(kind.idle_by),
            }
            for kind in kinds
        },
        "ranks": [
            {
                "kind": rank.kind,
                "pid": rank.pid,
                "device": rank.device,
                "step_s": rank.seconds,
                "kernel_s": rank.kernel,
                "collective_s": rank.collective,
                "collective_exposed_s": rank.exposed,
                "collective_waiting_s": rank.waiting,
                "idle_s": rank.idle,
            }
            for rank in ranks
        ],
        "host": [
            {"kind": one.kind, "when": one.when, "step_s": one.seconds, "steps": one.steps}
            for one in host
        ],
    }
