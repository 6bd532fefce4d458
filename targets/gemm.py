"""Matrix products of known size, measured: C = A B with A (m, k) and B (k, n).

    python gemm.py --m 8192 --n 8192 --k 8192 --dtype bf16
    python gemm.py --m 1 16 256 --n 4096 --k 4096 --dtype bf16 fp8 --modes cold hot

A product has a known answer: 2 m n k floating-point operations, so that a FLOP counter can be
checked against it. Data are N(0, 1), not zeros, which draw less power and so run at higher clocks.
Every shape and dtype is one JSON line on stdout and one line for people on stderr.
"""

from __future__ import annotations

import runpy
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import product
from pathlib import Path

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parent / "standalone.py"))
from nsight_prof.targets.harness import Case, is_cuda, positive, run_target
from nsight_prof.targets.harness.api import DATA, MODES
from nsight_prof.targets.harness.matmul import DTYPES, make_matmul

SIZE, CPU_SIZE = 8192, 64


def add_arguments(parser: ArgumentParser) -> None:
    """Add the shapes, dtypes, modes and data, each of which may be a list."""
    for size in "mnk":
        parser.add_argument(
            f"--{size}", type=positive, nargs="+", help=f"sizes ({SIZE}; {CPU_SIZE} on a CPU)"
        )
    parser.add_argument(
        "--dtype", nargs="+", choices=sorted(DTYPES), default=["bf16"], help="of A and B (bf16)"
    )
    parser.add_argument(
        "--modes", nargs="+", choices=MODES, default=["cold"], help="of the caches (cold)"
    )
    parser.add_argument(
        "--data", nargs="+", choices=DATA, default=["normal"], help="N(0, 1) or zeros (normal)"
    )
    parser.add_argument(
        "--transposed", action="store_true", help="store B as (n, k), like a Linear's weight"
    )


def cases(args: Namespace) -> Iterator[Case]:
    """Give a case for each m, n, k and dtype."""
    usual = [SIZE if is_cuda(args.device) else CPU_SIZE]
    sizes = (args.m or usual, args.n or usual, args.k or usual)
    for m, n, k, dtype in product(*sizes, args.dtype):
        matmul = make_matmul(dtype, m, n, k, args.transposed)
        shape = {"m": m, "n": n, "k": k}
        yield Case(
            name=f"gemm/{m}x{n}x{k}/{dtype}",
            operation="GEMM",
            prepare=matmul.prepare,
            work=matmul.work,
            footprint_bytes=matmul.footprint_bytes,
            params={**shape, "transposed": args.transposed},
            dtype=dtype,
            level="tensor" if dtype != "fp32" else "fp32",
            modes=tuple(args.modes),
            data=tuple(args.data),
            extra={"gemms": [{"name": "gemm", **shape}]},
        )


def main(argv: list[str] | None = None) -> int:
    """Measure the products of the command line."""
    return run_target("gemm", cases, argv, description=__doc__, add_arguments=add_arguments)


if __name__ == "__main__":
    sys.exit(main())
