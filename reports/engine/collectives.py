"""Section about collectives: their bytes, ranks, waiting and bandwidth, as NCCL has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from nsight_prof.parsers.cells import Row, count, known, number, records, text
from nsight_prof.parsers.nsys.stages.work import ALL
from nsight_prof.parsers.roofs.comm import roof_at
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.stages import wall_time
from nsight_prof.reports.engine.contention import contention
from nsight_prof.reports.engine.step_costs import (
    StepCost,
    communication,
    cost_table,
    step_costs,
)
from nsight_prof.reports.page import (
    Block,
    Column,
    Finding,
    Number,
    Ref,
    Section,
    Table,
    Text,
    Verbatim,
)

KEY, TITLE = "collectives", Text("Collectives")
SHOWN = 24
"""Rows of the table; table `collectives` has all."""
OUTSIDE = 0.05
"""Part of the run from which on what is in no step is said."""
BY = ["operation", "reduction", "dtype", "message_bytes", "ranks", "communicator"]
INTRO = Text(
    "What NCCL has in the payloads of its NVTX ranges, with the time of the kernels that it "
    "launched. A call begins when the last rank arrives, which the rank with the shortest kernel "
    "did: what the others need longer is waiting."
)
NOTE = Text(
    "Bytes and bandwidths are those of nccl-tests: the message of a rank over the time from the "
    "arrival of the last rank, and times 2(n-1)/n (all-reduce), (n-1)/n (all-gather, "
    "reduce-scatter, all-to-all, gather, scatter) or 1 for the bus. Times are means per call and "
    "GPU. Table collectives has each call on each rank."
)
COUNTED = Text(
    "The number of ranks is that of the processes in this trace: NCCL names it where a "
    "communicator is made, which was before the capture. If more ranks ran elsewhere, bandwidths "
    "and sizes are others (capture: all includes it)."
)
PARTIAL = Text(
    "Bandwidth is not available where not all ranks are in the trace, or calls of a group differ: "
    "how long a rank waits for the others is not known then."
)


def section(run: Run) -> Section | None:
    """Return the section; None where no collective ran."""
    costs, (calls, groups) = step_costs(run.rank_steps), _calls(run)
    if not costs and not calls:
        return None
    numbers = {
        **({"steps": [asdict(cost) for cost in costs]} if costs else {}),
        **({"calls": groups} if groups else {}),
    }
    return Section(KEY, TITLE, (*_steps(run, costs), *calls), numbers=numbers)


def _steps(run: Run, costs: Sequence[StepCost]) -> tuple[Finding | Table[StepCost], ...]:
    """Return what communication costs a step on several GPUs, where the program has steps."""
    if not costs:
        return ()
    instances = run.stage_instances
    often = instances.value_counts(["gpu", "stage"]) == max(cost.steps for cost in costs)
    stages = often[often].index.get_level_values("stage")
    order = instances[instances["stage"].isin(stages)].sort_values("gpu_start_ns")["stage"]
    names = [*map(str, order.unique())]
    found = communication(costs, names, _outside(run, costs), contention(run))
    # What to do about much of it is a finding about the whole program.
    return (*(replace(finding, action=None) for finding in found), cost_table(costs, SHOWN))


def _outside(run: Run, costs: Sequence[StepCost]) -> Text | str:
    """Say what of the run is in no step, as a test of the links, where that is much."""
    wall = wall_time(run)[0]
    inside = sum(cost.steps * cost.wall_ns for cost in costs) / len(costs)
    if not wall - inside >= OUTSIDE * wall:
        return ""
    refs = (Ref("rank_steps", "", "wall_ns"), Ref("stages", ALL, "wall_ns"))
    return Text(
        " Outside of the steps lie {time} of the run ({share}): shares of the run include them.",
        time=Number(wall - inside, "ns", refs, digits=3),
        share=Number(1 - inside / wall, "fraction", refs, digits=2),
    )


def _calls(run: Run) -> tuple[tuple[Block, ...], list[dict[str, Any]]]:
    """Return what is said of calls of NCCL by size, and their numbers; or why it is not known."""
    frame = run.collectives
    if frame.empty:
        reasons = run.gaps.loc[run.gaps["table"] == KEY, "reason"].dropna().astype(str)
        return tuple(
            Text("Bytes, ranks and bandwidth are not available: {why}.", why=Verbatim(reason))
            for reason in reasons[:1]
        ), []
    groups = sorted(
        (_group(rows, run.comm_roofs) for _, rows in frame.groupby(BY, dropna=False)),
        key=lambda row: -number(row["gpu_time_ns"]),
    )
    notes = [COUNTED] if (frame["ranks_known_by"] == "trace").any() else []
    notes += [PARTIAL] if frame["transfer_ns"].isna().any() else []
    if (rest := len(groups) - SHOWN) > 0:
        notes.append(Text("More sizes and operations that took less time: {n}.", n=rest))
    return (INTRO, _table(groups[:SHOWN]), *notes), groups


def _group(rows: pd.DataFrame, roofs: pd.DataFrame) -> dict[str, Any]:
    """Add up calls that are alike: ratios are sums over sums; `roofs` is table `comm_roofs`."""
    first: Row = records(rows.head(1))[0]
    rated = rows[rows["transfer_ns"].notna() & rows["bytes"].notna()]
    transfer = number(rated["transfer_ns"].sum())
    rate = number(rated["bytes"].sum()) / transfer * 1e9 if transfer > 0 else float("nan")
    factor = number((rated["bus_bandwidth"] / rated["algorithm_bandwidth"]).mean())
    waiting, time = number(rated["wait_ns"].sum()), number(rated["duration_ns"].sum())
    roof = roof_at(roofs, text(first["operation"]), count(first["ranks"]), known(first["bytes"]))
    names = ("operation", "reduction", "dtype", "communicator", "ranks_known_by")
    return {name: text(first[name]) for name in names} | {
        "ranks": count(first["ranks"]),
        "message_bytes": known(first["message_bytes"]),
        "bytes": known(first["bytes"]),
        "calls": int(rows.groupby("communicator", dropna=False)["sequence"].nunique().sum()),
        "rows": len(rows),
        "gpu_time_ns": known(rows["duration_ns"].sum()),
        "mean_ns": known(rows["duration_ns"].mean()),
        "mean_transfer_ns": known(rated["transfer_ns"].mean()) if len(rated) else None,
        "waiting": known(waiting / time) if time > 0 else None,
        "algorithm_bandwidth": known(rate),
        "bus_bandwidth": known(rate * factor),
        **({"roof": roof, "of_roof": known(rate * factor / roof)} if roof else {}),
    }


def _table(groups: list[dict[str, Any]]) -> Table[dict[str, Any]]:
    def measured(heading: Text, key: str, unit: str) -> Column[dict[str, Any]]:
        return Column(heading, lambda row: Number(row.get(key), unit))

    def name(row: dict[str, Any]) -> str:
        return ", ".join(filter(None, (row["operation"], row["reduction"], row["dtype"])))

    communicator: Column[dict[str, Any]] = Column(
        Text("Communicator"), lambda row: row["communicator"] or None
    )
    roofed = (
        measured(Text("Measured roof"), "roof", "B/s"),
        measured(Text("Of the roof"), "of_roof", "fraction"),
    )
    several = len({row["communicator"] for row in groups}) > 1
    return Table(
        "collectives",
        Text("Bytes and bandwidth by operation and size"),
        [
            Column(Text("Collective"), name),
            *([communicator] if several else []),
            measured(Text("Bytes"), "bytes", "B"),
            Column(Text("Ranks"), lambda row: row["ranks"]),
            Column(Text("Calls"), lambda row: row["calls"]),
            measured(Text("Time"), "mean_ns", "ns"),
            measured(Text("Of it waiting"), "waiting", "fraction"),
            measured(Text("From the last arrival"), "mean_transfer_ns", "ns"),
            measured(Text("Algorithm bandwidth"), "algorithm_bandwidth", "B/s"),
            measured(Text("Bus bandwidth"), "bus_bandwidth", "B/s"),
            *(roofed if any("roof" in row for row in groups) else ()),
        ],
        groups,
        note=NOTE,
        refs=lambda row: [Ref("collectives", f"{name(row)} {row['bytes']}")],
    )
