"""Joining several files of ncu: nothing is lost, nothing of two launches is mixed."""

import csv
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.join.join import join
from nsight_prof.parsers.join.ncu_files import NcuFile, added, join_files
from nsight_prof.parsers.ncu import NcuCapture, read_csv, read_ncu
from nsight_prof.parsers.run.selection import Selection

FIXTURES = Path(__file__).parent.parent / "fixtures/ncu_csv"
TIME, READ, WRITE = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"


def file(name: str, capture: NcuCapture) -> NcuFile:
    return NcuFile(name, capture)


def page(path: Path, pid: int, metrics: dict[str, float], result: int = 0) -> NcuFile:
    """A raw page with one launch of saxpy."""
    heads = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "CC", *metrics]
    units = [""] * 6 + ["ns" if metric == TIME else "byte" for metric in metrics]
    row = [str(result), pid, "saxpy", "(256, 1, 1)", "(8, 1, 1)", "9.0", *metrics.values()]
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([heads, units, row])
    return NcuFile(path.name, read_csv(path))


def values(capture: NcuCapture) -> dict[tuple[int, str], float]:
    """Known numbers by number of the result in the report and metric."""
    frame = capture.metrics.merge(capture.launches[["profile", "result"]], on="profile")
    frame = frame.dropna(subset="value")
    return dict(
        zip(zip(frame["result"], frame["metric"], strict=True), frame["value"], strict=True)
    )


BASE = read_csv(FIXTURES / "flops.base.csv.xz")


@settings(max_examples=10, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_pages_of_one_report_in_any_order_give_it_back(data: st.DataObject) -> None:
    """Launches and metrics of a real page are dealt out to files, some to several."""
    launches = BASE.launches["profile"].astype(int).tolist()
    metrics = sorted(set(BASE.metrics["metric"]))
    dealt = []
    for number in range(data.draw(st.integers(1, 4))):
        some = data.draw(st.lists(st.sampled_from(launches), unique=True, min_size=1))
        cut = data.draw(st.integers(0, len(metrics)))
        part = BASE.metrics[
            BASE.metrics["profile"].isin(some) & BASE.metrics["metric"].isin(metrics[cut:])
        ]
        rows = BASE.launches[BASE.launches["profile"].isin(some)]
        dealt.append(file(f"{number}.csv", NcuCapture(rows, part, "", [], BASE.rules, page="raw")))
    joined = join_files(dealt)
    expected: dict[tuple[int, str], float] = {}
    for one in dealt:
        expected |= values(one.capture)
    assert values(joined.capture) == expected
    assert joined.capture.launches["profile"].tolist() == list(range(len(joined.capture.launches)))
    assert len(joined.capture.launches) == len(
        set().union(*(one.capture.launches["profile"] for one in dealt))
    )
    known = joined.capture.metrics[["value", "text"]].notna().any(axis=1)
    assert joined.files["new_values"].sum() == known.sum()
    again = join_files([*dealt, dealt[0]])
    assert again.files["new_values"].iloc[-1] == 0
    assert values(again.capture) == expected


@pytest.mark.parametrize("first", [0, 1])
def test_a_report_and_its_prints_are_the_same_launches_and_the_report_counts(first: int) -> None:
    report = file("llm_block.ncu-rep", read_ncu(FIXTURES / "llm_block.ncu-rep.xz"))
    prints = [
        file(name, read_csv(FIXTURES / f"llm_block.{name}.csv.xz"))
        for name in ("auto", "demangled", "base")
    ]
    files = [*prints, report] if first else [report, *prints]
    joined = join_files(files).capture
    assert len(joined.launches) == len(report.capture.launches)
    assert values(joined).items() >= values(report.capture).items()
    ours, theirs = (one.launches["mangled_name"] for one in (joined, report.capture))
    assert ours.tolist() == theirs.tolist()


def test_the_same_result_with_another_duration_is_another_launch(tmp_path: Path) -> None:
    """In containers all programs may have one process id."""
    files = [
        page(tmp_path / "a.csv", 1, {TIME: 300, READ: 64}),
        page(tmp_path / "b.csv", 1, {TIME: 300.4, WRITE: 32}),
        page(tmp_path / "c.csv", 1, {TIME: 330, WRITE: 96}),
    ]
    joined = join_files(files)
    assert joined.files["new_launches"].tolist() == [1, 0, 1]
    held = joined.capture.metrics.groupby("profile")["metric"].apply(sorted).tolist()
    assert held == [sorted([TIME, READ, WRITE]), sorted([TIME, WRITE])]


def test_results_of_other_processes_and_numbers_are_not_mixed(tmp_path: Path) -> None:
    files = [
        page(tmp_path / "a.csv", 1, {READ: 64}),
        page(tmp_path / "b.csv", 2, {WRITE: 32}),
        page(tmp_path / "c.csv", 1, {WRITE: 32}, result=1),
    ]
    assert join_files(files).files["new_launches"].tolist() == [1, 1, 1]


def test_of_several_launches_of_a_kernel_the_fullest_is_chosen(tmp_path: Path) -> None:
    files = [
        page(tmp_path / "a.csv", 1, {TIME: 300}),
        page(tmp_path / "b.csv", 2, {TIME: 310, READ: 64}),
        page(tmp_path / "c.csv", 3, {TIME: 320, WRITE: 64}),
    ]
    joined = join_files(files)
    one = tables.empty("kernels").astype(object)
    one.loc[0, ["kernel_id", "name", "mangled_name", "grid", "block"]] = [
        *("k1", "saxpy", "saxpy", "8x1x1", "256x1x1")
    ]
    rows = join(joined.capture, one, Selection()).joins
    assert rows["chosen"].tolist() == [False, True, False]
    assert rows["launch"].tolist() == [0, 0, 0]
    assert added(joined.files) == [
        "a.csv adds 1 launch, 1 new kernel, 1 value",
        "b.csv adds 1 launch of kernels of earlier files, 2 values",
        "c.csv adds 1 launch of kernels of earlier files, 2 values",
    ]


def test_what_adds_nothing_is_named_and_many_files_are_summed_up(tmp_path: Path) -> None:
    files = [page(tmp_path / f"{n}.csv", n, {TIME: 300}) for n in range(1, 6)]
    files.append(NcuFile("again.csv", files[0].capture))
    table = join_files(files).files
    assert added(table, limit=3) == [
        "6 files of ncu add 5 launches, 1 new kernel, 5 values",
        "again.csv adds nothing that other files do not hold",
    ]


def test_gpus_of_two_kinds_are_refused(tmp_path: Path) -> None:
    files = [page(tmp_path / "a.csv", 1, {TIME: 300}), page(tmp_path / "b.csv", 2, {TIME: 300})]
    files[1].capture.launches["compute_capability"] = pd.Series(["8.0"], dtype="string")
    with pytest.raises(UsageError, match=r"different GPUs: a\.csv \(9\.0\), b\.csv \(8\.0\)"):
        join_files(files)
