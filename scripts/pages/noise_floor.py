"""Writes how far starts of one engine, and boards of one kind, differ: no prediction is truer."""

from __future__ import annotations

import json
import lzma
import math
import shutil
import tempfile
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing
import pandas as pd

from nsight_prof import load_run
from nsight_prof.orchestrator.report.run_tables import ensure_tables
from scripts.pages import host_floor

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
BOARDS = ("noise-floor/board-0", "noise-floor/board-1")
"""Runs of one engine on two boards, below captures."""
STARTS = tuple(f"prediction/serve-qwen3-4b{start}" for start in ("", "-start-2", "-start-3"))
"""One server, started three times."""
ENGINES = tuple(
    f"prediction/baseline-{model}"
    for model in ("llama-3.1-8b", "mistral-7b-v0.3", "qwen3-4b", "qwen3-14b", "qwen3-32b")
)
"""Engines that generated each point three times, one after the other."""
SHORT_TOKENS = 1000
"""Tokens of all prompts of a batch below which the host decides their time, not the GPU."""
MEASURES = {"tpot_s": "TPOT", "ttft_s": "TTFT"}
INTRO = """\
# How well serving times repeat

The same points of the same model, on two boards of one host at once, three starts of the engine on
each (`captures/noise-floor`; vLLM offline, CUDA graphs, {model}). A value is the median over the
requests of one start; the spread is the largest less the smallest of the three starts over their
median, for each board; the boards differ by the medians of their starts. The last column is
[what the true median itself would miss](#what-the-true-median-would-miss) of a start: a prediction
that is nearer than this is so by chance.
"""
SERVER = """
## Open loops of a server

The same rates of requests to one server, three starts (`captures/prediction/serve-qwen3-4b` and
`-start-2`, `-start-3`; {model}, 10 s each). The first start is of another day; beside the others
another program ran on the host's second GPU. The host's processors run at one of two speeds, which
no prediction can know.
"""
BETWEEN = """
## The same engine on several hosts

Of all recorded runs: engines and servers of the same model, settings and kind of GPU that were
started on several machines, at the same points, each start by itself, those on one machine, too;
open loops up to 80 % of the capacity, as docs/accuracy.md sums them. How far a start on one machine
lies from the true median of all, on average over points, is what no prediction beats that does not
know the machine. Of batches it is given for one GPU, for several, and with drafts or LoRA; servers
are taken together. Engines are called by the first run that has them, with how many starts a point
has at most; a narrow engine serves nobody, it tells what the host needs.

### What the true median would miss

The floor is the mean difference of two starts on different machines, over sqrt(2). Of a normal
distribution E|X - X'| is 2 / sqrt(pi) = 1.128 standard deviations and E|X - median| sqrt(2 / pi) =
0.798, and the mean over pairs (Gini's mean difference) has no bias at any number of starts (H. A.
David, Gini's mean difference rediscovered, Biometrika 55, 1968, p. 573). The mean distance from the
median of the recorded starts, which this page had before, is the half of the difference for two
starts: such a median lies between the starts that it is to judge. Simulated, each as a part of what
the true median misses (50,000 engines, `scripts/pages/noise_floor.py`):

{simulated}

No estimate from few starts is right for every distribution: E|X - median| lies between half of
E|X - X'| and all of it. Where hosts have two speeds that are equally likely, the floor is up to 1.3
times what is said here; where a tenth of the starts is slow, it is a fifth lower. The interval of
90 % is by drawing engines with replacement (bootstrap, {draws:,} times), the points of an engine
together; a single engine has none, and of two or three it says little.
"""
Draw = Callable[[np.random.Generator, tuple[int, ...]], numpy.typing.NDArray[np.float64]]
SIMULATED: dict[str, Draw] = {
    "normal": lambda chance, size: 1 + 0.1 * chance.standard_normal(size),
    "lognormal, sigma 0.5": lambda chance, size: np.exp(0.5 * chance.standard_normal(size)),
    "half of the hosts 1.5 times as slow": lambda chance, size: _two_speeds(chance, size, 0.5, 1.5),
    "a fifth 1.5 times as slow": lambda chance, size: _two_speeds(chance, size, 0.2, 1.5),
    "a tenth 2.5 times as slow": lambda chance, size: _two_speeds(chance, size, 0.1, 2.5),
}
"""Distributions of what starts measure; those of two speeds spread by 3 % around each."""
SIZES = (2, 3, 4, 8)
"""Starts of an engine."""
REPEATS = """
## Repetitions within one engine

The same points, three times within one engine, seconds apart (H200): how far the median TTFT of a
repetition lies from that of the three, on average and at most. Prompts of fewer than {tokens:,}
tokens in all wait for the host, which changes its speed meanwhile; the median of three, against
which predictions are held, has less of it, but not none.
"""


