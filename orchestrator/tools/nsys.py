"""Nsight Systems: its command lines, and what its output means when it fails."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nsight_prof.orchestrator.tools.explanations import Explanations, first_known, line_of
from nsight_prof.orchestrator.tools.ncu import PERMISSION_REMEDY, REFUSED
from nsight_prof.parsers.errors import (
    ArtifactUnreadable,
    PermissionRefused,
    ProfError,
    StepFailed,
    ToolMissing,
    UsageError,
)

VERSION = re.compile(r"version (\d+\.\d+\.\d+[\w.]*)")
FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]+)")
SHORT = {"-t": "--trace", "-s": "--sample", "-c": "--capture-range"}
NATIVE = ("--sample=process-tree", "--backtrace=dwarf", "--cudabacktrace=all:0")
# `--kill` and `stop-shutdown` end the program with SIGTERM after a capture that went well.
KILLED_AFTER_CAPTURE = 143


@dataclass(frozen=True)
class TraceRequest:
    """One trace: `output` is the report's path without its suffix.

    `capture` is "all", "profiler-api", or "nvtx" with the range's name in `nvtx_range`. A `session`
    has a name by which `stop_argv` ends the collection, and does not end the program.
    """

    program: str
    output: Path
    target: tuple[str, ...]
    capture: str = "all"
    nvtx_range: str = ""
    python_sampling: bool = False
    native_stacks: bool = False
    session: str = ""
    extra_args: tuple[str, ...] = ()


def parse_version(text: str) -> str:
    """Return `2025.3.1.90` from the output of `nsys --version`, or "" where it is none."""
    match = VERSION.search(text)
    return match[1].partition("-")[0] if match else ""


def parse_features(help_text: str) -> frozenset[str]:
    """Return the options that `nsys profile --help` and `nsys export --help` name."""
    return frozenset(FLAG.findall(help_text))


def profile_argv(request: TraceRequest, features: frozenset[str]) -> list[str]:
    """Return the `nsys profile` command.

    Options that this version lacks are left out, and those that `extra_args` give.
    """
    wanted = [
        "--trace=cuda,nvtx",
        # Without it a 2 s program wrote a 2.2 GB raw capture in 93 s (nsys 2025.3.1, H200).
        *([] if request.native_stacks else ["--sample=none"]),
        # Stacks at CUDA calls, which nsys unwinds only where it samples the CPU, too.
        *(NATIVE if request.native_stacks else []),
        "--cpuctxsw=none",
        # The default, `graph`, hides the kernels inside CUDA graphs.
        "--cuda-graph-trace=node",
        "--discard-environment=true",
        # Stacks of Python threads each millisecond; without Python in the program it does nothing.
        *(["--python-sampling=true"] if request.python_sampling else []),
        *(["--python-sampling-frequency=1000"] if request.python_sampling else []),
        *capture_options(request),
        *([f"--session-new={request.session}", "--kill=none"] if request.session else []),
    ]
    # nsys takes an option once: what the caller asks for goes before what is usual.
    asked = {SHORT.get(name, name) for name in map(_option_name, request.extra_args)}
    names = {option: _option_name(option) for option in wanted}
    offered = [option for option, name in names.items() if name in features and name not in asked]
    return [
        request.program,
        "profile",
        f"--output={request.output}",
        "--force-overwrite=true",
        *offered,
        *request.extra_args,
        *request.target,
    ]


def _option_name(argument: str) -> str:
    return argument.partition("=")[0]


def stop_argv(program: str, session: str) -> list[str]:
    """Return the command that ends a session's collection and writes its report."""
    return [program, "stop", f"--session={session}"]


def collection_ended(output: str) -> bool:
    """Tell from the output of `nsys stop` whether all is collected, and the report being made."""
    return "Generating" in output


