"""The section of the model alone: parts that add up, and what its steps are limited by."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nsight_prof.parsers.build.peaks import peaks
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.serving.model_shape import model_shape
from nsight_prof.reports.engine.model import section, turning_batch
from nsight_prof.reports.serving.engine import Requests, engine_of, traced_requests
from nsight_prof.reports.serving.formulas import decode, flops, traffic
from tests.sections import rows, table, words
from tests.sections import told as sentences

Make = Callable[..., Run]


def roofs(compute: float, memory: float) -> list[dict[str, Any]]:
    return [
        {"level_or_pipe": "tensor", "dtype": "bf16", "kind": "steady", "value": compute,
         "unit": "FLOP/s"},
        {"level_or_pipe": "dram", "dtype": "", "kind": "read", "value": memory, "unit": "B/s"},
        {"level_or_pipe": "dram", "dtype": "", "kind": "latency", "value": 1e-6, "unit": "s"},
    ]  # fmt: skip


def test_parts_add_up_to_the_model(serving_run: Make, base: SimpleNamespace) -> None:
    told: Any = section(serving_run())
    shape = model_shape(json.loads(base.engine["model_config"]))
    numbers = told.numbers
    assert numbers["parameters"] == shape.parameters()
    rest = shape.embedding_parameters() + shape.norm_parameters()
    assert sum(part["parameters"] for part in numbers["parts"]) + rest == shape.parameters()
    parts = rows(table(told, "model-parts"))
    assert [row["Part"] for row in parts][-3:] == ["norms", "lm_head", "all"]
    assert parts[-1]["Share"] == 1
    assert "weights are random" in sentences(told)


def test_a_tied_head_has_no_parameters_of_its_own(serving_run: Make, base: SimpleNamespace) -> None:
    config = json.loads(base.engine["model_config"]) | {"tie_word_embeddings": True}
    told: Any = section(serving_run(engines=[base.engine | {"model_config": json.dumps(config)}]))
    parts = table(told, "model-parts")
    head = next(row for row in rows(parts) if row["Part"] == "lm_head")
    assert head["Parameters"] == 0
    assert "lm_head is the embedding table" in words(parts.note)


def test_steps_of_the_run_and_other_batches_are_worked_out(serving_run: Make) -> None:
    told: Any = section(serving_run(measured_roofs=roofs(1e12, 1e10)))
    names = list(told.numbers["steps_per_gpu"])
    assert names[:2] == ["prefill of 2 x 10", "decode of 1, 11 before"]
    steps = table(told, "model-steps")
    assert {row["Limited by"] for row in rows(steps)} <= {"memory", "arithmetic"}
    assert "100 FLOP/B" in words(steps.note)


def test_without_roofs_no_limit_is_told(serving_run: Make) -> None:
    told: Any = section(serving_run(roofs=[]))
    limits = {row["Limited by"] for row in rows(table(told, "model-steps"))}
    assert limits == {"no roof is known for this type on this GPU"}
    assert [f.rule for f in told.findings] == ["kv_cache"]


@pytest.mark.parametrize("ratio", [4.0, 20.0, 60.0])
def test_the_turning_batch_is_where_reading_and_computing_meet(
    serving_run: Make, base: SimpleNamespace, ratio: float
) -> None:
    shape = model_shape(json.loads(base.engine["model_config"]))
    known = peaks(serving_run(measured_roofs=roofs(ratio * 1e10, 1e10)), "bf16")
    turn = turning_batch(shape, 0, known)
    assert turn is not None

    def computing(batch: int) -> bool:
        work = decode(batch, 0)
        return flops(shape, work).total / ratio >= traffic(shape, work).read

    assert computing(turn)
    assert turn == 1 or not computing(turn - 1)


def test_long_contexts_never_turn(serving_run: Make, base: SimpleNamespace) -> None:
    shape = model_shape(json.loads(base.engine["model_config"]))
    known = peaks(serving_run(measured_roofs=roofs(60e10, 1e10)), "bf16")
    assert turning_batch(shape, 100_000, known) is None


def test_an_unknown_model_says_why_and_no_engine_says_nothing(
    serving_run: Make, base: SimpleNamespace
) -> None:
    told: Any = section(serving_run(engines=[base.engine | {"model_config": "{}"}]))
    assert sentences(told).startswith("Not available")
    assert section(serving_run(engines=[])) is None


def test_the_engine_of_the_trace_comes_first(serving_run: Make, base: SimpleNamespace) -> None:
    other = base.engine | {"source": "operators", "mode": "eager"}
    engine = engine_of(serving_run(engines=[other, base.engine]))
    assert engine is not None
    assert (engine.mode, engine.kv_tokens) == ("cuda-graphs", 1600)
    assert engine.dummy_weights
    wide = engine_of(serving_run(engines=[base.engine | {"tensor_parallel": 3}]))
    assert wide is not None
    assert wide.shard is None
    assert "cannot be split over 3 GPUs" in wide.reason


def test_requests_of_the_trace_are_those_under_the_profiler(
    serving_run: Make, base: SimpleNamespace
) -> None:
    plain = base.point | {"traced": False}
    failed = base.point | {"status": "failed"}
    other = base.point | {"source": "untraced"}
    run = serving_run(serving_points=[plain, base.point, failed, other])
    assert traced_requests(run) == (Requests(2, 10, 3),)


def test_a_roof_that_counters_contradict_is_not_used(serving_run: Make) -> None:
    steady, read, latency = roofs(1e12, 1e10)
    doubtful = [steady | {"accepted": False}, read | {"accepted": True}, latency]
    known = peaks(serving_run(measured_roofs=doubtful), "bf16")
    assert known.steady is None
    assert known.read is not None
    assert known.read.value == 1e10


def test_a_quantized_checkpoint_counts_the_bytes_that_it_stores(
    serving_run: Make, base: SimpleNamespace
) -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    config = json.loads(base.engine["model_config"])
    changed = base.engine | {"model_config": json.dumps(config | {"quantization_config": awq})}
    wide: Any = section(serving_run())
    told: Any = section(serving_run(engines=[changed]))
    saved = sum(line.values for line in model_shape(config).linears()) * (2 - (4 + 20 / 128) / 8)
    assert told.numbers["weight_bytes"] == pytest.approx(wide.numbers["weight_bytes"] - saved)
    parts = rows(table(told, "model-parts"))
    assert parts[-1]["Bytes"] == pytest.approx(told.numbers["weight_bytes"])
    step = "decode of 1, 11 before"
    before, after = (one.numbers["steps_per_gpu"][step] for one in (wide, told))
    assert after["weight_bytes"] == pytest.approx(before["weight_bytes"] - saved)
    assert after["flops_linear"] == before["flops_linear"]
    assert "int4" in sentences(told)
