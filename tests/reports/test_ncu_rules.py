"""ncu's rules beside prof's: each difference has a reason, and each contradiction is told."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.imports.importing import import_files
from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.build.run_tables import build_tables
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.run.directory import (
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    write_manifest,
)
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.kernels.rules import BY_KEY
from nsight_prof.reports.findings.ncu.agreement import compare
from nsight_prof.reports.findings.ncu.models import RulesView
from nsight_prof.reports.findings.ncu.topics import Topic, limiters_of, stall_of, topics, topics_of
from nsight_prof.reports.findings.ncu.view import rules_view, short, subjects
from nsight_prof.reports.render.report import render_report
from tests.recorded import whole_report

FIXTURES = ["stencil.ncu-rep", "stream.ncu-rep", "pdl.ncu-rep", "copy_blocked.csv", "cublaslt.log"]
PUBLISHED = [
    "AveryClapp+ESMM-Research/profile.ncu-rep",
    "MgMap+Hyper-Spec-M/profile.ncu-rep",
    "SebastianKuckuk+ihpcss-gpu-perf/stream-cuda.ncu-rep",
    "bobschreiner+NuKEXC/profile_fastc.ncu-rep",
    "eschnett+IndexSpaces.jl/profile.ncu-rep",
    "josiahls+cuda_learning_mojo/profile.ncu-rep",
    "thedavidchu+speedy_scan/profile.ncu-rep",
    "CodeGandee+llm-perf-opt/ncu.details.csv",
    "CodeGandee+llm-perf-opt/kernel_0010_adbaf834f7ef147e0ba0fa823d1cf461/ncu.details.csv",
]
SAME_AS_FIXTURES = [
    "NVIDIA+JAX-Toolbox/ncu_report_cuda_graph_pdl_stream_capture.ncu-rep",
    "SebastianKuckuk+ihpcss-gpu-perf/stencil-2d-omp-target-v1.ncu-rep",
    "SebastianKuckuk+ihpcss-gpu-perf/stream-cuda_391f3e.ncu-rep",
    "brycelelbach+ncu2markdown/copy_blocked.csv",
    "microsoft+superbenchmark/cublaslt_ncu.log",
]
WORDS = 45


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Import a file as a run with tables, once a file."""
    made: dict[Path, Run] = {}

    def load(path: Path) -> Run:
        if path not in made:
            pytest.importorskip("ncu_report", reason="NVIDIA's ncu_report is not installed")
            run = import_files([path], tmp_path_factory.mktemp("run") / "imported")
            build_tables(run)
            made[path] = load_run(run.path)
        return made[path]

    return load


def view_of(run: Run) -> RulesView:
    return rules_view(run, {key: i for i, key in enumerate(run.kernels["kernel_id"], 1)})


def sentences(view: RulesView) -> list[str]:
    return [text for row in view.rows for text in (row.answer, row.reason) if text]


def topic(key: str) -> Topic:
    return next(topic for topic in topics() if topic.key == key)


def test_topics_name_rules_and_bounds_that_exist() -> None:
    for one in topics():
        assert set(one.causes) <= set(BY_KEY), one.key
        assert set(one.bounds) <= set(LABELS), one.key
        assert bool(one.causes) == (one.compare == "causes"), one.key
        assert bool(one.bounds) == (one.compare == "bounds"), one.key
        re.compile(one.words)


def test_every_stall_reason_of_the_catalogue_is_told_from_a_message(root: Path) -> None:
    known = {stall.reason for stall in catalogue().stalls} - {"selected"}
    text = (root / "reports/findings/ncu/topics.yaml").read_text(encoding="utf-8")
    missing = {reason for reason in known if f"\n  {reason}:" not in text}
    assert missing == set()


@pytest.mark.parametrize("name", FIXTURES)
def test_differences_have_reasons(root: Path, imported: Any, name: str) -> None:
    check(view_of(imported(root / f"tests/fixtures/ncu_rules/{name}.xz")))


def test_every_published_report_with_rules_on_bounds_is_compared(real_exports: Path) -> None:
    reports = [path for path in (real_exports / "ncu").rglob("*") if path.suffix == ".ncu-rep"]
    pages = [path for path in (real_exports / "ncu").rglob("*") if path.suffix in (".csv", ".log")]
    told = [path for path in pages if b'"SOLBottleneck"' in path.read_bytes()]
    names = {path.relative_to(real_exports / "ncu").as_posix() for path in reports + told}
    # One of the 20 folders of one program, each a kernel, is compared as all others would be.
    names = {name for name in names if "/kernel_00" not in name}
    assert names - {*PUBLISHED, *SAME_AS_FIXTURES} == set()


