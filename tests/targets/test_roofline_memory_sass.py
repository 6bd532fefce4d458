"""The memory roofs: what the compiler makes of their kernels."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from nsight_prof.targets.harness.cuda import compile_cubin
from nsight_prof.targets.roofline import memory_kernels

pytest.importorskip("torch")


def sass(text: str, tmp_path: Path) -> str:
    """Disassemble what NVRTC makes of a source for an H200."""
    found = shutil.which("nvdisasm")
    if found is None:
        triton = pytest.importorskip("triton")
        beside = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
        found = str(beside)
    if not Path(found).exists():
        pytest.skip("no nvdisasm")
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(compile_cubin(text, ("--gpu-architecture=sm_90a",)))
    done = subprocess.run([found, "-c", cubin], capture_output=True, text=True, check=True)
    return done.stdout


def loop(listing: str, load: str) -> list[str]:
    """Return the instructions of the innermost loop that loads: from its label to its branch."""
    lines = re.findall(r"^(\.L_x_\d+):|^\s+/\*[0-9a-f]{4}\*/\s+(.*?);", listing, re.MULTILINE)
    best: list[str] = []
    for start, (label, _) in enumerate(lines):
        body = []
        for _, instruction in lines[start + 1 :]:
            body.append(instruction)
            if label and "BRA" in instruction and f"({label})" in instruction:
                best = body if any(load in line for line in body) else best
                break
    return best


def defines(**values: str | int) -> tuple[tuple[str, str | int], ...]:
    return tuple(values.items())


@pytest.mark.parametrize(
    ("operation", "loads", "stores"),
    [("READ", 4, 1), ("WRITE", 0, 4), ("COPY", 4, 4), ("SCALE", 4, 4), ("TRIAD", 8, 4)],
)
def test_a_stream_keeps_all_of_its_loads_and_stores(
    tmp_path: Path, operation: str, loads: int, stores: int
) -> None:
    macros = defines(
        OPERATION=operation, THREADS=256, UNROLL=4, ONE_SHOT=1, EVICT=0,
        LOAD='"ld.global.nc.L1::no_allocate"', STORE='"st.global"',
    )  # fmt: skip
    listing = sass(memory_kernels.source("memory_stream.cu", macros), tmp_path)
    assert len(re.findall(r"LDG\.E\.NA\.128", listing)) == loads
    assert len(re.findall(r"STG\.E\.128", listing)) == stores  # a read's is never reached


def test_the_loop_over_the_l2_passes_the_l1_by(tmp_path: Path) -> None:
    macros = defines(
        OPERATION="READ", THREADS=256, BLOCKS=1, UNROLL=8, LOAD='"ld.global.cg"', NORMAL=0
    )
    listing = sass(memory_kernels.source("memory_l2.cu", macros), tmp_path)
    kernels = dict(
        re.findall(r"\.section\s+\.text\.(\w+)(.*?)(?=\.section|\Z)", listing, re.DOTALL)
    )
    assert set(kernels) == {"l2_around", "l2_own"}
    for text in kernels.values():
        body = loop(text, "LDG")
        assert sum("LDG.E.128.STRONG.GPU" in line for line in body) == 8
        assert not any("ATOM" in line or "SHFL" in line for line in body)
    # A draw is sent off, and what it brought is first used after the loop.
    before, _, after = kernels["l2_own"].partition("ATOMG.E.INC")
    assert "LDG.E.128" not in before
    assert after.index("LDG.E.128") < after.index("SHFL")


@pytest.mark.parametrize(("level", "load"), [("L1", "LDG.E.128 "), ("SHARED", "LDS.128 ")])
def test_the_loops_over_l1_and_shared_memory_do_little_but_load(
    tmp_path: Path, level: str, load: str
) -> None:
    macros = defines(LEVEL=level, THREADS=1024, UNROLL=4, WORDS=4, HOP=16384)
    body = loop(sass(memory_kernels.source("memory_sm.cu", macros), tmp_path), load)
    assert sum(load in line for line in body) == 4
    # A load of a warp takes 4 cycles of the data path, in which 16 instructions can be issued.
    assert len(body) <= 32


@pytest.mark.parametrize("name", ["chase_l1", "chase_l2", "chase_shared"])
def test_a_chase_is_sixteen_loads_that_each_wait_for_the_one_before(
    tmp_path: Path, name: str
) -> None:
    listing = sass(memory_kernels.source("latency.cu"), tmp_path)
    text = re.split(rf"\.section\s+\.text\.{name}\b", listing)[1].split(".section")[0]
    body = loop(text, "LD")
    loads = [re.findall(r"\bR\d+", line) for line in body if "LDG.E.64" in line or "LDS" in line]
    assert len(loads) == 16
    # The address of a load is what the one before it brought.
    assert all(after[1] == before[0] for before, after in pairwise(loads))
    assert len(body) <= 22
