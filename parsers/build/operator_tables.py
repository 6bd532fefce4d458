"""Makes the tables of the operators step: operators, and matrix products with their kernels."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow.parquet as parquet

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.gaps import Gaps
from nsight_prof.parsers.build.peaks import Peak, Peaks, peaks
from nsight_prof.parsers.cells import Row, count, number, records, text
from nsight_prof.parsers.errors import ArtifactUnreadable, ProfError
from nsight_prof.parsers.join.cublas import LOG, read_cublas_calls
from nsight_prof.parsers.join.gemms import join_gemms, product_ids
from nsight_prof.parsers.run.directory import RunDir, plain_file, read_manifest
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.serving.model_shape import Linear
from nsight_prof.parsers.serving.stored_weights import stored_shape
from nsight_prof.parsers.torch.fused_kernels import FUSED_KERNELS, FUSED_LINES, read_fused_lines
from nsight_prof.parsers.torch.trace import open_torch_trace
from nsight_prof.parsers.torch.values import VALUES, read_values

OPERATORS = ("operators.json.gz", "operators.json")
BEYOND = 1.05
"""A product this much faster than its roof has its data in a cache: no fraction is told."""
_LAUNCHES = ("kernel_id", "stage", "pid", "device", "stream", "start_ns", "duration_ns")


def cublas_frames(run: RunDir, kernels: pd.DataFrame, gaps: Gaps) -> dict[str, pd.DataFrame]:
    """Return table `cublas_calls`; none for a run without the log."""
    path = run.artifact("trace", LOG)
    if path is None:
        return {}
    try:
        with plain_file(path) as unpacked:
            found = read_cublas_calls(unpacked, kernels)
    except OSError as error:
        gaps.add(
            "cublas_calls",
            stored("{name} cannot be read: {strerror}", name=path.name, strerror=error.strerror),
        )
        return {}
    if found.empty:
        gaps.add("cublas_calls", stored("the log of cuBLASLt holds no call: the program made none"))
    return {"cublas_calls": found}


def operator_frames(
    run: RunDir, frames: Mapping[str, pd.DataFrame], folder: Path, gaps: Gaps
) -> dict[str, pd.DataFrame]:
    """Return tables `operators` and `gemms`; empty for a run without the step.

    Also `modules` where the trace has none: its CUDA graphs launch kernels without modules.

    `frames` are the tables so far; `folder` holds `launches.parquet`.
    """
    manifest = read_manifest(run)
    step = manifest.step("operators")
    path = run.artifact("operators", *OPERATORS)
    if path is None:
        if step is not None:
            gaps.add("operators", step.error or stored("the operators step left no trace"))
        return {}
    try:
        trace = open_torch_trace(path, manifest.recipe.get("stages") or ())
    except ArtifactUnreadable as error:
        gaps.unreadable("operators", path, error)
        return {}
    for warning in trace.warnings:
        gaps.add("operators", warning)
    kernels = frames.get("kernels", tables.empty("kernels"))
    joined = join_gemms(trace.gemm_kernels(), _launches(folder, kernels), kernels)
    for warning in joined.warnings:
        gaps.add("gemms", warning)
    gemms = with_roofs(with_modules(joined.gemms, frames), frames, gaps)
    by_table = {"operators": trace.operators(), "gemms": gemms}
    by_table[FUSED_LINES] = _fused_lines(run, kernels, gaps)
    by_table["stage_memory"] = trace.stage_memory()
    if frames.get("modules", tables.empty("modules")).empty:
        by_table["modules"] = trace.modules()
    return by_table


def value_frames(run: RunDir, gaps: Gaps) -> dict[str, pd.DataFrame]:
    """Return tables `operator_values` and `value_profiles`; empty for a run without the step."""
    step, path = read_manifest(run).step("values"), run.artifact("values", VALUES, "values.jsonl")
    if path is None:
        if step is not None:
            gaps.add("operator_values", step.error or stored("the values step left no recording"))
        return {}
    try:
        values, profiles = read_values(path)
    except ArtifactUnreadable as error:
        gaps.unreadable("operator_values", path, error)
        return {}
    for reason in set(profiles["error"]) - {""}:
        gaps.add("operator_values", stored("some values are not known: {reason}", reason=reason))
    return {"operator_values": values, "value_profiles": profiles}


def _fused_lines(run: RunDir, kernels: pd.DataFrame, gaps: Gaps) -> pd.DataFrame:
    """Return table `fused_lines`; empty for a program that compiled nothing."""
    path = run.artifact("operators", FUSED_KERNELS)
    if path is None:
        return tables.empty(FUSED_LINES)
    try:
        return read_fused_lines(path, kernels)
    except ArtifactUnreadable as error:
        gaps.unreadable(FUSED_LINES, path, error)
        return tables.empty(FUSED_LINES)


def _launches(folder: Path, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the launches of products alone: the others of a long trace are never in memory."""
    ids, path = product_ids(kernels), folder / "launches.parquet"
    if not ids or not path.is_file():
        return tables.empty("launches")[list(_LAUNCHES)]
    found = parquet.read_table(path, columns=list(_LAUNCHES), filters=[("kernel_id", "in", ids)])
    frame: pd.DataFrame = found.to_pandas()
    return frame


