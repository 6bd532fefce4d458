"""Makes the tables about measured cases and measured roofs of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.bench.bench import BenchTables, bench_files, build_bench, on_cpu, sm_count
from nsight_prof.parsers.bench.counters import CaseCounters, case_counters, counted_calls
from nsight_prof.parsers.bench.records import BenchRecords, join_records, read_records
from nsight_prof.parsers.build.gaps import Gaps
from nsight_prof.parsers.cells import number, records
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.ncu import NcuCapture
from nsight_prof.parsers.roofs.comm import COMM_ROOFS_FILE, CommRoofs, comm_roofs, roofs_table
from nsight_prof.parsers.roofs.file import (
    ROOFS_FILE,
    Fit,
    RoofsFile,
    gpu_facts,
    matches,
    read_roofs,
)
from nsight_prof.parsers.roofs.fractions import add_fractions
from nsight_prof.parsers.roofs.measured import choose_roofs
from nsight_prof.parsers.roofs.roofs import Measured, build_roofs
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.parsers.run.sentences import made_meanwhile, stored

Frames = dict[str, pd.DataFrame]
UNKNOWN_TO_NCU = {
    "name": "name",
    "uuid": "uuid",
    "compute_capability": "compute_capability",
    "sm_count": "sm_count",
    "max_sm_clock_hz": "clock_hz",
    "memory_bytes": "memory_bytes",
    "l2_bytes": "l2_bytes",
}
"""Fact of a record's conditions -> column of table `gpus` that it fills where that is empty."""


@dataclass(frozen=True)
class Benched:
    """What a benchmark run measured; empty for any other run."""

    tables: BenchTables
    conditions: tuple[Mapping[str, Any], ...]


def is_bench(run: RunDir) -> bool:
    """Tell whether the run has a step that measures cases."""
    return read_manifest(run).step("bench") is not None


def read_benched(run: RunDir, capture: NcuCapture | None, chip: str, gaps: Gaps) -> Benched:
    """Read the records of the steps `bench` and `counters`, and the counters of each case."""
    measured = _read(bench_files(run), gaps)
    if not measured.cases:
        gaps.add("bench", _why_no_cases(run))
    path = run.artifact("counters", "result.jsonl")
    counted = _read([path] if path else [], gaps)
    # The counting run may well be alone with cases that failed to be measured, never with problems.
    for problem in counted.problems:
        gaps.add("bench", stored("counting run: {problem}", problem=problem), "counted_launches")
    counters = _counters(capture, chip, counted, gaps)
    built = build_bench(measured, counted, None if counters is None else counters.frame)
    for problem in built.problems:
        gaps.add("bench", problem)
    return Benched(built, (*measured.conditions, *counted.conditions))


def _counters(
    capture: NcuCapture | None, chip: str, counted: BenchRecords, gaps: Gaps
) -> CaseCounters | None:
    if capture is None:
        return None
    counters = case_counters(capture, chip, counted_calls(counted.conditions))
    for case_id, column, reason in counters.gaps:
        gaps.add("bench", reason, column, case_id)
    return counters


def _read(paths: Sequence[Path], gaps: Gaps) -> BenchRecords:
    found = []
    for path in paths:
        try:
            found.append(read_records(path))
        except ProfError as error:
            gaps.unreadable("bench", path, error)
    return join_records(found)


def _why_no_cases(run: RunDir) -> str:
    step = read_manifest(run).step("bench")
    return step.error if step is not None and step.error else stored("no case was measured")


