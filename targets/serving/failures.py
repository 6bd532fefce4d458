"""What went wrong with an engine, and what to do about it."""

from __future__ import annotations

import re
import traceback

from nsight_prof.targets import standalone

VLLM = "vLLM"
PYTHON_HINT = (
    "name the interpreter that has the engine: target.python in the recipe, or "
    "--set target.python=/path/to/venv/bin/python"
)
MORE_LOG = {
    VLLM: "VLLM_LOGGING_LEVEL=DEBUG in target.env says more",
    "SGLang": "--server-args='--log-level debug' says more",
}
LESS_MEMORY = (
    "free the GPU from other programs (nvidia-smi shows them), or ask for less: a smaller "
    "--max-model-len, --max-num-seqs or --kv-cache-gib, a smaller model, or more GPUs with "
    "--tensor-parallel"
)
NO_MODEL = (
    "--model takes the name of a bundled configuration, a local folder with config.json, or a hub "
    "name; a hub name needs the network, or a download made before (HF_HOME)"
)


class EngineFailure(Exception):
    """An engine that could not be started or used.

    Attributes:
        message: what happened, in one sentence.
        hint: what to do about it.
        status: "out-of-memory", "failed" or "unsupported", as records name it.
        dead: True where the engine cannot be used any more.
    """

    def __init__(self, message: str, hint: str, status: str = "failed", dead: bool = True) -> None:
        super().__init__(message)
        self.message, self.hint, self.status, self.dead = message, hint, status, dead


def complain(failure: EngineFailure) -> None:
    """Print a failure to stderr: `error: …`, an empty line, `hint: …`; before it what led there."""
    if failure.status == "failed" and failure.__cause__ is not None:
        traceback.print_exception(failure.__cause__)
    standalone.complain(failure.message, failure.hint)


def explain(error: BaseException, log: str = "", doing: str = "running") -> EngineFailure:
    """Return what an exception of vLLM means.

    Args:
        error: what was raised; its causes are looked at too.
        log: the last lines that vLLM's processes wrote: an engine in a process of its own says
            there why it ended, and the exception does not.
        doing: what the engine was doing: "starting", "running", ….
    """
    if isinstance(error, EngineFailure):
        return error
    text = "\n".join(_texts(error))
    known = _known(text, doing)
    if known is None and (ended := re.search(ENDED, text)):
        known = explain_log(log, doing) or EngineFailure(
            f"vLLM's engine process died while {doing}: {_line(text, ended.start())}",
            "its own last lines stand above; a process that was killed without a word ran out of "
            "host memory (dmesg tells), or use --engine inline",
        )
    return known or EngineFailure(
        f"vLLM failed while {doing}: {type(error).__name__}: {_first_line(str(error))}",
        f"its traceback stands above; {MORE_LOG[VLLM]}",
    )


def explain_log(log: str, doing: str = "starting", engine: str = VLLM) -> EngineFailure | None:
    """Return what the log of an engine says about why it ended, None if nothing known."""
    known = _known(log, doing, engine)
    if known is not None:
        return known
    raised = re.findall(r"(?m)^.*?\b((?:\w+\.)*\w*(?:Error|Exception)): (\S.*)$", log)
    told = [(kind, said) for kind, said in raised if not re.search(ENDED, said)]
    if not told:
        return None
    kind, said = told[-1]
    return EngineFailure(
        f"{engine}'s engine process died while {doing}: {kind}: {_first_line(said)}",
        f"its traceback stands above; {MORE_LOG[engine]}",
    )


def _texts(error: BaseException) -> list[str]:
    """Return the name and the text of an exception and of those that led to it."""
    texts: list[str] = []
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        texts.append(f"{type(following).__name__}: {following}")
        following = following.__cause__ or following.__context__
    return texts


def _known(text: str, doing: str, engine: str = VLLM) -> EngineFailure | None:
    for pattern, status, message, hint in KNOWN:
        found = re.search(pattern, text)
        if found is not None:
            said = _line(text, found.start())
            told = message.format(*found.groups(), doing=doing, engine=engine)
            return EngineFailure(f"{told}: {said}" if said else told, hint, status)
    return None


def _line(text: str, at: int) -> str:
    begin = text.rfind("\n", 0, at) + 1
    return _first_line(re.sub(LOG_PREFIX, "", text[begin:]))


def _first_line(text: str) -> str:
    """Return the first line, cut where it is longer than a sentence should be."""
    line = next((part.strip() for part in text.splitlines() if part.strip()), "")
    return line if len(line) <= 400 else line[:399] + "…"


