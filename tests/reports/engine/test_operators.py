"""The section of the operator view: a small model's step, whose products are counted by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.operators.products import Saving, stages_of_operators
from nsight_prof.reports.engine.operators.section import section
from nsight_prof.reports.page import Link
from nsight_prof.reports.render.report import render_report
from tests.recorded import whole_report
from tests.sections import evidence, finding, table, told, words
from tests.sections import rows as rows_of

Make = Callable[..., Run]
# prefill of 20 tokens: N, K, calls a step, ns a call, share of the roof
LINEARS = [
    ("layers.*.self_attn.qkv_proj", 192, 64, 3, 40.0, 0.5),
    ("layers.*.self_attn.o_proj", 64, 64, 3, 20.0, 0.4),
    ("layers.*.mlp.gate_up_proj", 192, 64, 3, 60.0, 0.9),
    ("layers.*.mlp.down_proj", 64, 96, 3, 30.0, 0.8),
]
NEEDED = 2 * 20 * 3 * (192 * 64 + 64 * 64 + 192 * 64 + 64 * 96) + 2 * 2 * 100 * 64


def operator(m: int, n: int, k: int, calls: int, gpu: int) -> dict[str, Any]:
    return {
        "stage": "prefill", "instances": 1, "operator": "aten::mm", "dtypes": "bf16",
        "input_shapes": f"[[{m},{k}],[{k},{n}]]", "calls": calls, "cpu_ns": 900, "self_cpu_ns": 800,
        "gpu_ns": gpu, "memory_ns": 0, "launches": calls, "kernel": "cuBLAS GEMM", "kernels": 1,
        "batch": 1, "m": m, "n": n, "k": k, "flops": 2.0 * m * n * k * calls,
    }  # fmt: skip


def gemm(module: str, m: int, n: int, k: int, calls: int, ns: float, part: float) -> Any:
    return {
        "stage": "prefill", "module": module, "operator": "aten::mm", "batch": 1, "m": m, "n": n,
        "k": k, "dtype": "bf16", "kernel_id": f"k{module}", "kernel": "cuBLAS GEMM",
        "operator_kernel": "cuBLAS GEMM", "join": "order and name", "reason": "",
        "tile": "64x32x64", "split_k": 1, "calls": calls, "operator_calls": calls,
        "median_ns": ns, "total_ns": ns * calls, "operator_ns": ns, "flops": 2.0 * m * n * k,
        "bytes": 2.0 * (m * k + n * k + m * n), "flop_per_s": 2.0 * m * n * k / ns * 1e9,
        "bytes_per_s": 1e9, "tile_padding": 1.5, "roof_used": "dram",
        "roof_source": "measured DRAM read roof", "roof_fraction": part,
    }  # fmt: skip


COPY = operator(1, 1, 1, 2, 500) | {
    "operator": "aten::copy_", "kernel": "copy", "flops": None, "m": None, "n": None, "k": None,
    "batch": None,
}  # fmt: skip
HEAD = ("lm_head", 100, 64, 1, 25.0, 0.7)


@pytest.fixture
def rows() -> dict[str, Any]:
    sizes = [(*linear, 20) for linear in LINEARS] + [(*HEAD, 2)]
    stage = {"instances": 1, "wall_ns": 1200.0, "gpu_busy_ns": 990, "idle_ns": 210.0,
             "launches": 15, "memory_ns": 0, "share": 1.0, "kernel_ns": 600}  # fmt: skip
    return {
        "operators": [operator(m, n, k, c, round(ns * c)) for _, n, k, c, ns, _, m in sizes]
        + [COPY],
        "gemms": [gemm(name, m, n, k, c, ns, part) for name, n, k, c, ns, part, m in sizes],
        "stages": [{"stage": "(all)"} | stage, {"stage": "prefill"} | stage],
        "stage_kernels": [
            {"stage": "prefill", "kernel_id": "kc", "calls": 1, "total_ns": 20, "share": 0.1}
        ],
        "kernels": [{"kernel_id": "kc", "short_name": "copy", "name": "copy"}],
        "counters": [],
    }


def test_a_run_without_operators_has_no_section(serving_run: Make) -> None:
    assert section(serving_run(operators=[]), {}) is None


def test_three_views_of_the_products_agree(serving_run: Make, rows: Any) -> None:
    (stage,) = stages_of_operators(serving_run(**rows))
    views = {view.quantity: view for view in stage.views}
    flops = views["FLOPs of matrix products"]
    assert flops.analytical == flops.operators == NEEDED
    assert flops.kernels == pytest.approx(1.5 * NEEDED), "no counters: FLOPs of whole tiles"
    weights = views["weights that they read"]
    values = 3 * (192 * 64 + 64 * 64 + 192 * 64 + 64 * 96) + 100 * 64
    assert weights.analytical == weights.operators == 2 * values
    time = views["time of matrix products"]
    assert time.operators == time.kernels == 3 * (40 + 20 + 60 + 30) + 25
    assert time.analytical == pytest.approx(
        3 * (40 * 0.5 + 20 * 0.4 + 60 * 0.9 + 30 * 0.8) + 25 * 0.7
    )
    assert (views["kernels"].operators, views["kernels"].kernels) == (15, 15)
    assert stage.product_share == pytest.approx(475 / 600)


def test_sentences_name_the_product_and_what_it_takes_beyond_its_roof(
    serving_run: Make, rows: Any
) -> None:
    found = section(serving_run(**rows), {})
    assert found is not None
    largest = words(finding(found, "matrix_products").verdict)
    assert largest.startswith("Matrix products take 79 % of the kernel time of prefill")
    assert "mlp.gate_up_proj (20 x 192 x 64)" in largest
    assert "90 % of the measured DRAM read roof" in largest
    beyond = finding(found, "products_beyond_roofs")
    lost: Any = beyond.verdict.values["lost"]
    assert lost.value == pytest.approx(475 - (3 * (20 + 8 + 54 + 24) + 17.5))
    assert "self_attn.o_proj" in evidence(beyond)
    assert "no product of a few microseconds" in told(found)
    flops = finding(found, "product_flops")
    assert words(flops.verdict).endswith(
        "exactly the FLOPs of the model's configuration; tile padding adds 50 %."
    )
    excess = finding(found, "operator_view_excess")
    assert "`aten::copy_`" not in words(excess.verdict), "a name is no text"
    assert "aten::copy_ in prefill: its kernel takes 500 ns per run there and 20 ns" in words(
        excess.verdict
    )


def test_what_kernels_could_save_stands_beside(serving_run: Make, rows: Any) -> None:
    key = rows["gemms"][1]["kernel_id"]
    rows["stage_kernels"].append(
        {"stage": "prefill", "kernel_id": key, "calls": 3, "total_ns": 60, "share": 0.1}
    )
    run = serving_run(**rows)
    for advised in (True, False):
        found = section(
            run, {key: Saving(4, 0.5, advised), "k of another stage": Saving(5, 1, False)}
        )
        assert found is not None
        beyond = finding(found, "products_beyond_roofs")
        said = "; the table of what each kernel could save has 30 ns of it for kernel 4, since"
        assert said in words(beyond.verdict)
        assert ("no finding is about kernel 4" in evidence(beyond)) == (not advised)
        products = table(found, "operators-products")
        kernel = [words(column.heading) for column in products.columns].index("Kernel")
        links = [cells[kernel] for cells in products.cells if cells[kernel] is not None]
        assert links == [Link("4", "kernel-4")]


def test_attention_beside_its_floor(serving_run: Make, rows: Any) -> None:
    rows["kernels"][0]["category"] = "attention"
    rows["stage_kernels"][0]["total_ns"] = 300
    run = serving_run(**rows)
    (stage,) = stages_of_operators(run)
    view = next(v for v in stage.views if v.quantity == "time of attention")
    assert (view.operators, view.kernels) == (500, 300)
    assert math.isnan(view.analytical), "no roof is known"


def test_counters_tell_the_flops_of_the_shape_that_explains_them(
    serving_run: Make, rows: Any
) -> None:
    shared = "klayers.*.self_attn.qkv_proj"
    down = 2.0 * 20 * 64 * 96
    for row in rows["gemms"]:
        if row["module"].endswith(("qkv_proj", "down_proj")):
            row["kernel_id"] = shared
    rows["counters"] = [
        {"kernel_id": shared, "flops_tensor": 1.5 * down, "flops": 1.5 * down, "dram_read_bytes": 7}
    ]
    (stage,) = stages_of_operators(serving_run(**rows))
    counted = {p.name: p.counted for p in stage.products}
    assert counted["mlp.down_proj"] == 1.5 * down
    assert counted["self_attn.qkv_proj"] != counted["self_attn.qkv_proj"], "unknown"


def test_another_kernel_than_in_the_operator_view_is_told(serving_run: Make, rows: Any) -> None:
    rows["gemms"][1] |= {"join": "order", "operator_kernel": "cuBLAS GEMV", "operator_ns": 40.0}
    found = section(serving_run(**rows), {})
    assert found is not None
    assert "1 by order, other kernel" in told(found)
    other = finding(found, "other_kernels")
    assert "for 1 of 5 matrix products" in words(other.verdict)
    assert "in place of cuBLAS GEMV" in evidence(other)


def test_products_that_did_not_join_have_no_times(serving_run: Make, rows: Any) -> None:
    for row in rows["gemms"]:
        row |= {"join": "", "kernel_id": "", "reason": "why", "total_ns": None, "calls": None}
        row |= {"median_ns": None, "roof_fraction": None, "roof_source": "", "roof_used": ""}
        row |= {"kernel": "", "tile": "", "tile_padding": None, "split_k": None}
    found = section(serving_run(**rows), {})
    assert found is not None
    assert "5 without a kernel of the trace" in told(found)
    assert all(row["Time"] is None for row in rows_of(found.tables[0]))
    assert [figure.file for figure in found.figures] == ["operators-icicle"]


def test_host_operators_alone_are_a_table(serving_run: Make, rows: Any) -> None:
    for row in rows["operators"]:
        row |= {"gpu_ns": 0, "launches": 0, "kernel": ""}
    found = section(serving_run(operators=rows["operators"]), {})
    assert found is not None
    assert "host alone" in told(found)
    assert rows_of(found.tables[0])[0]["Operator"] in ("aten::mm", "aten::copy_")


def test_the_report_shows_it(serving_run: Make, rows: Any) -> None:
    run = serving_run(**rows)
    render_report(run)
    report = whole_report(run.path / "report")
    assert "## Operators and matrix products" in report
    assert "### Three views of a run of a stage" in report
