"""The profiled program: what its own output says about why it ended."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nsight_prof.orchestrator.tools import vllm_engine
from nsight_prof.orchestrator.tools.explanations import Explanations, first_known
from nsight_prof.parsers.errors import ProfError, StepFailed, ToolMissing


def explain(log: str) -> ProfError | None:
    """Return what a program's output says about its failure, or None."""
    return first_known(EXPLANATIONS, log)


def explain_itself(log: str) -> ProfError | None:
    """Return what a target says of its own failure (`error: …`, `hint: …`), or None."""
    explanation = _last_words(log.splitlines())
    if explanation is None:
        return None
    message, hint = explanation
    known = first_known([entry for entry in EXPLANATIONS if entry[1] is _no_gpu], message)
    kind = ToolMissing if known is not None else StepFailed
    return kind(f"the target says: {message}", hint)


def _last_words(lines: Sequence[str]) -> tuple[str, str] | None:
    """Return the last message and hint: `error: …` of one or more lines, empty lines, `hint: …`."""
    found = None
    message: list[str] = []
    ended = False
    for line in lines:
        if line.startswith("error: ") and (ended or not message):
            message, ended = [line.removeprefix("error: ").strip()], False
        elif message and line.startswith("hint: "):
            found = "\n".join(message), line.removeprefix("hint: ").strip()
            message = []
        elif not line.strip():
            ended = True
        elif ended:
            message = []
        elif message:
            message.append(line)
    return found


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
        "without a GPU, replay a recorded run: --replay RUN",
    )


def _memory(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"the GPU has too little memory: {vllm_engine.words_of(match)}",
        "free it from other programs (nvidia-smi), or make the problem smaller: "
        "--set target.args.batch=…",
    )


def _host_memory(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"the program ran out of the machine's memory, not of the GPU's: "
        f"{vllm_engine.words_of(match)}",
        "free it from other programs (free -h), raise the limit of the container or of ulimit -v, "
        "or make the problem smaller",
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


# A sentence with these words in it blames the GPU only where it speaks of one.
GPU_MEMORY = (
    r"(?i)(?:cuda|gpu|device|cupy|RESOURCE_EXHAUSTED)[^\n]{0,200}out of memory"
    r"|out of memory[^\n]{0,200}(?:cuda|gpu)"
    r"|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
)
HOST_MEMORY = r"(?m)^[\w.]*MemoryError\b|std::bad_alloc|(?i:cannot allocate memory)"
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
    (GPU_MEMORY, _memory),
    (HOST_MEMORY, _host_memory),
    *vllm_engine.ENDS,
]
