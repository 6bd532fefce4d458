"""The cases of the target gemm_staircase as plain points, with the tile that computed each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from nsight_prof.parsers.cells import Row, count, grouped, known, number, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases import oscillation
from nsight_prof.reports.cases.rows import case_ref, cases
from nsight_prof.reports.page import Number, Ref
from nsight_prof.reports.studies.gemm_staircase.tile_model import (
    MODELS,
    Data,
    Fit,
    Quality,
    Tiling,
    best_slots,
    fit,
)

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


@dataclass(frozen=True)
class Step:
    """Two sizes one row apart: `loss` is the time that the row costs over the time without it."""

    before: Point
    after: Point

    @property
    def loss(self) -> float:
        """after / before - 1."""
        return self.after.seconds / self.before.seconds - 1

    @property
    def cost(self) -> Number:
        """The loss as a quantity."""
        return Number(self.loss, "fraction", (self.after.ref, self.before.ref))

    @property
    def certain(self) -> bool:
        """The confidence intervals of the two times do not overlap."""
        return self.after.low > self.before.high


@dataclass(frozen=True)
class Staircase:
    """The tile model of one sweep.

    Attributes:
        measured: the sweep; `curve`: its times scaled to one SM clock, `clock_hz` (None: unknown).
        unscaled: how well the model fits the times as measured.
        fits: by model, the tile model first.
        errors: root mean square relative error by CTAs per SM.
    """

    measured: Curve
    curve: Curve
    unscaled: Quality | None
    tiling: Tiling
    fits: tuple[Fit, ...]
    errors: dict[int, float]
    clock_hz: float | None
    sm_count: int

    @property
    def waves(self) -> Fit:
        """The fit of the tile model itself."""
        return self.fits[0]

    @property
    def ctas_per_sm(self) -> int:
        """CTAs per SM that predict best."""
        return self.waves.slots // self.sm_count

    @property
    def beats_controls(self) -> bool:
        """The tile model predicts better than each control: the steps are real."""
        quality = self.waves.quality
        return all(
            quality.median_error < control.quality.median_error
            and quality.r_squared > control.quality.r_squared
            for control in self.fits[1:]
        )

    def predicted_as_measured(self) -> list[float]:
        """Return the predicted seconds of each size at the clock that it was measured at."""
        pairs = zip(self.curve.points, self.waves.predicted_s, strict=True)
        return [
            seconds * self.clock_hz / point.clock_hz
            if self.clock_hz and point.clock_hz
            else seconds
            for point, seconds in pairs
        ]

    def predicted_loss(self, edge: int) -> float | None:
        """Return the model's loss of the step from `edge` to the next row."""
        times = {
            point.m: seconds
            for point, seconds in zip(self.curve.points, self.waves.predicted_s, strict=True)
        }
        return times[edge + 1] / times[edge] - 1 if {edge, edge + 1} <= times.keys() else None

    def waves_at(self, m: int) -> int:
        """Return the waves of a product of m rows."""
        return self.tiling.waves(m, self.waves.slots)

    def edges(self) -> list[int]:
        """Return the M after which a wave begins, within the sweep."""
        low, high = self.curve.points[0].m, self.curve.points[-1].m
        return self.tiling.edges(low, high, self.waves.slots)

    def tile_edges(self) -> list[int]:
        """Return the edges of tiles at which no wave begins: one row more should cost nothing."""
        tile, last = self.tiling.tile_m, self.curve.points[-1].m
        return [edge for edge in range(tile, last, tile) if edge not in self.edges()]


def staircase(curve: Curve, sms: int | None, bandwidth: float | None) -> Staircase | None:
    """Fit a sweep whose tile is the same throughout; None for any other."""
    tilings = {point.tiling for point in curve.points}
    tiling = curve.points[0].tiling
    if len(tilings) != 1 or tiling is None or sms is None:
        return None
    scaled, clock = at_one_clock(curve)
    data = _data(scaled)
    chosen = best_slots(data, tiling, sms, bandwidth)
    if chosen is None:
        return None
    best, errors = chosen
    controls = [fit(data, tiling, best.slots, bandwidth, model) for model in MODELS[1:]]
    fits = (best, *(control for control in controls if control is not None))
    unscaled = fit(_data(curve), tiling, best.slots, bandwidth) if clock else None
    quality = unscaled.quality if unscaled else None
    return Staircase(curve, scaled, quality, tiling, fits, errors, clock, sms)


def _data(curve: Curve) -> Data:
    points = curve.points
    return Data([p.m for p in points], [p.seconds for p in points], [p.moved for p in points])


def step_at(curve: Curve, m: int) -> Step | None:
    """Return the step from m to m + 1, where both were measured."""
    before, after = curve.at(m), curve.at(m + 1)
    return Step(before, after) if before and after else None


def steps_at(curve: Curve, sizes: Sequence[int]) -> list[Step]:
    """Return the measured steps at these sizes."""
    return [step for m in sizes if (step := step_at(curve, m)) is not None]


