"""`prof rank`: traces one rank of a job inside of its launcher, and keeps the trace.

Report, export and tables are made on the node, and renamed into the shared folder when whole.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nsight_prof.orchestrator.ranks.folder import claim, record
from nsight_prof.orchestrator.ranks.keeper import SHIM, Keeper, Profiler, keep
from nsight_prof.orchestrator.ranks.launcher import PID_FILE, Rank, new_scratch
from nsight_prof.orchestrator.system.discover import Tool, find_nsys
from nsight_prof.orchestrator.system.export import export_sqlite
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.orchestrator.tools import nsys
from nsight_prof.parsers.errors import NoKernels, ProfError, StepFailed
from nsight_prof.parsers.run.directory import RankRecord, RunDir

REPORT, EXPORT = "trace", ".sqlite"


def capture(job: RunDir, rank: Rank) -> int:
    """Trace the rank, keep its run in `job.rank(…)`, and return the exit code of its program.

    Whatever goes wrong with the trace is said on stderr and kept as the reason why it is missing.

    Raises:
        UsageError: another job, or another process with this rank, has written there.
        ToolMissing: nsys is missing; the program was not started.
    """
    tool = find_nsys(os.environ)
    scratch = new_scratch(rank)
    try:
        partial = claim(job, rank.launch, rank.selection)
    except BaseException:
        shutil.rmtree(scratch)
        raise
    return keep(lambda keeper: _captured(job, rank, tool, (partial, scratch), keeper))


def sampling_options(rank: Rank, features: frozenset[str]) -> tuple[str, ...]:
    """Return the options by which nsys samples the GPU of this rank, and no other."""
    if rank.gpu_metrics_hz is None:
        return ()
    visible = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    local = rank.launch.local or 0
    gpu = visible[local] if local < len(visible) else visible[0] if visible else str(local)
    devices = "--gpu-metrics-devices"
    name = devices if devices in features else "--gpu-metrics-device"  # until nsys 2023.4
    return (f"{name}={gpu}", f"--gpu-metrics-frequency={rank.gpu_metrics_hz}")


def _captured(
    job: RunDir, rank: Rank, tool: Tool, folders: tuple[Path, Path], keeper: Keeper
) -> int:
    partial, scratch = folders
    stoppable = {"--session-new", "--kill"} <= tool.features
    request = nsys.TraceRequest(
        program=tool.program,
        output=scratch / REPORT,
        target=(sys.executable, "-IS", "-c", SHIM, str(scratch / PID_FILE), *rank.command),
        session=scratch.name if stoppable else "",
        extra_args=(*rank.nsys_options, *sampling_options(rank, tool.features)),
    )
    profiler = Profiler(
        "nsys",
        nsys.profile_argv(request, tool.features),
        nsys.stop_argv(tool.program, request.session) if stoppable else [],
        scratch,
        rank.flush_s,
    )
    code = 1
    try:
        code = keeper.run(profiler)
        _keep(job, rank, partial, scratch)
    except (ProfError, OSError) as error:
        _missing(rank, partial, scratch, error)
    return code


def _keep(job: RunDir, rank: Rank, partial: Path, scratch: Path) -> None:
    """Make export and tables on this node, copy them, and give them their name."""
    report = scratch / f"{REPORT}.nsys-rep"
    if not report.is_file() or not report.stat().st_size:
        raise StepFailed("nsys left no report", "its words are in the output of the job")
    is_whole = True
    if rank.own_ranks is not None:
        is_whole = _keep_own(job, rank, partial, report)
    else:
        _keep_rank(job, rank, partial, _cut(report, rank.window))
    if is_whole:
        shutil.rmtree(scratch, ignore_errors=True)


def _cut(report: Path, window: tuple[str, int, int] | None) -> Path:
    """Return the trace of a rank: its report, or with a window the export that is cut to it."""
    from nsight_prof.parsers.nsys.rows.cut import keep_steps

    if window is None:
        return report
    export = report if report.suffix == EXPORT else report.with_suffix(EXPORT)
    if export is not report:
        export_sqlite(report, export)
    keep_steps(export, *window)
    return export


def _keep_own(job: RunDir, rank: Rank, partial: Path, report: Path) -> bool:
    """Keep a rank for each process that used a GPU, of a program that starts its ranks itself.

    Tells whether all could be kept; the reason of one that could not stands in the job.
    """
    from nsight_prof.parsers.nsys.rows.cut import keep_process, processes

    is_whole = True
    export_of_all = export_sqlite(report, report.with_name(f"all{EXPORT}"))
    pids = processes(export_of_all)
    if not pids:
        raise NoKernels(
            "no process of the program launched a kernel", "see what the program says in its output"
        )
    for number, pid in enumerate(pids):
        launch = replace(rank.launch, rank=number, local=number)
        of_rank = replace(rank, launch=launch)
        folder = partial if number == rank.launch.rank else claim(job, launch, rank.selection)
        export = report.with_suffix(EXPORT)
        shutil.copyfile(export_of_all, export)
        keep_process(export, pid)
        try:
            _keep_rank(job, of_rank, folder, _cut(export, rank.window))
        except (ProfError, OSError) as error:
            _missing(of_rank, folder, report.parent, error)
            is_whole = False
    return is_whole


def _keep_rank(job: RunDir, rank: Rank, partial: Path, trace: Path) -> None:
    """Make the run of a rank of its trace beside it, and move it into the job."""
    from nsight_prof.orchestrator.imports.importing import import_report
    from nsight_prof.orchestrator.imports.ranks import identity_of, rank_record
    from nsight_prof.parsers.build.refresh import leave_tables_alone

    run = RunDir(trace.with_name("run"))
    shutil.rmtree(run.path, ignore_errors=True)
    name = f"{job.path.name}, rank {rank.launch.rank}"
    member = import_report(trace, run.path, {"name": name, "stages": list(rank.stages)})
    found = rank_record(rank.launch.rank, trace.name, member, identity_of(run))
    if rank.keep == "tables":
        leave_tables_alone(run)
    shutil.copytree(run.path, partial, dirs_exist_ok=True)
    if rank.keep == "both":
        shutil.copyfile(trace.with_suffix(".nsys-rep"), partial / f"{REPORT}.nsys-rep")
    record(partial, found, rank.launch)
    os.rename(partial, job.rank(rank.launch.rank).path)


def _missing(rank: Rank, partial: Path, scratch: Path, error: ProfError | OSError) -> None:
    """Say why the job has no trace of this rank, and where it is if it is anywhere."""
    host = socket.gethostname()
    reason = error.message if isinstance(error, ProfError) else str(error)
    captured = [*scratch.glob(f"{REPORT}.*")]
    if captured:
        reason += f"; what was captured is on {host} in {scratch}"
    else:
        shutil.rmtree(scratch, ignore_errors=True)
    for path in partial.iterdir() if partial.is_dir() else ():
        # A shared folder that is full has room again for the reason.
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with suppress(OSError):
        record(partial, RankRecord(rank.launch.rank, host=host, reason=reason), rank.launch)
    with suppress(OSError):  # who read our output may be gone
        say(f"warning: rank {rank.launch.rank} has no trace: {reason}", err=True)
