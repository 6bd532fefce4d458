"""Names of the roofs that an engine is held to, as sentences take them."""

from __future__ import annotations

from nsight_prof.reports.page.values import Text, Value, Verbatim

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
