"""Exports of many layouts: lazily created tables, renamed ones, missing columns, odd rows."""

import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels
from nsight_prof.parsers.nsys.trace import open_trace

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def test_all_tables_fit_their_contract_for_the_smallest_trace(export: Any, tmp_path: Path) -> None:
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        frames = {
            "gpus": trace.gpus(),
            "kernels": trace.kernels(),
            "launches": trace.launches(),
            "stages": trace.stages(),
            "stage_kernels": trace.stage_kernels(),
            "memory_operations": trace.memory_operations(),
            "api_calls": trace.api_calls(),
        }
        warnings = trace.warnings
    for name, frame in frames.items():
        assert list(frame.columns) == [c.name for c in tables.tables()[name]]
        assert tables.check(frame, name).equals(frame)
    launch = frames["launches"].iloc[0]
    assert (launch["grid"], launch["block"], launch["pid"]) == ("1x1x1", "32x1x1", 7)
    assert list(frames["kernels"].loc[0, ["name", "mangled_name", "stage"]]) == [
        "k()",
        "_Zk",
        "step",
    ]
    assert frames["api_calls"]["name"].tolist() == ["cudaLaunchKernel"]
    assert any("TARGET_INFO_GPU" in warning for warning in warnings)


def test_one_name_with_another_grid_or_block_is_another_kernel(export: Any, tmp_path: Path) -> None:
    export.kernel(200, grid=(2**31 - 1, 65535, 65535), block=(1, 1024, 1), registers=255)
    export.kernel(300, block=(1024, 1, 64), shared=(49152, 232448))
    export.kernel(400, shared=(0, 1000))
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        kernels = trace.kernels().set_index(["grid", "block"])
    assert kernels["calls"].to_dict() == {
        ("1x1x1", "32x1x1"): 2,
        ("2147483647x65535x65535", "1x1024x1"): 1,
        ("1x1x1", "1024x1x64"): 1,
    }
    assert kernels["registers"].max() == 255
    assert kernels.loc[("1x1x1", "1024x1x64"), "shared_bytes"] == 49152 + 232448
    assert kernels.loc[("1x1x1", "32x1x1"), "shared_bytes"] == 1000


def test_the_order_of_rows_does_not_matter(export: Any, tmp_path: Path) -> None:
    for number in range(2, 9):
        export.kernel(1000 - 100 * number, number, correlation=number)
        export.call(60 - number, 1, number)
    with open_trace(export.write(tmp_path / "a.sqlite")) as trace:
        expected = trace.launches(), trace.kernels(), trace.stages()
    for rows in export.rows.values():
        rows.reverse()
    with open_trace(export.write(tmp_path / "b.sqlite")) as trace:
        found = trace.launches(), trace.kernels(), trace.stages()
    assert all(a.equals(b) for a, b in zip(found, expected, strict=True))
    assert found[0]["start_ns"].is_monotonic_increasing
    assert found[0]["index"].tolist() == list(range(8))


def test_tables_with_a_version_suffix_are_read(export: Any, tmp_path: Path) -> None:
    with open_trace(export.write(tmp_path / "a.sqlite")) as trace:
        expected = trace.launches()
    export.suffix = "_V3"
    with open_trace(export.write(tmp_path / "b.sqlite")) as trace:
        assert trace.launches().equals(expected)


def test_without_mangled_names_the_demangled_one_is_the_key(export: Any, tmp_path: Path) -> None:
    path = export.without(KERNEL, "mangledName").without(KERNEL, "graphNodeId")
    with open_trace(path.write(tmp_path / "t.sqlite")) as trace:
        kernel = trace.kernels().iloc[0]
    assert (kernel["mangled_name"], kernel["name"]) == ("k()", "k()")


def test_a_missing_column_is_named(export: Any, tmp_path: Path) -> None:
    path = export.without(KERNEL, "gridX").write(tmp_path / "t.sqlite")
    with pytest.raises(ArtifactUnreadable, match=f"{KERNEL} has no column gridX"), open_trace(path):
        pass


