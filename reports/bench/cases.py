"""Cases of table `bench` as plain rows, and the words that all sections use for them."""

from __future__ import annotations

import json
import math
from typing import Any

from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.reports.formats import NA, byte_rate, flop_rate, significant
from nsight_prof.reports.load import Run

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
    "memcpy": "copy by cudaMemcpy",
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
    words = []
    if shown.keys() >= {"m", "n", "k"}:
        words.append(" x ".join(str(shown.pop(key)) for key in ("m", "n", "k")))
    words += [f"{_words(key)} {_plain(key, value)}".strip() for key, value in shown.items()]
    return ", ".join(words)


_NO_SHAPE = ("passes", "iterations", "buffer", "stride_words", "past_l1", "memory", "samples_are")


def _words(key: str) -> str:
    return key.removesuffix("_bytes").removesuffix("bytes").replace("_", " ").replace(" sm", " SM")


def _plain(key: str, value: Any) -> str:
    if "bytes" in key.split("_") and not isinstance(value, str):
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


DIGITS = 4
"""Of measured roofs: they repeat within 0.1 %, which three digits would hide."""
_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def value_text(value: Any, unit: str, digits: int = DIGITS) -> str:
    """Return a value with its unit and as many digits as a roof deserves: "4.622 TB/s"."""
    if known(value) is None:
        return NA
    step, name = _scale(abs(number(value)), unit)
    return f"{significant(number(value) / step, digits)} {name}".rstrip()


def interval_text(low: Any, high: Any, unit: str, digits: int = DIGITS) -> str:
    """Return "4.615 to 4.627 TB/s"; "n/a" where an end is unknown."""
    if known(low) is None or known(high) is None:
        return NA
    step, name = _scale(max(abs(number(low)), abs(number(high))), unit)
    ends = [significant(number(end) / step, digits) for end in (low, high)]
    return f"{' to '.join(ends)} {name}".rstrip()


def _scale(size: float, unit: str) -> tuple[float, str]:
    """Return what to divide by, and the unit with its prefix."""
    if unit == "s":
        return next((s for s in _TIME if size >= s[0] * 0.99995), _TIME[-1])
    if unit in ("B/s", "FLOP/s", "B", "FLOP", "Hz"):
        step, prefix = next((s for s in _SI if size >= s[0] * 0.99995), _SI[-1])
        return step, f"{prefix}{unit}"
    return 1.0, unit


def rate_text(row: Row) -> str:
    """Return what a case reached: FLOP/s, or B/s where it has no FLOPs; "n/a" without both."""
    if known(row["flop_per_s"]) is not None:
        return flop_rate(row["flop_per_s"])
    return byte_rate(row["bytes_per_s"])


def ratio(part: Any, whole: Any) -> float:
    """Return part over whole; NaN where one is unknown or the whole is not above 0."""
    a, b = number(part), number(whole)
    return a / b if b > 0 and not math.isnan(a) else math.nan
