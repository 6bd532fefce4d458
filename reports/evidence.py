"""The wording and thresholds behind findings, and evidence that is given as strings."""

from __future__ import annotations

from functools import cache
from typing import Any

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.reports import page
from nsight_prof.reports.findings.model import verbatim
from nsight_prof.reports.page import Number, Ref


class Evidence(page.Evidence):
    """A row of evidence given as strings, of producers that do not make texts yet.

    `where` names the columns that the number is read or worked out from: keys of
    parsers/metrics.yaml (whose counters they name, such as "dram_pct"), or "table.column" of a
    table of the run (such as "kernels.duration_ns").
    """

    value: Number

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
            Number(value, unit or "count" * float(value).is_integer(), tuple(map(_ref, where))),
            verbatim(threshold) if threshold else None,
            verbatim(source) if source else None,
        )


def _ref(name: str) -> Ref:
    table, _, column = name.rpartition(".")
    return Ref(table or "counters", "", column)


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
