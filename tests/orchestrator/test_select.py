"""Which kernels are chosen, which are left out and why."""

from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.orchestrator.plan.select import COLLECTIVE, SelectOptions, choose_kernels
from nsight_prof.parsers.errors import NoKernels, UsageError
from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.run.selection import Selection, read_selection, write_selection
from nsight_prof.parsers.tables import empty

ALL = SelectOptions(top_k=None, coverage=None)


def kernels_of(rows: list[tuple[str, str, int]]) -> pd.DataFrame:
    """(short name, category, total_ns) -> the columns that the choice reads."""
    frame = pd.DataFrame(rows, columns=["short_name", "category", "total_ns"])
    frame["kernel_id"] = [f"k{number}" for number in range(len(rows))]
    frame["name"] = "void ns::" + frame["short_name"] + "<int>(float*)"
    frame["mangled_name"] = "_Z" + frame["short_name"]
    frame["share"] = frame["total_ns"] / frame["total_ns"].sum()
    frame["dtype"] = pd.array([pd.NA] * len(rows), dtype="string")
    return frame.assign(grid="1x1x1", block="32x1x1")


FIVE = kernels_of(
    [
        ("gemm", "gemm", 500),
        ("all-reduce", "collective", 300),
        ("norm", "norm", 100),
        ("add", "elementwise", 60),
        ("mul", "elementwise", 40),
    ]
)


def names(selection: Selection) -> list[str]:
    return [kernel.short_name for kernel in selection.kernels]


def test_collectives_are_left_out_with_the_reason() -> None:
    selection = choose_kernels(FIVE, None, None, ALL)
    assert names(selection) == ["gemm", "norm", "add", "mul"]
    assert selection.left_out == [
        {"short_name": "all-reduce", "kernels": 1, "share": 0.3, "reason": COLLECTIVE}
    ]
    assert selection.share == pytest.approx(0.7)


def test_collectives_are_chosen_when_asked_for() -> None:
    options = SelectOptions(top_k=None, coverage=None, collectives=True)
    assert "all-reduce" in names(choose_kernels(FIVE, None, None, options))


def test_top_k_comes_first() -> None:
    selection = choose_kernels(FIVE, None, None, SelectOptions(top_k=2, coverage=0.99))
    assert names(selection) == ["gemm", "norm"]
    assert {row["reason"] for row in selection.left_out} == {COLLECTIVE, "beyond the top 2"}


def test_coverage_comes_first_and_counts_what_may_be_chosen() -> None:
    # gemm and norm are 600 of the 700 ns that are not a collective
    selection = choose_kernels(FIVE, None, None, SelectOptions(top_k=4, coverage=0.85))
    assert names(selection) == ["gemm", "norm"]
    assert "beyond 85% of the GPU time" in {row["reason"] for row in selection.left_out}


def test_a_tiny_coverage_still_gives_one_kernel() -> None:
    assert names(choose_kernels(FIVE, None, None, SelectOptions(coverage=0.0))) == ["gemm"]


def test_kernels_come_most_gpu_time_first() -> None:
    assert names(choose_kernels(FIVE[::-1], None, None, ALL))[0] == "gemm"


@pytest.mark.parametrize("pattern", ["^add$", r"ns::add<", "_Zadd"])
def test_a_regex_may_fit_the_short_demangled_or_mangled_name(pattern: str) -> None:
    options = SelectOptions(include=(pattern,))
    assert names(choose_kernels(FIVE, None, None, options)) == ["add"]


def test_excluded_kernels_are_listed_with_their_regex_and_share() -> None:
    selection = choose_kernels(FIVE, None, None, SelectOptions(exclude=("gemm|mul",)))
    assert "gemm" not in names(selection)
    excluded = [row for row in selection.left_out if row["reason"] == "excluded by regex gemm|mul"]
    assert [(row["short_name"], row["share"]) for row in excluded] == [("gemm", 0.5), ("mul", 0.04)]


