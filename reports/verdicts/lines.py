"""Adds to findings the lines of the source that their time belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.lines import (
    HostLine,
    KernelLine,
    host_lines,
    host_rows,
    kernel_lines,
)
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program import copies, host_work, idle_rules
from nsight_prof.reports.page import Evidence, Number, Text, Value, Verbatim

NAMED = 2
"""Lines that a sentence names."""
LEAST = 0.1
"""Share of the samples below which a line is not named."""
DOING = {
    idle_rules.SYNC_STALLS.key: ("waiting", "copying"),
    idle_rules.ALLOCATION_STALLS.key: ("allocating",),
    copies.COPIES.key: ("copying",),
}
"""Rules whose time is that in certain calls: it is spent there while the GPU works, too."""
WORK = {
    work.rule.key: name for name, work in host_work.OF_WORK.items() if work.rule in host_work.RULES
}
"""Rules whose time is that in which a library does certain work."""
IDLE = (idle_rules.HOST_BOUND.key, idle_rules.LAUNCH_BOUND.key, idle_rules.IDLE.key)
"""Rules whose time is that in which the GPU has nothing to do."""
SAMPLES = Text("stacks of Python, sampled by nsys")
STALLS = Text("samples of warps by ncu")


def located(run: Run, finding: Finding) -> Finding:
    """Return the finding with the lines that it is about, or as it is where none are known."""
    if finding.rule in {*DOING, *WORK, *IDLE}:
        return _with_host_lines(run, finding)
    if finding.key == "kernel" and finding.kernel_ids:
        return _with_kernel_lines(run, finding)
    return finding


def _with_host_lines(run: Run, finding: Finding) -> Finding:
    doing = DOING.get(finding.rule, ())
    rows = host_rows(run, finding.stage, doing, idle=not doing)
    if finding.rule in WORK:
        rows = rows[rows["work"] == WORK[finding.rule]]
    lines = host_lines(rows, "samples" if doing else "idle_samples")
    hot_lines = [line for line in lines if number(line.share.value) >= LEAST][:NAMED]
    if not hot_lines:
        return finding
    verdict = Text(
        "{verdict} The host is then in {places} ({n} sample of its stacks).",
        "{verdict} The host is then in {places} ({n} samples of its stacks).",
        verdict=finding.verdict,
        places=[_host_place(line) for line in hot_lines],
        n=sum(line.samples for line in lines),
    )
    return replace(finding, verdict=verdict, evidence=_evidence(finding, hot_lines, SAMPLES))


def _host_place(line: HostLine) -> Text:
    return Text(
        "{place} in {function} ({share} of them; 95 %: {interval})",
        place=Verbatim(line.location),
        function=Verbatim(line.function),
        share=_alone(line.share),
        interval=line.share.interval,
    )


def _with_kernel_lines(run: Run, finding: Finding) -> Finding:
    lines = kernel_lines(run, finding.kernel_ids[0])
    hot_lines = [line for line in lines if number(line.share.value) >= LEAST][:NAMED]
    if not hot_lines:
        return finding
    verdict = Text(
        "{verdict} Its warps stand at {places} ({n} sample).",
        "{verdict} Its warps stand at {places} ({n} samples).",
        verdict=finding.verdict,
        places=[_kernel_place(line) for line in hot_lines],
        n=sum(line.samples for line in lines),
    )
    return replace(finding, verdict=verdict, evidence=_evidence(finding, hot_lines, STALLS))


def _kernel_place(line: KernelLine) -> Text:
    values: dict[str, Value] = {"place": Verbatim(line.location), "share": _alone(line.share)}
    if not line.stall:
        return Text("{place} ({share})", **values)
    return Text("{place} ({share}, most for {stall})", stall=Verbatim(line.stall), **values)


def _alone(share: Number) -> Number:
    """The share without its interval, which stands beside it."""
    return replace(share, low=None, high=None)


def _evidence(
    finding: Finding, lines: Sequence[HostLine | KernelLine], source: Text
) -> tuple[Evidence, ...]:
    shares = (Evidence(Text("at {place}", place=Verbatim(line.location)), line.share, source=source)
              for line in lines)  # fmt: skip
    return (*finding.evidence, *shares)
