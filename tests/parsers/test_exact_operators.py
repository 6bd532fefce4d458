"""Operators measured at a model's own shapes: read from `bench`, and drawn between sizes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers.predict.costs import T0, T2, Datasheet, datasheet
from nsight_prof.parsers.predict.measured import LATER_RANK, Exact, exact_costs
from nsight_prof.parsers.predict.operators import Kind, Operator, Step, operators
from nsight_prof.parsers.predict.quantization import quantized_shape
from nsight_prof.parsers.predict.trace import Calibrated, Recorded, Trace
from nsight_prof.parsers.serving.model_shape import ModelShape, model_shape
from nsight_prof.targets.serving import op_shapes
from nsight_prof.targets.serving.layer_slice import cut

GPU = datasheet("h200-sxm")
BASE = Datasheet(GPU)
CONFIG = {
    "model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4,
    "num_hidden_layers": 6, "intermediate_size": 1024, "vocab_size": 1000, "head_dim": 64,
    "torch_dtype": "bfloat16",
}  # fmt: skip
SHAPE = model_shape(CONFIG)


def bench(rows: Sequence[tuple[dict[str, Any], float]], ranks: int = 1) -> pd.DataFrame:
    """Return table `bench` as the target writes it: sizes come from the target's own code."""
    decoder = op_shapes.Decoder.of(cut(CONFIG, 1, ranks))
    shared = {"family": "predict-op", "ranks": ranks} | vars(decoder)
    return pd.DataFrame(
        [{"status": "ok", "params": json.dumps(shared | params), "median_s": seconds}
         for params, seconds in rows]
    )  # fmt: skip


def products(sizes: Sequence[int], seconds_a_token: float = 1e-6) -> Iterator[tuple[Any, float]]:
    for tokens in sizes:
        yield {"operator": "qkv_proj", "tokens": tokens}, 1e-5 + tokens * seconds_a_token


def of(costs: Any, name: str, step: Step, shape: ModelShape = SHAPE) -> Any:
    return costs.of(next(o for o in operators(shape, step) if o.name == name))


def test_a_measured_size_takes_what_was_measured_and_others_lie_between() -> None:
    costs = exact_costs(BASE, bench(list(products((64, 128, 256, 512)))), SHAPE)
    found = of(costs, "qkv_proj", Step(decode=128, context=1))
    assert (found.seconds, found.tier) == (pytest.approx(1e-5 + 128e-6), T2)
    between = of(costs, "qkv_proj", Step(decode=180, context=1)).seconds
    assert 1e-5 + 128e-6 < between < 1e-5 + 256e-6
    assert of(costs, "o_proj", Step(decode=128, context=1)).tier == T0


def test_intervals_are_what_sizes_missed_that_were_left_out() -> None:
    rows = [*products((64, 128)), ({"operator": "qkv_proj", "tokens": 256}, 1e-3),
            *products((512,))]  # fmt: skip
    found = of(exact_costs(BASE, bench(rows), SHAPE), "qkv_proj", Step(decode=128, context=1))
    assert found.high / found.seconds > 1.5
    alone = exact_costs(BASE, bench(list(products((64, 128)))), SHAPE)
    assert math.isinf(of(alone, "qkv_proj", Step(decode=128, context=1)).high)


def test_another_model_and_failed_cases_are_no_source() -> None:
    other = bench([({"operator": "qkv_proj", "tokens": 8, "hidden": 4096}, 1.0)])
    assert exact_costs(BASE, other, SHAPE) is BASE
    failed = bench(list(products((8, 16)))).assign(status="failed", median_s=math.nan)
    assert exact_costs(BASE, failed, SHAPE) is BASE


def test_attention_is_drawn_along_batch_and_context() -> None:
    rows = [
        ({"operator": "attention_decode", "tokens": batch, "requests": batch, "new": 1,
          "before": before}, 1e-6 * batch * before)
        for batch in (8, 64) for before in (512, 4096)
    ]  # fmt: skip
    costs = exact_costs(BASE, bench(rows), SHAPE)
    step = Step(decode=64, context=4096)
    assert of(costs, "attention_decode", step).seconds == pytest.approx(1e-6 * 64 * 4096)
    between = of(costs, "attention_decode", Step(decode=64, context=2000)).seconds
    assert 1e-6 * 64 * 512 < between < 1e-6 * 64 * 4096


