"""Kernels that a recipe names itself: a file beside it, or a list."""

import lzma
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.orchestrator.plan.given_kernels import given_selection, resolved
from nsight_prof.orchestrator.plan.select import SelectOptions, choose_kernels
from nsight_prof.orchestrator.recipe.read import load_recipe
from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import ArtifactUnreadable, RecipeError
from nsight_prof.parsers.nsys.kern_sum_csv import read_kern_sum
from nsight_prof.parsers.nsys.trace import open_trace
from nsight_prof.parsers.run.selection import SelectedKernel, Selection, write_selection


def test_without_given_kernels_there_is_no_selection() -> None:
    assert given_selection(load_recipe("top-kernels")) is None


def test_a_list_of_names_is_a_selection_without_shares() -> None:
    selection = given_selection(load_recipe("top-kernels", ["select.kernels=[saxpy, _Z1fi]"]))
    assert selection is not None
    assert [kernel.mangled_name for kernel in selection.kernels] == ["saxpy", "_Z1fi"]
    assert all(math.isnan(kernel.share) for kernel in selection.kernels)
    assert (selection.skip, selection.count) == (0, 1)


def test_a_file_is_found_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SelectedKernel("k1", "saxpy", "saxpy", "saxpy", "1x1x1", "32x1x1", 0.5, 7)
    write_selection(tmp_path / "chosen.yaml", Selection([kernel], skip=7))
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("extends: top-kernels\nselect: {kernels: chosen.yaml}\n", encoding="utf-8")
    monkeypatch.chdir("/")
    selection = given_selection(load_recipe(recipe))
    assert selection is not None
    assert selection.kernels == [kernel]
    assert selection.skip == 7


def test_a_missing_file_is_refused_with_the_command_that_makes_one() -> None:
    with pytest.raises(RecipeError, match=r"there is no file absent\.yaml") as caught:
        given_selection(load_recipe("top-kernels", ["select.kernels=absent.yaml"]))
    assert "prof top-kernels" in caught.value.hint


def test_a_file_that_is_no_selection_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("a: 1\n", encoding="utf-8")
    with pytest.raises(ArtifactUnreadable, match="not a kernel selection"):
        given_selection(load_recipe("top-kernels", [f"select.kernels={path}"]))


TRACE = [
    ("k1", "void f<4, float>(float*)", "_Z1fILi4EfEvPT0_", "8x1x1"),
    ("k2", "void f<4, float>(float*)", "_Z1fILi4EfEvPT0_", "9x1x1"),
    ("k3", "void f<2, float>(float*)", "_Z1fILi2EfEvPT0_", "8x1x1"),
    ("k4", "saxpy", "saxpy", "8x1x1"),
]


def traced() -> pd.DataFrame:
    frame = pd.DataFrame(TRACE, columns=["kernel_id", "name", "mangled_name", "grid"])
    for column in tables.tables()["kernels"]:
        if column.name not in frame:
            frame[column.name] = None
    frame = frame.assign(block="32x1x1", total_ns=[40, 30, 20, 10], share=[0.4, 0.3, 0.2, 0.1])
    return tables.check(frame.assign(category="other", short_name="f"), "kernels")


def named(name: str, grid: str = "", block: str = "", mangled: str = "") -> SelectedKernel:
    return SelectedKernel("", name, name, mangled or name, grid, block, float("nan"), 0)


@pytest.mark.parametrize(
    ("kernel", "ids"),
    [
        (named("void f<4, float>(float*)"), ["k1", "k2"]),
        (named("void f<(int)4, float>(float *)"), ["k1", "k2"]),
        (named("void f<4, float>(float*)", "9x1x1", "32x1x1"), ["k2"]),
        (named("void f<2, fl..."), ["k3"]),
        (named("f"), ["k1", "k2", "k3"]),
    ],
    ids=["every grid", "spelt otherwise", "one grid", "cut", "base name"],
)
def test_a_name_of_a_kernel_summary_is_that_of_the_trace(
    kernel: SelectedKernel, ids: list[str]
) -> None:
    selection = resolved(Selection([kernel]), traced(), None)
    assert [chosen.kernel_id for chosen in selection.kernels] == ids
    known = {row[0]: row[2] for row in TRACE}
    assert [chosen.mangled_name for chosen in selection.kernels] == [known[key] for key in ids]
    assert any("all of them" in note for note in selection.notes) == (len(ids) > 1)


