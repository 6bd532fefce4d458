"""Results of ncu find their kernel by key, or say why not; nothing is guessed."""

from collections.abc import Mapping
from dataclasses import fields

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.join.join import Joined, join, plain_name
from nsight_prof.parsers.ncu.capture import Gatherer, Launch, NcuCapture
from nsight_prof.parsers.run.selection import SelectedKernel, Selection


def capture(*launches: Mapping[str, object]) -> NcuCapture:
    gatherer = Gatherer("csv")
    for profile, facts in enumerate(launches):
        known = {"grid": "8x1x1", "block": "256x1x1", **facts}
        gatherer.launches.append(Launch(profile=profile, **known))  # type: ignore[arg-type]
        gatherer.add(profile, "gpu__time_duration.sum", 100.0 + profile, "ns")
    return gatherer.capture("2025.3.1.0")


def kernels(*rows: dict[str, str]) -> pd.DataFrame:
    frame = pd.DataFrame([{"grid": "8x1x1", "block": "256x1x1"} | row for row in rows])
    for column in tables.tables()["kernels"]:
        if column.name not in frame:
            frame[column.name] = None
    return tables.check(frame, "kernels")


def selection(kernel_id: str, launch: int, skip: int) -> Selection:
    text = {f.name: "" for f in fields(SelectedKernel) if f.type == "str"}
    facts = text | {"kernel_id": kernel_id, "launch": launch, "share": 1.0}
    return Selection([SelectedKernel(**facts)], skip=skip)  # type: ignore[arg-type]


def ids(joined: Joined) -> list[str | None]:
    return [None if pd.isna(k) else str(k) for k in joined.joins["kernel_id"]]


def test_the_mangled_name_with_grid_and_block_is_the_key() -> None:
    joined = join(
        capture(
            {"name": "f(int)", "mangled_name": "_Z1fi"},
            {"name": "f(int)", "mangled_name": "_Z1fi", "grid": "9x1x1"},
        ),
        kernels(
            {"kernel_id": "ka", "name": "f(int)", "mangled_name": "_Z1fi"},
            {"kernel_id": "kb", "name": "f(int)", "mangled_name": "_Z1fi", "grid": "9x1x1"},
        ),
        Selection(),
    )
    assert ids(joined) == ["ka", "kb"]
    assert joined.joins["method"].tolist() == ["mangled", "mangled"]
    assert joined.metrics["kernel_id"].tolist() == ["ka", "kb"]
    assert joined.metrics["value"].tolist() == [100.0, 101.0]


def test_another_grid_is_no_match_and_the_reason_names_the_known_ones() -> None:
    joined = join(
        capture({"name": "f(int)", "mangled_name": "_Z1fi", "grid": "7x1x1"}),
        kernels({"kernel_id": "ka", "name": "f(int)", "mangled_name": "_Z1fi"}),
        Selection(),
    )
    assert ids(joined) == [None]
    assert "8x1x1 of 256x1x1" in joined.joins["reason"][0]
    assert joined.metrics["kernel_id"].isna().all()
    assert joined.metrics["launch"].isna().all()


def test_a_known_mangled_name_never_joins_by_its_demangled_one() -> None:
    joined = join(
        capture({"name": "f(int)", "mangled_name": "_Z1fi"}),
        kernels(
            {"kernel_id": "ka", "name": "f(int)", "mangled_name": "_ZN1a1fEi"},
            {"kernel_id": "kb", "name": "g(int)", "mangled_name": "g(int)"},
        ),
        Selection(),
    )
    assert ids(joined) == [None]


NSYS = "void at::native::fill<4, at::native::Op<float>, false, {lambda(int)#2}>(int, float*)"
NCU = "void at::fill<(int)4, at::native::Op<float>, (bool)0, [lambda(int) (instance 2)]>(T1, T2 *)"


def test_names_of_the_two_tools_join_once_their_spelling_is_undone() -> None:
    assert plain_name(NSYS) == plain_name(NCU) == "fill<4,Op<float>,0,lambda2>"
    joined = join(
        capture({"name": NCU}),
        kernels({"kernel_id": "ka", "name": NSYS, "mangled_name": "_Z4fill"}),
        Selection(),
    )
    assert ids(joined) == ["ka"]
    assert joined.joins["method"][0] == "name"


@pytest.mark.parametrize("side", ["trace", "capture"])
def test_a_name_that_is_not_unique_on_either_side_does_not_join(side: str) -> None:
    twins = [NSYS, NSYS.replace("Op", "other::Op")]
    ncu = [NCU, NCU.replace("Op", "other::Op")]
    joined = join(
        capture(*[{"name": n} for n in (ncu if side == "capture" else ncu[:1])]),
        kernels(
            *[
                {"kernel_id": f"k{i}", "name": n, "mangled_name": f"_Z{i}"}
                for i, n in enumerate(twins if side == "trace" else twins[:1])
            ]
        ),
        Selection(),
    )
    assert set(ids(joined)) == {None}
    assert "more than one kernel" in joined.joins["reason"][0]


