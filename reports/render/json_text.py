"""JSON of reports: what JSON cannot say is null."""

from __future__ import annotations

import json
import math
from typing import Any

from nsight_prof.parsers.tables import Column

JSON_TYPES = {"string": "string", "float": "number", "int": "integer", "bool": "boolean"}
"""Types of columns as JSON Schema calls them."""


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
