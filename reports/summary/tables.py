"""Tables of the first screen and of the summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nsight_prof.reports.page import (
    Choice,
    Column,
    Fact,
    Link,
    Number,
    Series,
    Strong,
    Table,
    Text,
    Value,
    Verbatim,
    Word,
)
from nsight_prof.reports.page.formats import adding_up, brief, countdown, together
from nsight_prof.reports.page.section import Footer
from nsight_prof.reports.page.values import Capital
from nsight_prof.reports.page.writer import IN_TEXT
from nsight_prof.reports.profile.tables.time import kernel_link
from nsight_prof.reports.summary.distance import ROW
from nsight_prof.reports.summary.models import (
    Action,
    FirstScreen,
    FloorPart,
    Narrowed,
    SummaryGpu,
    SummaryRow,
    SummaryView,
    TimedChoice,
)
from nsight_prof.reports.summary.time_parts import ALL_STEPS, PARTS

NO_TITLE = Text("")
"""Of tables below a heading of the template."""
LEAST = 0.001
"""Part of the run from which on smaller steps have a row."""
HARDLY = 0.005
"""Part of the run below which a gain is not worth a number."""
SMALLER = "steps-smaller"
"""Id of the row of what smaller steps save."""
NAMED, LINKED = 3, 5
"""Kernels that a row names, findings that it leads to."""


def actions(first: FirstScreen, count: int) -> Table[tuple[int, Action]]:
    """Return the first `count` of what to do, and what is left of the time after each at least.

    The last row of these has all that smaller steps save together; below is what all rows save.
    """
    rows, times, amounts = _with_smaller(first, count)
    whole_ns = first.total.value or 0.0
    estimates, bounds = _amounts([action for _, action in rows])
    nothing = together([], whole_ns)

    def saving(estimate: tuple[str, float], upper: tuple[str, float], anchor: str) -> Value:
        estimated, bound = (
            Text(
                "{time} ({part})",
                time=Link(Verbatim(time), anchor) if anchor else Verbatim(time),
                part=Number(value / (whole_ns or 1.0), "fraction"),
            )
            for time, value in (estimate, upper)
        )
        if estimate[0] == nothing:  # as it is written
            return Text("at most {saves}", saves=bound)
        if estimate[0] == upper[0]:
            return estimated
        return Text("{saves}; at most {most}", saves=estimated, most=bound)

    def saves(row: int) -> Value:
        estimate, upper, _ = times[row]
        return saving((estimate, estimates[row]), (upper, bounds[row]), rows[row][1].anchor)

    of_run = first.basis == "wall"
    heading = Text("Saves (of the run)") if of_run else Text("Saves (of GPU time)")
    columns: list[Column[tuple[int, Action]]] = [
        Column(Text(""), _row_number, right=True),
        Column(Text("Do"), lambda row: Capital(row[1].do), digits=IN_TEXT),
        Column(
            heading,
            lambda row: saves(row[0]),
            digits=IN_TEXT,
            sort=lambda row: row[1].upper.value,
            right=True,
        ),
        Column(Text("How sure, and why"), _sure),
        Column(Text("Effort"), lambda row: Word(row[1].effort)),
        Column(
            Text("After it, at least"),
            lambda row: Verbatim(times[row[0]][2], whole_ns - sum(bounds[: row[0] + 1])),
            right=True,
        ),
        Column(Text("Findings"), lambda row: _links(row[1].findings)),
    ]
    footer = None
    if len(rows) > 1:
        estimated, upper = ((together(times_ns, whole_ns), sum(times_ns)) for times_ns in amounts)
        total = saving(estimated, upper, ALL_STEPS)
        footer = Footer(["", Strong(Text("In all")), Strong(total), *[""] * 4])
    return Table("actions", NO_TITLE, columns, rows, footer=footer, cards=True)


def _sure(row: tuple[int, Action]) -> Value:
    """Return how sure a step is, and why; smaller steps together are neither sure nor not."""
    action = row[1]
    return Text("{sure}: {why}", sure=Word(action.sure), why=action.because) if action.sure else ""


def _with_smaller(
    first: FirstScreen, count: int
) -> tuple[list[tuple[int, Action]], list[tuple[str, str, str]], tuple[list[float], list[float]]]:
    """Return the first `count` actions and what smaller steps save together, if that is anything.

    And how each is written, whatever the count: estimate, most, and what is left after that. These
    add up. And the times of all steps, in ns: estimates, bounds.
    """
    listed, whole_ns = list(first.actions[:count]), first.total.value or 0.0
    count, amounts = len(listed), _amounts(first.actions)
    for times_ns, total in zip(amounts, (first.estimate, first.upper), strict=True):
        times_ns.append(max(0.0, (total.value or 0.0) - sum(times_ns)))
    estimate, upper = (sum(times_ns[count:]) for times_ns in amounts)
    if upper >= LEAST * whole_ns:
        smaller = Action(
            Text("all smaller savings together"),
            Number(upper, "ns"),
            Number(upper / whole_ns, "fraction"),
            Number(estimate, "ns"),
            Number(upper, "ns"),
            sure="",
            because=NO_TITLE,
            effort="",
            findings=(*(f for a in first.actions[count:] for f in a.findings), *first.smaller),
            anchor="" if first.actions[count:] else SMALLER,  # no row has both
        )
        listed.append(smaller)
    else:
        amounts = amounts[0][:count], amounts[1][:count]
    written = (countdown(times_ns, whole_ns, count) for times_ns in amounts)
    times = [(time, *rest) for (time, _), rest in zip(*written, strict=True)]
    return list(enumerate(listed)), times, amounts


def _amounts(actions: Sequence[Action]) -> tuple[list[float], list[float]]:
    """Return what actions save, in ns: estimates, and upper bounds."""
    return [a.estimate.value or 0.0 for a in actions], [a.upper.value or 0.0 for a in actions]


def _row_number(row: tuple[int, Action]) -> str:
    return str(row[0] + 1) if row[1].sure else ""


def steps(first: FirstScreen) -> Table[tuple[int, Action]]:
    """Return what the findings of each action save alone, and what counts beyond earlier ones."""
    whole_ns = first.total.value or 0.0
    rows, times, sums_ns = _with_smaller(first, len(first.actions))
    amounts, nothing = _amounts([action for _, action in rows]), together([], whole_ns)

    def acts_on(action: Action) -> Value:
        return Number(action.share, "fraction") if action.sure else ""

    def amount(heading: Text, n: int) -> Column[tuple[int, Action]]:
        def cell(row: tuple[int, Action]) -> Value:
            time = times[row[0]][n]
            return "" if time == nothing else _with_share(time, amounts[n][row[0]], whole_ns)

        return Column(heading, cell, sort=lambda row: amounts[n][row[0]], right=True)

    columns: list[Column[tuple[int, Action]]] = [
        Column(Text("Action"), lambda row: _row_number(row) or Capital(row[1].do), right=False),
        Column(Text("Findings"), lambda row: _links(row[1].findings)),
        Column(Text("Acts on, of the run"), lambda row: acts_on(row[1]), right=True),
        Column(Text("Its findings alone, at most"), lambda row: row[1].alone, right=True),
        amount(Text("Counted here"), 0),
        amount(Text("Counted here, at most"), 1),
    ]
    sums = (_with_share(together(ns, whole_ns), sum(ns), whole_ns) for ns in sums_ns)
    footer = Footer([Strong(Text("In all")), "", "", "", *map(Strong, sums)], ALL_STEPS)
    return Table("steps", NO_TITLE, columns, rows, footer=footer, ids=lambda row: row[1].anchor)


def _with_share(time: str, value: float, whole_ns: float) -> Text:
    """Return a time as it is written, with its part of the run."""
    fraction = Number(value / (whole_ns or 1.0), "fraction")
    return Text("{time} ({part})", time=Verbatim(time, value), part=fraction)


def floor_parts(first: FirstScreen) -> Table[FloorPart]:
    """Return how far steps of an engine are from their floors, and what that time is."""
    columns: list[Column[FloorPart]] = [
        Column(Text("What"), lambda row: Capital(row.what)),
        Column(Text("Time"), lambda row: Number(row.time_ns, "ns", digits=3)),
        Column(Text("How it is worked out"), lambda row: row.how),
    ]
    rows = first.floor_parts
    return Table(
        "floor-parts", NO_TITLE, columns, rows, ids=lambda row: f"{ROW}-{rows.index(row) + 1}"
    )


def _links(findings: Sequence[tuple[int, str]]) -> Series:
    links = [Link(str(rank), anchor) for rank, anchor in findings[:LINKED]]
    return Series(links, len(findings) > LINKED)


def choices(first: FirstScreen) -> Table[Choice]:
    """Return what the owner may choose: what it gains, and what it costs."""
    columns: list[Column[Choice]] = [
        Column(Text("Choose"), lambda row: Capital(row.do), digits=IN_TEXT),
        Column(Text("Gains"), lambda row: row.gains, digits=IN_TEXT),
        Column(Text("Costs"), lambda row: row.costs, digits=IN_TEXT),
    ]
    if any(choice.findings for choice in first.choices):
        columns.append(Column(Text("Findings"), lambda row: _links(row.findings)))
    return Table("choices", NO_TITLE, columns, first.choices, cards=True)


def parts_of_time(view: SummaryView) -> Table[tuple[int, SummaryRow]]:
    """Return where the time goes; the parts add up to the total as they are shown."""
    columns: list[Column[tuple[int, SummaryRow]]]
    columns = [Column(Text("What takes the time"), lambda row: _what(row[1]))]
    limits: Column[tuple[int, SummaryRow]]
    limits = Column(Text("What limits it"), lambda row: _limit(row[1]))
    rows = list(enumerate(view.rows))
    if view.total is None:
        return Table("parts-of-time", NO_TITLE, [*columns, limits], rows)
    total, every = view.total, (*view.rows, view.total)

    def texts(name: str, unit: str = "ns") -> list[Verbatim]:
        *values, of_all = (getattr(row, name) for row in every)
        written = [*adding_up(values, of_all, unit), *adding_up([of_all], of_all, unit)]
        return [Verbatim(*pair) for pair in zip(written, (*values, of_all), strict=True)]

    times, shares = texts("time_ns"), texts("share", "fraction")
    saves, gains = texts("gain_ns"), texts("gain", "fraction")
    unknown = sum(row.share or 0.0 for row in view.rows if row.gain_ns is None)

    def saved(index: int) -> Value:
        row = every[index]
        little = row.gain is not None and row.gain < HARDLY
        if row.gain_ns is None or (little and not row.measured):
            return Text("not known")
        if little:
            return Text("hardly anything")
        found = Text("{time} ({part})", time=saves[index], part=gains[index])
        if index == len(rows) and unknown >= HARDLY:
            return Text("{saves} as far as it is known", saves=found)
        return found

    gain = Text("Could save at most (% of the run)")
    if view.basis == "gpu":
        gain = Text("Could save at most (% of GPU time)")
    columns += [
        Column(Text("Time"), lambda row: times[row[0]], right=True),
        Column(share_heading(view), lambda row: shares[row[0]], right=True),
        limits,
        Column(gain, lambda row: saved(row[0]), sort=lambda row: row[1].gain_ns, right=True),
    ]
    sums = (total.what, times[-1], shares[-1], saved(len(rows)))
    bold = [Strong(value) for value in sums]
    footer = Footer([*bold[:3], "", bold[3]], PARTS)
    return Table("parts-of-time", NO_TITLE, columns, rows, footer=footer)


def narrowed(choice: TimedChoice) -> Table[Narrowed]:
    """Return what each matrix product saves at most with inputs of a smaller type."""
    columns: list[Column[Narrowed]] = [
        Column(
            Text("#"),
            lambda row: kernel_link(row.kernel.number),
            sort=lambda row: row.kernel.number,
            right=True,
        ),
        Column(Text("Kernel"), lambda row: brief(row.kernel.short_name)),
        Column(Text("Limited by"), lambda row: Word(row.kernel.bound_label)),
        Column(Text("Time"), lambda row: Number(row.time_ns, "ns")),
        Column(Text("Fixes save"), lambda row: Number(row.repairs_ns, "ns")),
        Column(Text("Then at most"), lambda row: Number(row.factor, "x")),
        Column(Text("Could save"), lambda row: Number(row.saves_ns, "ns")),
    ]
    total = Number(choice.saves_ns, "ns")
    footer = Footer(["", Text("all together"), *[""] * 4, total], choice.anchor)
    return Table("narrowed", NO_TITLE, columns, choice.products, footer=footer)


def share_heading(view: SummaryView) -> Text:
    """Return the heading of parts of the time that the summary is about."""
    return Text("Share of GPU time") if view.basis == "gpu" else Text("Share of the run")


def _what(row: SummaryRow) -> Value:
    what = Capital(row.what)
    if not row.kernels:
        return what
    links = [Link(str(number), f"kernel-{number}") for number in row.kernels[:NAMED]]
    kernels = Series(links, len(row.kernels) > NAMED)
    return Text("{what} [{kernels}]", what=what, kernels=kernels)


def _limit(row: SummaryRow) -> Value:
    if row.limited_by is None:
        return ""
    if row.reached is None:
        return row.limited_by
    used = Number(row.reached, "fraction")
    return Text("{limit} ({part} used)", limit=row.limited_by, part=used)


def works(view: SummaryView) -> Table[SummaryGpu]:
    """Return how each of several GPUs spent the run."""

    def copies(gpu: SummaryGpu) -> Value | None:
        return None if gpu.copies_alone_ns is None else Number(gpu.copies_alone_ns, "ns")

    columns: list[Column[SummaryGpu]] = [
        Column(Text("Each GPU"), lambda gpu: gpu.label),
        Column(Text("Works"), lambda gpu: Number(gpu.busy_ns, "ns")),
        Column(Text("Of it only copies data"), copies, right=True),
        Column(Text("Has nothing to do"), lambda gpu: Number(gpu.idle_ns, "ns")),
        Column(share_heading(view), lambda gpu: Number(gpu.idle_share, "fraction")),
    ]
    return Table("gpus-of-summary", NO_TITLE, columns, view.gpus)


def facts(rows: Sequence[Fact], *, predicted: bool = False) -> Table[Fact]:
    """Return what was measured or predicted, in plain words."""

    def value(fact: Fact) -> Value:
        # Half a page has no room for intervals.
        number = fact.value
        return replace(number, low=None, high=None) if isinstance(number, Number) else number

    heading = Text("What was predicted") if predicted else Text("What was measured")
    columns: list[Column[Fact]] = [
        Column(heading, lambda fact: fact.label, digits=IN_TEXT),
        Column(Text(""), value, digits=IN_TEXT, right=True),
    ]
    return Table("facts", NO_TITLE, columns, rows)


def overview(facts: Sequence[Fact]) -> Table[Sequence[Fact]]:
    """Return facts in one row, each below its label."""

    def column(index: int) -> Column[Sequence[Fact]]:
        label = facts[index].label
        return Column(label, lambda row: row[index].value, digits=IN_TEXT, right=True)

    return Table("overview", NO_TITLE, [*map(column, range(len(facts)))], [facts])
