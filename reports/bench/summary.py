"""Shortens the report of a benchmark run to half a page for a reader who does not know GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nsight_prof.reports.bench.adapter import shape, translated
from nsight_prof.reports.bench.view import BenchView, leading
from nsight_prof.reports.language import ENGLISH, words_of
from nsight_prof.reports.method_view import summary_terms
from nsight_prof.reports.page import Section, Text
from nsight_prof.reports.view_models import Fact, GlossaryEntry

ROWS, LEARNED, RESERVATIONS = 8, 6, 3


@dataclass(frozen=True)
class BenchSummary:
    """What was measured (`rows`), what was `learned`, and what to read with care.

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
    """Return the summary of a report in a language: what its findings say to everybody."""
    words, english = words_of(language), words_of(ENGLISH)
    told = _distinct(view.sections)[: 2 + LEARNED]
    if not told:
        told = [finding.verdict for finding in leading(view.sections, 1 + LEARNED)]
    first, learned = told[:2], told[2:]
    rows = [fact for section in view.sections for fact in section.facts][:ROWS]
    doubts = [doubt.plain for doubt in view.doubts if doubt.plain][:RESERVATIONS]
    labels = (f"{translated(row.label, english)} {translated(row.value, english)}" for row in rows)
    said = (*(translated(text, english) for text in told), *map(english.of, doubts))
    terms = summary_terms(" ".join([view.question, *said, *labels]))
    facts = (*view.conditions, *view.environment)
    answer = words.page["between"].join(translated(text, words) for text in first)
    return BenchSummary(
        title=view.title,
        question=words.quoted(view.question),
        machine=next((fact.value for fact in facts if fact.label == "GPU"), ""),
        answer=answer or words.say("nothing"),
        rows=tuple(Fact(translated(f.label, words), translated(f.value, words)) for f in rows),
        learned=tuple(translated(text, words) for text in learned),
        reservations=tuple(words.of(doubt) for doubt in doubts),
        terms=words.terms(terms),
        language=language,
        words=words.page,
    )


def _distinct(sections: tuple[Section, ...]) -> list[Text]:
    """Return what the leading findings say to everybody, once for each kind of sentence."""
    plain = [
        replace(section, parts=tuple(f for f in section.findings if not f.technical), children=())
        for section in sections
    ]
    told: dict[str, Text] = {}
    for finding in leading(tuple(plain), 2 + LEARNED):
        text = finding.plain or finding.verdict
        told.setdefault(shape(text), text)
    return list(told.values())
