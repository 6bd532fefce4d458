"""Turns the raw artifacts of a run into its tidy tables, as far as they can be read.

Whatever is missing or broken leaves empty tables and a row in table `gaps` that says why. The
folder of tables is replaced as a whole: a reader sees the old tables or the new ones.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as parquet

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.bench_tables import (
    comm_roofs_file,
    comm_roofs_frame,
    complete_gpus,
    is_bench,
    measured_roofs,
    read_benched,
    roofs_file,
    with_fractions,
)
from nsight_prof.parsers.build.bound import assign_bounds, bound_gaps
from nsight_prof.parsers.build.gaps import Gaps, joined, summed
from nsight_prof.parsers.build.ncu_rule_tables import ncu_rules_frame
from nsight_prof.parsers.build.operator_tables import cublas_frames, operator_frames, value_frames
from nsight_prof.parsers.build.predicted_tables import ROWS_AS_CSV, build_predicted, new_tables
from nsight_prof.parsers.build.serving_tables import (
    prediction_frames,
    serving_frames,
    static_compute_frames,
)
from nsight_prof.parsers.build.source_tables import source_frames
from nsight_prof.parsers.build.telemetry_tables import host_speed_frame, telemetry_frame
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.csv_cells import write_csv
from nsight_prof.parsers.errors import ArtifactUnreadable, ProfError
from nsight_prof.parsers.join.counters import build_counters
from nsight_prof.parsers.join.join import join
from nsight_prof.parsers.join.ncu_files import JoinedFiles, NcuFile, join_files
from nsight_prof.parsers.join.ncu_only import gpus_of, kernels_of
from nsight_prof.parsers.metrics.clocks import without_impossible_clocks
from nsight_prof.parsers.ncu import NcuCapture, can_read_rep, read_ncu
from nsight_prof.parsers.nsys.engine.work import COLLECTIVE
from nsight_prof.parsers.nsys.kern_sum_csv import read_kern_sum
from nsight_prof.parsers.nsys.rows.host_sources import SOURCES, with_sources
from nsight_prof.parsers.nsys.rows.timed_shares import by_time
from nsight_prof.parsers.nsys.stages.native_stacks import LINES
from nsight_prof.parsers.nsys.trace import NsysTrace, open_trace
from nsight_prof.parsers.roofs.comm import COMM_ROOFS_FILE, CommRoofs, write_comm_roofs
from nsight_prof.parsers.roofs.file import ROOFS_FILE, RoofsFile, keep_roofs
from nsight_prof.parsers.roofs.roofs import Measured, build_roofs, ridge_points
from nsight_prof.parsers.run.directory import RankRecord, RunDir, counters_stem, read_manifest
from nsight_prof.parsers.run.selection import Selection, read_selection
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.substeps import substep
from nsight_prof.parsers.torch.recompilations import read_recompilations

ROWS_AT_ONCE = 1 << 14
"""Launches that are turned into text at a time."""

NO_STACKS = stored(
    "nsys noted no stack while kernels ran or at CUDA calls: it samples no thread of Python there, "
    "or this machine does not let it unwind native stacks (perf_event_open)"
)
Frames = dict[str, pd.DataFrame]


def build_tables(run: RunDir, *, refuse: bool = False) -> None:
    """Write `tables/*.parquet` and `tables/*.csv` of a run from the artifacts of its steps.

    A run that measured roofs gets them in `roofs.json`, too, or in `comm-roofs.json`.

    Raises:
        UsageError: the folder is not a run directory.
        ArtifactUnreadable: the trace cannot be read, and is to be refused; else `gaps` says so.
        StepFailed: the tables cannot be written.
    """
    if build_predicted(run):
        return
    with new_tables(run) as folder:
        roofs, of_links = _write(run, folder, refuse)
        if roofs is not None:
            keep_roofs(run.path / ROOFS_FILE, roofs)
        if of_links is not None:
            write_comm_roofs(run.path / COMM_ROOFS_FILE, of_links)


def _write(run: RunDir, folder: Path, refuse: bool) -> tuple[RoofsFile | None, CommRoofs | None]:
    """Write all tables; return the roofs that the run measured, of a GPU and of links."""
    gaps = Gaps()
    substep("reading the trace")
    frames = _traced(run, folder, gaps, refuse)
    traced = not frames.get("gpus", tables.empty("gpus")).empty
    substep("reading the counters")
    counted = _read_counters(run, gaps)
    capture = None if counted is None else counted.capture
    frames |= _counted(run, frames, capture, gaps)
    frames["counter_files"] = _with_kernels(counted, frames["joins"])
    benched = None
    if is_bench(run):
        benched = read_benched(run, capture, _chip(run, frames["gpus"]), gaps)
        frames["gpus"] = complete_gpus(frames["gpus"], benched.conditions)
    measured = measured_roofs(run, benched, frames["gpus"], frames["metrics"], gaps)
    frames |= _roofed(frames, measured, traced)
    if benched is not None:
        frames["bench_runs"] = benched.tables.bench_runs
        frames["bench"] = with_fractions(benched.tables.bench, measured, frames["gpus"], gaps)
    frames["comm_roofs"] = comm_roofs_frame(run, benched, gaps)
    frames |= serving_frames(run, gaps) | static_compute_frames(run, gaps)
    frames |= prediction_frames(run, gaps)
    of_target = frames.get("telemetry", tables.empty("telemetry"))
    frames["telemetry"] = telemetry_frame(run, of_target, gaps)
    frames["host_speed"] = host_speed_frame(run, gaps)
    frames |= operator_frames(run, frames, folder, gaps) | value_frames(run, gaps)
    frames |= cublas_frames(run, frames["kernels"], gaps)
    of_kernels = joined([frames.pop("counter_gaps"), frames.pop("bound_gaps")])
    frames["gaps"] = gaps.frame(of_kernels if benched is None else summed(of_kernels))
    substep("writing the tables")
    for table in tables.tables():
        if table != "launches":
            frame = frames.get(table, tables.empty(table))
            tables.write(frame, table, folder, csv=len(frame) <= ROWS_AS_CSV)
    if not (folder / "launches.parquet").is_file():
        tables.write(tables.empty("launches"), "launches", folder)
    several = frames.get("devices", tables.empty("devices"))["gpu"].nunique() > 1
    if several and (frames["kernels"]["category"] == COLLECTIVE).any():
        tables.write(_steps_of_gpus(frames, folder), "rank_steps", folder)
    comm = None if benched is None else comm_roofs_file(run, benched, frames["comm_roofs"])
    if benched is None or measured is None:
        return None, comm
    return roofs_file(run, benched, measured, frames["gpus"]), comm


def _traced(run: RunDir, folder: Path, gaps: Gaps, refuse: bool) -> Frames:
    """Read the trace, or the kernel summary where there is no trace."""
    path = run.artifact("trace", "trace.sqlite", "kern_sum.csv", "kern_sum.txt")
    if path is None:
        if not is_bench(run):
            gaps.add(
                "kernels", stored("the run has no trace: the time of the kernels is not known")
            )
        return {}
    try:
        if path.name.startswith("kern_sum"):
            gaps.add("launches", stored("the trace is a kernel summary, without single launches"))
            gaps.add("stages", stored("the trace is a kernel summary, without NVTX ranges"))
            return {"kernels": read_kern_sum(path)}
        recipe = read_manifest(run).recipe
        with open_trace(path, recipe.get("stages") or ()) as trace:
            frames = _read_trace(trace, folder, gaps)
            asked = (recipe.get("trace") or {}).get("python_sampling")
            if asked and frames["host_lines"].empty:
                gaps.add("host_lines", trace.why_no_lines())
            timed = _launch_lines(run, gaps)
            sources = run.artifact("trace", SOURCES)
            by_line = timed.get("timed_lines", tables.empty("timed_lines"))
            if len(by_line):
                frames["host_lines"] = by_time(frames["host_lines"], by_line, timed["timed_calls"])
            frames["host_lines"] = with_sources(frames["host_lines"], sources, by_line)
            return frames | timed
    except ArtifactUnreadable as error:
        if refuse:
            raise
        gaps.unreadable("kernels", path, error)
        return {}


def _steps_of_gpus(frames: Frames, folder: Path) -> pd.DataFrame:
    """Return table `rank_steps` of GPUs that one trace has, from the tables in `folder`."""
    # Most traces have one GPU, or no collectives.
    from nsight_prof.parsers.build.rank_tables import READ_ONCE
    from nsight_prof.parsers.ranks.times import RankTimes

    times = RankTimes()
    times.add(RankRecord(0), folder, {name: records(frames[name]) for name in READ_ONCE})
    return times.step_frame() if any(times.calls.values()) else tables.empty("rank_steps")


def _launch_lines(run: RunDir, gaps: Gaps) -> Frames:
    """Return the tables of the further run: of timed lines of Python, or of stacks."""
    path = run.artifact("trace", "lines/trace.sqlite")
    if path is None:
        return {}
    try:
        with open_trace(path) as trace:
            frames = trace.timed_lines(path.parent)
            frames["recompilations"] = read_recompilations(path.with_name("stderr.log"))
            if frames["launch_lines"].empty:
                frames["launch_lines"] = trace.launch_lines(run.artifact("trace", f"lines/{LINES}"))
            if frames["launch_lines"].empty:
                gaps.add("launch_lines", NO_STACKS)
            for reason in set(frames["line_timers"]["reason"].dropna()) - {""}:
                gaps.add(
                    "timed_lines",
                    stored("lines of Python are not timed to the end: {reason}", reason=reason),
                )
            return frames
    except ArtifactUnreadable as error:
        gaps.unreadable("launch_lines", path, error)
        return {}


def trace_frames(trace: NsysTrace) -> Frames:
    """Return the tables of a trace but `launches`, which may be too long for the memory."""
    frames = {
        "gpus": trace.gpus(),
        "host_ranges": trace.host_ranges(),  # first: all that follows needs the ranges, too
        "kernels": trace.kernels(),
        "stages": trace.stages(),
        "devices": trace.devices(),
        "gpu_stages": trace.gpu_stages(),
        "stage_instances": trace.stage_instances(),
        "stage_kernels": trace.stage_kernels(),
        "memory_operations": trace.memory_operations(),
        "api_calls": trace.api_calls(),
        "engine_steps": trace.engine_steps(),
        "engine_gaps": trace.engine_gaps(),
        "idle_gaps": trace.idle_gaps(),
        "host_lines": trace.host_lines(),
        "thread_lines": trace.thread_lines(),
        "gpu_idle_gaps": trace.gpu_idle_gaps(),
        "gpu_samples": trace.gpu_samples(),
        "collectives": trace.collectives(),
    }
    frames["modules"], frames["module_kernels"] = trace.modules()
    return frames


def _read_trace(trace: NsysTrace, folder: Path, gaps: Gaps) -> Frames:
    frames = trace_frames(trace)
    if frames["collectives"].empty and (reason := trace.why_no_collectives()):
        gaps.add("collectives", reason)
    if reason := trace.why_no_modules():
        gaps.add("module_kernels", reason)
    idle = frames["stages"]["idle_ns"].max() > 0
    if idle and not set(frames["idle_gaps"]["cause"]) - {"unknown"}:
        gaps.add(
            "idle_gaps",
            stored("the trace does not hold the CUDA calls that issued the GPU's work"),
        )
    _write_launches(trace, folder, gaps)
    for warning in trace.warnings:
        gaps.add("launches", warning)
    return frames


def _write_launches(trace: NsysTrace, folder: Path, gaps: Gaps) -> None:
    path = folder / "launches.parquet"
    trace.write_launches(path)
    count = parquet.read_metadata(path).num_rows
    if count <= ROWS_AS_CSV:
        with path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as stream:
            for number, frame in enumerate(tables.batches(path, ROWS_AT_ONCE)):
                write_csv(frame, stream, header=not number)
        return
    gaps.add(
        "launches",
        stored("{count:,} launches are in launches.parquet only, not in a CSV", count=count),
    )


def _counted(run: RunDir, traced: Frames, capture: NcuCapture | None, gaps: Gaps) -> Frames:
    """Join the counters to the trace; without a trace ncu's launches stand alone."""
    kernels = traced.get("kernels", tables.empty("kernels"))
    gpus = traced.get("gpus", tables.empty("gpus"))
    if capture is None:
        names = ("metrics", "joins", "ncu_rules", "counters", "stalls")
        frames = {name: tables.empty(name) for name in names}
        return frames | {"kernels": kernels, "gpus": gpus, "counter_gaps": tables.empty("gaps")}
    for warning in capture.warnings:
        gaps.add("metrics", warning)
    untraced = kernels.empty
    if untraced:
        kernels = kernels_of(capture)
        gaps.add("kernels", stored("without a trace: calls and GPU time are not known"), "total_ns")
    if gpus.empty:
        gpus = gpus_of(capture)
    matched = join(capture, kernels, _selection(run, gaps), untraced)
    if len(matched.metrics) > ROWS_AS_CSV:
        gaps.add(
            "metrics",
            stored("{metrics:,} values are in metrics.parquet only", metrics=len(matched.metrics)),
        )
    chip = _chip(run, gpus)
    built = build_counters(matched.metrics, matched.joins, kernels, chip)
    counters, clock_gaps = without_impossible_clocks(built.counters, gpus, chip)
    return {
        "kernels": kernels,
        "gpus": gpus,
        "metrics": matched.metrics,
        "joins": matched.joins,
        "ncu_rules": ncu_rules_frame(run, capture, matched.joins, gaps),
        **source_frames(run, capture, matched.joins, gaps),
        "counters": counters,
        "stalls": built.stalls,
        "counter_gaps": joined([built.gaps, clock_gaps]),
    }


