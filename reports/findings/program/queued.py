"""Steps that were queued before the GPU came to them: what a CUDA graph would make of all."""

from __future__ import annotations

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.repeats import QUEUED_UP_TO_NS, Repeats, repeats
from nsight_prof.reports.analysis.timeline import timeline
from nsight_prof.reports.findings.program.rule import measured
from nsight_prof.reports.page import Evidence, Number, Text


def queued_steps(run: Run, stage: str) -> Repeats | None:
    """Return the steps that were queued ahead in a stage, with "" in the run; see `repeats`."""
    frame = timeline(run)
    return None if frame is None else repeats(frame, stage)


def queued_clause(steps: Repeats | None) -> Text | str:
    """Say how long steps take that were queued before the GPU came to them; empty without such."""
    if steps is None:
        return ""
    return Text(
        " {queued} of {n} steps were queued before the GPU came to them, and take {period} each; "
        "the {others} others, for which it waits, take {usual}, {ratio} as long: a CUDA graph of "
        "the step comes near the first.",
        queued=steps.queued,
        n=steps.queued + steps.others,
        period=steps.queued_period,
        others=steps.others,
        usual=steps.period,
        ratio=steps.ratio,
    )


def queued_evidence(steps: Repeats | None) -> list[Evidence]:
    """Return both kinds of steps, and how many times as long the second takes."""
    if steps is None:
        return []
    few = Text("{limit} of idle time per launch at most", limit=Number(QUEUED_UP_TO_NS, "ns"))
    source = Text("prof: 0.6 to 1.3 us between two queued kernels in recorded runs of an H200")
    usual = Text("median step for which the GPU waits, {n} of them", n=steps.others)
    return [
        Evidence(
            Text("median step that was queued, {n} of them", n=steps.queued),
            steps.queued_period,
            few,
            source,
        ),
        measured(usual, steps.period),
        measured(Text("the second over the first"), steps.ratio),
    ]
