"""Operators, fits, traces and the simulation of continuous batching behind `prof predict`."""

import json
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.predict.corrections import (
    HOSTS,
    SLICE,
    Factors,
    correction,
    factors,
    host_layer_s,
    points_of,
    power_slowdown,
    rank_wait_s,
    traced_host,
)
from nsight_prof.parsers.predict.costs import (
    T0,
    T1,
    T2,
    Anchors,
    Carried,
    Datasheet,
    Estimate,
    Power,
    Residuals,
    datasheet,
    datasheets,
)
from nsight_prof.parsers.predict.fit import Array, fit
from nsight_prof.parsers.predict.front_end import FrontEnd, token_seconds
from nsight_prof.parsers.predict.measured import Cases, Products, measured_costs
from nsight_prof.parsers.predict.operators import Kind, Operator, Step, check_known, operators
from nsight_prof.parsers.predict.quantization import quantized_shape
from nsight_prof.parsers.predict.serving import (
    CAPTURED,
    Engine,
    Goal,
    Host,
    Predictor,
    Queue,
    Request,
    SingleStep,
    Workload,
    captured_sizes,
    fitted_host,
    host_of,
    point,
    simulate,
)
from nsight_prof.parsers.predict.trace import (
    Batch,
    Trace,
    cut,
    products_of,
    replayed,
    replayed_drafts,
)
from nsight_prof.parsers.predict.trace import Recorded as RecordedStep
from nsight_prof.parsers.predict.trace_file import read_workload
from nsight_prof.parsers.predict.validation import (
    Rule,
    errors_frame,
    kernel_errors,
    step_seconds,
    summary,
)
from nsight_prof.parsers.serving.model_shape import (
    Adapters,
    Experts,
    ModelShape,
    model_shape,
    read_model_shape,
)
from nsight_prof.reports.serving import formulas

H200 = datasheet("NVIDIA H200")


@pytest.fixture(scope="module")
def shape(root: Path) -> ModelShape:
    return read_model_shape(root / "targets/serving/configs/qwen2.5-7b")


@pytest.mark.parametrize("name", ["qwen2.5-0.5b", "qwen2.5-7b", "llama-3.1-8b", "qwen3-30b-a3b"])
@pytest.mark.parametrize(
    "step", [Step(prefill=((512, 0), (100, 412))), Step(decode=8, context=1024)]
)
def test_operators_do_the_work_that_the_model_needs(root: Path, name: str, step: Step) -> None:
    """Oracle: the closed forms of the static analysis, which count no activations."""
    model = read_model_shape(root / "targets/serving/configs" / name)
    found = operators(model, step)
    decode = (round(step.context),) * step.decode
    work = formulas.Work(step.prefill, decode)
    needed = formulas.flops(model, work)

    def flops(*kinds: Kind) -> float:
        return sum(one.calls * one.flops for one in found if one.kind in kinds)

    assert flops(Kind.PRODUCT, Kind.ROUTED) == needed.linear + needed.head
    attention = flops(Kind.PREFILL, Kind.DECODE)
    # A request that goes on sees its new token, too, in both.
    assert attention == pytest.approx(needed.attention, rel=1e-12)
    weights = sum(one.calls * one.n * one.k for one in found if one.kind is Kind.PRODUCT)
    lines = [line for line in (*model.linears(), model.head()) if line.copies == 1]
    assert weights == sum(line.values for line in lines)
    moved = sum(one.calls * one.bytes for one in found)
    assert moved > formulas.traffic(model, work).weights


@pytest.mark.parametrize("step", [Step(((1000, 24),)), Step((), 8, 999)])
def test_latent_attention_needs_what_the_reports_count(root: Path, step: Step) -> None:
    shape = read_model_shape(root / "targets/serving/configs/deepseek-v2-lite")
    found = operators(shape, step)
    work = formulas.Work(step.prefill, (round(step.context),) * step.decode)
    attention = [one for one in found if one.kind in (Kind.PREFILL, Kind.DECODE)]
    flops = sum(one.calls * one.flops for one in attention)
    assert flops == pytest.approx(formulas.attention_flops(shape, work), rel=1e-12)
    read = formulas.traffic(shape, work).kv_read
    assert read == sum(before for _, before in work.chunks) * 27 * 576 * 2


def test_a_mixture_has_a_router_experts_and_what_every_token_uses(root: Path) -> None:
    config = json.loads((root / "targets/serving/configs/qwen2.5-7b/config.json").read_text())
    mixture = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512,
               "shared_expert_intermediate_size": 1024, "mlp_only_layers": [0]}  # fmt: skip
    model = model_shape({**config, **mixture, "model_type": "qwen2_moe"})
    found = {one.name: one for one in operators(model, Step(decode=3))}
    assert {found[name].calls for name in ("gate_up_proj", "down_proj", "silu_mul")} == {1}
    layers = ("router", "experts", "shared_gate_up_proj", "shared_silu_mul", "shared_down_proj")
    assert {found[name].calls for name in layers} == {model.layers - 1}
    assert (found["router"].m, found["router"].n) == (3, 8)
    experts = found["experts"]
    assert (experts.kind, experts.n, experts.k) == (Kind.ROUTED, 512, model.hidden)
    # One token meets 2 of 8 experts, 3 meet 8 (1 - (3/4)^3) on the average.
    weights = 8 * (1 - 0.75**3) * 3 * model.hidden * 512 * 2
    assert experts.bytes == pytest.approx(weights + 2 * 3 * model.hidden * 2)


def test_a_shard_has_half_of_the_products_and_collectives(shape: ModelShape) -> None:
    whole = operators(shape, Step(decode=8, context=100))
    half = operators(shape.shard(2), Step(decode=8, context=100))

    def flops(found: tuple[Operator, ...]) -> float:
        return sum(one.calls * one.flops for one in found if one.kind is Kind.PRODUCT)

    assert flops(half) == pytest.approx(flops(whole) / 2)
    assert {one.name: one.calls for one in half if one.kind is Kind.COLLECTIVE} == {
        "all_reduce": 2 * shape.layers + 1,
        "all_gather": 1,
    }
    assert not [one for one in whole if one.kind is Kind.COLLECTIVE]


def test_datasheets_agree_with_flop_a_clock_of_the_chip() -> None:
    """Oracle: the architecture whitepapers behind the metric catalogue."""
    raw = pd.Series({name: gpu.flop_per_s for name, gpu in datasheets().items()})
    clocks = {"h100-sxm": 1.83e9, "h200-sxm": 1.83e9, "a100-sxm-80gb": 1.41e9}
    sms = {"h100-sxm": 132, "h200-sxm": 132, "a100-sxm-80gb": 108}
    for name, clock in clocks.items():
        rate = catalogue().datasheets["GA100" if name.startswith("a") else "GH100"].tensor["bf16"]
        assert raw[name] == pytest.approx(rate * sms[name] * clock, rel=0.01)


