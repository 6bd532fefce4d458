"""Kernel names: the cases of fixtures/kernel_names.yaml, and real traces as a whole."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nsight_prof.parsers import kernel_names
from nsight_prof.parsers.demangle import demangle, identifiers
from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels
from nsight_prof.parsers.kernel_names import MAX_LENGTH, KernelName, classify, kernel_id
from nsight_prof.parsers.nsys import open_trace, read_kern_sum

CASES = yaml.safe_load(
    (Path(__file__).parents[1] / "fixtures" / "kernel_names.yaml").read_text(encoding="utf-8")
)
CATEGORIES = {
    *("gemm", "gemv", "attention", "norm", "softmax", "elementwise", "reduction", "embedding"),
    *("rotary", "sampling", "sort", "copy", "conv", "rnn", "moe", "quantize", "kv_cache"),
    *("collective", "memory", "fill", "random", "other"),
}
DTYPES = {
    *("", "bf16", "fp16", "tf32", "fp32", "fp64", "fp8", "fp4", "complex64", "complex128"),
    *("int1", "int4", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"),
}
# Words that a kernel of a public library carries, from the libraries' sources and documentation,
# not from the rules: the denominator of the share that must be told.
PUBLIC = re.compile(
    r"\bat::|\bc10::|cublas|gemvx|gemv2|splitK|cutlass|cudnn|flash_|\bflash::|fmha|\bcub::|thrust::"
    r"|nccl|xmma|nvjet|triton_|vllm::|flashinfer::|cupy_|elementwise_kernel|softmax_warp|gemmk1"
    r"|^(kepler|maxwell|pascal|volta|turing|ampere|hopper)_|cusparse|cusolver|cufft|[hsd]gemm_\d"
)
LEAST_TOLD = 0.9


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"][:60])
def test_a_real_name_is_told(case: dict[str, Any]) -> None:
    name = classify(case["name"])
    assert [name.short_name, name.library, name.category, name.dtype, name.tile] == case["is"]


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"][:60])
def test_a_short_name_is_short_and_has_no_template(case: dict[str, Any]) -> None:
    short = classify(case["name"]).short_name
    assert 0 < len(short) <= MAX_LENGTH
    assert not set("<>{};&*") & set(short)
    assert "::" not in short


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
    assert first.short_name.endswith("…, #1")


def test_every_rule_is_well_formed() -> None:
    rules = kernel_names._rules()
    known = {"type", "words", *rules.maps, *rules.names, *rules.word_maps}
    for rule in rules.rules:
        assert rule.category in CATEGORIES, rule.name
        assert rule.any, rule.name
        rule.fields("", "".join(rule.any))  # compiles both patterns
        templates = (*rule.short, *rule.dtype, *rule.tile, *rule.details.values())
        used = {via for text in templates for via in re.findall(r"\|(\w+)\}", text)}
        assert used <= known, rule.name
        groups = set(re.findall(r"\?P<(\w+?)(?:_\d)?>", rule.base + rule.match))
        fields = {key for text in templates for key in re.findall(r"\{(\w+)", text)}
        assert fields <= groups | {*rule.details, "dtype", "tile"}, rule.name
    names = Counter(rule.name for rule in rules.rules)
    assert max(names.values()) == 1


def _told(times: dict[str, float]) -> tuple[float, float, Counter[str]]:
    """Return the time of public names, the time of those that are told, and the rest by name."""
    public = {name: time for name, time in times.items() if PUBLIC.search(name)}
    rest = Counter({name: t for name, t in public.items() if _is_other(classify(name))})
    return sum(public.values()), sum(public.values()) - sum(rest.values()), rest


def _is_other(name: KernelName) -> bool:
    return "other" in (name.library, name.category)


def test_real_traces_are_told_for_the_time_of_public_libraries(
    real_exports: Path, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = [0.0, 0.0]
    for path, times in sorted(_traces(real_exports).items()):
        public, told, rest = _told(times)
        if not public:
            continue
        everything = [everything[0] + public, everything[1] + told]
        share = f"{told / public:.1%} of public, {public / sum(times.values()):.1%} public"
        record_property(path, share)
        with capsys.disabled():
            print(f"\n{path}: {share}, other: {[name[:60] for name, _ in rest.most_common(3)]}")
        assert told >= LEAST_TOLD * public, (path, rest.most_common(5))
    assert everything[0] > 0
    assert everything[1] >= LEAST_TOLD * everything[0]


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
    monkeypatch.setattr("nsight_prof.parsers.demangle._runtime", lambda: None)
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
    code = "import sys, parsers.kernel_names; print('pandas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert done.stdout.strip() == "False"
