import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.directory import RunDir, StepState, read_manifest, write_manifest
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Finding, Section, Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.caveats import ranges
from nsight_prof.reports.profile.method_view import environment, glossary
from nsight_prof.reports.profile.view_models import ReportView
from nsight_prof.reports.profile.views import report_view, section_anchors, section_verdicts
from tests.reports.programs import english


def write(run: Run, table: str, frame: pd.DataFrame) -> Run:
    tables.write(frame, table, run.directory.tables)
    return load_run(run.path)


def caveat_texts(view: ReportView) -> list[str]:
    return [english(caveat.text) for caveat in view.caveats if isinstance(caveat.text, Text)]


def test_kernels_are_numbered_by_their_share(view: ReportView) -> None:
    assert [row.number for row in view.kernels] == list(range(1, 13))
    shares = [row.share or 0.0 for row in view.kernels]
    assert shares == sorted(shares, reverse=True)


def test_a_kernel_row_joins_trace_and_counters(view: ReportView) -> None:
    row = view.kernels[0]
    assert (row.short_name, row.calls, row.bound_by) == ("cuBLAS GEMM 64x8 splitK", 32, "dram")
    assert row.bound_label == "DRAM bandwidth"
    assert row.dram.pct == pytest.approx(88.4)
    assert row.dram.throughput == pytest.approx(0.884 * 4.8143e12)
    assert row.dram.intensity == pytest.approx((row.flops or 0) / (row.dram.bytes or 1))
    assert row.pipe_dtype == "bf16"


def test_a_kernel_without_counters_has_empty_cells_not_zeros(view: ReportView) -> None:
    (row,) = [row for row in view.kernels if not row.profiled]
    assert row.share == pytest.approx(0.0275, abs=1e-4)
    assert row.dram.pct is None
    assert row.flops is None
    assert row.bound_by == ""


def test_missing_cells_say_why(view: ReportView) -> None:
    assert view.kernels[0].l1_hit_pct is None
    assert "TMA" in view.kernels[0].missing[0].reason


def test_durations_that_disagree_are_flagged(view: ReportView) -> None:
    flagged = [row.short_name for row in view.kernels if row.duration_flagged]
    assert flagged == ["PyTorch RMSNorm"]
    assert any("disagree by more than 10 %" in text for text in caveat_texts(view))


def test_waiting_kernels_say_for_what(view: ReportView) -> None:
    rows = {row.short_name: row for row in view.kernels}
    assert "8 blocks on 132 SMs" in Writer().value(rows["PyTorch softmax"].bound_reason)
    assert rows["cuBLAS GEMM 64x8"].bound_reason == Text("")


def test_the_table_shows_all_profiled_kernels_and_some_of_the_rest(run: Run) -> None:
    one = run.kernels.tail(1)
    more = [one.assign(kernel_id=f"x{i}", share=1e-5, total_ns=10) for i in range(40)]
    many = report_view(write(run, "kernels", pd.concat([run.kernels, *more], ignore_index=True)))
    assert len(many.kernels) == 30
    assert many.rest_kernels == 22
    assert sum(row.profiled for row in many.kernels) == 11


def test_stages_are_ranked_and_the_whole_capture_comes_last(view: ReportView) -> None:
    assert [row.stage for row in view.stages] == ["decode", "prefill", "(all)"]
    decode = view.stages[0]
    assert decode.idle_share == pytest.approx(0.31 / 1.31)
    assert decode.top[0].short_name == "cuBLAS GEMM 64x8 splitK"
    assert decode.top[0].number == 1
    assert [kernel.number for kernel in view.stages[-1].top] == [1, 2, 3, 4, 5]


def test_numbered_ranges_are_no_stages(run: Run) -> None:
    one = run.stages[run.stages["stage"] == "decode"]
    many = [one.assign(stage=f"op_id = {i}", share=0.001) for i in range(40)]
    view = report_view(write(run, "stages", pd.concat([run.stages, *many], ignore_index=True)))
    assert [row.stage for row in view.stages[-2:]] == ["(30 others)", "(all)"]
    assert len(view.stages) == 14
    assert not any(row.top for row in view.stages[:-1])
    assert "by stage" not in english(view.answer[0])
    idle = [english(row.title) for row in view.findings if row.key == "idle"]
    assert idle == ["The GPU is idle for 18 % of the time from its first to its last kernel"]


