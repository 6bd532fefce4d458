"""Turns the order of launches into findings: rows of tiny kernels, and exposed communication."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.reports.analysis.stages import wall_time
from nsight_prof.reports.analysis.timeline import Exposed, Short, Tiny, exposed, short_kernels
from nsight_prof.reports.evidence import Evidence
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.formats import count, counted, duration, listed, share
from nsight_prof.reports.kernel_facts import blocks
from nsight_prof.reports.kernel_judge import Floor, shortest_launch
from nsight_prof.reports.load import Run
from nsight_prof.reports.page import Number
from nsight_prof.reports.profiled import kernel_time, sm_count
from nsight_prof.reports.program_rules import finding, limit, source_of

NAMED = 4
"""Kernels that a sentence names."""


def small_kernels(run: Run, frame: pd.DataFrame, launch_bound: set[str]) -> list[Finding]:
    """Return a finding for each stage with rows of tiny kernels, unless launches hold it up.

    A kernel takes at least as long as the shortest launch of the trace, whatever it does: of each
    row, all but one of these are saved, with the gaps between queued kernels. Launches that repeat
    one kernel and leave SMs empty save what they would take side by side. Of several GPUs the mean.
    """
    rule = "small_kernels"
    wall, floor = wall_time(run)[0], shortest_launch(run)
    tiny = Tiny(
        short=limit(rule, "short"),
        least=int(limit(rule, "run")),
        gap=limit(rule, "queue_gap"),
        floor=floor.ns,
        fill=_fill(run),
    )
    rows = short_kernels(frame, tiny)
    found = [
        _small(run, row, floor, wall)
        for row in rows
        if not launch_bound & {row.stage, "(all)"} and wall > 0
    ]
    return [f for f in found if f.gain_program >= limit(rule, "share")]


def _fill(run: Run) -> dict[str, float]:
    """Return the part of the SMs that the blocks of a kernel fill, by kernel_id, where known."""
    sms = sm_count(run)
    parts = (
        (text(row["kernel_id"]), blocks(text(row["grid"])) / sms) for row in records(run.kernels)
    )
    return {key: min(1.0, part) for key, part in parts if part > 0}


def _small(run: Run, row: Short, floor: Floor, wall_ns: float) -> Finding:
    rule = "small_kernels"
    part = row.total_ns / kernel_time(run)
    starts = row.launches - row.runs - row.batched
    saved = min(row.batched_ns + floor.ns * starts, row.total_ns) + row.queued_ns
    # GPUs work at the same time: what is saved on each is saved once.
    saved = min(saved / row.gpus, wall_ns)
    where = f" in {row.stage}" if row.stage else ""
    where += f" on {row.gpus} GPUs" if row.gpus > 1 else ""
    words = (
        f"{count(row.launches)} kernels of {duration(row.total_ns / row.launches)} on average run "
        f"one after another{where} ({duration(row.total_ns)}, {share(part)} of the GPU time), in "
        f"rows of {count(round(row.launches / row.runs))} on average. {_costs(row, floor)} One "
        f"kernel for each row would save about {share(saved / wall_ns)} of the wall time "
        f"({duration(saved)})."
    )
    return finding(
        rule,
        stage=row.stage,
        title=f"{count(row.launches)} tiny kernels run one after another{where}",
        sentence=words,
        kernel_ids=row.kernel_ids,
        share=part,
        evidence=_small_evidence(row, floor, saved, wall_ns),
        gain_program=saved / wall_ns,
        gain_ns=saved,
        gain_of="wall time",
        confidence="medium",
    )


def _costs(row: Short, floor: Floor) -> str:
    """Say what the row costs that one kernel would not."""
    if 2 * row.batched > row.launches:
        return (
            f"{count(row.batched)} of them repeat the kernel before them, which leaves SMs empty: "
            "if none needs the result of another, they can run side by side, as one batched call."
        )
    shortest = "kernel of the trace" if floor.kernel else "kernel of recorded runs"
    return (
        f"The shortest {shortest} takes {duration(floor.ns)}, so much of this is the cost of "
        "starting and ending kernels."
    )


def _small_evidence(row: Short, floor: Floor, saved: float, wall_ns: float) -> tuple[Evidence, ...]:
    rule, starts = "small_kernels", ("launches.start_ns",)
    batch = [
        Evidence("of these, repeats of one kernel that leaves SMs empty", row.batched, "", "",
                 "nsys", ("launches.kernel_id", "kernels.grid", "gpus.sm_count")),
        Evidence("saved by them side by side", row.batched_ns, "ns", "",
                 "their time - that of the longest, or of SMs full of their blocks",
                 ("launches.duration_ns", "kernels.grid", "gpus.sm_count")),
    ]  # fmt: skip
    return (
        Evidence("mean kernel", row.total_ns / row.launches, "ns",
                 f"under {duration(limit(rule, 'short'))}", source_of(rule, "short"),
                 ("launches.duration_ns",)),
        Evidence("kernels in a row", row.launches / row.runs, "",
                 f"{limit(rule, 'run'):.0f} or more", source_of(rule, "run"), starts),
        Evidence("kernels in these rows", row.launches, "", "", "nsys", starts),
        Evidence("rows", row.runs, "", "", "nsys", starts),
        *(batch if row.batched else ()),
        floor.evidence(),
        Evidence("time between them", row.queued_ns, "ns",
                 f"{duration(limit(rule, 'queue_gap'))} per gap at most",
                 source_of(rule, "queue_gap"), (*starts, "launches.duration_ns")),
        Evidence("could save", saved, "ns", "",
                 f"({'saved side by side + ' if row.batched else ''}shortest launch x (kernels - "
                 f"rows{' - repeats' if row.batched else ''}) + time between them) / GPUs"),
        Evidence("GPUs that run them", row.gpus, "", "", "nsys", ("launches.device",)),
        Evidence("wall time of the program under nsys", wall_ns, "ns", "", "nsys",
                 ("stages.wall_ns",)),
    )  # fmt: skip


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
    waited = _waited(run, len(rows))
    late = (
        f"{share(waited[0].value.share_of(Number(spent, 'ns')).value)} of it is waiting for a GPU "
        "that comes late."
        if waited
        else "Part of it may be waiting for a GPU that comes late."
    )
    return finding(
        rule,
        title=f"Communication between GPUs runs alone for {part} of the wall time",
        sentence=f"Communication takes {duration(spent)}{each} ({listed(names)}; {launches}), and "
        f"for {duration(alone)} of it no other kernel runs there: {part} of the wall time, which "
        f"is what overlapping it would save at most. {late}",
        kernel_ids=tuple(dict.fromkeys(ours["kernel_id"].astype(str)))[:5],
        share=number(ours["duration_ns"].sum()) / kernel_time(run),
        evidence=(
            Evidence("time in which communication runs alone", alone, "ns",
                     f"{share(limit(rule, 'share'))} of the wall time", source_of(rule, "share"),
                     ("launches.start_ns", "launches.duration_ns")),
            Evidence("communication", spent, "ns", "", "nsys", ("launches.duration_ns",)),
            Evidence("overlapped with other kernels", 100 * (1 - alone / spent), "%", "", "nsys",
                     ("launches.start_ns", "launches.duration_ns")),
            *waited,
            Evidence("wall time of the program under nsys", wall, "ns", "", "nsys",
                     ("stages.wall_ns",)),
        ),
        gain_program=alone / wall,
        gain_ns=alone,
        gain_of="wall time",
        confidence="medium",
    )  # fmt: skip


def _waited(run: Run, gpus: int) -> list[Evidence]:
    """Return for how long collectives waited on each GPU, where ranks can be compared."""
    calls = run.collectives["wait_ns"].dropna().astype(float)
    if len(calls) and len(calls) == len(run.collectives):
        return [_waiting(calls, gpus, "collectives.wait_ns")]
    known = run.engine_steps["collective_wait_ns"].dropna().astype(float)
    if known.empty:
        return []
    return [_waiting(known, gpus, "engine_steps.collective_wait_ns")]


def _waiting(times: pd.Series[float], gpus: int, column: str) -> Evidence:
    source = "nsys: what a collective takes longer than on the GPU that takes least"
    value = float(times.sum()) / gpus
    return Evidence("of it waiting for another GPU", value, "ns", "", source, (column,))
