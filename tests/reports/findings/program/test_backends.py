"""Findings about slow kernels of libraries and attention that is not fused."""

import re
from collections.abc import Callable

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.kernels.findings import kernel_findings
from nsight_prof.reports.findings.program.backends import (
    BACKENDS,
    attention_spans,
    backend_findings,
)
from nsight_prof.reports.page.formats import share
from tests.reports.programs import amount, english, kernels, of_backends, write


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("older_gemm", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"),
        ("older_gemm", "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_"
                       "16x16_128x2_nn_align1>(T1::Params)"),
        ("older_gemm", "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4"),
        ("simt_gemm", "ampere_sgemm_128x64_tn"),
        ("simt_gemm", "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x256x8_stage3_ffma_aligna4"),
        ("simt_gemm", "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(Params)"),
        ("efficient_attention", "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention"),
        ("single_attention", "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention"),
        ("double_tensors", "void at::native::elementwise_kernel<BinaryFunctor<double, double>>"),
        ("older_attention", "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>"),
    ],
)  # fmt: skip
def test_slow_kernels_are_known_by_their_names(key: str, name: str) -> None:
    assert re.search(BACKENDS[key].pattern, name)


def test_layout_keeps_a_convolution_off_the_tensor_cores_where_others_use_tf32() -> None:
    slow = {
        "category": "conv", "dtype": "fp32",
        "name": "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tile_ffma_",
    }  # fmt: skip
    fast = {**slow, "name": "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tile"}
    assert BACKENDS["simt_nchw_conv"].of([slow, fast]) == [slow]
    assert not BACKENDS["simt_nchw_conv"].of([slow])
    assert not BACKENDS["simt_nchw_conv"].of([fast])


def test_transforms_of_double_tensors_are_double_too() -> None:
    name = "void regular_fft_factor<512, EPT<8>, 8, 0, 6, 0, 2, 1, unsigned int, double>(T9)"
    double = {"category": "fft", "dtype": "fp64", "name": name}
    single = {**double, "dtype": "fp32", "name": name.replace("double", "float")}
    assert BACKENDS["double_tensors"].of([double, single]) == [double]


@pytest.mark.parametrize(
    "name",
    [
        "nvjet_sm90_tst_256x128_64x4_2x1_v_bz_coopA_TNT",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
        "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90>>",
        "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>",
    ],
)
def test_kernels_of_this_gpu_are_no_fallback(name: str) -> None:
    assert not [k for k, b in BACKENDS.items() if b.pattern and re.search(b.pattern, name)]


def test_old_kernels_of_convolutions_ask_for_another_layout_and_type(run: Run) -> None:
    old = {"name": "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32", "category": "conv"}
    run = kernels(run, {"cuBLAS GEMM 256x128": old})
    (one,) = [f for f in of_backends(run) if "older GPU" in english(f.title)]
    assert "goes to convolutions" in english(one.title)
    assert "channels-last" in english(one.action)
    assert "cuBLAS" not in english(one.action)


def test_old_kernels_on_a_new_gpu_gain_the_distance_to_the_tensor_roof(run: Run) -> None:
    old = {"name": "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"}
    run = kernels(run, {"cuBLAS GEMM 256x128": old})
    found = [f for f in of_backends(run) if "older GPU" in english(f.title)]
    row = run.kernels[run.kernels["short_name"] == "cuBLAS GEMM 256x128"].iloc[0]
    (one,) = found
    assert one.gain_program == pytest.approx(row["share"] * (1 - 0.7605), abs=1e-3)
    ampere = run.gpus.assign(compute_capability="8.0")
    tables.write(ampere, "gpus", run.directory.tables)
    assert not [f for f in of_backends(load_run(run.path)) if "older GPU" in english(f.title)]


def test_what_counters_say_of_tensor_cores_is_not_said_twice(run: Run) -> None:
    run = kernels(run, {"cuBLAS GEMM 256x128": {"name": "ampere_sgemm_128x64_tn"}})
    assert [f for f in of_backends(run) if "without the Tensor Cores" in english(f.title)]
    frame = run.counters.assign(tensor_pct=0.0)
    tables.write(frame, "counters", run.directory.tables)
    assert not [
        f for f in of_backends(load_run(run.path)) if "without the Tensor Cores" in english(f.title)
    ]


APART = 100_000.0


def frame_of(*categories: str) -> pd.DataFrame:
    starts = [10_000 * at for at in range(len(categories))]
    ends = [start + 8000 for start in starts]
    columns = {"category": categories, "queue": 0, "stage": "", "start_ns": starts, "end_ns": ends}
    return pd.DataFrame(columns)


def test_a_softmax_between_two_products_is_attention() -> None:
    body = ("gemm", "elementwise", "softmax", "copy", "gemm")
    assert attention_spans(frame_of("norm", *body, "norm"), 4, APART) == [(1, 6)]
    assert attention_spans(frame_of(*body, *body), 4, APART) == [(0, 5), (5, 10)]


@pytest.mark.parametrize(
    "categories",
    [
        ("gemm", "softmax", "sort", "gemm"),  # a router
        ("gemm", "softmax", "reduction", "embedding", "gemm"),  # the sampling of a token
        ("gemm", "softmax"),
        ("attention", "softmax", "gemm"),
        ("gemm", *["elementwise"] * 9, "softmax", "gemm"),
    ],
)
def test_another_softmax_is_no_attention(categories: tuple[str, ...]) -> None:
    assert attention_spans(frame_of(*categories), 6, APART) == []


