"""Turns a report into metrics.json, everything in it machine-readable, and describes that format.

`reports/metrics.schema.json` is what `schema` returns, kept as a file for readers of the format:
``python -m reports.metrics_json`` prints it again after a change of the view models.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from typing import Any

import pandas as pd

from reports.cells import records, text
from reports.sweep_models import SweepView
from reports.view_models import ReportView

SCHEMA_VERSION = 1
"""Raised when a reader of an older file would misread a newer one; new keys do not raise it."""
_PLAIN = {str: "string", float: "number", int: "integer", bool: "boolean", types.NoneType: "null"}


@dataclasses.dataclass(frozen=True)
class GapEntry:
    """A value that is null, or a table that is empty, and why; no kernel_id: the whole column."""

    table: str
    kernel_id: str
    column: str
    reason: str


def render_metrics(view: ReportView, gaps: pd.DataFrame) -> str:
    """Return metrics.json of a report; unknown numbers are null, with their reasons in `gaps`."""
    entries = [GapEntry(*(text(row[f.name]) for f in _fields(GapEntry))) for row in records(gaps)]
    return _dump("report", view, {"gaps": [dataclasses.asdict(entry) for entry in entries]})


def render_sweep_metrics(view: SweepView) -> str:
    """Return metrics.json of a comparison of variants."""
    return _dump("sweep", view, {})


def _dump(kind: str, view: ReportView | SweepView, extra: dict[str, Any]) -> str:
    head = {"schema_version": SCHEMA_VERSION, "kind": kind}
    data = _finite(head | dataclasses.asdict(view) | extra)
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """Replace what JSON cannot say: NaN and infinities become null, NumPy numbers plain ones."""
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    return float(value) if math.isfinite(value) else None


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of both kinds of metrics.json."""
    definitions: dict[str, Any] = {}
    for model in (ReportView, SweepView, GapEntry):
        _define(model, definitions)
    for name, kind in (("ReportView", "report"), ("SweepView", "sweep")):
        whole = definitions[name]
        whole["properties"] = _head(kind) | whole["properties"]
        whole["required"] = [*_head(kind), *whole["required"]]
    gaps = {"type": "array", "items": {"$ref": "#/$defs/GapEntry"}}
    definitions["ReportView"]["properties"]["gaps"] = gaps
    definitions["ReportView"]["required"].append("gaps")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"prof metrics.json, version {SCHEMA_VERSION}",
        "description": "Numbers are in base units (ns, B, B/s, FLOP/s, FLOP/B, Hz); shares and "
        "gains are fractions, keys ending in _pct per cent; null is unknown.",
        "oneOf": [{"$ref": "#/$defs/ReportView"}, {"$ref": "#/$defs/SweepView"}],
        "$defs": definitions,
    }


def _head(kind: str) -> dict[str, Any]:
    return {"schema_version": {"const": SCHEMA_VERSION}, "kind": {"const": kind}}


def _fields(model: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(model)


def _define(model: type, definitions: dict[str, Any]) -> None:
    definitions[model.__name__] = {}
    hints = typing.get_type_hints(model)
    properties = {f.name: _described(hints[f.name], definitions) for f in _fields(model)}
    definitions[model.__name__] = {
        "description": " ".join((model.__doc__ or "").split()),
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def _described(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        items = {"type": "array", "items": _described(inner[0], definitions)}
        fixed = {} if inner[-1] is ... else {"minItems": len(inner), "maxItems": len(inner)}
        return items | fixed
    if inner:
        return {"anyOf": [_described(part, definitions) for part in inner]}
    if hint.__name__ not in definitions:
        _define(hint, definitions)
    return {"$ref": f"#/$defs/{hint.__name__}"}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1))
