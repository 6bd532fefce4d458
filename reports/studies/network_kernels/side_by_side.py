"""Two kernels at the same time: what they took, and what a model of shared resources says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Column, Evidence, Finding, Json, Number, Table, Text
from nsight_prof.reports.studies.network_kernels.points import Point

SENTENCES = Sentences("network_kernels")

FAMILY = "side-by-side"
ALONE, IN_TURN, TOGETHER = "alone", "in-turn", "together"
CLEAR = 1.02
"""Times that differ by less are alike."""
THREADS_OF_SM = {"8.0": 2048, "8.6": 1536, "8.9": 1536, "9.0": 2048, "10.0": 2048, "12.0": 1536}
"""Resident at most, by compute capability: CUDA C++ Programming Guide, technical specifications."""


@dataclass(frozen=True)
class Pair:
    """Two kernels: one after the other, on two streams, and as predicted from each alone.

    `expected` is the longest of: either alone; the FLOPs of both at the highest rate of any kernel
    alone; their bytes at the highest rate; and, where not all their threads are resident at once,
    the sum of what each alone takes of all slots.
    """

    alone: tuple[Point, Point]
    in_turn: Point
    together: Point
    expected_s: float
    bound: str

    @property
    def name(self) -> str:
        """Both kernels with their grids."""
        of = self.together.param
        return f"{of('kernel1')} x {of('grid1')} + {of('kernel2')} x {of('grid2')}"

    @property
    def expected(self) -> Number:
        """The predicted time."""
        return Number(self.expected_s, "s", tuple(point.ref for point in self.alone))

    @property
    def error(self) -> Number:
        """Predicted over measured - 1."""
        return Number(self.expected_s / self.together.seconds - 1, "fraction", (self.together.ref,))


BOUNDS = {
    "longer": Text("the longer one"),
    "flops": Text("FMA pipes"),
    "bytes": Text("DRAM"),
    "slots": Text("resident threads"),
}


def pairs_of(run: Run, found: Sequence[Point]) -> list[Pair]:
    """Return the pairs whose kernels were measured alone, in turn and together."""
    of_family = [point for point in found if point.family == FAMILY]
    alone = {_kernel(p, 1): p for p in of_family if p.op == ALONE}
    in_turn = {(_kernel(p, 1), _kernel(p, 2)): p for p in of_family if p.op == IN_TURN}
    gpus = run.gpus[["compute_capability", "sm_count"]].dropna()
    threads = THREADS_OF_SM.get(str(gpus.iloc[0, 0])) if len(gpus) else None
    if not alone or threads is None:
        return []
    rates = {
        what: max(number(p.row[what]) / p.seconds for p in alone.values())
        for what in ("flops", "bytes")
    }
    slots = threads * number(gpus["sm_count"].iloc[0])
    pairs = []
    for point in of_family:
        key = _kernel(point, 1), _kernel(point, 2)
        if point.op == TOGETHER and key in in_turn and all(kernel in alone for kernel in key):
            kernels = alone[key[0]], alone[key[1]]
            seconds, bound = _expected(kernels, rates, slots)
            pairs.append(Pair(kernels, in_turn[key], point, seconds, bound))
    return pairs


def _kernel(point: Point, which: int) -> tuple[str, int]:
    return str(point.param(f"kernel{which}")), int(point.param(f"grid{which}") or 0)


def _expected(
    kernels: tuple[Point, Point], rates: Mapping[str, float], slots: float
) -> tuple[float, str]:
    """Return the predicted time of two kernels at the same time, and what bounds it."""
    bounds = {"longer": max(point.seconds for point in kernels)}
    for what, rate in rates.items():
        bounds[what] = sum(number(point.row[what]) for point in kernels) / rate if rate else 0.0
    taken = [p.param("grid1") * p.param("threads1") / slots for p in kernels]
    if sum(taken) > 1:
        bounds["slots"] = sum(
            share * point.seconds for share, point in zip(taken, kernels, strict=True)
        )
    bound = max(bounds, key=lambda name: bounds[name])
    return bounds[bound], bound


def finding(pairs: Sequence[Pair]) -> Finding | None:
    """State what two kernels at the same time gain at most, and how well that is predicted."""
    if not pairs:
        return None
    best = max(pairs, key=lambda pair: pair.in_turn.seconds / pair.together.seconds)
    worst = max(pairs, key=lambda pair: abs(pair.error.value or 0.0))
    mean = sum(abs(pair.error.value or 0.0) for pair in pairs) / len(pairs)
    return replace(
        SENTENCES.finding(
            "side_by_side",
            (
                SENTENCES.text(
                    "pair_model",
                    n=len(pairs),
                    mean=Number(mean, "fraction"),
                    worst=worst.name,
                    error=worst.error,
                ),
                Evidence(Text("gain of the pair"), best.in_turn.time.times(best.together.time)),
            ),
            pair=best.name,
            together=best.together.time,
            in_turn=best.in_turn.time,
            n=sum(pair.together.seconds > CLEAR * pair.in_turn.seconds for pair in pairs),
            all=len(pairs),
        ),
        gain=best.in_turn.time - best.together.time,
    )


def table(pairs: Sequence[Pair]) -> Table[Pair]:
    """Return the pairs with their times and the model's."""
    return Table(
        "network-side-by-side",
        Text("Two kernels at the same time"),
        [
            Column(Text("kernels x blocks"), lambda row: row.name),
            Column(Text("first alone"), lambda row: row.alone[0].time),
            Column(Text("second alone"), lambda row: row.alone[1].time),
            Column(Text("one after the other"), lambda row: row.in_turn.time),
            Column(Text("on two streams"), lambda row: row.together.time),
            Column(Text("predicted"), lambda row: row.expected),
            Column(Text("bound by"), lambda row: BOUNDS[row.bound]),
            Column(Text("off by"), lambda row: row.error),
        ],
        pairs,
        note=SENTENCES.note("network-side-by-side"),
        refs=lambda row: [row.together.ref],
    )


def numbers(pair: Pair) -> dict[str, Json]:
    """Return a pair for metrics.json."""
    return {
        "in_turn_s": pair.in_turn.seconds,
        "together_s": pair.together.seconds,
        "predicted_s": pair.expected_s,
        "bound_by": pair.bound,
        "error": pair.error.value,
    }
