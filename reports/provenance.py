"""Traces each number of a kernel to the counters that it was made from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from parsers.metrics import TENSOR_INPUTS, TENSOR_PREFIX, MetricColumn, Source, catalogue
from reports.cells import Row, records, text
from reports.formats import known
from reports.load import Run


@dataclass(frozen=True)
class Traced:
    """One number of ours: `origin` is the formula over tool metrics and columns."""

    column: str
    label: str
    value: float | None
    text: str
    unit: str
    origin: str


@dataclass(frozen=True)
class RawCounter:
    """One counter in full precision and base units; `text` for what is not a number."""

    metric: str
    value: float | None
    text: str
    unit: str


@dataclass(frozen=True)
class Provenance:
    """Where the counters of a kernel come from: the launch, our numbers, the tool's counters."""

    launch: int | None
    traced: tuple[Traced, ...]
    raw: tuple[RawCounter, ...]


def provenance(run: Run) -> dict[str, Provenance]:
    """Return the provenance of each profiled kernel, by kernel id."""
    raw = _chosen(run)
    by_kernel = {str(key): frame for key, frame in raw.groupby("kernel_id")}
    found = {}
    for row in records(run.counters):
        key = text(row["kernel_id"])
        mine = records(by_kernel[key]) if key in by_kernel else []
        launch = known(row["launch"])
        found[key] = Provenance(
            None if launch is None else int(launch),
            tuple(_traced(row, {text(r["metric"]) for r in mine})),
            tuple(_raw(r) for r in sorted(mine, key=lambda r: text(r["metric"]))),
        )
    return found


def _chosen(run: Run) -> pd.DataFrame:
    """Return the metrics of the launches that `counters` shows."""
    chosen = run.joins[run.joins["chosen"].fillna(False)]["profile"]
    return run.metrics[run.metrics["profile"].isin(chosen)]


def _traced(row: Row, metrics: set[str]) -> Iterable[Traced]:
    for column in catalogue().columns.values():
        value = row.get(column.name)
        if column.helper or value is None or (known(value) is None and not text(value)):
            continue
        origin = _origin(column, metrics)
        number = known(value)
        words = "" if number is not None else text(value)
        yield Traced(column.name, column.label, number, words, column.unit, origin)


def _origin(column: MetricColumn, metrics: set[str]) -> str:
    """Say the source that was used: the first whose tool metrics the capture has."""
    sources = [source for source in column.sources if _available(source, metrics)]
    if not sources:
        return ""
    names = [word for name in sources[0].of for word in _words(name, metrics)]
    listed = ", ".join(dict.fromkeys(names))
    return listed if sources[0].formula == "same" else f"{sources[0].formula}({listed})"


def _available(source: Source, metrics: set[str]) -> bool:
    columns = catalogue().columns
    return all(n in metrics or n in columns or n in TENSOR_INPUTS for n in source.of)


def _words(name: str, metrics: set[str]) -> list[str]:
    if name not in TENSOR_INPUTS:
        return [name]
    counted = sorted(m for m in metrics if m.startswith(TENSOR_PREFIX))
    peaks = [m for m in counted if "peak" in m]
    return peaks if name.endswith("peak") else [m for m in counted if "peak" not in m]


def _raw(row: Row) -> RawCounter:
    words = text(row["text"])
    return RawCounter(text(row["metric"]), known(row["value"]), words, text(row["unit"]))
