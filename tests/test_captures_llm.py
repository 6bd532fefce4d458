"""The findings of the recorded operations of a transformer: each number again, from table `bench`.

No measured value stands here: the oracle is arithmetic on the medians and counters of the cases.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.reports.formats import seconds, significant

pytestmark = pytest.mark.xdist_group("captures")

Replay = Callable[[str], Path]
ID = re.compile(r'<a id="([^"]+)"></a>')


@pytest.fixture
def run(replay: Replay) -> Path:
    return replay("llm-kernels")


def bench(run: Path) -> Any:
    return pd.read_parquet(run / "tables" / "bench.parquet").set_index("case_id")


def report(run: Path) -> str:
    return (run / "report" / "report.md").read_text(encoding="utf-8")


def claims(text: str) -> list[tuple[str, str]]:
    """The findings of the section: sentence and evidence, and what leads to their rows."""
    section = text.partition('<a id="section-llm_kernels">')[2].partition("\n## How")[0]
    parts = re.split(r"\n(?=\d+\. \*\*)", section)[1:]
    blocks = [part.partition("\n\n")[0] for part in parts]
    return [(b.partition("   - Found in:")[0], b.partition("   - Found in:")[2]) for b in blocks]


def full_names(told: str) -> set[str]:
    """The cases of a link: "shape/graph, eager" has the shape once."""
    parts = [part.partition("&#124;")[0] for part in told.split(", ")]
    shape = parts[0].rpartition("/")[0]
    return {part if "/" in part else f"{shape}/{part}" for part in parts}


def rows(text: str) -> dict[str, str]:
    return {i: line for line in text.splitlines() if line.startswith("|") for i in ID.findall(line)}


def test_every_claim_names_its_cases_and_leads_to_their_rows(run: Path) -> None:
    text, known = report(run), set(bench(run)["name"])
    shown = rows(text)
    for claim, found in claims(text):
        cases = re.findall(r"\[(?:`|<code>)(.+?)(?:`|</code>)\]\(#([^)]+)\)", found)
        assert cases, claim
        for name, anchor in cases:
            assert anchor in shown, claim
            if not name.startswith("formulas"):
                assert full_names(name) <= known, name


def test_what_a_back_end_of_attention_takes_over_the_fastest(run: Path) -> None:
    text, table = report(run), bench(run)
    (claim, found) = next(c for c in claims(text) if "for a prompt of" in c[0])
    shown = rows(text)
    anchors = re.findall(r"\(#([^)]+)\)", found)
    times = {}
    for name in ("flash", "cudnn", "math"):
        (case,) = [
            key for key in table.index
            if re.sub(r"\W", "-", f"case-{key}") in anchors and f"/{name}/" in key
        ]  # fmt: skip
        times[name] = table.loc[case, "median_s"]
        row = shown[re.sub(r"\W", "-", f"case-{case}")]
        assert seconds(times[name]) in row
    best = min(times.values())
    kernels = set(table["kernel_names"].dropna().str.extract(r"(FlashAttention-\d)")[0].dropna())
    assert len(kernels) == 1
    assert f"{kernels.pop()} takes {significant(times['flash'] / best)} times as long" in claim
    assert f"math back end takes {significant(times['math'] / best)} times as long" in claim


def test_the_ends_of_the_bytes_that_products_move_have_opposite_reasons(run: Path) -> None:
    table = bench(run).reset_index()
    ours = table[table["name"].str.startswith("linear/") & (table["data"] == "normal")]
    ours = ours[(ours["mode"] == "cold") & ours["dram_bytes"].notna()]
    ratio = ours["dram_bytes"] / ours["counted_calls"] / ours["bytes"]
    many = ratio[ours["name"].str.extract(r"/t(\d+)/")[0].astype(int) >= 1024]
    claim = next(c for c, _ in claims(report(run)) if "counted FLOPs of linear layers" in c)
    assert many.min() < 1 < many.max()
    again, kept = claim.split("The least is")
    assert f"up to {significant(many.max())} times as many, where tiles read" in again
    assert f"{significant(many.min())} times, of" in kept
    assert "stays in L2" in kept
    flops = ours["counted_flops"] / ours["counted_calls"] / ours["flops"]
    assert f"{significant(flops.min())} to {significant(flops.max())} times 2mnk" in claim


def test_reasons_that_no_counter_shows_are_no_claims(run: Path) -> None:
    table = bench(run)
    told = claims(report(run))
    slower = next(c for c, _ in told if "torch.compile alone" in c)
    assert "guards" not in slower.partition("Limits")[0].partition("Evidence")[0]
    size = next(c for c, _ in told if "as long for 16 tokens" in c)
    case = next(k for k in table.index if "embedding" in k and "/t128/" in k)
    assert pd.isna(table.loc[case, "kernel_names"]), "counted now: the claim may name the kernel"
    assert "chooses its kernel" not in size
