"""Measured bandwidths of collectives between GPUs (comm-roofs.json): roofs by message size.

`prof run comm-roofs` measures them; a run or a job that is held against them has the file, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from nsight_prof.parsers.bench.records import MEASURED
from nsight_prof.parsers.cells import count, records, text
from nsight_prof.parsers.errors import SchemaTooNew
from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.tables import check, empty, tables
from nsight_prof.parsers.whole_file import write_atomic

COMM_ROOFS_FILE = "comm-roofs.json"
TABLE, TARGET = "comm_roofs", "comm_roofs"
FORMAT_VERSION = 1
SHORTEST_S = 30e-6
"""Calls from which on they are a roof for a kernel in a trace: one after another they hold the
start of the kernel, too (1 to 2 us on two H100)."""
REMEDY = "measure them again: prof run comm-roofs"


@dataclass(frozen=True)
class CommRoofs:
    """Table `comm_roofs`, and when, by which run and on GPUs of which name it was measured."""

    measured: str
    run_id: str
    gpu: str
    roofs: pd.DataFrame


def roof_at(
    roofs: pd.DataFrame, operation: str, ranks: int | None, size: float | None
) -> float | None:
    """Return the bus bandwidth (B/s) in table `comm_roofs` for a message of `size` bytes.

    Between two sizes that were measured, times are interpolated on logarithmic scales; a larger
    message has the bandwidth of the largest. None below the smallest, for what was not measured,
    and for calls shorter than SHORTEST_S.
    """
    found = roofs[(roofs["operation"] == operation) & (roofs["ranks"] == ranks)]
    found = found.sort_values("bytes")
    if not len(found) or not size or size < found["bytes"].iloc[0]:
        return None
    sizes, times = (np.log(found[name].to_numpy(float)) for name in ("bytes", "time_s"))
    seconds = float(np.exp(np.interp(np.log(size), sizes, times)))
    if seconds < SHORTEST_S:
        return None
    rates = np.log(found["bus_bandwidth"].to_numpy(float))
    return float(np.exp(np.interp(np.log(size), sizes, rates)))


def comm_roofs(bench: pd.DataFrame) -> pd.DataFrame:
    """Return table `comm_roofs` of the cases of target comm_roofs in table `bench`."""
    of_target = bench[(bench["target"] == TARGET) & (bench["status"] == MEASURED)]
    rows = []
    for row in records(of_target):
        params = json.loads(text(row["params"]))
        rows.append(
            {
                "operation": params["operation"],
                "ranks": params["ranks"],
                "bytes": params["message_bytes"],
                "dtype": row["dtype"],
                "time_s": row["median_s"],
                "bus_bandwidth": row["bytes_per_s"],
                "low": row["bytes"] / row["ci_high_s"],
                "high": row["bytes"] / row["ci_low_s"],
                "samples": count(row["n"]),
                "case_id": row["case_id"],
            }
        )
    frame = pd.DataFrame(rows, columns=[column.name for column in tables()[TABLE]])
    return check(frame, TABLE)


def write_comm_roofs(path: Path, file: CommRoofs) -> None:
    """Write `file` as JSON, atomically."""
    data = {
        "format_version": FORMAT_VERSION,
        "measured": file.measured,
        "run_id": file.run_id,
        "gpu": file.gpu,
        TABLE: file.roofs.to_dict("records"),
    }
    write_atomic(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def read_comm_roofs(path: Path) -> CommRoofs | None:
    """Read a file that `write_comm_roofs` wrote; None where there is none.

    Raises:
        ArtifactUnreadable: it is damaged, or not this format.
        SchemaTooNew: a newer version of prof wrote it.
    """
    if not path.is_file():
        return None
    with reading(path, "a file of communication roofs", REMEDY):
        data = json.loads(path.read_text(encoding="utf-8"))
        version = data["format_version"]
        if version <= FORMAT_VERSION:
            names = [column.name for column in tables()[TABLE]]
            frame = check(pd.DataFrame(data[TABLE], columns=names), TABLE)
            return CommRoofs(str(data["measured"]), str(data["run_id"]), str(data["gpu"]), frame)
    raise SchemaTooNew(
        f"{path} has format version {version}; this prof understands up to {FORMAT_VERSION}",
        f"upgrade prof, or {REMEDY}",
    )


def roofs_table(path: Path) -> pd.DataFrame:
    """Return table `comm_roofs` of a file; empty where there is none. Raises as the reader."""
    file = read_comm_roofs(path)
    return empty(TABLE) if file is None else file.roofs
