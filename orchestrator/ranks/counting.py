"""`prof rank --counters`: hardware counters of ranks whose traces a job holds already.

ncu holds a program at each kernel that it profiles, and runs most kernels several times, one time
for each pass. A kernel of a collective waits for those of other ranks: run again by one rank alone
it waits forever. So each way of counting says which ranks and kernels it takes:

- `one-rank`: the kernels of one rank other than collectives, in as many passes as the sets need;
  the other ranks wait in their next collective.
- `one-pass`: kernels of all ranks, collectives too, by the counters that fit into one pass.
- `application`: the same kernels, in more passes: the program is run again for each.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from nsight_prof.orchestrator.plan.metric_choice import TENSOR_DTYPES, dtypes_of
from nsight_prof.orchestrator.plan.select import choose_kernels, options_of
from nsight_prof.orchestrator.ranks.folder import RECORD, read_record
from nsight_prof.orchestrator.ranks.keeper import SHIM, Keeper, Profiler, keep
from nsight_prof.orchestrator.ranks.launcher import (
    LIMIT_S,
    PID_FILE,
    Launch,
    Rank,
    Selection,
    new_scratch,
    run_alone,
)
from nsight_prof.orchestrator.recipe.sections import Counters, Select
from nsight_prof.orchestrator.run.steps import (
    COUNTERS,
    COUNTERS_CSV,
    NCU_LOG,
    check_counters,
)
from nsight_prof.orchestrator.system.discover import Tool, find_ncu
from nsight_prof.orchestrator.system.export import export_csv
from nsight_prof.orchestrator.system.run_lock import locked_in_turn
from nsight_prof.orchestrator.system.secrets import Environment, choose_environment, mask_file
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.orchestrator.tools import ncu, target
from nsight_prof.parsers import tables
from nsight_prof.parsers.build.refresh import refresh_tables
from nsight_prof.parsers.errors import (
    ArtifactUnreadable,
    ProfError,
    StepFailed,
    ToolMissing,
    UsageError,
)
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.ncu import can_read_rep
from nsight_prof.parsers.run.artifacts import describe
from nsight_prof.parsers.run.directory import (
    STEPS,
    RunDir,
    StepRecord,
    StepState,
    read_manifest,
    write_manifest,
)
from nsight_prof.parsers.run.selection import Selection as Kernels

STEP, FOLDER = "counters", f"{STEPS}/3-counters"
ONE_PASS = (
    "gpu__time_duration.sum",
    "profiler__replayer_passes",
    "sm__cycles_elapsed.avg.per_second",
    "sm__cycles_elapsed.max",
    "sm__cycles_active.avg",
    "sm__cycles_active.max",
    "dram__cycles_elapsed.avg.per_second",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "dram__bytes.sum.peak_sustained",
    "lts__cycles_elapsed.avg.per_second",
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_tex.sum.peak_sustained",
    "l1tex__t_bytes.sum",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
)
"""Counters that one pass takes (ncu 2025.3.1 on an H200): clocks, bytes of DRAM and L2, the use of
SMs and Tensor Cores."""
LOCKSTEP = "--lockstep-kernel-launch"


@dataclass(frozen=True)
class Counting:
    """How ranks are counted: a mode of MODES, its limit, and more options for ncu."""

    mode: str
    limit_s: float = LIMIT_S
    ncu_options: tuple[str, ...] = ()


def count(job: RunDir, rank: Rank, counting: Counting) -> int:
    """Count this rank where it is its turn, else become its program; return its exit code.

    Ranks that have their counters already are left out. What goes wrong is said on stderr and kept
    in the rank's manifest.

    Raises:
        UsageError: the job has no trace to choose kernels from, or all counters already.
        ToolMissing: ncu is missing, or has not what the mode needs; nothing was started.
    """
    chosen = ranks_to_count(job, rank.selection, counting.mode)
    turns = [number for number in chosen if not is_counted(job.rank(number))]
    if rank.launch.rank in chosen and not turns:
        raise UsageError(
            f"all ranks of {job.path} that are to be counted have their counters",
            f"to count them again, delete {job.path}/ranks/*/{FOLDER}",
        )
    if counting.mode == "application":
        turns = chosen  # the passes of an application must be those of all ranks
    if rank.launch.rank not in turns:
        run_alone(rank.command)
    tool = find_ncu(os.environ)
    if counting.mode == "application" and LOCKSTEP not in tool.features:
        raise ToolMissing(
            f"ncu {tool.version} cannot hold ranks in lockstep ({LOCKSTEP}): each would run its "
            "passes by itself, and wait for ranks that have gone on",
            "install Nsight Compute 2026.1 or newer; or: --counters one-pass",
        )
    where = _Ncu(tool, new_scratch(rank), len(turns))
    request = _request(job, rank, counting, where)
    return keep(lambda keeper: _counted(job, rank, counting, (request, where), keeper))


def ranks_to_count(job: RunDir, selection: Selection, mode: str) -> list[int]:
    """Return the ranks that the mode counts; all ranks of a job find the same.

    Raises:
        UsageError: the folder is no job of `prof rank`, or has no trace of the chosen ranks.
    """
    manifest = read_manifest(job)
    if manifest.job is None:
        raise UsageError(
            f"{job.path} is no job that prof rank traced",
            "trace it first: prof rank RUN -- COMMAND, inside of the same launcher",
        )
    chosen = [number for number in traced_ranks(job) if selection.has(_launch(job, number))]
    if not chosen:
        raise UsageError(
            f"{job.path} has no trace of the ranks to count",
            "trace them first: prof rank RUN -- COMMAND, inside of the same launcher",
        )
    return chosen[:1] if mode == "one-rank" else chosen


def traced_ranks(job: RunDir) -> list[int]:
    """Return the ranks of a job whose traces are kept."""
    folders = job.rank(0).path.parent.glob("[0-9]*/manifest.json")
    return sorted(int(path.parent.name) for path in folders if path.parent.name.isdecimal())


def _launch(job: RunDir, number: int) -> Launch:
    """Return what a selection may ask of a rank that was traced."""
    found = read_record(job.rank(number).path / RECORD)
    return Launch(number, found.local_rank, None, "", "", role=found.role)


def is_counted(run: RunDir) -> bool:
    """Tell whether a rank has all its counters."""
    record = read_manifest(run).step(STEP)
    return (
        record is not None
        and record.state is StepState.DONE
        and not record.error
        and run.step(record).is_dir()
    )


def why_not_counted(run: RunDir, number: int) -> ProfError | None:
    """Return why a rank has not all its counters, or None where it has."""
    if is_counted(run):
        return None
    record = read_manifest(run).step(STEP)
    reason = record.error if record is not None else "it was ended before"
    hint = record.hint if record is not None else ""
    return StepFailed(
        f"rank {number} has no counters: {reason}",
        hint or "see launcher.counters.stderr.log of the job",
    )


@dataclass(frozen=True)
class _Ncu:
    """ncu, the folder on this node into which it writes, and how many ranks are counted."""

    tool: Tool
    scratch: Path
    ranks: int


def _counted(
    job: RunDir,
    rank: Rank,
    counting: Counting,
    asked: tuple[ncu.CountersRequest, _Ncu],
    keeper: Keeper,
) -> int:
    (request, where), run = asked, job.rank(rank.launch.rank)
    environment = choose_environment(os.environ, {}, {})
    argv = ncu.counters_argv(request, where.tool.features)
    variables = {**ncu.ENVIRONMENT, **_variables(counting.mode, where)}
    profiler = Profiler(
        "ncu", argv, [], where.scratch, rank.flush_s, counting.limit_s, variables
    )  # fmt: skip
    words = [environment.redact(word) for word in argv]
    record = StepRecord(STEP, argv=words, inputs={"mode": counting.mode}, started=_now())
    code = 1
    try:
        code = record.exit_code = keeper.run(profiler)
        _keep(run, record, where, environment)
    except (ProfError, OSError) as error:
        record.state = StepState.FAILED
        record.error = error.message if isinstance(error, ProfError) else str(error)
        record.hint = error.hint if isinstance(error, ProfError) else ""
    if keeper.overran:
        record.error = (
            f"the program did not end within {counting.limit_s:.0f} s under ncu and was ended: a "
            f"kernel may wait for one of another rank ({counting.mode})"
        )
        record.hint = (
            "count less (select, counters.sets), give more time (--limit SECONDS), or another way: "
            f"--counters {'one-rank' if counting.mode != 'one-rank' else 'one-pass'}"
        )
    _write(run, record)
    if record.error:
        with suppress(OSError):
            say(f"warning: counters of rank {rank.launch.rank}: {record.error}", err=True)
    shutil.rmtree(where.scratch, ignore_errors=True)
    return code


def _request(job: RunDir, rank: Rank, counting: Counting, where: _Ncu) -> ncu.CountersRequest:
    """Return what ncu is asked for; of all ranks the kernels of the first one's trace."""
    recipe = read_manifest(job).recipe
    select = Select.model_validate(recipe.get("select") or {})
    settings = Counters.model_validate(recipe.get("counters") or {})
    first = job.rank(traced_ranks(job)[0])
    selection = _kernels(first, select, collectives=counting.mode != "one-rank")
    replay = "kernel"
    options: tuple[str, ...] = ()
    if counting.mode == "application":
        replay = "application"
        options = ("--app-replay-buffer", "memory", LOCKSTEP, "--communicator", "tcp")
        options += ("--communicator-tcp-num-peers", str(where.ranks))
    metrics: tuple[str, ...] = ONE_PASS
    if counting.mode != "one-pass":
        known = dtypes_of(selection)
        dtypes = [dtype for dtype in TENSOR_DTYPES if dtype in known]
        metrics = tuple(catalogue().tool_metrics(settings.sets, _chip(first), dtypes))
    return ncu.CountersRequest(
        program=where.tool.program,
        output=where.scratch / Path(COUNTERS).stem,
        log=where.scratch / NCU_LOG,
        target=(sys.executable, "-IS", "-c", SHIM, str(where.scratch / PID_FILE), *rank.command),
        kernels=tuple(kernel.mangled_name for kernel in selection.kernels),
        metrics=metrics,
        skip=selection.skip,
        count=selection.count,
        clock_control=settings.clock_control,
        cache_control=settings.cache_control,
        replay=replay,
        extra_args=(*options, *settings.extra_args, *counting.ncu_options),
    )