@pytest.mark.parametrize("name", PUBLISHED)
def test_differences_have_reasons_in_published_reports(
    real_exports: Path, imported: Any, name: str
) -> None:
    check(view_of(imported(real_exports / "ncu" / name)))


def check(view: RulesView) -> None:
    assert view.rows
    # What bounds a kernel is told as ncu's own rule has it, but for matrix products that fill the
    # Tensor Cores and what feeds them, and for shares of a measured roof on the other side of 60
    # or 80 %.
    disputed = [row.reason for row in view.rows if "SOLBottleneck" in row.rules and row.reason]
    named = ("read their operands", "0.0 % lies between")
    assert [why for why in disputed if not any(words in why for words in named)] == []
    assert {row.verdict for row in view.rows} <= {"agrees", "differs", "contradicts"}
    assert [row for row in view.rows if row.verdict != "agrees" and not row.reason] == []
    assert [text for text in sentences(view) if len(text.split()) > WORDS] == []
    assert all(row.speedup is None or 0 <= row.speedup <= 1 for row in view.rows)
    counted = {
        (item.about, number)
        for item in view.summary
        for number in (*item.agrees, *item.differs, *item.contradicts)
    }
    assert counted == {(row.about, row.kernel) for row in view.rows}


def test_a_small_grid_is_seen_by_both(root: Path, imported: Any) -> None:
    view = view_of(imported(root / "tests/fixtures/ncu_rules/stencil.ncu-rep.xz"))
    rows = {row.about: row for row in view.of(1)}
    small = rows["Fewer blocks than SMs"]
    # By hand: 64 blocks, 108 SMs of an A100.
    assert small.speedup == pytest.approx(44 / 108)
    assert (small.speedup_of, small.verdict) == ("global", "agrees")
    assert "64 blocks on 108 SMs" in small.answer
    assert rows["What limits occupancy"].answer.startswith("registers")
    # Three results of one rule (SMs, their quarters, L1) are one matter.
    assert rows["SMs work unequally long"].rules == ("WorkloadImbalance",)


def test_another_limiter_is_a_contradiction(root: Path, imported: Any) -> None:
    (subject,) = subjects(imported(root / "tests/fixtures/ncu_rules/stencil.ncu-rep.xz")).values()
    said = ["This kernel's theoretical occupancy (75.0%) is limited by the number of required {}."]
    assert compare(topic("limiter"), [said[0].format("registers")], subject).state == "agrees"
    other = ["theoretical occupancy is limited by the required amount of shared memory."]
    verdict = compare(topic("limiter"), other, subject)
    assert (verdict.state, verdict.reason) == ("contradicts", "")


def test_another_stall_reason_is_a_contradiction_where_it_is_much_rarer(
    root: Path, imported: Any
) -> None:
    (subject,) = subjects(imported(root / "tests/fixtures/ncu_rules/stream.ncu-rep.xz")).values()
    message = "On average, each warp spends 9 cycles being stalled waiting {}."
    same = message.format("for a scoreboard dependency on a L1TEX (local, global) operation")
    assert compare(topic("stall"), [same], subject).state == "agrees"
    rare = message.format("for sibling warps at a CTA barrier")
    assert compare(topic("stall"), [rare], subject).state == "contradicts"


def test_a_unit_that_is_full_for_ncu_is_a_bound(root: Path, imported: Any) -> None:
    (subject,) = subjects(imported(root / "tests/fixtures/ncu_rules/stream.ncu-rep.xz")).values()
    assert compare(topic("saturated"), [""], subject).state == "agrees"
    partly = replace(subject, row={**subject.row, "roof_share": 0.75})
    near = replace(partly, metrics={name: 83.0 for name in subject.metrics})
    assert "threshold of 80.0 %" in compare(topic("saturated"), [""], near).reason
    far = replace(partly, metrics={name: 95.0 for name in subject.metrics})
    verdict = compare(topic("saturated"), [""], far)
    assert (verdict.state, verdict.reason) == ("contradicts", "")


def test_the_level_that_ncu_names_is_the_bound() -> None:
    told = "Look at the Memory Workload Analysis section to identify the L2 bottleneck."
    assert [one.bounds for one in topics_of("SOLBottleneck", told)] == [("l2",)]


def test_a_bound_far_from_ncus_own_measure_has_no_reason(root: Path, imported: Any) -> None:
    (subject,) = subjects(imported(root / "tests/fixtures/ncu_rules/stream.ncu-rep.xz")).values()
    assert subject.bound == "dram"
    assert compare(topic("memory_bound"), [""], subject).state == "agrees"
    # prof has DRAM at 80 % of its roof, so nothing near the threshold explains "latency".
    far = replace(subject, metrics={name: 12.0 for name in subject.metrics})
    verdict = compare(topic("latency_bound"), [""], far)
    assert (verdict.state, verdict.reason) == ("contradicts", "")
    near = replace(subject, metrics={name: 72.0 for name in subject.metrics})
    assert "threshold of 60.0 %" in compare(topic("latency_bound"), [""], near).reason