def noise_floor(boards: Sequence[Path], servers: Sequence[Path], engines: Sequence[Path]) -> str:
    """Return the page of recorded runs: engines (`--repeat 3`) by board, and starts of a server.

    `engines` generated each point several times.
    """
    starts = pd.concat([_starts(path).assign(board=at) for at, path in enumerate(boards)])
    model = starts["model"].iloc[0]
    parts = [INTRO.format(model=model)]
    for column, name in MEASURES.items():
        heads = ["point", f"{name}, median, ms"]
        heads += [f"spread of starts, board {at}" for at in range(len(boards))]
        heads += ["boards differ by", "a start is off the true median by"]
        rows = [
            _row(str(case), of[["board", column]], column) for case, of in starts.groupby("case")
        ]
        parts.append(f"\n## {name}\n\n{_table(heads, rows)}\n")
    starts = _open_loops(servers)
    parts.append(SERVER.format(model=starts["model"].iloc[0]))
    for column, name in MEASURES.items():
        heads = [f"{name}, median, ms", *(f"start {at + 1}" for at in range(len(servers)))]
        heads += ["a start is off the true median by"]
        rows = [
            [
                f"`{case}`",
                *(f"{value * 1e3:,.2f}" for value in of[column]),
                f"{_distance(of[column]):.2%}",
            ]
            for case, of in starts.groupby("case")
        ]
        parts.append(f"\n{_table(heads, rows)}\n")
    parts.append(BETWEEN.format(simulated=simulated(), draws=host_floor.DRAWS))
    heads = ["what", "points", "engines: starts", "a start is off the true median by"]
    heads += ["interval of 90 %"]
    parts.append(f"\n{_table(heads, host_floor.table(CAPTURES))}\n")
    parts.append(REPEATS.format(tokens=SHORT_TOKENS))
    heads = ["engine", *(f"{prompts} prompts, {of}" for prompts in ("short", "long")
                         for of in ("mean", "most"))]  # fmt: skip
    parts.append(f"\n{_table(heads, [_repeats(path) for path in engines])}\n")
    return "".join(parts)


def simulated(draws: int = 200_000) -> str:
    """Return the table of what estimates say of few starts, by the distribution of starts."""
    rows, chance = [], np.random.default_rng(0)
    for name, draw in SIMULATED.items():
        many = draw(chance, (draws,))
        truth = np.abs(many - np.median(many)).mean()
        cells = []
        for size in SIZES:
            starts = draw(chance, (draws // 4, size))
            middle = np.median(starts, axis=1, keepdims=True)
            pairs = [
                np.abs(starts[:, i] - starts[:, j]).mean() for i, j in combinations(range(size), 2)
            ]
            from_middle = np.abs(starts - middle).mean() / truth
            cells.append(f"{from_middle:.2f}, {np.mean(pairs) / math.sqrt(2) / truth:.2f}")
        rows.append([name, *cells])
    heads = ["distribution", *(f"{size} starts: from their median, pairs" for size in SIZES)]
    return _table(heads, rows)


def _two_speeds(
    chance: np.random.Generator, size: tuple[int, ...], slow: float, times: float
) -> np.typing.NDArray[np.float64]:
    speeds = np.where(chance.random(size) < slow, times, 1.0)
    return speeds * (1 + 0.03 * chance.standard_normal(size))


def _repeats(path: Path) -> list[str]:
    """Return a row of an engine: how far its repetitions lie from their median, by its records."""
    (file,) = path.glob("steps/*/result-*.jsonl.xz")
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        found = pd.DataFrame(
            record
            for record in (json.loads(line) for line in lines if '"record": "request"' in line)
            if record["status"] == "ok"
        )
    found["ttft_s"] = found["first_token_s"] - found["arrival_s"]
    each = found.groupby(["case", "repeat"]).agg(
        ttft_s=("ttft_s", "median"), tokens=("prompt_tokens", "sum")
    )
    middle = each.groupby("case")["ttft_s"].transform("median")
    off, short = (each["ttft_s"] / middle - 1).abs(), each["tokens"].lt(SHORT_TOKENS)
    shares = [value for of in (off[short], off[~short]) for value in (of.mean(), of.max())]
    return [f"`{path.name}`", *(f"{share:.1%}" for share in shares)]


def _table(heads: list[str], rows: Sequence[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def distances(boards: Sequence[Path]) -> pd.DataFrame:
    """Return how far a start lies from the true median, on average, by point (0.01: 1 %).

    Columns are those of MEASURES; the index is the case of a point.
    """
    starts = pd.concat([_starts(path) for path in boards])
    return starts.groupby("case")[list(MEASURES)].agg(_distance)


def server_distances(servers: Sequence[Path]) -> pd.DataFrame:
    """Return what `distances` returns, of the open loops that all starts of a server had."""
    return _open_loops(servers).groupby("case")[list(MEASURES)].agg(_distance)


def _open_loops(servers: Sequence[Path]) -> pd.DataFrame:
    starts = pd.concat([_starts(path) for path in servers])
    starts = starts[starts["case"].str.startswith("open/")]
    return starts[starts.groupby("case")["case"].transform("size").eq(len(servers))]


def _distance(values: pd.Series[float]) -> float:
    return host_floor.missed([[value] for value in values])


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
