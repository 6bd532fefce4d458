"""Measured bandwidths of collectives: from cases to roofs, kept in a file, and found by size."""

from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable, SchemaTooNew
from nsight_prof.parsers.roofs.comm import (
    CommRoofs,
    comm_roofs,
    read_comm_roofs,
    roof_at,
    write_comm_roofs,
)
from tests.conftest import bench_row

TIMES = {1 << 10: 10e-6, 1 << 20: 40e-6, 1 << 30: 6e-3}
"""Seconds of an all-reduce of two ranks, whose bus bandwidth is bytes over time."""


def case(size: int, seconds: float, **more: object) -> dict[str, object]:
    params = {"operation": "all-reduce", "ranks": 2, "message_bytes": size}
    row = bench_row(f"all-reduce/x2/{size}", target="comm_roofs", params=params)
    rate = {"bytes": float(size), "median_s": seconds, "bytes_per_s": size / seconds}
    interval = {"ci_low_s": seconds * 0.9, "ci_high_s": seconds * 1.1}
    return {**row, **rate, **interval, **more}


@pytest.fixture
def roofs() -> pd.DataFrame:
    failed = case(1 << 15, 1e-6, status="failed")
    other = case(1 << 15, 1e-6, target="gemm")
    rows = [case(size, seconds) for size, seconds in TIMES.items()]
    return comm_roofs(pd.DataFrame([*rows, failed, other]))


def test_cases_that_were_measured_become_roofs(roofs: pd.DataFrame) -> None:
    assert roofs["bytes"].tolist() == list(TIMES)
    assert roofs["bus_bandwidth"][2] == pytest.approx((1 << 30) / 6e-3)
    assert roofs["low"][2] == pytest.approx((1 << 30) / 6e-3 / 1.1)


def test_between_two_sizes_the_time_is_interpolated(roofs: pd.DataFrame) -> None:
    for size in (1 << 20, 1 << 30):
        assert roof_at(roofs, "all-reduce", 2, size) == pytest.approx(size / TIMES[size])
    # Half way between 1 MiB and 1 GiB on a logarithmic scale: the geometric mean of the times.
    between = roof_at(roofs, "all-reduce", 2, 1 << 25)
    assert between == pytest.approx((1 << 25) / (40e-6 * 6e-3) ** 0.5)
    assert roof_at(roofs, "all-reduce", 2, 1 << 33) == pytest.approx((1 << 30) / 6e-3)


def test_what_was_not_measured_has_no_roof(roofs: pd.DataFrame) -> None:
    assert roof_at(roofs, "all-reduce", 2, 1 << 9) is None
    # So short that the start of the kernel is a part of it: 10 us and 20 us.
    assert roof_at(roofs, "all-reduce", 2, 1 << 10) is None
    assert roof_at(roofs, "all-reduce", 2, 1 << 15) is None
    assert roof_at(roofs, "all-reduce", 4, 1 << 20) is None
    assert roof_at(roofs, "all-gather", 2, 1 << 20) is None
    assert roof_at(roofs, "all-reduce", None, None) is None


def test_a_file_keeps_them(roofs: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "comm-roofs.json"
    assert read_comm_roofs(path) is None
    write_comm_roofs(path, CommRoofs("2026-01-01T00:00:00Z", "links", "NVIDIA H100", roofs))
    found = read_comm_roofs(path)
    assert found is not None
    assert (found.measured, found.run_id, found.gpu) == (
        "2026-01-01T00:00:00Z", "links", "NVIDIA H100",
    )  # fmt: skip
    pd.testing.assert_frame_equal(found.roofs, roofs)


def test_a_newer_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "comm-roofs.json"
    path.write_text('{"format_version": 2}')
    with pytest.raises(SchemaTooNew, match="format version 2"):
        read_comm_roofs(path)
    for text in ("", "[]", '{"format_version": 1}', '{"format_version": 1, "comm_roofs": [3]}'):
        path.write_text(text)
        with pytest.raises(ArtifactUnreadable, match="communication roofs"):
            read_comm_roofs(path)
