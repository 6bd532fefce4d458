"""Matrix products whose M is swept finely: the staircase of wave quantization.

    python gemm_staircase.py                        # bf16 and fp8, cuBLAS and Triton
    python gemm_staircase.py --only 'batch/bf16'    # M = 1 to 64
    python gemm_staircase.py --device cpu

C (M, N) = A (M, K) W (N, K)^T, as a linear layer of N outputs and K inputs on M tokens. Three sets:

- sweep: steps of 16 in M and single steps around the edges of tiles, once as cuBLAS chooses and
  once in 128x128 tiles with one CTA on an SM (Triton).
- batch: M from 1 to 64, the batch sizes of decoding; hot as well, the weights read just before.
- odd: 4096^3 with one of the sizes next to 4096.

N = 8192 and K = 4096 are sizes of the feed-forward layers of 7 to 13 B models, and they show the
staircase on an H200: with 64 columns of tiles, two rows of tiles fill 128 of its 132 SMs, so that a
new wave begins after each 256 rows. 64 MB of bf16 weights do not stay in its L2 of 60 MB, so that
M = 1 reads DRAM as decoding does.
"""

from __future__ import annotations

import math
import random
import runpy
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parent / "standalone.py"))

from nsight_prof.targets.harness import (
    Call,
    Case,
    Setup,
    Unsupported,
    is_cuda,
    positive,
    run_target,
    sm_count,
)
from nsight_prof.targets.harness.matmul import Matmul, make_matmul, operand

DTYPES = ("bf16", "fp8")
BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64)
COUNTED_BATCHES = (1, 4, 8, 16, 32, 64)
AROUND_ODD = (-1, 1, 4, 8, 16)
STEP = 16
COUNTED_STEP = 64
CASE_TIME = 0.04
"""Seconds of sampling at most, unless the command line says otherwise: there are 900 cases, and on
an H200 one takes 35 ms in all."""


@dataclass(frozen=True)
class Tile:
    """A tile of the pinned kernel: 128 KB of shared memory, so that one CTA fits on an SM."""

    m: int
    n: int
    k: int
    stages: int
    warps: int


# 128 B of each row at a time in both: 4 stages x (128 + 128) rows x 128 B = 128 KB.
TILES = {"bf16": Tile(128, 128, 64, 4, 8), "fp8": Tile(128, 128, 128, 4, 8)}


@dataclass(frozen=True)
class Sizes:
    """N and K of the sweep, its largest M, and the three sizes of the odd set."""

    n: int
    k: int
    m_max: int
    odd: int


GPU_SIZES = Sizes(n=8192, k=4096, m_max=2176, odd=4096)
CPU_SIZES = Sizes(n=256, k=128, m_max=144, odd=64)


def waves(m: int, n: int, tile: Tile, slots: int) -> int:
    """Return how often `slots` CTAs at a time must be launched: ceil(tiles / slots)."""
    return math.ceil(math.ceil(m / tile.m) * math.ceil(n / tile.n) / slots)


def sweep_rows(sizes: Sizes, tile: Tile, slots: int) -> list[int]:
    """Return the M of the sweep, sorted: a step of 1 around edges, 16 elsewhere.

    The edge of a tile gets 3 points (-1, 0, +1); where it is also that of a wave, 8 (-3 to +4).
    """
    rows = set(range(STEP, sizes.m_max + 1, STEP))
    for edge in range(tile.m, sizes.m_max + 1, tile.m):
        wave = is_wave_edge(edge, sizes.n, tile, slots)
        rows |= set(range(edge - 3, edge + 5)) if wave else {edge - 1, edge, edge + 1}
    return sorted(row for row in rows if row <= sizes.m_max)


def is_wave_edge(m: int, n: int, tile: Tile, slots: int) -> bool:
    """Tell whether one row more than `m` begins a new wave."""
    return waves(m + 1, n, tile, slots) > waves(m, n, tile, slots)


def is_counted(m: int, tile: Tile) -> bool:
    """Tell whether counters are collected for a size: both sides of each edge, every 64th row.

    Replay under ncu takes a sixth of a second a case.
    """
    return m % COUNTED_STEP == 0 or (m - 1) % tile.m == 0


@dataclass(frozen=True)
class Product:
    """One size of one dtype; `variant` is "cublas", "triton" or, on a CPU, "torch"."""

    m: int
    n: int
    k: int
    dtype: str
    variant: str

    @property
    def library(self) -> Matmul:
        """The product as torch gives it to cuBLAS, with W stored like the weight of a layer."""
        return make_matmul(self.dtype, self.m, self.n, self.k, transposed=True)

    def prepare(self, setup: Setup) -> Sequence[Call]:
        """Return calls on operands of their own.

        Raises:
            Unsupported: torch has no such kernel for this shape, or Triton is missing.
            ArithmeticError: Triton's result is not that of torch.
        """
        if self.variant != "triton":
            return self.library.prepare(setup)
        try:
            from nsight_prof.targets import staircase_triton
        except ImportError as error:
            raise Unsupported(f"Triton is missing: {error}") from error
        return [self._pinned(staircase_triton, setup, copy == 0) for copy in range(setup.copies)]

    def _pinned(self, module: Any, setup: Setup, check: bool) -> Call:
        import torch

        tile = TILES[self.dtype]
        a = operand(self.dtype, (self.m, self.k), setup)
        w = operand(self.dtype, (self.n, self.k), setup)
        c = torch.empty(self.m, self.n, dtype=torch.bfloat16, device=setup.device)
        sides = (tile.m, tile.n, tile.k)
        call = partial(module.matmul, a, w, c, sides, tile.stages, tile.warps)
        if check:
            call()
            require_same(c, by_torch(a, w))
            if is_cuda(setup.device):  # the comparison is no memory of the product
                torch.cuda.reset_peak_memory_stats()
        return call


