"""Frozen view models: everything that templates and plots may see of a run, and nothing else.

Numbers are in base units (ns, B, B/s, FLOP/s, FLOP/B, Hz); shares and gains are fractions, 0 to 1;
columns named `_pct` are per cent. `None` is unknown: show it as not available, never as 0. Rounding
and unit prefixes are the business of the filters that show a number. A kernel has the same
`number` (1-based, by share of GPU time) in every table and plot of a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reports.bench.models import Section
from reports.bound_shares import BoundShare
from reports.figure_models import (
    NotPlotted,
    OccupancyBar,
    Roof,
    RooflinePanel,
    StallFigure,
    ThroughputBar,
)
from reports.ncu_rule_models import RulesView
from reports.roof_comparison import RoofComparison


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

    `bound_by` is the key (dram, l2, l1, tensor, fp32, fp64, fp16, issue, latency, or "" for
    unknown) and `bound_label` its plain name; `bound_cause` is the key of the rule that explains
    what a kernel misses (docs/rules.md) and `bound_reason` one clause of evidence. `roof_share` is
    the share of the binding roof that was reached. `mixed`: launches do different amounts of work,
    so that the profiled one does not stand for all. `missing` says why cells are empty.
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
    issue_active_pct: float | None
    top_stall: str
    top_stall_ratio: float | None
    sm_clock_hz: float | None
    bound_by: str
    bound_label: str
    bound_cause: str
    bound_reason: str
    roof_share: float | None
    mixed: bool
    missing: tuple[str, ...]


@dataclass(frozen=True)
class StageKernel:
    """One of the kernels that take the most time of a stage; `share` is of the stage's time.

    `number` is None for a kernel that the kernel table does not show.
    """

    number: int | None
    short_name: str
    calls: int
    total_ns: float
    share: float | None


@dataclass(frozen=True)
class StageRow:
    """One stage of the program. `share` is of all GPU time; `idle_share` of the stage's wall."""

    stage: str
    instances: int | None
    launches: int | None
    wall_ns: float | None
    kernel_ns: float | None
    busy_ns: float | None
    idle_ns: float | None
    idle_share: float | None
    share: float | None
    top: tuple[StageKernel, ...]


@dataclass(frozen=True)
class OperationRow:
    """Copies and sets of memory (`bytes` known), or calls of one API function on the host."""

    name: str
    calls: int | None
    total_ns: float | None
    bytes: float | None


@dataclass(frozen=True)
class EvidenceRow:
    """One number behind a finding; `threshold` and `source` are text, empty where there is none."""

    metric: str
    value: float | None
    unit: str
    threshold: str
    source: str


@dataclass(frozen=True)
class FindingRow:
    """One finding, ranked by what it could gain for the whole program; `key` is its sort.

    `cause` is the key of the rule behind it (docs/rules.md), `stage` the stage that it is about
    (empty for the whole program). `action` says what to do, `advice` the same without jargon,
    `disprove` what one would see if the finding were wrong.

    `gain_program` is the fraction of the GPU time (of the wall time, where `gain_of` says so) that
    would be saved; `gain_ns` the same as time. `confidence` is high, medium or low.
    """

    rank: int
    key: str
    title: str
    sentence: str
    action: str
    advice: str
    bound_label: str
    kernels: tuple[int, ...]
    share: float | None
    gain_kernel: float | None
    gain_program: float | None
    gain_ns: float | None
    gain_of: str
    confidence: str
    evidence: tuple[EvidenceRow, ...]
    cause: str = ""
    stage: str = ""
    disprove: str = ""


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
class Caveat:
    """Something the reader must know: a sentence or two, and what it concerns.

    `plain` is the same for a reader who does not tune kernels; empty where it is nothing to them.
    """

    text: str
    concerns: tuple[str, ...]
    plain: str = ""


@dataclass(frozen=True)
class CommandRow:
    """One step as it ran; `command` is shell-quoted, `note` the error or warnings."""

    step: str
    state: str
    command: str
    seconds: float | None
    exit_code: int | None
    note: str


