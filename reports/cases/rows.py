"""Cases of table `bench` as plain rows and as points: parameters, names, times, roofs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page.units import quantity, significant
from nsight_prof.reports.page.values import Name, Number, Ref, Text

USUAL = ("cold", "normal")
"""Mode and data of a case that its name need not tell."""
LEVELS = {"dram": "DRAM", "l2": "L2", "l1": "L1", "shared": "Shared memory", "host": "Host"}
KINDS = {
    "h2d-pinned": "host to device, pinned",
    "h2d-pageable": "host to device, pageable",
    "d2h-pinned": "device to host, pinned",
    "d2h-pageable": "device to host, pageable",
    "d2d-copy": "copy on the device",
    "launch": "kernel launch",
    "launch-graph": "kernel launch in a CUDA graph",
    "fma": "multiply-add",
    "memcpy": "copy by cudaMemcpy",
}
MEASURED = "ok"


def cases(run: Run, target: str) -> list[Row]:
    """Return the rows of `target`; `params` is a dict, unknown numbers stay as pandas has them."""
    rows = records(run.bench[run.bench["target"] == target])
    for row in rows:
        row["params"] = params_of(row)
    return rows


def params_of(row: Row) -> dict[str, Any]:
    """Return the parameters of a case; none where the text is not a JSON object."""
    words = row["params"] if isinstance(row["params"], str) else "{}"
    try:
        found = json.loads(words or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def measured(rows: list[Row]) -> list[Row]:
    """Return the rows that have a time."""
    return [row for row in rows if text(row["status"]) == MEASURED and number(row["median_s"]) > 0]


def roof_name(level_or_pipe: str, dtype: str, kind: str) -> str:
    """Return what a reader calls a roof: "DRAM read", "Tensor bf16, burst", "FP32 multiply-add"."""
    words = KINDS.get(kind, kind)
    if level_or_pipe == "tensor":
        return f"Tensor {dtype}, {words}".replace("  ", " ")
    if level_or_pipe == "host":
        return f"{words[:1].upper()}{words[1:]}"
    name = LEVELS.get(level_or_pipe, level_or_pipe.upper())
    return f"{name}, {words}" if words in ("burst", "steady") else f"{name} {words}".strip()


def roof_used(row: Row) -> str:
    """Return the roof that limits a case as a reader calls it: "DRAM", "Tensor bf16"."""
    name = text(row["roof_used"])
    return LEVELS.get(name, name[:1].upper() + name[1:])


def shape_text(params: dict[str, Any]) -> str:
    """Return parameters in words: "block 256, unroll 4"; empty where there are none.

    How often a probe passes over its data is no choice of shape; a shape with a name is its name.
    """
    if params.get("shape"):
        return str(params["shape"])
    chosen = {key: v for key, v in params.items() if v not in ("", None) and key not in _NO_SHAPE}
    words = []
    if chosen.keys() >= {"m", "n", "k"}:
        words.append(" x ".join(str(chosen.pop(key)) for key in ("m", "n", "k")))
    words += [
        f"{_words(key)} {_parameter_text(key, value)}".strip() for key, value in chosen.items()
    ]
    return ", ".join(words)


_NO_SHAPE = ("passes", "iterations", "buffer", "stride_words", "past_l1", "memory", "samples_are")


def _words(key: str) -> str:
    return key.removesuffix("_bytes").removesuffix("bytes").replace("_", " ").replace(" sm", " SM")


def _parameter_text(key: str, value: Any) -> str:
    if "bytes" in key.split("_") and not isinstance(value, str):
        return quantity(float(value), "iB", 3)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return significant(value, 3)
    return str(value)


def ratio(value: Any, base: Any) -> float:
    """Return value over base; NaN where either is unknown or the base is not above 0."""
    a, b = number(value), number(base)
    return a / b if b > 0 and not math.isnan(a) else math.nan


def case_ref(row: Row, column: str = "median_s") -> Ref:
    """Return the cell of table `bench` that a number of a case is from."""
    return Ref("bench", text(row["case_id"]), column)


def case_name(row: Row) -> Name:
    """Return the name of a case, with a link to its row; mode and data only where unusual."""
    state = text(row["mode"]), text(row["data"])
    return Name("|".join((text(row["name"]), *(() if state == USUAL else state))), case_ref(row))


def data_pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return the cases on random data that differ from one on zeros in nothing else, with it."""
    zeros = [row for row in rows if row["data"] == "zeros"]
    pairs = (
        (row, next((on_zeros for on_zeros in zeros if _alike(row, on_zeros)), None))
        for row in rows
        if row["data"] == "normal"
    )
    return [(row, on_zeros) for row, on_zeros in pairs if on_zeros is not None]


