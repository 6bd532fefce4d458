"""Tables of findings: the list of them, their evidence, rules that abstain, and those of ncu."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.ncu.models import RuleRow, RuleSummary
from nsight_prof.reports.page import (
    Column,
    Evidence,
    Link,
    Name,
    Number,
    Series,
    Strong,
    Table,
    Text,
    Value,
    Word,
)
from nsight_prof.reports.page.values import Quoted
from nsight_prof.reports.page.writer import IN_TEXT
from nsight_prof.reports.profile.links import Links, Place
from nsight_prof.reports.profile.tables.time import (
    NO_TITLE,
    kernel_links,
    of_gpus,
    share,
    share_or_none,
    time,
)
from nsight_prof.reports.profile.view_models import ReportView, RuleAbstention

FIRST = 5
"""Kernels that a cell names."""


def findings(
    view: ReportView, rows: Sequence[Finding], links: Links | None = None
) -> Table[Finding]:
    """Return findings by what they could save; with `links` as further ones, with their kernels."""

    def gain(finding: Finding) -> Value | None:
        if math.isnan(finding.gain_program):
            return None
        saved: Value = time(finding.gain_ns or max(finding.gain_ns, finding.most_ns))
        if links is not None and finding.gain_of == "GPU time":
            saved = of_gpus(view, Text("{time}", time=saved))
        fraction = share(finding.gain_program)
        of_time = Text("{part} of {whole}", part=fraction, whole=Word(finding.gain_of))
        words = Text("{time} ({part})", time=saved, part=of_time) if finding.gain_ns else saved
        if not math.isnan(finding.shared_ns):
            words = Text("{saves} together with others", saves=words)
        return Text("at most {saves}", saves=words) if finding.is_bound else words

    columns: list[Column[Finding]] = [
        Column(Text(""), lambda f: str(f.rank), sort=lambda f: f.rank, right=True),
        Column(
            Text("Finding") if links is None else Text("Further findings"),
            lambda f: Link(f.title, f.anchor),
            digits=IN_TEXT,
        ),
    ]
    if links is not None:
        columns.append(Column(Text("Kernels"), lambda f: kernel_links(links.numbers_of(f), FIRST)))
    columns += [
        Column(Text("Share of GPU time"), lambda f: share(f.share)),
        Column(Text("Could save"), gain, sort=lambda f: f.gain_ns, right=True),
        Column(Text("Confidence"), lambda f: Word(f.confidence)),
    ]
    return Table("findings", NO_TITLE, columns, rows)


def evidence(finding: Finding, links: Links) -> Table[tuple[int, Evidence]]:
    """Return the evidence of a finding, and where each number is found."""

    def value(row: tuple[int, Evidence]) -> Value:
        anchor = links.cell(row[1])
        return Link(row[1].value, anchor) if anchor else row[1].value

    def source(row: tuple[int, Evidence]) -> Text | None:
        return None if row[1].source is None else _led(row[1].source, links)

    columns: list[Column[tuple[int, Evidence]]] = [
        Column(Text("Evidence"), lambda row: row[1].label, digits=IN_TEXT),
        Column(Text("Value"), value, right=True),
        Column(Text("Found in"), lambda row: _found_in(row[1], links), digits=IN_TEXT),
        Column(Text("Compared with"), lambda row: row[1].threshold, digits=IN_TEXT),
        Column(
            Text("By"), lambda row: row[1].source and _led(row[1].source, links), digits=IN_TEXT
        ),
    ]
    rows = list(enumerate(links.evidence(finding), 1))
    return Table("evidence", NO_TITLE, columns, rows,
                 ids=lambda row: links.wanted_id(f"{finding.anchor}-{row[0]}"))  # fmt: skip


def _found_in(row: Evidence, links: Links) -> Value:
    """Return the columns that a number is read from, and how it is worked out of them."""
    columns = Series([_column(read) for read in links.places(row)])
    formula = row.value.formula if isinstance(row.value, Number) else None
    if formula is None or formula == row.source:
        return columns
    return Text("{columns}: {formula}", columns=columns, formula=_led(formula, links))


def _led(text: Text, links: Links) -> Text:
    """Return a text whose numbers lead to their rows."""

    def led(value: Value) -> Value:
        if isinstance(value, Text):
            return value.with_values(led)
        anchor = links.rows.find(value) if isinstance(value, Number) else ""
        return Link(value, anchor) if anchor else value

    return text.with_values(led)


def _column(read: Place) -> Value:
    """Return the name of a column, which leads to its row where the page shows it."""
    label: Value = Name(read.name)
    if read.kernel is not None:
        label = Text("{column} of {number}", column=label, number=str(read.kernel))
    return Link(label, read.anchor) if read.anchor else label


def abstained(view: ReportView) -> Table[RuleAbstention]:
    """Return the rules that abstain, and what they lack."""

    def about(row: RuleAbstention) -> Value:
        n = len(row.kernels)
        return Text("{n} kernels", n=n) if n > FIRST else kernel_links(row.kernels)

    columns: list[Column[RuleAbstention]] = [
        Column(Text("Rules"), lambda row: Series(row.rules), right=False),
        Column(Text("Kernels"), about, right=False),
        Column(Text("What is missing"), lambda row: row.reason),
    ]
    return Table("abstained", NO_TITLE, columns, view.rules_abstained)


def ncu_rules(view: ReportView) -> Table[RuleSummary]:
    """Return what ncu's rules say of each matter, by how prof stands to it."""
    columns: list[Column[RuleSummary]] = [
        Column(Text("Matter"), lambda row: Word(row.about)),
        Column(
            Text("Rules of ncu"),
            lambda row: Series(row.rules) if row.rules else Text("none fired"),
        ),
        Column(Text("prof agrees"), lambda row: kernel_links(row.agrees)),
        Column(Text("prof differs, with a reason"), lambda row: kernel_links(row.differs)),
        Column(Text("prof contradicts"), lambda row: kernel_links(row.contradicts)),
    ]
    return Table("ncu-rules", NO_TITLE, columns, view.ncu_rules.summary)


def ncu_rules_of(rows: Sequence[RuleRow]) -> Table[RuleRow]:
    """Return what ncu's rules say of one kernel, and what prof says of the same."""

    def about(row: RuleRow) -> Value:
        return (
            Text("{about} ({rules})", about=Word(row.about), rules=Series(row.rules))
            if row.rules
            else Word(row.about)
        )

    def speedup(row: RuleRow) -> Value | None:
        if row.speedup is None:
            return None
        fraction = share(row.speedup)
        return Text("{part} of one unit", part=fraction) if row.speedup_of == "local" else fraction

    def answer(row: RuleRow) -> Value:
        text = Text("{verdict}", verdict=Strong(Word(row.verdict)))
        if row.answer:
            text = Text("{verdict}: {answer}", verdict=text, answer=row.answer)
        return Text("{answer} ({reason})", answer=text, reason=row.reason) if row.reason else text

    columns: list[Column[RuleRow]] = [
        Column(Text("ncu's rules"), about),
        Column(
            Text("What they say"),
            lambda row: Quoted(row.message) if row.message else Text("nothing"),
        ),
        Column(Text("Could save: ncu"), speedup, sort=lambda row: row.speedup, right=True),
        Column(Text("prof"), lambda row: share_or_none(row.gain), right=True),
        Column(Text("prof says"), answer),
    ]
    return Table("ncu-rules-of", NO_TITLE, columns, rows)
