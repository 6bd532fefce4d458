"""Writes a comparison as markdown, HTML, a comment for GitHub, or JSON.

`compare.schema.json` is what `schema` returns: ``python -m nsight_prof.reports.compare.section``
prints it again after a change of the models.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from nsight_prof.reports.compare import threshold
from nsight_prof.reports.compare.answer import KERNELS, findings, method
from nsight_prof.reports.compare.changes import (
    QUIET,
    VERDICTS,
    Change,
    Check,
    Comparison,
    KernelChange,
    LimitResult,
    Origin,
)
from nsight_prof.reports.compare.match import Launches
from nsight_prof.reports.page import (
    Bullets,
    Column,
    Figure,
    Finding,
    Json,
    Name,
    Number,
    Ref,
    Section,
    Table,
    Text,
    Value,
)
from nsight_prof.reports.page.catalogue import ENGLISH
from nsight_prof.reports.page.charts import Bar, BarFigure
from nsight_prof.reports.page.formats import brief, escape_html
from nsight_prof.reports.page.json import TEXT, TEXTS, json_text, object_of
from nsight_prof.reports.page.markdown import MARKDOWN, section_in_two, section_markdown
from nsight_prof.reports.page.units import change as signed
from nsight_prof.reports.page.writer import InMarkdown, Markup, Writer
from nsight_prof.reports.render.metrics_json import definitions

SCHEMA_VERSION = 2
"""2: `why` of a check is `reason`, `explanation` of a kernel `reasons`; `match_label` is gone."""
SHOWN = 30
"""Rows of a table in markdown and HTML; JSON has all."""
FIRST = 10
"""Rows of the first table of the page."""
BARS = 12
MAX_CHARACTERS = 60_000
"""GitHub cuts comments at 65,536 characters."""
WIDTH = 44
MATCHES = {
    "identical": Text("same kernel"),
    "shape": Text("other shape"),
    "replaced": Text("other kernel"),
    "fused": Text("fused"),
    "split": Text("split"),
    "regrouped": Text("regrouped"),
    "new": Text("only in B"),
    "gone": Text("only in A"),
}
LEVELS = {"refuse": Text("refuse"), "warn": Text("warn"), "note": Text("note")}
STATES = {"broken": Text("broken"), "noise": Text("noise"), "kept": Text("kept")}
OUTCOMES = {
    "broken": ("CAUTION", Text("a limit is broken")),
    "noise": ("WARNING", Text("beyond a limit, but within the noise")),
    "warn": ("WARNING", Text("compared, with warnings")),
    "kept": ("NOTE", Text("within the limits")),
    "none": ("NOTE", Text("compared")),
}
"""Kind of alert on GitHub and heading of a comparison by its state."""
ALL_IN_JSON = Text("--format json has all of them, those within the noise too.")


def changed_kernels(found: Comparison) -> list[KernelChange]:
    """Return the rows of kernels that changed beyond the noise, the largest change first.

    Rows of next to no time in the program are left out: very short kernels scatter most.
    """
    minimum = threshold("listed")
    return [
        row
        for row in found.kernels
        if row.total.verdict not in QUIET and abs(row.program or 0.0) >= minimum
    ]


def _quantities(
    key: str,
    title: Text,
    rows: Sequence[tuple[str, Change]],
    first: Sequence[Column[Any]],
    folded: bool = False,
) -> list[Table[Any]]:
    """Return a table of changes, each with the name of what it is a change of; none if empty."""
    columns = [*first, *_values(lambda row: row[1])]
    return [Table(key, title, columns, rows, folded=folded, preview=len(rows))] if rows else []


def _values(change: Callable[[Any], Change]) -> list[Column[Any]]:
    """Return the columns of a quantity in both runs."""
    return [
        Column(Text("A"), lambda row: change(row).before),
        Column(Text("B"), lambda row: change(row).after),
        Column(Text("Change (95 % interval)"), lambda row: change(row).relative),
        Column(Text("Verdict"), lambda row: VERDICTS[change(row).verdict]),
    ]


QUANTITY: Column[Any] = Column(Text("Quantity"), lambda row: row[1].label)


def _name_column(heading: Text) -> Column[Any]:
    return Column(heading, lambda row: brief(row[0]))


def _kernels(found: Comparison) -> list[Table[KernelChange]]:
    rows, work = changed_kernels(found), found.work
    if not rows:
        return []
    values = _values(lambda row: row.total)
    if work is not None:  # that of all of the work says nothing then
        heading = Text("Change per unit of work (95 % interval)")
        values[2] = Column(heading, lambda row: _per_unit(row, work))
    columns: list[Column[KernelChange]] = [
        Column(Text("#"), lambda row: row.number),
        Column(Text("Kernel"), lambda row: row.title),
        Column(Text("Launches"), _launches),
        *values,
        Column(Text("Effect on the program"), lambda row: Number(row.program, "change")),
        Column(Text("Why"), _reason),
    ]
    if len({row.stage for row in found.kernels}) > 1:
        columns.insert(1, Column(Text("Stage"), lambda row: brief(row.stage) or None))
    lead = Text(
        "Kernels of A and their counterpart in B; largest effect on the GPU time of A first."
    )
    if work is not None:
        lead = Text("{lead} Effects and verdicts are per {unit}.", lead=lead, unit=found.unit)
    table = Table(
        "what-changed",
        Text("What changed ({n} of {rows} rows)", n=len(rows), rows=len(found.kernels)),
        columns,
        rows,
        lead=lead,
        note=ALL_IN_JSON,
        refs=lambda row: [Ref(KERNELS, str(row.number))],
        preview=FIRST,
    )
    return [table]


def _per_unit(row: KernelChange, work: float) -> Number:
    ratio = row.total.noise.times(1 / work)
    return Number(ratio.value - 1, "change", low=ratio.low - 1, high=ratio.high - 1)


def _launches(row: KernelChange) -> Value:
    a, b = row.calls
    return a if a == b else Text("{a} → {b}", a=a, b=b)


def _reason(row: KernelChange) -> Text | None:
    match = [] if row.match == "identical" else [MATCHES[row.match]]
    clauses = [*match, *row.reasons]
    if not clauses:
        return None
    return reduce(lambda a, b: Text("{first}; {rest}", first=a, rest=b), clauses)


def _changes(found: Comparison) -> list[Table[Any]]:
    """Return what changed: kernels, cases and serving points."""
    cases = [(str(c.label), c) for c in found.cases if c.verdict not in QUIET]
    points = [(p.case, c) for p in found.points for c in p.changes if c.verdict not in QUIET]
    of_cases = Text("Cases that changed ({n} of {rows})", n=len(cases), rows=len(found.cases))
    of_points = Text(
        "Serving points that changed ({n} of {rows} quantities)",
        n=len(points),
        rows=sum(len(p.changes) for p in found.points),
    )
    return [
        *_kernels(found),
        *_quantities("cases", of_cases, cases, [_name_column(Text("Case"))]),
        *_quantities("points", of_points, points, [_name_column(Text("Point")), QUANTITY]),
    ]


def _details(found: Comparison) -> list[Table[Any]]:
    """Return the totals, the stages, and what differs between the runs besides."""
    totals = [("", c) for c in found.totals if found.kind == "profile"]
    stages = [(s.stage, c) for s in found.stages for c in s.changes]
    checks = (*found.settings, *found.checks)
    of_checks: list[Column[Check]] = [
        Column(Text("Level"), lambda check: LEVELS[check.level]),
        Column(Text("Fact"), lambda check: check.label),
        Column(Text("A"), lambda check: check.a),
        Column(Text("B"), lambda check: check.b),
        Column(Text("Why it matters"), lambda check: check.reason),
    ]
    title = Text("Comparability ({n} difference)", "Comparability ({n} differences)", n=len(checks))
    return [
        *_quantities("totals", Text("Totals"), totals, [QUANTITY]),
        *_quantities(
            "stages", Text("Stages"), stages, [_name_column(Text("Stage")), QUANTITY], True
        ),
        *([Table("comparability", title, of_checks, checks, folded=True)] if checks else []),
    ]


def _origins(found: Comparison) -> Table[tuple[str, Origin]]:
    columns: list[Column[tuple[str, Origin]]] = [
        Column(Text("Side"), lambda row: row[0]),
        Column(Text("Run"), lambda row: row[1].name),
        Column(Text("Date"), lambda row: row[1].created or None),
        Column(Text("GPU"), lambda row: row[1].gpu or None),
        Column(Text("Program"), lambda row: row[1].program or None),
        Column(Text("Runs"), lambda row: row[1].runs),
    ]
    return Table("runs", Text("Runs"), columns, [("A", found.a), ("B", found.b)], folded=True)


def _limits(found: Comparison) -> list[Table[LimitResult]]:
    columns = [
        Column[LimitResult](Text("Rule"), lambda limit: Name(limit.rule)),
        Column[LimitResult](Text("State"), lambda limit: STATES[limit.state]),
        Column[LimitResult](Text("Found"), lambda limit: limit.sentence),
    ]
    return [Table("limits", Text("Limits"), columns, found.limits)] if found.limits else []


def _figures(found: Comparison) -> list[Figure]:
    """Draw what the largest changes add to and take from the program."""
    rows = [row for row in changed_kernels(found) if row.program][:BARS]
    if not rows:
        return []
    unit = Text("Share of the GPU time of A (%)")
    if found.work is not None:
        unit = Text("Share of the GPU time of A per unit of work (%)")
    bars = tuple(
        Bar(
            f"{row.number} {brief((row.b or row.a)[0].kernel.short_name, WIDTH)}",
            100 * abs(row.program or 0.0),
            group="B takes less" if (row.program or 0.0) < 0 else "B takes more",
            text=signed(row.program or 0.0, 3),
        )
        for row in rows
    )
    alt = "Bars: what each kernel adds to or takes from the GPU time of A"
    return [Figure(BarFigure("changes", "The largest changes of the program", alt, unit, bars))]


def section(found: Comparison) -> Section:
    """Return the page of a comparison: verdict, what changed, and the details."""
    verdict, *rest = (finding for finding in findings(found) if finding.rule != "limit")
    notes = found.notes
    if not found.settings and not found.checks:
        notes = (Text("Both runs agree in GPU, versions, program and capture."), *notes)
    steps = Bullets(Text("How this was compared"), method(found))
    details = Section(
        "details", Text("Details"), (*rest, *notes, *_details(found), _origins(found), steps)
    )
    return Section(
        "comparison",
        Text("{title}: {b} (B) against {a} (A)", title=found.title, a=found.a.name, b=found.b.name),
        (verdict, *_limits(found), *_changes(found), *_figures(found)),
        (details,),
    )


def markdown(found: Comparison, language: str = ENGLISH, markup: Markup = MARKDOWN) -> str:
    """Return the comparison as markdown, which has no pictures and no more than `SHOWN` rows."""
    page = section(found)
    blocks = tuple(
        _cut(block, SHOWN) if isinstance(block, Table) else block
        for block in page.blocks
        if not isinstance(block, Figure)
    )
    return f"{section_markdown(dataclasses.replace(page, blocks=blocks), language, 1, markup)}\n"


def _cut(table: Table[Any], rows: int) -> Table[Any]:
    return dataclasses.replace(table, rows=table.rows[:rows], preview=rows)


def html(found: Comparison, language: str = ENGLISH) -> str:
    """Return the comparison as one HTML file that sorts, prints, and knows dark and light."""
    # Only this format needs matplotlib, which takes long to import.
    from nsight_prof.reports.render.one_section import section_page

    return section_page(section(found), language)


def github(found: Comparison, language: str = ENGLISH) -> str:
    """Return the comparison as a comment or job summary of GitHub, short enough for either."""
    write = Writer(language, InMarkdown())
    alert, outcome = OUTCOMES[_state(found)]
    verdicts = [f"> - {write.text(finding.verdict)}" for finding in findings(found)]
    head = f"### {write.value(found.title)}: {write.text(outcome)}\n\n> [!{alert}]\n"
    of_limits = Section("limits", Text("Limits"), tuple(_limits(found)))
    limits = section_in_two(of_limits, language, level=3)
    tables = [
        dataclasses.replace(table, folded=table.key != "totals", lead=None)
        for table in (*_changes(found), *_details(found))
    ]
    steps = "\n".join(f"- {write.text(text)}" for text in method(found))
    title = escape_html(Writer(language).text(Text("How this was compared")))
    fold = f"<details><summary>{title}</summary>\n\n{steps}\n\n</details>"
    rows = SHOWN
    while True:
        cut = tuple(_cut(table, rows) for table in tables)
        page = section_in_two(Section("comparison", Text("Details"), cut), language, level=3)
        blocks = [head + "\n".join(verdicts), limits.tables, page.tables, fold]
        text = "\n\n".join(filter(None, blocks)) + "\n"
        if len(text) <= MAX_CHARACTERS or rows <= 1:
            return text
        rows //= 2


def _state(found: Comparison) -> str:
    states = {limit.state for limit in found.limits}
    for state in ("broken", "noise"):
        if state in states:
            return state
    if states:
        return "kept"
    return "warn" if any(check.level != "note" for check in found.checks) else "none"


def as_json(found: Comparison, _language: str = ENGLISH) -> str:
    """Return the whole comparison as JSON, in English; unknown numbers are null."""
    answer: list[Finding] = list(findings(found))
    view = _data(found) | {
        "answer": _data([finding.verdict for finding in answer]),
        "method": _data(method(found)),
    }
    return json_text({"schema_version": SCHEMA_VERSION, "kind": "compare", "view": view})


def _data(value: Any) -> Json:
    if isinstance(value, Text):
        return Writer().text(value)
    if isinstance(value, (list, tuple)):
        return [_data(item) for item in value]
    if isinstance(value, Launches):
        names = {key: getattr(value.kernel, key) for key in KERNEL}
        return {**names, "calls": value.calls, "total_ns": value.total}
    if dataclasses.is_dataclass(value):
        return {f.name: _data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value


KERNEL = ("kernel_id", "short_name", "name", "grid", "block")


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the output of `as_json`."""
    numbers = {"calls": {"type": "integer"}, "total_ns": {"type": "number"}}
    launches = object_of(
        "Launches of one kernel in a row, and their time in ns.",
        {**dict.fromkeys(KERNEL, TEXT), **numbers},
    )
    found = definitions(Comparison, {"Launches": launches})
    for key in ("answer", "method"):
        found["Comparison"]["properties"][key] = TEXTS
        found["Comparison"]["required"].append(key)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Output of `prof compare --format json`",
        "type": "object",
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "kind": {"const": "compare"},
            "view": {"$ref": "#/$defs/Comparison"},
        },
        "required": ["schema_version", "kind", "view"],
        "$defs": found,
    }


FORMATS = {"md": markdown, "github": github, "json": as_json, "html": html}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1))
