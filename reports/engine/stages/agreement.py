"""Sets the trace's numbers beside those of the host's clock and of vLLM itself."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.cells import known, number, records
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.stages.kinds import Kind, Stages
from nsight_prof.reports.page import Number, Text
from nsight_prof.reports.serving.formulas import attention_flops
from nsight_prof.reports.serving.roofs import roof_name

HOST = Text("host's clock")
THROUGHPUT = Text("vLLM's time per output token")
COUNTERS = Text("vLLM's counters over the host's time")
ESTIMATE = Text("vLLM's estimate")
ESTIMATED_RATE = Text("vLLM's estimate over the host's time")
ALL_TIME = Text("the host's time has the start of the batch and the return of its last tokens too")
ACTIVATIONS = Text("vLLM counts activations too")
NOT_CAUSAL = Text("attention without the causal half, as vLLM counts")


@dataclass(frozen=True)
class Agreement:
    """One quantity from the trace and from elsewhere.

    `note` says what the two differ in by definition.
    """

    quantity: Text
    unit: str
    trace: float
    elsewhere: float
    source: Text
    note: Text | None = None

    @property
    def difference(self) -> Number:
        """The trace's value over the other one, minus 1."""
        trace, elsewhere = Number(self.trace, self.unit), Number(self.elsewhere, self.unit)
        return (trace - elsewhere).share_of(elsewhere)


def agreements(run: Run, stages: Stages) -> tuple[Agreement, ...]:
    """Return what the run allows to compare: all of the traced batch, under the profiler."""
    decode = stages.kind("decode")
    found = [*(_decode(run, decode, stages) if decode else ()), *_work(run, stages)]
    return tuple(a for a in found if not math.isnan(a.trace) and not math.isnan(a.elsewhere))


def _decode(run: Run, decode: Kind, stages: Stages) -> Iterator[Agreement]:
    step = decode.step_ns
    host = _median(_traced(run.serving_points), "decode_step_s") * 1e9
    engine = _median(_traced(run.requests), "engine_tpot_s") * 1e9
    busy_and_idle = Text("decode step: busy + idle")
    yield Agreement(busy_and_idle, "ns", step, host, HOST)
    yield Agreement(busy_and_idle, "ns", step, engine, THROUGHPUT)
    traced, elsewhere = (decode.requests / time * 1e9 for time in (step, engine))
    quantity = Text("output tokens per second in decode")
    yield Agreement(quantity, "/s", traced, elsewhere, THROUGHPUT)
    roof = stages.roofs.memory
    if decode.work is not None and roof is not None:
        per_step = decode.work.traffic.read / decode.steps
        traced, elsewhere = (per_step / time * 1e9 / roof.value for time in (step, engine))
        quantity = Text("decode MBU ({roof})", roof=roof_name(roof.name))
        yield Agreement(quantity, "fraction", traced, elsewhere, THROUGHPUT)


def _work(run: Run, stages: Stages) -> Iterator[Agreement]:
    totals = _traced(run.vllm_totals)
    seconds, span = _sum(totals, "seconds"), stages.span_ns / 1e9
    kinds = [kind.work for kind in stages.kinds if kind.work is not None]
    # Each request gets its first token by its prefill.
    first_tokens = sum(len(work.prefill) for kind in kinds for work in kind.works)
    tokens = sum(kind.tokens for kind in stages.kinds) + first_tokens
    counted = _sum(totals, "prompt_tokens") + _sum(totals, "generation_tokens")
    yield Agreement(
        Text("tokens per second, prompts and output"), "/s", tokens / span, counted / seconds,
        COUNTERS, ALL_TIME,
    )  # fmt: skip
    if stages.shard is None or len(kinds) < len(stages.kinds):
        return
    attention = sum(
        attention_flops(stages.shard, work, causal=False) for kind in kinds for work in kind.works
    )
    flops = attention + sum(kind.flops.linear + kind.flops.head for kind in kinds)
    read, estimated = sum(kind.traffic.read for kind in kinds), _sum(totals, "estimated_flops")
    estimated_read = _sum(totals, "estimated_read_bytes")
    rates = flops / span, estimated / seconds
    yield Agreement(Text("bytes read"), "B", read, estimated_read, ESTIMATE, ACTIVATIONS)
    yield Agreement(Text("FLOPs"), "FLOP", flops, estimated, ESTIMATE, NOT_CAUSAL)
    yield Agreement(Text("FLOP/s"), "FLOP/s", *rates, ESTIMATED_RATE, NOT_CAUSAL)


def _traced(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the traced batch."""
    traced = frame["traced"].fillna(False).astype(bool)
    return frame[(frame["source"] == "trace") & traced]


def _median(frame: pd.DataFrame, column: str) -> float:
    values = [number(row[column]) for row in records(frame) if known(row[column]) is not None]
    return statistics.median(values) if values else math.nan


def _sum(frame: pd.DataFrame, column: str) -> float:
    """Return the sum of a column; NaN for no rows, and where a value is missing."""
    return number(frame[column].sum(skipna=False)) if len(frame) else math.nan
