"""Turns the points of a serving run into results.json: all that was measured, in base units.

`reports/results.schema.json` is what `schema` returns, kept as a file for readers of the format:
``python -m nsight_prof.reports.render.results_json`` prints it again after a change of
table serving_points.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.tables import Column
from nsight_prof.reports.page import Section
from nsight_prof.reports.page.json import (
    JSON_TYPES,
    TEXT,
    TEXTS,
    array_of,
    json_text,
    meaning,
    object_of,
)
from nsight_prof.reports.page.writer import Writer

SCHEMA_VERSION = 1
"""Raised when a reader of an older file would misread a newer one; new keys do not raise it."""
POINTS, ENGINES = "serving_points", "engines"
AS_JSON = ("model_config", "capture_sizes", "args")


def render_results(run: Run, sections: Iterable[Section]) -> str:
    """Return results.json of a run that has serving points.

    Points and engines have all columns of their tables, null where unknown. `answers` are the
    findings of all sections, `analysis` their numbers by the key of the section.
    """
    sections = list(sections)
    data = {
        "schema_version": SCHEMA_VERSION,
        "kind": "serving",
        "run_id": run.manifest.run_id,
        "created": run.manifest.created,
        "question": str(run.manifest.recipe.get("question", "")),
        "answers": [Writer().text(f.verdict) for section in sections for f in section.findings],
        "engines": _rows(run.engines, ENGINES),
        "points": _rows(run.serving_points, POINTS),
        "analysis": {section.key: section.numbers for section in sections if section.numbers},
    }
    return json_text(data)


def _rows(frame: pd.DataFrame, table: str) -> list[dict[str, Any]]:
    columns = tables.tables()[table]
    return [{c.name: _value(row[c.name], c) for c in columns} for row in records(frame)]


def _value(cell: Any, column: Column) -> Any:
    if column.name in AS_JSON:
        return json.loads(text(cell) or "null")
    if pd.isna(cell):
        return None
    if column.dtype == "string":
        return str(cell)
    if column.dtype == "bool":
        return bool(cell)
    return int(cell) if column.dtype == "int" else float(cell)


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of results.json."""
    properties = {
        "schema_version": {"const": SCHEMA_VERSION},
        "kind": {"const": "serving"},
        "run_id": TEXT,
        "created": TEXT | {"description": "When it was measured, UTC, ISO 8601."},
        "question": TEXT,
        "answers": TEXTS | {"description": "Findings, as sentences."},
        "engines": array_of("Engine"),
        "points": array_of("Point"),
        "analysis": {"type": "object", "description": "Numbers of each section, by its key."},
    }
    description = (
        "What a serving run measured. Times are in s, sizes in B, clocks in Hz; shares are "
        "fractions, columns with _pct are per cent; null is unknown."
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"prof results.json, version {SCHEMA_VERSION}",
        **object_of(description, properties),
        "$defs": {
            "Engine": _described(ENGINES, "One engine that was started: a row of table engines."),
            "Point": _described(POINTS, "One point: a row of table serving_points."),
        },
    }


def _described(table: str, description: str) -> dict[str, Any]:
    return object_of(description, {c.name: _property(c) for c in tables.tables()[table]})


def _property(column: Column) -> dict[str, Any]:
    described = meaning(column)
    if column.name in AS_JSON:
        described = described.removeprefix("JSON: ").removeprefix("JSON list: ")
        return {"type": ["array", "object", "null"], "description": described}
    return {"type": [JSON_TYPES[column.dtype], "null"], "description": described}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1))