def test_what_ncu_can_be_asked_for_stays_as_it_is_given() -> None:
    given = Selection([named("saxpy"), named("g", mangled="_Z1gv"), named("launched_elsewhere")])
    assert resolved(given, traced(), None) == given


def test_names_that_the_trace_does_not_have_are_refused_by_name() -> None:
    given = Selection([named("void f<4, float>(float*)"), named("void g<1>(int)"), named("h(int)")])
    with pytest.raises(RecipeError, match=r"no kernel of the name void g<1>\(int\); h\(int\)$"):
        resolved(given, traced(), None)


@pytest.mark.parametrize(
    "stem",
    [
        "hpcgroup+pipit__perlmutter-cloverleaf-cuda",
        "zx3xyy+assignment2-systems__result",
        "flashinfer-ai+flashinfer-bench__20_LeakyReLU_reference",
    ],
)
@pytest.mark.parametrize("form", ["kern", "kern_gb"])
def test_each_row_of_a_real_kernel_summary_is_resolved_to_its_time(
    stem: str, form: str, root: Path, real_exports: Path, tmp_path: Path
) -> None:
    packed = root / f"tests/fixtures/nsys_stats/{stem}__cuda_gpu_{form}_sum.csv.xz"
    summary = tmp_path / "sum.csv"
    summary.write_bytes(lzma.decompress(packed.read_bytes()))
    repository, name = stem.split("__")
    with open_trace(real_exports / "nsys" / repository / f"{name}.sqlite") as trace:
        kernels, launches = trace.kernels(), trace.launches()
    rows = read_kern_sum(summary)
    by_id = kernels.set_index("kernel_id")
    for row in rows[:5].to_dict("records"):
        options = SelectOptions(None, None, collectives=True, kernels=(row["kernel_id"],))
        one = choose_kernels(rows, None, None, options)
        found = resolved(one, kernels, launches)
        ids = [kernel.kernel_id for kernel in found.kernels]
        if found is not one:
            assert by_id.loc[ids, "total_ns"].sum() == row["total_ns"]
        assert set(kernel.mangled_name for kernel in found.kernels) <= set(kernels["mangled_name"])


def write(lab: Any, *kernels: SelectedKernel) -> str:
    path = lab.folder / "chosen.yaml"
    write_selection(path, Selection(list(kernels)))
    return str(path)


def test_a_run_asks_ncu_for_the_mangled_names_of_its_trace(lab: Any) -> None:
    given = write(lab, named("axpy(float, float*, float*, int)"))
    assert lab.run(lab.recipe(select__kernels=given)).exit_code == 0
    ncu = lab.calls("ncu")[0]
    assert ncu[ncu.index("--kernel-name") + 1] == "regex:^(_Z4axpyfPfS_i)$"


def test_a_run_refuses_by_name_what_its_trace_does_not_have(lab: Any) -> None:
    given = write(lab, named("void absent<1>(int)"))
    with pytest.raises(RecipeError, match=r"void absent<1>\(int\)"):
        lab.run(lab.recipe(select__kernels=given))
    assert [call[0] for call in lab.calls()] == ["nsys"]


@pytest.mark.parametrize("as_list", [False, True])
def test_without_a_trace_demangled_names_are_refused_before_the_program_runs(
    lab: Any, as_list: bool
) -> None:
    name = "void f<1>(int)"
    given = [name] if as_list else write(lab, named(name))
    with pytest.raises(RecipeError, match=r"ncu is asked by mangled names.*void f<1>\(int\)"):
        lab.run(lab.recipe(select__kernels=given, trace__enabled=False))
    assert not lab.calls()
