"""The pairs of own CUDA kernels: sizes, launches, and why a defect costs what it costs.

Both kernels of a pair compute the same from the same data. Blocks are whole waves wherever waves
are not the defect. Sizes grow with the number of SMs, so that a kernel takes 0.2 ms or more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nsight_prof.targets.defects.pair import Pair
from nsight_prof.targets.harness import CFloat, CudaModule, Kernel

FACTOR, TERM = CFloat(0.999), CFloat(0.001)
STREAM_STEPS = 128
"""Vectors of 16 bytes that a thread reads where 4096 threads an SM share the array."""
TRANSPOSED = 12288
SCALED = 1 << 27
CHUNK_BYTES, CHUNKS, SWEEPS = 32 << 10, 8192, 16
LARGE_SHARED, SMALL_SHARED = 100 << 10, 512


@dataclass(frozen=True)
class Memory:
    """Buffers that all pairs share: `data` is read, `space` written, both FP32; `sms` SMs."""

    data: Any
    space: Any
    sms: int

    @property
    def vectors(self) -> int:
        """Vectors of 16 bytes that the streaming kernels read."""
        return self.sms * 4096 * STREAM_STEPS


def make_memory() -> Memory:
    """Allocate the buffers: about 1.1 and 4.3 GB on a GPU of 132 SMs."""
    import torch

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    values = max(sms * 4096 * STREAM_STEPS * 4, SCALED, TRANSPOSED**2)
    data = torch.empty(values, device="cuda").normal_()
    return Memory(data, torch.zeros(8 * SCALED, device="cuda"), sms)


@cache
def source(name: str) -> str:
    """Return the text of a .cu file of this folder."""
    return Path(__file__).with_name(f"{name}.cu").read_text(encoding="utf-8")


def _kernel(file: str, name: str, options: tuple[str, ...] = ()) -> Kernel:
    return CudaModule(source(file), options).function(name)


def _compiled(name: str, macro: str, *options: str) -> Kernel:
    return _kernel("options", name, (f"-DNAME={name}", f"-D{macro}", *options))


def work() -> list[dict[str, object]]:
    """Return the bytes that a launch must move through DRAM, where a program would know them.

    Counters do not tell bytes that are needed from those that come twice.
    """
    names = ("weigh_sweep_by_sweep", "weigh_chunk_by_chunk")
    return [{"kernel": name, "bytes": CHUNKS * CHUNK_BYTES} for name in names]


def memory_pairs(m: Memory) -> list[Pair]:
    """Return the pairs whose defect is the way in which memory is accessed."""
    n, chunk_sums = TRANSPOSED, [m.data, m.space, CHUNKS, SWEEPS]
    scaled, rows = [m.data, m.space, FACTOR], [m.data, m.space, 96]
    read, scale_grid, row_grid = [m.data, m.space], SCALED // 1024, 32 * m.sms

    def kernel(name: str) -> Kernel:
        return _kernel("memory", name)

    return [
        Pair(
            "uncoalesced_loads",
            # Neighbouring columns are read by neighbouring blocks: L2 has the sector already, and
            # hands it out eight times.
            kernel("transpose_by_columns").bind((n, n // 1024, 1), 256, [*read, n]),
            kernel("transpose_by_tiles").bind((n // 32, n // 32, 1), (32, 8, 1), [*read, n]),
        ),
        Pair(
            "uncoalesced_stores",
            kernel("scale_into_records").bind(scale_grid, 256, scaled),
            kernel("scale_into_array").bind(scale_grid, 256, scaled),
        ),
        Pair(
            "bank_conflicts",
            kernel("row_sums_pitch_16").bind(row_grid, 256, rows),
            kernel("row_sums_pitch_17").bind(row_grid, 256, rows),
        ),
        Pair(
            "l2_thrashing",
            kernel("weigh_sweep_by_sweep").bind(CHUNKS * SWEEPS, 256, chunk_sums),
            kernel("weigh_chunk_by_chunk").bind(CHUNKS * SWEEPS, 256, chunk_sums),
        ),
        Pair(
            "atomics",
            kernel("sum_atomic_per_thread").bind(m.vectors // 512, 256, read),
            kernel("sum_atomic_per_block").bind(m.vectors // 512, 256, read),
        ),
    ]


def occupancy_pairs(m: Memory) -> list[Pair]:
    """Return the pairs whose defect leaves an SM few warps to hide the latency of DRAM."""

    def kernel(name: str) -> Kernel:
        return _kernel("occupancy", name)

    sums = [m.data, m.space]
    held = [m.data, m.data, m.space, STREAM_STEPS]
    large = kernel("block_sums_large_buffer")
    large.allow_shared(LARGE_SHARED)
    return [
        Pair(
            "register_limited",
            kernel("sum_then_series_held").bind(16 * m.sms, 256, held),
            kernel("sum_then_series_loaded").bind(16 * m.sms, 256, held),
        ),
        Pair(
            "shared_limited",
            large.bind(32 * m.sms, 128, [*sums, STREAM_STEPS], LARGE_SHARED),
            kernel("block_sums_small_buffer").bind(
                32 * m.sms, 128, [*sums, STREAM_STEPS], SMALL_SHARED
            ),
        ),
        Pair(
            "block_limited",
            # Values of 4 bytes: even all the warps of an SM leave DRAM far from its roof.
            kernel("sums_blocks_of_32").bind(128 * m.sms, 32, [*sums, 2 * STREAM_STEPS]),
            kernel("sums_blocks_of_256").bind(16 * m.sms, 256, [*sums, 2 * STREAM_STEPS]),
        ),
        Pair(
            "few_blocks",
            kernel("sums_few_blocks").bind(m.sms, 128, [*sums, 32 * STREAM_STEPS]),
            kernel("sums_many_blocks").bind(16 * m.sms, 256, [*sums, STREAM_STEPS]),
        ),
    ]


def compute_pairs(m: Memory) -> list[Pair]:
    """Return the pairs of arithmetic: how it is distributed, and into which instructions."""
    place = 2 * m.sms  # blocks of 1024 threads that fit at once

    def maps(name: str, blocks: int, rounds: int, heavy: int = 0, more: int = 0) -> Any:
        arguments = [m.space, rounds, heavy, more, FACTOR, TERM]
        return _kernel("compute", name).bind(blocks, 1024, arguments)

    def plain(kernel: Kernel, blocks: int, threads: int, rounds: int, *more: Any) -> Any:
        return kernel.bind(blocks, threads, [*more, m.space, rounds, FACTOR])

    def polynomial(name: str, *options: str) -> Any:
        kernel = _compiled(name, "POLYNOMIAL", *options)
        return kernel.bind(place, 1024, [m.space, 16384, FACTOR, TERM])

    def kinds(name: str) -> Any:
        return _kernel("compute", name).bind(32 * m.sms, 256, [m.space, 4096, FACTOR, TERM])

    few, tail = m.sms // 4, place + 8
    return [
        Pair(
            "tail",
            # blocks x rounds is the same on both sides
            maps("maps_with_tail", tail, 32 * place),
            maps("maps_whole_wave", place, 32 * tail),
        ),
        Pair(
            "small_grid",
            maps("maps_on_few_sms", few, 8192 * place // few),
            maps("maps_on_all_sms", place, 8192),
        ),
        Pair(
            "imbalance",
            maps("maps_unequal", place, 16 * place, few, 160 * place),
            maps("maps_equal", place, 16 * (place + 9 * few)),
        ),
        Pair("divergence", kinds("kinds_mixed"), kinds("kinds_sorted")),
        Pair(
            "unfused_fma",
            polynomial("polynomial_unfused", "-fmad=false"),
            polynomial("polynomial_fused"),
        ),
        Pair(
            "local_spills",
            plain(
                _compiled("series_64_registers", "STATE=80", "-maxrregcount=64"),
                8 * m.sms, 256, 448, m.data,
            ),
            plain(_compiled("series_all_registers", "STATE=80"), 8 * m.sms, 256, 448, m.data),
        ),
    ]  # fmt: skip


FAMILIES: tuple[Callable[[Memory], list[Pair]], ...] = (
    memory_pairs,
    occupancy_pairs,
    compute_pairs,
)
