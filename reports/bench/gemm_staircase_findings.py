"""What the staircase means to who chooses sizes, in sentences with their evidence."""

from __future__ import annotations

from collections.abc import Sequence

from reports.bench.gemm_staircase_points import Curve, Point
from reports.bench.gemm_staircase_steps import (
    Batches,
    OddSize,
    Staircase,
    Step,
    median_loss,
    worst_step,
)
from reports.bench.gemm_staircase_tables import MODEL_WORDS, inner_edges
from reports.bench.models import BenchFinding
from reports.formats import difference, flop_rate, listed, seconds, share, significant

SMALL = 64  # sizes up to here are batches of decoding, and wait for memory
NEXT_WHOLE = 8  # away from the base, and still a multiple of 8
FREE = 0.05  # more time than this is a cost


def findings(
    sweeps: Sequence[Curve],
    staircases: Sequence[Staircase],
    sets: Sequence[Batches],
    odd: Sequence[OddSize],
    sms: int | None,
) -> tuple[BenchFinding, ...]:
    """Return the findings that the cases allow, the costliest kind first."""
    found = [
        *_tails(sweeps),
        *_odd(odd),
        *_batches(sets),
        *(_fit(one) for one in staircases),
        *_throughput(sweeps, sms),
    ]
    return tuple(found)


def _tails(sweeps: Sequence[Curve]) -> list[BenchFinding]:
    """Return the worst step of each kernel, worst first."""
    pairs = [(curve, step) for curve in sweeps if (step := worst_step(curve, SMALL)) is not None]
    pairs = [(curve, step) for curve, step in pairs if step.loss >= FREE]
    return [_tail(*pair) for pair in sorted(pairs, key=lambda pair: -pair[1].loss)]


def _tail(curve: Curve, step: Step) -> BenchFinding:
    before, after = step.before, step.after
    end = _last_before(curve, after)
    until = ""
    if end is not None:
        more = end.seconds / after.seconds - 1
        until = (
            f" From there to M = {end.m} the time changes by {difference(more)} for "
            f"{difference(end.m / after.m - 1)} more rows."
        )
    return BenchFinding(
        f"{curve.what}: M = {after.m} takes {share(step.loss)} longer than M = {before.m} "
        f"({seconds(after.seconds)} against {seconds(before.seconds)}), for one row more.{until}",
        f"Medians with 95 % intervals {_interval(before)} and {_interval(after)}; "
        f"N = {before.n}, K = {before.k}. The worst of the neighbouring sizes above M = {SMALL}.",
        "Another version of the library, or another GPU, has its edges elsewhere."
        if curve.variant == "cublas"
        else "",
        plain="A batch that is one row too large for the GPU's last full round of work costs "
        f"{share(step.loss)} more time: sizes should fill whole rounds.",
    )


def _last_before(curve: Curve, start: Point) -> Point | None:
    """Return the largest size whose time is within 5 % of `start`, with no step before it."""
    last = None
    for point in curve.points:
        if point.m <= start.m:
            continue
        if point.seconds > start.seconds * (1 + FREE):
            break
        last = point
    return last


def _interval(point: Point) -> str:
    return f"{seconds(point.low)} to {seconds(point.high)}"


def _odd(odd: Sequence[OddSize]) -> list[BenchFinding]:
    return [
        finding
        for dtype in dict.fromkeys(one.base.dtype for one in odd)
        if (finding := _odd_of([one for one in odd if one.base.dtype == dtype])) is not None
    ]


def _odd_of(odd: Sequence[OddSize]) -> BenchFinding | None:
    """Return what sizes that are no multiple of 8 lose, by side, and what padding gives back."""
    base = odd[0].base
    parts, kernels = [], []
    for side in "mnk":
        own = [one for one in odd if one.side == side and one.loss is not None]
        uneven = [one for one in own if one.away % NEXT_WHOLE]
        worst = max(uneven, key=lambda one: one.loss or 0, default=None)
        if worst is None or worst.point is None or worst.loss is None:
            continue
        whole = next((one for one in own if one.away == NEXT_WHOLE), None)
        padded = f" ({whole.size}: {_lost(whole.loss)})" if whole and whole.loss is not None else ""
        parts.append(f"{side.upper()} = {worst.size} {_lost(worst.loss)}{padded}")
        kernels.append(f"{side.upper()} = {worst.size}: {worst.point.kernel or 'kernel unknown'}")
    refused = sorted({one.side.upper() for one in odd if one.refused})
    closed = f" Refused for some sizes of {listed(refused)}." if refused else ""
    if not parts:
        return None
    return BenchFinding(
        f"{base.what}, sizes that are not a multiple of 8, against {base.m} x {base.n} x {base.k}: "
        f"{listed(parts)} of the throughput.{closed}",
        f"Base: {seconds(base.seconds)}, {flop_rate(base.rate)}, "
        f"{base.kernel or 'kernel unknown'}. {'; '.join(kernels)}.",
        "Measured for one base size; a small product may lose less.",
        plain="Sizes that are not multiples of 8 can make a matrix product much slower: pad them.",
    )


