"""Single collectives of a job: those in which most time is waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.cells import Row, count, known, records, text
from nsight_prof.reports.engine.rank_times import rank_name
from nsight_prof.reports.page import Column, Name, Number, Ref, Table, Text

CALLS, MOST_CALLS = "collective_calls", 10


@dataclass(frozen=True)
class CallRow:
    """A row of table `collective_calls`; GPUs are (rank, device)."""

    call: int
    name: str
    step: int | None
    bytes: float | None
    start_ns: float | None
    spread_ns: float | None
    last: tuple[int, int | None]
    wait_ns: float | None
    longest_wait_ns: float | None
    longest: tuple[int, int | None]
    transfer_ns: float | None
    bus_bandwidth: float | None
    roof: float | None

    def number(self, column: str, unit: str = "ns") -> Number:
        """Return a field as a number of its row."""
        ref = Ref(CALLS, str(self.call), column)
        return Number(getattr(self, column), unit, (ref,), digits=3)


def call_rows(calls: pd.DataFrame) -> tuple[CallRow, ...]:
    """Return the calls of `collective_calls` with most waiting, first calls of groups apart."""
    compared = calls[~calls["begins"].astype(bool)]
    return tuple(map(_row, records(compared.nlargest(MOST_CALLS, "wait_ns"))))


def _row(row: Row) -> CallRow:
    times = ("start_ns", "spread_ns", "wait_ns", "longest_wait_ns", "transfer_ns")
    return CallRow(
        call=int(row["call"]),
        name=text(row["short_name"]),
        step=count(row["step"]),
        last=(int(row["last_rank"]), count(row["last_device"])),
        longest=(int(row["longest_wait_rank"]), count(row["longest_wait_device"])),
        **{name: known(row[name]) for name in (*times, "bytes", "bus_bandwidth", "roof")},
    )


def call_table(rows: Sequence[CallRow], *, several: bool) -> Table[CallRow]:
    """Return the calls with most waiting; `several`: a rank has several GPUs."""

    def payload(row: CallRow, column: str, unit: str) -> Number:
        found = row.number(column, unit)
        return Number(found.value, unit, found.refs, "no payload of NCCL tells the bytes", digits=3)

    def share(row: CallRow) -> Number:
        found = row.bus_bandwidth / row.roof if row.bus_bandwidth and row.roof else None
        return Number(found, "fraction", row.number("roof").refs, digits=2)

    optional: tuple[tuple[bool, Column[CallRow]], ...] = (
        (any(row.step is not None for row in rows), Column(Text("Step"), lambda row: row.step)),
        (any(row.roof for row in rows), Column(Text("Of the roof"), share)),
    )
    step, roof = ([column] if is_known else [] for is_known, column in optional)
    return Table(
        "rank-calls",
        Text("Calls of collectives with most waiting"),
        [
            Column(Text("Call"), lambda row: row.call),
            *step,
            Column(Text("Collective"), lambda row: Name(row.name)),
            Column(Text("Waiting, all GPUs"), lambda row: row.number("wait_ns")),
            Column(Text("Longest wait"), lambda row: row.number("longest_wait_ns")),
            Column(Text("Of"), lambda row: rank_name(*row.longest, several=several)),
            Column(Text("Last"), lambda row: rank_name(*row.last, several=several)),
            Column(Text("First arrival"), lambda row: row.number("start_ns")),
            Column(Text("Arrivals within"), lambda row: row.number("spread_ns")),
            Column(Text("Transfer"), lambda row: row.number("transfer_ns")),
            Column(Text("Bytes"), lambda row: payload(row, "bytes", "B")),
            Column(Text("Bus bandwidth"), lambda row: payload(row, "bus_bandwidth", "B/s")),
            *roof,
        ],
        rows,
        note=Text(
            "The first call of each group of ranks is left out. Arrivals are by the aligned clock "
            "of the first rank. All calls are in table {calls}, the waits of each rank in {waits}.",
            calls=Name(CALLS),
            waits=Name("collective_waits"),
        ),
        refs=lambda row: row.number("wait_ns").refs,
    )
