"""How much longer kernels take beside communication than alone, where launches can be compared."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.ranks.times import Covered
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.timeline import timeline
from nsight_prof.reports.page import Number, Ref

ALIKE = 1.1
"""Ninth over first tenth of the durations of a kernel's launches alone up to which they do the same
work, so that one beside communication can be compared with them."""
ENOUGH = 3
"""Launches on each side from which on two medians are compared."""
OVERLAPPED = 0.5
"""Part of its time from which on a launch runs beside communication."""


@dataclass(frozen=True)
class Contention:
    """Kernels beside communication: `beside_ns` in `launches`, and `alone_ns` of as many alone.

    `total_ns` is the time of all kernels beside communication, comparable or not.
    """

    launches: int
    beside_ns: float
    alone_ns: float
    total_ns: float

    @property
    def longer(self) -> Number:
        """The part of their time alone by which they take longer."""
        refs = (Ref("launches", "", "start_ns"), Ref("launches", "", "duration_ns"))
        hidden, alone = (Number(ns, "ns", refs) for ns in (self.beside_ns, self.alone_ns))
        return (hidden - alone).share_of(alone)


def contention(run: Run) -> Contention | None:
    """Return how much longer kernels take beside collectives; None where none can be compared.

    Compared are launches of one kernel (name, grid and block) in one stage.
    """
    frame = timeline(run)
    if frame is None or not (frame["category"] == "collective").any():
        return None
    others = pd.concat([_overlapped(rows) for _, rows in frame.groupby("gpu")])
    hidden, alone = others[others["overlap"] > OVERLAPPED], others[others["overlap"] == 0]
    keys = ["kernel_id", "stage"]
    durations = alone.groupby(keys, observed=True)["duration_ns"]
    spread = durations.quantile(0.9) / durations.quantile(0.1)
    alike = durations.median()[(spread <= ALIKE) & (durations.size() >= ENOUGH)].rename("alone_ns")
    found = hidden.groupby(keys, observed=True)["duration_ns"].agg(["size", "sum"])
    both = found[found["size"] >= ENOUGH].join(alike, how="inner")
    if both.empty:
        return None
    return Contention(
        int(both["size"].sum()),
        float(both["sum"].sum()),
        float((both["size"] * both["alone_ns"]).sum()),
        float(hidden["duration_ns"].sum()),
    )


def _overlapped(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels of a GPU that are no collectives, with the part of each beside one."""
    is_collective = (rows["category"] == "collective").to_numpy()
    sends, others = rows[is_collective], rows[~is_collective]
    covered = Covered(sends["start_ns"].to_numpy(), sends["end_ns"].to_numpy())
    start, end = (covered.before(others[name].to_numpy()) for name in ("start_ns", "end_ns"))
    return others.assign(overlap=(end - start) / others["duration_ns"].clip(lower=1))
