"""Shortens the report of a benchmark run to half a page for a reader who does not know GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nsight_prof.reports.bench.view import BenchView, leading
from nsight_prof.reports.language import ENGLISH, words_of
from nsight_prof.reports.method_view import summary_terms
from nsight_prof.reports.view_models import Fact, GlossaryEntry

ROWS, LEARNED, RESERVATIONS = 8, 6, 3


@dataclass(frozen=True)
class BenchSummary:
    """What the GPU can do (`rows`), what was `learned`, and what to read with care.

    `language`, `words` and `others` are as in SummaryView.
    """

    title: str
    question: str
    machine: str
    answer: str
    rows: tuple[Fact, ...]
    learned: tuple[str, ...]
    reservations: tuple[str, ...]
    terms: tuple[GlossaryEntry, ...]
    language: str
    words: Mapping[str, str]
    others: tuple[Fact, ...] = ()


def bench_summary(view: BenchView, language: str = ENGLISH) -> BenchSummary:
    """Return the summary of a report in a language, made of the plain sentences of findings."""
    words = words_of(language)
    told = [replace(s, findings=tuple(f for f in s.findings if f.plain)) for s in view.sections]
    plain = _distinct([finding.plain for finding in leading(tuple(told), 2 + LEARNED)])
    rows = [Fact(*row) for section in view.sections for row in section.plain]
    first = plain[:2] or list(view.answer[:1])
    learned = plain[2 : LEARNED + 2] if plain else view.answer[1 : LEARNED + 1]
    doubts = [doubt.plain for doubt in view.doubts if doubt.plain][:RESERVATIONS]
    english = words_of(ENGLISH)
    labels = (f"{english.of(row.label)} {row.value}" for row in rows[:ROWS])
    said = (english.of(sentence) for sentence in (*first, *learned, *doubts))
    terms = summary_terms(" ".join([view.question, *said, *labels]))
    facts = (*view.conditions, *view.environment)
    answer = words.page["between"].join(words.of(sentence) for sentence in first)
    return BenchSummary(
        title=view.title,
        question=words.quoted(view.question),
        machine=next((fact.value for fact in facts if fact.label == "GPU"), ""),
        answer=answer or words.say("nothing"),
        rows=tuple(words.fact(row) for row in rows[:ROWS]),
        learned=tuple(words.of(sentence) for sentence in learned),
        reservations=tuple(words.of(doubt) for doubt in doubts),
        terms=words.terms(terms),
        language=language,
        words=words.page,
    )


def _distinct(sentences: list[str]) -> list[str]:
    """Return the sentences without those that say the same with other numbers."""
    told: dict[str, str] = {}
    for sentence in sentences:
        told.setdefault(re.sub(r"[\d.,]+", "#", sentence), sentence)
    return list(told.values())
