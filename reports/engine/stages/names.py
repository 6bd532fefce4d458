"""Names of kinds of steps and of roofs as sentences take them."""

from __future__ import annotations

from nsight_prof.reports.page import Text, Value, Verbatim

KIND_NAMES = {"prefill": Text("prefill"), "mixed": Text("mixed"), "decode": Text("decode")}
"""Kinds of steps that compute something, in the order of a report."""
ROOF_NAMES = {
    "measured steady roof": Text("measured steady roof"),
    "measured burst roof": Text("measured burst roof"),
    "measured DRAM read roof": Text("measured DRAM read roof"),
    "datasheet peak": Text("datasheet peak"),
    "datasheet bandwidth": Text("datasheet bandwidth"),
}


def kind_name(kind: str) -> Value:
    """Return the name of a kind of steps, or of a stage that the user named."""
    return KIND_NAMES.get(kind) or Verbatim(kind)


def roof_name(name: str) -> Value:
    """Return the name of a roof."""
    return ROOF_NAMES.get(name) or Verbatim(name)