def test_rooflines_have_a_panel_for_tensor_cores_and_one_for_the_rest(view: ReportView) -> None:
    tensor, vector = view.rooflines
    assert (tensor.key, vector.key) == ("tensor", "vector")
    assert [roof.label for roof in tensor.memory_roofs] == ["DRAM", "L2", "L1"]
    assert [roof.label for roof in tensor.compute_roofs] == ["Tensor bf16"]
    assert {kernel.pipe for kernel in vector.kernels} == {"fp32"}


def test_a_point_of_the_binding_level_is_as_far_from_its_roof_as_the_kernel(
    view: ReportView,
) -> None:
    rows = {row.number: row for row in view.kernels}
    for panel in view.rooflines:
        for kernel in panel.kernels:
            shares = {point.level: point.roof_share for point in kernel.points}
            if kernel.bound_by in shares:
                assert shares[kernel.bound_by] == pytest.approx(rows[kernel.number].roof_share)
            assert all(0 < (share or 0) <= 1.0001 for share in shares.values())


def test_ridges_lie_on_both_roofs(view: ReportView) -> None:
    panel = view.rooflines[0]
    dram = panel.memory_roofs[0].value
    (ridge,) = [ridge for ridge in panel.ridges if ridge.level == "dram"]
    assert ridge.intensity * dram == pytest.approx(panel.compute_roofs[0].value)


def test_what_cannot_be_plotted_is_listed_with_the_reason(run: Run) -> None:
    frame = run.counters.copy()
    frame.loc[0, ["flops", "flop_throughput"]] = 0.0
    frame.loc[1, ["flops", "flop_throughput"]] = math.nan
    frame.loc[2, ["intensity_dram", "intensity_l2", "intensity_l1"]] = 1e9
    view = report_view(write(run, "counters", frame))
    assert {row.reason for row in view.not_plotted} == {
        "it does no floating-point operations",
        "its floating-point operations were not counted",
        "no memory level has a plausible intensity",
    }
    assert sum(len(panel.kernels) for panel in view.rooflines) == 8


def test_roofs_keep_value_source_and_clock(view: ReportView) -> None:
    sources = [(roof.label, roof.source) for roof in view.roofs]
    assert ("DRAM", "counters") in sources
    assert ("DRAM", "datasheet") in sources
    assert view.rooflines[0].memory_roofs[0].source == "counters"


def test_stall_shares_of_a_kernel_sum_to_one(view: ReportView) -> None:
    assert len(view.stalls.reasons) == len(view.stalls.meanings)
    for bar in view.stalls.bars:
        assert len(bar.shares) == len(view.stalls.reasons)
        assert sum(bar.shares) == pytest.approx(1)


def test_small_stall_reasons_are_added_up(run: Run) -> None:
    rows = [("k0000000001", f"r{i}", 1.0, (20 - i) / 155) for i in range(1, 11)]
    frame = pd.DataFrame(rows, columns=list(tables.empty("stalls").columns))
    stalls = report_view(write(run, "stalls", frame)).stalls
    assert stalls.reasons == (*(f"r{i}" for i in range(1, 8)), "other")
    assert stalls.bars[0].shares[-1] == pytest.approx((12 + 11 + 10) / 155)


def test_a_reason_shared_by_kernels_is_one_caveat(view: ReportView) -> None:
    (tma,) = [text for text in caveat_texts(view) if "TMA" in text]
    assert "L1 hits of kernels 1 to 5 and 9, because: " in tma


def test_the_method_keeps_the_commands_as_they_ran(view: ReportView) -> None:
    commands = {row.step: row.command for row in view.method.commands}
    assert commands["counters"] == ("ncu --filter-mode per-launch-config -k 'regex:^(a|b)$' python")
    assert view.method.clock_control == "none"
    assert view.method.passes == (11, 11)
    assert (view.method.profiled_kernels, view.method.total_kernels) == (11, 12)


