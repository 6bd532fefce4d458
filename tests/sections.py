"""What tests read of a section: its findings by rule, and tables as rows of values by heading."""

from typing import Any

from nsight_prof.reports.page import Finding, Number, Section, Table, Text, Value
from nsight_prof.reports.page.writer import Writer


def words(value: Value | None) -> str:
    """Return a value in English."""
    return Writer().value(value)


def told(section: Section) -> str:
    """Return all sentences of a section's parts that are texts, findings and their evidence."""
    texts = [words(part) for part in section.blocks if isinstance(part, Text)]
    for finding in section.findings:
        texts += [words(finding.verdict), evidence(finding)]
        texts += [
            words(text) for text in (finding.action, finding.disproof, finding.lay_verdict) if text
        ]
    return "\n".join(texts)


def evidence(finding: Finding) -> str:
    """Return the evidence of a finding in one line."""
    lines = (
        words(item) if isinstance(item, Text) else f"{words(item.label)} {words(item.value)}"
        for item in finding.evidence
    )
    return "; ".join(lines)


def finding(section: Section, rule: str) -> Finding:
    """Return the first finding of a rule."""
    return next(found for found in section.findings if found.rule == rule)


def table(section: Section, key: str) -> Table[Any]:
    """Return a table by its key."""
    return next(found for found in section.tables if found.key == key)


def rows(table: Table[Any]) -> list[dict[str, Any]]:
    """Return the cells of each row by heading: numbers as floats, all else in English."""
    heads = [words(column.heading) for column in table.columns]
    return [dict(zip(heads, map(_plain, cells), strict=True)) for cells in table.cells]


def _plain(cell: Value | None) -> Any:
    if isinstance(cell, Number):
        return cell.value
    return cell if cell is None or isinstance(cell, int) else words(cell)
