"""Where the time of each GPU of a job goes, which one makes the others wait, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from nsight_prof.parsers.cells import Row, count, from_row, text
from nsight_prof.parsers.ranks.times import LATE
from nsight_prof.reports.engine.rank_steps import StepsView
from nsight_prof.reports.page import Column, Finding, Name, Number, Ref, Table, Text, Value
from nsight_prof.reports.page.charts import LineFigure, Series
from nsight_prof.reports.page.values import Words

EXPLAINS = 0.5
"""Part of its lateness that a difference of times must reach to be named as its cause."""
DIFFERS = 0.02
"""Difference from the median of the others from which on launches or times of kernels differ."""
UNLIKE = 0.5
"""Part of the time of other kernels than matrix products that must be in grids of its own for the
input of a rank to be larger: a balanced job has none."""
HOST = "host"
"""Cause of idle time, as table `idle_gaps` has it."""
IDLE = {
    "launches": Text("because its host launches too slowly"),
    "synchronisation": Text("after its host has waited for the GPU"),
    "queued": Text("with work that its host had launched already"),
}
"""When a GPU is idle, by the cause."""
FASTER_HOSTS = Text(
    "Let all hosts need less for a step: CUDA graphs, torch.compile, or fewer and larger kernels."
)
MOST = 20
GIGA = 1e-9
PARTS = ("compute_ns", "later_wait_ns", "transfer_ns", "copies_ns", "idle_ns")
"""Parts of wall time, which add up to it but for the wait in first collectives."""


@dataclass(frozen=True)
class TimesRow:
    """One GPU of a rank as table `rank_times` has it; None for unknown. Times in ns."""

    rank: int
    device: int
    wall_ns: float | None
    compute_ns: float | None
    wait_ns: float | None
    first_wait_ns: float | None
    transfer_ns: float | None
    collective_ns: float | None
    overlapped_ns: float | None
    copies_ns: float | None
    idle_ns: float | None
    idle_cause: str
    launches: int | None
    matrix_ns: float | None
    other_ns: float | None
    unlike_ns: float | None
    collectives: int | None
    last: int | None
    late_ns: float | None
    late_low_ns: float | None
    late_high_ns: float | None
    host_step_ns: float | None
    clock: str
    clock_residual_ns: float | None
    clock_drift_ppm: float | None

    @property
    def begun_ns(self) -> float:
        """Wall time but for its wait in the first collectives, to which captures begin apart."""
        return (self.wall_ns or 0.0) - (self.first_wait_ns or 0.0)

    @property
    def later_wait_ns(self) -> float | None:
        """Its wait in all other collectives."""
        return None if self.wait_ns is None else self.wait_ns - (self.first_wait_ns or 0.0)

    @property
    def own_ns(self) -> float:
        """What it needs itself: wall time without waiting and transfer."""
        return (self.wall_ns or 0.0) - (self.collective_ns or 0.0)

    @property
    def idle_share(self) -> float | None:
        """Idle time over wall time, but for its wait in the first collectives."""
        return self.idle_ns / self.begun_ns if self.idle_ns is not None and self.begun_ns else None

    @property
    def unused_share(self) -> float | None:
        """The same with its waits for other ranks, in which a kernel of a collective runs."""
        if self.idle_share is None or self.later_wait_ns is None:
            return None
        return self.idle_share + self.later_wait_ns / self.begun_ns

    def number(self, column: str, unit: str = "ns") -> Number:
        """Return a field as a number of its row in table `rank_times`."""
        ref = Ref("rank_times", f"{self.rank} {self.device}", column)
        return Number(getattr(self, column), unit, (ref,)).at_digits(3)


@dataclass(frozen=True)
class CollectiveRow:
    """A collective over the job as table `rank_collectives` has it; None for unknown."""

    name: str
    operation: str
    gpus: int | None
    instances: int | None
    transfer_ns: float | None
    wait_ns: float | None
    bytes: float | None
    bus_bandwidth: float | None
    roof: float | None

    @property
    def of_roof(self) -> float | None:
        """Bus bandwidth over what was measured for this operation and size."""
        return self.bus_bandwidth / self.roof if self.bus_bandwidth and self.roof else None


@dataclass(frozen=True)
class LinkRoof:
    """What an operation on `gpus` reaches with messages of `bytes` and nothing beside (B/s)."""

    operation: str
    gpus: int
    bytes: float
    bus_bandwidth: float


def times_row(row: Row) -> TimesRow:
    """Return a row of table `rank_times`."""
    return from_row(TimesRow, row)


def link_roof(row: Row) -> LinkRoof:
    """Return a row of table `comm_roofs`."""
    return from_row(LinkRoof, row, gpus=count(row["ranks"]) or 0)


def collective_row(row: Row) -> CollectiveRow:
    """Return a row of table `rank_collectives`."""
    return from_row(CollectiveRow, row, name=text(row["short_name"]))


def straggler(rows: Sequence[TimesRow]) -> TimesRow | None:
    """Return the GPU that surely arrives late at the collectives, where that matters; else None."""
    late = [
        row
        for row in rows
        if row.late_low_ns is not None
        and row.late_low_ns > 0
        and (row.late_ns or 0.0) >= LATE * (row.wall_ns or 0.0)
    ]
    return max(late, key=lambda row: row.late_ns or 0.0, default=None)


def next_host(rows: Sequence[TimesRow]) -> TimesRow | None:
    """Return the GPU whose host needs longest for a step, but for the one that is latest."""
    latest = max(rows, key=lambda row: row.late_ns or 0.0, default=None)
    known = [row for row in rows if row is not latest and row.host_step_ns is not None]
    return max(known, key=lambda row: row.host_step_ns or 0.0, default=None)


def _until_hosts(rows: Sequence[TimesRow], steps: StepsView | None) -> Number | None:
    """Return what a job saves until the host of a rank that is not late bounds it, if known."""
    bound = next_host(rows)
    if steps is None or bound is None:
        return None
    per_step = max(0.0, steps.wall_ns - (bound.host_step_ns or 0.0))
    refs = bound.number("host_step_ns").refs
    return Number(per_step * steps.count, "ns", refs).at_digits(2)


def saved_together(rows: Sequence[TimesRow], steps: StepsView | None) -> Number:
    """Return which part of the run ranks that arrive together save at most: hosts may bound it."""
    compared = [row for row in rows if row.wait_ns is not None and row.wall_ns]
    waits, until = mean_share(compared, "later_wait_ns"), _until_hosts(rows, steps)
    if until is None:
        return waits
    bounded = until.share_of(Number(max(row.begun_ns for row in compared), "ns")).at_digits(2)
    return min(waits, bounded, key=lambda number: number.value or 0.0)


def _late(slow: TimesRow, rows: Sequence[TimesRow], steps: StepsView | None) -> Finding:
    """Say which GPU makes the others wait, or first that all hosts bound the job, and why."""
    cause, remedy = _cause(slow, [row for row in rows if row is not slow])
    saved, until, bound = slow.number("late_ns"), _until_hosts(rows, steps), next_host(rows)
    verdict = Text(
        "Rank {rank} is late: the others wait {late} longer for it than it does for them, in a run "
        "of {wall}. {cause}",
        rank=slow.rank,
        late=saved,
        wall=slow.number("wall_ns"),
        cause=cause,
    )
    if until is not None and (until.value or 0.0) < (saved.value or 0.0):
        saved = until
    if bound and steps and (saved.value or 0.0) < EXPLAINS * (slow.late_ns or 0.0):
        remedy = FASTER_HOSTS
        verdict = Text(
            "The hosts bound the job: that of rank {rank}, which is not late, needs {host} for a "
            "step of {step}. {late} Mending rank {slow} alone saves at most {saved}.",
            rank=bound.rank,
            host=bound.number("host_step_ns"),
            step=Number(steps.wall_ns, "ns", digits=3),
            late=verdict,
            slow=slow.rank,
            saved=saved,
        )
    return Finding(
        "straggler",
        verdict,
        evidence=(
            Text(
                "It is the last in {last} of {n} collectives; at least {low} of its lateness "
                "is more than chance (95 %)",
                last=slow.last or 0,
                n=slow.collectives or 0,
                low=slow.number("late_low_ns"),
            ),
            *_in_steps(slow, steps),
        ),
        action=remedy,
        gain=saved,
    )


def waiting_findings(rows: Sequence[TimesRow], steps: StepsView | None) -> Iterator[Finding]:
    """Yield which GPU makes the others wait and why, and what waits and transfers cost."""
    slow = straggler(rows)
    if slow is not None:
        yield _late(slow, rows, steps)
    compared = [row for row in rows if row.wait_ns is not None and row.wall_ns]
    if slow is None and len(compared) > 1:
        yield _balanced(compared, steps)
    if compared:
        yield Finding(
            "rank_waits",
            Text(
                "Of the wall time, {wait} is waiting for other ranks in collectives, and "
                "{transfer} transfer that no other kernel hides (means over {n} GPUs).",
                wait=mean_share(compared, "later_wait_ns"),
                transfer=mean_share(compared, "transfer_ns"),
                n=len(compared),
            ),
            evidence=tuple(_begins(compared)),
            action=Text(
                "Let ranks arrive together (saves at most {together} of the run), and transfer "
                "beside other kernels (at most {transfer}).",
                together=saved_together(rows, steps),
                transfer=mean_share(compared, "transfer_ns"),
            ),
        )


def _balanced(rows: Sequence[TimesRow], steps: StepsView | None) -> Finding:
    """Say that nobody is surely late, how equal ranks are, and what takes most of their time."""
    if any(row.late_low_ns is None for row in rows):
        return Finding(
            "balanced_ranks",
            Text(
                "Whether a rank makes the others wait is not known: the trace has {n} collectives "
                "of all ranks, too few to tell lateness from chance.",
                n=max(row.collectives or 0 for row in rows),
            ),
        )
    low, high = (pick(rows, key=lambda row: row.own_ns) for pick in (min, max))
    spread = Number(high.own_ns / low.own_ns - 1 if low.own_ns else None, "fraction")
    latest = max(rows, key=lambda row: row.late_ns or 0.0)
    if (latest.late_ns or 0.0) < LATE * (latest.wall_ns or 0.0):
        verdict = Text(
            "No rank makes the others wait: their work, without waiting and transfer, differs by "
            "{spread}. {bound}",
            spread=spread,
            bound=_bound(rows),
        )
    else:
        verdict = Text(
            "No rank surely makes the others wait: rank {rank} is late by {late} of {wall}, but so "
            "unevenly that it may be chance (95 %), and the work of the ranks differs by "
            "{spread}. {bound}",
            rank=latest.rank,
            late=latest.number("late_ns"),
            wall=latest.number("wall_ns"),
            spread=spread,
            bound=_bound(rows),
        )
    return Finding(
        "balanced_ranks",
        verdict,
        evidence=(
            Text(
                "{least} on rank {first}, {most} on rank {last}; a rank is named where it is late "
                "by {limit} of the wall time, and that is no chance (95 %)",
                least=low.number("own_ns"),
                first=low.rank,
                most=high.number("own_ns"),
                last=high.rank,
                limit=Number(LATE, "fraction"),
            ),
            *_in_steps(latest, steps),
        ),
    )


def _bound(rows: Sequence[TimesRow]) -> Text:
    """Say which part of the time is the largest."""
    names = {
        "compute_ns": Text("compute: the kernels bound the job."),
        "later_wait_ns": Text("waiting, now for one rank and now for another."),
        "transfer_ns": Text("transfer that no other kernel hides: the links bound the job."),
        "copies_ns": Text("copies and memory sets."),
        "idle_ns": Text("idle GPUs, start-up included: the hosts bound the job."),
    }
    longest = longest_part(rows)
    return Text(
        "The largest part of the time, {share}, is {part}",
        share=mean_share(rows, longest),
        part=names[longest],
    )


def longest_part(rows: Sequence[TimesRow]) -> str:
    """Return the column of the part of wall time that is largest over all GPUs."""
    return max(PARTS, key=lambda column: sum(getattr(row, column) or 0.0 for row in rows))


def has_skewed_starts(rows: Sequence[TimesRow]) -> bool:
    """Tell whether captures began so far apart that the first collectives are mostly that."""
    return any((row.first_wait_ns or 0.0) > LATE * (row.wall_ns or 0.0) for row in rows)


def _begins(rows: Sequence[TimesRow]) -> Iterator[Text]:
    """Say what is left out of the waits, where it matters."""
    if has_skewed_starts(rows):
        first = max(rows, key=lambda row: row.first_wait_ns or 0.0)
        yield Text(
            "Left out is the wait in the first collective of each group, to which ranks come as "
            "their captures began: {time} on rank {rank}",
            time=first.number("first_wait_ns"),
            rank=first.rank,
        )


def _in_steps(slow: TimesRow, steps: StepsView | None) -> Iterator[Text]:
    """Say in how many steps the late GPU needed longest itself: always, or now and then."""
    if steps is not None:
        yield Text(
            "Rank {rank} needed longest itself in {n} of {steps} steps ({stage})",
            rank=slow.rank,
            n=steps.slowest_of(slow.rank, slow.device),
            steps=steps.count,
            stage=Name(steps.stage),
        )


def mean_share(rows: Sequence[TimesRow], column: str) -> Number:
    """Return a part of the wall time after the first collectives, which begin as captures do."""
    total = sum(getattr(row, column) or 0.0 for row in rows)
    refs = tuple(ref for row in rows for ref in row.number(column).refs)
    return Number(total / sum(row.begun_ns for row in rows), "fraction", refs).at_digits(2)


def _cause(slow: TimesRow, others: Sequence[TimesRow]) -> tuple[Text, Text | None]:
    """Say what takes the late GPU longer than the median of the others, and what to do about it."""

    def excess(column: str) -> float:
        typical = median(getattr(row, column) or 0.0 for row in others)
        return (getattr(slow, column) or 0.0) - typical

    kernels = excess("matrix_ns") + excess("other_ns")
    longest = max(kernels, excess("idle_ns"), excess("copies_ns"))
    time = Number(longest, "ns", digits=3)
    if longest < EXPLAINS * (slow.late_ns or 0.0):
        return Text("The times of its kernels, copies and idle GPU do not tell why."), None
    if longest == kernels:
        return _kernel_cause(slow, others, kernels), Text(
            "Give all ranks the same work; where the late one has no more than the others, its "
            "GPU is slower: prof fleet compares GPUs."
        )
    if longest == excess("copies_ns"):
        return Text(
            "Its copies take {time} longer: later input, or a slower link to the host.", time=time
        ), Text("Copy the input of the late rank ahead, beside kernels.")
    cause = Text(
        "Its GPU is idle {time} longer, most of it {cause}.",
        time=time,
        cause=IDLE.get(slow.idle_cause, Text("for a reason that the trace does not tell")),
    )
    if slow.idle_cause == HOST:
        cause = Text(
            "Its host is late: its GPU is idle {time} longer, most of it while the program "
            "does something else than launch, such as reading input, waiting, or code of its own.",
            time=time,
        )
    return cause, Text(
        "Let the host of the late rank launch in time: do its other work ahead, or in another "
        "thread or process."
    )


def _kernel_cause(slow: TimesRow, others: Sequence[TimesRow], excess_ns: float) -> Text:
    def growth(column: str) -> float:
        typical = median(getattr(row, column) or 0.0 for row in others)
        return (getattr(slow, column) or 0.0) / typical - 1 if typical else 0.0

    time = Number(excess_ns, "ns", digits=3)
    if growth("launches") > DIFFERS:
        return Text(
            "It has more work: {more} more kernels, which take {time} longer.",
            more=Number(growth("launches"), "fraction", digits=2),
            time=time,
        )
    if (slow.unlike_ns or 0.0) > UNLIKE * (slow.other_ns or 0.0):
        return Text(
            "Its input is larger: {share} of the time of its kernels other than matrix products is "
            "in grids that no other rank launches, and its kernels take {time} longer.",
            share=Number((slow.unlike_ns or 0.0) / (slow.other_ns or 1.0), "fraction", digits=2),
            time=time,
        )
    matrix, non_matrix = growth("matrix_ns"), growth("other_ns")
    if min(matrix, non_matrix) > DIFFERS:
        return Text(
            "Its kernels take {time} longer, and it launches as many: matrix products {matrix}, "
            "others {other} longer. A lower clock, another program on its GPU, or larger input.",
            time=time,
            matrix=Number(matrix, "fraction", digits=2),
            other=Number(non_matrix, "fraction", digits=2),
        )
    if matrix > DIFFERS:
        return Text(
            "Its matrix products take {matrix} longer ({time}), and its other kernels do not: a "
            "lower SM clock, or larger products.",
            matrix=Number(matrix, "fraction", digits=2),
            time=time,
        )
    return Text(
        "Its kernels other than matrix products take {time} longer: larger or longer input, or "
        "less memory bandwidth.",
        time=time,
    )


def roof_findings(rows: Sequence[CollectiveRow]) -> Iterator[Finding]:
    """Yield how far the collective with most transfer time is from what the links gave alone."""
    known = [row for row in rows if row.of_roof is not None]
    row = max(known, key=lambda r: (r.transfer_ns or 0.0) * (r.instances or 0), default=None)
    if row is None:
        return
    yield Finding(
        "collective_roof",
        Text(
            "{collective} of {size} reaches {rate}, {share} of the {roof} that were measured for "
            "it on these links with nothing beside.",
            collective=Name(row.name),
            size=Number(row.bytes, "B", digits=3),
            rate=Number(row.bus_bandwidth, "B/s", digits=3),
            share=Number(row.of_roof, "fraction", digits=2),
            roof=Number(row.roof, "B/s", digits=3),
        ),
        disproof=Text(
            "Kernels that run beside it take SMs and memory bandwidth from it; the roofs are those "
            "of prof run comm-roofs."
        ),
    )


def times_table(rows: Sequence[TimesRow]) -> Table[TimesRow]:
    """Return where the time of each GPU goes."""

    def share(heading: Text, column: str) -> Column[TimesRow]:
        def cell(row: TimesRow) -> Value | None:
            value = getattr(row, column)
            if value is None or not row.wall_ns:
                return None
            return Number(value / row.wall_ns, "fraction", row.number(column).refs, digits=3)

        return Column(heading, cell)

    skewed, several = has_skewed_starts(rows), has_several(rows)
    return Table(
        "rank-times",
        Text("Where the time of each GPU goes"),
        [
            Column(Text("Rank"), lambda row: row.rank),
            Column(Text("GPU"), lambda row: row.device),
            Column(Text("Wall time"), lambda row: row.number("wall_ns")),
            share(Text("Compute"), "compute_ns"),
            *((share(Text("First wait"), "first_wait_ns"),) if skewed else ()),
            share(Text("Waiting for ranks"), "later_wait_ns" if skewed else "wait_ns"),
            share(Text("Transfer"), "transfer_ns"),
            share(Text("Copies and sets"), "copies_ns"),
            share(Text("Idle"), "idle_ns"),
            Column(Text("Collectives hidden"), lambda row: row.number("overlapped_ns")),
            Column(Text("Late by"), lambda row: row.number("late_ns")),
            Column(Text("Last in"), lambda row: row.last),
            Column(Text("Clock within"), _clock),
        ],
        rows,
        lead=Text(
            "Compute: a kernel other than a collective runs. Waiting: what collectives take longer "
            "than on the GPU where they are shortest, which arrived last; first wait: that in the "
            "first collective of each group, to which ranks come as their captures began; "
            "transfer: the rest of them. Late by: how much longer the others wait in collectives "
            "with nothing else to do than the GPU itself, but for the first one; of the latest GPU "
            "also what the others' kernels are slower beside waiting collectives. Clock within: "
            "what 95 % of the ends of collectives differ by at most after alignment of the clocks, "
            "the uncertainty of times across ranks."
        ),
        refs=lambda row: row.number("wall_ns").refs,
        called=lambda row: rank_name(row.rank, row.device, several=several),
    )


def has_several(rows: Sequence[Any]) -> bool:
    """Tell whether a rank has several GPUs, each with a row."""
    return len({row.rank for row in rows}) < len(rows)


def rank_name(rank: int, device: int | None, *, several: bool) -> Text:
    """Return what sentences call a GPU of a job: its rank, of several GPUs which."""
    if several and device is not None:
        return Text("rank {rank}, GPU {device}", rank=rank, device=device)
    return Text("rank {rank}", rank=rank)


def _clock(row: TimesRow) -> Value:
    return Text("reference") if row.clock == "reference" else row.number("clock_residual_ns")


def collective_table(rows: Sequence[CollectiveRow]) -> Table[CollectiveRow]:
    """Return the collectives of the job, most waiting first."""

    def by_payload(value: float | None, unit: str) -> Number:
        return Number(value, unit, missing="no payload of NCCL tells the bytes", digits=3)

    roofed: tuple[Column[CollectiveRow], ...] = (
        Column(Text("Measured roof"), lambda row: Number(row.roof, "B/s", digits=3)),
        Column(Text("Of the roof"), lambda row: Number(row.of_roof, "fraction", digits=2)),
    )
    return Table(
        "rank-collectives",
        Text("Collectives over the ranks"),
        [
            Column(Text("Collective"), lambda row: Name(row.name)),
            Column(Text("GPUs"), lambda row: row.gpus),
            Column(Text("Instances"), lambda row: row.instances),
            Column(Text("Waiting, all GPUs"), lambda row: Number(row.wait_ns, "ns", digits=3)),
            Column(Text("Transfer, median"), lambda row: Number(row.transfer_ns, "ns", digits=3)),
            Column(Text("Bytes"), lambda row: by_payload(row.bytes, "B")),
            Column(Text("Bus bandwidth"), lambda row: by_payload(row.bus_bandwidth, "B/s")),
            *(roofed if any(row.roof for row in rows) else ()),
        ],
        rows[:MOST],
        note=Text(
            "Matched by their order on each rank; collectives that some ranks have more often are "
            "left out. Bytes are known where the trace holds NCCL's payloads; bus bandwidth as "
            "nccl-tests has it, from the arrival of the last rank."
        ),
    )


def collective_chart(rows: Sequence[CollectiveRow], roofs: Sequence[LinkRoof]) -> LineFigure | None:
    """Draw what the collectives reach by size, over the roofs of the links.

    None where NCCL's payloads tell of fewer than two.
    """
    known = [row for row in rows if row.bytes and row.bus_bandwidth and row.operation]
    if len(known) < 2:
        return None
    series: list[Series] = []
    for operation in dict.fromkeys(row.operation for row in known):
        points = [row for row in known if row.operation == operation]
        series.append(_rates(operation, operation, points, "points"))
        for gpus in sorted({row.gpus or 0 for row in points}):
            curve = [r for r in roofs if (r.operation, r.gpus) == (operation, gpus)]
            if curve:
                label = Text("{operation}, {n} GPUs, links alone", operation=operation, n=gpus)
                series.append(_rates(label, operation, curve, "line"))
    return LineFigure(
        name="rank-collectives",
        title="Bus bandwidth of the collectives by message size",
        alt="Points: bus bandwidth of each collective of the job by the size of its message",
        x_label="Message",
        y_label="Bus bandwidth (GB/s)",
        series=tuple(series),
        x_log=True,
        x_bytes=True,
        subtitle="From the arrival of the last rank, as nccl-tests counts bytes. Lines: prof run "
        "comm-roofs.",
    )


def _rates(
    label: Words,
    operation: str,
    rows: Sequence[CollectiveRow] | Sequence[LinkRoof],
    style: Literal["line", "points"],
) -> Series:
    sizes = tuple(row.bytes or 0.0 for row in rows)
    rates = tuple((row.bus_bandwidth or 0.0) * GIGA for row in rows)
    return Series(label, sizes, rates, style=style, group=operation)
