"""What the steps of one run share, and how a tool is started on behalf of a step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nsight_prof.orchestrator.plan.program import Program
from nsight_prof.orchestrator.recipe.read import Recipe
from nsight_prof.orchestrator.run.bench_records import last_line
from nsight_prof.orchestrator.run.machine import Machine
from nsight_prof.orchestrator.system.discover import Tool
from nsight_prof.orchestrator.system.host_speed import host_timed
from nsight_prof.orchestrator.system.monitor import Source, sampled
from nsight_prof.orchestrator.system.process import Command, Finished, run
from nsight_prof.orchestrator.system.secrets import mask_file
from nsight_prof.orchestrator.terminal.progress import Progress
from nsight_prof.parsers.build.telemetry_tables import SAMPLES, host_speed_file
from nsight_prof.parsers.errors import ProfError, StepFailed
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.parsers.whole_file import write_atomic

# Variables whose values change what a GPU program does; they go into command.json.
TELLING = (
    *("CUDA_", "NCCL_", "NVIDIA_", "OMP_", "PYTORCH_", "TORCH", "TRITON_", "CUBLAS", "XLA_"),
    *("VLLM_", "HF_", "TRANSFORMERS_", "SAFETENSORS_", "RAY_", "FLASHINFER_"),
)
# One block of a file system: with less no log can grow.
ROOM_BYTES = 4096
# Set for every program that prof profiles: the file for what the program itself has to tell.
RESULTS_VARIABLE, RESULTS = "PROF_RESULTS", "result.jsonl"


@dataclass(frozen=True)
class Work:
    """One run at work: where it writes, what it runs, on what machine; `replay` a recorded run.

    With `roofs` its report may use measured roofs of the cache. `gpus` samples them, None where
    nothing can.
    """

    run: RunDir
    recipe: Recipe
    program: Program
    machine: Machine
    progress: Progress
    replay: RunDir | None = None
    roofs: bool = True
    gpus: Source | None = None


@dataclass
class Result:
    """What a step left besides its files; `error` is why it was done only in part."""

    argv: list[str] = field(default_factory=list)
    exit_code: int | None = None
    warnings: list[str] = field(default_factory=list)
    error: ProfError | None = None


@dataclass(frozen=True)
class Call:
    """One start of a tool for a step; `variables` are variables that the tool itself needs.

    `substep` says which of several programs of a step it is ("process 2 of 3"), `logs` is then in
    the names of its logs: stdout-1-2.log. `tool_log` is a log that the tool writes besides.
    """

    step: str
    tool: Tool
    argv: list[str]
    folder: Path
    timeout_s: float | None
    variables: Mapping[str, str] = field(default_factory=dict)
    substep: str = ""
    logs: str = ""
    tool_log: Path | None = None

    @property
    def stdout(self) -> Path:
        """The file that receives stdout."""
        return self.folder / f"stdout{self.logs}.log"

    @property
    def stderr(self) -> Path:
        """The file that receives stderr."""
        return self.folder / f"stderr{self.logs}.log"


def call(work: Work, what: Call) -> Finished:
    """Run a tool under its target's environment; command.json, stdout.log, stderr.log stay behind.

    Meanwhile the watcher of the run sees the last line of the log that was written to last. Secrets
    are masked in both logs and in what the watcher sees, whoever printed them.
    """
    environment = work.machine.environment
    write_atomic(what.folder / "command.json", _record(work, what))
    command = Command(
        argv=tuple(what.argv),
        env={**environment.variables, **what.variables},
        cwd=work.program.cwd,
        stdout=what.stdout,
        stderr=what.stderr,
        timeout_s=what.timeout_s,
    )

    def waits(seconds: float) -> None:
        work.progress.doing(what.step, what.substep, environment.redact(_last_words(what)))
        work.progress.waits(what.step, seconds)

    # A benchmark target samples the GPU itself, between what it times; GPM shares ncu's counters.
    gpus = None if what.step == "bench" else work.gpus
    if gpus is not None and what.step == "counters":
        gpus = partial(gpus, units=False)
    # Under ncu the host waits for passes of kernels: its speed decides nothing there.
    speed = what.folder / host_speed_file(what.logs)
    timed = nullcontext() if what.step == "counters" else host_timed(speed)
    try:
        with sampled(what.folder / SAMPLES, gpus), timed:
            finished = run(command, waits)
    finally:
        for log in (command.stdout, command.stderr):
            mask_file(log, environment.secrets, forms=True)
    return finished


def _last_words(what: Call) -> str:
    """Return the last line of what the tool and its target tell people while they run."""
    logs = [log for log in (what.stderr, what.tool_log) if log is not None and log.is_file()]
    newest = sorted(logs, key=lambda log: log.stat().st_mtime_ns, reverse=True)
    return next(filter(None, map(last_line, newest)), "")


def failure(
    finished: Finished,
    what: Call,
    explainers: Sequence[Callable[[str], ProfError | None]],
    log: str = "",
) -> ProfError:
    """Return the error of a tool that did not end well, with the remedy as far as it is known.

    `log` is what the tool wrote into a file of its own.
    """
    name = what.tool.name
    if finished.timed_out:
        return StepFailed(
            f"{name} and the program did not end within {what.timeout_s:.0f} s; all of its "
            "processes were ended",
            f"if it only needs more time: --set {what.step}.timeout=2h; if it hangs, run it "
            "without the profiler first; kernels that wait for others hang under ncu: leave them "
            "out with select.exclude",
        )
    if finished.signal or finished.exit_code in (137, 139, 134, 136):
        how = finished.signal or f"signal {(finished.exit_code or 0) - 128}"
        return StepFailed(
            f"{name} or the program was killed ({how})",
            "SIGKILL is often too little memory (see dmesg); SIGSEGV and SIGABRT: run the program "
            "without the profiler first, and use a profiler as new as the driver (prof doctor)",
        )
    text = log + finished.tail
    known = (explain(text) for explain in explainers)
    explained = next((error for error in known if error is not None), None) or full(what)
    return explained or StepFailed(
        f"the program ended with exit code {finished.exit_code} under {name}",
        f"see stdout.log and stderr.log of the {what.step} step, and run the program without the "
        "profiler first; if a non-zero exit code is normal for it, wrap it: "
        'command: [sh, -c, "my_program; true"]',
    )


def full(what: Call) -> ProfError | None:
    """Return the error of a disk that has no room left for the logs, or None where it has some.

    A program whose last words do not fit there ends for no other reason (Python: exit code 120).
    """
    disk = os.statvfs(what.folder)
    if disk.f_bavail * disk.f_frsize >= ROOM_BYTES:
        return None
    return StepFailed(f"the disk is full: {what.folder}", "free some space there")


def _record(work: Work, what: Call) -> str:
    """Return command.json: what is needed to repeat the command, and no secret."""
    environment = work.machine.environment
    telling = {
        name: environment.shown_value(name, value)
        for name, value in environment.variables.items()
        if name.startswith(TELLING)
    }
    record = {
        "argv": environment.redact_words(what.argv),
        "cwd": str(work.program.cwd),
        "environment": {**telling, **environment.redacted(), **what.variables},
        "withheld": list(environment.withheld),
        "tool": {"name": what.tool.name, "version": what.tool.version, "note": what.tool.note},
        "timeout_s": what.timeout_s,
    }
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"
