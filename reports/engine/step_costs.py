"""What communication costs a step of a program on several GPUs, and what would be saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import pandas as pd

from nsight_prof.parsers.cells import known
from nsight_prof.reports.engine.contention import Contention
from nsight_prof.reports.engine.rank_times import FASTER_HOSTS, has_several, rank_name
from nsight_prof.reports.page import Column, Finding, Name, Number, Ref, Table, Text, Value

KEY = "step_communication"
SIGNIFICANT = 0.02
"""Part of a step from which on communication that nothing hides is worth work: below it, times of
balanced ranks differ by as much."""
OVERLAPPED = "overlapped_ns"
TIMES = ("wall_ns", "compute_ns", OVERLAPPED, "wait_ns", "transfer_ns", "other_ns")


@dataclass(frozen=True)
class StepCost:
    """What a step of one GPU takes, the mean of `steps` (ns).

    Compute, wait, transfer and other add up to the wall time. `overlapped_ns` is communication
    beside other kernels, a part of `compute_ns`; None: not known.
    """

    rank: int
    device: int
    steps: int
    wall_ns: float
    compute_ns: float
    overlapped_ns: float | None
    wait_ns: float
    transfer_ns: float
    other_ns: float

    @property
    def exposed_ns(self) -> float:
        """Communication beside which no other kernel runs."""
        return self.wait_ns + self.transfer_ns

    @property
    def exposed_share(self) -> float:
        """The part of a step that this is."""
        return self.exposed_ns / self.wall_ns


def step_costs(steps: pd.DataFrame, *, skewed: bool = False) -> tuple[StepCost, ...]:
    """Return what table `rank_steps` says of GPUs that have communication, the mean of their steps.

    Empty where it is one GPU. `skewed`: captures began apart, so that the first step holds a wait
    that is none of the program.
    """
    rows = steps[steps["wait_ns"].notna() & (steps["step"] >= int(skewed))]
    found = []
    for (rank, device), of_gpu in rows.groupby(["rank", "device"]):
        times = [known(of_gpu[name].astype(float).mean()) for name in TIMES]
        found.append(StepCost(rank, device, len(of_gpu), *times))  # type: ignore[arg-type]
    sends = any(cost.exposed_ns or cost.overlapped_ns for cost in found)
    return tuple(found) if len(found) > 1 and sends else ()


def communication(
    costs: Sequence[StepCost],
    stages: Sequence[str],
    outside: Text | str = "",
    slower: Contention | None = None,
    host: Number | None = None,
) -> Iterator[Finding]:
    """Yield what communication costs a step.

    `stages` are those that come once with each step; `outside` says what of the run is in none,
    `slower` what kernels beside communication lose by it, `host` what the hosts of GPUs that come
    in time need for a step at most (ns).
    """
    if not costs:
        return
    wall, exposed, waiting, transfer = (
        _mean(costs, name) for name in ("wall_ns", "exposed_ns", "wait_ns", "transfer_ns")
    )
    share, balanced = (time.share_of(wall).at_digits(2) for time in (exposed, waiting))
    low, high = (pick(costs, key=lambda cost: cost.exposed_share) for pick in (min, max))
    names: list[Value] = [*map(Name, stages)]
    # Where all arrive together, the slowest of the other hosts bounds the step.
    free = 1.0 if host is None else max(0.0, 1 - (host.value or 0.0) / (wall.value or 1.0))
    hidden, together = (replace(n, value=min(free, n.value or 0.0)) for n in (share, balanced))
    remedy = _remedy(share.value or 0.0, balanced.value or 0.0, together.value or 0.0)
    yield Finding(
        KEY,
        Text(
            "Of a step ({stages}) of {wall}, {exposed} ({share}) is communication between GPUs "
            "that nothing hides: {wait} waiting for another GPU{waits}, {transfer} transfer."
            "{beside} Hiding all of it saves at most {hidden} of a step, GPUs that arrive together "
            "{balanced}.{outside}",
            stages=names,
            wall=wall,
            exposed=exposed,
            share=share,
            wait=waiting,
            waits=_each_wait(costs),
            transfer=transfer,
            beside=_overlap_text(costs, slower),
            hidden=hidden,
            balanced=together,
            outside=outside,
        ),
        lay_verdict=Text(
            "Communication between GPUs costs {share} of a step of {wall}: {wait} waiting for "
            "another GPU{waits} and {transfer} of transfer. {remedy}",
            wall=wall,
            share=share,
            wait=waiting,
            waits=_each_wait(costs),
            transfer=transfer,
            remedy=remedy,
        )
        if remedy
        else Text(
            "Communication between GPUs costs only {share} of a step of {wall}{hidden}. "
            "{elsewhere}{outside}",
            wall=wall,
            share=share,
            hidden=Text(
                "; {time} more of it runs beside other kernels", time=_mean(costs, OVERLAPPED)
            )
            if all(cost.overlapped_ns for cost in costs)
            else "",
            elsewhere=_elsewhere(costs),
            outside=outside,
        ),
        evidence=(
            Text(
                "Means of {steps} steps and of {n} GPUs: {low} on {first} to {high} on {last}",
                steps=max(cost.steps for cost in costs),
                n=len(costs),
                low=Number(low.exposed_share, "fraction", digits=2),
                first=_name(low, costs),
                high=Number(high.exposed_share, "fraction", digits=2),
                last=_name(high, costs),
            ),
        ),
        action=remedy,
        disproof=Text(
            "Kernels beside communication are slower than alone, since it takes SMs and memory "
            "bandwidth from them: what hidden communication costs so is in no saving here."
        ),
    )


def _each_wait(costs: Sequence[StepCost]) -> Text | str:
    """Return the waits of single GPUs behind their mean: the shortest and the longest."""
    low, high = (pick(costs, key=lambda cost: cost.wait_ns) for pick in (min, max))
    if low.wait_ns == high.wait_ns:
        return ""
    waits = [Number(cost.wait_ns, "ns", _refs(cost), digits=3) for cost in (low, high)]
    if not low.wait_ns:
        return Text(" ({high} on {last})", high=waits[1], last=_name(high, costs))
    return Text(
        " ({low} on {first}, {high} on {last})",
        **dict(zip(("low", "high"), waits, strict=True)),
        first=_name(low, costs),
        last=_name(high, costs),
    )


def _overlap_text(costs: Sequence[StepCost], slower: Contention | None) -> Text | str:
    if any(cost.overlapped_ns is None for cost in costs):
        return ""
    time = _mean(costs, OVERLAPPED)
    if not time.value:
        return Text(" None runs beside other kernels.")
    if slower is None:
        return Text(
            " {time} more runs beside other kernels (how much it slows these was not measured).",
            time=time,
        )
    return Text(
        " {time} more runs beside other kernels: {n} launch that can be compared takes {part} "
        "longer there than alone ({compared} of {total}).",
        " {time} more runs beside other kernels: {n} launches that can be compared take {part} "
        "longer there than alone ({compared} of {total}).",
        time=time,
        n=slower.launches,
        part=slower.longer.at_digits(2),
        compared=Number(slower.beside_ns, "ns", digits=3),
        total=Number(slower.total_ns, "ns", digits=3),
    )


def _remedy(share: float, balanced: float, together: float) -> Text | None:
    """Return what shortens the steps; None where hardly any of them is communication.

    `balanced` is the part of them that is waiting, `together` what is saved where nobody is late.
    """
    if share < SIGNIFICANT:
        return None
    if balanced > share / 2 and together < balanced / 2:
        return FASTER_HOSTS
    if balanced > share / 2:
        return Text("Divide the work evenly: most of that time waits for a GPU that comes late.")
    return Text("Let transfers run beside other kernels, or send less.")


def _elsewhere(costs: Sequence[StepCost]) -> Text:
    """Say what takes most of a step where that is not communication."""
    wall, compute, idle = (_mean(costs, name) for name in ("wall_ns", "compute_ns", "other_ns"))
    if (compute.value or 0.0) >= (idle.value or 0.0):
        return Text(
            "Other kernels take {share} of the step: make these faster first.",
            share=compute.share_of(wall).at_digits(2),
        )
    return Text(
        "Copies and an idle GPU take {share} of the step: find out first why.",
        share=idle.share_of(wall).at_digits(2),
    )


def cost_table(costs: Sequence[StepCost], limit: int) -> Table[StepCost]:
    """Return what a step takes on each of the first `limit` GPUs."""

    def time(heading: Text, column: str) -> Column[StepCost]:
        return Column(heading, lambda row: Number(getattr(row, column), "ns", _refs(row), digits=3))

    return Table(
        "step-costs",
        Text("What a step takes on each GPU"),
        [
            Column(Text("GPU"), lambda row: _name(row, costs)),
            Column(Text("Steps"), lambda row: row.steps),
            time(Text("Step"), "wall_ns"),
            time(Text("Compute"), "compute_ns"),
            time(Text("Communication beside it"), OVERLAPPED),
            time(Text("Waiting, exposed"), "wait_ns"),
            time(Text("Transfer, exposed"), "transfer_ns"),
            time(Text("Copies and idle"), "other_ns"),
            Column(
                Text("Exposed"),
                lambda row: Number(row.exposed_share, "fraction", _refs(row), digits=2),
            ),
        ],
        costs[:limit],
        note=Text(
            "Means of the steps. Exposed: no other kernel runs beside it; compute, waiting, "
            "transfer, and copies and idle add up to the step. Table rank_steps has each step."
        ),
        refs=_refs,
        called=lambda row: _name(row, costs),
    )


def _refs(row: StepCost) -> tuple[Ref, ...]:
    return (Ref("rank_steps", f"{row.rank} {row.device}", "wall_ns"),)


def _mean(costs: Sequence[StepCost], column: str) -> Number:
    refs = tuple(ref for cost in costs for ref in _refs(cost))
    mean = Number(fmean(getattr(cost, column) or 0.0 for cost in costs), "ns", refs, digits=3)
    return mean.by(Text("mean of {n} GPUs", n=len(costs)))


def _name(cost: StepCost, costs: Sequence[StepCost]) -> Text:
    if len({each.rank for each in costs}) == 1:  # one trace: which rank a GPU is, nobody says
        return Text("GPU {number}", number=cost.device)
    return rank_name(cost.rank, cost.device, several=has_several(costs))