def test_a_fit_finds_the_parameters_that_made_the_values() -> None:
    work = np.logspace(3, 10, 30)
    known = np.array([4e-6, 3e12])

    def model(p: Array) -> Array:
        return np.asarray(p[0] + work / p[1])

    found = fit(model, model(known), np.ones(30), np.array([1e-6, 1e12]))
    assert found == pytest.approx(known, rel=1e-4)


def products(measure: tuple[tuple[int, int], ...]) -> Products:
    """Products that take a known time: 3 us, 80 % of the peak, 90 % of the bandwidth."""
    sizes = np.array([(m, n, k) for n, k in measure for m in (1, 8, 64, 512, 4096)], dtype=float)
    return Products.fitted(H200, sizes, known_time(sizes))


def known_time(sizes: Array) -> Array:
    m, n, k = sizes.T
    flops = 2 * m * n * k / H200.flop_per_s / 0.8
    moved = 2 * (m * k + n * k + m * n) / H200.bytes_per_s / 0.9
    return np.asarray(3e-6 + (flops**4 + moved**4) ** 0.25)


SHAPES = ((4096, 4096), (14336, 4096), (4096, 14336), (1024, 8192), (8192, 1024))


def test_products_of_other_shapes_are_t1_and_of_the_same_t2() -> None:
    fitted = products(SHAPES)
    for size, tier in (((128, 4096, 4096), T2), ((128, 6144, 4096), T1), ((9000, 4096, 4096), T1)):
        m, n, k = size
        found = fitted.of(Operator("x", Kind.PRODUCT, 1, m, n, k))
        assert found.tier == tier
        assert found.seconds == pytest.approx(known_time(np.array([size], float))[0], rel=0.03)
        assert found.low <= found.seconds <= found.high


def test_intervals_hold_what_the_fit_misses_of_shapes_that_it_never_saw() -> None:
    fitted = products(SHAPES)
    assert {(n, k) for (_, n, k), _, _ in fitted.held_out} == set(SHAPES)
    low, high = fitted.residuals
    inside = [low <= t / p <= high for _, t, p in fitted.held_out]
    assert np.mean(inside) >= 0.8
    assert Residuals.of(()) == (0.0, math.inf)


class Recorded(dict[str, float]):
    """Costs by the name of an operator."""

    def of(self, operator: Operator) -> Estimate:
        seconds = self[operator.name]
        return Estimate(seconds, seconds, seconds, T1)


def test_a_datasheet_bounds_below_and_nothing_above(shape: ModelShape) -> None:
    one = operators(shape, Step(decode=1, context=10))[1]
    least = Datasheet(H200).of(one)
    assert least == (max(one.flops / 989.4e12, one.bytes / 4.8e12), least.seconds, math.inf, T0)
    other = datasheet("b200-sxm")
    carried = Carried(Datasheet(H200), H200, other).of(one)
    assert carried.seconds == pytest.approx(other.roofline(one))
    # Of the same chip with slower DRAM: what computes stays, what moves takes longer by its bytes.
    slower, calls = datasheet("h100-sxm"), Recorded({"big": 2e-3, "small": 5e-6, "moves": 1e-3})
    big = Operator("big", Kind.PRODUCT, 1, 8192, 4096, 4096, flops=1e12, bytes=1e8)
    assert Carried(calls, H200, slower).of(big).seconds == pytest.approx(2e-3)
    small = Operator("small", Kind.POINTWISE, 1, 1, bytes=1e5)
    assert Carried(calls, H200, slower).of(small).seconds == pytest.approx(5e-6, rel=3e-3)
    moves = Operator("moves", Kind.POINTWISE, 1, 1, bytes=0.95 * 4.8e9)
    assert Carried(calls, H200, slower).of(moves).seconds == pytest.approx(1e-3 * 4.8 / 3.35)
    with pytest.raises(UsageError, match="collectives"):
        Datasheet(H200).of(Operator("all_reduce", Kind.COLLECTIVE, 1, 8, bytes=1.0))


def test_what_was_never_measured_is_refused(root: Path) -> None:
    config = json.loads((root / "targets/serving/configs/qwen2.5-7b/config.json").read_text())
    with pytest.raises(UsageError, match="float32"):
        check_known(model_shape({**config, "torch_dtype": "float32"}))
    mixture = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
    with pytest.raises(UsageError, match="experts in fp8"):
        check_known(quantized_shape({**config, **mixture, "model_type": "qwen2_moe"}, "fp8"))
    with pytest.raises(UsageError, match="too few cases"):
        measured_costs(Cases.of(pd.DataFrame(columns=COLUMNS)), H200)


COLUMNS = ["status", "mode", "data", "dtype", "median_s", "params", "bytes", "flops"]


def test_kernels_of_a_step_are_cut_by_their_order() -> None:
    layer = [
        ("gemm", "qkv"), ("elementwise", "rope"), ("kv_cache", "write"), ("attention", "fwd"),
        ("attention", "combine"), ("gemm", "o"), ("gemm", "cuBLAS split-K reduction"),
        ("collective", "NCCL all-reduce"), ("norm", "n"), ("gemm", "up"), ("elementwise", "silu"),
        ("gemm", "down"), ("norm", "n"),
    ]  # fmt: skip
    step = [("attention", "prepare"), *layer, *layer, ("gemm", "head"), ("reduction", "argmax")]
    order = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
    found = cut([(*kernel, 1.0) for kernel in step], order * 2)
    assert found == {
        "embedding": 1, "qkv_proj": 2, "rotary": 2, "kv_write": 2, "attention": 4, "o_proj": 4,
        "all_reduce": 2, "norm": 4, "gate_up_proj": 2, "silu_mul": 2, "down_proj": 2,
        "lm_head": 1, "sampling": 1,
    }  # fmt: skip
    assert cut([(*kernel, 1.0) for kernel in step], order * 3) is None
    assert cut([(*kernel, 1.0) for kernel in step], ()) is None


def test_attention_to_a_window_is_cut_apart_from_that_to_all_tokens(root: Path) -> None:
    layer = [("gemm", "qkv"), ("attention", "fwd"), ("gemm", "o"), ("gemm", "up"), ("gemm", "down")]
    step = [*[(*kernel, 1.0) for kernel in layer] * 6, ("gemm", "head", 1.0)]
    shape = read_model_shape(root / "targets/serving/configs/gemma-3-12b")
    found = cut(step, products_of(shape.with_layers(6), Step()), global_every=3)
    assert found is not None
    assert (found["attention_window"], found["attention"]) == (4, 2)
    prompt = Step(prefill=((4000, 0),))
    by_name = {item.name: item for item in operators(shape, prompt)}
    whole, windowed = by_name["attention_prefill"], by_name["attention_prefill_window"]
    assert (whole.calls, windowed.calls) == (8, 40)
    pairs = sum(min(i, 1024) for i in range(1, 4001))
    assert windowed.flops == 4 * 16 * 256 * pairs
    assert whole.flops == 4 * 16 * 256 * 4000 * 4001 / 2