def _kernels(run: RunDir, select: Select, *, collectives: bool) -> Kernels:
    options = replace(options_of(select), collectives=collectives)
    with locked_in_turn(run.path):  # all ranks ask the first one's tables
        refresh_tables(run)
        kernels, launches, stages = (
            tables.read(run.tables, name) for name in ("kernels", "launches", "stage_kernels")
        )
    return choose_kernels(kernels, launches, stages, options)


def _chip(run: RunDir) -> str:
    chips = tables.read(run.tables, "gpus")["chip"].dropna()
    return str(chips.iloc[0]) if len(chips) else ""


def _variables(mode: str, where: _Ncu) -> dict[str, str]:
    """Return the variables of ncu and the program.

    ncu profiles one process of a machine at a time, by a lock in the folder of temporary files:
    ranks that wait for each other need a folder each.
    """
    variables = {"TMPDIR": str(where.scratch)}
    if mode == "application" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The store of torchrun's agent keeps what the ranks of the pass before wrote: rank 0 makes
        # one of its own for each pass.
        port = int(os.environ.get("MASTER_PORT", "29500")) + 1
        variables |= {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_PORT": str(port)}
    return variables


def _keep(run: RunDir, record: StepRecord, where: _Ncu, environment: Environment) -> None:
    """Copy what ncu wrote into the run of the rank, and make its tables again."""
    report, log = where.scratch / COUNTERS, _text(where.scratch / NCU_LOG)
    if not report.is_file():
        known = ncu.explain_tool(log) or target.explain(log) or ncu.explain(log)
        raise known or StepFailed("ncu left no report", "its words are in the output of the job")
    try:
        export_csv(where.tool, report, where.scratch / COUNTERS_CSV, os.environ)
    except ArtifactUnreadable as error:
        if not can_read_rep():
            raise
        record.warnings.append(f"no {COUNTERS_CSV}: {error.message}")
    check_counters(where.scratch)
    for name in (COUNTERS, COUNTERS_CSV, NCU_LOG):
        mask_file(where.scratch / name, environment.secrets, forms=name == NCU_LOG)
    partial = run.path / f"{FOLDER}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name in (COUNTERS, COUNTERS_CSV, NCU_LOG):
        if (where.scratch / name).is_file():
            shutil.copyfile(where.scratch / name, partial / name)
    shutil.rmtree(run.path / FOLDER, ignore_errors=True)
    os.rename(partial, run.path / FOLDER)
    record.state, record.directory = StepState.DONE, FOLDER
    record.files = describe(run.path / FOLDER)


def _write(run: RunDir, record: StepRecord) -> None:
    record.finished = _now()
    manifest = read_manifest(run)
    before = manifest.step(STEP)
    if record.state is StepState.FAILED and before is not None and before.directory:
        return  # what was counted before is kept
    manifest.steps = [step for step in manifest.steps if step.name != STEP] + [record]
    write_manifest(run, manifest)
    with suppress(ProfError), locked_in_turn(run.path):  # the report says what cannot be read
        refresh_tables(run)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
