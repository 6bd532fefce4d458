"""The trace beside the host's clock and vLLM's own numbers, of the traced batch alone."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.stages.agreement import Agreement, agreements
from nsight_prof.reports.engine.stages.kinds import stages_of
from nsight_prof.reports.page import Text
from tests.sections import words

Make = Callable[..., Run]
FLOPS_OF_VLLM = (
    2 * 24 * 3 * (4 * 64 * 64 + 3 * 64 * 96)
    + 2 * 6 * 6400
    + 4 * 64 * 3 * (2 * 10 * 10 + 2 * 11 + 2 * 12)
)
"""24 tokens through the layers, 6 logits, and every query with its whole chunk and context."""


def request(traced: bool, tpot: float) -> dict[str, Any]:
    return {"source": "trace", "case": "c", "traced": traced, "engine_tpot_s": tpot, "status": "ok"}


def totals(traced: bool, seconds: float) -> dict[str, Any]:
    return {
        "source": "trace", "case": "c", "repeat": 1, "traced": traced, "prompt_tokens": 20,
        "generation_tokens": 6, "seconds": seconds, "estimated_flops": float(FLOPS_OF_VLLM),
        "estimated_read_bytes": None,
    }  # fmt: skip


def found(run: Run) -> dict[tuple[str, str], Agreement]:
    stages = stages_of(run)
    assert stages is not None
    return {(words(one.quantity), words(one.source)): one for one in agreements(run, stages)}


def test_steps_rates_and_flops_beside_vllms_own(serving_run: Make) -> None:
    run = serving_run(
        requests=[request(True, 460e-9), request(True, 440e-9), request(False, 1.0)],
        vllm_totals=[totals(True, 2200e-9), totals(False, 1.0)],
    )
    told = found(run)
    own = "vLLM's time per output token"
    step = told["decode step: busy + idle", own]
    assert step.trace == 450
    assert step.elsewhere == pytest.approx(450)
    host = told["decode step: busy + idle", "host's clock"]
    assert host.difference.value == pytest.approx(-0.1)
    rate = told["output tokens per second in decode", own]
    assert rate.trace == pytest.approx(2 / 450e-9)
    flops = told["FLOPs", "vLLM's estimate"]
    assert flops.trace == FLOPS_OF_VLLM
    tokens = told["tokens per second, prompts and output", "vLLM's counters over the host's time"]
    # 20 of prompts, one of each of 2 requests by the prefill, 4 by decode steps.
    assert tokens.trace == pytest.approx(26 / 2100e-9)
    assert tokens.elsewhere == pytest.approx(26 / 2200e-9)


def test_what_was_not_recorded_is_not_compared(serving_run: Make, base: SimpleNamespace) -> None:
    run = serving_run(serving_points=[base.point | {"decode_step_s": None}])
    assert found(run) == {}
    assert Agreement(Text("q"), "ns", 1.0, 0.0, Text("s")).difference.value is None
