"""What real `nsys stats` says about real exports of many versions; see fixtures/nsys_stats."""

import io
import lzma
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsight_prof.parsers.errors import NoKernels
from nsight_prof.parsers.nsys.trace import open_trace

# nsys 2022.2 exported each launching call twice (once more as a backtrace event), and nsys stats
# adds up the kernels of both.
TWICE = "hpcgroup+pipit__saxpy-mpi-cuda_nsys_perlmutter0"
ORACLES = Path(__file__).resolve().parents[2] / "fixtures" / "nsys_stats"


def _exports(report: str) -> list[str]:
    ending = f"__{report}.csv.xz"
    return sorted(p.name.removesuffix(ending) for p in ORACLES.glob(f"*{ending}"))


def _oracle(export: str, report: str) -> pd.DataFrame:
    text = lzma.decompress((ORACLES / f"{export}__{report}.csv.xz").read_bytes()).decode()
    return pd.read_csv(io.StringIO(text), keep_default_na=False)


def _path(real_exports: Path, export: str) -> Path:
    folder, _, name = export.partition("__")
    found: Path = real_exports / "nsys" / folder / f"{name}.sqlite"
    return found


def _rounded(values: pd.Series) -> list[float]:
    # SQLite's round() goes away from zero, on the decimal that is printed.
    return [np.floor(value * 10 + 0.5 + 1e-7) / 10 for value in values]


@pytest.mark.parametrize("export", _exports("cuda_gpu_kern_sum"))
def test_kernel_times_are_those_of_nsys_stats(real_exports: Path, export: str) -> None:
    oracle = _oracle(export, "cuda_gpu_kern_sum").set_index("Name")
    with open_trace(_path(real_exports, export)) as trace:
        kernels, launches = trace.kernels(), trace.launches()
    assert kernels["kernel_id"].is_unique
    by_name = kernels.groupby("name").agg(
        {"total_ns": "sum", "calls": "sum", "min_ns": "min", "max_ns": "max"}
    )
    assert sorted(by_name.index) == sorted(oracle.index)
    expected = oracle.loc[by_name.index]
    heads = ["Total Time (ns)", "Instances", "Min (ns)", "Max (ns)"]
    for column, head in zip(by_name.columns, heads, strict=True):
        assert by_name[column].tolist() == expected[head].tolist(), column
    assert _rounded(by_name["total_ns"] / by_name["calls"]) == expected["Avg (ns)"].tolist()
    names = kernels.set_index("kernel_id")["name"]
    durations = launches["duration_ns"].groupby(launches["kernel_id"].astype(str).map(names))
    assert durations.median().loc[by_name.index].tolist() == expected["Med (ns)"].tolist()
    spread = durations.std().fillna(0).loc[by_name.index]
    assert spread.to_numpy() == pytest.approx(expected["StdDev (ns)"].to_numpy(), abs=0.051)


@pytest.mark.parametrize("export", _exports("cuda_gpu_kern_gb_sum"))
def test_kernels_by_grid_and_block_are_those_of_nsys_stats(real_exports: Path, export: str) -> None:
    oracle = _oracle(export, "cuda_gpu_kern_gb_sum")
    for column in ("GridXYZ", "BlockXYZ"):
        oracle[column] = oracle[column].str.split().str.join("x")
    expected = oracle.set_index(["Name", "GridXYZ", "BlockXYZ"])
    with open_trace(_path(real_exports, export)) as trace:
        ours = trace.kernels().set_index(["name", "grid", "block"]).loc[expected.index]
    assert len(ours) == len(expected)
    for column, head in {
        "total_ns": "Total Time (ns)",
        "calls": "Instances",
        "median_ns": "Med (ns)",
        "min_ns": "Min (ns)",
        "max_ns": "Max (ns)",
    }.items():
        assert ours[column].tolist() == expected[head].tolist(), column
    assert _rounded(ours["mean_ns"]) == expected["Avg (ns)"].tolist()
    spread = ours["std_ns"].fillna(0).to_numpy()
    assert spread == pytest.approx(expected["StdDev (ns)"].to_numpy(), abs=0.051)


@pytest.mark.parametrize("export", _exports("cuda_gpu_kern_sum"))
def test_statistics_of_kernels_are_those_of_their_launches(real_exports: Path, export: str) -> None:
    with open_trace(_path(real_exports, export)) as trace:
        kernels, launches = trace.kernels().set_index("kernel_id"), trace.launches()
    assert launches["start_ns"].is_monotonic_increasing
    groups = launches.groupby("kernel_id", observed=True)["duration_ns"]
    for column, ours in (("mean_ns", "mean"), ("median_ns", "median"), ("std_ns", "std")):
        theirs = groups.agg(ours).loc[kernels.index].astype(float).to_numpy()
        assert kernels[column].to_numpy() == pytest.approx(theirs, nan_ok=True), column
    index = launches.groupby("kernel_id", observed=True)["index"]
    assert (index.max() + 1).to_dict() == kernels["calls"].to_dict()
    assert kernels["share"].sum() == pytest.approx(1)


