"""Predicts what other choices would change: GPU, tensor parallelism, graphs, load, chunks, types.

Each choice is predicted by the machinery of the point itself; what that refuses stands with its
reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.orchestrator.predict.plan import Plan
from nsight_prof.orchestrator.predict.sources import UNPROFILED
from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import Row, number, records
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.costs import T0, Costs, Estimate, datasheets
from nsight_prof.parsers.predict.operators import FP8, Operator, check_known
from nsight_prof.parsers.predict.points import Prediction, lowest_tier, point_row
from nsight_prof.parsers.predict.serving import Engine, Host, Workload
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.serving.model_shape import BYTES, Quantized

MOST, LONGEST = 128, 60
"""Loads of more requests are not served again for each choice; of open loops and traces the first
requests are."""
AS_ASKED, GPU, SPLIT, GRAPHS, LOAD = "as asked", "gpu", "tensor_parallel", "graphs", "load"
DRAFTS = "speculative_tokens"
HOST, HOSTS = "host", (0.0, 0.8, 1.25)
"""How many times as long another host takes; none at all tells what of a time is the host's."""
CHUNK, AT_ONCE, WEIGHTS, KV_CACHE = "max_batched_tokens", "max_num_seqs", "dtype", "kv_cache_dtype"
Choice = tuple[str, str, Callable[[], Row]]
"""What is chosen, the value, and what returns the point."""


median_row = partial(point_row, medians=True)
"""Returns a point with the bounds that choices are shown with."""


@dataclass(frozen=True)
class Remembered:
    """Costs that are asked for once: all choices have most operators in common."""

    costs: Costs
    known: dict[Operator, Estimate] = field(default_factory=dict)

    def of(self, operator: Operator) -> Estimate:
        """Return the estimate of the costs."""
        if operator not in self.known:
            self.known[operator] = self.costs.of(operator)
        return self.known[operator]


def changes_frame(
    planned: Plan, now: Prediction, undrafted: Callable[[], Prediction]
) -> pd.DataFrame:
    """Return table `predicted_changes`: the first and the last load, with each other choice.

    `undrafted` returns `without_drafts`.
    """
    fitted = Remembered(planned.fitted)
    planned = planned.choice()
    planned.fitted = fitted
    now = _with(now, costs=planned.costs)
    rows: list[Row] = []
    for work in _bases(planned.settings.workloads):
        asked = median_row(now, work)
        rows.append(_with_reason(asked) | {"case": asked["case"], "change": AS_ASKED, "value": ""})
        for change, value, predicted in _choices(planned, now, work, undrafted):
            try:
                row = _with_reason(predicted())
            except UsageError as error:
                row = {"status": "unsupported", "reason": error.message}
            rows.append(row | {"case": asked["case"], "change": change, "value": value})
    names = [column.name for column in tables.tables()["predicted_changes"]]
    return tables.check(pd.DataFrame(rows, columns=names), "predicted_changes")


def break_even(now: Prediction, undrafted: Callable[[], Prediction], work: Workload) -> float:
    """Return from how many accepted tokens per step and request drafting pays.

    `undrafted` returns `without_drafts`. NaN where steps without drafts cannot be predicted as
    surely as those with them.
    """
    step = work.steps()[1]
    drafting = now.predictor.step(step)
    try:
        alone = undrafted().predictor.step(step)
    except UsageError:
        return math.nan
    tiers = [min(item.tier for item in found.breakdown) for found in (alone, drafting)]
    return drafting.seconds.value / alone.seconds.value if tiers[0] >= tiers[1] else math.nan


def without_drafts(planned: Plan, now: Prediction) -> Prediction:
    """Return the same without drafts.

    Raises:
        UsageError: it cannot be predicted from these runs.
    """
    shape, settings = replace(planned.shape, drafted=0), replace(planned.settings, drafted=0)
    plan = planned.choice(shape=shape, settings=settings, drafter=None)
    return _same_host(plan, now, engine=replace(now.predictor.engine, drafted=0, accept=1.0))


def _with_reason(row: Row) -> Row:
    """Return a point whose reason says why it cannot be predicted, not that requests wait."""
    return row | {"reason": ""} if row["status"] == "ok" else row


def _bases(works: Sequence[Workload]) -> list[Workload]:
    """Return the first and the last load of few requests, or a part of the last one."""
    quick = [work for work in works if work.together and len(work.requests()) <= MOST]
    chosen = [quick[0], quick[-1]] if quick else [works[-1]]
    return [_first(work) for work in dict.fromkeys(chosen)]


def _first(work: Workload) -> Workload:
    """Return a load of few requests: those of batches, and the first ones of others."""
    if work.arrivals:
        return replace(work, arrivals=work.arrivals[:LONGEST])
    if work.rate:
        return replace(work, count=LONGEST)
    return work if work.batch else replace(work, count=min(len(work.requests()), MOST))


