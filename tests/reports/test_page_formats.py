"""Formats of a report's pages: what is left out, and that the rest is the same without it."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.render import drawing
from nsight_prof.reports.render.drawing import Drawn
from nsight_prof.reports.render.gallery import Picture
from nsight_prof.reports.render.report import ReportPaths, render_report
from nsight_prof.reports.render.style import Style


def contents(made: ReportPaths) -> dict[str, bytes]:
    """Return the files of a report by their names in its folder."""
    found = (path for path in made.folder.rglob("*") if path.is_file())
    return {str(path.relative_to(made.folder)): path.read_bytes() for path in found}


@pytest.fixture(autouse=True)
def one_picture_is_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which files there are does not depend on what all of them show."""
    draw = drawing._drawn

    def drawn(picture: Picture, style: Style) -> Drawn:
        if picture.name != "overview":
            narrow = None if picture.narrow is None else Figure
            picture = replace(picture, draw=Figure, narrow=narrow)
        return draw(picture, style)

    monkeypatch.setattr(drawing, "_drawn", drawn)


def test_each_format_alone_is_its_part_of_both(run: Run) -> None:
    both = contents(render_report(run))
    markdown = render_report(run, Style(formats=("md",)))
    as_markdown = contents(markdown)
    page = render_report(run, Style(formats=("html",)))
    as_html = contents(page)
    kinds = {Path(name).suffix for name in both}
    assert kinds == {".md", ".html", ".json", ".svg"}
    assert as_markdown == {n: data for n, data in both.items() if not n.endswith(".html")}
    assert as_html == {n: data for n, data in both.items() if n.endswith((".html", ".json"))}
    assert markdown.report.name == "report.md"
    assert markdown.summary is not None
    assert markdown.pictures
    assert page.report == page.page
    assert page.report.is_file()
    assert (page.summary, page.pictures) == (None, ())


def test_pictures_are_png_too_where_that_is_asked_for(run: Run) -> None:
    plain = contents(render_report(run, Style(formats=("md",))))
    made = render_report(run, Style(formats=("md",), png=True))
    drawn = {Path(name).stem for name in plain if name.endswith(".svg")} - {"time-by-roof"}
    assert {p.stem for p in made.pictures if p.suffix == ".png"} == drawn  # histograms are SVG
    both = contents(made)
    assert {n: data for n, data in both.items() if not n.endswith(".png")} == plain
    assert all(both[p.name].startswith(b"\x89PNG") for p in made.pictures if p.suffix == ".png")


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("kind", ["md", "html"])
def test_a_recipe_s_languages_are_kept(run: Run, kind: str) -> None:
    run.manifest.recipe["languages"] = ["ko"]
    made = render_report(run, Style(formats=(kind,)))
    assert f"stakeholder_summary.ko.{kind}" in contents(made)
