"""Rules that the second recording of planted defects corrected, on that recording."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.kernels.causes import Judged
from nsight_prof.reports.findings.kernels.judge import judge
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.verdicts.ranking import OVERVIEW, findings
from scripts.pages.stage_run import stage_runs
from tests.reports.programs import amount, amounts, english, where

STAGES = ["register_limited", "shared_limited", "l2_thrashing", "fp32_gemm", "elementwise_chain",
          "small_kernels"]  # fmt: skip
Stage = Callable[[str], Run]


@pytest.fixture(scope="module")
def stage(recorded_run_of: Callable[[str], Run]) -> Stage:
    run = recorded_run_of("h200-planted-defects-second")
    names = [f"defect/{name}" for name in STAGES] + ["twin/launch_bound", "twin/shared_limited"]
    return dict(stage_runs(run, names)).__getitem__


def ranked(run: Run) -> list[Finding]:
    return [one for one in findings(run) if one.key not in OVERVIEW]


def longest(run: Run) -> Judged:
    return judge(run)[0]


@pytest.mark.parametrize("name", ["register_limited", "shared_limited"])
def test_few_warps_come_before_defects_that_warps_do_not_wait_for(stage: Stage, name: str) -> None:
    judged = longest(stage(f"defect/{name}"))
    assert judged.causes[0].key == name
    # Nine tenths of the stalls are for memory; DRAM ends the gain, of whose roof kernels with all
    # their warps reach about four fifths.
    assert judged.row["stalls"]["long_scoreboard"] > 0.85
    assert judged.gain == pytest.approx(1 - number(judged.row["roof_share"]) / 0.8)
    gains = {cause.key: cause.gain for cause in judged.causes}
    assert gains.get("uncoalesced_stores", 0) < 0.05
    assert "bank_conflicts" not in gains


def test_conflicts_that_no_warp_waits_for_are_no_cause(stage: Stage) -> None:
    row = longest(stage("twin/shared_limited")).row
    assert row["shared_conflict_pct"] > 70
    assert "bank_conflicts" not in {f.rule for f in ranked(stage("twin/shared_limited"))}


def test_without_dram_traffic_the_load_store_pipe_sets_the_pace(stage: Stage) -> None:
    judged = longest(stage("defect/l2_thrashing"))
    assert judged.cause is not None
    assert judged.cause.key == "l2_thrashing"
    assert judged.gain == pytest.approx(1 - judged.row["lsu_pct"] / 100)
    (end,) = [one for one in judged.cause.price if english(one.threshold) == "the gain ends there"]
    assert where(end) == ("lsu_pct",)
    assert amount(end) == pytest.approx(judged.row["lsu_pct"])


def test_a_convolution_by_transforms_is_one_finding_bounded_by_its_bytes(stage: Stage) -> None:
    run = stage("defect/fp32_gemm")
    first = ranked(run)[0]
    assert (first.rule, first.confidence) == ("tensor_idle", "low")
    # 32 images of 256 channels and 56 x 56 pixels in and out, 256 x 256 filters of 3 x 3; FP32.
    images, filters = 32 * 256 * 56 * 56 * 4, 256 * 256 * 9 * 4
    (moved,) = [one for one in first.evidence if english(one.label).startswith("bytes in and out")]
    assert amount(moved) == 5 * (2 * images + filters)
    of_it = run.kernels[run.kernels["category"] == "conv"]["total_ns"].sum()
    roofs = run.roofs[run.roofs["source"] == "measured"].set_index("level_or_pipe")["value"]
    assert first.gain_ns == pytest.approx(of_it - amount(moved) / roofs["dram"] * 1e9)
    # Its parts are no products of which each could run on the Tensor Cores.
    assert [f.rule for f in ranked(run)].count("tensor_idle") == 1


def test_a_chain_may_come_to_one_kernel_again(stage: Stage) -> None:
    found = [f for f in ranked(stage("defect/elementwise_chain")) if f.rule == "elementwise_chain"]
    (chain,) = found
    values = amounts(chain)
    assert (values["kernels in the chain"], values["runs of the chain"]) == (9, 5)
    assert chain.share == pytest.approx(1)


def test_rows_of_one_small_kernel_are_told_once(stage: Stage) -> None:
    run = stage("defect/small_kernels")
    first, *others = ranked(run)
    assert first.rule == "small_kernels"
    values = amounts(first)
    assert (values["rows"], values["kernels in these rows"]) == (1, len(run.launches))
    # Side by side they take no less than the longest, nor than SMs that are full of their blocks.
    time = run.launches["duration_ns"]
    least = max(time.max(), time.sum() / 132)
    saved = values["saved by them side by side"]
    assert saved == pytest.approx(time.sum() - least)
    assert first.gain_ns == pytest.approx(saved + values["time between them"])
    (grid,) = [f for f in others if f.rule == "small_grid"]
    assert grid.gain_ns == 0
    assert "leaves nothing to save here" in english(grid.verdict)


def test_two_gaps_are_no_host_that_cannot_keep_up(stage: Stage) -> None:
    run = stage("twin/launch_bound")
    gaps = run.idle_gaps.loc[run.idle_gaps["cause"] == "launches", "gaps"].sum()
    assert gaps == 2
    assert "launch_bound" not in {f.rule for f in ranked(run)}
