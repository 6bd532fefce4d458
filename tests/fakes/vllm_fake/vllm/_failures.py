"""How vLLM 0.20.2 fails: the same exceptions and texts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NoReturn

from vllm.v1.engine.exceptions import EngineDeadError

LOGGED = "(EngineCore pid=411) ERROR 11-22 00:10:17 [core.py:1136] "


class OutOfMemoryError(RuntimeError):
    """torch.OutOfMemoryError, without torch."""


OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 14.00 GiB. GPU 0 has a total capacity of 139.80 GiB of "
    "which 3.10 GiB is free. Process 77 has 136.69 GiB memory in use."
)
NO_KV = (
    "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
    "initializing the engine. See "
    "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
)
SMALL_KV = (
    "To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is "
    "needed, which is larger than the available KV cache memory (8.0 GiB). Based on the available "
    "memory, the estimated maximum model length is 65536. Try increasing `gpu_memory_utilization` "
    "or decreasing `max_model_len` when initializing the engine."
)
BUSY = (
    "Free memory on device cuda:0 (10.2/139.8 GiB) on startup is less than desired GPU memory "
    "utilization (0.85, 118.83 GiB). Decrease GPU memory utilization or reduce GPU memory used by "
    "other processes."
)
NO_MODEL = (
    "Invalid repository ID or local directory specified: '{model}'.\nPlease verify the following "
    "requirements:\n1. Provide a valid Hugging Face repository ID.\n2. Specify a local directory "
    "that contains a recognized configuration file.\n"
)
NO_GPU = (
    "Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG` "
    "to turn on verbose logging to help debug the issue."
)
START: dict[str, tuple[type[Exception], str]] = {
    "oom": (OutOfMemoryError, OUT_OF_MEMORY),
    "no-kv": (ValueError, NO_KV),
    "small-kv": (ValueError, SMALL_KV),
    "busy": (ValueError, BUSY),
    "no-gpu": (RuntimeError, NO_GPU),
    "died": (AssertionError, "the block table has no room"),
}


def hidden(name: str) -> bool:
    """Whether this version is to lack a hook."""
    return name in os.environ.get("FAKE_VLLM_NO_HOOK", "").split(",")


def at_import() -> None:
    """Fail as a vLLM that was built for another torch."""
    if os.environ.get("FAKE_VLLM_FAIL") == "import":
        raise ImportError("vllm/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEa")


def at_start(model: str, mode: str, own_process: bool) -> None:
    """Fail as the engine's start does, in this process or in the engine's."""
    kind = os.environ.get("FAKE_VLLM_FAIL", "")
    if os.environ.get("FAKE_VLLM_FAIL_MODE", mode) != mode:
        return
    if kind == "no-model":
        raise ValueError(NO_MODEL.format(model=model))
    if kind == "killed":  # by the kernel: no word
        _in_its_process("")
    if kind in START:
        error, text = START[kind]
        if own_process and kind != "no-gpu":
            name = "torch.OutOfMemoryError" if error is OutOfMemoryError else error.__name__
            _in_its_process(
                f"{LOGGED}EngineCore failed to start.\n{LOGGED}Traceback (most recent call last):\n"
                f'{LOGGED}  File "core.py", line 1110, in run_engine_core\n'
                f"{LOGGED}{name}: {text}\n"
            )
        raise error(text)


def in_step(step: int, requests: int, own_process: bool) -> None:
    """Fail as a step does."""
    if requests >= int(os.environ.get("FAKE_VLLM_OOM_BATCH", "1000000")):
        _raise(OutOfMemoryError(OUT_OF_MEMORY), own_process)
    if step == int(os.environ.get("FAKE_VLLM_DIE_AT", "0")):
        _raise(RuntimeError("CUDA error: an illegal memory access was encountered"), own_process)


def call(*what: Any) -> None:
    """Note a call in the file FAKE_VLLM_CALLS."""
    path = os.environ.get("FAKE_VLLM_CALLS")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(what, default=str) + "\n")


def _raise(error: Exception, own_process: bool) -> NoReturn:
    if own_process:
        told = f"{type(error).__name__}: {error}"
        _say(f"{LOGGED}EngineCore encountered a fatal error.\n{LOGGED}{told}\n")
        raise EngineDeadError
    raise error


def _in_its_process(text: str) -> NoReturn:
    if text:
        _say(text)
    raise RuntimeError(
        "Engine core initialization failed. See root cause above. "
        f"Failed core proc(s): {{'EngineCore': {1 if text else -9}}}"
    )


def _say(text: str) -> None:
    """Write to stderr from a process of its own."""
    subprocess.run([sys.executable, "-c", f"import sys; sys.stderr.write({text!r})"], check=True)
