"""Table `gpus` from the layouts of several years, and of machines with hidden and foreign GPUs."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers.nsys.trace import open_trace

# TARGET_INFO_GPU since nsys 2021.2, as far as it is read, and what it says of an A100.
NAMES = (
    "id", "name", "busLocation", "l2CacheSize", "totalMemory", "memoryBandwidth", "clockRate",
    "smCount", "uuid", "chipName", "cuDevice", "maxWarpsPerSm", "computeMajor", "computeMinor",
)  # fmt: skip
A100 = (2, "NVIDIA A100-PCIE-40GB", "0000:01:00.0", 41943040, 42358472704, 1555200000000,
        1410000000, 108, "993b9340", "GA100", 0, 64, 8, 0)  # fmt: skip
# A GPU of the same machine that CUDA_VISIBLE_DEVICES hides, and an adapter of Windows.
HIDDEN = (0, "NVIDIA A100-PCIE-40GB", "0000:61:00.0", *(0,) * 5, "e5e3d9db", "GA100", *(0,) * 4)
RENDERER = (1, "Microsoft Basic Render Driver", "", *(0,) * 5, "0000", "", *(0,) * 4)


def gpus(export: Any, path: Path, **made: list[tuple[Any, ...]]) -> pd.DataFrame:
    """Read table `gpus` of an export with further tables: the first of their rows are names."""
    export.write(path)
    with closing(sqlite3.connect(path)) as db:
        for table, (names, *rows) in made.items():
            db.execute(f"CREATE TABLE {table} ({', '.join(names)})")
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows)
        db.commit()
    with open_trace(path) as trace:
        return trace.gpus()


@pytest.mark.parametrize("other", [HIDDEN, RENDERER, (2, *HIDDEN[1:])])
@pytest.mark.parametrize("first", [True, False])
def test_an_adapter_without_facts_is_no_device(
    export: Any, tmp_path: Path, other: tuple[Any, ...], *, first: bool
) -> None:
    rows = [other, A100] if first else [A100, other]
    found = gpus(export, tmp_path / "t.sqlite", TARGET_INFO_GPU=[NAMES, *rows])
    known, unknown = found.to_dict("records")
    assert known == {
        "device": 0, "name": "NVIDIA A100-PCIE-40GB", "chip": "GA100", "compute_capability": "8.0",
        "sm_count": 108, "clock_hz": 1.41e9, "memory_bytes": 42358472704,
        "memory_bandwidth": 1.5552e12, "l2_bytes": 41943040, "max_warps_per_sm": 64,
        "uuid": "993b9340",
    }  # fmt: skip
    assert unknown.pop("name") == other[1]
    assert [name for name, value in unknown.items() if not pd.isna(value)] == ["chip", "uuid"]


def test_the_program_numbers_its_devices(export: Any, tmp_path: Path) -> None:
    seen = [("gpuId", "cudaId", "pid"), (2, 1, 7), (5, 0, 7)]
    other = (5, *A100[1:10], 1, *A100[11:])
    found = gpus(
        export, tmp_path / "t.sqlite", TARGET_INFO_GPU=[NAMES, A100, other, RENDERER],
        TARGET_INFO_CUDA_DEVICE=seen,
    )  # fmt: skip
    assert found["device"].tolist() == [0, 1, pd.NA]


def test_the_gpu_that_ran_kernels_comes_first(export: Any, tmp_path: Path) -> None:
    p40 = (1, "Tesla P40", "0000:02:00.0", *A100[3:9], "GP102", 1, 64, 6, 1)
    export.rows.clear()
    export.kernel(device=1)
    found = gpus(export, tmp_path / "t.sqlite", TARGET_INFO_GPU=[NAMES, A100, p40])
    assert found["name"].tolist() == ["Tesla P40", "NVIDIA A100-PCIE-40GB"]


# nsys until 2021.1; lockfuehrer/beast_ressoruces, quasiben/nvtx-examples and
# martisu1631998/kmeans-parallel on GitHub have such exports.
OLD_NAMES = ("name", "pciBusId", "globalMemoryBandwidth", "globalMemorySize", "l2CacheSize",
             "coreClockRate", "numMultiprocessors", "maxWarpsPerMultiprocessor",
             "computeCapabilityMajor", "computeCapabilityMinor", "deviceId", "pid")  # fmt: skip
V100 = ("Tesla V100-PCIE-32GB", "0000:05:00.0", 0, 32510, 6291456, 1380000, 80, 64, 7, 0)
RTX3080 = ("NVIDIA GeForce RTX 3080", "0000:02:00.0", 760080000, 10495524864, 5242880, 1740000, 68,
           48, 8, 6)  # fmt: skip


def test_the_oldest_exports_describe_what_the_program_saw(export: Any, tmp_path: Path) -> None:
    rows = [OLD_NAMES, (*V100, 1, 7), (*V100, 0, 7), (*V100, 0, 8)]  # two processes
    found = gpus(export, tmp_path / "t.sqlite", TARGET_INFO_CUDA_GPU=rows)
    assert found["device"].tolist() == [0, 1]
    first = found.iloc[0].dropna().to_dict()
    assert first == {
        "device": 0, "name": "Tesla V100-PCIE-32GB", "compute_capability": "7.0", "sm_count": 80,
        "clock_hz": 1.38e9, "memory_bytes": 32510 * 2**20, "l2_bytes": 6291456,
        "max_warps_per_sm": 64,
    }  # fmt: skip


def test_names_of_the_old_table_of_gpus_come_without_facts(
    new_export: Callable[[], Any], tmp_path: Path
) -> None:
    named = [("vmId", "deviceId", "name", "busLocation"), (1, 0, "NVIDIA GeForce RTX 2070", "")]
    first, second = new_export(), new_export()
    first.kernel()
    second.kernel()
    alone = gpus(first, tmp_path / "names.sqlite", TARGET_INFO_GPU=named)
    assert alone.iloc[0].dropna().to_dict() == {"device": 0, "name": "NVIDIA GeForce RTX 2070"}
    described = gpus(
        second, tmp_path / "t.sqlite", TARGET_INFO_GPU=named,
        TARGET_INFO_CUDA_GPU=[OLD_NAMES, (*RTX3080, 0, 7)],
    ).iloc[0]  # fmt: skip
    assert described["memory_bytes"] == 10495524864
    assert described["memory_bandwidth"] == 760.08e9