def _roofed(frames: Frames, measured: Measured | None, traced: bool) -> Frames:
    """Make the roofs, and say which binds each kernel; `traced`: the GPUs are of the trace."""
    kernels, counters, metrics = (frames[name] for name in ("kernels", "counters", "metrics"))
    roofs = build_roofs(frames["gpus"], metrics, measured, traced)
    reached = tables.empty("measured_roofs") if measured is None else measured.roofs
    filled = assign_bounds(counters, kernels, roofs, metrics, reached)
    return {
        "roofs": roofs,
        "ridge_points": ridge_points(roofs),
        "measured_roofs": reached,
        "counters": filled,
        "bound_gaps": bound_gaps(filled, kernels, roofs, metrics, reached),
    }


def _chip(run: RunDir, gpus: pd.DataFrame) -> str:
    """Return the chip that the counters come from, empty where nothing tells."""
    chips = [str(chip) for chip in gpus["chip"].dropna() if chip]
    chips += [str(gpu["chip"]) for gpu in read_manifest(run).gpus if gpu.get("chip")]
    return chips[0] if chips else ""


def _read_counters(run: RunDir, gaps: Gaps) -> JoinedFiles | None:
    """Read the file of ncu, or join all where several were imported."""
    several = read_manifest(run).counter_files
    if not several:
        capture = _read_capture(run, "counters", gaps)
        return None if capture is None else JoinedFiles(capture, tables.empty("counter_files"), ())
    found = [
        NcuFile(name, capture)
        for number, name in enumerate(several)
        if (capture := _read_capture(run, counters_stem(number), gaps)) is not None
    ]
    try:
        return join_files(found) if found else None
    except ProfError as error:
        gaps.add("metrics", error.message)
        return None