@pytest.mark.parametrize("export", _exports("nvtx_kern_sum"))
def test_kernels_in_nvtx_ranges_are_those_of_nsys_stats(real_exports: Path, export: str) -> None:
    oracle = _oracle(export, "nvtx_kern_sum")
    oracle = oracle[oracle["NVTX Range"] != ""]
    assert len(oracle)
    expected = oracle.groupby(["NVTX Range", "Kernel Name"])[["Kern Inst", "Total Time (ns)"]].sum()
    if export == TWICE:
        expected["Total Time (ns)"] //= 2
    with open_trace(_path(real_exports, export)) as trace:
        kernels, launches = trace.kernels(), trace.launches()
        ranges = trace.range_kernels()
    assert launches["nvtx_path"].notna().any()
    ours = ranges.merge(kernels[["kernel_id", "name"]], on="kernel_id")
    found = ours.groupby(["nvtx_range", "name"])[["calls", "total_ns"]].sum()
    assert {k: list(v) for k, v in zip(found.index, found.to_numpy(), strict=True)} == {
        k: list(v) for k, v in zip(expected.index, expected.to_numpy(), strict=True)
    }


@pytest.mark.parametrize("export", _exports("cuda_gpu_mem_time_sum"))
def test_memory_operations_are_those_of_nsys_stats(real_exports: Path, export: str) -> None:
    oracle = _oracle(export, "cuda_gpu_mem_time_sum")
    expected = sorted(zip(oracle["Total Time (ns)"], oracle["Count"], strict=True))
    path = _path(real_exports, export)
    try:
        with open_trace(path) as trace:
            ours = trace.memory_operations()
    except NoKernels:
        assert export.startswith("frasertajima")
        return
    assert sorted(zip(ours["total_ns"], ours["calls"], strict=True)) == expected


def test_start_up_is_what_is_copied_before_a_kernel_that_repeats(real_exports: Path) -> None:
    path = real_exports / "nsys/zx3xyy+assignment2-systems/result.sqlite"
    of_kernel = "demangledName, gridX, gridY, gridZ, blockX, blockY, blockZ"
    with closing(sqlite3.connect(path)) as db:
        begun = (
            f"SELECT min(first) FROM (SELECT min(start) AS first FROM CUPTI_ACTIVITY_KIND_KERNEL"
            f" GROUP BY {of_kernel} HAVING count(*) >= 5)"
        )
        before = (
            "SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY"
            f" WHERE copyKind = 1 AND start < ({begun})"
        )
        ((expected,),) = db.execute(before).fetchall()
    with open_trace(path) as trace:
        row = trace.memory_operations().set_index("kind").loc["host to device"]
    # Weights and embeddings, loaded before the first step.
    assert row["startup_ns"] == expected > 0.99 * row["total_ns"]


def test_a_busy_host_is_in_the_range_that_the_program_has_open(real_exports: Path) -> None:
    path = real_exports / "nsys/brycelelbach+ncu2markdown/power_iteration__baseline.sqlite"
    with closing(sqlite3.connect(path)) as db:
        work = "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL UNION ALL SELECT start, end FROM"
        busy = np.array(db.execute(f"{work} CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY 1").fetchall())
        named = "coalesce(text, (SELECT value FROM StringIds WHERE id = textId))"
        ranges = db.execute(f"SELECT start, end FROM NVTX_EVENTS WHERE {named} LIKE 'IO %'")
        writing = np.array(ranges.fetchall())
    # The program writes a file in each range IO, while the GPU has nothing to do.
    starts, ends = busy[1:, 0], np.maximum.accumulate(busy[:-1, 1])
    idle = sum(
        np.maximum(0, np.minimum(starts, end) - np.maximum(ends, start)).sum()
        for start, end in writing
    )
    with open_trace(path) as trace:
        gaps = trace.idle_gaps()
    found = gaps[gaps["host_range"] == "IO *"]
    assert set(found["cause"]) == {"host"}
    assert found["idle_ns"].sum() == pytest.approx(idle, rel=0.02)
    assert idle > 0.9 * gaps.loc[gaps["cause"] == "host", "idle_ns"].sum()


@pytest.mark.parametrize("export", sorted({*_exports("cuda_gpu_kern_sum")} - {TWICE}))
def test_api_times_are_those_of_nsys_stats(real_exports: Path, export: str) -> None:
    oracle = _oracle(export, "cuda_api_sum").set_index("Name")
    with open_trace(_path(real_exports, export)) as trace:
        ours = trace.api_calls().set_index("name")
    plain = oracle.rename(index=lambda name: re.sub(r"_v\d{4,5}$", "", name))
    heads = ["Num Calls", "Total Time (ns)", "Med (ns)", "Max (ns)"]
    columns = ["calls", "total_ns", "median_ns", "max_ns"]
    assert {n: list(v) for n, v in ours[columns].iterrows()} == {
        n: list(v) for n, v in plain[heads].iterrows()
    }
