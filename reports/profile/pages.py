"""The markdown pages of a profile run, and the same as one text for the HTML page.

Templates link to places whatever page these are on. In markdown files the links lead to the page
that has the place; the HTML page has all of them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from nsight_prof.reports.page import Table
from nsight_prof.reports.page.layout import LAYOUTS, LINES
from nsight_prof.reports.page.markdown import table_markdown
from nsight_prof.reports.page.marks import HOLD, filled, mark, marks
from nsight_prof.reports.page.writer import InMarkdown, InTemplate, Writer

if TYPE_CHECKING:
    from nsight_prof.reports.profile.provenance import Provenance
    from nsight_prof.reports.profile.view_models import KernelRow, ReportView

REPORT, DETAILS = "report.md", "details.md"
BEYOND = '<div class="beyond">'
"""Begins what an HTML page has of the other files: all tables and kernels."""
Render = Callable[[str, Mapping[str, Any]], str]


@dataclass(frozen=True)
class Pages:
    """Texts of a profile run by file name.

    `markdown` are the files as they are written. `html` are those that HTML pages are made from:
    report.md with all details in one text, in an element that is not printed.
    """

    markdown: dict[str, str] = field(default_factory=dict)
    html: dict[str, str] = field(default_factory=dict)


def profile_pages(
    view: ReportView, content: Mapping[str, Any], render: Render, tables_of: Sequence[Table[Any]]
) -> Pages:
    """Return report.md, details.md and the page of each kernel with counters.

    `content` is what report.md.j2 is given beside the layout, `render` makes a text of a template
    and its content, and adds its tables to `tables_of`.
    """
    sources: Mapping[str, Provenance] = content["sources"]
    given = {name: content[name] for name in ("view", "sources", "links", "table")}
    blocks = {k.number: render("kernel.md.j2", {**given, "kernel": k}) for k in view.kernels}
    without = [k for k in view.kernels if k.kernel_id not in sources]
    for layout in LAYOUTS:
        content = {**content, "layout": layout}
        report = render("report.md.j2", content)
        if _lines(report, tables_of) <= LINES:
            break
    tables = render("tables.md.j2", content)
    histograms = content["histograms"]
    of_kernels = {"blocks": blocks, "sources": sources, "histograms": histograms}
    every, others = (
        render("kernels.md.j2", {**of_kernels, "kernels": some, "whole": is_complete})
        for some, is_complete in ((view.kernels, True), (without, False))
    )
    details = render("details.md.j2", {"view": view, "tables": tables, "folds": others.strip()})
    beyond = f"{BEYOND}\n\n{tables}\n{every if view.kernels else ''}\n\n</div>\n"
    pages = Pages({REPORT: report, DETAILS: details}, {REPORT: f"{report}\n{beyond}"})
    for kernel in view.kernels:
        if kernel.kernel_id in sources:
            source = sources[kernel.kernel_id]
            of_kernel = {"kernel": kernel, "source": source, "table": content["table"]}
            block = {
                "block": blocks[kernel.number],
                "counters": render("counters.md.j2", of_kernel),
                "histogram": histograms.get(kernel.number),
            }
            pages.markdown[kernel_file(kernel)] = render("kernel_page.md.j2", of_kernel | block)
    return pages


def _lines(text: str, tables: Sequence[Table[Any]]) -> int:
    """Return how many lines a page has once its tables are written."""
    in_text = (tables[int(number)] for kind, number in marks(text) if kind == "table")
    more = (table_markdown(table, Writer()).strip().count("\n") for table in in_text)
    return text.count("\n") + sum(more)


def kernel_file(kernel: KernelRow) -> str:
    """Return the name of the page of a kernel with counters."""
    return f"counters/kernel-{kernel.number}.md"


def marked_pages(
    pages: Mapping[str, str], tables: Sequence[Table[Any]], language: str
) -> dict[str, str]:
    """Return markdown pages with the words for the marks of their texts.

    `tables` are those that the marks number. A link leads to the page that has its place.
    """
    write = Writer(language, InTemplate())

    def lines(number: str) -> str:
        return table_markdown(tables[int(number)], write)

    marks_again = {"id": partial(mark, "id"), "link": partial(mark, "link")}
    texts = {name: filled(text, {**marks_again, "table": lines}) for name, text in pages.items()}
    where = {
        anchor: name for name, text in texts.items() for kind, anchor in marks(text) if kind == "id"
    }

    relative = cache(posixpath.relpath)  # asks for the current folder; hundreds of links share one

    def target(name: str, anchor: str) -> str:
        page = where.get(anchor, name)
        return f"{'' if page == name else relative(page, posixpath.dirname(name) or '.')}#{anchor}"

    return {
        name: filled(text, {"id": InMarkdown().anchor, "link": partial(target, name)}).replace(
            HOLD, " "
        )
        for name, text in texts.items()
    }
