"""Frozen models of a report about measured cases: what a section says, its tables and figures.

A section is made by one module and rendered by templates/bench.md.j2. Text in tables is formatted
already (reports.formats); figures carry plain numbers in the unit that their label names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nsight_prof.reports.page.charts import Chart

Json = Any
"""What metrics.json can say: None, bool, int, float, str, lists and dictionaries of them."""


@dataclass(frozen=True)
class BenchTable:
    """A table: `columns` are headings with their units, each row has one text a column.

    `left` are headings of columns with text; all others are numbers and stand at the right.
    A `folded` table shows its title only until a reader opens it. `lead` stands above the table:
    what a reader must know first. `anchors` are the ids of each row that findings lead to.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    left: tuple[str, ...] = ()
    folded: bool = False
    lead: str = ""
    anchors: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Source:
    """What a finding is from: its name, and the id of the row that shows it; empty for none."""

    name: str
    anchor: str = ""


@dataclass(frozen=True)
class BenchFinding:
    """One sentence that the cases support, on what it rests, and its limits.

    `limits` are sentences: where it ends, or what would disprove it; empty where nothing is known.
    `plain` says the same to a reader who does not know GPUs; empty where it is nothing to them.
    `cases` are the cases, or rows of tables, whose numbers the sentence tells.
    """

    sentence: str
    evidence: str
    limits: str = ""
    plain: str = ""
    cases: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Section:
    """One part of a report: `numbers` go to metrics.json under its `key`, in base units.

    `method` are sentences: how these cases were measured and how numbers came from them. `plain`
    are (what, how fast) for a reader who does not know GPUs.
    """

    key: str
    title: str
    intro: str
    findings: tuple[BenchFinding, ...] = ()
    tables: tuple[BenchTable, ...] = ()
    figures: tuple[Chart, ...] = ()
    method: tuple[str, ...] = ()
    numbers: Mapping[str, Json] = field(default_factory=dict)
    plain: tuple[tuple[str, str], ...] = ()
