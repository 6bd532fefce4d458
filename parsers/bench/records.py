"""Reads the records of a benchmark target: JSON lines, as bench.schema.json describes them.

A process that was killed leaves a line that is cut; a newer target may write what nobody here
knows. Such lines are left out and told (`problems`); what can be read is used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nsight_prof.parsers.bench.stats import known_median
from nsight_prof.parsers.errors import ArtifactUnreadable, SchemaTooNew
from nsight_prof.parsers.run.directory import plain_file
from nsight_prof.parsers.run.sentences import stored

SCHEMA = 1
MEASURED, COUNTED = "ok", "counted"
STATUSES = (MEASURED, COUNTED, "unsupported", "out-of-memory", "failed")
SERVING = {
    "engine": "engines",
    "request": "requests",
    "step": "host_steps",
    "host_loop": "host_loops",
    "phase": "phases",
    "telemetry": "telemetry",
    "engine_stats": "engine_stats",
    "vllm_totals": "vllm_totals",
}
"""Kinds of records of serving targets, which parsers.serving_records reads, and their tables."""
ARITHMETIC = ("fp64", "fp32", "fp16")
"""Pipes that work in one dtype, which their name tells."""

T = TypeVar("T")


@dataclass(frozen=True)
class RoofKey:
    """The roof that a case is a candidate for; `dtype` is empty for memory levels and the host."""

    level_or_pipe: str
    dtype: str
    kind: str

    def __str__(self) -> str:
        dtype = "" if self.dtype == self.level_or_pipe else self.dtype
        return " ".join(word for word in (self.level_or_pipe, dtype, self.kind) if word)


def roof_key(text: str) -> RoofKey | None:
    """Return the roof that `bench.roof` names ("dram read", "tensor bf16 burst"), None for none."""
    words = text.split()
    if len(words) not in (2, 3):
        return None
    dtype = words[0] if words[0] in ARITHMETIC else ""
    return RoofKey(words[0], words[1] if len(words) == 3 else dtype, words[-1])


@dataclass(frozen=True)
class Timing:
    """Seconds of one call in one process: `samples` in the order they were taken."""

    samples: np.ndarray[Any, np.dtype[np.float64]]
    ci_low_s: float
    ci_high_s: float
    outliers: int
    relative_std: float
    captured: bool
    copies: int
    stop: str = ""

    @cached_property
    def median_s(self) -> float:
        """Median of the samples."""
        return known_median(self.samples)


@dataclass(frozen=True)
class CaseRecord:
    """One case in one process. Unknown numbers are NaN, unknown counts None."""

    target: str
    name: str
    mode: str
    data: str
    process: int
    repeat: int
    status: str
    reason: str
    operation: str
    params: Mapping[str, Any]
    dtype: str
    level: str
    launch: str
    duration: str
    roof: RoofKey | None
    flops: float
    bytes: float
    accesses: int | None
    launches: int | None
    time: Timing | None
    clock_hz: float
    throttled_samples: int | None
    throttle_reasons: tuple[str, ...]
    energy_j: float
    power_w: float
    temperature_c: float
    allocated_bytes: float
    reserved_bytes: float

    @property
    def case_id(self) -> str:
        """Key of the case: name|mode|data."""
        return f"{self.name}|{self.mode}|{self.data}"


@dataclass(frozen=True)
class BenchRecords:
    """Records of one or more files; `problems` are sentences about what could not be read."""

    conditions: tuple[Mapping[str, Any], ...] = ()
    cases: tuple[CaseRecord, ...] = ()
    problems: tuple[str, ...] = ()


def read_records(path: Path) -> BenchRecords:
    """Read one file of records, .xz too.

    A line that cannot be used is left out with a problem that names it: one cut at the end of the
    file (the process was killed), damaged JSON, a record of an unknown kind, a field that is
    missing or of the wrong type, the second record of a case.

    Raises:
        ArtifactUnreadable: the file cannot be opened or unpacked, or holds no record at all.
        SchemaTooNew: a newer version of the format.
    """
    try:
        with plain_file(path) as unpacked:
            text = unpacked.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ArtifactUnreadable(
            f"{path} cannot be read: {error}", "correct its permissions, or measure again"
        ) from error
    reader = _Reader(path.name)
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            reader.line(number, line, last=number == len(lines))
    if not reader.conditions and not reader.cases and reader.problems:
        raise ArtifactUnreadable(
            f"{path} holds no record of a benchmark: {reader.problems[0]}",
            "name a file that a target wrote with --out; docs/bench-records.md in prof's "
            "repository describes it",
        )
    return reader.finish()


def join_records(files: Iterable[BenchRecords]) -> BenchRecords:
    """Return the records of several files as one."""
    files = list(files)
    return BenchRecords(
        tuple(item for file in files for item in file.conditions),
        tuple(item for file in files for item in file.cases),
        tuple(item for file in files for item in file.problems),
    )


class Malformed(Exception):
    """A field that is missing or wrong; the text names it."""


def no_json(file: str, number: int, last: bool) -> str:
    """Say that a line of a file of records cannot be read; `last`: it is the last one."""
    if last:
        return stored(
            "{file}: line {number} is cut: the process was killed while it wrote",
            file=file,
            number=number,
        )
    return stored("{file}: line {number} is no JSON", file=file, number=number)


def left_out(file: str, number: int, error: Malformed) -> str:
    """Say that a line of a file of records holds something else, and what."""
    return stored(
        "{file}: line {number} is left out: {error}", file=file, number=number, error=error
    )


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.conditions: list[Mapping[str, Any]] = []
        self.cases: dict[tuple[str, int, int], CaseRecord] = {}
        self.problems: list[str] = []

    def line(self, number: int, line: str, last: bool) -> None:
        try:
            record = json.loads(line, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            self.problems.append(no_json(self.name, number, last))
            return
        try:
            self._record(record)
        except Malformed as error:
            self.problems.append(left_out(self.name, number, error))

    def _record(self, record: Any) -> None:
        if not isinstance(record, dict):
            raise Malformed("it is no JSON object")
        kind = record.get("record")
        if isinstance(kind, str) and kind in SERVING:
            return
        version = _of(record, "schema", int)
        if version > SCHEMA:
            raise SchemaTooNew(
                f"{self.name} has records of schema {version}; this prof understands up to "
                f"{SCHEMA}",
                "upgrade prof, or render the report with the version that made the run",
            )
        if kind == "conditions":
            self.conditions.append(_conditions(record))
        elif kind == "case":
            self._case(parse_case(record))
        else:
            raise Malformed(f"records of kind {kind!r} are not known")

    def _case(self, case: CaseRecord) -> None:
        key = (case.case_id, case.repeat, case.process)
        if key in self.cases:
            raise Malformed(f"a second record of {case.case_id}")
        self.cases[key] = case

    def finish(self) -> BenchRecords:
        if not self.conditions:
            words = stored("{file} has no conditions", file=self.name)
            if not self.cases:
                words = stored(
                    "{file} has no records: the process ended before any", file=self.name
                )
            self.problems.append(words)
        return BenchRecords(
            tuple(self.conditions), tuple(self.cases.values()), tuple(self.problems)
        )


def _conditions(record: dict[str, Any]) -> Mapping[str, Any]:
    for key in ("process", "repeat"):
        _of(record, key, int)
    for key in ("gpu", "software"):
        record[key] = _mapping(record, key)
    return record


def parse_case(record: Mapping[str, Any]) -> CaseRecord:
    """Return one parsed record of kind `case`."""
    status = _of(record, "status", str)
    if status not in STATUSES:
        raise Malformed(f"status {status!r} is not known")
    timing = _timing(_mapping(record, "time")) if status == MEASURED else None
    work, throttle = _mapping(record, "work"), _mapping(record, "throttle")
    memory = _mapping(record, "memory")
    marked = throttle.get("known") is True
    return CaseRecord(
        target=_text(record, "target"),
        name=_of(record, "case", str),
        mode=_of(record, "mode", str),
        data=_of(record, "data", str),
        process=_of(record, "process", int),
        repeat=_of(record, "repeat", int),
        status=status,
        reason=_text(record, "reason"),
        operation=_text(record, "operation"),
        params=_mapping(record, "params"),
        dtype=_text(record, "dtype"),
        level=_text(record, "level"),
        launch=_text(record, "launch"),
        duration=_text(record, "duration"),
        roof=_roof(_mapping(record, "roof")),
        flops=_number(work, "flops"),
        bytes=_number(work, "bytes"),
        accesses=_count(work, "accesses"),
        launches=_count(work, "launches"),
        time=timing,
        clock_hz=_number(_mapping(record, "clock"), "sm_hz_median"),
        throttled_samples=_count(throttle, "samples") if marked else None,
        throttle_reasons=tuple(map(str, _list(throttle, "reasons"))),
        energy_j=_number(record, "energy_j"),
        power_w=_number(record, "power_w"),
        temperature_c=_number(record, "temperature_c"),
        allocated_bytes=_number(memory, "allocated_peak_bytes"),
        reserved_bytes=_number(memory, "reserved_peak_bytes"),
    )


def _timing(time: Mapping[str, Any]) -> Timing:
    values = _list(time, "samples_s")
    if not values or not all(_is_number(v) and 0 < v < math.inf for v in values):
        raise Malformed("time.samples_s must be seconds above 0")
    return Timing(
        samples=np.array(values, dtype=np.float64),
        ci_low_s=_number(time, "ci_low_s"),
        ci_high_s=_number(time, "ci_high_s"),
        outliers=_count(time, "outliers") or 0,
        relative_std=_number(time, "relative_std"),
        captured=time.get("captured") is True,
        copies=_count(time, "copies") or 1,
        stop=_text(time, "stop"),
    )


def _roof(roof: Mapping[str, Any]) -> RoofKey | None:
    if not roof:
        return None
    level, dtype = _of(roof, "level_or_pipe", str), _text(roof, "dtype")
    if not dtype and level in ARITHMETIC:
        dtype = level
    return RoofKey(level, dtype, _of(roof, "kind", str))


def _of(record: Mapping[str, Any], key: str, kind: type[T]) -> T:
    value = record.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Malformed(f"{key} is {'missing' if value is None else 'of the wrong type'}")
    return value


def _text(record: Mapping[str, Any], key: str) -> str:
    return "" if record.get(key) is None else _of(record, key, str)


def _mapping(record: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {} if record.get(key) is None else _of(record, key, dict)


def _list(record: Mapping[str, Any], key: str) -> list[Any]:
    return [] if record.get(key) is None else _of(record, key, list)


def _number(record: Mapping[str, Any], key: str) -> float:
    value = record.get(key)
    if value is None:
        return math.nan
    if not _is_number(value):
        raise Malformed(f"{key} is no number")
    return float(value)


def _count(record: Mapping[str, Any], key: str) -> int | None:
    value = _number(record, key)
    return int(value) if math.isfinite(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
