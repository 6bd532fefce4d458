"""Frozen view models: everything that templates and plots may see of a run, and nothing else.

Numbers are in base units (ns, B, B/s, FLOP/s, FLOP/B, Hz); shares and gains are fractions, 0 to 1;
columns named `_pct` are per cent. `None` is unknown: show it as not available, never as 0. Rounding
and unit prefixes are the business of the filters that show a number. A kernel has the same
`number` (1-based, by share of GPU time) in every table and plot of a report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from nsight_prof.reports.analysis.models import GpuTime as GpuTime
from nsight_prof.reports.analysis.models import MissingValue as MissingValue
from nsight_prof.reports.analysis.models import RoofComparison
from nsight_prof.reports.analysis.models import RunTime as RunTime
from nsight_prof.reports.findings.model import BoundShare, Finding
from nsight_prof.reports.findings.ncu.models import RulesView
from nsight_prof.reports.page import Document, OpenQuestion, Section, Text, Verbatim
from nsight_prof.reports.page.charts import NotPlotted, Roof, RooflinePanel
from nsight_prof.reports.page.figure_models import OccupancyBar, StallFigure, ThroughputBar
from nsight_prof.reports.profile.time_models import HostCost as HostCost
from nsight_prof.reports.profile.time_models import IdleRow as IdleRow
from nsight_prof.reports.profile.time_models import KindTable as KindTable
from nsight_prof.reports.profile.time_models import OperationRow as OperationRow
from nsight_prof.reports.profile.time_models import StageKernel as StageKernel
from nsight_prof.reports.profile.time_models import StageRow as StageRow
from nsight_prof.reports.profile.time_models import StepTimes as StepTimes


@dataclass(frozen=True)
class Fact:
    """One row of a two-column table: environment, versions, settings."""

    label: str
    value: str


@dataclass(frozen=True)
class LevelFigures:
    """What one kernel did at one memory level (`level` dram, l2 or l1).

    `pct` is per cent of the level's roof at the clock of the run; `intensity` is FLOP/B.
    """

    level: str
    label: str
    bytes: float | None
    throughput: float | None
    pct: float | None
    intensity: float | None


@dataclass(frozen=True)
class KernelRow:
    """One kernel: identity, time from the trace, and counters where it was profiled.

    `bound_by` is the key (dram, l2, l1, tensor, fp32, fp64, fp16, alu, xu, issue, latency, or ""
    for unknown) and `bound_label` its plain name; `bound_unit` names the unit whose busy cycles
    bound it, "" where it is bytes or FLOPs; `bound_cause` is the key of the rule that explains
    what a kernel misses (docs/rules.md) and `bound_reason` one clause of evidence. `roof_share` is
    the share of the binding roof that was reached, or of the cycles in which that unit is busy.
    `gain` is the part of the kernel's own time that it could save at most, and `gain_ns` and
    `gain_program` the same as time and as a fraction of the GPU time: they add up to what all
    kernels could save. `so_far` adds up the shares of the kernel table down to this one. `mixed`:
    launches do different amounts of work, so that the profiled one does not stand for all.
    `missing` says why cells are empty. `rate` and `roof` are what `roof_share` is the quotient of,
    in `roof_unit` at the clock of the kernel, and `roof_label` names the roof; None and empty where
    it is a share of busy cycles.
    `matrix_work` tells whether Tensor Core operations were counted: without, `tensor_pct` is of
    other instructions that pass through that pipe.
    """

    number: int
    kernel_id: str
    short_name: str
    name: str
    library: str
    category: str
    dtype: str
    tile: str
    grid: str
    block: str
    stages: tuple[str, ...]
    calls: int | None
    share: float | None
    so_far: float | None
    total_ns: float | None
    mean_ns: float | None
    median_ns: float | None
    min_ns: float | None
    max_ns: float | None
    std_ns: float | None
    profiled: bool
    ncu_duration_ns: float | None
    trace_duration_ns: float | None
    duration_difference: float | None
    duration_flagged: bool
    achieved_occupancy_pct: float | None
    theoretical_occupancy_pct: float | None
    occupancy_limiter: str
    waves: float | None
    registers: int | None
    shared_bytes: float | None
    dram: LevelFigures
    l2: LevelFigures
    l1: LevelFigures
    l2_hit_pct: float | None
    l1_hit_pct: float | None
    flops: float | None
    flop_throughput: float | None
    pipe: str
    pipe_dtype: str
    tensor_pct: float | None
    matrix_work: bool | None
    issue_active_pct: float | None
    top_stall: str
    top_stall_ratio: float | None
    sm_clock_hz: float | None
    bound_by: str
    bound_label: str
    bound_unit: str
    bound_cause: str
    bound_reason: Text
    roof_share: float | None
    rate: float | None
    roof: float | None
    roof_unit: str
    roof_label: str
    gain: float | None
    gain_ns: float | None
    gain_program: float | None
    mixed: bool
    missing: tuple[MissingValue, ...]


@dataclass(frozen=True)
class GemmRow:
    """A GEMM of known shape: counted FLOPs over 2MNK, and the part that the tile explains."""

    name: str
    stage: str
    m: int
    n: int
    k: int
    tile: str
    kernel: int | None
    counted_flops: float | None
    useful_flops: float
    ratio: float | None
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """Kernels that were not profiled: how many, their share of GPU time, and why."""

    name: str
    kernels: int
    share: float | None
    reason: str


@dataclass(frozen=True)
class FailedJoin:
    """A launch in the counters that fits no kernel of the trace."""

    name: str
    grid: str
    block: str
    reason: str


@dataclass(frozen=True)
class CounterFileRow:
    """One of several imported files of ncu, and what it holds that no file before it does.

    `shown_kernels` are the kernels whose counters the report shows of a launch in this file.
    """

    file: str
    page: str
    launches: int
    new_launches: int
    new_kernels: int
    values: int
    new_values: int
    shown_kernels: int


@dataclass(frozen=True)
class Caveat:
    """Something the reader must know: a sentence or two, and what it concerns.

    `lay_text` ("plain" in metrics.json) is the same for a reader who does not tune kernels; empty
    where it is nothing to them. `points` ("parts" there) are those of a caveat that lists several.
    """

    text: Text | str
    concerns: tuple[str, ...]
    lay_text: Text | str = field(default="", metadata={"key": "plain"})
    points: tuple[Text | str, ...] = field(default=(), metadata={"key": "parts"})


@dataclass(frozen=True)
class CommandRow:
    """One step as it ran; `command` is shell-quoted, `note` the error or warnings.

    `folder` is that of its files in the run, empty where there is none.
    """

    step: str
    state: str
    command: str
    seconds: float | None
    exit_code: int | None
    note: str
    folder: str = ""

    @property
    def link(self) -> Document | Verbatim:
        """Its name, which leads to its files."""
        return Document(self.step, self.folder) if self.folder else Verbatim(self.step)


@dataclass(frozen=True)
class Method:
    """How the numbers came about. `passes` are replays a kernel, lowest and highest.

    `choice` are sentences: which launch of a kernel stands for it.
    """

    commands: tuple[CommandRow, ...]
    versions: tuple[Fact, ...]
    clock_control: str
    cache_control: str
    sets: tuple[str, ...]
    passes: tuple[int, int] | None
    choice: tuple[Text, ...]
    profiled_kernels: int
    total_kernels: int


@dataclass(frozen=True)
class RuleAbstention:
    """Rules (docs/rules.md) that were not held to some kernels, for want of what `reason` says.

    `kernels` are numbers of the kernel table.
    """

    rules: tuple[str, ...]
    kernels: tuple[int, ...]
    reason: Text


@dataclass(frozen=True)
class GlossaryEntry:
    """A term of the report in plain words."""

    term: str
    meaning: str


@dataclass(frozen=True)
class KernelFigures:
    """What is drawn of kernels: fields of `ReportView` that are known before any finding."""

    gpu_time_ns: float | None
    gpus: tuple[GpuTime, ...]
    kernels: tuple[KernelRow, ...]
    rest_kernels: int
    rest_share: float | None
    stages: tuple[StageRow, ...]
    rooflines: tuple[RooflinePanel, ...]
    not_plotted: tuple[NotPlotted, ...]
    occupancy: tuple[OccupancyBar, ...]
    throughput: tuple[ThroughputBar, ...]
    stalls: StallFigure


@dataclass(frozen=True)
class RunReport:
    """What reports of programs and of benchmarks have in common."""

    title: str
    question: str
    run_id: str
    created: str
    replayed_from: str
    caveats: tuple[Caveat, ...]
    sections: tuple[Section, ...]
    roofs: tuple[Roof, ...]
    roof_comparison: tuple[RoofComparison, ...]
    method: Method
    glossary: tuple[GlossaryEntry, ...]


@dataclass(frozen=True)
class ReportView(KernelFigures, RunReport):
    """The whole report. `tier`: trace and counters, trace only, counters only, or nothing.

    `workload` says what an engine served, None where none did.
    `answer` are whole sentences, the most important first, and `answer_anchors` the ids of the
    places on the page that each rests on. `kinds` divides the GPU time by kind of kernel (None
    where the kernel table says as much), `idle` the time without work by its cause; `stages_note`
    says why stages do not add up to the capture, where they do not. `kernels` are
    those that the table shows, in order of their share; `rest_kernels` and `rest_share` stand for
    all others.
    `run_time` divides the time that the user waits into work and idle time. `gpus` are those that
    did any work. `gpu_time_ns` is the sum over all of them; of several that ran kernels
    `idle_share` is their mean, `idle_range` the least and the most of one, and `idle_together` the
    part of the wall time in which none of them worked (both None for a single GPU).
    `profiled_share` is the part of GPU time that has counters, `unprofiled_share` the rest (None
    where that is nothing), and `bound_shares` divides the time by what limits it. `saved_ns` and
    `saved_share` are what all kernels could save, the sums of their gains. `steady_roofs` are
    the Tensor Core rates under load that lasts, by type. `sections` are what a serving engine adds
    (its model, steps and operators); empty for other programs. `abstained` are questions
    that the evidence does not answer, each with the reason, and `to_measure` the command that
    measures what limits the kernels (empty where none can, None where kernels have counters);
    `rules_abstained` are the rules of kernels that lack evidence. `ncu_rules` is what ncu's own
    rules said where they were applied, beside what prof says.
    """

    workload: Text | None
    tier: str
    answer: tuple[Text, ...]
    answer_anchors: tuple[str, ...]
    findings: tuple[Finding, ...]
    abstained: tuple[OpenQuestion, ...]
    to_measure: str | None
    rules_abstained: tuple[RuleAbstention, ...]
    environment: tuple[Fact, ...]
    wall_ns: float | None
    idle_share: float | None
    idle_range: tuple[float, float] | None
    idle_together: float | None
    run_time: RunTime
    profiled_share: float | None
    unprofiled_share: float | None
    saved_ns: float | None
    saved_share: float | None
    bound_shares: tuple[BoundShare, ...]
    kinds: KindTable | None
    stages_note: Text | None
    idle: tuple[IdleRow, ...]
    steps: tuple[StepTimes, ...]
    host_costs: tuple[HostCost, ...]
    memory_operations: tuple[OperationRow, ...]
    api_calls: tuple[OperationRow, ...]
    steady_roofs: Mapping[str, float]
    roofs_measured_by: Text | None
    roofs_of_another: Text | None
    gemms: tuple[GemmRow, ...]
    ncu_rules: RulesView
    left_out: tuple[LeftOut, ...]
    selection_notes: tuple[str, ...]
    failed_joins: tuple[FailedJoin, ...]
    counter_files: tuple[CounterFileRow, ...]
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def working_gpus(self) -> int:
        """Over how many GPUs the GPU time sums: those that ran kernels, at least 1."""
        return working_gpus(self.gpus)

    @property
    def sm_clock_hz(self) -> float | None:
        """Mean SM clock of the profiled kernels, weighted by GPU time; None where not known."""
        return self.mean(lambda row: row.sm_clock_hz)

    @property
    def tensor_pct(self) -> float | None:
        """The same of the per cent of cycles in which the Tensor Cores worked."""
        return self.mean(lambda row: 0.0 if row.matrix_work is False else row.tensor_pct)

    def mean(self, of: Callable[[KernelRow], float | None]) -> float | None:
        """Return the mean of a number of the profiled kernels, weighted by GPU time."""
        known = [(row.share, of(row)) for row in self.kernels if row.profiled]
        pairs = [(share, value) for share, value in known if share and value is not None]
        return sum(p * v for p, v in pairs) / sum(p for p, _ in pairs) if pairs else None


def working_gpus(gpus: Iterable[GpuTime]) -> int:
    """Return how many GPUs ran kernels, at least 1."""
    return sum(gpu.launches > 0 for gpu in gpus) or 1
