"""The profiled program: what its own output says about why it ended."""

from __future__ import annotations

import re

from nsight_prof.orchestrator.tools import vllm_engine
from nsight_prof.orchestrator.tools.explanations import Explanations, first_known
from nsight_prof.parsers.errors import ProfError, StepFailed, ToolMissing


def explain(log: str) -> ProfError | None:
    """Return what a program's output says about its failure, or None."""
    return first_known(EXPLANATIONS, log)


def explain_itself(log: str) -> ProfError | None:
    """Return what a target says of its own failure (`error: …`, `hint: …`), or None."""
    said = list(re.finditer(OWN, log))
    if not said:
        return None
    message, hint = said[-1]["message"].strip(), said[-1]["hint"].strip()
    known = first_known([entry for entry in EXPLANATIONS if entry[1] is _no_gpu], message)
    kind = ToolMissing if known is not None else StepFailed
    return kind(f"the target says: {message}", hint)


def _module(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"the target's interpreter has no module {match[1]}",
        "name the interpreter that has it: target.python in the recipe, or "
        "--set target.python=/path/to/python",
    )


def _no_gpu(match: re.Match[str]) -> ProfError:
    return ToolMissing(
        f"the program sees no GPU: {match[0].strip()}",
        "check nvidia-smi and CUDA_VISIBLE_DEVICES; in a container, start it with --gpus all; "
        "without a GPU, replay a recorded run: --replay captures/…",
    )


def _memory(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"the GPU has too little memory: {match[0].strip()[:200]}",
        "free it from other programs (nvidia-smi), or make the problem smaller: "
        "--set target.args.batch=…",
    )


def _driver_old(match: re.Match[str]) -> ProfError:
    return ToolMissing(
        f"the driver is older than the program's CUDA: {match[0].strip()[:200]}",
        "update the driver, or use a build for the driver's CUDA version (prof doctor shows it)",
    )


def _disk(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"the disk is full ({match[0]})",
        "free space there and in TMPDIR",
    )


OWN = r"(?ms)^error: (?P<message>[^\n]+(?:\n[^\n]+)*?)\n\s*^hint: (?P<hint>[^\n]+)"
EXPLANATIONS: Explanations = [
    (r"(?i)No space left on device|database or disk is full", _disk),
    *vllm_engine.EXPLANATIONS,
    (r"No module named '([\w.]+)'", _module),
    (
        r"(?i)driver version is insufficient.*|NVIDIA driver on your system is too old.*",
        _driver_old,
    ),
    (
        r"(?i)no CUDA-capable device is detected|Found no NVIDIA driver.*"
        r"|No CUDA GPUs are available|Torch not compiled with CUDA enabled|sees no CUDA device",
        _no_gpu,
    ),
    (r"CUDA out of memory.*|cudaErrorMemoryAllocation.*|out of memory", _memory),
    *vllm_engine.ENDS,
]
