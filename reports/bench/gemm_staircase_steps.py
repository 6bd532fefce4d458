"""What the staircase costs: heights of steps, fits of the tile model, small and odd sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from nsight_prof.reports.bench.gemm_staircase_points import Curve, Point, Refused, at_one_clock
from nsight_prof.reports.bench.tile_fit import MODELS, Data, Fit, Quality, Tiling, best_slots, fit


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
    def certain(self) -> bool:
        """The confidence intervals of the two times do not overlap."""
        return self.after.low > self.before.high


@dataclass(frozen=True)
class Staircase:
    """The tile model of one sweep: `fits` by model, `errors` by CTAs on an SM (rms, relative).

    `curve` has the times scaled to one SM clock, `clock_hz`, which is None where it is not known;
    `unscaled` is how well the model fits the times as they were.
    """

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
        """CTAs on an SM that predict best."""
        return self.waves.slots // self.sm_count

    def predicted_as_measured(self) -> list[float]:
        """Return the predicted seconds of each size at the clock that it was measured at."""
        pairs = zip(self.curve.points, self.waves.predicted_s, strict=True)
        return [_unscaled(time, self.clock_hz, point.clock_hz) for point, time in pairs]

    def edges(self) -> list[int]:
        """Return the M after which a wave begins, within the sweep."""
        low, high = self.curve.points[0].m, self.curve.points[-1].m
        return self.tiling.edges(low, high, self.waves.slots)


def _unscaled(seconds: float, clock: float | None, own_clock: float | None) -> float:
    return seconds * clock / own_clock if clock and own_clock else seconds


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
    plain = fit(_data(curve), tiling, best.slots, bandwidth) if clock else None
    unscaled = plain.quality if plain else None
    return Staircase(scaled, unscaled, tiling, fits, errors, clock, sms)


def _data(curve: Curve) -> Data:
    points = curve.points
    return Data([p.m for p in points], [p.seconds for p in points], [p.moved for p in points])


def steps(curve: Curve) -> list[Step]:
    """Return all pairs of sizes that are one row apart, sorted by M."""
    pairs = zip(curve.points, curve.points[1:], strict=False)
    return [Step(before, after) for before, after in pairs if after.m == before.m + 1]


def step_at(curve: Curve, m: int) -> Step | None:
    """Return the step from m to m + 1, where both were measured."""
    before, after = curve.at(m), curve.at(m + 1)
    return Step(before, after) if before and after else None


def worst_step(curve: Curve, smallest: int = 0) -> Step | None:
    """Return the step that costs most and is more than noise, from `smallest` rows on."""
    found = [step for step in steps(curve) if step.certain and step.before.m >= smallest]
    return max(found, key=lambda step: step.loss, default=None)


@dataclass(frozen=True)
class Inversion:
    """A size that takes longer than a larger one: `gain` is the time that padding to it saves."""

    point: Point
    larger: Point

    @property
    def gain(self) -> float:
        """1 - larger / point."""
        return 1 - self.larger.seconds / self.point.seconds


def inversions(curve: Curve) -> list[Inversion]:
    """Return the sizes for which a larger one is faster, by more than the intervals; worst first.

    Beside each stands the fastest of the larger ones.
    """
    found = []
    for place, point in enumerate(curve.points):
        larger = [other for other in curve.points[place + 1 :] if other.high < point.low]
        if larger:
            found.append(Inversion(point, min(larger, key=lambda other: other.seconds)))
    return sorted(found, key=lambda one: -one.gain)


def median_loss(curve: Curve, edges: Sequence[int]) -> float | None:
    """Return the median loss of the steps at `edges`; None where none was measured."""
    found = [step.loss for step in (step_at(curve, edge) for edge in edges) if step]
    return median(found) if found else None


def highest_rate(points: Sequence[Point]) -> float | None:
    """Return the highest bytes a second of a cold case: what DRAM gives this kind of kernel."""
    rates = [p.moved / p.seconds for p in points if p.moved > 0 and p.mode == "cold"]
    return max(rates, default=None)


@dataclass(frozen=True)
class Batches:
    """Small M of one dtype, sorted; M = 1 is the first. `hot`: the same with warm weights."""

    dtype: str
    variant: str
    points: tuple[Point, ...]
    hot: tuple[Point, ...] = ()

    def extra(self, m: int) -> float | None:
        """Return how much longer M = m takes than M = 1, as a fraction."""
        point = next((point for point in self.points if point.m == m), None)
        return point.seconds / self.points[0].seconds - 1 if point else None


def batches(points: Sequence[Point]) -> list[Batches]:
    """Return the small sizes by dtype and variant, those with M = 1 only."""
    found: dict[tuple[str, str, str], list[Point]] = {}
    for point in sorted(points, key=lambda point: point.m):
        if point.group == "batch":
            found.setdefault((point.dtype, point.variant, point.mode), []).append(point)
    sets = [
        Batches(dtype, variant, tuple(own), tuple(found.get((dtype, variant, "hot"), ())))
        for (dtype, variant, mode), own in sorted(found.items())
        if mode == "cold"
    ]
    return [one for one in sets if one.points[0].m == 1]


@dataclass(frozen=True)
class OddSize:
    """A product beside that of the even sizes next to it: one side is `away` from `base`."""

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
    def loss(self) -> float | None:
        """Part of the throughput (useful FLOP/s) of the base that is lost; below 0 where gained."""
        return 1 - self.point.rate / self.base.rate if self.point else None


def odd_sizes(points: Sequence[Point], refused: Sequence[Refused]) -> list[OddSize]:
    """Return the odd sizes beside their base, by dtype, side and size.

    The base is the product whose three sizes are the same.
    """
    group = [point for point in points if point.group == "odd" and point.mode == "cold"]
    found = []
    for base in (point for point in group if point.m == point.n == point.k):
        sizes = (base.m, base.n, base.k)
        others: list[Point | Refused] = [*group, *(one for one in refused if one.group == "odd")]
        for other in others:
            if (other.dtype, other.variant) != (base.dtype, base.variant):
                continue
            shape = other.shape if isinstance(other, Refused) else (other.m, other.n, other.k)
            changed = [i for i in range(3) if shape[i] != sizes[i]]
            if len(changed) == 1:
                place = changed[0]
                ran = other if isinstance(other, Point) else None
                why = other if isinstance(other, Refused) else None
                found.append(OddSize(base, "mnk"[place], shape[place] - sizes[place], ran, why))
    return sorted(found, key=lambda odd: (odd.base.dtype, "mnk".index(odd.side), odd.away))
