"""The summary for who decides: one measure of time, lines that add up, no jargon."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.cells import number, records
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import (
    Finding,
    Link,
    Number,
    OpenQuestion,
    Section,
    Strong,
    Text,
    Value,
)
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.view_models import ReportView
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.render.report import render_template
from nsight_prof.reports.summary import first_screen
from nsight_prof.reports.summary.models import SummaryView
from nsight_prof.reports.summary.plain_words import WAITS
from nsight_prof.reports.summary.savings import savings
from nsight_prof.reports.summary.summary import summarise
from nsight_prof.reports.summary.tables import actions
from nsight_prof.reports.summary.time_parts import limit_of


def write(run: Run, table: str, frame: pd.DataFrame) -> Run:
    tables.write(frame, table, run.directory.tables)
    return load_run(run.path)


TENSOR = ("tensor", "bf16")


def page_of(summary: SummaryView) -> str:
    return render_template("stakeholder_summary.md.j2", {"view": summary})


def words(*values: Value | None) -> str:
    return " ".join(Writer().value(value) for value in values if value is not None)


def adds_up(summary: SummaryView) -> None:
    assert summary.total is not None
    for column in ("time_ns", "share"):
        parts = [getattr(row, column) for row in summary.rows]
        assert sum(parts) == pytest.approx(getattr(summary.total, column)), column
    gains = [row.gain_ns for row in summary.rows if row.gain_ns is not None]
    assert sum(gains) == pytest.approx(summary.total.gain_ns or 0.0)
    for row in (*summary.rows, summary.total):
        assert row.gain_ns is None or row.gain_ns <= (row.time_ns or 0.0)
        assert row.gain is None or 0 <= row.gain <= (row.share or 0.0) <= 1


def test_lines_add_up_to_the_whole_run(run: Run, view: ReportView) -> None:
    summary = summarise(view)
    adds_up(summary)
    assert summary.basis == "wall"
    (whole,) = run.stages.loc[run.stages["stage"] == "(all)", "wall_ns"]
    assert summary.total is not None
    assert summary.total.time_ns == pytest.approx(whole)
    assert [row.kind for row in summary.rows].count("idle") == 1
    assert summary.rows[-1].kind == "other"
    times = [row.time_ns or 0.0 for row in summary.rows[:-1]]
    assert times == sorted(times, reverse=True)
    assert len(summary.rows) <= 6


def test_shares_and_gains_are_of_the_wall_time_not_of_the_gpu_time(
    run: Run, view: ReportView
) -> None:
    (row,) = [r for r in summarise(view).rows if words(r.limited_by) == "speed of the matrix units"]
    kernels = [k for k in view.kernels if k.number in row.kernels]
    (whole,) = run.stages.loc[run.stages["stage"] == "(all)", "wall_ns"]
    # No launches overlap in this run: the kernels take what they take.
    assert row.time_ns == pytest.approx(sum(k.total_ns or 0.0 for k in kernels))
    assert row.share == pytest.approx(sum(k.total_ns or 0.0 for k in kernels) / whole)
    assert row.gain_ns == row.gain == 0  # the only one of its kind: nothing came nearer


def test_actions_save_no_more_than_the_total(view: ReportView) -> None:
    summary = summarise(view)
    saved = [action.saves.value or 0.0 for action in summary.first.actions]
    assert saved == sorted(saved, reverse=True)
    assert summary.total is not None
    assert sum(saved) <= (summary.total.gain_ns or 0.0) * (1 + 1e-9)
    for action in summary.first.actions:
        assert (action.estimate.value or 0.0) <= (action.upper.value or 0.0)


def times_of(value: Value | None) -> tuple[float, float]:
    """Return what a cell of what to do says in ms: what was seen to be reached, and the most."""
    seen, bound, most = re.fullmatch(
        r"(?:([\d.]+) ms \([^)]+\))?(?:; )?(at most ([\d.]+) ms \([^)]+\))?", words(value)
    ).groups()  # type: ignore[union-attr]
    return float(seen or 0.0), float(most if bound else seen)


@pytest.mark.parametrize("name", ["h200-vllm-kernels", "h200-top-kernels"])
def test_what_was_seen_to_be_reached_and_bounds_add_up_apart(
    name: str, recorded_run_of: Callable[[str], Run]
) -> None:
    summary = summarise(report_view(recorded_run_of(name)))
    first = summary.first
    for count in (1, 3, 5):
        table = actions(first, count)
        assert table.footer is not None
        cells = [times_of(cells[2]) for cells in table.cells]
        in_all = table.footer.cells[2]
        assert isinstance(in_all, Strong)
        for sums, total in zip(zip(*cells, strict=True), times_of(in_all.value), strict=True):
            assert sum(sums) == pytest.approx(total)
        # One answer on both pages: the table of where the time goes has the same bound.
        assert summary.total is not None
        assert times_of(in_all.value)[1] == pytest.approx((summary.total.gain_ns or 0) / 1e6, 0.01)
        *_, after, links = table.cells[-1]
        whole, most = first.total.value or 0.0, first.upper.value or 0.0
        assert float(words(after).split()[0]) == pytest.approx((whole - most) / 1e6, abs=0.11)
        links = words(links).rstrip(", …").split(", ")
        listed = {str(rank) for action in first.actions[:count] for rank, _ in action.findings}
        assert links
        assert not listed & set(links)


def test_steps_of_an_engine_are_held_to_their_floors(
    recorded_run_of: Callable[[str], Run],
) -> None:
    run = recorded_run_of("h200-vllm-kernels")
    view = report_view(run)
    first = summarise(view).first
    assert words(first.over_floors).startswith(
        "Steps take 1.6x (decode, 5.12 ms) and 1.3x (prefill, 167 ms) their floor"
    )
    total, *parts = (part.time_ns for part in first.floor_parts)
    assert sum(parts) == pytest.approx(total)
    assert parts[0] == pytest.approx(first.upper.value)
    # By hand: 31 steps read 14.14 GB of weights and 0.48 GB of cache, and one computes 108.4 TFLOP.
    roofs = {
        (row["level_or_pipe"], row["kind"]): number(row["value"])
        for row in records(run.measured_roofs)
        if row["level_or_pipe"] == "dram" or (row["level_or_pipe"], row["dtype"]) == TENSOR
    }
    floors = 31 * (14.14e9 + 0.48e9) / roofs["dram", "read"] + 1.084e14 / roofs["tensor", "burst"]
    steps = run.engine_steps
    times = steps.loc[steps["kind"] != "empty", ["busy_ns", "idle_ns"]].sum().sum()
    assert total == pytest.approx(times - 1e9 * floors, rel=0.03)
    power = 1.084e14 / roofs["tensor", "steady"] - 1.084e14 / roofs["tensor", "burst"]
    assert parts[2] == pytest.approx(1e9 * power, rel=0.02)
    assert summarise(replace(view, sections=())).first.over_floors is None


@pytest.mark.parametrize(("counted", "sure"), [(0.95, "high"), (0.5, "low"), (None, "low")])
def test_that_nothing_is_to_be_done_is_as_sure_as_time_was_counted(
    view: ReportView, counted: float | None, sure: str
) -> None:
    first = summarise(replace(view, findings=(), profiled_share=counted)).first
    assert not first.actions
    part = "0 %" if counted is None else f"{100 * counted:.0f} %"
    assert words(first.line).endswith(f"how sure: {sure} (counters cover {part} of the GPU time)")


def test_no_level_of_how_sure_stands_without_a_reason(view: ReportView) -> None:
    first = summarise(view).first
    assert first.actions
    for *_, sure, _, _, _ in actions(first, len(first.actions)).cells[:-1]:
        assert re.fullmatch(r"(high|medium|low): .{10,}", words(sure))
    assert re.search(r"how sure: (high|medium|low) \(.{10,}\)$", words(first.line))


@pytest.mark.parametrize("name", ["h200-vllm-pages", "h200-top-kernels"])
def test_a_step_saves_no_more_than_what_it_acts_on(
    name: str, recorded_run_of: Callable[[str], Run]
) -> None:
    first = summarise(report_view(recorded_run_of(name))).first
    assert first.actions
    for action in first.actions:
        # What a step acts on, where none of its kernels is on the page: what it saves by itself.
        alone = action.alone.value if action.alone else None
        most = (action.share or 0.0) * (first.total.value or 0.0) or alone or 0.0
        # CUDA's copies inside a GPU are part of the finding's time, and not of the kernels' time.
        assert 0 < (action.saves.value or 0.0) <= 1.002 * most


def test_where_no_step_saves_much_the_verdict_names_what_the_largest_is_about(
    view: ReportView, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [finding for finding in view.findings if finding.key == "kernel"]
    of_kernels = replace(view, findings=tuple(found))
    monkeypatch.setattr(first_screen, "LARGE", 0.12)
    first = summarise(of_kernels).first
    told = words(first.verdict)
    assert " of the run (limit: " in told
    assert re.search(r"up to [\d.]+ % of the run can be saved there, .*[\d.]+ %\)? in all\.$", told)
    levels = ("high", "medium", "low")
    least = max((action.sure for action in first.actions), key=levels.index)
    assert f"how sure: {least} (" in words(first.line)


def test_a_step_leads_to_all_its_findings(view: ReportView) -> None:
    first = summarise(view).first
    ranks = [rank for action in first.actions for rank, _ in action.findings]
    assert len(ranks) == len(set(ranks)) > len(first.actions)
    page = page_of(summarise(view))
    shown = [rank for action in first.actions[:3] for rank, _ in action.findings]
    assert all(f"](#finding-{rank})" in page for rank in shown)


def test_what_two_findings_say_of_one_kernel_counts_once(view: ReportView) -> None:
    kernel = view.kernels[0]
    one = replace(
        view.findings[-1],
        key="kernel",
        rule="tail",
        rank=1,
        kernel_ids=(kernel.kernel_id,),
        gain_ns=0.4 * (kernel.total_ns or 0.0),
        gain_of="GPU time",
        advice=Text("a"),
        offers=None,
    )
    both = (one, replace(one, rank=2, advice=Text("b"), gain_ns=0.5 * (kernel.total_ns or 0.0)))
    bare = replace(view, kernels=(replace(kernel, gain_ns=None, bound_cause="tail"),))
    saved = savings(replace(bare, findings=both))
    assert saved.kernels[kernel.number] == pytest.approx(
        view.run_time.of_kernels(0.5 * (kernel.total_ns or 0.0))
    )
    assert len(saved.steps) == 1


def test_what_the_host_leaves_of_any_gain_counts_once(view: ReportView) -> None:
    kernels = [k for k in view.kernels if (k.total_ns or 0.0) > 4e4][:2]
    shared = [
        replace(
            view.findings[-1], key="kernel", rule="tail", rank=rank, advice=Text("a"), offers=None,
            kernel_ids=(kernel.kernel_id,), gain_ns=2e4, most_ns=3e4, gain_of="GPU time",
            shared_ns=2e4,
        )
        for rank, kernel in enumerate(kernels, 1)
    ]  # fmt: skip
    bare = tuple(replace(kernel, gain_ns=None, bound_cause="tail") for kernel in kernels)
    (step,) = savings(replace(view, kernels=bare, findings=tuple(shared))).steps
    assert step.estimate_ns == pytest.approx(view.run_time.of_kernels(2e4))
    assert step.most_ns == pytest.approx(view.run_time.of_kernels(6e4))


def test_no_page_mixes_two_measures_of_time(view: ReportView) -> None:
    page = page_of(summarise(view)).split('<a id="more-terms">')[0]
    assert "GPU time" not in page.replace(view.question, "")
    assert "Share of the run" in page


def test_every_per_cent_saved_says_of_what(view: ReportView) -> None:
    page = page_of(summarise(view))
    assert "Saves (of the run)" in page
    assert "(% of the run) |" in page


def test_words_of_the_question_are_explained(view: ReportView) -> None:
    asked = replace(view, question="What bounds the kernels?")
    terms = {entry.term for entry in summarise(asked).terms}
    assert {"bounds", "kernel"} <= terms
    # What "bound" is to who tunes kernels speaks of roofs.
    assert "bound" not in terms


def test_a_summary_is_short(view: ReportView) -> None:
    summary = summarise(view)
    assert len(summary.first.actions) <= 5
    assert len(summary.reservations) <= 4
    assert words(summary.machine) == "NVIDIA H200 (GH100)"


def test_a_summary_has_no_jargon_of_kernels(view: ReportView) -> None:
    summary = summarise(view)
    texts = (*summary.answer, *summary.hints, *summary.reservations, summary.first.verdict)
    rows = (value for row in summary.rows for value in (row.what, row.limited_by))
    found = words(*texts, *rows, *(action.do for action in summary.first.actions))
    jargon = (
        *("tile", "cluster", "stages", "occupancy", "warp", "SM", "ncu", "nsys", "_pct", "DRAM"),
        *("kernel", "kernels", "latency", "roof", "wall time", "launches"),
    )
    assert not [word for word in jargon if re.search(rf"\b{word}\b", found)]
    assert not re.search(r"\bk[0-9a-f]{10}\b", found)


def test_words_that_an_explanation_uses_are_explained_too(view: ReportView) -> None:
    terms = {entry.term for entry in summarise(view).terms}
    # "decode" is explained as one token per request in each step.
    assert {"decode", "token", "run", "GPU"} <= terms
    assert "latency bound" not in terms


def test_a_kernel_of_the_users_own_keeps_its_name(run: Run) -> None:
    own = run.kernels.assign(library="other", short_name="my_kernel")
    summary = summarise(report_view(write(run, "kernels", own)))
    names = {words(row.what) for row in summary.rows if row.kind == "kernels"}
    assert names == {"my_kernel"}
    assert "my_kernel" in words(*summary.answer)


def test_nearness_in_a_summary_is_weighted_by_time(view: ReportView) -> None:
    first = summarise(view).rows[0]
    merged = [row for row in view.kernels if row.number in first.kernels]
    assert len(merged) > 1
    shares = [(row.share or 0.0, row.roof_share or 0.0) for row in merged]
    expected = sum(s * r for s, r in shares) / sum(s for s, _ in shares)
    assert first.reached == pytest.approx(expected)


def test_a_summary_without_counters_says_so(trace_only_run: Run) -> None:
    summary = summarise(report_view(trace_only_run))
    adds_up(summary)
    rows = [row for row in summary.rows if row.kind == "kernels"]
    assert {words(row.limited_by) for row in rows} == {"not measured"}
    # Only findings about the whole program promise something here.
    assert None in {row.gain for row in rows}
    assert "not known" in page_of(summary)
    assert "not known" in words(summary.reservations[0])
    assert "was not measured" in words(*summary.answer)
    # What a finding about all kernels leaves for one of them is no measure of it.
    small = tuple(replace(row, gain=0.001, gain_ns=1e4) for row in rows)
    assert not any(row.measured for row in small)
    assert "hardly anything" not in page_of(replace(summary, rows=small))


def test_without_a_wall_time_all_is_of_the_gpu_time(run: Run) -> None:
    summary = summarise(report_view(write(run, "stages", tables.empty("stages"))))
    adds_up(summary)
    assert summary.basis == "gpu"
    assert "idle" not in {row.kind for row in summary.rows}
    page = page_of(summary)
    assert "Share of GPU time" in page
    assert "the run" not in page.split('<a id="more-terms">')[0].replace(summary.question, "")


def test_without_any_time_there_are_limits_and_no_shares(run: Run) -> None:
    alone = write(write(run, "kernels", run.kernels), "stages", tables.empty("stages"))
    unknown = {c: None for c in ("calls", "total_ns", "share", "mean_ns", "median_ns")}
    summary = summarise(report_view(write(alone, "kernels", run.kernels.assign(**unknown))))
    assert summary.total is None
    assert {row.share for row in summary.rows} == {None}
    page = page_of(summary)
    assert "speed of the GPU's memory" in page
    assert "n/a" not in page.split('<a id="more-terms">')[0]


def test_a_machine_says_how_many_of_its_gpus_worked(view: ReportView) -> None:
    time = replace(view.run_time, gpus=1, present=2)
    machine = summarise(replace(view, run_time=time)).machine
    assert words(machine) == "NVIDIA H200 (GH100), 1 of the 2 in the machine"
    both = summarise(replace(view, run_time=replace(time, gpus=2)))
    assert words(both.machine) == "2 x NVIDIA H200 (GH100)"
    assert "times are means over 2 GPUs" in words(both.first.line)


def test_no_step_promises_more_than_the_whole_run(view: ReportView) -> None:
    huge = tuple(
        replace(finding, gain_ns=1e15) if finding.gain_ns == finding.gain_ns else finding
        for finding in view.findings
    )
    summary = summarise(replace(view, findings=huge))
    gains = [action.gain.value or 0.0 for action in summary.first.actions]
    assert gains
    assert sum(gains) <= 1 + 1e-9
    adds_up(summary)


def test_a_larger_batch_is_a_hint_and_no_conclusion(view: ReportView) -> None:
    found = (
        Finding("steps", Text("Generating takes 5 ms.")),
        Finding("larger_batch", Text("It gives more."), action=Text("Use batch 64.")),
    )
    section = Section("stages", Text("Stages"), found)
    summary = summarise(replace(view, sections=(section,)))
    assert summary.hints == (Text("Use batch 64."),)
    assert summary.learned == (Text("Generating takes 5 ms."),)


def test_every_cause_of_idle_time_has_its_words() -> None:
    from nsight_prof.parsers.nsys.stages import idle_gaps

    assert set(WAITS) == set(idle_gaps._CAUSES)


def test_a_run_of_counters_alone_begins_with_what_limits_its_longest_launch(
    view: ReportView,
) -> None:
    untimed = replace(view.run_time, whole_ns=None)
    verdict = words(summarise(replace(view, run_time=untimed)).first.verdict)
    longest = max(view.kernels, key=lambda kernel: kernel.ncu_duration_ns or 0.0)
    assert verdict.startswith("The longest profiled launch is ")
    assert words(limit_of(longest)) in verdict
    unknown = tuple(replace(kernel, bound_by="") for kernel in view.kernels)
    verdict = words(summarise(replace(view, run_time=untimed, kernels=unknown)).first.verdict)
    assert "longest profiled" not in verdict


def test_idle_time_is_told_beside_what_of_it_is_saved(view: ReportView) -> None:
    (idle,) = [f for f in view.findings if f.key == "idle"][:1]
    long = replace(view.run_time, idle_ns=0.8 * (view.run_time.whole_ns or 0.0))
    for part in (0.2, 0.7):
        gain = part * (view.run_time.whole_ns or 0.0)
        alone = (replace(idle, rank=1, gain_ns=gain, gain_program=part, gain_of="wall time"),)
        verdict = words(summarise(replace(view, run_time=long, findings=alone)).first.verdict)
        assert verdict.startswith("The GPU is idle for 80 % of the run: ")
        (said,) = re.findall(r"save up to (\d+) % of the run", verdict)
        assert int(said) >= 100 * part


def test_a_run_that_is_mostly_its_start_is_not_called_near_the_limits(view: ReportView) -> None:
    time = view.run_time
    assert time.whole_ns
    assert time.idle_ns is not None
    added = 200 * time.whole_ns
    whole_ns, idle_ns = time.whole_ns + added, time.idle_ns + added
    long = replace(time, whole_ns=whole_ns, idle_ns=idle_ns, waits="host")
    (idle,) = [f for f in view.findings if f.key == "idle"][:1]
    rest = tuple(f for f in view.findings if f.key != "idle")
    at_start = replace(idle.evidence[0], value=Number(added, "ns"))
    once = replace(
        idle, key="idle_outside", rule="first_use", gain_ns=math.nan, evidence=(at_start,)
    )
    for found, said in (
        (once, "kernels are loaded at start-up, once"),
        (replace(once, rule="host_bound"), words(WAITS["host"])),
    ):
        summary = summarise(replace(view, run_time=long, findings=(found, *rest)))
        works = sum(row.gain_ns or 0.0 for row in summary.rows if row.kind != "idle")
        gain = works / (time.whole_ns - time.idle_ns)
        assert said in words(summary.first.verdict)
        also = summary.first.verdict.values["rest"]
        assert isinstance(also, Text)
        told = also.values["gain"]
        assert isinstance(told, Link)
        assert isinstance(told.label, Number)
        assert told.label.value == pytest.approx(gain)


def test_an_open_question_that_only_engineers_ask_is_not_in_the_summary(view: ReportView) -> None:
    asked = (OpenQuestion(Text("A?")), OpenQuestion(Text("B?"), Text("B, plainly?")))
    assert summarise(replace(view, abstained=asked)).reservations[0] == Text("B, plainly?")


def test_a_row_of_nothing_to_save_says_so(view: ReportView, make_run: Callable[..., Path]) -> None:
    time = view.run_time
    queued = replace(time, queued_ns=time.idle_ns, waits="queued")
    rest = tuple(f for f in view.findings if f.key != "idle")
    summary = summarise(replace(view, run_time=queued, findings=rest))
    (line,) = [text for text in page_of(summary).splitlines() if "nothing to do |" in text]
    assert line.endswith("| hardly anything |")


def test_idle_time_saves_nothing_here_that_its_finding_does_not_save(view: ReportView) -> None:
    first = replace(view.findings[0], key="idle_outside", gain_ns=math.nan, gain_of="wall time")
    rest = tuple(f for f in view.findings if f.key != "idle")
    time = replace(view.run_time, queued_ns=0.0)
    idle = {
        found: next(row for row in summarise(shown).rows if row.kind == "idle").gain_ns
        for found, shown in {
            "none": replace(view, findings=rest, run_time=time),
            "without a gain": replace(view, findings=(first, *rest), run_time=time),
        }.items()
    }
    assert idle == {"none": time.idle_ns, "without a gain": None}


def test_a_gpu_that_no_file_names_is_called_that(view: ReportView) -> None:
    nameless = replace(view, run_time=replace(view.run_time, gpu=""))
    assert "Measured on a GPU that its files do not name. The evidence" in page_of(
        summarise(nameless)
    )


def test_a_kernel_of_the_program_is_not_given_the_time_of_all_that_do_the_like(
    recorded_run_of: Callable[[str], Run],
) -> None:
    run = recorded_run_of("stories/llmc")
    rows = run.kernels[run.kernels["short_name"] == "matmul_forward_kernel4"]
    (whole,) = run.stages.loc[run.stages["stage"] == "(all)", "wall_ns"]
    said = words(summarise(report_view(run)).first.verdict)
    part = 100 * rows["total_ns"].sum() / whole
    assert f"matmul_forward_kernel4 takes {part:.0f} % of the run" in said.lower()


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("compare/eager-2", "prof run torch-script --set counters.enabled=true --set 'target={"),
        ("h200-data-parallel", "torchrun --nproc-per-node 2 --no-python prof rank RUN --counters"),
        ("stories/timm", "prof run timm --resume RUN"),
        ("h100-sglang-kernels", "prof run llm-kernels"),
        ("h200-top-kernels", ""),
    ],
)
def test_a_run_without_counters_says_how_to_measure_what_limits_it(
    recorded_run_of: Callable[[str], Run], name: str, command: str
) -> None:
    summary = summarise(report_view(recorded_run_of(name)))
    assert (summary.first.to_measure is not None) == bool(command)
    assert command in page_of(summary)
