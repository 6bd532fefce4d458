"""Kernel names: the cases of fixtures/kernel_names.yaml, and real traces as a whole."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels
from nsight_prof.parsers.names import kernel_names
from nsight_prof.parsers.names.demangle import demangle, identifiers
from nsight_prof.parsers.names.kernel_names import (
    MAX_LENGTH,
    KernelName,
    classify,
    function_name,
    kernel_id,
)
from nsight_prof.parsers.nsys.kern_sum_csv import read_kern_sum
from nsight_prof.parsers.nsys.trace import open_trace

# Each worker reads them before its first test: in C, where PyYAML has that.
CASES = yaml.load(
    (Path(__file__).parents[1] / "fixtures" / "kernel_names.yaml").read_text(encoding="utf-8"),
    getattr(yaml, "CSafeLoader", yaml.SafeLoader),
)
CATEGORIES = {
    *("gemm", "gemv", "attention", "norm", "softmax", "elementwise", "reduction", "embedding"),
    *("rotary", "sampling", "sort", "copy", "conv", "rnn", "moe", "quantize", "kv_cache"),
    *("collective", "memory", "fill", "random", "fusion", "fft", "sparse", "solver", "search"),
    "other",
}
DTYPES = {
    *("", "bf16", "fp16", "tf32", "fp32", "fp64", "fp8", "fp4", "complex64", "complex128"),
    *("int1", "int4", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"),
}
# The kernels that the program of a shared trace defines itself, from the source in its repository.
# All other kernels of the trace come from a public library, whatever the rules know of them.
OWN = {
    "MosesChuka+EasyCUDA": r"add",
    "brycelelbach+ncu2markdown": r"",
    "bwyogatama+Mordred-Deprecated": r"(?:build|probe)_\w*GPU2?",
    "cestwc+balinski-and-gomory-cuda": r"(?!cub::|thrust::)\w+",
    "hpcgroup+pipit": r"saxpy|clover::par_\w+_kernel",
    "morluto+flameox": r"add_one",
    "openhackathons-org+nways_accelerated_programming": r"jacobi_kernel|initialize_boundaries",
}
LEAST_KNOWN = 0.95
# A user's functions, and what may stand in their template arguments and parameters.
USERS = ("render", "my_kernel", "ns::step", "update", "sim::advance_particles", "compute_forces")
LIBRARY_TYPES = (
    *(
        "curandState *",
        "curandStateXORWOW *",
        "curandStatePhilox4_32_10 *",
        "at::Half *",
        "c10::BFloat16 *",
    ),
    *("cublasGemvParamsEx<int, float>", "cublasHandle_t", "cublasLt::cublasSplitKParams<float>"),
    *("cudnn::reduced_divisor", "cudnnTensorStruct", "cusparse::Csr", "cusolverDnHandle_t"),
    *("ncclDevComm *", "nvshmem_team_t", "thrust::device_ptr<float>", "thrust::plus<void>"),
    *(
        "cub::DeviceReduce",
        "cub::DeviceRadixSortPolicy",
        "cutlass::half_t",
        "cute::tuple<cute::C<128>>",
    ),
    *(
        "cutlass::gemm::kernel::GemmUniversal<int>",
        "at::native::FillFunctor<float>",
        "ReduceOp<float>",
    ),
    *(
        "at::TensorIteratorBase &",
        "at::native::MulFunctor<float>",
        "flash::Flash_fwd_params",
        "at::Tensor",
    ),
    *("FlashAttnFwdSm90", "AttentionKernel<float>", "vllm::RankData *", "flashinfer::PagedParams"),
    *(
        "tensorrt_llm::Params",
        "transformer_engine::Tensor",
        "phi::FullFunctor<float>",
        "Eigen::Tensor",
    ),
    *(
        "tensorflow::Dimension<3>",
        "genericReformat::ArrayN",
        "cuvs::Index",
        "raft::add_op",
        "marlin::X",
    ),
    *(
        "moe::Params",
        "quantize::Fp8",
        "RadixSort",
        "batch_norm_params",
        "embedding_table",
        "LSTM_state",
    ),
    *("cudnn_generated", "splitKreduce", "gemm_params", "softmax_op", "Kokkos::View", "cupy_array"),
)


def test_each_real_name_is_told() -> None:
    """One test of hundreds of names: each of its own costs ten times what it tests."""

    def told(name: KernelName) -> list[str]:
        return [name.short_name, name.library, name.category, name.dtype, name.tile]

    found = {case["name"]: told(classify(case["name"])) for case in CASES}
    assert found == {case["name"]: case["is"] for case in CASES}


def test_the_cases_cover_every_category_and_enough_names() -> None:
    assert len(CASES) >= 80
    assert {case["is"][2] for case in CASES} == CATEGORIES
    assert {case["is"][3] for case in CASES} <= DTYPES


def test_the_name_of_the_readme_is_told_in_full() -> None:
    name = classify("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT")
    assert name == KernelName(
        "cuBLAS GEMM, bf16, tile 256x128x64, 4 stages, cluster 1x2, bias, TN",
        "cuBLAS",
        "gemm",
        "bf16",
        "256x128x64",
        {
            "architecture": "sm90",
            "types": "tst",
            "stages": "4",
            "cluster": "1x2",
            "raster": "horizontal",
            "suffixes": "bz_coopA_bias",
            "epilogue": "bias",
            "layout": "TN",
        },
    )


def test_each_short_name_is_short_and_has_no_template() -> None:
    shorts = [classify(case["name"]).short_name for case in CASES]
    assert [short for short in shorts if not 0 < len(short) <= MAX_LENGTH] == []
    assert [short for short in shorts if set("<>{};&*") & set(short) or "::" in short] == []


@given(st.text(max_size=80) | st.text("_ZN0123456789<>(){}:, *iafPKT", max_size=60))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_no_name_is_too_strange(name: str) -> None:
    told = classify(name)
    assert told.category in CATEGORIES
    assert len(told.short_name) <= MAX_LENGTH


def test_a_name_too_long_keeps_the_part_that_tells_twins_apart() -> None:
    fused = "_".join(["add", "mul", "native_layer_norm_backward"] * 4)
    first, second = (classify(f"triton_poi_fused_{fused}_{number}") for number in (1, 2))
    assert first.short_name != second.short_name
    assert first.short_name.endswith(", #1")


@given(st.text("abcXYZ_019", max_size=40), st.lists(st.text("abcXYZ_019"), min_size=2, unique=True))
@settings(derandomize=True, max_examples=40)
def test_kernels_alike_in_their_first_characters_keep_names_of_their_own(
    middle: str, ends: list[str]
) -> None:
    names = [f"{'solve_tridiagonal_system_' * 3}{middle}{end}" for end in ends]
    assert len({classify(name).short_name for name in names}) == len(names)


FULL = st.sampled_from([case["name"] for case in CASES]) | st.sampled_from(LIBRARY_TYPES)


@given(st.sampled_from(USERS), st.lists(FULL, max_size=2), st.lists(FULL, max_size=2))
@settings(derandomize=True, max_examples=200)
def test_types_of_a_library_do_not_make_a_users_kernel_its_own(
    base: str, arguments: list[str], parameters: list[str]
) -> None:
    plain = classify(base)
    assert plain.library == "other"
    templates = f"<{', '.join(arguments)}>" if arguments else ""
    name = classify(f"void {base}{templates}({', '.join(parameters)})")
    assert (name.library, name.category) == (plain.library, plain.category)
    assert name.short_name.split(":")[0] == plain.short_name  # a lambda says whose it is


def test_a_type_of_a_library_in_a_mangled_name_says_nothing() -> None:
    def inner(types: str) -> str:
        return "".join(f"{len(word)}{word}" for word in re.findall(r"[A-Za-z_]\w*", types))

    whole = {types: classify("_Z6renderIN{0}EEvPN{0}EifPf".format(inner(types)))
             for types in LIBRARY_TYPES}  # fmt: skip
    told = {types: (name.library, name.category, name.short_name) for types, name in whole.items()}
    assert told == dict.fromkeys(LIBRARY_TYPES, ("other", "other", "render"))
    # cut off, so that no demangler reads it
    cut = {types: classify("_Z6renderIN{0}EEvPN{0}EifP9".format(inner(types))).library
           for types in LIBRARY_TYPES}  # fmt: skip
    assert cut == dict.fromkeys(LIBRARY_TYPES, "other")


def test_every_rule_is_well_formed() -> None:
    rules = kernel_names._rules()
    known = {"type", "words", *rules.maps, *rules.names, *rules.word_maps}
    for rule in rules.rules:
        assert _categories(rule.category, rules.maps) <= CATEGORIES, rule.name
        assert rule.any, rule.name
        # What tells the owner is the function's own name, from a place where a name may begin.
        assert rule.base or rule.match.startswith("^"), rule.name
        assert rule.library == "other" or not re.search(rule.base or rule.match, "render"), (
            rule.name
        )
        rule.fields("", "".join(rule.any))  # compiles both patterns
        templates = (*rule.short, *rule.dtype, *rule.tile, *rule.details.values())
        used = {via for text in templates for via in re.findall(r"\|(\w+)\}", text)}
        assert used <= known, rule.name
        groups = set(re.findall(r"\?P<(\w+?)(?:_\d)?>", rule.base + rule.match))
        fields = {key for text in templates for key in re.findall(r"\{(\w+)", text)}
        assert fields <= groups | {*rule.details, "dtype", "tile"}, rule.name
    names = Counter(rule.name for rule in rules.rules)
    assert max(names.values()) == 1


def _categories(template: str, maps: dict[str, dict[str, str]]) -> set[str]:
    via = re.fullmatch(r"\{\w+\|(\w+)\}", template)
    return set(maps[via[1]].values()) if via else {template}


def _is_other(name: KernelName) -> bool:
    return "other" in (name.library, name.category)


def _function(name: str) -> str:
    """Return the qualified name of the function, without the rules' help."""
    return re.sub(r"^(?:[\w-]+/)*(?:void )?", "", name).split("<", 1)[0].split("(", 1)[0]


