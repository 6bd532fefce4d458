"""int8 matrix products in Triton: candidates for the int8 roof beside those of cuBLASLt.

torch._int_mm takes kernels that reach half of the int8 peak of an H200 (CUDA 13.0). Triton compiles
the same product to the instructions of Hopper's Tensor Cores (wgmma).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nsight_prof.targets.harness import Call, Case, Roof, Setup, Unsupported, is_cuda
from nsight_prof.targets.harness.matmul import make_matmul, operand
from nsight_prof.targets.roofline.compute import trial_seconds

Product = Callable[[Any, Any, Any], object]


@dataclass(frozen=True)
class Tiling:
    """Tile of a CTA in rows, columns and depth, its pipeline stages and warps."""

    rows: int
    columns: int
    depth: int
    stages: int
    warps: int

    @property
    def name(self) -> str:
        """Part of the case's name."""
        return f"{self.rows}x{self.columns}x{self.depth}-s{self.stages}-w{self.warps}"


TILINGS = (
    Tiling(128, 256, 128, 3, 8),
    Tiling(128, 256, 128, 4, 8),
    Tiling(128, 128, 128, 4, 4),
    Tiling(256, 128, 128, 3, 8),
)


def _prepare(tilings: Sequence[Tiling], size: tuple[int, int, int], setup: Setup) -> Sequence[Call]:
    """Return calls of a tiling, or of the quickest of several and cuBLASLt.

    Raises:
        Unsupported: there is no GPU, or no Triton for a single tiling.
        RuntimeError: a tiling's product is not that of torch.
    """
    if not is_cuda(setup.device):
        raise Unsupported("Triton's product needs a CUDA device")
    several = len(tilings) > 1
    try:
        from nsight_prof.targets.roofline.triton_int8_kernel import matmul
    except ImportError as error:
        if not several:
            raise Unsupported(f"needs Triton ({error})") from error
        tilings = ()
    copies = [_operands(size, setup) for _ in range(setup.copies)]
    made: list[Product] = []
    for tiling in tilings:
        product = partial(_in_tiles, matmul, tiling)
        try:
            _check(product, *copies[0], tiling)
        except Exception:  # a tiling that does not fit this GPU; the others are still there
            if not several:
                raise
        else:
            made.append(product)
    if several:
        made = [min((*made, _by_torch), key=lambda p: trial_seconds(partial(p, *copies[0])))]
    return [partial(made[0], *buffers) for buffers in copies]


def _operands(size: tuple[int, int, int], setup: Setup) -> tuple[Any, Any, Any]:
    """Return A (m, k) and B (n, k) of int8, and C (m, n) of int32 to be written."""
    import torch

    m, n, k = size
    out = torch.empty((m, n), dtype=torch.int32, device=setup.device)
    return operand("int8", (m, k), setup), operand("int8", (n, k), setup), out


def _check(product: Product, a: Any, b: Any, out: Any, tiling: Tiling) -> None:
    import torch

    product(a, b, out)
    if not torch.equal(out, torch._int_mm(a, b.t())):
        raise RuntimeError(f"Triton's int8 product in tiles {tiling.name} is wrong")
    torch.cuda.reset_peak_memory_stats()  # the comparison is no memory of the product


def _by_torch(a: Any, b: Any, out: Any) -> object:
    import torch

    return torch._int_mm(a, b.t(), out=out)


def _in_tiles(matmul: Callable[..., None], tiling: Tiling, a: Any, b: Any, out: Any) -> None:
    matmul(a, b, out, tiling)


def cases(args: argparse.Namespace, size: tuple[int, int, int]) -> Iterator[Case]:
    """Return a case a tiling, in bursts, and the quickest product of all under steady load.

    Args:
        args: of the command line.
        size: m, n and k of the product.
    """
    quickest = f"quickest of {len(TILINGS)} Triton tilings and cuBLASLt"
    for name, variant, tilings, kind in (
        *((f"triton-{t.name}", f"Triton {t.name}", (t,), "burst") for t in TILINGS),
        ("quickest", quickest, TILINGS, "steady"),
    ):
        product = make_matmul("int8", *size)
        yield Case(
            name=f"tensor/int8/{name}/{kind}",
            operation="INT8 matrix product",
            prepare=partial(_prepare, tilings, size),
            work=product.work,
            footprint_bytes=product.footprint_bytes,
            params={"m": size[0], "n": size[1], "k": size[2], "variant": variant},
            dtype="int8",
            level="tensor",
            roof=Roof("tensor", kind, "int8"),
            duration=kind,
        )
