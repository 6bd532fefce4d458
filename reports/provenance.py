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
    """One number of ours: `origin` is the formula over `inputs`, tool metrics and columns."""

    column: str
    label: str
    value: float | None
    text: str
    unit: str
    origin: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class RawCounter:
    """One counter in full precision and base units; `text` for what is not a number."""

    metric: str
    value: float | None
    text: str
    unit: str


@dataclass(frozen=True)
class Provenance:
    """Where the numbers of a kernel come from: its launch, our numbers, the tool's counters.

    `used` are the counters that our numbers were made from; `raw` are all of the launch.
    """

    launch: int | None
    traced: tuple[Traced, ...]
    used: tuple[RawCounter, ...]
    raw: tuple[RawCounter, ...]


def provenance(run: Run) -> dict[str, Provenance]:
    """Return the provenance of each profiled kernel, by kernel id."""
    by_kernel = {str(key): records(rows) for key, rows in _chosen(run).groupby("kernel_id")}
    return {
        text(row["kernel_id"]): _provenance(row, by_kernel.get(text(row["kernel_id"]), []))
        for row in records(run.counters)
    }


def _provenance(row: Row, metrics: list[Row]) -> Provenance:
    raw = tuple(_raw(metric) for metric in sorted(metrics, key=lambda m: text(m["metric"])))
    traced = tuple(_traced(row, {counter.metric for counter in raw}))
    used = {name for number in traced for name in number.inputs}
    launch = known(row["launch"])
    return Provenance(
        None if launch is None else int(launch),
        traced,
        tuple(counter for counter in raw if counter.metric in used),
        raw,
    )


def _chosen(run: Run) -> pd.DataFrame:
    """Return the metrics of the launches that `counters` shows."""
    chosen = run.joins[run.joins["chosen"].fillna(False)]["profile"]
    return run.metrics[run.metrics["profile"].isin(chosen)]


def _traced(row: Row, metrics: set[str]) -> Iterable[Traced]:
    for column in catalogue().columns.values():
        value = row.get(column.name)
        if column.helper or value is None or (known(value) is None and not text(value)):
            continue
        number = known(value)
        words = "" if number is not None else text(value)
        source = _source(column, metrics)
        inputs = _inputs(source, metrics) if source else ()
        origin = _origin(source, inputs) if source and inputs else ""
        yield Traced(column.name, column.label, number, words, column.unit, origin, inputs)


def _source(column: MetricColumn, metrics: set[str]) -> Source | None:
    """Return the source that was used: the first whose tool metrics the capture has."""
    columns = catalogue().columns
    fits = metrics.union(columns, TENSOR_INPUTS)
    return next((source for source in column.sources if fits.issuperset(source.of)), None)


def _inputs(source: Source, metrics: set[str]) -> tuple[str, ...]:
    """Return the names of a source, with the Tensor counters that the capture has."""
    counted = sorted(m for m in metrics if m.startswith(TENSOR_PREFIX) and ".sum" in m)
    peaks = [m for m in counted if "peak" in m]
    found: dict[str, None] = {}
    for name in source.of:
        if name in TENSOR_INPUTS:
            wanted = peaks if name.endswith("peak") else [m for m in counted if m not in peaks]
            found.update(dict.fromkeys(wanted))
        else:
            found[name] = None
    return tuple(found)


def _origin(source: Source, inputs: tuple[str, ...]) -> str:
    listed = ", ".join(inputs)
    return listed if source.formula == "same" else f"{source.formula}({listed})"


def _raw(row: Row) -> RawCounter:
    words = text(row["text"])
    return RawCounter(text(row["metric"]), known(row["value"]), words, text(row["unit"]))
