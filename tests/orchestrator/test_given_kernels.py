"""Kernels that a recipe names itself: a file beside it, or a list."""

import math
from pathlib import Path

import pytest

from nsight_prof.orchestrator.given_kernels import given_selection
from nsight_prof.orchestrator.recipe import load_recipe
from nsight_prof.parsers.errors import ArtifactUnreadable, RecipeError
from nsight_prof.parsers.selection import SelectedKernel, Selection, write_selection


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
