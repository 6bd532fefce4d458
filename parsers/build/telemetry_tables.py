"""Table `telemetry`: what prof sampled beside its steps, and what serving targets sampled."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.gaps import Gaps
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.nsys.sqlite.identity import trace_start
from nsight_prof.parsers.run.directory import RunDir

SAMPLES = "nvml.csv"
_OURS = ("source", "process", "t_s", "trace_ns")
STEPS = ("untraced", "trace", "counters", "operators")


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
            gaps.add("telemetry", f"{path.name} of step {step} gave nothing: {error}")
    filled = [frame for frame in frames if not frame.empty]
    return tables.check(pd.concat(filled), "telemetry") if filled else of_target


def _trace_start(run: RunDir) -> int | None:
    path = run.artifact("trace", "trace.sqlite")
    return None if path is None else trace_start(path)


def _read(path: Path, step: str, trace_start_ns: int | None) -> pd.DataFrame:
    found = pd.read_csv(path)
    known = [column.name for column in tables.tables()["telemetry"]]
    # Runs of before the units were sampled lack their columns.
    found = found.reindex(columns=["utc_ns", *(name for name in known if name not in _OURS)])
    at = found.pop("utc_ns")
    first = at.min()
    found = found.assign(source=step, process=1, t_s=(at - first) / 1e9, trace_ns=None)
    if trace_start_ns is not None:
        found["trace_ns"] = at - trace_start_ns
    return tables.check(found, "telemetry")
