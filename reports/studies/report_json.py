"""Writes the report of a benchmark run as data for metrics.json, and describes that."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from nsight_prof.reports.page import Text, Value
from nsight_prof.reports.page.json import TEXT, TEXTS, array_of, object_of, section_json, value_json
from nsight_prof.reports.page.section import Json
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.studies.models import BenchReport

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
