"""The section about the operations of a transformer, on made-up cases with known answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Finding, Number, Section, Table, Text
from nsight_prof.reports.page.frame import Places, sentence_values
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.studies.llm_kernels.pairs import PADDED, agreements
from nsight_prof.reports.studies.llm_kernels.points import (
    first,
    flash_version,
    layers,
    points,
    slowdown,
    slowdown_interval,
    title,
)
from nsight_prof.reports.studies.llm_kernels.section import reference_model, section, steps

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


def rule(made: Section, key: str) -> Finding:
    (finding,) = (finding for finding in made.findings if finding.rule == key)
    return finding


def value(made: Section, key: str, name: str) -> float:
    """A number of a verdict."""
    number = rule(made, key).verdict.values[name]
    assert isinstance(number, Number)
    assert number.value is not None
    return number.value


def verdict(made: Section, key: str) -> str:
    return Writer().text(rule(made, key).verdict)


def evidence(made: Section, key: str) -> str:
    write = Writer()
    parts = [
        write.text(one)
        if isinstance(one, Text)
        else f"{write.text(one.label)} {write.value(one.value)}"
        for one in rule(made, key).evidence
    ]
    return "; ".join(parts)


def table(made: Section, key: str) -> Table[Any]:
    (found,) = (table for table in made.tables if table.key == key)
    return found


def test_no_case_no_section(made: Cases, make_bench_run: MakeRun, bench_row: MakeRow) -> None:
    assert section(make_bench_run([bench_row("dram/read", median_s=1.0)])) is None
    broken = made.norm(1, "eager", 1.0) | {"status": "failed", "median_s": None}
    assert section(make_bench_run([broken], target="llm_kernels")) is None


def test_findings_name_what_a_user_gains(made_section: Section) -> None:
    # 40 us for one token, 48 us for 16: 1.2 times as long, 13.3 times the tokens per second.
    assert value(made_section, "decode_batching", "time") == pytest.approx(40e-6)
    assert "20 % longer for 16 tokens" in verdict(made_section, "decode_batching")
    action = rule(made_section, "decode_batching").action
    assert action is not None
    assert "16 at once give 13x the tokens per second" in Writer().text(action)
    assert "2.0 TB/s (50 % of the DRAM roof)" in evidence(made_section, "decode_batching")
    assert verdict(made_section, "prefill_attention") == (
        "The fastest attention for a prompt of 8,192 positions is cuDNN: FlashAttention takes 2.0x "
        "as long and math takes 60x as long."
    )
    assert value(made_section, "launch_bound", "gain") == pytest.approx(3)
    assert "LayerNorm + GELU 2.0x" in verdict(made_section, "fusion")
    assert "2.0x its compulsory DRAM bytes eagerly, 1.0x fused" in evidence(made_section, "fusion")
    assert value(made_section, "fp8", "large") == pytest.approx(2)
    assert value(made_section, "grouped_kv_heads", "gain") == pytest.approx(3.5)
    assert value(made_section, "tile_padding", "high") == pytest.approx(8)


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
    words = verdict(found, "compile_overhead")
    assert "1 of 1 take longer than eager (LayerNorm + GELU 40 us instead of 10 us)" in words
    assert value(found, "compile_overhead", "gain") == pytest.approx(5)
    assert value(found, "size_inversion", "longer") == pytest.approx(3)
    assert "chooses" not in evidence(found, "size_inversion"), "no kernel was counted"


def test_the_numbers_of_findings_lead_to_rows(made_section: Section) -> None:
    places = Places(made_section)
    led = {
        f.rule: any(places.of(value, f) for value in sentence_values(f))
        for f in made_section.findings
    }
    assert not [rule for rule, leads in led.items() if not leads]
    rivals = rule(made_section, "prefill_attention").verdict.values["slower"]
    assert isinstance(rivals, list)
    ids = [ref.row for text in rivals for ref in _refs(text.values["longer"])]
    assert [row.split("/")[3] for row in ids] == ["flash", "cudnn", "math", "cudnn"]


def _refs(value: object) -> tuple[Any, ...]:
    return value.refs if isinstance(value, Number) else ()


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
    words = evidence(found, "prefill_saturation")
    assert "4 of its 4 products ran with a limited clock (sw power cap), down to 1.5 GHz" in words


def test_tables_write_every_cell(made_section: Section) -> None:
    assert len(made_section.tables) >= 6
    write = Writer()
    for table in made_section.tables:
        assert table.rows
        cells = [
            write.cell(c, col.unit, col.digits)
            for row in table.cells
            for c, col in zip(row, table.columns, strict=True)
        ]
        assert not any("nan" in cell or "None" in cell for cell in cells), table.key


def test_models_that_share_a_shape_share_a_row(made_section: Section) -> None:
    row = table(made_section, "llm-linear").cells[0]
    assert row[:2] == ["Llama-3.1-8B, Mistral-7B-v0.3", "qkv"]
    assert Writer().value(row[5], 3) == "6.00 us"
    assert Writer().value(row[8], 3) == "50.0 %"


def test_a_decoder_layer_is_the_sum_of_its_operations(
    rows: list[Row], made: Cases, make_bench_run: MakeRun
) -> None:
    dram: Row = {"roof_used": "dram", "roof_unit": "B/s", "roof_value": 4e12, "roof_fraction": 0.5}
    for op, seconds in (("add-rms-norm", 1e-6), ("rotary", 2e-6), ("silu-mul", 3e-6)):
        row = made.norm(1, "graph", seconds, **dram)
        name = row["name"].replace("layernorm-gelu", op)
        rows.append(row | {"name": name, "case_id": f"{name}|cold|normal",
                           "params": row["params"].replace("layernorm-gelu", op)})  # fmt: skip
    for row in rows:
        if "/decode/" in row["name"]:
            row |= dram
    found = points(make_bench_run(rows, target="llm_kernels"))
    (step,) = steps(found, "llama-3.1-8b")
    # 40 us of linear layers, 10 us of attention by the fastest back end, 2 x 1 + 2 + 3 us.
    assert step.time.value == pytest.approx(57e-6)
    assert step.share("linear").value == pytest.approx(40 / 57)
    assert step.saving("attention").value == pytest.approx(5 / 57)
    made_section = section(make_bench_run(rows, target="llm_kernels"))
    assert made_section is not None
    assert value(made_section, "decode_limit", "share") == pytest.approx(40 / 57)
    action = rule(made_section, "decode_limit").action
    assert action is not None
    assert "saves 35 % of the layer" in Writer().text(action), "20 us of 57 us in fp8"


def test_a_graph_has_the_counters_of_the_same_kernels(
    rows: list[Row], make_bench_run: MakeRun
) -> None:
    found = points(make_bench_run(rows, target="llm_kernels"))
    eager, graph, fused = (
        first(found, op="layernorm-gelu", tokens=8192, variant=v)
        for v in ("eager", "graph", "compiled-graph")
    )
    assert eager is not None
    assert graph is not None
    assert fused is not None
    assert eager.bytes_ratio.value == graph.bytes_ratio.value == 2
    assert fused.bytes_ratio.value == 1
    assert found[1].flops_ratio.value is None


def test_counted_calls_divide_the_counters(rows: list[Row], make_bench_run: MakeRun) -> None:
    found = points(make_bench_run(rows, target="llm_kernels"))
    assert found[0].flops_ratio.value == 8
    agreed = {(a.operation, a.variant): a for a in agreements(found)}
    linear = agreed["linear layers", "bf16"]
    assert (linear.flops.low, linear.flops.high) == (8, 8)
    assert (linear.bytes.low, linear.bytes.high) == (1, 1)
    assert linear.reasons == [PADDED]
    assert agreed["LayerNorm + GELU", "compiled"].reasons == []


def test_a_layer_is_the_sum_of_its_parts(rows: list[Row], make_bench_run: MakeRun) -> None:
    found = points(make_bench_run(rows, target="llm_kernels"))
    small, _, large = layers(found)
    assert small.seconds == pytest.approx(40e-6)
    assert large.flop_rate.value == pytest.approx(4 * 2e7 * 8192 / 4e-3)
    assert small.fraction.value == pytest.approx(0.5)
    assert small.roof == "DRAM"
    without_down = [row for row in rows if "/down/" not in row["name"]]
    assert layers(points(make_bench_run(without_down, target="llm_kernels"))) == []


def test_a_gain_within_the_intervals_is_not_clear(made: Cases, make_bench_run: MakeRun) -> None:
    found = points(
        make_bench_run(
            [made.norm(1, "eager", 1.0005e-5), made.norm(1, "graph", 1e-5)], target="llm_kernels"
        )
    )
    low, high = slowdown_interval(*found)
    assert low < 1 < high
    assert slowdown(found[0], found[0]) == 1


def test_without_measured_roofs_nothing_is_claimed(
    rows: list[Row], make_bench_run: MakeRun
) -> None:
    for row in rows:
        row |= {"roof_used": "", "roof_fraction": None, "roof_value": None, "roof_unit": ""}
    found = section(make_bench_run(rows, target="llm_kernels"))
    assert found is not None
    assert not any("roof" in Writer().text(finding.verdict) for finding in found.findings)
    assert "llm-roofs" not in {figure.chart.name for figure in found.figures}


def test_figures_and_numbers(made_section: Section) -> None:
    assert {figure.chart.name for figure in made_section.figures} >= {
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
