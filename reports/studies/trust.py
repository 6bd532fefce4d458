"""How far to trust a benchmark run: conditions, roofs, what is missing, and the method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from nsight_prof.parsers.cells import grouped, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.models import RoofComparison
from nsight_prof.reports.cases.conditions import of_cases
from nsight_prof.reports.page import (
    Block,
    Bullets,
    Column,
    Fact,
    Name,
    Number,
    Ref,
    Section,
    Table,
    Text,
    Value,
)
from nsight_prof.reports.page.charts import Roof
from nsight_prof.reports.profile.view_models import CommandRow, Method
from nsight_prof.reports.profile.view_models import Fact as FormattedFact
from nsight_prof.reports.studies.models import NotRun

EXAMPLES = 3
PREVIEW = 6
"""Rows of the table of roofs that a page shows."""
CONDITIONS = 12
"""Rows of the table of conditions that a page shows."""
OF_KERNELS = ("kernels", "launches", "stages", "joins", "counters", "stalls")
"""Tables about kernels, which a report about cases does not show."""
UNSHOWN = ("l1_hit_pct", "l2_hit_pct")
FLOPS = "counted_flops"
"""What kernels without FLOPs have none of either, which is no loss."""
UNCOLLECTED = "not collected: "
MISSING = {
    "roof_fraction": Text("No share of the roof"),
    FLOPS: Text("No counted FLOPs"),
    "counted_launches": Text("No counters"),
}
"""Column of table `bench` -> what a reader of the report misses."""


def trust_section(
    facts: Sequence[Fact | FormattedFact],
    of_roofs: Sequence[Block],
    gaps: Sequence[Block],
    how: Sequence[Block],
) -> Section:
    """Return the section that ends a report."""
    return Section(
        "trust", Text("How far to trust this"), (_conditions(facts), *of_roofs, *gaps, *how)
    )


def _conditions(facts: Sequence[Fact | FormattedFact]) -> Table[Any]:
    """Return machine, software and statistics, each fact once."""
    once: dict[str, Fact | FormattedFact] = {}
    for fact in facts:
        label = fact.label.message if isinstance(fact.label, Text) else fact.label
        once.setdefault(label.lower(), fact)
    columns = [
        Column[Any](Text("Condition"), lambda fact: fact.label),
        Column[Any](Text("Value"), lambda fact: fact.value),
    ]
    rows = list(once.values())
    return Table("conditions", Text("Conditions"), columns, rows, preview=CONDITIONS)


def roofs(
    comparison: Sequence[RoofComparison], every: Sequence[Roof], measured_by: Text | None
) -> tuple[Block, ...]:
    """Return the roofs of each source side by side, and how each came about."""
    if not comparison:
        return ()
    note = Text(
        "From counters: what the hardware can do at the clock of the profiled kernels. Datasheet: "
        "at the maximum clock. There are no measured roofs of this GPU yet; prof run roofline "
        "measures what it really reaches."
    )
    if any(row.measured is not None for row in comparison):
        note = Text(
            "Measured: what a probe reached. From counters: what the hardware can do at the clock "
            'of the profiled kernels. Datasheet: at the maximum clock. "Of counters" is at the '
            "clock of the measurement."
        )
    columns = [
        Column[RoofComparison](Text("Roof"), lambda row: row.label),
        Column(Text("Measured"), lambda row: _known(row.measured, row.unit)),
        Column(Text("at clock"), lambda row: _known(row.measured_clock_hz, "Hz")),
        Column(Text("From counters"), lambda row: _known(row.counters, row.unit)),
        Column(Text("at clock"), lambda row: _known(row.counters_clock_hz, "Hz")),
        Column(Text("Datasheet"), lambda row: _known(row.datasheet, row.unit)),
        Column(Text("Measured of counters"), lambda row: _known(row.of_counters, "fraction")),
        Column(Text("Measured of datasheet"), lambda row: _known(row.of_datasheet, "fraction")),
    ]
    columns = [c for c in columns if any(c.cell(row) is not None for row in comparison)]
    sources = Table(
        "roof-sources",
        Text("How each roof came about"),
        [
            Column[Roof](Text("Roof"), lambda roof: roof.label),
            Column(Text("Value"), lambda roof: Number(roof.value, roof.unit)),
            Column(Text("From"), lambda roof: SOURCES.get(roof.source, roof.source)),
            Column(Text("Clock"), lambda roof: _known(roof.clock_hz, "Hz")),
            Column(Text("How"), lambda roof: roof.detail or None),
        ],
        every,
        refs=lambda roof: [Ref("roof", f"{roof.label} {roof.source}")],
        folded=True,
        preview=PREVIEW,
    )
    title = Text("Roofs, by source")
    return (Table("roofs", title, columns, comparison, note=note, lead=measured_by), sources)


SOURCES = {
    "measured": Text("measured"),
    "counters": Text("counters"),
    "datasheet": Text("datasheet"),
}


def _known(value: float | None, unit: str) -> Number | None:
    return None if value is None else Number(value, unit)


def gaps(run: Run, lost: Sequence[NotRun], left_out: Sequence[Text]) -> tuple[Block, ...]:
    """Return what could not be measured, and why."""
    columns = [
        Column[NotRun](Text("Count"), lambda row: row.cases),
        Column(Text("Status"), lambda row: row.status),
        Column(Text("Reason"), lambda row: row.reason or None),
        Column(Text("For example"), lambda row: list(map(Name, row.names))),
    ]
    table = Table("not-run", Text("What could not be measured"), columns, lost)
    items = (*left_out, *missing(run))
    return (
        table if lost else Text("Everything that was asked for was measured."),
        *([Bullets(Text("What is not here"), items)] if items else []),
    )


def not_run(run: Run, key: str) -> tuple[NotRun, ...]:
    """Return the cases without a time, by status and reason, the most frequent first."""
    lost = (row for row in records(run.bench) if text(row["status"]) not in ("ok", "counted"))
    groups = grouped(lost, lambda row: (text(row["status"]), text(row["reason"])))
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        NotRun(status, reason, len(rows), tuple(text(row[key]) for row in rows[:EXAMPLES]))
        for (status, reason), rows in ranked
    )


def missing(run: Run) -> list[Text]:
    """Return why values are missing that a section shows, each reason once.

    Whatever is about kernels stays in table `gaps`: these reports are about cases. So does what the
    recipe chose not to collect, and hit rates, which only confirm roofs; all counters where it
    wants none.
    """
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    bench = run.bench
    uncounted = (run.manifest.recipe.get("counters") or {}).get("enabled") is False
    hidden = (*OF_KERNELS, "metrics") if uncounted else OF_KERNELS
    wanted = bench["flops"].notna() & (bench["counted_launches"].fillna(0) > 0)
    unshown = {*UNSHOWN, *(() if (wanted & bench["counted_flops"].isna()).any() else (FLOPS,))}
    for gap in records(run.gaps):
        table, column, reason = (text(gap[key]) for key in ("table", "column", "reason"))
        if table in hidden or column in unshown or reason.startswith(UNCOLLECTED):
            continue
        if reason:
            groups[column if column in MISSING else "", reason].append(text(gap["kernel_id"]))
    return [_missing(column, reason, names) for (column, reason), names in groups.items()]


def _missing(column: str, reason: str, names: list[str]) -> Text:
    known = [name for name in names if name]
    cases: Value = ""
    if known:
        cases = Text(
            " ({cases})", cases=Name(known[0]) if len(known) == 1 else of_cases(n=len(known))
        )
    if column:
        return Text("{what}: {reason}{cases}", what=MISSING[column], reason=reason, cases=cases)
    return Text("{reason}{cases}", reason=reason, cases=cases)


def method(protocol: Sequence[Text], run: Run, how: Method) -> tuple[Block, ...]:
    """Return how the cases were measured, and the commands as they ran."""
    items = list(protocol)
    if (run.bench["counted_launches"].fillna(0) > 0).any():
        items.append(
            Text(
                "Counters are from ncu, which ran every counted case once more: clocks {clocks}, "
                "caches {caches}, sets {sets}. No time is taken from ncu.",
                clocks=how.clock_control or "n/a",
                caches=how.cache_control or "n/a",
                sets=list(how.sets) or "n/a",
            )
        )
    recipe_notes = run.manifest.recipe.get("notes") or ()
    notes = [*run.manifest.assumptions, *map(str, recipe_notes)]
    items += [Text("{note}", note=note) for note in notes]
    commands = Table(
        "commands",
        Text("Commands as they ran"),
        [
            Column[CommandRow](Text("Step"), lambda row: row.link),
            Column(Text("State"), lambda row: STATES.get(row.state, row.state)),
            Column(Text("Time"), lambda row: _known(row.seconds, "s")),
            Column(Text("Exit code"), lambda row: row.exit_code),
            Column(Text("Note"), lambda row: row.note or None),
            Column(Text("Command"), lambda row: Name(row.command) if row.command else None),
        ],
        how.commands,
        folded=True,
    )
    return (Bullets(Text("Measurement protocol"), tuple(items)), commands)


STATES = {
    "done": Text("done"),
    "failed": Text("failed"),
    "pending": Text("pending"),
    "skipped": Text("skipped"),
    "unsupported": Text("unsupported"),
}