@pytest.mark.parametrize(
    ("message", "limiters"),
    [
        ("is limited by the number of required registers.", {"registers"}),
        (
            "is limited by the number of required registers, and the required amount of shared "
            "memory.",
            {"registers", "shared memory"},
        ),
        ("is limited by the number of warps within each block.", {"warps"}),
        ("is limited by the number of blocks that can fit on the SM.", {"blocks"}),
        ("is not impacted by any block limit.", set()),
    ],
)
def test_limiters_are_told_from_the_message(message: str, limiters: set[str]) -> None:
    assert limiters_of(message) == limiters


def test_one_message_may_be_about_two_things() -> None:
    message = (
        "This kernel's theoretical occupancy (62.5%) is limited by the number of required "
        "registers The difference between calculated theoretical (62.5%) and measured achieved "
        "occupancy (49.2%) can be the result of warp scheduling overheads."
    )
    assert [found.key for found in topics_of("Occupancy", message)] == ["limiter", "achieved"]
    assert topics_of("PMSamplingData", "Sampling interval is larger than 10%") == ()
    assert stall_of("stalled waiting for a thing that nobody knows") == ""


def test_a_message_is_shortened_by_whole_sentences() -> None:
    first = "The grid is small. "
    assert short(first + "This can " + "x" * 300 + ".") == "The grid is small."
    assert short("One. Two.") == "One. Two."


@pytest.fixture
def raw_run(root: Path, tmp_path: Path) -> RunDir:
    """A run with a raw page and the details page beside it, as prof records them."""
    run = RunDir(tmp_path / "run")
    folder = run.path / "steps/3-counters"
    folder.mkdir(parents=True)
    for name in ("counters.csv", "details.csv"):
        shutil.copyfile(root / "tests/fakes" / name, folder / name)
    steps = [StepRecord("counters", "c", StepState.DONE, "steps/3-counters")]
    recipe = {"name": "raw", "counters": {"rules": True}}
    write_manifest(run, Manifest("raw", "2026-01-01T00:00:00Z", recipe, steps=steps))
    return run


def gaps_of(run: Run) -> list[str]:
    return list(run.gaps.loc[run.gaps["table"] == "ncu_rules", "reason"])


def test_rules_come_from_the_details_page_where_the_counters_are_a_raw_page(
    raw_run: RunDir,
) -> None:
    build_tables(raw_run)
    run = load_run(raw_run.path)
    assert list(run.ncu_rules["rule"]) == ["LaunchConfiguration"] * 2
    assert set(run.ncu_rules["kernel_id"]) == set(run.kernels["kernel_id"])
    assert gaps_of(run) == []
    text = whole_report(render_report(run).folder)
    assert "### What ncu's own rules say" in text
    assert "only 4 blocks" in text


def test_a_details_page_of_other_launches_is_not_used(raw_run: RunDir) -> None:
    page = raw_run.path / "steps/3-counters/details.csv"
    page.write_text(page.read_text().replace("(4, 1, 1)", "(5, 1, 1)"))
    build_tables(raw_run)
    run = load_run(raw_run.path)
    assert run.ncu_rules.empty
    assert any("other launches" in reason for reason in gaps_of(run))


def test_a_damaged_details_page_leaves_the_counters(raw_run: RunDir) -> None:
    (raw_run.path / "steps/3-counters/details.csv").write_bytes(b"\0\1")
    build_tables(raw_run)
    run = load_run(raw_run.path)
    assert not run.metrics.empty
    assert any("details.csv gave nothing" in reason for reason in gaps_of(run))


def test_a_run_without_rules_says_nothing_of_them(make_run: Any, no_pictures: None) -> None:
    run = load_run(make_run())
    assert rules_view(run, {}) == RulesView()
    assert "own rules" not in whole_report(render_report(run).folder)


def recorded(folder: Path) -> list[str]:
    """Recorded runs for which ncu's rules were applied."""
    found = folder.glob("captures/*/steps/*-counters/details.csv*")
    return sorted({path.parents[2].name for path in found})


@pytest.mark.parametrize("name", recorded(Path(__file__).resolve().parents[2]))
def test_differences_have_reasons_in_recorded_runs(
    recorded_run_of: Callable[[str], Run], name: str
) -> None:
    check(view_of(recorded_run_of(name)))
