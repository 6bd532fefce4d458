"""The findings of the recorded operations of a transformer: each number again, from table `bench`.

No measured value stands here: the oracle is arithmetic on the medians and counters of the cases.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

Replay = Callable[[str], Path]
MODEL = "llama-3.1-8b"


@pytest.fixture
def run(replay: Replay) -> Path:
    return replay("llm-kernels")


def bench(run: Path) -> Any:
    table = pd.read_parquet(run / "tables" / "bench.parquet").set_index("case_id")
    return table[(table["mode"] == "cold") & (table["data"] == "normal")].set_index("name")


def findings(run: Path) -> dict[str, Any]:
    """The findings of the section in metrics.json by their rules."""
    data = json.loads((run / "report" / "metrics.json").read_text(encoding="utf-8"))
    (section,) = (one for one in data["sections"] if one["key"] == "llm_kernels")
    return {finding["rule"]: finding for finding in section["findings"]}


def report(run: Path) -> str:
    return (run / "report" / "report.md").read_text(encoding="utf-8")


def test_every_link_of_a_finding_leads_to_a_row_of_the_page(run: Path) -> None:
    text = report(run)
    section = text.partition('<a id="section-llm_kernels">')[2].partition("\n## How")[0]
    claims = [line for line in section.splitlines() if re.match(r"\d+\. \*\*|   - ", line)]
    targets = {target for line in claims for target in re.findall(r"\]\(#([^)]+)\)", line)}
    ids = re.findall(r'<a id="([^"]+)"></a>', section)
    assert len(targets) > 30
    assert targets <= set(ids)
    assert len(ids) == len(set(ids))


def test_the_report_can_be_read_in_a_sitting(run: Path) -> None:
    assert len(report(run).splitlines()) <= 480


def test_what_a_back_end_of_attention_takes_over_the_fastest(run: Path) -> None:
    table, verdict = bench(run), findings(run)["prefill_attention"]["verdict"]
    kernels = set(table["kernel_names"].dropna().str.extract(r"(FlashAttention-\d)")[0].dropna())
    assert len(kernels) == 1
    names = {"flash": kernels.pop(), "cudnn": "cuDNN", "math": "math"}
    times = {
        label: table.loc[f"attention/prefill/{MODEL}/b1-s8192/{key}/graph", "median_s"]
        for key, label in names.items()
    }
    best = min(times, key=lambda label: times[label])
    assert f"positions is {best}:" in verdict
    for label in times.keys() - {best}:
        (shown,) = re.findall(rf"{label} takes ([\d.]+)x", verdict)
        assert float(shown) == pytest.approx(times[label] / times[best], rel=0.05)


def test_the_ends_of_the_bytes_that_products_move_have_opposite_reasons(run: Path) -> None:
    table = bench(run).reset_index()
    linear = table[table["name"].str.startswith("linear/") & table["dram_bytes"].notna()]
    ratio = linear["dram_bytes"] / linear["counted_calls"] / linear["bytes"]
    many = ratio[linear["name"].str.extract(r"/t(\d+)/")[0].astype(int) >= 1024]
    assert many.min() < 1 < many.max()
    found = findings(run)["tile_padding"]
    again, kept = (one["label"] for one in found["evidence"][1:])
    assert f"up to {many.max():.2f}x from there on, where tiles read inputs again" in again
    assert f"at least {many.min():.3f}x" in kept
    assert "stays in L2" in kept
    flops = linear["counted_flops"] / linear["counted_calls"] / linear["flops"]
    assert found["values"]["low"]["value"] == pytest.approx(flops.min())
    assert found["values"]["high"]["value"] == pytest.approx(flops.max())


def test_a_decoder_layer_is_the_sum_of_the_medians_of_its_operations(run: Path) -> None:
    table, found = bench(run), findings(run)["prefill_limit"]["values"]
    times = table["median_s"]
    linear = sum(
        times[f"linear/{MODEL}/{name}/t8192/bf16/graph"]
        for name in ("qkv", "out", "gate-up", "down")
    )
    attention = times[[n for n in times.index if f"prefill/{MODEL}/b1-s8192/" in n]].min()
    pointwise = sum(
        n * times[[name for name in times.index if f"/{op}/{MODEL}/t8192/" in name]].min()
        for op, n in (("add-rms-norm", 2), ("rotary", 1), ("silu-mul", 1))
    )
    share = linear / (linear + attention + pointwise)
    assert found["share"]["value"] == pytest.approx(share)


def test_reasons_that_no_counter_shows_are_no_claims(run: Path) -> None:
    table, found = bench(run), findings(run)
    assert "guards" not in found["compile_overhead"]["verdict"]
    assert "guards" in found["compile_overhead"]["disproof"]
    case = next(k for k in table.index if "embedding" in k and "/t128/" in k)
    assert pd.isna(table.loc[case, "kernel_names"]), "counted now: the claim may name the kernel"
    assert "chooses" not in found["size_inversion"]["verdict"]
