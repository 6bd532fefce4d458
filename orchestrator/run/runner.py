"""Walks the plan of a recipe: captures, selects, counts, reports, and can be resumed anywhere."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nsight_prof.orchestrator.plan.plan import SPARE, Step, plan
from nsight_prof.orchestrator.plan.program import step_program
from nsight_prof.orchestrator.recipe.read import Recipe, expand
from nsight_prof.orchestrator.recipe.schema import PROFILED
from nsight_prof.orchestrator.report.reporting import compare_variants, make_report
from nsight_prof.orchestrator.run.journal import Journal, plain_errors, told_where
from nsight_prof.orchestrator.run.prepare import RunOptions, RunOutcome, prepare, start_manifest
from nsight_prof.orchestrator.run.replay import check_same_program, without_later_steps
from nsight_prof.orchestrator.run.roofs_of_run import attach, keep
from nsight_prof.orchestrator.run.steps import perform
from nsight_prof.orchestrator.run.work import Work
from nsight_prof.orchestrator.system.run_lock import clear, locked, new_folder, no_empty_folder
from nsight_prof.orchestrator.system.secrets import choose_environment
from nsight_prof.orchestrator.system.stopping import STOPS, stoppable
from nsight_prof.parsers.errors import Interrupted, ProfError, ToolMissing, UsageError
from nsight_prof.parsers.run.directory import (
    VARIANTS,
    RunDir,
    StepRecord,
    StepState,
    check_one_run,
    read_manifest,
)
from nsight_prof.parsers.substeps import watched_by

if TYPE_CHECKING:
    from nsight_prof.reports.render.style import Style

__all__ = ["RunOptions", "RunOutcome", "run_recipe"]
# As much of a command as is shown while it runs; command.json has all of it.
LONGEST_WORDS = 1000


def run_recipe(recipe: Recipe, options: RunOptions) -> RunOutcome:
    """Run a recipe from its target to its report; a sweep runs every variant.

    SIGTERM, SIGHUP and the others of STOPS stop a run as Ctrl-C does.

    Raises:
        ProfError: a step failed and there is nothing to report; the manifest holds the same.
        Interrupted: Ctrl-C; the run is resumable.
    """
    with stoppable(STOPS), no_empty_folder() as created:
        folder = _folder(recipe, options)
        created.append(folder)
        with plain_errors(folder), locked(folder), told_where(folder):
            run = _run_sweep if recipe.sweep else _run_one
            return run(recipe, options, RunDir(folder))


def _folder(recipe: Recipe, options: RunOptions) -> Path:
    """Return the run's folder, made or found; what cannot work is refused before it is made."""
    if options.replay is not None:
        check_one_run(options.replay)
        check_same_program(recipe, read_manifest(RunDir(options.replay)), str(options.replay))
    if options.resume is None:
        return new_folder(recipe.name, options.out, options.force)
    if options.out is not None and options.out != options.resume:
        raise UsageError("--out and --resume name two folders", "give --resume alone")
    read_manifest(RunDir(options.resume))
    return options.resume


def _run_one(recipe: Recipe, options: RunOptions, run: RunDir) -> RunOutcome:
    recipe = without_later_steps(recipe, options.replay)
    manifest = start_manifest(recipe, options, run)
    work, capabilities = prepare(recipe, options, run, manifest)
    journal = Journal(run, manifest, work.machine.environment)
    steps = plan(recipe, capabilities)
    if options.force and options.resume is None:
        clear(run.path)
    journal.plan(steps)
    for warning in work.machine.warnings:
        options.progress.warning(warning)
    errors: list[ProfError] = []
    for step in steps:
        if step.name != "report":
            _step(step, work, journal, errors)
    return _report(steps[-1], work, journal, errors)


def _step(step: Step, work: Work, journal: Journal, errors: list[ProfError]) -> None:
    """Do one step, unless it is done already or cannot be done here."""
    record = journal.manifest.step(step.name)
    assert record is not None  # the journal made a record for each step of the plan
    if record.state == StepState.DONE:
        work.progress.finished(step.name, StepState.SKIPPED, "done before, and nothing changed")
        return
    if step.unsupported:
        errors.append(_unsupported(step, record, work, journal))
        return
    work.progress.started(step.name, _waits_for(step, work))
    if record.rerun_reason:
        work.progress.warning(f"{step.name} is done again: {record.rerun_reason}")
    try:
        with journal.doing(step, record) as (folder, result):
            perform(step, folder, work, result)
    except ProfError as error:
        work.progress.finished(step.name, StepState.FAILED, error.message)
        if step.name not in SPARE or isinstance(error, Interrupted):
            raise
        # The other steps stand without this one: report them, and say what is missing.
        errors.append(error)
        return
    for warning in record.warnings:
        work.progress.warning(warning)
    work.progress.finished(step.name, StepState.DONE, "")
    if result.error is not None:
        errors.append(result.error)


