"""The report of a benchmark run: its sections, and how far to trust them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nsight_prof.reports.analysis.models import RoofComparison
from nsight_prof.reports.page import Fact, Finding, Section, Text
from nsight_prof.reports.page.charts import Roof
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.view_models import Caveat, GlossaryEntry, Method
from nsight_prof.reports.profile.view_models import Fact as FileFact

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
class BenchReport:
    """The whole report of a benchmark run.

    `gpu` is its name. `subject` is what was measured, and on what: one line. `overview` is one line
    of numbers. `caveats` are what a reader must know
    before using a number. `trust` is the section about conditions, roofs, method and what is
    missing. `roofs` are all roofs of the run, of every source. `data` are (what, markdown link) of
    files with numbers.
    """

    title: str
    question: str
    run_id: str
    created: str
    replayed_from: str
    gpu: str
    subject: Text
    overview: tuple[Fact, ...]
    caveats: tuple[Caveat, ...]
    sections: tuple[Section, ...]
    trust: Section
    not_run: tuple[NotRun, ...]
    roofs: tuple[Roof, ...]
    roof_comparison: tuple[RoofComparison, ...]
    method: Method
    data: tuple[FileFact, ...]
    glossary: tuple[GlossaryEntry, ...]

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
    summary in other languages.
    """

    title: str
    question: str
    subject: Text
    machine: str
    answer: tuple[Text, ...]
    rows: tuple[Fact, ...]
    to_do: tuple[Text, ...]
    learned: tuple[Text, ...]
    reservations: tuple[Text | str, ...]
    terms: tuple[GlossaryEntry, ...] = ()
    others: tuple[tuple[str, str], ...] = ()

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
