import math
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers.roofs.fractions import Fractions, add_fractions
from nsight_prof.parsers.tables import check, tables

CEILINGS = {
    ("dram", ""): 4e12,
    ("l2", ""): 8e12,
    ("tensor", "bf16"): 800e12,
    ("fp32", "fp32"): 60e12,
}


def measured() -> pd.DataFrame:
    rows = [
        {"level_or_pipe": level, "dtype": dtype, "value": value, "is_ceiling": True}
        for (level, dtype), value in CEILINGS.items()
    ]
    rows.append({"level_or_pipe": "dram", "dtype": "", "value": 3e12, "is_ceiling": False})
    names = [column.name for column in tables()["measured_roofs"]]
    return check(pd.DataFrame(rows, columns=names), "measured_roofs")


def fraction(l2_bytes: float = math.nan, **row: Any) -> tuple[dict[str, Any], Fractions]:
    defaults = {"case_id": "c", "mode": "cold", "median_s": 1.0, "level": "dram", "dtype": ""}
    names = [column.name for column in tables()["bench"]]
    bench = check(pd.DataFrame([defaults | row], columns=names), "bench")
    found = add_fractions(bench, measured(), "this run", l2_bytes)
    return {str(k): v for k, v in found.bench.to_dict("records")[0].items()}, found


@pytest.mark.parametrize(
    ("row", "roof", "expected"),
    [
        # 2 TB in a second of 4 TB/s.
        ({"bytes": 2e12}, "dram", 0.5),
        # Intensity 100 FLOP/B is under the ridge of 200: DRAM limits, to 400 of 800 TFLOP/s.
        ({"bytes": 1e12, "flops": 100e12, "level": "tensor", "dtype": "bf16"}, "dram", 0.25),
        # Intensity 1000 is beyond it.
        ({"bytes": 4e11, "flops": 400e12, "level": "tensor", "dtype": "bf16"}, "tensor bf16", 0.5),
        ({"flops": 30e12, "level": "fp32"}, "fp32", 0.5),
        # FLOPs beside a memory level are not what limits: their pipe is not known.
        ({"bytes": 2e12, "flops": 1e9}, "dram", 0.5),
        ({"bytes": 6e12, "mode": "hot"}, "l2", 0.75),
        ({"bytes": 2e12, "mode": "hot"}, "dram", 0.5),
        ({"bytes": 2e12, "mode": "hot", "dram_bytes": 1e9, "counted_calls": 1}, "l2", 0.25),
        ({"bytes": 6e12, "level": "l2"}, "l2", 0.75),
    ],
)
def test_a_case_is_set_against_the_roof_that_limits_it(
    row: dict[str, Any], roof: str, expected: float
) -> None:
    found, _ = fraction(**row)
    assert found["roof_used"] == roof
    assert found["roof_fraction"] == pytest.approx(expected)
    level, _, dtype = roof.partition(" ")
    assert found["roof_value"] == CEILINGS[level, dtype or ("fp32" if level == "fp32" else "")]
    assert found["roof_source"] == "this run"


def test_a_hot_case_that_fits_has_its_data_in_l2() -> None:
    row = {"bytes": 20e6, "median_s": 6e-6, "mode": "hot"}
    assert fraction(60e6, **row)[0]["roof_used"] == "l2"
    assert fraction(30e6, **row)[0]["roof_used"] == "dram"
    assert fraction(60e6, **row | {"mode": "cold"})[0]["roof_used"] == "dram"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"bytes": 1e12, "flops": 1e12, "level": "tensor", "dtype": "fp4"}, "of tensor fp4"),
        ({"bytes": 1e12, "level": "l1"}, "no measured roof of l1"),
        ({"bytes": 8e12}, "2.00 times as fast as the roof of dram"),
    ],
)
def test_a_case_without_a_fraction_says_why(row: dict[str, Any], words: str) -> None:
    found, fractions = fraction(**row)
    assert math.isnan(found["roof_fraction"])
    assert pd.isna(found["roof_used"])
    ((case_id, reason),) = fractions.gaps
    assert case_id == "c"
    assert words in reason


@pytest.mark.parametrize("row", [{"median_s": math.nan}, {"level": "host"}, {}, {"level": ""}])
def test_a_case_that_has_no_roof_leaves_no_gap(row: dict[str, Any]) -> None:
    found, fractions = fraction(**row)
    assert math.isnan(found["roof_fraction"])
    assert fractions.gaps == ()
