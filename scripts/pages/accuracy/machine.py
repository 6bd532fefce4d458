"""How fast machines' hosts were while they were recorded, and what that makes of predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd

from nsight_prof.orchestrator.predict.plan import speed_of
from nsight_prof.orchestrator.predict.predicting import held_out
from nsight_prof.parsers.cells import Row, records
from nsight_prof.parsers.predict.corrections import LONG_TOKENS
from nsight_prof.parsers.predict.serving import Workload, point
from scripts.pages.accuracy.captures import ROOT, recorded
from scripts.pages.accuracy.questions import (
    SAME_PAIRS,
    SAME_SERVED,
    TIMED_PAIRS,
    TIMED_SERVED,
    Pair,
)
from scripts.pages.accuracy.tables import markdown_table, percent

SPEED = ROOT / "captures" / "prediction" / "host-speed-same.csv.xz"
"""Times of a fixed loop of Python, a process of its own, by the run that was recorded beside it."""
SAME, TIMED = (*SAME_PAIRS, SAME_SERVED), (*TIMED_PAIRS, TIMED_SERVED)
"""What was predicted from runs of the same machine, on both machines."""


@cache
def _loops() -> pd.DataFrame:
    """Return percentiles and mean of the loop's times by run, in the order of recording, in us."""
    times = pd.read_csv(SPEED).groupby("during", sort=False)["loop_us"]
    return times.describe(percentiles=[0.1, 0.5, 0.9])


def host_speed() -> str:
    """Return how long the loop took beside each run."""
    rows = [
        (f"`{run}`", f"{row['count']:.0f}",
         *(f"{row[column]:.0f}" for column in ("10%", "50%", "90%", "mean")))
        for run, row in _loops().iterrows()
    ]  # fmt: skip
    heads = ("beside", "loops", "10th percentile, us", "median, us", "90th percentile, us",
             "mean, us")  # fmt: skip
    return markdown_table(heads, rows)


def timed_speed(work: Path) -> str:
    """Return the same of runs that timed it themselves, and what their engines' threads took."""
    rows = []
    for run in dict.fromkeys(run for sources, truths in TIMED for run in (*sources, *truths)):
        source = recorded(work, run)
        phases = {row["phase"]: row for row in records(source.table("host_speed"))}
        speed = speed_of(source)
        if speed is None or "wall" in speed.clock:
            continue
        during, own = phases["during"], 1e6 * source.table("host_loops")["loop_s"]
        rows.append((
            f"`{source.name}`", f"{during['loops']:.0f}", f"{1e6 * phases['before']['best_s']:.0f}",
            *(f"{1e6 * during[name]:.0f}" for name in ("p10_s", "median_s", "p90_s", "mean_s")),
            f"{own.mean():.0f}" if len(own) else "–",
        ))  # fmt: skip
    heads = ("beside", "loops", "best of 20 before, us", "10th percentile, us", "median, us",
             "90th percentile, us", "mean, us", "mean on the engine's thread, us")  # fmt: skip
    return markdown_table(heads, rows)


def slower_host(work: Path, pairs: Sequence[Pair]) -> str:
    """Return errors by hosts as they were told, and as fast as the loop says of the truth's."""
    found = pd.DataFrame([row for pair in pairs for row in _errors(work, pair)])
    rows = []
    for what, of_what in found.groupby("what"):
        numbers = [
            text for name in ("told", "timed") for text in
            (percent(of_what[name].abs().mean()), f"{of_what[name].mean():+.1%}")
        ]  # fmt: skip
        rows.append((str(what), str(len(of_what)), *numbers))
    heads = ("what", "n", "MAPE, host as told", "bias", "MAPE, host as the loop was", "bias")
    return markdown_table(heads, rows)


def _errors(work: Path, pair: Pair) -> Iterator[Row]:
    """Yield the errors of each load of an engine or server by both hosts."""
    sources, (name,) = pair
    truth = recorded(work, name)
    planned = held_out(truth, tuple(recorded(work, source) for source in sources))
    there = replace(planned, settings=replace(planned.settings, host=speed_of(truth)), notes=[])
    there.fitted = planned.fitted
    by_host = [plan.predictor() for plan in (planned, there)]
    kv_tokens = planned.kv_tokens(by_host[0].engine)
    for load, measured in truth.points():
        names = {"ttft_p50_s": _what(load, "ttft"), "tpot_p50_s": _what(load, "tpot")}
        numbers = [point(predictor, load, kv_tokens) for predictor in by_host]
        for column, what in names.items():
            told, timed = (found[column] / float(measured[column]) - 1 for found in numbers)
            yield {"what": what, "told": told, "timed": timed}


def _what(load: Workload, quantity: str) -> str:
    """Return what errors of a load are summed as."""
    if load.batch and quantity == "ttft":
        long = load.batch * load.prompt >= LONG_TOKENS
        return f"batches: ttft, {'1,000 tokens and more' if long else 'fewer tokens'}"
    kind = "batches" if load.batch else "closed" if load.concurrency else "open"
    return f"{kind}: {quantity}"
