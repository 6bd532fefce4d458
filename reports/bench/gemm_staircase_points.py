"""The cases of the target gemm_staircase as plain points, with the tile that computed each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from nsight_prof.parsers.cells import Row, count, known, number, text
from nsight_prof.reports.bench.cases import cases
from nsight_prof.reports.bench.tile_fit import Tiling
from nsight_prof.reports.load import Run

TARGET = "gemm_staircase"
VARIANTS = {"cublas": "cuBLAS", "triton": "Triton", "torch": "torch"}
# Counted FLOPs are those of whole tiles, exactly; see reports/gemm.py.
TOLERANCE = 0.005

_TILE = re.compile(r"\btile (\d+)x(\d+)(?:x\d+)?(?:.*?\bcluster (\d+)x(\d+))?")


@dataclass(frozen=True)
class Point:
    """One measured product of M x N x K; times are of one call, `low` to `high` is its 95 % CI.

    `tiling` is None where no kernel name tells the tile, or the kernel splits K.
    """

    group: str
    dtype: str
    variant: str
    m: int
    n: int
    k: int
    seconds: float
    low: float
    high: float
    flops: float
    moved: float
    clock_hz: float | None
    tensor_pct: float | None
    kernel: str
    tiling: Tiling | None
    mode: str = "cold"

    @property
    def rate(self) -> float:
        """Useful FLOPs a second."""
        return self.flops / self.seconds

    @property
    def what(self) -> str:
        """The kernel in a reader's words: "cuBLAS bf16"."""
        return f"{VARIANTS.get(self.variant, self.variant)} {self.dtype}"


@dataclass(frozen=True)
class Refused:
    """A product that did not run, and why."""

    group: str
    dtype: str
    variant: str
    shape: tuple[int, int, int]
    status: str
    reason: str


@dataclass(frozen=True)
class Curve:
    """The sweep over M of one dtype and variant, sorted by M."""

    dtype: str
    variant: str
    points: tuple[Point, ...]

    @property
    def what(self) -> str:
        """The kernel in a reader's words: "cuBLAS bf16"."""
        return self.points[0].what

    def at(self, m: int) -> Point | None:
        """Return the point of a size, or None."""
        return next((point for point in self.points if point.m == m), None)


def read_points(run: Run) -> tuple[list[Point], list[Refused]]:
    """Return the measured products and those that were refused, in the order of the table."""
    points, refused = [], []
    for row in cases(run, TARGET):
        shape = _shape(row)
        if shape is None or text(row["data"]) != "normal":
            continue
        words = (str(row["params"].get("set", "")), text(row["dtype"]))
        variant = str(row["params"].get("variant", ""))
        if text(row["status"]) == "ok" and number(row["median_s"]) > 0:
            points.append(_point(row, words, variant, shape))
        elif text(row["status"]) != "counted" and text(row["mode"]) == "cold":
            why = (text(row["status"]), text(row["reason"]))
            refused.append(Refused(*words, variant, shape, *why))
    return points, refused


def curves(points: Iterable[Point]) -> list[Curve]:
    """Return the sweeps, cuBLAS before Triton; a tile that is pinned holds for all of its sizes."""
    found: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        if point.group == "sweep" and point.mode == "cold":
            found.setdefault((point.dtype, point.variant), []).append(point)
    return [
        Curve(dtype, variant, tuple(sorted(found[dtype, variant], key=lambda point: point.m)))
        for dtype, variant in sorted(found)
    ]


def at_one_clock(curve: Curve) -> tuple[Curve, float | None]:
    """Return the curve as if all had run at its median SM clock, and that clock.

    A large product draws more power and so runs at a lower clock, which is no matter of tiles.
    Where a clock is unknown the curve is returned as it is, with None.
    """
    clocks = sorted(point.clock_hz for point in curve.points if point.clock_hz)
    if len(clocks) < len(curve.points):
        return curve, None
    middle = clocks[len(clocks) // 2]
    scaled = [
        replace(
            point,
            seconds=point.seconds * (point.clock_hz or middle) / middle,
            low=point.low * (point.clock_hz or middle) / middle,
            high=point.high * (point.clock_hz or middle) / middle,
        )
        for point in curve.points
    ]
    return replace(curve, points=tuple(scaled)), middle


def sm_count(run: Run) -> int | None:
    """Return the number of SMs of the first GPU; None where the run does not say."""
    found = [count(value) for value in run.gpus["sm_count"]] if len(run.gpus) else []
    return found[0] if found and found[0] else None


def _shape(row: Row) -> tuple[int, int, int] | None:
    try:
        m, n, k = (int(row["params"][side]) for side in "mnk")
    except (KeyError, TypeError, ValueError):
        return None
    return m, n, k


def _point(row: Row, words: tuple[str, str], variant: str, shape: tuple[int, int, int]) -> Point:
    m, n, k = shape
    seconds = number(row["median_s"])
    low, high = known(row["ci_low_s"]), known(row["ci_high_s"])
    return Point(
        *words,
        variant,
        m,
        n,
        k,
        seconds=seconds,
        low=seconds if low is None else low,
        high=seconds if high is None else high,
        flops=2.0 * m * n * k,
        moved=number(row["bytes"]),
        clock_hz=known(row["clock_hz"]),
        tensor_pct=known(row["tensor_pct"]),
        kernel=text(row["kernel_names"]),
        tiling=_tiling(row, shape),
        mode=text(row["mode"]),
    )


def _tiling(row: Row, shape: tuple[int, int, int]) -> Tiling | None:
    """Return the tile: of the parameters where it is pinned, else as the kernel's name tells."""
    params = row["params"]
    if "tile_m" in params and "tile_n" in params:
        return Tiling(shape[1], int(params["tile_m"]), int(params["tile_n"]))
    kernel = text(row["kernel_names"])
    sides = _TILE.findall(kernel)
    # With K split, a tile of the result is computed by several CTAs: how many, no name tells.
    if len(sides) != 1 or "split-K" in kernel:
        return None
    across, down, cluster_across, cluster_down = (int(side or 1) for side in sides[0])
    n = shape[1]
    # cuBLAS is column-major: its first side runs along the N of a row-major result.
    usual = Tiling(n, down, across, cluster_down, cluster_across)
    other = Tiling(n, across, down, cluster_across, cluster_down)
    return other if _fits_only(number(row["counted_flops"]), shape, other, usual) else usual


def _fits_only(flops: float, shape: tuple[int, int, int], one: Tiling, other: Tiling) -> bool:
    """Tell whether the counted FLOPs, which hold the padding, fit `one` tiling and not `other`."""
    m, n, k = shape
    seen = flops / (2.0 * m * n * k)
    if math.isnan(seen):
        return False
    off, off_other = (abs(seen * tiling.tile_efficiency(m) - 1) for tiling in (one, other))
    return off <= TOLERANCE < off_other