def _lost(loss: float) -> str:
    return f"gains {share(-loss)}" if loss < 0 else f"loses {share(loss)}"


def _batches(sets: Sequence[Batches]) -> list[BenchFinding]:
    found = []
    for one in sets:
        first, last = one.points[0], one.points[-1]
        worst = max(one.points, key=lambda point: point.seconds)
        found.append(
            BenchFinding(
                f"{first.what}: M from {first.m} to {last.m} changes the time by "
                f"{difference(one.extra(last.m))} ({seconds(first.seconds)} to "
                f"{seconds(last.seconds)}), at {significant(last.rate / first.rate)} times the "
                "throughput: batching is nearly free here."
                if (one.extra(last.m) or 0) < 1
                else f"{first.what}: M from {first.m} to {last.m} takes "
                f"{significant(last.seconds / first.seconds)} times as long.",
                f"Slowest between: M = {worst.m}, {seconds(worst.seconds)}. The weights "
                f"({first.n} x {first.k}) are read from DRAM for each call.",
                "Holds where the weights do not stay in L2 between calls.",
                plain=f"Answering up to {last.m} requests at once costs little more time than one.",
            )
        )
    return found


def _fit(one: Staircase) -> BenchFinding:
    waves = one.waves
    controls = {found.model: found.quality for found in one.fits[1:]}
    beaten = [
        f"{share(quality.median_error)} for {MODEL_WORDS[model]}"
        for model, quality in controls.items()
    ]
    is_real = all(
        waves.quality.median_error < quality.median_error
        and waves.quality.r_squared > quality.r_squared
        for quality in controls.values()
    )
    verdict = "the steps are real" if is_real else "the steps are NOT told from a smooth rise"
    inside, edges = median_loss(one.curve, inner_edges(one)), median_loss(one.curve, one.edges())
    told = (
        f" A row more costs {difference(edges)} at the edge of a wave and {difference(inside)} at "
        "an edge of a tile within one (medians)."
        if inside is not None and edges is not None
        else ""
    )
    return BenchFinding(
        f"{one.curve.what}, pinned tile: t = {seconds(waves.t0_s)} + waves x "
        f"{seconds(waves.t_unit_s)} predicts the latency within "
        f"{share(waves.quality.median_error)} (median; p90 {share(waves.quality.p90_error)}); "
        f"{verdict}.",
        f"R^2 {significant(waves.quality.r_squared, 4)} over {waves.points} sizes, "
        f"{one.ctas_per_sm} CTA on an SM. Controls with as many parameters, median error: "
        f"{listed(beaten)}.{told}",
        "Fitted to the sizes that it is judged by; two parameters against all these sizes.",
    )


def _throughput(sweeps: Sequence[Curve], sms: int | None) -> list[BenchFinding]:
    found = []
    for curve in sweeps:
        best = max(curve.points, key=lambda point: point.rate)
        later = [point for point in curve.points if point.m > best.m]
        after = min(later, key=lambda point: point.rate, default=None)
        per_sm = f", {significant(best.rate / 1e12 / sms)} TFLOP/s per SM" if sms else ""
        tail = (
            f" Larger sizes fall to {share(after.rate / best.rate)} of it (M = {after.m})."
            if after
            else ""
        )
        used = f" Tensor pipe active {significant(best.tensor_pct)} %." if best.tensor_pct else ""
        found.append(
            BenchFinding(
                f"{curve.what} reaches {flop_rate(best.rate)}{per_sm} at best, at M = {best.m}."
                f"{tail}",
                f"{len(curve.points)} sizes, N = {best.n}, K = {best.k}.{used}",
            )
        )
    return found
