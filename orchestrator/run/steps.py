"""Does one step of a plan: captures, selects or counts, into a folder that it is given."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from nsight_prof.orchestrator.plan import counting_time
from nsight_prof.orchestrator.plan.given_kernels import given_selection, resolved
from nsight_prof.orchestrator.plan.metric_choice import chip_of, choose_metrics, dtypes_of
from nsight_prof.orchestrator.plan.plan import Step
from nsight_prof.orchestrator.plan.program import counting_program, step_program
from nsight_prof.orchestrator.plan.requests import (
    LINES,
    counters_request,
    lines_environment,
    lines_request,
    trace_request,
)
from nsight_prof.orchestrator.plan.select import choose_kernels, options_of
from nsight_prof.orchestrator.recipe.schema import Recipe
from nsight_prof.orchestrator.recipe.sections import NvtxCapture
from nsight_prof.orchestrator.run.bench_records import (
    cut_half_line,
    ends_of,
    lines_of,
    result_files,
    tensor_dtypes,
)
from nsight_prof.orchestrator.run.bench_step import measure
from nsight_prof.orchestrator.run.cooling import wait_until_cool
from nsight_prof.orchestrator.run.replay import as_recorded, copy_step
from nsight_prof.orchestrator.run.target_step import run_target
from nsight_prof.orchestrator.run.work import (
    RESULTS,
    RESULTS_VARIABLE,
    Call,
    Result,
    Work,
    call,
    failure,
)
from nsight_prof.orchestrator.system.discover import Tool
from nsight_prof.orchestrator.system.export import export_csv, export_with
from nsight_prof.orchestrator.system.native_lines import keep_native_lines
from nsight_prof.orchestrator.system.process import Finished
from nsight_prof.orchestrator.system.secrets import mask_file
from nsight_prof.orchestrator.tools import ncu, nsys, target
from nsight_prof.parsers.errors import ArtifactUnreadable, ProfError, StepFailed
from nsight_prof.parsers.join.cublas import LOG as CUBLAS_LOG
from nsight_prof.parsers.ncu import can_read_rep, read_ncu
from nsight_prof.parsers.nsys.rows.cut import open_cutter
from nsight_prof.parsers.nsys.rows.host_sources import SOURCES, keep_sources
from nsight_prof.parsers.nsys.stages.native_stacks import LINES as NATIVE_LINES
from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.parsers.run.selection import Selection, read_selection, write_selection
from nsight_prof.parsers.run.sentences import stored

SQLITE, REPORT, SELECTION = "trace.sqlite", "trace.nsys-rep", "selection.yaml"
OCCURRENCE = "occurrence.json"
"""Beside a trace that was cut to one occurrence: its numbers among all ranges of these names."""
REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")
COUNTERS, COUNTERS_CSV, NCU_LOG = "counters.ncu-rep", "counters.csv", "ncu.log"
DETAILS_CSV, SOURCE_CSV = "details.csv", "source.csv"
IN_USE_WAITS_S = (5.0, 20.0)
"""Before ncu is started again where another tool has the counters: on shared hosts for moments."""


def perform(step: Step, folder: Path, work: Work, result: Result) -> None:
    """Do `step` into `folder` (absolute, empty); `result` fills as it goes.

    Raises:
        ProfError: it failed; what it captured before stays in `folder`.
    """
    if step.name == "select":
        _select(folder, work, result)
    elif work.replay is not None:
        copy_step(work.replay, step.name, folder, result)
    elif step.name == "trace" and work.recipe.trace.from_run is not None:
        copy_step(RunDir(Path(work.recipe.trace.from_run)), step.name, folder, result)
    elif step.name == "bench":
        _cool(step, work, result)
        measure(step, folder, work, result)
    else:
        _cool(step, work, result)
        try:
            _start(step, folder, work, result)
        finally:
            _drop_link(folder / RESULTS, result)
            # What the program told stays, also where it was ended in the middle of a line.
            cut_half_line(folder / RESULTS)
            _mask(folder / RESULTS, work, result)
            _hide_reports(folder, result)


def _cool(step: Step, work: Work, result: Result) -> None:
    """Wait as long as the recipe says; a gate that was not met is a warning of the step."""
    tell = partial(work.progress.doing, step.name, "")
    result.warnings += filter(None, [wait_until_cool(work.recipe.wait_until, work.gpus, tell)])


def _start(step: Step, folder: Path, work: Work, result: Result) -> None:
    """Start the program for `step`, under its tool."""
    if step.name in ("untraced", "operators", "values"):
        run_target(step, folder, work, result)
        return
    if work.recipe.bench is not None:
        dtypes = tensor_dtypes(result_files(work.run))
        counting = replace(work, program=counting_program(work.recipe, folder / RESULTS))
        _counters(step, folder, counting, result, (None, dtypes))
        return
    work = replace(work, program=step_program(work.recipe, step.name))
    if step.name == "trace":
        _trace(step, folder, work, result)
    else:
        selection = _selection(work)
        _counters(step, folder, work, result, (selection, dtypes_of(selection)))


def _trace(step: Step, folder: Path, work: Work, result: Result) -> None:
    tool = work.machine.tools["nsys"]
    request = trace_request(work.recipe, work.program, tool.program, folder)
    result.argv = nsys.profile_argv(request, tool.features)
    timeout_s = step.timeout_s
    environment = nsys.environment(request) | {RESULTS_VARIABLE: str(folder / RESULTS)}
    if work.recipe.trace.cublas_log:
        environment |= {"CUBLASLT_LOG_LEVEL": "2", "CUBLASLT_LOG_FILE": str(folder / CUBLAS_LOG)}
    what = Call(step.name, tool, result.argv, folder, timeout_s, environment)
    finished = call(work, what)
    result.exit_code = finished.exit_code
    report = folder / REPORT
    _mask(report, work, result)
    complete = report.is_file() and nsys.captured_whole(lines_of(what.stdout), request)
    if finished.timed_out and complete:
        result.warnings.append(
            stored(
                "the program did not end within {timeout_s:.0f} s and was ended; the capture "
                "range had come to its end before, so the trace is whole",
                timeout_s=step.timeout_s,
            )
        )
    elif finished.timed_out or not nsys.succeeded(finished.exit_code, request):
        of_nsys = (nsys.explain_refused, target.explain, nsys.explain)
        raise failure(finished, what, (target.explain_itself, *of_nsys))
    if not report.is_file():
        raise failure(finished, what, (nsys.explain, _no_report))
    work.progress.doing(step.name, "nsys writes the trace as SQLite", "")
    export_with(tool, report, folder / SQLITE, work.machine.environment.variables)
    _mask(folder / SQLITE, work, result)
    check_trace(folder / SQLITE)
    _cut(folder / SQLITE, work.recipe)
    if work.recipe.trace.python_sampling:
        with open_trace(folder / SQLITE) as trace:
            keep_sources(trace.host_lines(), work.program.cwd, folder / SOURCES)
        _mask(folder / SOURCES, work, result)
    if not work.recipe.trace.keep_report:
        report.unlink()
    if work.recipe.trace.launch_lines:
        _launch_lines(step, folder, work, result)


def _launch_lines(step: Step, folder: Path, work: Work, result: Result) -> None:
    """Trace the program once more, while each of its lines of Python is timed, or with native
    stacks at each CUDA call: who launched each kernel. A failure is a warning: the trace itself is
    there.
    """
    tool, at = work.machine.tools["nsys"], folder / LINES
    at.mkdir()
    request = lines_request(work.recipe, work.program, tool.program, at)
    argv, report, sqlite = nsys.profile_argv(request, tool.features), at / REPORT, at / SQLITE
    environment = nsys.environment(request)
    environment |= lines_environment(work.machine.environment.variables, at)
    what = Call(step.name, tool, argv, at, step.timeout_s, environment, "time of each line")
    try:
        finished = call(work, what)
        if finished.timed_out or not nsys.succeeded(finished.exit_code, request):
            raise failure(finished, what, (target.explain_itself, target.explain, nsys.explain))
        export_with(tool, report, sqlite, work.machine.environment.variables)
        for recorded in (sqlite, *at.glob("lines-*.bin")):
            _mask(recorded, work, result)
        with open_trace(sqlite) as trace:
            keep_native_lines(trace.native_addresses(), at / NATIVE_LINES)
    except ProfError as error:
        result.warnings.append(f"the lines that launch each kernel are not known: {error.message}")
    report.unlink(missing_ok=True)


def _cut(sqlite: Path, recipe: Recipe) -> None:
    """Leave in the trace what the recipe captures, where nsys had to record the whole program."""
    if not isinstance(recipe.capture, NvtxCapture) or not recipe.capture.is_cut:
        return
    cut_trace = sqlite.with_name(f"part-{sqlite.name}")
    with open_cutter(sqlite) as cutter:
        numbers = cutter.cut(recipe.capture.names, cut_trace, recipe.capture.occurrence)
    if recipe.capture.occurrence is not None:
        sqlite.with_name(OCCURRENCE).write_text(json.dumps(numbers), "utf-8")
    cut_trace.replace(sqlite)
    check_trace(sqlite)


def check_trace(sqlite: Path) -> None:
    """Open a trace once, so that an empty or unknown one fails here and not in a later step.

    Raises:
        NoKernels: the program launched none that nsys saw.
        ArtifactUnreadable: the schema is unknown.
    """
    with open_trace(sqlite):
        pass


def _no_report(_log: str) -> ProfError:
    return StepFailed(
        "nsys ended well and left no report",
        "with capture: profiler-api or {nvtx: NAME} the range was never entered: check its name; "
        "else see stderr.log of the trace step",
    )


def _select(folder: Path, work: Work, result: Result) -> None:
    trace = work.run.artifact("trace", SQLITE)
    given = work.recipe.select.kernels
    if isinstance(given, str) or trace is None:
        selection = given_selection(work.recipe)
        if selection is not None and trace is not None:
            with open_trace(trace, work.recipe.stages) as opened:
                selection = resolved(selection, opened.kernels(), opened.launches())
    else:
        selection = _ranked(trace, work)
    if selection is None:
        raise StepFailed(
            "there is no trace to rank the kernels of",
            "run the trace first, or give select.kernels",
        )
    if not selection.kernels:
        raise StepFailed(
            "no kernel is selected",
            "loosen select.include, select.exclude or select.collectives",
        )
    if work.replay is not None:
        selection = as_recorded(selection, work.replay)
    write_selection(folder / SELECTION, selection)
    result.warnings += selection.warnings()


def _ranked(trace_path: Path, work: Work) -> Selection:
    options = options_of(work.recipe.select)
    with open_trace(trace_path, work.recipe.stages) as trace:
        kernels, launches = trace.kernels(), trace.launches()
        selection = choose_kernels(kernels, launches, trace.stage_kernels(), options)
        if work.recipe.counters.enabled and work.replay is None:
            names = trace.process_names({int(pid) for pid in launches["pid"].unique()})
            command = work.program.argv[0]
            time = counting_time.counting_time(selection, kernels, launches, names, command)
            selection.notes += counting_time.warnings(time)
        return selection


def _counters(
    step: Step,
    folder: Path,
    work: Work,
    result: Result,
    chosen: tuple[Selection | None, set[str]],
) -> None:
    """Profile the selection, or all that the program brackets; `chosen` names input types too."""
    tool = work.machine.tools["ncu"]
    selection, dtypes = chosen
    metrics = choose_metrics(work.recipe, dtypes, _chip(work))
    finished, what = _profile_when_free(step, folder, work, result, (selection, metrics))
    unknown = ncu.unknown_metrics(ends_of(folder / NCU_LOG) + finished.tail)
    # Sections of ncu's rules ask for metrics of their own, which chips may lack.
    lacking = [metric for metric in unknown if metric in metrics]
    remaining = tuple(metric for metric in metrics if metric not in lacking)
    if lacking and remaining:
        result.warnings.append(
            stored(
                "this chip or ncu {version} lacks metrics, which were left out: {lacking}",
                version=tool.version,
                lacking=", ".join(lacking),
            )
        )
        if not (folder / COUNTERS).is_file():
            finished, what = _profile(step, folder, work, selection, remaining)
    result.argv, result.exit_code = what.argv, finished.exit_code
    if not finished.ok or not (folder / COUNTERS).is_file():
        of_target = (target.explain_itself, target.explain)
        explainers = (ncu.explain_tool, *of_target, ncu.explain, *_nothing(finished))
        raise failure(finished, what, explainers, ends_of(folder / NCU_LOG))
    capture = work.recipe.capture
    is_one = isinstance(capture, NvtxCapture) and capture.occurrence is not None
    if is_one and ncu.RANGE_FILTER not in what.argv:
        result.warnings.append(
            stored(
                "the trace holds one occurrence alone, and ncu {version} cannot tell them "
                "apart: counters are of launches in any of them",
                version=tool.version,
            )
        )
    _mask(folder / COUNTERS, work, result)
    _print_csv(tool, folder, work, result)
    check_counters(folder)


def _nothing(finished: Finished) -> tuple[Callable[[str], ProfError | None], ...]:
    """Where ncu ended well without a report, say that it profiled nothing."""
    return (lambda _log: ncu.explain("No kernels were profiled"),) if finished.ok else ()


def _profile_when_free(
    step: Step,
    folder: Path,
    work: Work,
    result: Result,
    chosen: tuple[Selection | None, tuple[str, ...]],
) -> tuple[Finished, Call]:
    """Run ncu, and again after a while where another tool had the counters of the GPU."""
    finished, what = _profile(step, folder, work, *chosen)
    for wait_s in IN_USE_WAITS_S:
        log = "" if finished.ok else ends_of(folder / NCU_LOG) + finished.tail
        if not isinstance(ncu.explain_tool(log), ncu.CountersInUse):
            break
        result.warnings.append(
            f"another tool had the counters of the GPU; ncu was started again after {wait_s:g} s"
        )
        work.progress.doing(step.name, "", f"the counters are in use, waiting {wait_s:g} s")
        time.sleep(wait_s)
        finished, what = _profile(step, folder, work, *chosen)
    return finished, what


def _profile(
    step: Step, folder: Path, work: Work, selection: Selection | None, metrics: tuple[str, ...]
) -> tuple[Finished, Call]:
    tool = work.machine.tools["ncu"]
    chosen, numbers = (selection, metrics), _range_numbers(work)
    request = counters_request(work.recipe, work.program, tool.program, folder, chosen, numbers)
    argv = ncu.counters_argv(request, tool.features)
    environment = dict(ncu.ENVIRONMENT)
    if work.recipe.bench is None:  # a benchmark gets the file as its argument
        environment[RESULTS_VARIABLE] = str(folder / RESULTS)
    log = folder / NCU_LOG
    what = Call(step.name, tool, argv, folder, step.timeout_s, environment, tool_log=log)
    finished = call(work, what)
    mask_file(log, work.machine.environment.secrets, forms=True)
    return finished, what


def _range_numbers(work: Work) -> tuple[int, ...]:
    """Return which of the ranges that the recipe names the trace was cut to; empty for all."""
    path = work.run.artifact("trace", OCCURRENCE)
    return () if path is None else tuple(json.loads(path.read_text("utf-8")))


def _print_csv(tool: Tool, folder: Path, work: Work, result: Result) -> None:
    """Write counters.csv beside the report; without ncu-report it is what gets read.

    What ncu's rules said stands on another page, details.csv; what each line did in source.csv.
    """
    csv, variables = folder / COUNTERS_CSV, work.machine.environment.variables
    try:
        export_csv(tool, folder / COUNTERS, csv, variables)
        if work.recipe.counters.rules:
            export_csv(tool, folder / COUNTERS, folder / DETAILS_CSV, variables, "details")
            _mask(folder / DETAILS_CSV, work, result)
        if work.recipe.counters.source:
            export_csv(tool, folder / COUNTERS, folder / SOURCE_CSV, variables, "source")
            _mask(folder / SOURCE_CSV, work, result)
    except ArtifactUnreadable as error:
        if not can_read_rep():
            raise
        message = error.message.replace(f"{folder}/", "")
        pages = (COUNTERS_CSV, DETAILS_CSV, SOURCE_CSV)
        missing = next(name for name in pages if not (folder / name).is_file())
        result.warnings.append(f"no {missing}: {message}")
    else:
        _mask(csv, work, result)


def check_counters(folder: Path) -> None:
    """Read the counters once, as the report will: ncu also exits 0 over what nobody can read.

    Raises:
        ArtifactUnreadable: neither the report nor the CSV holds counters of a kernel.
    """
    refused: ProfError | None = None
    for name in (COUNTERS, COUNTERS_CSV) if can_read_rep() else (COUNTERS_CSV,):
        if (folder / name).is_file():
            try:
                read_ncu(folder / name)
            except ProfError as error:
                refused = error
            else:
                return
    raise refused or ArtifactUnreadable(f"{folder} holds no counters", "do the step again")


def _chip(work: Work) -> str:
    """Return the chip from the trace where there is one, else from the compute capability."""
    trace = work.run.artifact("trace", SQLITE)
    if trace is not None:
        with open_trace(trace) as opened:
            chips = [str(chip) for chip in opened.gpus()["chip"].dropna() if chip]
        if chips:
            return chips[0]
    return chip_of(str(gpu.get("compute_capability", "")) for gpu in work.machine.gpus)


def _selection(work: Work) -> Selection:
    path = work.run.artifact("select", SELECTION)
    if path is None:
        raise StepFailed("there is no selection to profile", "run the select step first")
    return read_selection(path)


def _mask(path: Path, work: Work, result: Result) -> None:
    """Mask secrets that reached a capture all the same, and say so."""
    if mask_file(path, work.machine.environment.secrets):
        result.warnings.append(
            stored(
                "{name} held values of secret variables, which were masked; compressed parts "
                "of a report may hold them still: do not publish it",
                name=path.name,
            )
        )


def _hide_reports(folder: Path, result: Result) -> None:
    """Say what the reports of nsys hold that stay: of a step that failed, or those asked for."""
    for path in sorted(folder.glob("*")):
        if path.suffix in REPORTS and path.is_file():
            path.chmod(0o600)
            result.warnings.append(
                stored(
                    "{name} is kept, and holds the environment variables of all processes "
                    "that nsys saw, in a form that cannot be masked: delete it before you "
                    "share the run",
                    name=path.name,
                )
            )


def _drop_link(path: Path, result: Result) -> None:
    """Remove a link in the place of a file of ours: what it points to is not read or changed."""
    if path.is_symlink():
        path.unlink()
        result.warnings.append(f"{path.name} was a link to another file, and is not used")
