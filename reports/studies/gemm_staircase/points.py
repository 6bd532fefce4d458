"""The cases of the target gemm_staircase as plain points, with the tile that computed each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from nsight_prof.parsers.cells import Row, count, grouped, known, number, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.rows import case_ref, cases
from nsight_prof.reports.page import Number, Ref
from nsight_prof.reports.studies.gemm_staircase.tile_model import Tiling

TARGET = "gemm_staircase"
VARIANTS = {"cublas": "cuBLAS", "triton": "Triton", "torch": "torch"}
# Counted FLOPs are those of whole tiles, exactly; see reports/gemm.py.
TOLERANCE = 0.005

_TILE = re.compile(r"\btile (\d+)x(\d+)(?:x\d+)?(?:.*?\bcluster (\d+)x(\d+))?")


@dataclass(frozen=True)
class Point:
    """One measured product of M x N x K; times are of one call, `low` to `high` is its 95 % CI.

    Attributes:
        group: set of sizes: "sweep", "batch" or "odd".
        moved: bytes of A, W and C, each once.
        tiling: None where no kernel name tells the tile, or the kernel splits K.
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
    ref: Ref
    mode: str = "cold"

    @property
    def rate(self) -> float:
        """Useful FLOP per second."""
        return self.flops / self.seconds

    @property
    def library(self) -> str:
        """What computed it: "cuBLAS", "Triton"."""
        return VARIANTS.get(self.variant, self.variant)

    @property
    def name(self) -> str:
        """The library and the type: "cuBLAS bf16"."""
        return f"{self.library} {self.dtype}"

    @property
    def shape(self) -> str:
        """The sizes: "4096 x 4096 x 4096"."""
        return f"{self.m} x {self.n} x {self.k}"

    @property
    def time(self) -> Number:
        """The median time of a call, with its confidence interval."""
        return Number(self.seconds, "s", (self.ref,), low=self.low, high=self.high)

    @property
    def throughput(self) -> Number:
        """Useful FLOP per second as a quantity."""
        return Number(self.rate, "FLOP/s", (self.ref,))

    @property
    def bandwidth(self) -> Number:
        """Bytes of A, W and C per second."""
        return Number(self.moved / self.seconds, "B/s", (self.ref,))


@dataclass(frozen=True)
class Refused:
    """A product that did not run, and why."""

    group: str
    dtype: str
    variant: str
    m: int
    n: int
    k: int
    status: str
    reason: str


@dataclass(frozen=True)
class Curve:
    """Sizes of one dtype and variant, sorted by M."""

    dtype: str
    variant: str
    points: tuple[Point, ...]

    @property
    def name(self) -> str:
        """The library and the type: "cuBLAS bf16"."""
        return self.points[0].name

    @property
    def fastest(self) -> Point:
        """The point of the highest throughput."""
        return max(self.points, key=lambda point: point.rate)

    def at(self, m: int) -> Point | None:
        """Return the point of a size, or None."""
        return next((point for point in self.points if point.m == m), None)


def read_points(run: Run) -> tuple[list[Point], list[Refused]]:
    """Return the measured products and those that were refused, in the order of the table."""
    points, refused = [], []
    for row in cases(run, TARGET):
        params = row["params"]
        try:
            m, n, k = (int(params[side]) for side in "mnk")
        except (KeyError, TypeError, ValueError):
            continue
        if text(row["data"]) != "normal":
            continue
        kind = (str(params.get("set", "")), text(row["dtype"]), str(params.get("variant", "")))
        status = text(row["status"])
        if status == "ok" and number(row["median_s"]) > 0:
            points.append(_point(row, kind, (m, n, k)))
        elif status != "counted" and text(row["mode"]) == "cold":
            refused.append(Refused(*kind, m, n, k, status, text(row["reason"])))
    return points, refused


def curves(points: Iterable[Point], group: str = "sweep", mode: str = "cold") -> list[Curve]:
    """Return the sizes of a group by dtype and variant, cuBLAS before Triton."""
    chosen = (point for point in points if (point.group, point.mode) == (group, mode))
    found = grouped(
        sorted(chosen, key=lambda point: point.m), lambda point: (point.dtype, point.variant)
    )
    return [Curve(*key, tuple(found[key])) for key in sorted(found)]


def at_one_clock(curve: Curve) -> tuple[Curve, float | None]:
    """Return the curve as if all had run at its median SM clock, and that clock.

    A large product draws more power and so runs at a lower clock, which is no matter of tiles.
    Where a clock is unknown the curve is returned as it is, with None.
    """
    clocks = sorted(point.clock_hz for point in curve.points if point.clock_hz)
    if len(clocks) < len(curve.points):
        return curve, None
    median = clocks[len(clocks) // 2]

    def scaled(point: Point) -> Point:
        factor = (point.clock_hz or median) / median
        return replace(
            point, seconds=point.seconds * factor, low=point.low * factor, high=point.high * factor
        )

    return replace(curve, points=tuple(map(scaled, curve.points))), median


def sm_count(run: Run) -> int | None:
    """Return the number of SMs of the first GPU; None where the run does not say."""
    return next((count(cell) or None for cell in run.gpus["sm_count"]), None)


def _point(row: Row, kind: tuple[str, str, str], shape: tuple[int, int, int]) -> Point:
    m, n, k = shape
    seconds = number(row["median_s"])
    low, high = known(row["ci_low_s"]), known(row["ci_high_s"])
    return Point(
        *kind,
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
        ref=case_ref(row),
        mode=text(row["mode"]),
    )


def _tiling(row: Row, shape: tuple[int, int, int]) -> Tiling | None:
    """Return the tile: of the parameters where it is pinned, else as the kernel's name tells."""
    params, n = row["params"], shape[1]
    if "tile_m" in params and "tile_n" in params:
        return Tiling(n, int(params["tile_m"]), int(params["tile_n"]))
    kernel = text(row["kernel_names"])
    sides = _TILE.findall(kernel)
    # With K split, a tile of the result is computed by several CTAs: how many, no name tells.
    if len(sides) != 1 or "split-K" in kernel:
        return None
    across, down, cluster_across, cluster_down = (int(side or 1) for side in sides[0])
    # cuBLAS is column-major: its first side runs along the N of a row-major result.
    usual = Tiling(n, down, across, cluster_down, cluster_across)
    turned = Tiling(n, across, down, cluster_across, cluster_down)
    return turned if _fits_only(number(row["counted_flops"]), shape, turned, usual) else usual


def _fits_only(flops: float, shape: tuple[int, int, int], tiling: Tiling, rival: Tiling) -> bool:
    """Return whether the counted FLOPs, padding included, fit `tiling` and not `rival`."""
    m, n, k = shape
    padding = flops / (2.0 * m * n * k)
    if math.isnan(padding):
        return False
    error, error_of_rival = (abs(padding * t.tile_efficiency(m) - 1) for t in (tiling, rival))
    return error <= TOLERANCE < error_of_rival
