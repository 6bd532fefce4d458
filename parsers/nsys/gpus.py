"""Reads the GPUs of the traced machine, with the device index that the program saw."""

from __future__ import annotations

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.database import Database
from nsight_prof.parsers.nsys.schema import CUDA_DEVICE, GPU

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


def read_gpus(db: Database) -> pd.DataFrame:
    """Table `gpus`, ordered by device; empty where the export does not describe its GPUs."""
    table = db.table(GPU)
    present = db.columns(GPU)
    if table is None:
        return tables.empty("gpus")
    select = [f'"{c}"' if c in present else "NULL" for c in _COLUMNS]
    rows = db.rows(f'SELECT {", ".join(select)} FROM "{table}" ORDER BY id')
    frame = pd.DataFrame(rows, columns=list(_COLUMNS.values())).astype(object)
    frame["device"] = pd.Series(_devices(db, frame), dtype="Int64")
    frame["compute_capability"] = [
        pd.NA if pd.isna(major) or pd.isna(minor) else f"{major}.{minor}"
        for major, minor in zip(frame.pop("major"), frame.pop("minor"), strict=True)
    ]
    frame = frame.drop(columns="id").sort_values("device", kind="stable")
    # The driver reports 0 for what it does not know.
    return tables.check(frame.replace({0: pd.NA}).assign(device=frame["device"]), "gpus")


def _devices(db: Database, frame: pd.DataFrame) -> list[object]:
    """Device index as the program saw it: CUDA_VISIBLE_DEVICES reorders and hides GPUs."""
    table = db.table(CUDA_DEVICE)  # since nsys 2025.3
    if table is None:
        return [
            number if pd.isna(cu) else cu
            for number, cu in zip(frame["id"], frame["device"], strict=True)
        ]
    seen = dict(db.rows(f'SELECT gpuId, min(cudaId) FROM "{table}" GROUP BY gpuId'))
    return [seen.get(number, pd.NA) for number in frame["id"]]
