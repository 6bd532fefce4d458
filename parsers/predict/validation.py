"""Holds predictions against what recorded engines took: table `prediction_errors`, and its sums."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, number, records
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.corrections import LONG_TOKENS, Correction
from nsight_prof.parsers.predict.costs import Costs, Estimate, Power
from nsight_prof.parsers.predict.operators import Operator, operators
from nsight_prof.parsers.predict.serving import LOADING_TOKENS, Predictor, Workload, kind_of, point
from nsight_prof.parsers.predict.trace import HEATED, MIXED, Recorded, Trace, recorded_name
from nsight_prof.parsers.tables import check, tables

KERNEL, STEP, POINT, NETWORK = "kernel", "step", "point", "network"
HELD_OUT, IN_SAMPLE = "held out", "in sample"
QUANTITIES = {
    "tpot_p50_s": "tpot",
    "ttft_p50_s": "ttft",
    "output_tokens_per_s": "throughput",
}
"""Column of a serving point -> what its error is called."""
RULE = re.compile(
    r"(kernels|step|network|tpot|ttft|throughput)_(mape|p90)\s*>\s*(\d+(?:\.\d+)?)\s*%"
)
STATISTICS = ("n", "mape", "p90", "bias", "coverage")


def kernel_errors(
    costs: Costs, trace: Trace, power: Power, correction: Correction | None = None
) -> Iterator[Row]:
    """Yield one row for each operator of the recorded steps: seconds of all its calls.

    Operators that `costs` does not know, collectives, are not among them. `power`: how its limit
    slows the steps that read prompts. `correction`: what engines take beyond slices, of long
    prompts; None: not known.
    """
    for recorded in trace.steps:
        if recorded.kind == MIXED:
            continue
        found: list[tuple[Operator, float, Estimate]] = []
        for item in operators(trace.served, recorded.step, recorded.rows):
            seconds = recorded.seconds.get(recorded_name(item.name))
            if seconds:
                with suppress(UsageError):
                    found.append((item, seconds, costs.of(item)))
        times = [(item.name, item.calls * estimate.seconds) for item, _, estimate in found]
        slower = _slower(recorded, times, power)
        beyond = _beyond(recorded, correction)
        for item, seconds, estimate in found:
            factor = item.calls * beyond * slower.get(item.name, recorded.slowed(item))
            ends = (factor * value for value in (estimate.seconds, estimate.low, estimate.high))
            row = _row(KERNEL, item.name, recorded.kind, seconds, *ends)
            yield row | {"tier": estimate.tier, "group": str(item.kind)}


def _slower(
    recorded: Recorded, times: Sequence[tuple[str, float]], power: Power
) -> dict[str, float]:
    """Return how many times as long the power limit makes each operator of a step of prompts take.

    Nothing of steps that it does not slow. `times`: operators with their seconds at full clock.
    """
    total = sum(seconds for _, seconds in times)
    if not (recorded.step.prefill and recorded.step.tokens >= LOADING_TOKENS and total):
        return {}
    slower = power.stretched(total, recorded.loaded_s) / total - 1
    mean = sum(HEATED.get(name, 1.0) * seconds for name, seconds in times) / total
    return {name: 1 + slower * HEATED.get(name, 1.0) / mean for name, _ in times}


def _beyond(recorded: Recorded, correction: Correction | None) -> float:
    """Return what whole engines take beyond a slice: of long prompts, which no profiler slows."""
    step = recorded.step
    long = step.prefill and step.tokens >= LONG_TOKENS
    return correction.long.value if correction is not None and long else 1.0


def step_errors(
    predictor: Predictor, trace: Trace, correction: Correction | None = None
) -> Iterator[Row]:
    """Yield one row for each recorded step of what the GPU does: kernels, and gaps between them.

    How long it waits for the host is that of the profiler here, which no prediction is of; TTFT and
    TPOT of engines without one judge what the host adds. `correction`: as `kernel_errors` has it.
    """
    predictor = replace(predictor, host=replace(predictor.host, untraced=1.0), correction=None)
    corrected = replace(predictor, correction=correction)
    for recorded in trace.steps:
        kind, step = recorded.kind, recorded.step
        found = predictor.step(step)
        tier = min(rows_of_group.tier for rows_of_group in found.breakdown)
        longer = _beyond(recorded, correction) > 1
        times = (corrected if longer else predictor).on_gpu(step, recorded.loaded_s)
        slowed = sum(
            (recorded.slowed(item.operator) - 1) * item.seconds.value for item in found.breakdown
        )
        ends = (value + slowed for value in times)
        row = _row(STEP, f"{kind} step", kind, step_seconds(trace, recorded), *ends)
        yield row | {"tier": tier, "group": "step"}


def step_seconds(trace: Trace, recorded: Recorded) -> float:
    """Return the seconds of a recorded step: kernels, and gaps that do not wait for the host."""
    gap = trace.gap(recorded.kind, trace.shape.layers)
    return recorded.kernel_s + min(gap, recorded.gap_s)


def point_errors(predictor: Predictor, work: Workload, measured: Row, tier: str) -> Iterator[Row]:
    """Yield one row for each quantity of a measured serving point."""
    found = point(predictor, work)
    for column, name in QUANTITIES.items():
        if number(measured[column]) > 0:
            bounds = found[f"{column}_low"], found[f"{column}_high"]
            kind = kind_of(predictor, work, name)
            row = _row(POINT, name, kind, number(measured[column]), found[column], *bounds)
            yield row | {"tier": tier, "group": name, "case": work.name}


def _row(scope: str, name: str, kind: str, measured: float, value: float, low: float, high: float
         ) -> Row:  # fmt: skip
    return {
        "scope": scope,
        "name": name,
        "kind": kind,
        "case": "",
        "measured": measured,
        "predicted": value,
        "low": low,
        "high": high if np.isfinite(high) else np.nan,
        "error": value / measured - 1,
        "covered": bool(low <= measured and not measured > high),
    }


def errors_frame(rows: list[Row]) -> pd.DataFrame:
    """Return table `prediction_errors`."""
    names = [column.name for column in tables()["prediction_errors"]]
    return check(pd.DataFrame(rows, columns=names), "prediction_errors")


def summary(errors: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return for each group of `by`: n, mape, p90 and bias of the error, coverage of intervals.

    Kernels are weighted by the time that they took; a bound that is not known covers.
    """
    rows = []
    for key, rows_of_group in errors.groupby(by, sort=False):
        weights = (
            rows_of_group["measured"]
            .where(rows_of_group["scope"].eq(KERNEL), 1.0)
            .to_numpy(dtype=float)
        )
        found = rows_of_group["error"].to_numpy(dtype=float)
        rows.append(
            dict(zip(by, key, strict=True))
            | {
                "n": len(rows_of_group),
                "mape": float(np.average(abs(found), weights=weights)),
                "p90": float(np.percentile(abs(found), 90)),
                "bias": float(np.average(found, weights=weights)),
                "coverage": float(rows_of_group["covered"].astype(float).mean()),
            }
        )
    return pd.DataFrame(rows, columns=[*by, *STATISTICS])


