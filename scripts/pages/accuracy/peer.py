"""Sets predictions of recorded points beside those of aiconfigurator: a table of docs/accuracy.md.

scripts/aiconfigurator_points.py writes its answers; scripts/accuracy.py writes the page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from nsight_prof.parsers.cells import Row, number, records
from nsight_prof.parsers.predict.corrections import LONG_TOKENS
from nsight_prof.parsers.predict.validation import QUANTITIES
from scripts.pages.accuracy.before import BEFORE, batches, loads

ANSWERS = BEFORE.parent / "aiconfigurator.json"
COLUMNS = {name: column for column, name in QUANTITIES.items()}
STEP_TOKENS = 16384
"""Most tokens of a step of the recorded offline engines (max_num_batched_tokens)."""


@cache
def peer() -> dict[str, Any]:
    """Return aiconfigurator's answers: its version, that of its tables, and points by model."""
    found: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return found


def batches_before(run: Path, predicted: str, engine: str) -> Iterator[Row]:
    """Yield the points of an engine whose batches were predicted before it was recorded."""
    for row in records(batches(run, predicted)):
        for column, name in QUANTITIES.items():
            values = number(row[column]), number(row[f"{column}_predicted"])
            yield from _point(engine, str(row["case_predicted"]), name, "", *values)


def loops_before(run: Path, model: str) -> Iterator[Row]:
    """Yield the closed loops of a server that was predicted before it was recorded."""
    both = loads(run, model)
    for row in records(both[both["experiment"].eq("closed")]):
        for column, name in QUANTITIES.items():
            values = number(row[column]), number(row[f"{column}_predicted"])
            yield from _point(model, str(row["case"]), name, str(row["server"]), *values)


def held_out(errors: pd.DataFrame, model: str, server: str) -> Iterator[Row]:
    """Yield the batches and closed loops of a validation (table `prediction_errors`)."""
    for row in records(errors[errors["case"].notna() & errors["name"].isin(list(COLUMNS))]):
        values = number(row["measured"]), number(row["predicted"])
        yield from _point(model, str(row["case"]), str(row["name"]), server, *values)


def _point(
    model: str, case: str, name: str, server: str, measured: float, ours: float
) -> Iterator[Row]:
    """Yield a point with its errors, where aiconfigurator was asked for it.

    In batches whose prompts take more than one step the two mean different times to first token:
    the median of the requests here, the end of all prompts there.
    """
    answer = peer()["points"].get(model, {}).get(case)
    if answer is None:
        return
    load, *sizes = case.split("/")
    together, prompt = (int(size[1:]) for size in sizes[:2])
    load = "closed loops" if load == "closed" else "batches"
    what = name
    if name == "ttft" and load == "batches":
        if together * prompt > STEP_TOKENS:
            return
        few = together * prompt < LONG_TOKENS
        what = "ttft, fewer tokens" if few else "ttft, 1,000 tokens and more"
    theirs = answer[COLUMNS[name]]
    yield {"load": load, "model": model, "server": server, "what": what, "case": case,
           "name": name, "ours": ours / measured - 1, "theirs": theirs / measured - 1}  # fmt: skip


def sums(rows: list[Row]) -> list[tuple[str, ...]]:
    """Return the rows of the table: means of both errors, and whose is smaller.

    `rows` may have "today": the error of the models of today, with this model left out.
    """
    table = []
    frame = pd.DataFrame(rows)
    for key, group in frame.groupby(["load", "what", "model", "server"], sort=False):
        both = [float(group[name].abs().mean()) for name in ("ours", "theirs")]
        biases = [float(group[name].mean()) for name in ("ours", "theirs")]
        worst = [float(group[name].abs().max()) for name in ("ours", "theirs")]
        today = float(group["today"].abs().mean())
        load, what, model, server = map(str, key)
        table.append((
            f"{load}: {what}", model, server or "–", str(len(group)),
            *(f"{value:.1%}" for value in both), _nearer(both[0], both[1]),
            "–" if math.isnan(today) else f"{today:.1%}", _nearer(today, both[1]),
            *(f"{value:.1%}" for value in worst), *(f"{value:+.1%}" for value in biases),
        ))  # fmt: skip
    return sorted(table, key=lambda row: row[0])


def _nearer(ours: float, theirs: float) -> str:
    """Return whose error is smaller."""
    return "–" if math.isnan(ours) else "prof" if ours < theirs else "aiconfigurator"