def test_router_and_experts_of_a_mixture_are_cut_by_their_order(root: Path) -> None:
    layer = [
        ("gemm", "qkv"), ("elementwise", "rope"), ("attention", "fwd"), ("gemm", "o"),
        ("norm", "n"), ("gemm", "router"), ("moe", "top k"), ("moe", "align"), ("gemm", "up"),
        ("elementwise", "silu"), ("gemm", "down"), ("moe", "sum"), ("norm", "n"),
    ]  # fmt: skip
    step = [*layer, *layer, ("gemm", "head"), ("reduction", "argmax")]
    mixture = read_model_shape(root / "targets/serving/configs/qwen3-30b-a3b").with_layers(2)
    found = cut([(*kernel, 1.0) for kernel in step], products_of(mixture, Step()))
    assert found == {
        "qkv_proj": 2, "rotary": 2, "attention": 2, "o_proj": 2, "norm": 4, "router": 2,
        "experts": 12, "lm_head": 1, "sampling": 1,
    }  # fmt: skip


def test_latent_attention_of_prompts_computes_keys_and_of_decode_absorbs_them(root: Path) -> None:
    """DeepSeek-V2-Lite: 16 heads of 128 + 64 and 128 values, latent vectors of 512 + 64."""
    shape = read_model_shape(root / "targets/serving/configs/deepseek-v2-lite")
    assert shape.kv_bytes_per_token() == 27 * 576 * 2
    assert [shape.with_layers(4).experts, shape.with_layers(4).layers] == [
        Experts(64, 6, 1408, 2816, layers=3, shared_gated=False, dense=1), 4
    ]  # fmt: skip
    prompt = {item.name: item for item in operators(shape, Step(((1000, 0),)))}
    assert prompt["kv_b_proj"].flops == 2 * 1000 * 512 * 16 * (128 + 128)
    pairs = 1000 * 1001 / 2
    assert prompt["attention_prefill"].flops == 2 * 16 * (128 + 64 + 128) * pairs
    assert not {"q_absorb", "v_up", "attention_decode"} & set(prompt)
    decode = {item.name: item for item in operators(shape, Step((), 8, 999))}
    assert decode["attention_decode"].flops == 2 * 16 * (512 + 64 + 512) * 8 * 1000
    queries = 8 * 16 * (576 + 512) * 2
    assert decode["attention_decode"].bytes == queries + 8 * 1000 * 576 * 2
    assert decode["q_absorb"].flops == 2 * 8 * 16 * 128 * 512
    assert decode["v_up"].flops == 2 * 8 * 16 * 512 * 128
    assert "kv_b_proj" not in decode
    short = {item.name: item for item in operators(shape, Step(((500, 0), (600, 0))))}
    assert (short["kv_b_proj"].m, short["q_absorb"].m) == (600, 500)
    assert short["attention_prefill_absorbed"].flops == 2 * 16 * 1088 * 500 * 501 / 2


@pytest.mark.parametrize("kind", ["long prompt", "decode"])
def test_kernels_of_latent_attention_are_cut_by_what_the_step_reads(root: Path, kind: str) -> None:
    shape = read_model_shape(root / "targets/serving/configs/deepseek-v2-lite").with_layers(3)
    ahead = [("gemm", "latent"), ("gemm", "q"), ("elementwise", "rope"), ("kv_cache", "concat")]
    if kind == "decode":
        step = Step((), 8, 100)
        inside = [("gemv", "absorb"), ("attention", "fwd"), ("gemm", "up"), ("copy", "out")]
    else:
        step = Step(((1024, 0),))
        inside = [("gemm", "kv b"), ("copy", "concat"), ("attention", "fwd")]
    attention = [*ahead, *inside, ("gemm", "o"), ("norm", "n")]
    dense = [("gemm", "up"), ("elementwise", "silu"), ("gemm", "down"), ("norm", "n")]
    routed = [
        ("gemm", "router"), ("gemm", "shared up"), ("moe", "top k"), ("gemm", "up"),
        ("elementwise", "silu"), ("gemm", "shared down"), ("gemm", "down"), ("moe", "sum"),
        ("norm", "add and norm"),
    ]  # fmt: skip
    step_kernels = [*attention, *dense, *[*attention, *routed] * 2, ("gemm", "head")]
    found = cut([(*kernel, 1.0) for kernel in step_kernels], products_of(shape, step))
    beside = {"q_absorb": 3, "v_up": 6} if kind == "decode" else {"kv_b_proj": 6}
    assert found == beside | {
        "kv_a_proj_with_mqa": 3, "q_proj": 3, "rotary": 3, "kv_write": 3, "attention": 3,
        "o_proj": 3, "norm": 6, "gate_up_proj": 1, "silu_mul": 1, "down_proj": 1, "experts": 16,
        "lm_head": 1,
    }  # fmt: skip
    assert products_of(shape, Step(((1024, 512),))) == ()


def queue(
    tokens: int,
    requests: list[Request],
    clients: int = 0,
    kv_tokens: float = math.inf,
    front: FrontEnd[Any] | None = None,
) -> Queue:
    return Queue(Engine(tokens), deque(requests), clients, kv_tokens, front or FrontEnd())


def test_a_batch_is_prefilled_in_steps_and_then_generates() -> None:
    """By hand: 3 prompts of 60 in steps of 100 tokens; the second prompt is cut."""
    steps: list[Step] = []

    def second(step: Step, _: float) -> float:
        steps.append(step)
        return 1.0

    served = simulate(second, queue(100, [Request(0.0, 60, 4)] * 3))
    assert [step.prefill for step in steps[:3]] == [
        ((60, 0), (40, 0)),
        ((20, 40), (60, 0)),
        (),
    ]
    assert [step.decode for step in steps] == [0, 1, 3, 3, 2]
    assert [(one.first_s, one.finish_s) for one in served] == [(1, 4), (2, 5), (2, 5)]
    assert steps[2].context == pytest.approx(60 + (2 + 1 + 1) / 3)


def test_a_closed_loop_serves_all_and_keeps_its_clients_busy() -> None:
    most = 0

    def second(step: Step, _: float) -> float:
        nonlocal most
        most = max(most, step.requests)
        return 0.5

    served = simulate(second, queue(64, [Request(0.0, 50, 5)] * 17, clients=4))
    assert len(served) == 17
    assert most <= 4
    assert all(one.arrival_s < one.first_s < one.finish_s for one in served)
    assert simulate(second, queue(64, [Request(0.0, 50, 1)] * 9, clients=4))[-1].arrival_s > 0


def test_requests_of_an_open_loop_join_the_step_after_the_scheduled_one() -> None:
    """By hand: the second request comes in a step when the next one is scheduled already."""
    served = simulate(lambda *_: 1.0, queue(100, [Request(0.0, 10, 4), Request(0.5, 10, 2)]))
    assert [(one.arrival_s, one.first_s, one.finish_s) for one in served] == [
        (0, 1, 4),
        (0.5, 3, 4),
    ]
    late = simulate(lambda *_: 1.0, queue(100, [Request(0.0, 10, 1), Request(7.0, 10, 1)]))
    assert [one.first_s for one in late] == [1, 8]


