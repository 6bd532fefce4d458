"""Runs the target without Nsight: alone, under torch's profiler, or with its values recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nsight_prof.orchestrator.plan.plan import Step
from nsight_prof.orchestrator.plan.program import (
    WRAPPERS,
    Program,
    operators_program,
    step_program,
    values_program,
)
from nsight_prof.orchestrator.recipe.schema import Recipe
from nsight_prof.orchestrator.recipe.sections import NvtxCapture
from nsight_prof.orchestrator.run.work import (
    RESULTS,
    RESULTS_VARIABLE,
    Call,
    Result,
    Work,
    call,
    full,
)
from nsight_prof.orchestrator.system.discover import Tool
from nsight_prof.orchestrator.system.process import Finished
from nsight_prof.orchestrator.tools import target
from nsight_prof.parsers.errors import ProfError, StepFailed
from nsight_prof.parsers.torch.values import VALUES

RECORDS = {"operators": "operators.json.gz", "values": VALUES}
"""What a step leaves beside the output of the program."""
UNDER = {"operators": " under the torch profiler", "values": " with its values recorded"}


def target_program(recipe: Recipe, step: str, folder: Path) -> Program:
    """Return the program of the step `untraced`, `operators` or `values`, which writes to `folder`.

    Raises:
        RecipeError: the target is no Python script where it must be, or does not exist.
    """
    if step == "operators":
        return operators_program(recipe, folder / RECORDS[step])
    if step == "values":
        return values_program(recipe, folder / RECORDS[step])
    return step_program(recipe, step)


def run_target(step: Step, folder: Path, work: Work, result: Result) -> None:
    """Do the step `untraced`, `operators` or `values` into `folder`.

    Raises:
        ProfError: the program failed, did not end in time, or the profiler left no trace.
    """
    program = target_program(work.recipe, step.name, folder)
    result.argv = list(program.argv)
    tool = Tool("target", program.argv[0], "", frozenset())
    environment = {RESULTS_VARIABLE: str(folder / RESULTS)}
    what = Call(step.name, tool, result.argv, folder, step.timeout_s, environment)
    finished = call(replace(work, program=program), what)
    result.exit_code = finished.exit_code
    if not finished.ok:
        raise _failure(finished, what)
    if step.name not in RECORDS:
        return
    if not (folder / RECORDS[step.name]).is_file():
        raise StepFailed(
            f"the program ended well{UNDER[step.name]} and left no trace",
            "with capture: profiler-api it must call torch.cuda.profiler.start() and stop(); see "
            f"stderr.log of the {step.name} step",
        )
    if isinstance(work.recipe.capture, NvtxCapture):
        result.warnings.append(
            f"the {step.name} are those of the whole program: {WRAPPERS[step.name]} cannot begin "
            f"at the NVTX range {', '.join(work.recipe.capture.names)}"
        )


def _failure(finished: Finished, what: Call) -> ProfError:
    """Return why the program failed, in its own words where it says it."""
    under = UNDER.get(what.step, "")
    alone = f"run it by itself: command.json of the {what.step} step has the command"
    if finished.timed_out:
        return StepFailed(
            f"the program did not end within {what.timeout_s:.0f} s{under}; all of its processes "
            "were ended",
            f"if it only needs more time: --set {what.step}.timeout=2h; less to do in this step "
            f"alone: {what.step}.args",
        )
    if finished.signal:
        return StepFailed(
            f"the program was killed ({finished.signal}){under}",
            f"SIGKILL is often too little memory (see dmesg); else {alone}",
        )
    known = target.explain_itself(finished.tail) or target.explain(finished.tail) or full(what)
    return known or StepFailed(
        f"the program ended with exit code {finished.exit_code}{under}",
        f"see stdout.log and stderr.log of the {what.step} step, or {alone}",
    )
