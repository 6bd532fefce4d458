"""`ranks:` in a recipe: prof starts the launcher, which starts `prof rank` on each rank."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from nsight_prof.orchestrator.plan.program import step_program
from nsight_prof.orchestrator.plan.requests import counters_request, trace_request
from nsight_prof.orchestrator.ranks.counting import is_counted, ranks_to_count, why_not_counted
from nsight_prof.orchestrator.ranks.folder import gather, still_running
from nsight_prof.orchestrator.ranks.launcher import (
    KEPT,
    LIMIT_S,
    Launch,
    check_selection,
    parse_selection,
)
from nsight_prof.orchestrator.recipe.ranks import Engine, Ranks
from nsight_prof.orchestrator.recipe.read import Recipe
from nsight_prof.orchestrator.report.reporting import report_job
from nsight_prof.orchestrator.run.prepare import RunOptions, RunOutcome
from nsight_prof.orchestrator.system.discover import find_ncu, find_nsys
from nsight_prof.orchestrator.system.process import POLL_SECONDS, Command, Finished, run_launcher
from nsight_prof.orchestrator.system.run_lock import clear, locked, new_folder, no_empty_folder
from nsight_prof.orchestrator.system.secrets import Environment, choose_environment, mask_file
from nsight_prof.orchestrator.system.stopping import STOPS, stoppable
from nsight_prof.orchestrator.tools import ncu, nsys
from nsight_prof.orchestrator.workers.mapping import executor_of
from nsight_prof.parsers.errors import ProfError, StepFailed, UsageError
from nsight_prof.parsers.run.directory import (
    RANKS,
    RunDir,
    StepState,
    read_manifest,
    write_manifest,
)
from nsight_prof.parsers.substeps import watched_by

STEP, COUNTERS = "ranks", "counters"
RAY = "nsight_prof.orchestrator.ranks.on_ray"
"""The module that starts ranks on a cluster of Ray."""
KEPT_S = 600.0
"""Time after the end of the launcher in which the traces of its ranks may still be kept."""
GRACE_S = 60.0
"""Time that a launcher has to end its ranks."""


def job_argv(recipe: Recipe, ranks: Ranks, job: Path) -> list[str]:
    """Return the command that starts all ranks of the job, each under `prof rank`.

    Raises:
        RecipeError: the target's file or folder does not exist.
    """
    program = step_program(recipe, "trace")
    request = trace_request(recipe, program, "nsys", job)
    stages = [f"--stage={regex}" for regex in recipe.stages]
    sampled = [f"--gpu-metrics={ranks.gpu_metrics}"] if ranks.gpu_metrics else []
    options = [
        f"--nsys={option}" for option in (*nsys.capture_options(request), *request.extra_args)
    ]
    own_ranks = [f"--own-ranks={ranks.count}"] if ranks.launcher == "own" else []
    window = ranks.window
    cut = [f"--window={window.nvtx}:{window.steps[0]}-{window.steps[1]}"] if window else []
    keep = [f"--keep={ranks.keep}"] if ranks.keep != KEPT[0] else []
    rank = [*_rank(ranks, job), *own_ranks, *cut, *keep, *stages, *sampled, *options]
    return [*_launcher(recipe, ranks), *rank, "--", *program.argv]


def counters_argv(recipe: Recipe, ranks: Ranks, job: Path) -> list[str]:
    """Return the command that starts the ranks once more, now under ncu; raises as `job_argv`."""
    program = step_program(recipe, "counters")
    request = counters_request(recipe, program, "ncu", job, (None, ()))
    options = [f"--limit={_limit_s(recipe):g}"]
    captured = [
        option for option in ncu.capture_options(request, frozenset()) if option != "--nvtx"
    ]
    options += [f"--ncu={option}" for option in captured]  # --nvtx is given anyway
    rank = [*_rank(ranks, job), f"--counters={ranks.counters}", *options]
    return [*_launcher(recipe, ranks), *rank, "--", *program.argv]


def _limit_s(recipe: Recipe) -> float:
    """Return the recipe's own limit; the default one is far too long for ranks that may hang."""
    given = "timeout" in recipe.counters.model_fields_set
    return recipe.counters.timeout if given else LIMIT_S


def _rank(ranks: Ranks, job: Path) -> list[str]:
    given = {"trace": ranks.trace, "scratch": ranks.scratch, "role-from": ranks.role_from}
    options = [f"--{name}={value}" for name, value in given.items() if value]
    return [sys.executable, "-m", "nsight_prof", "rank", str(job), *options]


