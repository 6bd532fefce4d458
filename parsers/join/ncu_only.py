"""Makes of ncu's launches what is otherwise read from a trace: the kernels and the GPU."""

from __future__ import annotations

from collections.abc import Hashable

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import known, records, text
from nsight_prof.parsers.names.kernel_names import classify, kernel_id
from nsight_prof.parsers.ncu import NcuCapture

ARCHITECTURES = {
    **{0x14: "GV10", 0x16: "TU10", 0x17: "GA10", 0x18: "GH10", 0x19: "AD10"},
    **{0x1A: "GB10", 0x1B: "GB20"},
}
"""`device__attribute_chip` is the number of the chip: 0x172 is GA102 (an A6000), 0x140 GV100 (a
V100), as seen in reports of both."""
TURING_LOW_END = {0x167: "TU117", 0x168: "TU116"}
"""Chips whose names do not follow from their numbers (0x168: a GTX 1660 Ti)."""


def kernels_of(capture: NcuCapture) -> pd.DataFrame:
    """Return table `kernels` of the launches that ncu profiled; times and calls stay empty."""
    rows = {}
    for launch in records(capture.launches):
        name = text(launch["name"])
        grid, block = text(launch["grid"]), text(launch["block"])
        mangled = text(launch["mangled_name"]) or name
        key = kernel_id(mangled, grid, block)
        if key in rows:
            continue
        read = classify(name)
        rows[key] = {c.name: None for c in tables.tables()["kernels"]} | {
            "kernel_id": key,
            "name": name,
            "short_name": read.short_name,
            "mangled_name": mangled,
            "library": read.library,
            "category": read.category,
            "dtype": read.dtype,
            "tile": read.tile,
            "grid": grid,
            "block": block,
            "stage": "",
        }
    return tables.check(pd.DataFrame(rows.values(), columns=_columns("kernels")), "kernels")


def gpus_of(capture: NcuCapture) -> pd.DataFrame:
    """Return table `gpus` from the device attributes that ncu recorded; empty without them."""
    prefix = "device__attribute_"
    attributes = capture.metrics[capture.metrics["metric"].str.startswith(prefix)]
    if attributes.empty:
        return tables.empty("gpus")
    first = attributes[attributes["profile"] == attributes["profile"].min()]
    rows = {text(row["metric"]).removeprefix(prefix): row for row in records(first)}
    found = {name: known(row["value"]) for name, row in rows.items()}
    name = text(rows["display_name"]["text"]) if "display_name" in rows else ""
    facts: dict[Hashable, object] = {
        "device": 0,
        "name": name,
        "chip": chip_name(found.get("chip")),
        "compute_capability": _capability(found),
        "sm_count": found.get("multiprocessor_count"),
        "clock_hz": _times(found.get("clock_rate"), 1e3),
        "memory_bytes": None,
        "memory_bandwidth": _bandwidth(found),
        "l2_bytes": found.get("l2_cache_size"),
        "max_warps_per_sm": found.get("max_warps_per_multiprocessor"),
        "uuid": "",
    }
    return tables.check(pd.DataFrame([facts], columns=_columns("gpus")), "gpus")


def chip_name(number_of_chip: float | None) -> str:
    """Return "GA102" for 0x172; empty for a chip of an unknown architecture."""
    if number_of_chip is None:
        return ""
    if int(number_of_chip) in TURING_LOW_END:
        return TURING_LOW_END[int(number_of_chip)]
    family, member = divmod(int(number_of_chip), 16)
    return f"{ARCHITECTURES[family]}{member:X}" if family in ARCHITECTURES else ""


def _capability(found: dict[str, float | None]) -> str:
    major, minor = (found.get(f"compute_capability_{version}") for version in ("major", "minor"))
    return "" if major is None or minor is None else f"{major:.0f}.{minor:.0f}"


def _bandwidth(found: dict[str, float | None]) -> float | None:
    """Return B/s: memory clock (kHz) x 2 transfers x bus width (bits); 768 GB/s for an A6000.

    Both mislead of a GPU that shares the memory of its CPU (Jetson): None.
    """
    if found.get("integrated"):
        return None
    clock, width = found.get("memory_clock_rate"), found.get("fb_bus_width")
    return None if clock is None or width is None else clock * 1e3 * 2 * width / 8


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _columns(table: str) -> list[str]:
    return [column.name for column in tables.tables()[table]]
