import math
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.roofline import attainable, ceilings, distance
from nsight_prof.reports.page.charts import Roof, ridges
from nsight_prof.reports.plots.roofline.axes import RoofLine


def roofs(*rows: tuple[str, str, float, str]) -> pd.DataFrame:
    made = [
        {
            "level_or_pipe": key,
            "dtype": dtype,
            "value": value,
            "unit": "B/s" if key in ("dram", "l2", "l1") else "FLOP/s",
            "source": source,
            "clock_hz": 1.5e9,
            "detail": "",
        }
        for key, dtype, value, source in rows
    ]
    columns = [c.name for c in tables.tables()["roofs"]]
    return tables.check(pd.DataFrame(made, columns=columns), "roofs")


@pytest.mark.parametrize(
    ("intensity", "expected"), [(0.5, 2e12), (10.0, 40e12), (16.75, 67e12), (1e4, 67e12)]
)
def test_the_lower_of_both_roofs_limits(intensity: float, expected: float) -> None:
    assert attainable(intensity, 4e12, 67e12) == pytest.approx(expected)


def test_the_ridge_is_where_both_roofs_are_equal() -> None:
    dram = Roof("dram", "", "DRAM", 4.8e12, "B/s", "measured", None, "")
    tensor = Roof("tensor", "bf16", "Tensor bf16", 989e12, "FLOP/s", "measured", None, "")
    (ridge,) = ridges([dram], [tensor])
    at = ridge.intensity
    assert at == pytest.approx(206.04, abs=0.01)
    assert attainable(at, 4.8e12, 989e12) == pytest.approx(989e12)


def test_distance_is_reached_over_attainable() -> None:
    assert distance(20e12, 10.0, 4e12, 67e12) == pytest.approx(0.5)


@pytest.mark.parametrize("position", range(3))
def test_an_unknown_number_makes_the_limit_unknown(position: int) -> None:
    numbers = [1.0, 1.0, 1.0]
    numbers[position] = math.nan
    assert math.isnan(attainable(*numbers))
    assert math.isnan(distance(1.0, *numbers))


def test_measured_roofs_come_before_counters_and_those_before_the_datasheet() -> None:
    rows = [("dram", "", 4.8e12, "datasheet"), ("dram", "", 4.7e12, "counters")]
    assert ceilings(roofs(*rows)).memory["dram"].source == "counters"
    rows.append(("dram", "", 4.2e12, "measured"))
    assert ceilings(roofs(*rows)).memory["dram"].value == 4.2e12


def test_a_tensor_roof_is_never_taken_from_another_type() -> None:
    found = ceilings(roofs(("tensor", "bf16", 989e12, "counters")))
    assert found.pipe("tensor", "bf16") is not None
    assert found.pipe("tensor", "fp8") is None


def test_an_unknown_value_is_no_roof() -> None:
    assert ceilings(roofs(("l2", "", math.nan, "counters"))).memory == {}


@pytest.mark.parametrize(
    "row",
    [
        ("tensor", "bf16", 900e12, "counters"),
        ("fp32", "fp32", 60e12, "datasheet"),
        ("tensor", "bf16", 900e12, "measured"),
    ],
)
def test_peaks_a_cycle_follow_the_clock_of_the_kernel(row: Any) -> None:
    roof = next(iter(ceilings(roofs(row)).compute.values()))
    assert roof.at_clock(0.75e9) == pytest.approx(row[2] / 2)
    assert roof.at_clock(math.nan) == row[2]


def test_dram_has_a_clock_of_its_own() -> None:
    roof = ceilings(roofs(("dram", "", 4.7e12, "counters"))).memory["dram"]
    assert roof.at_clock(0.75e9) == 4.7e12


def test_near_roofs_on_one_line_keep_their_own_values() -> None:
    fp32, fp64 = (
        Roof(key, "", label, 1e12 * value, "FLOP/s", "measured", None, "")
        for label, key, value in (("FP32", "fp32", 66.2), ("Tensor fp64", "tensor", 63.65))
    )
    line = RoofLine((fp32, fp64), (0.0, 0.0), (1.0, 0.0))
    assert line.label.startswith("FP32 66.2 TFLOP/s, Tensor fp64 63.6")