def test_what_ranks_exchange_is_by_bytes_and_of_as_many_gpus() -> None:
    width = CONFIG["hidden_size"]
    rows = [({"operator": "all_reduce", "tokens": tokens, "width": width}, 1e-5 + 1e-9 * tokens)
            for tokens in (1, 1000)]  # fmt: skip
    two = SHAPE.shard(2)
    costs = exact_costs(BASE, bench(rows, ranks=2), two)
    assert isinstance(costs, Exact)
    assert not costs.has_products
    reduced = of(costs, "all_reduce", Step(decode=500, context=1), two)
    assert reduced.seconds == pytest.approx(LATER_RANK * (1e-5 + 5e-7))
    assert exact_costs(BASE, bench(rows, ranks=2), SHAPE.shard(4)) is BASE


def test_the_target_measures_each_product_of_a_rank_as_predictions_have_it() -> None:
    for ranks in (1, 2, 4):
        decoder = op_shapes.Decoder.of(cut(CONFIG, 1, ranks))
        wanted = {o.name: (o.n, o.k) for o in operators(SHAPE.shard(ranks), Step(decode=1))
                  if o.kind is Kind.PRODUCT}  # fmt: skip
        assert decoder.products() == wanted
    assert {size.stage for size in op_shapes.attended(2**19)} == {"prefill", "decode"}
    assert all(s.requests * s.before <= 2**19 for s in op_shapes.attended(2**19))


def test_all_logits_are_gathered() -> None:
    two = SHAPE.shard(2)
    moved = {"operator": "all_gather", "width": two.vocabulary}
    rows = [(moved | {"tokens": tokens}, 1e-6 * tokens) for tokens in (1, 64)]
    costs = exact_costs(BASE, bench(rows, ranks=2), two)
    whole = next(o for o in operators(two, Step(decode=64, context=1)) if o.name == "all_gather")
    assert costs.of(whole).seconds == pytest.approx(64e-6)
    assert whole == Operator("all_gather", Kind.COLLECTIVE, 1, 64, bytes=64 * 1000 * 2.0)


def sliced(shape: ModelShape, seconds: dict[str, float]) -> Trace:
    """Return a slice that recorded batches of 4 and of 8, the larger one twice as long."""
    steps = tuple(
        Recorded(Step(decode=batch, context=100.0), batch,
                 {name: batch * value for name, value in seconds.items()}, 0.0, 0.0, 0.0)
        for batch in (4, 8)
    )  # fmt: skip
    return Trace(shape.with_layers(2), steps, is_slice=True)


def test_a_slice_of_one_rank_samples_its_part_of_the_vocabulary_and_exchanges_nothing() -> None:
    two = SHAPE.shard(2)
    rows = [({"operator": "all_reduce", "tokens": n, "width": 512}, 1e-5) for n in (1, 64)]
    base = exact_costs(BASE, bench(rows, ranks=2), two)
    costs = Calibrated.of_trace(base, sliced(two, {"sampling": 1e-6, "qkv_proj": 2e-6}), two)
    step = Step(decode=8, context=100)
    assert of(costs, "sampling", step, two).seconds == pytest.approx(2 * 8e-6)
    assert of(costs, "qkv_proj", step, two).seconds == pytest.approx(8e-6)
    reduced = of(costs, "all_reduce", step, two)
    assert (reduced.seconds, reduced.tier) == (pytest.approx(LATER_RANK * 1e-5), T2)


def test_what_an_engine_quantized_is_in_the_kernels_around_its_products() -> None:
    narrow = quantized_shape(CONFIG, "fp8")
    costs = Calibrated.of_trace(BASE, sliced(narrow, {"qkv_proj": 1e-6}), narrow)
    step = Step(decode=8, context=100)
    assert of(costs, "quantize_qkv_proj", step, narrow).seconds == 0.0
    assert of(costs, "qkv_proj", step, narrow).seconds == pytest.approx(8e-6 / 2)
    assert of(BASE, "quantize_qkv_proj", step, narrow).seconds > 0.0
