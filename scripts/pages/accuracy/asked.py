"""The measures that were asked of predictions, in the order in which they were asked.

A table of docs/accuracy.md; scripts/accuracy.py writes the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsight_prof.orchestrator.predict.predicting import errors, held_out
from nsight_prof.parsers.predict.validation import HELD_OUT, KERNEL, STEP, summary
from scripts.pages.accuracy.before import kernel_rows
from scripts.pages.accuracy.bounds import KV, OPEN, REQUIRED, unknown_floors, words_of
from scripts.pages.accuracy.captures import ROOT, held_out_rows, recorded
from scripts.pages.accuracy.committed import peer_rows, predicted_today
from scripts.pages.accuracy.glance import (
    ENGINES,
    FLOORS,
    SERVERS,
    errors_before,
    latest_of,
    today_of,
)
from scripts.pages.accuracy.questions import (
    ENGINE,
    EXACT_OPERATORS,
    LAYERS,
    WHOLE_MODEL,
    WHOLE_QUESTION,
)
from scripts.pages.accuracy.tables import markdown_table, percent

SILICON = ROOT / "captures" / "prediction" / "silicon-h200.csv"
"""Closed loops that others recorded, with both predictions (scripts/bench_silicon.py --csv)."""
LONG, SHORT = "ttft, 1,000 tokens and more", "ttft, fewer tokens"
COVERED = (0.85, 0.95)
"""Between which shares intervals of 90 % are to cover."""
NONE = "–"
HEADS = ("measure", "of", "required", "newest", "all before", "today", "reached")


class Measure(NamedTuple):
    """What was asked: of which quantities, how near on average, and at a further statistic.

    `tail`: "90th" or "worst", and the limit that it has.
    """

    name: str
    quantities: tuple[str, ...]
    groups: tuple[str, ...]
    limit: float
    tail: str = ""
    tail_limit: float = math.inf

    @property
    def percentile(self) -> int:
        """Which percentile the tail is."""
        return 100 if self.tail == "worst" else 90


ONE, SEVERAL, _ = ENGINES
MEASURES = (
    Measure("TPOT, batch 1 to 128", ("tpot",), (ONE,), REQUIRED["tpot"], "90th", 0.05),
    Measure("TPOT, batch 1 to 128", ("tpot",), (SEVERAL,), 0.05),
    Measure("TPOT, batch 1 to 128", ("tpot",), ENGINES[2:], REQUIRED["tpot"]),
    Measure("TTFT", (LONG, SHORT), ENGINES, 0.05),
    Measure("TTFT, 1,000 tokens and more", (LONG,), ENGINES, REQUIRED[LONG]),
    Measure("TTFT, fewer tokens", (SHORT,), ENGINES, REQUIRED[SHORT]),
    Measure("closed loops: throughput", ("closed: throughput",), SERVERS, 0.05, "worst", 0.10),
    Measure("closed loops: TPOT", ("closed: tpot",), SERVERS, 0.05),
    Measure("closed loops: TTFT", ("closed: ttft",), SERVERS, 0.10),
    Measure(f"{OPEN}: TPOT", (f"{OPEN}: tpot",), SERVERS, REQUIRED[f"{OPEN}: tpot"]),
    Measure(f"{OPEN}: TTFT", (f"{OPEN}: ttft",), SERVERS, REQUIRED[f"{OPEN}: ttft"]),
    Measure("capacity", ("capacity",), SERVERS, REQUIRED["capacity"]),
)
CACHE = Measure("KV cache", (KV,), ENGINES, REQUIRED[KV])
Cells = tuple[str, ...]


def asked(work: Path) -> str:
    """Return the table of all that was asked."""
    rows = [
        *_kernels(work), *(row for item in MEASURES for row in _measured(work, item)),
        *_covered(work), *_measured(work, CACHE), *_peer(work), *_silicon(),
    ]  # fmt: skip
    return markdown_table(HEADS, rows)


def _kernels(work: Path) -> Iterator[Cells]:
    """Yield the rows of kernels and steps: of whole engines from slices, and one by one."""
    written = pd.DataFrame(list(kernel_rows(recorded(work, ENGINE), WHOLE_MODEL)))
    for sources, (truth,) in WHOLE_QUESTION.pairs:
        today = pd.DataFrame(held_out_rows(work, truth, sources))
        before = written if truth == ENGINE else None
        of = f"{truth.removeprefix(LAYERS)}, all layers"
        for name, scope, limit, tail in (("kernels (T3)", KERNEL, 0.03, 0.08),
                                         ("steps (T3)", STEP, 0.03, 0.05)):  # fmt: skip
            numbers = [summary(found[found["scope"].eq(scope)], ["scope"]).iloc[0]
                       for found in (before, today) if found is not None]  # fmt: skip
            texts = [f"{percent(row['mape'])}, 90th {percent(row['p90'])}" for row in numbers]
            reached = numbers[0]["mape"] <= limit and numbers[0]["p90"] <= tail
            first = NONE if before is None else texts[0]
            yield (name, of, f"{limit:.0%}, 90th {tail:.0%}", first, first, texts[-1],
                   _reached(reached))  # fmt: skip
    for sources, truth in EXACT_OPERATORS.values():
        source = recorded(work, truth)
        planned = held_out(source, tuple(recorded(work, run) for run in sources))
        found = pd.DataFrame(list(errors(planned, source, HELD_OUT)))
        row = summary(found[found["scope"].eq(KERNEL)], ["scope"]).iloc[0]
        mape = float(row["mape"])
        yield ("kernels (T2)", f"{WHOLE_MODEL}, four layers", "8%", NONE, NONE, percent(mape),
               _reached(mape <= 0.08))  # fmt: skip


def _measured(work: Path, item: Measure) -> Iterator[Cells]:
    """Yield the rows of a measure, one of each group that was predicted."""
    every = errors_before(work)
    for group in item.groups:
        found = every[every["what"].isin(item.quantities) & every["group"].eq(group)]
        if found.empty:
            continue
        newest = pd.concat([latest_of(of)[0] for _, of in found.groupby("what")])
        today = today_of(found, predicted_today(work))
        off = float(newest["error"].abs().mean())
        floors = newest["what"].map(unknown_floors(FLOORS.get(group, ""))).fillna(0.0)
        words, *missed = words_of(
            item.name, off, {item.name: item.limit}, {item.name: float(floors.mean())}
        ).split(",")
        tail = f", {item.tail} {item.tail_limit:.0%}" if item.tail else ""
        far = item.tail and _tail(newest["error"], item) > item.tail_limit
        yield (item.name, group, words + tail, _off(newest["error"], item),
               _off(found["error"], item), _off(today["error"], item),
               _reached(not missed and not far))  # fmt: skip


def _covered(work: Path) -> Iterator[Cells]:
    """Yield how many truths the intervals cover, of batches and of loads of servers."""
    every, (low, high) = errors_before(work), COVERED
    for name, groups in (("batches", ENGINES), ("loads of servers", SERVERS)):
        found = every[every["group"].isin(groups) & every["covered"].notna()]
        newest = pd.concat([latest_of(of)[0] for _, of in found.groupby(["what", "group"])])
        today = today_of(found, predicted_today(work))
        shares = [float(of["covered"].astype(float).mean()) for of in (newest, found, today)]
        reached = "too wide" if shares[0] > high else _reached(shares[0] >= low)
        yield ("90 % intervals cover", name, f"{low:.0%} to {high:.0%}",
               *(f"{share:.0%}" for share in shares), reached)  # fmt: skip


def _peer(work: Path) -> Iterator[Cells]:
    """Yield a row for each quantity that aiconfigurator predicts on the same points."""
    every = pd.DataFrame(peer_rows(work))
    for (load, what), found in every.groupby(["load", "what"], sort=False):
        before = found[found["today"].notna()]
        today = found["today"].fillna(found["ours"])
        theirs = float(found["theirs"].abs().mean())
        ours = float(today.abs().mean())
        yield ("aiconfigurator on the same points", f"{load}: {what}",
               f"below {percent(theirs)}", NONE, percent(float(before["ours"].abs().mean())),
               percent(ours), _reached(ours < theirs))  # fmt: skip


def _silicon() -> Iterator[Cells]:
    """Yield TPOT and TTFT of closed loops of an H200 that others recorded (T1)."""
    points = pd.read_csv(SILICON).dropna(subset=["their_tpot", "their_ttft"])
    for name in ("tpot", "ttft"):
        measured = points[f"silicon_{name}_ms"]
        ours, theirs = (float((points[column] / measured - 1).abs().mean())
                        for column in (name, f"their_{name}"))  # fmt: skip
        inside = measured.between(points[f"{name}_low"], points[f"{name}_high"]).mean()
        yield ("`silicon_sample.csv`, H200 (T1)", f"{name.upper()}, {len(points)} points",
               f"below {percent(theirs)}", NONE, NONE, f"{percent(ours)}, {inside:.0%} within",
               _reached(ours < theirs))  # fmt: skip


def _off(error: pd.Series, item: Measure) -> str:
    """Return the mean absolute error and the further statistic."""
    if error.empty:
        return NONE
    tail = f", {item.tail} {percent(_tail(error, item))}" if item.tail else ""
    return percent(float(error.abs().mean())) + tail


def _tail(error: pd.Series, item: Measure) -> float:
    return float(np.percentile(np.abs(error), item.percentile))


def _reached(is_so: object) -> str:
    return "yes" if is_so else "missed"
