import json
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.plan.program import Program
from nsight_prof.orchestrator.run.machine import program_digest, too_old
from nsight_prof.orchestrator.system import environment
from nsight_prof.orchestrator.system.process import ask

# A driver whose GPUs are the digits of CUDA_VISIBLE_DEVICES; none there and "broken" end cuInit.
CUDA = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const char *shown(void) { return getenv("CUDA_VISIBLE_DEVICES"); }
int cuInit(unsigned flags) { return *shown() == 'b' ? 999 : *shown() ? 0 : 100; }
int cuDeviceGetCount(int *count) { return *count = (int)strlen(shown()), 0; }
int cuDeviceGetPCIBusId(char *id, int length, int device) {
    return snprintf(id, length, "0000:%cB:00.0", shown()[device]) >= length;
}
"""


class NVMLError(Exception):
    pass


def nvml(**changes: Any) -> Any:
    """A pynvml of one H200 that does not tell its ECC mode."""

    def refuse(*_: Any) -> None:
        raise NVMLError("Not Supported")

    functions = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: "handle",
        "nvmlSystemGetDriverVersion": lambda: b"580.95.05",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
        "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
        "nvmlDeviceGetUUID": lambda handle: "GPU-1",
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(total=150754820096),
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: {1: 1980, 2: 3201}[kind],
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700000,
        "nvmlDeviceGetEccMode": refuse,
        "nvmlDeviceGetMigMode": lambda handle: (0, 0),
        "nvmlDeviceGetVirtualizationMode": lambda handle: 0,
        **changes,
    }
    constants = {"NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2, "NVML_GPU_VIRTUALIZATION_MODE_VGPU": 2}
    return types.SimpleNamespace(NVMLError=NVMLError, **functions, **constants)


def test_gpu_facts_carry_their_units_and_leave_out_what_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    found = environment.read_gpus()
    assert (found.driver, found.cuda, found.error) == ("580.95.05", "13.0", "")
    assert found.gpus == [
        {
            "device": 0,
            "name": "NVIDIA H200",
            "uuid": "GPU-1",
            "compute_capability": "9.0",
            "memory_bytes": 150754820096,
            "sm_clock_max_hz": 1.98e9,
            "memory_clock_max_hz": 3.201e9,
            "power_limit_w": 700.0,
            "mig": False,
            "vgpu": False,
        }
    ]


def test_without_a_driver_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise NVMLError("NVML Shared Library Not Found")

    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=fail))
    found = environment.read_gpus()
    assert found.gpus == []
    assert found.error == "NVML Shared Library Not Found"


@pytest.mark.parametrize(
    ("parameters", "capabilities", "refused"),
    [
        ("RmProfilingAdminOnly: 1\n", "0000000000000000", True),
        ("RmProfilingAdminOnly: 1\n", "00000000a80425fb", True),  # root in a docker container
        ("RmProfilingAdminOnly: 1\n", "0000000000200000", False),  # CAP_SYS_ADMIN
        ("RmProfilingAdminOnly: 1\n", "0000004000000000", False),  # CAP_PERFMON
        ("RmProfilingAdminOnly: 0\n", "0000000000000000", False),
    ],
)
def test_the_drivers_parameters_and_our_capabilities_say_who_may_read_counters(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parameters: Any,
    capabilities: Any,
    refused: Any,
) -> None:
    (tmp_path / "params").write_text(f"ResmanDebugLevel: 4294967295\n{parameters}")
    (tmp_path / "status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\nSeccomp:\t0\n")
    monkeypatch.setattr(environment, "DRIVER_PARAMETERS", tmp_path / "params")
    monkeypatch.setattr(environment, "PROCESS_STATUS", tmp_path / "status")
    assert bool(environment.counters_refused()) is refused


def test_without_driver_parameters_only_a_try_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "DRIVER_PARAMETERS", tmp_path / "absent")
    assert environment.counters_refused() == ""


def test_the_targets_interpreter_is_asked_and_not_ours(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "__version__ = '2.11.0'\n"
        "class version: cuda = '13.0'\n"
        "class backends:\n"
        "    class cudnn:\n"
        "        version = staticmethod(lambda: 91002)\n"
    )
    variables = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin"}
    facts = environment.read_interpreter(sys.executable, variables, tmp_path)
    assert facts["torch"] == "2.11.0"
    assert facts["torch_cuda"] == "13.0"
    assert facts["cudnn"] == "91002"
    assert facts["python"] == sys.version.split()[0]


def test_an_interpreter_without_torch_says_why(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13 not found')\n")
    facts = environment.read_interpreter(sys.executable, {"PYTHONPATH": str(tmp_path)}, tmp_path)
    assert facts["torch_error"] == "ImportError: libcudart.so.13 not found"


def test_an_interpreter_that_does_not_exist_gives_nothing(tmp_path: Path) -> None:
    assert environment.read_interpreter("/no/such/python", {}, tmp_path) == {}


def test_the_commit_of_the_folder_is_told_and_whether_files_differ(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@t")
        assert ask(["git", *identity, *words], cwd=tmp_path).exit_code == 0

    assert environment.read_git(tmp_path) == {}
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "a")
    clean = environment.read_git(tmp_path)
    assert len(clean["git_commit"]) == 40
    assert clean["git_dirty"] == "no"
    (tmp_path / "a").write_text("2")
    assert environment.read_git(tmp_path)["git_dirty"] == "yes"


def test_no_host_or_user_name_is_among_the_software_facts(tmp_path: Path) -> None:
    import getpass
    import platform

    facts = environment.read_software({"torch": "2.11"}, tmp_path)
    assert facts["torch"] == "2.11"
    values = " ".join(facts.values()).split()
    assert platform.node() not in values
    assert getpass.getuser() not in values


def test_the_toolkit_is_that_of_cuda_home_or_of_nvcc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("home", "13.0.48"), ("path", "12.9.0")):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "nvcc").write_text("#!/bin/sh\n")
        (tmp_path / name / "bin" / "nvcc").chmod(0o755)
        content = json.dumps({"cuda": {"name": "CUDA SDK", "version": version}})
        (tmp_path / name / "version.json").write_text(content)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert environment.cuda_toolkit() == "13.0.48"
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "none"))
    assert environment.read_software({}, tmp_path)["cuda_toolkit"] == "12.9.0"
    (tmp_path / "cuda-12.8").mkdir()  # an image of a container: a folder and a link to it
    (tmp_path / "cuda").symlink_to(tmp_path / "cuda-12.8")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert environment.cuda_toolkit() == "12.8"


@pytest.mark.parametrize(
    ("nsys", "cuda", "old"),
    [
        ("2023.4.4.54", "13.0", True),
        ("2025.3.1.90", "13.0", False),
        ("2023.4.4.54", "12.4", False),
        ("2021.2.1.58", "12.4", True),
        ("2021.2.1.58", "", False),
        ("2025.3.1.90", "14.0", False),
    ],
)
def test_an_nsys_from_before_the_drivers_cuda_is_told(nsys: Any, cuda: Any, old: Any) -> None:
    assert too_old(nsys, cuda) is old


def test_the_digest_of_a_command_is_that_of_the_files_it_names(tmp_path: Path) -> None:
    (tmp_path / "app").write_text("1")
    program = Program(("./app", "--size", "4"), {}, tmp_path)
    first = program_digest(program)
    assert program_digest(program) == first
    (tmp_path / "app").write_text("2")
    assert program_digest(program) != first


def test_the_tiny_kernel_runs_alone_and_says_what_is_missing() -> None:
    script = Path(__file__).resolve().parents[2] / "targets/tiny_kernel.py"
    answer = ask([sys.executable, str(script)])
    assert answer.exit_code == 0 or answer.stderr.strip()


@pytest.mark.skipif(not shutil.which("cc"), reason="no compiler")
def test_cuda_tells_which_gpus_a_program_sees(tmp_path: Path) -> None:
    (tmp_path / "cuda.c").write_text(CUDA)
    library = str(tmp_path / "libcuda.so.1")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, f"{tmp_path}/cuda.c"], check=True)

    def seen(visible: str) -> list[str] | None:
        where = {"LD_LIBRARY_PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": visible}
        return environment.visible_gpus(where)

    assert seen("21") == ["0000:2B:00.0", "0000:1B:00.0"]
    assert seen("") == []
    assert seen("broken") is None
