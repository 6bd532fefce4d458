"""What the staircase means to who chooses sizes: shape, tile and batch, and what each gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsight_prof.reports.page import Evidence, Finding, Number, Text, Value, Verbatim
from nsight_prof.reports.studies.gemm_staircase.points import Curve, Point
from nsight_prof.reports.studies.gemm_staircase.steps import (
    Batches,
    Inversion,
    OddSize,
    Staircase,
    Step,
    inversions,
    median_loss,
    step_at,
    steps_at,
    worst_step,
)
from nsight_prof.reports.studies.gemm_staircase.tables import MODELS, library_of

SMALL = 64
"""Sizes up to here are batches of decoding, bound by memory."""
MULTIPLE = 8
"""Distance from the base at which a size is a multiple of 8 again."""
NEGLIGIBLE = 0.02
"""A step or an inversion below this is no news."""
LARGE = 0.1
"""A loss that readers who do not know GPUs should hear of."""
DOUBLED = 2.0
LISTED = 8
"""Paddings that the evidence lists."""
Facts = list[Evidence | Text]


@dataclass(frozen=True)
class Measured:
    """What the findings are about."""

    sweeps: Sequence[Curve]
    staircases: Sequence[Staircase]
    small: Sequence[Batches]
    odd: Sequence[OddSize]
    sms: int | None

    @property
    def libraries(self) -> list[Curve]:
        """The sweeps whose kernel chooses a tile for each size."""
        pinned = {staircase.curve.name for staircase in self.staircases}
        return [curve for curve in self.sweeps if curve.name not in pinned]


def findings(measured: Measured) -> tuple[Finding, ...]:
    """Return the findings that the cases allow, what costs a user most first."""
    rules = (_odd_sizes, _wave_edges, _padding, _small_batches, _tile_model, _throughput)
    return tuple(finding for rule in rules if (finding := rule(measured)) is not None)


def _fraction(value: float) -> Number:
    return Number(value, "fraction")


@dataclass(frozen=True)
class _Uneven:
    """The worst size of each side that is no multiple of 8, of one dtype, the worst side first."""

    worst: tuple[OddSize, ...]
    padded: tuple[OddSize, ...]

    @property
    def losses(self) -> list[Text]:
        """Each of these sizes with its loss."""
        return [
            Text("{size} loses {loss}", size=size.label, loss=_lost(size))
            if (size.loss or 0.0) >= 0
            else Text("{size} gains {gain}", size=size.label, gain=_fraction(-(size.loss or 0.0)))
            for size in self.worst
        ]


def _lost(size: OddSize) -> Number:
    refs = (size.point.ref,) if size.point else ()
    return Number(size.loss, "fraction", refs)


def _uneven(odd: Sequence[OddSize]) -> _Uneven | None:
    worst, padded = [], []
    for side in "mnk":
        ran = [size for size in odd if size.side == side and size.loss is not None]
        uneven = [size for size in ran if size.away % MULTIPLE]
        if uneven:
            worst.append(max(uneven, key=lambda size: size.loss or 0.0))
            padded += [size for size in ran if size.away == MULTIPLE]
    worst.sort(key=lambda size: -(size.loss or 0.0))
    return _Uneven(tuple(worst), tuple(padded)) if worst else None


def _odd_sizes(measured: Measured) -> Finding | None:
    """State what sizes that are no multiple of 8 lose, by side, and what padding gives back."""
    by_dtype = {}
    for dtype in dict.fromkeys(size.base.dtype for size in measured.odd):
        uneven = _uneven([size for size in measured.odd if size.base.dtype == dtype])
        if uneven is not None:
            by_dtype[dtype] = uneven
    if not by_dtype:
        return None
    uneven = next(iter(by_dtype.values()))
    worst = uneven.worst[0]
    base = worst.base
    evidence: Facts = []
    for group in by_dtype.values():
        evidence += _odd_evidence(group)
    refused = [size.refused for size in measured.odd if size.refused]
    if refused:
        reasons = sorted({f"{r.dtype}, {r.status}: {r.reason}" for r in refused})
        evidence.append(
            Text(
                "{n} size did not run ({reasons})",
                "{n} sizes did not run ({reasons})",
                n=len(refused),
                reasons=[Verbatim(reason) for reason in reasons],
            )
        )
    padded = next((size for size in uneven.padded if size.side == worst.side), None)
    action = Text("Round M, N and K up to a multiple of 8.")
    if padded is not None and padded.point is not None and worst.point is not None:
        action = Text(
            "Round M, N and K up to a multiple of 8: {padded} takes {saved} less time than {size}.",
            padded=padded.label,
            saved=_fraction(1 - padded.point.seconds / worst.point.seconds),
            size=worst.label,
        )
    loss = worst.loss or 0.0
    return Finding(
        "odd_sizes",
        Text(
            "Sizes that are no multiple of 8 fall off the fast kernels: in {kernel}, {losses} of "
            "the throughput of {base}.",
            kernel=base.name,
            losses=uneven.losses,
            base=base.shape,
        ),
        tuple(evidence),
        action=action,
        disproof=Text("Measured for one base size; a small product may lose less."),
        plain=Text(
            "A size that is no multiple of 8 can cost a matrix product {part} of its speed: round "
            "it up to the next multiple.",
            part=_fraction(loss),
        )
        if loss >= LARGE
        else None,
        technical=loss < LARGE,
    )


def _odd_evidence(uneven: _Uneven) -> Facts:
    base = uneven.worst[0].base
    evidence: Facts = [
        Text(
            "{kernel}: base {time}, {rate} by {name}",
            kernel=base.name,
            time=base.time,
            rate=base.throughput,
            name=_kernel(base),
        ),
        *(
            Text("{loss} ({name})", loss=loss, name=_kernel(size.point))
            for size, loss in zip(uneven.worst, uneven.losses, strict=True)
            if size.point
        ),
    ]
    if uneven.padded:
        largest = max(uneven.padded, key=lambda size: size.loss or 0.0)
        evidence.append(
            Text(
                "padded to {size} at most {loss} is lost",
                size=str(largest.size),
                loss=_fraction(max(largest.loss or 0.0, 0.0)),
            )
        )
    return evidence


def _kernel(point: Point) -> Value:
    return Verbatim(point.kernel) if point.kernel else Text("unknown kernel")


def _wave_edges(measured: Measured) -> Finding | None:
    """State what the edges of waves cost a pinned tile, and the library at the same sizes."""
    rows = []
    for staircase in measured.staircases:
        steps = steps_at(staircase.measured, staircase.edges())
        if steps:
            rows.append((staircase, max(steps, key=lambda step: step.loss), steps))
    if not rows:
        return None
    staircase, worst, _ = rows[0]
    library = library_of(staircase, measured.sweeps)
    of_library = steps_at(library, staircase.edges()) if library else []
    evidence: Facts = []
    for row in rows:
        evidence += _edge_evidence(*row, library_of(row[0], measured.sweeps))
    verdict = Text(
        "One row past a full wave costs a fixed tile up to {loss}: {kernel} takes {after} at M = "
        "{m} and {before} at M = {fits}.",
        loss=worst.cost,
        m=str(worst.after.m),
        after=worst.after.time,
        fits=str(worst.before.m),
        before=worst.before.time,
        kernel=staircase.curve.name,
    )
    plain = None
    if of_library:
        at_most = max(step.loss for step in of_library)
        verdict = Text(
            "One row past a full wave costs a fixed tile up to {loss}: {kernel} takes {after} at M "
            "= {m} and {before} at M = {fits}; {library} loses at most {least} at these edges.",
            **{**verdict.values, "library": library_name(library), "least": _fraction(at_most)},
        )
        plain = Text(
            "A batch that is one row too large for the GPU's last full round of work can cost "
            "{loss} more time in a kernel of one fixed shape. NVIDIA's library, which picks a "
            "shape for each size, loses at most {least} there.",
            loss=worst.cost,
            least=_fraction(at_most),
        )
    chosen = library.at(worst.after.m) if library else None
    action = Text(
        "With a {tile} tile keep M at or below the end of a wave ({edges}).",
        tile=staircase.tiling.name,
        edges=[str(edge) for edge in staircase.edges()],
    )
    if chosen is not None and chosen.tiling is not None:
        action = Text(
            "With a {tile} tile keep M at or below the end of a wave ({edges}), or choose the tile "
            "by size: {library} takes {chosen} at M = {m} and needs {time}.",
            **action.values,
            library=chosen.library,
            chosen=chosen.tiling.name,
            m=str(chosen.m),
            time=chosen.time,
        )
    return Finding(
        "wave_edges",
        verdict,
        tuple(evidence),
        action=action,
        disproof=Text(
            "Times as measured: a fuller wave draws more power, so that at a lower clock the step "
            "is smaller than at a fixed one."
        ),
        plain=plain,
        technical=plain is None,
    )


def library_name(curve: Curve | None) -> str:
    """Return what chooses the tiles of a sweep."""
    return curve.points[0].library if curve else ""


def _edge_evidence(
    staircase: Staircase, worst: Step, steps: Sequence[Step], library: Curve | None
) -> Facts:
    first = worst.before
    evidence: Facts = [
        Text(
            "{kernel}, N = {n}, K = {k}: {range} at {edges} edges of waves",
            kernel=first.name,
            n=str(first.n),
            k=str(first.k),
            range=_range(steps),
            edges=len(steps),
        ),
        Text(
            "M = {m}: {time} ({interval}) at {clock}, begins wave {wave}",
            m=str(worst.after.m),
            time=worst.after.time,
            interval=_interval(worst.after),
            clock=Number(worst.after.clock_hz, "Hz", digits=3),
            wave=staircase.waves_at(worst.after.m),
        ),
        Text(
            "M = {m}: {time} ({interval}) at {clock}",
            m=str(first.m),
            time=first.time,
            interval=_interval(first),
            clock=Number(first.clock_hz, "Hz", digits=3),
        ),
    ]
    of_library = steps_at(library, staircase.edges()) if library else []
    if library is None or not of_library:
        return evidence
    evidence.append(Text("{kernel}: {range}", kernel=library.name, range=_range(of_library)))
    step = step_at(library, first.m)
    tiles = [p.tiling.name for p in (step.before, step.after) if p.tiling] if step else []
    if len(set(tiles)) > 1:
        evidence.append(
            Text(
                "at M = {m} it changes its tile from {before} to {after}",
                m=str(first.m),
                before=tiles[0],
                after=tiles[1],
            )
        )
    return evidence


def _range(steps: Sequence[Step]) -> Value:
    losses = [step.loss for step in steps]
    if len(losses) == 1:
        return _fraction(losses[0])
    return Text("{low} to {high}", low=_fraction(min(losses)), high=_fraction(max(losses)))


def _interval(point: Point) -> Value:
    return Text(
        "{low} to {high}",
        low=Number(point.low, "s", digits=3),
        high=Number(point.high, "s", digits=3),
    )


def _padding(measured: Measured) -> Finding | None:
    """State how well the library chooses: sizes beaten by larger ones, and its largest step."""
    evidence: Facts = []
    leading: tuple[Curve, list[Inversion], Step | None] | None = None
    for curve in measured.libraries:
        beaten, step = inversions(curve), worst_step(curve, SMALL)
        beaten = beaten if beaten and beaten[0].gain >= NEGLIGIBLE else []
        step = step if step and step.loss >= NEGLIGIBLE else None
        if not beaten and step is None:
            continue
        leading = leading or (curve, beaten, step)
        evidence += _padding_evidence(curve, beaten, step)
    if leading is None:
        return None
    curve, beaten, step = leading
    if not beaten:
        verdict = Text(
            "{kernel} chooses its tiles well: no size is slower than a larger one.",
            kernel=curve.name,
        )
        return Finding("padding", verdict, tuple(evidence), technical=True)
    worst = beaten[0]
    return Finding(
        "padding",
        Text(
            "Computing more rows can be faster: {n} of {total} sizes of {kernel} take longer than "
            "a larger one, by up to {saved}.",
            saved=worst.saved,
            n=len(beaten),
            total=len(curve.points),
            kernel=curve.name,
        ),
        tuple(evidence),
        action=Text(
            "Pad M where it pays: M = {m} padded to {larger} takes {saved} less time ({before} "
            "becomes {after}).",
            m=str(worst.point.m),
            larger=str(worst.larger.m),
            saved=_fraction(worst.gain),
            before=worst.point.time,
            after=worst.larger.time,
        ),
        disproof=Text("Another version of the library, or another GPU, chooses other tiles."),
        technical=True,
    )


def _padding_evidence(curve: Curve, beaten: Sequence[Inversion], step: Step | None) -> Facts:
    evidence: Facts = []
    if beaten:
        evidence.append(
            Text(
                "{kernel}, {n} of {total} sizes at N = {columns}, saved by padding: {paddings}",
                kernel=curve.name,
                n=len(beaten),
                total=len(curve.points),
                columns=str(curve.points[0].n),
                paddings=[
                    Text(
                        "{m} to {larger} {saved}",
                        m=str(inversion.point.m),
                        larger=str(inversion.larger.m),
                        saved=_fraction(inversion.gain),
                    )
                    for inversion in beaten[:LISTED]
                ],
            )
        )
    if step is not None:
        evidence.append(
            Text(
                "{kernel}: largest step for one row {loss}, from M = {m} ({before}) to {larger} "
                "({after})",
                kernel=curve.name,
                loss=step.cost,
                m=str(step.before.m),
                before=_interval(step.before),
                larger=str(step.after.m),
                after=_interval(step.after),
            )
        )
    return evidence


def _small_batches(measured: Measured) -> Finding | None:
    """State what a larger batch costs, and the M at which the time has doubled."""
    batches = [batch for batch in measured.small if len(batch.points) > 1]
    if not batches:
        return None
    first, last = batches[0].points[0], batches[0].points[-1]
    doubled = {batch.dtype: _doubled(batch, measured.libraries) for batch in batches}
    evidence: Facts = []
    for batch in batches:
        evidence += _batch_evidence(batch)
    action = Text("Collect requests: up to M = {m} rows cost little.", m=last.m)
    if at := next((point for point in doubled.values() if point), None):
        action = Text(
            "Collect requests: up to M = {m} rows cost little, and only at M = {doubled} has the "
            "time of one row doubled.",
            m=last.m,
            doubled=at.m,
        )
    extra = Number(batches[0].extra(last.m), "fraction", (last.ref, first.ref))
    return Finding(
        "small_batches",
        Text(
            "Batching is nearly free: {kernel} takes {extra} longer at M = {m} than at M = "
            "{smallest} ({slow}, {fast}), at {times} the throughput.",
            kernel=first.name,
            extra=extra,
            m=last.m,
            smallest=first.m,
            slow=last.time,
            fast=first.time,
            times=last.throughput.times(first.throughput),
        ),
        tuple(evidence),
        action=action,
        disproof=Text("Holds where the weights do not stay in L2 between calls."),
        plain=Text(
            "Answering {n} requests at once takes only {part} longer than answering one: answer "
            "them together.",
            n=last.m,
            part=extra,
        ),
    )


def _doubled(batch: Batches, libraries: Sequence[Curve]) -> Point | None:
    sweep = next((curve for curve in libraries if curve.name == batch.points[0].name), None)
    points = sweep.points if sweep else ()
    return next((p for p in points if p.seconds > DOUBLED * batch.points[0].seconds), None)


def _batch_evidence(batch: Batches) -> Facts:
    first, last = batch.points[0], batch.points[-1]
    evidence: Facts = [
        Text(
            "{kernel}: M = {m} takes {extra} longer; weights of {n} x {k} come from DRAM at {fast} "
            "(M = {smallest}) and {slow} (M = {m})",
            kernel=first.name,
            m=last.m,
            extra=_fraction(batch.extra(last.m) or 0.0),
            n=str(first.n),
            k=str(first.k),
            fast=first.bandwidth,
            smallest=first.m,
            slow=last.bandwidth,
        )
    ]
    if hot := batch.hot_at(first.m):
        evidence.append(Text("with warm weights M = {m} takes {time}", m=first.m, time=hot.time))
    return evidence


def _tile_model(measured: Measured) -> Finding | None:
    """State what a wave costs, and whether the steps are told from a smooth rise."""
    if not measured.staircases:
        return None
    staircase = measured.staircases[0]
    waves = staircase.waves
    real = all(s.beats_controls for s in measured.staircases)
    evidence: Facts = []
    for fitted in measured.staircases:
        evidence += _fit_evidence(fitted)
    values: dict[str, Value] = {
        "kernel": staircase.curve.name,
        "wave": Number(waves.t_unit_s, "s"),
        "fixed": Number(waves.t0_s, "s"),
        "error": _fraction(waves.quality.median_error),
    }
    return Finding(
        "tile_model",
        Text(
            "The steps are real: a wave of {kernel} takes {wave}, and {fixed} + waves x {wave} "
            "predicts the latency within {error}.",
            **values,
        )
        if real
        else Text(
            "The steps cannot be told from a smooth rise: {fixed} + waves x {wave} predicts the "
            "latency of {kernel} within {error}, and a model without waves does as well.",
            **values,
        ),
        tuple(evidence),
        action=Text(
            "Estimate sizes before measuring them: waves = ceil(tiles / ({sms} SMs x {ctas} CTA "
            "per SM)), tiles = ceil(M / {tile_m}) x ceil(N / {tile_n}).",
            sms=staircase.sm_count,
            ctas=staircase.ctas_per_sm,
            tile_m=staircase.tiling.tile_m,
            tile_n=staircase.tiling.tile_n,
        )
        if real
        else None,
        disproof=Text("Fitted to the sizes that it is judged by: two parameters for all of them."),
        technical=True,
    )


def _fit_evidence(staircase: Staircase) -> Facts:
    waves, curve = staircase.waves, staircase.curve
    evidence: Facts = [
        Text(
            "{kernel}: median error {error}, p90 {p90}, R^2 {r_squared} over {n} sizes; controls "
            "{controls}",
            kernel=curve.name,
            error=_fraction(waves.quality.median_error),
            p90=_fraction(waves.quality.p90_error),
            r_squared=Number(waves.quality.r_squared, digits=4),
            n=waves.points,
            controls=[
                Text(
                    "{error} ({model})",
                    error=_fraction(control.quality.median_error),
                    model=MODELS[control.model],
                )
                for control in staircase.fits[1:]
            ],
        )
    ]
    inside = median_loss(curve, staircase.tile_edges())
    edges = median_loss(curve, staircase.edges())
    if inside is not None and edges is not None:
        evidence.append(
            Text(
                "a row more costs {edges} at the edge of a wave, {inside} at the edge of a tile "
                "within one (medians)",
                edges=_fraction(edges),
                inside=_fraction(inside),
            )
        )
    return evidence


def _throughput(measured: Measured) -> Finding | None:
    """State the best throughput of each kernel, and what the choice of the tile gains."""
    if not measured.sweeps:
        return None
    by_dtype: dict[str, list[Curve]] = {}
    for curve in measured.sweeps:
        by_dtype.setdefault(curve.dtype, []).append(curve)
    dtype, curves = next(iter(by_dtype.items()))
    best = sorted((curve.fastest for curve in curves), key=lambda point: -point.rate)
    evidence: Facts = []
    for name, group in by_dtype.items():
        rates = [_best(curve.fastest, measured.sms) for curve in group]
        evidence.append(Text("{dtype}: {rates}", dtype=name, rates=rates))
        evidence += [fact for curve in group for fact in _busiest(curve)]
    first = best[0]
    values: dict[str, Value] = {
        "dtype": dtype,
        "kernel": first.library,
        "rate": first.throughput,
        "m": str(first.m),
        "n": str(first.n),
        "k": str(first.k),
    }
    verdict = Text(
        "The best {dtype} product of the sweep reaches {rate}: {kernel} at M = {m} (N = {n}, K = "
        "{k}).",
        **values,
    )
    action = None
    if len(best) > 1:
        gained = first.throughput.times(best[1].throughput)
        verdict = Text(
            "The best {dtype} product of the sweep reaches {rate}: {kernel} at M = {m} (N = {n}, K "
            "= {k}), {times} the best of {second}.",
            **values,
            times=gained,
            second=best[1].library,
        )
        if best[1].tiling is not None:
            action = Text(
                "Prefer {kernel}, which chooses a tile for each size, to a pinned {tile}: {times} "
                "at the best size of each.",
                kernel=first.library,
                tile=best[1].tiling.name,
                times=gained,
            )
    return Finding("best_throughput", verdict, tuple(evidence), action=action, technical=True)


def _best(point: Point, sms: int | None) -> Text:
    if not sms:
        return Text(
            "{kernel} {rate} (M = {m})",
            kernel=point.library,
            rate=point.throughput,
            m=str(point.m),
        )
    return Text(
        "{kernel} {rate} (M = {m}, {per_sm} per SM)",
        kernel=point.library,
        rate=point.throughput,
        m=str(point.m),
        per_sm=Number(point.rate / sms, "FLOP/s"),
    )


def _busiest(curve: Curve) -> Facts:
    """Return the highest use of the Tensor Cores by counters."""
    counted = [point for point in curve.points if point.tensor_pct is not None]
    if not counted:
        return []
    best = max(counted, key=lambda point: point.tensor_pct or 0.0)
    return [
        Text(
            "{kernel}: Tensor pipe active {busy} at M = {m}",
            kernel=curve.name,
            busy=Number(best.tensor_pct, "%", (best.ref,)),
            m=str(best.m),
        )
    ]
