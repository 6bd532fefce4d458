"""Templates and languages of a report: in a recipe, and as options of commands."""

from pathlib import Path

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.recipe.read import load_recipe
from nsight_prof.orchestrator.report import reporting
from nsight_prof.parsers.errors import RecipeError
from nsight_prof.parsers.run.directory import Manifest, RunDir, write_manifest
from nsight_prof.reports.render.style import Style


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "report.md.j2").write_text("x")
    return folder


def recipe(folder: Path, *lines: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text("\n".join(["extends: top-kernels", *lines]) + "\n")
    return path


def test_a_recipe_finds_its_templates_beside_it(tmp_path: Path, templates: Path) -> None:
    loaded = load_recipe(recipe(tmp_path, "templates: own", "languages: [ko, zh]"))
    assert loaded.templates == str(templates)
    assert loaded.languages == ("ko", "zh")
    assert loaded.to_dict()["languages"] == ["ko", "zh"]
    assert tmp_path in loaded.folders


def test_a_fault_in_the_templates_is_told_before_the_program_runs(
    tmp_path: Path, templates: Path
) -> None:
    with pytest.raises(RecipeError, match=r"templates: .*gone is no folder"):
        load_recipe(recipe(tmp_path, "templates: gone"))
    (templates / "reprot.md.j2").write_text("x")
    with pytest.raises(RecipeError, match=r"did you mean report\.md\.j2"):
        load_recipe(recipe(tmp_path, "templates: own"))
    with pytest.raises(RecipeError, match="languages"):
        load_recipe(recipe(tmp_path, "languages: [fr]"))


def test_the_options_of_a_report_go_before_its_recipe(
    tmp_path: Path, templates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Style | None] = []

    def make_report(run: RunDir, style: Style | None = None) -> tuple[tuple[str, ...], Path]:
        asked.append(style)
        return (), run.report / "report.md"

    monkeypatch.setattr(reporting, "make_report", make_report)
    run = tmp_path / "run"
    run.mkdir()
    write_manifest(RunDir(run), Manifest("run", "2026-01-01", {}))
    assert main(["report", str(run)]) == 0
    assert main(["report", str(run), "--language", "zh", "--language", "ko"]) == 0
    assert main(["report", str(run), "--language", "all", "--templates", str(templates)]) == 0
    assert asked == [None, Style(None, ("zh", "ko")), Style(templates, ("en", "ko", "zh"))]
    assert main(["report", str(run), "--language", "fr"]) == 2
    assert main(["report", str(run), "--templates", str(tmp_path / "gone")]) == 2
    assert len(asked) == 3


def test_a_dry_run_takes_the_options_of_a_run(
    tmp_path: Path, templates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--language", "ko", "--templates", str(templates)]
    assert main(["run", str(recipe(tmp_path)), "--dry-run", *options]) == 0
    assert main(["run", str(recipe(tmp_path)), "--dry-run", "--templates", str(tmp_path)]) == 2
    assert "holds no template" in capsys.readouterr().err
