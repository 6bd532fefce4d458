"""Facts about the machine and its software for the manifest; no host name and no user name."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nsight_prof.orchestrator.system.process import ask

DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
PROCESS_STATUS = Path("/proc/self/status")
DEVICE_FILES = ("/dev/nvidiactl", "/dev/nvidia[0-9]*", "/dev/dxg", "/dev/nvhost-gpu")
# Bits of CapEff that let a process read the counters: CAP_SYS_ADMIN, CAP_PERFMON.
PROFILING_CAPABILITIES = (21, 38)

# A repository that somebody sent may name commands that git runs: none of them here.
GIT = (
    *("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "protocol.allow=never"),
)
OWN_FILTER = re.compile(r"^(?:local|worktree)\s+filter\.", re.MULTILINE)

ASK_INTERPRETER = """
import json, platform
facts = {"python": platform.python_version()}
try:
    import torch
    facts["torch"] = torch.__version__
    facts["torch_cuda"] = torch.version.cuda or ""
    facts["cudnn"] = str(torch.backends.cudnn.version() or "")
except Exception as error:
    facts["torch_error"] = type(error).__name__ + ": " + str(error)
from importlib.metadata import version, PackageNotFoundError
for name in ("nvidia-cublas", "nvidia-cublas-cu12", "triton", "vllm", "sglang", "flash-attn",
             "flashinfer-python", "transformer-engine", "transformers", "nvtx"):
    try:
        facts[name] = version(name)
    except PackageNotFoundError:
        pass
print("PROF-FACTS " + json.dumps(facts))
"""

# CUDA itself tells, since only it knows its order and the names (index, UUID, MIG) that it takes.
ASK_CUDA = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count, name = ctypes.c_int(), ctypes.create_string_buffer(32)
NO_DEVICE = 100
state = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
assert state in (0, NO_DEVICE), state
for device in range(count.value):
    assert not cuda.cuDeviceGetPCIBusId(name, len(name), device)
    print("PROF-GPU", name.value.decode())
print("PROF-ALL")
"""


@dataclass(frozen=True)
class Gpus:
    """What NVML says: `gpus` a mapping a GPU (units in the names), `error` why it says nothing."""

    gpus: list[dict[str, Any]] = field(default_factory=list)
    driver: str = ""
    cuda: str = ""
    error: str = ""


def read_gpus() -> Gpus:
    """Ask NVML for the GPUs, the driver and the highest CUDA version that it supports."""
    import pynvml as nvml

    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Gpus(error=str(error))
    try:
        count = nvml.nvmlDeviceGetCount()
        gpus = [_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(i), i) for i in range(count)]
        version = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
        return Gpus(
            gpus,
            _text(nvml.nvmlSystemGetDriverVersion()),
            f"{version // 1000}.{version % 1000 // 10}",
        )
    except nvml.NVMLError as error:
        return Gpus(error=str(error))
    finally:
        nvml.nvmlShutdown()


def has_gpu() -> bool:
    """Tell whether the driver shows any GPU device (also WSL and Jetson, where NVML may not)."""
    return any(glob.glob(pattern) for pattern in DEVICE_FILES)


def visible_gpus(environment: Mapping[str, str]) -> list[str] | None:
    """Return the PCI bus ids of the GPUs that CUDA shows a program with these variables.

    Of a MIG instance it is that of its GPU. None where CUDA does not tell; no context is made.
    """
    words = ask([sys.executable, "-c", ASK_CUDA], env=environment).stdout.split()
    return [w for w in words if not w.startswith("PROF-")] if "PROF-ALL" in words else None


