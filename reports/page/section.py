"""A section: a heading, parts in the order in which they are read, and sections inside of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nsight_prof.reports.page.charts import Chart
from nsight_prof.reports.page.finding import Finding
from nsight_prof.reports.page.table import Table
from nsight_prof.reports.page.text import Text, Value

Json: TypeAlias = Any
"""What metrics.json can say: None, bool, int, float, str, lists and dictionaries of them."""


def slug(text: str) -> str:
    """Return a text as part of a file name: lower case letters, digits and dashes."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in text.lower())
    return "-".join(part for part in kept.split("-") if part) or "x"


@dataclass(frozen=True)
class Figure:
    """A picture: `chart` holds its numbers, its name and the words for who cannot see it."""

    chart: Chart
    caption: Text | None = None

    @property
    def file(self) -> str:
        """File name without its suffix: lower case letters, digits and dashes."""
        return slug(self.chart.name)

    @property
    def alt(self) -> str:
        """What the picture shows, for who cannot see it."""
        return self.chart.alt


@dataclass(frozen=True)
class Bullets:
    """A list of sentences under a line of its own, as the method of a measurement."""

    lead: Text
    items: tuple[Text, ...]


@dataclass(frozen=True)
class Fact:
    """What a summary tells in a table: a label and its value."""

    label: Text
    value: Value


Part: TypeAlias = Text | Finding | Table[Any] | Figure | Bullets


@dataclass(frozen=True)
class Section:
    """One part of a report.

    Attributes:
        key: its id, and its place in metrics.json.
        parts: sentences, findings, figures and tables in the order in which they are read.
        numbers: for metrics.json, in base units.
        facts: for readers who do not know GPUs: what, and how fast.
    """

    key: str
    heading: Text
    parts: tuple[Part, ...] = ()
    children: tuple[Section, ...] = ()
    numbers: Mapping[str, Json] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()

    def all_parts(self) -> Iterator[Part]:
        """Yield its parts, then those of its children."""
        yield from self.parts
        for child in self.children:
            yield from child.all_parts()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, those of children included."""
        return tuple(part for part in self.all_parts() if isinstance(part, Finding))

    @property
    def tables(self) -> tuple[Table[Any], ...]:
        """All tables, those of children included."""
        return tuple(part for part in self.all_parts() if isinstance(part, Table))

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures, those of children included."""
        return tuple(part for part in self.all_parts() if isinstance(part, Figure))
