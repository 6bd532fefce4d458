"""Shows how fast `prof predict` is: one point, and 200 configurations beside a naive loop.

python scripts/bench_predict.py [--on RUN …]

The command is timed as users call it, in a process of its own: import, reading the runs, points,
other choices, tables, report and pictures, in seconds of a clock and of CPU. The first prediction
from a run makes the tables that predictions read of it, later ones find them in prof's cache.

The naive loop asks for the costs of every operator of every step anew, as a script around single
calls would; prof asks once for each operator. Both give the same numbers, which is checked.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nsight_prof.orchestrator.predict.plan import Settings
from nsight_prof.orchestrator.predict.predicting import plan
from nsight_prof.parsers.predict.operators import Step
from nsight_prof.parsers.predict.points import Prediction, frames
from nsight_prof.parsers.predict.serving import Predictor, Queue, Workload, simulate

ROOT = Path(__file__).resolve().parent.parent
RUNS = ("h200-llm-kernels", "h200-vllm-kernels")
NAIVE = 10
"""Configurations that the naive loop computes; its time is scaled up to all."""


def grid() -> tuple[Workload, ...]:
    """Return 200 workloads: batches, prompts and outputs."""
    return tuple(
        Workload(prompt, output, batch)
        for prompt in (128, 512, 1024, 2048, 4096)
        for output in (32, 64, 128, 256)
        for batch in (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)
    )


def naive(predictor: Predictor, work: Workload) -> float:
    """Return the seconds of a batch, each step with a predictor that knows nothing yet."""

    def seconds(step: Step, loaded_s: float) -> float:
        fresh = Predictor(
            predictor.shape, predictor.costs, predictor.gpu, predictor.engine, predictor.host
        )
        return fresh.seconds(step, loaded_s).value

    queue = Queue(predictor.engine, deque(work.requests()), work.concurrency)
    return max(item.finish_s for item in simulate(seconds, queue))


def compiled() -> dict[str, str]:
    """Return an environment in which modules are compiled once, as an installation has them.

    With PYTHONDONTWRITEBYTECODE each process compiles a thousand of them: 40 % of its time.
    """
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "bench-predict-pyc")}


def command(runs: Sequence[Path], *sizes: str) -> str:
    """Return the seconds of `prof predict`, those of its pictures' process with it."""
    words = [word for run in runs for word in ("--on", str(run))]
    with tempfile.TemporaryDirectory() as folder:
        words += [*sizes, "--quiet", "--out", f"{folder}/out"]
        start, before = time.perf_counter(), os.times()
        subprocess.run(
            [sys.executable, "-m", "nsight_prof", "predict", "qwen2.5-7b", *words],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=compiled(),
        )  # fmt: skip
        wall, after = time.perf_counter() - start, os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])
    return f"{wall:.1f} s, {cpu:.1f} s of CPU"


def main(argv: Sequence[str]) -> int:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", nargs="*", type=Path, help="runs; those of captures/ if none")
    given = parser.parse_args(argv).on
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        runs = given or [Path(shutil.copytree(ROOT / "captures" / name, Path(folder) / name))
                         for name in RUNS]  # fmt: skip
        command(runs, "--batch", "8")  # compiles what was not imported yet
        shutil.rmtree(f"{folder}/prof")
        print(f"prof predict of one point, the first: {command(runs, '--batch', '8')}")
        print(f"prof predict of one point, later: {command(runs, '--batch', '8')}")
        loads = {
            flag: ",".join(str(size) for size in dict.fromkeys(getattr(w, flag) for w in grid()))
            for flag in ("prompt", "output", "batch")
        }
        words = [word for flag, sizes in loads.items() for word in (f"--{flag}", sizes)]
        print(f"prof predict of {len(grid())} configurations: {command(runs, *words)}")
        start = time.perf_counter()
        planned = plan("qwen2.5-7b", runs, Settings())
        predictor = planned.predictor()
        # The naive loop knows no host that works beside the GPU.
        names = ("decode_s", "eager_s", "graph_s", "issue_s", "issue_graph_s", "lead_s", "others_s")
        unknown: dict[str, Any] = dict.fromkeys(names, math.nan)
        predictor.host = replace(predictor.host, **unknown)
        prediction = Prediction("qwen2.5-7b", predictor, 10**9)
        frames(prediction, grid()[:1])
        print(f"one point, its tables alone: {time.perf_counter() - start:.2f} s")
        start = time.perf_counter()
        points = frames(prediction, grid())["predicted_points"]
        ours = time.perf_counter() - start
        print(f"{len(points)} configurations: {ours:.2f} s")
        chosen = grid()[:: len(grid()) // NAIVE]
        start = time.perf_counter()
        durations = [naive(prediction.predictor, work) for work in chosen]
        scaled = (time.perf_counter() - start) * len(grid()) / len(chosen)
        print(f"the same by a naive loop: {scaled:.0f} s, scaled from {len(chosen)}")
        print(f"ratio: {scaled / ours:.0f}")
        known = points.set_index("case")["duration_s"].to_dict()
        overhead = prediction.predictor.host.overhead_s
        extra = overhead if math.isfinite(overhead) else 0.0
        for work, duration in zip(chosen, durations, strict=True):
            assert abs(known[work.name] - duration - extra) < 1e-9 * duration, work.name
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
