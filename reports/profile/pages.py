"""The markdown pages of a profile run, and the same as one text for the HTML page.

Templates link to `#place` whatever page the place is on. In markdown files these links lead to the
page that has the place; the HTML page has all of them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nsight_prof.reports.page.layout import Layout
from nsight_prof.reports.profile.provenance import Provenance
from nsight_prof.reports.profile.view_models import KernelRow, ReportView

REPORT, DETAILS = "report.md", "details.md"
Render = Callable[[str, Mapping[str, Any]], str]
_PLACE = re.compile(r'<a id="([^"]+)"></a>')
_LINK = re.compile(r"\]\((?:report(?:\.\w+)?\.md)?#([^)\s]+)\)")


@dataclass(frozen=True)
class Pages:
    """Texts of a profile run by file name.

    `markdown` are the files as they are written. `html` are those that HTML pages are made from:
    report.md with all details in one text.
    """

    markdown: dict[str, str] = field(default_factory=dict)
    html: dict[str, str] = field(default_factory=dict)


def profile_pages(view: ReportView, content: Mapping[str, Any], render: Render) -> Pages:
    """Return report.md, details.md and the page of each kernel with counters.

    `content` is what report.md.j2 is given beside the layout, `render` makes a text of a template
    and its content.
    """
    sources: Mapping[str, Provenance] = content["sources"]
    given = {name: content[name] for name in ("view", "sources", "links")}
    blocks = {k.number: render("kernel.md.j2", {**given, "kernel": k}) for k in view.kernels}
    content = {**content, "layout": Layout()}
    without = [k for k in view.kernels if k.kernel_id not in sources]
    report, tables = render("report.md.j2", content), render("tables.md.j2", content)
    histograms = content["histograms"]
    of_kernels = {"blocks": blocks, "sources": sources, "histograms": histograms}
    every, others = (
        render("kernels.md.j2", {**of_kernels, "kernels": some, "whole": is_complete})
        for some, is_complete in ((view.kernels, True), (without, False))
    )
    details = render("details.md.j2", {"view": view, "tables": tables, "folds": others.strip()})
    pages = Pages({REPORT: report, DETAILS: details}, {REPORT: f"{report}\n{tables}"})
    if view.kernels:
        pages.html[REPORT] += f"\n{every}"
    for kernel in view.kernels:
        if kernel.kernel_id in sources:
            source = sources[kernel.kernel_id]
            block = {
                "block": blocks[kernel.number],
                "counters": render("counters.md.j2", {"kernel": kernel, "source": source}),
                "histogram": histograms.get(kernel.number),
            }
            pages.markdown[kernel_file(kernel)] = render(
                "kernel_page.md.j2", {"kernel": kernel, "source": source, **block}
            )
    return pages


def kernel_file(kernel: KernelRow) -> str:
    """Return the name of the page of a kernel with counters."""
    return f"counters/kernel-{kernel.number}.md"


def linked_pages(pages: Mapping[str, str]) -> dict[str, str]:
    """Return markdown pages whose links to a place lead to the page that has it.

    A place is `<a id="…"></a>`; a link to a place of no page stays as it is.
    """
    where = {anchor: name for name, text in pages.items() for anchor in _PLACE.findall(text)}

    def led(name: str, text: str) -> str:
        def target(found: re.Match[str]) -> str:
            page = where.get(found[1], name)
            if page == name:
                return f"](#{found[1]})"
            return f"]({posixpath.relpath(page, posixpath.dirname(name) or '.')}#{found[1]})"

        return _LINK.sub(target, text)

    return {name: led(name, text) for name, text in pages.items()}