def test_a_step_that_is_long_to_issue_holds_the_tokens_of_the_one_before_back() -> None:
    """By hand: steps take the GPU 1 s; prompts take the host 3 s, others none."""
    requests = [Request(0.0, 10, 9), Request(3.5, 10, 2)]
    served = simulate(
        lambda *_: 1.0, queue(100, requests), lambda step, _: 3.0 if step.prefill else 0.0
    )
    # The first prompt is issued until 3 s, when the GPU is done too. The second is issued from 4 s,
    # when the token of the step from 3 s is sent, until 7 s: that of the step until 5 s waits so
    # long. Four of nine tokens are there by 7 s, and the others come one per second.
    assert [(one.first_s, one.finish_s) for one in served] == [(7, 8), (3, 12)]


@pytest.mark.parametrize(
    ("ahead", "workers", "first_s", "finish_s"),
    [(True, False, 3, 3), (False, False, 1, 4), (True, True, 1, 3)],
)
def test_a_host_that_looks_ahead_and_issues_itself_sends_tokens_after_the_next_step(
    ahead: bool, workers: bool, first_s: float, finish_s: float
) -> None:
    """By hand: steps take the GPU 1 s; those that generate take the host 3 s, prompts none."""
    (served,) = simulate(
        lambda *_: 1.0,
        queue(100, [Request(0.0, 10, 2)]),
        lambda step, _: 0.0 if step.prefill else 3.0,
        ahead=ahead,
        workers=workers,
    )
    assert (served.first_s, served.finish_s) == (first_s, finish_s)


def test_a_server_passes_requests_on_together_and_an_idle_engine_begins_with_the_first() -> None:
    """By hand: two requests take the loop 0.5 s, and each token 0.1 s."""
    two = [Request(0.0, 10, 2)] * 2
    served = simulate(lambda *_: 1.0, queue(100, two, clients=2, front=FrontEnd(0.25, 0.1, 0.05)))
    assert [one.first_s for one in served] == pytest.approx([1.65, 2.75])
    assert [one.finish_s for one in served] == pytest.approx([2.75, 3.65])


def test_answers_lag_behind_where_the_server_has_more_to_do_than_time() -> None:
    """Four tokens per step take the loop 2 s and the engine 1 s."""
    four = [Request(0.0, 10, 3)] * 4
    served = simulate(lambda *_: 1.0, queue(100, four, front=FrontEnd(token_s=0.5)))
    assert {(one.first_s, one.finish_s) for one in served} == {(3.0, 7.0)}


def test_the_time_to_send_a_token_is_that_between_two_of_one_step() -> None:
    """Oracle: three clients, each of whose tokens comes 40 us after that of the one before."""
    rows = [
        {"arrival_s": client / 10,
         "token_times_s": json.dumps([0.1 * k + 40e-6 * client - client / 10 for k in range(1, 9)])}
        for client in range(3)
    ]  # fmt: skip
    assert token_seconds(pd.DataFrame(rows)) == pytest.approx(40e-6)
    rows[1]["token_times_s"] = None
    assert token_seconds(pd.DataFrame(rows)) == pytest.approx(80e-6 * 2 / 3)
    assert math.isnan(token_seconds(pd.DataFrame(rows[1:2])))


def test_a_full_cache_preempts_the_last_request_which_is_computed_again() -> None:
    three = queue(100, [Request(0.0, 10, 5)] * 3, kv_tokens=35)
    served = simulate(lambda *_: 1.0, three)
    assert len(served) == 3
    assert three.preempted == 1
    assert served[-1].first_s == 1  # its first token was there before it lost its place
    assert served[-1].finish_s > served[0].finish_s


def test_a_request_that_no_cache_holds_is_refused() -> None:
    with pytest.raises(UsageError, match="20 tokens does not fit"):
        simulate(lambda *_: 1.0, queue(100, [Request(0.0, 20, 5)], kv_tokens=15))


@given(
    st.lists(st.tuples(st.floats(0, 50), st.integers(1, 90), st.integers(1, 9)), min_size=1),
    st.integers(0, 5),
    st.integers(100, 400),
)
def test_every_request_is_served_once_and_in_time(
    given_requests: list[tuple[float, int, int]], clients: int, kv_tokens: int
) -> None:
    requests = [Request(*one) for one in sorted(given_requests)]
    served = simulate(lambda step, _: 0.01 * step.tokens, queue(64, requests, clients, kv_tokens))
    assert sorted(one.output for one in served) == sorted(one.output for one in requests)
    assert all(one.arrival_s < one.first_s <= one.finish_s for one in served)


def test_a_recorded_workload_is_read_in_the_order_in_which_requests_came(tmp_path: Path) -> None:
    file = tmp_path / "mooncake.jsonl"
    file.write_text(
        '{"timestamp": 1500, "input_length": 30, "output_length": 5, "hash_ids": []}\n'
        '{"timestamp": 500, "input_length": 10, "output_length": 3}\n'
    )
    work = read_workload(file)
    assert work.requests() == (Request(0.0, 10, 3), Request(1.0, 30, 5))
    assert (work.name, work.prompt, work.output) == ("trace/mooncake", 20, 4)
    file.write_text('{"timestamp": 1}\n')
    with pytest.raises(ArtifactUnreadable, match="line 1: no request"):
        read_workload(file)


def test_goodput_counts_requests_that_keep_their_latencies(shape: ModelShape) -> None:
    predictor = Predictor(shape, Datasheet(H200), H200, Engine())
    work = Workload(512, 8, rate=50.0)
    every = point(predictor, work, goal=Goal(ttft_s=10.0))
    assert every["goodput_requests_per_s"] == every["requests_per_s"]
    assert point(predictor, work, goal=Goal(tpot_s=1e-9))["goodput_requests_per_s"] == 0
    assert math.isnan(point(predictor, work)["goodput_requests_per_s"])


def test_a_point_is_ordered_like_its_bounds(shape: ModelShape) -> None:
    predictor = Predictor(shape, Datasheet(H200), H200, Engine(), Host(gap_decode_s=1e-4))
    found = point(predictor, Workload(512, 8, batch=4))
    assert found["tpot_p50_s"] == found["tpot_p50_s_low"] > 0
    assert math.isnan(found["tpot_p50_s_high"])
    assert found["output_tokens_per_s_high"] == found["output_tokens_per_s"]
    step = predictor.step(Step(decode=4, context=512))
    kernels = sum(part.seconds.value for part in step.breakdown)
    assert step.gpu_s == pytest.approx(kernels + 1e-4)
    assert step.rows == 4


