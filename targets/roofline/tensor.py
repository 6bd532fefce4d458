"""Roofs of the Tensor Cores: the best of several large matrix products, an input type each.

    python tensor.py --only bf16

The products run through torch, which takes cuBLASLt's kernels: what a program can have without
kernels of its own. Operands are N(0, 1); the same product of zeros shows what data cost in power
and so in clocks. Burst: windows of under 50 ms after a pause. Steady: after 2 s of load, where a
power limit holds the clock down.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: let the folder that holds `targets` be found
    sys.path.append(str(Path(__file__).resolve().parents[2]))
from targets.harness import Case, Roof, is_cuda, run_target
from targets.harness.matmul import make_matmul

Size = tuple[int, int, int]

_LARGE: tuple[Size, ...] = (
    (8192, 8192, 8192),
    (4096, 8192, 16384),
    (8192, 4096, 16384),
    (8192, 16384, 8192),
    (16384, 8192, 8192),
)
SIZES: dict[str, tuple[Size, ...]] = {
    "bf16": _LARGE,
    "fp16": _LARGE,
    "fp8": _LARGE,
    "int8": _LARGE,
    "tf32": ((8192, 8192, 8192), (4096, 8192, 16384), (8192, 4096, 16384)),
    "fp64": ((4096, 4096, 4096), (8192, 4096, 4096), (4096, 8192, 4096)),
}
"""m, n, k of each input type: 1 to 20 ms a product on an H100 or H200."""

ZEROS = ("bf16", "fp8")
"""Types whose largest product is also measured on zeros."""


def _case(dtype: str, size: Size, kind: str, data: tuple[str, ...]) -> Case:
    m, n, k = size
    product = make_matmul(dtype, m, n, k)
    return Case(
        name=f"tensor/{dtype}/{m}x{n}x{k}/{kind}",
        operation=f"{dtype.upper()} matrix product",
        prepare=product.prepare,
        work=product.work,
        footprint_bytes=product.footprint_bytes,
        params={"m": m, "n": n, "k": k},
        dtype=dtype,
        level="tensor",
        modes=("cold",),
        data=data,
        roof=Roof("tensor", kind, dtype),
        duration=kind,
        counted=kind == "burst",
    )


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Return the cases: each type in each size in bursts, and one size under steady load."""
    for dtype, sizes in SIZES.items():
        if not is_cuda(args.device):
            sizes = ((64, 64, 64),)
        for place, size in enumerate(sizes):
            both = place == 0 and dtype in ZEROS
            yield _case(dtype, size, "burst", ("normal", "zeros") if both else ("normal",))
        yield _case(dtype, sizes[0], "steady", ("normal",))


def main(argv: list[str] | None = None) -> int:
    """Measure the Tensor Cores."""
    return run_target("roofline", cases, argv, description=(__doc__ or "").split("\n\n")[0])


if __name__ == "__main__":
    sys.exit(main())
