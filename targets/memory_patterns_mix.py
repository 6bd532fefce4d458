"""Reads and writes in a given ratio, alternating at a given granularity.

One call reads R and writes W bytes, R + W the same for every case of a device. Work is laid out
along the block numbers of a one-shot grid, which is the order in which blocks start: `r` runs of
reads, `w` runs of writes, and again, with a run of g bytes (r : w is the ratio and its smaller part
is 1, so g is also the length of the shorter phase). What alternates at which g:

    warp      512 B: each warp does r loads, w stores, r loads ... of 16 B per lane; warps do not
              wait for each other
    runs      16 KiB to 128 MiB: blocks of 16 KiB only read or only write, in runs of g bytes. About
              17 MB of blocks are resident on an H200 at a time, so that shorter runs overlap and
              longer ones are phases of the whole grid
    whole     all reads, then all writes, in one launch: g is the smaller of R and W
    launches  the same in two launches, one after the other

`switches` is the number of changes from writing to reading along the block order of one call, the
wrap from the end of one call to the start of the next included, because calls follow each other:
min(R, W) / g, and 0 for reads alone or writes alone. It is what the program asks for. What DRAM
does may differ: L2 keeps written lines back, and memory controllers gather writes.

Written values are a hash of their place, not what was read: a store waits for no load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nsight_prof.targets.harness import Call, Case, Setup, Work, is_cuda
from nsight_prof.targets.memory_patterns_kernels import (
    BLOCK,
    KIB,
    MIB,
    TILE_BYTES,
    VECTOR_BYTES,
    buffer,
    kernel,
    sink,
    size_text,
)

RATIOS = ((1, 0), (7, 1), (3, 1), (2, 1), (1, 1), (1, 2), (0, 1))
"""Parts read and written."""

RUNS = (16 * KIB, 128 * KIB, MIB, 8 * MIB, 32 * MIB, 64 * MIB, 128 * MIB)
WARP_BYTES = 32 * VECTOR_BYTES
WARP_UNITS = {(7, 1): 1, (3, 1): 2, (2, 1): 2, (1, 1): 4, (1, 2): 2}
"""How often a thread of MIX_WARP in memory_patterns.cu repeats its r loads and w stores."""

CPU_BYTES = 3 * MIB
CPU_RUNS = (128 * KIB,)


@dataclass(frozen=True)
class Mix:
    """One case: `size` bytes in the ratio `reads` : `writes`, alternating as `way` says.

    Attributes:
        reads, writes: parts of the ratio.
        size: bytes read and written by one call.
        way: "warp", "runs", "whole" or "launches"; "alone" where only one of both is done.
        run_bytes: g above; 0 for "alone".
    """

    reads: int
    writes: int
    size: int
    way: str
    run_bytes: int

    @property
    def read_bytes(self) -> int:
        """R: bytes that one call reads."""
        return self.size * self.reads // (self.reads + self.writes)

    @property
    def write_bytes(self) -> int:
        """W: bytes that one call writes."""
        return self.size * self.writes // (self.reads + self.writes)

    @property
    def switches(self) -> int:
        """Changes from writing to reading in one call, as the module says."""
        return min(self.read_bytes, self.write_bytes) // self.run_bytes if self.run_bytes else 0

    @property
    def name(self) -> str:
        """Name of the case: "mix/7-1/runs-16kib"."""
        ending = f"-{size_text(self.run_bytes).replace(' ', '').lower()}"
        return f"mix/{self.reads}-{self.writes}/{self.way}{ending if self.way == 'runs' else ''}"


def _fits(size: int, reads: int, writes: int, run_bytes: int) -> bool:
    return size % ((reads + writes) * run_bytes) == 0


def plan(size: int, runs: Sequence[int], *, warps: bool) -> Iterator[Mix]:
    """Yield the mixes of `size` bytes: all ratios with all runs that divide their bytes.

    Args:
        size: bytes of one call.
        runs: run lengths in bytes.
        warps: whether to alternate inside warps, too.
    """
    for reads, writes in RATIOS:
        if not min(reads, writes):
            yield Mix(reads, writes, size, "alone", 0)
            continue
        units = WARP_UNITS[reads, writes]
        if warps and _fits(size, reads, writes, units * BLOCK * VECTOR_BYTES):
            yield Mix(reads, writes, size, "warp", WARP_BYTES)
        for run_bytes in runs:
            if _fits(size, reads, writes, run_bytes):
                yield Mix(reads, writes, size, "runs", run_bytes)
        if _fits(size, reads, writes, TILE_BYTES):
            whole = size // (reads + writes)
            yield Mix(reads, writes, size, "whole", whole)
            yield Mix(reads, writes, size, "launches", whole)


def _cuda_call(mix: Mix, source: Any, target: Any, word: Any) -> Call:
    tiles = mix.size // TILE_BYTES
    if mix.way == "warp":
        alternate = kernel(f"mix_warp_{mix.reads}_{mix.writes}")
        vectors = (mix.reads + mix.writes) * WARP_UNITS[mix.reads, mix.writes]
        grid = mix.size // (vectors * VECTOR_BYTES * BLOCK)
        return alternate.bind(grid, BLOCK, (source, target, word))
    runs = kernel("mix_runs")
    if mix.way == "launches":
        read_tiles, write_tiles = mix.read_bytes // TILE_BYTES, mix.write_bytes // TILE_BYTES
        read = runs.bind(read_tiles, BLOCK, (source, target, word, 1, 0))
        write = runs.bind(write_tiles, BLOCK, (source, target, word, 0, 1))

        def both() -> None:
            read()
            write()

        return both
    run = mix.run_bytes // TILE_BYTES or 1
    lengths = (mix.reads * run, mix.writes * run)
    return runs.bind(tiles, BLOCK, (source, target, word, *lengths))


def _cpu_call(mix: Mix, source: Any, target: Any) -> Call:
    """Do the same phases one after another; elements have two bytes."""
    run = (mix.run_bytes or mix.size) // 2
    step, fill = mix.reads * run, mix.writes * run

    def call() -> None:
        for period in range(mix.switches or 1):
            if mix.reads:
                source[period * step : (period + 1) * step].sum()
            if mix.writes:
                target[period * fill : (period + 1) * fill].fill_(1.0)

    return call


def _prepare(mix: Mix, setup: Setup) -> list[Call]:
    calls = []
    for copy in range(setup.copies):
        source = buffer(setup, mix.read_bytes, copy)
        target = buffer(setup, mix.write_bytes, copy, filled=False)
        if is_cuda(setup.device):
            calls.append(_cuda_call(mix, source, target, sink(setup)))
        else:
            calls.append(_cpu_call(mix, source, target))
    return calls


def _case(mix: Mix) -> Case:
    ratio = f"{mix.reads}:{mix.writes}"
    alone = {(1, 0): "DRAM read", (0, 1): "DRAM write"}
    return Case(
        name=mix.name,
        operation=alone.get((mix.reads, mix.writes), f"DRAM read and write {ratio}"),
        prepare=lambda setup: _prepare(mix, setup),
        work=Work(bytes=float(mix.read_bytes + mix.write_bytes)),
        footprint_bytes=float(mix.read_bytes + mix.write_bytes),
        params={
            "pattern": "mix",
            "ratio": ratio,
            "way": mix.way,
            "run_bytes": mix.run_bytes,
            "switches": mix.switches,
            "read_bytes": mix.read_bytes,
            "write_bytes": mix.write_bytes,
            "block": BLOCK,
        },
        level="dram",
    )


def mix_cases(device: str, size: int) -> Iterator[Case]:
    """Yield the mixes for a device.

    Args:
        device: "cuda" or "cpu"; a CPU moves 3 MiB whatever `size` says.
        size: bytes that one call reads and writes; runs that do not divide it are left out.
    """
    on_gpu = is_cuda(device)
    planned = plan(size if on_gpu else CPU_BYTES, RUNS if on_gpu else CPU_RUNS, warps=on_gpu)
    yield from (_case(mix) for mix in planned)