def test_what_include_leaves_out_is_listed() -> None:
    selection = choose_kernels(FIVE, None, None, SelectOptions(include=("gemm", "norm")))
    assert "not matched by include: gemm, norm" in {row["reason"] for row in selection.left_out}


def test_a_bad_regex_is_a_usage_error_that_shows_it() -> None:
    with pytest.raises(UsageError, match=r"'add\(' is not a regular expression"):
        choose_kernels(FIVE, None, None, SelectOptions(exclude=("add(",)))


def test_filters_that_leave_nothing_say_what_stood_in_the_way() -> None:
    with pytest.raises(UsageError, match="none of the 5 kernels is left.*gemm"):
        choose_kernels(FIVE, None, None, SelectOptions(include=("no such kernel",)))


def test_an_empty_trace_has_no_kernels() -> None:
    with pytest.raises(NoKernels):
        choose_kernels(empty("kernels"), None, None, ALL)


def test_many_names_left_out_are_grouped() -> None:
    many = kernels_of([(f"kernel{number:02}", "other", 100 - number) for number in range(20)])
    selection = choose_kernels(many, None, None, SelectOptions(top_k=1, coverage=None))
    assert [row["short_name"] for row in selection.left_out][-1] == "14 other names"
    assert sum(row["kernels"] for row in selection.left_out) == 19
    left = sum(row["share"] for row in selection.left_out)
    assert left + (selection.share or 0) == pytest.approx(1, abs=1e-4)


def test_kernels_with_the_same_short_name_are_one_row_of_what_is_left_out() -> None:
    twins = kernels_of([("gemm", "gemm", 80), ("add", "other", 10), ("add", "other", 10)])
    selection = choose_kernels(twins, None, None, SelectOptions(top_k=1, coverage=None))
    assert selection.left_out == [
        {"short_name": "add", "kernels": 2, "share": 0.2, "reason": "beyond the top 1"}
    ]


STAGES = pd.DataFrame(
    [
        ("prefill", "k0", 500),
        ("prefill", "k2", 50),
        ("decode", "k3", 60),
        ("decode", "k2", 50),
        ("decode", "k1", 300),
        ("(all)", "k4", 40),
        ("", "k4", 40),
    ],
    columns=["stage", "kernel_id", "total_ns"],
)


def test_by_stage_takes_the_top_of_each_stage() -> None:
    options = SelectOptions(top_k=1, coverage=None, by_stage=True)
    selection = choose_kernels(FIVE, None, STAGES, options)
    assert names(selection) == ["gemm", "add"]
    reasons = {row["reason"] for row in selection.left_out}
    assert "beyond the top of every stage and of the program" in reasons


def test_by_stage_takes_large_kernels_that_are_in_no_stage() -> None:
    options = SelectOptions(top_k=1, coverage=None, by_stage=True)
    decode = STAGES[STAGES["stage"] == "decode"]
    assert names(choose_kernels(FIVE, None, decode, options)) == ["gemm", "add"]


@pytest.mark.parametrize("stages", [None, STAGES[5:]])
def test_by_stage_without_stages_falls_back_and_says_so(stages: pd.DataFrame | None) -> None:
    options = SelectOptions(top_k=1, coverage=None, by_stage=True)
    selection = choose_kernels(FIVE, None, stages, options)
    assert names(selection) == ["gemm"]
    assert "no stages" in selection.notes[0]


@pytest.mark.parametrize("key", ["k3", "add", "_Zadd", "^ad"])
def test_a_list_of_kernels_takes_ids_names_and_regexes_without_limits(key: str) -> None:
    options = SelectOptions(top_k=1, kernels=(key, "gemm"))
    assert names(choose_kernels(FIVE, None, None, options)) == ["gemm", "add"]


def test_a_listed_kernel_that_the_trace_lacks_is_noted() -> None:
    selection = choose_kernels(FIVE, None, None, SelectOptions(kernels=("gemm", "flash")))
    assert any("flash is in the list" in note for note in selection.notes)


