"""Writes a page that is one section, as a comparison is, as one HTML file."""

from __future__ import annotations

from nsight_prof.reports.page.catalogue import ENGLISH
from nsight_prof.reports.page.html import section_html
from nsight_prof.reports.page.section import Section
from nsight_prof.reports.plots.inline import render_inline
from nsight_prof.reports.plots.style import render_svg
from nsight_prof.reports.plots.words import drawn_in
from nsight_prof.reports.render.body import placeholder
from nsight_prof.reports.render.gallery import bench_pictures
from nsight_prof.reports.render.html_page import html_page


def section_page(page: Section, language: str = ENGLISH) -> str:
    """Return a section with its pictures as one HTML file that sorts, prints, and goes dark."""
    drawn = {}
    with drawn_in(language):
        for picture in bench_pictures([page]):
            figure, name = picture.draw(), picture.name
            drawn[name] = render_inline(figure, render_svg(figure), name, picture.alt)
    fragment = section_html(page, drawn, language, level=1)
    return html_page(placeholder(page.key), sections={page.key: fragment}, language=language)
