"""HTML files: the words of the markdown, whole within themselves, links that lead somewhere."""

import base64
import gzip
import hashlib
import html
import json
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Column, Number, Strong, Table, Text
from nsight_prof.reports.page.formats import code, escape
from nsight_prof.reports.page.html import table_html
from nsight_prof.reports.page.markdown import table_markdown
from nsight_prof.reports.page.section import Footer
from nsight_prof.reports.page.writer import InHtml, InMarkdown, InTemplate, Writer
from nsight_prof.reports.profile.pages import marked_pages
from nsight_prof.reports.profile.provenance import RawCounter
from nsight_prof.reports.render.body import Carried, body
from nsight_prof.reports.render.folds import counter_columns, pack
from nsight_prof.reports.render.html_page import html_page, html_pages
from nsight_prof.reports.render.report import render_report, render_template
from nsight_prof.reports.render.style import Style

LARGEST = 3_000_000
SVG = "<svg></svg>"


@pytest.fixture(scope="module")
def example() -> dict[str, str]:
    """The markdown of a recorded run's report."""
    folder = Path(__file__).resolve().parents[3] / "docs" / "example"
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*.md")}


def pages_of(example: dict[str, str], figures: dict[str, str]) -> dict[str, str]:
    return html_pages({name: t for name, t in example.items() if "/" not in name}, {"en": figures})


def pictures(text: str) -> dict[str, str]:
    return dict.fromkeys(re.findall(r"!\[[^\]]*\]\(([^)]+)\.svg\)", text), SVG)


def words(text: str) -> list[str]:
    """Return the words that a reader of HTML sees."""
    text = re.sub(r"<(script|style|nav|svg)\b.*?</\1>|<title>.*?</title>", " ", text, flags=re.S)
    return html.unescape(re.sub(r"<[^>]+>", " ", text)).split()


def test_a_page_says_what_the_markdown_says(example: dict[str, str]) -> None:
    text = example["report.md"]
    page = pages_of(example, pictures(text))["report.html"]
    page = page[: page.index('<section id="stakeholder-summary"')]
    page = re.sub(r'<details data-fold="([^"]+)">(.*?)<p>.*?</p>', r"\2", page, flags=re.S)
    plain = re.sub(r"^!\[.*$", "", text, flags=re.M)
    expected = MarkdownIt("commonmark", {"html": True}).enable("table").render(plain)
    assert words(page) == words(expected)


def test_a_page_is_whole_within_itself(example: dict[str, str]) -> None:
    for name, page in pages_of(example, pictures(example["report.md"])).items():
        assert len(page.encode()) < LARGEST
        assert not re.search(r'src="|@import|url\((?!#)|https?://[^"]*"[^>]*>\s*</script', page)
        script = re.findall(r"<script>(.*?)</script>", page, re.S)[-1]
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}'" in page
        ids = re.findall(r'\bid="([^"]+)"', page)
        assert len(ids) == len(set(ids))
        for target in re.findall(r'href="([^"]+)"', page):
            file, _, anchor = target.partition("#")
            if not file:
                assert anchor in ids, (name, target)
            else:
                made = file.replace(".html", ".md")
                assert made in example or file in ("metrics.json",), (name, target)


def test_the_report_carries_the_summary_and_leads_there(example: dict[str, str]) -> None:
    page = pages_of(example, {})["report.html"]
    assert '<a href="#stakeholder-summary">' in page
    title = example["stakeholder_summary.md"].splitlines()[0].removeprefix("# ")
    assert f'<h2 id="summary-{title.replace(":", "").replace(" ", "-")}">{title}</h2>' in page


