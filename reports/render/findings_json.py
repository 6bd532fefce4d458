"""Writes findings of a profile report as data for metrics.json, and describes that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.cells import known
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Evidence, Number
from nsight_prof.reports.page.json import TEXT, array_of, object_of, text_json
from nsight_prof.reports.page.section import Json
from nsight_prof.reports.profile.links import Links


def findings_json(findings: Sequence[Finding], links: Links) -> list[dict[str, Json]]:
    """Return findings in their order, with the numbers that kernels have on the page."""
    return [_finding(finding, links) for finding in findings]


def _finding(finding: Finding, links: Links) -> dict[str, Json]:
    return {
        "rank": finding.rank,
        "key": finding.key,
        "title": text_json(finding.title),
        "sentence": text_json(finding.verdict),
        "action": text_json(finding.action),
        "advice": text_json(finding.advice),
        "bound_label": LABELS.get(finding.bound, ""),
        "kernels": list(links.numbers_of(finding)),
        "share": known(finding.share),
        "gain_kernel": known(finding.gain_kernel),
        "gain_program": known(finding.gain_program),
        "gain_ns": known(finding.gain_ns),
        "gain_low_ns": known(finding.low_ns),
        "gain_high_ns": known(finding.high_ns),
        "gain_of": finding.gain_of,
        "confidence": finding.confidence,
        "choice": finding.choice,
        "evidence": [_evidence(row, links) for row in finding.evidence],
        "cause": finding.rule,
        "stage": finding.stage,
        "disprove": text_json(finding.disproof),
        "tables": [
            {"name": text_json(title), "anchor": anchor, "kernel": None}
            for title, anchor in links.tables(finding)
        ],
    }


def _evidence(row: Evidence, links: Links) -> dict[str, Json]:
    number = row.value if isinstance(row.value, Number) else Number(None)
    return {
        "metric": text_json(row.label),
        "value": number.value,
        "unit": number.unit,
        "threshold": text_json(row.threshold),
        "source": text_json(row.source),
        "where": [asdict(row_place) for row_place in links.places(row)],
        "anchor": links.cell(row),
    }


def findings_schema() -> dict[str, Any]:
    """Return the JSON Schemas of what `findings_json` returns, by name."""
    number = {"type": ["number", "null"]}
    places = array_of("Place")
    finding = {
        "rank": {"type": ["integer", "null"]},
        **{key: TEXT for key in ("key", "title", "sentence", "action", "advice", "bound_label")},
        "kernels": {"type": "array", "items": {"type": "integer"}},
        **{key: number for key in ("share", "gain_kernel", "gain_program", "gain_ns")},
        **{key: number for key in ("gain_low_ns", "gain_high_ns")},
        **{key: TEXT for key in ("gain_of", "confidence")},
        "choice": {"type": "boolean"},
        "evidence": array_of("EvidenceRow"),
        **{key: TEXT for key in ("cause", "stage", "disprove")},
        "tables": places,
    }
    evidence = {
        **{"metric": TEXT, "value": number},
        **{key: TEXT for key in ("unit", "threshold", "source")},
        **{"where": places, "anchor": TEXT},
    }
    row_place = {"name": TEXT, "anchor": TEXT, "kernel": {"type": ["integer", "null"]}}
    return {
        "FindingRow": object_of(FINDING, finding),
        "EvidenceRow": object_of(EVIDENCE, evidence),
        "Place": object_of(PLACE, row_place),
    }


FINDING = (
    "One finding, ranked by what it could gain for the whole program. `key` is its kind, `cause` "
    "the rule behind it (docs/rules.md of prof), `kernels` are numbers of the kernel table, "
    "`stage` is empty for the whole program. `rank` is null where it tells how the time divides "
    "and is not something to do. `gain_program` is the fraction of the GPU time (of the wall "
    "time, where `gain_of` says so) that would be saved, `gain_ns` the same as time; four of five "
    "measured fixes of such findings saved `gain_low_ns` to `gain_high_ns`. `choice` "
    "tells that it is no defect but a choice of the owner of the program. `disprove` is what one "
    "would see if it were wrong; `tables` are those of the page that its sentence sums up."
)
EVIDENCE = (
    "One number behind a finding; `threshold` and `source` are empty where there is none. `where` "
    "names the columns that it is read or worked out from, `anchor` is the id of the row of the "
    "page that holds the number itself, empty where none does."
)
PLACE = (
    "A column: of the counters (`dram_pct`), or `table.column` of a table of the run, and the id "
    "of its row or table on the page, empty where that does not show it. `kernel` is the number of "
    "the kernel where a number is of several."
)
