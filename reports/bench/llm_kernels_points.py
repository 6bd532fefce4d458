"""Measured operations of a transformer as points: times, rates, share of the roof, counters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nsight_prof.parsers.cells import Row, count, known, number, text
from nsight_prof.reports.bench.cases import cases, measured, ratio
from nsight_prof.reports.load import Run

TARGET = "llm_kernels"
LAYER = ("qkv", "out", "gate-up", "down")
"""The linear layers of a decoder layer; the head stands once in a model."""
FLASH = "flash"
BACKENDS = {FLASH: "FlashAttention", "cudnn": "cuDNN", "math": "math"}
VARIANTS = {
    "eager": "eager",
    "graph": "CUDA graph",
    "compiled": "compiled",
    "compiled-graph": "compiled, in a graph",
}


@dataclass(frozen=True)
class Point:
    """One measured case; `counted` is the row whose counters are those of its kernels, or None.

    `flash` is FlashAttention with the version that the kernels of the run tell by their names.
    Times are seconds a call, rates per second; unknown numbers are NaN.
    """

    row: Row
    counted: Row | None = None
    flash: str = BACKENDS[FLASH]

    def param(self, name: str, default: Any = "") -> Any:
        """Return a parameter of the case."""
        return self.row["params"].get(name, default)

    @property
    def name(self) -> str:
        """Name of the case."""
        return text(self.row["name"])

    @property
    def operation(self) -> str:
        """What a reader calls it."""
        return text(self.row["operation"])

    @property
    def backend(self) -> str:
        """What a reader calls the back end of attention."""
        key = text(self.param("backend"))
        return self.flash if key == FLASH else BACKENDS.get(key, key)

    @property
    def seconds(self) -> float:
        """Median time of a call."""
        return number(self.row["median_s"])

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval of the median; the median where there is none."""
        return _or(number(self.row["ci_low_s"]), self.seconds)

    @property
    def high(self) -> float:
        """Upper end of it."""
        return _or(number(self.row["ci_high_s"]), self.seconds)

    @property
    def flops(self) -> float:
        """FLOPs of a call, by formula."""
        return number(self.row["flops"])

    @property
    def bytes(self) -> float:
        """Compulsory bytes of a call, by formula."""
        return number(self.row["bytes"])

    @property
    def flop_rate(self) -> float:
        """FLOP/s; NaN for an operation without FLOPs."""
        return self.flops / self.seconds if self.flops > 0 else math.nan

    @property
    def byte_rate(self) -> float:
        """Compulsory bytes a second."""
        return self.bytes / self.seconds

    @property
    def fraction(self) -> float:
        """Share of what the measured roofs allow."""
        return number(self.row["roof_fraction"])

    @property
    def roof(self) -> str:
        """The roof that limits it, as a reader calls it: "DRAM", "Tensor bf16"."""
        words = text(self.row["roof_used"])
        known_roofs = {"dram": "DRAM", "l2": "L2", "l1": "L1"}
        return known_roofs.get(words, words[:1].upper() + words[1:])

    @property
    def flops_ratio(self) -> float:
        """Counted FLOPs over those of the formula."""
        return self._counted_over("counted_flops", self.flops)

    @property
    def bytes_ratio(self) -> float:
        """Bytes that DRAM moved over the compulsory ones."""
        return self._counted_over("dram_bytes", self.bytes)

    @property
    def kernels(self) -> str:
        """Kernels of the case, where they were counted."""
        return "" if self.counted is None else text(self.counted["kernel_names"])

    def _counted_over(self, column: str, formula: float) -> float:
        if self.counted is None:
            return math.nan
        calls = count(self.counted["counted_calls"]) or 1
        return ratio(number(self.counted[column]) / calls, formula)


def _or(value: float, other: float) -> float:
    return other if math.isnan(value) else value


def points(run: Run) -> list[Point]:
    """Return the measured cases of the target, with the counters of their kernels."""
    rows = cases(run, TARGET)
    counted = {_place(row): row for row in rows if known(row["counted_launches"])}
    flash = flash_version(text(row["kernel_names"]) for row in rows)
    return [Point(row, _counters(row, counted), flash) for row in measured(rows)]


