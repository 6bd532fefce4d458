"""Renders what a run would do: the exact commands, shell-quoted, with nothing started."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nsight_prof.orchestrator.plan.given_kernels import given_selection, is_traced
from nsight_prof.orchestrator.plan.metric_choice import chip_of, choose_metrics, dtypes_of
from nsight_prof.orchestrator.plan.plan import Capabilities, Step, plan
from nsight_prof.orchestrator.plan.program import (
    Program,
    Turn,
    counting_program,
    measuring_program,
    resolve_program,
    step_program,
)
from nsight_prof.orchestrator.plan.requests import (
    LINES,
    counters_request,
    lines_environment,
    lines_request,
    trace_request,
)
from nsight_prof.orchestrator.recipe.read import Recipe, expand
from nsight_prof.orchestrator.run.target_step import UNDER, target_program
from nsight_prof.orchestrator.run.work import RESULTS, RESULTS_VARIABLE
from nsight_prof.orchestrator.system.discover import Tool, find_ncu, find_nsys
from nsight_prof.orchestrator.system.environment import read_gpus
from nsight_prof.orchestrator.tools import ncu, nsys
from nsight_prof.parsers.errors import RecipeError, ToolMissing
from nsight_prof.parsers.run.selection import SelectedKernel, Selection

SELECTED = "<the selected kernels>"


class _Everything(frozenset[str]):
    """The options of a tool that is not here: all that prof knows of."""

    def __contains__(self, option: object) -> bool:
        return True


def render_dry_run(recipe: Recipe, folder: Path) -> str:
    """Render the steps of every variant; `folder` is where the run directory would be."""
    blocks = []
    variants = expand(recipe)
    for number, (name, variant) in enumerate(variants, 1):
        if name:
            blocks.append(f"# run {number} of {len(variants)}: {name}")
        blocks.append(_render_run(variant, folder / "variants" / name if name else folder))
    return "\n\n".join(blocks) + "\n"


def _render_run(recipe: Recipe, folder: Path) -> str:
    program = resolve_program(recipe)
    steps = plan(recipe, Capabilities())
    return "\n\n".join(_render_step(step, recipe, program, folder) for step in steps)


def _render_step(step: Step, recipe: Recipe, program: Program, folder: Path) -> str:
    path = folder / step.directory
    if step.name == "bench":
        return _render_bench(step, recipe, program, path)
    if step.name in ("untraced", "operators", "values"):
        return _render_target(step, recipe, path)
    if step.name == "trace" and step.tool == "nsys":
        return _render_trace(step, recipe, path)
    if step.name == "trace":
        return f"# {step.name}: the trace of {recipe.trace.from_run} is used"
    if step.name == "select":
        return f"# {step.name}: {_selection_words(recipe)}; written to {path}/selection.yaml"
    if step.name == "counters":
        return _render_counters(step, recipe, path)
    return f"# {step.name}: tables and report, written to {folder}/report/report.md"


def _render_bench(step: Step, recipe: Recipe, program: Program, path: Path) -> str:
    assert recipe.bench is not None
    processes, repeats = recipe.bench.processes, recipe.bench.repeat
    turn = Turn(1, 1)
    measuring = measuring_program(program, path / turn.file, turn)
    lines = [
        f"# {step.name}: the target un-profiled, at most {step.timeout_s:g} s a process",
        f"#   {processes * repeats} processes, one after another: --process 1..{processes} of each "
        f"--repeat 1..{repeats}, each with a file of its own",
    ]
    lines += _around(program, program.env)
    return "\n".join([*lines, shlex.join(measuring.argv)])


def _render_target(step: Step, recipe: Recipe, path: Path) -> str:
    """Render a run of the target without Nsight."""
    how = UNDER.get(step.name, " without a profiler")
    head = f"# {step.name}: the target{how}, at most {step.timeout_s:g} s"
    try:
        program = target_program(recipe, step.name, path)
    except RecipeError as error:
        return f"# {step.name}: not possible: {error.message}"
    lines = [head, *_around(program, {**_results(path), **program.env})]
    if step.name == "values":
        operators, seconds = recipe.values.operators, recipe.values.seconds
        lines.insert(
            1,
            f"#   recorded are at the utmost {operators:,} operators or {seconds:g} s, "
            "0.1 to 0.4 ms more for each",
        )
    return "\n".join([*lines, shlex.join(program.argv)])


def _render_trace(step: Step, recipe: Recipe, path: Path) -> str:
    program = step_program(recipe, step.name)
    tool, note = _tool("nsys", find_nsys)
    request = trace_request(recipe, program, tool.program, path)
    variables = {**nsys.environment(request), **_results(path), **program.env}
    lines = _head(step, tool, note, program, variables)
    lines.append(_shell(nsys.profile_argv(request, tool.features), program))
    report, database = path / "trace.nsys-rep", path / "trace.sqlite"
    lines.append(_shell(nsys.export_argv(tool.program, report, database, tool.features)))
    if recipe.trace.launch_lines:
        again = lines_request(recipe, program, tool.program, path / LINES)
        lines += [
            "# once more: the time of each line of Python, and which one makes each CUDA call"
        ]
        timed = replace(
            program, env=program.env | lines_environment(os.environ | program.env, path / LINES)
        )
        lines.append(_shell(nsys.profile_argv(again, tool.features), timed))
    return "\n".join(lines)


def _render_counters(step: Step, recipe: Recipe, path: Path) -> str:
    tool, note = _tool("ncu", find_ncu)
    if recipe.bench is not None:
        return _render_counting(step, recipe, path, (tool, note))
    program = step_program(recipe, step.name)
    given = _known_selection(recipe)
    selection = given or Selection([SelectedKernel("", "", "", SELECTED, "", "", 0.0, 0)])
    metrics = _metrics(recipe, None if given is None else dtypes_of(given))
    request = counters_request(recipe, program, tool.program, path, (selection, metrics))
    variables = {**ncu.ENVIRONMENT, **_results(path), **program.env}
    lines = _head(step, tool, note, program, variables)
    if given is None:
        lines.append(f"#   {SELECTED}: known once the trace is there; one regex over their names")
        lines.append("#   and with them the launches that stand for each: --launch-skip, -count")
    argv = ncu.counters_argv(request, tool.features)
    # The filter holds the placeholder as an escaped regex, which nobody could read.
    regex = ncu.kernel_regex((SELECTED,))
    lines.append(_shell([word.replace(regex, SELECTED) for word in argv], program))
    return "\n".join(lines)


def _render_counting(step: Step, recipe: Recipe, path: Path, found: tuple[Tool, str]) -> str:
    """Render the counting run of a benchmark: all that the target brackets."""
    tool, note = found
    program = counting_program(recipe, path / "result.jsonl")
    request = counters_request(recipe, program, tool.program, path, (None, _metrics(recipe, None)))
    lines = _head(step, tool, note, program, {**ncu.ENVIRONMENT, **program.env})
    return "\n".join([*lines, _shell(ncu.counters_argv(request, tool.features), program)])


def _known_selection(recipe: Recipe) -> Selection | None:
    """Return the selection that is certain before the run: a list of names still meets the trace.

    The trace may lack some of the names, tells the mangled ones, and says which launch of each is
    representative.
    """
    given = given_selection(recipe)
    if given is None or not is_traced(recipe):
        return given
    certain = isinstance(recipe.select.kernels, str)
    return given if certain and not any(k.only_demangled for k in given.kernels) else None


def _metrics(recipe: Recipe, dtypes: set[str] | None) -> tuple[str, ...]:
    """Return the metric names where the chip and the Tensor dtypes are known, else a mark."""
    chip = chip_of(gpu.get("compute_capability", "") for gpu in read_gpus().gpus)
    known = dtypes is not None or recipe.counters.tensor_dtypes != "auto"
    if chip and known:
        return choose_metrics(recipe, dtypes or (), chip)
    kernels = "the selected kernels" if recipe.bench is None else "the measured cases"
    missing = kernels if chip else "the GPU's chip"
    return (f"<the metrics of {', '.join(recipe.counters.sets)}: which ones, {missing} will tell>",)


def _shell(argv: list[str], program: Program | None = None) -> str:
    """Quote a command for the shell, a line for each option and one for the program."""
    target = list(program.argv) if program else []
    tool = argv[: len(argv) - len(target)]
    lines = [shlex.quote(tool[0])]
    for word in tool[1:]:
        if word.startswith("--"):
            lines.append(shlex.quote(word))
        else:
            lines[-1] += " " + shlex.quote(word)
    return " \\\n  ".join(lines + ([shlex.join(target)] if target else []))


def _head(
    step: Step, tool: Tool, note: str, program: Program, variables: dict[str, str]
) -> list[str]:
    """Return the comment lines above a command: values of variables may be secrets."""
    lines = [f"# {step.name}: {tool.name} {tool.version}, at most {step.timeout_s:g} s".rstrip()]
    if note:
        lines.append(f"#   {note}")
    return lines + _around(program, variables)


def _results(path: Path) -> dict[str, str]:
    return {RESULTS_VARIABLE: str(path / RESULTS)}


def _around(program: Program, variables: dict[str, str]) -> list[str]:
    """Return the comment lines about the folder and the variables of a command."""
    lines = []
    if program.cwd != Path.cwd():
        lines.append(f"#   in {program.cwd}")
    if variables:
        lines.append(f"#   with the environment variables {', '.join(sorted(variables))}")
    return lines


def _tool(name: str, find: Callable[[dict[str, str]], Tool]) -> tuple[Tool, str]:
    try:
        return find(dict(os.environ)), ""
    except ToolMissing:
        note = f"{name} is not on this machine: every option is shown; its version may lack some"
        return Tool(name, name, "(not found)", _Everything()), note


def _selection_words(recipe: Recipe) -> str:
    select = recipe.select
    if isinstance(select.kernels, str):
        return f"the kernels of {select.kernels}"
    if select.kernels is not None:
        return f"the {len(select.kernels)} kernels that the recipe names, as far as they ran"
    words = [f"at most {select.top_k} kernels" if select.top_k else "all kernels"]
    if select.coverage is not None:
        words.append(f"up to {select.coverage:.0%} of GPU time")
    if select.by_stage:
        words.append("of each stage")
    if select.include:
        words.append(f"that match {', '.join(select.include)}")
    if select.exclude:
        words.append(f"without {', '.join(select.exclude)}")
    if not select.collectives:
        words.append("without collectives")
    return ", ".join(words)