# "(EngineCore pid=411) ERROR 11-22 00:10:17 [core.py:109] " before what a process logs.
LOG_PREFIX = r"^(?:\([^)]*\)\s*)*(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\]\s*)?"

ENDED = (
    r"Engine core initialization failed|WorkerProc initialization failed|EngineDeadError"
    r"|EngineCore encountered an issue|Executor failed|died unexpectedly|Worker failed with error"
    r"|RuntimeError: cancelled"
)

# What is found first in the order of this list is told. Texts of vLLM 0.20.2, SGLang 0.5.11,
# torch 2.11 and huggingface_hub 1.0.
KNOWN: tuple[tuple[str, str, str, str], ...] = (
    (
        r"No available memory for the cache blocks|Not enough memory\. Please try to increase "
        r"--mem-fraction-static",
        "out-of-memory",
        "the model leaves no GPU memory for the KV cache",
        "a larger --gpu-memory-utilization, a smaller --max-num-batched-tokens, a smaller model, "
        "or more GPUs with --tensor-parallel",
    ),
    (
        r"larger than the available KV cache memory",
        "out-of-memory",
        "the KV cache is too small for one sequence of the greatest length",
        "a smaller --max-model-len, or a larger --kv-cache-gib or --gpu-memory-utilization",
    ),
    (
        r"Free memory on device .{0,200}less than desired GPU memory utilization",
        "out-of-memory",
        "other programs hold the GPU's memory",
        "end them (nvidia-smi shows them), or ask for a smaller --gpu-memory-utilization",
    ),
    (
        r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|cudaErrorMemoryAllocation",
        "out-of-memory",
        "out of GPU memory while {doing}",
        LESS_MEMORY,
    ),
    (
        r"Invalid repository ID or local directory|is not a local folder and is not a valid model"
        r"|does not appear to have a file named|LocalEntryNotFoundError|RepositoryNotFoundError"
        r"|OfflineModeIsEnabled|couldn't connect to '?https?://\S*huggingface|GatedRepoError"
        r"|Cannot find the requested files in the (?:local|disk) cache",
        "failed",
        "{engine} does not find the model",
        NO_MODEL,
    ),
    (
        r"Cannot find any model weights",
        "failed",
        "the model has no weights",
        "--weights dummy makes them up: times are the same, the text means nothing",
    ),
    (
        r"Model architectures? .{0,200}(?:not supported|failed to be inspected)",
        "unsupported",
        "this version of {engine} cannot run the model",
        "the model's page says which version it needs",
    ),
    (
        r"greater than the derived (?:max_model_len|context_length)",
        "failed",
        "--max-model-len is more than the model's configuration allows",
        "take a smaller --max-model-len",
    ),
    (
        r"Failed to infer device type|No accelerator \(CUDA|No CUDA GPUs are available"
        r"|no CUDA-capable device is detected|Found no NVIDIA driver",
        "failed",
        "{engine} sees no CUDA device",
        "check nvidia-smi and CUDA_VISIBLE_DEVICES; in a container, start it with --gpus all; "
        "the engine must be a build for CUDA",
    ),
    (
        r"World size \(\d+\) is larger than the number of available GPUs"
        r"|CUDA error: invalid device ordinal|DP adjusted local rank",
        "failed",
        "fewer GPUs than --tensor-parallel asks for",
        "check CUDA_VISIBLE_DEVICES, or take a smaller --tensor-parallel",
    ),
    (
        r"unexpected keyword argument '(\w+)'",
        "unsupported",
        "this version of {engine} does not know the argument {0}",
        "use a version that has it (0.20.2 was tried), or leave the option out",
    ),
    (
        r"Profiling is not enabled",
        "unsupported",
        "vLLM was started without its profiler",
        "use a version whose profiler_config knows the CUDA profiler (0.20.2 was tried)",
    ),
    (
        r"NCCL error|nccl\w*Error\b|nvlink.{0,40}multicast|CUDA_ERROR_SYSTEM_NOT_READY",
        "failed",
        "the GPUs cannot work together",
        "NCCL_DEBUG=INFO in target.env says more; where the host forbids NVLink multicast, set "
        "NCCL_NVLS_ENABLE=0 and VLLM_ALLREDUCE_USE_SYMM_MEM=0 there",
    ),
    (
        r"CUDA error: (?!out of memory)|an illegal memory access",
        "failed",
        "a CUDA error while {doing}",
        "run it once more with CUDA_LAUNCH_BLOCKING=1 in target.env to see which kernel; a GPU "
        "that fails again needs a look (nvidia-smi -q, dmesg: Xid)",
    ),
)
