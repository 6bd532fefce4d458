"""What a command says of a report that it made: in words, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nsight_prof.orchestrator.terminal.say import say


def show_report(findings: Sequence[str], report: Path) -> None:
    """Print the three findings that matter and where the report is."""
    for number, finding in enumerate(findings[:3], 1):
        say(f"{number}. {finding}")
    if findings:
        say("")
    say(f"report: {report}")


def as_data(run: Path, findings: Sequence[str], report: Path | None) -> dict[str, Any]:
    """Return what was made, for --json: paths as text, null for what is not there."""
    metrics = None if report is None else report.with_name("metrics.json")
    return {
        "run": str(run),
        "report": None if report is None else str(report),
        "metrics": str(metrics) if metrics is not None and metrics.is_file() else None,
        "findings": list(findings),
    }
