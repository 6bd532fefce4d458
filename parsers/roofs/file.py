"""roofs.json: measured roofs of one GPU, with the conditions they were measured under.

A run directory holds one where its report uses measured roofs: made by the run itself, or copied
from the cache of this machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd

from nsight_prof.parsers.errors import ArtifactUnreadable, ProfError, SchemaTooNew
from nsight_prof.parsers.run.sentences import Sentences, as_json, joined, keep, stored, valid
from nsight_prof.parsers.tables import check, tables
from nsight_prof.parsers.whole_file import write_atomic

FORMAT_VERSION = 1
ROOFS_FILE = "roofs.json"
GPU_KEYS = (
    "name",
    "uuid",
    "chip",
    "sm_count",
    "driver",
    "max_sm_clock_hz",
    "max_memory_clock_hz",
    "power_limit_w",
)
CLOCK_STEP_HZ, POWER_STEP_W = 1e6, 1.0
"""NVML tells clocks in MHz and limits in mW; a setting changed by less is none."""
VERDICT = r"^(?:not confirmed|confirmed|contradicted): "
"""What `reason` began with up to prof 0.1.0; column `accepted` holds it."""
REMEDY = "measure the roofs again: prof run roofline"


@dataclass(frozen=True)
class RoofsFile:
    """Measured roofs.

    `measured` is UTC in ISO 8601. `gpu` has the keys of GPU_KEYS; None is unknown. `conditions` is
    as the target recorded it. `roofs` is table `measured_roofs`. `given`: the user chose them for a
    run (`prof report RUN --roofs FILE`), so that another driver or clock is a caveat only.
    `sentences` are what reasons of `roofs` are made of (parsers.run.sentences).
    """

    measured: str
    run_id: str
    gpu: Mapping[str, Any]
    roofs: pd.DataFrame
    conditions: Mapping[str, Any] = field(default_factory=dict)
    given: bool = False
    sentences: Sentences = field(default_factory=dict)


class Fit(StrEnum):
    """How far a GPU is the one of a file: the very same, another of its kind, or neither."""

    EXACT = "exact"
    SAME_KIND = "same-kind"
    NO = "no"


@dataclass(frozen=True)
class Match:
    """Whether the roofs of a file hold for a GPU; `reason` is a clause, empty for EXACT."""

    fit: Fit
    reason: str = ""


def gpu_facts(gpu: Mapping[str, Any], driver: str | None = None) -> dict[str, Any]:
    """Return the facts that roofs are kept by, from a GPU of the manifest or of a record.

    The manifest says `sm_clock_max_hz` where a record says `max_sm_clock_hz`. `driver` is not part
    of either mapping. None is unknown.
    """
    same = {"max_sm_clock_hz": "sm_clock_max_hz", "max_memory_clock_hz": "memory_clock_max_hz"}
    facts = {key: _known(gpu.get(key, gpu.get(same.get(key, key)))) for key in GPU_KEYS}
    return facts | {"driver": driver or facts["driver"]}


def matches(file: RoofsFile, gpu: Mapping[str, Any]) -> Match:
    """Tell whether the roofs of `file` hold for `gpu` (as `gpu_facts` gives it).

    Another driver, maximum clock, power limit or number of SMs makes other roofs. A fact that one
    side does not know cannot be compared: the GPU is then of the same kind at best.
    """
    recorded = gpu_facts(file.gpu)
    present = gpu_facts(gpu)
    if present["name"] is None or recorded["name"] is None:
        return Match(Fit.NO, stored("the name of the GPU is not known"))
    different = [key for key in GPU_KEYS if key != "uuid" and _differs(key, recorded, present)]
    if different:
        words = joined(
            ", ",
            (
                stored(
                    "{fact} {recorded}, not {present}",
                    fact=_words(key),
                    recorded=recorded[key],
                    present=present[key],
                )
                for key in different
            ),
        )
        return Match(Fit.NO, stored("measured with {words}", words=words))
    compared = [key for key in GPU_KEYS if key not in ("chip", "sm_count")]
    unknown = [key for key in compared if recorded[key] is None or present[key] is None]
    reasons = []
    if recorded["uuid"] and present["uuid"] and recorded["uuid"] != present["uuid"]:
        reasons.append(
            stored(
                "measured on another {name} ({uuid})", name=recorded["name"], uuid=recorded["uuid"]
            )
        )
    if unknown:
        reasons.append(
            stored("{words} cannot be compared", words=joined(", ", map(_words, unknown)))
        )
    if reasons:
        return Match(Fit.SAME_KIND, joined("; ", reasons))
    return Match(Fit.EXACT)


def write_roofs(path: Path, file: RoofsFile) -> None:
    """Write `file` as JSON, atomically; what is unknown becomes null."""
    data = {
        "format_version": FORMAT_VERSION,
        "measured": file.measured,
        "run_id": file.run_id,
        "gpu": gpu_facts(file.gpu),
        "conditions": dict(file.conditions),
        "given": file.given,
        "sentences": as_json(file.sentences),
        "roofs": [_as_json(row) for row in file.roofs.to_dict("records")],
    }
    write_atomic(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def keep_roofs(path: Path, file: RoofsFile) -> None:
    """Write `file` where `path` does not hold the same measurement already.

    What was recorded does not change where a later version of prof reads the run again.
    """
    try:
        recorded = read_roofs(path)
    except ProfError:
        recorded = None
    if recorded is None or _measurement(recorded) != _measurement(file):
        write_roofs(path, file)


def _measurement(file: RoofsFile) -> tuple[str, str, str]:
    """Return what tells a measurement apart: run, time, how often each case ran, its counters."""
    counted = file.roofs[["case_id", "repeats", "processes", "samples", "reason"]]
    return file.run_id, file.measured, counted.to_csv(index=False)


def read_roofs(path: Path) -> RoofsFile:
    """Read a file that `write_roofs` wrote.

    Raises:
        ArtifactUnreadable: no such file, damaged, or not this format.
        SchemaTooNew: a newer version of prof wrote it.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(data, dict) or not isinstance(data.get("format_version"), int):
        raise _unreadable(path, "it has no format_version")
    if data["format_version"] > FORMAT_VERSION:
        raise SchemaTooNew(
            f"{path} has format version {data['format_version']}; this prof understands up to "
            f"{FORMAT_VERSION}",
            f"upgrade prof, or {REMEDY}",
        )
    for key, kind in (("measured", str), ("run_id", str), ("gpu", dict), ("roofs", list)):
        if not isinstance(data.get(key), kind):
            raise _unreadable(path, f"{key} is missing or of the wrong type")
    names = [column.name for column in tables()["measured_roofs"]]
    try:
        roofs = check(pd.DataFrame(data["roofs"], columns=names), "measured_roofs")
        reasons = roofs["reason"].fillna("").str.replace(VERDICT, "", regex=True)
        roofs = roofs.assign(dtype=roofs["dtype"].fillna(""), reason=reasons)
        sentences = valid(data.get("sentences", {}))
    except (ValueError, TypeError, AttributeError) as error:
        raise _unreadable(path, str(error)) from error
    keep(sentences)
    conditions = data.get("conditions")
    return RoofsFile(
        data["measured"],
        data["run_id"],
        gpu_facts(data["gpu"]),
        roofs,
        conditions if isinstance(conditions, dict) else {},
        data.get("given") is True,
        sentences,
    )


def _unreadable(path: Path, reason: str) -> ArtifactUnreadable:
    return ArtifactUnreadable(f"{path} is not a file of measured roofs: {reason}", REMEDY)


def _differs(key: str, recorded: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    a, b = recorded[key], present[key]
    if a is None or b is None:
        return False
    if key.endswith(("_hz", "_w")):
        return abs(float(a) - float(b)) >= (POWER_STEP_W if key[-1] == "w" else CLOCK_STEP_HZ)
    return str(a) != str(b)


def _words(key: str) -> str:
    known = {"uuid": "UUID", "sm_count": "SMs", "max_sm_clock_hz": stored("maximum SM clock (Hz)")}
    known |= {
        "max_memory_clock_hz": stored("maximum memory clock (Hz)"),
        "power_limit_w": stored("power limit (W)"),
    }
    return known.get(key, key)


def _known(value: Any) -> Any:
    """Return a plain value; None where it is unknown in any way."""
    if value is None or value == "" or pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value


def _as_json(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): _text_or_number(value) for key, value in row.items()}


def _text_or_number(value: Any) -> Any:
    if isinstance(value, str):
        return value
    value_ = _known(value)
    return None if isinstance(value_, float) and not math.isfinite(value_) else value_
