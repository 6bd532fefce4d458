"""The section about the operations of a transformer, on made-up cases with known answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from nsight_prof.reports.bench.llm_kernels import reference_model, section
from nsight_prof.reports.bench.llm_kernels_agreement import agreements
from nsight_prof.reports.bench.llm_kernels_points import (
    flash_version,
    layers,
    one,
    points,
    times,
    title,
)
from nsight_prof.reports.bench.models import Section
from nsight_prof.reports.load import Run

Row = dict[str, Any]
MakeRun = Callable[..., Run]
MakeRow = Callable[..., Row]
LAYERS = {"qkv": 6e-6, "out": 4e-6, "gate-up": 20e-6, "down": 10e-6}


class Cases:
    """Makes rows of the table with the parameters that the target writes."""

    def __init__(self, bench_row: MakeRow) -> None:
        self.bench_row = bench_row

    def row(self, name: str, operation: str, seconds: float, **columns: Any) -> Row:
        return self.bench_row(
            name, target="llm_kernels", operation=operation, median_s=seconds, **columns
        )

    def linear(
        self, name: str, tokens: int, seconds: float, dtype: str = "bf16", **more: Any
    ) -> Row:
        params = {"family": "linear", "model": "llama-3.1-8b", "projection": name, "n": 4096,
                  "models": "llama-3.1-8b, mistral-7b-v0.3", "k": 4096, "tokens": tokens,
                  "variant": "graph"}  # fmt: skip
        return self.row(
            f"linear/llama-3.1-8b/{name}/t{tokens}/{dtype}/graph", f"linear {name}", seconds,
            params=params, dtype=dtype, flops=2e7 * tokens, bytes=2e7, **more,
        )  # fmt: skip

    def attention(self, stage: str, backend: str, seconds: float, **more: Any) -> Row:
        params = {"family": "attention", "stage": stage, "model": "llama-3.1-8b", "batch": 1,
                  "queries": 1, "keys": 8192, "heads": 32, "kv_heads": 8, "head_dim": 128,
                  "backend": backend, "kv_groups": "native", "variant": "graph"}  # fmt: skip
        params |= more.pop("params", {})
        size = f"b{params['batch']}-s{params['keys']}-{params['kv_groups']}"
        return self.row(
            f"attention/{stage}/{size}/{backend}/graph", f"SDPA {stage}", seconds,
            params=params, dtype="bf16", flops=5e11, bytes=3e7, **more,
        )  # fmt: skip

    def norm(self, tokens: int, variant: str, seconds: float, **more: Any) -> Row:
        params = {"family": "norm", "op": "layernorm-gelu", "model": "llama-3.1-8b",
                  "tokens": tokens, "variant": variant}  # fmt: skip
        return self.row(
            f"norm/layernorm-gelu/t{tokens}/{variant}", "LayerNorm + GELU", seconds,
            params=params, dtype="bf16", flops=1e5 * tokens, bytes=1.6e4 * tokens, **more,
        )  # fmt: skip


@pytest.fixture
def made(bench_row: MakeRow) -> Cases:
    return Cases(bench_row)


@pytest.fixture
def rows(made: Cases) -> list[Row]:
    dram: Row = {"roof_used": "dram", "roof_unit": "B/s", "roof_value": 4e12, "roof_fraction": 0.5}
    tensor: Row = {"roof_used": "tensor bf16", "roof_unit": "FLOP/s", "roof_value": 8e14}
    found = []
    for name, seconds in LAYERS.items():
        found.append(made.linear(name, 1, seconds, **dram))
        found.append(made.linear(name, 16, 1.2 * seconds, **dram))
        found.append(made.linear(name, 8192, 100 * seconds, **tensor, roof_fraction=0.8))
        found.append(made.linear(name, 1, seconds / 2, dtype="fp8"))
        found.append(made.linear(name, 8192, 50 * seconds, dtype="fp8"))
    found[0] |= {"counted_calls": 2, "counted_launches": 2, "counted_flops": 2 * 8 * 2e7,
                 "dram_bytes": 2 * 2e7}  # fmt: skip
    found += [
        made.attention("prefill", "flash", 2e-3),
        made.attention("prefill", "cudnn", 1e-3),
        made.attention("prefill", "math", 60e-3),
        made.attention("decode", "flash", 1e-5),
        made.attention("decode", "cudnn", 2e-5, params={"kv_groups": "expanded"}),
        made.attention("decode", "flash", 3.5e-5, params={"kv_groups": "none", "kv_heads": 32}),
        made.norm(1, "eager", 12e-6),
        made.norm(1, "graph", 4e-6),
        made.norm(8192, "eager", 90e-6, counted_calls=1, counted_launches=2,
                  dram_bytes=2 * 1.6e4 * 8192),
        made.norm(8192, "graph", 80e-6),
        made.norm(8192, "compiled", 50e-6, counted_calls=1, counted_launches=1,
                  dram_bytes=1.6e4 * 8192),
        made.norm(8192, "compiled-graph", 40e-6, **dram),
    ]  # fmt: skip
    found.append(
        made.attention("prefill", "math", math.nan, params={"keys": 32768})
        | {"status": "unsupported", "reason": "score matrices do not fit", "median_s": None}
    )
    return found


@pytest.fixture
def made_section(rows: list[Row], make_bench_run: MakeRun) -> Section:
    found = section(make_bench_run(rows, target="llm_kernels"))
    assert found is not None
    return found


def said(found: Section) -> str:
    return "\n".join(finding.sentence for finding in found.findings)


def test_no_case_no_section(made: Cases, make_bench_run: MakeRun, bench_row: MakeRow) -> None:
    assert section(make_bench_run([bench_row("dram/read", median_s=1.0)])) is None
    broken = made.norm(1, "eager", 1.0) | {"status": "failed", "median_s": None}
    assert section(make_bench_run([broken], target="llm_kernels")) is None


def test_findings_name_what_a_user_gains(made_section: Section) -> None:
    words = said(made_section)
    # 40 us for one token, 48 us for 16: 1.2 times as long, 13.3 times the tokens a second.
    assert "take 40.0 us: they read their weights at 2.00 TB/s, 50.0 % of the DRAM roof" in words
    assert "they take 1.20 times as long, which yields 13.3 times as many" in words
    assert "cuDNN is the fastest attention for a prompt of 8,192 positions: 1.00 ms" in words
    assert "FlashAttention takes 2.00 times as long" in words
    assert "the math back end takes 60.0 times as long" in words
    assert "a CUDA graph makes them 3.00 times as fast" in words
    assert "LayerNorm + GELU 2.00 times (largest sizes" in words
    evidence = "\n".join(finding.evidence for finding in made_section.findings)
    assert "moves 2.00 times its compulsory DRAM bytes eagerly and 1.00 times fused." in evidence
    assert "2.00 times as fast as bf16 at 8,192 tokens" in words
    assert "a decode step's attention 3.50 times as fast" in words
    assert "8.00 times 2mnk" in words


def test_what_a_user_would_not_expect_is_said(made: Cases, make_bench_run: MakeRun) -> None:
    rows = [
        made.norm(16, "eager", 10e-6),
        made.norm(16, "graph", 9e-6),
        made.norm(16, "compiled", 40e-6),
        made.norm(16, "compiled-graph", 2e-6),
        made.norm(128, "eager", 10e-6),
        made.norm(128, "graph", 3e-6),
    ]
    found = section(make_bench_run(rows, target="llm_kernels"))
    assert found is not None
    words = said(found)
    assert "torch.compile alone makes 1 of 1 operations slower than eager" in words
    assert "40.0 us instead of 10.0 us" in words
    assert "In a CUDA graph it is 5.00 times as fast as eager" in words
    assert "chooses" not in words, "no kernel was counted"
    assert "LayerNorm + GELU takes 3.00 times as long for 16 tokens (9.00 us) as for 128" in words


def test_findings_lead_to_the_rows_of_their_cases(made_section: Section) -> None:
    shown = {
        anchor: row
        for table in made_section.tables
        for ids, row in zip(table.anchors, table.rows, strict=True)
        for anchor in ids
    }
    ids = [anchor for table in made_section.tables for row in table.anchors for anchor in row]
    assert len(ids) == len(set(ids))
    led = [case.anchor for finding in made_section.findings for case in finding.cases]
    assert set(led) == set(ids), "no row has an id that nothing leads to, and none is missing"
    rivals = next(f for f in made_section.findings if "for a prompt of" in f.sentence)
    assert [shown[case.anchor][2] for case in rivals.cases] == ["cuDNN", "FlashAttention", "math"]
    graph = next(f for f in made_section.findings if "wait for their launches" in f.sentence)
    assert [case.name for case in graph.cases] == ["norm/layernorm-gelu/t1/eager, graph"]


def test_the_version_of_flash_attention_is_that_of_its_kernels() -> None:
    assert flash_version(["FlashAttention-2 forward, bf16", "", "cuDNN"]) == "FlashAttention-2"
    assert flash_version(["FlashAttention-2 forward", "FlashAttention-3 forward"]) == (
        "FlashAttention"
    )
    assert flash_version([""]) == "FlashAttention"


def test_a_power_cap_is_said(made: Cases, make_bench_run: MakeRun) -> None:
    capped: Row = {"throttled_samples": 3, "throttle_reasons": "sw_power_cap", "clock_hz": 1.5e9}
    rows = [made.linear(name, 1, seconds) for name, seconds in LAYERS.items()]
    rows += [made.linear(name, 8192, 100 * seconds, **capped) for name, seconds in LAYERS.items()]
    found = section(make_bench_run(rows, target="llm_kernels"))
    assert found is not None
    limits = " ".join(finding.limits for finding in found.findings)
    assert "4 of the 4 largest products ran under a limit (sw power cap), at 1.50 GHz." in limits


def test_tables_have_a_text_for_each_column(made_section: Section) -> None:
    assert len(made_section.tables) >= 7
    for table in made_section.tables:
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows), table.title
        assert set(table.left) <= set(table.columns)
        assert not any("nan" in cell for row in table.rows for cell in row), table.title


def test_models_that_share_a_shape_share_a_row(made_section: Section) -> None:
    overview = made_section.tables[0]
    assert overview.rows[0][0] == "Llama-3.1-8B, Mistral-7B-v0.3"
    assert overview.rows[0][3:] == ("6.00 us (50.0 %)", "7.20 us (50.0 %)", "600 us (80.0 %)")


def test_a_graph_has_the_counters_of_the_same_kernels(
    rows: list[Row], make_bench_run: MakeRun
) -> None:
    found = points(make_bench_run(rows, target="llm_kernels"))
    eager, graph, fused = (
        one(found, op="layernorm-gelu", tokens=8192, variant=v)
        for v in ("eager", "graph", "compiled-graph")
    )
    assert eager is not None
    assert graph is not None
    assert fused is not None
    assert eager.bytes_ratio == graph.bytes_ratio == 2
    assert fused.bytes_ratio == 1
    assert math.isnan(found[1].flops_ratio)


def test_counted_calls_divide_the_counters(rows: list[Row], make_bench_run: MakeRun) -> None:
    found = points(make_bench_run(rows, target="llm_kernels"))
    assert found[0].flops_ratio == 8
    agreed = {(a.operation, a.what): a for a in agreements(found)}
    assert agreed["linear layers", "bf16"].flops == (8, 8)
    assert agreed["linear layers", "bf16"].bytes == (1, 1)
    assert any("tile" in reason for reason in agreed["linear layers", "bf16"].reasons)
    assert agreed["LayerNorm + GELU", "compiled"].reasons == ()


def test_a_layer_is_the_sum_of_its_parts(rows: list[Row], make_bench_run: MakeRun) -> None:
    found = points(make_bench_run(rows, target="llm_kernels"))
    first, _, last = layers(found)
    assert first.seconds == pytest.approx(40e-6)
    assert last.flop_rate == pytest.approx(4 * 2e7 * 8192 / 4e-3)
    assert first.fraction == pytest.approx(0.5)
    assert first.roofs == "DRAM"
    without_down = [row for row in rows if "/down/" not in row["name"]]
    assert layers(points(make_bench_run(without_down, target="llm_kernels"))) == []


def test_a_gain_within_the_intervals_is_not_clear(made: Cases, make_bench_run: MakeRun) -> None:
    found = points(
        make_bench_run(
            [made.norm(1, "eager", 1.0005e-5), made.norm(1, "graph", 1e-5)], target="llm_kernels"
        )
    )
    assert not times(*found).clear
    assert times(found[0], found[0]).value == 1


def test_without_measured_roofs_nothing_is_claimed(
    rows: list[Row], make_bench_run: MakeRun
) -> None:
    for row in rows:
        row |= {"roof_used": "", "roof_fraction": None, "roof_value": None, "roof_unit": ""}
    found = section(make_bench_run(rows, target="llm_kernels"))
    assert found is not None
    assert "roof" not in said(found)
    assert "llm-roofs" not in {figure.name for figure in found.figures}


def test_figures_and_numbers(made_section: Section) -> None:
    assert {figure.name for figure in made_section.figures} >= {
        "llm-linear", "llm-roofs", "llm-launches", "llm-fusion",
    }  # fmt: skip
    cases = made_section.numbers["cases"]
    assert cases["norm/layernorm-gelu/t1/eager|cold|normal"]["seconds"] == 12e-6
    assert len(made_section.numbers["linear_layers"]) == 5


def test_names() -> None:
    assert title("llama-3.1-8b") == "Llama-3.1-8B"
    assert title("mistral-7b-v0.3") == "Mistral-7B-v0.3"
    assert title("qwen2.5-0.5b") == "Qwen2.5-0.5B"
    assert reference_model([]) == "llama-3.1-8b"
