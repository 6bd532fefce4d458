"""Section of the operator view: operators by stage, and matrix products with their kernels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import partial

from nsight_prof.parsers.gemm_join import BY_BOTH, BY_NAME, BY_ORDER
from nsight_prof.reports.bench.models import BenchTable, Json, Section
from nsight_prof.reports.engine.operators.actions import actions
from nsight_prof.reports.engine.operators.findings import calls, findings
from nsight_prof.reports.engine.operators.models import OfStage, Operator, Product, View
from nsight_prof.reports.engine.operators.roofs import roofs_beside
from nsight_prof.reports.engine.operators.rows import stages_of_operators
from nsight_prof.reports.formats import (
    NA,
    byte_rate,
    count,
    counted,
    difference,
    duration,
    flop_rate,
    or_na,
    quantity,
    share,
    shorten,
    significant,
)
from nsight_prof.reports.json_text import finite
from nsight_prof.reports.load import Run
from nsight_prof.reports.page.charts import Bar, BarFigure, Chart

KEY, TITLE = "operators", "Operators and matrix products"
SHOWN = 12
"""Operators of a table."""
SMALL = 0.01
"""Part of the GPU time of the operator view below which a stage is not shown."""
MOST = 4
"""Stages that are shown."""
JOINS = {BY_BOTH: "order, same kernel", BY_ORDER: "order, other kernel", BY_NAME: "name"}
METHOD = (
    "Operators are of a run of their own under the torch profiler, with the shapes of their "
    "inputs. Its host times hold the cost of the profiler, some microseconds an operator; times of "
    "products and rates are of the trace.",
    "A kernel of the trace gets the shape of the product at the same place in the order of the "
    "stage's products (order), which also holds where the trace replays CUDA graphs and the "
    "operator view runs without them: the library may choose another kernel there, and the table "
    "says so. Where the counts do not fit, it is joined by its name and grid, if no other shape of "
    "the stage has them (name).",
    "The share of the roof is the time that min(peak, intensity x bandwidth) allows over the "
    "mean time of a call in the trace, with 2MNK FLOPs and both factors and the output moved once. "
    "A split of K is told by the name of the kernel; its number of parts is the blocks of the grid "
    "over its tiles.",
)


def section(run: Run) -> Section | None:
    """Return the section; None for a run without an operator view."""
    if run.operators.empty:
        return None
    every = stages_of_operators(run)
    whole = sum(operator.gpu_ns for stage in every for operator in stage.operators)
    stages = [s for s in every if sum(o.gpu_ns for o in s.operators) >= SMALL * whole][:MOST]
    products = [product for stage in stages for product in stage.products]
    tables = [*product_table(products), *view_table(stages)]
    tables += [operator_table(stage) for stage in stages]
    if not stages:
        tables = [host_table(run)]
    return Section(
        key=KEY,
        title=TITLE,
        intro=_intro(stages, products),
        findings=findings(stages, actions(run), partial(roofs_beside, run)),
        tables=tuple(tables),
        figures=figures(products),
        method=METHOD,
        numbers=numbers(every),
        plain=_plain(stages),
    )


def _intro(stages: Sequence[OfStage], products: Sequence[Product]) -> str:
    if not stages:
        return "The torch profiler saw operators of the host alone: no kernel belongs to them."
    by = {key: sum(product.join == key for product in products) for key in ("", *JOINS)}
    told = [f"{n} by {text}" for key, text in JOINS.items() if (n := by[key])]
    if by[""]:
        told.append(f"{by['']} without a kernel of the trace")
    joined = f" Joined to the trace: {'; '.join(told)}." if told else ""
    names = ", ".join(stage.label for stage in stages)
    return (
        f"The operator view holds {counted(len(products), 'matrix product')} by shape in "
        f"{names}.{joined} Calls and times are of one run of a stage, one step of an engine."
    )


def product_table(products: Sequence[Product]) -> list[BenchTable]:
    """Return each matrix product with its kernel, rate and share of the roof."""
    if not products:
        return []
    ordered = sorted(products, key=lambda p: (p.stage, -_zero(p.total_ns)))
    heads = ("Stage", "Matrix", "M x N x K", "Type", "Tile", "Split K", "Calls", "Time a call")
    rates = ("Time", "FLOP/s", "B/s", "Of the roof", "Roof", "Padding", "Joined by")
    missing = any(math.isnan(product.fraction) for product in ordered)
    return [
        BenchTable(
            "Matrix products",
            (*heads, *rates),
            tuple(_product(product) for product in ordered),
            "Time: of all calls. Time a call, rates and share of the roof are of the mean call. "
            "Padding: FLOPs of whole tiles beyond 2MNK."
            + (" Why something is not available says table `gemms` or `gaps`."
               if missing else ""),
            left=("Stage", "Matrix", "M x N x K", "Type", "Tile", "Roof", "Joined by"),
        )
    ]  # fmt: skip


def _product(product: Product) -> tuple[str, ...]:
    return (
        product.stage or NA,
        product.name if product.module else NA,
        product.size,
        or_na(product.dtype),
        or_na(product.tile),
        count(product.split_k),
        calls(product.calls if product.join else product.operator_calls),
        duration(product.mean_ns),
        duration(product.total_ns),
        flop_rate(product.flop_rate),
        byte_rate(product.byte_rate),
        share(product.fraction),
        or_na(product.roof_source),
        difference(product.padding - 1),
        JOINS.get(product.join, "not joined"),
    )


def view_table(stages: Sequence[OfStage]) -> list[BenchTable]:
    """Return the analytical, the operator and the kernel view of each stage side by side."""
    rows = tuple(_view(stage, view) for stage in stages for view in stage.views)
    if not rows:
        return []
    return [
        BenchTable(
            "Three views of a run of a stage",
            ("Stage", "Quantity", "Analytical", "Operators", "Kernels", "Operators over analytical",
             "Kernels over operators"),
            rows,
            "Analytical: the model's configuration; for time, what the roofs allow for the shapes. "
            "Operators: shapes and times under the torch profiler. Kernels: times of the trace; "
            "FLOPs by counters, and of whole tiles where no launch of the shape was counted; bytes "
            "read from DRAM by counters.",
            left=("Stage", "Quantity"),
        )
    ]  # fmt: skip


def _view(stage: OfStage, view: View) -> tuple[str, ...]:
    values = (view.analytical, view.operators, view.kernels)
    return (
        stage.label,
        view.quantity,
        *(quantity(v, view.unit) if view.unit else significant(v) for v in values),
        difference(view.operators / view.analytical - 1),
        difference(view.kernels / view.operators - 1 if view.operators else math.nan),
    )


def operator_table(stage: OfStage) -> BenchTable:
    """Return the operators of a stage that took most GPU time."""
    shown = [operator for operator in stage.operators if operator.gpu_ns > 0]
    rest = len(shown) - SHOWN
    more = f" {counted(rest, 'further operator')} in table `operators`." if rest > 0 else ""
    return BenchTable(
        f"Operators of {stage.label}",
        ("Operator", "Input shapes", "Calls", "GPU time", "Share", "Host time itself", "Kernel"),
        tuple(_operator(operator) for operator in shown[:SHOWN]),
        f"Under the torch profiler, of one run.{more}",
        left=("Operator", "Input shapes", "Kernel"),
        folded=True,
    )


def _operator(operator: Operator) -> tuple[str, ...]:
    return (
        operator.name,
        or_na(shorten(operator.shapes.replace(",", ", "), 60)),
        calls(operator.calls),
        duration(operator.gpu_ns),
        share(operator.share),
        duration(operator.self_cpu_ns),
        operator.kernel,
    )


def host_table(run: Run) -> BenchTable:
    """Return the operators that took most host time, for a program that used no GPU."""
    frame = run.operators.sort_values("self_cpu_ns", ascending=False).head(SHOWN)
    rows = tuple(
        (str(r.operator), shorten(str(r.input_shapes), 60), count(r.calls), duration(r.self_cpu_ns))
        for r in frame.itertuples()
    )
    heads = ("Operator", "Input shapes", "Calls", "Host time itself")
    return BenchTable("Operators", heads, rows, left=("Operator", "Input shapes"))


def figures(products: Sequence[Product]) -> tuple[Chart, ...]:
    """Return a bar for each product: its share of the roof."""
    known = [product for product in products if math.isfinite(product.fraction)]
    if not known:
        return ()
    known.sort(key=lambda product: (product.stage, -product.total_ns))
    bars = tuple(
        Bar(
            f"{p.stage}: {p.name}" if p.stage else p.name,
            100 * p.fraction,
            group=p.stage,
            text=f"{significant(100 * p.fraction)} %, {duration(p.total_ns)}",
        )
        for p in known
    )
    return (
        BarFigure(
            "matrix-products",
            "Matrix products and their roof",
            "Bars: share of its roof that each matrix product of each stage reached",
            "% of the roof",
            bars,
            subtitle="behind each bar: time of all its calls in a run of the stage",
        ),
    )


def numbers(stages: Sequence[OfStage]) -> dict[str, Json]:
    """Return the section for metrics.json, in base units."""
    return {
        "stages": {
            stage.stage or "(outside)": {
                "kernel_ns": finite(stage.kernel_ns),
                "product_share": finite(stage.product_share),
                "products": [finite(dataclasses.asdict(p)) for p in stage.products],
                "views": [finite(dataclasses.asdict(view)) for view in stage.views],
            }
            for stage in stages
        }
    }


def _zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _plain(stages: Sequence[OfStage]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"Multiplying matrices in {stage.stage}", f"{share(stage.product_share)} of the GPU time")
        for stage in stages
        if stage.stage and math.isfinite(stage.product_share)
    )
