"""Turns a recipe and its resolved program into requests for nsys and ncu, for run and dry run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from nsight_prof.orchestrator.plan.program import LINE_TIMER, Program
from nsight_prof.orchestrator.recipe.schema import Recipe
from nsight_prof.orchestrator.recipe.sections import NvtxCapture
from nsight_prof.orchestrator.tools.ncu import CountersRequest
from nsight_prof.orchestrator.tools.nsys import TraceRequest
from nsight_prof.parsers.run.selection import Selection

LINES = "lines"
"""Folder in that of the trace for the run that says which line made each call of CUDA."""


def trace_request(recipe: Recipe, program: Program, nsys: str, folder: Path) -> TraceRequest:
    """Return the request of the trace step; the report lands in `folder`/trace.nsys-rep."""
    capture, ranges = _capture(recipe)
    if isinstance(recipe.capture, NvtxCapture) and recipe.capture.is_cut:
        capture, ranges = "all", ()
    return TraceRequest(
        program=nsys,
        output=folder / "trace",
        target=program.argv,
        capture=capture,
        nvtx_range=ranges[0] if ranges else "",
        python_sampling=recipe.trace.python_sampling,
        extra_args=recipe.trace.extra_args,
    )


def lines_request(recipe: Recipe, program: Program, nsys: str, folder: Path) -> TraceRequest:
    """Return the request of the run that says which line made each call of CUDA.

    Lines of Python are timed by themselves (`lines_environment`); of a program that is no Python
    script native stacks tell.
    """
    request = trace_request(recipe, program, nsys, folder)
    return replace(request, python_sampling=False, native_stacks=not is_python(program))


def lines_environment(variables: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the variables under which Python times its lines into `folder`.

    torch.compile then says on stderr why it compiles anew, unless the program asks for other logs.
    """
    paths = [str(LINE_TIMER), variables.get("PYTHONPATH", "")]
    logs = {} if "TORCH_LOGS" in variables else {"TORCH_LOGS": "recompiles"}
    return {"PROF_LINES": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, paths)), **logs}


def is_python(program: Program) -> bool:
    """Return whether a program is started by an interpreter of Python."""
    return Path(program.argv[0]).name.startswith("python")


def counters_request(
    recipe: Recipe,
    program: Program,
    ncu: str,
    folder: Path,
    chosen: tuple[Selection | None, tuple[str, ...]],
    range_numbers: tuple[int, ...] = (),
) -> CountersRequest:
    """Return the request of the counters step; `chosen` is the selection and the metric names.

    Without a selection all kernels of the capture are profiled. `range_numbers` are those of the
    occurrence of several NVTX ranges; that of one is known without.
    """
    selection, metrics = chosen[0] or Selection(), chosen[1]
    capture, ranges = _capture(recipe)
    which = recipe.capture.occurrence if isinstance(recipe.capture, NvtxCapture) else None
    if which is not None and len(ranges) == 1:
        range_numbers = (which,)
    return CountersRequest(
        program=ncu,
        output=folder / "counters",
        log=folder / "ncu.log",
        target=program.argv,
        kernels=tuple(kernel.mangled_name for kernel in selection.kernels),
        metrics=metrics,
        skip=selection.skip,
        count=selection.count,
        capture=capture,
        nvtx_ranges=ranges,
        range_numbers=range_numbers,
        clock_control=recipe.counters.clock_control,
        cache_control=recipe.counters.cache_control,
        rules=recipe.counters.rules,
        source=recipe.counters.source,
        extra_args=recipe.counters.extra_args,
    )


def _capture(recipe: Recipe) -> tuple[str, tuple[str, ...]]:
    if isinstance(recipe.capture, NvtxCapture):
        return "nvtx", recipe.capture.names
    return recipe.capture, ()