def flash_version(kernels: Iterable[str]) -> str:
    """Return "FlashAttention-2" where all such kernels are of it, without version where unknown."""
    found = {name for names in kernels for name in re.findall(r"FlashAttention-\d+", names)}
    return found.pop() if len(found) == 1 else BACKENDS[FLASH]


def _place(row: Row) -> tuple[str, str, str, str]:
    """Return shape, variant, mode and data of a case."""
    shape, _, variant = text(row["name"]).rpartition("/")
    return shape, variant, text(row["mode"]), text(row["data"])


def _counters(row: Row, counted: dict[tuple[str, str, str, str], Row]) -> Row | None:
    """Return the row with the counters of these kernels: its own, or those without a graph.

    A graph launches the kernels that the same function launches eagerly.
    """
    shape, variant, mode, data = _place(row)
    twin = {"graph": "eager", "eager": "graph", "compiled-graph": "compiled"}.get(variant, variant)
    return counted.get((shape, variant, mode, data)) or counted.get((shape, twin, mode, data))


def select(
    found: list[Point], mode: str = "cold", data: str = "normal", **params: Any
) -> list[Point]:
    """Return the points of a mode and kind of data whose parameters have these values."""
    return [
        point
        for point in found
        if point.row["mode"] == mode
        and point.row["data"] == data
        and all(point.param(key, None) == value for key, value in params.items())
    ]


def one(
    found: list[Point], mode: str = "cold", data: str = "normal", **params: Any
) -> Point | None:
    """Return the first of `select`; None where there is none."""
    return next(iter(select(found, mode, data, **params)), None)


@dataclass(frozen=True)
class Times:
    """How many times longer `slow` takes than `fast`, with the interval of both medians."""

    value: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """The intervals of the two medians do not overlap."""
        return not self.low <= 1 <= self.high


def times(slow: Point, fast: Point) -> Times:
    """Return the ratio of two times and its interval (the ends of both intervals, crosswise)."""
    return Times(slow.seconds / fast.seconds, slow.low / fast.high, slow.high / fast.low)


@dataclass(frozen=True)
class LayerPoint:
    """The linear layers of one decoder layer of a model together, at a number of tokens."""

    model: str
    tokens: int
    parts: tuple[Point, ...]

    @property
    def seconds(self) -> float:
        """Sum of the medians."""
        return sum(part.seconds for part in self.parts)

    @property
    def flop_rate(self) -> float:
        """FLOP/s of all together."""
        return sum(part.flops for part in self.parts) / self.seconds

    @property
    def byte_rate(self) -> float:
        """Compulsory bytes a second of all together."""
        return sum(part.bytes for part in self.parts) / self.seconds

    @property
    def fraction(self) -> float:
        """Time that the roofs allow over the time taken."""
        return sum(part.fraction * part.seconds for part in self.parts) / self.seconds

    @property
    def roofs(self) -> str:
        """The roof of all parts; empty where they differ."""
        roofs = {part.roof for part in self.parts}
        return roofs.pop() if len(roofs) == 1 else ""


def layers(found: list[Point], dtype: str = "bf16", variant: str = "graph") -> list[LayerPoint]:
    """Return the models whose four linear layers were measured, by model and ascending tokens."""
    made = []
    chosen = [p for p in select(found, family="linear", variant=variant) if p.row["dtype"] == dtype]
    for model in dict.fromkeys(p.param("model") for p in chosen):
        for tokens in sorted({p.param("tokens") for p in chosen}):
            parts = [
                part
                for name in LAYER
                if (part := one(chosen, model=model, tokens=tokens, projection=name))
            ]
            if len(parts) == len(LAYER):
                made.append(LayerPoint(model, tokens, tuple(parts)))
    return made


def pointwise(found: list[Point]) -> list[Point]:
    """Return the operations without products: norms, activations, gathers, sampling."""
    return [p for p in found if p.param("family") in ("norm", "elementwise", "sampling")]


def title(model: str) -> str:
    """Return a model's name as its authors write it: "Llama-3.1-8B"."""
    parts = model.split("-")
    words = [w if w[:1] == "v" and w[1:2].isdigit() else w[:1].upper() + w[1:] for w in parts]
    return "-".join(w[:-1] + "B" if w[:1].isdigit() and w.endswith("b") else w for w in words)
