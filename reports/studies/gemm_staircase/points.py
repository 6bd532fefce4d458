"""The cases of the target gemm_staircase as plain points, with the tile that computed each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from nsight_prof.parsers.cells import Row, count, from_row, grouped, number, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases import oscillation
from nsight_prof.reports.cases.rows import CasePoint, case_ref, cases
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
    """One product of M x N x K; times are of one call, `low` to `high` is its 95 % CI.

    Attributes:
        set: set of sizes: "sweep", "batch" or "odd".
        bytes: of A, W and C, each once.
        status, reason: why it did not run; it has no time then.
        tiling: None where no kernel name tells the tile, or the kernel splits K.
    """

    set: str
    dtype: str
    variant: str
    m: int
    n: int
    k: int
    mode: str
    status: str
    reason: str
    bytes: float
    clock_hz: float | None
    tensor_pct: float | None
    kernel_names: str
    seconds: float
    low: float
    high: float
    tiling: Tiling | None
    ref: Ref

    @property
    def flops(self) -> float:
        """Useful FLOPs."""
        return 2.0 * self.m * self.n * self.k

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
        return Number(self.bytes / self.seconds, "B/s", (self.ref,))

    @property
    def tensor(self) -> Number | None:
        """Part of the cycles in which the Tensor Cores are active; None where not counted."""
        return None if self.tensor_pct is None else Number(self.tensor_pct, "%", (self.ref,))


@dataclass(frozen=True)
class Step:
    """Two sizes: `loss` is the time that the second costs over that of the first."""

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
    def saved(self) -> Number:
        """The part of the time that the second size saves."""
        return Number(-self.loss, "fraction", (self.before.ref, self.after.ref))


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

    def step(self, m: int) -> Step | None:
        """Return the step from m to m + 1, where both were measured."""
        before, after = self.at(m), self.at(m + 1)
        return Step(before, after) if before and after else None

    def steps(self, sizes: Iterable[int]) -> list[Step]:
        """Return the measured steps at these sizes."""
        return [step for m in sizes if (step := self.step(m)) is not None]


def read_points(run: Run) -> tuple[list[Point], list[Point]]:
    """Return the measured products and those that were refused, in the order of the table."""
    found = [
        _point(row)
        for row in cases(run, TARGET)
        if {"m", "n", "k"} <= row["params"].keys() and text(row["data"]) == "normal"
    ]
    ran = [point for point in found if point.status == "ok" and point.seconds > 0]
    refused = [p for p in found if p.status != "counted" and p.mode == "cold" and p not in ran]
    return ran, refused


def _point(row: Row) -> Point:
    params, case = row["params"], CasePoint(row)
    low, high = case.interval
    cells = {"set": "", "variant": ""} | row | params
    return from_row(
        Point,
        cells,
        seconds=case.seconds,
        low=low,
        high=high,
        tiling=_tiling(row, int(params["m"]), int(params["n"]), int(params["k"])),
        ref=case_ref(row),
    )


def _tiling(row: Row, m: int, n: int, k: int) -> Tiling | None:
    """Return the tile: of the parameters where it is pinned, else as the kernel's name tells."""
    params, kernel = row["params"], text(row["kernel_names"])
    if "tile_m" in params and "tile_n" in params:
        return Tiling(n, int(params["tile_m"]), int(params["tile_n"]))
    sides = _TILE.findall(kernel)
    # With K split, a tile of the result is computed by several CTAs: how many, no name tells.
    if len(sides) != 1 or "split-K" in kernel:
        return None
    across, down, cluster_across, cluster_down = (int(side or 1) for side in sides[0])
    # cuBLAS is column-major: its first side runs along the N of a row-major result. The other way
    # round only where the counted FLOPs, padding included, fit that alone.
    usual = Tiling(n, down, across, cluster_down, cluster_across)
    turned = Tiling(n, across, down, cluster_across, cluster_down)
    padding = number(row["counted_flops"]) / (2.0 * m * n * k)
    error, usual_error = (abs(padding * t.tile_efficiency(m) - 1) for t in (turned, usual))
    return turned if error <= TOLERANCE < usual_error else usual


