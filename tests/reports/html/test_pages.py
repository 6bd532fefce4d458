"""HTML files: the words of the markdown, whole within themselves, links that lead somewhere."""

import base64
import gzip
import hashlib
import html
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page.formats import code, escape
from nsight_prof.reports.render.body import Carried, body
from nsight_prof.reports.render.folds import pack, table_of
from nsight_prof.reports.render.html_page import html_page, html_pages
from nsight_prof.reports.render.report import render_report
from nsight_prof.reports.render.style import Style

LARGEST = 3_000_000
SVG = "<svg></svg>"


@pytest.fixture(scope="module")
def example() -> dict[str, str]:
    """The markdown of a recorded run's report."""
    folder = Path(__file__).resolve().parents[3] / "docs" / "example"
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*.md")}


def pictures(text: str) -> dict[str, str]:
    return dict.fromkeys(re.findall(r"!\[[^\]]*\]\(([^)]+)\.svg\)", text), SVG)


def words(text: str) -> list[str]:
    """Return the words that a reader of HTML sees."""
    text = re.sub(r"<(script|style|nav|svg)\b.*?</\1>|<title>.*?</title>", " ", text, flags=re.S)
    return html.unescape(re.sub(r"<[^>]+>", " ", text)).split()


def test_a_page_says_what_the_markdown_says(example: dict[str, str]) -> None:
    text = example["report.md"]
    page = html_pages(example, pictures(text))["report.html"]
    page = page[: page.index('<section id="stakeholder-summary"')]
    page = re.sub(r'<details data-fold="([^"]+)">(.*?)<p>.*?</p>', r"\2", page, flags=re.S)
    plain = re.sub(r"^(!\[.*|<sub>The same as a file: \[.*)$", "", text, flags=re.M)
    expected = MarkdownIt("commonmark", {"html": True}).enable("table").render(plain)
    assert words(page) == words(expected)


def test_a_page_is_whole_within_itself(example: dict[str, str]) -> None:
    for name, page in html_pages(example, pictures(example["report.md"])).items():
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
    page = html_pages(example, {})["report.html"]
    assert '<a href="#stakeholder-summary">' in page
    title = example["stakeholder_summary.md"].splitlines()[0].removeprefix("# ")
    assert f'<h2 id="summary-{title.replace(":", "").replace(" ", "-")}">{title}</h2>' in page


def test_packed_counters_are_those_of_the_page() -> None:
    head = "| Counter | Value |\n| --- | ---: |\n"
    names = (code("dram__bytes.sum"), code("sm__a|b<c>.max"))
    rows = [f"| {name} | 77 inst |\n" for name in names]
    pages = {f"counters/kernel-{n}.md": head + "".join(rows[:n]) for n in (1, 2)}
    data = json.loads(gzip.decompress(base64.b64decode(pack(pages))))
    assert set(data["pages"]) == set(pages)
    for name, text in pages.items():
        shown = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
        cells = [html.unescape(re.sub("<[^>]+>", "", cell))
                 for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", shown)]  # fmt: skip
        columns = [[data["texts"][n] for n in c] for c in data["pages"][name]["columns"]]
        assert [cell for row in zip(*columns, strict=True) for cell in row] == cells
        assert data["pages"][name]["right"] == [False, True]
    assert pack(pages) == pack(pages)


@given(name=st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1))
def test_any_cell_comes_back_from_the_packed_table(name: str) -> None:
    rows = f"| A | B |\n| --- | ---: |\n| {code(name)} | {escape(name)} |\n"
    assert table_of(rows)[2] == [name, name]


def test_names_cannot_break_a_page() -> None:
    evil = '</script><script>alert(1)</script><img src="https://x.test/a.png" onerror="a()">'
    page = html_page(f"# {escape(evil)}\n\n| {escape(evil)} |\n| --- |\n| {code(evil)} |\n")
    assert "alert(1)</script>" not in page
    assert "<img" not in page
    assert f"<title>{html.escape(evil)}</title>" in page


def test_only_tables_with_an_order_are_sorted() -> None:
    def table(*rows: str, head: str = "| Name | Time |") -> str:
        return body("\n".join([head, "| --- | ---: |", *rows]), Carried()).html

    whole = table("| a | 900 us |", "| b | 1.2 ms |", "| c | n/a |")
    assert 'class="sortable"' in whole
    assert re.findall(r'data-v="([^"]+)"', whole) == ["900000", "1200000"]
    assert "sortable" not in table("| a | 1 |", "| b | 2 |")
    assert "sortable" not in table("| a | 1 |", "| | 2 |", "| c | 3 |")
    assert 'class="rest"' in table("| a | 1 |", "| b | 2 |", "| c | 3 |", "| | 4 |")
    total = table("| a | 1 |", "| b | 2 |", "| c | 3 |", "| **all** | **6** |")
    assert '<tr class="rest total">' in total
    assert 'class="facts"' in table("| a | 1 |", "| b | 2 |", "| c | 3 |", head="| | |")
    mixed = table("| a | 900 us |", "| b | 1.2 GB |", "| c | 3 % |")
    assert "data-v" not in mixed
    assert 'class="n mixed"' in mixed


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    made = body("It takes 12.3 us (4.5 %) of 3 GB/s, in 2 stages.", Carried()).html
    assert "12.3\u00a0us (4.5\u00a0%) of 3\u00a0GB/s, in 2 stages" in made


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
    assert first.count("<svg") == len(list(paths.folder.rglob("*.svg")))
    ids = re.findall(r'\bid="([^"]+)"', first)
    assert len(ids) == len(set(ids))
    markup = first.partition("<script>")[0]
    used = re.findall(r"url\(#([^)]+)\)|<use href=\"#([^\"]+)\"", markup)
    assert used
    assert {a or b for a, b in used} <= set(ids)
    assert render_report(run, Style(languages=("ko",))).page.read_text() == first
