"""The section of the target comm_roofs, from table `comm_roofs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, count, grouped, number, records, text
from nsight_prof.parsers.roofs.comm import TARGET
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import (
    Column,
    Finding,
    Interval,
    Number,
    Ref,
    Section,
    Table,
    Text,
    arranged,
)
from nsight_prof.reports.page.charts import LineFigure, Series

SENTENCES = Sentences("comm_roofs")

GIGA = 1e-9
INTRO = SENTENCES.text("intro")
METHOD = SENTENCES.texts("method")


@dataclass(frozen=True)
class Curve:
    """One operation on so many GPUs: its points of table `comm_roofs`, by size."""

    operation: str
    ranks: int
    points: Sequence[Row]

    @property
    def name(self) -> str:
        """What a figure calls it."""
        return f"{self.operation}, {self.ranks} GPUs"

    @property
    def best(self) -> Row:
        """The point of the highest bandwidth."""
        return max(self.points, key=lambda point: number(point["bus_bandwidth"]))

    @property
    def half(self) -> Row:
        """The smallest message from which on bandwidth stays above half of the highest."""
        limit = number(self.best["bus_bandwidth"]) / 2
        below = [n for n, p in enumerate(self.points) if number(p["bus_bandwidth"]) < limit]
        return self.points[max(below, default=-1) + 1]


def section(run: Run) -> Section | None:
    """Return the section; None where the run measured no collective."""
    if not run.bench["target"].eq(TARGET).any() or run.comm_roofs.empty:
        return None
    frame = run.comm_roofs.sort_values("bytes", kind="stable")
    groups = frame.groupby(["operation", "ranks"], sort=False)
    by_key = [records(rows) for _, rows in groups]
    curves = [Curve(text(p[0]["operation"]), count(p[0]["ranks"]) or 0, p) for p in by_key]
    curves.sort(key=lambda curve: (curve.ranks, curve.operation))
    by_ranks = grouped(curves, lambda curve: curve.ranks).values()
    return Section(
        TARGET,
        Text("Roofs of the links between GPUs"),
        arranged([INTRO], map(_finding, by_ranks), [_chart(curves)], [_table(curves)], METHOD),
        numbers={
            curve.name: {
                "bus_bandwidth": number(curve.best["bus_bandwidth"]),
                "bytes": number(curve.best["bytes"]),
                "smallest_s": number(curve.points[0]["time_s"]),
            }
            for curve in curves
        },
    )


def _finding(curves: Sequence[Curve]) -> Finding:
    """State what the links carry at most, and from which size on half of it."""
    best = max(curves, key=lambda curve: number(curve.best["bus_bandwidth"]))
    return Finding(
        f"links-{best.ranks}",
        Text(
            "Between {n} GPUs {operation} reaches {rate}, and half of it from messages of {size} "
            "on; the smallest takes {time}.",
            n=best.ranks,
            operation=best.operation,
            rate=_number(best.best, "bus_bandwidth", "B/s"),
            size=_number(best.half, "bytes", "B"),
            time=_number(best.points[0], "time_s", "s"),
        ),
        action=Text(
            "Send smaller messages together: below that size the time is that of a start, not of "
            "bytes."
        ),
    )


def _number(row: Row, column: str, unit: str) -> Number:
    return Number(number(row[column]), unit, (Ref("bench", text(row["case_id"])),), digits=3)


def _chart(curves: Sequence[Curve]) -> LineFigure:
    def series(curve: Curve) -> Series:
        def column(name: str) -> tuple[float, ...]:
            return tuple(number(point[name]) * GIGA for point in curve.points)

        sizes = tuple(number(point["bytes"]) for point in curve.points)
        rates = column("bus_bandwidth")
        return Series(
            curve.name, sizes, rates, column("low"), column("high"), group=curve.operation
        )

    return LineFigure(
        **SENTENCES.chart("comm-roofs"),
        series=tuple(map(series, curves)),
        x_log=True,
        x_bytes=True,
    )


def _table(curves: Sequence[Curve]) -> Table[Curve]:
    def interval(curve: Curve) -> Interval:
        return Interval(number(curve.best["low"]), number(curve.best["high"]), "B/s")

    return Table(
        "comm-roofs",
        Text("Each operation"),
        [
            Column(Text("Operation"), lambda curve: curve.operation),
            Column(Text("GPUs"), lambda curve: curve.ranks),
            Column(
                Text("Bus bandwidth"), lambda curve: _number(curve.best, "bus_bandwidth", "B/s")
            ),
            Column(Text("95 % interval"), interval),
            Column(Text("At a message of"), lambda curve: _number(curve.best, "bytes", "B")),
            Column(Text("Half of it from"), lambda curve: _number(curve.half, "bytes", "B")),
            Column(
                Text("Time of the smallest"), lambda curve: _number(curve.points[0], "time_s", "s")
            ),
        ],
        curves,
        note=Text("Table comm_roofs has each size."),
        refs=lambda curve: [Ref("bench", text(curve.best["case_id"]))],
    )