@pytest.mark.parametrize(("schema", "warned"), [("3.25.9", False), ("3.26.0", True), ("4.0", True)])
def test_a_newer_schema_is_read_with_a_warning(
    export: Any, tmp_path: Path, schema: str, warned: bool
) -> None:
    export.add("META_DATA_EXPORT", "EXPORT_SCHEMA_VERSION", schema)
    export.add("META_DATA_EXPORT", "EXPORT_PRODUCT_VERSION", "2027.1.1")
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        assert len(trace.kernels()) == 1
        assert (trace.product_version, trace.schema_version) == ("2027.1.1", schema)
        assert any(schema in warning for warning in trace.warnings) == warned


def test_ranges_without_ids_have_their_text_in_the_row(export: Any, tmp_path: Path) -> None:
    export.rows.pop("NVTX_EVENTS")
    export.range(0, 90, "outer", inline=True)
    export.range(1, 80, "naïve λ", inline=True)
    export.without("NVTX_EVENTS", "textId").without("NVTX_EVENTS", "domainId")
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        assert trace.launches()["nvtx_path"].tolist() == ["outer/naïve λ"]


def test_text_that_is_no_utf8_does_not_stop_the_reader(export: Any, tmp_path: Path) -> None:
    path = export.write(tmp_path / "t.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE StringIds SET value = CAST(x'6bff' AS TEXT) WHERE value = 'k()'")
    db.close()
    with open_trace(path) as trace:
        assert trace.kernels()["name"].tolist() == ["k\ufffd"]


def test_a_range_that_ends_on_another_thread_is_left_out_with_a_warning(
    export: Any, tmp_path: Path
) -> None:
    export.range(0, 90, "request", kind=60, end_thread=8)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        assert trace.launches()["nvtx_path"].tolist() == ["step"]
        assert any("end on another thread" in warning for warning in trace.warnings)


def test_a_stage_that_no_range_fits_is_warned_about_with_what_there_is(
    export: Any, tmp_path: Path
) -> None:
    with open_trace(export.write(tmp_path / "t.sqlite"), ["stpe"]) as trace:
        assert trace.stages()["stage"].tolist() == ["(all)"]
        assert trace.kernels()["stage"].tolist() == [""]
        assert trace.launches()["stage"].isna().all()
        assert any("'stpe'" in warning and "step" in warning for warning in trace.warnings)


def test_calls_that_the_trace_lacks_are_counted(export: Any, tmp_path: Path) -> None:
    export.kernel(300, correlation=99)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        assert trace.launches()["nvtx_path"].isna().tolist() == [False, True]
        assert any("1 of 2 CUDA calls" in warning for warning in trace.warnings)


def test_whole_graphs_are_busy_time_and_warned_about(export: Any, tmp_path: Path) -> None:
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 200, 260, 2, 1 << 48 | 7 << 24)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        assert list(trace.stages().loc[0, ["kernel_ns", "gpu_busy_ns"]]) == [10, 70]
        assert any("--cuda-graph-trace=node" in warning for warning in trace.warnings)


def test_launches_are_written_part_by_part_as_they_are(
    export: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2, 9):
        node = number if number > 4 else None
        export.kernel(1000 + number, number, "ab"[number % 2], number, node=node)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        monkeypatch.setattr("nsight_prof.parsers.nsys.stages.launches.ROWS", 3)
        (tmp_path / "tables").mkdir()
        trace.write_launches(tmp_path / "tables" / "launches.parquet")
        expected = trace.launches()
    found = tables.read(tmp_path / "tables", "launches")
    for column in expected:
        assert found[column].astype(object).where(found[column].notna(), None).tolist() == (
            expected[column].astype(object).where(expected[column].notna(), None).tolist()
        ), column