def test_prompts_that_wait_for_the_host_are_bounded_by_hosts_of_whichever_gpu(
    shape: ModelShape,
) -> None:
    host = Host(gap_prefill_s=0.0, overhead_s=1e-3, issue_graph_s=0.05)
    predictor = Predictor(shape, Datasheet(H200), H200, Engine(), host)
    predictor.hosts = points_of(HOSTS, "qwen2.5-7b")
    bounds = predictor.hosts["batch ttft host in graphs"]
    found = point(predictor, Workload(64, 8, batch=1))
    ends = found["ttft_p50_s_low"], found["ttft_p50_s_high"]
    assert ends == pytest.approx([found["ttft_p50_s"] * factor for factor in bounds[1:]])
    assert bounds.low < 1 < bounds.high
    long = point(predictor, Workload(8000, 8, batch=1))
    assert long["ttft_p50_s"] == long["ttft_p50_s_low"], "it waits for the GPU"
    assert bounds != points_of(HOSTS)["batch ttft host in graphs"]


def test_requests_that_warm_up_a_loop_are_not_counted(shape: ModelShape) -> None:
    predictor = Predictor(shape, Datasheet(H200), H200)
    loop = Workload(4096, 64, concurrency=16, count=160)
    every = point(predictor, loop)
    settled = point(predictor, replace(loop, warmups=16))
    assert settled["ttft_mean_s"] < every["ttft_mean_s"], "they came at once"
    assert settled["tpot_p50_s"] == pytest.approx(every["tpot_p50_s"], rel=0.2)
    assert settled["duration_s"] < every["duration_s"]


def test_a_batch_is_bounded_by_what_other_served_models_took(shape: ModelShape) -> None:
    found = correction(H200.name, SLICE, "qwen2.5-7b")
    assert found is not None
    assert found.decode.low < found.decode.value < found.decode.high
    assert found != correction(H200.name, SLICE), "a model that is held out says nothing of itself"
    assert correction("b200", SLICE) is None
    predictor = Predictor(shape, Datasheet(H200), H200)
    plain = predictor.seconds(Step(decode=4, context=512))
    predictor.correction = found
    moved = predictor.seconds(Step(decode=4, context=512))
    assert moved == pytest.approx([plain.value * factor for factor in found.decode])
    # What loads of a server take lies in no residual: the bounds of the operators stay.
    served = predictor.served(Step(decode=4, context=512))
    assert served.low == pytest.approx(plain.low * found.decode.value)
    assert math.isinf(served.high)


def test_what_operators_miss_by_themselves_is_added_to_what_other_engines_missed(
    shape: ModelShape,
) -> None:
    """Oracle: independent errors add up as squares do."""

    class Costs:
        def of(self, operator: Operator) -> Estimate:
            return Estimate(1e-6, 0.8e-6, 1.3e-6, T2)

    found = correction(H200.name, SLICE)
    assert found is not None
    step = Step(decode=4, context=512)
    calls = np.array([item.calls for item in operators(shape, step, 4)])
    seconds = Predictor(shape, Costs(), H200, correction=found.unbounded()).seconds(step)
    factors = found.decode
    assert seconds.value == pytest.approx(1e-6 * calls.sum() * factors.value)
    alone = np.sqrt((calls**2).sum()) / calls.sum()
    for end, missed, factor in (("low", 0.2, factors.low), ("high", 0.3, factors.high)):
        apart = math.hypot(missed * alone, factor / factors.value - 1)
        assert abs(getattr(seconds, end) / seconds.value - 1) == pytest.approx(apart)
    narrow = found.of_decode()
    assert narrow.of(step) == factors
    assert narrow.of(Step(prefill=((2000, 0),))).value == 1.0


def test_attention_between_two_contexts_is_on_a_line_through_their_seconds(
    shape: ModelShape,
) -> None:
    """Oracle: a fixed time and one by the bytes of the cache, recorded at two contexts."""

    def attention(requests: int, context: float) -> Operator:
        step = Step(decode=requests, context=context)
        return next(o for o in operators(shape, step) if o.kind is Kind.DECODE)

    def seconds(operator: Operator) -> float:
        return operator.m * (1e-6 + operator.bytes / operator.m / 3e12)

    sizes = [attention(requests, context) for requests in (8, 32) for context in (128, 1024)]
    anchors = Anchors.of(Datasheet(H200), [(item, seconds(item)) for item in sizes])
    for between in (attention(8, 575), attention(16, 575), attention(32, 300)):
        assert anchors.seconds(between) == pytest.approx(seconds(between))


def test_attention_of_long_prompts_is_as_fast_as_where_such_lengths_were_recorded(
    shape: ModelShape,
) -> None:
    """Oracle: attention that reaches more of the peak the longer its prompts are."""

    def attention(requests: int, prompt: int) -> Operator:
        step = Step(prefill=((prompt, 0),) * requests)
        return next(o for o in operators(shape, step) if o.kind is Kind.PREFILL)

    def seconds(operator: Operator, prompt: int) -> float:
        return operator.flops / H200.flop_per_s / (0.2 if prompt < 4000 else 0.5)

    recorded = [(1, 1024), (8, 1024), (16, 1024), (1, 4000)]
    known = [
        (attention(n, prompt), seconds(attention(n, prompt), prompt)) for n, prompt in recorded
    ]
    anchors = Anchors.of(Datasheet(H200), known)
    for requests, prompt in ((4, 4000), (1, 8000), (12, 1024)):
        found = attention(requests, prompt)
        assert anchors.seconds(found) == pytest.approx(seconds(found, prompt))


def test_a_host_that_the_gpu_explains_is_not_made_slower_by_what_requests_wait_for(
    shape: ModelShape,
) -> None:
    """Seen in slices of 4 and 12 layers: their few short prompts beyond graphs are GPU-bound."""
    predictor = Predictor(shape, Datasheet(H200), H200, Engine(16384))
    works = [Workload(prompt, 8, batch=1) for prompt in (600, 4000, 8000, 16000)]
    points = [
        SingleStep(work, predictor.seconds(work.steps()[0]).value + 5e-3, math.nan)
        for work in works
    ]
    assert math.isnan(fitted_host(predictor, points).eager_s)


def test_the_host_is_fitted_to_points_that_the_gpu_does_not_explain(shape: ModelShape) -> None:
    predictor = Predictor(shape, Datasheet(H200), H200, Engine(16384))
    known = Host(overhead_s=2e-3, eager_s=20e-3, graph_s=7e-3)

    def ttft(work: Workload) -> float:
        step = work.steps()[0]
        least = known.graph_s if predictor.engine.rows(step) else known.eager_s
        return max(predictor.seconds(step).value, least) + known.overhead_s

    loads = [Workload(prompt, 8, batch=1) for prompt in (10, 600, 4000, 8000, 16000)]
    found = fitted_host(predictor, [SingleStep(work, ttft(work), math.nan) for work in loads])
    assert found.overhead_s == pytest.approx(2e-3)
    assert found.eager_s == pytest.approx(20e-3)
    assert found.graph_s == pytest.approx(7e-3)


