#!/usr/bin/env python3
"""Measures how often `prof history check` errs: alarms in runs of one commit, and planted changes.

    bench_history.py [--series 100] [--only one commit] [--write docs/comparing.md]

Each series has 200 runs of one commit, and is asked after each fourth run, as a gate in CI would
be. Then 1 % is planted at run 100. The noise is made up (0.3 % of a run, with and without memory),
or that of real runs: processes of a recorded benchmark, and 128 runs of one commit on an H200
(tests/fixtures/history), in pieces of the order in which they ran. Rates have their 95 % interval
(Clopper and Pearson).
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import beta  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nsight_prof.parsers.history.changes import FEWEST, changes
from scripts.pages.marked import write_marked

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "captures/h200-roofline/steps/1-bench"
RUNS, PLANTED_AT, PLANTED, EVERY = 200, 100, 1.01, 4
NOISE, A_DAY = 0.003, 8
NEAR = 8
OF_ONE_COMMIT = ROOT / "tests/fixtures/history/h200.parquet"
CASES = ("copy", "product", "chain", "eager")
HEAD = ("noise of runs", "false alarms in 200 runs", "1 % found 40 runs later", "100 runs later")
Logs = NDArray[np.float64]
Make = Callable[[np.random.Generator], Logs]


def main() -> None:
    """Simulate all kinds of noise, and print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--series", type=int, default=100, help="of each kind of noise")
    parser.add_argument("--only", default="", help="kinds with this text; others stay on the page")
    parser.add_argument("--write", type=Path, help="page to write the table to")
    options = parser.parse_args()
    lines = {}
    page = options.write.read_text().splitlines() if options.write is not None else []
    for name, make in kinds().items():
        lines[name] = next((line for line in page if line.startswith(f"| {name} |")), "")
        if options.only in name:
            rates = measure(make, options.series)
            lines[name] = _line([name, *(rate(count, options.series) for count in rates)])
            print(lines[name], flush=True)
    if options.write is not None:
        table = [_line(HEAD), _line(["---"] * len(HEAD)), *filter(None, lines.values())]
        write_marked(options.write, Path(__file__).name, "\n".join(table))


def kinds() -> dict[str, Make]:
    """Return what the logs of 200 runs of one commit may be, by name."""
    real = recorded()
    return {
        "independent, normal": lambda r: r.normal(0, NOISE, RUNS),
        "independent, with outliers": lambda r: r.standard_t(3, RUNS) * NOISE / np.sqrt(3),
        "half carries over to the next run": lambda r: carried(r, 0.5),
        "0.8 carries over": lambda r: carried(r, 0.8),
        f"days of {A_DAY} runs differ by as much as runs": by_days,
        "of processes of a benchmark on an H200": lambda r: resampled(r, real, 3),
        **{f"runs of one commit on an H200: {case}": one_commit(case) for case in CASES},
    }


def one_commit(case: str) -> Make:
    """Return runs like those of a case of one commit: pieces of eight in a row."""
    runs = pd.read_parquet(OF_ONE_COMMIT).sort_values(["created", "run"])
    chosen = runs["series"].str.startswith(f"case:{case}|") & (runs["commit"] != "planted")
    logs = np.log(runs.loc[chosen, "seconds"].to_numpy(float))
    return lambda random: resampled(random, [logs], 8)


def carried(random: np.random.Generator, part: float) -> Logs:
    """Return runs that keep `part` of what the run before was off."""
    steps = random.normal(0, NOISE * np.sqrt(1 - part**2), RUNS)
    logs = np.zeros(RUNS)
    for n in range(RUNS):
        logs[n] = (part * logs[n - 1] if n else 0.0) + steps[n]
    return logs


def by_days(random: np.random.Generator) -> Logs:
    """Return runs of days that have levels of their own."""
    days = np.repeat(random.normal(0, NOISE, RUNS // A_DAY), A_DAY)
    logs: Logs = days + random.normal(0, NOISE, RUNS)
    return logs


def recorded() -> list[Logs]:
    """Return for each measured case what its processes were off, in the order in which they ran."""
    times: dict[tuple[str, ...], list[float]] = {}
    for path in sorted(RECORDED.glob("result-*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for record in map(json.loads, file):
                if record["record"] == "case" and record["status"] == "ok":
                    key = tuple(record[name] for name in ("case", "mode", "data", "duration"))
                    times.setdefault(key, []).append(record["time"]["median_s"])
    longest = max(map(len, times.values()))
    whole = [np.log(found) for found in times.values() if len(found) == longest]
    return [logs - np.median(logs) for logs in whole]


def resampled(random: np.random.Generator, real: list[Logs], piece: int) -> Logs:
    """Return runs of one case: pieces of `piece` runs in a row, until there are enough."""
    logs = real[random.integers(len(real))]
    starts = random.integers(0, len(logs) - piece + 1, RUNS // piece + 1)
    pieces: Logs = np.concatenate([logs[start : start + piece] for start in starts])[:RUNS]
    return pieces


def measure(make: Make, series: int) -> tuple[int, int, int]:
    """Count series with a false alarm, and those whose planted change is found in time."""
    alarms = soon = late = 0
    for seed in range(series):
        logs = make(np.random.default_rng(seed))
        asked = range(FEWEST, RUNS + 1, EVERY)
        alarms += any(changes(np.exp(logs[:count]).tolist()) for count in asked)
        slower = np.exp(logs)
        slower[PLANTED_AT:] *= PLANTED
        soon += any(_planted(slower[: PLANTED_AT + 40]))
        late += any(_planted(slower))
    return alarms, soon, late


def _planted(times: Logs) -> Iterator[bool]:
    for change in changes(times.tolist()):
        yield change.relative > 0 and abs(change.index - PLANTED_AT) <= NEAR


def rate(count: int, of: int) -> str:
    """Return a count with its 95 % interval."""
    low = beta.ppf(0.025, count, of - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, of - count) if count < of else 1.0
    return f"{count} of {of} ({low:.1%} to {high:.1%})"


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
