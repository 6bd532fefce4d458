"""Compares counted FLOPs with the 2MNK of GEMMs of known shape: how much the tile pads."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from nsight_prof.parsers.cells import Row, known, names, number, text
from nsight_prof.parsers.metrics.formulas import tile_padding
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.declared import Shape, read_shapes
from nsight_prof.reports.analysis.profiled import profiled

TOLERANCE = 0.005
"""Counted FLOPs of a GEMM equal 2MNK with M and N rounded up to the tile, exactly: 1.0156 for
8192^3 in 320x128 tiles (H200, ncu 2025.3.1). Half a per cent leaves room for rounded exports and
for clusters, which round the number of tiles up: 501 tiles in clusters of 2 count as 502."""


NO_COUNTERS = "no GEMM kernel has counters"
OTHER_SHAPE = "several shapes use this kernel, and the launch that was counted has another one"
NO_PADDING = (NO_COUNTERS, OTHER_SHAPE)
"""Why a product has no ratio."""


@dataclass(frozen=True)
class Padding:
    """A GEMM of known shape beside the kernel that ran it; `reason` where none could be told."""

    shape: Shape
    row: Row | None
    counted: float | None
    ratio: float | None
    reason: str


def padded_flops(shape: Shape, tile: str) -> list[float]:
    """Return 2MNK rounded up to the tile "MxN" or "MxNxK", in both orientations.

    K is rounded up too where the tile tells, and is tried as it is as well.
    """
    sides = [int(side) for side in re.findall(r"\d+", tile)]
    if len(sides) < 2 or 0 in sides:
        return []
    deep = sides[2] if len(sides) > 2 else 1
    depth = math.ceil(shape.k / deep) * deep / shape.k
    ratios = tile_padding(shape.m, shape.n, sides[0], sides[1])
    return [shape.flops * ratio * along_k for ratio in ratios for along_k in (1.0, depth)]


@once
def paddings(run: Run) -> list[Padding]:
    """Return for each known shape the profiled kernel whose counted FLOPs it explains."""
    rows = [row for row in profiled(run) if row["category"] in ("gemm", "gemv")]
    shapes = read_shapes(run.directory.artifact("trace", "stdout.log"))
    return [_padding(shape, rows) for shape in shapes if _was_captured(run, shape)]


def _was_captured(run: Run, shape: Shape) -> bool:
    """Tell whether the capture holds the stage of a shape: the target prints those of all."""
    stages = {name for cell in run.kernels["stage"] for name in names(cell)}
    return not shape.stage or not stages or shape.stage in stages


def _padding(shape: Shape, rows: list[Row]) -> Padding:
    if not rows:
        return Padding(shape, None, None, None, NO_COUNTERS)
    fitting = [row for row in rows if _fits(shape, row)]
    staged = [row for row in fitting if shape.stage in names(row["stage"])]
    if shape.stage and fitting and not staged and any(names(r["stage"]) for r in fitting):
        fitting = []
    if not fitting:
        return Padding(shape, None, None, None, OTHER_SHAPE)
    row = (staged or fitting)[0]
    counted = _counted(row)
    return Padding(shape, row, known(counted), known(counted / shape.flops), "")


def _fits(shape: Shape, row: Row) -> bool:
    counted = _counted(row)
    expected = padded_flops(shape, text(row["tile"])) or [shape.flops]
    return any(abs(counted / flops - 1) <= TOLERANCE for flops in expected)


def _counted(row: Row) -> float:
    tensor = number(row["flops_tensor"])
    return tensor if tensor > 0 else number(row["flops"])
