"""Communication between GPUs in which no other kernel runs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.stages import program_time
from nsight_prof.reports.analysis.timeline import exposed, longest_kernels
from nsight_prof.reports.findings.gain import of_wall_time
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.rule import (
    LISTED,
    NAMED,
    Rule,
    Threshold,
    column,
    measured,
    names_of,
    wall_evidence,
)
from nsight_prof.reports.page import Evidence, Number, Text

COLLECTIVES_EXPOSED = Rule(
    key="collectives_exposed",
    question="Does communication between GPUs run alone?",
    requires="a trace with single launches of more than one GPU, or of one rank",
    thresholds={"share": Threshold(0.01, Text("prof: part of the wall time worth a finding"))},
    gain="the time in which communication runs alone, the mean of the GPUs.",
    action=Text(
        "Overlap it with computation (buckets of gradients, prefetching of shards, a stream of its "
        "own), send less (smaller types, fewer and larger messages), or divide the model otherwise."
    ),
    advice=Text("let the GPUs exchange data while they compute"),
    disproof=Text(
        "With the communication left out (each GPU on its own) the steps take as long, or its time "
        "is waiting for a GPU that comes late: then balance the work."
    ),
)


def collectives(run: Run, frame: pd.DataFrame) -> list[Finding]:
    """Return a finding where communication runs alone for long; of several GPUs the mean.

    Stages without another kernel, as a test of the links, have nothing that could overlap.
    """
    rule = COLLECTIVES_EXPOSED
    wall, mask = program_time(run)[0], frame["category"] == "collective"
    if not mask.any():
        return []
    mask &= frame["stage"].isin(frame.loc[~mask, "stage"].unique())
    gpus = exposed(frame, mask.to_numpy(dtype=np.bool_))
    if not gpus or not wall.value:
        return []
    both = (*column("launches", "start_ns"), *column("launches", "duration_ns"))
    alone = Number(sum(gpu.exposed_ns for gpu in gpus) / len(gpus), "ns", both)
    gain = alone.share_of(wall)
    if number(gain.value) < rule.limit("share"):
        return []
    total = Number(sum(gpu.total_ns for gpu in gpus) / len(gpus), "ns", both[1:])
    overlapped = 100 * (1 - number(alone.share_of(total).value))
    waiting = _waiting(run, len(gpus))
    launches = frame[mask]
    by_name = (
        launches.groupby("short_name", observed=True)["duration_ns"]
        .sum()
        .sort_values(ascending=False)
    )
    keys = dict(zip(launches["short_name"], launches["kernel_id"], strict=True))
    names = names_of([(keys[name], str(name)) for name in by_name.index[:NAMED]])
    late = Text("Part of it may be waiting for a GPU that comes late.")
    if waiting is not None:
        late = Text(
            "{part} of it is waiting for a GPU that comes late.", part=waiting.share_of(total)
        )
    return [
        rule.finding(
            title=Text(
                "Communication between GPUs runs alone for {part} of the wall time", part=gain
            ),
            verdict=Text(
                "Communication takes {total}{each} ({names}; {launches}); for {alone} of it no "
                "other kernel runs there. Overlapping it would save at most {gain} of the wall "
                "time. {late}",
                total=total,
                each=Text(" of each GPU") if len(gpus) > 1 else "",
                names=names,
                launches=Text("{n} launch", "{n} launches", n=sum(g.launches for g in gpus)),
                alone=alone,
                gain=gain,
                late=late,
            ),
            kernel_ids=longest_kernels(launches, LISTED),
            share=number(launches["duration_ns"].sum()) / kernel_time(run),
            evidence=(
                Evidence(
                    Text("time in which communication runs alone"),
                    alone,
                    Text("{limit} of the wall time", limit=rule.thresholds["share"].number),
                    rule.thresholds["share"].source,
                ),
                measured(Text("communication"), total),
                measured(Text("overlapped with other kernels"), Number(overlapped, "%", both)),
                measured(
                    Text("of it waiting for another GPU"),
                    waiting,
                    Text("nsys: what a collective takes longer than on the GPU that takes least"),
                )
                if waiting is not None
                else None,
                wall_evidence(wall),
            ),
            confidence="medium",
            **of_wall_time(alone, wall),
        )
    ]


def _waiting(run: Run, gpus: int) -> Number | None:
    """Return for how long collectives waited on each GPU, where ranks can be compared."""
    waits = run.collectives["wait_ns"].dropna().astype(float)
    if len(waits) and len(waits) == len(run.collectives):
        return Number(waits.sum() / gpus, "ns", column("collectives", "wait_ns"))
    waits = run.engine_steps["collective_wait_ns"].dropna().astype(float)
    if waits.empty:
        return None
    return Number(waits.sum() / gpus, "ns", column("engine_steps", "collective_wait_ns"))