def test_what_the_profiler_adds_is_told_by_steps_that_wait_for_the_gpu(shape: ModelShape) -> None:
    """Oracle: steps of 0.97 of the kernels, a third of which the host made longer."""
    predictor = Predictor(shape, Datasheet(H200), H200, Engine(16384))
    works = [Workload(prompt, 8, batch=2) for prompt in range(100, 1000, 100)]
    steps = [predictor.seconds(work.steps()[1]).value for work in works]
    points = [
        SingleStep(work, math.nan, seconds * (1.05 if number % 3 == 0 else 0.97))
        for number, (work, seconds) in enumerate(zip(works, steps, strict=True))
    ]
    assert fitted_host(predictor, points).untraced == pytest.approx(0.97)
    late = fitted_host(predictor, points, host_s=min(steps))
    assert math.isnan(late.untraced)
    assert host_of(Host(untraced=0.98), {12: late}, 32).untraced == 0.98


def test_ranks_wait_as_those_of_other_models_did() -> None:
    """Oracle: the recorded waits; those of the model itself do not count."""
    recorded = packaged_yaml("nsight_prof.parsers.predict", "residuals.yaml")["h100-sxm"]
    waits = recorded["rank_wait_s"]
    for unseen in waits:
        others = [wait for model in waits if model != unseen for wait in waits[model]]
        assert min(others) <= rank_wait_s("h100-sxm", unseen) <= max(others)
    assert rank_wait_s("b200-sxm") == 0.0


def test_errors_are_summed_by_time_for_kernels_and_evenly_for_points() -> None:
    def row(scope: str, measured: float, error: float, covered: bool) -> dict[str, object]:
        texts = dict.fromkeys(("source", "kind", "case", "tier"), "")
        numbers = {"measured": measured, "predicted": measured * (1 + error), "error": error}
        names = {"scope": scope, "name": "tpot", "group": "x", "sample": "held out"}
        return {**texts, **numbers, **names, "low": 0.0, "high": 1.0, "covered": covered}

    rows = [row("kernel", 9.0, 0.1, True), row("kernel", 1.0, -0.5, False)]
    rows += [row("point", 9.0, 0.1, True), row("point", 1.0, -0.5, True)]
    errors = errors_frame(rows)
    found = summary(errors, ["scope"]).set_index("scope")
    assert found["mape"].to_dict() == pytest.approx({"kernel": 0.14, "point": 0.3})
    assert found["bias"].to_dict() == pytest.approx({"kernel": 0.04, "point": -0.2})
    assert found["coverage"].to_dict() == {"kernel": 0.5, "point": 1.0}
    points = errors[errors["scope"].eq("point")]
    assert Rule.parsed("tpot_mape > 31%").broken(points) == ""
    assert "30.0%" in Rule.parsed("tpot_mape>29%").broken(points)
    with pytest.raises(UsageError, match="no held-out errors of ttft"):
        Rule.parsed("ttft_p90>1%").broken(points)


def _rows(steps: Sequence[Step]) -> list[Row]:
    """Return what the ranges of an engine's steps say."""
    return [
        {
            "prefill_requests": len(step.prefill),
            "prefill_tokens": sum(new for new, _ in step.prefill),
            "decode_requests": step.decode,
        }
        for step in steps
    ]


@given(
    batches=st.lists(
        st.builds(Batch, st.integers(1, 12), st.integers(1, 300), st.integers(1, 9)), min_size=1
    ),
    budget=st.integers(64, 400),
)
def test_steps_of_a_trace_are_known_by_their_ranges(batches: list[Batch], budget: int) -> None:
    """Oracle: the simulator, which schedules the same batches."""
    served: list[tuple[int, Step]] = []
    for number, batch in enumerate(batches):
        requests = [Request(0.0, batch.prompt, batch.output)] * batch.requests

        def second(step: Step, _: float, number: int = number) -> float:
            served.append((number, step))
            return 1.0

        simulate(second, queue(budget, requests))
    found = [(number, step) for number, _, step in replayed(_rows([s for _, s in served]), batches)]
    assert found == served


def test_a_trace_that_goes_by_other_rules_is_known_until_there() -> None:
    steps = [Step(prefill=((8, 0),)), Step(decode=1, context=9), Step(decode=3, context=10)]
    assert len(list(replayed(_rows(steps), [Batch(1, 8, 9)]))) == 2


def test_what_follows_the_burst_is_slower() -> None:
    power = Power(0.06, 1.5)
    assert power.stretched(0.02, 0.0) == 0.02
    assert power.stretched(0.02, 0.05) == pytest.approx(0.01 + 0.015)
    assert power.stretched(0.02, 1.0) == pytest.approx(0.03)
    assert Power().stretched(math.inf, math.inf) == math.inf


def test_the_power_limit_slows_attention_more_and_a_step_as_much_as_before(
    shape: ModelShape,
) -> None:
    class Alike:
        """All calls of each operator take 20 ms together."""

        def of(self, operator: Operator) -> Estimate:
            return Estimate(0.02 / operator.calls, 0.0, math.inf, T1)

    step = Step(prefill=((8192, 0),))
    names = [item.name for item in operators(shape, step)]
    times = {name.replace("_prefill", ""): 0.02 for name in names}
    trace = Trace(shape, (RecordedStep(step, 0, times, 1e-3, 1e-3, 0.02),))
    rows = list(kernel_errors(Alike(), trace, Power(0.06, 1.2)))
    total = 0.02 * len(names)
    took = {row["name"]: row["predicted"] for row in rows}
    assert sum(took.values()) == pytest.approx(0.06 + (total - 0.06) * 1.2)
    assert took["norm"] < took["qkv_proj"] < took["attention_prefill"]
    # Before the limit all operators take what they cost.
    rows = list(kernel_errors(Alike(), trace, Power()))
    assert [row["error"] for row in rows] == pytest.approx([0.0] * len(rows))


def test_a_recorded_step_is_without_what_the_gpu_waits_for_the_host(shape: ModelShape) -> None:
    steps = [
        RecordedStep(Step(prefill=((size, 0),)), 0, {"norm": 0.01}, 1e-4, rest, 0.02)
        for size, rest in ((64, 8e-3), (2048, 2e-4))
    ]
    trace = Trace(shape, tuple(steps))
    assert [step_seconds(trace, step) for step in steps] == [pytest.approx(0.0103)] * 2


def test_the_host_of_more_layers_is_extrapolated_from_two_engines() -> None:
    known = Host(gap_decode_s=1e-4)
    engines = {
        4: Host(overhead_s=1e-3, graph_s=2e-3, decode_s=1e-3),
        12: Host(overhead_s=2e-3, graph_s=4e-3, untraced=0.98),
    }
    found = host_of(known, engines, 32)
    assert found.graph_s == pytest.approx(9e-3)
    assert (found.overhead_s, found.decode_s, found.untraced) == (2e-3, 1e-3, 0.98)
    assert found.gap_decode_s == 1e-4
    assert host_of(known, engines, 12) == engines[12]


def test_the_first_token_waits_for_the_host_that_issues_the_next_step() -> None:
    """Seen in all recorded traces: asynchronous scheduling looks one step ahead."""

    def issued(step: Step, _: float) -> float:
        return 3.0 if step.prefill else 2.0

    requests = [Request(0.0, 8, 4)]
    short = simulate(lambda *_: 1.0, queue(64, requests), issued)
    assert short[0].first_s == 5.0
    long = simulate(lambda step, _: 9.0 if step.prefill else 1.0, queue(64, requests), issued, 0.5)
    assert long[0].first_s == 9.5, "the GPU is the slower one, and was idle before"


