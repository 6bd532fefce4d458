"""What the staircase means to who chooses sizes, in sentences with their evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nsight_prof.reports.bench.gemm_staircase_points import VARIANTS, Curve, Point
from nsight_prof.reports.bench.gemm_staircase_steps import (
    Batches,
    OddSize,
    Staircase,
    Step,
    inversions,
    median_loss,
    step_at,
    worst_step,
)
from nsight_prof.reports.bench.gemm_staircase_tables import MODEL_WORDS, inner_edges
from nsight_prof.reports.bench.models import BenchFinding
from nsight_prof.reports.formats import (
    byte_rate,
    clock,
    counted,
    difference,
    flop_rate,
    listed,
    percent,
    seconds,
    share,
    significant,
)

SMALL = 64  # sizes up to here are batches of decoding, and wait for memory
NEXT_WHOLE = 8  # away from the base, and still a multiple of 8
COST = 0.02  # a step or an inversion below this is no news
MUCH = 0.1  # a loss that even who knows no GPUs should hear of
TWICE = 2.0


def findings(
    sweeps: Sequence[Curve],
    staircases: Sequence[Staircase],
    sets: Sequence[Batches],
    odd: Sequence[OddSize],
    sms: int | None,
) -> tuple[BenchFinding, ...]:
    """Return the findings that the cases allow, one a matter: first what costs a user most."""
    pinned = [one.curve.what for one in staircases]
    libraries = [curve for curve in sweeps if curve.what not in pinned]
    found = [
        _together(_odd(odd)),
        _together(_pinned(one, sweeps) for one in staircases),
        _together(_choices(curve) for curve in libraries),
        _together(_batches(sets, libraries)),
        _together(_fit(one) for one in staircases),
        _together(_throughput(sweeps, sms)),
    ]
    return tuple(finding for finding in found if finding is not None)


def _together(found: Iterable[BenchFinding | None]) -> BenchFinding | None:
    """Return the finding of the first dtype, with those of the others in its evidence."""
    told = [finding for finding in found if finding is not None]
    if not told:
        return None
    more = [f"{finding.sentence} {finding.evidence}" for finding in told[1:]]
    plain = next((finding.plain for finding in told if finding.plain), "")
    return replace(told[0], evidence=" ".join([told[0].evidence, *more]), plain=plain)


def _pinned(one: Staircase, sweeps: Sequence[Curve]) -> BenchFinding | None:
    """Return what the edges of waves cost the pinned kernel, and cuBLAS at the same sizes."""
    own = next(curve for curve in sweeps if curve.what == one.curve.what)
    edges = one.edges()
    steps = [step for step in (step_at(own, edge) for edge in edges) if step]
    worst = max(steps, key=lambda step: step.loss, default=None)
    if worst is None:
        return None
    before, after = worst.before, worst.after
    library = next((c for c in sweeps if c.dtype == own.dtype and c.what != own.what), None)
    beside = _beside(library, edges, before.m) if library else ""
    most = _most(library, edges) if library else None
    paid = f"; cuBLAS pays at most {share(most)} there" if most is not None else ""
    return BenchFinding(
        f"{own.what}, pinned tile: M = {after.m} takes {share(worst.loss)} longer than "
        f"M = {before.m} ({seconds(after.seconds)} against {seconds(before.seconds)}): one row "
        f"more begins wave {one.tiling.waves(after.m, one.waves.slots)}{paid}.",
        f"At the {len(steps)} edges of waves one row more costs the pinned tile "
        f"{_range(steps)}. 95 % intervals of the worst: {_interval(before)} and "
        f"{_interval(after)}; SM clocks {clock(before.clock_hz)} and {clock(after.clock_hz)}; "
        f"N = {before.n}, K = {before.k}.{beside}",
        "Times as measured: where a fuller wave runs at a lower clock, because it draws more "
        "power, the step is smaller than at a fixed clock.",
        plain="A batch that is one row too large for the GPU's last full round of work can cost "
        f"{share(worst.loss)} more time in a kernel of one fixed shape. NVIDIA's library, which "
        f"picks a shape for each size, pays at most {share(most)} there."
        if most is not None
        else "",
    )


def _beside(library: Curve, edges: Sequence[int], worst: int) -> str:
    """Return what the library pays at the same edges, and which tiles it takes at the worst."""
    steps = [step for step in (step_at(library, edge) for edge in edges) if step]
    if not steps:
        return ""
    at = step_at(library, worst)
    tiles = [_tile(at.before), _tile(at.after)] if at else []
    changed = (
        f": at {worst} it changes its tile from {tiles[0]} to {tiles[1]}"
        if len(set(tiles)) > 1 and all(tiles)
        else ""
    )
    return f" {library.what} pays {_range(steps)} at these edges{changed}."


def _most(library: Curve, edges: Sequence[int]) -> float | None:
    losses = [step.loss for step in (step_at(library, edge) for edge in edges) if step]
    return max(losses, default=None)


def _tile(point: Point) -> str:
    return f"{point.tiling.tile_m}x{point.tiling.tile_n}" if point.tiling else ""


def _range(steps: Sequence[Step]) -> str:
    losses = [step.loss for step in steps]
    if len(losses) == 1:
        return difference(losses[0])
    return f"{difference(min(losses))} to {difference(max(losses))}"


def _choices(curve: Curve) -> BenchFinding | None:
    """Return how well the library chooses: its largest step, and sizes beaten by larger ones."""
    step, beaten = worst_step(curve, SMALL), inversions(curve)
    parts, evidence = [], [f"{len(curve.points)} sizes, N = {curve.points[0].n}."]
    if beaten and beaten[0].gain >= COST:
        worst = beaten[0]
        parts.append(
            f"{len(beaten)} of {len(curve.points)} sizes take longer than a larger one; padding "
            f"M = {worst.point.m} to {worst.larger.m} would save {share(worst.gain)}"
        )
        evidence.append(
            f"M = {worst.point.m} takes {seconds(worst.point.seconds)}, {worst.larger.m} "
            f"{seconds(worst.larger.seconds)}."
        )
        listing = ", ".join(f"{o.point.m} to {o.larger.m}: {share(o.gain)}" for o in beaten[:8])
        evidence.append(f"Largest savings by padding M: {listing}.")
    if step and step.loss >= COST:
        parts.append(
            f"the largest step for one row is {difference(step.loss)}, from M = {step.before.m} "
            f"to {step.after.m}"
        )
        evidence.append(
            f"95 % intervals at that step: {_interval(step.before)} and {_interval(step.after)}."
        )
    if not parts:
        return None
    return BenchFinding(
        f"{curve.what}: {'; '.join(parts)}.",
        " ".join(evidence),
        "Another version of the library, or another GPU, chooses other tiles.",
    )


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
    lost: list[tuple[float, str]] = []
    kernels, padded = [], []
    for side in "mnk":
        own = [one for one in odd if one.side == side and one.loss is not None]
        uneven = [one for one in own if one.away % NEXT_WHOLE]
        worst = max(uneven, key=lambda one: one.loss or 0, default=None)
        if worst is None or worst.point is None or worst.loss is None:
            continue
        lost.append((worst.loss, f"{side.upper()} = {worst.size} {_lost(worst.loss)}"))
        padded += [one for one in own if one.away == NEXT_WHOLE]
        kernels.append(f"{side.upper()} = {worst.size}: {worst.point.kernel or 'kernel unknown'}")
    refused = [one.refused for one in odd if one.refused]
    why = sorted({one.reason for one in refused})
    closed = (
        f" {counted(len(refused), 'size')} more: {refused[0].status} ({why[0]})." if why else ""
    )
    if not lost:
        return None
    lost.sort(key=lambda pair: -pair[0])
    most = lost[0][0]
    left = max((one.loss for one in padded if one.loss is not None), default=None)
    even = (
        f"; padded to {padded[0].size}, at most {share(max(left, 0.0))}" if left is not None else ""
    )
    return BenchFinding(
        f"{base.what}, sizes that are not a multiple of 8: {listed([words for _, words in lost])} "
        f"of the throughput of {base.m} x {base.n} x {base.k}{even}.",
        f"Base: {seconds(base.seconds)}, {flop_rate(base.rate)}, "
        f"{base.kernel or 'kernel unknown'}. {'; '.join(kernels)}.{closed}",
        "Measured for one base size; a small product may lose less.",
        plain=f"A size that is no multiple of 8 can cost a matrix product {share(most)} of its "
        "speed: round it up to the next multiple."
        if most >= MUCH
        else "",
    )


def _lost(loss: float) -> str:
    return f"gains {share(-loss)}" if loss < 0 else f"loses {share(loss)}"


def _batches(sets: Sequence[Batches], libraries: Sequence[Curve]) -> list[BenchFinding]:
    return [
        _batch(one, next((c for c in libraries if c.what == one.points[0].what), None))
        for one in sets
        if len(one.points) > 1
    ]


def _batch(one: Batches, sweep: Curve | None) -> BenchFinding:
    """Return what a larger batch costs, up to the M at which the time has doubled."""
    first, last = one.points[0], one.points[-1]
    twice = [p for p in (sweep.points if sweep else ()) if p.seconds > TWICE * first.seconds]
    doubled = f" The time of M = 1 has doubled at M = {twice[0].m}." if twice else ""
    hot = next((p for p in one.hot if p.m == first.m), None)
    warm = f" With warm weights M = 1 takes {seconds(hot.seconds)}." if hot else ""
    return BenchFinding(
        f"{first.what}: M = {last.m} takes {share(one.extra(last.m))} longer than M = {first.m} "
        f"({seconds(last.seconds)} against {seconds(first.seconds)}), at "
        f"{significant(last.rate / first.rate)} times the throughput.{doubled}",
        f"Weights of {first.n} x {first.k} from DRAM at {byte_rate(first.moved / first.seconds)} "
        f"(M = {first.m}) and {byte_rate(last.moved / last.seconds)} (M = {last.m}).{warm}",
        "Holds where the weights do not stay in L2 between calls.",
        plain=f"Answering {last.m} requests at once takes {share(one.extra(last.m))} longer than "
        "answering one: collect requests.",
    )


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
    """Return the best throughput of each kernel, a finding a dtype."""
    found = []
    for dtype in dict.fromkeys(curve.dtype for curve in sweeps):
        own = [curve for curve in sweeps if curve.dtype == dtype]
        parts = []
        for curve in own:
            best = max(curve.points, key=lambda point: point.rate)
            per_sm = f", {significant(best.rate / 1e12 / sms)} TFLOP/s per SM" if sms else ""
            name = VARIANTS.get(curve.variant, curve.variant)
            parts.append(f"{name} {flop_rate(best.rate)} (M = {best.m}{per_sm})")
        busy = [_busiest(curve) for curve in own]
        found.append(
            BenchFinding(
                f"{dtype}, best of the sweep: {listed(parts)}.",
                f"{sum(len(curve.points) for curve in own)} sizes, N = {own[0].points[0].n}, "
                f"K = {own[0].points[0].k}.{''.join(busy)}",
            )
        )
    return found


def _busiest(curve: Curve) -> str:
    """Return the highest use of the Tensor Cores that counters saw."""
    points = [point for point in curve.points if point.tensor_pct is not None]
    best = max(points, key=lambda point: point.tensor_pct or 0.0, default=None)
    if best is None:
        return ""
    return f" {curve.what}: Tensor pipe active {percent(best.tensor_pct)} at M = {best.m}."
