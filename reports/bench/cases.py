"""Cases of table `bench` as plain rows, and the words that all sections use for them."""

from __future__ import annotations

import json
import math
from typing import Any

from reports.cells import Row, known, number, records, text
from reports.formats import NA, byte_rate, flop_rate, quantity, seconds, significant
from reports.load import Run

LEVELS = {"dram": "DRAM", "l2": "L2", "l1": "L1", "shared": "Shared memory", "host": "Host"}
KINDS = {
    "h2d-pinned": "host to device, pinned",
    "h2d-pageable": "host to device, pageable",
    "d2h-pinned": "device to host, pinned",
    "d2h-pageable": "device to host, pageable",
    "d2d-copy": "copy on the device",
    "launch": "kernel launch",
    "launch-graph": "kernel launch in a CUDA graph",
    "fma": "multiply-add",
}
MEASURED = "ok"


def cases(run: Run, target: str) -> list[Row]:
    """Return the rows of `target`; `params` is a dict, unknown numbers stay as pandas has them."""
    rows = records(run.bench[run.bench["target"] == target])
    for row in rows:
        row["params"] = params_of(row)
    return rows


def params_of(row: Row) -> dict[str, Any]:
    """Return the parameters of a case; none where the text is not a JSON object."""
    words = row["params"] if isinstance(row["params"], str) else "{}"
    try:
        found = json.loads(words or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def measured(rows: list[Row]) -> list[Row]:
    """Return the rows that have a time."""
    return [row for row in rows if text(row["status"]) == MEASURED and number(row["median_s"]) > 0]


def roof_name(level_or_pipe: str, dtype: str, kind: str) -> str:
    """Return what a reader calls a roof: "DRAM read", "Tensor bf16, burst", "FP32 multiply-add"."""
    words = KINDS.get(kind, kind)
    if level_or_pipe == "tensor":
        return f"Tensor {dtype}, {words}".replace("  ", " ")
    if level_or_pipe == "host":
        return f"{words[:1].upper()}{words[1:]}"
    name = LEVELS.get(level_or_pipe, level_or_pipe.upper())
    return f"{name}, {words}" if words in ("burst", "steady") else f"{name} {words}".strip()


def shape_text(params: dict[str, Any]) -> str:
    """Return parameters in words: "block 256, unroll 4"; empty where there are none.

    How often a probe passes over its data is no choice of shape; a shape with a name is its name.
    """
    if params.get("shape"):
        return str(params["shape"])
    shown = {key: v for key, v in params.items() if v not in ("", None) and key not in _NO_SHAPE}
    return ", ".join(f"{_words(key)} {_plain(key, value)}" for key, value in shown.items())


_NO_SHAPE = ("passes", "iterations")


def _words(key: str) -> str:
    return key.removesuffix("_bytes").replace("_", " ")


def _plain(key: str, value: Any) -> str:
    if key.endswith("_bytes") and not isinstance(value, str):
        return binary_size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return significant(value)
    return str(value)


def binary_size(value: float) -> str:
    """Return bytes with a binary prefix, as sizes of caches and buffers are chosen: "48 MiB"."""
    for step, prefix in ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")):
        if value >= step:
            return f"{significant(value / step).removesuffix('.00').removesuffix('.0')} {prefix}"
    return f"{significant(value)} B"


def value_text(value: Any, unit: str) -> str:
    """Return a value in the way of its unit; seconds and cycles too."""
    if unit == "s":
        return seconds(value)
    return quantity(value, unit)


def interval_text(low: Any, high: Any, unit: str) -> str:
    """Return "4.61 to 4.63 TB/s"; "n/a" where an end is unknown."""
    if known(low) is None or known(high) is None:
        return NA
    first, last = value_text(low, unit), value_text(high, unit)
    # The unit stands once where both ends have the same.
    start, _, prefix = first.partition(" ")
    return f"{start} to {last}" if last.endswith(f" {prefix}") else f"{first} to {last}"


def rate_text(row: Row) -> str:
    """Return what a case reached: FLOP/s, or B/s where it has no FLOPs; "n/a" without both."""
    if known(row["flop_per_s"]) is not None:
        return flop_rate(row["flop_per_s"])
    return byte_rate(row["bytes_per_s"])


def ratio(part: Any, whole: Any) -> float:
    """Return part over whole; NaN where one is unknown or the whole is not above 0."""
    a, b = number(part), number(whole)
    return a / b if b > 0 and not math.isnan(a) else math.nan
