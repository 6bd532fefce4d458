"""Measured operations of a transformer as points: times, rates, share of the roof, counters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nsight_prof.parsers.cells import Row, grouped, known, number, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.rows import CasePoint, cases, measured
from nsight_prof.reports.page import Column, Number, Ref, Table, Text, Word
from nsight_prof.reports.page.units import quantity

sequences = partial(Text, "{n} sequence", "{n} sequences")
of_tokens = partial(Text, "{n} token", "{n} tokens")
TARGET = "llm_kernels"
LAYER = ("qkv", "out", "gate-up", "down")
"""The linear layers of a decoder layer; the head stands once in a model."""
POINTWISE = ("norm", "elementwise", "sampling")
"""Families without products: norms, activations, gathers, sampling."""
FLASH = "flash"
BACKENDS = {FLASH: "FlashAttention", "cudnn": "cuDNN", "math": "math"}
VARIANTS = {
    "eager": "eager",
    "graph": "CUDA graph",
    "compiled": "compiled",
    "compiled-graph": "compiled, in a graph",
}


@dataclass(frozen=True)
class Point(CasePoint):
    """One measured case; `flash` is FlashAttention with the version that kernel names contain."""

    flash: str = BACKENDS[FLASH]

    @property
    def name(self) -> str:
        """Name of the case."""
        return text(self.row["name"])

    @property
    def shape(self) -> str:
        """Name of the case without its variant, which stands last."""
        return self.name.rpartition("/")[0]

    @property
    def case(self) -> str:
        """Name of the case without its family, which stands first."""
        return self.name.partition("/")[2]

    @property
    def operation(self) -> str:
        """Name of the operation."""
        return text(self.row["operation"])

    @property
    def tokens(self) -> int:
        """Tokens of a call; 0 for operations that are not swept over tokens."""
        return int(self.param("tokens") or 0)

    @property
    def backend(self) -> str:
        """Name of the attention back end."""
        key = text(self.param("backend"))
        return self.flash if key == FLASH else BACKENDS.get(key, key)

    @property
    def flop_rate(self) -> Number:
        """FLOP/s; unknown for an operation without FLOPs."""
        flops = self._number(self.flops or None, "FLOP", "no FLOPs by formula")
        return flops.per(self.time, "FLOP/s")

    @property
    def byte_rate(self) -> Number:
        """Compulsory bytes per second."""
        return self._number(self.bytes / self.seconds, "B/s")

    @property
    def clock(self) -> Number:
        """SM clock during the samples."""
        return self._number(number(self.row["clock_hz"]), "Hz")

    @property
    def kernels(self) -> str:
        """Kernels of the case, where they were counted."""
        return "" if self.counted is None else text(self.counted["kernel_names"])


def points(run: Run) -> list[Point]:
    """Return the measured cases of the target, with the counters of their kernels."""
    rows = cases(run, TARGET)
    counted = {_identity(row): row for row in rows if known(row["counted_launches"])}
    flash = flash_version(text(row["kernel_names"]) for row in rows)
    return [Point(row, _counters(row, counted), flash) for row in measured(rows)]


def flash_version(kernels: Iterable[str]) -> str:
    """Return "FlashAttention-2" where all such kernels are of it, without version where unknown."""
    found = {name for names in kernels for name in re.findall(r"FlashAttention-\d+", names)}
    return found.pop() if len(found) == 1 else BACKENDS[FLASH]


def _identity(row: Row) -> tuple[str, str, str, str]:
    """Return shape, variant, mode and data of a case."""
    shape, _, variant = text(row["name"]).rpartition("/")
    return shape, variant, text(row["mode"]), text(row["data"])


def _counters(row: Row, counted: dict[tuple[str, str, str, str], Row]) -> Row | None:
    """Return the row with the counters of these kernels: its own, or those without a graph.

    A graph launches the kernels that the same function launches eagerly.
    """
    shape, variant, mode, data = _identity(row)
    same = {"graph": "eager", "eager": "graph", "compiled-graph": "compiled"}.get(variant, variant)
    return counted.get((shape, variant, mode, data)) or counted.get((shape, same, mode, data))


def select(
    found: Sequence[Point], mode: str = "cold", data: str = "normal", **params: Any
) -> list[Point]:
    """Return the points of a mode and kind of data whose parameters have these values."""
    return [
        point
        for point in found
        if point.row["mode"] == mode
        and point.row["data"] == data
        and all(point.param(key, None) == value for key, value in params.items())
    ]


def first(found: Sequence[Point], **wanted: Any) -> Point | None:
    """Return the first of `select`; None where there is none."""
    return next(iter(select(found, **wanted)), None)


def slowdown(slow: Point, fast: Point) -> float:
    """Return how many times longer `slow` takes than `fast`."""
    return slow.seconds / fast.seconds


def slowdown_interval(slow: Point, fast: Point) -> tuple[float, float]:
    """Return the interval of `slowdown`: the ends of both medians' intervals, crosswise."""
    return slow.interval[0] / fast.interval[1], slow.interval[1] / fast.interval[0]


