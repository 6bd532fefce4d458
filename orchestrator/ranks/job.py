"""`ranks:` in a recipe: prof starts the launcher, which starts `prof rank` on each rank."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from functools import partial
from pathlib import Path

from nsight_prof.orchestrator.plan.program import Program, step_program
from nsight_prof.orchestrator.plan.requests import trace_request
from nsight_prof.orchestrator.ranks.folder import gather, still_running
from nsight_prof.orchestrator.ranks.launcher import check_selection
from nsight_prof.orchestrator.recipe.read import Recipe
from nsight_prof.orchestrator.recipe.sections import Ranks
from nsight_prof.orchestrator.report.reporting import report_job
from nsight_prof.orchestrator.run.prepare import RunOptions, RunOutcome
from nsight_prof.orchestrator.system.discover import find_nsys
from nsight_prof.orchestrator.system.process import POLL_SECONDS, Command, Finished, run_launcher
from nsight_prof.orchestrator.system.run_lock import clear, locked, new_folder, no_empty_folder
from nsight_prof.orchestrator.system.secrets import Environment, choose_environment, mask_file
from nsight_prof.orchestrator.system.stopping import STOPS, stoppable
from nsight_prof.orchestrator.tools import nsys
from nsight_prof.parsers.errors import ProfError, StepFailed, UsageError
from nsight_prof.parsers.run.directory import (
    RANKS,
    RunDir,
    StepState,
    read_manifest,
    write_manifest,
)
from nsight_prof.parsers.substeps import watched_by

STEP = "ranks"
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
    traced = [f"--trace={ranks.trace}"] if ranks.trace else []
    stages = [f"--stage={regex}" for regex in recipe.stages]
    options = [
        f"--nsys={option}" for option in (*nsys.capture_options(request), *request.extra_args)
    ]
    rank = [sys.executable, "-m", "nsight_prof", "rank", str(job), *traced, *stages, *options]
    return [*_launcher(recipe, ranks), *rank, "--", *program.argv]


def _launcher(recipe: Recipe, ranks: Ranks) -> list[str]:
    if ranks.launcher != "torchrun":
        return [ranks.launcher, "-n", str(ranks.count), *ranks.options]
    python = os.path.expanduser(recipe.target.python) if recipe.target.python else sys.executable
    count = f"--nproc-per-node={ranks.count}"
    return [python, "-m", "torch.distributed.run", count, *ranks.options, "--no-python"]


def render_job_dry_run(recipe: Recipe, folder: Path) -> str:
    """Render the command that would start the job; `folder` is where its run would be."""
    assert recipe.ranks is not None  # who asks knows that it is a job
    command = shlex.join(job_argv(recipe, recipe.ranks, folder))
    return (
        f"# ranks: {recipe.ranks.launcher} starts prof rank, at most {recipe.trace.timeout:g} s\n"
        f"{command}\n\n"
        f"# report: tables and report of all ranks, written to {folder}/report/report.md\n"
    )


def run_job(recipe: Recipe, ranks: Ranks, options: RunOptions) -> RunOutcome:
    """Start the job of a recipe, wait for the traces of its ranks, and report them.

    Raises:
        UsageError: a job is neither resumed nor replayed.
        ToolMissing: nsys is missing.
        StepFailed: no rank has a trace.
    """
    if options.resume is not None or options.replay is not None:
        raise UsageError(
            "a job of ranks is neither resumed nor replayed",
            "start it again; the report of what was captured: prof report RUN",
        )
    check_selection(ranks.trace)
    find_nsys(os.environ)
    program = step_program(recipe, "trace")
    with stoppable(STOPS), no_empty_folder() as created:
        folder = new_folder(recipe.name, options.out, options.force)
        created.append(folder)
        with locked(folder):
            return _run(recipe, ranks, options, RunDir(folder.absolute()), program)


def _run(
    recipe: Recipe, ranks: Ranks, options: RunOptions, job: RunDir, program: Program
) -> RunOutcome:
    if options.force:
        clear(job.path)
        shutil.rmtree(job.path / RANKS, ignore_errors=True)
    argv = job_argv(recipe, ranks, job.path)
    environment = choose_environment(os.environ, recipe.target.env, recipe.to_dict())
    options.progress.started(STEP, environment.redact(shlex.join(argv)))
    errors: list[ProfError] = []
    try:
        finished = _start(argv, environment, recipe, options, (job, program))
    finally:
        _wait_for_traces(job, options)
        for log in job.path.glob("launcher.*.log"):
            mask_file(log, environment.secrets, forms=True)
    if not finished.ok:
        errors.append(_failure(ranks, finished, recipe.trace.timeout, job))
    if not job.manifest_path.is_file():
        options.progress.finished(STEP, StepState.FAILED, "no rank began")
        raise errors[0] if errors else _none_began(ranks, job)
    gather(job)
    manifest = read_manifest(job)
    manifest.recipe = recipe.to_dict()
    write_manifest(job, manifest)
    absent = [record for record in manifest.ranks if record.reason]
    state = StepState.FAILED if errors else StepState.DONE
    options.progress.finished(STEP, state, errors[0].message if errors else "")
    if absent and ranks.missing == "fail":
        numbers = ", ".join(str(record.rank) for record in absent[:8])
        errors.append(
            StepFailed(
                f"{len(absent)} ranks have no trace: {numbers}",
                f"the report says why; to go without them: --set {STEP}.missing=report",
            )
        )
    options.progress.started("report", "tables and report of all ranks")
    with watched_by(partial(options.progress.doing, "report")):
        findings, path = report_job(job, None, options.progress.warning)
    options.progress.finished("report", StepState.DONE, "")
    code = errors[0].exit_code if errors else 0
    return RunOutcome(job.path, findings, path, code, tuple(errors))


def _start(
    argv: list[str],
    environment: Environment,
    recipe: Recipe,
    options: RunOptions,
    where: tuple[RunDir, Program],
) -> Finished:
    job, program = where
    request = trace_request(recipe, program, "nsys", job.path)
    command = Command(
        tuple(argv),
        {**environment.variables, **nsys.environment(request)},
        program.cwd,
        job.path / "launcher.stdout.log",
        job.path / "launcher.stderr.log",
        recipe.trace.timeout,
        GRACE_S,
    )
    return run_launcher(command, partial(options.progress.waits, STEP))


def _wait_for_traces(job: RunDir, options: RunOptions) -> None:
    """Wait for what `prof rank` still keeps after its launcher has ended."""
    begin = time.monotonic()
    while (ranks := still_running(job)) and time.monotonic() - begin < KEPT_S:
        options.progress.doing(
            STEP, f"keeping the traces of ranks {', '.join(map(str, ranks))}", ""
        )
        time.sleep(POLL_SECONDS)


def _failure(ranks: Ranks, finished: Finished, timeout_s: float, job: RunDir) -> ProfError:
    if finished.timed_out:
        return StepFailed(
            f"the job did not end within {timeout_s:.0f} s and was ended",
            "if it only needs more time: --set trace.timeout=2h",
        )
    ended = finished.signal or f"exit code {finished.exit_code}"
    lines = [line for line in finished.tail.splitlines() if line.strip()]
    return StepFailed(
        f"{ranks.launcher} ended with {ended}{f': {lines[-1].strip()}' if lines else ''}",
        f"its output is in {job.path}/launcher.stderr.log and launcher.stdout.log",
    )


def _none_began(ranks: Ranks, job: RunDir) -> ProfError:
    return StepFailed(
        f"{ranks.launcher} ended, and no rank was traced",
        f"see ranks.trace, and its output in {job.path}/launcher.stderr.log",
    )
