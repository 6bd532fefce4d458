"""Tables of ranks with planted stragglers: a training step of 20 kernels and an all-reduce."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.run.directory import Manifest, RankRecord, RunDir, write_manifest

KERNELS = {"gemm": ("gemm", 100_000, 8), "norm": ("normalization", 25_000, 12),
           "nccl": ("collective", 200_000, 1)}  # fmt: skip
GAP_NS = 2_000


@dataclass(frozen=True)
class Planted:
    """What is wrong with a rank: factors on durations, a sleep and further products a step, and
    how much larger its batch is, so that other kernels than products have another grid."""

    matrix: float = 1.0
    others: float = 1.0
    sleep_ns: int = 0
    more: int = 0
    batch: float = 1.0
    offset_ns: int = 0
    drift_ppm: float = 0.0


HEALTHY = Planted()


def write_job(
    folder: Path, ranks: int, planted: dict[int, Planted], steps: int = 100, seed: int = 0
) -> RunDir:
    """Write a job of `ranks` ranks whose tables are those that prof makes of a trace."""
    job = RunDir(folder)
    random = np.random.default_rng(seed)
    work = [_steps(planted.get(rank, HEALTHY), steps, random) for rank in range(ranks)]
    ready = np.stack([durations.sum(axis=1) for _, durations in work])
    # Each step begins together, where the last one's all-reduce ended.
    for rank, (names, durations) in enumerate(work):
        waits = ready.max(axis=0) - ready[rank]
        ends = random.normal(0, 50, steps).clip(-150, 150).astype(np.int64)
        collective = KERNELS["nccl"][1] + waits + np.diff(ends, prepend=0)
        _write_rank(job.rank(rank), names, durations, collective, planted.get(rank, HEALTHY))
    records = [RankRecord(rank, file=f"rank{rank}") for rank in range(ranks)]
    job.path.mkdir(exist_ok=True, parents=True)
    write_manifest(job, Manifest("job", "", {"name": "job"}, ranks=records, rank_basis="test"))
    return job


def _steps(planted: Planted, steps: int, random: np.random.Generator) -> tuple[list[str], Any]:
    """Return the kernels of a step, and their durations with the pause before them (steps x n)."""
    names = ["gemm"] * (KERNELS["gemm"][2] + planted.more) + ["norm"] * KERNELS["norm"][2]
    factor = [planted.matrix if name == "gemm" else planted.others for name in names]
    mean = np.array([KERNELS[name][1] for name in names]) * factor * planted.batch
    durations = mean * random.normal(1, 0.01, (steps, len(names))) + GAP_NS
    durations[:, 0] += planted.sleep_ns
    return names, durations.astype(np.int64)


def _write_rank(
    run: RunDir, names: list[str], durations: Any, collective: Any, planted: Planted
) -> None:
    steps = len(durations)
    spent = np.concatenate([durations, collective[:, None].astype(np.int64)], axis=1)
    end = spent.cumsum().reshape(steps, -1)
    length = spent.copy()
    length[:, :-1] -= GAP_NS
    length[:, 0] -= planted.sleep_ns
    start = end - length
    shifted = start + planted.offset_ns + (start * planted.drift_ppm * 1e-6).astype(np.int64)
    wall, busy = int(end.max() - start.min()), int(length.sum())
    norm = "norm" if planted.batch == 1 else "larger norm"
    ids = [norm if name == "norm" else name for name in [*names, "nccl"]] * steps
    launches = _frame("launches", {
        "kernel_id": ids, "start_ns": shifted.ravel(), "duration_ns": length.ravel(),
        "device": 0, "pid": 1, "index": 0,
    })  # fmt: skip
    sums = launches.groupby("kernel_id", observed=True)["duration_ns"].agg(["sum", "size"])
    kernels = _frame("kernels", {
        "kernel_id": ["gemm", norm, "nccl"], "name": list(KERNELS), "short_name": list(KERNELS),
        "category": [KERNELS[name][0] for name in KERNELS],
        "total_ns": [sums["sum"][name] for name in ("gemm", norm, "nccl")],
        "calls": [sums["size"][name] for name in ("gemm", norm, "nccl")],
    })  # fmt: skip
    stage_kernels = _frame("stage_kernels", {
        "stage": "step", "kernel_id": kernels["kernel_id"], "calls": kernels["calls"],
        "total_ns": kernels["total_ns"],
    })  # fmt: skip
    stage = {"gpu": 0, "stage": "(all)", "wall_ns": wall, "gpu_busy_ns": busy,
             "idle_ns": wall - busy, "launches": len(launches), "kernel_ns": busy,
             "memory_ns": 0}  # fmt: skip
    gap = {"gpu": 0, "stage": "(all)", "cause": "host", "idle_ns": wall - busy}
    device = {"gpu": 0, "pid": 1, "device": 0, "name": "NVIDIA H200"}
    begin = shifted.reshape(steps, -1)[:, 0]
    instances = _frame("stage_instances", {
        "stage": "step", "gpu": 0, "instance": range(steps), "host_start_ns": begin,
        "gpu_start_ns": begin, "gpu_end_ns": (shifted + length).reshape(steps, -1).max(axis=1),
        "kernel_ns": length.sum(axis=1), "launches": length.shape[1],
    })  # fmt: skip
    frames = {"launches": launches, "kernels": kernels, "stage_instances": instances,
              "stage_kernels": stage_kernels}  # fmt: skip
    for table, row in (("gpu_stages", stage), ("gpu_idle_gaps", gap), ("devices", device)):
        frames[table] = _frame(table, {name: [value] for name, value in row.items()})
    for table, frame in frames.items():
        tables.write(frame, table, run.tables, csv=False)


def _frame(table: str, values: dict[str, Any]) -> pd.DataFrame:
    frame = pd.DataFrame(values)
    for column in tables.tables()[table]:
        if column.name not in frame:
            frame[column.name] = None
    return tables.check(frame, table)
