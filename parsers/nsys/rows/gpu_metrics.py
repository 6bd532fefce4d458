"""Samples of GPU metrics (nsys --gpu-metrics-devices), joined to the kernels and stages they hit.

A sample holds what a GPU did from its time to that of the next one (nsys 2025.3.1, H100: of matrix
products of 175 us, samples of 50 us are at 95 % from their start to 55 us before their end). It is
that of a kernel where it lies within one launch of it and no other kernel ran then: shorter ones
have no sample, and no value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.rows.devices import Devices
from nsight_prof.parsers.nsys.rows.kernels import KernelRows
from nsight_prof.parsers.nsys.sqlite.database import Array, Database
from nsight_prof.parsers.nsys.sqlite.leaves import Column

VALUES, NAMES, TABLE = "GPU_METRICS", "TARGET_INFO_GPU_METRICS", "gpu_samples"
GPU_BITS = 0xFF
"""Of `typeId`, the number of the GPU (nsys 2025.3.2)."""
UNIT = re.compile(r"^(?P<name>.*?)\s*\[(?P<unit>[^\]]*)\]$")
UNITS = {"Throughput %": "%", "MHz": "Hz"}
"""What the values are in; of clocks the name has MHz, and the value is in Hz (nsys 2025.3.1)."""
KEEP = re.compile(
    r"^(?:GPC Clock|SMs? Active|SM Issue|Tensor Active|Compute Warps in Flight \[T"
    r"|DRAM|NVLink|PCIe)"
)
"""Metrics that are read: a second at 100 kHz has millions of values of all of them."""


@dataclass(frozen=True)
class _Sampled:
    """One metric of a GPU: when its samples begin, and the sum of all values before each."""

    time: Array
    before: Array
    interval_ns: int

    def within(self, start: Array, end: Array) -> tuple[Array, Array]:
        """Return how many samples lie within each interval, and the sum of their values."""
        first = np.searchsorted(self.time, start)
        last = np.maximum(np.searchsorted(self.time, end - self.interval_ns, "right"), first)
        return last - first, self.before[last] - self.before[first]


def gpu_samples(
    db: Database, kernels: KernelRows, devices: Devices, instances: pd.DataFrame
) -> pd.DataFrame:
    """Return table `gpu_samples`; empty where nsys sampled no GPU."""
    if not (db.has_rows(VALUES) and db.has_rows(NAMES)):
        return tables.empty(TABLE)
    gpu_of = devices.of(kernels.places, kernels.queue)
    frames = []
    for (number, name), sampled in _read(db):
        # One rank samples its own GPU, whatever number it has there.
        gpu = number if number in devices.gpus or len(devices.gpus) != 1 else devices.gpus[0]
        metric, unit = _split(name)
        found = [
            *_of_kernels(sampled, kernels, gpu_of == gpu),
            *_of_stages(sampled, instances, gpu),
        ]
        frame = pd.DataFrame(found, columns=["stage", "kernel_id", "mean", "samples"])
        frames.append(frame.assign(gpu=gpu, metric=metric, unit=unit))
    return tables.check(pd.concat(frames), TABLE) if frames else tables.empty(TABLE)


def _read(db: Database) -> Iterator[tuple[tuple[int, str], _Sampled]]:
    """Yield each metric of each GPU that was sampled, with the GPU's number and its name."""
    rows = db.rows(f'SELECT DISTINCT typeId, metricId, metricName FROM "{db.table(NAMES)}"')
    names = {(int(kind), int(key)): str(name) for kind, key, name in rows}
    wanted = sorted({key for (_, key), name in names.items() if KEEP.search(name)})
    if not wanted:
        return

    def read_chunk(columns: list[Array]) -> list[Array]:
        is_wanted = np.isin(columns[1], wanted)
        return [column[is_wanted] for column in columns]

    columns = [*map(Column, ("typeId", "metricId", "timestamp", "value"))]
    table = db.table(VALUES)
    assert table is not None  # it has rows
    chunks = list(db.scan(columns, table, read_chunk))
    kind, key, time, value = (np.concatenate(column) for column in zip(*chunks, strict=True))
    for number in np.unique(kind):
        for metric in np.unique(key[kind == number]):
            mask = (kind == number) & (key == metric)
            order = np.argsort(time[mask], kind="stable")
            times, values = time[mask][order], value[mask][order].astype(float)
            name = names.get((int(number), int(metric)))
            if len(times) > 1 and name is not None:
                before = np.concatenate([[0.0], np.cumsum(values)])
                sampled = _Sampled(times, before, int(np.median(np.diff(times))))
                yield (int(number) & GPU_BITS, name), sampled


def _of_kernels(
    sampled: _Sampled, kernels: KernelRows, mask: Array
) -> Iterator[tuple[str, str, float, int]]:
    """Yield the mean of each kernel with samples of its own."""
    start, end = kernels.start[mask], kernels.start[mask] + kernels.duration[mask]
    code = kernels.kernel[mask]
    if not len(start):
        return
    latest = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]])
    alone = (start >= latest) & (end <= np.append(start[1:], np.iinfo(np.int64).max))
    count, total = sampled.within(start[alone], end[alone])
    counts = np.bincount(code[alone], count, len(kernels.kernels))
    totals = np.bincount(code[alone], total, len(kernels.kernels))
    for at in np.flatnonzero(counts):
        yield "", kernels.kernels[at].kernel_id, totals[at] / counts[at], int(counts[at])


def _of_stages(
    sampled: _Sampled, instances: pd.DataFrame, gpu: int
) -> Iterator[tuple[str, str, float, int]]:
    """Yield the mean of each stage, over the time of its work on the GPU."""
    for stage, rows in instances[instances["gpu"] == gpu].groupby("stage", observed=True):
        start, end = (rows[name].to_numpy(np.int64) for name in ("gpu_start_ns", "gpu_end_ns"))
        count, total = sampled.within(start, end)
        if count.sum():
            yield str(stage), "", total.sum() / count.sum(), int(count.sum())


def _split(name: str) -> tuple[str, str]:
    """Split `DRAM Read Bandwidth [Throughput %]` into name and unit."""
    found = UNIT.match(name)
    if found is None:
        return name, ""
    return found["name"], UNITS.get(found["unit"], found["unit"])
