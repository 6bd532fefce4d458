"""Walks the plan of a recipe: captures, selects, counts, reports, and can be resumed anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.progress import Progress, Silent
from orchestrator.recipe import Recipe
from parsers.errors import ProfError

if TYPE_CHECKING:
    from reports.findings import Finding


@dataclass(frozen=True)
class RunOptions:
    """How to run a recipe; at most one of `out` and `resume`.

    `replay` is a recorded run whose raw captures stand in for the tools; `force` lets a run write
    into a folder that already holds one.
    """

    out: Path | None = None
    replay: Path | None = None
    resume: Path | None = None
    force: bool = False
    progress: Progress = field(default_factory=Silent)


@dataclass(frozen=True)
class RunOutcome:
    """What a run left: `errors` are failures after which the report was still made.

    `exit_code` is 0, or the exit code of the first error: 3 where this machine refuses hardware
    counters and the report holds the trace only.
    """

    run_dir: Path
    findings: list[Finding]
    report_path: Path | None
    exit_code: int
    errors: tuple[ProfError, ...] = ()


def run_recipe(recipe: Recipe, options: RunOptions) -> RunOutcome:
    """Run a recipe from its target to its report.

    Raises:
        ProfError: a step failed and there is nothing to report; the manifest holds the same.
        Interrupted: Ctrl-C; the run is resumable.
    """
    raise NotImplementedError
