"""The folder of a job that `prof rank` captures: one claim a rank, and what became of each.

`ranks/0003.partial` is made when rank 3 begins and renamed to `ranks/0003` when its run is whole;
`rank.json` in it says whose it is, and why there is no run where there is none.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from nsight_prof.orchestrator.ranks.launcher import ELASTIC, Launch, Selection
from nsight_prof.orchestrator.system.version import prof_version
from nsight_prof.parsers.errors import ProfError, UsageError
from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.run.directory import (
    RANKS,
    JobRecord,
    Manifest,
    RankRecord,
    RunDir,
    read_manifest,
    write_manifest,
)
from nsight_prof.parsers.whole_file import write_atomic

RECORD = "rank.json"
PARTIAL = ".partial"
RUNS_STILL = "its program has not ended, or its processes were killed before the trace was kept"
QUESTION = "Which rank makes the others wait, and where does each rank's time go?"
_RECORDS = TypeAdapter(RankRecord)


def claim(job: RunDir, launch: Launch, selection: Selection) -> Path:
    """Make the folder of a rank, and the job's manifest where no rank has; return that folder.

    Raises:
        UsageError: another job, or another process with this rank, has written there.
    """
    _begin(job, launch, selection)
    path = job.rank(launch.rank).path
    partial = path.with_name(path.name + PARTIAL)
    partial.parent.mkdir(exist_ok=True)
    try:
        if path.exists():
            raise FileExistsError
        partial.mkdir()
    except FileExistsError:
        raise UsageError(
            f"{job.path} has a rank {launch.rank} already{_whose(partial)}",
            "give each job a folder of its own; if two processes have one rank, name the variable "
            "that tells them apart: --rank-from NAME",
        ) from None
    record(partial, RankRecord(launch.rank, host=socket.gethostname(), reason=RUNS_STILL), launch)
    return partial


def is_started_again(job: RunDir, launch: Launch) -> bool:
    """Tell whether torchrun has started this job before, and what it did then was traced.

    Where nodes join or leave, it counts no restart: ranks begin anew, in another number and mostly
    with another port (seen with torch 2.13).
    """
    if launch.elastic in ("", "none") or not job.manifest_path.is_file():
        return False
    found, path = read_manifest(job).job, job.rank(launch.rank).path
    if found is None or f"{ELASTIC}={launch.elastic}" not in found.id.split():
        return False
    is_kept = path.exists() or path.with_name(path.name + PARTIAL).exists()
    return is_kept or (found.id, found.size) != (launch.job, launch.size)


def record(folder: Path, rank: RankRecord, launch: Launch) -> None:
    """Write what is known of a rank into its folder."""
    facts = asdict(replace(rank, local_rank=launch.local, role=launch.role))
    write_atomic(folder / RECORD, json.dumps(facts, indent=1) + "\n")


def still_running(job: RunDir) -> list[int]:
    """Return the ranks whose trace is not kept yet, and not given up either."""
    folders = (job.path / RANKS).glob(f"[0-9]*{PARTIAL}/{RECORD}")
    records = []
    for path in folders:
        with suppress(ProfError, OSError):  # it was renamed meanwhile
            records.append(read_record(path))
    return sorted(record.rank for record in records if record.reason == RUNS_STILL)


def gather(job: RunDir) -> None:
    """Write into the manifest of a job that `prof rank` captures which ranks there are by now."""
    manifest = read_manifest(job)
    if manifest.job is None:
        return
    records = [read_record(path) for path in (job.path / RANKS).glob(f"[0-9]*/{RECORD}")]
    manifest.ranks = sorted(records, key=lambda record: record.rank)
    for rank in manifest.ranks:
        if not rank.reason:
            with suppress(ProfError):  # the report names a rank that cannot be read
                member = read_manifest(job.rank(rank.rank))
                manifest.tools |= member.tools
                manifest.gpus += [gpu for gpu in member.gpus if gpu not in manifest.gpus]
    write_manifest(job, manifest)


def read_record(path: Path) -> RankRecord:
    """Read the record of a rank; raises ArtifactUnreadable where it is damaged."""
    with reading(path, "the record of a rank", "delete the folder of this rank"):
        found = _RECORDS.validate_json(path.read_bytes(), strict=True)
        if int(path.parent.name.removesuffix(PARTIAL)) != found.rank:
            raise ValueError(f"it is of rank {found.rank}")
    return found


def _begin(job: RunDir, launch: Launch, selection: Selection) -> None:
    """Write the manifest where there is none; the ranks of a job do so at the same time."""
    job.path.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(
        run_id=job.path.name,
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        recipe={"name": job.path.name, "question": QUESTION},
        prof_version=prof_version(),
        rank_basis=f"the variable {launch.variable}",
        job=JobRecord(launch.job, launch.size, selection.expected(launch.size), launch.variable),
    )
    if not job.manifest_path.exists():
        temporary = RunDir(job.path / f".rank-{launch.rank}-{socket.gethostname()}-{os.getpid()}")
        temporary.path.mkdir()
        try:
            write_manifest(temporary, manifest)
            try:  # a link is made whole or not at all, on NFS as well
                os.link(temporary.manifest_path, job.manifest_path)
            except FileExistsError:
                pass
            except OSError:  # there are no hard links; all ranks of a job write the same
                write_manifest(job, manifest)
        finally:
            temporary.manifest_path.unlink(missing_ok=True)
            temporary.path.rmdir()
    found = read_manifest(job).job
    if found is None or found.id != launch.job:
        raise UsageError(
            f"{job.path} holds {'another job' if found else 'a run, and no job of prof rank'}"
            f"{f': {found.id}' if found and found.id else ''}",
            "give each job a folder of its own: prof rank runs/NAME-$SLURM_JOB_ID -- COMMAND",
        )


def _whose(partial: Path) -> str:
    try:
        return f", begun on {read_record(partial / RECORD).host}"
    except (ProfError, OSError):
        return ""
