"""Holds the predictions that were committed before an engine was recorded against its records.

Tables of docs/accuracy.md; scripts/accuracy.py writes the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from nsight_prof import load_run
from nsight_prof.orchestrator.predict.host_speeds import recorded_speed
from nsight_prof.orchestrator.predict.sources import Source
from nsight_prof.parsers.cells import Row, records
from nsight_prof.parsers.predict.trace import Recorded, recorded_name
from nsight_prof.parsers.predict.validation import KERNEL, QUANTITIES, STEP, step_seconds, summary
from scripts.pages.accuracy.questions import AT_HOST
from scripts.pages.host_floor import NEARLY, OPEN_LIMIT

BEFORE = Path(__file__).resolve().parents[3] / "captures" / "prediction" / "before"
WHOLE_STEP = "kernels and gaps"
"""Row of a step in the predicted kernels."""
NUMBERS = ("ttft_", "tpot_", "output_tokens_per_s", "requests_per_s")
"""Beginnings of the columns of predicted numbers."""
CONTEXT = 1.1
"""Tokens by which the contexts of a predicted and a recorded step may differ."""


def batches(run: Path, model: str) -> pd.DataFrame:
    """Return the recorded points of an engine, with the columns predicted of each (_predicted)."""
    keys = ["batch", "prompt_tokens", "output_tokens"]
    predicted = committed(run, model)
    return load_run(run).serving_points.merge(predicted, on=keys, suffixes=("", "_predicted"))


def loads(run: Path, model: str) -> pd.DataFrame:
    """Return the recorded loads of a server, with the columns predicted of each (_predicted)."""
    predicted = committed(run, model, "-server")
    return load_run(run).serving_points.merge(predicted, on="case", suffixes=("", "_predicted"))


def committed(run: Path, name: str, kind: str = "") -> pd.DataFrame:
    """Return a committed prediction; one AT_HOST at the mean of the loop beside the run `run`.

    Between two of its hosts numbers lie on a line. `kind`: "-server" for loads of a server.
    """
    if not name.endswith(AT_HOST):
        return pd.read_csv(BEFORE / f"{name}{kind}.csv")
    loaded = load_run(run)
    speed = recorded_speed(loaded.host_speed, loaded.host_loops, run.name)
    assert speed is not None, run
    hosts = pd.read_csv(BEFORE / f"{name.removesuffix(AT_HOST)}{kind}-hosts.csv")
    keys = ["case", "server"] if kind else ["case"]
    points = []
    for _, of_point in hosts.groupby(keys, sort=False):
        of_point = of_point.sort_values("host_us")
        row = of_point.iloc[0].to_dict()
        for column in (c for c in of_point.columns if c.startswith(NUMBERS)):
            row[column] = np.interp(1e6 * speed.loop_s, of_point["host_us"], of_point[column])
        points.append(row)
    return pd.DataFrame(points)


def server_rows(run: Path, model: str) -> Iterator[Row]:
    """Yield errors of each load of a server: name, server, what, error, covered.

    Of one with a single client alone the capacity is not known, and taken as predicted.
    """
    predicted = committed(run, model, "-server")
    points = load_run(run).serving_points
    closed = points[points["experiment"].eq("closed")]
    best = float(closed["requests_per_s"].max())
    capacities = predicted[predicted["case"].eq("capacity")]
    if closed["concurrency"].max() == 1:
        best = float(capacities["requests_per_s"].max())
        capacities = capacities.head(0)
    for row in records(loads(run, model)):
        what = str(row["experiment"])
        if what == "open":
            rate = float(row["request_rate"])
            what = "open, up to 80 % of the capacity" if rate <= OPEN_LIMIT * NEARLY * best else ""
            what = what or f"open, {rate:g} per second"
        for column, name in QUANTITIES.items():
            ends = row[f"{column}_low"], row[f"{column}_high"]
            error = _error(row["server"], f"{what}: {name}", row[f"{column}_predicted"],
                           row[column], ends)  # fmt: skip
            yield error | {"case": row["case"], "name": name}
    for row in records(capacities):
        ends = row["requests_per_s_low"], row["requests_per_s_high"]
        error = _error(row["server"], "capacity", row["requests_per_s"], best, ends)
        yield error | {"case": "capacity", "name": "capacity"}


def _error(server: object, what: str, value: float, measured: float, ends: tuple[float, float]
           ) -> Row:  # fmt: skip
    covered = ends[0] <= measured <= ends[1]
    return {"server": server, "what": what, "error": value / measured - 1, "measured": measured,
            "covered": covered, "scope": ""}  # fmt: skip


def kernel_rows(run: Source, model: str) -> Iterator[Row]:
    """Yield errors of the operators of each recorded step of a whole engine, and of the step."""
    predicted = pd.read_csv(BEFORE / f"{model}-kernels.csv")
    trace = run.trace
    assert trace is not None
    for recorded in trace.steps:
        found = _predicted(predicted, recorded)
        if found.empty:
            continue
        names = found["operator"].map(recorded_name)
        times = found.groupby(names)[["seconds", "seconds_low", "seconds_high"]].sum()
        measured = {**recorded.seconds, WHOLE_STEP: step_seconds(trace, recorded)}
        for name, row in times.iterrows():
            if seconds := measured.get(str(name)):
                ends = row["seconds_low"], row["seconds_high"]
                scope = STEP if name == WHOLE_STEP else KERNEL
                error = _error("", scope, row["seconds"], seconds, ends)
                yield error | {"scope": scope, "kind": recorded.kind}


def _predicted(predicted: pd.DataFrame, recorded: Recorded) -> pd.DataFrame:
    """Return the predicted operators of a recorded step, of the first batch that has such a one."""
    step = recorded.step
    same = predicted[
        predicted["prefill_requests"].eq(len(step.prefill))
        & predicted["prefill_tokens"].eq(sum(new for new, _ in step.prefill))
        & predicted["decode_requests"].eq(step.decode)
        & predicted["context"].sub(step.context).abs().lt(CONTEXT)
    ]
    if same.empty:
        return same
    first = same.iloc[0][["batch", "prompt_tokens"]]
    return same[same[["batch", "prompt_tokens"]].eq(first).all(axis=1)]


def sums(rows: Sequence[Row], by: Sequence[str]) -> list[Row]:
    """Return n, mape, p90, bias and coverage by the columns `by`."""
    return records(summary(pd.DataFrame(list(rows)), list(by)))