def with_modules(gemms: pd.DataFrame, frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Name the products without a module by the model's matrices of their N and K."""
    linears = _linears(frames.get("engines", tables.empty("engines")))
    if not linears or gemms.empty:
        return gemms
    rows = records(gemms)
    for row in rows:
        if not text(row["module"]):
            fitting = [x.path for x in linears if (x.outputs, x.inputs) == (row["n"], row["k"])]
            row["module"] = " or ".join(fitting)
    return tables.check(pd.DataFrame(rows, columns=list(gemms.columns)), "gemms")


def _linears(engines: pd.DataFrame) -> list[Linear]:
    """Return the matrices of the model that one GPU of the operators step held."""
    rows = [row for row in records(engines) if text(row["source"]) == "operators"]
    for row in rows or records(engines):
        try:
            shape = stored_shape(
                json.loads(text(row["model_config"]) or "{}"),
                text(row["dtype"]).removeprefix("torch."),
            ).shard(count(row["tensor_parallel"]) or 1)
        except (ProfError, ValueError):
            continue
        return [*shape.linears(), shape.head()]
    return []


@dataclass(frozen=True)
class _Tables:
    """The tables that roofs are taken from."""

    measured_roofs: pd.DataFrame
    roofs: pd.DataFrame


def with_roofs(gemms: pd.DataFrame, frames: Mapping[str, pd.DataFrame], gaps: Gaps) -> pd.DataFrame:
    """Fill the roof columns: min(peak, intensity x bandwidth), in time (Williams et al. 2009).

    The share is of the mean of a call, so that calls x share x mean is the time at the roof: the
    median of calls in two modes, of two clocks for instance, times their number is not their sum.
    """
    names = ("measured_roofs", "roofs")
    known = _Tables(*(frames.get(name, tables.empty(name)) for name in names))
    of_dtype = {dtype: peaks(known, dtype) for dtype in set(gemms["dtype"].fillna(""))}
    rows, missing, cached = records(gemms), set(), 0
    fastest = _fastest(rows)
    for row in rows:
        if not text(row["kernel_id"]):
            continue
        dtype = text(row["dtype"])
        limit = _limit(row, of_dtype[dtype], fastest[text(row["stage"]), dtype])
        if limit is None:
            missing.add(dtype or "unknown type")
        elif limit[1] <= BEYOND:
            row["roof_used"], row["roof_source"] = limit[0], limit[2].name
            row["roof_fraction"] = limit[1]
        else:
            cached += 1
    if missing:
        gaps.add(
            "gemms",
            stored(
                "no roof is known for products of {missing}", missing=", ".join(sorted(missing))
            ),
        )
    if cached:
        reason = stored(
            "{cached} products are faster than their roof: their data came from a cache",
            cached=cached,
        )
        gaps.add("gemms", reason, "roof_fraction")
    return tables.check(pd.DataFrame(rows, columns=list(gemms.columns)), "gemms")


def _fastest(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """Return the highest FLOP/s of each stage and type.

    All products of a stage are held to one roof, the one for the fastest of them: to hold the
    others to a lower one would make the slower look better.
    """
    found: dict[tuple[str, str], float] = {}
    for row in rows:
        key, rate = (
            (text(row["stage"]), text(row["dtype"])),
            number(row["flops"]) / mean_ns(row) * 1e9,
        )
        found[key] = max(found.get(key, 0.0), 0.0 if math.isnan(rate) else rate)
    return found


def mean_ns(row: Row) -> float:
    """Return the mean ns of a call; the median where the sum or the calls are unknown."""
    total, calls = number(row["total_ns"]), number(row["calls"])
    known = math.isfinite(total) and calls > 0
    return total / calls if known else number(row["median_ns"])


def _limit(row: Row, roofs: Peaks, fastest: float) -> tuple[str, float, Peak] | None:
    """Return the roof that limits a product, the part of it that it reached, and whose roof."""
    moved, flops, time = number(row["bytes"]), number(row["flops"]), mean_ns(row) / 1e9
    compute, memory = roofs.attained(fastest), roofs.memory
    if compute is None or memory is None or math.isnan(moved):
        return None
    computing, moving = flops / compute.value, moved / memory.value
    if computing > moving:
        return f"tensor {text(row['dtype'])}", computing / time, compute
    return "dram", moving / time, memory
