"""Reads static_compute.json: FLOPs and bytes of each stage, as a target counted them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.directory import plain_file

FILE = "static_compute.json"
COUNTS = ("calls", "flops", "weight_bytes", "kv_bytes")


def read_static_compute(path: Path, source: str) -> list[Row]:
    """Return the rows of table `stage_work` that a step has counted.

    Raises:
        ArtifactUnreadable: the file cannot be read or holds something else.
    """
    try:
        with plain_file(path) as readable:
            return list(_rows(json.loads(readable.read_text(encoding="utf-8")), source))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactUnreadable(
            f"{path} cannot be read: {type(error).__name__}: {error}",
            "the target's own file (targets/static_compute.py): run the step again",
        ) from error


def _rows(found: Mapping[str, Any], source: str) -> Iterator[Row]:
    runs = found.get("stages_s") or []
    for stage in found["stages"]:
        name = str(stage["stage"])
        seconds = [float(run[name]) for run in runs if name in run]
        yield {
            "source": source,
            "stage": name,
            **{key: _count(stage[key]) for key in COUNTS},
            "seconds": statistics.median(seconds) if seconds else math.nan,
            "model": str(found.get("model", "")),
            "dtype": str(found.get("dtype", "")),
            "quantization": str(found.get("quantization", "")),
            "stored_bytes": _count(stage["stored_bytes"]) if "stored_bytes" in stage else None,
            "parameters": _count(found["parameters"]),
        }


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is no count")
    return value
