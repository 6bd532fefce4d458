"""Holds the trace's numbers to those of the host's clock and of vLLM itself."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.cells import known, number, records
from nsight_prof.reports.engine.stages.kinds import Kind, Stages
from nsight_prof.reports.load import Run
from nsight_prof.reports.serving.formulas import attention_flops


@dataclass(frozen=True)
class Agreement:
    """One quantity from the trace and from elsewhere; `unit` is that of reports.formats.quantity.

    `note` says what the two differ in by definition.
    """

    quantity: str
    unit: str
    trace: float
    other: float
    source: str
    note: str = ""

    @property
    def difference(self) -> float:
        """The trace's value over the other one, minus 1."""
        return self.trace / self.other - 1 if self.other else math.nan


def agreements(run: Run, stages: Stages) -> tuple[Agreement, ...]:
    """Return what the run allows to compare: all of the traced batch, under the profiler."""
    decode = stages.kind("decode")
    found = [*_decode(run, decode, stages), *_work(run, stages)]
    return tuple(a for a in found if not math.isnan(a.trace) and not math.isnan(a.other))


def _decode(run: Run, decode: Kind | None, stages: Stages) -> list[Agreement]:
    if decode is None:
        return []
    step = decode.step_ns
    host = _median(_traced(run.serving_points), "decode_step_s") * 1e9
    own = _median(_traced(run.requests), "engine_tpot_s") * 1e9
    rate = decode.requests / step * 1e9
    found = [
        Agreement("decode step: busy + idle", "ns", step, host, "host's clock"),
        Agreement("decode step: busy + idle", "ns", step, own, "vLLM's time per output token"),
        Agreement(
            "output tokens a second in decode", "1/s", rate, decode.requests / own * 1e9,
            "vLLM's time per output token",
        ),
    ]  # fmt: skip
    roof = stages.roofs.memory
    if decode.needed is not None and roof is not None:
        a_step = decode.needed.traffic.read / decode.steps
        ours, theirs = (a_step / time * 1e9 / roof.value for time in (step, own))
        found.append(
            Agreement(
                f"decode MBU ({roof.name})", "fraction", ours, theirs,
                "vLLM's time per output token",
            )
        )  # fmt: skip
    return found


def _work(run: Run, stages: Stages) -> list[Agreement]:
    totals = _traced(run.vllm_totals)
    seconds = _sum(totals, "seconds")
    tokens = sum(kind.tokens for kind in stages.kinds)
    theirs = _sum(totals, "prompt_tokens") + _sum(totals, "generation_tokens")
    found = [
        Agreement(
            "tokens a second, prompts and output", "1/s",
            (tokens + _first_tokens(stages)) / stages.span_ns * 1e9, theirs / seconds,
            "vLLM's counters over the host's time",
            "the host's time has the start of the batch and the return of its last tokens too",
        )
    ]  # fmt: skip
    if stages.shard is None or any(kind.needed is None for kind in stages.kinds):
        return found
    shard = stages.shard
    ours = sum(
        kind.needed.flops.linear
        + kind.needed.flops.head
        + sum(attention_flops(shard, work, causal=False) for work in kind.needed.works)
        for kind in stages.kinds
        if kind.needed is not None
    )
    estimated = _sum(totals, "estimated_flops")
    note = "attention without the causal half, as vLLM counts"
    read = sum(kind.needed.traffic.read for kind in stages.kinds if kind.needed is not None)
    own = _sum(totals, "estimated_read_bytes")
    more = "vLLM counts activations too"
    found.append(Agreement("bytes read", "B", read, own, "vLLM's estimate", more))
    found.append(Agreement("FLOPs", "FLOP", ours, estimated, "vLLM's estimate", note))
    found.append(
        Agreement(
            "FLOP/s", "FLOP/s", ours / stages.span_ns * 1e9, estimated / seconds,
            "vLLM's estimate over the host's time", note,
        )
    )  # fmt: skip
    return found


def _first_tokens(stages: Stages) -> int:
    """Return the tokens that prefills gave: the first of each request."""
    return sum(
        len(work.prefill)
        for kind in stages.kinds
        if kind.needed is not None
        for work in kind.needed.works
    )


def _traced(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the traced batch."""
    ours = frame[frame["source"] == "trace"]
    return ours[ours["traced"].fillna(False).astype(bool)]


def _median(frame: pd.DataFrame, column: str) -> float:
    values = [number(row[column]) for row in records(frame) if known(row[column]) is not None]
    return statistics.median(values) if values else math.nan


def _sum(frame: pd.DataFrame, column: str) -> float:
    values = [known(row[column]) for row in records(frame)]
    told = [value for value in values if value is not None]
    return sum(told) if told and len(told) == len(values) else math.nan
