"""Makes the view models of findings: kernels by number, evidence with the places it stands in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.cells import known
from nsight_prof.reports.evidence import Evidence, Finding
from nsight_prof.reports.finding_models import EvidenceRow, FindingRow
from nsight_prof.reports.findings import OVERVIEW
from nsight_prof.reports.places import Places


def finding_rows(found: Sequence[Finding], places: Places) -> tuple[FindingRow, ...]:
    """Return findings in their order; those that are something to do are numbered from 1."""
    ranks = count(1)
    return tuple(
        finding_row(None if one.key in OVERVIEW else next(ranks), one, places) for one in found
    )


def finding_row(rank: int | None, finding: Finding, places: Places) -> FindingRow:
    """Return a finding with the numbers that its kernels have in the table."""
    numbers = places.kernels
    return FindingRow(
        rank=rank,
        key=finding.key,
        title=finding.title,
        sentence=finding.sentence,
        action=finding.action,
        advice=finding.advice,
        bound_label=LABELS.get(finding.bound, ""),
        kernels=tuple(numbers[key] for key in finding.kernel_ids if key in numbers),
        share=known(finding.share),
        gain_kernel=known(finding.gain_kernel),
        gain_program=known(finding.gain_program),
        gain_ns=known(finding.gain_ns),
        gain_of=finding.gain_of,
        confidence=finding.confidence,
        evidence=tuple(_evidence(seen, finding, places) for seen in finding.evidence),
        cause=finding.cause,
        stage=finding.stage,
        disprove=finding.disprove,
        tables=places.of_finding(finding),
    )


def _evidence(seen: Evidence, finding: Finding, places: Places) -> EvidenceRow:
    where = tuple(p for name in seen.where for p in places.of_number(name, seen, finding))
    return EvidenceRow(
        metric=seen.metric,
        value=known(seen.value),
        unit=seen.unit,
        threshold=seen.threshold,
        source=seen.source,
        where=where,
        anchor=places.of_value(seen, where),
    )