def test_a_result_without_grid_and_block_does_not_join() -> None:
    joined = join(
        capture({"name": "f(int)", "grid": None, "block": None}),
        kernels({"kernel_id": "ka", "name": "f(int)", "mangled_name": "_Z1fi"}),
        Selection(),
    )
    assert joined.joins["reason"].tolist() == ["the result has no grid and block"]


def test_a_result_of_a_whole_graph_does_not_join() -> None:
    joined = join(
        capture({"name": "f(int)", "workload": "graph"}),
        kernels({"kernel_id": "ka", "name": "f(int)", "mangled_name": "f"}),
        Selection(),
    )
    assert "whole graph" in joined.joins["reason"][0]


def test_launches_are_counted_from_the_skip_and_the_nearest_to_the_wanted_one_is_chosen() -> None:
    three = [{"name": "f", "mangled_name": "f", "pid": 1}] * 3
    frame = kernels({"kernel_id": "ka", "name": "f", "mangled_name": "f"})
    joined = join(capture(*three), frame, selection("ka", launch=11, skip=10))
    assert joined.joins["launch"].tolist() == [10, 11, 12]
    assert joined.joins["chosen"].tolist() == [False, True, False]
    assert joined.metrics["launch"].tolist() == [10, 11, 12]
    unselected = join(capture(*three), frame, Selection())
    assert unselected.joins["chosen"].tolist() == [True, False, False]


def test_launches_are_counted_in_each_process() -> None:
    results = [{"name": "f", "mangled_name": "f", "pid": pid} for pid in (1, 2, 1, 2)]
    frame = kernels({"kernel_id": "ka", "name": "f", "mangled_name": "f"})
    joined = join(capture(*results), frame, Selection(skip=3))
    assert joined.joins["launch"].tolist() == [3, 3, 4, 4]
    assert joined.joins["chosen"].sum() == 1


def test_a_selected_kernel_that_was_not_profiled_gets_a_row_with_a_reason() -> None:
    joined = join(
        capture({"name": "f", "mangled_name": "f"}),
        kernels({"kernel_id": "ka", "name": "f", "mangled_name": "f"}),
        selection("kz", launch=4, skip=0),
    )
    assert ids(joined) == ["ka", "kz"]
    last = joined.joins.iloc[-1]
    assert pd.isna(last["profile"])
    assert last["launch"] == 4
    assert not last["chosen"]
    assert "no launch" in last["reason"]


def test_without_a_trace_the_kernels_of_the_selection_are_joined_to() -> None:
    wanted = selection("ka", launch=0, skip=0)
    wanted.kernels[0].name = wanted.kernels[0].mangled_name = "f"
    wanted.kernels[0].grid, wanted.kernels[0].block = "8x1x1", "256x1x1"
    joined = join(capture({"name": "f", "mangled_name": "f"}), tables.empty("kernels"), wanted)
    assert ids(joined) == ["ka"]


def test_results_without_grid_join_to_their_own_kernels_only() -> None:
    results = capture(
        {"name": "f", "grid": "", "block": ""}, {"name": "f", "grid": "", "block": ""}
    )
    frame = kernels({"kernel_id": "ka", "name": "f", "mangled_name": "f", "grid": "", "block": ""})
    assert ids(join(results, frame, Selection(), untraced=True)) == ["ka", "ka"]
    refused = join(results, frame, Selection())
    assert ids(refused) == [None, None]
    assert "no grid and block" in refused.joins["reason"][0]


def test_an_old_trace_without_mangled_names_joins_by_the_demangled_one() -> None:
    joined = join(
        capture({"name": "f(int)", "mangled_name": "_Z1fi"}),
        kernels({"kernel_id": "ka", "name": "f(int)", "mangled_name": "f(int)"}),
        Selection(),
    )
    assert ids(joined) == ["ka"]
    assert joined.joins["method"][0] == "name"


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", None),
        ("void gemv<int, (bool)1>(gemv::Params<T1>)", "gemv<int,1>"),
        ("void gemv<int, true>(gemv::Params<int>)", "gemv<int,1>"),
        ("void (anonymous namespace)::k<2ul>(float*)", "k<2>"),
        ("void <unnamed>::k<(unsigned long)2>(float *)", "k<2>"),
        ("unnamed>::k<(unsigned long)2>(float *)", "k<2>"),
        ("void f<g(int), (a > b)>(int)", "f<g(int),(a>b)>"),
    ],
)
def test_the_plain_name_keeps_what_tells_kernels_apart(name: str, plain: str | None) -> None:
    assert plain_name(name) == (plain or name)


@pytest.mark.parametrize(
    ("nsys", "ncu"),
    [
        ("f<(cutlass::FloatRoundStyle)2, float>(T1)", "f<2, float>(float)"),
        ("f<(cute::GMMA::Major)1, (N::Mode<int>)-1>(T1)", "f<1, -1>(int)"),
    ],
)
def test_a_cast_to_any_type_is_undone(nsys: str, ncu: str) -> None:
    assert plain_name(nsys) == plain_name(ncu)
