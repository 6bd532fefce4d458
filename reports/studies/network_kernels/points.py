"""Measured operations of networks as points of curves over the batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nsight_prof.parsers.cells import grouped, known, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.rows import CasePoint, cases, measured
from nsight_prof.reports.page import Number, Text

TARGET = "network_kernels"
GRAPH, EAGER, COMPILED = "graph", "eager", "compiled-graph"
NETWORK = "network"
NO_CURVE = (NETWORK, "side-by-side")
FAMILIES = {
    "conv": Text("convolutions"),
    "depthwise": Text("depthwise convolutions"),
    "linear": Text("linear layers"),
    "attention": Text("attention"),
    "lstm": Text("LSTMs"),
    "norm": Text("norms"),
    "softmax": Text("softmax"),
    "pooling": Text("pooling"),
    "elementwise": Text("elementwise operations"),
    "fused": Text("fused elementwise operations"),
}
FINE = "fine"
NO_SIZE = ("family", "op", "layout", "variant", "rows", "weight_bytes")


@dataclass(frozen=True)
class Point(CasePoint):
    """One measured case."""

    @property
    def family(self) -> str:
        """Family of the operation."""
        return text(self.param("family"))

    @property
    def op(self) -> str:
        """Operation, or network."""
        return text(self.param("op"))

    @property
    def batch(self) -> int:
        """What grows with the batch: images, tokens, elements."""
        return int(self.param("rows"))

    @property
    def layout(self) -> str:
        """Order of images in memory; "" where there is none."""
        return text(self.param("layout"))

    @property
    def variant(self) -> str:
        """How it is launched."""
        return text(self.param("variant"))

    @property
    def is_hot(self) -> bool:
        """Whether it finds in the cache what it used before."""
        return bool(self.row["mode"] == "hot")

    @property
    def peak_memory(self) -> Number:
        """Device memory at its peak: inputs, output, weights and what the kernels need besides.

        Of a cold case these are those of all its copies, which say nothing about the operation.
        """
        value = known(self.row["peak_allocated_bytes"]) if self.is_hot else None
        return self._number(value, "B", "measured on the same buffers only")


@dataclass(frozen=True)
class Curve:
    """An operation of one shape, type and layout over the batch, rising."""

    points: tuple[Point, ...]

    @property
    def last(self) -> Point:
        """The largest batch."""
        return self.points[-1]

    @property
    def shape(self) -> str:
        """Its sizes but the batch: "channels 64, filters 64, …"."""
        params = self.last.row["params"]
        return ", ".join(f"{k} {v}" for k, v in sorted(params.items()) if k not in NO_SIZE)

    @property
    def name(self) -> str:
        """Operation, sizes, type and layout."""
        words = (self.last.op, self.shape, self.last.dtype, self.last.layout)
        return ", ".join(word for word in words if word)

    def at(self, batch: int) -> Point | None:
        """Return the point at a batch; None where there is none."""
        return next((point for point in self.points if point.batch == batch), None)


def points(run: Run) -> list[Point]:
    """Return the measured cases of the target."""
    rows = measured(cases(run, TARGET))
    return [Point(row, row if known(row["counted_calls"]) else None) for row in rows]


def curves(found: Sequence[Point], *, hot: bool = False) -> list[Curve]:
    """Return the operations in CUDA graphs, on unused or on used buffers, as curves."""

    def identity(point: Point) -> str:
        facts = point.row["params"].items()
        params = {k: v for k, v in facts if k not in ("rows", "weight_bytes")}
        return json.dumps([params, point.dtype], sort_keys=True)

    swept = (p for p in found if p.family not in NO_CURVE and p.variant != EAGER)
    groups = grouped((point for point in swept if point.is_hot == hot), identity)
    return [Curve(tuple(sorted(group, key=lambda point: point.batch))) for group in groups.values()]


def pairs(
    found: Sequence[Point], name: str, first: str, second: str
) -> Iterator[tuple[Point, Point]]:
    """Give the cold cases that differ in one thing alone: `name` is "layout", "dtype" or "mode"."""

    def identity(point: Point) -> str:
        facts = {**point.row["params"], "dtype": point.dtype, "mode": text(point.row["mode"])}
        return json.dumps({k: v for k, v in facts.items() if k not in (name, "weight_bytes")},
                          sort_keys=True)  # fmt: skip

    def of(point: Point) -> str:
        return {"layout": point.layout, "dtype": point.dtype}.get(name, text(point.row["mode"]))

    chosen = [p for p in found if p.family != NETWORK and p.variant == GRAPH]
    if name != "mode":
        chosen = [point for point in chosen if not point.is_hot]
    others = {identity(point): point for point in chosen if of(point) == second}
    for point in chosen:
        if of(point) == first and identity(point) in others:
            yield point, others[identity(point)]
