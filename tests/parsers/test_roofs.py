"""Roofs from the capture and from the vendor's documents, each with its source."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.ncu import read_ncu
from nsight_prof.parsers.roofs.roofs import Measured, build_roofs, ridge_points
from nsight_prof.parsers.tables import check, empty, tables

H200: dict[str, str | float] = {
    "chip": "GH100",
    "sm_count": 132,
    "clock_hz": 1.98e9,
    "memory_bandwidth": 4_814_304_000_000,
}


def gpu(**facts: str | float) -> pd.DataFrame:
    return empty("gpus").reindex(range(1)).assign(device=0, **facts)


def metrics(**values: float) -> pd.DataFrame:
    frame = pd.DataFrame({"metric": list(values), "value": list(values.values())})
    return frame.assign(kernel_id="k", launch=0, profile=0, text="", unit="", source="csv")


@pytest.fixture(scope="module")
def roofs(root: Path) -> pd.DataFrame:
    capture = read_ncu(root / "tests/fixtures/h200_ncu/decoder_block.csv.xz")
    table = build_roofs(gpu(**H200), capture.metrics.assign(kernel_id="", launch=0))
    return table


def roof(table: pd.DataFrame, level: str, dtype: str, source: str) -> pd.Series:
    keys = table[["level_or_pipe", "dtype", "source"]]
    (place,) = keys.eq([level, dtype, source]).all(axis=1).to_numpy().nonzero()[0]
    return table.iloc[int(place)]


@pytest.mark.parametrize(
    ("level", "dtype", "source", "expected"),
    [
        ("dram", "", "datasheet", 4.814e12),
        ("dram", "", "counters", 4.81e12),
        ("l2", "", "counters", 10.25e12),
        ("fp64", "fp64", "counters", 33.5e12),
        ("fp32", "fp32", "counters", 66.9e12),
        ("fp16", "fp16", "counters", 133.8e12),
        ("tensor", "fp64", "counters", 66.9e12),
    ],
)
def test_roofs_of_an_h200_are_those_of_its_datasheet_at_the_clock_of_the_run(
    roofs: pd.DataFrame, level: str, dtype: str, source: str, expected: float
) -> None:
    row = roof(roofs, level, dtype, source)
    # The datasheet's arithmetic rates are at 1.98 GHz; the memory clocks do not move.
    boost = 1.98e9 / row["clock_hz"] if level not in ("dram", "l2") else 1.0
    assert row["value"] * boost == pytest.approx(expected, rel=0.01)


def test_a_dense_tensor_roof_comes_from_the_datasheet_where_the_capture_has_none(
    roofs: pd.DataFrame,
) -> None:
    row = roof(roofs, "tensor", "bf16", "datasheet")
    # NVIDIA publishes 989.4 TFLOP/s: its boost clock for matrix work is below the maximum clock.
    assert row["value"] == pytest.approx(989.4e12, rel=1e-3)
    assert "1.83 GHz as published" in row["detail"]
    assert roof(roofs, "tensor", "fp64", "datasheet")["value"] == 256 * 132 * 1.98e9


def test_the_sparse_rate_of_a_counter_is_never_a_roof(roofs: pd.DataFrame) -> None:
    bf16 = roofs[roofs["level_or_pipe"].eq("tensor") & roofs["dtype"].eq("bf16")]
    assert bf16["source"].tolist() == ["datasheet"]


def test_a_dense_tensor_roof_of_the_capture_stands_before_that_of_the_datasheet() -> None:
    dense = catalogue().tensor["GH100"]["bf16"].peak
    captured = metrics(**{dense: 540_672.0, "sm__cycles_elapsed.avg.per_second": 1.83e9})
    table = build_roofs(gpu(**H200), captured)
    bf16 = table[(table["level_or_pipe"] == "tensor") & (table["dtype"] == "bf16")]
    assert bf16["source"].tolist() == ["counters", "datasheet"]
    assert bf16["value"].iloc[0] == pytest.approx(989.4e12, rel=1e-3)
    assert bf16["clock_hz"].iloc[0] == 1.83e9


def test_the_clock_is_the_median_of_the_profiled_kernels() -> None:
    one, two, three = (
        metrics(
            **{"dram__bytes.sum.peak_sustained": 10.0, "dram__cycles_elapsed.avg.per_second": c}
        )
        for c in (1.0, 2.0, 9.0)
    )
    captured = [frame.assign(profile=i) for i, frame in enumerate((one, two, three))]
    table = build_roofs(empty("gpus"), pd.concat(captured))
    assert table["value"].tolist() == [20.0]


def test_the_clock_of_the_tensor_roof_is_that_of_the_time_with_active_tensor_cores() -> None:
    dense = catalogue().tensor["GH100"]["bf16"].peak
    # A long product that a power limit holds down, and two short kernels without Tensor Cores.
    kernels = [(1.5e9, 2_000_000.0, 95.0), (1.98e9, 400_000.0, 0.0), (1.97e9, 1_700_000.0, 2.0)]
    captured = pd.concat(
        metrics(
            **{
                dense: 540_672.0,
                "sm__cycles_elapsed.avg.per_second": clock,
                "gpu__time_duration.sum": duration,
                "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": active,
            }
        ).assign(profile=i)
        for i, (clock, duration, active) in enumerate(kernels)
    )
    row = roof(build_roofs(gpu(**H200), captured), "tensor", "bf16", "counters")
    assert row["clock_hz"] == 1.5e9
    assert row["value"] == 540_672.0 * 1.5e9
    assert "active Tensor Cores" in row["detail"]


def test_the_clock_of_a_memory_roof_weighs_kernels_by_their_time() -> None:
    captured = pd.concat(
        metrics(
            **{
                "dram__bytes.sum.peak_sustained": 10.0,
                "dram__cycles_elapsed.avg.per_second": clock,
                "gpu__time_duration.sum": duration,
            }
        ).assign(profile=i)
        for i, (clock, duration) in enumerate([(1.0, 10.0), (2.0, 10.0), (9.0, 100.0)])
    )
    assert build_roofs(empty("gpus"), captured)["value"].tolist() == [90.0]


def test_an_unknown_gpu_has_no_roofs() -> None:
    assert len(build_roofs(empty("gpus"), empty("metrics"))) == 0
    unknown = gpu(chip="XX100", sm_count=100, clock_hz=1e9)
    assert len(build_roofs(unknown, empty("metrics"))) == 0


def test_a_gpu_without_a_trace_has_no_datasheet_rate_for_an_unknown_clock() -> None:
    assert len(build_roofs(gpu(chip="GH100", sm_count=132), empty("metrics"))) == 0


def test_only_a_run_with_a_trace_names_it_as_the_source() -> None:
    details = [
        roof(build_roofs(gpu(**H200), empty("metrics"), traced=traced), "dram", "", "datasheet")
        for traced in (True, False)
    ]
    assert ["TARGET_INFO_GPU" in row["detail"] for row in details] == [True, False]


def test_every_roof_says_how_it_came_about(roofs: pd.DataFrame) -> None:
    assert roofs["detail"].str.len().gt(10).all()


def measured(own: bool = True, caveat: str = "") -> Measured:
    rows = [
        ("dram", "", "read", 4.62e12, None, False),
        ("dram", "", "write", 4.65e12, None, True),
        ("l1", "", "read", 121.5 * 132 * 1.98e9, 121.5, True),
        ("l2", "", "read", 9.6e12, None, True),
        ("tensor", "bf16", "burst", 3900 * 132 * 1.8e9, 3900.0, True),
    ]
    names = ["level_or_pipe", "dtype", "kind", "value", "per_clock_sm", "is_ceiling"]
    frame = pd.DataFrame(rows, columns=names).assign(
        unit="B/s",
        clock_hz=[1.98e9] * 4 + [1.8e9],
        accepted=True,
        reason="it is",
        samples=30,
    )
    frame["l2_clock_hz"] = [None, None, None, 1.7e9, None]
    columns = [column.name for column in tables()["measured_roofs"]]
    frame = check(
        frame.assign(processes=3, candidates=9).reindex(columns=columns), "measured_roofs"
    )
    return Measured(frame, "2026-11-21", "roofline-1", own, caveat)


def at(clock_hz: float) -> pd.DataFrame:
    return metrics(**{"sm__cycles_elapsed.avg.per_second": clock_hz, "gpu__time_duration.sum": 1.0})


def test_only_ceilings_of_the_own_run_are_roofs_and_stay_as_measured() -> None:
    table = build_roofs(gpu(**H200), at(1.2e9), measured())
    ours = table[table["source"].eq("measured")]
    assert ours["level_or_pipe"].tolist() == ["dram", "l1", "l2", "tensor"]
    assert ours["value"].tolist()[0] == 4.65e12
    assert ours["value"].tolist()[1] == 121.5 * 132 * 1.98e9
    assert "best of 9 tried" in ours["detail"].iloc[0]
    assert "confirmed: it is" in ours["detail"].iloc[0]
    assert "measured 2026-11-21" in ours["detail"].iloc[0]


def test_roofs_of_another_run_are_scaled_down_to_the_clock_of_this_one() -> None:
    table = build_roofs(gpu(**H200), at(1.2e9), measured(own=False, caveat="another H200"))
    assert roof(table, "dram", "", "measured")["value"] == 4.65e12
    l1 = roof(table, "l1", "", "measured")
    assert l1["value"] == pytest.approx(121.5 * 132 * 1.2e9)
    assert l1["clock_hz"] == 1.2e9
    assert "scaled to 1.200 GHz" in l1["detail"]
    assert "another H200" in l1["detail"]
    assert "by run roofline-1" in l1["detail"]


@pytest.mark.parametrize(
    ("l2_clock", "value"), [(None, 9.6e12), (1.53e9, 0.9 * 9.6e12), (1.75e9, 9.6e12)]
)
def test_roofs_of_the_l2_are_scaled_by_its_own_clock_alone(
    l2_clock: float | None, value: float
) -> None:
    captured = at(1.2e9)
    if l2_clock:
        captured = pd.concat(
            [captured, metrics(**{"lts__cycles_elapsed.avg.per_second": l2_clock})]
        )
    row = roof(build_roofs(gpu(**H200), captured, measured(own=False)), "l2", "", "measured")
    assert row["value"] == pytest.approx(value)


def test_roofs_that_stand_as_measured_are_not_scaled() -> None:
    given = replace(measured(own=False), as_measured=True)
    row = roof(build_roofs(gpu(**H200), at(1.2e9), given), "l1", "", "measured")
    assert row["value"] == 121.5 * 132 * 1.98e9
    assert "by run roofline-1" in row["detail"]


def test_roofs_of_another_run_are_never_scaled_up() -> None:
    table = build_roofs(gpu(**H200), at(1.9e9), measured(own=False))
    assert roof(table, "tensor", "bf16", "measured")["value"] == 3900 * 132 * 1.8e9
    assert roof(table, "l1", "", "measured")["value"] == pytest.approx(121.5 * 132 * 1.9e9)


def test_without_counters_nothing_is_scaled() -> None:
    table = build_roofs(gpu(**H200), empty("metrics"), measured(own=False))
    assert roof(table, "l1", "", "measured")["value"] == 121.5 * 132 * 1.98e9


def test_each_pipe_and_level_of_one_source_have_a_ridge_point() -> None:
    table = build_roofs(gpu(**H200), at(1.9e9), measured())
    points = ridge_points(table).set_index(["source", "pipe", "dtype", "level"])["intensity"]
    assert points["measured", "tensor", "bf16", "dram"] == pytest.approx(
        3900 * 132 * 1.8e9 / 4.65e12
    )
    # The datasheet knows DRAM, and the rates of all pipes: 4096 x 132 x 1.83e9 over 4.814e12.
    assert points["datasheet", "tensor", "bf16", "dram"] == pytest.approx(205.52, rel=1e-3)
    assert set(points["measured"].index.get_level_values("level")) == {"dram", "l1", "l2"}
