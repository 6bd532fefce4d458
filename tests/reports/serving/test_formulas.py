"""FLOPs and bytes of engine steps, by vLLM's estimate, by torch's counter and by brute force."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.parsers.serving.model_shape import ModelShape, model_shape, read_model_shape
from nsight_prof.reports.serving.formulas import (
    Work,
    attention_flops,
    decode,
    floor_s,
    flops,
    mbu,
    mfu,
    prefill,
    total_flops,
    total_traffic,
    touched,
    traffic,
    weight_bytes,
)

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SMALL: dict[str, Any] = json.loads((FIXTURES / "small_llama.json").read_text())
CHUNKS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 60)), max_size=4)
CONTEXTS = st.lists(st.integers(0, 60), max_size=5)


@pytest.fixture(scope="module")
def qwen(root: Any) -> ModelShape:
    return read_model_shape(root / "targets" / "serving" / "configs" / "qwen2.5-7b")


def test_flops_are_those_of_vllms_own_estimate(qwen: ModelShape) -> None:
    """vLLM 0.20.2 counted 222,273,458,405,376 FLOPs for four batches of 8 x 512 + 12 tokens.

    That is vllm:estimated_flops_per_gpu of a Qwen2.5-7B on an H200; it takes attention without
    the causal half.
    """
    steps = [prefill(8, 512), *(decode(8, 512 + step) for step in range(11))]
    done = total_flops(qwen, steps)
    attention = sum(attention_flops(qwen, work, causal=False) for work in steps)
    assert 4 * (done.linear + done.head + attention) == 222_273_458_405_376


def test_a_decode_step_reads_the_matrices_once(qwen: ModelShape) -> None:
    moved = traffic(qwen, decode(8, 512))
    biases = 28 * 4608
    norms = 57 * 3584
    table = 152064 * 3584
    matrices = qwen.parameters() - table
    assert moved.weights == 2 * (matrices + 8 * 3584)
    assert matrices == sum(x.values for x in qwen.linears()) + table + norms + biases
    assert moved.kv_read == 8 * 512 * 57344
    assert moved.kv_written == 8 * 57344


def test_flops_are_those_of_torchs_counter() -> None:
    """FlopCounterMode counts a forward pass of the same matrices and of attention, not causal."""
    torch = pytest.importorskip("torch")
    counter = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode(display=False)
    shape = model_shape(SMALL)
    tokens, width = 7, shape.head_dim
    with torch.device("meta"), counter:
        x = torch.empty(tokens, shape.hidden)
        for _ in range(shape.layers):
            heads = [torch.nn.Linear(64, 64)(x).view(1, 4, tokens, width) for _ in range(3)]
            seen = torch.nn.functional.scaled_dot_product_attention(*heads)
            x = torch.nn.Linear(64, 64)(seen.reshape(tokens, 64))
            inner = torch.nn.Linear(64, 96)(x) * torch.nn.Linear(64, 96)(x)
            x = torch.nn.Linear(96, 64)(inner)
        torch.nn.Linear(64, 100)(x[-1:])
    done = flops(shape, prefill(1, tokens))
    attention = attention_flops(shape, prefill(1, tokens), causal=False)
    assert done.linear + done.head + attention == counter.get_total_flops()


@given(prefills=CHUNKS, contexts=CONTEXTS, window=st.none() | st.integers(1, 50))
def test_attention_counts_every_pair_of_a_query_and_what_it_sees(
    prefills: list[tuple[int, int]], contexts: list[int], window: int | None
) -> None:
    shape = dataclasses.replace(model_shape(SMALL), window=window)
    work = Work(tuple(prefills), tuple(contexts))
    pairs = 0
    for new, before in work.chunks:
        for query in range(before, before + new):
            seen = (
                range(query + 1) if window is None else range(max(0, query + 1 - window), query + 1)
            )
            pairs += len(seen)
    assert attention_flops(shape, work) == 4 * 4 * 16 * 3 * pairs


@given(prompt=st.integers(2, 200), cuts=st.lists(st.integers(1, 199), max_size=4))
def test_a_prompt_in_chunks_takes_the_flops_of_the_whole(prompt: int, cuts: list[int]) -> None:
    shape = model_shape(SMALL)
    edges = sorted({0, prompt, *(cut for cut in cuts if cut < prompt)})
    pieces = [Work(((end - begin, begin),)) for begin, end in zip(edges, edges[1:], strict=False)]
    parts, whole = total_flops(shape, pieces), flops(shape, prefill(1, prompt))
    assert parts.linear == whole.linear
    assert parts.attention == whole.attention
    assert parts.head == len(pieces) * whole.head


@given(prefills=CHUNKS, contexts=CONTEXTS, gpus=st.sampled_from([2, 4]))
def test_gpus_share_the_work_of_a_model(
    prefills: list[tuple[int, int]], contexts: list[int], gpus: int
) -> None:
    shape = model_shape(SMALL)
    shard = shape.shard(gpus)
    work = Work(tuple(prefills), tuple(contexts))
    assert flops(shard, work).total * gpus == flops(shape, work).total
    assert traffic(shard, work).kv_read * gpus == traffic(shape, work).kv_read
    more = gpus * traffic(shard, work).weights - traffic(shape, work).weights
    replicated = shape.norm_parameters() * 2.0
    rows = (gpus * min(work.tokens, shard.vocabulary) - min(work.tokens, 100)) * 64 * 2.0
    assert more == (gpus - 1) * replicated + rows


def test_totals_are_sums_of_steps() -> None:
    shape = model_shape(SMALL)
    steps = [prefill(2, 10), decode(2, 10), decode(2, 11)]
    assert total_flops(shape, steps).total == sum(flops(shape, s).total for s in steps)
    assert total_traffic(shape, steps).read == sum(traffic(shape, s).read for s in steps)


def test_experts_are_read_by_the_tokens_that_use_them() -> None:
    mixture = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    shape = model_shape(SMALL | mixture)
    up = next(line for line in shape.linears() if line.path.endswith("experts.gate_up_proj"))
    assert touched(up, 1) == pytest.approx(up.parameters * 2 / 8)
    assert touched(up, 2) == pytest.approx(up.parameters * (1 - (6 / 8) ** 2))
    assert touched(up, 10_000) == pytest.approx(up.parameters)
    assert flops(shape, prefill(1, 3)).linear == 2 * 3 * sum(x.active for x in shape.linears())


def test_no_logits_need_no_output_projection() -> None:
    shape = model_shape(SMALL)
    assert weight_bytes(shape, 5, 1) - weight_bytes(shape, 5, 0) == 2 * 64 * 100
    assert flops(shape, Work(((5, 0),), sampled=0)).head == 0


def test_utilisation_and_floors() -> None:
    assert mfu(50.0, 2.0, 100.0) == 0.25
    assert mbu(50.0, 2.0, 100.0) == 0.25
    assert math.isnan(mfu(50.0, 2.0, math.nan))
    shape = model_shape(SMALL)
    work = decode(4, 10)
    reading, computing = traffic(shape, work).read, flops(shape, work).total
    assert floor_s(shape, work, reading, 1e30) == pytest.approx(1.0)
    assert floor_s(shape, work, 1e30, computing) == pytest.approx(1.0)
    assert math.isnan(floor_s(shape, work, math.nan, 1.0))
