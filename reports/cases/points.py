"""A measured case as studies see it: its parameters, time, share of the roof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nsight_prof.parsers.cells import Row, known, number, text
from nsight_prof.reports.cases.rows import case_ref, ratio, roof_used
from nsight_prof.reports.page.values import Number, Ref

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
        value = None
        if self.counted is not None:
            calls = known(self.counted["counted_calls"]) or 1
            value = ratio(number(self.counted[column]) / calls, formula)
        return self._number(value, "x", NOT_COUNTED)

    def _number(self, value: float | None, unit: str, missing: str = "") -> Number:
        return Number(value, unit, (self.ref,), missing)
