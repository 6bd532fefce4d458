"""A made-up but consistent run: a decoder block on an H200, prefill and decode, some gaps.

`build_run` writes manifest, selection and tidy tables (no raw artifacts), so that everything right
of the tables can be tested without a capture. Times, bytes and FLOPs of a kernel agree with each
other: bytes are the given per cent of the roof times the duration.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.bound import assign_bounds
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.run.directory import (
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    write_manifest,
)
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.run.selection import SelectedKernel, Selection, write_selection
from nsight_prof.reports.profile.view_models import ReportView
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.render import drawing
from nsight_prof.reports.render.report import ReportPaths, render_report
from nsight_prof.reports.render.style import Style
from tests.conftest import blank
from tests.reports.browser import browser, in_browser

__all__ = ["browser", "in_browser"]

CLOCK, MAX_CLOCK, SMS = 1.755e9, 1.98e9, 132
ROOFS = [
    ("dram", "", 4.8143e12, "B/s", 3.201e9),
    ("l2", "", 96 * 64 * 1.68e9, "B/s", 1.68e9),
    ("l1", "", SMS * 128 * CLOCK, "B/s", CLOCK),
    ("fp64", "fp64", SMS * 128 * CLOCK, "FLOP/s", CLOCK),
    ("fp32", "fp32", SMS * 256 * CLOCK, "FLOP/s", CLOCK),
    ("fp16", "fp16", SMS * 512 * CLOCK, "FLOP/s", CLOCK),
    ("tensor", "bf16", SMS * 4096 * CLOCK, "FLOP/s", CLOCK),
]
LEVEL_ROOFS = {key: value for key, _, value, _, _ in ROOFS if key in ("dram", "l2", "l1")}
GEMMS = [
    {"name": "gate_up", "stage": "prefill", "m": 4096, "n": 28672, "k": 4096, "calls": 4},
    {"name": "down", "stage": "prefill", "m": 4096, "n": 4096, "k": 14336, "calls": 4},
    {"name": "qkv", "stage": "prefill", "m": 4000, "n": 6144, "k": 4096, "calls": 4},
    {"name": "lm_head", "stage": "decode", "m": 8, "n": 128256, "k": 4096, "calls": 32},
]


@dataclass(frozen=True)
class Spec:
    """One kernel: `use` is (dram, l2, l1, tensor) per cent; `occupancy` achieved, theoretical."""

    short_name: str
    name: str
    library: str
    category: str
    stage: str
    calls: int
    mean_us: float
    use: tuple[float, float, float, float] | None
    flops: float = 0.0
    pipe: str = ""
    occupancy: tuple[float, float, str, float] = (24.0, 25.0, "registers", 1.0)
    grid: str = "132x1x1"
    block: str = "384x1x1"
    dtype: str = "bf16"
    tile: str = ""
    stall: str = "long_scoreboard"


def _gemm(tile: str, cluster: str, tail: str) -> str:
    return f"nvjet_sm90_tst_{tile}_64x4_{cluster}_{tail}"


SPECS = [
    Spec("cuBLAS GEMM 64x8", _gemm("64x8", "4x1", "v_bz_TNT"), "cuBLAS", "gemm", "decode",
         128, 58.0, (85.1, 42.0, 20.0, 9.0), 2.0 * 8 * 28672 * 4096, "tensor",
         (14.0, 18.75, "shared memory", 3.4), grid="448x1x1", tile="64x8x64"),
    Spec("cuBLAS GEMM 64x8 splitK", _gemm("64x8", "4x1", "v_bz_splitK_TNT"), "cuBLAS", "gemm",
         "decode", 32, 247.0, (88.4, 43.0, 21.0, 8.5), 2.0 * 8 * 128256 * 4096, "tensor",
         (15.0, 18.75, "shared memory", 15.2), grid="2004x1x1", tile="64x8x64"),
    Spec("cuBLAS GEMM 256x128", _gemm("256x128", "2x1", "v_bz_coopA_TNT"), "cuBLAS", "gemm",
         "prefill", 4, 1320.0, (14.0, 51.0, 38.0, 86.0), 2.0 * 4096 * 28672 * 4096, "tensor",
         (17.8, 18.75, "registers", 27.2), tile="256x128x64", stall="gmma"),
    Spec("cuBLAS GEMM 64x16", _gemm("64x16", "2x1", "v_bz_TNT"), "cuBLAS", "gemm", "decode",
         128, 31.5, (77.4, 39.0, 18.0, 8.0), 2.0 * 16 * 4096 * 14336, "tensor",
         (13.1, 18.75, "shared memory", 0.9), grid="64x1x2", tile="64x16x64"),
    Spec("cuBLAS GEMM 128x256", _gemm("128x256", "2x1", "h_bz_coopB_TNT"), "cuBLAS", "gemm",
         "prefill", 4, 668.0, (16.0, 48.0, 36.0, 85.0), 2.0 * 4096 * 4096 * 14336, "tensor",
         (17.7, 18.75, "registers", 3.9), tile="128x256x64", stall="gmma"),
    Spec("FlashAttention decode split-KV", "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits"
         "<128, 64, 128, 4, false, false, cutlass::bfloat16_t>, false, true>(Flash_fwd_params)",
         "FlashAttention", "attention", "decode", 128, 17.4, (21.0, 18.0, 12.0, 4.0), 5.4e8,
         "tensor", (9.6, 12.5, "shared memory", 0.48), grid="1x2x32", block="128x1x1"),
    Spec("PyTorch RMSNorm", "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel"
         "<c10::BFloat16, float, true>(int, float, c10::BFloat16 const*)", "PyTorch", "norm",
         "decode,prefill", 264, 4.9, (0.9, 3.1, 2.0, 0.0), 1.3e5, "fp32",
         (21.0, 100.0, "warps", 0.01), grid="8x1x1", block="128x1x1", stall="barrier"),
    Spec("cuBLAS GEMM 128x192", _gemm("128x192", "2x1", "v_bz_TNT"), "cuBLAS", "gemm", "prefill",
         4, 301.0, (17.0, 44.0, 34.0, 78.0), 2.0 * 4096 * 6144 * 4096, "tensor",
         (17.0, 18.75, "registers", 3.9), tile="128x192x64", stall="gmma"),
    Spec("FlashAttention forward", "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits"
         "<128, 128, 64, 4, false, false, cutlass::bfloat16_t>, false, true, false>(params)",
         "FlashAttention", "attention", "prefill", 4, 402.0, (3.1, 33.0, 41.0, 41.0), 1.39e11,
         "tensor", (12.2, 12.5, "registers", 3.9), grid="32x1x32", block="128x1x1", stall="wait"),
    Spec("PyTorch SiLU x mul", "void at::native::vectorized_elementwise_kernel<4, at::native::"
         "BinaryFunctor<c10::BFloat16, c10::BFloat16>, std::array<char*, 3ul> >(int)", "PyTorch",
         "elementwise", "prefill", 4, 84.0, (87.0, 41.0, 13.0, 0.0), 1.2e9, "fp32",
         (82.0, 100.0, "warps", 54.3), grid="57344x1x1", block="256x1x1"),
    Spec("PyTorch softmax", "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float,"
         " float, float, SoftMaxForwardEpilogue>(float*, float const*, int)", "PyTorch",
         "softmax", "decode", 32, 12.4, (5.0, 6.1, 8.0, 0.0), 8.2e6, "fp32",
         (49.0, 50.0, "registers", 0.03), grid="8x1x1", block="1024x1x1", dtype="fp32"),
    Spec("PyTorch copy", "void at::native::elementwise_kernel<128, 4, direct_copy_kernel>(int)",
         "PyTorch", "copy", "decode", 512, 1.9, None, grid="24x1x1", block="128x1x1"),
]  # fmt: skip
STALLS = ["long_scoreboard", "wait", "barrier", "gmma", "short_scoreboard", "not_selected"]


def _kernels() -> pd.DataFrame:
    total = sum(s.calls * s.mean_us * 1e3 for s in SPECS)
    rows = [
        {
            "kernel_id": f"k{number:010x}",
            "name": s.name,
            "short_name": s.short_name,
            "mangled_name": s.name,
            "library": s.library,
            "category": s.category,
            "dtype": s.dtype,
            "tile": s.tile,
            "grid": s.grid,
            "block": s.block,
            "stage": s.stage,
            "calls": s.calls,
            "total_ns": round(s.calls * s.mean_us * 1e3),
            "share": s.calls * s.mean_us * 1e3 / total,
            "mean_ns": s.mean_us * 1e3,
            "median_ns": s.mean_us * 990.0,
            "min_ns": round(s.mean_us * 940),
            "max_ns": round(s.mean_us * 1200),
            "std_ns": s.mean_us * 30.0,
            "registers": 168,
            "shared_bytes": 213_000 if s.category == "gemm" else 0,
        }
        for number, s in enumerate(SPECS, 1)
    ]
    return pd.DataFrame(rows).sort_values("total_ns", ascending=False, ignore_index=True)


def _counter_row(number: int, spec: Spec) -> dict[str, Any]:
    assert spec.use is not None
    dram, l2, l1, tensor = spec.use
    duration = spec.mean_us * (1.17 if spec.category == "norm" else 1.01) * 1e3
    seconds = duration / 1e9
    levels = dict(zip(("dram", "l2", "l1"), (dram, l2, l1), strict=True))
    row: dict[str, Any] = {c.name: None for c in tables.tables()["counters"]}
    row |= {
        "kernel_id": f"k{number:010x}",
        "launch": spec.calls // 2,
        "duration_ns": duration,
        "trace_duration_ns": spec.mean_us * 990.0,
        "duration_difference": duration / (spec.mean_us * 990.0) - 1,
        "sm_clock_hz": CLOCK,
        "dram_clock_hz": 3.201e9,
        "achieved_occupancy_pct": spec.occupancy[0],
        "theoretical_occupancy_pct": spec.occupancy[1],
        "occupancy_limiter": spec.occupancy[2],
        "waves": spec.occupancy[3],
        "registers": 168,
        "shared_bytes": 213_000.0 if spec.category == "gemm" else 0.0,
        "l2_hit_pct": 61.0,
        "l1_hit_pct": None if spec.category == "gemm" else 34.0,
        "flops": spec.flops,
        "flops_fp64": 0.0,
        "flops_fp32": spec.flops if spec.pipe == "fp32" else 0.0,
        "flops_fp16": 0.0,
        "flops_tensor": spec.flops if spec.pipe == "tensor" else 0.0,
        "tensor_dtype": "bf16" if spec.pipe == "tensor" else "",
        "pipe": spec.pipe,
        "flop_throughput": spec.flops / seconds,
        "tensor_pct": tensor,
        "issue_active_pct": 22.0,
        "eligible_warps": 0.4,
        "top_stall": spec.stall,
        "top_stall_ratio": 4.2,
        "passes": 11,
    }
    for level, pct in levels.items():
        data = pct / 100 * LEVEL_ROOFS[level] * seconds
        row |= {
            f"{level}_bytes": data,
            f"{level}_throughput": data / seconds,
            f"{level}_pct": pct,
            f"intensity_{level}": spec.flops / data,
        }
    row |= {"dram_read_bytes": row["dram_bytes"] * 0.8, "dram_write_bytes": row["dram_bytes"] * 0.2}
    for column in ("occupancy_limiter", "tensor_dtype", "pipe", "top_stall", "bound_by"):
        row[column] = row[column] or ""
    return row


def _stages(kernels: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    total = int(kernels["total_ns"].sum())
    per = [("prefill", 1, 1.04), ("decode", 32, 1.31)]
    rows, parts = [], []
    for stage, instances, wall in per:
        mine = kernels[kernels["stage"].str.startswith(stage)]
        busy = int(mine["total_ns"].sum())
        rows.append((stage, instances, busy * wall, busy, busy, busy * (wall - 1),
                     int(mine["calls"].sum()), 0, busy / total))  # fmt: skip
        for row in records(mine):
            taken = row["total_ns"]
            parts.append((stage, row["kernel_id"], row["calls"], taken, taken / busy))
    wall_ns = sum(row[2] for row in rows)
    rows.append(("(all)", 1, wall_ns, total, total, wall_ns - total,
                 int(kernels["calls"].sum()), 41_000, 1.0))  # fmt: skip
    names = list(tables.empty("stages").columns), list(tables.empty("stage_kernels").columns)
    return pd.DataFrame(rows, columns=names[0]), pd.DataFrame(parts, columns=names[1])


def _roofs() -> pd.DataFrame:
    rows = [
        {"level_or_pipe": key, "dtype": dtype, "value": value, "unit": unit, "source": "counters",
         "clock_hz": clock, "detail": "peak_sustained x clock of the run"}
        for key, dtype, value, unit, clock in ROOFS
    ]  # fmt: skip
    rows.append({"level_or_pipe": "dram", "dtype": "", "value": 4.8143e12, "unit": "B/s",
                 "source": "datasheet", "clock_hz": None, "detail": "TARGET_INFO_GPU"})  # fmt: skip
    return pd.DataFrame(rows)


def _gpus() -> pd.DataFrame:
    row = {"device": 0, "name": "NVIDIA H200", "chip": "GH100", "compute_capability": "9.0",
           "sm_count": SMS, "clock_hz": MAX_CLOCK, "memory_bytes": 150.1e9,
           "memory_bandwidth": 4.8143e12, "l2_bytes": 62_914_560.0, "max_warps_per_sm": 64,
           "uuid": ""}  # fmt: skip
    return pd.DataFrame([row])


def _manifest(counters: bool) -> Manifest:
    recipe = {
        "name": "top-kernels",
        "question": "Which kernels take the time, and what limits each of them?",
        "target": {"file": "targets/llm_block.py", "args": {"layers": 4, "batch": 8}},
        "stages": ["prefill", "decode"],
        "counters": {"sets": ["roofline", "occupancy", "memory", "tensor", "stalls"],
                     "clock_control": "none", "cache_control": "none"},
        "notes": ["Random weights: the time of GEMMs depends on the data through power."],
    }  # fmt: skip
    steps = [
        StepRecord("trace", "a1", StepState.DONE, "steps/1-trace",
                   ["nsys", "profile", "-t", "cuda,nvtx,cublas", "python", "targets/llm_block.py"],
                   seconds=41.2, exit_code=0),
        StepRecord("select", "b2", StepState.DONE, "steps/2-select", seconds=0.3),
        StepRecord("counters", "c3", StepState.DONE, "steps/3-counters",
                   ["ncu", "--filter-mode", "per-launch-config", "-k", "regex:^(a|b)$", "python"],
                   seconds=93.0, exit_code=0),
    ]  # fmt: skip
    if not counters:
        steps[2].state = StepState.UNSUPPORTED
        steps[2].error = "the driver refuses access to the GPU performance counters"
        steps[2].hint = "run as root, or set NVreg_RestrictProfilingToAdminUsers=0"
    return Manifest(
        run_id="top-kernels-20261121-080000",
        created="2026-11-21T08:00:00Z",
        recipe=recipe,
        prof_version="0.1.0",
        assumptions=["Launches of one kernel, grid and block do the same work."],
        tools={"nsys": "2025.3.1", "ncu": "2025.3.1"},
        gpus=[{"name": "NVIDIA H200", "driver": "580.65", "sm_count": SMS}],
        software={"CUDA": "13.0", "torch": "2.11.0", "driver": "580.65", "Python": "3.12.3"},
        steps=steps,
    )


def _selection(kernels: pd.DataFrame) -> Selection:
    chosen = [
        SelectedKernel(r["kernel_id"], r["short_name"], r["name"], r["mangled_name"], r["grid"],
                       r["block"], r["share"], r["calls"] // 2, r["dtype"])
        for r in records(kernels[kernels["category"] != "copy"])
    ]  # fmt: skip
    rest = kernels[kernels["category"] == "copy"]
    share = float(rest["share"].sum())
    left = {"short_name": "PyTorch copy", "kernels": 1, "share": share,
            "reason": "below the coverage of 0.95"}  # fmt: skip
    return Selection(chosen, 0, 200, 1 - share, [left], ["top 11 kernels by GPU time"])


def _gaps() -> pd.DataFrame:
    tma = "the chip moves GEMM operands by TMA past the L1 tags: no L1 hit rate"
    rows = [("counters", f"k{number:010x}", "l1_hit_pct", tma)
            for number, s in enumerate(SPECS, 1) if s.category == "gemm"]  # fmt: skip
    rows.append(("counters", "", "shared_memory_bytes", "not in the sets that were collected"))
    return pd.DataFrame(rows, columns=list(tables.empty("gaps").columns)[:4]).assign(kind="")


def build_run(folder: Path, *, counters: bool = True) -> Path:
    """Write the run to `folder` and return it; without `counters` it is a trace only."""
    run = RunDir(folder)
    manifest = _manifest(counters)
    for step in manifest.steps:
        (folder / step.directory).mkdir(parents=True, exist_ok=True)
    write_manifest(run, manifest)
    kernels = _kernels()
    write_selection(folder / "steps/2-select/selection.yaml", _selection(kernels))
    (folder / "steps/1-trace/stdout.log").write_text("ready\n" + json.dumps({"gemms": GEMMS}))
    stages, stage_kernels = _stages(kernels)
    frames = {"gpus": _gpus(), "kernels": kernels, "stages": stages, "roofs": _roofs(),
              "stage_kernels": stage_kernels}  # fmt: skip
    if counters:
        rows = [_counter_row(n, s) for n, s in enumerate(SPECS, 1) if s.use is not None]
        counted = tables.check(pd.DataFrame(rows), "counters")
        frames["counters"] = assign_bounds(counted, kernels, frames["roofs"])
        frames["stalls"] = _stalls()
        frames["gaps"] = _gaps()
    for table, frame in frames.items():
        tables.write(frame, table, run.tables)
    return folder


def _stalls() -> pd.DataFrame:
    rows = []
    for number, spec in enumerate(SPECS, 1):
        if spec.use is None:
            continue
        ratios = {reason: 4.2 if reason == spec.stall else 0.6 for reason in STALLS}
        total = sum(ratios.values())
        rows += [(f"k{number:010x}", r, v, v / total) for r, v in ratios.items()]
    return pd.DataFrame(rows, columns=list(tables.empty("stalls").columns))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """Folder of the run with or without counters, written once; tests take copies."""
    return cache(lambda counters: build_run(tmp_path_factory.mktemp("built"), counters=counters))


@pytest.fixture(scope="session")
def rendered(
    built: Callable[[bool], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., ReportPaths]:
    """Report of the whole run in English and further languages: blank pictures, to be read only."""

    def report(*languages: str) -> ReportPaths:
        folder = shutil.copytree(built(True), tmp_path_factory.mktemp("rendered") / "run")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(drawing, "_drawn", blank)
            return render_report(load_run(folder), Style(languages=languages))

    return cache(report)


@pytest.fixture
def make_run(tmp_path: Path, built: Callable[[bool], Path]) -> Callable[..., Path]:
    """Builder of runs: `make_run(counters=False)` gives the folder of a trace-only run."""
    made: list[Path] = []

    def make(*, counters: bool = True) -> Path:
        made.append(tmp_path / f"run{len(made)}")
        return Path(shutil.copytree(built(counters), made[-1]))

    return make


@pytest.fixture
def run(make_run: Callable[..., Path]) -> Run:
    """A whole run: trace and counters."""
    return load_run(make_run())


@pytest.fixture(scope="session")
def view(built: Callable[[bool], Path]) -> ReportView:
    """What the report of the whole run shows."""
    return report_view(load_run(built(True)))


@pytest.fixture
def trace_only_run(make_run: Callable[..., Path]) -> Run:
    """A run whose counters were refused by the driver."""
    return load_run(make_run(counters=False))
