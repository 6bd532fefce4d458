"""Turns a report into metrics.json, everything in it machine-readable, and describes that format.

`reports/metrics.schema.json` is what `schema` returns, kept as a file for readers of the format:
``python -m nsight_prof.reports.render.metrics_json`` prints it again after a change of
the view models.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import Row, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.models import MissingValue
from nsight_prof.reports.page import OpenQuestion, Section, Text
from nsight_prof.reports.page.json import (
    JSON_TYPES,
    TEXTS,
    array_of,
    json_text,
    meaning,
    object_of,
    section_json,
    section_schema,
)
from nsight_prof.reports.page.writer import Writer

if typing.TYPE_CHECKING:
    from nsight_prof.reports.predict.view import PredictionView
    from nsight_prof.reports.profile.links import Links
    from nsight_prof.reports.profile.view_models import ReportView
    from nsight_prof.reports.studies.models import BenchReport

SCHEMA_VERSION = 2
"""Raised when a reader of an older file would misread a newer one; new keys do not raise it."""
_PLAIN: dict[Any, str] = {
    str: "string",
    float: "number",
    int: "integer",
    bool: "boolean",
    types.NoneType: "null",
}
_PLAIN |= {Text: "string", OpenQuestion: "string", MissingValue: "string"}
_PREDICTED = {
    "points": ("predicted_points", "One predicted serving point"),
    "steps": ("predicted_steps", "One predicted step of an engine"),
    "operators": ("predicted_operators", "One operator of a predicted step"),
    "networks": ("predicted_networks", "One predicted pass of a network"),
    "changes": ("predicted_changes", "One predicted point with another choice"),
    "needs": ("predicted_needs", "What one measurement would tell of one quantity"),
    "errors": ("prediction_errors", "How far one prediction lay from what was measured"),
}
"""Key of a prediction -> its table, and what a row of it is."""


@dataclasses.dataclass(frozen=True)
class GapEntry:
    """A value that is null, or a table that is empty, and why; no kernel_id: the whole column."""

    table: str
    kernel_id: str
    column: str
    reason: str


def render_metrics(view: ReportView, links: Links, gaps: pd.DataFrame) -> str:
    """Return metrics.json of a report; unknown numbers are null, with their reasons in `gaps`."""
    from nsight_prof.reports.render.findings_json import findings_json

    found = {"findings": findings_json(view.findings, links)}
    data = _data(dataclasses.replace(view, findings=(), sections=()))
    sections = [section_json(section) for section in view.sections]
    return _dump("report", data, {**found, "gaps": _entries(gaps), "sections": sections})


def render_bench_metrics(report: BenchReport, bench: pd.DataFrame, gaps: pd.DataFrame) -> str:
    """Return metrics.json of a benchmark run: its sections, and every case under `bench`.

    A case has the columns of table `bench` that are known for it. Figures are left out: their
    numbers are those of the cases.
    """
    from nsight_prof.reports.studies.models import report_json

    cases = [_known(r) | {"params": json.loads(text(r["params"]) or "{}")} for r in records(bench)]
    return _dump("bench", report_json(report), {"bench": cases, "gap_entries": _entries(gaps)})


def _known(row: Row) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not pd.isna(value) and value != ""}


def render_prediction_metrics(view: PredictionView, run: Run) -> str:
    """Return metrics.json of a prediction: its sections, and the rows of its tables.

    A row has the columns that are known. Figures are left out: their numbers are those of the rows.
    """
    write = Writer()
    data = _data(dataclasses.replace(view, sections=(), facts=()))
    data["facts"] = [
        {"label": write.text(fact.label), "value": write.value(fact.value)} for fact in view.facts
    ]
    found = {
        key: [_known(row) for row in records(getattr(run, table))]
        for key, (table, _) in _PREDICTED.items()
    }
    sections = [section_json(section) for section in view.sections]
    return _dump("prediction", data, {"sections": sections, **found})


def _entries(gaps: pd.DataFrame) -> list[dict[str, Any]]:
    entries = [GapEntry(*(text(row[f.name]) for f in _fields(GapEntry))) for row in records(gaps)]
    return [dataclasses.asdict(entry) for entry in entries]


def render_section_metrics(kind: str, view: Any, section: Section) -> str:
    """Return metrics.json of a "sweep", or of the "ranks" of a job, whose page is the section."""
    answer = [Writer().text(finding.verdict) for finding in section.findings]
    return _dump(kind, _data(view), {"answer": answer, "sections": [section_json(section)]})


def _dump(kind: str, view: dict[str, Any], extra: dict[str, Any]) -> str:
    return json_text({"schema_version": SCHEMA_VERSION, "kind": kind} | view | extra)


def _data(view: Any) -> dict[str, Any]:
    """Return the fields of a view; sentences in English."""
    return {_key(f): _as_json(getattr(view, f.name)) for f in _fields(view)}


def _as_json(value: Any) -> Any:
    if isinstance(value, OpenQuestion):
        return _as_json(value.text)
    if isinstance(value, MissingValue):
        return f"{value.column}: {value.reason}"
    if isinstance(value, Text):
        return Writer().text(value)
    if dataclasses.is_dataclass(value):
        return _data(value)
    if isinstance(value, (list, tuple)):
        return [_as_json(inner) for inner in value]
    return dict(value) if isinstance(value, Mapping) else value


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of all kinds of metrics.json."""
    from nsight_prof.reports.engine.ranks import JobView
    from nsight_prof.reports.predict.view import PredictionView
    from nsight_prof.reports.profile.view_models import ReportView
    from nsight_prof.reports.render.findings_json import findings_schema
    from nsight_prof.reports.studies.models import NotRun, report_schema
    from nsight_prof.reports.sweep.section import SweepView

    definitions: dict[str, Any] = {
        "BenchCase": _bench_case(),
        **{_row_name(table): _row_of(table, what) for table, what in _PREDICTED.values()},
        **section_schema(),
        **findings_schema(),
    }
    definitions["Finding"] = {}  # described by reports.findings.json
    for model in (ReportView, SweepView, JobView, PredictionView, GapEntry, NotRun):
        _define(model, definitions)
    del definitions["Finding"]
    definitions["BenchReport"] = report_schema()
    report = definitions["ReportView"]
    report["properties"]["findings"]["items"] = {"$ref": "#/$defs/FindingRow"}
    kinds = {"ReportView": "report", "SweepView": "sweep", "JobView": "ranks"}
    kinds |= {"BenchReport": "bench", "PredictionView": "prediction"}
    for name, kind in kinds.items():
        definition = definitions[name]
        definition["properties"] = _head(kind) | definition["properties"]
        definition["required"] = [*_head(kind), *definition["required"]]
    for name, key, value in (
        ("ReportView", "gaps", array_of("GapEntry")),
        *((name, "answer", TEXTS) for name in ("SweepView", "JobView")),
        *((name, "sections", array_of("Section")) for name in ("SweepView", "JobView")),
        ("BenchReport", "bench", array_of("BenchCase")),
        ("BenchReport", "gap_entries", array_of("GapEntry")),
        *(
            ("PredictionView", key, array_of(name))
            for key, name in ((key, _row_name(table)) for key, (table, _) in _PREDICTED.items())
        ),
    ):
        definitions[name]["properties"][key] = value
        definitions[name]["required"].append(key)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"prof metrics.json, version {SCHEMA_VERSION}",
        "description": "Numbers are in base units (ns, B, B/s, FLOP/s, FLOP/B, Hz); shares and "
        "gains are fractions, keys ending in _pct per cent; null is unknown.",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in kinds],
        "$defs": definitions,
    }


