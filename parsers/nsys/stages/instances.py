"""Table `stage_instances`: each instance of a stage, and its kernels on each GPU."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.rows.devices import Devices
from nsight_prof.parsers.nsys.stages.work import Work

MOST = 100_000
"""Instances with kernels up to which there is a table: more are no steps of a program."""


def stage_instances(work: Work, devices: Devices) -> pd.DataFrame:
    """Return table `stage_instances`; empty where there are more than MOST."""
    found, rows = work.attributed, work.kernels
    instance = found.instance[rows.call]
    if np.count_nonzero(np.bincount(instance + 1)) > MOST:  # -1 is no instance
        return tables.empty("stage_instances")
    start, duration = rows.start, rows.duration.astype(np.int64)
    kernels = pd.DataFrame(
        {
            "range": instance,
            "gpu": devices.of(rows.places, rows.queue),
            "gpu_start_ns": start,
            "gpu_end_ns": start + duration,
            "kernel_ns": duration,
        }
    )
    by_instance = kernels[kernels["range"] >= 0].groupby(["range", "gpu"], as_index=False)
    frame = by_instance.agg(
        gpu_start_ns=("gpu_start_ns", "min"),
        gpu_end_ns=("gpu_end_ns", "max"),
        kernel_ns=("kernel_ns", "sum"),
        launches=("kernel_ns", "size"),
    )
    code = frame.pop("range").to_numpy()
    frame["stage"] = [found.stages[n] for n in found.stage[code]]
    frame["host_start_ns"] = found.begin[code]
    frame = frame.sort_values(["stage", "gpu", "host_start_ns"], kind="stable", ignore_index=True)
    frame["instance"] = frame.groupby(["stage", "gpu"]).cumcount()
    return tables.check(frame, "stage_instances")
