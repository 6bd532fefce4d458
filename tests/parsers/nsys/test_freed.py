"""What a process keeps of memory that it freed, as the system counts it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

BLOCKS, SIZE = 6, 24 << 20
FREES = """import ctypes, sys
from pathlib import Path
from nsight_prof.parsers.nsys.freed import give_back, keep_freed
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
if sys.argv[1] == "keep":
    keep_freed()
before = resident()
blocks = []
for _ in range(int(sys.argv[2])):
    blocks.append(libc.malloc(int(sys.argv[3])))
    ctypes.memset(ctypes.c_void_p(blocks[-1]), 1, int(sys.argv[3]))
for block in blocks:
    libc.free(block)
freed = resident()
give_back()
print(freed - before, resident() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is no glibc")
@pytest.mark.parametrize(("how", "is_kept"), [("keep", True), ("leave", False)])
def test_freed_memory_is_given_back_where_it_is_not_kept(how: str, is_kept: bool) -> None:
    argv = [sys.executable, "-c", FREES, how, str(BLOCKS), str(SIZE)]
    found = subprocess.check_output(argv, text=True)
    kept, left_over = (int(pages) * os.sysconf("SC_PAGE_SIZE") for pages in found.split())
    assert (kept > 0.9 * BLOCKS * SIZE) == is_kept
    assert (left_over > 0.9 * BLOCKS * SIZE) == is_kept
    assert is_kept or left_over < 0.1 * BLOCKS * SIZE
