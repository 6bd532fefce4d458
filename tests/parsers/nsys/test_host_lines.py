"""Lines of Python from samples of stacks, against a program whose slow lines are known."""

import json
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers.nsys.rows.python_samples import work_of
from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.reports.analysis.lines import host_lines, of_samples


@pytest.fixture(scope="module")
def lines(root: Path) -> pd.DataFrame:
    path = root / "tests/fixtures/python_sampling/trace.sqlite.xz"
    with open_trace(path, ["item", "allocation", "pageable", "preparation", "strided"]) as trace:
        return trace.host_lines()


@pytest.mark.parametrize(
    ("stage", "activity", "planted"),
    [
        ("preparation", "program", 73),  # numbers in a loop of Python
        ("pageable", "copying", 65),  # .to() of memory that is not pinned
        ("item", "waiting", 50),  # .item()
    ],
)
def test_the_planted_line_leads(
    lines: pd.DataFrame, stage: str, activity: str, planted: int
) -> None:
    rows = lines[(lines["stage"] == stage) & (lines["activity"] == activity)]
    first = host_lines(rows)[0]
    assert (first.location, first.share.value is not None) == (f"planted_lines.py:{planted}", True)


def test_memory_given_back_is_named_with_the_call_that_does_it(lines: pd.DataFrame) -> None:
    rows = lines[(lines["stage"] == "allocation") & (lines["call"] == "cudaFree")]
    assert set(rows["line"]) == {59}
    assert rows["inner"].str.endswith("empty_cache").all()
    assert set(rows["work"]) == {"emptying the cache"}


def test_callers_lead_from_the_line_outwards(lines: pd.DataFrame) -> None:
    first = lines[lines["line"] == 73].iloc[0]
    places = [place.rpartition("/")[2] for place in first["callers"].split(" < ")]
    assert places[0] == "planted_lines.py:79 on_prepared"
    assert places[-1] == "planted_lines.py:171 <module>"


def test_stacks_that_wait_while_a_kernel_runs_are_its_lines(root: Path) -> None:
    path = root / "tests/fixtures/python_sampling/trace.sqlite.xz"
    with open_trace(path) as trace:
        found, launches, samples = trace.launch_lines(), trace.launches(), trace.host_lines()
    assert set(found["kernel_id"]) <= set(launches["kernel_id"])
    busy = samples["samples"].sum() - samples["idle_samples"].sum()
    # Copies run as well, so that not each sample with a busy GPU is of a kernel.
    assert 0 < found["samples"].sum() <= busy


def test_samples_that_launch_name_the_kernel(lines: pd.DataFrame) -> None:
    launching = lines[lines["kernel_id"] != ""]
    assert len(launching)
    assert set(launching["activity"]) == {"launching"}
    assert (lines["idle_samples"] <= lines["samples"]).all()


def test_copies_of_pageable_memory_are_told_apart(root: Path) -> None:
    with open_trace(root / "tests/fixtures/python_sampling/trace.sqlite.xz") as trace:
        rows = trace.memory_operations().set_index("kind")
    to_device = rows.loc["host to device"]
    assert 0 < to_device["pageable_ns"] <= to_device["total_ns"]


@pytest.mark.parametrize(
    ("place", "work"),
    [
        ("torch/optim/adam.py:_single_tensor_adam", "updating one by one"),
        ("torch/optim/adam.py:_multi_tensor_adam", ""),
        ("torch/_dynamo/convert_frame.py:_compile", "compiling"),
        ("torch/_dynamo/convert_frame.py:<module>", ""),  # imported by the first optimizer
        ("torch/_dynamo/eval_frame.py:_fn", ""),  # of each call of what is compiled
        ("triton/runtime/jit.py:_do_compile", "compiling"),
        ("triton/runtime/jit.py:run", ""),
        ("torch/_tensor_str.py:_str", "printing"),
        ("torch/utils/data/dataloader.py:__next__", "loading data"),
        ("torch/nn/modules/conv.py:_conv_forward", "convolving"),
        ("torch/serialization.py:save", "files"),
        ("torch/nn/modules/module.py:load_state_dict", "copying networks"),
        ("torch/nn/modules/module.py:_call_impl", ""),
        ("torch/fx/traceback.py:format_stack", "noting stacks"),
        ("torch/cuda/graphs.py:__enter__", "capturing graphs"),
        ("torch/cuda/graphs.py:replay", ""),
        ("numpy/_core/fromnumeric.py:argsort", "computing on the host"),
        ("numpy/__init__.py:<module>", ""),
        ("torch/utils/flop_counter.py:__torch_dispatch__", "watching operations"),
        ("torch/utils/_device.py:__torch_function__", "watching operations"),
        ("torch/distributed/tensor/_api.py:__torch_dispatch__", ""),
        ("torch/cuda/memory.py:memory_stats", "memory statistics"),
        ("torch/cuda/memory.py:empty_cache", "emptying the cache"),
        ("torch/profiler/profiler.py:step", "profiling"),
        ("torch/distributions/distribution.py:__init__", "checking arguments"),
        ("matplotlib/figure.py:savefig", "logging"),
        ("loguru/_logger.py:info", "logging"),
        ("torch/jit/_trace.py:trace", "compiling"),
        ("torch/testing/_comparison.py:assert_close", "checking arguments"),
        ("torch/utils/data/_utils/collate.py:default_collate", "loading data"),
    ],
)
def test_work_of_libraries_is_known_by_its_frames(place: str, work: str) -> None:
    stack = f"/usr/lib/python3.12/a.py:f\n/v/site-packages/{place}\n/home/train.py:main"
    assert work_of(stack) == work


def test_few_samples_make_a_wide_interval() -> None:
    few, many = of_samples(2, 4), of_samples(500, 1000)
    assert few.value == many.value == 0.5
    # Wilson's score interval of 2 of 4: 15.0 to 85.0 %.
    assert [few.low, few.high] == pytest.approx([0.15, 0.85], abs=1e-4)
    assert many.low == pytest.approx(0.4691, abs=1e-4)


def test_a_trace_without_samples_says_how_to_get_them(root: Path) -> None:
    path = root / "captures/h200-known-gemm/steps/1-trace/trace.sqlite.xz"
    with open_trace(path) as trace:
        assert trace.host_lines().empty
        assert "--python-sampling=true" in trace.why_no_lines()


def test_native_stacks_name_the_function_that_calls_cuda(root: Path) -> None:
    with open_trace(root / "tests/fixtures/native_stacks/trace.sqlite.xz") as trace:
        found, launches = trace.launch_lines(), trace.launches()
    assert set(found["function"]) == {"main"}
    by_call = found.groupby("call")["samples"].sum()
    assert by_call["cudaLaunchKernel"] == len(launches)
    assert set(found.loc[found["call"] == "cudaLaunchKernel", "kernel_id"]) == set(
        launches["kernel_id"]
    )


def test_native_stacks_have_the_lines_that_were_kept(root: Path, tmp_path: Path) -> None:
    with open_trace(root / "tests/fixtures/native_stacks/trace.sqlite.xz") as trace:
        ((module, (entry, addresses)),) = trace.native_addresses().items()
        kept = tmp_path / "native_lines.json"
        kept.write_text(json.dumps({module: dict.fromkeys(map(str, addresses), "/a/b.cu:7")}))
        found = trace.launch_lines(kept)
    assert entry in addresses
    assert set(zip(found["file"], found["line"], strict=True)) == {("/a/b.cu", 7)}
