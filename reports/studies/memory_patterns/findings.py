"""Findings about mixes of reads and writes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from nsight_prof.reports.page import Evidence, Finding, Number, Text
from nsight_prof.reports.studies.memory_patterns.points import (
    Point,
    extremes,
    held_back,
    pure,
    slower_in_turn,
)
from nsight_prof.reports.studies.memory_patterns.turnaround_fit import Estimate, MixFit, by_name
from nsight_prof.reports.studies.memory_patterns.turnaround_solve import REFERENCE

SAME = 2.0
"""Difference of AICc under which two models explain the data alike (Burnham and Anderson 2002)."""

LEAST_DELAY = 0.01
"""Least relative difference between a call after others and one alone that is evidence."""

GB = 1e9

NAMES = {
    "none": Text("no penalty"),
    "switches": Text("each switch costs"),
    "mix": Text("each byte of the rarer direction costs"),
    "batched": Text("switches cost, down to a batch"),
    "drain": Text("reads pay for the writes before them"),
}
SWITCH = Text("A switch is one that the program asks for; DRAM may turn more often or more rarely.")


def mix_finding(points: Sequence[Point]) -> Iterator[Finding]:
    """State how much of the bandwidth of reads a mix of as many writes keeps, at best and worst."""
    found, (read, _) = extremes(points, "1:1"), pure(points)
    if found is None or not math.isfinite(read):
        return
    slow, fast = found
    verdict = Text(
        "Reading and writing at the same time costs up to {loss} of the memory bandwidth: 1:1 "
        "mixes reach {slow} in runs of {short} and {fast} in runs of {long}, reads alone {read}.",
        loss=Number(1 - slow.rate / read, "fraction"),
        slow=Number(slow.rate, "B/s"),
        short=Number(slow.run_bytes, "iB"),
        fast=Number(fast.rate, "B/s"),
        long=Number(fast.run_bytes, "iB"),
        read=Number(read, "B/s"),
    )
    yield Finding(
        "mixed_bandwidth",
        verdict,
        (Text("Bandwidths of the 1:1 mixes of all granularities, bytes read and written."),),
        disproof=Text(
            "Written values are made up, not copied: no store waits for a load, as it does in "
            "a copy. The loss that the recipe roofline states is that of a copy."
        ),
    )


def turnaround_findings(models: Sequence[MixFit], points: Sequence[Point]) -> Iterator[Finding]:
    """State what a turnaround costs, or that noise hides it, and what explains it better."""
    linear = by_name(models, "switches")
    if linear is None or linear.turnaround is None:
        return
    best = models[0]
    left_out = Number(best.left_out_error, "fraction")
    evidence: list[Evidence | Text] = [
        Evidence(Text("cases fitted"), len(best.predicted)),
        Evidence(Text("residual"), Number(best.error, "fraction")),
        Evidence(Text("mixes predicted from all others to"), left_out),
        Evidence(Text("models, of which it is the best by AICc"), len(models)),
        *_growth(best),
        *_counted(points),
    ]
    yield Finding(
        "turnaround",
        _cost(best),
        tuple(evidence),
        action=None if best.model == "none" else Text("Read for long, then write for long."),
        disproof=_limits(best),
        technical=best.model == "none",
    )
    yield from _alternatives(best, linear, models)


def _limits(best: MixFit) -> Text:
    if best.model != "drain":
        return SWITCH
    return Text(
        "{switch} That reads pay for lines which L2 held back is an interpretation of the law, "
        "not measured by itself; its power is empirical.",
        switch=SWITCH,
    )


def _cost(best: MixFit) -> Text:
    """Return the verdict about the best model."""
    if best.model == "none":
        return Text("Mixing reads and writes has no penalty above noise.")
    if best.model == "mix" and best.mix_cost is not None:
        return Text(
            "Mix less, not more rarely: each GB of the rarer direction costs {cost} (95 % interval "
            "{interval}), however often the direction changes.",
            cost=_per_gb(best.mix_cost),
            interval=_per_gb(best.mix_cost).interval,
        )
    assert best.turnaround is not None
    turn = Number(best.turnaround.value, "s", low=best.turnaround.low, high=best.turnaround.high)
    if best.batch is None or best.mix_cost is None:
        return Text(
            "Alternate rarely: each turnaround from writing to reading costs {turn} (95 % interval "
            "{interval}).",
            turn=turn,
            interval=turn.interval,
        )
    batch, cost = Number(best.batch.value, "B"), _per_gb(best.mix_cost)
    if best.model == "drain":
        return Text(
            "Alternate rarely: a turnaround from writing to reading costs {turn} (95 % interval "
            "{interval}) when {reference} of reads follow. Runs of writes shorter than {batch} "
            "cost {cost} per GB, however often they alternate.",
            turn=turn,
            interval=turn.interval,
            reference=Number(REFERENCE, "iB"),
            batch=batch,
            cost=cost,
        )
    return Text(
        "Alternate rarely: each turnaround from writing to reading costs {turn} (95 % interval "
        "{interval}) in runs longer than {batch}. Shorter runs cost {cost} per GB of the rarer "
        "direction, because L2 and the memory controllers gather them.",
        turn=turn,
        interval=turn.interval,
        batch=batch,
        cost=cost,
    )


def _per_gb(cost: Estimate) -> Number:
    return Number(GB * cost.value, "s", low=GB * cost.low, high=GB * cost.high)


def _growth(best: MixFit) -> list[Text]:
    """Return how the cost of a turn grows in the model "drain"; nothing for another."""
    if best.model != "drain" or best.batch is None or best.exponent is None:
        return []
    batch, power = best.batch, best.exponent
    return [
        Text(
            "the cost grows with the bytes of the reads that follow to the power of {power} "
            "({power_low} to {power_high}), as if they paid for the last {held} ({held_low} to "
            "{held_high}) written before them",
            power=Number(power.value),
            power_low=Number(power.low),
            power_high=Number(power.high),
            held=Number(batch.value, "B"),
            held_low=Number(batch.low, "B"),
            held_high=Number(batch.high, "B"),
        )
    ]


def _counted(points: Sequence[Point]) -> list[Evidence]:
    """Return what counters show of the turns; nothing without counters."""
    unwritten, slower = held_back(points), slower_in_turn(points)
    found = []
    if math.isfinite(unwritten):
        label = Text("counters: written but not yet in DRAM at the end of a call")
        found.append(Evidence(label, Number(unwritten, "B")))
    if slower > LEAST_DELAY:
        label = Text(
            "reading all, then writing all, takes longer call after call than alone under ncu, "
            "where L2 holds nothing written before, by up to"
        )
        found.append(Evidence(label, Number(slower, "fraction")))
    return found


def _alternatives(best: MixFit, linear: MixFit, models: Sequence[MixFit]) -> Iterator[Finding]:
    """Yield how the plain formula, one price per switch, does where it is not the best."""
    near = [NAMES[model.model] for model in models[1:] if model.aicc - best.aicc < SAME]
    same = Text("The same cases and weights in all models.")
    if best.model != "switches" and linear.turnaround is not None:
        turn = linear.turnaround
        price = Number(turn.value, "s", low=turn.low, high=turn.high)
        verdict = Text(
            "One cost per switch does not explain the times: it would be {price} (95 % interval "
            "{interval}), with a residual of {error} against {best}.",
            price=price,
            interval=price.interval,
            error=Number(linear.error, "fraction"),
            best=Number(best.error, "fraction"),
        )
        yield Finding("one_price", verdict, (same,), technical=True)
    if near:
        verdict = Text("As good by AICc: {models}.", models=near)
        yield Finding("models_alike", verdict, (same,), technical=True)