def _unsupported(step: Step, record: StepRecord, work: Work, journal: Journal) -> ProfError:
    error = work.machine.obstacles.get(step.name) or ToolMissing(
        step.unsupported, "record the run again on a machine that can do it"
    )
    if step.name in ("trace", "bench"):
        raise error
    record.state = StepState.UNSUPPORTED
    record.error, record.hint = error.message, error.hint
    journal.save()
    work.progress.finished(step.name, record.state, error.message)
    return error


def _report(step: Step, work: Work, journal: Journal, errors: list[ProfError]) -> RunOutcome:
    """Make tables and report; always, because it is cheap and its code may be newer."""
    record = journal.manifest.step(step.name)
    assert record is not None
    record.rerun_reason = ""
    work.progress.started(step.name, "tables and report")
    try:
        with journal.doing(step, record) as (_, result):
            attach(work, journal.manifest)
            journal.save()
            try:
                with watched_by(partial(work.progress.doing, step.name)):
                    found, path = make_report(work.run, *_own_templates(work.recipe))
            finally:
                # The roofs stand also where the report about them could not be rendered.
                result.warnings += filter(None, [keep(work, journal.manifest)])
    except ProfError as error:
        work.progress.finished(step.name, StepState.FAILED, error.message)
        raise
    for warning in record.warnings:
        work.progress.warning(warning)
    work.progress.finished(step.name, StepState.DONE, "")
    return RunOutcome(
        work.run.path,
        found,
        path,
        errors[0].exit_code if errors else 0,
        tuple(errors),
    )


def _run_sweep(recipe: Recipe, options: RunOptions, run: RunDir) -> RunOutcome:
    """Run every variant as a whole run, then compare them; a failed variant stops no other."""
    environment = choose_environment(os.environ, recipe.target.env, recipe.to_dict())
    journal = Journal(run, start_manifest(recipe, options, run), environment)
    if options.force and options.resume is None:
        clear(run.path)
    variants = expand(recipe)
    journal.manifest.variants = [name for name, _ in variants]
    journal.save()
    errors: list[ProfError] = []
    outcomes = []
    for index, (name, variant) in enumerate(variants, 1):
        options.progress.variant(name, index, len(variants))
        try:
            outcomes.append(_run_variant(variant, options, run.path / VARIANTS / name))
            errors += outcomes[-1].errors
        except Interrupted:
            raise
        except ProfError as error:
            errors.append(type(error)(f"{name}: {error.message}", error.hint))
    if not outcomes:
        raise errors[0]
    found, path = compare_variants(run, *_own_templates(recipe))
    code = errors[0].exit_code if errors else 0
    return RunOutcome(run.path, found, path, code, tuple(errors))


def _own_templates(recipe: Recipe) -> tuple[Style, ...]:
    """Return the style with the templates of the recipe that was given, where it names some."""
    if recipe.templates is None:
        return ()
    from nsight_prof.reports.render.style import Style

    return (Style(Path(recipe.templates)),)


def _run_variant(recipe: Recipe, options: RunOptions, folder: Path) -> RunOutcome:
    resumed = (
        folder if options.resume is not None and RunDir(folder).manifest_path.is_file() else None
    )
    replay = options.replay / VARIANTS / folder.name if options.replay is not None else None
    if replay is not None and options.replay is not None:
        RunDir(options.replay).inside(replay, VARIANTS)
        check_same_program(recipe, read_manifest(RunDir(replay)), str(replay))
    folder.mkdir(parents=True, exist_ok=True)
    return _run_one(recipe, replace(options, resume=resumed, replay=replay), RunDir(folder))


def _waits_for(step: Step, work: Work) -> str:
    if work.replay is not None and step.name != "select":
        return f"the recorded run {work.replay.path}"
    if step.tool == "prof":
        return "the choice of kernels" if step.name == "select" else str(work.recipe.trace.from_run)
    is_profiling = step.name in PROFILED and work.recipe.bench is None
    program = step_program(work.recipe, step.name) if is_profiling else work.program
    under = {"target": "", "operators": "torch profiler: ", "values": "values: "}
    tool = under.get(step.name, under.get(step.tool, f"{step.tool} "))
    words = work.machine.environment.redact(f"{tool}{shlex.join(program.argv)}")
    return words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}…"
