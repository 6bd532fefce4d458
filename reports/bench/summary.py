"""Shortens the report of a benchmark run to half a page for a reader who does not know GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from reports.bench.view import BenchView, leading
from reports.method_view import glossary
from reports.view_models import Fact, GlossaryEntry

ROWS, LEARNED, RESERVATIONS = 8, 6, 3


@dataclass(frozen=True)
class BenchSummary:
    """What the GPU can do (`rows`), what was `learned`, and what to read with care."""

    title: str
    question: str
    machine: str
    answer: str
    rows: tuple[Fact, ...]
    learned: tuple[str, ...]
    reservations: tuple[str, ...]
    terms: tuple[GlossaryEntry, ...]


def bench_summary(view: BenchView) -> BenchSummary:
    """Return the summary of a report; sentences are the plain ones of its findings."""
    told = [replace(s, findings=tuple(f for f in s.findings if f.plain)) for s in view.sections]
    plain = _distinct([finding.plain for finding in leading(tuple(told), 2 + LEARNED)])
    rows = [Fact(*row) for section in view.sections for row in section.plain]
    first = " ".join(plain[:2]) if plain else next(iter(view.answer), "")
    learned = tuple(plain[2 : LEARNED + 2]) if plain else view.answer[1 : LEARNED + 1]
    words = " ".join([first, *learned, *(row.label for row in rows)])
    facts = (*view.conditions, *view.environment)
    return BenchSummary(
        title=view.title,
        question=view.question,
        machine=next((fact.value for fact in facts if fact.label == "GPU"), ""),
        answer=first or "This run holds nothing that answers the question.",
        rows=tuple(rows[:ROWS]),
        learned=learned,
        reservations=tuple(d.plain for d in view.doubts if d.plain)[:RESERVATIONS],
        terms=glossary(words),
    )


def _distinct(sentences: list[str]) -> list[str]:
    """Return the sentences without those that say the same with other numbers."""
    told: dict[str, str] = {}
    for sentence in sentences:
        told.setdefault(re.sub(r"[\d.,]+", "#", sentence), sentence)
    return list(told.values())
