"""The numbers behind findings of kernels: where they stand, and how sure they make a finding."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.cells import number, records, text
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.profiled import is_mixed
from nsight_prof.reports.findings.kernels.evidence import ISSUED
from nsight_prof.reports.findings.kernels.findings import (
    abstentions,
    bound_findings,
    kernel_findings,
)
from nsight_prof.reports.findings.kernels.judge import judge
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.shortest_launch import shortest_launch
from nsight_prof.reports.page import Evidence, Number
from nsight_prof.reports.verdicts.ranking import findings
from tests.reports.programs import amount, english, unit, where

RECORDED = "h200-top-kernels"


@pytest.fixture(scope="module")
def recorded(root: Path, recorded_run_of: Callable[[str], Run]) -> Run:
    if not (root / "captures" / RECORDED).is_dir():
        pytest.skip(f"captures/{RECORDED} is not there")
    return recorded_run_of(RECORDED)


@pytest.fixture(scope="module")
def found(recorded: Run) -> list[Finding]:
    return kernel_findings(recorded)


def seen(finding: Finding, metric: str) -> Evidence:
    (one,) = [e for e in finding.evidence if english(e.label) == metric]
    return one


def row(recorded: Run, finding: Finding, table: str) -> dict[str, object]:
    frame = getattr(recorded, table).drop_duplicates("kernel_id").set_index("kernel_id")
    return dict(frame.loc[finding.kernel_ids[0]])


def test_every_number_says_where_it_stands(recorded: Run, found: list[Finding]) -> None:
    declared = tables.tables()
    for finding in (*found, *bound_findings(recorded)):
        assert finding.evidence
        for one in finding.evidence:
            assert where(one), (english(finding.title), english(one.label))
            for place in where(one):
                table, _, column = place.partition(".")
                names = [c.name for c in declared[table]] if column else [*catalogue().columns]
                assert (column or table) in names, (english(one.label), place)


def test_a_number_that_is_one_counter_is_that_counter(recorded: Run, found: list[Finding]) -> None:
    alone = 0
    for finding in found:
        counters = row(recorded, finding, "counters")
        for one in finding.evidence:
            if len(where(one)) == 1 and where(one)[0] in counters and unit(one) == "%":
                assert amount(one) == pytest.approx(counters[where(one)[0]]), english(one.label)
                alone += 1
    assert alone >= 4 * len(found)


def test_no_number_is_told_twice(found: list[Finding]) -> None:
    for finding in found:
        rows = [(english(one.label), one.threshold) for one in finding.evidence]
        assert len(rows) == len(set(rows)), english(finding.title)


def test_the_share_of_a_roof_is_the_rate_over_the_roof(found: list[Finding]) -> None:
    checked = 0
    for finding in found:
        rows = {english(one.label): amount(one) for one in finding.evidence}
        for label in [m.removesuffix(": roof") for m in rows if m.endswith(": roof")]:
            part = rows[f"{label}: reached"] / rows[f"{label}: roof"]
            assert rows[english(finding.evidence[0].label)] == pytest.approx(100 * part, rel=1e-3)
            checked += 1
    assert checked > 5


def test_issue_slots_of_all_and_of_active_cycles_are_named_apart(
    recorded: Run, found: list[Finding]
) -> None:
    bound = next(f for f in found if f.bound == "issue")
    counters = row(recorded, bound, "counters")
    active = number(counters["issue_active_pct"]) * number(counters["sm_active_pct"]) / 100
    assert amount(seen(bound, english(ISSUED))) == pytest.approx(active)
    assert english(seen(bound, english(ISSUED)).threshold) == "60 % or more"
    label = "issue slots busy, of the active cycles"
    waiting = next(f for f in found if label in [english(e.label) for e in f.evidence])
    slots = seen(waiting, label)
    assert amount(slots) == pytest.approx(
        number(row(recorded, waiting, "counters")["issue_active_pct"])
    )
    assert english(slots.threshold) == "under 80 %"


def test_waits_for_memory_contradict_full_issue_slots(recorded: Run, found: list[Finding]) -> None:
    doubted = next(
        f for f in found if english(f.title).startswith("PyTorch mul") and f.bound == "issue"
    )
    assert doubted.confidence != "high"
    assert "limited in part by instruction issue" in english(doubted.verdict)
    assert "most of all for data from L2 or memory" in english(doubted.verdict)
    stalls = recorded.stalls[recorded.stalls["kernel_id"] == doubted.kernel_ids[0]]
    waits = ["long_scoreboard", "lg_throttle", "drain", "mio_throttle"]
    part = stalls[stalls["reason"].isin(waits)]["share"].sum()
    assert amount(seen(doubted, "all stalls for memory")) == pytest.approx(100 * part)
    assert part > 0.5


def test_nothing_contradicts_a_roof_that_is_full(recorded: Run) -> None:
    for one in judge(recorded):
        if number(one.row["roof_share"]) >= 0.8:
            assert one.doubts == ()


def test_a_gain_that_ends_at_the_shortest_launch_shows_it_and_is_less_sure(
    recorded: Run, found: list[Finding]
) -> None:
    norm = next(
        f for f in found if english(f.title).startswith("PyTorch RMSNorm") and f.bound == "latency"
    )
    least = min(records(recorded.kernels), key=lambda kernel: number(kernel["min_ns"]))
    floor, mean = seen(norm, "shortest launch of the trace"), seen(norm, "mean launch")
    assert amount(floor) == least["min_ns"]
    assert english(floor.source) == f"nsys: {least['short_name']}, grid {least['grid']}"
    blocks = amount(seen(norm, "blocks"))
    start = amount(floor) / amount(mean)
    assert norm.gain_kernel == pytest.approx((1 - blocks / 132) * (1 - start))
    assert norm.confidence == "medium", "the rule alone would be sure"
    assert "the shortest of the trace" in english(norm.verdict)
    free = next(f for f in found if english(f.title).startswith("PyTorch softmax"))
    assert not [one for one in free.evidence if "shortest" in english(one.label)]


def test_kernels_of_mixed_work_are_marked_wherever_they_are_told(
    recorded: Run, found: list[Finding]
) -> None:
    rows = {text(one.row["kernel_id"]): one.row for one in judge(recorded)}
    mixed = [f for f in found if is_mixed(rows[f.kernel_ids[0]])]
    assert mixed
    for finding in found:
        told = (
            english(finding.title),
            english(finding.headline),
            english(finding.verdict),
            english(finding.evidence[0].label),
        )
        one = finding in mixed
        assert all(("(of one launch)" in words) == one for words in told), english(finding.title)
    (bounds,) = bound_findings(recorded)
    part = sum(number(r["share"]) for r in rows.values() if is_mixed(r))
    assert f"{100 * part:.0f} % of the GPU time differ in their work" in english(bounds.verdict)


def test_the_parts_of_all_bounds_add_up(recorded: Run) -> None:
    (bounds,) = bound_findings(recorded)
    gains = [amount(one) for one in bounds.evidence if english(one.label) == "could save of it"]
    parts = [amount(one) for one in bounds.evidence if english(one.label).startswith("GPU time")]
    assert sum(gains) == pytest.approx(100 * bounds.gain_program)
    assert sum(parts) == pytest.approx(100 * bounds.share)


def test_the_sentences_are_short(recorded: Run) -> None:
    for finding in findings(recorded):
        if finding.key == "kernel":
            for words in english(finding.verdict).replace("; ", ". ").split(". "):
                assert len(words.split()) <= 45, words


def test_a_rule_abstains_where_local_bytes_are_not_certain(recorded: Run) -> None:
    counted = recorded.metrics
    mine = counted[counted["metric"] == "sm__sass_data_bytes_mem_local.sum"]
    doubtful = set(mine[mine["value"] > 0]["kernel_id"])
    assert doubtful
    unknown = recorded.counters[recorded.counters["local_bytes"].isna()]["kernel_id"]
    assert set(unknown) == doubtful
    told = {key: a.reason for a in abstentions(recorded) for key in a.kernel_ids
            if "local_spills" in a.rules}  # fmt: skip
    assert all("local instructions" in english(reason) for reason in told.values())


def test_without_issue_slots_a_wait_is_not_told_as_certain(run: Run) -> None:
    for name in ("issue_active_pct", "top_stall"):
        frame = run.counters.copy()
        frame[name] = math.nan if name != "top_stall" else None
        tables.write(frame, "counters", run.directory.tables)
        run = load_run(run.path)
    open_ones = [f for f in kernel_findings(run) if f.rule == "unknown"]
    assert open_ones
    assert all(
        "how full the issue slots are was not counted" in english(f.verdict) for f in open_ones
    )
    assert all("less if its issue slots are full" in english(f.verdict) for f in open_ones)
    assert {f.confidence for f in open_ones} == {"low"}


def test_long_launches_are_no_floor(run: Run) -> None:
    assert shortest_launch(run).ns == run.kernels["min_ns"].min()
    longer = run.kernels.assign(min_ns=1e6)
    tables.write(longer, "kernels", run.directory.tables)
    floor = shortest_launch(load_run(run.path))
    assert floor.ns < run.kernels["min_ns"].max()
    assert floor.kernel == ""
    assert "recorded runs" in english(floor.evidence().label)


def test_the_roof_of_a_mix_of_reads_and_writes_can_be_worked_out_on_the_page(
    found: list[Finding],
) -> None:
    worked_out = 0
    for one in (one for finding in found for one in finding.evidence):
        if one.source is None or "low" not in one.source.values:
            continue
        low, high, part, whole = (
            number.value
            for name in ("low", "high", "part", "whole")
            if isinstance(number := one.source.values[name], Number) and number.value
        )
        x = part / whole
        assert amount(one) == pytest.approx(1 / ((1 - x) / low + x / high), rel=1e-9)
        assert min(low, high) < amount(one) < max(low, high)
        worked_out += 1
    assert worked_out