def _alike(row: Row, on_zeros: Row) -> bool:
    keys = ("operation", "mode", "duration", "dtype")
    return row["params"] == on_zeros["params"] and all(
        text(row[k]) == text(on_zeros[k]) for k in keys
    )


def slowdown(pair: tuple[Row, Row]) -> float:
    """Return the time on random data over that on zeros."""
    return ratio(pair[0]["median_s"], pair[1]["median_s"])


NOT_COUNTED = "not counted under ncu"


@dataclass(frozen=True)
class CasePoint:
    """One measured case: a row of table `bench` whose `params` is a dict.

    `counted` is the row whose counters are those of its kernels: another one where a variant
    launches the same kernels; None where none was counted.
    """

    row: Row
    counted: Row | None = None

    def param(self, name: str, default: Any = "") -> Any:
        """Return a parameter of the case."""
        return self.row["params"].get(name, default)

    @property
    def dtype(self) -> str:
        """Input type."""
        return text(self.row["dtype"])

    @property
    def ref(self) -> Ref:
        """Its row of table `bench`."""
        return case_ref(self.row)

    @property
    def seconds(self) -> float:
        """Median time of a call."""
        return number(self.row["median_s"])

    @property
    def time(self) -> Number:
        """Median time of a call, with its reference."""
        return self._number(self.seconds, "s")

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the median; the median where there is none."""
        ends = (known(self.row["ci_low_s"]), known(self.row["ci_high_s"]))
        low, high = (self.seconds if end is None else end for end in ends)
        return low, high

    @property
    def flops(self) -> float:
        """FLOPs of a call, by formula."""
        return number(self.row["flops"])

    @property
    def bytes(self) -> float:
        """Compulsory bytes of a call, by formula."""
        return number(self.row["bytes"])

    @property
    def fraction(self) -> Number:
        """Share of what the measured roofs allow."""
        return self._number(number(self.row["roof_fraction"]), "fraction", "no measured roof")

    @property
    def roof(self) -> str:
        """The roof that limits it: "DRAM", "Tensor bf16"."""
        return roof_used(self.row)

    @property
    def flops_ratio(self) -> Number:
        """Counted FLOPs over those of the formula."""
        return self._counted_over("counted_flops", self.flops)

    @property
    def bytes_ratio(self) -> Number:
        """Bytes that DRAM moved over the compulsory ones."""
        return self._counted_over("dram_bytes", self.bytes)

    def _counted_over(self, column: str, formula: float) -> Number:
        if self.counted is None:
            return self._number(None, "x", NOT_COUNTED)
        counted = number(self.counted[column]) / (known(self.counted["counted_calls"]) or 1)
        found = self._number(ratio(counted, formula), "x", NOT_COUNTED)
        unit = "FLOP" if column == "counted_flops" else "B"
        above, below = (Number(value, unit, digits=4) for value in (counted, formula))
        return found.by(Text("{a} / {b}", a=above, b=below))

    def _number(self, value: float | None, unit: str, missing: str = "") -> Number:
        return Number(value, unit, (self.ref,), missing)
