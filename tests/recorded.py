"""Recorded runs: those that tests replay by the recipe of their name, and with their tables."""

import fcntl
import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from nsight_prof.parsers.build import refresh, run_tables
from nsight_prof.parsers.run.directory import RunDir

ROOT = Path(__file__).resolve().parent.parent
# The further sets of planted defects make the same pages; test_proof.py and its like read them.
REPLAYED = sorted(
    path.name
    for path in (ROOT / "captures").glob("h200-*")
    if not path.name.startswith("h200-planted-defects-")
)

CHOSEN = ("known-gemm", "llm-kernels", "running-server", "top-kernels", "vllm-kernels",
          "vllm-tensor-parallel")  # fmt: skip
"""Of the recorded runs those that each run of the tests replays: a matrix product, a benchmark, a
program with counters, an engine by kernels, under load and of more GPUs. `--every-run` has all."""
TABLES = ("roofline", "vllm-baseline", "vllm-serve")
"""Others of which each run of the tests reads the tables, as it does of captures/prediction."""


def made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Return `folder`, which the first process that asks makes while the others wait."""
    with folder.with_name(f"{folder.name}.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        if not lock.read():
            shutil.rmtree(folder, ignore_errors=True)  # of one that failed
            make(folder)
            lock.write("made")
    return folder


def with_tables(name: str, folder: Path, tables: Path | None = None) -> None:
    """Copy captures/`name` to the new folder `folder`, with `tables` or those made of the copy.

    Those that are made are Parquet alone: tests of replays have the same rows as CSV.
    """
    # A test that reads captures where they lie leaves tables there.
    without = shutil.ignore_patterns("tables", "tables.partial")
    shutil.copytree(ROOT / "captures" / name, folder, ignore=without)

    def copied(run: RunDir, *, refuse: bool) -> None:
        assert tables is not None
        shutil.copytree(tables, run.tables)

    with ExitStack() as patches:
        if tables:
            patches.enter_context(patch.object(run_tables, "build_tables", copied))
        else:
            for module in ("tables", "build.run_tables"):
                patches.enter_context(patch(f"nsight_prof.parsers.{module}.write_csv"))
        refresh.refresh_tables(RunDir(folder))


def whole_report(folder: Path) -> str:
    """All markdown pages of a report in `folder` as one text, links between them as on one page."""
    names = ["report.md", "details.md", *sorted(p.name for p in folder.glob("counters/*[0-9].md"))]
    paths = [folder / name for name in names[:2]] + [folder / "counters" / n for n in names[2:]]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths if path.is_file())
    return re.sub(r"\]\((?:[./a-z]*(?:report|details|kernel-\d+)\.md)#", "](#", text)
