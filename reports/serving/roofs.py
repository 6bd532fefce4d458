"""Names of the roofs that an engine is held to, as sentences take them."""

from __future__ import annotations

from nsight_prof.parsers.build.peaks import Peak
from nsight_prof.reports.page.values import Number, Text, Value, Verbatim

ROOF_NAMES = {
    "measured steady roof": Text("measured steady roof"),
    "measured burst roof": Text("measured burst roof"),
    "measured DRAM read roof": Text("measured DRAM read roof"),
    "datasheet peak": Text("datasheet peak"),
    "datasheet bandwidth": Text("datasheet bandwidth"),
}


def roof_name(name: str) -> Value:
    """Return the name of a roof."""
    return ROOF_NAMES.get(name) or Verbatim(name)


def roof_at(peak: Peak, unit: str) -> Text:
    """Return the name of a roof with its value, and of arithmetic with its SM clock."""
    roof, value = roof_name(peak.name), Number(peak.value, unit, digits=3)
    if peak.clock_hz is None or unit == "B/s":
        return Text("{roof} ({value})", roof=roof, value=value)
    clock = Number(peak.clock_hz, "Hz", digits=3)
    return Text("{roof} ({value} at {clock})", roof=roof, value=value, clock=clock)
