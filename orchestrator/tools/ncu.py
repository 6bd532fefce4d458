"""Nsight Compute: its command lines, and what its output means when it fails."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from nsight_prof.orchestrator.tools.explanations import Explanations, first_known, line_of
from nsight_prof.parsers.errors import (
    PermissionRefused,
    ProfError,
    StepFailed,
    ToolMissing,
    UsageError,
)

VERSION = re.compile(r"Version (\d+\.\d+\.\d+[\d.]*)")
FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]+)")
PER_LAUNCH_CONFIG = "per-launch-config"
# Linux takes at most 128 KiB in one argument.
LONGEST_ARGUMENT = 128 * 1024 - 1
# The sections whose rules tell what a kernel can gain. With all of prof's sets they take 20 passes
# on a GH100, the sets alone 10 (scripts/section_passes.py on the section files of ncu 2024.1.1).
RULE_SECTIONS = (
    "SpeedOfLight",
    "LaunchStats",
    "Occupancy",
    "WorkloadDistribution",
    "SchedulerStats",
    "WarpStateStats",
    "ComputeWorkloadAnalysis",
    "InstructionStats",
    "MemoryWorkloadAnalysis_Tables",
    "SourceCounters",
)
SOURCE_SECTIONS = ("SourceCounters",)
# Its numbers count the ranges of all --nvtx-include together, by their start (ncu 2025.3.1, H100).
RANGE_FILTER = "--range-filter"
NVTX_SPECIAL = re.compile(r"([\\@,/\[\]*+])")
PERMISSION_REMEDY = (
    "as administrator: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > "
    "/etc/modprobe.d/nvidia-profiling.conf, then load the driver again (reboot); in a container: "
    "docker run --cap-add SYS_ADMIN …; or run prof with sudo"
)
ONLY = "--set counters.enabled=false gives the trace only"
ENVIRONMENT = {
    "LC_ALL": "C",
    # Otherwise ncu writes section files into the user's Documents.
    "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1",
}


@dataclass(frozen=True)
class CountersRequest:
    """One ncu run over all selected kernels; `output` is the report's path without its suffix.

    Of each kernel (name, grid and block) `skip` launches are left out and `count` profiled; without
    `kernels`, all launches of all kernels are.
    With `rules` the sections that carry ncu's rules are collected too, and the rules applied; with
    `source` what each instruction did, and the source is taken into the report.
    `capture` is "all", "profiler-api", or "nvtx" with the ranges' names in `nvtx_ranges`;
    `range_numbers` are those that count of all ranges of these names, from 1; empty for all.
    `replay` is what is done again for each pass: the kernel, or the application.
    """

    program: str
    output: Path
    log: Path
    target: tuple[str, ...]
    kernels: tuple[str, ...]
    metrics: tuple[str, ...]
    skip: int = 0
    count: int = 1
    capture: str = "all"
    nvtx_ranges: tuple[str, ...] = ()
    range_numbers: tuple[int, ...] = ()
    clock_control: str = "none"
    cache_control: str = "none"
    rules: bool = False
    source: bool = False
    replay: str = "kernel"
    extra_args: tuple[str, ...] = ()


def parse_version(text: str) -> str:
    """Return `2024.1.1.0` from the output of `ncu --version`, or "" where it is none."""
    match = VERSION.search(text)
    return match[1] if match else ""


def parse_features(help_text: str) -> frozenset[str]:
    """Return the options that `ncu --help` names, and `per-launch-config` where it has it."""
    extra = {PER_LAUNCH_CONFIG} if PER_LAUNCH_CONFIG in help_text else set()
    return frozenset(FLAG.findall(help_text)) | extra


def counters_argv(request: CountersRequest, features: frozenset[str]) -> list[str]:
    """Return the `ncu` command that profiles all selected kernels in one run of the program.

    Raises:
        UsageError: more kernel names or metrics than fit into one argument.
    """
    fixed = [
        ("--config-file", "off"),
        ("--target-processes", "all"),
        ("--replay-mode", request.replay),
        ("--clock-control", request.clock_control),
        ("--cache-control", request.cache_control),
        ("--graph-profiling", "node"),
        ("--kernel-name-base", "mangled"),
    ]
    options = [word for pair in fixed if pair[0] in features for word in pair]
    return [
        request.program,
        *options,
        "--force-overwrite",
        "--export",
        str(request.output),
        "--log-file",
        str(request.log),
        *capture_options(request, features),
        *_which(request, features),
        "--metrics",
        _bounded(",".join(request.metrics), "metrics", "counters.sets"),
        *_sections(request),
        *request.extra_args,
        *request.target,
    ]


def csv_argv(program: str, report: Path, page: str = "raw") -> list[str]:
    """Return the command that prints a report as CSV: base units, mangled names.

    Page `raw` holds all metrics, `details` those of sections and what the rules said, `source` what
    each line and instruction did.
    """
    lines = ["--print-source", "cuda,sass"] if page == "source" else []
    return [
        program,
        "--import",
        str(report),
        "--csv",
        "--page",
        page,
        "--print-units",
        "base",
        "--print-kernel-base",
        "mangled",
        *lines,
    ]


def probe_argv(program: str, target: tuple[str, ...]) -> list[str]:
    """Return the command that asks for one counter of one tiny kernel: may we read counters?"""
    metric = ("--metrics", "sm__cycles_active.avg")
    return [program, "--config-file", "off", *metric, "--launch-count", "1", *target]


def kernel_regex(names: tuple[str, ...]) -> str:
    """Return the filter that matches exactly these names."""
    return f"^({'|'.join(re.escape(name) for name in dict.fromkeys(names))})$"


def unknown_metrics(log: str) -> list[str]:
    """Return the metrics that ncu says this chip does not have."""
    return list(dict.fromkeys(re.findall(r"Failed to find metric ([\w.:]+\w)", log)))


def explain(log: str) -> ProfError | None:
    """Return what ncu's output says about its failure, or None where it says nothing known."""
    return explain_tool(log) or first_known(ENDS, log)


