"""vLLM's engine: what its output says about why it ended. The words are those of vLLM 0.20.

A target that knows its own failures is heard first (`target.explain_itself`); this is for programs
that leave vLLM's errors as they are.
"""

from __future__ import annotations

import re

from nsight_prof.orchestrator.tools.explanations import LONGEST_QUOTE, Explanations, line_of
from nsight_prof.parsers.errors import ProfError, StepFailed, ToolMissing

# "(EngineCore pid=411) ERROR 11-22 00:10:17 [core.py:109] " before what a process logs.
PREFIX = re.compile(r"^(?:\([^)]*\)\s*)*(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\]\s*)?")
RAISED = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception): \S.*")
ENDED = (
    r"Engine core initialization failed|WorkerProc initialization failed|EngineDeadError"
    r"|EngineCore encountered an issue"
)


def words_of(match: re.Match[str]) -> str:
    """Return the line in which `match` begins, without what vLLM writes before a message."""
    return PREFIX.sub("", line_of(match)).strip()


def _no_vllm(_match: re.Match[str]) -> ProfError:
    return StepFailed(
        "the target's interpreter has no vLLM",
        "name the interpreter that has it: target.python in the recipe, or "
        "--set target.python=/path/to/venv/bin/python; to make one: pip install vllm in a venv of "
        "its own",
    )


def _no_cache(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"the GPU has no room for vLLM's KV cache: {words_of(match)}",
        "a larger gpu_memory_utilization, a smaller max_model_len or model, or more GPUs with "
        "tensor parallelism (--set target.args.tensor_parallel=2)",
    )


def _taken(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"other programs hold the GPU's memory: {words_of(match)}",
        "end them (nvidia-smi shows them), or take a smaller gpu_memory_utilization",
    )


def _no_model(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"vLLM does not find the model: {words_of(match)}",
        "give a local folder that holds config.json, or a hub name and the network (or a download "
        "made before); a gated model needs target.env: {HF_TOKEN: ${HF_TOKEN}}; without weights: "
        "load_format dummy",
    )


def _no_device(match: re.Match[str]) -> ProfError:
    return ToolMissing(
        f"vLLM sees no GPU: {words_of(match)}",
        "check nvidia-smi and CUDA_VISIBLE_DEVICES; in a container, start it with --gpus all; "
        "vLLM must be a build for CUDA; without a GPU, replay a recorded run: --replay RUN",
    )


def _spawn(_match: re.Match[str]) -> ProfError:
    return StepFailed(
        "the program starts vLLM without a main guard: its engine process begins by importing it",
        'put what it does under `if __name__ == "__main__":`, or set '
        "VLLM_ENABLE_V1_MULTIPROCESSING=0 in target.env for an engine in the same process",
    )


def _forked(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"a process was forked after CUDA was used: {words_of(match)}",
        "set VLLM_WORKER_MULTIPROC_METHOD=spawn in target.env",
    )


def _port(match: re.Match[str]) -> ProfError:
    return StepFailed(
        f"the server's port is taken: {words_of(match)}",
        "end the program that holds it (ss -ltnp shows it), or choose another port",
    )


def _ended(match: re.Match[str]) -> ProfError:
    """Name the last error before the engine's end: that one only says that there was one."""
    lines = [PREFIX.sub("", line).strip() for line in match.string.splitlines()]
    raised = [line for line in lines if RAISED.fullmatch(line) and not re.search(ENDED, line)]
    return StepFailed(
        f"vLLM's engine died: {(raised or [words_of(match)])[-1][:LONGEST_QUOTE]}",
        "its traceback is in the step's logs; a process that was killed without a word ran out of "
        "host memory (dmesg); VLLM_LOGGING_LEVEL=DEBUG in target.env says more",
    )


EXPLANATIONS: Explanations = [
    (r"No module named 'vllm'", _no_vllm),
    (r"Failed to infer device type", _no_device),
    (r"Free memory on device .{0,200}less than desired GPU memory utilization", _taken),
    (
        r"No available memory for the cache blocks|larger than the available KV cache memory"
        r"|maximum number of tokens that can be stored in KV cache",
        _no_cache,
    ),
    (
        r"Invalid repository ID or local directory specified|RepositoryNotFoundError"
        r"|LocalEntryNotFoundError|GatedRepoError|OfflineModeIsEnabled",
        _no_model,
    ),
    (r"An attempt has been made to start a new process before", _spawn),
    (r"Cannot re-initialize CUDA in forked subprocess", _forked),
    (r"(?i)\[Errno 98\].*|error while attempting to bind on address.*", _port),
]
# After every cause that is known: out of memory, no GPU, a module that is missing.
ENDS: Explanations = [(ENDED, _ended)]