def _launcher(recipe: Recipe, ranks: Ranks) -> list[str]:
    if ranks.launcher == "own":
        return []
    if ranks.launcher == "ray":
        address = [f"--address={recipe.engine.address}"] if recipe.engine is not None else []
        return [sys.executable, "-m", RAY, str(ranks.count), *address, *ranks.options, "--"]
    if ranks.launcher != "torchrun":
        return [ranks.launcher, "-n", str(ranks.count), *ranks.options]
    python = os.path.expanduser(recipe.target.python) if recipe.target.python else sys.executable
    count = f"--nproc-per-node={ranks.count}"
    return [python, "-m", "torch.distributed.run", count, *ranks.options, "--no-python"]


def render_job_dry_run(recipe: Recipe, folder: Path) -> str:
    """Render the commands that would start the job; `folder` is where its run would be."""
    ranks = recipe.ranks
    assert ranks is not None  # who asks knows that it is a job
    command = shlex.join(job_argv(recipe, ranks, folder))
    counters = ""
    if ranks.counters:
        counters = (
            f"# counters, {ranks.counters}: at most {_limit_s(recipe):g} s under ncu\n"
            f"{shlex.join(counters_argv(recipe, ranks, folder))}\n\n"
        )
    return (
        f"# ranks: {ranks.launcher} starts prof rank, at most {recipe.trace.timeout:g} s\n"
        f"{command}\n\n{counters}"
        f"# report: tables and report of all ranks, written to {folder}/report/report.md\n"
    )


def run_job(recipe: Recipe, ranks: Ranks, options: RunOptions) -> RunOutcome:
    """Start the job of a recipe, wait for the traces of its ranks, count and report them.

    A job that is resumed keeps its traces: ranks that left none cannot be added, since what they
    do in another job is not what the others waited for. Counters that are missing are taken.

    Raises:
        UsageError: a job is not replayed; the one to resume is of another recipe.
        ToolMissing: nsys is missing, or ncu.
        StepFailed: no rank has a trace.
    """
    if options.replay is not None:
        raise UsageError(
            "a job of ranks is not replayed",
            "the report of what was captured: prof report RUN",
        )
    check_selection(ranks.trace)
    find_nsys(os.environ)
    if ranks.counters:
        find_ncu(os.environ)
    with stoppable(STOPS), no_empty_folder() as created:
        folder = options.resume
        if folder is None:
            folder = new_folder(recipe.name, options.out, options.force)
            created.append(folder)
        else:
            _check_same(recipe, RunDir(folder))
        with locked(folder):
            return _run(_Job(recipe, ranks, options, RunDir(folder.absolute())))


def _check_same(recipe: Recipe, job: RunDir) -> None:
    """Refuse to add to a job what another program would do."""
    recorded, now = read_manifest(job).recipe, recipe.to_dict()
    for key in ("target", "capture", "stages"):
        if key in recorded and recorded[key] != now[key]:
            raise UsageError(
                f"{job.path} was captured with another {key}",
                "start a job of its own: --out RUN; or resume with the recipe that made it",
            )


@dataclass(frozen=True)
class _Job:
    """A job that is run, and how."""

    recipe: Recipe
    ranks: Ranks
    options: RunOptions
    run: RunDir

    @cached_property
    def environment(self) -> Environment:
        """The variables of the launcher, and what of them is secret."""
        return choose_environment(os.environ, self.recipe.target.env, self.recipe.to_dict())


def _run(work: _Job) -> RunOutcome:
    job, options = work.run, work.options
    if options.force and options.resume is None:
        clear(job.path)
        shutil.rmtree(job.path / RANKS, ignore_errors=True)
    errors: list[ProfError] = []
    if not job.manifest_path.is_file():
        errors += _trace(work)
    gather(job)
    manifest = read_manifest(job)
    manifest.recipe = work.recipe.to_dict()
    write_manifest(job, manifest)
    absent = [record for record in manifest.ranks if record.reason]
    if absent and work.ranks.missing == "fail":
        numbers = ", ".join(str(record.rank) for record in absent[:8])
        errors.append(
            StepFailed(
                f"{len(absent)} of {len(manifest.ranks)} ranks left no trace: {numbers}",
                f"the report says why; to go without them: --set {STEP}.missing=report",
            )
        )
    if work.ranks.counters:
        errors += _count(work)
    options.progress.started("report", "tables and report of all ranks")
    with watched_by(partial(options.progress.doing, "report")):
        findings, path = _report(work)
    options.progress.finished("report", StepState.DONE, "")
    code = errors[0].exit_code if errors else 0
    return RunOutcome(job.path, findings, path, code, tuple(errors))


