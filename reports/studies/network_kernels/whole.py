"""Whole networks: what they took, and what the operations of the same run add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nsight_prof.parsers.cells import known
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.operations.models import NetworkKernels, network_kernels
from nsight_prof.parsers.operations.networks import bundled_networks, network_time, read_network
from nsight_prof.parsers.predict.costs import datasheet
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Column, Evidence, Finding, Number, Table, Text
from nsight_prof.reports.page.charts import LineFigure, Series
from nsight_prof.reports.studies.network_kernels.points import (
    COMPILED,
    EAGER,
    GRAPH,
    NETWORK,
    Point,
)

SENTENCES = Sentences("network_kernels")

CLEAR = 1.1
"""Times of two cases that differ by less are alike."""
HOW = {
    EAGER: Text("launched by the host"),
    GRAPH: Text("in a CUDA graph"),
    COMPILED: Text("compiled, in a CUDA graph"),
}


@dataclass(frozen=True)
class Whole:
    """A measured network, and the time that the operations of the run add up to; None: unknown."""

    point: Point
    predicted: float | None

    @property
    def sum(self) -> Number:
        """What its operations add up to."""
        missing = "its operations were not measured in this run"
        return Number(self.predicted, "s", (self.point.ref,), missing)

    @property
    def error(self) -> Number:
        """How far that lies from the measured time."""
        value = None if self.predicted is None else self.predicted / self.point.seconds - 1
        return Number(value, "fraction", (self.point.ref,), self.sum.missing)

    @property
    def rate(self) -> Number:
        """Images or sequences per second."""
        return Number(self.point.batch / self.point.seconds, "1/s", (self.point.ref,))


def kernels(run: Run) -> NetworkKernels | None:
    """Return the models of the operations of a run; None on a GPU that is not known."""
    try:
        gpu = datasheet(str(run.gpus["name"].iloc[0]))
        return network_kernels(run.bench, gpu, _l2_bytes(run))
    except (UsageError, IndexError):
        return None


def _l2_bytes(run: Run) -> float:
    return known(run.gpus["l2_bytes"].iloc[0]) or 0.0


def wholes(run: Run, found: Sequence[Point], models: NetworkKernels | None) -> list[Whole]:
    """Return the networks that were measured whole, in their order."""

    def added(point: Point) -> float | None:
        if models is None or point.op not in bundled_networks():
            return None
        try:
            network = read_network(point.op).at(point.batch)
            return network_time(models, network, point.variant, _l2_bytes(run)).seconds.seconds
        except UsageError:
            return None

    return [Whole(point, added(point)) for point in found if point.family == NETWORK]


def host_bound(found: Sequence[Whole]) -> Finding | None:
    """State up to which batch networks wait for the host, and what a graph gains."""
    graphs = {(w.point.op, w.point.batch): w.point for w in found if w.point.variant == GRAPH}
    gains = [
        (w.point, graphs[w.point.op, w.point.batch])
        for w in found
        if w.point.variant == EAGER and (w.point.op, w.point.batch) in graphs
    ]
    slow = [(eager, graph) for eager, graph in gains if eager.seconds > CLEAR * graph.seconds]
    if not slow:
        return None
    eager, graph = max(slow, key=lambda pair: pair[0].seconds / pair[1].seconds)
    largest = max(slow, key=lambda pair: pair[0].batch)[0]
    return replace(
        SENTENCES.finding(
            "network_host_bound",
            (
                Text(
                    "{n} of {all} measured networks and batches gain more than a tenth",
                    n=len(slow),
                    all=len(gains),
                ),
                Text("the largest: {network}, {batch}", network=largest.op, batch=largest.batch),
            ),
            network=eager.op,
            batch=eager.batch,
            eager=eager.time,
            graph=graph.time,
            gain=eager.time.times(graph.time),
        ),
        gain=eager.time - graph.time,
    )


def additivity(found: Sequence[Whole]) -> Finding | None:
    """State how far the sum of measured operations lies from the networks as a whole."""
    known_sums = [w for w in found if w.predicted is not None and w.point.variant == GRAPH]
    if len(known_sums) < 2:
        return None
    errors = [w.predicted / w.point.seconds - 1 for w in known_sums if w.predicted is not None]
    worst = max(known_sums, key=lambda w: abs(w.error.value or 0.0))
    return SENTENCES.finding(
        "network_sum",
        (
            Evidence(Text("networks and batches"), len(known_sums)),
            Evidence(Text("bias"), Number(sum(errors) / len(errors), "fraction")),
        ),
        mape=Number(sum(map(abs, errors)) / len(errors), "fraction"),
        network=worst.point.op,
        batch=worst.point.batch,
        error=worst.error,
    )


def table(found: Sequence[Whole]) -> Table[Whole]:
    """Return the networks with their time, their peak memory, and the sum of their operations."""
    return Table(
        "network-wholes",
        Text("Networks as a whole"),
        [
            Column(Text("network"), lambda row: row.point.op),
            Column(Text("batch"), lambda row: row.point.batch),
            Column(Text("type"), lambda row: row.point.dtype),
            Column(Text("how"), lambda row: HOW[row.point.variant]),
            Column(Text("a pass"), lambda row: row.point.time),
            Column(Text("inputs per second"), lambda row: row.rate),
            Column(Text("peak memory"), lambda row: row.point.peak_memory),
            Column(Text("sum of operations"), lambda row: row.sum),
            Column(Text("off by"), lambda row: row.error),
        ],
        found,
        note=Text("Peak memory of a CUDA graph holds what its capture and warm-up allocated."),
        refs=lambda row: [row.point.ref],
    )


def chart(found: Sequence[Whole]) -> LineFigure | None:
    """Return measured and added-up times over the batch, in CUDA graphs."""
    series = []
    for name in dict.fromkeys(network.point.op for network in found):
        rows = [w for w in found if w.point.op == name and w.point.variant == GRAPH]
        if len(rows) < 2:
            continue
        x = tuple(float(w.point.batch) for w in rows)
        series.append(Series(name, x, tuple(1e3 * w.point.seconds for w in rows), group=name))
        if all(w.predicted is not None for w in rows):
            sums = tuple(1e3 * (w.predicted or 0.0) for w in rows)
            series.append(Series(f"{name}, sum of operations", x, sums, group=name))
    if not series:
        return None
    return LineFigure(
        **SENTENCES.chart("network-wholes"),
        series=tuple(series),
        x_log=True,
        y_log=True,
    )
