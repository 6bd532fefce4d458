"""Commands of prof in processes that have imported it, and matplotlib, once for all of them."""

from __future__ import annotations

import io
import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]


def pool(processes: int) -> ProcessPoolExecutor:
    """Return processes that are those of prof, in the checkout."""
    return ProcessPoolExecutor(processes, get_context("fork"), _as_prof)


def _as_prof() -> None:
    from nsight_prof.orchestrator import start  # noqa: F401

    os.chdir(ROOT)


def prof(*arguments: str | Path) -> None:
    """Run a command of prof in this process, which draws its pictures, too.

    Raises:
        SystemExit: it failed; with what it printed.
    """
    from nsight_prof.orchestrator.cli import main
    from nsight_prof.reports.render import drawing

    words, said = [str(argument) for argument in arguments], io.StringIO()
    with (
        patch.object(drawing, "drawing_in_parallel", lambda: nullcontext(drawing.draw_here)),
        redirect_stdout(said),
        redirect_stderr(said),
    ):
        code = main(words)
    if code:
        raise SystemExit(f"error: prof {' '.join(words)} failed:\n{said.getvalue()}")