def explain_tool(log: str) -> ProfError | None:
    """Return the cause that lies with ncu, the driver or the options; None where it may not."""
    return first_known(CAUSES, log)


def counts_ranges(features: frozenset[str]) -> bool:
    """Return whether this version profiles one occurrence of an NVTX range alone."""
    return RANGE_FILTER in features


def capture_options(request: CountersRequest, features: frozenset[str]) -> list[str]:
    """Return the options that say what of the program is counted."""
    if request.capture == "profiler-api":
        return ["--profile-from-start", "off", "--nvtx"]
    if request.capture == "nvtx":
        # Given more than once, a launch inside any of them is profiled (ncu's documentation).
        escaped = [NVTX_SPECIAL.sub(r"\\\1", name) for name in request.nvtx_ranges]
        include = [word for name in escaped for word in ("--nvtx-include", f"{name}/")]
        numbers = "|".join(map(str, request.range_numbers)) if counts_ranges(features) else ""
        which = [RANGE_FILTER, f"::{numbers}"] if numbers else []
        return ["--nvtx", *include, *which]
    # NVTX state of each launch is recorded too: the join says in which stage it ran.
    return ["--nvtx"]


def _which(request: CountersRequest, features: frozenset[str]) -> list[str]:
    """Return the options that choose the launches: a window of launches of each kernel."""
    if not request.kernels:
        return []
    regex = _bounded(kernel_regex(request.kernels), "kernel names", "select.top_k")
    if PER_LAUNCH_CONFIG in features:
        window = ["--launch-skip", str(request.skip), "--launch-count", str(request.count)]
        return ["--filter-mode", PER_LAUNCH_CONFIG, *window, "--kernel-name", f"regex:{regex}"]
    # Older versions count invocations of each function, of whatever grid; they start at 1.
    numbers = "|".join(str(request.skip + i) for i in range(1, request.count + 1))
    return ["--kernel-id", f"::regex:{regex}:{numbers}"]


def _sections(request: CountersRequest) -> list[str]:
    names = RULE_SECTIONS if request.rules else SOURCE_SECTIONS if request.source else ()
    if not names:
        return []
    # One regex: a section that this version lacks is no error then (ncu 2024.1.1).
    sections = ["--section", f"regex:^({'|'.join(names)})$"]
    rules = ["--apply-rules", "yes" if request.rules else "no"]
    return [*sections, *rules, *(["--import-source", "yes"] if request.source else [])]


def _bounded(text: str, what: str, key: str) -> str:
    if len(text.encode()) > LONGEST_ARGUMENT - 64:
        raise UsageError(
            f"the {what} need {len(text)} characters, and one argument of ncu takes "
            f"{LONGEST_ARGUMENT}",
            f"choose fewer with {key}",
        )
    return text


def _permission(match: re.Match[str]) -> ProfError:
    return PermissionRefused(
        f"the driver refuses access to the GPU performance counters: {_line(match)}",
        PERMISSION_REMEDY,
    )


def _virtual(match: re.Match[str]) -> ProfError:
    return PermissionRefused(
        f"this virtual GPU gives no access to its performance counters: {_line(match)}",
        "the administrator of the host must allow it for this vGPU (enable_profiling=1); " + ONLY,
    )


def _unsupported(match: re.Match[str]) -> ProfError:
    return ToolMissing(
        f"ncu cannot profile this GPU: {_line(match)}",
        "ncu --list-chips names the chips of this version, prof doctor the versions here; " + ONLY,
    )


def _option(match: re.Match[str]) -> ProfError:
    return UsageError(
        f"ncu refuses the option {match[1]}",
        "take it out of counters.extra_args; ncu --help lists what this version offers",
    )


