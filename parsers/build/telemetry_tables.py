"""Tables `telemetry` and `host_speed`: what prof sampled beside its steps.

Of GPUs also what serving targets sampled by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import BaseModel, Field

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.gaps import Gaps
from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.nsys.sqlite.identity import trace_start
from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.run.directory import RunDir, plain_file, read_manifest
from nsight_prof.parsers.run.sentences import stored

SAMPLES = "nvml.csv"
HOST_LOOP = 1000
"""Numbers that the loop sums whose time tells how fast a host is."""
_ADDED = ("source", "process", "t_s", "trace_ns")  # to what NVML was asked for
STEPS = ("untraced", "trace", "counters", "operators")
HOST_STEPS = ("bench", "untraced", "trace", "operators")
TIMES = {"best_s": 0, "p10_s": 10, "median_s": 50, "p90_s": 90}
"""Columns of table `host_speed`, and their percentiles."""


class HostSpeed(BaseModel):
    """What a step left of its host (orchestrator/system/host_speed.py)."""

    loop: int = Field(gt=0)
    before_s: list[float]
    during_s: list[tuple[float, float]]
    after_s: list[float]
    cpu: str = ""
    governor: str = ""
    cores: int = Field(gt=0)
    python: str = ""
    clock: str = ""


def host_speed_file(logs: str = "") -> str:
    """Return the file of a program of a step, whose logs have `logs` in their names."""
    return f"host-speed{logs}.json"


def host_speed_frame(run: RunDir, gaps: Gaps) -> pd.DataFrame:
    """Return how long a fixed loop of Python took before, beside and after each program."""
    rows: list[Row] = []
    manifest = read_manifest(run)
    for name in HOST_STEPS:
        record = manifest.step(name)
        folder = run.step(record) if record is not None and record.directory else None
        found = sorted(folder.glob(host_speed_file("*") + "*")) if folder else []
        for process, path in enumerate(found, 1):
            try:
                of_program = list(_host_rows(run.inside(path)))
            except ProfError as error:
                gaps.add(
                    "host_speed",
                    stored(
                        "{name} of step {step} gave nothing: {message}",
                        name=path.name,
                        step=name,
                        message=error.message,
                    ),
                )
                continue
            rows += [{"source": name, "process": process} | row for row in of_program]
    names = [column.name for column in tables.tables()["host_speed"]]
    return tables.check(pd.DataFrame(rows, columns=names), "host_speed")


def _host_rows(path: Path) -> Iterator[Row]:
    what = "how fast a host was", "fetch the recorded run again, or delete the file"
    with plain_file(path) as file, reading(path, *what):
        found = HostSpeed.model_validate_json(file.read_bytes())
    facts = {"cpu": found.cpu, "governor": found.governor, "cores": found.cores}
    facts |= {"python": found.python, "clock": found.clock}
    during = [seconds for _, seconds in found.during_s]
    for phase, loops in (("before", found.before_s), ("during", during), ("after", found.after_s)):
        if loops:
            times = np.array(loops) * (HOST_LOOP / found.loop)
            row: Row = {"phase": phase, "loops": len(loops)}
            row |= {name: float(np.percentile(times, level)) for name, level in TIMES.items()}
            yield row | {"mean_s": float(times.mean())} | facts


def telemetry_frame(run: RunDir, of_target: pd.DataFrame, gaps: Gaps) -> pd.DataFrame:
    """Return the samples of all steps; where a target sampled the GPU itself, those stand alone."""
    frames = [of_target]
    for step in STEPS:
        path = run.artifact(step, SAMPLES)
        if path is None or (of_target["source"] == step).any():
            continue
        try:
            frames.append(_read(path, step, _trace_start(run) if step == "trace" else None))
        except (ValueError, KeyError, OSError, ProfError) as error:
            gaps.add(
                "telemetry",
                stored(
                    "{name} of step {step} gave nothing: {error}",
                    name=path.name,
                    step=step,
                    error=error,
                ),
            )
    filled = [frame for frame in frames if not frame.empty]
    return tables.check(pd.concat(filled), "telemetry") if filled else of_target


def _trace_start(run: RunDir) -> int | None:
    path = run.artifact("trace", "trace.sqlite")
    return None if path is None else trace_start(path)


def _read(path: Path, step: str, trace_start_ns: int | None) -> pd.DataFrame:
    found = pd.read_csv(path)
    known = [column.name for column in tables.tables()["telemetry"]]
    # Runs of before the units were sampled lack their columns.
    found = found.reindex(columns=["utc_ns", *(name for name in known if name not in _ADDED)])
    at = found.pop("utc_ns")
    first = at.min()
    found = found.assign(source=step, process=1, t_s=(at - first) / 1e9, trace_ns=None)
    if trace_start_ns is not None:
        found["trace_ns"] = at - trace_start_ns
    return tables.check(found, "telemetry")
