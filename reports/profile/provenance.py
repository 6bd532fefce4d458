"""Traces each number of a kernel to the counters that it was made from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.cells import Row, records, text
from nsight_prof.parsers.metrics.catalogue import (
    TENSOR_INPUTS,
    TENSOR_PREFIX,
    Source,
    catalogue,
)
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Text
from nsight_prof.reports.page.formats import known

WIDE = 150
"""Characters from which on the names of counters are shortened where they differ in one word."""
LEAST_STALL = 0.02
"""Share from which on a stall reason is told."""


@dataclass(frozen=True)
class Traced:
    """One number of ours: `origin` is the formula over `inputs`, tool metrics and columns."""

    column: str
    label: str | Text
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

    `stalls` are the shares of the stall reasons, those of 2 % and more, the largest first.
    `used` are the counters that our numbers were made from; `raw` are all of the launch.
    """

    launch: int | None
    traced: tuple[Traced, ...]
    stalls: tuple[Traced, ...]
    used: tuple[RawCounter, ...]
    raw: tuple[RawCounter, ...]


def provenance(run: Run) -> dict[str, Provenance]:
    """Return the provenance of each profiled kernel, by kernel id."""
    by_kernel = {str(key): records(rows) for key, rows in _chosen(run).groupby("kernel_id")}
    waits = {str(key): records(rows) for key, rows in run.stalls.groupby("kernel_id")}
    return {
        key: _provenance(row, by_kernel.get(key, []), waits.get(key, []))
        for row in records(run.counters)
        for key in [text(row["kernel_id"])]
    }


def shown_columns(row: Row) -> frozenset[str]:
    """Return the columns of a row of `counters` that are known, and so are in its provenance."""
    columns = (c for c in catalogue().columns.values() if not c.helper)
    return frozenset(c.name for c in columns if _is_known(row.get(c.name)))


def _is_known(value: object) -> bool:
    return value is not None and (known(value) is not None or bool(text(value)))


def _provenance(row: Row, metrics: list[Row], waits: list[Row]) -> Provenance:
    raw = tuple(_raw(metric) for metric in sorted(metrics, key=lambda m: text(m["metric"])))
    there = {counter.metric for counter in raw}
    traced, stalls = tuple(_traced(row, there)), tuple(_stalls(waits, there))
    used = {name for number in (*traced, *stalls) for name in number.inputs}
    launch = known(row["launch"])
    return Provenance(
        None if launch is None else int(launch),
        traced,
        stalls,
        tuple(counter for counter in raw if counter.metric in used),
        raw,
    )


def _chosen(run: Run) -> pd.DataFrame:
    """Return the metrics of the launches that `counters` shows."""
    chosen = run.joins[run.joins["chosen"].fillna(False)]["profile"]
    return run.metrics[run.metrics["profile"].isin(chosen)]


def _traced(row: Row, metrics: set[str]) -> Iterable[Traced]:
    fits = metrics.union(catalogue().columns, TENSOR_INPUTS)
    counted = sorted(m for m in metrics if m.startswith(TENSOR_PREFIX) and ".sum" in m)
    for column in catalogue().columns.values():
        value = row.get(column.name)
        if column.helper or not _is_known(value):
            continue
        number = known(value)
        words = "" if number is not None else text(value)
        # The source that was used: the first whose tool metrics the capture has.
        source = next((source for source in column.sources if fits.issuperset(source.of)), None)
        inputs = _inputs(source, counted) if source else ()
        origin = _origin(source, inputs) if source and inputs else ""
        yield Traced(column.name, column.label, number, words, column.unit, origin, inputs)


def _stalls(waits: list[Row], metrics: set[str]) -> Iterable[Traced]:
    """Yield the share of each reason, and the counter whose part of all reasons it is."""
    counted = {stall.reason: (stall.metric, stall.sampled) for stall in catalogue().stalls}
    for row in sorted(waits, key=lambda row: -(known(row["share"]) or 0.0)):
        reason, share = text(row["reason"]), known(row["share"])
        if share is None or share < LEAST_STALL:
            continue
        inputs = tuple(m for m in counted.get(reason, ()) if m in metrics)[:1]
        origin = f"share_of_reasons({inputs[0]})" if inputs else ""
        label = Text("Stall: {reason}", reason=reason.replace("_", " "))
        yield Traced(f"stall_{reason}", label, 100 * share, "", "%", origin, inputs)


def _inputs(source: Source, counted: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a source, with the Tensor counters that the capture has."""
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
    if len(listed) > WIDE:
        listed = ", ".join(_braced(inputs))
    return listed if source.formula == "same" else f"{source.formula}({listed})"


def _braced(names: Iterable[str]) -> list[str]:
    """Return names, those in a row that differ in one word as one: a_{b,c}_d for a_b_d, a_c_d."""
    groups: list[list[list[str]]] = []
    for name in names:
        words = re.split(r"([_.]+)", name)
        if groups and _differing_word(groups[-1], words) is not None:
            groups[-1].append(words)
        else:
            groups.append([words])
    found = []
    for first, *others in groups:
        if others:
            position = _differing_word([first], others[0]) or 0
            each = ",".join(words[position] for words in (first, *others))
            first = [*first[:position], f"{{{each}}}", *first[position + 1 :]]
        found.append("".join(first))
    return found


def _differing_word(group: list[list[str]], words: list[str]) -> int | None:
    """Return the place of the one word in which all of a group and `words` differ, else None."""
    if any(len(name) != len(words) for name in group):
        return None
    places = {n for name in group for n, word in enumerate(words) if word != name[n]}
    return places.pop() if len(places) == 1 else None


def _raw(row: Row) -> RawCounter:
    words = text(row["text"])
    return RawCounter(text(row["metric"]), known(row["value"]), words, text(row["unit"]))
