"""Writes sections as data for metrics.json: what JSON cannot say is null."""

from __future__ import annotations

import json
import math
from typing import Any

from nsight_prof.parsers.tables import Column
from nsight_prof.reports.page.section import Finding, Json, Section, Table
from nsight_prof.reports.page.values import Interval, Number, Text, Value, Verbatim
from nsight_prof.reports.page.writer import Writer

JSON_TYPES = {"string": "string", "float": "number", "int": "integer", "bool": "boolean"}
"""Types of columns as JSON Schema calls them."""
_WRITE = Writer()
TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
_VALUE = {
    "description": "A text; or a number in its base unit, null where unknown, then with a reason.",
    "anyOf": [
        {"type": ["string", "null", "integer", "number"]},
        {
            "type": "object",
            "properties": {
                "value": {"type": ["number", "null"]},
                "unit": TEXT,
                "low": {"type": ["number", "null"]},
                "high": {"type": ["number", "null"]},
                "missing": TEXT,
            },
            "required": ["unit"],
        },
    ],
}


def json_text(data: Any) -> str:
    """Return data as indented JSON with a line end, numbers by `finite`."""
    return json.dumps(finite(data), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def meaning(column: Column) -> str:
    """Return what a column means, with its unit."""
    return f"{column.meaning} ({column.unit})" if column.unit else column.meaning


def finite(value: Any) -> Any:
    """Replace what JSON cannot say: NaN and infinities become null, NumPy numbers plain ones."""
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    return float(value) if math.isfinite(value) else None


def section_json(section: Section) -> dict[str, Json]:
    """Return a section as data; figures are left out: their numbers are those of its tables."""
    return {
        "key": section.key,
        "heading": _WRITE.text(section.heading),
        "texts": [_WRITE.text(block) for block in section.blocks if isinstance(block, Text)],
        "findings": [_finding(block) for block in section.blocks if isinstance(block, Finding)],
        "tables": [_table(block) for block in section.blocks if isinstance(block, Table)],
        "numbers": dict(section.numbers),
        "facts": [
            {"label": _WRITE.text(f.label), "value": value_json(f.value)} for f in section.facts
        ],
        "children": [section_json(child) for child in section.children],
    }


def _finding(finding: Finding) -> dict[str, Json]:
    return {
        "rule": finding.rule,
        "verdict": _WRITE.text(finding.verdict),
        "values": {name: value_json(value) for name, value in finding.verdict.values.items()},
        "evidence": [
            {"label": _WRITE.text(item), "value": None} if isinstance(item, Text)
            else {"label": _WRITE.text(item.label), "value": value_json(item.value)}
            for item in finding.evidence
        ],
        "action": text_json(finding.action),
        "disproof": text_json(finding.disproof),
        "gain": value_json(finding.gain),
        "confidence": finding.confidence,
        "source": [name.name for name in finding.source],
        "plain": text_json(finding.lay_verdict),
    }  # fmt: skip


def _table(table: Table[Any]) -> dict[str, Json]:
    heads = [_WRITE.text(column.heading) for column in table.columns]
    return {
        "key": table.key,
        "title": _WRITE.text(table.title),
        "columns": heads,
        "rows": [[value_json(cell) for cell in row] for row in table.cells],
        "note": text_json(table.note),
    }


def text_json(text: Text | None) -> str:
    """Return a text in English; nothing where there is none."""
    return "" if text is None else _WRITE.text(text)


def value_json(value: Value | None) -> Json:
    """Return a value as data: a number with its unit, a text in English."""
    if isinstance(value, Number):
        data: dict[str, Json] = {"value": value.value, "unit": value.unit}
        if value.low is not None or value.high is not None:
            data |= {"low": value.low, "high": value.high}
        return data if value.value is not None else data | {"missing": value.missing}
    if isinstance(value, Interval):
        return {"low": value.low, "high": value.high, "unit": value.unit}
    if value is None or isinstance(value, int):
        return value
    return value.text if isinstance(value, Verbatim) else _WRITE.value(value)


def section_schema() -> dict[str, Any]:
    """Return the JSON Schemas of what `section_json` returns, by name."""
    finding = {
        **{key: TEXT for key in ("rule", "verdict", "action", "disproof", "confidence", "plain")},
        "values": {"type": "object", "additionalProperties": _VALUE},
        "evidence": array_of("LabelledValue"),
        "gain": _VALUE,
        "source": TEXTS,
    }
    table = {
        "key": TEXT,
        "title": TEXT,
        "columns": TEXTS,
        "rows": {"type": "array", "items": {"type": "array", "items": _VALUE}},
        "note": TEXT,
    }
    section = {
        "key": TEXT,
        "heading": TEXT,
        "texts": TEXTS,
        "findings": array_of("SectionFinding"),
        "tables": array_of("SectionTable"),
        "numbers": {"type": "object"},
        "facts": array_of("LabelledValue"),
        "children": array_of("Section"),
    }
    return {
        "LabelledValue": object_of("A value and what it is.", {"label": TEXT, "value": _VALUE}),
        "SectionFinding": object_of("A finding: its verdict, and what that rests on.", finding),
        "SectionTable": object_of("A table; cells that are numbers keep their base unit.", table),
        "Section": object_of("A part of a report; `numbers` are in base units.", section),
    }


def array_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of an array of what is described as `name`."""
    return {"type": "array", "items": {"$ref": f"#/$defs/{name}"}}


def object_of(description: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object that has all of these keys."""
    return {
        "description": description,
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }
