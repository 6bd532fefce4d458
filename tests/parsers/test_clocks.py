"""SM clocks above the maximum of the GPU."""

import math

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.metrics.clocks import without_impossible_clocks


def frame(table: str, rows: list[dict[str, object]]) -> pd.DataFrame:
    names = [c.name for c in tables.tables()[table]]
    return tables.check(pd.DataFrame(rows, columns=names), table)


@pytest.mark.parametrize(
    ("chip", "clock", "kept"),
    [
        ("GH100", 2.03e9, False),
        ("GH100", 1.98e9, True),
        ("AD102", 2.03e9, True),  # boards of GeForce may run above what the driver names
        ("", 2.50e9, True),
    ],
)
def test_no_clock_is_above_the_maximum(chip: str, clock: float, kept: bool) -> None:
    counters = frame("counters", [{"kernel_id": "k1", "sm_clock_hz": clock}])
    gpus = frame("gpus", [{"clock_hz": 1.98e9}])
    found, gaps = without_impossible_clocks(counters, gpus, chip)
    assert math.isnan(found["sm_clock_hz"].iloc[0]) is not kept
    assert len(gaps) == (0 if kept else 1)
    if not kept:
        assert gaps["reason"].iloc[0] == "2.03 GHz is above the maximum clock of the GPU"
        assert gaps["column"].iloc[0] == "sm_clock_hz"


def test_without_a_known_maximum_all_clocks_stay() -> None:
    counters = frame("counters", [{"kernel_id": "k1", "sm_clock_hz": 2.5e9}])
    found, gaps = without_impossible_clocks(counters, tables.empty("gpus"), "GH100")
    assert found["sm_clock_hz"].iloc[0] == 2.5e9
    assert gaps.empty
