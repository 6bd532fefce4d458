"""int8 matrix products in Triton: candidates for the int8 roof beside those of cuBLASLt.

torch._int_mm takes kernels that reach half of the int8 peak of an H200 (CUDA 13.0). Triton compiles
the same product to the instructions of Hopper's Tensor Cores (wgmma).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: let the folder that holds `targets` be found
    sys.path.append(str(Path(__file__).resolve().parents[2]))
from targets.harness import Call, Case, Roof, Setup, Unsupported, is_cuda, run_target, sm_count
from targets.harness.matmul import make_matmul, operand


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


def _prepare(tiling: Tiling, m: int, n: int, k: int, setup: Setup) -> Sequence[Call]:
    if not is_cuda(setup.device):
        raise Unsupported("Triton needs a CUDA device")
    try:
        from targets.roofline.triton_int8_kernel import matmul
    except ImportError as error:
        raise Unsupported(f"needs Triton ({error})") from error
    import torch

    calls: list[Call] = []
    for _ in range(setup.copies):
        a, b = operand("int8", (m, k), setup), operand("int8", (n, k), setup)
        out = torch.empty((m, n), dtype=torch.int32, device=setup.device)
        calls.append(partial(matmul, a, b, out, tiling))
        calls[-1]()
        if not torch.equal(out, torch._int_mm(a, b.t())):
            raise RuntimeError(f"Triton's int8 product in tiles {tiling.name} is wrong")
    return calls


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Return a case a tiling, in bursts and of the shape with whole waves."""
    from targets.roofline.tensor import sizes

    size = sizes("int8", sm_count(args.device))[2] if is_cuda(args.device) else (64, 64, 64)
    product = make_matmul("int8", *size)
    for tiling in TILINGS:
        yield Case(
            name=f"tensor/int8/triton-{tiling.name}/burst",
            operation="INT8 matrix product",
            prepare=partial(_prepare, tiling, *size),
            work=product.work,
            footprint_bytes=product.footprint_bytes,
            params={"m": size[0], "n": size[1], "k": size[2], "variant": f"Triton {tiling.name}"},
            dtype="int8",
            level="tensor",
            roof=Roof("tensor", "burst", "int8"),
            duration="burst",
        )


def main(argv: list[str] | None = None) -> int:
    """Measure the tilings."""
    return run_target("roofline", cases, argv, description=(__doc__ or "").split("\n\n")[0])


if __name__ == "__main__":
    sys.exit(main())