def test_packed_counters_are_those_of_the_page() -> None:
    counters = (
        RawCounter("dram__bytes.sum", 77.0, "", "byte"),
        RawCounter("sm__a|b<c>.max", None, "not counted", ""),
    )
    columns = counter_columns(counters, "zh")
    rows = list(zip(*(column.texts for column in columns), strict=True))
    assert rows[0] == ("计数器", "值")
    text = render_template("counters.md.j2", {"source": {"raw": counters}}, language="zh")
    shown = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    cells = [html.unescape(re.sub("<[^>]+>", "", cell))
             for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", shown)]  # fmt: skip
    assert [cell for row in rows for cell in row] == cells
    data = json.loads(gzip.decompress(base64.b64decode(pack({"kernel-1": columns}))))
    page = data["pages"]["kernel-1"]
    assert [tuple(data["texts"][n] for n in c) for c in page["columns"]] == [
        column.texts for column in columns
    ]
    assert page["right"] == [False, True]
    assert pack({"kernel-1": columns}) == pack({"kernel-1": columns})


def test_names_cannot_break_a_page() -> None:
    evil = '</script><script>alert(1)</script><img src="https://x.test/a.png" onerror="a()">'
    page = html_page(f"# {escape(evil)}\n\n| {escape(evil)} |\n| --- |\n| {code(evil)} |\n")
    assert "alert(1)</script>" not in page
    assert "<img" not in page
    assert f"<title>{html.escape(evil)}</title>" in page


def times(*rows: tuple[str, float | None], footer: Footer | None = None, head: str = "Name") -> str:
    """A table of names and times, as it stands on a page."""
    columns: list[Column[tuple[str, float | None]]] = [
        Column(Text(head), lambda row: row[0]),
        Column(Text("Time") if head else Text(""), lambda row: Number(row[1], "ns")),
    ]
    return table_html(Table("t", Text(""), columns, rows, footer=footer), Writer(markup=InHtml()))


def test_tables_are_sorted_by_the_numbers_themselves() -> None:
    rows = ("a", 900e3), ("b", 1.2e6), ("c", None)
    made = times(*rows)
    assert 'class="sortable"' in made
    assert re.findall(r'data-v="([^"]+)"', made) == ["900000", "1200000"]
    assert "sortable" not in times(*rows[:2])
    assert 'class="facts"' in times(*rows, head="")
    rest = times(*rows, footer=Footer(["", Number(3.0, "ns")]))
    assert '<tr class="rest"><td></td><td class="n">3.00\u00a0ns</td></tr>' in rest
    total = times(*rows, footer=Footer([Strong("all"), Strong(Number(3.0, "ns"))]))
    assert '<tr class="rest total"><td><strong>all</strong>' in total


def test_a_column_of_several_units_is_not_sorted() -> None:
    columns: list[Column[Number]] = [Column(Text("What"), lambda n: n)]
    rows = [Number(9e5, "ns"), Number(1.2e9, "B"), Number(0.03, "fraction")]
    assert 'class="n mixed"' in table_html(
        Table("t", Text(""), columns, rows), Writer(markup=InHtml())
    )


def test_a_table_of_a_template_keeps_its_numbers_at_the_right_and_is_not_sorted() -> None:
    made = body("| Name | Time |\n| --- | ---: |\n| a | 900 us |\n", Carried()).html
    assert '<div class="wide"><table>' in made
    assert '<td class="n">900 us</td>' in made
    assert "sortable" not in made


def test_reasons_of_missing_numbers_are_footnotes() -> None:
    columns: list[Column[Number]] = [Column(Text("What"), lambda n: n)]
    rows = [Number(None, missing="no counter"), Number(None, missing="not <run>")]
    table = Table("t", Text(""), columns, [*rows, rows[0]], footnotes=True)
    made = table_html(table, Writer(markup=InHtml()))
    assert re.findall(r"n/a \((\w)\)<", made) == ["a", "b", "a"]
    assert "<li>n/a (b): not &lt;run&gt;</li>" in made
    lines = table_markdown(table, Writer(markup=InMarkdown())).splitlines()
    assert lines[2] == "| n/a (a) |"
    assert lines[-1] == "- n/a (b): not &lt;run&gt;"


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    write = Writer(markup=InTemplate())
    text = write.text(Text("It takes {time} of {n} s.", time=Number(12.3e3, "ns"), n=2))
    pages = html_pages({"report.md": text})
    assert "It takes 12\u00a0us of 2 s." in pages["report.html"]
    assert marked_pages({"report.md": text}, [], "en") == {"report.md": "It takes 12 us of 2 s."}


def test_links_lead_to_the_page_that_has_the_place() -> None:
    write = InTemplate()
    pages = {
        "report.md": write.link("a", "#kernel-1") + write.link("b", "#here") + write.anchor("here"),
        "counters/kernel-1.md": write.anchor("kernel-1") + write.link("c", "#here"),
    }
    assert marked_pages(pages, [], "en") == {
        "report.md": '[a](counters/kernel-1.md#kernel-1)[b](#here)<a id="here"></a>',
        "counters/kernel-1.md": '<a id="kernel-1"></a>[c](../report.md#here)',
    }
    assert '<a href="#kernel-1">a</a>' in html_pages(pages)["report.html"]


@pytest.mark.parametrize(
    ("language", "contents"), [("en", "Contents"), ("ko", "목차"), ("zh", "目录")]
)
def test_the_frame_of_a_page_speaks_its_language(language: str, contents: str) -> None:
    page = html_page("# A\n\n## B\n", language=language)
    assert f'<html lang="{language}">' in page
    assert f"<summary>{contents}</summary>" in page
    assert "<summary>" not in html_page("# A\n", language=language)


def test_headings_have_ids_of_their_own() -> None:
    made = body('<a id="caveats"></a>\n\n## Caveats\n\n## Contents\n\n## A b\n\n## A b', Carried())
    assert [one.id for one in made.headings] == ["caveats-1", "contents-1", "a-b", "a-b-1"]


def test_a_picture_that_is_not_carried_stays_a_link(example: dict[str, str]) -> None:
    page = html_page(example["report.md"])
    assert "<figure>" not in page
    assert "<img" not in page
    assert '<a href="time.svg">Bars: share of GPU time of each kernel</a>' in page
    assert html_page("![a](b.svg)\n\n[SVG](b.svg)\n", figures={"b": SVG}).count("b.svg") == 0


def test_every_text_of_a_report_has_its_page(run: Run) -> None:
    paths = render_report(run, Style(languages=("ko",)))
    names = {path.name for path in paths.folder.glob("*.html")}
    stems = ("report", "stakeholder_summary")
    assert names == {f"{stem}{suffix}.html" for stem in stems for suffix in ("", ".ko")}
    assert '<html lang="ko">' in (paths.folder / "stakeholder_summary.ko.html").read_text()
    first = paths.page.read_text()
    pictures = [path.name for path in paths.folder.rglob("*.svg")]
    narrow = 1  # the overview is there for narrow pages, too
    assert first.count("<svg") == narrow + len([n for n in pictures if ".ko." not in n])
    assert {"overview.svg", "overview.ko.svg"} <= set(pictures)
    ids = re.findall(r'\bid="([^"]+)"', first)
    assert len(ids) == len(set(ids))
    markup = first.partition("<script>")[0]
    used = re.findall(r"url\(#([^)]+)\)|<use href=\"#([^\"]+)\"", markup)
    assert used
    assert {a or b for a, b in used} <= set(ids)
    again = render_report(run, Style(formats=("html",))).page.read_text()
    assert (svg := re.compile("<svg.*?</svg>", re.S)).findall(again) == svg.findall(first)
