"""Frozen view models of findings: what was found, on what evidence, and where its numbers stand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Where a number stands: its `name`, and the id of its row or table on the page.

    The name of a number is a column of the counters ("dram_pct"), or "table.column" of a table of
    the run ("kernels.total_ns" is in tables/kernels.csv). `anchor` is empty where the page does
    not show it. `kernel` is the number of the kernel, where a number is of several.
    """

    name: str
    anchor: str = ""
    kernel: int | None = None


@dataclass(frozen=True)
class EvidenceRow:
    """One number behind a finding; `threshold` and `source` are text, empty where there is none.

    `where` says in which rows of the page or columns of the run's tables the number stands, or
    those that it is worked out from; `anchor` is the id of the row that holds the number itself,
    empty where none does.
    """

    metric: str
    value: float | None
    unit: str
    threshold: str
    source: str
    where: tuple[Place, ...] = ()
    anchor: str = ""


@dataclass(frozen=True)
class FindingRow:
    """One finding, ranked by what it could gain for the whole program; `key` is its sort.

    `rank` is None where it tells how the time divides and is nothing to do by itself.

    `cause` is the key of the rule behind it (docs/rules.md), `stage` the stage that it is about
    (empty for the whole program). `action` says what to do, `advice` the same without jargon,
    `disprove` what one would see if the finding were wrong.

    `gain_program` is the fraction of the GPU time (of the wall time, where `gain_of` says so) that
    would be saved; `gain_ns` the same as time. `confidence` is high, medium or low. `tables` are
    those of the page that the numbers of the sentence stand in.
    """

    rank: int | None
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
    tables: tuple[Place, ...] = ()

    @property
    def anchor(self) -> str:
        """The id of its place on the page."""
        return f"overview-{self.key}" if self.rank is None else f"finding-{self.rank}"


@dataclass(frozen=True)
class RuleAbstention:
    """Rules (docs/rules.md) that were not held to some kernels, for want of what `reason` says.

    `kernels` are numbers of the kernel table.
    """

    rules: tuple[str, ...]
    kernels: tuple[int, ...]
    reason: str