def test_the_host_of_a_server_has_both_its_speeds_in_turn(shape: ModelShape) -> None:
    """Oracle: prompts one by one, of which each waits for the host alone, at any time of a load."""
    host = Host(issue_s=0.12, gap_decode_s=0.0, gap_prefill_s=0.0)
    predictor = Predictor(shape, Datasheet(H200), H200, host=host)
    prompt = Step(prefill=((600, 0),))
    found = [predictor.issued_at(prompt, tenth / 10) for tenth in range(60)]
    assert {round(seconds.value, 9) for seconds in found} == {0.1, 0.15}, "1.2 is of the profiler"
    assert sum(seconds.value for seconds in found) / 60 == pytest.approx(0.125)
    assert {seconds[1:] for seconds in found} == {found[0][1:]}
    assert found[0][1:] == pytest.approx((0.1, 0.15))
    graph = replace(predictor, host=replace(host, decode_s=0.002))
    assert graph.issued_at(Step(decode=4, context=64), 0.4) == (0.002, 0.002, 0.002)


def test_batches_have_the_host_of_other_engines_at_both_speeds(shape: ModelShape) -> None:
    """Oracle: prompts that wait for the host alone, a fifth longer or shorter than on average."""
    host = Host(issue_s=0.5, overhead_s=0.001, gap_prefill_s=0.0, others_s=0.1, others_graph_s=0.05)
    predictor = Predictor(shape, Datasheet(H200), H200, host=host)
    for prompt, seconds in ((600, 0.1), (64, 0.05)):
        batch = Workload(prompt, 2, batch=1)
        found = point(predictor, batch)["ttft_p50_s"]
        assert found == pytest.approx(seconds + 0.001, rel=1e-6), "neither of the trace's 0.5 s"
        assert predictor.of(batch).host.at_speed(0.8).issue_s == pytest.approx(0.08)
    # The GPU takes longer than the faster host, so that the mean is later than with a mean host.
    long = Workload(4000, 2, batch=1)
    gpu = predictor.on_gpu(long.steps()[0]).value
    even = replace(predictor, host=replace(host, others_s=gpu))
    assert point(even, long)["ttft_p50_s"] == pytest.approx(1.1 * gpu + 0.001, rel=1e-3)
    assert predictor.issued_at(Step(prefill=((600, 0),)), 0.0).value == pytest.approx(0.5 / 1.2)


def test_what_a_layer_needs_of_the_host_is_the_median_of_other_models() -> None:
    residuals = packaged_yaml("nsight_prof.parsers.predict", "residuals.yaml")
    kinds = "layer_beyond_graphs_ms", "layer_in_graphs_ms"
    for gpu in ("h100-sxm", "h200-sxm"):  # machines with this GPU alone
        found = host_layer_s(gpu)
        assert found is not None
        for seconds, kind in zip(found, kinds, strict=True):
            medians = [np.median(of) / 1e3 for of in residuals[gpu][kind].values()]
            assert min(medians) < seconds < max(medians)
        assert found[0] > found[1], "more is issued kernel by kernel beyond graphs"
        without = [host_layer_s(gpu, model) for model in residuals[gpu][kinds[0]]]
        assert any(other != found for other in without), "a model that is held out says nothing"
    every = host_layer_s("a100-sxm")
    assert every is not None, "where no model was served beside such a GPU all machines count"
    assert every == host_layer_s(""), "as for several GPUs, whose ranks issue by themselves"


def test_the_power_limit_slows_prompts_as_much_as_in_slices_of_other_models() -> None:
    slices = packaged_yaml("nsight_prof.parsers.predict", "slowdowns.yaml")["h200-sxm"]
    assert power_slowdown("h200-sxm") == pytest.approx(np.median([of for (of,) in slices.values()]))
    largest = max(slices, key=lambda model: slices[model])
    without = power_slowdown("h200-sxm", largest)
    assert without is not None
    assert 1 < without < max(slices.values())[0], "a model that is held out says nothing"
    assert power_slowdown("a100-sxm") is None, "no slices were recorded on it"


def test_what_models_of_many_launches_need_of_the_host_is_less_than_under_nsys() -> None:
    found = traced_host()
    assert found is not None
    assert all(0.5 < times < 1.0 for times in found)
    assert traced_host("llama-3.1-8b") != found, "a model that is held out says nothing"


def test_intervals_can_be_wider_on_both_sides() -> None:
    assert Factors(1.0, 0.5, 2.0).wider(2) == pytest.approx((1.0, 0.25, 4.0))


def test_what_the_host_needs_for_a_layer_is_told_by_the_steps_of_a_few(shape: ModelShape) -> None:
    def step(kind: Step, rows: int, host_s: float, layer_s: float = math.nan) -> RecordedStep:
        return RecordedStep(kind, rows, {}, 0.0, 0.0, host_s, layer_s=layer_s)

    prompt = Step(prefill=((64, 0),))
    steps = (step(Step(decode=1, context=64), 1, 1.5e-3), step(prompt, 0, 4e-3))
    few = shape.with_layers(4)
    # Without prompts in CUDA graphs what a step needs beside its layers is that of decode.
    assert Trace(few, steps).issue_s(8) == pytest.approx(1.5e-3 + 8 * 2.5e-3 / 4)
    assert math.isnan(Trace(few, steps).issue_s(8, in_graphs=True))
    known = Trace(few, (*steps, step(prompt, 64, 2.8e-3, 0.2e-3)))
    assert known.issue_s(32, in_graphs=True) == pytest.approx(2e-3 + 32 * 0.2e-3)
    assert known.issue_s(32) == pytest.approx(2e-3 + 32 * 0.5e-3)
    # A profiler that took prompts twice as long is not taken for the host; outside of graphs and of
    # several ranks it is left.
    slowed = replace(known, profiled=2.0)
    taken_off = slowed.issue_s(32, in_graphs=True) / known.issue_s(32, in_graphs=True)
    assert taken_off == pytest.approx(0.6)
    assert slowed.issue_s(32) == known.issue_s(32)
    rank = replace(slowed, shape=replace(few, tensor_parallel=2))
    assert rank.issue_s(32, in_graphs=True) == known.issue_s(32, in_graphs=True)


def test_intervals_hold_most_of_a_model_that_was_left_out() -> None:
    """Oracle: residuals that are drawn, of models that differ from each other."""
    random, within = np.random.default_rng(5), []
    for _ in range(60):
        drawn = {
            str(model): list(np.exp(random.normal(random.normal(0, 0.02), 0.02, 12)))
            for model in range(6)
        }
        found = factors(drawn, unseen="0")
        within += [found.low <= value <= found.high for value in drawn["0"]]
        assert found == factors({k: v for k, v in drawn.items() if k != "0"})
    assert 0.85 <= np.mean(within) <= 0.95


