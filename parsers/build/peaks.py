"""The roofs that a model's steps are held to: measured ones, and beside them the datasheet's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pandas as pd

from nsight_prof.parsers.cells import known, records, text
from nsight_prof.parsers.run.sentences import stored

NOT_MEASURED = stored(
    "no roof of this GPU is known: measure them with `prof run recipes/roofline.yaml`"
)


class HasRoofs(Protocol):
    """What has the tables of roofs: a run, or its tables while they are made."""

    @property
    def measured_roofs(self) -> pd.DataFrame:
        """Table `measured_roofs`."""

    @property
    def roofs(self) -> pd.DataFrame:
        """Table `roofs`."""


@dataclass(frozen=True)
class Peak:
    """One roof: `value` in FLOP/s or B/s, `name` as a sentence needs it, `detail` its origin.

    `clock_hz` is the SM clock that it was measured at; None where that is not known.
    """

    key: str
    name: str
    value: float
    detail: str = ""
    clock_hz: float | None = None


@dataclass(frozen=True)
class Peaks:
    """Roofs of one GPU, None where the run does not have them.

    `steady`: Tensor Cores under load that lasts, at the clock that the power limit allows;
    `burst`: the first 20 ms of it; `read`: DRAM read. `*_sheet` are the datasheet's.
    """

    steady: Peak | None
    burst: Peak | None
    read: Peak | None
    compute_sheet: Peak | None
    read_sheet: Peak | None

    @property
    def compute(self) -> Peak | None:
        """The roof for arithmetic: steady where it was measured, else burst, else datasheet."""
        return self.steady or self.burst or self.compute_sheet

    @property
    def fastest(self) -> Peak | None:
        """The roof for arithmetic that no step beats: the highest that was measured."""
        measured = [peak for peak in (self.steady, self.burst) if peak is not None]
        return max(measured, key=lambda peak: peak.value, default=self.compute_sheet)

    @property
    def memory(self) -> Peak | None:
        """The roof for reading memory: measured, else the datasheet's."""
        return self.read or self.read_sheet

    def attained(self, flop_rate: float) -> Peak | None:
        """Return the roof that a step reaching `flop_rate` FLOP/s is held to.

        A step that is faster than the steady roof was over before the power limit slowed it: it is
        held to the burst roof.
        """
        first = self.compute
        faster = first is not None and flop_rate > first.value
        return self.burst if faster and self.burst is not None else first


def peaks(run: HasRoofs, dtype: str) -> Peaks:
    """Return the roofs of the run's GPU for an input type ("bf16"); an empty one has no peak."""
    kinds = {
        (text(row["level_or_pipe"]), text(row["dtype"]), text(row["kind"])): row
        for row in reversed(records(run.measured_roofs))
        if known(row["value"]) is not None
        and text(row["unit"]) in ("B/s", "FLOP/s")
        and text(row["accepted"]) != "False"  # counters contradict it
    }
    sheet = {
        (text(row["level_or_pipe"]), text(row["dtype"])): row
        for row in records(run.roofs)
        if text(row["source"]) == "datasheet" and known(row["value"]) is not None
    }
    return Peaks(
        steady=_peak(
            kinds.get(("tensor", dtype, "steady")), "steady", stored("measured steady roof")
        ),
        burst=_peak(kinds.get(("tensor", dtype, "burst")), "burst", stored("measured burst roof")),
        read=_peak(kinds.get(("dram", "", "read")), "read", stored("measured DRAM read roof")),
        compute_sheet=_peak(sheet.get(("tensor", dtype)), "compute_sheet", "datasheet peak"),
        read_sheet=_peak(sheet.get(("dram", "")), "read_sheet", "datasheet bandwidth"),
    )


def _peak(row: dict[str, object] | None, key: str, name: str) -> Peak | None:
    if row is None:
        return None
    value, clock = known(row["value"]) or 0.0, known(row.get("clock_hz"))
    return Peak(key, name, value, text(row.get("detail")), clock)