def complete_gpus(gpus: pd.DataFrame, conditions: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Fill in table `gpus` what the target knew of its GPU and the tool did not."""
    facts = next((c["gpu"] for c in conditions if c["gpu"].get("name")), None)
    if facts is None:
        return gpus
    row = records(gpus)[0] if len(gpus) else {"device": 0}
    columns = [c.name for c in tables.tables()["gpus"]]
    row = {name: row.get(name) for name in columns}
    for column_of_ncu, column in UNKNOWN_TO_NCU.items():
        if row[column] is None or row[column] == "" or pd.isna(row[column]):
            row[column] = facts.get(column_of_ncu)
    return tables.check(pd.DataFrame([row], columns=columns), "gpus")


def measured_roofs(
    run: RunDir, benched: Benched | None, gpus: pd.DataFrame, metrics: pd.DataFrame, gaps: Gaps
) -> Measured | None:
    """Return the roofs that the run measured, or those of its roofs.json; None without any."""
    if benched is not None and benched.tables.bench["roof"].fillna("").ne("").any():
        return _own_roofs(run, benched, gpus, metrics, gaps)
    return _given_roofs(run, gpus, gaps)


def _own_roofs(
    run: RunDir, benched: Benched, gpus: pd.DataFrame, metrics: pd.DataFrame, gaps: Gaps
) -> Measured | None:
    if on_cpu(benched.conditions):
        gaps.add("measured_roofs", stored("the cases ran on a CPU: they are no roofs of a GPU"))
        return None
    limits = build_roofs(gpus, metrics)
    built = benched.tables
    chosen = choose_roofs(built.bench, built.bench_runs, sm_count(benched.conditions), limits)
    for roof, reason in chosen.gaps:
        gaps.add("measured_roofs", reason, row=roof)
    return Measured(chosen.roofs, _when(run, benched), read_manifest(run).run_id)


def _when(run: RunDir, benched: Benched) -> str:
    times = sorted(str(c["time"]) for c in benched.conditions if c.get("time"))
    return times[0] if times else read_manifest(run).created


def _given_roofs(run: RunDir, gpus: pd.DataFrame, gaps: Gaps) -> Measured | None:
    path = run.path / ROOFS_FILE
    if not path.is_file():
        return None
    try:
        file = read_roofs(path)
    except ProfError as error:
        gaps.add("measured_roofs", error.message)
        return None
    facts = run_facts(run, gpus)
    match = matches(file, facts)
    of_this_gpu = facts["name"] in (None, file.gpu["name"])
    if match.fit is Fit.NO and not (file.given and of_this_gpu):
        gaps.add(
            "measured_roofs",
            stored(
                "those of run {run_id} do not hold here: {reason}",
                run_id=file.run_id,
                reason=match.reason,
            ),
        )
        return None
    # Cases are set against the roofs as they were measured: they run at many clocks.
    return Measured(file.roofs, file.measured, file.run_id, False, match.reason, is_bench(run))


def run_facts(run: RunDir, gpus: pd.DataFrame) -> dict[str, Any]:
    """Return the facts of the run's first GPU that roofs are kept by (roofs_file.GPU_KEYS)."""
    manifest = read_manifest(run)
    facts = gpu_facts(manifest.gpus[0] if manifest.gpus else {}, manifest.software.get("driver"))
    known = gpu_facts(records(gpus)[0]) if len(gpus) else {}
    return {key: known.get(key) if value is None else value for key, value in facts.items()}


def with_fractions(
    bench: pd.DataFrame, measured: Measured | None, gpus: pd.DataFrame, gaps: Gaps
) -> pd.DataFrame:
    """Return table `bench` with the fraction of its measured roof that each case reaches."""
    if measured is None:
        if len(bench):
            gaps.add("bench", stored("there are no measured roofs of this GPU"), "roof_fraction")
        return bench
    source = "this run"
    if not measured.measured_here:
        source = f"run {measured.run_id}, measured {measured.when}"
        source += f" ({measured.caveat})" if measured.caveat else ""
    l2_bytes = number(records(gpus)[0]["l2_bytes"]) if len(gpus) else math.nan
    found = add_fractions(bench, measured.roofs, source, l2_bytes)
    for case_id, reason in found.gaps:
        gaps.add("bench", reason, "roof_fraction", case_id)
    return found.bench


def roofs_file(
    run: RunDir, benched: Benched, measured: Measured, gpus: pd.DataFrame
) -> RoofsFile | None:
    """Return the roofs that the run measured as a file to keep; None where it measured none."""
    if not measured.measured_here or not measured.roofs["is_ceiling"].fillna(False).any():
        return None
    first = benched.conditions[0] if benched.conditions else {}
    of_run = run_facts(run, gpus)
    facts = gpu_facts(first.get("gpu") or {}, (first.get("software") or {}).get("driver"))
    facts = {key: of_run.get(key) if value is None else value for key, value in facts.items()}
    # The command line holds paths of the machine.
    conditions = {key: value for key, value in first.items() if key not in ("argv", "record")}
    sentences = made_meanwhile(map(str, measured.roofs["reason"].dropna()))
    return RoofsFile(
        measured.when, measured.run_id, facts, measured.roofs, conditions, sentences=sentences
    )


def comm_roofs_frame(run: RunDir, benched: Benched | None, gaps: Gaps) -> pd.DataFrame:
    """Return table `comm_roofs`: what the run measured of links, or what it is held against."""
    if benched is not None:
        return comm_roofs(benched.tables.bench)
    try:
        return roofs_table(run.path / COMM_ROOFS_FILE)
    except ProfError as error:
        gaps.add("comm_roofs", error.message)
        return tables.empty("comm_roofs")


def comm_roofs_file(run: RunDir, benched: Benched, frame: pd.DataFrame) -> CommRoofs | None:
    """Return what a run measured of links between GPUs as a file to keep; None for none."""
    if not len(frame) or on_cpu(benched.conditions):
        return None
    gpu = str((benched.conditions[0].get("gpu") or {}).get("name") or "")
    return CommRoofs(_when(run, benched), read_manifest(run).run_id, gpu, frame)
