"""Writes how far starts of one engine, and boards of one kind, differ: no prediction is truer."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from nsight_prof import load_run
from nsight_prof.orchestrator.report.run_tables import ensure_tables

MEASURES = {"tpot_s": "TPOT", "ttft_s": "TTFT"}
INTRO = """\
# How well serving times repeat

The same points of the same model, on two boards of one host at once, three starts of the engine on
each (`captures/noise-floor`; vLLM offline, CUDA graphs, {model}). A value is the median over the
requests of one start; the spread is the largest less the smallest of the three starts over their
median, for each board; the boards differ by the medians of their starts. A prediction that is
nearer to one start than this is so by chance.
"""


def noise_floor(boards: Sequence[Path]) -> str:
    """Return the page of recorded runs (`prof run vllm-baseline --repeat 3`), one per board."""
    starts = pd.concat([_starts(path).assign(board=at) for at, path in enumerate(boards)])
    model = starts["model"].iloc[0]
    parts = [INTRO.format(model=model)]
    for column, name in MEASURES.items():
        heads = ["point", f"{name}, median, ms"]
        heads += [f"spread of starts, board {at}" for at in range(len(boards))]
        heads += ["boards differ by", "mean distance of a start from the median"]
        rows = [
            _row(str(case), of[["board", column]], column) for case, of in starts.groupby("case")
        ]
        lines = [heads, ["---"] * len(heads), *rows]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"\n## {name}\n\n{table}\n")
    return "".join(parts)


def distances(boards: Sequence[Path]) -> pd.DataFrame:
    """Return how far a start lies from the median of all starts, on average, by point (0.01: 1 %).

    Columns are those of MEASURES; the index is the case of a point.
    """
    starts = pd.concat([_starts(path) for path in boards])
    return starts.groupby("case")[list(MEASURES)].agg(_distance)


def _distance(values: pd.Series[float]) -> float:
    middle = values.median()
    return float((values - middle).abs().mean() / middle)


def _starts(path: Path) -> pd.DataFrame:
    """Medians of each start (a process of the benchmark) and point."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "run"
        shutil.copytree(path, copy)
        ensure_tables(copy)
        requests = pd.read_parquet(copy / "tables" / "requests.parquet")
        model = load_run(copy).manifest.recipe["target"]["args"]["model"]
    good = requests[requests["status"] == "ok"]
    medians = good.groupby(["case", "process"])[list(MEASURES)].median().reset_index()
    return medians.assign(model=model)


def _row(case: str, starts: pd.DataFrame, column: str) -> list[str]:
    middle = starts[column].median()
    by_board = starts.groupby("board")[column]
    spreads = (by_board.max() - by_board.min()) / by_board.median()
    boards = by_board.median()
    apart = (boards.max() - boards.min()) / boards.median()
    shares = [*spreads, apart, _distance(starts[column])]
    return [f"`{case}`", f"{middle * 1e3:,.2f}", *(f"{share:.2%}" for share in shares)]
