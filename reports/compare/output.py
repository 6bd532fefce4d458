"""Writes a comparison as markdown, as a summary for GitHub, or as JSON.

`reports/compare/compare.schema.json` is what `schema` returns: ``python -m reports.compare.output``
prints it again after a change of the view models.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from nsight_prof.reports.compare.models import CompareView, KernelChange, PointChange
from nsight_prof.reports.compare.wording import section, threshold
from nsight_prof.reports.json_text import json_text
from nsight_prof.reports.metrics_json import definitions
from nsight_prof.reports.render import render_template

SCHEMA_VERSION = 1
SHOWN = 30
"""Rows of a table in markdown; JSON has all."""
QUIET = ("same", "equal", "unknown", "missing")
"""Verdicts of what no table of changes lists."""
MOST_CHARACTERS = 60_000
"""GitHub cuts comments at 65,536 characters."""
OUTCOMES = {
    "broken": "a limit is broken",
    "noise": "beyond a limit, but within the noise",
    "warn": "compared, with warnings",
    "kept": "within the limits",
    "none": "compared",
}


def markdown(view: CompareView) -> str:
    """Return the comparison as markdown."""
    return render_template("compare.md.j2", _content(view, SHOWN))


def github(view: CompareView) -> str:
    """Return the comparison as a comment or job summary of GitHub, short enough for either."""
    state = _state(view)
    more = {"state": state, "outcome": OUTCOMES[state]}
    shown = SHOWN
    while True:
        text = render_template("compare_github.md.j2", _content(view, shown) | more)
        if len(text) <= MOST_CHARACTERS or shown <= 1:
            return text
        shown //= 2


def changed(view: CompareView) -> list[KernelChange]:
    """Return the rows of kernels that changed beyond the noise, the largest change first.

    Rows of next to no time in the program are left out: very short kernels scatter most.
    """
    least = threshold("listed")
    return [
        row
        for row in view.kernels
        if row.total.verdict not in QUIET and abs(row.program or 0.0) >= least
    ]


def _changed_points(view: CompareView) -> list[PointChange]:
    """Return the serving points with the metrics that changed beyond the noise."""
    found = []
    for point in view.points:
        changes = tuple(c for c in point.changes if c.verdict not in QUIET)
        if changes:
            found.append(dataclasses.replace(point, changes=changes))
    return found


def as_json(view: CompareView) -> str:
    """Return the whole comparison as JSON; unknown numbers are null."""
    data = {"schema_version": SCHEMA_VERSION, "kind": "compare", "view": dataclasses.asdict(view)}
    return json_text(data)


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the output of `as_json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Output of `prof compare --format json`",
        "type": "object",
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "kind": {"const": "compare"},
            "view": {"$ref": f"#/$defs/{CompareView.__name__}"},
        },
        "required": ["schema_version", "kind", "view"],
        "$defs": definitions(CompareView),
    }


def _content(view: CompareView, shown: int) -> dict[str, Any]:
    rows = changed(view)
    cases = [case for case in view.cases if case.verdict not in QUIET]
    return {
        "view": view,
        "shown": shown,
        "differences": (*view.settings, *view.checks),
        "unlisted": {
            "kernels": len(view.kernels) - len(rows[:shown]),
            "cases": len(view.cases) - len(cases[:shown]),
        },
        "verdicts": section("verdicts"),
        "stages": len({row.stage for row in view.kernels}) > 1,
        "changed": rows,
        "points": _changed_points(view),
        "cases": cases,
    }


def _state(view: CompareView) -> str:
    states = {limit.state for limit in view.limits}
    for state in ("broken", "noise"):
        if state in states:
            return state
    if states:
        return "kept"
    return "warn" if any(check.level != "note" for check in view.checks) else "none"


FORMATS = {"md": markdown, "github": github, "json": as_json}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1))