def _choices(
    planned: Plan, now: Prediction, work: Workload, undrafted: Callable[[], Prediction]
) -> Iterator[Choice]:
    gpus, engine = planned.settings.tensor_parallel, now.predictor.engine
    for count in (gpus // 2, gpus * 2):
        if count:
            yield SPLIT, str(count), partial(_split, planned, now, count, work)
    for gpu in datasheets():
        if gpu != planned.gpu.name:
            yield GPU, gpu, partial(_elsewhere, planned, now, gpu, work)
    yield GRAPHS, "off", partial(_eager, planned, now, work)
    yield from _other_hosts(now, work)
    if planned.settings.drafted:
        yield DRAFTS, "0", lambda: median_row(undrafted(), work)
    if twice := _twice(work):
        yield LOAD, twice.name, partial(median_row, now, twice)
    for tokens in (engine.batched_tokens // 4, engine.batched_tokens * 2):
        other_chunk = _with(now, engine=replace(engine, batched_tokens=tokens))
        yield CHUNK, str(tokens), partial(median_row, other_chunk, work)
    if work.together > engine.max_requests:
        wider = _with(now, engine=replace(engine, max_requests=work.together))
        yield AT_ONCE, str(work.together), partial(median_row, wider, work)
    for change in _wider_than_fp8(planned):
        yield change, FP8, partial(_typed, planned, now, change, work)


def _other_hosts(now: Prediction, work: Workload) -> Iterator[Choice]:
    for speed in HOSTS if now.predictor.host.is_known else ():
        there = replace(now, predictor=now.predictor.at_host(speed))
        yield HOST, f"{speed:g}", partial(median_row, there, work)


def _wider_than_fp8(planned: Plan) -> Iterator[str]:
    """Yield whose type could be fp8 and is not."""
    if planned.shape.quantized is None:
        yield WEIGHTS
    if planned.shape.kv_bytes != BYTES[FP8]:
        yield KV_CACHE


def _with(now: Prediction, **changes: Any) -> Prediction:
    """Return a prediction with other parts of its predictor."""
    return replace(now, predictor=replace(now.predictor, **changes))


def _refuse_drafter(planned: Plan) -> None:
    if planned.drafter is not None:
        raise UsageError(
            stored("of {name}, which drafts, nothing is known there", name=planned.drafter.name),
            "predict the choice by itself, with runs of both models",
        )


def _split(planned: Plan, now: Prediction, gpus: int, work: Workload) -> Row:
    _refuse_drafter(planned)
    settings = replace(planned.settings, tensor_parallel=gpus)
    return median_row(_same_host(planned.choice(settings=settings), now), work)


def _same_host(plan: Plan, now: Prediction, engine: Engine | None = None) -> Prediction:
    """Return the prediction of another plan by the same engine, or by `engine`.

    What the host adds is taken over where it is not known.
    """
    plan.engine = engine or now.predictor.engine
    prediction, host = plan.prediction(), asdict(now.predictor.host)
    found = asdict(prediction.predictor.host)
    del found["untraced"]  # how a profiler slows this engine is known of the recorded one
    known = {key: value for key, value in found.items() if not _is_unknown(value)}
    return _with(prediction, host=Host(**(host | known)))


def _is_unknown(value: float | tuple[float, ...]) -> bool:
    """Tell whether a time of a host is not known, or its speeds are not."""
    return not value if isinstance(value, tuple) else math.isnan(value)


def _elsewhere(planned: Plan, now: Prediction, gpu: str, work: Workload) -> Row:
    """Predict another GPU; the host is taken to be the same, and its price is not known."""
    _refuse_drafter(planned)
    elsewhere = planned.choice(settings=replace(planned.settings, gpu=gpu))
    elsewhere.fitted = planned.fitted
    kv_tokens = elsewhere.kv_tokens(now.predictor.engine)
    there = _with(now, gpu=elsewhere.gpu, costs=elsewhere.costs, correction=None)
    return median_row(replace(there, kv_tokens=kv_tokens, price_per_hour=math.nan), work)


def _eager(planned: Plan, now: Prediction, work: Workload) -> Row:
    """Predict an engine without graphs: its steps wait for the host, as recorded ones did."""
    here = planned.measured == planned.gpu and planned.settings.drafted == planned.shape.drafted
    steps = [
        number(row["tpot_p50_s"])
        for source in planned.sources
        if source.shape == planned.shard and source.slice is None and here
        for row in records(source.table("serving_points"))
        if (row["engine"], row["status"]) == ("eager", "ok") and row["source"] in UNPROFILED
    ]
    if not steps:
        raise UsageError(
            stored(
                "no recorded engine served this model without CUDA graphs on this GPU: how long "
                "the host needs for a step is not known"
            ),
            "record one: prof run vllm-baseline",
        )
    engine = replace(now.predictor.engine, captured=())
    rows = [
        median_row(
            _with(now, engine=engine, host=replace(now.predictor.host, decode_s=seconds)), work
        )
        for seconds in (float(np.median(steps)), min(steps), max(steps))
    ]
    ends = {name: min for name in rows[0] if name.endswith("_low")}
    ends |= {name: max for name in rows[0] if name.endswith("_high")}
    return rows[0] | {name: end(row[name] for row in rows) for name, end in ends.items()}


def _twice(work: Workload) -> Workload | None:
    if work.arrivals:
        return None
    return replace(work, batch=2 * work.batch, concurrency=2 * work.concurrency, rate=2 * work.rate)


def _typed(planned: Plan, now: Prediction, change: str, work: Workload) -> Row:
    """Predict weights, or a KV cache, in fp8."""
    if change == WEIGHTS:
        shape = replace(planned.shape, quantized=Quantized(FP8, dynamic=True))
    else:
        shape = replace(planned.shape, kv_bytes=BYTES[FP8])
    check_known(shape)
    chosen = _same_host(planned.choice(shape=shape), now)
    if lowest_tier(chosen, work) == T0 < lowest_tier(now, work):
        what = "weights" if change == WEIGHTS else "a KV cache"
        raise UsageError(
            stored(
                "nothing that was measured has {what} in fp8, and the datasheet's bounds of "
                "some operators beside measured times of others would be too short",
                what=what,
            ),
            "add a run that has it, or imported tables: prof import --aiconfigurator DIR",
        )
    return median_row(chosen, work)