def _section(match: re.Match[str]) -> ProfError:
    return UsageError(
        f"ncu does not know the section {match[1]}",
        "ncu --list-sections lists what this version has; correct counters.extra_args, or leave "
        "counters.rules out",
    )


def _program(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"ncu cannot start the program: {match[0].strip()}",
        "give target.command a path or a program on PATH, relative to target.cwd",
    )


def _metric(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"ncu does not know the metric {match[1]} on this chip",
        "prof metrics --chip CHIP lists what the chip has; choose other counters.sets",
    )


def _driver(match: re.Match[str]) -> ProfError:
    return ToolMissing(
        f"ncu cannot work with this CUDA driver: {match[0].strip()}",
        "install the Nsight Compute that belongs to the driver's CUDA version or newer (prof "
        "doctor shows both); in a container, start it with --gpus all",
    )


class CountersInUse(StepFailed):
    """Another tool has the counters of the GPU now; later they may be free."""


def _busy(match: re.Match[str]) -> ProfError:
    return CountersInUse(
        f"the counters are in use: {_line(match)}",
        "pause other users of this GPU's counters (dcgmi profile --pause, DCGM exporter, another "
        "ncu, prof run or prof monitor), then resume; remove /tmp/nsight-compute-lock if no ncu "
        "runs",
    )


def _connect(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"ncu lost the program: {match[0].strip()}",
        "see whether the program runs without ncu; programs that start others by fork: use spawn; "
        "free TCP ports from 49152 on are needed",
    )


def _replay(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"ncu failed while it profiled a kernel: {match[0].strip()}",
        "leave that kernel out with select.exclude, or try fewer counters.sets",
    )


def _target(match: re.Match[str]) -> ProfError:
    """Blame the program only where ncu complains of nothing before."""
    first = re.search(ERROR, match.string)
    if first is not None and line_of(first) != line_of(match):
        return _unknown(first)
    return StepFailed(
        f"the program ended with exit code {match[1]} under ncu",
        "its output is in stdout.log and stderr.log of the step; run it without ncu first",
    )


def _unknown(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"ncu failed: {_line(match)}",
        "ncu.log of the counters step has all that ncu said; see whether the program runs without "
        "ncu; " + ONLY,
    )


def _line(match: re.Match[str]) -> str:
    return line_of(match).removeprefix(ERROR).strip()


def _none(match: re.Match[str]) -> ProfError:
    # ncu 2025.3.1 lists the base names of the kernels that it saw.
    listed = match.string[match.end() :].partition("Available Kernels:\n")[2]
    listed_kernels = re.findall(r"^\d+\. (.+)$", listed, re.MULTILINE)
    saw = (
        f"; ncu saw {len(listed_kernels)} others, for example {', '.join(listed_kernels[:3])}"
        if listed_kernels
        else ""
    )
    return StepFailed(
        f"ncu profiled no kernel{saw}",
        "the program may not launch the selected kernels each time: make it deterministic (fixed "
        "seeds and sizes), and check that `capture` holds them",
    )


ERROR = "==ERROR=="
# Words of ncu 2024.1.1, 2025.3.1 and of nsys 2023.4.4 for --gpu-metrics-device.
REFUSED = (
    r"ERR_NVGPUCTRPERM|does not have permission to access NVIDIA .{1,20}Performance Counters"
    r"|Profiling permission not granted"
)
CAUSES: Explanations = [
    (r"(?i)performance counters on the target vGPU|profiling permission on a vGPU", _virtual),
    (r"(?i)virtualized GPU \(vGPU\) is not supported|profiling not allowed on vGPU", _virtual),
    (REFUSED, _permission),
    (r"Profiling is not supported on|ERR_NVCMPGPU", _unsupported),
    (r"(?i:confidential computing mode)|collection is not supported on the und", _unsupported),
    (r"unrecogni[sz]ed option '([^']+)'", _option),
    (r"Option '--section ([^']+)' did not match any section", _section),
    (r"'[^']*' does not exist or is not an executable", _program),
    (r"Failed to find metric ([\w.:]+)", _metric),
    (r"(?i)cuda driver is not compatible with Nsight Compute", _driver),
    (r"(?i)failed to connect to the CUDA driver.*", _driver),
    (r"Failed to load the driver.*|(?i:library ?not ?found).*", _driver),
    (r"(?i)a driver resource was unavailable.*", _busy),
    (r"nsight-compute-lock", _busy),
    (r"Failed to connect.*", _connect),
    (
        r"Failed to prepare kernel for profiling.*|Failed to profile .*|Unknown Error on device.*",
        _replay,
    ),
]
# How it ended where no cause is known.
ENDS: Explanations = [
    (r"The application returned an error code \((\d+)\)", _target),
    (r"No kernels were profiled", _none),
    (ERROR, _unknown),
]
