"""What the sweeps say: batch, layout, type, cache, LSTM steps, distance from the roofs, models."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from nsight_prof.parsers.cells import Key, grouped
from nsight_prof.parsers.operations.models import KernelModel
from nsight_prof.reports.page import Evidence, Finding, Number, Text
from nsight_prof.reports.studies.network_kernels.points import FAMILIES, GRAPH, Point, curves, pairs

CLEAR = 1.1
"""Times of two cases that differ by less are alike."""
HALF = 0.5
USUAL = "channels-last"


def _medians(groups: Mapping[Key, Sequence[Point]]) -> dict[Key, Number]:
    """Return the lower median of the shares of each group, with the case that has it."""
    found = {}
    for key, points in groups.items():
        shares = [point.fraction for point in points if point.fraction.value is not None]
        shares.sort(key=lambda share: share.value or 0.0)
        unknown = Number(None, "fraction", missing="no measured roof")
        found[key] = shares[(len(shares) - 1) // 2] if shares else unknown
    return found


def saturation(found: Sequence[Point]) -> Finding | None:
    """State which share of their roof convolutions reach at each batch, and from where on half."""
    points = [p for curve in curves(found) if curve.last.family == "conv" for p in curve.points]
    usual = (p for p in points if p.layout == USUAL and p.dtype == "bf16")
    by_batch = sorted(grouped(usual, lambda point: point.batch).items())
    medians = _medians(dict(by_batch))
    if len(medians) < 2 or any(share.value is None for share in medians.values()):
        return None
    first, last = min(medians), max(medians)
    enough = [batch for batch, share in medians.items() if (share.value or 0.0) >= HALF]
    return Finding(
        "conv_saturation",
        Text(
            "Small batches leave the GPU idle: convolutions in bf16 reach {low} of their roof at a "
            "batch of {first} and {high} at {last} (medians).",
            low=medians[first], first=first, high=medians[last], last=last,
        ),
        tuple(
            Evidence(Text("median share at a batch of {batch}", batch=batch), share)
            for batch, share in medians.items()
        ),
        action=Text("Collect inputs to a batch of {batch} or more.", batch=min(enough))
        if enough
        else Text("Raise the batch as far as latency allows."),
        disproof=Text(
            "The roof of a convolution is that of large matrix products; sizes whose channels fill "
            "no tile cannot reach it."
        ),
    )  # fmt: skip


def _mean(both: Sequence[tuple[Point, Point]], mean: float) -> Number:
    """Return the geometric mean of the ratios of pairs of cases."""
    refs = tuple(point.ref for pair in both for point in pair)
    return Number(mean, "x", refs).by(Text("geometric mean of {n} ratios", n=len(both)))


def layout(found: Sequence[Point]) -> Finding | None:
    """State what the order of torch's own costs convolutions beside channels-last."""
    both = [pair for pair in pairs(found, "layout", "channels-first", USUAL)
            if pair[0].family == "conv"]  # fmt: skip
    if not both:
        return None
    factors = [slow.seconds / fast.seconds for slow, fast in both]
    slow, fast = max(both, key=lambda pair: pair[0].seconds / pair[1].seconds)
    mean = statistics.geometric_mean(factors)
    if mean < CLEAR:
        return None
    return Finding(
        "conv_layout",
        Text(
            "Give images channels-last: in torch's own order convolutions in {dtype} take {mean} "
            "as long (geometric mean), up to {most}.",
            dtype=slow.dtype,
            mean=_mean(both, mean),
            most=slow.time.times(fast.time),
        ),
        (
            Evidence(Text("pairs of cases"), len(both)),
            Text("{n} of them are slower by more than a tenth", n=sum(f > CLEAR for f in factors)),
        ),
        action=Text(
            "Keep images channels-last: model.to(memory_format=torch.channels_last), and the same "
            "for its inputs."
        ),
        gain=slow.time - fast.time,
        disproof=Text("cuDNN turns images around by kernels of its own, which are in these times."),
    )


def precision(found: Sequence[Point]) -> Finding | None:
    """State what bf16 gains over FP32 whose products are in TF32."""
    both = [pair for pair in pairs(found, "dtype", "tf32", "bf16") if pair[0].family == "conv"]
    if not both:
        return None
    factors = [slow.seconds / fast.seconds for slow, fast in both]
    slow, fast = max(both, key=lambda pair: pair[0].seconds - pair[1].seconds)
    return Finding(
        "conv_precision",
        Text(
            "Convolutions in FP32, which torch computes in TF32, take {mean} as long as in bf16 "
            "(geometric mean).",
            mean=_mean(both, statistics.geometric_mean(factors)),
        ),
        (
            Evidence(Text("pairs of cases"), len(both)),
            Text("from {low} to {high}", low=Number(min(factors), "x"),
                 high=Number(max(factors), "x")),
        ),
        action=Text("Run inference in bf16 (torch.autocast) where its accuracy suffices."),
        gain=slow.time - fast.time,
    )  # fmt: skip


