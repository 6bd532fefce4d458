"""Points of table serving_points: numbers with units, shared columns, facts and findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from nsight_prof.parsers.cells import Row, count, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.tables import tables
from nsight_prof.reports.page import (
    Column,
    Evidence,
    Fact,
    Finding,
    Name,
    Number,
    Ref,
    Text,
    Value,
    Verbatim,
)

TABLE = "serving_points"
TOKEN_RATE, REQUEST_RATE = "tokens/s", "requests/s"
UNITS = {column.name: column.unit or "count" for column in tables()[TABLE]} | {
    "kv_usage_max": "fraction",
    "output_tokens_per_s": TOKEN_RATE,
    "total_tokens_per_s": TOKEN_RATE,
    "vllm_output_tokens_per_s": TOKEN_RATE,
    "requests_per_s": REQUEST_RATE,
    "request_rate": REQUEST_RATE,
}
LATENCIES = {
    "ttft": Text("TTFT: time to first token"),
    "tpot": Text("TPOT: time per output token after the first"),
    "itl": Text("ITL: time between two tokens"),
    "e2e": Text("End to end: the whole request"),
}
PERCENTILES = {
    "mean": Text("Mean"),
    "p50": Text("Median"),
    "p90": Text("P90"),
    "p95": Text("P95"),
    "p99": Text("P99"),
}
FAILURES = {
    "out-of-memory": Text("out of memory"),
    "failed": Text("failed"),
    "unsupported": Text("not supported"),
}
EXAMPLES = 3


@dataclass(frozen=True)
class ServingPoint:
    """One measured point: its `row` of table serving_points."""

    row: Row

    @property
    def ref(self) -> Ref:
        """Its row in the tables of a report."""
        return Ref(TABLE, text(self.row["case"]))

    @property
    def name(self) -> Name:
        """Its case."""
        return Name(text(self.row["case"]), self.ref)

    @property
    def prompt(self) -> int:
        """Tokens of each prompt."""
        return count(self.row["prompt_tokens"]) or 0

    @property
    def output(self) -> int:
        """Tokens that each request generates."""
        return count(self.row["output_tokens"]) or 0

    def value(self, column: str) -> float:
        """Return a cell of the row; NaN where it was not measured."""
        return number(self.row[column])

    def number(self, column: str) -> Number:
        """Return a cell of the row with its unit."""
        return Number(self.value(column), UNITS[column], (replace(self.ref, column=column),))

    def derived(self, value: float, unit: str) -> Number:
        """Return a number that is computed from the row."""
        return Number(value, unit, (self.ref,))


P = TypeVar("P", bound=ServingPoint)


def amount(value: float) -> int | Verbatim:
    """Return a count in full, or a rate with at most three digits: 1,024, "2.5", "4.22"."""
    return int(value) if value.is_integer() else Verbatim(f"{float(f'{value:.2e}'):,g}", value)


def cell_column(heading: Text, column: str, unit: str = "") -> Column[P]:
    """Return a column that shows a cell of the row of each point."""
    return Column(heading, lambda point: point.number(column), unit)


def shape(point: ServingPoint) -> Text:
    """Return the lengths of a request."""
    return Text(
        "{prompt} prompt and {output} output tokens", prompt=point.prompt, output=point.output
    )


def engine_columns() -> list[Column[P]]:
    """Return columns of vLLM's gauges."""
    return [
        cell_column(Text("KV cache in use"), "kv_usage_max"),
        cell_column(Text("Preemptions"), "preemptions"),
        cell_column(Text("Max running"), "running_max"),
        cell_column(Text("Max waiting"), "waiting_max"),
    ]


def gpu_columns() -> list[Column[P]]:
    """Return columns of NVML's samples."""
    return [
        cell_column(Text("Power"), "power_w_mean", "W"),
        cell_column(Text("SM clock"), "sm_clock_hz_mean", "GHz"),
        cell_column(Text("GPU utilization"), "gpu_util_pct_mean"),
        cell_column(Text("Temperature"), "temperature_c_max", "°C"),
        cell_column(Text("Memory in use"), "memory_used_bytes_max", "GB"),
        Column(Text("Clock limited by"), lambda point: _limit(point) or None),
    ]


def _limit(point: ServingPoint) -> str:
    """Return what limited the clock as NVML names it; empty for nothing."""
    return text(point.row["throttle_reasons"]).replace("_", " ")


def clock_limit(points: Sequence[P], name: Callable[[P], Text]) -> Finding | None:
    """State how far a limit of power or heat lowers the SM clock; `name` is that of a load."""
    clocked = [point for point in points if point.value("sm_clock_hz_mean") > 0]
    limited = [point for point in clocked if _limit(point)]
    if not limited:
        return None
    slow = min(limited, key=lambda point: point.value("sm_clock_hz_mean"))
    fast = max(clocked, key=lambda point: point.value("sm_clock_hz_mean"))
    evidence: list[Evidence | Text] = []
    if not math.isnan(slow.value("power_w_mean")):
        evidence.append(Evidence(Text("power there"), slow.number("power_w_mean")))
    evidence.append(
        Text(
            "NVML saw a limit at {n} of {total} points for some of the time",
            n=len(limited),
            total=len(clocked),
        )
    )
    values: dict[str, Value] = {
        "reasons": Verbatim(_limit(slow)),
        "slow": slow.number("sm_clock_hz_mean").at_digits(3),
        "heavy": name(slow),
    }
    if slow is fast:
        verdict = Text(
            "A limit ({reasons}) lowers the SM clock under load, to {slow} at {heavy}.", **values
        )
    else:
        verdict = Text(
            "A limit ({reasons}) lowers the SM clock under load: {fast} at {light}, {slow} at "
            "{heavy}.",
            fast=fast.number("sm_clock_hz_mean").at_digits(3),
            light=name(fast),
            **values,
        )
    return Finding("clock_limit", verdict, tuple(evidence), technical=True)


def lost_points(run: Run, target: str) -> Finding | None:
    """State which points of a target could not be measured; None where all were."""
    rows = [row for row in records(run.bench) if text(row["target"]) == target]
    bad = [row for row in rows if text(row["status"]) in FAILURES]
    if not bad:
        return None
    kinds = Counter(text(row["status"]) for row in bad).most_common()
    examples: list[Value] = [Name(text(row["name"])) for row in bad[:EXAMPLES]]
    if len(bad) > EXAMPLES:
        examples.append(Text("{n} more", n=len(bad) - EXAMPLES))
    evidence: list[Evidence | Text] = [Evidence(Text("points:"), examples)]
    if reason := text(bad[0]["reason"]):
        evidence.append(Evidence(Text("reason of the first:"), Verbatim(reason.rstrip("."))))
    if len(bad) < len(rows):
        evidence.append(Text("all others were measured"))
    return Finding(
        "lost_points",
        Text(
            "{n} point of {total} could not be measured: {reasons}.",
            "{n} points of {total} could not be measured: {reasons}.",
            n=len(bad), total=len(rows),
            reasons=[Text("{n} {reason}", n=n, reason=FAILURES[kind]) for kind, n in kinds],
        ),
        tuple(evidence),
        technical=True,
    )  # fmt: skip


def model_facts(run: Run) -> tuple[Fact, ...]:
    """Return the row of the summary that names the model; none where it has no name."""
    names = dict.fromkeys(text(name) for name in run.engines["model"] if text(name))
    return (Fact(Text("Model"), Verbatim(", ".join(names))),) if names else ()
