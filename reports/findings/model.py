"""A finding of a profile report: that of a page, with the kernels it is about and its gain."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nsight_prof.reports.page.section import Evidence
from nsight_prof.reports.page.section import Finding as PageFinding
from nsight_prof.reports.page.values import Confidence, Number, Text

SYMPTOMS = ("launch_bound", "sync_stalls", "host_bound", "results_on_host", "copies")
HOST_WORKS = (
    *("sleeps", "file_access", "network_copies", "anomaly_detection", "logging"),
    *("graph_captures", "tensors_made_on_host", "cpu_libraries"),
    *("dispatch_modes", "memory_statistics", "profiling", "argument_checks"),
)
OF_VALUES = ("repeated_work", "unread_results", "zeros_multiplied")
"""Rules about work that the values of operators show to be needless."""
CAUSE_OF = {
    **dict.fromkeys((*HOST_WORKS, "blocking_launches", "host_functions"), SYMPTOMS),
    "sync_stalls": ("launch_bound", "host_bound", "one_by_one"),
    "results_on_host": ("launch_bound", "sync_stalls"),
    "allocation_stalls": ("launch_bound", "sync_stalls", "host_bound"),
    "pool_release": ("launch_bound", "sync_stalls", "host_bound"),
    "remade_code": ("launch_bound", "sync_stalls"),
    "convolution_search": ("launch_bound", "sync_stalls", "host_bound"),
    "kernel_tuning": ("launch_bound", "sync_stalls", "host_bound"),
    "compilation": ("launch_bound", "sync_stalls", "host_bound"),
    "data_loading": ("launch_bound", "sync_stalls", "host_bound"),
    "interpreter_lock": ("launch_bound", "sync_stalls"),
    "garbage_collection": ("launch_bound", "sync_stalls", "host_bound"),
    "recomputation": ("launch_bound", "host_bound"),
    "optimizer_loop": ("launch_bound", "host_bound", "one_by_one"),
    "one_by_one": ("launch_bound",),
    "tensor_prints": ("launch_bound", "sync_stalls", "host_bound"),
    "double_precision": ("elementwise_chain",),
    "casts_and_copies": ("elementwise_chain",),
    "needless_work": ("elementwise_chain", "casts_and_copies"),
    **dict.fromkeys(
        OF_VALUES,
        (
            *("launch_bound", "host_bound", "one_by_one"),
            *("elementwise_chain", "casts_and_copies", "needless_work"),
        ),
    ),
}
"""Rules that tell of the cause of what others tell of: a host that waits for results in every step
cannot run ahead, however fast it launches."""


@dataclass(frozen=True)
class Finding(PageFinding):
    """Something that a reader can act on.

    `verdict` is the sentence of the report, `headline` a short one for the terminal, `title` the
    line of a table. `rule` is the key of the rule behind it (docs/rules.md), `key` the kind of the
    finding, `advice` the action for readers who do not know GPUs.

    Attributes:
        share: part of the GPU time that it is about.
        gain_kernel: part of that time that could be saved at most, never beyond the roof.
        gain_program: the same as part of the time of the whole program (Amdahl).
        gain_ns: the same as time.
        most_ns: the time that it would save at the full roof, where the gain ends before.
        low_ns, high_ns: what four of five measured fixes of such findings save (of kernels that
            fill a unit, where less work is possible).
        shared_ns: what the host leaves of any gain of kernels in the run, where that is its gain:
            the findings of which this is known save it once, together.
        gain_of: of what time the gain is: GPU time, or wall time for idle time and copies.
        counted_ns: in a run without a trace, what it saves of the launches that ncu profiled.
        bound: what limits its kernels.
        stage: the stage that it is about; empty for the whole program.
        rank: its place by gain, from 1; None where it divides the time and is nothing to do.
        choice: it is no defect but a choice of the owner of the program: precision, graphs.
        because: why it is no surer, where something of its own weakens it.

    Fractions are 0 to 1; NaN is unknown.
    """

    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence = "high"
    key: str = ""
    title: Text = Text("")
    headline: Text = Text("")
    advice: Text | None = None
    kernel_ids: tuple[str, ...] = ()
    share: float = math.nan
    gain_kernel: float = math.nan
    gain_program: float = math.nan
    gain_ns: float = math.nan
    most_ns: float = math.nan
    low_ns: float = math.nan
    high_ns: float = math.nan
    counted_ns: float = math.nan
    shared_ns: float = math.nan
    gain_of: Literal["GPU time", "wall time"] = "GPU time"
    bound: str = ""
    stage: str = ""
    rank: int | None = None
    choice: bool = False
    because: Text | None = None

    def __post_init__(self) -> None:
        """Give the page's finding its gain."""
        object.__setattr__(self, "gain", Number(self.gain_ns, "ns"))

    @property
    def is_bound(self) -> bool:
        """Whether nothing is known of it but the most: its gain or, where that is 0, `most_ns`."""
        return math.isnan(self.most_ns) or not self.gain_ns

    @property
    def anchor(self) -> str:
        """The id of its place on the page."""
        return f"overview-{self.key}" if self.rank is None else f"finding-{self.rank}"


@dataclass(frozen=True)
class BoundShare:
    """GPU time that one resource limits, in a stage ("(all)" is the whole run).

    `bound` is the key (dram, l2, l1, tensor, fp32, fp64, fp16, issue, latency; "unmeasured" for
    kernels without counters, "launch" for time in which the GPU has nothing to do), `label` its
    plain name, `dtype` the type of the arithmetic where that is the limit. `share` is of the GPU
    time of the stage, `of_wall` of its wall time (of several GPUs that of one on average).
    `reached` is the share of the roof that was reached, weighted by time; of waiting kernels the
    nearest roof counts. `gain` is the part of the
    stage's GPU time that its kernels could save at most, each as much as its finding allows, so
    that the rows add up to what all kernels could save. None is unknown.
    """

    stage: str
    bound: str
    label: str
    dtype: str
    share: float | None
    of_wall: float | None
    reached: float | None
    gain: float | None
    kernels: int


def concatenated(sentences: Iterable[Text | str]) -> Text | str:
    """Return sentences that begin with a space one after another; empty for none."""
    text: Text | str = ""
    for sentence in sentences:
        text = Text("{text}{sentence}", text=text, sentence=sentence) if sentence else text
    return text
