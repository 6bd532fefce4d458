"""What the staircase means to who chooses sizes: shape, tile and batch, and what each gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nsight_prof.parsers.cells import grouped
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Finding, Number, Text, Value, Verbatim
from nsight_prof.reports.studies.gemm_staircase.points import (
    Curve,
    Measured,
    OddSize,
    Staircase,
    inversions,
    worst_step,
)

SENTENCES = Sentences("gemm_staircase")

MODELS = {
    "waves": Text("whole waves of whole tiles"),
    "tiles": Text("whole tiles, no waves"),
    "continuous": Text("M x N, no tiles"),
}
SMALL = 64
"""Sizes up to here are batches of decoding, bound by memory."""
SIDES = {"m": Text("rows"), "n": Text("outputs"), "k": Text("inputs")}
"""What the sides of a product with weights are to readers who do not know GPUs."""
MULTIPLE = 8
"""Distance from the base at which a size is a multiple of 8 again."""
NEGLIGIBLE = 0.02
"""A step or an inversion below this is no news."""
LARGE = 0.1
"""A loss that readers who do not know GPUs should hear of."""
DOUBLED = 2.0
LISTED = 8
"""Paddings that the evidence lists."""


def findings(measured: Measured) -> tuple[Finding, ...]:
    """Return the findings that the cases allow, what costs a user most first."""
    rules = (_odd_sizes, _wave_edges, _padding, _small_batches, _tile_model, _throughput)
    return tuple(finding for rule in rules if (finding := rule(measured)) is not None)


def _fraction(value: float | None) -> Number:
    return Number(value, "fraction")


def _odd_sizes(measured: Measured) -> Finding | None:
    """State what sizes that are no multiple of 8 lose, and what padding gives back."""
    ran = [size for size in measured.odd if size.point]
    odd = (size for size in ran if size.away % MULTIPLE)
    by_side = grouped(odd, lambda size: (size.base, size.side))
    worst = [max(sizes, key=_loss) for sizes in by_side.values()]
    if not worst:
        return None
    base = worst[0].base
    leading = sorted((size for size in worst if size.base == base), key=_loss, reverse=True)
    most_lost = leading[0]
    evidence: list[Text] = []
    if padded := [size for size in ran if size.base == base and size.away == MULTIPLE]:
        evidence.append(
            Text(
                "padded to {size} at most {loss} is lost",
                size=str(max(padded, key=_loss).size),
                loss=_fraction(max(0.0, *map(_loss, padded))),
            )
        )
    evidence += [
        Text("{kernel}: {losses}", kernel=b.name, losses=_losses([s for s in worst if s.base == b]))
        for b in dict.fromkeys(size.base for size in worst)
        if b != base
    ]
    if refused := [size.product for size in measured.odd if not size.point]:
        reasons = sorted({f"{r.dtype}, {r.status}: {r.reason}" for r in refused})
        evidence.append(
            Text(
                "{n} size did not run ({reasons})",
                "{n} sizes did not run ({reasons})",
                n=len(refused),
                reasons=[Verbatim(reason) for reason in reasons],
            )
        )
    matter = [size for size in leading if _loss(size) >= LARGE] or leading
    little = [size for size in leading if size not in matter]
    sides: list[Value] = [size.side.upper() for size in matter]
    instead = next((size for size in padded if size.side == most_lost.side), None)
    saved = None
    if instead and instead.point and most_lost.point:
        saved = _fraction(1 - instead.point.seconds / most_lost.point.seconds)
    found = SENTENCES.finding(
        "odd_sizes",
        evidence,
        sides=sides,
        kernel=base.name,
        losses=_losses(matter),
        base=base.shape,
        little=Text("; {losses} only", losses=_losses(little)) if little else "",
        padded=instead.label if instead and saved else None,
        saved=saved,
        size=most_lost.label if saved else None,
    )
    lay_verdict = SENTENCES.text(
        "odd_size", sides=[SIDES[size.side] for size in matter], part=_fraction(most_lost.loss)
    )
    return replace(found, lay_verdict=lay_verdict, technical=_loss(most_lost) < LARGE)


def _loss(size: OddSize) -> float:
    return size.loss or 0.0


def _losses(sizes: Sequence[OddSize]) -> list[Text]:
    return [
        Text(
            "{size} loses {loss}",
            size=size.label,
            loss=Number(size.loss, "fraction", (size.point.ref,) if size.point else ()),
        )
        if _loss(size) >= 0
        else Text("{size} gains {gain}", size=size.label, gain=_fraction(-_loss(size)))
        for size in sizes
    ]


def _wave_edges(measured: Measured) -> Finding | None:
    """State what the edges of waves cost a pinned tile, and the library at the same sizes."""
    fitted = [s for s in measured.staircases if s.measured.steps(s.edges())]
    if not fitted:
        return None
    first = fitted[0]
    worst = max(first.measured.steps(first.edges()), key=lambda step: step.loss)
    library = measured.library_of(first)
    of_library = library.steps(first.edges()) if library else []
    spared: Value = ""
    lowest = None
    if library and of_library:
        anywhere = worst_step(library, SMALL)
        steps = [*of_library, *([anywhere] if anywhere else [])]
        costliest = max(steps, key=lambda step: step.loss)
        lowest = costliest.cost
        spared = Text(
            "; {library} loses at most {loss} at these edges, {most} at any one row (M = {m})",
            library=library.points[0].library,
            loss=_fraction(max(step.loss for step in of_library)),
            most=costliest.cost,
            m=str(costliest.after.m),
        )
    chosen = library.at(worst.after.m) if library else None
    found = SENTENCES.finding(
        "wave_edges",
        loss=worst.cost,
        kernel=first.curve.name,
        after=worst.after.time,
        m=str(worst.after.m),
        before=worst.before.time,
        fits=str(worst.before.m),
        library=spared,
        tile=first.tiling.name,
        edges=[str(edge) for edge in first.edges()],
        alternative=Text(
            ", or choose the tile by size: {library} takes {tile} at M = {m} and needs {time}",
            library=chosen.library,
            tile=chosen.tiling.name,
            m=str(chosen.m),
            time=chosen.time,
        )
        if chosen and chosen.tiling
        else "",
        least=lowest,
    )
    return replace(found, technical=lowest is None)


def _padding(measured: Measured) -> Finding | None:
    """State how well the library chooses: sizes beaten by larger ones, and its largest step."""
    evidence: list[Text] = []
    for curve in measured.libraries:
        evidence += _padding_evidence(curve)
    if not evidence:
        return None
    curve = measured.libraries[0]
    beaten = inversions(curve)
    if not beaten or -beaten[0].loss < NEGLIGIBLE:
        return SENTENCES.finding("padding/none", evidence, kernel=curve.name)
    worst = beaten[0]
    return SENTENCES.finding(
        "padding",
        evidence,
        n=len(beaten),
        total=len(curve.points),
        kernel=curve.name,
        saved=worst.saved,
        m=str(worst.before.m),
        before=worst.before.time,
        larger=str(worst.after.m),
        after=worst.after.time,
    )


def _padding_evidence(curve: Curve) -> Iterator[Text]:
    paddings = [
        Text(
            "{m} to {larger} {saved}",
            m=str(inversion.before.m),
            larger=str(inversion.after.m),
            saved=_fraction(-inversion.loss),
        )
        for inversion in inversions(curve)[:LISTED]
    ]
    step = worst_step(curve, SMALL)
    if paddings and -inversions(curve)[0].loss >= NEGLIGIBLE:
        yield Text("{kernel}, saved by padding M: {paddings}", kernel=curve.name, paddings=paddings)
    if step is not None and step.loss >= NEGLIGIBLE:
        yield SENTENCES.text(
            "padding_evidence",
            kernel=curve.name,
            loss=step.cost,
            m=str(step.before.m),
            before=step.before.time,
            larger=str(step.after.m),
            after=step.after.time,
        )


def _small_batches(measured: Measured) -> Finding | None:
    """State what a larger batch costs, and the M at which the time has doubled."""
    batches = [batch for batch in measured.small if len(batch.cold.points) > 1]
    if not batches:
        return None
    first, *_, last = batches[0].cold.points
    sweep = next((c for c in measured.libraries if c.name == first.name), None)
    slow = [p for p in (sweep.points if sweep else ()) if p.seconds > DOUBLED * first.seconds]
    extra = batches[0].extra(last)
    return SENTENCES.finding(
        "small_batches",
        kernel=first.name,
        extra=extra,
        m=last.m,
        smallest=first.m,
        slow=last.time,
        fast=first.time,
        times=last.throughput.times(first.throughput),
        doubled=Text("; the time of M = 1 doubles at M = {m}", m=slow[0].m) if slow else "",
        n=last.m,
        part=extra,
    )


def _tile_model(measured: Measured) -> Finding | None:
    """State what a wave costs, and whether the steps are told from a smooth rise."""
    if not measured.staircases:
        return None
    first = measured.staircases[0]
    evidence = [fact for staircase in measured.staircases for fact in _fit_evidence(staircase)]
    if not all(staircase.beats_controls for staircase in measured.staircases):
        return SENTENCES.finding("tile_model/smooth", evidence)
    return SENTENCES.finding(
        "tile_model",
        evidence,
        fixed=Number(first.waves.t0_s, "s"),
        wave=Number(first.waves.t_unit_s, "s"),
        kernel=first.curve.name,
        error=_fraction(first.waves.quality.median_error),
        sms=first.sm_count,
        ctas=first.ctas_per_sm,
        tile_m=first.tiling.tile_m,
        tile_n=first.tiling.tile_n,
    )


def _fit_evidence(staircase: Staircase) -> Iterator[Text]:
    yield Text(
        "{kernel}: median errors {errors}",
        kernel=staircase.curve.name,
        errors=[
            Text(
                "{error} ({model})",
                error=_fraction(fit.quality.median_error),
                model=MODELS[fit.model],
            )
            for fit in staircase.fits
        ],
    )
    inside = staircase.median_loss(staircase.tile_edges())
    edges = staircase.median_loss(staircase.edges())
    if inside is not None and edges is not None:
        yield SENTENCES.text(
            "fit_evidence",
            edges=_fraction(edges),
            inside=_fraction(inside),
        )


def _throughput(measured: Measured) -> Finding | None:
    """State the best throughput of each kernel, and what the choice of the tile gains."""
    if not measured.sweeps:
        return None
    dtype = measured.sweeps[0].dtype
    best = [curve.fastest for curve in measured.sweeps if curve.dtype == dtype]
    best.sort(key=lambda point: -point.rate)
    first, runner_up = best[0], best[1] if len(best) > 1 else None
    return replace(
        SENTENCES.finding(
            "best_throughput",
            tuple(fact for curve in measured.sweeps for fact in _best(curve, measured.sms)),
            dtype=dtype,
            rate=first.throughput,
            kernel=first.library,
            m=str(first.m),
            n=str(first.n),
            k=str(first.k),
        ),
        action=SENTENCES.text(
            "throughput",
            kernel=first.library,
            tile=runner_up.tiling.name,
            times=first.throughput.times(runner_up.throughput),
        )
        if runner_up and runner_up.tiling
        else None,
    )


def _best(curve: Curve, sms: int | None) -> list[Text]:
    """Return the best throughput of a kernel and the highest use of its Tensor Cores."""
    point = curve.fastest
    values: dict[str, Value] = {"kernel": curve.name, "rate": point.throughput, "m": str(point.m)}
    facts = [Text("{kernel} {rate} (M = {m})", **values)]
    if sms:
        per_sm = Number(point.rate / sms, "FLOP/s")
        facts = [Text("{kernel} {rate} (M = {m}, {per_sm} per SM)", **values, per_sm=per_sm)]
    busiest = max(curve.points, key=lambda point: point.tensor_pct or 0.0)
    if busy := busiest.tensor:
        facts.append(Text("Tensor pipe active {busy} at M = {m}", busy=busy, m=str(busiest.m)))
    return facts