def test_a_step_that_checks_drafts_reads_the_cache_once(shape: ModelShape) -> None:
    step = Step(decode=8, context=1000)
    alone = {item.name: item for item in operators(shape, step)}
    checking = {item.name: item for item in operators(replace(shape, drafted=3), step)}
    for name in ("qkv_proj", "lm_head", "sampling"):
        assert (alone[name].m, checking[name].m) == (8, 32)
    attending = checking["attention_decode"]
    assert attending.flops == 4 * alone["attention_decode"].flops
    queries = 2 * 8 * shape.heads * shape.head_dim * 2
    assert attending.bytes == alone["attention_decode"].bytes + 3 * queries
    # By hand: three passes of a layer, of what joins both states, and of the output projection.
    layer = sum(line.parameters for line in shape.with_layers(1).linears())
    weights = layer + 2 * shape.hidden**2 + shape.hidden + shape.vocabulary * shape.hidden
    cached = 8 * 1000 * 2 * shape.kv_heads * shape.head_dim
    draft = checking["draft_decode"]
    assert (draft.m, draft.n, draft.bytes) == (8, 1000, 3 * 2 * (weights + cached))
    more = replace(shape, drafted=3).kv_bytes_per_token() / shape.kv_bytes_per_token()
    assert more == pytest.approx(1 + 1 / shape.layers)


def test_adapters_are_read_for_as_many_requests_as_use_them(shape: ModelShape) -> None:
    adapters = Adapters(count=4, rank=16, modules=("o_proj",))
    found = {
        decode: next(
            item
            for item in operators(replace(shape, adapters=adapters), Step(decode=decode, context=9))
            if item.kind is Kind.ADAPTER
        )
        for decode in (2, 64)
    }
    wide = shape.heads * shape.head_dim
    weights = 16 * (wide + shape.hidden)
    for decode, item in found.items():
        moved = min(4, decode) * weights + decode * (wide + 2 * shape.hidden)
        assert (item.name, item.bytes) == ("adapters", 2 * moved)
        assert item.flops == 2 * decode * weights
    held = replace(shape, adapters=adapters).parameter_bytes() - shape.parameter_bytes()
    assert held == 2 * 4 * shape.layers * weights


def test_what_a_step_accepts_divides_the_time_of_a_token() -> None:
    requests = [Request(0.0, 8, 1 + 240)] * 4
    engine = Engine(64, drafted=3, accept=2.5)
    served = simulate(lambda *_: 1.0, Queue(engine, deque(requests)))
    assert {item.output for item in served} == {241}
    for item in served:
        assert (item.finish_s - item.first_s) / 240 == pytest.approx(1 / 2.5)


def test_drafts_are_cut_from_the_steps_that_check_them(shape: ModelShape) -> None:
    order = products_of(shape.with_layers(2), Step(decode=1, context=9))
    kernels = [("elementwise", "embedding", 1.0)]
    for name in order:
        kernels += [("gemm", name, 2.0), ("gemm", "vLLM lora expand (Triton)", 0.5)]
    kernels += [("gemm", "head", 3.0), ("reduction", "argmax", 0.25)]
    draft = [("gemm", "fc", 1.0), ("attention", "flash", 0.5), ("gemm", "head", 4.0)]
    found = cut([*kernels, *draft], order, drafts=True)
    assert found is not None
    assert (found["draft"], found["lm_head"], found["sampling"]) == (5.5, 3.0, 0.25)
    assert found["adapters"] == 0.5 * len(order)
    assert cut(kernels, order, drafts=True) is None, "no head drafted"
    assert cut([*kernels, *draft], order) is None, "no model without a head has such products"


def test_steps_with_drafts_are_known_by_their_ranges() -> None:
    ranges = [(2, 20, 0), (0, 0, 2), (0, 0, 2), (0, 0, 1), (1, 6, 0), (1, 4, 1), (0, 0, 2)]
    names = ("prefill_requests", "prefill_tokens", "decode_requests")
    rows: list[Row] = [dict(zip(names, values, strict=True)) for values in ranges]
    found = [(n, s) for n, _, s in replayed_drafts(rows, [Batch(2, 10, 7), Batch(2, 5, 7)], 3.0)]
    assert found == [
        (0, Step(((10, 0), (10, 0)))),
        (0, Step(decode=2, context=11)),
        (0, Step(decode=2, context=14)),
    ], "a prompt of 6 tokens is none of the second batch"


def test_drafting_is_known_by_requests_and_their_lengths(shape: ModelShape) -> None:
    model = replace(shape, drafted=3)

    def draft(decode: int, context: int) -> Operator:
        return operators(model, Step(decode=decode, context=context))[-1]

    def seconds(decode: int, context: int) -> float:
        return 1e-4 + 1e-6 * decode + 1e-9 * decode * context

    known = [(draft(b, c), seconds(b, c)) for b in (1, 8, 64) for c in (128, 4000)]
    anchors = Anchors.of(Datasheet(H200), known)
    assert anchors.seconds(draft(8, 1000)) == pytest.approx(seconds(8, 1000))
    assert anchors.seconds(draft(32, 128)) == pytest.approx(seconds(32, 128))


def test_graphs_of_drafts_hold_whole_requests() -> None:
    """By hand, as vLLM logged them for 1,024 requests that draft 3 tokens."""
    assert captured_sizes(1024, 3)[:6] == [4, 8, 16, 24, 32, 40]
    assert captured_sizes(1024, 3)[-1] == 512
    assert captured_sizes(128) == [size for size in CAPTURED if size <= 256]
    assert captured_sizes(2, 2) == [3, 6, 9]


def test_steps_that_check_drafts_heat_the_gpu_by_all_their_tokens(shape: ModelShape) -> None:
    power, step = Power(0.0, 1.5), Step(decode=128, context=600)
    slow = [
        Predictor(replace(shape, drafted=drafted), Datasheet(H200), H200, engine, power=power)
        .on_gpu(step, loaded_s=1.0)
        .value
        for drafted, engine in ((0, Engine()), (3, Engine(drafted=3, accept=2.0)))
    ]
    cool = Predictor(shape, Datasheet(H200), H200).on_gpu(step).value
    assert slow[0] == pytest.approx(cool), "128 tokens do not"
    checking = Predictor(replace(shape, drafted=3), Datasheet(H200), H200, Engine(drafted=3))
    assert slow[1] == pytest.approx(1.5 * checking.on_gpu(step).value)


def test_the_host_of_a_head_has_the_speeds_of_its_slice(shape: ModelShape) -> None:
    predictor = Predictor(
        replace(shape, drafted=3), Datasheet(H200), H200, Engine(drafted=3, accept=2.0)
    )
    points = [
        SingleStep(Workload(64, 9, batch), math.nan, seconds)
        for batch, seconds in ((1, 0.05), (2, 0.08), (64, 0.2))
    ]
    host = fitted_host(predictor, points)
    assert host.decode_s == 0.05
    assert host.decode_slow == pytest.approx(1.6)
    issued = replace(predictor, host=host).issued(Step(decode=1, context=64))
    assert issued == pytest.approx((0.05, 0.05, 0.08))