def read_interpreter(python: str, environment: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """Ask the target's interpreter for its Python, torch, CUDA, cuDNN and Triton versions.

    `torch_error` says why torch cannot be imported; empty where the interpreter gives no answer.
    """
    answer = ask([python, "-c", ASK_INTERPRETER], env=environment, cwd=cwd, timeout_s=60.0)
    lines = [line for line in answer.stdout.splitlines() if line.startswith("PROF-FACTS ")]
    if not lines:
        return {}
    facts: dict[str, str] = json.loads(lines[-1].removeprefix("PROF-FACTS "))
    return facts


def read_software(interpreter: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """Return versions of the software around the target, and the commit of its folder."""
    facts = {
        "os": _os_name(),
        "kernel": platform.release().partition("-")[0],
        "prof_python": sys.version.split()[0],
    }
    if toolkit := cuda_toolkit():
        facts["cuda_toolkit"] = toolkit
    facts |= {name: value for name, value in interpreter.items() if name != "torch_error"}
    return facts | read_git(cwd)


def cuda_toolkit() -> str:
    """Return the version of the CUDA toolkit that programs here are built with; "" without one.

    It is that of CUDA_HOME, else of the nvcc on PATH, else of /usr/local/cuda: by its version.json,
    which images of containers lack, else by the name of its folder (cuda-13.0).
    """
    nvcc = shutil.which("nvcc")
    of_nvcc = str(Path(nvcc).resolve().parents[1]) if nvcc else ""
    homes = (os.environ.get("CUDA_HOME"), of_nvcc, "/usr/local/cuda")
    return next(filter(None, (_toolkit_at(Path(home)) for home in homes if home)), "")


def _toolkit_at(home: Path) -> str:
    try:
        found = json.loads((home / "version.json").read_text(encoding="utf-8"))
        return str(found["cuda"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        folder = home.resolve()
        version = re.fullmatch(r"cuda-(\d+\.\d+)", folder.name)
        return version[1] if version and folder.is_dir() else ""


def read_git(cwd: Path) -> dict[str, str]:
    """Return the commit that `cwd` is at, and whether files differ from it; {} without git."""
    commit = ask([*GIT, "rev-parse", "HEAD"], cwd=cwd)
    if commit.exit_code != 0:
        return {}
    found = {"git_commit": commit.stdout.strip()}
    # Filters are commands that `git status` runs. Those of the user's own configuration are theirs.
    settings = ask([*GIT, "config", "--show-scope", "--name-only", "--list"], cwd=cwd)
    if settings.exit_code != 0 or OWN_FILTER.search(settings.stdout):
        return found
    status = ask(
        [*GIT, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"],
        env={**os.environ, "GIT_NO_LAZY_FETCH": "1"},
        cwd=cwd,
    )
    if status.exit_code == 0:
        found["git_dirty"] = "yes" if status.stdout.strip() else "no"
    return found


def counters_refused() -> str:
    """Say why the driver will refuse counters to this process; "" where it may allow them."""
    try:
        parameters = DRIVER_PARAMETERS.read_text(encoding="utf-8")
    except OSError:
        return ""  # no such file on WSL and Jetson: only a try can tell
    if "RmProfilingAdminOnly: 1" not in parameters or _may_profile():
        return ""
    return (
        "the driver gives GPU performance counters to administrators only "
        "(RmProfilingAdminOnly: 1), and this process is none"
    )


def _may_profile() -> bool:
    """Tell whether the process has CAP_SYS_ADMIN or CAP_PERFMON; root in a container may not."""
    try:
        status = PROCESS_STATUS.read_text(encoding="utf-8")
        bits = int(status.partition("CapEff:")[2].split()[0], 16)
    except (OSError, IndexError, ValueError):
        return os.geteuid() == 0
    return any(bits >> bit & 1 for bit in PROFILING_CAPABILITIES)


def _gpu(nvml: Any, handle: Any, index: int) -> dict[str, Any]:
    """Return what NVML says of one GPU; what this GPU or driver does not tell is left out."""
    clock = nvml.nvmlDeviceGetMaxClockInfo
    questions: Sequence[tuple[str, Callable[[], Any]]] = (
        ("name", lambda: _text(nvml.nvmlDeviceGetName(handle))),
        ("uuid", lambda: _text(nvml.nvmlDeviceGetUUID(handle))),
        ("compute_capability", lambda: "{}.{}".format(*_capability(nvml, handle))),
        ("memory_bytes", lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total)),
        ("sm_clock_max_hz", lambda: 1e6 * clock(handle, nvml.NVML_CLOCK_SM)),
        ("memory_clock_max_hz", lambda: 1e6 * clock(handle, nvml.NVML_CLOCK_MEM)),
        ("power_limit_w", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
        ("ecc", lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0])),
        ("mig", lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0])),
        ("vgpu", lambda: _is_vgpu(nvml, handle)),
    )
    facts: dict[str, Any] = {"device": index}
    for name, question in questions:
        with contextlib.suppress(nvml.NVMLError):
            facts[name] = question()
    return facts


def _capability(nvml: Any, handle: Any) -> tuple[int, int]:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return major, minor


def _is_vgpu(nvml: Any, handle: Any) -> bool:
    mode = nvml.nvmlDeviceGetVirtualizationMode(handle)
    return bool(mode == nvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()
