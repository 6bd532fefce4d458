"""Roofs of the Tensor Cores: the best of several large matrix products, an input type each.

    python tensor.py --only bf16

The products run through torch, which takes cuBLASLt's kernels: what a program can have without
kernels of its own. Its int8 kernels reach half of the peak (H200, CUDA 13.0), so Triton's compete.
Operands are N(0, 1); the same product of zeros shows what data cost in power and so in clocks.
Burst: the first 20 ms after a pause. Steady: after 2 s of load, where a power limit holds the clock
down.
"""

from __future__ import annotations

import argparse
import math
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))
from nsight_prof.targets.harness import Case, Roof, is_cuda, run_target, sm_count
from nsight_prof.targets.harness.matmul import make_matmul
from nsight_prof.targets.roofline import triton_int8

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


def whole(sms: int) -> Size:
    """Return m, n, k of a large product in whole waves: the one under steady load."""
    rows, columns = whole_waves(sms)
    return 2 * TILE * columns, 2 * TILE * rows, 16384


def sizes(dtype: str, sms: int) -> list[Size]:
    """Return m, n, k of an input type's products: 0.4 to 5 ms each on an H100 or H200.

    bf16 and fp8 are searched widely, and 8192^3 is there for what has been published; the other
    types take the shapes in which cuBLASLt's kernels of those were the fastest.
    """
    rows, columns = whole_waves(sms)
    deep = (TILE * rows, TILE * columns)
    if dtype == "fp64":
        return [(4096, 4096, 4096), (8192, 4096, 4096), (*deep, 8192)]
    found: list[Size] = [(4096, 8192, 16384), whole(sms)]
    if dtype in ZEROS:
        found.insert(0, (8192, 8192, 8192))
    if dtype != "int8":
        found.append((*deep, 32768))
    return found if dtype in ("fp16", "int8", "tf32") else [*found, (4096, 4096, 32768)]


DTYPES = ("bf16", "fp16", "fp8", "int8", "tf32", "fp64")
ZEROS = ("bf16", "fp8")
"""Types whose first product is also measured on zeros."""


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
    on_gpu, sms = is_cuda(args.device), sm_count(args.device)
    for dtype in DTYPES:
        found = sizes(dtype, sms) if on_gpu else [(64, 64, 64)]
        for place, size in enumerate(found):
            both = place == 0 and dtype in ZEROS
            yield _case(dtype, size, "burst", ("normal", "zeros") if both else ("normal",))
        if dtype == "int8":
            yield from triton_int8.cases(args, whole(sms) if on_gpu else found[0])
        else:
            steady = whole(sms) if whole(sms) in found else found[-1]
            yield _case(dtype, steady, "steady", ("normal",))


def main(argv: list[str] | None = None) -> int:
    """Measure the Tensor Cores."""
    return run_target("roofline", cases, argv, description=__doc__)


if __name__ == "__main__":
    sys.exit(main())
