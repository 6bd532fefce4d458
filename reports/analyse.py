"""Turns the raw artifacts of a run into its tidy tables, as far as they can be read.

Whatever is missing or broken leaves empty tables and a row in table `gaps` that says why. The
folder of tables is replaced as a whole: a reader sees the old tables or the new ones.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow.parquet as parquet

from parsers import tables
from parsers.counters import build_counters
from parsers.errors import ProfError, StepFailed
from parsers.join import join
from parsers.ncu import NcuCapture, can_read_rep, read_ncu
from parsers.nsys import NsysTrace, open_trace, read_kern_sum
from parsers.roofs import build_roofs
from parsers.run_dir import RunDir, read_manifest
from parsers.selection import Selection, read_selection
from reports.bound import assign_bounds, bound_gaps
from reports.ncu_only import gpus_of, kernels_of

LAUNCHES_AS_CSV = 200_000
"""Launches of a trace up to which a CSV is written beside the Parquet file."""

Frames = dict[str, pd.DataFrame]


class _Gaps:
    """Collects rows of table `gaps` about whole tables and columns."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, str, str]] = []

    def add(self, table: str, reason: str, column: str = "") -> None:
        """Say why `table` (or one column of it) is not available."""
        self._rows.append((table, "", column, reason))

    def frame(self, *others: pd.DataFrame) -> pd.DataFrame:
        """Return the rows as table `gaps`, with those of `others` behind them."""
        mine = pd.DataFrame(self._rows, columns=[c.name for c in tables.tables()["gaps"]])
        found = [tables.check(frame, "gaps") for frame in (mine, *others) if len(frame)]
        return pd.concat(found, ignore_index=True) if found else tables.empty("gaps")