def _report(work: _Job) -> tuple[tuple[str, ...], Path]:
    engine = work.recipe.engine or Engine()
    on = None if engine.kind == "local" else f"ray:{engine.address}"
    if engine.address.startswith("ray://"):
        on = engine.address
    with executor_of(engine.workers, on, engine.memory) as executor:
        return report_job(work.run, None, work.options.progress.warning, executor)


def _trace(work: _Job) -> list[ProfError]:
    """Start the ranks under nsys; raises StepFailed where none began."""
    recipe, job, progress = work.recipe, work.run, work.options.progress
    argv = job_argv(recipe, work.ranks, job.path)
    request = trace_request(recipe, step_program(recipe, "trace"), "nsys", job.path)
    progress.started(STEP, work.environment.redact(shlex.join(argv)))
    try:
        finished = _start(work, STEP, argv, nsys.environment(request), recipe.trace.timeout)
    finally:
        _wait_for_traces(job, work.options)
        _mask_logs(work)
    longer = "trace.timeout"
    errors = [] if finished.ok else [_failure(work, finished, recipe.trace.timeout, longer)]
    if not job.manifest_path.is_file():
        progress.finished(STEP, StepState.FAILED, "no rank began")
        raise errors[0] if errors else _none_began(work.ranks, job)
    state = StepState.FAILED if errors else StepState.DONE
    progress.finished(STEP, state, errors[0].message if errors else "")
    return errors


def _count(work: _Job) -> list[ProfError]:
    """Start the ranks once more, under ncu, where counters are missing."""
    recipe, ranks, job, progress = work.recipe, work.ranks, work.run, work.options.progress
    selection = parse_selection(ranks.trace, Launch(0, 0, ranks.count, "", ""))
    try:
        chosen = ranks_to_count(job, selection, str(ranks.counters))
    except ProfError as error:
        return [error]
    if all(is_counted(job.rank(number)) for number in chosen):
        return []
    argv = counters_argv(recipe, ranks, job.path)
    progress.started(COUNTERS, work.environment.redact(shlex.join(argv)))
    # Each rank heeds the limit itself, and then writes what it has.
    limit_s = _limit_s(recipe) + 2 * GRACE_S
    try:
        finished = _start(work, COUNTERS, argv, {}, limit_s)
    finally:
        _mask_logs(work)
    reasons = [why_not_counted(job.rank(number), number) for number in chosen]
    errors = [reason for reason in reasons if reason is not None]
    if not errors and not finished.ok:
        errors = [_failure(work, finished, limit_s, "counters.timeout")]
    state = StepState.FAILED if errors else StepState.DONE
    progress.finished(COUNTERS, state, errors[0].message if errors else "")
    return errors


def _start(
    work: _Job, step: str, argv: list[str], variables: dict[str, str], timeout_s: float
) -> Finished:
    name = "launcher" if step == STEP else f"launcher.{step}"
    command = Command(
        tuple(argv),
        {**work.environment.variables, **variables},
        step_program(work.recipe, "trace").cwd,
        work.run.path / f"{name}.stdout.log",
        work.run.path / f"{name}.stderr.log",
        timeout_s,
        GRACE_S,
    )
    return run_launcher(command, partial(work.options.progress.waits, step))


def _mask_logs(work: _Job) -> None:
    for log in work.run.path.glob("launcher.*.log"):
        mask_file(log, work.environment.secrets, forms=True)


def _wait_for_traces(job: RunDir, options: RunOptions) -> None:
    """Wait for what `prof rank` still keeps after its launcher has ended."""
    begin = time.monotonic()
    while (ranks := still_running(job)) and time.monotonic() - begin < KEPT_S:
        options.progress.doing(
            STEP, f"keeping the traces of ranks {', '.join(map(str, ranks))}", ""
        )
        time.sleep(POLL_SECONDS)


def _failure(work: _Job, finished: Finished, timeout_s: float, key: str) -> ProfError:
    if finished.timed_out:
        return StepFailed(
            f"the job did not end within {timeout_s:.0f} s and was ended",
            f"if it only needs more time: --set {key}=2h",
        )
    ended = finished.signal or f"exit code {finished.exit_code}"
    lines = [line for line in finished.tail.splitlines() if line.strip()]
    return StepFailed(
        f"{work.ranks.launcher} ended with {ended}{f': {lines[-1].strip()}' if lines else ''}",
        f"its output is in {work.run.path}/launcher.*.log",
    )


def _none_began(ranks: Ranks, job: RunDir) -> ProfError:
    return StepFailed(
        f"{ranks.launcher} ended, and no rank was traced",
        f"see ranks.trace, and its output in {job.path}/launcher.stderr.log",
    )
