"""Roofs of the Tensor Cores: the best of several large matrix products, an input type each.

    python tensor.py --only bf16

The products run through torch, which takes cuBLASLt's kernels: what a program can have without
kernels of its own. Its int8 kernels reach half of the peak (H200, CUDA 13.0), so Triton's compete.
Operands are N(0, 1); the same product of zeros shows what data cost in power and so in clocks.
Burst: windows of under 50 ms after a pause. Steady: after 2 s of load, where a power limit holds
the clock down.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: let the folder that holds `targets` be found
    sys.path.append(str(Path(__file__).resolve().parents[2]))
from targets.harness import Case, Roof, is_cuda, run_target, sm_count
from targets.harness.matmul import make_matmul
from targets.roofline import triton_int8

Size = tuple[int, int, int]

TILE = 256
"""Rows and columns of the blocks that whole waves are made of; cuBLAS's tiles divide it."""


def whole_waves(sms: int) -> tuple[int, int]:
    """Return rows and columns, in blocks of TILE, of a square-like grid of `sms` blocks.

    A product of that many rows and columns, or of a multiple, gives each SM the same number of
    tiles: no SM waits in the last wave.
    """
    rows = max(r for r in range(1, math.isqrt(sms) + 1) if sms % r == 0)
    return rows, sms // rows


def sizes(dtype: str, sms: int) -> list[Size]:
    """Return m, n, k of an input type's products: 1 to 20 ms each on an H100 or H200."""
    rows, columns = whole_waves(sms)
    large, deep = (2 * TILE * columns, 2 * TILE * rows), (TILE * rows, TILE * columns)
    if dtype == "fp64":
        return [(4096, 4096, 4096), (8192, 4096, 4096), (*deep, 8192)]
    found: list[Size] = [(8192, 8192, 8192), (4096, 8192, 16384), (*large, 16384)]
    return found if dtype == "tf32" else [*found, (*deep, 32768), (4096, 4096, 32768)]


DTYPES = ("bf16", "fp16", "fp8", "int8", "tf32", "fp64")
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
    )


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Return the cases: each type in each size in bursts, and one size under steady load."""
    on_gpu = is_cuda(args.device)
    for dtype in DTYPES:
        found = sizes(dtype, sm_count(args.device)) if on_gpu else [(64, 64, 64)]
        for place, size in enumerate(found):
            both = place == 0 and dtype in ZEROS
            yield _case(dtype, size, "burst", ("normal", "zeros") if both else ("normal",))
        # The size that was the best or close to it for all types on an H200.
        yield _case(dtype, found[min(2, len(found) - 1)], "steady", ("normal",))
    yield from triton_int8.cases(args)


def main(argv: list[str] | None = None) -> int:
    """Measure the Tensor Cores."""
    return run_target("roofline", cases, argv, description=(__doc__ or "").split("\n\n")[0])


if __name__ == "__main__":
    sys.exit(main())