def test_time_of_public_libraries_is_known_in_every_real_trace(real_exports: Path) -> None:
    seen = 0
    for path, times in sorted(_traces(real_exports).items()):
        own = OWN.get(path.split("/")[1], "")
        public = {n: t for n, t in times.items() if not re.fullmatch(own, _function(n))}
        if not public:
            continue
        seen += 1
        unknown = Counter({n: t for n, t in public.items() if _is_other(classify(n))})
        share = 1 - sum(unknown.values()) / sum(public.values())
        assert share >= LEAST_KNOWN, (path, share, unknown.most_common(10))
    assert seen >= 10


def _traces(folder: Path) -> dict[str, dict[str, float]]:
    """Return the GPU time by name of every readable trace and kernel summary."""
    found: dict[str, dict[str, float]] = {}
    for path in sorted([*folder.glob("nsys/**/*.sqlite"), *_summaries(folder)]):
        try:
            kernels = _kernels(path)
        except (NoKernels, ArtifactUnreadable):
            continue
        times = kernels.groupby("name")["total_ns"].sum()
        found[str(path.relative_to(folder))] = {str(name): float(t) for name, t in times.items()}
    return found


def _summaries(folder: Path) -> list[Path]:
    found = [*folder.glob("nsys/**/*kern_sum*"), *folder.glob("nsys/**/*nsys_*.txt")]
    return [path for path in found if path.suffix in (".csv", ".txt")]


