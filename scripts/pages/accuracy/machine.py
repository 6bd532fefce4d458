"""How fast a machine's host was while it was recorded, and what that makes of predictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd

from nsight_prof.orchestrator.predict.predicting import held_out
from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.predict.corrections import LONG_TOKENS
from nsight_prof.parsers.predict.serving import Host, Workload, point
from scripts.pages.accuracy.captures import ROOT, recorded
from scripts.pages.accuracy.questions import SAME_LOOP, SAME_PAIRS, SAME_SERVED
from scripts.pages.accuracy.tables import markdown_table, percent

SPEED = ROOT / "captures" / "prediction" / "host-speed-same.csv.xz"
"""Times of a fixed loop of Python, a process of its own, by the run that was recorded beside it."""
ENGINE = ("eager_s", "graph_s", "decode_s")
LOOP = ("frontend_s", "request_s", "token_s")
"""What the host of an engine, and the event loop of a server, need."""


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


def slower_host(work: Path) -> str:
    """Return errors by hosts as they were told, and as much slower as the loop was later."""
    found = pd.DataFrame(
        [row for pair in (*SAME_PAIRS, SAME_SERVED) for row in _errors(work, pair)]
    )
    rows = []
    for what, of_what in found.groupby("what"):
        numbers = [
            text for name in ("told", "slower") for text in
            (percent(of_what[name].abs().mean()), f"{of_what[name].mean():+.1%}")
        ]  # fmt: skip
        rows.append((str(what), str(len(of_what)), *numbers))
    heads = ("what", "n", "MAPE, host as told", "bias", "MAPE, host as the loop was", "bias")
    return markdown_table(heads, rows)


def _errors(work: Path, pair: tuple[tuple[str, ...], tuple[str, ...]]) -> Iterator[Row]:
    """Yield the errors of each load of an engine or server by both hosts."""
    sources, (name,) = pair
    truth = recorded(work, name)
    planned = held_out(truth, tuple(recorded(work, source) for source in sources))
    told = planned.predictor()
    slower = replace(told, host=_slower(told.host, _beside(name) / _beside(sources[1]),
                                        _beside(name) / _beside(SAME_LOOP)))  # fmt: skip
    kv_tokens = planned.kv_tokens(told.engine)
    for load, measured in truth.points():
        names = {"ttft_p50_s": _what(load, "ttft"), "tpot_p50_s": _what(load, "tpot")}
        by_host = [point(predictor, load, kv_tokens) for predictor in (told, slower)]
        for column, what in names.items():
            errors = [numbers[column] / float(measured[column]) - 1 for numbers in by_host]
            yield {"what": what, "told": errors[0], "slower": errors[1]}


def _slower(host: Host, engine: float, loop: float) -> Host:
    """Return a host whose engine and event loop take so many times as long."""
    found = {name: engine * getattr(host, name) for name in ENGINE}
    return replace(host, **found, **{name: loop * getattr(host, name) for name in LOOP})


def _beside(run: str) -> float:
    """Return the mean time of the loop beside a run."""
    return float(_loops()["mean"][run.rpartition("/")[2]])


def _what(load: Workload, quantity: str) -> str:
    """Return what errors of a load are summed as."""
    if load.batch and quantity == "ttft":
        long = load.batch * load.prompt >= LONG_TOKENS
        return f"batches: ttft, {'1,000 tokens and more' if long else 'fewer tokens'}"
    kind = "batches" if load.batch else "closed" if load.concurrency else "open"
    return f"{kind}: {quantity}"
