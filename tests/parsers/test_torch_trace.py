"""Table `operators`: against the profiler's own sums, a real trace, and traces made by hand."""

from __future__ import annotations

import json
import lzma
import runpy
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.torch.trace import CUDA_GRAPH, NO_OPERATOR, open_torch_trace

TESTS = Path(__file__).parents[1]
RECORDED = TESTS / "fixtures" / "torch_trace" / "qwen-eager.json.xz"
Builder: Any = runpy.run_path(str(TESTS / "fakes" / "torch_trace.py"))["TraceBuilder"]
GEMM = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"
PREFILL, DECODE = "execute_context_2(32)_generation_0(0)", "execute_context_0(0)_generation_2(2)"
STAGES = {"prefill": r".*_generation_0\(0\)", "decode": r"execute_context_0\(0\).*"}


def operators(builder: Any, folder: Path, stages: Any = ()) -> pd.DataFrame:
    return open_torch_trace(builder.write(folder / "trace.json.gz"), stages).operators()


def row(frame: pd.DataFrame, **cells: Any) -> Any:
    for name, value in cells.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1, frame
    return frame.iloc[0]


def test_sums_are_those_of_the_profiler_itself(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(32, 64)
    with torch.profiler.profile(record_shapes=True) as profile:
        for batch in (2, 2, 4):
            torch.nn.functional.gelu(layer(torch.ones(batch, 32))).sum().backward()
    path = tmp_path / "trace.json"
    profile.export_chrome_trace(str(path))
    frame = open_torch_trace(path).operators()
    # key_averages merges an operator that calls itself, so that calls are of the raw events
    calls = Counter(event.name() for event in profile.profiler.kineto_results.events())
    for mean in profile.key_averages():
        ours = frame[frame["operator"] == mean.key]
        if len(ours):
            assert ours["calls"].sum() == calls[mean.key]
            # the profiler counts in ns, the file has us with three digits
            assert ours["self_cpu_ns"].sum() == pytest.approx(
                mean.self_cpu_time_total * 1e3, abs=50 * calls[mean.key]
            )
    assert {"aten::linear", "aten::addmm"} <= set(frame["operator"])
    products = frame[frame["flops"].notna()]
    assert (products["flops"] == 2.0 * products["calls"] * products["m"] * products["n"]
            * products["k"]).all()  # fmt: skip


def test_a_real_trace_adds_up() -> None:
    events = json.loads(lzma.decompress(RECORDED.read_bytes()))["traceEvents"]
    frame = open_torch_trace(RECORDED).operators()
    kernels = [event for event in events if event["cat"] == "kernel"]
    assert frame["launches"].sum() == len(kernels)
    assert frame["gpu_ns"].sum() == sum(round(event["dur"] * 1000) for event in kernels)
    copies = [event for event in events if event["cat"] in ("gpu_memcpy", "gpu_memset")]
    assert frame["memory_ns"].sum() == sum(round(event["dur"] * 1000) for event in copies)
    calls = Counter(event["name"] for event in events if event["cat"] == "cpu_op")
    assert frame.groupby("operator")["calls"].sum()[list(calls)].to_dict() == calls
    # Qwen2.5-0.5B, prefill of 4096 tokens and a decode step of 8: q, k, v; out; gate, up; down
    values = 24 * (896 * 1152 + 896 * 896 + 896 * 9728 + 4864 * 896)
    needed = 2 * (4096 + 8) * values + 2 * (8 + 8) * 896 * 151936
    assert frame["flops"].sum() == needed
    assert open_torch_trace(RECORDED).warnings == []


def test_products_of_a_real_trace_come_in_the_order_of_the_layers() -> None:
    runs = open_torch_trace(RECORDED).gemm_kernels()
    assert list(runs) == [""]
    (kernels,) = runs[""]
    sizes = [(k.gemm.m, k.gemm.n, k.gemm.k) for k in kernels if k.gemm]
    layer = [(1152, 896), (896, 896), (9728, 896), (896, 4864)]
    step = [*layer * 24, (151936, 896)]
    assert [size[1:] for size in sizes] == step * 2
    assert Counter(size[0] for size in sizes) == {4096: 96, 8: 98}
    assert statistics.median(k.duration for k in kernels) > 0


def test_time_belongs_to_the_innermost_operator(tmp_path: Path) -> None:
    b = Builder()
    with b.operator("aten::linear", [[4, 8], [16, 8]]) as outer:
        b.launch("void first<1>()", 5.0, of=outer)
        with b.operator("aten::mm", [[4, 8], [8, 16]]) as inner:
            b.launch(GEMM, 7.0, of=inner)
            b.launch("Memset (Device)", 2.0, of=inner, kind="gpu_memset")
    frame = operators(b, tmp_path)
    linear, mm = row(frame, operator="aten::linear"), row(frame, operator="aten::mm")
    assert (linear.gpu_ns, mm.gpu_ns, mm.memory_ns) == (5000, 7000, 2000)
    assert linear.cpu_ns == linear.self_cpu_ns + mm.cpu_ns
    assert mm.flops == 2 * 4 * 8 * 16
    assert pd.isna(linear.flops), "the product inside has the FLOPs"
    assert (mm.m, mm.n, mm.k, mm.batch, mm.kernels, mm.launches) == (4, 16, 8, 1, 1, 1)
    assert json.loads(mm.input_shapes) == [[4, 8], [8, 16]]
    assert mm["dtypes"] == "bf16"


def test_kernels_without_an_external_id_are_found_by_their_launch(tmp_path: Path) -> None:
    b = Builder()
    with b.operator("vllm::attention", [[4, 8]]):
        b.launch("_triton_kernel", 3.0, call="cuLaunchKernelEx")
    with b.range("prefill"):
        b.launch("_triton_kernel", 4.0)
    b.launch("_other_kernel", 1.0)
    frame = operators(b, tmp_path, ["prefill"])
    assert row(frame, operator="vllm::attention").gpu_ns == 3000
    bare = frame[frame["operator"] == NO_OPERATOR]
    assert [tuple(r) for r in bare[["stage", "kernel", "gpu_ns"]].to_numpy()] == [
        ("prefill", "_triton_kernel", 4000),
        ("", "_other_kernel", 1000),
    ]
    assert bare["calls"].isna().all()
    assert bare["launches"].tolist() == [1, 1]


def test_kernels_of_cuda_graphs_have_no_operator(tmp_path: Path) -> None:
    b = Builder()
    with b.range(DECODE), b.operator("aten::add", [[1]]) as around:
        b.launch(GEMM, 6.0, of=around, call="cudaGraphLaunch")
    trace = open_torch_trace(b.write(tmp_path / "t.json.gz"), STAGES)
    found = row(trace.operators(), operator=CUDA_GRAPH)
    assert (found.stage, found.gpu_ns) == ("decode", 6000)
    (run,) = trace.gemm_kernels()["decode"]
    assert run[0].gemm is None
    assert any("CUDA graphs" in warning for warning in trace.warnings)


def test_stages_are_named_by_ranges_and_hold_what_follows_an_engine_step(tmp_path: Path) -> None:
    b = Builder()
    for name in (PREFILL, DECODE, DECODE):
        with b.range("engine step"), b.range(name):
            with b.operator("aten::add", [[1]]):
                pass
            with b.range("inner"), b.operator("aten::mul", [[1]]):
                pass
        with b.range("sample"), b.operator("aten::argmax", [[1]]) as op:
            b.launch("void argmax<1>()", of=op)
    frame = operators(b, tmp_path, STAGES)
    for name in ("aten::add", "aten::mul", "aten::argmax"):
        ours = frame[frame["operator"] == name].set_index("stage")
        assert ours["calls"].to_dict() == {"prefill": 1, "decode": 2}
        assert ours["instances"].to_dict() == {"prefill": 1, "decode": 2}


def test_a_function_that_goes_on_to_the_next_stage_ends_the_one_it_began_in(
    tmp_path: Path,
) -> None:
    b = Builder()
    first, second = b.range("first"), b.range("second")
    with b.function("mine.py(1): main"):
        first.__enter__()
        with b.operator("aten::add", [[1]]):
            pass
        with b.function("mine.py(9): next_stage"):  # within `first`, and around its end
            first.__exit__(None, None, None)
            second.__enter__()
        with b.function("mine.py(5): step"), b.operator("aten::mul", [[1]]):
            pass
        second.__exit__(None, None, None)
    frame = operators(b, tmp_path, ["first", "second"]).set_index("operator")
    assert frame["stage"].to_dict() == {"aten::add": "first", "aten::mul": "second"}
    assert frame.loc["aten::mul", "call_path"] == "mine.py:1 main > mine.py:5 step"


def test_without_patterns_the_outermost_ranges_are_stages(tmp_path: Path) -> None:
    b = Builder()
    with b.range("forward"), b.range("layer"), b.operator("aten::add", [[1]]):
        pass
    with b.range("engine:backward"), b.operator("aten::add", [[1]]):
        pass
    with b.operator("aten::add", [[1]]):
        pass
    frame = operators(b, tmp_path)
    assert set(frame["stage"]) == {"forward", "engine:backward", ""}


def test_a_thread_without_ranges_has_the_stage_that_is_open(tmp_path: Path) -> None:
    b = Builder()
    with b.range("backward"):
        b.thread = 8
        with b.operator("MmBackward", [[1]]):
            pass
        b.thread = 7
    b.thread = 8
    with b.operator("aten::late", [[1]]):
        pass
    frame = operators(b, tmp_path, ["backward"])
    assert row(frame, operator="MmBackward").stage == "backward"
    assert row(frame, operator="aten::late").stage == ""


def test_stages_that_no_range_fits_are_told(tmp_path: Path) -> None:
    b = Builder()
    with b.range("forward"), b.operator("aten::add", [[1]]):
        pass
    trace = open_torch_trace(b.write(tmp_path / "t.json.gz"), ["decode"])
    assert any("forward" in warning for warning in trace.warnings)
    assert any("no kernel" in warning for warning in trace.warnings)


NESTED: st.SearchStrategy[list[Any]] = st.recursive(
    st.just([]), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=12
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(trees=st.lists(NESTED, min_size=1, max_size=4))
def test_no_time_is_lost_or_told_twice(tmp_path: Path, trees: list[Any]) -> None:
    b = Builder()

    def call(tree: list[Any], depth: int) -> None:
        with b.operator(f"op{depth}", [[len(tree)]]) as op:
            b.launch(f"kernel{len(tree)}", 1.0 + depth, of=op)
            for inner in tree:
                call(inner, depth + 1)

    begin = b.now
    for tree in trees:
        call(tree, 0)
    frame = operators(b, tmp_path)
    assert frame["self_cpu_ns"].sum() == round((b.now - begin) * 1000)
    kernels = [event for event in b.events if event["cat"] == "kernel"]
    assert frame["gpu_ns"].sum() == sum(event["dur"] for event in kernels) * 1000
    assert frame["launches"].sum() == len(kernels) == frame["calls"].sum()


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add"},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": None, "dur": 1, "args": {}},
    ],
)
def test_events_of_another_form_are_told(tmp_path: Path, event: dict[str, Any]) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [event]}), encoding="utf-8")
    with pytest.raises(ArtifactUnreadable, match="torch profiler"):
        open_torch_trace(path)


def test_an_empty_trace_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnreadable, match="no operator and no kernel"):
        open_torch_trace(Builder().write(tmp_path / "t.json.gz"))
