"""Looks at this machine once at the start of a run: tools, GPUs, permission, software."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nsight_prof.orchestrator.plan.plan import Capabilities
from nsight_prof.orchestrator.plan.program import Program, operators_program, values_program
from nsight_prof.orchestrator.recipe.read import Recipe
from nsight_prof.orchestrator.system.discover import Tool, find_ncu, find_nsys
from nsight_prof.orchestrator.system.environment import (
    has_gpu,
    read_gpus,
    read_interpreter,
    read_software,
)
from nsight_prof.orchestrator.system.permission import ask_counters
from nsight_prof.orchestrator.system.process_tree import abandoned
from nsight_prof.orchestrator.system.secrets import Environment, choose_environment
from nsight_prof.parsers.errors import ProfError, RecipeError, ToolMissing
from nsight_prof.parsers.run.sentences import stored

# The largest file of a command whose content counts as part of the program.
LARGEST_PROGRAM = 64 << 20
# Options of nsys that fill tables of the export that no reader of prof opens.
UNREAD = re.compile(
    r"--(?:gpuctxsw|cpuctxsw|sample|python-sampling|nic-metrics|os-events"
    r"|cpu-core-events|ftrace)=(?!none$|false$)"
)


@dataclass(frozen=True)
class Machine:
    """What a run needs to know of this machine.

    `obstacles` is step -> why this machine cannot do it, as the error to report.
    """

    environment: Environment
    tools: Mapping[str, Tool] = field(default_factory=dict)
    obstacles: Mapping[str, ProfError] = field(default_factory=dict)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    software: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def capabilities(self, program: str, kernels: str) -> Capabilities:
        """Return what the plan needs; `program` and `kernels` are digests of those files."""
        return Capabilities(
            versions={name: tool.version for name, tool in self.tools.items()},
            unavailable={step: error.message for step, error in self.obstacles.items()},
            target_digest=program,
            kernels_digest=kernels,
        )


def look_around(recipe: Recipe, program: Program) -> Machine:
    """Find what the recipe needs on this machine.

    Raises:
        ToolMissing: no GPU, or no nsys for a trace that the recipe wants.
    """
    environment = choose_environment(os.environ, program.env, recipe.to_dict())
    traces = recipe.trace.enabled and recipe.trace.from_run is None
    if (traces or recipe.counters.enabled) and not has_gpu():
        tiny = "; tiny sizes without a GPU: --set target.args.device=cpu " if recipe.bench else ""
        raise ToolMissing(
            "this machine shows no NVIDIA GPU",
            "check nvidia-smi (in a container: --gpus all), or replay a recorded run: "
            f"--replay RUN{tiny and tiny + '--set counters.enabled=false'}",
        )
    tools: dict[str, Tool] = {}
    obstacles: dict[str, ProfError] = {}
    if traces:
        tools["nsys"] = find_nsys(os.environ)
    if recipe.counters.enabled:
        obstacle = _counters_tool(tools, environment)
        if obstacle is not None:
            obstacles["counters"] = obstacle
    for step, program_of in (("operators", operators_program), ("values", values_program)):
        if getattr(recipe, step).enabled:
            try:
                program_of(recipe, Path())
            except RecipeError as error:
                obstacles[step] = error
    nvml = read_gpus()
    interpreter = _interpreter(recipe, program, environment)
    software = {"driver": nvml.driver, "cuda_driver": nvml.cuda}
    software |= read_software(interpreter, program.cwd)
    return Machine(
        environment,
        tools,
        obstacles,
        nvml.gpus,
        {name: value for name, value in software.items() if value},
        (*_unread(recipe), *_warnings(environment, tools, nvml.cuda)),
    )


def program_digest(program: Program) -> str:
    """Return the digest of the target file, or of the files that a command names."""
    if program.digest:
        return program.digest
    digest = hashlib.sha256()
    for word in program.argv:
        path = Path(shutil.which(word) or word) if word == program.argv[0] else Path(word)
        path = program.cwd / path
        # Not Path.is_file, which raises where the word is longer than any name of a file.
        if os.path.isfile(path) and path.stat().st_size <= LARGEST_PROGRAM:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _counters_tool(tools: dict[str, Tool], environment: Environment) -> ProfError | None:
    try:
        tools["ncu"] = find_ncu(os.environ)
    except ToolMissing as error:
        return error
    refused = ask_counters(tools["ncu"], environment.variables)
    return refused if isinstance(refused, ToolMissing) else None


def _interpreter(recipe: Recipe, program: Program, environment: Environment) -> dict[str, str]:
    """Ask the target's interpreter for versions, where the target is a Python program."""
    python = program.argv[0]
    if recipe.target.file is None and not Path(python).name.startswith("python"):
        return {}
    return read_interpreter(python, environment.variables, program.cwd)


def _unread(recipe: Recipe) -> list[str]:
    """Warn of options of nsys that collect what no table and no report of prof shows."""
    unread = [word for word in recipe.trace.extra_args if UNREAD.match(word)]
    if not unread or recipe.trace.keep_report or not recipe.trace.enabled:
        return []
    return [
        stored(
            "trace.extra_args: prof reads nothing of what {unread} collects; "
            "trace.keep_report: true keeps the .nsys-rep, in which Nsight Systems shows it",
            unread=", ".join(unread),
        )
    ]


def _warnings(environment: Environment, tools: Mapping[str, Tool], cuda: str) -> list[str]:
    found = []
    if environment.withheld:
        found.append(
            stored(
                "the target does not get these variables, because they look like secrets and "
                "nsys records the environment: {withheld}; to pass one: target.env: {{NAME: "
                "${{NAME}}}}",
                withheld=", ".join(environment.withheld),
            )
        )
    nsys = tools.get("nsys")
    if nsys is not None and too_old(nsys.version, cuda):
        found.append(
            stored(
                "nsys {version} is older than the driver's CUDA {cuda}; such a pair has "
                "crashed programs at their first kernel: use an nsys of the driver's year",
                version=nsys.version,
                cuda=cuda,
            )
        )
    found += (
        [stored("nsys was found {note}", note=nsys.note)] if nsys is not None and nsys.note else []
    )
    found += [
        stored(
            "process {pid} ({name}) of a run that was killed still runs and may use the GPU: "
            "look at it and end it (kill {pid})",
            pid=pid,
            name=name,
        )
        for pid, name in abandoned().items()
    ]
    return found


def too_old(nsys_version: str, cuda: str) -> bool:
    """Tell whether nsys is from before the driver's CUDA major version.

    nsys 2023.4.4 killed a CUDA 13 program at its first kernels (H200, driver 580).
    """
    first = {"12": (2022, 5), "13": (2025, 3)}.get(cuda.partition(".")[0])
    numbers = [int(number) for number in nsys_version.split(".")[:2] if number.isdigit()]
    return first is not None and len(numbers) == 2 and tuple(numbers) < first
