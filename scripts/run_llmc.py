"""Runs the kernels of llm.c that tests/proof_programs/public.yaml names with prof on a GPU.

    python scripts/run_llmc.py DIR LLMC                 LLMC: a checkout of llm.c
    python scripts/run_llmc.py DIR LLMC permute --within 200
    python scripts/run_llmc.py DIR LLMC --steps repaired         of what was compiled before
    python scripts/score_programs.py DIR --set public.yaml

Each file of dev/cuda checks its kernel against the CPU and times it for several block sizes. Here
it takes turns on the GPU and stops after one of them (`call`), which it runs 20 times in a row
between cudaProfilerStart and -Stop, without the writes that empty the cache between two launches.
What scripts/run_programs.py leaves of a program is left of these, too.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.run_programs import PROGRAMS, call

PUBLIC = PROGRAMS / "public.yaml"
CHECK = (
    "void validate_result(D* device_result, const T* cpu_reference, const char* name, "
    "std::size_t num_elements, T tolerance=1e-4) {\n"
)
TURN = """
#include <cuda_profiler_api.h>
#include <fcntl.h>
#include <sys/file.h>
static void take_turn() {  // on the GPU, until the program ends
    const char* name = getenv("PROGRAMS_LOCK");
    static int turn = name ? open(name, O_CREAT | O_RDWR, 0600) : -1;
    if (turn >= 0) flock(turn, LOCK_EX);
}
"""
START = "float benchmark_kernel(int repeats, Kernel kernel, KernelArgs&&... kernel_args) {\n"
ONE_CALL = """
    take_turn();
    static int call_number = 0;
    if (++call_number != atoi(getenv("BENCHMARK_CALL"))) return 1.f;
    const int times = 20;
    cudaEvent_t first, last;
    float plain_ms;
    cudaCheck(cudaEventCreate(&first));
    cudaCheck(cudaEventCreate(&last));
    kernel(std::forward<KernelArgs>(kernel_args)...);
    cudaCheck(cudaDeviceSynchronize());
    cudaCheck(cudaProfilerStart());
    cudaCheck(cudaEventRecord(first));
    for (int i = 0; i < times; i++) kernel(std::forward<KernelArgs>(kernel_args)...);
    cudaCheck(cudaEventRecord(last));
    cudaCheck(cudaDeviceSynchronize());
    cudaCheck(cudaProfilerStop());
    cudaCheck(cudaEventElapsedTime(&plain_ms, first, last));
    printf("plain_ms %f\\n", plain_ms / times);
    fflush(stdout);
    exit(0);
"""
PLAIN = re.compile(r"^plain_ms ([\d.]+)$", re.MULTILINE)
LIBRARIES = ("-lcublas", "-lcublasLt")
VARIANTS = ("slow", "repaired")
"""What `versions` of a program are, in its order."""
STEPS = ("times", *VARIANTS)
Program = Mapping[str, Any]


def prepare(program: Program, llmc: Path, folder: Path) -> Path:
    """Write the file of a program with its edits, and the header that runs one benchmark only."""
    source = llmc / "dev" / "cuda"
    text = (source / program.get("file", f"{program['name']}.cu")).read_text("utf-8")
    for old, new in program.get("edit", {}).items():
        if old not in text:
            raise SystemExit(f"error: {program['name']}: the file does not hold {old!r}")
        text = text.replace(old, new)
    header = (source / "common.h").read_text("utf-8")
    if START not in header or CHECK not in header:
        raise SystemExit(f"error: {source / 'common.h'} has no benchmark_kernel that is known")
    folder.mkdir(parents=True, exist_ok=True)
    edited = header.replace(START, START + ONE_CALL).replace(CHECK, CHECK + "    take_turn();\n")
    (folder / "common.h").write_text(TURN + edited, "utf-8")
    file = folder / f"{program['name']}.cu"
    file.write_text(text, "utf-8")
    return file


def recipe(program: Program, binary: Path, version: int) -> dict[str, Any]:
    """Return the recipe that profiles a version of a kernel."""
    return {
        "name": "program",
        "question": "What does this kernel lose its time in?",
        "target": {
            "command": [str(binary), str(version)],
            "env": {"BENCHMARK_CALL": str(program.get("call", 4))},
        },
        "capture": "profiler-api",
        "stages": [],
        "trace": {"timeout": "100s"},
        "select": {"top_k": 3},
        "counters": {"source": True, "clock_control": "none", "timeout": "120s"},
    }


def times(program: Program, llmc: Path, out: Path, limit: float) -> str:
    """Compile a program and time both versions without a profiler; return how it ended."""
    folder = out / program["name"]
    file = prepare(program, llmc, folder / "source")
    binary = folder / program["name"]
    options = ["-O3", "--use_fast_math", "-std=c++17", "-lineinfo", "-arch=native",
               "-Xcompiler", "-fopenmp", *program.get("flags", ())]  # fmt: skip
    build = ["nvcc", *options, "-I", str(llmc), "-o", str(binary), str(file), *LIBRARIES]
    if failed := call(build, folder, "build", limit):
        return failed
    rows = []
    for repaired, version in enumerate(program["versions"]):
        number = f"BENCHMARK_CALL={program.get('call', 4)}"
        if failed := call(["env", number, str(binary), str(version)], folder, "times", limit):
            return failed
        found = PLAIN.search((folder / "times.out").read_text("utf-8"))
        if found is None:
            return "printed no time"
        rows.append({"program": program["name"], "repaired": bool(repaired),
                     "ms": float(found[1])})  # fmt: skip
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "times.jsonl").write_text(text, encoding="utf-8")
    return "done"


def profile(program: Program, variant: str, out: Path, limit: float) -> str:
    """Profile a variant (`slow` or `repaired`) of a compiled program with prof."""
    folder = out / program["name"]
    binary, to = folder / program["name"], folder / f"{variant}.yaml"
    if not binary.is_file():
        return "was not compiled"
    version = program["versions"][VARIANTS.index(variant)]
    to.write_text(yaml.safe_dump(recipe(program, binary, version)), encoding="utf-8")
    prof = [sys.executable, "-m", "nsight_prof", "run", str(to), "--out", str(folder / variant)]
    return call(prof, folder, variant, limit) or "done"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; exit code 1 where a program failed or was not begun."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="DIR")
    parser.add_argument("llmc", type=Path, metavar="LLMC")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--jobs", type=int, default=6, help="processes side by side")
    parser.add_argument("--timeout", type=float, default=200, help="seconds for each process")
    parser.add_argument("--within", type=float, default=float("inf"), help="seconds for all")
    asked = parser.parse_args(arguments)
    listed = yaml.safe_load(PUBLIC.read_text(encoding="utf-8"))["programs"]
    chosen = [one for one in listed if not asked.names or one["name"] in asked.names]
    out, started = asked.out.resolve(), time.monotonic()

    def one(program: Program, step: str) -> bool:
        left = asked.within - (time.monotonic() - started)
        said = "no time left"
        if left > 0:
            limit = min(asked.timeout, left)
            if step == "times":
                said = times(program, asked.llmc.resolve(), out, limit)
            else:
                said = profile(program, step, out, limit)
        print(f"{time.monotonic() - started:5.0f} s  {program['name']} {step}: {said}", flush=True)
        return said == "done"

    done: list[bool] = []
    for step in asked.steps:  # all of one before the next: a run cut off judges the most
        with ThreadPoolExecutor(asked.jobs) as pool:
            done += pool.map(lambda program, step=step: one(program, step), chosen)
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
