"""Reads static_compute.json: FLOPs and bytes of stages, modules and operators, as counted."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.directory import plain_file

FILE = "static_compute.json"
COUNTS = ("calls", "flops", "weight_bytes", "kv_bytes")


@dataclass(frozen=True)
class StaticCompute:
    """Rows of the tables `stage_work`, `module_work` and `operator_work` of a step."""

    stages: list[Row]
    modules: list[Row]
    operators: list[Row]


def read_static_compute(path: Path, source: str) -> StaticCompute:
    """Return what a step has counted.

    Raises:
        ArtifactUnreadable: the file cannot be read or holds something else.
    """
    try:
        with plain_file(path) as readable:
            found = json.loads(readable.read_text(encoding="utf-8"))
        return StaticCompute(
            list(_stages(found, source)),
            [{"source": source, **_module(row)} for row in found.get("modules") or ()],
            [{"source": source, **_operator(row)} for row in found.get("operators") or ()],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactUnreadable(
            f"{path} cannot be read: {type(error).__name__}: {error}",
            "the target's own file (targets/static_compute.py): run the step again",
        ) from error


def _stages(found: Mapping[str, Any], source: str) -> Iterator[Row]:
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
            "stored_bytes": _count_if_given(stage, "stored_bytes"),
            "parameters": _count(found["parameters"]),
        }


def _module(row: Mapping[str, Any]) -> Row:
    return {
        "module": str(row["module"]),
        "kind": str(row["kind"]),
        "parameters": _count(row["parameters"]),
        "flops": _count(row["flops"]),
        "activation_bytes": _count_if_given(row, "activation_bytes"),
    }


def _operator(row: Mapping[str, Any]) -> Row:
    return {
        "stage": str(row["stage"]),
        "operator": str(row["operator"]),
        "flops": _count(row["flops"]),
    }


def _count_if_given(row: Mapping[str, Any], key: str) -> int | None:
    return _count(row[key]) if key in row else None


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is no count")
    return value
