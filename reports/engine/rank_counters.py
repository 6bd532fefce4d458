"""Tables of a job by rank: collectives with most waiting, counters and samples of kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.cells import Row, count, from_row, known, records, text
from nsight_prof.reports.engine.rank_times import rank_name
from nsight_prof.reports.page import Column, Name, Number, Ref, Table, Text, Value

CALLS, MOST_CALLS = "collective_calls", 10
COUNTERS, SAMPLES = "counters", "samples"
MOST = 30


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


@dataclass(frozen=True)
class RankCounterRow:
    """A kernel on a rank as table `rank_counters` has it; None for unknown."""

    rank: int
    kernel_id: str
    name: str
    grid: str
    source: str
    mode: str
    passes: int | None
    samples: int | None
    duration_ns: float | None
    sm_active_pct: float | None
    tensor_pct: float | None
    dram_pct: float | None
    dram_bytes: float | None

    def number(self, column: str, unit: str) -> Number:
        """Return a field as a number of its row in table `rank_counters`."""
        ref = Ref("rank_counters", f"{self.rank} {self.source} {self.kernel_id}", column)
        return Number(getattr(self, column), unit, (ref,), digits=3)


def rank_counter_row(row: Row) -> RankCounterRow:
    """Return a row of table `rank_counters`."""
    return from_row(RankCounterRow, row, name=text(row["short_name"]))


def rank_counter_tables(rows: Sequence[RankCounterRow]) -> Iterator[Table[RankCounterRow]]:
    """Yield what ncu counted on the ranks, and what nsys sampled there, each where there is any."""
    counted = [row for row in rows if row.source == COUNTERS]
    if counted:
        yield Table(
            "rank-counters",
            Text("Counters of kernels by rank"),
            [
                *_kernel(),
                *_use(),
                Column(Text("DRAM bytes"), lambda row: row.number("dram_bytes", "B")),
                Column(Text("Passes"), lambda row: row.passes),
            ],
            counted[:MOST],
            lead=Text(
                "By ncu, {mode}, of one launch of each kernel; in full with the run of the rank. "
                "The duration of a collective holds its waiting for other ranks.",
                mode=Name(", ".join(sorted({row.mode for row in counted if row.mode}))),
            ),
            note=_rest(len(counted) - MOST),
        )
    sampled = sorted(
        (row for row in rows if row.source == SAMPLES), key=lambda row: -(row.samples or 0)
    )
    if sampled:
        yield Table(
            "rank-samples",
            Text("Sampled use of the GPU by kernel and rank"),
            [*_kernel(), *_use(), Column(Text("Samples"), lambda row: row.samples)],
            sampled[:MOST],
            lead=Text(
                "By nsys, without holding a kernel: means of the samples within launches beside "
                "which no other kernel ran. A kernel shorter than the time between two samples "
                "has none, and is not here; table gpu\\_samples has stages as well."
            ),
            note=_rest(len(sampled) - MOST),
        )


def _kernel() -> list[Column[RankCounterRow]]:
    return [
        Column(Text("Rank"), lambda row: row.rank),
        Column(Text("Kernel"), lambda row: Name(row.name)),
        Column(Text("Grid"), lambda row: row.grid or None),
        Column(Text("Duration"), lambda row: row.number("duration_ns", "ns")),
    ]


def _use() -> list[Column[RankCounterRow]]:
    def percent(heading: Text, column: str) -> Column[RankCounterRow]:
        def cell(row: RankCounterRow) -> Value:
            return row.number(column, "%")

        return Column(heading, cell)

    return [
        percent(Text("SMs active"), "sm_active_pct"),
        percent(Text("Tensor Cores active"), "tensor_pct"),
        percent(Text("Of the DRAM roof"), "dram_pct"),
    ]


def _rest(rows: int) -> Text | None:
    return Text("{n} further rows in tables/rank_counters.csv.", n=rows) if rows > 0 else None
