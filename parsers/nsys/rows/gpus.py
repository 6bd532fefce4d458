"""Reads the GPUs of the traced machine, with the device index that the program saw."""

from __future__ import annotations

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.nsys.sqlite.schema import CUDA_DEVICE, CUDA_GPU, GPU, KERNEL

_COLUMNS = {
    "id": "id",
    "cuDevice": "device",
    "name": "name",
    "chipName": "chip",
    "computeMajor": "major",
    "computeMinor": "minor",
    "smCount": "sm_count",
    "clockRate": "clock_hz",
    "totalMemory": "memory_bytes",
    "memoryBandwidth": "memory_bandwidth",
    "l2CacheSize": "l2_bytes",
    "maxWarpsPerSm": "max_warps_per_sm",
    "uuid": "uuid",
}
# nsys until 2021.1: TARGET_INFO_GPU has names alone, and this table the facts of the GPUs that the
# program saw.
_CUDA_GPU_COLUMNS = {
    "deviceId": "device",
    "name": "name",
    "computeCapabilityMajor": "major",
    "computeCapabilityMinor": "minor",
    "numMultiprocessors": "sm_count",
    "coreClockRate": "clock_hz",
    "globalMemorySize": "memory_bytes",
    "globalMemoryBandwidth": "memory_bandwidth",
    "l2CacheSize": "l2_bytes",
    "maxWarpsPerMultiprocessor": "max_warps_per_sm",
}
_MIB_BELOW = 1 << 24
_MOST = 1e18  # no fact of a GPU is larger, in bytes or in Hz
# Jetson TX1, TX2, Xavier, Orin and Thor share the memory of the CPU: what the driver says of their
# clock and bus gives 29.4 GB/s of an Orin that has 68, and 88.1 of a Xavier that has 137.
INTEGRATED = ("5.3", "6.2", "7.2", "8.7", "11.0")
_TEXTS = ["name", "chip", "uuid"]


def read_gpus(db: Database) -> pd.DataFrame:
    """Table `gpus`: those that ran kernels first, then by device; empty where none is listed.

    A GPU that the program could not see, and an adapter without CUDA, has no device.
    """
    if db.has_rows(CUDA_GPU):
        frame = _in_base_units(_read(db, CUDA_GPU, _CUDA_GPU_COLUMNS))
        frame = frame.drop_duplicates("device")  # one row for each process
    elif db.has_rows(GPU):
        frame = _read(db, GPU, _COLUMNS)
        frame["device"] = _devices(db, frame)
    else:
        return tables.empty("gpus")
    frame["compute_capability"] = [
        pd.NA if pd.isna(major) else f"{major:.0f}.{0 if pd.isna(minor) else minor:.0f}"
        for major, minor in zip(frame["major"], frame["minor"], strict=True)
    ]
    frame.loc[frame["compute_capability"].isin(INTEGRATED), "memory_bandwidth"] = float("nan")
    used = db.rows(f'SELECT DISTINCT deviceId FROM "{db.table(KERNEL)}"')
    frame["unused"] = ~frame["device"].isin([device for (device,) in used])
    frame = frame.sort_values(["unused", "device"], kind="stable")
    return tables.check(frame[[column.name for column in tables.tables()["gpus"]]], "gpus")


def _read(db: Database, name: str, columns: dict[str, str]) -> pd.DataFrame:
    """Read a table with our names, in numbers and texts; what the driver does not know is NaN."""
    present = db.columns(name)
    if "id" in columns and "id" not in present and "deviceId" in present:  # nsys until 2021.1
        columns = {
            "deviceId" if column == "id" else column: renamed for column, renamed in columns.items()
        }
    select = [f'"{column}"' if column in present else "NULL" for column in columns]
    rows = db.rows(f'SELECT {", ".join(select)} FROM "{db.table(name)}" ORDER BY 1')
    frame = pd.DataFrame(rows, columns=list(columns.values())).astype(object)
    frame = frame.reindex(columns=[*_COLUMNS.values()])
    for column in frame.columns.difference(_TEXTS):
        frame[column] = pd.to_numeric(frame[column], errors="coerce")
    numbers = frame.columns.difference([*_TEXTS, "id", "device", "minor"])
    # The driver reports 0 for what it does not know.
    frame[numbers] = frame[numbers].where((frame[numbers] > 0) & (frame[numbers] < _MOST))
    return frame


def _in_base_units(frame: pd.DataFrame) -> pd.DataFrame:
    """Turn kHz, kB/s and, of the older exports, MiB into units without a prefix."""
    frame[["clock_hz", "memory_bandwidth"]] *= 1e3
    older = frame["memory_bytes"] < _MIB_BELOW
    frame["memory_bytes"] *= older.map({True: 1 << 20, False: 1})
    # These say 4 TB/s of a Quadro RTX 8000, which has 0.67.
    frame["memory_bandwidth"] = frame["memory_bandwidth"].mask(older)
    return frame


def _devices(db: Database, frame: pd.DataFrame) -> pd.Series:
    """Device index as the program saw it: CUDA_VISIBLE_DEVICES reorders and hides GPUs."""
    if db.has_rows(CUDA_DEVICE) and db.columns(CUDA_DEVICE) >= {
        "gpuId",
        "cudaId",
    }:  # since nsys 2025.3
        query = f'SELECT gpuId, min(cudaId) FROM "{db.table(CUDA_DEVICE)}" GROUP BY gpuId'
        devices = frame["id"].map(dict(db.rows(query)))
    else:
        devices = frame["id"] if frame["device"].isna().all() else frame["device"]
    # Of a GPU that the program does not see nsys knows nothing, and writes device 0.
    described = frame["major"].notna()
    return devices.where(described) if described.any() else devices
