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
from nsight_prof.reports.page.formats import code, escape
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
    return html_pages({name: t for name, t in example.items() if "/" not in name}, figures)


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
    plain = re.sub(r"^(!\[.*|<sub>The same as a file: \[.*)$", "", text, flags=re.M)
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


def test_every_text_of_a_report_has_its_page(run: Run, draws_anew: None) -> None:
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
