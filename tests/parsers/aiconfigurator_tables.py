"""Made-up tables in the layout of aiconfigurator."""

import math
from itertools import product
from pathlib import Path

import pandas as pd

DEVICE = "NVIDIA H200"
LOADS = {"balanced": 0.9, "power_law_1.01": 1.0, "power_law_1.2": 1.2}
"""Spreads of tokens over experts, with what they do to the time of routed products."""
ROWS = (1, 8, 64, 256, 1024, 4096)


def product_s(m: float, n: float, k: float) -> float:
    """Return what a product takes: a fixed cost, and 70 % of what the datasheet promises."""
    computing, moving = 2 * m * n * k / 989.4e12, 2 * (m * k + n * k + m * n) / 4.8e12
    return 3e-6 + math.hypot(computing, moving) / 0.7


def quantization_s(m: float, k: float) -> float:
    """Return what quantizing the inputs of a product takes, with scales that are known."""
    return 2e-6 + 3 * m * k / 4e12


def _attention(batch: int, new: int, step: int, heads: int, grouped: int) -> float:
    keys = new + step
    pairs = new * (keys - new / 2)
    computing = 4 * batch * pairs * heads * 128 / 989.4e12
    moving = 4 * batch * (new * heads + keys * grouped) * 128 / 4.8e12
    return 8e-6 + math.hypot(computing, moving) / 0.6


def write_tables(folder: Path) -> Path:
    """Write systems/ of one system below `folder`, and return `folder`.

    Version 0.2.0 of vllm has everything but quantizations and experts, 0.10.0 all but an
    all-reduce, and 0.9.0 reuses products and attention of 0.10.0.
    """
    data = folder / "systems/data/h200_sxm"
    gemm = [
        {"gemm_dtype": dtype, "m": m, "n": n, "k": k,
         "latency": 1e3 * (product_s(m, n, k) + (dtype == "fp8") * 1.5 * quantization_s(m, k))}
        for dtype, m, n, k in product(
            ("bfloat16", "fp8", "fp8_block"), ROWS, (1024, 4096, 16384), (1024, 4096, 16384)
        )
        if dtype != "fp8_block" or n == k
    ]  # fmt: skip
    quantized = [
        {"quant_dtype": "fp8", "m": m, "k": k, "latency": 1e3 * quantization_s(m, k)}
        for m, k in product(ROWS, (1024, 4096, 16384))
    ]
    heads = ((16, 4), (32, 4), (16, 8), (32, 8))
    context = [
        _row(batch, new, 0, *pair) for batch, new, pair in product((1, 4), (16, 1024, 4096), heads)
    ]
    decode = [
        _row(batch, 1, step, *pair)
        for batch, step, pair in product((1, 4, 64), (127, 1023, 8191), heads)
    ]
    routed = [
        {"moe_dtype": dtype, "distribution": load, "num_tokens": m, "hidden_size": 2048,
         "inter_size": 768, "topk": 8, "num_experts": 128, "moe_tp_size": gpus,
         "moe_ep_size": share, "latency": (0.04 + m / 1e3) * factor / gpus}
        for dtype, (load, factor), m, (gpus, share) in product(
            ("bfloat16", "fp8"), LOADS.items(), ROWS, ((1, 1), (2, 1), (1, 2)))
    ]  # fmt: skip
    reduce = [
        {"allreduce_dtype": "bfloat16", "num_gpus": gpus, "message_size": 128 * 64**power,
         "kernel_source": f"vLLM_custom_{mode}",
         "latency": (0.005 + 0.001 * 64**power / 100) * (4 if mode == "eager" else 1)}
        for mode, gpus, power in product(("graph", "eager"), (2, 4), range(4))
    ]  # fmt: skip
    nccl = [
        {"nccl_dtype": dtype, "op_name": name, "num_gpus": 2, "message_size": 512 * 16**power,
         "latency": 0.006 + 0.001 * 16**power / 10}
        for dtype, name, power in product(("half", "int8"), ("all_gather", "alltoall"), range(4))
    ]  # fmt: skip
    for version in ("0.2.0", "0.10.0"):
        _write(data / f"gemm/vllm/{version}/gemm_perf.parquet", gemm)
        _write(data / f"attention/vllm/{version}/context_attention_perf.parquet", context)
        _write(data / f"attention/vllm/{version}/generation_attention_perf.parquet", decode)
    half = [{**row, "latency": float(str(row["latency"])) / 2} for row in quantized]
    _write(data / "quantize/vllm/0.10.0/scale_matrix_perf.parquet", quantized)
    _write(data / "quantize/vllm/0.10.0/computescale_perf.parquet", half)
    _write(data / "moe/vllm/0.10.0/moe_perf.parquet", routed)
    _write(data / "comm/vllm/0.2.0/custom_allreduce_perf.parquet", reduce)
    for version in ("2.1", "2.12"):
        _write(data / f"comm/nccl/{version}/nccl_perf.parquet", nccl)
    (folder / "systems/h200_sxm.yaml").write_text("misc:\n  nccl_version: '2.1'\n")
    names = {"gemm": ("gemm",), "attention": ("context_attention", "generation_attention")}
    for name, tables in names.items():
        reuse = data / name / "vllm/0.9.0/reuse.yaml"
        reuse.parent.mkdir(parents=True)
        lines = [f"- table: {table}_perf\n  from_version: 0.10.0\n" for table in tables]
        reuse.write_text("reuse:\n" + "".join(lines))
    return folder


def _row(batch: int, new: int, step: int, heads: int, grouped: int) -> dict[str, object]:
    return {
        "batch_size": batch, "isl": new, "step": step, "num_heads": heads,
        "num_key_value_heads": grouped, "head_dim": 128, "attn_dtype": "bfloat16",
        "kv_cache_dtype": "bfloat16", "window_size": 0,
        "latency": 1e3 * _attention(batch, new, step, heads, grouped),
    }  # fmt: skip


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).assign(device=DEVICE).to_parquet(path)