def test_how_launches_count_to_stages_is_no_missing_table(run: Run) -> None:
    gaps = pd.DataFrame(
        {"table": ["launches"], "kernel_id": [""], "column": [""], "kind": [""],
         "reason": ["40 calls count to the stage of that step"]}
    )  # fmt: skip
    texts = caveat_texts(report_view(write(run, "gaps", gaps)))
    assert "How launches count to stages: 40 calls count to the stage of that step." in texts
    assert not any("table launches" in text for text in texts)


def test_a_slow_clock_is_a_caveat(view: ReportView) -> None:
    assert any("1.75 GHz under ncu (mean weighted" in text for text in caveat_texts(view))


def test_a_failed_step_is_a_caveat_with_its_remedy(trace_only_run: Run) -> None:
    texts = caveat_texts(report_view(trace_only_run))
    assert any("counters gave no result" in text and "run as root" in text for text in texts)


def test_a_trace_alone_is_a_whole_view(trace_only_run: Run) -> None:
    view = report_view(trace_only_run)
    assert view.tier == "trace only"
    assert not view.rooflines
    assert not view.occupancy
    assert not view.throughput
    assert view.stalls.bars == ()
    assert view.profiled_share == 0
    assert len(view.kernels) == 12
    assert "What limits the kernels is not known" in english(view.answer[-1])


def test_launches_that_did_not_join_are_listed(run: Run) -> None:
    columns = list(tables.empty("joins").columns)
    rows = [{"name": "lost", "grid": "1x1x1", "block": "32x1x1", "method": "none",
             "reason": "no kernel of the trace has this name"}]  # fmt: skip
    view = report_view(write(run, "joins", pd.DataFrame(rows, columns=columns)))
    assert [(lost.name, lost.reason) for lost in view.failed_joins] == [
        ("lost", "no kernel of the trace has this name")
    ]


def test_selection_and_what_it_left_out_are_kept(view: ReportView) -> None:
    assert view.left_out[0].name == "PyTorch copy"
    assert view.left_out[0].share == pytest.approx(0.0275, abs=1e-4)
    assert view.selection_notes == ("top 11 kernels by GPU time",)


def test_the_answer_starts_with_what_takes_the_time(view: ReportView) -> None:
    assert english(view.answer[0]).startswith("Kernels keep the GPU busy for 35 ms")
    assert len(view.answer) == 4


def test_no_sentence_shows_a_number_that_is_not_known(run: Run, trace_only_run: Run) -> None:
    for one in (run, trace_only_run):
        view = report_view(one)
        texts = (*view.answer, *(q.text for q in view.abstained), *(c.text for c in view.caveats))
        sentences = [english(text) for text in texts]
        sentences += [
            f"{english(row.title)} {english(row.verdict)} {english(row.action)}"
            for row in view.findings
        ]
        assert not [s for s in sentences if "n/a" in s or "nan" in s.split() or "{" in s]


def test_the_glossary_explains_the_terms_that_are_used() -> None:
    terms = {entry.term for entry in glossary("The SMs wait; tile padding of a GEMM.")}
    assert {"SM", "tile", "padding", "GEMM"} <= terms
    assert "DRAM" not in terms


def test_the_glossary_does_not_find_terms_inside_words() -> None:
    assert "warp" not in {entry.term for entry in glossary("warping")}


def test_a_run_that_failed_at_once_is_still_a_view(make_run: Callable[..., Path]) -> None:
    path = make_run(counters=False)
    for table in tables.tables():
        (path / "tables" / f"{table}.parquet").unlink(missing_ok=True)
    manifest = read_manifest(RunDir(path))
    manifest.steps[0].state, manifest.steps[0].error = StepState.FAILED, "nsys was killed"
    write_manifest(RunDir(path), manifest)
    view = report_view(load_run(path))
    assert view.tier == "nothing"
    assert view.kernels == ()
    assert "nsys was killed" in english(view.abstained[0].text)
    assert view.answer == (view.abstained[0].text,)


