"""Runs of a serving engine from a few rows: a batch of 2 x 10 tokens that gives 3 each.

One prefill of 1,200 ns and two decode steps of 500 and (the last) 400 ns, on a model small enough
to count by hand.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.run import Run

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CONFIG: dict[str, Any] = json.loads((FIXTURES / "small_llama.json").read_text())
ENGINE = {
    "source": "trace",
    "process": 1,
    "model": "small",
    "version": "0.20.2",
    "model_config": json.dumps(CONFIG),
    "dtype": "bfloat16",
    "tensor_parallel": 1,
    "mode": "cuda-graphs",
    "kv_cache_dtype": "auto",
    "kv_blocks": 100,
    "block_size": 16,
    "max_model_len": 64,
    "capture_sizes": "[1, 2, 4]",
    "dummy_weights": True,
}
CASE = "prefill-decode/b2/p10/o3"
POINT = {
    "source": "trace",
    "case": CASE,
    "traced": True,
    "engine": "cuda-graphs",
    "batch": 2,
    "prompt_tokens": 10,
    "output_tokens": 3,
    "status": "ok",
    "decode_step_s": 500e-9,
}

Rows = list[dict[str, Any]]


def step(number: int, kind: str, counts: tuple[int, int, int, int], begin: int, **more: Any) -> Any:
    """One row of engine_steps: 10 ns of its time are idle inside and the rest after its end."""
    length = more.pop("length")
    end = begin + length
    period = more.pop("period", None)
    busy = length - 10
    row = {
        "step": number,
        "pid": 7,
        "device": 0,
        "kind": kind,
        "prefill_requests": counts[0],
        "prefill_tokens": counts[1],
        "decode_requests": counts[2],
        "decode_tokens": counts[3],
        "host_start_ns": begin - 50,
        "host_ns": 40,
        "gpu_start_ns": begin,
        "gpu_end_ns": end,
        "period_ns": period,
        "launches": 5,
        "kernel_ns": busy - 5,
        "memory_ns": 5,
        "busy_ns": busy,
        "idle_ns": None if period is None else period - busy,
        "idle_inside_ns": 10,
        "idle_after_ns": None if period is None else period - length,
        "collective_ns": 0,
        "collective_exposed_ns": 0,
        "cause": "",
    }
    return row | more


STEPS = [
    step(0, "prefill", (2, 20, 0, 0), 1000, length=1000, period=1200),
    step(1, "decode", (0, 0, 2, 2), 2200, length=400, period=500),
    step(2, "decode", (0, 0, 2, 2), 2700, length=400),
]
GAPS = [
    {"step": 0, "pid": 7, "device": 0, "place": "after", "activity": "scheduling", "cause": "s",
     "idle_ns": 200},
    {"step": 1, "pid": 7, "device": 0, "place": "inside", "activity": "launches", "cause": "l",
     "idle_ns": 10},
    {"step": 1, "pid": 7, "device": 0, "place": "after", "activity": "sampling", "cause": "t",
     "idle_ns": 100},
]  # fmt: skip


Make = Callable[..., Run]


@pytest.fixture
def serving_run(make_run: Callable[..., Any]) -> Make:
    """Builder of runs: tables by name as rows; without them the batch of the docstring."""

    def make(**changed: Rows) -> Run:
        path = make_run()
        given: Mapping[str, Rows] = {
            "engines": [ENGINE],
            "serving_points": [POINT],
            "engine_steps": STEPS,
            "engine_gaps": GAPS,
        } | changed
        for table, rows in given.items():
            frame = pd.DataFrame(rows, columns=[c.name for c in tables.tables()[table]])
            tables.write(tables.check(frame, table), table, path / "tables", csv=False)
        return load_run(path)

    return make


@pytest.fixture
def base() -> SimpleNamespace:
    """The rows that `serving_run` takes, to change some of them."""
    return SimpleNamespace(engine=ENGINE, point=POINT, steps=STEPS, gaps=GAPS)
