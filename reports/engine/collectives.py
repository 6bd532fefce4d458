"""Section about collectives: their bytes, ranks, waiting and bandwidth, as NCCL says them."""

from __future__ import annotations

import pandas as pd

from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.reports.bench.models import BenchTable, Section
from nsight_prof.reports.formats import NA, byte_rate, count, data_size, duration, share
from nsight_prof.reports.load import Run

KEY, TITLE = "collectives", "Collectives"
SHOWN = 24
"""Lines of the table; what is beyond is in table `collectives`."""
BY = ["operation", "reduction", "dtype", "message_bytes", "ranks", "communicator"]
INTRO = (
    "What NCCL says in the payloads of its NVTX ranges, with the time of the kernels that it "
    "launched. A call begins when the last rank arrives, which the rank with the shortest kernel "
    "did: what the others need longer is waiting."
)
NOTE = (
    "Bytes and bandwidths are those of nccl-tests: the whole message of a rank over the time from "
    "the arrival of the last rank, and times 2(n-1)/n (all-reduce), (n-1)/n (all-gather, "
    "reduce-scatter, all-to-all, gather, scatter) or 1 for the bus. Times are means of a call on a "
    "GPU. Table collectives has each call on each rank."
)
COUNTED = (
    "The number of ranks is that of the processes in this trace: NCCL names it where a "
    "communicator is made, which was before the capture. If more ranks ran elsewhere, bandwidths "
    "and sizes are others (capture: all holds it)."
)
PARTIAL = (
    "Bandwidth is not available where not all ranks are in the trace, or calls of a group differ: "
    "how long a rank waits for the others is not known then."
)


def section(run: Run) -> Section | None:
    """Return the section; None where no collective of NCCL ran."""
    frame = run.collectives
    if frame.empty:
        reasons = run.gaps.loc[run.gaps["table"] == KEY, "reason"].dropna().astype(str)
        if reasons.empty:
            return None
        said = f"Bytes, ranks and bandwidth are not available: {reasons.iloc[0]}."
        return Section(KEY, TITLE, said)
    groups = sorted(
        (_group(part) for _, part in frame.groupby(BY, dropna=False)),
        key=lambda row: -number(row["gpu_time_ns"]),
    )
    notes = [NOTE]
    if (frame["ranks_known_by"] == "trace").any():
        notes.append(COUNTED)
    if frame["transfer_ns"].isna().any():
        notes.append(PARTIAL)
    if len(groups) > SHOWN:
        notes.append(f"{count(len(groups) - SHOWN)} more sizes and operations took less time.")
    return Section(
        KEY, TITLE, INTRO, tables=(_table(groups[:SHOWN], notes),), numbers={"calls": groups}
    )


def _group(part: pd.DataFrame) -> dict[str, float | int | str | None]:
    """Add up calls that are alike: ratios are sums over sums."""
    first: Row = records(part.head(1))[0]
    rated = part[part["transfer_ns"].notna() & part["bytes"].notna()]
    transfer = number(rated["transfer_ns"].sum())
    rate = number(rated["bytes"].sum()) / transfer * 1e9 if transfer > 0 else float("nan")
    factor = number((rated["bus_bandwidth"] / rated["algorithm_bandwidth"]).mean())
    waited, spent = number(rated["wait_ns"].sum()), number(rated["duration_ns"].sum())
    return {
        "operation": text(first["operation"]),
        "reduction": text(first["reduction"]),
        "dtype": text(first["dtype"]),
        "communicator": text(first["communicator"]),
        "ranks": _whole(first["ranks"]),
        "ranks_known_by": text(first["ranks_known_by"]),
        "message_bytes": known(first["message_bytes"]),
        "bytes": known(first["bytes"]),
        "calls": int(part.groupby("communicator", dropna=False)["sequence"].nunique().sum()),
        "rows": len(part),
        "gpu_time_ns": known(part["duration_ns"].sum()),
        "mean_ns": known(part["duration_ns"].mean()),
        "mean_transfer_ns": known(rated["transfer_ns"].mean()) if len(rated) else None,
        "waiting": known(waited / spent) if spent > 0 else None,
        "algorithm_bandwidth": known(rate),
        "bus_bandwidth": known(rate * factor),
    }


def _whole(value: object) -> int | None:
    found = known(value)
    return None if found is None else int(found)


def _table(groups: list[dict[str, float | int | str | None]], notes: list[str]) -> BenchTable:
    several = len({row["communicator"] for row in groups}) > 1
    rows = tuple(
        (
            _name(row),
            *((str(row["communicator"]) or NA,) if several else ()),
            data_size(row["bytes"]) if row["bytes"] is not None else NA,
            count(row["ranks"]),
            count(row["calls"]),
            duration(row["mean_ns"]),
            share(row["waiting"]),
            duration(row["mean_transfer_ns"]),
            byte_rate(row["algorithm_bandwidth"]),
            byte_rate(row["bus_bandwidth"]),
        )
        for row in groups
    )
    heads = ("bytes", "ranks", "calls", "time", "of it waiting", "from the last arrival")
    bandwidths = ("algorithm bandwidth", "bus bandwidth")
    left = ("collective", "communicator") if several else ("collective",)
    title = "Bytes and bandwidth by operation and size"
    return BenchTable(title, (*left, *heads, *bandwidths), rows, " ".join(notes), left)


def _name(row: dict[str, float | int | str | None]) -> str:
    said = [str(row[key]) for key in ("reduction", "dtype") if row[key]]
    return ", ".join([str(row["operation"]), *said])