def test_caveats_are_few_and_name_kernels_by_number(run: Run) -> None:
    gaps = pd.DataFrame(
        [("counters", key, "l1_hit_pct", f"reason {i}", "") for i in range(12)
         for key in run.kernels["kernel_id"].head(3)]
        + [("counters", key, "l2_hit_pct", "123.4 % is outside of 0 to 105", "impossible")
           for key in run.kernels["kernel_id"].head(4)],
        columns=list(tables.empty("gaps").columns),
    )  # fmt: skip
    view = report_view(write(run, "gaps", gaps))
    found, rest = caveat_texts(view), view.caveats[-1].points
    assert len(found) == 8
    assert any("L2 hits of kernels 1 to 4" in text for text in found)
    assert found[-1] == "Of less weight:"
    assert all(english(part).startswith("Not ") for part in rest)
    assert len(found) + len(rest) - 1 >= 12
    assert not any("_pct" in text for text in found)


def test_a_long_reason_is_shortened_in_the_caveats(run: Run) -> None:
    gaps = pd.DataFrame(
        [("launches", "", "", "no range fits " + "(a|b)" * 80, "")],
        columns=list(tables.empty("gaps").columns),
    )
    (text,) = [t for t in caveat_texts(report_view(write(run, "gaps", gaps))) if "no range" in t]
    assert text.startswith("How launches count to stages: ")
    assert len(text) < 250


def test_kernels_of_mixed_work_are_a_caveat_at_their_row(run: Run) -> None:
    mixed = report_view(write(run, "kernels", run.kernels.assign(std_ns=1e9)))
    assert caveat_texts(mixed)[0].startswith("Launches of one kernel differ in their work")
    assert all(row.mixed for row in mixed.kernels)


def test_numbers_of_kernels_are_told_in_ranges() -> None:
    assert english(ranges([4])) == "kernel 4"
    assert english(ranges([7, 1, 2, 3, 5, 9, 8])) == "kernels 1 to 3, 5 and 7 to 9"
    assert english(ranges([1, 2, 6])) == "kernels 1, 2 and 6"


def test_rules_that_lack_evidence_are_shown_with_what_they_lack(view: ReportView) -> None:
    numbers = {row.number for row in view.kernels}
    assert view.rules_abstained
    for one in view.rules_abstained:
        assert one.rules
        assert one.reason
        assert one.kernels
        assert set(one.kernels) <= numbers


def test_a_launch_off_its_median_is_a_caveat_and_nothing_left_out(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.selection is not None
    first, *others = run.selection.kernels
    key = first.kernel_id
    off = dataclasses.replace(first, launch=3, deviation=0.08)
    mixed = dataclasses.replace(others[0], deviation=0.2, deciles_ns=(1e3, 9e3))
    told_by = dataclasses.replace(run.selection, kernels=[off, mixed, *others[1:]], notes=[])
    monkeypatch.setattr(Run, "selection", property(lambda _: told_by))
    view = report_view(run)
    assert view.selection_notes == ()
    assert len([text for text in caveat_texts(view) if "median launch" in text]) == 1
    (told,) = [text for text in caveat_texts(view) if "launch 3, 8 % longer" in text]
    number = next(row.number for row in view.kernels if row.kernel_id == key)
    assert f"{number} (launch 3" in told


def test_the_gpus_of_a_machine_that_ran_nothing_are_told(run: Run) -> None:
    two = pd.concat([run.gpus, run.gpus.assign(device=1)], ignore_index=True)
    launches = tables.empty("launches").reindex(range(3)).assign(device=0)
    write(run, "launches", launches)
    both = write(run, "gpus", two)
    names = [fact.value for fact in environment(both) if fact.label == "GPU"]
    assert len(names) == 1
    assert names[0].startswith("2 x ")
    assert names[0].endswith("1 of them used")


def test_what_is_technical_does_not_lead() -> None:
    checked = Finding("agreement", Text("clocks agree"), technical=True)
    slow, slower, other = (Finding(key, Text(key)) for key in ("slow", "slower", "other"))
    sections = (
        Section("checks", Text("Checks"), (checked,)),
        Section("stages", Text("Stages"), (checked, slow, slower, other)),
        Section("steps", Text("Steps"), (checked, other)),
    )
    assert section_verdicts(sections) == (slow.verdict, slower.verdict, other.verdict)
    assert section_anchors(sections)[:2] == ("section-stages", "section-stages")
