"""Runs the target without Nsight: by itself, or under the torch profiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nsight_prof.orchestrator.plan.plan import Step
from nsight_prof.orchestrator.plan.program import operators_program, step_program
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

OPERATORS = "operators.json.gz"


def run_target(step: Step, folder: Path, work: Work, result: Result) -> None:
    """Do the step `untraced` or `operators` into `folder`.

    Raises:
        ProfError: the program failed, did not end in time, or the profiler left no trace.
    """
    is_operators = step.name == "operators"
    program = (
        operators_program(work.recipe, folder / OPERATORS)
        if is_operators
        else step_program(work.recipe, step.name)
    )
    result.argv = list(program.argv)
    tool = Tool("target", program.argv[0], "", frozenset())
    environment = {RESULTS_VARIABLE: str(folder / RESULTS)}
    what = Call(step.name, tool, result.argv, folder, step.timeout_s, environment)
    finished = call(replace(work, program=program), what)
    result.exit_code = finished.exit_code
    if not finished.ok:
        raise _failure(finished, what)
    if is_operators and not (folder / OPERATORS).is_file():
        raise StepFailed(
            "the program ended well under the torch profiler and left no trace",
            "with capture: profiler-api it must call torch.cuda.profiler.start() and stop(); see "
            "stderr.log of the operators step",
        )
    if is_operators and isinstance(work.recipe.capture, NvtxCapture):
        result.warnings.append(
            "the operators are those of the whole program: torch's profiler cannot begin at the "
            f"NVTX range {', '.join(work.recipe.capture.names)}"
        )


def _failure(finished: Finished, what: Call) -> ProfError:
    """Return why the program failed, in its own words where it says it."""
    under = " under the torch profiler" if what.step == "operators" else ""
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