@pytest.mark.parametrize(
    ("table", "row", "hint"),
    [
        ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (0, 5, 1, 1 << 48), "--cuda-graph-trace=node"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", (0, 5, 0, 1 << 48, 1, 99), "spawn"),
        ("NVTX_EVENTS", (0, 5, 59, "x", 1, None, None, 0), "-t cuda"),
    ],
)
def test_a_trace_without_kernels_says_why_and_what_to_do(
    export: Any, tmp_path: Path, table: str, row: tuple[object, ...], hint: str
) -> None:
    export.rows = {table: [row], KERNEL: []}
    path = export.write(tmp_path / "t.sqlite")
    with pytest.raises(NoKernels) as caught, open_trace(path):
        pass
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("calls", "launches"),
    [
        (["cudaLaunchKernel_v7000", "cuLaunchKernelEx", "cudaMalloc_v3020"], "2"),
        (["cudaGraphLaunch_v10000"], "1"),
        (["cudaLaunchHostFunc_v10000", "cudaMalloc_v3020"], ""),
    ],
)
def test_launches_without_gpu_activity_are_not_called_a_program_without_kernels(
    new_export: Any, tmp_path: Path, calls: list[str], launches: str
) -> None:
    export = new_export()
    for number, name in enumerate(calls):
        export.call(10 * number, name=name, correlation=number + 1)
    path = export.write(tmp_path / "t.sqlite")
    with pytest.raises(NoKernels) as caught, open_trace(path):
        pass
    if launches:
        assert f"holds launches of kernels ({launches}), but nothing" in caught.value.message
        assert "driver" in caught.value.hint
    else:
        assert "holds CUDA calls but no kernels" in caught.value.message


@pytest.mark.parametrize(
    ("columns", "row", "when"),
    [
        ("utcEpochNs INTEGER, utcTime TEXT", (1664652525888489604, "x"), "2022-10-01T19:28:45Z"),
        ("utcEpochNs INTEGER", (0,), ""),
        ("utcEpochNs INTEGER", (None,), ""),
        ("utcEpochNs INTEGER", ("soon",), ""),
        ("utcTime TEXT", ("2022-10-01T19:28:45",), ""),
    ],
)
def test_a_trace_tells_when_it_was_recorded(
    export: Any, tmp_path: Path, columns: str, row: tuple[object, ...], when: str
) -> None:
    export.columns["TARGET_INFO_SESSION_START_TIME"] = columns
    export.add("TARGET_INFO_SESSION_START_TIME", *row)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        assert trace.recorded == when


@pytest.mark.parametrize(
    "name",
    [
        "D-W-Chiang+JACC.jl/4e6_async_1_trace",
        "MosesChuka+EasyCUDA/nsys_easy_25fe59",
        "frasertajima+WeatherBench2/report1",
        "tomarriott+GTLS/report2",
    ],
)
def test_real_traces_without_kernels_say_so(real_exports: Path, name: str) -> None:
    with pytest.raises(NoKernels) as caught, open_trace(real_exports / "nsys" / f"{name}.sqlite"):
        pass
    assert "holds" in caught.value.message
    assert "spawn" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "device", "gpu", "chip", "bandwidth"),
    [
        ("bwyogatama+Mordred-Deprecated/report1", 0, "Quadro RTX 6000", "TU102", 672.096e9),
        ("brycelelbach+ncu2markdown/power_iteration__baseline", 0, "Tesla T4", "TU104", 320.064e9),
        (
            "openhackathons-org+nways_accelerated_programming/jacobi_report",
            0,
            "NVIDIA GH200 120GB",
            "GH100",
            4022.784e9,
        ),
    ],
)
def test_gpus_are_described(
    real_exports: Path, name: str, device: int, gpu: str, chip: str, bandwidth: float
) -> None:
    with open_trace(real_exports / "nsys" / f"{name}.sqlite") as trace:
        row = trace.gpus().iloc[0]
    assert (row["device"], row["name"], row["chip"]) == (device, gpu, chip)
    assert row["memory_bandwidth"] == bandwidth
    assert row[["sm_count", "clock_hz", "l2_bytes", "max_warps_per_sm", "uuid"]].notna().all()


def test_the_hidden_kernels_of_a_real_trace_with_graphs_are_announced(real_exports: Path) -> None:
    folder = real_exports / "nsys" / "zx3xyy+assignment2-systems"
    with open_trace(folder / "result_2_7B_compile_ro.sqlite") as trace:
        assert any("10 launches of CUDA graphs" in warning for warning in trace.warnings)


def test_tables_of_older_runs_lack_columns(tmp_path: Path) -> None:
    for table, added in tables.ADDED.items():
        older = [c.name for c in tables.tables()[table] if c.name not in added]
        pd.DataFrame({name: [None] for name in older}).to_parquet(tmp_path / f"{table}.parquet")
        (row,) = tables.read(tmp_path, table).to_dict("records")
        assert all(pd.isna(row[name]) or row[name] == "" for name in added)
