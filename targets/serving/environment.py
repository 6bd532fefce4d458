"""The environment variables that vLLM reads, set before it is imported."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from importlib.util import find_spec
from pathlib import Path

from nsight_prof.targets.serving.models import Model
from nsight_prof.targets.serving.options import EngineOptions

# One host, no statistics to anybody, vLLM's log beside the errors: stdout is for records.
ALWAYS = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_COLOR": "0",
}
# With the network forbidden, nothing waits for a hub that a local model does not need.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
# vLLM uses these packages where its variables do not forbid it, and fails where they are absent.
OPTIONAL = {
    "VLLM_USE_FLASHINFER_SAMPLER": ("flashinfer",),
    "VLLM_USE_DEEP_GEMM": ("deep_gemm", "vllm.third_party.deep_gemm"),
}


def prepare(model: Model, options: EngineOptions | None = None) -> dict[str, str]:
    """Set what is not set yet in os.environ and return all that is.

    Where the engine runs (--engine) and the NVTX scopes are the caller's choice: those two
    variables are set even where they are set already.

    Args:
        model: a local one needs no network.
        options: of an engine in this program; None for a server, which is a program of its own.
    """
    wanted = dict(ALWAYS)
    if model.local:
        wanted |= OFFLINE
    for name, packages in OPTIONAL.items():
        if not any(_has(package) for package in packages):
            wanted[name] = "0"
    if (folder := _cache_folder()) is not None:
        wanted["VLLM_CACHE_ROOT"] = folder
    for name, value in wanted.items():
        os.environ.setdefault(name, value)
    if options is not None:
        chosen = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1" if options.process == "spawn" else "0"}
        if options.nvtx_scopes:
            chosen["VLLM_NVTX_SCOPES_FOR_PROFILING"] = "1"
        os.environ.update(chosen)
        wanted |= chosen
    return {name: os.environ[name] for name in wanted}


def _has(package: str) -> bool:
    """Say whether a package is there; nothing of it is imported, nor of what it lies in."""
    name, *inner = package.split(".")
    try:
        found = find_spec(name)
    except ValueError:  # half imported
        return False
    folders = (found and found.submodule_search_locations) or ()
    return found is not None and (
        not inner or any(Path(folder, *inner).is_dir() for folder in folders)
    )


def _cache_folder() -> str | None:
    """Return a folder for compiled code where vLLM's own (~/.cache) cannot be written."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    while not folder.exists():
        folder = folder.parent
    if os.access(folder, os.W_OK):
        return None
    own = Path(tempfile.gettempdir()) / f"vllm-cache-{os.getuid()}"
    with contextlib.suppress(OSError):
        own.mkdir(mode=0o700)
    # Code is loaded from there: a folder that somebody else made or may write to is not used.
    return str(own) if _is_private(own) else tempfile.mkdtemp(prefix="vllm-cache-")


def _is_private(folder: Path) -> bool:
    state = folder.lstat()
    mine = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid()
    return mine and not state.st_mode & 0o022
