"""Turns a value in any unit word of ncu or nsys into base units (ns, B, Hz, B/s, %, cycle, …)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.packaged import packaged_yaml

NS_PER_SECOND = 1e9


@dataclass(frozen=True)
class Scale:
    """`value * factor` is in `unit`, a base unit."""

    factor: float
    unit: str


def to_base(value: float, unit: str, metric: str = "") -> tuple[float, str]:
    """Return `value` in base units and the base unit.

    Time is in ns, data in B, frequency in Hz; rates are per second. `metric` is named in the error.

    Raises:
        ArtifactUnreadable: the unit word is unknown; guessing its scale could be wrong by 10^9.
    """
    scale = scale_of(unit, metric)
    return value * scale.factor, scale.unit


def scale_of(unit: str, metric: str = "") -> Scale:
    """Return the scale of a unit word; see `to_base`."""
    scale = _lookup(unit.strip())
    if scale is None:
        of = f" of metric {metric}" if metric else ""
        raise ArtifactUnreadable(
            f"unknown unit {unit!r}{of}",
            "report the word and the tool's version; it belongs into parsers/units.yaml",
        )
    return scale


@cache
def _lookup(unit: str) -> Scale | None:
    words, exceptions = _tables()
    if unit in exceptions:
        return exceptions[unit]
    if "/" not in unit:
        return words.get(unit)
    above, below = (words.get(side) for side in unit.split("/", 1))
    if above is None or below is None or not below.unit:
        return None
    return _ratio(above, below)


def _ratio(above: Scale, below: Scale) -> Scale:
    factor = above.factor / below.factor
    if below.unit != "ns":
        return Scale(factor, f"{above.unit}/{below.unit}")
    factor *= NS_PER_SECOND
    return Scale(factor, "Hz" if above.unit == "cycle" else f"{above.unit}/s")


@cache
def _tables() -> tuple[dict[str, Scale], dict[str, Scale]]:
    data = packaged_yaml("nsight_prof.parsers", "units.yaml")
    words, exceptions = (
        {word: Scale(float(factor), unit) for word, (factor, unit) in data[key].items()}
        for key in ("words", "exceptions")
    )
    return words, exceptions
