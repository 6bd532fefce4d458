"""What the mixes of reads and writes say: in sentences, and in numbers for metrics.json."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nsight_prof.reports.bench.memory_patterns_points import (
    Point,
    binary_size,
    extremes,
    held_back,
    pure,
    slower_in_turn,
)
from nsight_prof.reports.bench.models import BenchFinding, Json
from nsight_prof.reports.bench.turnaround_fit import Estimate, MixFit, by_name
from nsight_prof.reports.bench.turnaround_solve import REFERENCE
from nsight_prof.reports.formats import NA, byte_rate, data_size, seconds, share, significant

SAME = 2.0
"""Difference of AICc under which two models explain the data alike (Burnham and Anderson 2002)."""

TELLING = 0.01
"""Least relative difference between a call after others and one alone that is told."""

NAMES = {
    "none": "no penalty",
    "switches": "each switch costs",
    "mix": "each byte of the rarer direction costs",
    "batched": "switches cost, down to a batch",
    "drain": "reads pay for the writes before them",
}


def mix_finding(points: Sequence[Point]) -> tuple[BenchFinding, ...]:
    """Say how much of the bandwidth of reads a mix of as many writes keeps, at best and worst."""
    found, (read, _) = extremes(points, "1:1"), pure(points)
    if found is None or not math.isfinite(read):
        return ()
    slow, fast = found
    return (
        BenchFinding(
            f"A mix of as many reads as writes reaches {share(slow.rate / read)} of the bandwidth "
            f"of reads alone ({byte_rate(slow.rate)} of {byte_rate(read)}) in runs of "
            f"{binary_size(slow.run_bytes)}, and {share(fast.rate / read)} in runs of "
            f"{binary_size(fast.run_bytes)}.",
            "Bandwidths of the mix 1:1 at all granularities, counted in bytes read and written.",
            "Written values are made up, not copied: no store waits for a load, as it does in a "
            "copy.",
            plain=f"Memory that is read and written at the same time is "
            f"{share(1 - slow.rate / read)} slower than memory that is only read.",
        ),
    )


def turnaround_finding(
    models: Sequence[MixFit], points: Sequence[Point]
) -> tuple[BenchFinding, ...]:
    """Say what a turnaround costs, or that the data do not tell, and what explains them better."""
    linear, best = by_name(models, "switches"), models[0] if models else None
    if best is None or linear is None or linear.turnaround is None:
        return ()
    evidence = (
        f"Fit of {len(best.predicted)} cases; residual {_per_cent(best.error)}, mixes predicted "
        f"from all others to {_per_cent(best.left_out_error)}; best of {len(models)} models by "
        f"AICc{_drained(best)}{_seen(points)}."
    )
    limits = "A switch is one that the program asks for; DRAM may turn more often or more rarely"
    if best.model == "drain":
        limits += (
            "; that reads pay for lines which L2 held back is how the law was read, not measured "
            "by itself, and its power is empirical"
        )
    told = [BenchFinding(_cost(best), evidence, f"{limits}.", plain=_plain(best))]
    other = _instead(best, linear, models)
    if other:
        told.append(BenchFinding(other, "The same cases and weights in all models."))
    return tuple(told)


def _plain(best: MixFit) -> str:
    if best.model == "none":
        return ""
    return (
        "A program that reads for long, then writes for long, gets more out of memory than one "
        "that does both by turns."
    )


def _per_cent(error: float) -> str:
    return NA if not math.isfinite(error) else f"{significant(100 * error, 2)} %"


def _time(value: float) -> str:
    """Return seconds in words, picoseconds too."""
    small = 0 < abs(value) < 1e-10
    return f"{significant(1e12 * value)} ps" if small else seconds(value)


def _interval(estimate: Estimate) -> str:
    return f"95 % interval {_time(estimate.low)} to {_time(estimate.high)}"


def _cost(best: MixFit) -> str:
    if best.model == "none":
        return "No penalty for mixing reads and writes can be told from noise."
    if best.model == "mix" and best.mix_cost is not None:
        cost = best.mix_cost
        return (
            "What mixing costs depends on how much is mixed, not on how often the direction "
            f"changes: {seconds(1e9 * cost.value)} for each GB of the rarer direction "
            f"({_interval(_times(cost, 1e9))})."
        )
    assert best.turnaround is not None
    if best.model == "drain":
        return _drain_cost(best)
    said = (
        f"Each turn from writing to reading costs {_time(best.turnaround.value)} "
        f"({_interval(best.turnaround)})"
    )
    if best.batch is None or best.mix_cost is None:
        return f"{said}."
    batch = best.batch
    return (
        f"{said} while runs are longer than {binary_size(batch.value)} "
        f"({binary_size(max(batch.low, 0.0))} to {binary_size(batch.high)}); shorter ones cost no "
        f"more, because L2 and the memory controllers gather them: "
        f"{seconds(1e9 * best.mix_cost.value)} for each GB of the rarer direction."
    )


def _drain_cost(best: MixFit) -> str:
    """Say what the model "drain" found: the cost of a turn grows with the reads that follow."""
    turn, held, cost = best.turnaround, best.batch, best.mix_cost
    assert turn is not None
    assert held is not None
    assert cost is not None
    return (
        f"A turn from writing to reading costs {seconds(turn.value)} ({_interval(turn)}) when "
        f"{binary_size(REFERENCE)} of reads follow; runs of writes shorter than "
        f"{data_size(held.value)} cost by the byte instead, {seconds(1e9 * cost.value)} a GB, "
        "however often they alternate."
    )


def _drained(best: MixFit) -> str:
    """Say how the cost of a turn grows in the model "drain"; "" in another."""
    if best.model != "drain" or best.batch is None or best.exponent is None:
        return ""
    held, exponent = best.batch, best.exponent
    return (
        f"; the cost grows with the reads that follow, as their bytes to the power of "
        f"{significant(exponent.value, 2)} ({significant(exponent.low, 2)} to "
        f"{significant(exponent.high, 2)}), as if they paid for the last {data_size(held.value)} "
        f"({data_size(held.low)} to {data_size(held.high)}) written before them"
    )


def _seen(points: Sequence[Point]) -> str:
    """Say what counters saw of the turns; "" without counters."""
    held, slower = held_back(points), slower_in_turn(points)
    said = []
    if math.isfinite(held):
        said.append(f"counters: at the end of a call, {data_size(held)} of what it wrote had not "
                    "reached DRAM")  # fmt: skip
    if slower > TELLING:
        said.append(
            f"reading all and then writing all takes up to {share(slower)} longer call after call "
            "than alone under ncu, where L2 holds nothing that was written before"
        )
    return "".join(f"; {words}" for words in said)


def _times(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(estimate.value * factor, estimate.low * factor, estimate.high * factor)


def _instead(best: MixFit, linear: MixFit, models: Sequence[MixFit]) -> str:
    """Say how the plain formula, one price for each switch, does where it is not the best."""
    assert linear.turnaround is not None
    said = []
    if best.model != "switches":
        zero = "" if linear.turnaround.excludes_zero else ", which includes zero"
        said.append(
            f"One price for every switch that the program asks for does not explain the times: "
            f"it would be {_time(linear.turnaround.value)} ({_interval(linear.turnaround)}{zero}), "
            f"with a residual of {_per_cent(linear.error)} against {_per_cent(best.error)}."
        )
    near = [one for one in models[1:] if one.aicc - best.aicc < SAME]
    if near:
        said.append(f"As good by AICc: {', '.join(NAMES[one.model] for one in near)}.")
    return " ".join(said)


def numbers(points: Sequence[Point], models: Sequence[MixFit]) -> dict[str, Json]:
    """Return what metrics.json says of the mixes, in base units."""
    read, write = pure(points)
    return {
        "read_bytes_per_s": _or_none(read),
        "write_bytes_per_s": _or_none(write),
        "mixes": [
            {
                "ratio": p.ratio,
                "way": p.way,
                "run_bytes": p.run_bytes,
                "switches": p.switches,
                "bytes_per_s": _or_none(p.rate),
            }
            for p in points
        ],
        "models": [_model_numbers(one) for one in models],
    }


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _model_numbers(one: MixFit) -> dict[str, Json]:
    names = {
        "turnaround_s": one.turnaround,
        "mix_cost_s_per_byte": one.mix_cost,
        "batch_bytes": one.batch,
        "exponent": one.exponent,
        "read_bytes_per_s": one.read_rate,
        "write_bytes_per_s": one.write_rate,
    }
    found: dict[str, Json] = {"model": one.model, "aicc": _or_none(one.aicc),
                              "relative_residual": _or_none(one.error),
                              "relative_left_out_error": _or_none(one.left_out_error)}  # fmt: skip
    for name, estimate in names.items():
        if estimate is not None:
            ends = (estimate.value, estimate.low, estimate.high)
            found[name] = dict(zip(("value", "low", "high"), map(_or_none, ends), strict=True))
    return found
