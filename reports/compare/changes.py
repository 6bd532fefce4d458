"""What a comparison finds: quantities of both runs, kernels, stages, cases and serving points.

Times are ns in kernels and stages and s in cases and points; ratios are B over A. None is unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nsight_prof.parsers.cells import known
from nsight_prof.reports.compare.match import Row
from nsight_prof.reports.compare.noise import Ratio
from nsight_prof.reports.page import Number, Text

VERDICTS = {
    "faster": Text("faster"),
    "slower": Text("slower"),
    "same": Text("within noise"),
    "equal": Text("equal"),
    "unknown": Text("noise unknown"),
    "new": Text("new"),
    "gone": Text("gone"),
    "more": Text("more"),
    "less": Text("less"),
    "missing": Text("not measured"),
}
QUIET = ("same", "equal", "unknown", "missing")
"""Verdicts of what no table of changes lists."""
NEUTRAL = {"faster": "less", "slower": "more"}
"""Verdicts of what takes more or less time without being better or worse for that."""


@dataclass(frozen=True)
class Check:
    """A fact that must agree for numbers to be comparable, and does not.

    `level`: refuse (the comparison needs --force), warn, or note.
    """

    key: str
    level: str
    label: Text | str
    a: str
    b: str
    reason: Text


@dataclass(frozen=True)
class Change:
    """A quantity in both runs; `ratio` is B over A with the ends of its 95 % interval.

    `verdict`: faster, slower, more, less, same (within noise), equal, unknown, missing, new, gone.
    `basis`: what the interval is made of; `floor`: the smallest relative difference that counts.
    `unit` is that of `a` and `b`: ns, s, B, tokens/s, fraction, or empty for counts.
    """

    key: str
    label: Text | str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    basis: Text | None
    floor: float

    @property
    def before(self) -> Number | None:
        """Value of A; None where it has none."""
        return None if self.a is None else Number(self.a, self.unit or "count", digits=3)

    @property
    def after(self) -> Number | None:
        """Value of B; None where it has none."""
        return None if self.b is None else Number(self.b, self.unit or "count", digits=3)

    @property
    def relative(self) -> Number | None:
        """(B - A) / A with its interval; None where it is unknown."""
        if self.ratio is None:
            return None
        low, high = (None if end is None else end - 1 for end in (self.low, self.high))
        return Number(self.ratio - 1, "change", low=low, high=high)

    @property
    def noise(self) -> Ratio:
        """The ratio with its interval as `nsight_prof.reports.compare.noise` takes it."""
        value, low, high = (math.nan if x is None else x for x in (self.ratio, self.low, self.high))
        return Ratio(value, low, high, self.basis, self.floor)


def change(
    key: str,
    label: Text | str,
    unit: str,
    values: tuple[float, float],
    ratio: Ratio,
    verdict: str = "",
) -> Change:
    """Return a quantity of both runs; its verdict is that of a time unless given."""
    ends = (known(ratio.low), known(ratio.high)) if ratio.known else (None, None)
    a, b = map(known, values)
    return Change(
        key, label, unit, a, b, known(ratio.value), *ends, verdict or ratio.verdict,
        ratio.basis, ratio.floor,
    )  # fmt: skip


@dataclass(frozen=True)
class CounterChange:
    """A hardware counter of a matched kernel in both runs, in base units."""

    column: str
    label: Text
    unit: str
    a: float
    b: float
    ratio: float | None


@dataclass(frozen=True)
class KernelChange(Row):
    """A row of matched kernels with what changed in it.

    `total` compares all launches, `launch` a single launch (equal numbers of launches make both the
    same). `program` is the change over the GPU time of A; where the units of work are known, both
    it and the verdict are those of the time per unit. `reasons`: how the kernels were matched where
    that is not by name, and which counters changed with the time. `one_off`: of instances of a
    stage that launch far more than the others.
    """

    number: int
    title: str
    total: Change
    launch: Change | None
    program: float | None
    reasons: tuple[Text, ...]
    counters: tuple[CounterChange, ...]
    bound_a: str
    bound_b: str
    one_off: bool

    def added(self, work: float | None = None) -> float:
        """Return the time in ns that B takes beyond that of A for as much work."""
        return (self.total.b or 0.0) - (1.0 if work is None else work) * (self.total.a or 0.0)


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
    sentence: Text


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
class Comparison:
    """Everything that a comparison finds; `kind` is profile or bench.

    `kernels` hold every launch of both runs once, largest change first. `work` is the units of work
    of B over those of A where they are known, `unit` what a unit is called. `one_off` is work that
    a loop does once and that has stages of its own.
    """

    title: str
    kind: str
    a: Origin
    b: Origin
    settings: tuple[Check, ...]
    checks: tuple[Check, ...]
    notes: tuple[Text, ...] = ()
    limits: tuple[LimitResult, ...] = ()
    totals: tuple[Change, ...] = ()
    stages: tuple[StageChange, ...] = ()
    kernels: tuple[KernelChange, ...] = ()
    cases: tuple[Change, ...] = ()
    points: tuple[PointChange, ...] = ()
    work: float | None = None
    unit: str = ""
    one_off: tuple[OneOff, ...] = ()

    @property
    def repeated(self) -> bool:
        """Whether a side has more than one run."""
        return self.a.runs + self.b.runs > 2