def test_products_of_other_layers_are_no_attention() -> None:
    body = frame_of("gemm", "softmax", "gemm")
    assert attention_spans(body, 6, APART) == [(0, 3)]
    late = body.assign(start_ns=[0, 10_000, 100_018_000])  # the next product 100 ms later
    assert attention_spans(late, 6, APART) == []
    assert attention_spans(body.assign(stage=["a", "a", "b"]), 6, APART) == []
    assert attention_spans(body.assign(queue=[0, 0, 1]), 6, APART) == []


@pytest.mark.parametrize(("product", "told"), [(12, True), (6, False)])
def test_a_softmax_whose_function_multiplies_no_more_is_no_attention(
    run: Run, product: int, told: bool
) -> None:
    frame = frame_of("gemm", "softmax", "gemm")
    ids = run.kernels["kernel_id"].iloc[:2].to_list()
    frame = frame.assign(kernel_id=[ids[0], ids[1], ids[0]], duration_ns=10**8)
    at = {"call": "", "file": "/a/net.py", "function": "forward", "inner": "", "callers": "",
          "samples": 5, "time_ns": 8000}  # fmt: skip
    rows = [at | {"kernel_id": ids[0], "line": product}, at | {"kernel_id": ids[1], "line": 9}]
    found = backend_findings(write(run, "launch_lines", rows), frame)
    assert [f.key for f in found if f.key == "math_attention"] == ["math_attention"] * told


ATTENTION = {
    "category": "attention",
    "name": "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
}


def test_memory_efficient_attention_gains_the_distance_to_what_others_reach(run: Run) -> None:
    run = kernels(run, {"cuBLAS GEMM 256x128": ATTENTION})
    (found,) = [f for f in of_backends(run) if "memory-efficient" in english(f.title)]
    assert (found.rule, found.key) == ("slow_backend", "efficient_attention")
    assert found.confidence == "medium"
    row = run.kernels[run.kernels["name"] == ATTENTION["name"]].iloc[0]
    counted = run.counters[run.counters["kernel_id"] == row["kernel_id"]].iloc[0]
    at = {english(e.label): e for e in found.evidence}
    least, most = (
        at["these at 35 % of the Tensor Core roof"],
        at["these at 75 % of the Tensor Core roof"],
    )
    assert amount(least) * 0.35 == pytest.approx(amount(most) * 0.75)
    for saved, needed in (("could save at least", least), ("could save", most)):
        busy = max(amount(needed) / counted["duration_ns"], counted["dram_pct"] / 100)
        assert amount(at[saved]) == pytest.approx(row["total_ns"] * max(0.0, 1 - busy))
    assert found.gain_ns == amount(at["could save"])
    assert not [f for f in kernel_findings(run, [found]) if f.kernel_ids == (row["kernel_id"],)]
    assert [f for f in kernel_findings(run) if f.kernel_ids == (row["kernel_id"],)]
    other = run.gpus.assign(compute_capability="12.0")
    tables.write(other, "gpus", run.directory.tables)
    (unknown,) = [
        f for f in of_backends(load_run(run.path)) if "memory-efficient" in english(f.title)
    ]
    assert unknown.gain_ns != unknown.gain_ns, "what others reach on this GPU is not known"


def test_flash_attention_2_on_hopper_has_a_range_without_its_kernels_for_split_keys(
    run: Run,
) -> None:
    old = {"category": "attention", "name": "void pytorch_flash::flash_fwd_kernel<T>"}
    split = {"category": "attention", "name": "void pytorch_flash::flash_fwd_splitkv_kernel<T>"}
    run = kernels(run, {"cuBLAS GEMM 256x128": old, "PyTorch copy": split})
    (found,) = [f for f in of_backends(run) if f.key == "older_attention"]
    spent, total = amount(found.evidence[0]), run.kernels["total_ns"].sum()
    assert found.gain_ns == pytest.approx(0.5 * spent)
    assert f"{share(0.33 * spent / total)} to {share(0.5 * spent / total)}" in english(
        found.verdict
    )
    beside = run.kernels["name"].str.contains("splitkv_kernel")
    assert run.kernels.loc[beside, "total_ns"].sum() > 0
    assert not set(run.kernels.loc[beside, "kernel_id"]) & set(found.kernel_ids)


@pytest.mark.parametrize("dtype", ["fp64", "bf16"])
def test_a_number_in_double_beside_others_makes_no_double_tensor(run: Run, dtype: str) -> None:
    # The step of a fused optimizer is a double, its tensors are not.
    name = "void at::native::multi_tensor_apply_kernel<FusedAdam<double>, double>(T1, T2)"
    run = kernels(run, {"PyTorch SiLU x mul": {"name": name, "dtype": dtype, "total_ns": 10**9}})
    assert ("double_precision" in {f.rule for f in of_backends(run)}) == (dtype == "fp64")


def test_kernels_of_four_bit_weights_older_than_marlin_are_named(
    recorded_run_of: Callable[[str], Run],
) -> None:
    found = {f.key: f for f in of_backends(recorded_run_of("h100-vllm-awq"))}["four_bit"]
    assert "older than Marlin" in english(found.title)
    assert "awq_marlin" in english(found.action)