def environment(request: TraceRequest) -> dict[str, str]:
    """Return the variables that the capture needs."""
    # Without it nsys starts only at ranges whose name is a registered NVTX string.
    return {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"} if request.capture == "nvtx" else {}


def export_argv(
    program: str, report: Path, target: Path, features: frozenset[str] = frozenset()
) -> list[str]:
    """Return the command that exports a report to SQLite, over a stale file if there is one."""
    # NCCL says in payloads of its NVTX ranges how many bytes go to which communicator.
    payloads = ["--include-blobs=true"] if "--include-blobs" in features else []
    return [
        program,
        "export",
        "--type=sqlite",
        "--force-overwrite=true",
        "--quiet=true",
        *payloads,
        f"--output={target}",
        str(report),
    ]


def succeeded(exit_code: int | None, request: TraceRequest) -> bool:
    """Tell whether `nsys profile` ended well, the kill at the end of a capture range included."""
    ended_by_range = any("shutdown" in argument for argument in request.extra_args)
    return exit_code == 0 or (exit_code == KILLED_AFTER_CAPTURE and ended_by_range)


def captured_whole(log: Iterable[str], request: TraceRequest) -> bool:
    """Tell whether the capture range came to its end, after which the program matters no more.

    `log` is read only where there is a range.
    """
    return request.capture != "all" and any("Capture range ended" in line for line in log)


def explain_refused(log: str) -> ProfError | None:
    """Return what nsys says where it may not do what trace.extra_args ask for, or None."""
    return first_known(REFUSALS, log)


def explain(log: str) -> ProfError | None:
    """Return what nsys's output says about its failure, or None where it says nothing known."""
    return first_known(EXPLANATIONS, log)


def capture_options(request: TraceRequest) -> list[str]:
    """Return the options that say what of the program is captured."""
    if request.capture == "profiler-api":
        return ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    if request.capture == "nvtx":
        escaped = request.nvtx_range.replace("@", "\\@")
        return [
            "--capture-range=nvtx",
            f"--nvtx-capture={escaped}",
            "--capture-range-end=stop",
        ]
    return []


def _importer(match: re.Match[str]) -> ProfError:
    return ToolMissing(
        f"nsys captured, and cannot import what it captured: {match[0].strip()}",
        "prof doctor says which library or link is missing (often: apt-get install libdw1)",
    )


def _option(match: re.Match[str]) -> ProfError:
    return UsageError(
        f"nsys refuses the option {match[1]}",
        "take it out of trace.extra_args; nsys profile --help lists what this version offers",
    )


def _program(_match: re.Match[str]) -> ProfError:
    return StepFailed(
        "nsys cannot find the program to trace",
        "give target.command a path or a program on PATH, relative to target.cwd",
    )


def _damaged(match: re.Match[str]) -> ProfError:
    return ArtifactUnreadable(
        f"nsys cannot read the report: {match[1].strip()}",
        "the capture may be cut off or newer than this nsys: export it with the version that made "
        "it (nsys export --type=sqlite), then: prof import FILE.sqlite",
    )


def _session(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"another profiler is in the way: {match[0].strip()}",
        "end other nsys, ncu or CUPTI users of this program (torch.profiler too), then resume",
    )


def _refused(match: re.Match[str]) -> ProfError:
    return PermissionRefused(
        f"nsys is refused what trace.extra_args ask for: {line_of(match)}",
        "take the option out of trace.extra_args (GPU metrics, system-wide sampling), or give the "
        f"permission: {PERMISSION_REMEDY}",
    )


# Words of nsys 2023.4.4.
REFUSALS: Explanations = [
    (
        rf"{REFUSED}|Insufficient privilege|vGPU not supported"
        r"|option requires root privileges|(?i:GPU metrics collection disabled)"
        r"|Profiling permission on a vGPU",
        _refused,
    ),
]
EXPLANATIONS: Explanations = [
    (r"Unable to retrieve the importer version.*", _importer),
    (r"(?i)importer.*(?:not found|No such file).*", _importer),
    (r"QdstrmImporter.*error while loading shared libraries.*", _importer),
    (r"unrecogni[sz]ed option '([^']+)'", _option),
    (r"Illegal (--[\w-]+) argument", _option),
    (r"Executable (?:'[^']*' )?not found", _program),
    (
        r"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED|session is already (?:active|running).*",
        _session,
    ),
    (r"(?:Exportation|Importation) error: (.*)", _damaged),
]
