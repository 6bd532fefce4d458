"""Turns profiled launches and their metric values into the two frames of an `NcuCapture`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple

import pandas as pd

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.ncu.rules import RuleResult, rules_frame
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.units import Scale, scale_of

# ncu: "(32, 4, 1)"; a launch that ncu could not profile has "(0, 0, 0)".
_DIMENSIONS = re.compile(r"^\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?$")

LAUNCH_DTYPES = {
    "profile": "Int64",
    "name": "string",
    "mangled_name": "string",
    "function_name": "string",
    "grid": "string",
    "block": "string",
    "device": "Int64",
    "pid": "Int64",
    "stream": "Int64",
    "context": "Int64",
    "nvtx": "string",
    "passes": "Int64",
    "workload": "string",
    "compute_capability": "string",
    "result": "Int64",
    "file": "Int64",
}
DURATION = "gpu__time_duration.sum"
PAGES = ("report", "raw", "details", "text")
"""What a file of ncu may be, the most precise first."""
METRIC_DTYPES = {
    "profile": "Int64",
    "metric": "string",
    "value": "float64",
    "text": "string",
    "unit": "string",
    "source": "string",
}


@dataclass
class Launch:
    """One result of ncu: a kernel launch, or a graph or range (`workload`).

    `grid` and `block` are XxYxZ. `nvtx` is the path of open ranges, outermost first, joined by /.
    `passes` is how often ncu replayed it. `compute_capability` is "9.0" where the file prints it.
    `result` is its number in the report, which each page of it prints (ID). `file` is the number of
    the file that it is in, where several were joined. Unknown is None.
    """

    profile: int
    name: str
    mangled_name: str | None = None
    function_name: str | None = None
    grid: str | None = None
    block: str | None = None
    device: int | None = None
    pid: int | None = None
    stream: int | None = None
    context: int | None = None
    nvtx: str | None = None
    passes: int | None = None
    workload: str = "kernel"
    compute_capability: str | None = None
    result: int | None = None
    file: int = 0


class Value(NamedTuple):
    """One metric of one result, in base units; `value` is NaN where it is text or unknown."""

    profile: int
    metric: str
    value: float
    text: str | None
    unit: str
    source: str


@dataclass(frozen=True)
class NcuCapture:
    """What ncu measured.

    `launches`: one row per result, columns of `Launch`. `metrics`: profile, metric, value (base
    units), text, unit, source. `version` is that of ncu, empty where unknown. `warnings` are
    sentences for the report. `rules`: one row per result of ncu's own rules, columns of
    `RuleResult`; empty where no rule was applied, and for a raw CSV page, which has none. `page` is
    one of PAGES: what the file is.
    """

    launches: pd.DataFrame
    metrics: pd.DataFrame
    version: str
    warnings: list[str]
    rules: pd.DataFrame = field(default_factory=rules_frame)
    page: str = PAGES[0]


class Gatherer:
    """Collects launches and values while a file is read; `capture` makes the frames."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.page = PAGES[0]
        self.launches: list[Launch] = []
        self.values: list[Value] = []
        self.rules: list[RuleResult] = []
        self.warnings: list[str] = []
        self._seen: dict[tuple[int, str], int] = {}
        self._scales: dict[str, Scale] = {}
        self._unknown_units: set[str] = set()

    def add(self, profile: int, metric: str, value: float, unit: str) -> None:
        """Add a number in `unit`; a unit that nobody knows makes it unknown, with a warning."""
        scale = self._scales.get(unit)
        if scale is None:
            try:
                scale = self._scales[unit] = scale_of(unit, metric)
            except ArtifactUnreadable as error:
                if unit not in self._unknown_units:
                    self._unknown_units.add(unit)
                    self.warn(
                        stored(
                            "{message}: the values of all metrics with it are left out",
                            message=error.message,
                        )
                    )
                self._put(Value(profile, metric, math.nan, None, unit, self.source))
                return
        self._put(Value(profile, metric, value * scale.factor, None, scale.unit, self.source))

    def add_text(self, profile: int, metric: str, text: str | None) -> None:
        """Add a metric that is text; None says that ncu could not measure it."""
        self._put(Value(profile, metric, math.nan, text, "", self.source))

    def warn(self, sentence: str) -> None:
        """Add a warning, once."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def warn_of_averages(self, launches: int) -> None:
        """Say that a result is the average over some launches (`ncu --print-summary`)."""
        if launches > 1:
            self.warn(
                stored(
                    "the file holds averages over the launches of each kernel (ncu "
                    "--print-summary), not single launches: the mean of a ratio is not the ratio "
                    "of the sums"
                )
            )

    def number(self, profile: int, metric: str) -> float | None:
        """Return a value that was added, or None."""
        index = self._seen.get((profile, metric))
        if index is None or math.isnan(self.values[index].value):
            return None
        return self.values[index].value

    def _put(self, value: Value) -> None:
        index = len(self.values)
        if self._seen.setdefault((value.profile, value.metric), index) == index:
            self.values.append(value)

    def capture(self, version: str) -> NcuCapture:
        """Return the frames; launches get grid, block, device, stream and passes from metrics."""
        for launch in self.launches:
            self._complete(launch)
        return NcuCapture(
            launches=_frame([astuple(launch) for launch in self.launches], LAUNCH_DTYPES),
            metrics=_frame(self.values, METRIC_DTYPES),
            version=version,
            warnings=self.warnings,
            rules=rules_frame(self.rules),
            page=self.page,
        )

    def _complete(self, launch: Launch) -> None:
        profile = launch.profile
        launch.result = profile if launch.result is None else launch.result
        launch.grid = launch.grid or self._dimensions(profile, "grid")
        launch.block = launch.block or self._dimensions(profile, "block")
        for name, metric in (
            ("device", "launch__device_id"),
            ("stream", "launch__stream_id"),
            ("context", "launch__context_id"),
            ("passes", "profiler__replayer_passes"),
        ):
            number = self.number(profile, metric)
            if getattr(launch, name) is None and number is not None:
                setattr(launch, name, int(number))

    def _dimensions(self, profile: int, what: str) -> str | None:
        sizes = [self.number(profile, f"launch__{what}_dim_{axis}") for axis in "xyz"]
        return dimensions(tuple(None if s is None else int(s) for s in sizes))


def dimensions(sizes: str | Sequence[int | None]) -> str | None:
    """Return "(32, 4, 1)" or three numbers as 32x4x1; None where unknown or zero."""
    if isinstance(sizes, str):
        match = _DIMENSIONS.match(sizes.strip())
        sizes = [int(size) for size in match.groups()] if match else []
    if len(sizes) != 3 or not all(sizes):
        return None
    return "x".join(str(size) for size in sizes)


def _frame(rows: Sequence[tuple[Any, ...]], dtypes: dict[str, str]) -> pd.DataFrame:
    """Return one row per tuple; `dtypes` are its columns, in the order of the tuples."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in dtypes)
    return pd.DataFrame(
        {
            name: pd.Series(list(v), dtype=dtypes[name])
            for name, v in zip(dtypes, columns, strict=True)
        }
    )