def definitions(model: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a view model and of all its models by name; some are `given`."""
    found: dict[str, Any] = dict(given)
    _define(model, found)
    return found


def _bench_case() -> dict[str, Any]:
    found = _row_of("bench", "One measured case")
    found["properties"]["params"]["type"] = "object"
    return found | {"required": ["case_id", "params", "status"]}


def _row_name(table: str) -> str:
    """Return the name of what one row of a table is: PredictedPoint of predicted_points."""
    return "".join(word.capitalize() for word in table.removesuffix("s").split("_"))


def _row_of(table: str, what: str) -> dict[str, Any]:
    """Describe a row: the columns of its table, each only where it is known."""
    return {
        "description": f"{what}: the columns of table {table} that are known for it.",
        "type": "object",
        "properties": {
            column.name: {"type": JSON_TYPES[column.dtype], "description": meaning(column)}
            for column in tables.tables()[table]
        },
    }


def _head(kind: str) -> dict[str, Any]:
    return {"schema_version": {"const": SCHEMA_VERSION}, "kind": {"const": kind}}


def _key(field: dataclasses.Field[Any]) -> str:
    """Return the key of a field; where it has been renamed, the one that it had before."""
    return str(field.metadata.get("key", field.name))


def _fields(model: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(model)


def _define(model: type, definitions: dict[str, Any]) -> None:
    definitions[model.__name__] = {}
    hints = typing.get_type_hints(model)
    properties = {_key(f): _described(hints[f.name], definitions) for f in _fields(model)}
    description = " ".join((model.__doc__ or "").split())
    definitions[model.__name__] = object_of(description, properties)


def _described(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint is Any:
        return {}
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is Mapping:
        return {"type": "object"}
    if typing.get_origin(hint) is tuple:
        items = {"type": "array", "items": _described(inner[0], definitions)}
        fixed = {} if inner[-1] is ... else {"minItems": len(inner), "maxItems": len(inner)}
        return items | fixed
    if inner:
        kinds = [_described(hint_part, definitions) for hint_part in inner]
        kinds = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
        return {"anyOf": kinds} if len(kinds) > 1 else kinds[0]
    if hint.__name__ not in definitions:
        _define(hint, definitions)
    return {"$ref": f"#/$defs/{hint.__name__}"}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1))
