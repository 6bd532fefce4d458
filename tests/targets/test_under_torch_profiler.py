"""The wrapper that runs a script under the torch profiler: on the CPU, in a process of its own."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

WRAPPER = Path(__file__).parents[2] / "targets" / "under_torch_profiler.py"

HEAD = """
import multiprocessing, os, sys
import torch
nvtx, profiler = torch.cuda.nvtx, torch.cuda.profiler
def multiply(m, n=16, k=8):
    return torch.mm(torch.ones(m, k), torch.ones(k, n))
"""


class Ran:
    """What a script under the wrapper did, and the trace it left."""

    def __init__(self, done: subprocess.CompletedProcess[str], out: Path) -> None:
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        self.trace: dict[str, Any] = {}
        if out.is_file():
            self.trace = json.loads(gzip.decompress(out.read_bytes()))

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.trace.get("traceEvents", []) if e.get("cat") == kind]

    def products(self) -> list[Any]:
        found = [e for e in self.events("cpu_op") if e["name"] == "aten::mm"]
        return [e["args"]["Input Dims"][0][0] for e in found]

    def ranges(self) -> list[str]:
        return [e["name"] for e in self.events("user_annotation")]


def run(folder: Path, script: str, *arguments: str, capture: str = "all") -> Ran:
    file, out = folder / "script.py", folder / "out" / "operators.json.gz"
    file.write_text(HEAD + textwrap.dedent(script), encoding="utf-8")
    command = [sys.executable, str(WRAPPER), "--out", str(out), "--capture", capture, "--"]
    done = subprocess.run(
        [*command, str(file), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    left = sorted(path.name for path in out.parent.glob("*")) if out.parent.is_dir() else []
    assert left in ([], [out.name]), "files beside the trace"
    return Ran(done, out)


def test_all_of_a_script_is_recorded_without_names_of_the_machine(tmp_path: Path) -> None:
    ran = run(tmp_path, "multiply(3); print(sys.argv[1:], __name__)", "--", "a", "--out")
    assert (ran.code, ran.products()) == (0, [3])
    assert ran.stdout.strip() == "['--', 'a', '--out'] __main__"
    assert ran.trace.get("host_name", "") == ran.trace["traceName"] == ""
    assert str(tmp_path) not in json.dumps(ran.trace)


def test_the_profiler_api_brackets_the_recording(tmp_path: Path) -> None:
    script = """
    multiply(1)
    profiler.start(); multiply(2); profiler.stop()
    multiply(3)
    with profiler.profile(): multiply(4)
    torch.cuda.cudart().cudaProfilerStart()
    multiply(5)
    """
    ran = run(tmp_path, script, capture="profiler-api")
    assert (ran.code, ran.products()) == (0, [2, 4, 5])
    numbers = [e["args"]["External id"] for e in ran.events("cpu_op")]
    assert len(set(numbers)) == len(numbers), "parts must not share the numbers of their events"


def test_ranges_have_the_names_of_nvtx(tmp_path: Path) -> None:
    script = """
    with nvtx.range("execute_context_{}({})", 8, 4096):
        assert nvtx.range_push("inner") == 1
        assert nvtx.range_pop() == 1
    nvtx.range_pop()  # one too many
    """
    ran = run(tmp_path, script)
    assert (ran.code, ran.ranges()) == (0, ["execute_context_8(4096)", "inner"])


def test_the_package_nvtx_is_bridged(tmp_path: Path) -> None:
    (tmp_path / "nvtx.py").write_text("annotate = push_range = pop_range = None", encoding="utf-8")
    script = """
    import nvtx
    @nvtx.annotate()
    def decode(): multiply(1)
    with nvtx.annotate("prefill", color="blue", domain="engine"): decode()
    nvtx.push_range("step"); nvtx.pop_range()
    """
    ran = run(tmp_path, script)
    assert (ran.code, ran.ranges()) == (0, ["engine:prefill", "decode", "step"])


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("raise ValueError('no such model')", 1, "ValueError: no such model"),
        ("sys.exit(7)", 7, ""),
        ("os._exit(5)", 5, ""),
        ("os.kill(os.getpid(), 15); import time; time.sleep(9)", 143, ""),
    ],
)
def test_a_script_that_ends_early_leaves_its_trace(
    tmp_path: Path, end: str, code: int, said: str
) -> None:
    ran = run(tmp_path, f"multiply(3)\n{end}")
    assert (ran.code, ran.products()) == (code, [3])
    assert said in ran.stderr
    assert "under_torch_profiler" not in ran.stderr, "the traceback is the script's alone"


def test_spawned_and_forked_processes_run_and_write_nothing(tmp_path: Path) -> None:
    script = """
    class Task:
        def __call__(self): multiply(9)
    if __name__ == "__main__":
        profiler.start()
        for method in ("spawn", "fork"):
            process = multiprocessing.get_context(method).Process(target=Task())
            process.start(); process.join(); print(process.exitcode)
        multiply(2)
        profiler.stop()
    """
    ran = run(tmp_path, script, capture="profiler-api")
    assert (ran.code, ran.stdout.split(), ran.products()) == (0, ["0", "0"], [2])


def test_a_script_without_the_profiler_api_is_told_of_it(tmp_path: Path) -> None:
    ran = run(tmp_path, "multiply(1)", capture="profiler-api")
    assert ran.code == 1
    assert "error: script.py never called cudaProfilerStart" in ran.stderr
    assert "\n\nhint: " in ran.stderr


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, str(WRAPPER), "--out", str(tmp_path / "o"), "--", "nowhere.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "error: there is no script nowhere.py" in done.stderr
