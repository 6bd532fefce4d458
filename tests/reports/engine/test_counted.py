"""Counted beside needed FLOPs: kernels whose one launch stands for all, and those of many sizes."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.stages.counted import Counted, counted
from nsight_prof.reports.engine.stages.kinds import stages_of
from tests.sections import words as shown

Make = Callable[..., Run]
MIXED = 1000.0
"""Standard deviation of launches that do different work, of 1,000 ns on average."""


def kernel(key: str, category: str, tile: str = "", std: float = 0.0) -> dict[str, Any]:
    return {
        "kernel_id": key, "name": key, "short_name": key, "category": category, "tile": tile,
        "calls": 3, "total_ns": 3000, "mean_ns": 1000.0, "std_ns": std, "stage": "prefill",
    }  # fmt: skip


def part(key: str, calls: int = 3, total: int = 3000) -> dict[str, Any]:
    return {"stage": "prefill", "kernel_id": key, "calls": calls, "total_ns": total}


def counters(key: str, flops: float | None) -> dict[str, Any]:
    return {"kernel_id": key, "flops": flops, "flops_tensor": flops}


def product(m: int, n: int, k: int, calls: int) -> dict[str, Any]:
    return {
        "stage": "prefill", "kernel_id": "mixed", "tile": "64x32x64", "batch": 1,
        "m": m, "n": n, "k": k, "calls": calls,
    }  # fmt: skip


def told(run: Run, **changed: list[dict[str, Any]]) -> dict[str, Counted]:
    """Return what is counted of the prefill by part, with these rows of tables."""
    for table, rows in changed.items():
        frame = pd.DataFrame(rows, columns=[c.name for c in tables.tables()[table]])
        tables.write(tables.check(frame, table), table, run.directory.tables)
    again = load_run(run.path)
    stages = stages_of(again)
    assert stages is not None
    return {one.component: one for one in counted(again, stages) if one.kind == "prefill"}


def test_calls_times_one_launch_over_what_the_model_needs(serving_run: Make) -> None:
    found = told(
        serving_run(),
        kernels=[kernel("a", "gemm"), kernel("b", "attention"), kernel("c", "norm")],
        stage_kernels=[part("a"), part("b"), part("c")],
        counters=[counters("a", 2e6), counters("b", 1e5), counters("c", 9e9)],
    )
    products, attention = found["matrix products"], found["attention"]
    assert products.counted == 6e6
    # 2 FLOP x 20 tokens x 3 layers x (4 x 64 x 64 + 3 x 64 x 96), and 2 logits of 100 x 64.
    assert products.required == 2 * 20 * 3 * (4 * 64 * 64 + 3 * 64 * 96) + 2 * 2 * 100 * 64
    assert products.ratio == pytest.approx(6e6 / products.required)
    assert attention.counted == 3e5
    # 4 x 64 FLOP x 3 layers x 2 prompts x 10 x 11 / 2 pairs.
    assert attention.required == 4 * 64 * 3 * 2 * 55


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ([counters("a", 2e6)], "without counters"),
        ([counters("a", 2e6), counters("b", None)], "not counted"),
    ],
)
def test_a_kernel_that_was_not_counted_leaves_the_ratio_open(
    serving_run: Make, lost: list[dict[str, Any]], words: str
) -> None:
    found = told(
        serving_run(),
        kernels=[kernel("a", "gemm"), kernel("b", "gemm")],
        stage_kernels=[part("a"), part("b", total=1000)],
        counters=lost,
    )["matrix products"]
    assert found.counted is None
    assert found.ratio is None
    assert words in shown(found.reason)
    assert "25 % of their time" in shown(found.reason)


def test_next_to_nothing_without_counters_does_not_matter(serving_run: Make) -> None:
    found = told(
        serving_run(),
        kernels=[kernel("a", "gemm"), kernel("b", "gemv")],
        stage_kernels=[part("a"), part("b", total=20)],
        counters=[counters("a", 2e6)],
    )
    assert found["matrix products"].counted == 6e6
    assert "no kernel" in shown(found["attention"].reason)


def test_products_of_many_sizes_are_rounded_up_to_the_tile(serving_run: Make) -> None:
    # 64 x 32 tiles: 20 x 192 is 64 x 192 one way and 32 x 192 the other; counters show the latter.
    sizes = [product(20, 192, 64, 2), product(20, 64, 64, 1)]
    exact = 2 * 64 * (2 * 32 * 192 + 32 * 64)
    given: dict[str, Any] = {
        "kernels": [kernel("mixed", "gemm", "64x32x64", MIXED)],
        "stage_kernels": [part("mixed")],
        "counters": [counters("mixed", 2.0 * 64 * 32 * 192)],
    }
    found = told(serving_run(), gemms=sizes, **given)["matrix products"]
    assert found.counted == exact
    assert found.by_tile == exact
    lost = told(serving_run(), gemms=sizes[:1], **given)["matrix products"]
    assert lost.counted is None
    assert "different sizes" in shown(lost.reason)
    given["counters"] = [counters("mixed", 12345.0)]
    assert told(serving_run(), gemms=sizes, **given)["matrix products"].counted is None


def test_without_counters_nothing_is_compared(serving_run: Make) -> None:
    assert told(serving_run(), counters=[]) == {}