def curves(points: Iterable[Point], group: str = "sweep", mode: str = "cold") -> list[Curve]:
    """Return the sizes of a group by dtype and variant, cuBLAS before Triton."""
    chosen = [point for point in points if (point.set, point.mode) == (group, mode)]
    chosen.sort(key=lambda point: point.m)
    found = grouped(chosen, lambda point: (point.dtype, point.variant))
    return [Curve(*key, tuple(found[key])) for key in sorted(found)]


def at_one_clock(curve: Curve) -> tuple[Curve, float | None]:
    """Return the curve as if all had run at its median SM clock, and that clock.

    A large product draws more power and so runs at a lower clock, which is no matter of tiles.
    Where a clock is unknown the curve is returned as it is, with None.
    """
    clocks = sorted(point.clock_hz for point in curve.points if point.clock_hz)
    if len(clocks) < len(curve.points):
        return curve, None
    middle = clocks[len(clocks) // 2]

    def scaled(point: Point) -> Point:
        factor = (point.clock_hz or middle) / middle
        return replace(
            point, seconds=point.seconds * factor, low=point.low * factor, high=point.high * factor
        )

    return replace(curve, points=tuple(map(scaled, curve.points))), middle


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

    @property
    def predicted(self) -> list[tuple[Point, float]]:
        """Each size with the seconds that the model predicts."""
        return list(zip(self.curve.points, self.waves.predicted_s, strict=True))

    def predicted_as_measured(self) -> list[tuple[Point, float]]:
        """Return each size with its predicted seconds at the clock that it was measured at."""
        return [
            (p, seconds * self.clock_hz / p.clock_hz if self.clock_hz and p.clock_hz else seconds)
            for p, seconds in self.predicted
        ]

    def predicted_loss(self, edge: int) -> float | None:
        """Return the model's loss of the step from `edge` to the next row."""
        times = {point.m: seconds for point, seconds in self.predicted}
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

    def median_loss(self, edges: Iterable[int]) -> float | None:
        """Return the median loss of the steps at `edges`; None where none was measured."""
        losses = [step.loss for step in self.curve.steps(edges)]
        return median(losses) if losses else None


def staircase(curve: Curve, sms: int | None, bandwidth: float | None) -> Staircase | None:
    """Fit a sweep whose tile is the same throughout; None for any other."""
    tilings = {point.tiling for point in curve.points}
    tiling = curve.points[0].tiling
    if len(tilings) != 1 or tiling is None or sms is None:
        return None
    scaled, clock = at_one_clock(curve)
    data, as_measured = (
        Data([p.m for p in of.points], [p.seconds for p in of.points], [p.bytes for p in of.points])
        for of in (scaled, curve)
    )
    chosen = best_slots(data, tiling, sms, bandwidth)
    if chosen is None:
        return None
    best, errors = chosen
    controls = [fit(data, tiling, best.slots, bandwidth, model) for model in MODELS[1:]]
    fits = (best, *(control for control in controls if control is not None))
    unscaled = fit(as_measured, tiling, best.slots, bandwidth) if clock else None
    quality = unscaled.quality if unscaled else None
    return Staircase(curve, scaled, quality, tiling, fits, errors, clock, sms)


def worst_step(curve: Curve, smallest: int = 0) -> Step | None:
    """Return the step that costs most and is more than noise, from `smallest` rows on.

    The confidence intervals of its two times do not overlap.
    """
    steps = [
        Step(before, after)
        for before, after in pairwise(curve.points)
        if after.m == before.m + 1 and after.low > before.high and before.m >= smallest
    ]
    return max(steps, key=lambda step: step.loss, default=None)


def inversions(curve: Curve) -> list[Step]:
    """Return the sizes for which a larger one is faster, by more than the intervals; worst first.

    Each is paired with the fastest of the larger ones.
    """
    found = []
    for index, point in enumerate(curve.points):
        faster = [larger for larger in curve.points[index + 1 :] if larger.high < point.low]
        if faster:
            found.append(Step(point, min(faster, key=lambda larger: larger.seconds)))
    return sorted(found, key=lambda step: step.loss)


@dataclass(frozen=True)
class Batches:
    """Small M of one dtype from M = 1 on, cold, and (None: not measured) with warm weights."""

    cold: Curve
    hot: Curve | None

    def extra(self, point: Point) -> Number:
        """Return how much longer a point takes than M = 1."""
        return Step(self.cold.points[0], point).cost


@dataclass(frozen=True)
class OddSize:
    """A product with one side (`side`: m, n or k) changed by `away` from `base`."""

    base: Point
    side: str
    away: int
    product: Point

    @property
    def point(self) -> Point | None:
        """The product; None where it did not run."""
        return self.product if self.product.seconds > 0 else None

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


def odd_sizes(points: Sequence[Point], refused: Sequence[Point]) -> list[OddSize]:
    """Return the odd sizes with their base, by dtype, side and size.

    The base is the product whose three sizes are the same.
    """
    group = [p for p in (*points, *refused) if p.set == "odd" and p.mode == "cold"]
    found = []
    for base in (point for point in group if point.m == point.n == point.k and point in points):
        for product in group:
            away = {s: getattr(product, s) - getattr(base, s) for s in "mnk"}
            changed = [side for side in "mnk" if away[side]]
            if len(changed) == 1 and product.name == base.name:
                found.append(OddSize(base, changed[0], away[changed[0]], product))
    return sorted(found, key=lambda odd: (odd.base.dtype, "mnk".index(odd.side), odd.away))


@dataclass(frozen=True)
class Measured:
    """What the section is about.

    Attributes:
        sweeps: over M, by type and variant.
        staircases: the tile models of those of one tile.
        small, odd: small batches, and sizes beside even ones.
        refused: products that did not run.
        sms: SMs of the first GPU; None where the run does not say.
        bandwidth: the highest bytes per second of a cold case: what DRAM gives this kind of kernel.
    """

    sweeps: Sequence[Curve]
    staircases: Sequence[Staircase]
    small: Sequence[Batches]
    odd: Sequence[OddSize]
    refused: Sequence[Point]
    sms: int | None
    bandwidth: float | None

    @property
    def libraries(self) -> list[Curve]:
        """The sweeps whose kernel chooses a tile for each size."""
        pinned = {staircase.curve.name for staircase in self.staircases}
        return [curve for curve in self.sweeps if curve.name not in pinned]

    def library_of(self, staircase: Staircase) -> Curve | None:
        """Return the sweep of the same dtype by the library that chooses its tiles."""
        dtype, variant = staircase.curve.dtype, staircase.curve.variant
        return next((c for c in self.sweeps if c.dtype == dtype and c.variant != variant), None)

    @property
    def delays(self) -> list[oscillation.Sweep]:
        """The oscillations of the sweeps over M, at one clock; those of too few sizes left out.

        A wave of a pinned tile is full after slots / (tiles along N) tiles of rows.
        """
        expected = {
            s.curve.name: s.tiling.tile_m * s.waves.slots * s.tiling.tile_n / s.tiling.n
            for s in self.staircases
        }
        found = []
        for curve in self.sweeps:
            points = at_one_clock(curve)[0].points
            sizes = [float(point.m) for point in points]
            times = [(point.seconds, point.low, point.high) for point in points]
            found.append(oscillation.sweep(curve.name, sizes, times, expected.get(curve.name)))
        return [sweep for sweep in found if sweep is not None]


def measured(run: Run) -> Measured | None:
    """Return what the run measured; None without such cases."""
    points, refused = read_points(run)
    if not points and not refused:
        return None
    sms = next((count(cell) or None for cell in run.gpus["sm_count"]), None)
    rates = [p.bytes / p.seconds for p in points if p.bytes > 0 and p.mode == "cold"]
    bandwidth = max(rates, default=None)
    sweeps = curves(points)
    hot = {curve.name: curve for curve in curves(points, "batch", "hot")}
    return Measured(
        sweeps,
        [found for curve in sweeps if (found := staircase(curve, sms, bandwidth))],
        [Batches(c, hot.get(c.name)) for c in curves(points, "batch") if c.points[0].m == 1],
        odd_sizes(points, refused),
        refused,
        sms,
        bandwidth,
    )
