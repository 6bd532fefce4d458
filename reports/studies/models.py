"""The report of a benchmark run: its sections, how far to trust them, and it all as data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nsight_prof.reports.page import Fact, Finding, Section, Text, Value
from nsight_prof.reports.page.json import TEXT, TEXTS, array_of, object_of, section_json, value_json
from nsight_prof.reports.page.section import Json
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.view_models import Fact as FileFact
from nsight_prof.reports.profile.view_models import GlossaryEntry, RunReport

ANSWERS = 6
"""Findings whose verdicts make the answer at the top; all stand in their sections."""
ACTIONS = 4
"""Things to do that stand at the top."""
RESERVATIONS = 5
"""Caveats of a summary."""


@dataclass(frozen=True)
class NotRun:
    """Cases that have no time for one reason; `names` are some of them."""

    status: str
    reason: str
    cases: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class BenchReport(RunReport):
    """The whole report of a benchmark run.

    `gpu` is its name. `subject` is what was measured, and on what: one line. `overview` is one line
    of numbers. `caveats` are what a reader must know
    before using a number. `trust` is the section about conditions, roofs, method and what is
    missing. `roofs` are all roofs of the run, of every source. `data` are (what, markdown link) of
    files with numbers.
    """

    gpu: str
    subject: Text
    overview: tuple[Fact, ...]
    trust: Section
    not_run: tuple[NotRun, ...]
    data: tuple[FileFact, ...]

    @property
    def leading(self) -> list[Finding]:
        """The first findings: of every section in turn, until there are enough.

        Those that say how sure the others are stand among the caveats.
        """
        return leading(self.sections, ANSWERS, [caveat.text for caveat in self.caveats])

    @property
    def answer(self) -> tuple[Text, ...]:
        """Verdicts of the first findings."""
        return tuple(finding.verdict for finding in self.leading)

    @property
    def to_do(self) -> tuple[Text, ...]:
        """What to do about these findings."""
        return actions(self.leading)

    @property
    def answer_anchors(self) -> tuple[str, ...]:
        """The id of the section that each sentence of the answer rests on."""
        keys = {id(finding): s.key for s in self.sections for finding in s.findings}
        return tuple(f"section-{keys[id(finding)]}" for finding in self.leading)


@dataclass(frozen=True)
class BenchSummary:
    """What was measured (`rows`), what was `learned`, what `to_do`, and what to read with care.

    `subject` is what was measured, and on what; `others` are the names and files of the same
    summary in other languages. `predicted`: its numbers were, and none was measured.
    """

    title: str
    question: str | Text
    subject: Text | str
    machine: str
    answer: tuple[Text, ...]
    rows: tuple[Fact, ...]
    to_do: tuple[Text, ...]
    learned: tuple[Text, ...]
    reservations: tuple[Text | str, ...]
    terms: tuple[GlossaryEntry, ...] = ()
    others: tuple[tuple[str, str], ...] = ()
    predicted: bool = False

    @property
    def words(self) -> str:
        """What it says, in English: its `terms` are those of these words."""
        cells = (value for fact in self.rows for value in (fact.label, fact.value))
        texts = (*self.answer, *self.learned, *self.to_do, *self.reservations)
        return " ".join(map(Writer().value, (self.question, self.subject, *texts, *cells)))


def actions(findings: Iterable[Finding]) -> tuple[Text, ...]:
    """Return what to do about findings, at most `ACTIONS`, each once."""
    found = (finding.action for finding in findings if finding.action is not None)
    return tuple(dict.fromkeys(found))[:ACTIONS]


def leading(
    studies: Sequence[Section], limit: int, without: Sequence[Text | str] = ()
) -> list[Finding]:
    """Return at most `limit` findings, the first of each section before the second of any.

    Technical findings of a section come after its others; those with a verdict of `without` are
    left out.
    """
    room = max(limit, len(studies))
    ranked = [
        sorted(
            (finding for finding in section.findings if finding.verdict not in without),
            key=lambda finding: finding.technical,
        )
        for section in studies
    ]
    chosen: dict[int, list[Finding]] = defaultdict(list)
    for turn in range(max(map(len, ranked), default=0)):
        for index, findings in enumerate(ranked):
            if turn < len(findings) and sum(map(len, chosen.values())) < room:
                chosen[index].append(findings[turn])
    return [finding for index in sorted(chosen) for finding in chosen[index]]


_WRITE = Writer()
_HEAD = ("title", "question", "run_id", "created", "replayed_from", "gpu")


def report_json(report: BenchReport) -> dict[str, Json]:
    """Return a report as data; figures are left out: their numbers are those of the cases."""
    return {
        **{key: getattr(report, key) for key in _HEAD},
        "answer": [_WRITE.text(sentence) for sentence in report.answer],
        "answer_anchors": list(report.answer_anchors),
        "overview": [
            {"label": _WRITE.text(fact.label), "value": value_json(fact.value)}
            for fact in report.overview
        ],
        "caveats": [
            {"text": _text(caveat.text), "plain": _text(caveat.lay_text or "")}
            for caveat in report.caveats
        ],
        "sections": [section_json(section) for section in report.sections],
        "trust": section_json(report.trust),
        "not_run": [asdict(row) for row in report.not_run],
        "roofs": [asdict(roof) for roof in report.roofs],
        "roof_comparison": [asdict(row) for row in report.roof_comparison],
        "method": asdict(report.method),
        "data": [asdict(file) for file in report.data],
        "glossary": [asdict(entry) for entry in report.glossary],
    }


def _text(value: Value) -> str:
    return _WRITE.text(value) if isinstance(value, Text) else str(value)


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of what `report_json` returns."""
    caveat = {"type": "object", "properties": {"text": TEXT, "plain": TEXT},
              "required": ["text", "plain"]}  # fmt: skip
    properties = {
        **dict.fromkeys(_HEAD, TEXT),
        "answer": TEXTS,
        "answer_anchors": TEXTS,
        "overview": array_of("LabelledValue"),
        "caveats": {"type": "array", "items": caveat},
        "sections": array_of("Section"),
        "trust": {"$ref": "#/$defs/Section"},
        "not_run": array_of("NotRun"),
        "roofs": array_of("Roof"),
        "roof_comparison": array_of("RoofComparison"),
        "method": {"$ref": "#/$defs/Method"},
        "data": array_of("Fact"),
        "glossary": array_of("GlossaryEntry"),
    }
    return object_of(" ".join((BenchReport.__doc__ or "").split()), properties)