def _kernels(path: Path) -> pd.DataFrame:
    if path.suffix != ".sqlite":
        return read_kern_sum(path)
    with open_trace(path) as trace:
        return trace.kernels()


def test_mangled_names_tell_the_same_as_demangled_ones(real_exports: Path) -> None:
    with open_trace(real_exports / "nsys/GindaChen+nsys-ai/h100_2gpu_1s.sqlite") as trace:
        kernels = trace.kernels()
    for name, mangled in zip(kernels["name"], kernels["mangled_name"], strict=True):
        assert classify(mangled) == classify(name), name


def test_without_a_demangler_the_library_is_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    mangled = (
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEE"
        "St5arrayIPcLm3EEEEviT0_T1_"
    )
    monkeypatch.setattr("nsight_prof.parsers.names.demangle._runtime", lambda: None)
    assert demangle(mangled).startswith("at::native::vectorized_elementwise_kernel")
    assert classify.__wrapped__(mangled).library == "PyTorch"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_Z5saxpyPdS_S_di", ["saxpy"]),
        ("_ZN3cub18DeviceReduceKernelIfEEvv", ["cub", "DeviceReduceKernel"]),
        ("_ZN12_GLOBAL__N_13addEv", ["add"]),
        ("_Z99short", []),
        ("_Z", []),
    ],
)
def test_identifiers_of_a_mangled_name(name: str, words: list[str]) -> None:
    assert identifiers(name) == words


def test_names_that_are_not_mangled_stay_as_they_are() -> None:
    assert demangle("nvjet_tst") == "nvjet_tst"
    assert demangle("_Znot a name") == "_Znot a name"


def test_the_key_of_a_kernel_depends_on_name_grid_and_block() -> None:
    key = kernel_id("_Z5saxpyPdS_S_di", "1x1x1", "32x1x1")
    assert re.fullmatch(r"k[0-9a-f]{10}", key)
    assert key == kernel_id("_Z5saxpyPdS_S_di", "1x1x1", "32x1x1")
    others = {
        kernel_id("_Z5saxpy", "1x1x1", "32x1x1"),
        kernel_id("_Z5saxpyPdS_S_di", "2x1x1", "32x1x1"),
        kernel_id("_Z5saxpyPdS_S_di", "1x1x1", "64x1x1"),
    }
    assert len(others | {key}) == 4


def test_the_classifier_is_light_to_import() -> None:
    code = "import sys, parsers.names.kernel_names; print('pandas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("jacobi_kernel(float *, int)", "jacobi_kernel"),
        ("void at::native::vectorized_elementwise_kernel<(int)4, std::array<char *, 3>>"
         "(int, T2, T3)", "vectorized_elementwise_kernel"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16>(T1::Params)", "Kernel2"),
        ("_ZN2at6native13reduce_kernelILi512EEEvT_", "reduce_kernel"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("void (anonymous namespace)::softmax<float>(float *)", "softmax"),
    ],
)  # fmt: skip
def test_the_function_of_a_kernel_is_what_ncu_filters_by(name: str, function: str) -> None:
    assert function_name(name) == function