@dataclass(frozen=True)
class Method:
    """How the numbers came about. `passes` are replays a kernel, lowest and highest."""

    commands: tuple[CommandRow, ...]
    versions: tuple[Fact, ...]
    clock_control: str
    cache_control: str
    sets: tuple[str, ...]
    passes: tuple[int, int] | None
    profiled_kernels: int
    total_kernels: int


@dataclass(frozen=True)
class GlossaryEntry:
    """A term of the report in plain words."""

    term: str
    meaning: str


@dataclass(frozen=True)
class RuleAbstention:
    """Rules (docs/rules.md) that were not held to some kernels, for want of what `reason` says.

    `kernels` are numbers of the kernel table.
    """

    rules: tuple[str, ...]
    kernels: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class ReportView:
    """The whole report. `tier`: trace and counters, trace only, counters only, or nothing.

    `answer` are whole sentences, the most important first. `kernels` are those that the table
    shows, in order of their share; `rest_kernels` and `rest_share` stand for all others.
    `profiled_share` is the part of GPU time that has counters, and `bound_shares` divides the time
    by what limits it. `sections` are what a serving engine adds (its model, steps and operators);
    empty for other programs. `abstained` are questions that the evidence does not answer, each with
    the reason; `rules_abstained` are the rules of kernels that lack evidence. `ncu_rules` is what
    ncu's own rules said where they were applied, beside what prof says.
    """

    title: str
    question: str
    run_id: str
    created: str
    replayed_from: str
    tier: str
    answer: tuple[str, ...]
    findings: tuple[FindingRow, ...]
    abstained: tuple[str, ...]
    rules_abstained: tuple[RuleAbstention, ...]
    environment: tuple[Fact, ...]
    gpu_time_ns: float | None
    wall_ns: float | None
    idle_share: float | None
    profiled_share: float | None
    bound_shares: tuple[BoundShare, ...]
    kernels: tuple[KernelRow, ...]
    rest_kernels: int
    rest_share: float | None
    stages: tuple[StageRow, ...]
    memory_operations: tuple[OperationRow, ...]
    api_calls: tuple[OperationRow, ...]
    sections: tuple[Section, ...]
    roofs: tuple[Roof, ...]
    roof_comparison: tuple[RoofComparison, ...]
    roofs_measured_by: str
    rooflines: tuple[RooflinePanel, ...]
    not_plotted: tuple[NotPlotted, ...]
    occupancy: tuple[OccupancyBar, ...]
    throughput: tuple[ThroughputBar, ...]
    stalls: StallFigure
    gemms: tuple[GemmRow, ...]
    ncu_rules: RulesView
    left_out: tuple[LeftOut, ...]
    selection_notes: tuple[str, ...]
    failed_joins: tuple[FailedJoin, ...]
    caveats: tuple[Caveat, ...]
    method: Method
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    glossary: tuple[GlossaryEntry, ...]


@dataclass(frozen=True)
class SummaryRow:
    """One line of the stakeholder's table, in plain words; `gain` is a fraction of GPU time.

    `kernels` are numbers of the report, given only where two lines have the same name.
    """

    what: str
    kernels: tuple[int, ...]
    share: float | None
    limited_by: str
    reached: float | None
    gain: float | None


@dataclass(frozen=True)
class SummaryView:
    """Half a page for a reader who decides and does not tune kernels.

    `facts` are what was measured in plain words, `learned` the plain sentences about it. `words`
    are the fixed words of the page in its `language`, by key (section `page` of
    reports/language/en.yaml); `others` are the names and files of the same summary in other
    languages.
    """

    title: str
    question: str
    machine: str
    answer: str
    rows: tuple[SummaryRow, ...]
    facts: tuple[Fact, ...]
    learned: tuple[str, ...]
    next_steps: tuple[str, ...]
    reservations: tuple[str, ...]
    terms: tuple[GlossaryEntry, ...]
    language: str
    words: Mapping[str, str]
    others: tuple[Fact, ...] = ()