@dataclass(frozen=True)
class Rule:
    """A limit of `--fail-on`: mape or p90 of kernels, step, network, tpot, ttft or throughput."""

    text: str
    what: str
    statistic: str
    limit: float

    @classmethod
    def parsed(cls, text: str) -> Rule:
        """Return the rule that a text such as tpot_mape>15% means.

        Raises:
            UsageError: it means none.
        """
        found = RULE.fullmatch(text.strip())
        if found is None:
            raise UsageError(
                f"--fail-on {text} is no rule",
                "say tpot_mape>15% (or kernels, step, network, ttft, throughput; or p90 for mape)",
            )
        return cls(text, found[1], found[2], float(found[3]) / 100)

    def broken(self, errors: pd.DataFrame) -> str:
        """Return in one sentence how the held-out errors break the rule; empty where they keep it.

        Raises:
            UsageError: there is no such error to judge by.
        """
        scopes = {"kernels": KERNEL, "step": STEP, "network": NETWORK}
        column = ("scope", scopes[self.what]) if self.what in scopes else ("name", self.what)
        matching = errors[errors[column[0]].eq(column[1]) & errors["sample"].eq(HELD_OUT)]
        if matching.empty:
            raise UsageError(
                f"--fail-on {self.text}: the run has no held-out errors of {self.what}",
                "kernels and step need a run with a trace of an engine; leave the run out of --on",
            )
        value = records(summary(matching.assign(all="all"), ["all"]))[0][self.statistic]
        if value <= self.limit:
            return ""
        return f"{self.text}: {self.what} has {self.statistic} {value:.1%}, held out"
