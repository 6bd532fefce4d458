"""Counters and samples of the kernels of a job, rank by rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, from_row, text
from nsight_prof.reports.page import Column, Name, Number, Ref, Table, Text, Value

COUNTERS, SAMPLES = "counters", "samples"
MOST = 30


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
            [*_kernel(), *_use(), _bytes(), Column(Text("Passes"), lambda row: row.passes)],
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


def _bytes() -> Column[RankCounterRow]:
    return Column(Text("DRAM bytes"), lambda row: row.number("dram_bytes", "B"))


def _rest(rows: int) -> Text | None:
    return Text("{n} further rows in tables/rank_counters.csv.", n=rows) if rows > 0 else None
