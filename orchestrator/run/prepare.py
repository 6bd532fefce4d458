"""Prepares a run: what was asked, what is known of the machine, and the manifest that says it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from nsight_prof.orchestrator.plan.given_kernels import given_selection, kernels_digest
from nsight_prof.orchestrator.plan.plan import Capabilities
from nsight_prof.orchestrator.plan.program import Program, resolve_program
from nsight_prof.orchestrator.recipe.read import Recipe
from nsight_prof.orchestrator.run.machine import Machine, look_around, program_digest
from nsight_prof.orchestrator.run.replay import (
    as_measured,
    check_reused_trace,
    recorded_capabilities,
)
from nsight_prof.orchestrator.run.work import Work
from nsight_prof.orchestrator.system.environment import visible_gpus
from nsight_prof.orchestrator.system.monitor import Source, open_source
from nsight_prof.orchestrator.system.secrets import choose_environment
from nsight_prof.orchestrator.system.version import prof_version
from nsight_prof.orchestrator.terminal.progress import Progress, Silent
from nsight_prof.parsers.errors import ProfError, ToolMissing
from nsight_prof.parsers.run.directory import Manifest, RunDir, read_manifest
from nsight_prof.parsers.run.sentences import stored

LOOKS_FOR = "tools, GPU, permission for counters, the target's packages"


@dataclass(frozen=True)
class RunOutcome:
    """What a run left: `errors` are failures after which the report was still made.

    `exit_code` is 0, or the exit code of the first error: 3 where this machine refuses hardware
    counters and the report holds the trace only.
    """

    run_dir: Path
    findings: tuple[str, ...]
    report_path: Path | None
    exit_code: int
    errors: tuple[ProfError, ...] = ()


@dataclass(frozen=True)
class RunOptions:
    """How to run a recipe; at most one of `out` and `resume`.

    `replay` is a recorded run whose raw captures stand in for the tools; `force` lets a run write
    into a folder that already holds one; without `roofs`, no measured roofs of the cache are used.
    """

    out: Path | None = None
    replay: Path | None = None
    resume: Path | None = None
    force: bool = False
    roofs: bool = True
    progress: Progress = field(default_factory=Silent)


def start_manifest(recipe: Recipe, options: RunOptions, run: RunDir) -> Manifest:
    """Start the manifest, or go on with that of the run that is resumed."""
    if options.resume is not None:
        manifest = read_manifest(run)
        manifest.recipe = recipe.to_dict()
    else:
        created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        manifest = Manifest(run.path.resolve().name, created, recipe.to_dict())
    manifest.prof_version = prof_version()
    return manifest


def prepare(
    recipe: Recipe, options: RunOptions, run: RunDir, manifest: Manifest
) -> tuple[Work, Capabilities]:
    """Look at this machine, or at the recorded one, and put the facts into the manifest."""
    if options.replay is not None:
        source = RunDir(options.replay)
        recorded = read_manifest(source)
        # The time of the measurement: that is what the report is about.
        manifest.replayed_from, manifest.created = recorded.run_id, recorded.created
        manifest.tools, manifest.gpus = recorded.tools, recorded.gpus
        manifest.software, manifest.assumptions = recorded.software, recorded.assumptions
        manifest.recipe = as_measured(manifest.recipe, recorded)
        nothing = Machine(choose_environment(os.environ, recipe.target.env, recipe.to_dict()))
        program = Program((), {}, Path.cwd())
        work = Work(run, recipe, program, nothing, options.progress, source)
        return work, replace(recorded_capabilities(recorded), kernels_digest=kernels_digest(recipe))
    program = resolve_program(recipe)
    given_selection(recipe)  # what cannot be profiled is refused before the program runs
    reused = check_reused_trace(recipe)
    options.progress.started("machine", LOOKS_FOR)
    machine = look_around(recipe, program)
    machine = replace(machine, warnings=(*machine.warnings, *reused))
    # A resumed run keeps what is known of the machine that made its finished steps.
    manifest.tools |= {name: tool.version for name, tool in machine.tools.items()}
    manifest.gpus = machine.gpus or manifest.gpus
    manifest.software |= dict(machine.software)
    manifest.assumptions = _assumptions(recipe, machine)
    work = Work(run, recipe, program, machine, options.progress, None, options.roofs,
                _source(machine))  # fmt: skip
    return work, machine.capabilities(program_digest(program), kernels_digest(recipe))


def _source(machine: Machine) -> Source | None:
    """Return what samples the program's GPUs beside the steps; None where there is none."""
    visible = visible_gpus(machine.environment.variables) if machine.gpus else []
    with suppress(ToolMissing):
        return None if visible == [] else open_source(bus_ids=visible)
    return None


def _assumptions(recipe: Recipe, machine: Machine) -> list[str]:
    """Return what the reader of the report should know of how it was captured."""
    counters = recipe.counters
    assumptions = list(machine.warnings)
    if counters.enabled and counters.clock_control == "none":
        assumptions.append(stored("ncu left the GPU clocks as they were (clock_control: none)"))
    if counters.enabled and counters.cache_control == "none":
        assumptions.append(
            stored("ncu left the caches as the program had them (cache_control: none)")
        )
    return assumptions
