"""Which GPU of the machine each device of each process is, and the work of one GPU alone.

CUDA numbers devices within a process: CUDA_VISIBLE_DEVICES reorders and hides them, so that device
0 of two ranks may be two GPUs. nsys from 2025.3 says which GPU each is; of older exports the same
number in two processes is one GPU only where the machine cannot have as many GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.schema import CUDA_DEVICE, GPU
from nsight_prof.parsers.run.sentences import stored

Place = tuple[int, int]
"""Device index and process id; the index is -1 where the export does not tell it."""
UNKNOWN = -1
TOLD, INDEX, PROCESS = "trace", "index", "process"


@dataclass(frozen=True)
class Devices:
    """Number of the GPU behind each place that has work; `table` is table `devices`."""

    gpu: dict[Place, int]
    table: pd.DataFrame
    warnings: list[str]

    @property
    def gpus(self) -> list[int]:
        """The GPUs that have work, in order."""
        return sorted(set(self.gpu.values()) - {UNKNOWN})

    def of(self, places: Sequence[Place], codes: Array) -> Array:
        """GPU of each operation, whose `codes` stand for `places`; UNKNOWN for none."""
        lookup = np.array([self.gpu.get(key, UNKNOWN) for key in places], np.int32)
        return lookup[codes] if len(places) else np.empty(0, np.int32)


def read_devices(db: Database, places: set[Place]) -> Devices:
    """Find the GPU of each place of an operation."""
    recorded = _recorded(db)
    known = {key for key in places if key[0] != UNKNOWN}
    ids = _ids(db)
    source, warnings = TOLD, []
    if known <= set(recorded):
        gpu = {key: recorded[key] for key in known}
    elif _one_each(known, len(ids)):
        # Ranks that see one GPU each call it 0.
        gpu = {key: number for number, key in enumerate(sorted(known, key=lambda p: p[::-1]))}
        source = PROCESS
        warnings.append(
            stored(
                "device numbers are those of each process, and the trace does not say which GPU "
                "each is: the same number in two processes is taken for two GPUs"
            )
        )
    else:
        gpu, source = {key: key[0] for key in known}, INDEX
        if len({device for device, _ in known}) < len(known):
            warnings.append(
                stored(
                    "the trace does not say which GPU the devices of each process are: the same "
                    "number in two processes is taken for one GPU"
                )
            )
    gpu |= {key: _only_gpu(key[1], gpu) for key in places - known}
    if lost := sum(number == UNKNOWN for number in gpu.values()):
        warnings.append(
            stored(
                "copies of {lost} processes that use several GPUs belong to none of them: the "
                "export does not tell their device",
                lost=lost,
            )
        )
    return Devices(gpu, _table(gpu, ids, source), warnings)


def _recorded(db: Database) -> dict[Place, int]:
    """GPU of each device of each process, as nsys says it (from 2025.3)."""
    table = db.table(CUDA_DEVICE)
    if table is None or not db.columns(CUDA_DEVICE) >= {"gpuId", "cudaId", "pid"}:
        return {}
    rows = db.rows(f'SELECT cudaId, pid, gpuId FROM "{table}" WHERE gpuId IS NOT NULL')
    return {(int(device), int(pid)): int(gpu) for device, pid, gpu in rows}


def _ids(db: Database) -> dict[int, tuple[str, str]]:
    """Name and UUID of each GPU of the machine by its number."""
    table, present = db.table(GPU), db.columns(GPU)
    if table is None or "id" not in present:
        return {}
    select = [f'"{c}"' if c in present else "NULL" for c in ("id", "name", "uuid")]
    rows = db.rows(f'SELECT {", ".join(select)} FROM "{table}" ORDER BY id')
    return {int(number): (name or "", uuid or "") for number, name, uuid in rows}


def _one_each(known: set[Place], present: int) -> bool:
    """Whether places that share an index may be as many GPUs: the machine has enough of them."""
    return len({device for device, _ in known}) < len(known) <= (present or len(known))


def _only_gpu(pid: int, gpu: dict[Place, int]) -> int:
    """GPU of operations without a device: the only one of their process."""
    gpus = {number for (_, process), number in gpu.items() if process == pid}
    return gpus.pop() if len(gpus) == 1 else UNKNOWN


def _table(gpu: dict[Place, int], ids: dict[int, tuple[str, str]], source: str) -> pd.DataFrame:
    rows = sorted((number, pid, device) for (device, pid), number in gpu.items() if device >= 0)
    frame = pd.DataFrame(rows, columns=["gpu", "pid", "device"])
    # A number that prof gave to a device of a process is no number of the machine.
    facts = {} if source == PROCESS else ids
    for index, column in enumerate(("name", "uuid")):
        frame[column] = [facts.get(number, ("", ""))[index] or None for number in frame["gpu"]]
    return tables.check(frame.assign(known_by=source), "devices")