def build_tables(run: RunDir) -> None:
    """Write `tables/*.parquet` and `tables/*.csv` of a run from the artifacts of its steps.

    Raises:
        UsageError: the folder is not a run directory.
        StepFailed: the tables cannot be written.
    """
    partial = run.tables.with_name(f"{run.tables.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write(run, partial)
        shutil.rmtree(run.tables, ignore_errors=True)
        os.replace(partial, run.tables)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise StepFailed(
            f"the tables of {run.path} cannot be written: {error}",
            "free some space or correct the permissions, then: prof report RUN",
        ) from error


def _write(run: RunDir, folder: Path) -> None:
    gaps = _Gaps()
    frames = _traced(run, folder, gaps)
    frames |= _counted(run, frames, gaps)
    frames["gaps"] = gaps.frame(frames.pop("counter_gaps", tables.empty("gaps")))
    for table in tables.tables():
        if table != "launches":
            tables.write(frames.get(table, tables.empty(table)), table, folder)
    if not (folder / "launches.parquet").is_file():
        tables.write(tables.empty("launches"), "launches", folder)


def _traced(run: RunDir, folder: Path, gaps: _Gaps) -> Frames:
    """Read the trace, or the kernel summary where there is no trace."""
    path = run.artifact("trace", "trace.sqlite", "kern_sum.csv", "kern_sum.txt")
    if path is None:
        gaps.add("kernels", "the run has no trace: the time of the kernels is not known")
        return {}
    try:
        if path.name.startswith("kern_sum"):
            gaps.add("launches", "the trace is a kernel summary, without single launches")
            gaps.add("stages", "the trace is a kernel summary, without NVTX ranges")
            return {"kernels": read_kern_sum(path)}
        stages: Sequence[str] = read_manifest(run).recipe.get("stages") or ()
        with open_trace(path, stages) as trace:
            return _read_trace(trace, folder, gaps)
    except ProfError as error:
        gaps.add("kernels", f"{path.name} gave nothing: {error.message}")
        return {}


def _read_trace(trace: NsysTrace, folder: Path, gaps: _Gaps) -> Frames:
    frames = {
        "gpus": trace.gpus(),
        "kernels": trace.kernels(),
        "stages": trace.stages(),
        "stage_kernels": trace.stage_kernels(),
        "memory_operations": trace.memory_operations(),
        "api_calls": trace.api_calls(),
    }
    _write_launches(trace, folder, gaps)
    for warning in trace.warnings:
        gaps.add("launches", warning)
    return frames


def _write_launches(trace: NsysTrace, folder: Path, gaps: _Gaps) -> None:
    path = folder / "launches.parquet"
    trace.write_launches(path)
    count = parquet.read_metadata(path).num_rows
    if count <= LAUNCHES_AS_CSV:
        pd.read_parquet(path).to_csv(path.with_suffix(".csv"), index=False)
        return
    gaps.add("launches", f"{count:,} launches are in launches.parquet only, not in a CSV")


def _counted(run: RunDir, traced: Frames, gaps: _Gaps) -> Frames:
    """Read the counters and join them to the trace; without a trace ncu's launches stand alone."""
    capture = _read_capture(run, gaps)
    kernels = traced.get("kernels", tables.empty("kernels"))
    gpus = traced.get("gpus", tables.empty("gpus"))
    if capture is None:
        return {"roofs": build_roofs(gpus, tables.empty("metrics"))}
    for warning in capture.warnings:
        gaps.add("metrics", warning)
    own = kernels.empty
    if own:
        kernels = kernels_of(capture)
        gaps.add("kernels", "without a trace: calls and GPU time are not known", "total_ns")
    if gpus.empty:
        gpus = gpus_of(capture)
    joined = join(capture, kernels, _selection(run, gaps), own)
    built = build_counters(joined.metrics, joined.joins, kernels, _chip(run, gpus))
    roofs = build_roofs(gpus, joined.metrics)
    counters = assign_bounds(built.counters, kernels, roofs, joined.metrics)
    unknown = bound_gaps(counters, kernels, roofs, joined.metrics)
    holes = [frame for frame in (built.gaps, unknown) if len(frame)]
    return {
        "kernels": kernels,
        "gpus": gpus,
        "metrics": joined.metrics,
        "joins": joined.joins,
        "counters": counters,
        "stalls": built.stalls,
        "roofs": roofs,
        "counter_gaps": pd.concat(holes, ignore_index=True) if holes else tables.empty("gaps"),
    }


def _chip(run: RunDir, gpus: pd.DataFrame) -> str:
    """Return the chip that the counters come from, empty where nothing tells."""
    chips = [str(chip) for chip in gpus["chip"].dropna() if chip]
    chips += [str(gpu["chip"]) for gpu in read_manifest(run).gpus if gpu.get("chip")]
    return chips[0] if chips else ""


def _read_capture(run: RunDir, gaps: _Gaps) -> NcuCapture | None:
    """Read the report of ncu in full precision, or its CSV where that cannot be read."""
    names = ["counters.ncu-rep", "counters.csv"] if can_read_rep() else ["counters.csv"]
    found = [path for name in names if (path := run.artifact("counters", name)) is not None]
    for path in found:
        try:
            return read_ncu(path)
        except ProfError as error:
            gaps.add("metrics", f"{path.name} gave nothing: {error.message}")
    if not found:
        gaps.add("metrics", _why_no_counters(run))
    return None


def _why_no_counters(run: RunDir) -> str:
    if run.artifact("counters", "counters.ncu-rep") is not None:
        return "counters.ncu-rep needs the package ncu-report: pip install 'nsight-prof[ncu]'"
    step = read_manifest(run).step("counters")
    if step is not None and step.error:
        return step.error
    return "the run has no counters: what limits the kernels is not known"


def _selection(run: RunDir, gaps: _Gaps) -> Selection:
    """Return the selection; without one (imported counters) whatever was profiled counts."""
    path = run.artifact("select", "selection.yaml")
    try:
        return read_selection(path) if path else Selection()
    except ProfError as error:
        gaps.add("joins", error.message)
        return Selection()
