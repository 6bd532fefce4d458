"""What each kind of access pattern adds to the section."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nsight_prof.reports.page import Figure, Finding, Json, Table


@dataclass(frozen=True)
class Outcome:
    """Findings, tables and figures of one kind of pattern, and its numbers for metrics.json."""

    findings: tuple[Finding, ...]
    tables: tuple[Table[Any], ...]
    figures: tuple[Figure, ...]
    numbers: Json
