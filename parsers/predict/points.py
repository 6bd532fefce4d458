"""Turns predicted serving points into the tables predicted_points, _steps and _operators."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.operators import Kind
from nsight_prof.parsers.predict.serving import Goal, Predictor, StepTime, Workload, point
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.tables import check, tables

STEP_KINDS = ("prefill", "decode")


@dataclass(frozen=True)
class Prediction:
    """A predictor of one model with what its points need beside it.

    `kv_tokens`: tokens that the KV cache of each GPU holds. `price_per_hour`: of one GPU; NaN
    where none was given.
    """

    model: str
    predictor: Predictor
    kv_tokens: int
    goal: Goal = Goal()
    price_per_hour: float = math.nan


def frames(prediction: Prediction, workloads: Sequence[Workload]) -> dict[str, pd.DataFrame]:
    """Return the three tables of the points of `workloads`."""
    points, steps, operator_rows = [], [], []
    for work in workloads:
        step_of = prediction.predictor.of(work).step
        steps_by_kind = dict(zip(STEP_KINDS, map(step_of, work.steps()), strict=True))
        points.append(_row(prediction, work, list(steps_by_kind.values())))
        for kind, step in steps_by_kind.items():
            tokens = prediction.predictor.engine.tokens(step.step)
            steps.append({"case": work.name, "kind": kind, "tokens": tokens, **_step(step)})
            operator_rows += [
                {"case": work.name, "kind": kind, **row} for row in _operator_rows(step)
            ]
    rows = {"points": points, "steps": steps, "operators": operator_rows}
    return {f"predicted_{name}": _frame(f"predicted_{name}", found) for name, found in rows.items()}


def _frame(table: str, rows: Iterable[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=[column.name for column in tables()[table]])
    return check(frame, table)


def lowest_tier(prediction: Prediction, work: Workload) -> str:
    """Return the lowest tier of the sources of a point, before it is served.

    Raises:
        UsageError: an operator is not known.
    """
    return min(_tier(prediction.predictor.step(step)) for step in work.steps())


def point_row(prediction: Prediction, work: Workload, *, medians: bool = False) -> Row:
    """Return a point by the columns of table `predicted_points`.

    `medians`: with the bounds of medians and rates alone.

    Raises:
        UsageError: an operator is not known.
    """
    steps = [prediction.predictor.step(step) for step in work.steps()]
    return _row(prediction, work, steps, medians=medians)


def _row(
    prediction: Prediction, work: Workload, steps: list[StepTime], *, medians: bool = False
) -> Row:
    engine = prediction.predictor.engine
    kv_needed = work.together * (work.prompt + work.output)
    values: dict[str, float] = {}
    status, reason = "ok", ""
    if kv_needed > prediction.kv_tokens:
        reason = stored(
            "{needed:,} tokens of KV cache are needed and {tokens:,} are there: requests wait, or "
            "lose their place and are computed again",
            needed=kv_needed,
            tokens=prediction.kv_tokens,
        )
    try:
        kv_tokens, goal = prediction.kv_tokens, prediction.goal
        values = point(prediction.predictor, work, kv_tokens, goal, medians=medians)
    except UsageError as error:
        status, reason = "unsupported", error.message
    row: Row = {
        "case": work.name,
        "experiment": work.experiment,
        "model": prediction.model,
        "gpu": prediction.predictor.gpu.name,
        "tensor_parallel": prediction.predictor.shape.tensor_parallel,
        "batch": work.batch or None,
        "concurrency": work.concurrency or None,
        "request_rate": work.rate or None,
        "requests": len(work.requests()),
        "prompt_tokens": work.prompt,
        "output_tokens": work.output,
        "status": status,
        "reason": reason,
        "tier": min(map(_tier, steps)),
        "kv_tokens": prediction.kv_tokens,
        "kv_needed_tokens": kv_needed or None,
        "accept": engine.accept if engine.drafted else None,
    }
    gpus = prediction.predictor.shape.tensor_parallel
    for kind in ("output", "total"):
        rate = values.get(f"{kind}_tokens_per_s", math.nan)
        values[f"price_per_million_{kind}_tokens"] = (
            1e6 * gpus * prediction.price_per_hour / 3600 / rate
        )
    return row | _bounded(values)


def _bounded(values: dict[str, float]) -> Row:
    """Return numbers by column; a bound is kept where the table has one, infinite is unknown."""
    names = {column.name for column in tables()["predicted_points"]}
    return {k: _finite(v) for k, v in values.items() if k in names}


def _tier(step: StepTime) -> str:
    return min(item.tier for item in step.breakdown)


def _step(step: StepTime) -> Row:
    return {
        "rows": step.rows or None,
        "context": step.step.context if step.step.decode else None,
        "seconds": step.seconds.value,
        "seconds_low": step.seconds.low,
        "seconds_high": _finite(step.seconds.high),
        "gpu_s": step.gpu_s,
        "gap_s": step.gap_s,
        "host_s": step.host_s,
        "bound_by": step.bound,
        "tier": _tier(step),
    }


def _operator_rows(step: StepTime) -> Iterable[Row]:
    for item in step.breakdown:
        operator = item.operator
        exchanged = operator.kind is Kind.COLLECTIVE  # by links, which no datasheet here has
        yield {
            "operator": operator.name,
            "group": str(operator.kind),
            "calls": operator.calls,
            "m": operator.m,
            "n": operator.n or None,
            "k": operator.k or None,
            "flops": operator.calls * operator.flops,
            "bytes": operator.calls * operator.bytes,
            "seconds": item.seconds.value,
            "seconds_low": item.seconds.low,
            "seconds_high": _finite(item.seconds.high),
            "share": item.seconds.value / step.gpu_s,
            "roofline_s": None if exchanged else item.roofline_s,
            "bound_by": "link" if exchanged else item.bound,
            "tier": item.tier,
        }


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan
