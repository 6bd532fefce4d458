"""View models of what ncu's own rules said, beside what prof says of the same kernels."""

from __future__ import annotations

from dataclasses import dataclass, field

LARGE_GAIN = 0.2
"""Part of the time that ncu says can be saved, from which on a finding of prof repeats it."""


@dataclass(frozen=True)
class RuleRow:
    """What ncu's rules say of one matter for one kernel, and how prof's findings stand to it.

    `message` ("says" in metrics.json) is that of ncu, `rules` are the identifiers of ncu, "" for
    what prof alone says. `speedup` is the largest part of the time that ncu estimates can be saved
    (0 to 1), of the whole kernel (`speedup_of` global) or of one unit (local); None where it does
    not estimate; `gain` is what prof estimates of the kernel's time for the same cause, never
    beyond the roof; `abstained` is whether prof lacks the counters for it. `verdict` is agrees,
    differs or contradicts; `answer` ("ours" there) is what prof says and `reason` ("why") that of a
    difference, "" for none.
    """

    kernel: int
    about: str
    rules: tuple[str, ...]
    message: str = field(metadata={"key": "says"})
    speedup: float | None
    speedup_of: str
    verdict: str
    answer: str = field(metadata={"key": "ours"})
    reason: str = field(metadata={"key": "why"})
    gain: float | None = None
    abstained: bool = False


@dataclass(frozen=True)
class RuleSummary:
    """One matter over all kernels: the numbers of the kernels by how prof stands to ncu."""

    about: str
    rules: tuple[str, ...]
    agrees: tuple[int, ...]
    differs: tuple[int, ...]
    contradicts: tuple[int, ...]


@dataclass(frozen=True)
class RulesView:
    """All that ncu's rules said; empty where none was applied. Rows stand in kernels' order."""

    rows: tuple[RuleRow, ...] = ()
    summary: tuple[RuleSummary, ...] = ()

    def of(self, kernel: int) -> tuple[RuleRow, ...]:
        """Return the rows of one kernel by its number."""
        return tuple(row for row in self.rows if row.kernel == kernel)

    def unjudged(self, kernel: int) -> list[RuleRow]:
        """Return what ncu alone can say of a kernel and what it says saves much, that first."""
        rows = [r for r in self.of(kernel) if r.abstained and (r.speedup or 0.0) >= LARGE_GAIN]
        return sorted(rows, key=lambda row: -(row.speedup or 0.0))[:2]

    @property
    def contradictions(self) -> tuple[RuleRow, ...]:
        """Rows where ncu and prof say opposite things."""
        return tuple(row for row in self.rows if row.verdict == "contradicts")
