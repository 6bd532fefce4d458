"""Turns the order of launches into findings: tiny kernels, chains to fuse, copies, collectives."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from reports.cells import number, records, text
from reports.evidence import Evidence, Finding
from reports.formats import count, counted, data_size, duration, listed, share
from reports.load import Run
from reports.profiled import kernel_time
from reports.program_rules import finding, limit, listing, source_of
from reports.stage_times import wall_time
from reports.timeline import Exposed, Short, chains, exposed, short_kernels

CHAINS = 3
"""Chains that get a finding of their own."""
NAMED = 4
"""Kernels that a sentence names."""


def small_kernels(run: Run, frame: pd.DataFrame, launch_bound: set[str]) -> list[Finding]:
    """Return a finding for each stage with rows of tiny kernels, unless launches hold it up.

    A kernel takes at least as long as the shortest launch of the trace, whatever it does: of each
    row, all but one of these are saved, with the gaps between queued kernels.
    """
    rule = "small_kernels"
    wall, floor = wall_time(run)[0], number(run.kernels["min_ns"].min())
    rows = short_kernels(
        frame, limit(rule, "short"), int(limit(rule, "run")), limit(rule, "queue_gap")
    )
    found = [
        _small(run, row, floor, wall)
        for row in rows
        if not launch_bound & {row.stage, "(all)"} and wall > 0
    ]
    return [f for f in found if f.gain_program >= limit(rule, "share")]


def _small(run: Run, row: Short, floor_ns: float, wall_ns: float) -> Finding:
    rule = "small_kernels"
    part = row.total_ns / kernel_time(run)
    saved = min(floor_ns * (row.launches - row.runs), row.total_ns) + row.queued_ns
    where = f" in {row.stage}" if row.stage else ""
    each = row.total_ns / row.launches
    words = (
        f"{count(row.launches)} kernels of {duration(each)} on average run one after another{where}"
        f" ({duration(row.total_ns)}, {share(part)} of the GPU time), in rows of "
        f"{count(round(row.launches / row.runs))} on average. The shortest kernel of the trace "
        f"takes {duration(floor_ns)}, so much of this is the cost of starting and ending kernels. "
        f"Fused they would save at least {share(saved / wall_ns)} of the wall time "
        f"({duration(saved)})."
    )
    return finding(
        rule,
        stage=row.stage,
        title=f"{count(row.launches)} tiny kernels run one after another{where}",
        sentence=words,
        kernel_ids=row.kernel_ids,
        share=part,
        evidence=(
            Evidence("mean kernel", each, "ns", f"under {duration(limit(rule, 'short'))}",
                     source_of(rule, "short")),
            Evidence("kernels in a row", row.launches / row.runs, "",
                     f"{limit(rule, 'run'):.0f} or more", source_of(rule, "run")),
            Evidence("shortest kernel", floor_ns, "ns", "", "nsys"),
            Evidence("time between them", row.queued_ns, "ns",
                     f"{duration(limit(rule, 'queue_gap'))} a gap at most",
                     source_of(rule, "queue_gap")),
        ),
        gain_program=saved / wall_ns,
        gain_ns=saved,
        gain_of="wall time",
        confidence="medium",
    )  # fmt: skip


def elementwise_chains(run: Run, frame: pd.DataFrame) -> list[Finding]:
    """Return findings for chains of elementwise kernels, the largest gain first.

    Fused, what one kernel writes for the next is neither written nor read; the fused kernel takes
    at least as long as the longest of the chain does. Tiny kernels are left to `small_kernels`.
    """
    open_ones = frame["category"].isin(listing("fusible"))
    means = run.kernels["mean_ns"].astype(float) >= limit("small_kernels", "short")
    open_ones &= frame["kernel_id"].isin(run.kernels.loc[means, "kernel_id"])
    done = frame["library"].isin(listing("fused_libraries"))
    moved = _moved(run)
    grids = dict(zip(run.kernels["kernel_id"], run.kernels["grid"], strict=True))

    def flows(first: str, second: str) -> bool:
        if first == second:
            return False  # a loop over items rather than a chain
        if first in moved and second in moved:
            stored, loaded = moved[first][1], moved[second][0]
            return 0 < stored <= limit("elementwise_chain", "flow") * loaded
        return text(grids.get(first)) == text(grids.get(second)) != ""

    table = chains(frame, (open_ones & ~done).to_numpy(dtype=np.bool_), flows)
    found = [_chain(run, row, moved) for row in records(table.head(CHAINS))]
    return [f for f in found if f.gain_program >= limit("elementwise_chain", "gain")]


def _moved(run: Run) -> dict[str, tuple[float, float]]:
    """Return bytes loaded and stored by the threads of each kernel whose counters tell."""
    rows = {
        text(r["kernel_id"]): (number(r["global_load_bytes"]), number(r["global_store_bytes"]))
        for r in records(run.counters)
    }
    return {key: pair for key, pair in rows.items() if not math.isnan(sum(pair))}


def _chain(run: Run, row: dict[str, object], moved: dict[str, tuple[float, float]]) -> Finding:
    ids = tuple(str(key) for key in row["kernels"])  # type: ignore[attr-defined]
    total, times = number(row["total_ns"]), number(row["times"])
    saved, seen, how = number(row["saved_ns"]), [], ""
    known = all(key in moved for key in ids)
    if known:
        whole = sum(sum(moved[key]) for key in ids)
        passed = 2 * sum(moved[key][1] for key in ids[:-1])
        saved = min(saved, total * passed / whole) if whole else saved
        how = f" {data_size(passed)} of the {data_size(whole)} that they move pass between them."
        seen = [Evidence("bytes passed on through memory", passed, "B", "", "ncu")]
    part = total / kernel_time(run)
    gained = saved / kernel_time(run)
    names = dict(zip(run.kernels["kernel_id"], run.kernels["short_name"], strict=True))
    shown = [str(names.get(key, key)) for key in ids]
    more = [f"{len(shown) - NAMED} more"] if len(shown) > NAMED else []
    words = (
        f"{len(ids)} elementwise kernels follow on each other {counted(times, 'time')}: "
        f"{listed([*shown[:NAMED], *more])}. Together they take {share(part)} of the GPU time "
        f"({duration(total)}).{how} As one kernel they would save at most {share(gained)} of the "
        f"GPU time ({duration(saved)})."
    )
    return finding(
        "elementwise_chain",
        title=f"{len(ids)} elementwise kernels in a row pass data through memory: {shown[0]}, …",
        headline=f"{len(ids)} elementwise kernels in a row take {share(part)} of the GPU time",
        sentence=words,
        kernel_ids=tuple(dict.fromkeys(ids)),
        share=part,
        evidence=(
            Evidence("kernels in the chain", len(ids), "", "2 or more", "nsys"),
            Evidence("time of the chains", total, "ns", "", "nsys"),
            *seen,
        ),
        gain_kernel=saved / total,
        gain_program=gained,
        gain_ns=saved,
        confidence="medium" if known else "low",
    )


def casts_and_copies(run: Run) -> list[Finding]:
    """Return a finding for kernels of libraries that only move or convert data.

    What the program's own kernels move is its work.
    """
    moving = run.kernels["category"].isin(listing("moves_only"))
    rows = run.kernels[moving & ~run.kernels["library"].fillna("").isin(("", "other"))]
    total, spent = kernel_time(run), number(rows["total_ns"].sum())
    if rows.empty or spent / total < limit("casts_and_copies", "share"):
        return []
    part = spent / total
    sums = rows.groupby("short_name", sort=False)["share"].sum().sort_values(ascending=False)
    parts = [f"{name} {share(value)}" for name, value in sums.head(NAMED).items()]
    calls = counted(number(rows["calls"].sum()), "launch")
    return [
        finding(
            "casts_and_copies",
            title=f"Copies and casts inside the GPU take {share(part)} of the GPU time",
            sentence=f"Kernels that only copy, cast or rearrange data take {share(part)} of the "
            f"GPU time ({duration(spent)} in {calls}): {listed(parts)}. Whatever of this the "
            "program does not need would save its whole time.",
            kernel_ids=tuple(text(k) for k in rows.head(5)["kernel_id"]),
            share=part,
            evidence=(
                Evidence("time of copies and casts", spent, "ns",
                         f"{share(limit('casts_and_copies', 'share'))} of the GPU time",
                         source_of("casts_and_copies", "share")),
                Evidence("kernels", len(rows), "", "", "nsys"),
            ),
            gain_kernel=1.0,
            gain_program=part,
            gain_ns=spent,
            confidence="medium",
        )
    ]  # fmt: skip


def collectives(run: Run, frame: pd.DataFrame) -> list[Finding]:
    """Return a finding where communication runs alone for long."""
    rule = "collectives_exposed"
    wall = wall_time(run)[0]
    rows = exposed(frame, (frame["category"] == "collective").to_numpy(dtype=np.bool_))
    if not rows or not wall > 0:
        return []
    alone = sum(r.exposed_ns for r in rows) / len(rows)
    if alone / wall < limit(rule, "share"):
        return []
    return [_collectives(run, frame, rows, alone, wall)]


def _collectives(
    run: Run, frame: pd.DataFrame, rows: list[Exposed], alone: float, wall: float
) -> Finding:
    rule = "collectives_exposed"
    spent = sum(r.total_ns for r in rows) / len(rows)
    ours = frame[frame["category"] == "collective"]
    kinds = ours.groupby("short_name")["duration_ns"].sum().sort_values(ascending=False)
    names = [str(name) for name in kinds.index[:NAMED]]
    each = " of each GPU" if len(rows) > 1 else ""
    launches = counted(sum(r.launches for r in rows), "launch")
    part = share(alone / wall)
    return finding(
        rule,
        title=f"Communication between GPUs runs alone for {part} of the wall time",
        sentence=f"Communication takes {duration(spent)}{each} ({listed(names)}; {launches}), and "
        f"for {duration(alone)} of it no other kernel runs there: {part} of the wall time, which "
        "is what overlapping it would save at most. Part of it may be waiting for a GPU that "
        "comes late.",
        kernel_ids=tuple(dict.fromkeys(ours["kernel_id"].astype(str)))[:5],
        share=number(ours["duration_ns"].sum()) / kernel_time(run),
        evidence=(
            Evidence("time in which communication runs alone", alone, "ns",
                     f"{share(limit(rule, 'share'))} of the wall time", source_of(rule, "share")),
            Evidence("communication", spent, "ns", "", "nsys"),
            Evidence("overlapped with other kernels", 100 * (1 - alone / spent), "%", "", "nsys"),
        ),
        gain_program=alone / wall,
        gain_ns=alone,
        gain_of="wall time",
        confidence="medium",
    )  # fmt: skip