def launches_of(durations: dict[str, list[int]]) -> pd.DataFrame:
    rows = [(key, i, d) for key, values in durations.items() for i, d in enumerate(values)]
    frame = pd.DataFrame(rows, columns=["kernel_id", "index", "duration_ns"])
    return frame.assign(pid=1, static_shared_bytes=0, dynamic_shared_bytes=0)


def test_the_launch_of_each_kernel_and_the_window_are_chosen() -> None:
    launches = launches_of({f"k{number}": [300] + [100] * 9 for number in range(5)})
    selection = choose_kernels(FIVE, launches, None, ALL)
    assert (selection.skip, selection.count) == (1, 1)
    assert {kernel.launch for kernel in selection.kernels} == {1}
    assert selection.warnings() == []


def test_a_kernel_profiled_far_from_its_median_is_noted_with_the_difference() -> None:
    launches = launches_of({"k0": [130, 130, 130] + [100] * 7, "k2": [100], "k3": [1], "k4": [1]})
    selection = choose_kernels(FIVE, launches, None, ALL)
    assert selection.warnings() == ["gemm (k0): profiled at launch 0, 30% longer than its median"]


def test_a_kernel_that_does_different_work_in_its_launches_is_noted() -> None:
    launches = launches_of({"k0": [500_000, 340_000, 1_180_000] * 3})
    selection = choose_kernels(FIVE, launches, None, SelectOptions(include=("gemm",)))
    assert selection.warnings() == [
        "gemm (k0): its launches take 340 to 1180 us (first to ninth decile), so the one that is "
        "profiled does not stand for all"
    ]


def test_a_kernel_without_launches_is_noted() -> None:
    selection = choose_kernels(FIVE, launches_of({"k0": [10, 10]}), None, ALL)
    assert "norm (k2): the trace has no launch of it" in selection.warnings()


def test_without_launches_the_first_is_taken_and_noted() -> None:
    selection = choose_kernels(FIVE, None, None, ALL)
    assert (selection.skip, selection.count) == (0, 1)
    assert "the first of each is profiled" in selection.notes[0]


def test_a_selection_survives_its_file(tmp_path: Path) -> None:
    selection = choose_kernels(FIVE, None, None, ALL)
    write_selection(tmp_path / "s.yaml", selection)
    assert read_selection(tmp_path / "s.yaml") == selection


@pytest.mark.parametrize(
    "name",
    [
        "nsys/GindaChen+nsys-ai/h100_2gpu_1s.sqlite",
        "nsys/hpcgroup+pipit/perlmutter-cloverleaf-cuda.sqlite",
        "nsys/brycelelbach+ncu2markdown/power_iteration__baseline.sqlite",
    ],
)
def test_in_real_traces_each_chosen_launch_lies_in_the_window(
    real_exports: Path, name: str
) -> None:
    with open_trace(real_exports / name) as trace:
        kernels, launches = trace.kernels(), trace.launches()
    selection = choose_kernels(kernels, launches, None, SelectOptions())
    assert 0 < len(selection.kernels) <= 20
    left_out = sum(row["share"] for row in selection.left_out)
    assert (selection.share or 0) + left_out == pytest.approx(1, abs=1e-4)
    noted = " ".join(selection.warnings())
    configs = ["kernel_id", "pid", "static_shared_bytes", "dynamic_shared_bytes"]
    launches["position"] = launches.groupby(configs, observed=True, dropna=False).cumcount()
    for kernel in selection.kernels:
        mine = launches[launches["kernel_id"] == kernel.kernel_id]
        chosen = mine[mine["index"] == kernel.launch].iloc[0]
        assert selection.skip <= chosen["position"] < selection.skip + selection.count
        median = float(mine["duration_ns"].astype(float).median())
        near = abs(float(chosen["duration_ns"]) / median - 1) <= 0.05
        told = (f"profiled at launch {kernel.launch}", "its launches take")
        assert near or any(f"({kernel.kernel_id}): {words}" in noted for words in told)
