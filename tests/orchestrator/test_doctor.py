import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.run import doctor
from nsight_prof.orchestrator.system.environment import Gpus
from nsight_prof.orchestrator.tools import shim

H200 = {"device": 0, "name": "NVIDIA H200", "memory_bytes": 150754820096}


@pytest.fixture
def machine(lab: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine with all that is needed; returns a function that gives check by name."""
    monkeypatch.setattr(doctor, "has_gpu", lambda: True)
    monkeypatch.setattr(doctor, "read_gpus", lambda: Gpus([H200], "580.95", "13.0"))
    facts = {"torch": "2.11.0", "torch_cuda": "13.0"}
    monkeypatch.setattr(doctor, "read_interpreter", lambda *args: facts)
    return lambda: {check.name: check for check in doctor.examine()}


def test_a_machine_that_can_profile_lacks_nothing(machine: Any) -> None:
    checks = machine()
    roofs = checks.pop("roofs")
    assert {check.state for check in checks.values()} == {"ok"}
    assert (roofs.state, roofs.detail) == ("warning", "not measured on this GPU")
    assert roofs.remedy.startswith("prof run roofline")
    assert checks["GPU 0"].detail == "NVIDIA H200 (140 GiB)"
    assert checks["driver"].detail == "580.95, CUDA up to 13.0"
    assert checks["nsys"].detail.startswith("2025.3.1.0, ")
    assert checks["counters"].state == "ok"


def test_no_gpu_is_told_with_what_works_without_one(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "has_gpu", lambda: False)
    monkeypatch.setattr(doctor, "read_gpus", lambda: Gpus(error="Driver Not Loaded"))
    checks = machine()
    assert checks["GPU"].state == "missing"
    assert "Driver Not Loaded" in checks["GPU"].detail
    assert "--replay" in checks["GPU"].remedy
    assert checks["counters"].state == "missing"


def test_missing_tools_are_told_with_where_to_get_them(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    checks = machine()
    assert checks["nsys"].state == checks["ncu"].state == "missing"
    assert "developer.nvidia.com/nsight-systems" in checks["nsys"].remedy
    assert checks["ncu"].remedy


def test_a_refused_permission_comes_with_the_exact_remedy(machine: Any, lab: Any) -> None:
    lab.fake(FAKE_NCU="permission")
    check = machine()["counters"]
    assert check.state == "missing"
    assert "options nvidia NVreg_RestrictProfilingToAdminUsers=0" in check.remedy
    assert "docker run --cap-add SYS_ADMIN" in check.remedy
    assert "counters.enabled=false" in check.remedy


def test_an_nsys_inside_nsight_compute_is_told_with_what_it_lacks(
    machine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = tmp_path / "nsight-compute/2025.3.1/host"
    (root / "linux-desktop-x").mkdir(parents=True)
    (root / "linux-desktop-x/QdstrmImporter").write_text("")
    (root / "target-linux-x64").mkdir()
    (root / "target-linux-x64/nsys").write_text("")
    monkeypatch.setattr(shim, "BUNDLES", (str(root / "target-linux-x64/nsys"),))
    monkeypatch.setattr(shim, "LIBRARY_FOLDERS", ())
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    check = machine()["bundled nsys"]
    assert check.state == "warning"
    assert "libdw.so.1" in check.detail
    assert "host-linux-x64 -> linux-desktop-x" in check.detail
    assert "libdw1" in check.remedy


def test_an_nsys_older_than_the_drivers_cuda_is_told(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "read_gpus", lambda: Gpus([H200], "700.1", "13.0"))
    monkeypatch.setattr(doctor, "too_old", lambda version, cuda: True)
    assert machine()["nsys and driver"].state == "warning"


@pytest.mark.parametrize(("fact", "word"), [("mig", "MIG"), ("vgpu", "virtual")])
def test_a_shared_gpu_is_told(
    machine: Any, monkeypatch: pytest.MonkeyPatch, fact: Any, word: Any
) -> None:
    monkeypatch.setattr(doctor, "read_gpus", lambda: Gpus([H200 | {fact: True}], "580", "13.0"))
    check = machine()["GPU 0"]
    assert check.state == "warning"
    assert word in check.detail
    assert check.remedy


def test_an_interpreter_without_torch_is_told(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"torch_error": "ModuleNotFoundError: No module named 'torch'"}
    monkeypatch.setattr(doctor, "read_interpreter", lambda *args: facts)
    check = machine()["torch"]
    assert check.state == "warning"
    assert sys.executable in check.detail
    assert "target.python" in check.remedy


def test_the_vllm_of_the_targets_interpreter_is_told(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"torch": "2.11.0", "torch_cuda": "13.0", "vllm": "0.20.2"}
    monkeypatch.setattr(doctor, "read_interpreter", lambda *args: facts)
    check = machine()["torch"]
    assert check.state == "ok"
    assert "vLLM 0.20.2" in check.detail


def test_a_full_disk_is_told(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ENOUGH_DISK", 1 << 60)
    assert machine()["disk"].state == "warning"


def test_without_ncu_report_the_rounding_is_told(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    check = machine()["ncu-report"]
    assert check.state == "warning"
    assert check.remedy == "pip install ncu-report"
