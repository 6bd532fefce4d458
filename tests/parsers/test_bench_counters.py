"""Counters by case, from results of ncu made by hand whose sums can be worked out."""

from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers.bench.counters import case_counters, counted_calls, launches_of_cases
from nsight_prof.parsers.ncu.capture import Gatherer, Launch, NcuCapture

READ, GEMM = "dram/read/u4|cold|normal", "gemm/4096x1/nn|hot|zeros"


def capture(*launches: tuple[str, dict[str, float]]) -> NcuCapture:
    gatherer = Gatherer("csv")
    for profile, (path, metrics) in enumerate(launches):
        name = f"void kernel_{path[-1:]}<float>(float*)"
        gatherer.launches.append(Launch(profile, name, nvtx=path, grid="1x1x1", block="1x1x1"))
        for metric, value in metrics.items():
            gatherer.add(profile, metric, value, "")
    return gatherer.capture("2025.3.1")


def counted(read: float, write: float, duration: float = 1000.0, **more: float) -> dict[str, float]:
    values = {
        "gpu__time_duration.sum": duration,
        "dram__bytes_read.sum": read,
        "dram__bytes_write.sum": write,
    }
    return values | {name.replace("__dot__", "."): value for name, value in more.items()}


TENSOR = "sm__pipe_tensor_cycles_active__dot__avg__dot__pct_of_peak_sustained_elapsed"


def test_launches_of_a_case_are_added_up() -> None:
    found = case_counters(
        capture(
            (f"case:{READ}", counted(100, 10, 2e9, **{TENSOR: 80.0})),
            (f"case:{READ}", counted(300, 30, 6e9, **{TENSOR: 40.0})),
            (f"case:{GEMM}", counted(1, 0)),
        ),
        "GH100",
        calls=2,
    )
    row = found.frame.loc[READ]
    assert (row["dram_read_bytes"], row["dram_write_bytes"], row["dram_bytes"]) == (400, 40, 440)
    assert row["counted_s"] == pytest.approx(8)
    assert (row["counted_launches"], row["counted_calls"]) == (2, 2)
    assert row["tensor_pct"] == pytest.approx((80 * 2 + 40 * 6) / 8)


@pytest.mark.parametrize(
    "path",
    [
        f"case:{READ}",
        f"outer/case:{READ}",
        f"case:{READ}/cub::DeviceRadixSort/pass 1",
        f"case:other/one|cold|normal/case:{READ}",
    ],
)
def test_the_case_is_told_from_ranges_around_and_inside(path: str) -> None:
    assert launches_of_cases(capture((path, counted(1, 1)))).tolist() == [READ]


@pytest.mark.parametrize("path", ["", "warm-up", "case:Not A Case"])
def test_launches_outside_of_cases_are_left_out(path: str) -> None:
    found = case_counters(capture((path, counted(1, 1))), "GH100")
    assert found.frame.empty
    assert found.gaps == (
        ("", "counted_launches", "no profiled launch lies in an NVTX range of a case"),
    )


def test_a_sum_with_an_unknown_part_is_unknown_and_says_why() -> None:
    part = counted(1, 1)
    del part["dram__bytes_write.sum"]
    found = case_counters(
        capture((f"case:{READ}", counted(1, 1)), (f"case:{READ}", part), (f"case:{GEMM}", part)),
        "GH100",
    )
    assert found.frame["dram_write_bytes"].isna().all()
    assert found.frame.at[READ, "dram_read_bytes"] == 2
    reasons = {column: reason for case, column, reason in found.gaps if case == ""}
    assert "dram__bytes_write.sum" in reasons["dram_write_bytes"]


def test_kernels_are_named_once_in_their_order() -> None:
    found = case_counters(
        capture(*((f"x{last}/case:{READ}/{last}", counted(1, 1)) for last in "aba")), "GH100"
    )
    assert str(found.frame.at[READ, "kernel_names"]).count(" + ") == 1


@pytest.mark.parametrize(
    ("argv", "calls"),
    [
        (["run.py"], 1),
        (["--launches", "3"], 3),
        (["--launches=5", "--count"], 5),
        (["--launches"], 1),
    ],
)
def test_the_calls_of_the_counting_run_stand_in_its_command(argv: list[str], calls: int) -> None:
    conditions: list[dict[str, Any]] = [{"argv": argv}]
    assert counted_calls(conditions) == calls
    assert counted_calls([]) == 1


def test_the_index_is_that_of_the_table_bench() -> None:
    found = case_counters(capture((f"case:{GEMM}", counted(1, 1))), "GH100")
    assert found.frame.index.tolist() == [GEMM]
    assert pd.api.types.is_numeric_dtype(found.frame["dram_bytes"])
