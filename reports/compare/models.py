"""Frozen view models of a comparison: what templates and compare.json say.

Times are ns in kernels and stages and s in cases and points; ratios are B over A. None is unknown.
Units and the meaning of None are as in reports/view_models.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One fact that must agree for numbers to be comparable, and does not.

    `level`: refuse (the comparison needs --force), warn, or note.
    """

    key: str
    level: str
    label: str
    a: str
    b: str
    why: str


@dataclass(frozen=True)
class Change:
    """A quantity in both runs; `ratio` is B over A with the ends of its 95 % interval.

    `verdict`: faster, slower, more, less, same (within noise), unknown, new, gone. `basis` says
    what the interval is made of; `floor` is the least relative difference that is called one.
    `unit` is that of `a` and `b`: ns, s, B, tokens/s, fraction, or empty for counts.
    """

    key: str
    label: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    basis: str
    floor: float


@dataclass(frozen=True)
class Member:
    """A kernel of one side in a row, with its launches and its time in ns there."""

    kernel_id: str
    short_name: str
    name: str
    grid: str
    block: str
    calls: int
    total_ns: float


@dataclass(frozen=True)
class CounterChange:
    """A hardware counter of a matched kernel in both runs, in base units."""

    column: str
    label: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None


@dataclass(frozen=True)
class KernelChange:
    """Kernels of A and what stands for them in B, in one stage.

    `match`: identical, shape, replaced, fused, split, regrouped, new or gone; `match_label` the
    same in words. `total` compares all launches, `launch` a single one (equal numbers of launches
    make both the same). `program` is the change over the GPU time of A; where the units of work are
    known, both it and the verdict are those of the time per unit. `explanation` says how the
    kernels were matched where that is not by name, and which counters changed with the time.
    `one_off`: of instances of a stage that launch far more than the others.
    """

    number: int
    stage: str
    match: str
    match_label: str
    title: str
    a: tuple[Member, ...]
    b: tuple[Member, ...]
    total: Change
    launch: Change | None
    program: float | None
    explanation: tuple[str, ...]
    counters: tuple[CounterChange, ...]
    bound_a: str
    bound_b: str
    one_off: bool


@dataclass(frozen=True)
class StageChange:
    """A stage of the program in both runs; `on` is both, a or b."""

    stage: str
    on: str
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class PointChange:
    """A serving point in both runs, with each of its metrics."""

    source: str
    case: str
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class OneOff:
    """Instances of a stage in a run (A or B) that launch far more kernels than the others.

    `instances` of the stage in all, `odd` of these; `launches` and `gpu_ns` are what the odd ones
    have beyond as many usual ones: compiling, tuning, loading, which a loop does once.
    """

    side: str
    stage: str
    instances: int
    odd: int
    launches: int
    gpu_ns: float


@dataclass(frozen=True)
class LimitResult:
    """One rule of --fail-on: kept, broken, noise (beyond the limit, but not beyond the noise)."""

    rule: str
    state: str
    sentence: str


@dataclass(frozen=True)
class Origin:
    """Which run a side is; `runs` counts it and its repeats."""

    label: str
    name: str
    created: str
    gpu: str
    program: str
    runs: int


@dataclass(frozen=True)
class CompareView:
    """Everything that a comparison says; `kind` is profile or bench.

    `answer` are the sentences that a reader should know first. `kernels` hold every launch of both
    runs once, largest change first. `basis` of a change is runs where there are repeats.
    `work` is the units of work of B over those of A where they are known, `unit` what one is
    called. `one_off` is work that a loop does once and that stands in stages of its own.
    """

    title: str
    kind: str
    a: Origin
    b: Origin
    answer: tuple[str, ...]
    settings: tuple[Check, ...]
    checks: tuple[Check, ...]
    notes: tuple[str, ...]
    limits: tuple[LimitResult, ...]
    totals: tuple[Change, ...]
    stages: tuple[StageChange, ...]
    kernels: tuple[KernelChange, ...]
    cases: tuple[Change, ...]
    points: tuple[PointChange, ...]
    method: tuple[str, ...]
    work: float | None
    unit: str
    one_off: tuple[OneOff, ...]