def cache(found: Sequence[Point]) -> Finding | None:
    """State what operations between products gain where their data are still in the L2 cache."""
    both = [
        pair for pair in pairs(found, "mode", "cold", "hot")
        if pair[0].family in ("norm", "elementwise")
    ]  # fmt: skip
    quicker = [pair for pair in both if pair[0].seconds > CLEAR * pair[1].seconds]
    if not quicker:
        return None
    cold, hot = max(quicker, key=lambda pair: pair[0].seconds / pair[1].seconds)
    largest = max(quicker, key=lambda pair: pair[0].bytes)[0]
    return Finding(
        "cache_gain",
        Text(
            "Norms and elementwise operations take up to {factor} as long where their data come "
            "from DRAM; up to {size} per call the L2 cache can hold what the operation before "
            "left.",
            factor=cold.time.times(hot.time),
            size=Number(largest.bytes, "B", (largest.ref,)).by(Text("each operand once")),
        ),
        (
            Evidence(Text("pairs of cases"), len(both)),
            Text("{n} of them are quicker by more than a tenth in the cache", n=len(quicker)),
        ),
        action=Text(
            "Fuse such operations (torch.compile), or keep the activations of a batch below that "
            "size."
        ),
        technical=True,
    )


def recurrence(found: Sequence[Point]) -> Finding | None:
    """State what a step of an LSTM takes at least, and how little more a larger batch takes."""
    lines = [c for c in curves(found, hot=True) if c.last.op == "lstm" and len(c.points) > 1]
    if not lines:
        return None
    line = max(lines, key=lambda c: c.last.batch / c.points[0].batch * c.points[0].seconds
               / c.last.seconds)  # fmt: skip
    single, many = line.points[0], line.last
    steps = int(single.param("steps")) * int(single.param("layers"))
    return Finding(
        "lstm_steps",
        Text(
            "Steps of an LSTM wait for each other: a batch of {many} takes {large} and one of "
            "{one} takes {small}, {step} per step and layer ({shape}).",
            shape=line.shape,
            small=single.time,
            one=single.batch,
            large=many.time,
            many=many.batch,
            step=single.time.per(Number(steps, digits=len(str(steps))), "s"),
        ),
        (Evidence(Text("share of the roof with the largest batch"), many.fraction),),
        action=Text("Run many sequences at once: they cost next to nothing until the roof."),
        disproof=Text("cuDNN chooses kernels by size; other hidden sizes may gain less."),
    )


def distance(found: Sequence[Point]) -> Finding | None:
    """State which family is farthest from its roof at its largest sizes."""
    last = (curve.last for curve in curves(found) if len(curve.points) > 1)
    of_family = (p for p in last if p.family in FAMILIES and p.variant == GRAPH)
    medians = _medians(grouped(of_family, lambda point: point.family))
    known = {family: share for family, share in medians.items() if share.value is not None}
    if len(known) < 2:
        return None
    worst, best = (pick(known, key=lambda f: known[f].value or 0.0) for pick in (min, max))
    return Finding(
        "family_roof",
        Text(
            "At their largest batch {worst} are farthest from their roofs ({low}, median), {best} "
            "nearest ({high}).",
            worst=FAMILIES[worst], low=known[worst], best=FAMILIES[best], high=known[best],
        ),
        tuple(
            Evidence(Text("median share of {family}", family=FAMILIES[family]), share)
            for family, share in sorted(known.items(), key=lambda item: -(item[1].value or 0.0))
        ),
        action=Text("Look for other kernels of {family} first.", family=FAMILIES[worst]),
        technical=True,
    )  # fmt: skip


def between_sizes(models: Sequence[tuple[str, KernelModel]]) -> Finding | None:
    """State how far models lie from sizes that were left out of them."""
    held_out = [case for _, model in models for case in model.held_out]
    groups = [[abs(c.error) for c in held_out if c.known_shape is known] for known in (True, False)]
    if not all(groups):
        return None
    known, unknown = (Number(statistics.fmean(group), "fraction") for group in groups)
    return Finding(
        "between_sizes",
        Text(
            "Between measured sizes a smooth roofline with what near sizes differ from it is off "
            "by {known} on average at other batches of a known shape, by {other} at other shapes.",
            known=known,
            other=unknown,
        ),
        tuple(
            Text(
                "{what}: {n} cases, 90th percentile {p90}",
                what=words,
                n=len(group),
                p90=Number(statistics.quantiles(group, n=10)[-1], "fraction"),
            )
            for words, group in zip(
                (Text("batches left out"), Text("shapes left out")), groups, strict=True
            )
        ),
        disproof=Text(
            "Batches grow by factors of four and more here; between nearer ones the error is less."
        ),
        technical=True,
    )
