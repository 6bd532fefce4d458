"""Lines of native addresses, on a program that prints those of its own stack."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from nsight_prof.orchestrator.system.native_lines import keep_native_lines

PROGRAM = """\
#include <execinfo.h>
#include <stdio.h>
__attribute__((noinline)) static int noted(void) {
    void *stack[16];
    int depth = backtrace(stack, 16);
    for (int at = 0; at < depth; ++at) printf("%llu\\n", (unsigned long long)stack[at]);
    return depth;
}
static inline __attribute__((always_inline)) int inlined(void) {
    return noted() + 1;
}
__attribute__((noinline)) static int __device_stub_kernel(void) {
    return noted() + 1;
}
static inline __attribute__((always_inline)) int kernel(void) {
    return __device_stub_kernel() + 1;
}
int main(void) {
    int depth = inlined();
    depth += kernel();
    return depth < 3;
}
"""


@pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("addr2line")), reason="no compiler, or no addr2line"
)
@pytest.mark.parametrize("options", [["-O2"], ["-O0", "-no-pie"]])
def test_a_return_address_leads_to_the_line_of_the_call(tmp_path: Path, options: list[str]) -> None:
    source, program = tmp_path / "calls.c", tmp_path / "calls"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-g", *options, "-o", str(program), str(source)], check=True)
    ran = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    stack = [int(line) for line in ran.stdout.splitlines()]
    kept = tmp_path / "native_lines.json"
    keep_native_lines({str(program): (stack[-1], stack[:-1])}, kept)
    lines = json.loads(kept.read_text())[str(program)]
    # The innermost of the lines that the compiler inlined: the call in `inlined`.
    assert f"{source}:10" in lines.values()
    # Where nvcc's function for a kernel is called, and the kernel's own on the host, is its launch.
    assert f"{source}:20" in lines.values()
    assert not {f"{source}:{n}" for n in (13, 16)} & set(lines.values())


def test_a_program_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    modules = {str(tmp_path / name): (1, [2]) for name in ("none", "script")}
    keep_native_lines(modules, tmp_path / "kept.json")
    assert not (tmp_path / "kept.json").exists()
