"""Makes the tables of what serving targets recorded: points, requests, telemetry, engines, …."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from nsight_prof.parsers.bench.bench import bench_files
from nsight_prof.parsers.build.gaps import Gaps
from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.serving.points import build_points
from nsight_prof.parsers.serving.records import (
    ServingRecords,
    has_serving,
    join_serving,
    read_serving,
)
from nsight_prof.parsers.tables import check
from nsight_prof.parsers.torch.predictions import read_predictions
from nsight_prof.parsers.torch.static_compute import FILE, read_static_compute

RESULT = "result.jsonl"
STEPS = ("untraced", "trace", "counters", "operators")
"""Steps of a profile run whose target may record something, in their order."""


def serving_files(run: RunDir) -> Iterator[tuple[str, int, Path]]:
    """Yield step, number and path of each file in which a serving target may have recorded."""
    if read_manifest(run).step("bench") is not None:
        yield from (("bench", n, path) for n, path in enumerate(bench_files(run), start=1))
        return
    for step in STEPS:
        path = run.artifact(step, RESULT)
        if path is not None:
            yield step, 1, path


def serving_frames(run: RunDir, gaps: Gaps) -> dict[str, pd.DataFrame]:
    """Return `serving_points` and the tables of records; empty for a run that served nothing.

    Points of a target that records nothing else are cases of a benchmark, no serving points.
    """
    files: list[ServingRecords] = []
    for step, number, path in serving_files(run):
        try:
            if not has_serving(path):  # as of a benchmark, which has many cases
                continue
            found = read_serving(path, step, number)
        except ProfError as error:
            gaps.add(
                "serving_points",
                stored(
                    "{file} of step {step}: {error}", file=path.name, step=step, error=error.message
                ),
            )
            continue
        if not found.found:
            continue
        files.append(found)
        for problem in found.problems:
            if not gaps.has_reason(problem):  # table bench reads the same lines of step bench
                words = stored("step {step}: {problem}", step=step, problem=problem)
                gaps.add("serving_points", problem if step == "bench" else words)
    records = join_serving(files)
    if not records.found:
        return {}
    return records.frames() | {"serving_points": build_points(records)}


def static_compute_frames(run: RunDir, gaps: Gaps) -> dict[str, pd.DataFrame]:
    """Return `stage_work`, `module_work` and `operator_work`; none where no target counted."""
    rows: dict[str, list[Row]] = {"stage_work": [], "module_work": [], "operator_work": []}
    for step in STEPS:
        path = run.artifact(step, FILE)
        if path is None:
            continue
        try:
            found = read_static_compute(path, step)
        except ProfError as error:
            gaps.add("stage_work", error.message)
            continue
        rows["stage_work"] += found.stages
        rows["module_work"] += found.modules
        rows["operator_work"] += found.operators
    return {name: check(pd.DataFrame(of), name) for name, of in rows.items() if of}


def prediction_frames(run: RunDir, gaps: Gaps) -> dict[str, pd.DataFrame]:
    """Return table `predictions`; none where no target wrote any."""
    rows = []
    for step in STEPS:
        try:
            rows += read_predictions(run, step)
        except ProfError as error:
            gaps.add("predictions", error.message)
    return {"predictions": check(pd.DataFrame(rows), "predictions")} if rows else {}
