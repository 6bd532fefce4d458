"""Joins matrix products of the operator view to the kernels of a trace: which shape ran in which.

The operator view knows shapes, a trace of Nsight Systems true times. Both launch the products of a
stage in the same order, also where the trace replays CUDA graphs, so that the n-th kernel of one is
the n-th of the other, whatever kernel the library chose. Where the order does not fit, a kernel
joins by its name, as long as no other shape of the stage has it. What fits in neither way is told.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import nan
from statistics import median
from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.join.join import plain_name
from nsight_prof.parsers.metrics.formulas import tile_padding
from nsight_prof.parsers.names.kernel_names import classify
from nsight_prof.parsers.run.sentences import joined, stored
from nsight_prof.parsers.torch.gemm_shapes import Gemm
from nsight_prof.parsers.torch.trace import GemmKernel, is_product, is_reduction

Runs = Mapping[str, Sequence[Sequence[GemmKernel]]]
BY_BOTH, BY_ORDER, BY_NAME = "order and name", "order", "name"

_bare_name = lru_cache(maxsize=4096)(plain_name)


@dataclass(slots=True)
class Launch:
    """A kernel of the trace that computed a product; `reduction` is that of its split K, in ns."""

    kernel_id: str
    duration: int
    reduction: int = 0


@dataclass(frozen=True)
class Joined:
    """Table `gemms` without roofs, and what did not join, in sentences."""

    gemms: pd.DataFrame
    warnings: tuple[str, ...]


@dataclass
class _Row:
    """One shape of a stage in one kernel of the trace."""

    gemm: Gemm
    operator: str
    module: str
    kernel_id: str
    join: str = ""
    reason: str = ""
    launches: list[Launch] = field(default_factory=list)
    kernels: list[GemmKernel] = field(default_factory=list)


@dataclass(frozen=True)
class _Kernel:
    name: str
    grid: str


def product_ids(kernels: pd.DataFrame) -> list[str]:
    """Return the kernels of table `kernels` that compute products or add up their parts."""
    names = zip(kernels["kernel_id"], kernels["name"], strict=True)
    return [str(key) for key, name in names if is_product(str(name)) or is_reduction(str(name))]


def join_gemms(runs: Runs, launches: pd.DataFrame, kernels: pd.DataFrame) -> Joined:
    """Join the products of each stage; `launches` are those of `product_ids` (table `launches`)."""
    known = {
        str(row["kernel_id"]): _Kernel(str(row["name"]), str(row["grid"]))
        for row in records(kernels)
    }
    traced = _sequences(launches, known)
    rows: list[dict[str, Any]] = []
    warnings: list[str] = []
    for stage, of_stage in runs.items():
        joined = _join_stage(of_stage, traced.get(stage, []), known)
        rows += [_cells(stage, row, known) for row in joined]
        warnings += _of_stage(stage, of_stage)
    for stage in traced.keys() - runs.keys():
        count = sum(len(sequence) for sequence in traced[stage])
        warnings.append(
            stored(
                "{stage}: {count} kernels of products have no shapes, since the operator view "
                "saw none there",
                stage=_called(stage),
                count=count,
            )
        )
    columns = [column.name for column in tables.tables()["gemms"]]
    frame = pd.DataFrame(rows, columns=columns)
    frame = frame.sort_values(
        ["stage", "total_ns", "m", "n", "k"], ascending=[True, False, True, True, True]
    )
    return Joined(tables.check(frame, "gemms"), tuple(warnings))


def _called(stage: str) -> str:
    return stored("stage {stage}", stage=stage) if stage else stored("outside of every stage")


def _of_stage(stage: str, runs: Sequence[Sequence[GemmKernel]]) -> Iterator[str]:
    bare = [kernel for run in runs for kernel in run if kernel.gemm is None]
    if bare:
        names = ", ".join(sorted({kernel.operator for kernel in bare})[:4])
        total = sum(len(run) for run in runs)
        yield stored(
            "{stage}: {bare} of {total} products have no known shape ({names})",
            stage=_called(stage),
            bare=len(bare),
            total=total,
            names=names,
        )


def _sequences(
    launches: pd.DataFrame, known: Mapping[str, _Kernel]
) -> dict[str, list[list[Launch]]]:
    """Return the products of each stage in the order of their start, a list for each rank."""
    found: dict[str, dict[tuple[Any, Any], list[Launch]]] = defaultdict(lambda: defaultdict(list))
    last: dict[tuple[Any, Any, Any], Launch] = {}
    columns = ["stage", "pid", "device", "stream", "kernel_id", "duration_ns"]
    ordered = launches.sort_values("start_ns", kind="stable")[columns]
    for stage, pid, device, stream, key, duration in ordered.itertuples(index=False, name=None):
        kernel_id = str(key)
        if is_reduction(known[kernel_id].name):
            if (pid, device, stream) in last:
                last[pid, device, stream].reduction += int(duration)
            continue
        launch = Launch(kernel_id, int(duration))
        last[pid, device, stream] = launch
        found["" if pd.isna(stage) else str(stage)][pid, device].append(launch)
    return {stage: list(ranks.values()) for stage, ranks in found.items()}


def _join_stage(
    runs: Sequence[Sequence[GemmKernel]],
    ranks: Sequence[Sequence[Launch]],
    known: Mapping[str, _Kernel],
) -> list[_Row]:
    rows: dict[tuple[Gemm, str, str, str], _Row] = {}
    reason = "" if ranks else stored("the trace has no product in this stage")
    for rank in ranks:
        places, problem = _align(runs, rank, known)
        if places is None:
            reason = problem
            break
        for gemm_kernel, launch in zip(places, rank, strict=True):
            if gemm_kernel.gemm is not None:
                row = _row(rows, gemm_kernel, launch.kernel_id)
                row.launches.append(launch)
                same = _bare_name(gemm_kernel.name) == _bare_name(known[launch.kernel_id].name)
                row.join = BY_BOTH if same else BY_ORDER
    if reason:
        rows = _by_name(runs, ranks, known, reason)
    _add_seen(runs, rows)
    return list(rows.values())


def _row(
    rows: dict[tuple[Gemm, str, str, str], _Row], gemm_kernel: GemmKernel, kernel_id: str
) -> _Row:
    assert gemm_kernel.gemm is not None
    key = (gemm_kernel.gemm, gemm_kernel.operator, gemm_kernel.module, kernel_id)
    return rows.setdefault(
        key, _Row(gemm_kernel.gemm, gemm_kernel.operator, gemm_kernel.module, kernel_id)
    )


def _align(
    runs: Sequence[Sequence[GemmKernel]], rank: Sequence[Launch], known: Mapping[str, _Kernel]
) -> tuple[list[GemmKernel] | None, str]:
    """Return the product of the operator view for each launch, or why the order does not fit."""
    every = [kernel for run in runs for kernel in run]
    alike = len({_shapes(run) for run in runs}) == 1
    step = list(runs[0]) if alike else every
    if not step or len(rank) % len(step):
        what = stored("a run of it") if alike else stored("all of it")
        return None, stored(
            "{rank} products in the trace, {step} in {what} as operators",
            rank=len(rank),
            step=len(step),
            what=what,
        )
    repeats = len(rank) // len(step)
    if repeats > 1:
        names = [known[launch.kernel_id].name for launch in rank]
        first = names[: len(step)]
        if any(names[at : at + len(step)] != first for at in range(0, len(names), len(step))):
            return None, stored("the kernels of the trace do not repeat as the operators do")
    return step * repeats, ""


def _shapes(run: Sequence[GemmKernel]) -> tuple[tuple[Gemm | None, str, str], ...]:
    return tuple((kernel.gemm, kernel.operator, kernel.module) for kernel in run)


def _by_name(
    runs: Sequence[Sequence[GemmKernel]],
    ranks: Sequence[Sequence[Launch]],
    known: Mapping[str, _Kernel],
    reason: str,
) -> dict[tuple[Gemm, str, str, str], _Row]:
    """Join kernels whose name and grid only one shape of the stage has."""
    by_kernel: dict[tuple[str, str], list[Launch]] = defaultdict(list)
    for launch in (launch for rank in ranks for launch in rank):
        kernel = known[launch.kernel_id]
        by_kernel[_bare_name(kernel.name), kernel.grid].append(launch)
    shapes: dict[tuple[str, str], set[Gemm | None]] = defaultdict(set)
    every = [kernel for run in runs for kernel in run]
    for gemm_kernel in every:
        shapes[_bare_name(gemm_kernel.name), gemm_kernel.grid].add(gemm_kernel.gemm)
    rows: dict[tuple[Gemm, str, str, str], _Row] = {}
    for key in dict.fromkeys(
        (_bare_name(gemm_kernel.name), gemm_kernel.grid) for gemm_kernel in every
    ):
        alike = {
            (gemm_kernel.gemm, gemm_kernel.operator, gemm_kernel.module): gemm_kernel
            for gemm_kernel in every
            if (_bare_name(gemm_kernel.name), gemm_kernel.grid) == key
            and gemm_kernel.gemm is not None
        }
        launches = by_kernel.get(key, [])
        joins = bool(launches) and len(shapes[key]) == 1 and len(alike) == 1
        for gemm_kernel in alike.values():
            row = _row(rows, gemm_kernel, launches[0].kernel_id if joins else "")
            row.join = BY_NAME if joins else ""
            row.launches = launches if joins else []
            more = "" if joins else _why_not(bool(launches))
            row.reason = joined("; ", [reason, more])
    return rows


def _why_not(in_trace: bool) -> str:
    if in_trace:
        return stored("other shapes of the stage have the same kernel")
    return stored("its kernel in the operator view is not in the trace")


def _add_seen(
    runs: Sequence[Sequence[GemmKernel]], rows: Mapping[tuple[Gemm, str, str, str], _Row]
) -> None:
    """Give each row the kernels of the operator view that computed its shape."""
    by_shape: dict[tuple[Gemm, str, str], list[_Row]] = defaultdict(list)
    for row in rows.values():
        by_shape[row.gemm, row.operator, row.module].append(row)
    for gemm_kernel in (kernel for run in runs for kernel in run):
        if gemm_kernel.gemm is not None:
            for row in by_shape.get(
                (gemm_kernel.gemm, gemm_kernel.operator, gemm_kernel.module), []
            ):
                row.kernels.append(gemm_kernel)


def _cells(stage: str, row: _Row, known: Mapping[str, _Kernel]) -> dict[str, Any]:
    times = [launch.duration + launch.reduction for launch in row.launches]
    reductions = [launch.reduction for launch in row.launches if launch.reduction]
    middle = float(median(times)) if times else nan
    gemm, kernel = row.gemm, known.get(row.kernel_id)
    name = classify(kernel.name) if kernel else None
    kernel_names = [kernel.name for kernel in row.kernels]
    moved = nan if gemm.bytes is None else gemm.bytes
    return {
        "stage": stage,
        "module": row.module,
        "operator": row.operator,
        "batch": gemm.batch,
        "m": gemm.m,
        "n": gemm.n,
        "k": gemm.k,
        "dtype": gemm.dtype,
        "kernel_id": row.kernel_id,
        "kernel": name.short_name if name else "",
        "operator_kernel": classify(max(set(kernel_names), key=kernel_names.count)).short_name
        if kernel_names
        else "",
        "join": row.join,
        "reason": row.reason,
        "tile": name.tile if name else "",
        "split_k": split_k(gemm, kernel.name, kernel.grid) if kernel else None,
        "calls": len(times) if times else None,
        "operator_calls": len(kernel_names),
        "median_ns": middle,
        "reduction_ns": float(median(reductions)) if reductions else nan,
        "total_ns": float(sum(times)) if times else nan,
        "operator_ns": float(median(kernel.duration for kernel in row.kernels))
        if kernel_names
        else nan,
        "flops": gemm.flops,
        "bytes": moved,
        "flop_per_s": gemm.flops / middle * 1e9,
        "bytes_per_s": moved / middle * 1e9,
        "tile_padding": padding(gemm, name.tile) if name else nan,
        "roof_used": "",
        "roof_source": "",
        "roof_fraction": nan,
    }


def sides(tile: str) -> tuple[int, int] | None:
    """Return M and N of a tile "MxN" or "MxNxK"; None where it is none."""
    found = [int(side) for side in re.findall(r"\d+", tile)]
    return (found[0], found[1]) if len(found) > 1 and 0 not in found[:2] else None


def padding(gemm: Gemm, tile: str) -> float:
    """Return the FLOPs of whole tiles over those needed, at least: in the better orientation."""
    size = sides(tile)
    return min(tile_padding(gemm.m, gemm.n, *size)) if size else nan


def split_k(gemm: Gemm, name: str, grid: str) -> int | None:
    """Return how many parts K was split into: 1 for a cuBLAS kernel whose name tells of none.

    Where it tells of a split, the grid has a block for each tile and part; clusters round it up.
    """
    known = classify(name)
    if "split-K" not in known.short_name and "splitk" not in name.lower():
        return 1 if known.library == "cuBLAS" and known.tile else None
    size = sides(known.tile)
    blocks = math.prod(int(extent) for extent in re.findall(r"\d+", grid)) if grid else 0
    if size is None or not blocks:
        return None
    tiles = gemm.batch * min(
        math.ceil(gemm.m / a) * math.ceil(gemm.n / b) for a, b in (size, size[::-1])
    )
    splits = blocks // tiles
    return splits if splits > 1 else None
