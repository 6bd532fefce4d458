"""What the probes of the L2 share: sizes, bytes of a call, ways to load, and how a case is made.

Two patterns, because the L2 of the larger GPUs is two partitions, and an SM reads through the one
near it. *private*: no two SMs touch the same line. *shared*: all SMs go through the whole buffer,
as those of a matrix product do; what both partitions need is then held in both.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping

from nsight_prof.targets.harness import Call, Case, Roof, Setup, Work, is_cuda, l2_bytes
from nsight_prof.targets.roofline.memory_kernels import MIB

Scalar = str | int | float | bool

MOVED = 20e9
"""Bytes of a call: over 2 ms, and so many passes over the buffer that the first, which may come
from DRAM, is under 0.4 % of them for a buffer that fits in 64 MiB."""
LOADS = {
    "cg": ("ld.global.cg", 0),
    "na": ("ld.global.nc.L1::no_allocate", 0),
    "na-normal": ("ld.global.nc.L1::no_allocate", 1),
}
"""Ways to load past the L1, and whether with an explicit evict_normal policy for the L2. Without
one, no_allocate let an H200 read half of a buffer of 24 MiB from DRAM again and again, though
PTX has it speak of the L1 alone: with the policy it shows whether the hint reaches the L2."""
HELD = {("read", "shared"): 0.4, ("read", "private"): 2 / 3, ("write", "private"): 0.4,
        ("copy", "private"): 0.4}  # fmt: skip
"""Part of the L2 up to which a case is a candidate for a roof: on an H200, DRAM has next to no part
in it so far. Shared data are held twice, and lines that were written leave sooner."""


def sweep_sizes(args: Namespace) -> list[int]:
    """Return the sizes in bytes: fifteenths of the L2 (4 MiB of 60) up to it and a little more."""
    if not is_cuda(args.device):
        return [l2_bytes(args.device) // 2]
    step = max(MIB, l2_bytes(args.device) // 15 // MIB * MIB)
    small = {size for size in (2 * MIB, 4 * MIB) if size < 2 * step}
    half = max(MIB, l2_bytes(args.device) // 2 // MIB * MIB)
    beyond = {step * 18, step * 24, step * 32, step * 64}
    return sorted({*small, *(step * i for i in range(2, 17)), half, *beyond})


def sizes_up_to(args: Namespace, part: float) -> list[int]:
    """Return those sizes of the sweep that are at most this part of the L2."""
    return [size for size in sweep_sizes(args) if size <= part * l2_bytes(args.device)]


def l2_case(
    args: Namespace,
    name: str,
    kind: str,
    pattern: str,
    size: int,
    moved: float,
    launch: Callable[[Setup, int], Call],
    params: Mapping[str, Scalar],
) -> Case:
    """Return the case that moves `moved` bytes over a footprint of `size` bytes.

    Args:
        args: has the device.
        name: after the kind.
        kind: read, write or copy.
        pattern: private, shared, or another that is no candidate for a roof.
        size: bytes that are touched, of all buffers together.
        moved: bytes of a call.
        launch: returns the call, given the setup and the number of its copy.
        params: more than the footprint, the pattern and the number of passes.
    """
    held = HELD.get((kind, pattern), 0.0) * l2_bytes(args.device)
    return Case(
        name=f"l2/{kind}/{name}",
        operation=f"L2 {kind}",
        prepare=lambda setup: [launch(setup, copy) for copy in range(setup.copies)],
        work=Work(bytes=moved),
        footprint_bytes=size,
        params={"footprint_bytes": size, "pattern": pattern, **params, "passes": moved / size},
        level="l2",
        modes=("hot",),
        roof=Roof("l2", kind) if size <= held else None,
    )
