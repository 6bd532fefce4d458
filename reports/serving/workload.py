"""What a run served: model, engine, lengths of requests, and loads; pages name it first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsight_prof.parsers.cells import Row, count, known, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page.values import Series, Text, Value, Verbatim
from nsight_prof.reports.serving.engine import product
from nsight_prof.reports.serving.points import amount

UNKNOWN_GPU = Text("a GPU that its files do not name")


def workload(run: Run) -> Text | None:
    """Return what the traced step served, else the measured points; None where neither did."""
    done = records(run.serving_points[run.serving_points["status"] == "ok"])
    traced = [row for row in done if row["source"] == "trace"]
    points = traced or [row for row in done if row["source"] == "bench"]
    if not points:
        return None
    engines = (
        f"{product(row['served_by'])} {text(row['version'])}" for row in records(run.engines)
    )
    names = [*_distinct(text(row["model"]) for row in points), *_distinct(engines)]
    parallel = max(count(row["tensor_parallel"]) or 1 for row in points)
    split = [Text("tensor parallel over {n} GPUs", n=parallel)] if parallel > 1 else []
    served = [*map(Verbatim, names), *split, *_lengths(points), *_loads(points)]
    return Text("{served}", served=Series(served))


def headed(served: Text | None, machine: Text) -> Text:
    """Return the machine, behind what was served there."""
    return Text("{served} · {gpu}", served=served, gpu=machine) if served else machine


def _lengths(points: Sequence[Row]) -> list[Value]:
    prompt, output = _span(points, "prompt_tokens"), _span(points, "output_tokens")
    if prompt is None or output is None:
        return []
    return [Text("{prompt} prompt and {output} output tokens", prompt=prompt, output=output)]


def _loads(points: Sequence[Row]) -> list[Value]:
    """Return batches, clients and rates of arrival, those that there are."""
    found: list[Value] = []
    if (batch := _span(points, "batch")) is not None:
        found.append(Text("batch {n}", n=batch))
    if (clients := _span(points, "concurrency")) is not None:
        found.append(Text("{n} client", "{n} clients", n=clients))
    if (rate := _span(points, "request_rate")) is not None:
        found.append(Text("{rate} requests/s", rate=rate))
    return found


def _span(points: Sequence[Row], column: str) -> Value | None:
    """Return the values of a column, from the least to the most; None where there are none."""
    values = [value for row in points if (value := known(row[column])) is not None]
    if not values:
        return None
    low, high = min(values), max(values)
    ends = {"low": amount(low), "high": amount(high)}
    return ends["low"] if low == high else Text("{low} to {high}", **ends)


def _distinct(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(map(str.strip, names)) if name]
