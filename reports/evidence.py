"""The wording and thresholds behind findings, and evidence that is given as strings."""

from __future__ import annotations

from functools import cache
from typing import Any

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.reports import page
from nsight_prof.reports.findings.model import verbatim
from nsight_prof.reports.page import Number


class Evidence(page.Evidence):
    """A row of evidence given as strings, of producers that do not make texts yet.

    `where` says where a reader finds the number in the run: keys of parsers/metrics.yaml (whose
    counters they name, such as "dram_pct"), or "table.column" of a table of the run (such as
    "kernels.duration_ns"). A derived number names each one that it is worked out from. Empty means
    that it stands in neither.
    """

    value: Number
    where: tuple[str, ...]

    def __init__(
        self,
        metric: str,
        value: float,
        unit: str,
        threshold: str = "",
        source: str = "",
        where: tuple[str, ...] = (),
    ) -> None:
        super().__init__(
            verbatim(metric),
            Number(value, unit),
            verbatim(threshold) if threshold else None,
            verbatim(source) if source else None,
        )
        object.__setattr__(self, "where", where)


@cache
def wording() -> dict[str, dict[str, Any]]:
    """Return the sections of findings.yaml."""
    loaded: dict[str, dict[str, Any]] = packaged_yaml("nsight_prof.reports", "findings.yaml")
    return loaded


def threshold(key: str) -> float:
    """Return a threshold of findings.yaml."""
    return float(wording()["thresholds"][key]["value"])


def source(key: str) -> str:
    """Return where a threshold comes from."""
    return str(wording()["thresholds"][key]["source"])


def say(section: str, key: str, **values: str) -> str:
    """Return the sentence `key` of `section` with its values filled in."""
    return str(wording()[section][key]).format(**values)