def by_torch(a: Any, w: Any) -> Any:
    """Return A W^T in bf16 from torch's own kernel: the oracle of the pinned one."""
    import torch

    if a.dtype == torch.bfloat16:
        return torch.mm(a, w.t())
    one = torch.ones((), dtype=torch.float32, device=a.device)
    return torch._scaled_mm(a, w.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


MOST_DIFFERENT = 0.03
"""Two bf16 roundings of one number differ by up to 2^-8 of it, and a number of a row of 8192 is up
to 5 times their typical size: 0.02. A slice of 64 of 4096 products left out gives 0.12."""


def require_same(found: Any, expected: Any) -> None:
    """Compare two results (m, n) by the worst row and column, relative to a typical one.

    Raises:
        ArithmeticError: they differ by more than rounding explains.
    """
    expected = expected.float()
    difference = (found.float() - expected).square()
    typical = expected.square().mean().clamp_min(1e-30)
    worst = max(float((difference.mean(side).max() / typical).sqrt()) for side in (0, 1))
    if not worst <= MOST_DIFFERENT:  # also where it is NaN
        raise ArithmeticError(
            f"a row or column of the pinned kernel's result is off by {worst:.2g} of its typical "
            f"size from torch's (allowed: {MOST_DIFFERENT})"
        )


def _case(product: Product, group: str, label: str, *, counted: bool) -> Case:
    p = product
    params: dict[str, str | int | float | bool] = {"m": p.m, "n": p.n, "k": p.k}
    params |= {"variant": p.variant, "set": group}
    if p.variant == "triton":
        tile = TILES[p.dtype]
        params |= {"tile_m": tile.m, "tile_n": tile.n, "tile_k": tile.k, "stages": tile.stages}
        params["warps"] = tile.warps
    how = "tile pinned (Triton)" if p.variant == "triton" else f"tile by {p.variant}"
    return Case(
        name=f"{group}/{p.dtype}/{p.variant}/{label}",
        operation=f"matrix product, {how}",
        prepare=p.prepare,
        work=p.library.work,
        # A CPU's times mean nothing: there one copy is enough to run the code.
        footprint_bytes=0 if p.variant == "torch" else p.library.footprint_bytes,
        params=params,
        dtype=p.dtype,
        level="tensor",
        modes=("cold", "hot") if group == "batch" else ("cold",),
        counted=counted,
    )


def _sweep(sizes: Sizes, dtype: str, variants: Iterable[str], slots: int) -> Iterator[Case]:
    tile = TILES[dtype]
    for variant in variants:
        for m in sweep_rows(sizes, tile, slots):
            product = Product(m, sizes.n, sizes.k, dtype, variant)
            yield _case(product, "sweep", f"m{m}", counted=is_counted(m, tile))


def _batch(sizes: Sizes, dtype: str, variant: str) -> Iterator[Case]:
    for m in BATCHES:
        product = Product(m, sizes.n, sizes.k, dtype, variant)
        yield _case(product, "batch", f"m{m}", counted=m in COUNTED_BATCHES)


def _odd(sizes: Sizes, dtype: str, variant: str) -> Iterator[Case]:
    whole = {"m": sizes.odd, "n": sizes.odd, "k": sizes.odd}
    yield _case(Product(**whole, dtype=dtype, variant=variant), "odd", "base", counted=True)
    for side in whole:
        for away in AROUND_ODD:
            changed = whole | {side: sizes.odd + away}
            product = Product(**changed, dtype=dtype, variant=variant)
            label = f"{side}{sizes.odd + away}"
            yield _case(product, "odd", label, counted=away != AROUND_ODD[-1])


def cases(args: Namespace) -> list[Case]:
    """Return the cases, in another order in each process so that drift is not taken for size."""
    cuda = is_cuda(args.device)
    sizes = GPU_SIZES if cuda else CPU_SIZES
    chosen = {side: getattr(args, side) for side in ("n", "k", "m_max") if getattr(args, side)}
    sizes = replace(sizes, **chosen)
    library = "cublas" if cuda else "torch"
    variants = (library, "triton") if cuda else (library,)
    slots = sm_count(args.device)
    found: list[Case] = []
    for dtype in args.dtype:
        found += _sweep(sizes, dtype, variants, slots)
        found += _batch(sizes, dtype, library)
        found += _odd(sizes, dtype, library)
    if not (args.list or args.count):
        random.Random(1000 * args.seed + args.process).shuffle(found)
    return found


def add_arguments(parser: ArgumentParser) -> None:
    """Add sizes and dtypes; sizes that are not given are small on a CPU."""
    parser.add_argument("--n", type=positive, help="outputs of the layer (8192)")
    parser.add_argument("--k", type=positive, help="inputs of the layer (4096)")
    parser.add_argument("--m-max", type=positive, help="largest M (2176)")
    parser.add_argument(
        "--dtype", nargs="+", choices=DTYPES, default=list(DTYPES), help="of A and W (both)"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the cases; return the exit code."""
    words = sys.argv[1:] if argv is None else argv
    return run_target(
        "gemm_staircase",
        cases,
        ["--case-time", str(CASE_TIME), *words],
        description=__doc__,
        add_arguments=add_arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
