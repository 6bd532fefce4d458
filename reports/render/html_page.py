"""One HTML file for a markdown text: style, script and figures inside, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from nsight_prof.reports.page import Table
from nsight_prof.reports.page.catalogue import ENGLISH, file_in
from nsight_prof.reports.page.formats import Markdown, markdown
from nsight_prof.reports.page.html import Fragment, Heading, table_html
from nsight_prof.reports.page.marks import HOLD, filled
from nsight_prof.reports.page.writer import InHtml, Writer
from nsight_prof.reports.profile.pages import BEYOND
from nsight_prof.reports.render.body import Carried, body, placeholder
from nsight_prof.reports.render.folds import Folds, pack
from nsight_prof.reports.render.templating import render
from nsight_prof.reports.trace_view import assets

TEMPLATE = "report.html.j2"
SUMMARY_PLACE = "stakeholder-summary"
OVERVIEW = "overview.svg"
"""The picture that the summary within a report shares with it."""
DEEPEST = 3
"""Headings below this level are not in the contents."""


def html_pages(
    files: Mapping[str, str],
    figures: Mapping[str, Mapping[str, str]] | None = None,
    templates: Path | None = None,
    sections: Mapping[str, Mapping[str, Fragment]] | None = None,
    folds: Mapping[str, Folds] | None = None,
    tables: Mapping[str, Sequence[Table[Any]]] | None = None,
) -> dict[str, str]:
    """Return the HTML files of a report: one per markdown file that is not carried within.

    `files` are the texts of the report by name, `figures` SVG elements by language and the name of
    the picture. `sections` by language stand where report.md has a place for them
    (reports.render.body.placeholder), and `tables` by language are those of marks. The page of
    report.md, as that of report.ko.md, carries the `folds` and the summary in its language. Raises
    as `html_page`.
    """
    texts = {name: text for name, text in files.items() if name.endswith(".md")}
    pages = {}
    for name in texts:
        language = _language(name)
        of_language = (tables or {}).get(language, ())
        is_report = name.startswith("report.")
        report = "" if is_report else file_in("report.md", language)
        fragments = dict((sections or {}).get(language, {})) if is_report else {}
        same = {
            n: _filled(text, of_language, report, language, fragments)
            for n, text in texts.items()
            if n == name or is_report and _language(n) == language
        }
        pages[f"{name.removesuffix('.md')}.html"] = html_page(
            same.pop(name),
            figures=(figures or {}).get(language),
            folds=(folds or {}).get(language) if is_report else None,
            summary=next((t for n, t in same.items() if n.startswith("stakeholder_summary")), ""),
            language=language,
            templates=templates,
            sections=fragments,
        )
    return pages


def _language(name: str) -> str:
    """Return the language of a page: "ko" of report.ko.md."""
    return name.removesuffix(".md").partition(".")[2] or ENGLISH


def html_page(
    text: str,
    *,
    figures: Mapping[str, str] | None = None,
    folds: Folds | None = None,
    summary: str = "",
    language: str = "en",
    templates: Path | None = None,
    sections: Mapping[str, Fragment] | None = None,
) -> str:
    """Return a markdown text as one HTML file; its first heading is the title.

    `figures` are SVG elements by the name of the picture, `folds` the tables of other pages, each
    of which unfolds where a paragraph is a link to its page alone. `summary` is the text of
    stakeholder_summary.md, which stands at the end. `templates` is a folder of the user's.

    Raises:
        ArtifactUnreadable: the template of the page cannot be used.
    """
    this = file_in("report.md", language)
    places = {this: "top", file_in("stakeholder_summary.md", language): SUMMARY_PLACE}
    given = sections or {}
    carried = Carried(figures or {}, frozenset(folds or ()), places if summary else {}, given)
    main = body(text, carried)
    # The summary leads to the report, which is this page.
    inside = Carried(places=dict.fromkeys((this, OVERVIEW), "top"), sections=given)
    half = body(summary, inside, "summary-", 1) if summary else None
    before = main.html.partition(BEYOND)[0]
    # Tables beyond the report have a line in the contents for all of a section.
    listed = [h for h in main.headings if h.level < 3 or f'id="{h.id}"' in before]
    headings = [*listed, *(half.headings[:1] if half else ())]
    script, style = _file("page.js"), _file("page.css")
    words = ""
    if assets.are_in(main.html):
        words = assets.words(language)
        script, style = f"{script}\n{assets.script()}", f"{style}\n{assets.style()}"
    content: dict[str, Any] = {
        "title": next((h.text for h in main.headings if h.level == 1), "Report"),
        "language": language,
        "style": markdown(style),
        "script": markdown(script),
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "contents": markdown(_contents(headings)),
        "body": markdown(main.html),
        "folds": pack(folds or {}),
        "words": markdown(words),
        "summary": markdown(f'<section id="{SUMMARY_PLACE}">{half.html}</section>') if half else "",
    }
    return render(TEMPLATE, content, templates, _finalize, language)


def _filled(
    text: str,
    tables: Sequence[Table[Any]],
    report: str,
    language: str,
    fragments: dict[str, Fragment],
) -> str:
    """Return a text with the words for its marks; tables of these are added to `fragments`.

    The page `report` has the places of its links, "" for this page itself.
    """
    html = InHtml(report.replace(".md", ".html"))

    def table(number: str) -> str:
        written = table_html(tables[int(number)], Writer(language, html))
        fragments[f"table-{number}"] = Fragment(written, ())
        return f"\n{placeholder(f'table-{number}')}\n"

    words = {"id": html.anchor, "link": lambda name: f"{report}#{name}", "table": table}
    return filled(text, words).replace(HOLD, "\N{NO-BREAK SPACE}")


def _finalize(value: Any) -> Any:
    """Escape all that the template of the page writes, unless it is HTML on purpose."""
    return value if isinstance(value, Markdown) else escape(str(value))


def _contents(headings: Sequence[Heading]) -> str:
    """Return the list of headings, those below a chapter within it."""
    items = [h for h in headings if 2 <= h.level <= DEEPEST]
    return "".join(
        f'<li class="l{h.level}"><a href="#{escape(h.id)}">{escape(h.text)}</a></li>' for h in items
    )


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8").strip()