def worst_step(curve: Curve, smallest: int = 0) -> Step | None:
    """Return the step that costs most and is more than noise, from `smallest` rows on."""
    pairs = zip(curve.points, curve.points[1:], strict=False)
    steps = [Step(before, after) for before, after in pairs if after.m == before.m + 1]
    certain = [step for step in steps if step.certain and step.before.m >= smallest]
    return max(certain, key=lambda step: step.loss, default=None)


@dataclass(frozen=True)
class Inversion:
    """A size that takes longer than a larger one: `gain` is the time that padding to it saves."""

    point: Point
    larger: Point

    @property
    def gain(self) -> float:
        """1 - larger / point."""
        return 1 - self.larger.seconds / self.point.seconds

    @property
    def saved(self) -> Number:
        """The gain as a quantity."""
        return Number(self.gain, "fraction", (self.point.ref, self.larger.ref))


def inversions(curve: Curve) -> list[Inversion]:
    """Return the sizes for which a larger one is faster, by more than the intervals; worst first.

    Each is paired with the fastest of the larger ones.
    """
    found = []
    for index, point in enumerate(curve.points):
        faster = [larger for larger in curve.points[index + 1 :] if larger.high < point.low]
        if faster:
            found.append(Inversion(point, min(faster, key=lambda larger: larger.seconds)))
    return sorted(found, key=lambda inversion: -inversion.gain)


def median_loss(curve: Curve, edges: Sequence[int]) -> float | None:
    """Return the median loss of the steps at `edges`; None where none was measured."""
    losses = [step.loss for step in steps_at(curve, edges)]
    return median(losses) if losses else None


def highest_rate(points: Sequence[Point]) -> float | None:
    """Return the highest bytes per second of a cold case: what DRAM gives this kind of kernel."""
    rates = [p.moved / p.seconds for p in points if p.moved > 0 and p.mode == "cold"]
    return max(rates, default=None)


@dataclass(frozen=True)
class Batches:
    """Small M of one dtype from M = 1 on, cold, and (None: not measured) with warm weights."""

    cold: Curve
    hot: Curve | None

    def extra(self, point: Point) -> Number:
        """Return how much longer a point takes than M = 1."""
        first = self.cold.points[0]
        return Number(point.seconds / first.seconds - 1, "fraction", (point.ref, first.ref))


def batches(points: Sequence[Point]) -> list[Batches]:
    """Return the small sizes by dtype and variant, those with M = 1 only."""
    hot = {curve.name: curve for curve in curves(points, "batch", "hot")}
    cold = [curve for curve in curves(points, "batch") if curve.points[0].m == 1]
    return [Batches(curve, hot.get(curve.name)) for curve in cold]


@dataclass(frozen=True)
class OddSize:
    """A product with one side (`side`: m, n or k) changed by `away` from `base`."""

    base: Point
    side: str
    away: int
    point: Point | None
    refused: Refused | None

    @property
    def size(self) -> int:
        """The changed size."""
        return int(getattr(self.base, self.side)) + self.away

    @property
    def label(self) -> str:
        """The changed side and its size: "K = 4097"."""
        return f"{self.side.upper()} = {self.size}"

    @property
    def loss(self) -> float | None:
        """Part of the throughput (useful FLOP/s) of the base that is lost; below 0 where gained."""
        return 1 - self.point.rate / self.base.rate if self.point else None


def odd_sizes(points: Sequence[Point], refused: Sequence[Refused]) -> list[OddSize]:
    """Return the odd sizes with their base, by dtype, side and size.

    The base is the product whose three sizes are the same.
    """
    group = [point for point in points if point.group == "odd" and point.mode == "cold"]
    candidates: list[Point | Refused] = [*group, *(r for r in refused if r.group == "odd")]
    found = []
    for base in (point for point in group if point.m == point.n == point.k):
        for product in candidates:
            if (product.dtype, product.variant) != (base.dtype, base.variant):
                continue
            away = {s: getattr(product, s) - getattr(base, s) for s in "mnk"}
            changed = [side for side in "mnk" if away[side]]
            if len(changed) == 1:
                point = product if isinstance(product, Point) else None
                refusal = product if isinstance(product, Refused) else None
                found.append(OddSize(base, changed[0], away[changed[0]], point, refusal))
    return sorted(found, key=lambda odd: (odd.base.dtype, "mnk".index(odd.side), odd.away))


def delay(
    curve: Curve, staircases: Sequence[Staircase], sms: int | None
) -> oscillation.Sweep | None:
    """Return the oscillation of a sweep over M, at one clock; None for too few sizes.

    A wave of a pinned tile is full after slots / (tiles along N) tiles of rows.
    """
    scaled, _ = at_one_clock(curve)
    pinned = next((s for s in staircases if s.curve.name == curve.name), None)
    expected = None
    if pinned is not None:
        tiling = pinned.tiling
        expected = tiling.tile_m * pinned.waves.slots * tiling.tile_n / tiling.n
    sizes = [float(point.m) for point in scaled.points]
    times = [(point.seconds, point.low, point.high) for point in scaled.points]
    return oscillation.sweep(curve.name, sizes, times, expected)
