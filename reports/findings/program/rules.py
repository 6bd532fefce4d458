"""All rules about the whole program, and what they find in a run."""

from __future__ import annotations

import math

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.timeline import timeline
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program import (
    backends,
    clock,
    collectives,
    copies,
    fusion,
    host_work,
    idle,
    idle_rules,
    launch_rules,
    launches,
    needless,
    overview,
    streams,
)

RULES = (
    *idle_rules.RULES,
    *host_work.RULES,
    *launch_rules.RULES,
    streams.SERIAL_STREAMS,
    fusion.ELEMENTWISE_CHAIN,
    fusion.OPTIMIZER_PASSES,
    copies.CASTS_AND_COPIES,
    copies.FILLS,
    needless.NEEDLESS_WORK,
    copies.COPIES,
    copies.MANAGED_MEMORY,
    backends.SLOW_BACKEND,
    collectives.COLLECTIVES_EXPOSED,
    clock.THROTTLING,
)
"""All rules of the program, in the order of docs/rules.md."""


def program_findings(run: Run) -> list[Finding]:
    """Return findings about the whole program; empty without a trace."""
    if math.isnan(kernel_time(run)):
        return []
    waits, frame = host_work.with_host_work(run, idle.idle_findings(run)), timeline(run)
    found = [overview.where_time_goes(run)]
    found += copies.with_work_on_results(run, [*waits, *copies.copies(run, frame)])
    if managed := copies.managed_memory(run):  # it tells what the GPU waits for
        found = [f for f in found if f.rule != idle_rules.IDLE.key] + managed
    if not {f.rule for f in waits} & {"compilation", "kernel_tuning", "first_use", "remade_code"}:
        found += host_work.loads_behind_queue(run)
    found += copies.fills(run)
    found += [*copies.casts_and_copies(run), *backends.backend_findings(run, frame)]
    found += needless.needless_work(run)
    found += clock.clock_findings(run)
    found += launches.blocking_launches(run)
    found += launches.host_functions(run)
    if frame is None:
        return found
    # Where nsys itself makes the gaps, repeats of one kernel are still worth one launch.
    launch_bound = {
        f.stage: f.gain_program < threshold("small_gain")
        for f in waits
        if f.rule == idle_rules.LAUNCH_BOUND.key
    }
    found += launches.small_kernels(run, frame, launch_bound)
    found += launches.one_by_one(run, frame)
    found += launches.growing_steps(run, frame)
    found += launches.padded_batches(run, frame)
    found += launches.graph_breaks(run, frame)
    found += streams.serial_streams(run, frame)
    passes = fusion.optimizer_passes(run)
    taken = [key for finding in passes for key in finding.kernel_ids]
    found += [*passes, *fusion.elementwise_chains(run, frame, taken)]
    return [*found, *collectives.collectives(run, frame)]