def _read_capture(run: RunDir, stem: str, gaps: Gaps) -> NcuCapture | None:
    """Read a report of ncu in full precision, or its CSV where that cannot be read."""
    names = [f"{stem}.ncu-rep", f"{stem}.csv"] if can_read_rep() else [f"{stem}.csv"]
    found = [path for name in names if (path := run.artifact("counters", name)) is not None]
    for path in found:
        try:
            return read_ncu(path)
        except ProfError as error:
            gaps.unreadable("metrics", path, error)
    if not found:
        gaps.add("metrics", _why_no_counters(run, f"{stem}.ncu-rep"))
    return None


def _with_kernels(counted: JoinedFiles | None, joins: pd.DataFrame) -> pd.DataFrame:
    """Return table `counter_files` with the number of kernels that `counters` shows of each."""
    if counted is None or counted.files.empty:
        return tables.empty("counter_files")
    chosen = set(joins.loc[joins["chosen"].fillna(False), "profile"])
    profile_counts = [len(profiles & chosen) for profiles in counted.profiles]
    return tables.check(counted.files.assign(shown_kernels=profile_counts), "counter_files")


def _why_no_counters(run: RunDir, report: str) -> str:
    if run.artifact("counters", report) is not None:
        return stored(
            "{report} needs the package ncu-report: pip install 'nsight-prof[ncu]'", report=report
        )
    step = read_manifest(run).step("counters")
    if step is not None and step.error:
        return step.error
    return stored("the run has no counters: what limits the kernels is not known")


def _selection(run: RunDir, gaps: Gaps) -> Selection:
    """Return the selection; without one (imported counters) whatever was profiled counts."""
    path = run.artifact("select", "selection.yaml")
    try:
        return read_selection(path) if path else Selection()
    except ProfError as error:
        gaps.add("joins", error.message)
        return Selection()
