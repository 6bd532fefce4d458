"""Says which measurement would narrow the interval of a prediction most, and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from nsight_prof.orchestrator.predict.plan import Plan
from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.predict.costs import Benchmarked, Spread
from nsight_prof.parsers.predict.needs import Measurement, measurements, narrowed
from nsight_prof.parsers.predict.points import Prediction
from nsight_prof.parsers.predict.serving import Workload
from nsight_prof.parsers.predict.trace import Calibrated

TTFT, TPOT = "ttft", "tpot"
HOST = {
    TTFT: ("overhead_s", "eager_s", "graph_s", "gap_prefill_s"),
    TPOT: ("decode_s", "gap_decode_s"),
}
"""Quantity -> fields of Host that it depends on."""
TRACED = {"eager_s": "issue_s", "graph_s": "issue_graph_s"}
"""Field of Host that points tell -> the one that a trace tells instead."""
FRONT_END = "frontend_s"


def needs_frame(planned: Plan, now: Prediction) -> pd.DataFrame:
    """Return table `predicted_needs` of the last load: what narrows its intervals most first."""
    work = planned.settings.workloads[-1]
    spread = _spread(planned)
    rows = [row for found in measurements() for row in _rows(planned, now, work, found, spread)]
    rows.sort(key=_gain, reverse=True)
    names = [column.name for column in tables.tables()["predicted_needs"]]
    return tables.check(pd.DataFrame(rows, columns=names), "predicted_needs")


def _spread(planned: Plan) -> Spread | None:
    costs = planned.fitted
    if isinstance(costs, Calibrated):
        costs = costs.base
    return costs.spread() if isinstance(costs, Benchmarked) else None


def _rows(
    planned: Plan, now: Prediction, work: Workload, found: Measurement, spread: Spread | None
) -> Iterator[Row]:
    """Yield what a measurement does to each quantity, where it does anything."""
    prefill, decode = work.steps()
    for quantity, step in ((TTFT, prefill), (TPOT, decode)):
        effect = narrowed(now.predictor.step(step), found, spread)
        lacking = [name for name in HOST[quantity] if _unknown(now, name)]
        if quantity == TTFT and not work.batch and planned.server is None:
            lacking.append(FRONT_END)
        host = [name for name in lacking if name in found.host]
        if not host and not effect.narrows:
            continue
        yield {
            "case": work.name,
            "quantity": quantity,
            "measurement": found.recipe,
            "command": found.command(
                planned.name,
                planned.settings.tensor_parallel,
                planned.settings.engine_options,
                planned.settings.target_arguments,
            ),
            "tier": found.tier,
            "share": effect.share,
            "width": _finite(effect.width),
            "width_after": _finite(effect.after),
            "host": " ".join(host),
            "seconds": found.seconds,
            "recorded": found.recorded,
        }


def _unknown(now: Prediction, name: str) -> bool:
    host = now.predictor.host
    return all(math.isnan(getattr(host, field)) for field in (name, TRACED.get(name, name)))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan


def _gain(row: Row) -> tuple[bool, float, int]:
    """Return what rows are sorted by: an interval that gets an end, then how much narrower."""
    opened, width, after = math.isnan(row["width"]), row["width"], row["width_after"]
    narrower = 0.0 if math.isnan(width - after) else width - after
    return opened and row["share"] > 0, narrower, len(row["host"])
