"""Makes the tables of a run where they are not there, and opens one run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nsight_prof.orchestrator.system.run_lock import writing
from nsight_prof.parsers.errors import ProfError, UsageError
from nsight_prof.parsers.run.artifacts import check_artifacts
from nsight_prof.parsers.run.directory import VARIANTS, RunDir, check_one_run, read_manifest

if TYPE_CHECKING:
    from nsight_prof.parsers.run.run import Run


def ensure_tables(path: Path) -> None:
    """Make tables/ of a run, or of each variant of a sweep, where this version's are not there."""
    check_one_run(path)
    variants = read_manifest(RunDir(path)).variants
    for run in [RunDir(path / VARIANTS / name) for name in variants] or [RunDir(path)]:
        if not are_of_now(run):
            from nsight_prof.parsers.build.run_tables import build_tables

            with writing(run.path):
                check_artifacts(run)
                build_tables(run)


def load_one_run(path: Path, action: str, *, refresh: bool = False) -> Run:
    """Load a run that is no sweep; with `refresh`, after its tables are made where they are stale.

    Raises:
        UsageError: it is a sweep; the hint says to do `action` ("plan") with one of its runs.
    """
    from nsight_prof.parsers.build.load import load_run
    from nsight_prof.parsers.build.refresh import refresh_tables

    check_one_run(path)
    if refresh:
        with writing(path):
            refresh_tables(RunDir(path))
    run = load_run(path)
    if run.manifest.variants:
        raise UsageError(
            f"{path} is a sweep of {len(run.manifest.variants)} runs",
            f"{action} one of them: {path / VARIANTS / run.manifest.variants[0]}",
        )
    return run


def are_of_now(run: RunDir, only: Sequence[str] = ()) -> bool:
    """Tell whether the tables, or `only` these, are there with the columns of this version."""
    from nsight_prof.parsers import tables

    if not run.tables.is_dir():
        return False
    try:
        return all(tables.is_of_now(run.tables, table) for table in only or tables.tables())
    except ProfError:
        return False
