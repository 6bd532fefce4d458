"""What the table of kernels has of the same time as a finding of the operator view.

The operator view holds a stage to the floor of its work; the table of what each kernel could save
holds a launch to its own roof at its own clock, as far as its cause reaches. Both are upper limits,
of different things: a reader who sees both needs the numbers beside each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.operators.products import Stage
from nsight_prof.reports.page import Name, Number, Ref, Text


@dataclass(frozen=True)
class Saving:
    """A judged kernel: its number on the page, and the part of its time that it could save.

    `advised`: a finding of the report says what to do about it.
    """

    number: int
    part_of_time: float
    advised: bool

    @property
    def name(self) -> Name:
        """The kernel's row in the table of what each kernel could save."""
        return Name(f"kernel {self.number}", Ref("could-save", str(self.number)))


Savings = Mapping[str, Saving]
"""Judged kernels of a run by kernel_id."""


def kernel_savings(
    run: Run, stage: Stage, lost_ns: float, kernel_ids: Set[str], savings: Savings
) -> Iterator[Text]:
    """Yield `lost_ns` of a run for all runs, and what the table has for the stage's kernels."""
    lost = Number(lost_ns * stage.runs, "ns")
    gpu_time = Number(run.kernels["total_ns"].sum(min_count=1), "ns")
    runs = Text("in {n} run", "in all {n} runs", n=stage.runs)
    yield Text(
        "{runs}: {lost}, {part} of the GPU time", runs=runs, lost=lost, part=lost.share_of(gpu_time)
    )
    kernels = run.stage_kernels[run.stage_kernels["stage"] == stage.stage]
    rows = [r for r in records(kernels) if r["kernel_id"] in kernel_ids & savings.keys()]
    if not rows:
        return
    judged = sorted({savings[text(r["kernel_id"])] for r in rows}, key=lambda s: s.number)
    saved = sum(number(r["total_ns"]) * savings[text(r["kernel_id"])].part_of_time for r in rows)
    yield Text(
        "the table of what each kernel could save has {saved} for {kernels}: it takes one launch "
        "of each, its roof at its own clock, and the cause that was found",
        saved=Number(saved, "ns"),
        kernels=[saving.name for saving in judged],
    )
    if open_kernels := [saving.name for saving in judged if not saving.advised]:
        yield Text("no finding is about {kernels}", kernels=open_kernels)
