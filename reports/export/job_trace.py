"""Writes one timeline of several ranks of a job, whose clocks collectives align."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.build.rank_tables import RANK_TIMES
from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.ranks.clocks import Array, Clock
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.reports.export.gpu_part import as_recorded
from nsight_prof.reports.export.trace_file import Exported, Member, export_members
from nsight_prof.reports.page.formats import duration

REFERENCE = "reference"


def export_ranks(job: RunDir, ranks: Sequence[int], path: Path) -> Exported:
    """Write the timeline of `ranks` to `path`, by the clock of the job's first rank.

    The tables of the job are there already. Notes say how exactly times of two ranks compare, and
    which ranks are left out because nothing aligns their clocks.

    Raises:
        UsageError: the job has no such rank, or nothing aligns the clock of any.
        StepFailed: the file cannot be written.
    """
    manifest = read_manifest(job)
    there = {record.rank for record in manifest.ranks if not record.reason}
    if unknown := sorted(set(ranks) - there):
        raise UsageError(
            f"{job.path} has no rank {unknown[0]}",
            f"it has the ranks {', '.join(map(str, sorted(there)[:16]))}",
        )
    rows = {int(row["rank"]): row for row in reversed(records(tables.read(job.tables, RANK_TIMES)))}
    members, notes = [], []
    for rank in sorted(set(ranks)):
        row = rows.get(rank)
        is_aligned = row is not None and known(row["clock_offset_ns"]) is not None
        if row is None or not (is_aligned or text(row["clock"]) == REFERENCE):
            notes.append(f"rank {rank} is left out: no collective aligns its clock with the others")
            continue
        clock = as_recorded
        if is_aligned:
            clock = partial(_on_reference, _clock(row))
            residual = known(row["clock_residual_ns"])
            notes.append(
                f"times of rank {rank} are by the clock of its host, within about 1 ms"
                if residual is None
                else f"times of rank {rank} are within {duration(residual)} of the others (95 %)"
            )
        members.append(Member(load_run(job.rank(rank).path), f"rank {rank}", clock))
    if not members:
        raise UsageError(
            f"{job.path}: no collective aligns the clocks of these ranks",
            "export one rank alone: prof export RUN/ranks/0000 -o timeline.json.gz",
        )
    done = export_members(manifest, members, path)
    return Exported(done.path, done.events, done.arrows, (*notes, *done.notes))


def _clock(row: Row) -> Clock:
    return Clock(
        offset_ns=number(row["clock_offset_ns"]),
        drift_ppm=number(row["clock_drift_ppm"]),
        at_ns=number(row["clock_at_ns"]),
    )


def _on_reference(clock: Clock, times: Array) -> Array:
    aligned: Array = np.rint(clock.on_reference(times)).astype(np.int64)
    return aligned
