"""Leaves out SM clocks that cannot be: above the maximum of the GPU."""

from __future__ import annotations

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import records, text
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.metrics.columns import IMPOSSIBLE
from nsight_prof.parsers.run.sentences import stored

FIXED = ("GV100", "GA100", "GH100", "GB100", "GB110")
"""Chips of data centres, whose clock never rises above the maximum that the driver reports."""
ROUNDING = 1.01


def without_impossible_clocks(
    counters: pd.DataFrame, gpus: pd.DataFrame, chip: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return `counters` without SM clocks above the maximum of table `gpus`, and why as `gaps`.

    Kernels of two us have them: cycles and time are not of the same moment (2.50 GHz of an H200
    of 1.98, ncu 2025.3.1).
    """
    limit = gpus["clock_hz"].max() * ROUNDING
    beyond = counters["sm_clock_hz"] > limit
    if catalogue().family(chip) not in FIXED or not beyond.any():
        return counters, tables.empty("gaps")
    rows = [
        ("counters", text(row["kernel_id"]), "sm_clock_hz",
         stored(
             "{ghz:.2f} GHz is above the maximum clock of the GPU",
             ghz=float(row["sm_clock_hz"]) / 1e9),
         IMPOSSIBLE)
        for row in records(counters[beyond])
    ]  # fmt: skip
    gaps = pd.DataFrame(rows, columns=[c.name for c in tables.tables()["gaps"]])
    plausible = counters["sm_clock_hz"].mask(beyond)
    return counters.assign(sm_clock_hz=plausible), tables.check(gaps, "gaps")
