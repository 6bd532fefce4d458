"""Turns the labels of ncu's details page into metric names where they are known."""

from __future__ import annotations

import re
from functools import cache

from nsight_prof.parsers.packaged import packaged_yaml

# A metric name has no space; --print-metric-name label-name prints "Duration (gpu__time_…)".
_LABEL_AND_NAME = re.compile(r"^.+ \((?P<name>[a-z][a-z0-9]*__[^\s()]+)\)$", re.IGNORECASE)


def metric_name(section: str, item: str, label: str) -> str:
    """Return the metric that `label` stands for in a section, or in a body item of it.

    A label that is a metric name stays; an unknown one gets its section in front, so that equal
    labels of two sections never fall together: "Launch Statistics/Barriers".
    """
    label = label.removesuffix("(!)").strip()
    if both := _LABEL_AND_NAME.match(label):
        return both["name"]
    if " " not in label and "__" in label:
        return label
    where = "/".join(word for word in (section, item) if word)
    return _labels().get(where, {}).get(label) or "/".join(p for p in (where, label) if p)


@cache
def _labels() -> dict[str, dict[str, str]]:
    labels: dict[str, dict[str, str]] = packaged_yaml("nsight_prof.parsers.ncu", "labels.yaml")
    return labels
