"""The page of operators that others measured (aiconfigurator)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pandas as pd

from nsight_prof.orchestrator.cli import main as prof
from nsight_prof.orchestrator.predict.sources import read_model
from nsight_prof.parsers.predict.costs import datasheet
from nsight_prof.parsers.predict.imported import Imported
from nsight_prof.parsers.predict.measured import Cases, measured_products
from nsight_prof.parsers.predict.operators import BF16, FP8
from nsight_prof.parsers.predict.quantization import quantized_shape
from scripts.pages.accuracy.answers import answered
from scripts.pages.accuracy.captures import recorded
from scripts.pages.accuracy.questions import (
    KERNELS_RUNS,
    OFFLINE,
    OPERATORS,
    SERVER,
    SPLIT,
    SYSTEM,
    TRACE,
    VERSION,
    Question,
)
from scripts.pages.accuracy.tables import markdown_table
from scripts.pages.accuracy.texts import IMPORTED_CAUSES, IMPORTED_INTRO

IMPORTED_QUESTIONS = (
    Question("Imported tables alone (T1)", (((OPERATORS,), (TRACE, OFFLINE, SPLIT, SERVER)),)),
    Question(
        "Kernels of other models beside them (T1)",
        (((*KERNELS_RUNS, OPERATORS), (TRACE, OFFLINE, SPLIT, SERVER)),),
    ),
    Question(
        "With a recorded engine at batch 8 (T3)",
        (((*KERNELS_RUNS, OPERATORS, TRACE), (OFFLINE, SERVER)),),
    ),
)


def render_imported(work: Path, tables: Path) -> str:
    """Return the page of imported tables; `tables` is a checkout of aiconfigurator."""
    words = ["--aiconfigurator", str(tables), "--system", SYSTEM, "--backend-version", VERSION]
    _prof(["import", *words, "--out", str(work / OPERATORS)])
    parts = [IMPORTED_INTRO, *answered(work, IMPORTED_QUESTIONS)]
    return "\n".join([*parts, IMPORTED_CAUSES, _left_out(work)])


def _left_out(work: Path) -> str:
    """Return what the sources of products miss of what is left out of them, by their type."""
    gpu = datasheet(SYSTEM.replace("_", "-"))
    frame = recorded(work, OPERATORS).table("imported_operators")
    bench = pd.concat([recorded(work, name).table("bench") for name in KERNELS_RUNS])
    own = measured_products(Cases.of(bench), gpu, dtypes=(FP8,))
    imported = Imported(frame, gpu, quantized_shape(read_model("qwen2.5-7b")[1]))
    rows = [
        (source, dtype, *(f"{b.low - 1:+.1%} to {b.high - 1:+.1%}" for b in bounds))
        for source, dtype, *bounds in (
            *(("own cases", t, p.residuals, p.anchored) for t, p in own.items()),
            *(("imported", t, p.residuals, p.anchored)
              for t in (BF16, FP8) for p in [imported.products(t)]),
        )
    ]  # fmt: skip
    return markdown_table(("products", "type", "other outputs and inputs", "other tokens"), rows)


def _prof(words: Sequence[str]) -> None:
    """Run prof; its own words where it fails."""
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = prof(words)
    if code:
        raise SystemExit(said.getvalue())