@dataclass(frozen=True)
class Layer:
    """The linear layers of one decoder layer of a model together, at a number of tokens."""

    model: str
    tokens: int
    dtype: str
    projections: tuple[Point, ...]

    @property
    def ref(self) -> Ref:
        """Its row in the table of decoder layers."""
        return Ref("linear_layers", f"{self.model} {self.tokens} tokens")

    @property
    def seconds(self) -> float:
        """Sum of the medians."""
        return sum(point.seconds for point in self.projections)

    @property
    def time(self) -> Number:
        """Sum of the medians, with its reference."""
        return Number(self.seconds, "s", (self.ref,))

    @property
    def flop_rate(self) -> Number:
        """FLOP/s of all together."""
        flops = sum(point.flops for point in self.projections)
        return Number(flops / self.seconds, "FLOP/s", (self.ref,))

    @property
    def byte_rate(self) -> Number:
        """Compulsory bytes per second of all together."""
        moved = sum(point.bytes for point in self.projections)
        return Number(moved / self.seconds, "B/s", (self.ref,))

    @property
    def fraction(self) -> Number:
        """Time that the roofs allow over the time taken."""
        return Number(at_roofs(self.projections) / self.seconds, "fraction", (self.ref,))

    @property
    def roof(self) -> str:
        """The roof of all projections; empty where they differ."""
        roofs = {point.roof for point in self.projections}
        return roofs.pop() if len(roofs) == 1 else ""


def at_roofs(found: Iterable[Point]) -> float:
    """Return the time that the roofs allow for some operations; NaN where a roof is unknown."""
    return sum(number(point.row["roof_fraction"]) * point.seconds for point in found)


def layers(found: Sequence[Point], dtype: str = "bf16", model: str = "") -> list[Layer]:
    """Return the models whose four linear layers were measured, by model and ascending tokens."""
    chosen = [p for p in select(found, family="linear", variant="graph") if p.dtype == dtype]
    by_size = {
        size: {p.param("projection"): p for p in reversed(same)}  # of several the first
        for size, same in grouped(chosen, lambda p: (p.param("model"), p.tokens)).items()
    }
    order = list(dict.fromkeys(name for name, _ in by_size))
    return [
        Layer(name, tokens, dtype, tuple(by_size[name, tokens][key] for key in LAYER))
        for name, tokens in sorted(by_size, key=lambda size: (order.index(size[0]), size[1]))
        if set(LAYER) <= by_size[name, tokens].keys() and model in ("", name)
    ]


def variants_by_shape(found: Sequence[Point]) -> list[dict[str, Point]]:
    """Return {variant: point} of each pointwise operation and number of tokens."""
    pointwise = select([p for p in found if p.param("family") in POINTWISE])
    groups = grouped(pointwise, lambda p: (p.param("op"), p.tokens)).values()
    return [{point.param("variant"): point for point in same} for same in groups]


def fastest(found: Iterable[Point]) -> Point:
    """Return the point with the shortest time."""
    return min(found, key=lambda point: point.seconds)


def title(model: str) -> str:
    """Return a model's name as its authors write it: "Llama-3.1-8B"."""
    pieces = model.split("-")
    words = [w if w[:1] == "v" and w[1:2].isdigit() else w[:1].upper() + w[1:] for w in pieces]
    return "-".join(w[:-1] + "B" if w[:1].isdigit() and w.endswith("b") else w for w in words)


def model_titles(point: Point) -> list[str]:
    """Return the names of all models that have a linear layer of these sizes."""
    return [title(model) for model in str(point.param("models")).split(", ")]


def sized(point: Point) -> Text:
    """Return the operation of a point and its tokens."""
    name = Word(point.operation)
    return Text("{name}, {n} token", "{name}, {n} tokens", name=name, n=point.tokens)


TENSOR, DRAM = ("tensor bf16", "tensor fp8"), ("dram",)


def of_roof(point: Point | Layer) -> Text | str:
    """Return " (87 % of the DRAM roof)" behind a rate; empty where no roof is known."""
    if point.fraction.value is None:
        return ""
    if not point.roof:
        return Text(" ({share} of the roofs)", share=point.fraction)
    return Text(" ({share} of the {roof} roof)", share=point.fraction, roof=point.roof)


def roof_levels(
    found: Sequence[Point], roofs: Sequence[str], scale: float
) -> tuple[tuple[float, str], ...]:
    """Return the measured roofs that limit some of the points, divided by `scale`."""
    levels = {}
    for point in found:
        value = known(point.row["roof_value"])
        if value is not None:
            label = f"{point.roof} roof {quantity(value, str(point.row['roof_unit']), 3)}"
            levels[str(point.row["roof_used"])] = (value / scale, label)
    return tuple(levels[name] for name in roofs if name in levels)


DETAILS = 6
"""Rows of a table of details that a page shows."""
COUNTED = Text("Counted FLOPs and DRAM bytes are those of ncu over those of the formula.")


def rate_table(
    key: str,
    heading: Text,
    columns: Sequence[Column[Point]],
    rows: Sequence[Point],
    note: Text = COUNTED,
    last: Sequence[Column[Point]] = (),
    preview: int = DETAILS,
) -> Table[Point]:
    """Return a table of cases with their time, rates, share of the roof and counters."""
    rates = (
        Column[Point](Text("time"), lambda point: point.time),
        Column[Point](Text("compute rate"), lambda point: point.flop_rate, "TFLOP/s"),
        Column[Point](Text("compulsory bytes"), lambda point: point.byte_rate, "GB/s"),
        Column[Point](Text("of its roof"), lambda point: point.fraction),
        Column[Point](Text("roof"), lambda point: point.roof or None),
        Column[Point](Text("counted FLOPs"), lambda point: point.flops_ratio),
        Column[Point](Text("DRAM bytes"), lambda point: point.bytes_ratio),
    )
    every = [*columns, *rates, *last]
    return Table(key, heading, every, rows, note, refs=lambda p: [p.ref], preview=preview)
