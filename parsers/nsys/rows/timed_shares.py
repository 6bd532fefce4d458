"""Shares samples of pure Python among the lines of a function by the time that each was measured.

Who samples stacks needs the interpreter's lock, which such code gives up where it calls or jumps
back (CPython 3.12): samples of a loop fall on its last line and on what it calls.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd

from nsight_prof.parsers.names.activity import OWN_CODE

HEAD = re.compile(r"(?:async )?(?:for|while)\b")
ALIKE = 0.5
"""Part of the runs of the head of a loop that a line of its body has."""
COUNTS = ["samples", "idle_samples", "time_ns", "idle_ns"]
LINE = ["line", "source"]


def by_time(lines: pd.DataFrame, timed: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Return table `host_lines` with samples of the program's own code where their time is.

    They stay in their function. Time in calls of CUDA and below functions of libraries in Python
    has samples of its own, and does not count.
    """
    if timed.empty or lines.empty:
        return lines
    pure = (lines["activity"] == OWN_CODE) & (lines["inner"].fillna("") == "")
    pure &= lines["line"].notna()
    in_calls = calls.groupby(["file", "line"])["time_ns"].sum()
    below = (
        lines[(lines["activity"] == OWN_CODE) & ~pure].groupby(["file", "line"])["time_ns"].sum()
    )
    found = [lines[~pure]]
    for (file, function), rows in lines[pure].groupby(["file", "function"]):
        of_function = timed[(timed["file"] == file) & (timed["function"] == function)]
        weights = _weights(of_function, in_calls, below)
        found.append(rows if weights.empty else _shared(rows, weights))
    return pd.concat(found).sort_values(
        "time_ns", ascending=False, kind="stable", ignore_index=True
    )


def _weights(
    timed: pd.DataFrame, in_calls: pd.Series[float], below: pd.Series[float]
) -> pd.DataFrame:
    """Return lines of a function with their text and the part of its own time that each has.

    The head of a loop asks for the next item: its time is that of the line that takes most of its
    body, which runs as often.
    """
    keys = pd.MultiIndex.from_frame(timed[["file", "line"]])
    calls_ns = (
        in_calls.reindex(keys).fillna(0).to_numpy() + below.reindex(keys).fillna(0).to_numpy()
    )
    alone = (timed["own_ns"].to_numpy(float) - calls_ns).clip(min=0)
    lines, hits, texts = (timed[name].tolist() for name in ("line", "hits", "source"))
    for at in sorted(range(len(lines)), key=lines.__getitem__, reverse=True):
        if HEAD.match(texts[at]):
            runs = range(math.ceil(ALIKE * hits[at]), hits[at] + 1)
            body = [n for n, line in enumerate(lines) if line > lines[at] and hits[n] in runs]
            if body:
                heaviest = max(body, key=alone.__getitem__)
                alone[heaviest], alone[at] = alone[heaviest] + alone[at], 0.0
    weights = pd.DataFrame({"line": lines, "source": texts, "weight": alone})
    weights = weights.groupby(LINE, as_index=False).sum()
    total = float(weights["weight"].sum())
    weights = weights.assign(weight=weights["weight"] / total if total else 0.0)
    return weights[weights["weight"] > 0]


def _shared(rows: pd.DataFrame, weights: pd.DataFrame) -> pd.DataFrame:
    by = [name for name in rows.columns if name not in (*COUNTS, *LINE)]
    sums = rows.groupby(by, as_index=False, dropna=False)[COUNTS].sum()
    every = sums.merge(weights, how="cross")
    shared = every[COUNTS].mul(every.pop("weight"), axis=0)
    for name in ("samples", "idle_samples"):
        shared[name] = np.rint(shared[name].astype(float)).astype(int)
    shared["idle_samples"] = shared[["samples", "idle_samples"]].min(axis=1)
    every = every.assign(**{name: shared[name] for name in COUNTS})[rows.columns]
    return every[every["samples"] > 0].astype(rows.dtypes.to_dict())
