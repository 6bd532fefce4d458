"""Templates of a user: single ones take the place of bundled ones, faults name their place."""

import sys
from pathlib import Path

import pytest

from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.profile import views
from nsight_prof.reports.profile.view_models import ReportView
from nsight_prof.reports.render import templating
from nsight_prof.reports.render.report import render_report
from nsight_prof.reports.render.style import Style, style_of, templates_folder
from nsight_prof.reports.render.templating import render


@pytest.fixture(autouse=True)
def only_templates(monkeypatch: pytest.MonkeyPatch, no_pictures: None, view: ReportView) -> None:
    """Draw nothing, and analyse the run once for all tests."""
    monkeypatch.setattr(views, "report_view", lambda run: view)


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_one_template_is_replaced_and_the_others_stay(run: Run, tmp_path: Path) -> None:
    own = write(tmp_path / "own", "report.md.j2", "# Ours: {{ view.title }}\n")
    plain = render_report(run).report.read_text("utf-8")
    made = render_report(run, Style(own))
    assert made.report.read_text("utf-8") == "# Ours: top-kernels\n"
    assert plain != made.report.read_text("utf-8")
    assert made.summary is not None
    assert made.summary.read_text("utf-8").startswith("# top-kernels: summary\n")


def test_a_template_may_build_on_the_bundled_one_and_on_parts_of_its_own(
    run: Run, tmp_path: Path
) -> None:
    text = '{% include "_head.j2" %}\n{% include "prof/stakeholder_summary.md.j2" %}\n'
    own = write(tmp_path / "own", "stakeholder_summary.md.j2", text)
    write(own, "_head.j2", "<sub>Confidential</sub>\n")
    made = render_report(run, Style(own)).summary
    assert made is not None
    head, _, rest = made.read_text("utf-8").partition("\n")
    assert head == "<sub>Confidential</sub>"
    assert "# top-kernels: summary" in rest


def test_templates_are_those_that_are_given_never_those_of_the_recipe_of_a_run(
    run: Run, tmp_path: Path
) -> None:
    recipes = write(tmp_path / "a", "report.md.j2", "of the recipe")
    given = write(tmp_path / "b", "report.md.j2", "given")
    run.manifest.recipe["templates"] = str(recipes)
    assert "of the recipe" not in render_report(run).report.read_text("utf-8")
    assert render_report(run, Style(given)).report.read_text("utf-8") == "given\n"
    assert style_of({"templates": str(recipes), "languages": ["ko"]}, Style(given)) == Style(
        given, ("ko",)
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("one\n{{ view.titel }}", r"report.md.j2, line 2: ReportView has no 'titel'.*mean title\?"),
        ("{% if view.sumary %}x{% endif %}", r"line 1: ReportView has no 'sumary'"),
        ("{% for k in view.kernels %}\n{{ k.nmae }}\n{% endfor %}", r"line 2: KernelRow has no"),
        ("{{ veiw.title }}", "line 1: 'veiw' is undefined"),
        ("{% import 'parts.md.j2' as p %}\n\n{{ p.kernl_link(1) }}", "line 3: .*kernl_link"),
        ("a\n{% endif %}", "report.md.j2, line 2"),
        ("{{ view.gpu_time_ns }}", "report.md.j2.*has no format"),
        ("{{ 1 / 0 }}", "line 1: division by zero"),
        ("{% include 'part.j2' %}", r"line 1: there is no template part\.j2"),
        ("{% extends 'report.md.j2' %}", "line 1: it takes itself in without end.*prof/NAME"),
    ],
)
def test_a_fault_names_template_line_and_what_is_absent(
    source: str, words: str, run: Run, tmp_path: Path
) -> None:
    own = write(tmp_path / "own", "report.md.j2", source)
    with pytest.raises(UsageError, match=words) as caught:
        render_report(run, Style(own))
    assert str(own) in caught.value.message
    assert "docs/templates.md" in caught.value.hint


def test_a_template_that_is_no_text_is_named_with_its_folder(run: Run, tmp_path: Path) -> None:
    own = write(tmp_path / "own", "report.md.j2", "")
    (own / "report.md.j2").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="can't decode") as caught:
        render_report(run, Style(own))
    assert str(own / "report.md.j2") in caught.value.message


def test_a_fault_in_a_part_names_the_part(run: Run, tmp_path: Path) -> None:
    own = write(tmp_path / "own", "report.md.j2", "{% include '_part.j2' %}")
    write(own, "_part.j2", "\n\n{{ view.nothing_of_that_name }}")
    with pytest.raises(UsageError, match=r"_part.j2, line 3: .*nothing_of_that_name"):
        render_report(run, Style(own))


def test_an_old_report_stays_where_a_template_is_wrong(run: Run, tmp_path: Path) -> None:
    old = render_report(run).report.read_text("utf-8")
    own = write(tmp_path / "own", "report.md.j2", "{{ view.nothing }}")
    with pytest.raises(UsageError):
        render_report(run, Style(own))
    assert (run.path / "report" / "report.md").read_text("utf-8") == old


def test_a_folder_that_replaces_nothing_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no folder of templates"):
        render_report(run, Style(tmp_path / "gone"))
    own = write(tmp_path / "own", "read.me", "x")
    with pytest.raises(UsageError, match="holds no template"):
        render_report(run, Style(own))
    write(own, "reprot.md.j2", "x")
    with pytest.raises(UsageError, match=r"no template: did you mean report\.md\.j2\?"):
        render_report(run, Style(own))


def test_a_fault_of_a_bundled_template_does_not_show_where_prof_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "x.md.j2", "{{ nothing }}")
    monkeypatch.setattr("nsight_prof.reports.render.templating.templates_folder", lambda: tmp_path)
    with pytest.raises(ArtifactUnreadable) as caught:
        render("x.md.j2", {})
    assert caught.value.message == "template x.md.j2, line 1: 'nothing' is undefined"


def test_bundled_templates_are_kept_compiled_for_all_languages_and_those_of_users_are_not(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = write(tmp_path / "own", "kernels.md.j2", "{{ 'mine' }}\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)

    def rendered(cache: str, language: str) -> str:
        monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / cache))
        templating._environment.cache_clear()
        folder = render_report(run, Style(own, (language,))).folder
        return (folder / f"report.{language}.md").read_text("utf-8")

    alone = rendered("of ko", "ko")
    rendered("shared", "zh")
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "shared").rglob("*.pyc")}
    assert rendered("shared", "ko") == alone
    assert kept == {path: path.stat().st_mtime_ns for path in (tmp_path / "shared").rglob("*.pyc")}
    names = {path.name.partition(".")[0] for path in kept}
    assert "report" in names
    assert "kernels" not in names


def test_every_bundled_template_can_be_replaced_by_its_copy(run: Run, tmp_path: Path) -> None:
    plain = render_report(run)
    texts = {p.name: p.read_text("utf-8") for p in plain.folder.glob("*.md")}
    own = tmp_path / "own"
    for path in templates_folder().glob("*.j2"):
        write(own, path.name, path.read_text("utf-8"))
    made = render_report(load_run(run.path), Style(own))
    assert {p.name: p.read_text("utf-8") for p in made.folder.glob("*.md")} == texts
