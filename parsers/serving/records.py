"""Reads what serving targets record: engines, requests, steps, phases, telemetry, totals.

The file is that of parsers.bench_records, one JSON object a line; a line of kind `case` is a point.
Each other kind is a row of a table of tables.yaml, with the fields of the record as its columns.
What cannot be read is left out and told.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from nsight_prof.parsers.bench.records import (
    SERVING,
    CaseRecord,
    Malformed,
    left_out,
    no_json,
    parse_case,
)
from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.directory import plain_file
from nsight_prof.parsers.tables import Column, check, empty, tables

AS_JSON = ("token_times_s", "capture_sizes", "args", "model_config")
"""Columns of text that hold a list or an object of the record as JSON."""
OF_FILE = ("source", "process")
DERIVED = ("ttft_s", "tpot_s", "e2e_s")
# json.loads and json.dumps make one of these for each call that asks for something unusual.
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True)
class PointRecord:
    """One point as one process measured it: `case` with the step and the file it comes from."""

    source: str
    process: int
    case: CaseRecord

    @property
    def traced(self) -> bool | None:
        """Whether a profiler ran meanwhile; None where the target does not tell."""
        traced = self.case.params.get("traced")
        return traced if isinstance(traced, bool) else None


@dataclass(frozen=True)
class ServingRecords:
    """Records of one or more files: the points, and the rows of each table by its name."""

    points: tuple[PointRecord, ...] = ()
    rows: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def of(self, table: str) -> tuple[Row, ...]:
        """Return the rows of a table, none where nothing was recorded for it."""
        return self.rows.get(table, ())

    @property
    def found(self) -> bool:
        """Whether there is any record of a serving target besides points."""
        return any(self.rows.values())

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return the tables of records; those without a record are empty."""
        return {
            table: check(pd.DataFrame(self.of(table), columns=_names(table)), table)
            if self.of(table)
            else empty(table)
            for table in SERVING.values()
        }


def has_serving(path: Path) -> bool:
    """Return whether a file may hold a record besides points; no case is parsed.

    Raises as `read_serving`.
    """
    text = _text(path)
    return any(f'"{kind}"' in text for kind in SERVING)


def _text(path: Path) -> str:
    try:
        with plain_file(path) as unpacked:
            return unpacked.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ArtifactUnreadable(
            f"{path} cannot be read: {error}", "correct its permissions, or measure again"
        ) from error


def read_serving(path: Path, source: str, process: int = 1) -> ServingRecords:
    """Read one file of records, .xz too, that step `source` wrote as its n-th (`process`).

    A line that cannot be used is left out with a problem that names it. `conditions` are skipped
    (parsers.bench_records reads them).

    Raises:
        ArtifactUnreadable: the file cannot be opened or unpacked.
    """
    lines = _text(path).split("\n")
    points: list[PointRecord] = []
    rows: dict[str, list[Row]] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = _DECODER.decode(line)
        except (ValueError, RecursionError):
            problems.append(no_json(path.name, number, number == len(lines)))
            continue
        try:
            kind = record.get("record") if isinstance(record, dict) else "(no JSON object)"
            if kind == "case":
                points.append(PointRecord(source, process, parse_case(_as_case(record))))
            elif isinstance(kind, str) and kind in SERVING:
                table = SERVING[kind]
                row = {"source": source, "process": process} | _row(record, table)
                rows.setdefault(table, []).append(row)
            elif kind != "conditions":
                raise Malformed(f"records of kind {kind!r} are not known")
        except Malformed as error:
            problems.append(left_out(path.name, number, error))
    records = {table: tuple(found) for table, found in rows.items()}
    return ServingRecords(tuple(points), records, tuple(problems))


def join_serving(files: Iterable[ServingRecords]) -> ServingRecords:
    """Return the records of several files as one."""
    files = list(files)
    rows = {t: tuple(row for file in files for row in file.of(t)) for t in SERVING.values()}
    return ServingRecords(
        tuple(point for file in files for point in file.points),
        rows,
        tuple(problem for file in files for problem in file.problems),
    )


def _names(table: str) -> list[str]:
    return [column.name for column in tables()[table]]


def _as_case(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a point with what a benchmark's case must have and a profiled target may leave out."""
    usual = {"mode": "hot", "data": "normal", "process": 1, "repeat": 1, "schema": 1}
    return usual | dict(record)


def _row(record: Mapping[str, Any], table: str) -> Row:
    """Return the fields of a record by column; unknown ones are None.

    Raises:
        Malformed: a field is of another type than its column.
    """
    row: Row = {column.name: _cell(record.get(column.name), column) for column in _columns(table)}
    if table == "requests":
        row |= request_times(row)
    return row


@cache
def _columns(table: str) -> tuple[Column, ...]:
    """Return the columns of a table that are fields of its records."""
    return tuple(c for c in tables()[table] if c.name not in (*OF_FILE, *DERIVED))


def request_times(row: Mapping[str, Any]) -> Row:
    """Return time to first token, time per output token and latency of a request, in seconds.

    TPOT is (finish - first token) / (output tokens - 1), as vLLM's own benchmark has it; NaN for
    requests without a first token, without an end, or of one token.
    """
    arrival, first, end = (
        math.nan if row.get(name) is None else float(row[name])
        for name in ("arrival_s", "first_token_s", "finish_s")
    )
    tokens = row.get("output_tokens")
    between = tokens - 1 if tokens else 0
    return {
        "ttft_s": first - arrival,
        "tpot_s": (end - first) / between if between > 0 else math.nan,
        "e2e_s": end - arrival,
    }


def _cell(value: Any, column: Column) -> Any:
    if value is None:
        return None
    if column.name in AS_JSON:
        return _ENCODER.encode(value)
    if column.dtype == "string":
        return _words(value, column.name)
    if column.dtype == "bool":
        if not isinstance(value, bool):
            raise Malformed(f"{column.name} is no truth value")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"{column.name} is no number")
    if not math.isfinite(value):
        return None
    if column.dtype == "int":
        if value != int(value) or abs(value) >= 2**63:
            raise Malformed(f"{column.name} is no whole number")
        return int(value)
    return float(value)


def _words(value: Any, name: str) -> str:
    """Return text, a number as text, or a list of them joined by commas."""
    if isinstance(value, str):
        return value
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) and item is not True for item in values):
        raise Malformed(f"{name} is no text")
    return ", ".join(str(item) for item in values)
