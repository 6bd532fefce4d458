"""Examines this machine: can it profile, what is missing, and what is the remedy?"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nsight_prof.orchestrator.roofs import cache as roofs_cache
from nsight_prof.orchestrator.run.machine import too_old
from nsight_prof.orchestrator.system.discover import Tool, find_ncu, find_nsys
from nsight_prof.orchestrator.system.environment import Gpus, has_gpu, read_gpus, read_interpreter
from nsight_prof.orchestrator.system.permission import ask_counters
from nsight_prof.orchestrator.tools import shim
from nsight_prof.parsers.errors import PermissionRefused, ToolMissing
from nsight_prof.parsers.roofs.file import gpu_facts

State = Literal["ok", "warning", "missing"]
# A trace of a minute and a counters run with modules came to less than this.
ENOUGH_DISK = 5 << 30
NO_TRACE = "a recorded run needs none: prof run RECIPE --replay RUN"


@dataclass(frozen=True)
class Check:
    """One thing examined; `remedy` is empty where nothing is to be done."""

    name: str
    state: State
    detail: str
    remedy: str = ""


def examine(target_python: str | None = None) -> list[Check]:
    """Examine driver and GPUs, tools, permission, interpreter, packages and disk.

    A `target_python` that is named has to have torch; without one it is prof's own interpreter,
    where torch is missed only by the bundled targets.
    """
    environment = os.environ
    gpus = read_gpus()
    checks = _gpu_checks(gpus)
    nsys = _tool("nsys", checks, environment)
    checks += _bundles(environment)
    ncu = _tool("ncu", checks, environment)
    checks += _versions(nsys, gpus)
    checks.append(_permission(ncu, environment))
    checks += _roofs(gpus)
    checks.append(_interpreter(environment, target_python))
    checks.append(_ncu_report())
    checks.append(_disk(Path.cwd()))
    return checks


def _gpu_checks(gpus: Gpus) -> list[Check]:
    if not gpus.gpus:
        reason = f"NVML says: {gpus.error}" if gpus.error else "the driver shows none"
        state: State = "warning" if has_gpu() else "missing"
        remedy = f"install the NVIDIA driver; in a container: docker run --gpus all …; {NO_TRACE}"
        return [Check("GPU", state, reason, remedy)]
    checks = [Check("driver", "ok", f"{gpus.driver}, CUDA up to {gpus.cuda}")]
    for gpu in gpus.gpus:
        detail = f"{gpu.get('name', 'unknown')} ({int(gpu.get('memory_bytes', 0)) / 2**30:.0f} GiB)"
        checks.append(Check(f"GPU {gpu['device']}", *_sharing(gpu, detail)))
    return checks


def _sharing(gpu: Mapping[str, object], detail: str) -> tuple[State, str, str]:
    """Say what a partitioned GPU means for the counters."""
    if gpu.get("vgpu"):
        return (
            "warning",
            f"{detail}, a virtual GPU",
            "counters need a vGPU for which the host has enabled profiling (enable_profiling=1)",
        )
    if gpu.get("mig"):
        return (
            "warning",
            f"{detail}, in MIG mode",
            "counters are those of one instance and some are absent; the roofs in the report are "
            "those of the whole GPU: measure without MIG for shares of the roof",
        )
    return "ok", detail, ""


def _tool(name: str, checks: list[Check], environment: Mapping[str, str]) -> Tool | None:
    find = find_nsys if name == "nsys" else find_ncu
    try:
        tool = find(environment)
    except ToolMissing as error:
        checks.append(Check(name, "missing", error.message, error.hint))
        return None
    where = tool.note or tool.program
    checks.append(Check(name, "ok", f"{tool.version}, {where}"))
    return tool


def _bundles(environment: Mapping[str, str]) -> list[Check]:
    """Say of each Nsight Systems inside Nsight Compute what it lacks to work by itself."""
    checks = []
    for bundle in shim.find_bundles(shim.BUNDLES):
        lacks = shim.missing(bundle, environment)
        if lacks:
            detail = f"{bundle.nsys} captures but cannot import: it lacks {', '.join(lacks)}"
            library = any("library" in lack for lack in lacks)
            remedy = (
                "apt-get install libdw1 (dnf install elfutils-libs), or name a folder that has "
                "the library in PROF_NSYS_LIBS"
                if library
                else "nothing to do: prof uses it through links in a cache folder of its own"
            )
            checks.append(Check("bundled nsys", "warning", detail, remedy))
    return checks


def _versions(nsys: Tool | None, gpus: Gpus) -> list[Check]:
    if nsys is None or not gpus.cuda or not too_old(nsys.version, gpus.cuda):
        return []
    detail = (
        f"nsys {nsys.version} is older than the driver's CUDA {gpus.cuda}: such a pair has crashed "
        "programs at their first kernel"
    )
    return [Check("nsys and driver", "warning", detail, "install an nsys of the driver's year")]


def _permission(ncu: Tool | None, environment: Mapping[str, str]) -> Check:
    name = "counters"
    if ncu is None or not has_gpu():
        absent = "ncu" if ncu is None else "GPU"
        return Check(name, "missing", f"not asked, because there is no {absent}", "see above")
    error = ask_counters(ncu, environment)
    if error is None:
        return Check(name, "ok", "this process may read the GPU's performance counters")
    if not isinstance(error, ToolMissing):
        return Check(name, "warning", f"not known: {error.message}", error.hint)
    remedy = error.hint
    if isinstance(error, PermissionRefused):
        remedy += "; until then: --set counters.enabled=false gives the trace only"
    return Check(name, "missing", error.message, remedy)


def _roofs(gpus: Gpus) -> list[Check]:
    """Say whether the roofs of the first GPU were measured; without them reports do with others."""
    if not gpus.gpus:
        return []
    found, others = roofs_cache.find(gpu_facts(gpus.gpus[0], gpus.driver))
    if found is not None:
        reason = f"; {found.match.reason}" if found.match.reason else ""
        number = len(found.roofs.roofs)
        return [Check("roofs", "ok", f"{number} measured {found.roofs.measured}{reason}")]
    reason = "not measured on this GPU"
    if others:
        reason = f"those of {others[0].roofs.measured} do not hold now: {others[0].match.reason}"
    remedy = f"{roofs_cache.MEASURE}; until then reports use counters and data sheets"
    return [Check("roofs", "warning", reason, remedy)]


def _interpreter(environment: Mapping[str, str], path: str | None) -> Check:
    """Look for torch in the target's interpreter: prof's own, unless the recipe names one."""
    python = path or sys.executable
    facts = read_interpreter(python, environment, Path.cwd())
    if "torch" in facts:
        detail = f"torch {facts['torch']} (CUDA {facts.get('torch_cuda') or 'none'})"
        if not facts.get("torch_cuda"):
            return Check("torch", "warning", detail, "install a CUDA build of torch")
        engines = {"vllm": "vLLM", "sglang": "SGLang"}
        detail += "".join(f", {engines[key]} {facts[key]}" for key in engines if key in facts)
        return Check("torch", "ok", f"{detail} in {python}")
    return Check(
        "torch",
        "missing" if path else "warning",
        f"not in {python}: {facts.get('torch_error', 'the interpreter gave no answer')}",
        "the bundled targets need it: pip install torch, or name an interpreter that has it: "
        "--set target.python=/path/to/python; own CUDA programs do not need it",
    )


def _ncu_report() -> Check:
    try:
        version = importlib.metadata.version("ncu-report")
    except importlib.metadata.PackageNotFoundError:
        return Check(
            "ncu-report",
            "warning",
            "not installed: counters are read from CSV, rounded to two decimals",
            "pip install ncu-report",
        )
    return Check("ncu-report", "ok", version)


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    detail = f"{free / 2**30:.1f} GiB free in {folder}"
    if free >= ENOUGH_DISK:
        return Check("disk", "ok", detail)
    return Check("disk", "warning", detail, "long traces need gigabytes: free some, or --out there")
